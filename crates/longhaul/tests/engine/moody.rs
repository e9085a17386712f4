//! A store that is not always well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::Record;
use longhaul::id::{Digest, Seq, WorkerId};
use longhaul::store::{Batch, Claim, Claimed, Filter, Hints, Memory, Slip, Store, StoreError, StoreFuture};
use longhaul::task::Head;

/// A store in memory that fails when it is told to, and gives hints or none.
pub(crate) struct Moody {
    pub(crate) inner: Memory,
    pub(crate) fails: Arc<AtomicBool>,
    /// Whether it gives hints.
    pub(crate) hints: bool,
}

impl Store for Moody {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        if self.fails.load(Ordering::SeqCst) {
            let error = StoreError::Database { what: "the disk is full".to_owned(), passing: false };
            return Box::pin(std::future::ready(Err(error)));
        }
        self.inner.append(batch)
    }
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.inner.read(task, after, limit)
    }
    fn head(&self, task: TaskId) -> StoreFuture<'_, Option<Head>> {
        self.inner.head(task)
    }
    fn list(&self, filter: Filter) -> StoreFuture<'_, Vec<Head>> {
        self.inner.list(filter)
    }
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.inner.find(typed)
    }
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        self.inner.claim(claim)
    }
    fn renew(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        self.inner.renew(worker, lease)
    }
    fn retire(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.inner.retire(worker)
    }
    fn abandoned(&self) -> StoreFuture<'_, Vec<Head>> {
        self.inner.abandoned()
    }
    fn keep(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.inner.keep(bytes)
    }
    fn kept(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.inner.kept(digest)
    }
    fn slip(&self, name: &str) -> StoreFuture<'_, Slip> {
        self.inner.slip(name)
    }
    fn write_slip(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        self.inner.write_slip(name, after, bytes)
    }
    fn hints(&self) -> Hints {
        match self.hints {
            true => self.inner.hints(),
            // Of a channel that nobody sends to, kept open for as long as the test runs.
            false => {
                let (sender, receiver) = tokio::sync::broadcast::channel(1);
                std::mem::forget(sender);
                Hints::from_channel(receiver)
            }
        }
    }
    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
