//! Where journals are kept: fenced appends, reads, claims, change hints.
//!
//! A store applies [`TaskState::apply`](crate::task::TaskState::apply) to every appended entry and rejects
//! what that rejects; it makes no decisions about tasks itself. The *store exam*
//! (`longhaul::testing::store_exam`, feature `testing`) checks the guarantees described here, and every
//! implementation must pass it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::entry::{Entry, Record, TeamRef};
use crate::id::{Attempt, Digest, Seq, TaskId, WorkerId};
use crate::task::TaskState;

mod subscriptions;
mod clock;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod columns;
mod copy;
mod error;
mod feed;
mod filter;
mod hint;
mod validate;
mod leases;
mod live_readers;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) mod private_files;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod saved_state;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod worker_locks;

pub use clock::Clock;
pub(crate) use clock::since_boot;
pub use copy::{CopiedStore, copy_store};
pub use error::{DatabaseFault, StoreError};
use error::{no_feed, unsupported};
pub use feed::{FeedItem, FeedPage, FeedPosition, FeedScope, ParseFeedPositionError};
pub use filter::TaskFilter;
use hint::HINT_CAPACITY;
pub use hint::{EntryKinds, Hint, HintStream};
pub use live_readers::LiveReader;
pub(crate) use live_readers::LiveReaders;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{DatabaseHealth, Durability, SqliteOptions, SqliteStore, Vacuumed};
pub(crate) use subscriptions::{Subscription, Subscriptions};

/// The future that every [`Store`] operation returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Storage for journals. Always used as `Arc<dyn Store>`.
///
/// Order: the entries of one task have the sequence numbers 1, 2, 3, … in the order in which they were
/// appended, and a reader sees a prefix of them. An acknowledged append is visible to every later read and,
/// unless all its entries are [live](Entry::is_live), on disk. There is no order between two tasks, except
/// that all writes of a batch become visible at once.
pub trait Store: Send + Sync + 'static {
    /// Appends to one or more journals: the whole batch, or nothing.
    ///
    /// Returns, for each write, the sequence number of its last entry. A letter whose id the task already has
    /// is skipped without an error (the number is then the end of the journal), so sending a letter is
    /// idempotent. A write without entries only checks its fence and its `after`.
    ///
    /// After an error nothing was written and nothing will be, unless the error is
    /// [`DatabaseFault::Uncertain`]. A store over a network finds out before it says that.
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>>;

    /// Reads a journal: at most `limit` entries after `after`, in order. Returns nothing if there is no such
    /// task.
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>>;

    /// The state of a task; `None` if there is no such task.
    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>>;

    /// The states of the tasks that match, in submission order.
    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>>;

    /// The ids of the tasks that match, in submission order.
    fn ids(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskId>> {
        let states = self.list(filter);
        Box::pin(async move { Ok(states.await?.into_iter().map(|state| state.id).collect()) })
    }

    /// How many tasks match. Counting stops at the filter's limit.
    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        let ids = self.ids(filter);
        Box::pin(async move { Ok(ids.await?.len()) })
    }

    /// The teams of the tasks that have not ended.
    fn teams_at_work(&self) -> StoreFuture<'_, Vec<TeamRef>> {
        let states = self.list(TaskFilter::default().live());
        Box::pin(async move {
            let teams: HashSet<TeamRef> = states.await?.into_iter().map(|state| state.team).collect();
            Ok(teams.into_iter().collect())
        })
    }

    /// The task with this id, or the only one whose id starts with it. Fails if there is none, or more than
    /// one.
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId>;

    /// Claims pending tasks for a worker, oldest first: appends [`Entry::Claimed`] to each. No task is
    /// claimed by two workers. If the answer is lost, the tasks are claimed all the same: the worker finds
    /// them with [`TaskFilter::worker`].
    ///
    /// The worker must have [renewed](Store::renew_lease) its lease before, or other workers may take the
    /// tasks away again.
    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>>;

    /// Extends a worker's lease by `lease` from now. The lease covers all its tasks.
    ///
    /// After this returns, no process considers the worker gone before that time has passed, counted from
    /// some moment after the call, regardless of how any process's clock is set. So a worker that counts from
    /// before the call, and stops working in time, never works on a task that another worker has taken.
    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()>;

    /// Ends a worker's lease now.
    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()>;

    /// Running tasks whose worker is gone: it has no lease, its lease has expired, or it is known to be dead.
    ///
    /// A store detects an expired lease by watching it. Call this several times per lease; it reports an
    /// expired lease at the earliest one lease after the first call. A time in which it was not called counts
    /// for a third of a lease at most: while a store cannot be reached, no worker can renew, and all would look
    /// gone to the first that reaches it again.
    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>>;

    /// Waits until a worker of this machine is known to have died since the last call: then
    /// [`abandoned_tasks`](Store::abandoned_tasks) may have found something at once, without waiting for a
    /// lease to expire. May also return for nothing. A store that cannot tell never returns.
    fn next_dead_worker(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// The current lease of a worker, to show it or to see whether it is being renewed; `None` if it has
    /// none. Only [`abandoned_tasks`](Store::abandoned_tasks) can tell whether it has expired.
    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>>;

    /// Stores bytes under their digest, and returns the digest.
    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest>;

    /// The bytes stored under a digest; `None` if there are none.
    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>>;

    /// The value stored under this name.
    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue>;

    /// Replaces a stored value if its version is still `after`. Returns whether it was replaced; if so, the
    /// new value is on disk.
    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool>;

    /// The names of all stored values.
    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Err(unsupported("it does not list its stored values"))))
    }

    /// Adds whole journals of another store as they are, times included: all of them, or none. Parents come
    /// before their children. Fails with [`Exists`](StoreError::Exists) if a task is already there, and with
    /// [`Illegal`](StoreError::Illegal) if a journal is not one that a task can have.
    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        drop(journals);
        Box::pin(std::future::ready(Err(unsupported("it imports no journals"))))
    }

    /// Deletes ended tasks with everything that belongs to them: journals, letters, and stored values whose
    /// name has the id after its first colon (`word:ID`, `word:ID:more`). [Blobs](Store::put_blob) that were
    /// not stored again within [`BLOB_GRACE`] and that no task or journal refers to any more are deleted too.
    ///
    /// Deletes all of them or none. Each task is given with the end of its journal. Fails with
    /// [`JournalMoved`](StoreError::JournalMoved) if a journal has grown since, with
    /// [`NotEnded`](StoreError::NotEnded) if a task has not ended, and with
    /// [`StillNeeded`](StoreError::StillNeeded) if a task that would stay (of the same tree or conversation)
    /// needs a deleted one.
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()>;

    /// The matching tasks that cannot be loaded, with the reason. If `journals` is set, the whole journal of
    /// each unfinished task is read. Damaged data that a store can rebuild from its journals is rebuilt and
    /// not reported.
    fn find_damaged(&self, which: TaskFilter, journals: bool) -> StoreFuture<'_, Vec<DamagedTask>> {
        let _ = (which, journals);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Why other processes cannot see what is written from now on: the file is gone or was replaced.
    fn file_lost(&self) -> Option<StoreError> {
        None
    }

    /// Hints that this process or another has appended something, from now on. A hint may be late, lost or
    /// spurious: it says that reading is worthwhile, and nothing more.
    fn hints(&self) -> HintStream;

    /// Reads the feed: the entries of all journals in the order in which they became visible, from the one
    /// after `after`, at most `limit`. Entries of deleted tasks are left out; a reader of all tasks finds
    /// [`FeedItem::Deleted`] where tasks were deleted last.
    ///
    /// An entry that becomes visible later has a later position than every entry that was visible before, so
    /// a reader that always reads on from where it was misses nothing and reads nothing twice. Positions stay
    /// valid when the store is opened again. Fails with [`UnknownPosition`](StoreError::UnknownPosition) if
    /// the position is not one of this store.
    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        let _ = (scope, after, limit);
        Box::pin(std::future::ready(Err(no_feed())))
    }

    /// The position of the last entry in the feed: reading on from it gives what is written from now on.
    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        Box::pin(std::future::ready(Err(no_feed())))
    }

    /// The position before everything in the feed.
    fn feed_start(&self) -> StoreFuture<'_, FeedPosition> {
        let end = self.feed_end();
        Box::pin(async move { Ok(FeedPosition::new(end.await?.store(), 0, 0)) })
    }

    /// Says that the streamed text of a tree is shown while it is written, until the result is dropped.
    fn read_live(&self, root: TaskId) -> LiveReader {
        LiveReaders::default().add(root, None)
    }

    /// Whether the streamed text of a tree is shown, in this process or in another. If not, it is written
    /// less often. May be late by a second.
    fn is_read_live(&self, root: TaskId) -> bool {
        let _ = root;
        true
    }

    /// The current time, by the clock that entries and leases use.
    fn now(&self) -> Timestamp;
}

/// A worker's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How often it was renewed. If this changes, the worker is alive.
    pub renewals: u64,
    /// How long it is.
    pub length: Duration,
    /// When it ends, by the clock of the process that renewed it.
    pub until: Timestamp,
}

/// A task that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedTask {
    /// The task.
    pub task: TaskId,
    /// The root of its tree, as far as that is known.
    pub root: TaskId,
    /// The reason.
    pub why: String,
}

/// A small, versioned value that is as durable as a journal, for example a tool's list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredValue {
    /// How often it was written; 0 if never.
    pub version: u64,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Writes that are applied together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The writes.
    pub writes: Vec<JournalWrite>,
    /// Conditions that must hold at the same moment. They are checked first, with one exception: if the first
    /// write creates a task that already exists, the batch fails with [`StoreError::Exists`].
    pub only_if: Arc<[CountCondition]>,
}

/// Entries for one journal.
#[derive(Debug, Clone)]
pub struct JournalWrite {
    /// The task.
    pub task: TaskId,
    /// Who may write.
    pub fence: Fence,
    /// Only append if the journal ends here, that is, if no one wrote in between.
    pub after: Option<Seq>,
    /// The entries to append.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// A batch with one write.
    pub fn one(task: TaskId, fence: Fence, entries: Vec<Entry>) -> Self {
        Batch { writes: vec![JournalWrite { task, fence, after: None, entries }], only_if: Arc::default() }
    }

    /// Adds another write.
    pub fn and_write(mut self, task: TaskId, fence: Fence, entries: Vec<Entry>) -> Self {
        self.writes.push(JournalWrite { task, fence, after: None, entries });
        self
    }

    /// Whether it adds nothing when it is written a second time: it creates a task, and is then refused; or it
    /// has nothing but letters.
    pub(crate) fn is_idempotent(&self) -> bool {
        let is_letter = |entry: &Entry| matches!(entry, Entry::Letter(_));
        self.writes.first().is_some_and(|write| write.fence == Fence::New)
            || self.writes.iter().all(|write| write.after.is_none() && write.entries.iter().all(is_letter))
    }
}

/// Who may write to a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// A new task. If the task exists, the whole batch fails with [`StoreError::Exists`]. The first entry is
    /// [`Entry::Submitted`]; the following ones must be entries that anyone may write.
    New,
    /// The owner: the task is running, and this is its current attempt.
    Attempt(Attempt),
    /// Any process that finds the owner gone: the task is running, this is its current attempt, and its
    /// worker is gone at the moment of the write, as [`Store::abandoned_tasks`] defines it.
    Abandoned(Attempt),
    /// Anyone: letters, stops, answers, the link to a continuation, and the end of a task that a stop ended
    /// before it was written. Everything else is reserved for the owner and rejected, even if
    /// [`TaskState::apply`](crate::task::TaskState::apply) would accept it.
    Anyone,
}

/// A condition: fewer than `limit` tasks match, or few enough match `or_fewer`.
#[derive(Debug, Clone)]
pub struct CountCondition {
    /// The tasks to count.
    pub filter: TaskFilter,
    /// How many there may be after the batch.
    pub limit: u32,
    /// The condition also holds if fewer tasks than this match this filter.
    pub or_fewer: Option<(TaskFilter, u32)>,
    /// What is limited, for the error.
    pub what: &'static str,
}

impl CountCondition {
    /// The filters, each with a number: the condition holds if fewer tasks than that match one of them.
    fn alternatives(&self) -> impl Iterator<Item = (&TaskFilter, u32)> {
        let other = self.or_fewer.as_ref().map(|(filter, limit)| (filter, *limit));
        [(&self.filter, self.limit)].into_iter().chain(other)
    }
}

/// Which tasks a worker claims.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The worker.
    pub worker: WorkerId,
    /// Only tasks of these teams.
    pub teams: Vec<TeamRef>,
    /// Only tasks of these trees; of any if `None`.
    pub roots: Option<Vec<TaskId>>,
    /// Only tasks that were never claimed before.
    pub fresh_only: bool,
    /// None of these: the worker knows that it cannot run them.
    pub except: Vec<TaskId>,
    /// At most this many.
    pub max: usize,
}

/// A claimed task with its first entry. A task that never ran before has nothing else to read.
#[derive(Debug, Clone)]
pub struct ClaimedTask {
    /// Its state after the claim.
    pub state: Arc<TaskState>,
    /// Its first entry.
    pub first: Record,
}

/// How long a blob is kept that nothing refers to: its writer may be about to write the reference.
pub const BLOB_GRACE: Duration = Duration::from_secs(60 * 60);

/// The task that a stored value belongs to, by the value's name.
fn task_of_stored_value(name: &str) -> Option<TaskId> {
    name.split(':').nth(1)?.parse().ok()
}

/// Blobs stored after this time are kept even if nothing refers to them.
fn blob_cutoff(now: Timestamp) -> Timestamp {
    now.saturating_sub(BLOB_GRACE).unwrap_or(Timestamp::MIN)
}

/// How many matches of an ambiguous prefix are listed, at most.
const MAX_MATCHES: usize = 6;

/// When a lease of this length ends if it starts now.
fn lease_end(now: Timestamp, lease: Duration) -> Timestamp {
    now.saturating_add(lease).unwrap_or(Timestamp::MAX)
}

/// The only match. Fails if there is none, or more than one.
fn single_match(typed: &str, matches: Vec<TaskId>) -> Result<TaskId, StoreError> {
    let typed = || typed.chars().take(60).collect();
    match matches[..] {
        [id] => Ok(id),
        [] => Err(StoreError::NotFound { typed: typed() }),
        _ => Err(StoreError::Ambiguous { typed: typed(), matches }),
    }
}
