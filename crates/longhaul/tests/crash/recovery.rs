use crate::Options;
pub(crate) fn by_a_stranger(_: &Options) {}
pub(crate) fn not_by_the_ignorant(_: &Options) {}
pub(crate) fn not_of_the_living(_: &Options) {}
