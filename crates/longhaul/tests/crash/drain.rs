use crate::Options;
pub(crate) fn drained(_: &Options) {}
pub(crate) fn slowly(_: &Options) {}
