//! Hints: what was written here is told at once to who listens here, and a moment later to other processes.
//!
//! No transaction that writes a journal notifies: `NOTIFY` takes a lock for the whole server until its transaction has
//! ended, fsync included. What was written is collected and sent from a connection of its own, at most every
//! 20 ms, many in one, in a transaction that does not wait for the disk. A hint that is lost is late: everybody looks
//! anyway. Behind a pooler nobody can listen; then the feed is read once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{broadcast, mpsc};

use super::connect::Server;
use super::exchange::Exchange;
use super::feed::Horizon;
use super::reader::ReadConnections;
use crate::entry::EntryKind;
use crate::id::TaskId;
use crate::store::{EntryKinds, HINT_CAPACITY, Hint, HintStream, LiveReader, LiveReaders};

/// What the background task is told.
pub(super) enum Signal {
    Written(Vec<Hint>),
    /// Someone wants to hear of others.
    Listen,
    Watch(TaskId),
    Unwatch(TaskId),
    Close,
}

/// Sends and receives hints.
pub(super) struct Signals {
    local: broadcast::Sender<Hint>,
    signals: mpsc::UnboundedSender<Signal>,
    live: LiveReaders,
    /// Whether others are heard.
    hears: Arc<AtomicBool>,
}

/// What a tree that is shown leaves behind.
struct Announced {
    root: TaskId,
    signals: mpsc::UnboundedSender<Signal>,
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = self.signals.send(Signal::Unwatch(self.root));
    }
}

impl Signals {
    /// `seen` is what could be read when the store was opened.
    pub(super) fn start(server: Arc<Server>, readers: Arc<ReadConnections>, seen: Horizon) -> Signals {
        let (local, _) = broadcast::channel(HINT_CAPACITY);
        let (signals, received) = mpsc::unbounded_channel();
        let (live, hears) = (LiveReaders::default(), Arc::new(AtomicBool::new(false)));
        let exchange = Exchange::new(
            server.clone(),
            readers,
            seen,
            local.clone(),
            received,
            live.clone(),
            hears.clone(),
        );
        server.tasks.spawn(exchange.run());
        Signals { local, signals, live, hears }
    }

    /// Something was committed.
    pub(super) fn written(&self, hints: Vec<Hint>) {
        for hint in &hints {
            // It is fine if there are no receivers.
            let _ = self.local.send(*hint);
        }
        let told: Vec<Hint> = hints.into_iter().filter(|hint| self.is_worth_telling(hint)).collect();
        if !told.is_empty() {
            let _ = self.signals.send(Signal::Written(told));
        }
    }

    /// Streamed text is only told while someone elsewhere shows it.
    fn is_worth_telling(&self, hint: &Hint) -> bool {
        match hint {
            Hint::Task { root, kinds, .. } => {
                *kinds != EntryKinds::from_kinds([EntryKind::Said]) || self.is_read_live(*root)
            }
            Hint::Lagged => true,
        }
    }

    pub(super) fn hints(&self) -> HintStream {
        let _ = self.signals.send(Signal::Listen);
        HintStream::from_channel(self.local.subscribe())
    }

    pub(super) fn read_live(&self, root: TaskId) -> LiveReader {
        let _ = self.signals.send(Signal::Watch(root));
        self.live.add(root, Some(Box::new(Announced { root, signals: self.signals.clone() })))
    }

    /// Who does not hear others does not know.
    pub(super) fn is_read_live(&self, root: TaskId) -> bool {
        !self.hears.load(Ordering::Relaxed) || self.live.contains(root)
    }

    /// Whether what others write is heard of.
    #[cfg(test)]
    pub(super) fn hears_others(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Sends what is left, and ends.
    pub(super) fn close(&self) {
        let _ = self.signals.send(Signal::Close);
    }
}
