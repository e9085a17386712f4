//! What the columns of a database have in common, whichever it is.

use super::StoreError;
use super::validate::{DraftEntry, WriteDraft};
use crate::entry::TeamRef;
use crate::id::Seq;
use crate::task::TaskState;

/// The encoded entries of each write.
pub(super) type EncodedEntries = Vec<Vec<Vec<u8>>>;

/// Encodes the entries of some writes.
pub(super) fn encode(drafts: &[WriteDraft]) -> Result<EncodedEntries, StoreError> {
    let one = |draft: &WriteDraft| {
        let lines = draft.entries.iter().zip(1..);
        let encode = |(line, nth): (&DraftEntry, u64)| {
            let seq = Seq(draft.after.unwrap_or_default().0 + nth);
            line.record.entry.encode().map_err(|why| StoreError::BadEntry { task: draft.task, seq, why })
        };
        lines.map(encode).collect()
    };
    drafts.iter().map(one).collect()
}

/// A team as text.
pub(super) fn team_text(team: &TeamRef) -> String {
    match team {
        TeamRef::Named(name) => format!("named:{name}"),
        TeamRef::File(digest) => format!("file:{digest}"),
    }
}

/// The team in a text of [`team_text`].
pub(super) fn team_from_text(text: &str) -> Option<TeamRef> {
    match text.split_once(':')? {
        ("named", name) => Some(TeamRef::Named(name.into())),
        ("file", digest) => Some(TeamRef::File(digest.into())),
        _ => None,
    }
}

/// Converts a number to the type that databases have.
pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// When anything last happened in a task that has ended.
pub(super) fn quiet_column(state: &TaskState) -> Option<i64> {
    state.status.is_final().then(|| state.active.as_millisecond())
}
