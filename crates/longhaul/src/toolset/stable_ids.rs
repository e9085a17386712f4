//! Names for what a call makes, so that the same call, made again, makes the same thing.

use crate::id::Digest;
use crate::tool::CallContext;

/// The ids that something made by this call may have, shortest first: the first that is free, or its own already.
pub(super) fn candidate_ids(context: &CallContext) -> impl Iterator<Item = String> + use<> {
    let digest = Digest::of_bytes(format!("{}:{}", context.caller.task, context.call).as_bytes());
    (4..=16).map(move |half| digest.as_str()[..half * 2].to_owned())
}
