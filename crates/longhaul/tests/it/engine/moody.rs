//! A store that is not always well.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{EntryCodecError, EntryKind, Record};
use longhaul::id::{Digest, Seq, WorkerId};
use longhaul::store::{
    Batch, ClaimRequest, ClaimedTask, DatabaseFault, Fence, HintStream, MemoryStore, Store, StoreError,
    StoreFuture, StoredValue, TaskFilter,
};
use longhaul::task::TaskState;

/// What a store does not do at the moment.
#[derive(Default)]
pub(crate) struct Mood {
    /// It takes nothing.
    pub(crate) full: AtomicBool,
    /// It refuses so many writes, each with an error that passes.
    pub(crate) busy: AtomicUsize,
    /// It does not answer whoever renews a lease.
    pub(crate) away: AtomicBool,
    /// This worker does not reach it: its lease is not renewed, and what owners write is refused.
    pub(crate) cut_off: Mutex<Option<WorkerId>>,
    /// It lists nothing.
    pub(crate) blind: AtomicBool,
    /// Why it reads no journal.
    pub(crate) garbled: Mutex<Option<EntryCodecError>>,
    /// What is written in the very moment before this task is read.
    pub(crate) sly: Mutex<Option<(TaskId, Vec<Batch>)>>,
    /// How many answers to writes with such an entry are lost, after they were written.
    pub(crate) lost_appends: Mutex<Option<(EntryKind, usize)>>,
    /// How many answers to claims are lost, after the tasks were claimed.
    pub(crate) lost_claims: AtomicUsize,
    /// How many claims it has answered with this task.
    pub(crate) claims: Mutex<Vec<TaskId>>,
    /// How many entries it has read.
    pub(crate) entries_read: AtomicUsize,
    /// How many tasks it has listed.
    pub(crate) tasks_listed: AtomicUsize,
}

impl Mood {
    /// The next so many answers to writes with such an entry are lost.
    pub(crate) fn lose_appends(&self, kind: EntryKind, times: usize) {
        *self.lost_appends.lock().unwrap() = Some((kind, times));
    }

    /// Whether the answer to this batch is lost.
    fn loses(&self, batch: &Batch) -> bool {
        let mut lost = self.lost_appends.lock().unwrap();
        let Some((kind, times)) = &mut *lost else { return false };
        let has_it = batch.writes.iter().flat_map(|write| &write.entries).any(|entry| entry.kind() == *kind);
        let loses = has_it && *times > 0;
        *times -= usize::from(loses);
        loses
    }

    pub(crate) fn is_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    pub(crate) fn is_blind(&self, blind: bool) {
        self.blind.store(blind, Ordering::SeqCst);
    }
}

fn no_answer() -> StoreError {
    let what = "the connection broke before the answer came".to_owned();
    StoreError::Database { what, fault: DatabaseFault::Uncertain }
}

fn failure<T: Send + 'static>(what: &str) -> StoreFuture<'static, T> {
    let error = StoreError::Database { what: what.to_owned(), fault: DatabaseFault::Permanent };
    Box::pin(std::future::ready(Err(error)))
}

/// A store in memory that fails when it is told to, and gives hints or none.
pub(crate) struct Moody<S = MemoryStore> {
    pub(crate) inner: S,
    pub(crate) mood: Arc<Mood>,
    /// Whether it gives hints.
    pub(crate) hints: bool,
}

impl<S: Store> Store for Moody<S> {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        if self.mood.full.load(Ordering::SeqCst) {
            return failure("the disk is full");
        }
        let is_owners = |write: &longhaul::store::JournalWrite| matches!(write.fence, Fence::Attempt(_));
        if self.mood.cut_off.lock().unwrap().is_some() && batch.writes.iter().any(is_owners) {
            return failure("it cannot be reached");
        }
        if self
            .mood
            .busy
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| times.checked_sub(1))
            .is_ok()
        {
            let error =
                StoreError::Database { what: "the file is locked".to_owned(), fault: DatabaseFault::Busy };
            return Box::pin(std::future::ready(Err(error)));
        }
        let loses = self.mood.loses(&batch);
        Box::pin(async move {
            let ends = self.inner.append(batch).await?;
            if loses { Err(no_answer()) } else { Ok(ends) }
        })
    }
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        if let Some(why) = self.mood.garbled.lock().unwrap().clone() {
            let error = StoreError::BadEntry { task, seq: Seq(after.0 + 1), why };
            return Box::pin(std::future::ready(Err(error)));
        }
        let sly = self.mood.sly.lock().unwrap().take_if(|(at, _)| *at == task);
        Box::pin(async move {
            for batch in sly.into_iter().flat_map(|(_, batches)| batches) {
                self.inner.append(batch).await?;
            }
            let records = self.inner.read(task, after, limit).await?;
            self.mood.entries_read.fetch_add(records.len(), Ordering::SeqCst);
            Ok(records)
        })
    }
    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        self.inner.task_state(task)
    }
    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        if self.mood.blind.load(Ordering::SeqCst) {
            return failure("the disk is worn out");
        }
        Box::pin(async move {
            let listed = self.inner.list(filter).await?;
            self.mood.tasks_listed.fetch_add(listed.len(), Ordering::SeqCst);
            Ok(listed)
        })
    }
    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        self.inner.count(filter)
    }
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.inner.find(typed)
    }
    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        Box::pin(async move {
            let claimed = self.inner.claim(claim).await?;
            self.mood.claims.lock().unwrap().extend(claimed.iter().map(|task| task.state.id));
            let loses = |times: usize| times.checked_sub(usize::from(!claimed.is_empty()));
            match self.mood.lost_claims.fetch_update(Ordering::SeqCst, Ordering::SeqCst, loses) {
                Ok(_) if !claimed.is_empty() => Err(no_answer()),
                _ => Ok(claimed),
            }
        })
    }
    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        let cut_off = self.mood.cut_off.lock().unwrap().as_ref() == Some(&worker);
        if cut_off || self.mood.away.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.inner.renew_lease(worker, lease)
    }
    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.inner.retire_worker(worker)
    }
    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        self.inner.abandoned_tasks()
    }
    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<longhaul::store::Lease>> {
        self.inner.lease(worker)
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.inner.put_blob(bytes)
    }
    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.inner.blob(digest)
    }
    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        self.inner.stored_value(name)
    }
    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        self.inner.put_stored_value(name, after, bytes)
    }
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        self.inner.delete(tasks)
    }
    fn hints(&self) -> HintStream {
        match self.hints {
            true => self.inner.hints(),
            false => HintStream::new(futures::stream::pending()),
        }
    }
    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
