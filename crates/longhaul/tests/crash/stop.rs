use crate::Options;
pub(crate) fn of_a_tree(_: &Options) {}
pub(crate) fn then_a_kill(_: &Options) {}
pub(crate) fn half_done(_: &Options) {}
