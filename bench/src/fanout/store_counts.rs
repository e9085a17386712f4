//! How often the store writes and reads: it traces each commit, and each read that goes to the file.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const COMMIT: &str = "longhaul::store::commit";
const READ: &str = "longhaul::store::read";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct StoreCounts {
    /// Appends and other writes.
    pub(super) writes: u64,
    /// Transactions that they were written in.
    pub(super) commits: u64,
    /// Reads of the file.
    pub(super) reads: u64,
}

/// Counts what the store does in this process.
#[derive(Clone, Default)]
pub(super) struct StoreCounter(Arc<[AtomicU64; 3]>);

impl StoreCounter {
    pub(super) fn install() -> Result<StoreCounter, Box<dyn Error>> {
        let counter = StoreCounter::default();
        tracing::subscriber::set_global_default(counter.clone())?;
        Ok(counter)
    }

    pub(super) fn counts(&self) -> StoreCounts {
        let [writes, commits, reads] = [0, 1, 2].map(|at| self.0[at].load(Relaxed));
        StoreCounts { writes, commits, reads }
    }
}

impl Visit for &StoreCounter {
    fn record_u64(&mut self, _: &Field, requests: u64) {
        self.0[0].fetch_add(requests, Relaxed);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for StoreCounter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        matches!(metadata.target(), COMMIT | READ)
    }

    fn event(&self, event: &Event<'_>) {
        let is_commit = event.metadata().target() == COMMIT;
        self.0[if is_commit { 1 } else { 2 }].fetch_add(1, Relaxed);
        event.record(&mut &*self);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
