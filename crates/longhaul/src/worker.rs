//! Claims ready tasks and runs them: seats, leases, recovery.
//!
//! The order is: look for tasks, take a seat, then claim. In another order, a waiting parent could starve its
//! own children.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Team, TeamError};
use crate::entry::{EntryKind, Failure, FailureKind, ReleaseReason, TeamRef};
use crate::id::{TaskId, WorkerId};
use crate::journal::{LaunchBurst, fail_task, release_task};
use crate::runner::{
    AttemptEnd, ClaimedRun, Halt, LeaseKeeper, PollOnWake, RunContext, RunLease, RunStart, Seat, Seats,
    TaskRun, panic_message, settle_halt,
};
use crate::store::{ClaimRequest, ClaimedTask, EntryKinds, Fence, Store, StoreError, TaskFilter};
use crate::task::TaskState;

/// The teams whose tasks a process can run.
#[derive(Default)]
pub(crate) struct TeamRegistry {
    known: RwLock<HashMap<TeamRef, Arc<Team>>>,
    loader: Option<Arc<dyn TeamLoader>>,
}

/// Loads a team from a team file that is kept in the store.
pub trait TeamLoader: Send + Sync + 'static {
    /// Whether to load this file. Tasks of teams that are not wanted are left to other processes.
    fn wants(&self, _file: &[u8]) -> bool {
        true
    }

    /// The team that this file describes. Fails if the file is not a valid team file.
    fn load(&self, file: &[u8]) -> Result<Team, TeamError>;
}

impl TeamRegistry {
    pub(crate) fn new(teams: impl IntoIterator<Item = Team>, loader: Option<Arc<dyn TeamLoader>>) -> Self {
        let known = teams.into_iter().map(|team| (team.reference().clone(), Arc::new(team))).collect();
        TeamRegistry { known: RwLock::new(known), loader }
    }

    pub(crate) fn get(&self, reference: &TeamRef) -> Option<Arc<Team>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(reference).cloned()
    }

    fn references(&self) -> Vec<TeamRef> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Team>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Loads the teams of unfinished tasks that are not known yet.
    async fn load_missing(&self, store: &dyn Store) -> Result<(), StoreError> {
        let Some(loader) = &self.loader else { return Ok(()) };
        for reference in store.teams_at_work().await? {
            let TeamRef::File(digest) = &reference else { continue };
            if self.get(&reference).is_some() {
                continue;
            }
            let file = match store.blob(digest.clone()).await {
                Ok(Some(file)) if loader.wants(&file) => file,
                Ok(_) => continue,
                // The other teams still load.
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(team = %reference, %error, "the team file of unfinished tasks is damaged");
                    continue;
                }
                Err(error) => return Err(error),
            };
            match loader.load(&file) {
                Ok(team) => {
                    let team = Arc::new(team.with_reference(reference.clone()));
                    self.known.write().unwrap_or_else(PoisonError::into_inner).insert(reference, team);
                }
                Err(error) => {
                    tracing::warn!(team = %reference, %error, "the team file of unfinished tasks does not load here")
                }
            }
        }
        Ok(())
    }
}

/// What happens to tasks whose worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecoveryPolicy {
    /// They are resumed.
    #[default]
    Resume,
    /// They wait until someone resumes them.
    Ask,
    /// They fail.
    Fail,
}

/// Settings of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSettings {
    pub(crate) running: usize,
    pub(crate) lease: Duration,
    pub(crate) recovery: RecoveryPolicy,
}

/// How often to try to release a task after the store failed.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Claims and runs the tasks of one process.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) context: Arc<RunContext>,
    pub(crate) teams: Arc<TeamRegistry>,
    pub(crate) settings: WorkerSettings,
    /// The only trees it claims tasks from; any if `None`.
    pub(crate) roots: Arc<Mutex<Option<Vec<TaskId>>>>,
    /// The current runs.
    pub(crate) runs: TaskTracker,
    /// Fires when runs that did not end in time must be dropped.
    pub(crate) abort: CancellationToken,
    /// Why the store accepts no writes at the moment.
    pub(crate) store_failure: Arc<watch::Sender<Option<StoreError>>>,
    /// The lease that covers its tasks.
    pub(crate) lease: Arc<LeaseKeeper>,
    /// The tasks that another worker took over while they ran here.
    pub(crate) lost: Arc<watch::Sender<Vec<TaskId>>>,
    /// The tasks whose runs have not ended here, each with the lock that the next run of the same task waits
    /// for.
    pub(crate) under_way: Arc<Mutex<HashMap<TaskId, Arc<tokio::sync::Mutex<()>>>>>,
    /// The tasks that a newer version of Longhaul has written to: they are not claimed again.
    pub(crate) unreadable: Arc<Mutex<Vec<TaskId>>>,
    /// Launches that are in progress: many go before the start of tasks.
    pub(crate) launches: Arc<LaunchBurst>,
}

impl Worker {
    /// Renews the lease until dropped: as long as anything runs here, also while draining.
    pub(crate) fn keep_alive(&self) -> impl Future<Output = ()> + use<> {
        let (store, id, lease) = (self.context.store.clone(), self.id.clone(), self.lease.clone());
        async move { lease.keep_renewing(&*store, &id).await }
    }

    /// Claims and runs tasks until the drain starts.
    pub(crate) async fn work(self) {
        let seats = Seats::new(self.settings.running);
        let ready = self
            .context
            .subscriptions
            .for_all(EntryKinds::from_kinds([EntryKind::Submitted, EntryKind::Released]));
        let mut round = tokio::time::interval(self.settings.lease / 3);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let store = self.context.store.clone();
        let mut death = store.next_dead_worker();
        let mut look = true;
        while !self.context.drain.is_cancelled() {
            if look && seats.any_free() {
                tokio::select! {
                    () = self.context.drain.cancelled() => break,
                    () = self.launches.wait_until_over() => {}
                }
                look = self.claim(&seats).await;
                if look {
                    continue;
                }
            }
            tokio::select! {
                () = self.context.drain.cancelled() => {}
                _ = ready.next_wake() => look = true,
                () = seats.wait_for_free(), if look => {}
                () = &mut death => {
                    death = store.next_dead_worker();
                    self.release_abandoned().await;
                    look = true;
                }
                _ = round.tick() => {
                    self.release_unknown().await;
                    self.release_abandoned().await;
                    self.load_teams().await;
                    // Also without a hint: hints may be lost.
                    look = true;
                }
            }
        }
    }

    /// Claims as many tasks as there are free seats. Returns true if there may be more.
    async fn claim(&self, seats: &Seats) -> bool {
        // Read it before the claim: by the time the store replies, the term may be over.
        let Some(term) = self.lease.current_term() else {
            self.lease.request_renewal();
            return false;
        };
        let free = seats.take_free(64);
        let max = free.len();
        let claim = ClaimRequest {
            worker: self.id.clone(),
            teams: self.teams.references(),
            roots: self.roots.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            fresh_only: self.settings.recovery == RecoveryPolicy::Ask,
            except: self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            max,
        };
        match self.context.store.claim(claim).await {
            Ok(claimed) => {
                let more = claimed.len() == max;
                for (task, seat) in claimed.into_iter().zip(free) {
                    self.start(task, seat, term);
                }
                more
            }
            Err(error) => {
                tracing::warn!(%error, "no task could be claimed");
                false
            }
        }
    }

    fn start(&self, task: ClaimedTask, seat: Seat, term: u64) {
        let task = ClaimedRun::new(task);
        let state = task.state.clone();
        let lease = RunLease::new(self.lease.clone(), term);
        let (under_way, lost) = (self.under_way.clone(), self.lost.clone());
        let unreadable = self.unreadable.clone();
        let gate =
            Arc::clone(under_way.lock().unwrap_or_else(PoisonError::into_inner).entry(state.id).or_default());
        let (context, teams, abort) = (self.context.clone(), self.teams.clone(), self.abort.clone());
        let store_failure = self.store_failure.clone();
        self.runs.spawn(async move {
            // An earlier attempt of this worker, which another worker took over and released, has to end
            // first.
            let first = gate.lock().await;
            let run = AssertUnwindSafe(run(&context, &teams, &state, task, seat, lease)).catch_unwind();
            let ended = tokio::select! {
                biased;
                ended = run => ended,
                () = PollOnWake::new(abort.cancelled()) => Ok(Box::pin(settle_halt(&*context.store, &state, Halt::Drain)).await),
            };
            let ended = match ended {
                Ok(ended) => ended,
                Err(panic) => {
                    let failure = Failure::new(FailureKind::Panic, panic_message(&*panic));
                    Box::pin(settle_halt(&*context.store, &state, Halt::Fail(failure))).await
                }
            };
            let ended = Box::pin(release_after_store_failure(&context, &store_failure, &abort, &state, ended)).await;
            if matches!(ended, AttemptEnd::LeftToNewer) {
                unreadable.lock().unwrap_or_else(PoisonError::into_inner).push(state.id);
            }
            drop(first);
            let mut all = under_way.lock().unwrap_or_else(PoisonError::into_inner);
            // One reference is in the map and one is here: no other run waits.
            if Arc::strong_count(&gate) == 2 {
                all.remove(&state.id);
            }
            drop(all);
            if matches!(ended, AttemptEnd::Lost) {
                tracing::warn!(task = %state.id, attempt = %state.attempt, "another process has taken this task");
                lost.send_modify(|lost| lost.push(state.id));
            }
            tracing::debug!(task = %state.id, attempt = %state.attempt, ?ended, "attempt over");
        });
    }

    /// Loads the teams of tasks that other processes left behind.
    pub(crate) async fn load_teams(&self) {
        if let Err(error) = self.teams.load_missing(&*self.context.store).await {
            tracing::warn!(%error, "the teams of unfinished tasks could not be looked up");
        }
    }

    /// Releases the tasks that this worker owns without running them: the answer to a claim was lost. No other
    /// worker can take them while this one renews its lease. No claim is in progress here.
    async fn release_unknown(&self) {
        let store = &*self.context.store;
        let mine = TaskFilter { worker: Some(self.id.clone()), ..TaskFilter::default() };
        let owned = match store.ids(mine).await {
            Ok(owned) => owned,
            Err(error) => return tracing::warn!(%error, "the tasks of this process could not be listed"),
        };
        for id in owned {
            let runs = |id| self.under_way.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id);
            if runs(&id) {
                continue;
            }
            let released = match store.task_state(id).await {
                // A run that has just ended is no longer owned.
                Ok(Some(state)) if state.worker.as_ref() == Some(&self.id) => {
                    tracing::warn!(task = %id, "the answer to the claim of this task was lost; it is released");
                    let fence = Fence::Attempt(state.attempt);
                    release_task(store, state, fence, ReleaseReason::Lost).await
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = released {
                tracing::warn!(task = %id, %error, "a task that nobody runs could not be released");
            }
        }
    }

    /// Releases the tasks of workers that are gone.
    pub(crate) async fn release_abandoned(&self) {
        if !self.lease.may_judge_others() {
            if self.lease.current_term().is_none() {
                self.lease.request_renewal();
            }
            return;
        }
        let abandoned = match self.context.store.abandoned_tasks().await {
            Ok(abandoned) => abandoned,
            Err(error) => {
                tracing::warn!(%error, "abandoned tasks could not be listed");
                return;
            }
        };
        // Concurrently, so that they share the store's commits: there may be thousands.
        let others = abandoned.into_iter().filter(|state| state.worker.as_ref() != Some(&self.id));
        futures::stream::iter(others)
            .for_each_concurrent(64, |state| async move {
                match self.take_away(&state).await {
                    // Another process was faster, or the owner is back.
                    Ok(()) | Err(StoreError::Superseded { .. } | StoreError::Illegal { .. }) => {}
                    Err(error) => {
                        tracing::warn!(task = %state.id, %error, "an abandoned task could not be released");
                    }
                }
            })
            .await;
    }

    async fn take_away(&self, state: &TaskState) -> Result<(), StoreError> {
        let store = &*self.context.store;
        let fence = Fence::Abandoned(state.attempt);
        if self.settings.recovery == RecoveryPolicy::Fail
            && state.stop.is_none()
            && self.is_responsible_for(state)
        {
            let failure = Failure::new(FailureKind::LostWorker, "the process that ran it is gone");
            return fail_task(store, state, fence, failure).await;
        }
        release_task(store, state.clone(), fence, ReleaseReason::Lost).await
    }

    /// Whether this worker decides what happens to a task.
    fn is_responsible_for(&self, state: &TaskState) -> bool {
        let roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        self.teams.get(&state.team).is_some()
            && roots.as_ref().is_none_or(|roots| roots.contains(&state.root))
    }
}

/// Releases a task after the store failed. No other worker can while this one lives: its lease covers the
/// task.
async fn release_after_store_failure(
    context: &RunContext,
    store_failure: &watch::Sender<Option<StoreError>>,
    abort: &CancellationToken,
    state: &TaskState,
    mut ended: AttemptEnd,
) -> AttemptEnd {
    let mut reported = false;
    while let AttemptEnd::StoreFailed(error @ StoreError::Database { .. }) = &ended {
        if !std::mem::replace(&mut reported, true) {
            tracing::warn!(task = %state.id, %error, "the store failed; the task will be released once the store works again");
        }
        store_failure.send_replace(Some(error.clone()));
        tokio::select! {
            () = tokio::time::sleep(STORE_RETRY) => {}
            () = abort.cancelled() => return ended,
        }
        ended = settle_halt(&*context.store, state, Halt::Drain).await;
    }
    if reported {
        store_failure.send_replace(None);
    }
    ended
}

/// Every step is boxed: many tasks wait at the same time, and each should only keep its current step in
/// memory, not room for the largest one.
async fn run(
    context: &Arc<RunContext>,
    teams: &TeamRegistry,
    state: &TaskState,
    task: ClaimedRun,
    seat: Seat,
    lease: RunLease,
) -> AttemptEnd {
    let Some(team) = teams.get(&state.team) else {
        return Box::pin(settle_halt(&*context.store, state, Halt::Drain)).await;
    };
    let begin = async {
        let start = Box::pin(RunStart::wait(context, &team, &task, &lease)).await?;
        Box::pin(TaskRun::begin(context.clone(), team, task, seat, lease.clone(), start)).await
    };
    let begun = tokio::select! {
        biased;
        why = PollOnWake::new(lease.wait_until_lost()) => return AttemptEnd::StoreFailed(why),
        begun = begin => begun,
    };
    match begun {
        Ok(run) => Box::pin(run.drive()).await,
        Err(halt) => Box::pin(settle_halt(&*context.store, state, halt)).await,
    }
}
