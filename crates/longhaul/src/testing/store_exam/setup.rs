//! The setup of a question: a store, its clock, and tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::StoreFactory;
use crate::entry::{
    Entry, Letter, LiveTextKind, Order, Outcome, Record, ReleaseReason, Sender, StopCause, StopRequest,
    Submission, TeamRef,
};
use crate::id::{Attempt, LetterId, Seq, TaskId, TaskKey, WorkerId};
use crate::message::Reply;
use crate::store::{Batch, ClaimRequest, Clock, EntryKinds, Fence, Hint, HintStream, Store, StoreError};
use crate::task::TaskState;

/// A clock that stands still until it is advanced.
#[derive(Debug, Clone)]
pub struct TestClock {
    wall: Arc<AtomicI64>,
    /// The elapsed time, in milliseconds.
    passed: Arc<AtomicI64>,
}

impl TestClock {
    /// A clock that starts at some moment in 2026.
    pub fn new() -> Self {
        TestClock { wall: Arc::new(AtomicI64::new(1_790_000_000_000)), passed: Arc::default() }
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.wall.fetch_add(by, Ordering::SeqCst);
        self.passed.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back by this many seconds. No time elapses.
    pub fn set(&self, seconds: i64) {
        self.wall.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// The clock for a store.
    pub fn clock(&self) -> Clock {
        let (wall, passed) = (self.wall.clone(), self.passed.clone());
        Clock::with_elapsed(
            move || Timestamp::from_millisecond(wall.load(Ordering::SeqCst)).unwrap_or_default(),
            move || Duration::from_millis(u64::try_from(passed.load(Ordering::SeqCst)).unwrap_or_default()),
        )
    }
}

impl Default for TestClock {
    fn default() -> Self {
        TestClock::new()
    }
}

/// A store under test, with helpers.
#[derive(Clone)]
pub struct ExamSetup {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its clock.
    pub clock: TestClock,
    tasks: Arc<AtomicU32>,
}

impl ExamSetup {
    /// A setup with an empty store.
    pub fn new(make: StoreFactory<'_>) -> Self {
        let clock = TestClock::new();
        ExamSetup { store: make(clock.clock()), clock, tasks: Arc::default() }
    }

    /// Claims tasks, and checks that each comes with its first entry.
    pub async fn claim(&self, claim: ClaimRequest) -> Result<Vec<TaskState>, StoreError> {
        let claimed = self.store.claim(claim).await?;
        for task in &claimed {
            let journal = self.store.read(task.state.id, Seq(0), 1).await?;
            assert_eq!(
                journal,
                std::slice::from_ref(&task.first),
                "a claimed task comes with its first entry"
            );
        }
        Ok(claimed.into_iter().map(|task| Arc::unwrap_or_clone(task.state)).collect())
    }

    /// Advances the clock while checking for abandoned tasks every second; returns the tasks that are
    /// abandoned then.
    pub async fn advance_watching(&self, seconds: u64) -> Vec<TaskId> {
        let mut found = self.store.abandoned_tasks().await.expect("abandoned tasks are listed");
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            found = self.store.abandoned_tasks().await.expect("abandoned tasks are listed");
        }
        ids(&found)
    }

    /// The id of a task that does not exist yet.
    pub fn fresh_id(&self) -> TaskId {
        id(&format!("task {}", self.tasks.fetch_add(1, Ordering::SeqCst)))
    }

    /// A new pending root task.
    pub async fn task(&self) -> TaskId {
        let id = self.fresh_id();
        self.submit(id, submission(id)).await.expect("a new task is taken");
        id
    }

    /// A new pending child of a task, which must be a root.
    pub async fn child(&self, parent: TaskId) -> TaskId {
        let id = self.fresh_id();
        let entry = submission(id);
        let entry = edit(entry, |s| (s.parent, s.root, s.depth) = (Some(parent), parent, 1));
        self.submit(id, entry).await.expect("a new child is taken");
        id
    }

    /// Submits a task.
    pub async fn submit(&self, id: TaskId, entry: Entry) -> Result<Vec<Seq>, StoreError> {
        self.store.append(Batch::one(id, Fence::New, vec![entry])).await
    }

    /// A new task that `w` runs, as its first attempt.
    pub async fn running(&self) -> TaskId {
        let id = self.task().await;
        self.store
            .renew_lease(WorkerId::from("w"), Duration::from_secs(30))
            .await
            .expect("a lease is renewed");
        let claim = ClaimRequest { roots: Some(vec![id]), ..claim("w", 1) };
        assert_eq!(ids(&self.claim(claim).await.expect("a claim is heard")), [id]);
        id
    }

    /// Appends to one task.
    pub async fn write(&self, id: TaskId, fence: Fence, entries: Vec<Entry>) -> Result<Seq, StoreError> {
        Ok(self.store.append(Batch::one(id, fence, entries)).await?[0])
    }

    /// A task's whole journal.
    pub async fn journal(&self, id: TaskId) -> Vec<Record> {
        self.store.read(id, Seq(0), usize::MAX).await.expect("a journal is read")
    }

    /// The state of a task.
    pub async fn state(&self, id: TaskId) -> TaskState {
        self.store.task_state(id).await.expect("a state is read").expect("there is such a task")
    }
}

/// The id of the task with this key.
pub(super) fn id(words: &str) -> TaskId {
    // A longer candidate than the first, so that no two tasks of a question collide.
    TaskKey::named(words).candidate_ids().nth(5).expect("there are eleven")
}

/// The submission of a root.
pub(super) fn submission(id: TaskId) -> Entry {
    let (key, team) = (TaskKey::named(id.letters()), TeamRef::Named("team".into()));
    Entry::Submitted(Box::new(Submission::root(id, key, Order::new("worker", "do it"), team)))
}

/// The same submission with a change.
pub(super) fn edit(mut entry: Entry, change: impl FnOnce(&mut Submission)) -> Entry {
    if let Entry::Submitted(submitted) = &mut entry {
        change(submitted);
    }
    entry
}

pub(super) fn claim(worker: &str, max: usize) -> ClaimRequest {
    let teams = vec![TeamRef::Named("team".into())];
    ClaimRequest {
        worker: WorkerId::from(worker),
        teams,
        roots: None,
        fresh_only: false,
        except: vec![],
        max,
    }
}

pub(super) fn letter(name: &str) -> Entry {
    Entry::Letter(Box::new(Letter::new(LetterId::from(name), Sender::Person, format!("this is {name}"))))
}

pub(super) fn stop() -> Entry {
    Entry::StopRequested(StopRequest { cause: StopCause::Person, note: None })
}

pub(super) fn replied(text: &str) -> Entry {
    Entry::Replied(Arc::new(Reply::text_only(text)))
}

pub(super) fn said(text: &str) -> Entry {
    Entry::Said { voice: LiveTextKind::Text, text: text.into() }
}

pub(super) fn released(attempt: u32) -> Entry {
    Entry::Released { attempt: Attempt(attempt), why: ReleaseReason::Lost }
}

pub(super) fn completed() -> Entry {
    Entry::Finished(Box::new(Outcome::Completed { output: "42".into(), cut_short: None }))
}

pub(super) fn cancelled() -> Entry {
    let stop = StopRequest { cause: StopCause::Person, note: None };
    Entry::Finished(Box::new(Outcome::Cancelled { stop, partial: "".into() }))
}

/// The owner's fence.
pub(super) fn owner(attempt: u32) -> Fence {
    Fence::Attempt(Attempt(attempt))
}

pub(super) fn ids(states: &[TaskState]) -> Vec<TaskId> {
    states.iter().map(|h| h.id).collect()
}

/// Waits for a hint of these kinds about a task; other hints are ignored.
pub(super) async fn hinted(hints: &mut HintStream, wanted: TaskId, wanted_kinds: EntryKinds) -> Hint {
    let search = async {
        loop {
            match hints.next().await.expect("the store is there") {
                hint @ Hint::Task { task, kinds, .. } if task == wanted && kinds.intersects(wanted_kinds) => {
                    return hint;
                }
                hint @ Hint::Lagged => return hint,
                Hint::Task { .. } => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), search).await.expect("a hint comes")
}
