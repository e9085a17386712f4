//! Hints: what was written here is told at once to who listens here, and a moment later to other processes.
//!
//! No transaction that writes a journal notifies: `NOTIFY` takes a lock for the whole server until its transaction has
//! ended, fsync included. What was written is collected and sent from a connection of its own, at most every
//! 20 ms, many in one, in a transaction that does not wait for the disk. A hint that is lost is late: everybody looks
//! anyway. Behind a pooler nobody can listen; then the feed is read once a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// What the store and the task that exchanges hints know of each other.
#[derive(Default)]
pub(super) struct ExchangeState {
    /// Whether others are heard.
    pub(super) hears: AtomicBool,
    /// The place in the feed of the last deletion of this process.
    own_deletion: Mutex<Option<(i64, i64)>>,
}

impl ExchangeState {
    /// Whether the last deletion is one of this process: it is told here, after all that were before it.
    pub(super) fn is_own_deletion(&self, place: (i64, i64)) -> bool {
        *self.own_deletion.lock().unwrap_or_else(PoisonError::into_inner) == Some(place)
    }
}

/// Sends and receives hints.
pub(super) struct Signals {
    local: broadcast::Sender<Hint>,
    signals: mpsc::UnboundedSender<Signal>,
    live: LiveReaders,
    exchange: Arc<ExchangeState>,
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
        let (live, state) = (LiveReaders::default(), Arc::<ExchangeState>::default());
        let exchange = Exchange::new(
            server.clone(),
            readers,
            seen,
            local.clone(),
            received,
            live.clone(),
            state.clone(),
        );
        server.tasks.spawn(exchange.run());
        Signals { local, signals, live, exchange: state }
    }

    /// This process is about to commit a deletion.
    pub(super) fn deletes(&self, place: (i64, i64)) {
        *self.exchange.own_deletion.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
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

    /// What is heard from now on, by whoever listens anyway.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.local.subscribe()
    }

    pub(super) fn read_live(&self, root: TaskId) -> LiveReader {
        let _ = self.signals.send(Signal::Watch(root));
        self.live.add(root, Some(Box::new(Announced { root, signals: self.signals.clone() })))
    }

    /// Who does not hear others does not know.
    pub(super) fn is_read_live(&self, root: TaskId) -> bool {
        !self.exchange.hears.load(Ordering::Relaxed) || self.live.contains(root)
    }

    /// Whether what others write is heard of.
    #[cfg(test)]
    pub(super) fn hears_others(&self) -> bool {
        self.exchange.hears.load(Ordering::Relaxed)
    }

    /// Sends what is left, and ends.
    pub(super) fn close(&self) {
        let _ = self.signals.send(Signal::Close);
    }
}
