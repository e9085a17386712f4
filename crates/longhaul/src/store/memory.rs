//! Journals in memory, for tests and for programs whose tasks need not survive them.

mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;

use self::state::{MemoryState, MemoryTask};
use super::leases::LeaseRenewal;
use super::{
    Batch, ClaimRequest, ClaimedTask, Clock, EntryKinds, FeedPage, FeedPosition, FeedScope, Hint, HintStream,
    Lease, LiveReader, LiveReaders, Store, StoreError, StoreFuture, StoredValue, TaskFilter,
};
use crate::entry::{EntryKind, Record};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::task::TaskState;

/// A store that is lost when it is dropped.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    hints: broadcast::Sender<Hint>,
    clock: Clock,
    live_readers: LiveReaders,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::with_clock(Clock::system())
    }

    /// An empty store with its own clock.
    pub fn with_clock(clock: Clock) -> Self {
        let (hints, _) = broadcast::channel(super::HINT_CAPACITY);
        // The low bits of such an id are random.
        let random = uuid::Uuid::now_v7().as_u128() & u128::from(u32::MAX);
        let state = MemoryState::new(u32::try_from(random).unwrap_or_default());
        MemoryStore { state: Mutex::new(state), hints, clock, live_readers: LiveReaders::default() }
    }

    /// Loses the end of a journal, as a database does that fails over to a replica which lags behind: keeps
    /// the entries up to this one. For tests.
    #[cfg(feature = "testing")]
    pub fn lose_entries_after(&self, task: TaskId, last: Seq) -> Result<(), StoreError> {
        let mut state = self.lock();
        let journal = &mut state.tasks.get_mut(&task).ok_or(StoreError::NoTask(task))?.journal;
        journal.truncate(usize::try_from(last.0).unwrap_or(usize::MAX));
        let folded = TaskState::from_journal(task, journal);
        let folded = folded.map_err(|why| StoreError::Illegal { task, why })?;
        state.put_state(task, folded.ok_or(StoreError::NoTask(task))?);
        Ok(())
    }

    /// Nothing is left half-done under the lock, so a panic of another holder is harmless.
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hint(&self, hint: Option<Hint>) {
        if let Some(hint) = hint {
            // It is fine if there are no receivers.
            let _ = self.hints.send(hint);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("tasks", &self.lock().tasks.len()).finish_non_exhaustive()
    }
}

/// A ready future: nothing here waits.
fn ready<'a, T: Send + 'a>(answer: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl Store for MemoryStore {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        let (at, now) = (self.clock.now(), self.clock.elapsed());
        let answer = self.lock().append(batch, at, now).map(|(ends, hints)| {
            hints.into_iter().for_each(|hint| self.hint(Some(hint)));
            ends
        });
        ready(answer)
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        let state = self.lock();
        let journal = state.tasks.get(&task).map_or(&[][..], |t| &t.journal);
        ready(Ok(journal.iter().skip(skip).take(limit).cloned().collect()))
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        ready(Ok(self.lock().tasks.get(&task).map(|t| t.state.clone())))
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        let state = self.lock();
        let found: Vec<&MemoryTask> = state.matching(&filter).collect();
        let skipped = found.len().saturating_sub(filter.limit.unwrap_or(usize::MAX));
        ready(Ok(found[skipped..].iter().map(|t| t.state.clone()).collect()))
    }

    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        ready(Ok(self.lock().matching(&filter).take(filter.limit.unwrap_or(usize::MAX)).count()))
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        ready(self.lock().find(typed))
    }

    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        let at = self.clock.now();
        let claimed = self.lock().claim(&claim, at);
        let kinds = EntryKinds::from_kinds([EntryKind::Claimed]);
        for ClaimedTask { state, .. } in &claimed {
            self.hint(Some(Hint::Task { task: state.id, root: state.root, kinds }));
        }
        ready(Ok(claimed))
    }

    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        let until = super::lease_end(self.clock.now(), lease).as_millisecond();
        let mut state = self.lock();
        let count = state.leases.get(&worker).map_or(0, |had| had.count) + 1;
        state.leases.insert(worker, LeaseRenewal { count, until, length: lease });
        drop(state);
        ready(Ok(()))
    }

    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.lock().leases.remove(&worker);
        ready(Ok(()))
    }

    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        let now = self.clock.elapsed();
        let state = self.lock();
        let gone = state.running.iter().filter(|(worker, _)| !state.is_alive(worker, now));
        let mut places: Vec<usize> = gone.flat_map(|(_, places)| places.iter().copied()).collect();
        places.sort_unstable();
        ready(Ok(places.into_iter().filter_map(|p| state.at(p)).map(|t| t.state.clone()).collect()))
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        let lease = self.lock().leases.get(&worker).map(|had| Lease {
            renewals: u64::try_from(had.count).unwrap_or_default(),
            length: had.length,
            until: Timestamp::from_millisecond(had.until).unwrap_or(Timestamp::MAX),
        });
        ready(Ok(lease))
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        let (digest, now) = (Digest::of_bytes(&bytes), self.clock.now());
        self.lock().blobs.entry(digest.clone()).or_insert_with(|| (bytes.into(), now)).1 = now;
        ready(Ok(digest))
    }

    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        let bytes = self.lock().blobs.get(&digest).map(|(bytes, _)| bytes.clone());
        ready(Ok(bytes.map(|b| b.to_vec())))
    }

    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        ready(Ok(self.lock().values.get(name).cloned().unwrap_or_default()))
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        let mut state = self.lock();
        let stored = state.values.entry(name.to_owned()).or_default();
        let fits = stored.version == after;
        if fits {
            *stored = StoredValue { version: after + 1, bytes };
        }
        ready(Ok(fits))
    }

    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        let state = self.lock();
        ready(Ok(state
            .values
            .iter()
            .filter(|(_, value)| value.version > 0)
            .map(|(name, _)| name.clone())
            .collect()))
    }

    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        let imported = self.lock().import(journals);
        if imported.is_ok() {
            self.hint(Some(Hint::Lagged));
        }
        ready(imported)
    }

    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        let deleted = self.lock().delete(&tasks, super::blob_cutoff(self.clock.now()));
        if deleted.is_ok() {
            // There are no hints for a deleted task: all receivers have to check.
            self.hint(Some(Hint::Lagged));
        }
        ready(deleted)
    }

    fn hints(&self) -> HintStream {
        HintStream::from_channel(self.hints.subscribe())
    }

    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        ready(self.lock().read_feed(scope, after, limit))
    }

    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        ready(Ok(self.lock().feed_end()))
    }

    fn read_live(&self, root: TaskId) -> LiveReader {
        self.live_readers.add(root, None)
    }

    fn is_read_live(&self, root: TaskId) -> bool {
        self.live_readers.contains(root)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::MemoryStore;

    crate::store_exam!(|clock| Arc::new(MemoryStore::with_clock(clock)));
}
