//! What a run goes on with before it is written down, and until when it must be.
//!
//! A result of a call that may be repeated, and a reply that calls nothing: if a crash loses one, it is got again, and
//! nobody has seen it. So the model is asked, or the task ended, without waiting for the disk first, and the entry goes
//! to the store with the one after it. `docs/decisions/0006` says why that is enough.

use std::time::Duration;

use tokio::time::Instant;

use crate::entry::Entry;

/// How long an entry is owed at most, while a model takes its time: who watches does not notice it.
const AT_MOST: Duration = Duration::from_millis(100);

/// Entries that are part of the conversation and not yet of the journal, in their order.
#[derive(Default)]
pub(super) struct DeferredEntries {
    entries: Vec<Entry>,
    due: Option<Instant>,
}

impl DeferredEntries {
    pub(super) fn add(&mut self, entry: Entry) {
        self.due = self.due.or_else(|| Some(Instant::now() + AT_MOST));
        self.entries.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When it must be written down, if there is anything.
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
