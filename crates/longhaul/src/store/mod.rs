//! Where journals live: fenced appends, reads, claims, change hints.
//!
//! A store applies [`TaskState::apply`](crate::task::TaskState::apply) to everything that is appended and refuses what that
//! refuses; it never decides anything about a task itself. What is promised here is examined by the *store exam*
//! (`longhaul::testing::store_exam`, feature `testing`), which every implementation sits.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::entry::{Entry, EntryCodecError, EntryKind, Record, TeamRef};
use crate::id::{AgentName, Attempt, Digest, Seq, TaskId, WorkerId};
use crate::task::{IllegalTransition, Status, TaskState};

mod subscriptions;
mod clock;
mod validate;
mod leases;
mod memory;
mod journal_pages;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use clock::Clock;
pub(crate) use clock::since_boot;
pub use journal_pages::pages;
pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::private_files;
#[cfg(feature = "sqlite")]
pub use sqlite::{DatabaseHealth, Durability, SqliteOptions, SqliteStore, Vacuumed};
pub use subscriptions::{Subscription, Subscriptions, Wake};

/// What a store answers.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A place for journals. Always used as `Arc<dyn Store>`.
///
/// Order: entries of one task have the sequence numbers 1, 2, 3, … in the order in which they were appended, and
/// a reader sees a prefix of them. An acknowledged append is visible to every later read, and, unless all its
/// entries are [live](Entry::is_live), on disk. Two tasks have no order between them, except that the writes of
/// one batch become visible at once.
pub trait Store: Send + Sync + 'static {
    /// Appends to one or more journals: all of the batch, or nothing.
    ///
    /// Returns, for each write, the sequence number of its last entry. A letter whose id its task already has is
    /// skipped without an error (the answer is then where the journal ends), so that writing a letter is
    /// idempotent. A write without entries only asks whether its fence and its `after` hold.
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>>;

    /// Reads a journal: at most `limit` entries after `after`, in order. Of a task that is not there, nothing.
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>>;

    /// Where a task stands, if there is such a task.
    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>>;

    /// Where the tasks stand that match, in the order of their submission.
    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>>;

    /// The ids of the tasks that match, in the order of their submission.
    fn ids(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskId>> {
        let heads = self.list(filter);
        Box::pin(async move { Ok(heads.await?.into_iter().map(|head| head.id).collect()) })
    }

    /// How many tasks match; counted no further than the filter's limit.
    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        let ids = self.ids(filter);
        Box::pin(async move { Ok(ids.await?.len()) })
    }

    /// The task with this id, or the only one whose id begins like this.
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId>;

    /// Claims pending tasks for a worker, oldest first: appends [`Entry::Claimed`] and leaves no task to two.
    ///
    /// The worker must have [renewed](Store::renew_lease) its lease before, or others may take the tasks away again.
    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>>;

    /// Says that a worker is alive for another `lease` from now. All its tasks are covered by that.
    ///
    /// Once this has returned, nobody is told that the worker is gone before that time has passed, counted from some
    /// moment after this was called; whatever the clock of any process says, or is set to. A worker that counts from
    /// before the call, and stops working in time, therefore never works on a task that somebody else has taken.
    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()>;

    /// Says that a worker is gone: its lease ends now.
    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()>;

    /// Running tasks whose worker is gone: it has no lease, its lease has run out, or it is known to be dead.
    ///
    /// A store without a clock of its own can only tell that a lease has run out by watching it: it has to be asked
    /// several times in the length of a lease, and says so one lease after it was first asked, at the earliest.
    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>>;

    /// The lease of a worker as it is now, to show it or to see whether it is being renewed. `None` if it has none. Whether it
    /// has run out, only [`abandoned`](Store::abandoned_tasks) can tell.
    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>>;

    /// Keeps some bytes under their digest.
    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest>;

    /// The bytes kept under a digest.
    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>>;

    /// What is on the slip of this name.
    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue>;

    /// Writes a slip anew, if it was written `after` times before; answers whether it was. When it was, it is on disk.
    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool>;

    /// Deletes tasks that have ended, with all that is theirs: journals, letters, and slips whose name has the id after its
    /// first colon (`word:ID`, `word:ID:more`). What is [kept](Store::put_blob), was not kept anew for [`BLOB_GRACE`] and no
    /// task or journal refers to any more goes with them.
    ///
    /// All of them, or none. Each is named with where its journal ends: one that has grown since is refused as
    /// [`Moved`](StoreError::JournalMoved), one that has not ended as [`Open`](StoreError::NotEnded), and one that a task needs which
    /// would stay (of the same tree, or of the same conversation) as [`Needed`](StoreError::StillNeeded).
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()>;

    /// Those of the tasks that match which cannot be loaded, with why; of each that has not ended the whole journal is read if
    /// `journals` says so. What a store keeps beside its journals is made again from them where it is damaged, and then not told.
    fn find_damaged(&self, which: TaskFilter, journals: bool) -> StoreFuture<'_, Vec<DamagedTask>> {
        let _ = (which, journals);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Why what is written from now on cannot be found by anybody else: the file is gone, or another one is in its place.
    fn file_lost(&self) -> Option<StoreError> {
        None
    }

    /// Hints that something was appended, from now on, by this process or another. A hint may be late, lost or
    /// spurious: it says that a look is worth while, and is never the truth.
    fn hints(&self) -> HintStream;

    /// The time, as the store's entries and leases see it.
    fn now(&self) -> Timestamp;
}

/// A worker's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How often it was renewed: who sees this change has seen that the worker lives.
    pub renewals: u64,
    /// How long it is.
    pub length: Duration,
    /// Until when it lasts, by the clock of the process that renewed it.
    pub until: Timestamp,
}

/// A task that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedTask {
    /// The task.
    pub task: TaskId,
    /// Its tree, as far as that can be told.
    pub root: TaskId,
    /// Why not.
    pub why: String,
}

/// Something small that changes, and that must survive like a journal does: the list of a tool, say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredValue {
    /// How often it was written; 0 if it never was.
    pub version: u64,
    /// What is on it.
    pub bytes: Vec<u8>,
}

/// Writes that happen together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The writes.
    pub writes: Vec<JournalWrite>,
    /// Conditions that must hold in the same moment. They are looked at before anything else, but for one thing: if the
    /// first write is of a new task and there is such a task already, the answer is [`StoreError::Exists`].
    pub only_if: Vec<CountCondition>,
}

/// Entries for one journal.
#[derive(Debug, Clone)]
pub struct JournalWrite {
    /// The task.
    pub task: TaskId,
    /// Who may write.
    pub fence: Fence,
    /// Only if the journal ends here: nobody wrote in between.
    pub after: Option<Seq>,
    /// What to append.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// A batch of one write.
    pub fn one(task: TaskId, fence: Fence, entries: Vec<Entry>) -> Self {
        Batch { writes: vec![JournalWrite { task, fence, after: None, entries }], only_if: Vec::new() }
    }

    /// The same, with another write.
    pub fn and_write(mut self, task: TaskId, fence: Fence, entries: Vec<Entry>) -> Self {
        self.writes.push(JournalWrite { task, fence, after: None, entries });
        self
    }
}

/// Who may write to a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// There must be no such task yet. If there is, the whole batch is refused with [`StoreError::Exists`]. The
    /// first entry is [`Entry::Submitted`]; after it comes what anyone may write.
    New,
    /// The owner: the task is running and this is its attempt.
    Attempt(Attempt),
    /// Whoever finds the owner gone: the task is running, this is its attempt, and its worker is gone, as
    /// [`Store::abandoned_tasks`] says it, at the moment of the write.
    Abandoned(Attempt),
    /// Anyone: letters, stops, answers, the link to a continuation, and the end of a task that a stop ended
    /// before anybody wrote it down. All else is its owner's to write and is refused, even where
    /// [`TaskState::apply`](crate::task::TaskState::apply) would take it.
    Anyone,
}

/// A condition: fewer than `limit` tasks match.
#[derive(Debug, Clone)]
pub struct CountCondition {
    /// Which tasks are counted.
    pub filter: TaskFilter,
    /// How many there may be after the batch.
    pub limit: u32,
    /// What the limit is called, for the error.
    pub what: &'static str,
}

/// Which tasks: those that fit everything that is said here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskFilter {
    /// In one of these states; all, if empty.
    pub status: Vec<Status>,
    /// Of this tree.
    pub root: Option<TaskId>,
    /// Children of this task.
    pub parent: Option<TaskId>,
    /// That go on with the conversation of this task.
    pub continues: Option<TaskId>,
    /// That have the order of this task again.
    pub retries: Option<TaskId>,
    /// Of one of these agents; of any, if empty.
    pub agents: Vec<AgentName>,
    /// Only roots.
    pub roots: bool,
    /// Submitted at or after this.
    pub since: Option<Timestamp>,
    /// Submitted before this.
    pub before: Option<Timestamp>,
    /// That have not ended, or to which something happened at or after this.
    pub active_since: Option<Timestamp>,
    /// That have ended, and to which nothing happened at or after this.
    pub quiet_before: Option<Timestamp>,
    /// At most this many, the newest.
    pub limit: Option<usize>,
}

impl TaskFilter {
    /// The whole tree of a root.
    pub fn tree(root: TaskId) -> Self {
        TaskFilter { root: Some(root), ..TaskFilter::default() }
    }

    /// The children of a task.
    pub fn children(parent: TaskId) -> Self {
        TaskFilter { parent: Some(parent), ..TaskFilter::default() }
    }

    /// The newest tasks.
    pub fn newest(limit: usize) -> Self {
        TaskFilter { limit: Some(limit), ..TaskFilter::default() }
    }

    /// Only tasks that have not ended.
    pub fn live(mut self) -> Self {
        self.status = vec![Status::Pending, Status::Running];
        self
    }
}

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who claims.
    pub worker: WorkerId,
    /// Only tasks of these teams.
    pub teams: Vec<TeamRef>,
    /// Only tasks of these trees; of any, if `None`.
    pub roots: Option<Vec<TaskId>>,
    /// Only tasks that nobody has claimed before.
    pub fresh_only: bool,
    /// At most this many.
    pub max: usize,
}

/// A task that was claimed, with its first entry: one that nobody has run before has nothing else to be read.
#[derive(Debug, Clone)]
pub struct ClaimedTask {
    /// Where it stands now.
    pub state: TaskState,
    /// How it came to be.
    pub first: Record,
}

/// A hint that a task's journal has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// These kinds of entries were appended to this task.
    Task {
        /// The task.
        task: TaskId,
        /// Its tree.
        root: TaskId,
        /// What was appended.
        kinds: EntryKinds,
    },
    /// Hints were lost: look at everything you care about.
    Lagged,
}

/// A set of kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryKinds(u32);

impl EntryKinds {
    /// Every kind there is.
    pub const ALL: EntryKinds = EntryKinds(u32::MAX);

    /// The set of these kinds.
    pub fn from_kinds(kinds: impl IntoIterator<Item = EntryKind>) -> Self {
        EntryKinds(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8))
    }

    /// Whether any of `other` is in it.
    pub fn intersects(self, other: EntryKinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets.
    pub fn union(self, other: EntryKinds) -> EntryKinds {
        EntryKinds(self.0 | other.0)
    }
}

/// A stream of hints.
pub struct HintStream(tokio::sync::broadcast::Receiver<Hint>);

impl HintStream {
    /// Hints from a channel that a store owns.
    pub fn from_channel(receiver: tokio::sync::broadcast::Receiver<Hint>) -> Self {
        HintStream(receiver)
    }

    /// The next hint; `None` when the store is gone.
    pub async fn next(&mut self) -> Option<Hint> {
        use tokio::sync::broadcast::error::RecvError;
        match self.0.recv().await {
            Ok(hint) => Some(hint),
            Err(RecvError::Lagged(_)) => Some(Hint::Lagged),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is such a task already.
    #[error("task {0} exists already")]
    Exists(TaskId),
    /// There is no such task.
    #[error("no task {0}")]
    NoTask(TaskId),
    /// Nothing in the store is called that.
    #[error("no task '{typed}': see what there is with `longhaul tasks --all`")]
    NotFound {
        /// What was asked for.
        typed: String,
    },
    /// Several tasks are called that.
    #[error("'{typed}' is the beginning of several tasks ({}): type more of the id", join(.matches))]
    Ambiguous {
        /// What was asked for.
        typed: String,
        /// Some of the tasks it could be.
        matches: Vec<TaskId>,
    },
    /// The writer is not, or no longer, the owner.
    #[error("task {task} is not held by attempt {attempt} (any more)")]
    Superseded {
        /// The task.
        task: TaskId,
        /// The attempt that wanted to write.
        attempt: Attempt,
    },
    /// The journal has grown since the writer last looked.
    #[error("task {task} has new entries up to {seq}")]
    JournalMoved {
        /// The task.
        task: TaskId,
        /// Where its journal ends now.
        seq: Seq,
    },
    /// The life of a task has no such move.
    #[error("task {task}: {why}")]
    Illegal {
        /// The task.
        task: TaskId,
        /// Why not.
        why: IllegalTransition,
    },
    /// What was to be deleted has not ended.
    #[error("task {0} has not ended")]
    NotEnded(TaskId),
    /// What was to be deleted is needed by what would stay.
    #[error("task {task} cannot be deleted alone: {by} belongs to the same tree or conversation")]
    StillNeeded {
        /// What was to be deleted.
        task: TaskId,
        /// What would stay.
        by: TaskId,
    },
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// The limit.
        limit: u32,
        /// What it limits.
        what: &'static str,
    },
    /// An entry could not be read or written.
    #[error("entry {seq} of task {task} cannot be read: {why}")]
    BadEntry {
        /// The task.
        task: TaskId,
        /// The entry.
        seq: Seq,
        /// Why not.
        why: EntryCodecError,
    },
    /// The database itself is the trouble: `what` says which file, what is wrong and what to do.
    #[error("{what}")]
    Database {
        /// What is wrong, where, and what to do about it.
        what: String,
        /// Whether trying again may help (locked, busy).
        transient: bool,
    },
    /// Something that is stored is not what was written: `what` says what, where, and what to do. The rest can be used.
    #[error("{what}")]
    Damaged {
        /// What is damaged, where, and what to do about it.
        what: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// How long something is kept that nothing refers to: whoever keeps it may be about to write down where it is.
pub const BLOB_GRACE: Duration = Duration::from_secs(60 * 60);

/// The task that a slip is of, by its name.
fn task_of_stored_value(name: &str) -> Option<TaskId> {
    name.split(':').nth(1)?.parse().ok()
}

/// From when on what is kept stays though nothing refers to it.
fn blob_cutoff(now: Timestamp) -> Timestamp {
    now.saturating_sub(BLOB_GRACE).unwrap_or(Timestamp::MIN)
}

/// How many hints a listener may fall behind before it is told that it [lags](Hint::Lagged).
const HINT_CAPACITY: usize = 4096;
/// How many of the tasks that a prefix could mean are named, at most.
const MAX_MATCHES: usize = 6;

/// When a lease of this length ends that begins now.
fn lease_end(now: Timestamp, lease: Duration) -> Timestamp {
    now.saturating_add(lease).unwrap_or(Timestamp::MAX)
}

/// The only task that was meant, out of the first few that could be.
fn single_match(typed: &str, matches: Vec<TaskId>) -> Result<TaskId, StoreError> {
    let typed = || typed.chars().take(60).collect();
    match matches[..] {
        [id] => Ok(id),
        [] => Err(StoreError::NotFound { typed: typed() }),
        _ => Err(StoreError::Ambiguous { typed: typed(), matches }),
    }
}

fn join(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
