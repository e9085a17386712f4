//! Ids derived from a call, so that a repeated call creates the same thing under the same id.

use crate::id::Digest;
use crate::tool::CallContext;

/// Returns the ids that something created by this call may have, shortest first. The caller takes the first
/// that is free or already its own.
pub(super) fn candidate_ids(context: &CallContext) -> impl Iterator<Item = String> + use<> {
    let digest = Digest::of_bytes(format!("{}:{}", context.caller.task, context.call).as_bytes());
    (4..=16).map(move |half| digest.as_str()[..half * 2].to_owned())
}
