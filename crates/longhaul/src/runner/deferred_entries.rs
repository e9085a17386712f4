//! Entries that a run continues with before they are on disk, and when they must be written.
//!
//! This is for results of calls that may be repeated, and for replies without calls: if a crash loses one,
//! the run gets it again, and no one has seen it. So the run calls the model, or ends the task, without
//! waiting for the disk, and the entry goes to the store together with the next one. `docs/decisions/0006`
//! explains why that is safe.

use std::time::Duration;

use tokio::time::Instant;

use crate::entry::Entry;

/// How long an entry is deferred at most while the model is slow: if someone watches, so short that no one
/// notices.
const AT_MOST: Duration = Duration::from_millis(100);
const UNWATCHED: Duration = Duration::from_secs(1);

/// Entries that are in the conversation but not yet in the journal, in their order.
#[derive(Default)]
pub(super) struct DeferredEntries {
    entries: Vec<Entry>,
    due: Option<Instant>,
}

impl DeferredEntries {
    pub(super) fn add(&mut self, entry: Entry, is_watched: impl FnOnce() -> bool) {
        self.due.get_or_insert_with(|| Instant::now() + if is_watched() { AT_MOST } else { UNWATCHED });
        self.entries.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When they must be written, if there are any.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.due = None;
        std::mem::take(&mut self.entries)
    }
}
