//! The operations on tasks. The dispatcher offers them to agents, the [`Longhaul`](super::Longhaul) handle to
//! people.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;

use crate::agent::Team;
use crate::dispatch::{SendReceipt, TaskLimits, WaitMode, WaitResult};
use crate::entry::{
    Budget, Entry, EntryKind, Letter, Order, ReleaseReason, Sender, StopCause, StopRequest, Submission,
    TeamRef,
};
use crate::id::{AgentName, Attempt, LetterId, Seq, TaskId, TaskKey, WorkerId};
use crate::journal::{
    self, LaunchBurst, SubmissionCache, latest_continuation, pages, release_task, stop_descendants,
    stop_task, tasks_below,
};
use crate::snapshot::Snapshot;
use crate::store::{
    Batch, CountCondition, DatabaseFault, EntryKinds, Fence, Store, StoreError, Subscriptions, TaskFilter,
};
use crate::task::{IllegalTransition, Status, TaskState};
use crate::worker::TeamRegistry;

/// How long ago a lease must have ended, by wall-clock time, for its tasks not to be shown as running.
const LONG_SILENT: Duration = Duration::from_secs(10 * 60);

/// What the operations need.
pub(crate) struct TaskService {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) teams: Arc<TeamRegistry>,
    pub(crate) submissions: Arc<SubmissionCache>,
    /// Launches that are in progress.
    pub(crate) launches: Arc<LaunchBurst>,
    pub(crate) limits: TaskLimits,
    /// The conditions for tasks of the tree that was added to last.
    pub(crate) last_conditions: Mutex<Option<LaunchConditions>>,
    /// The only trees whose tasks run here; any if `None`.
    pub(crate) roots: Arc<Mutex<Option<Vec<TaskId>>>>,
}

/// The conditions under which a task may be submitted.
pub(crate) struct LaunchConditions {
    root: TaskId,
    is_child: bool,
    conditions: Arc<[CountCondition]>,
}

/// The result of delivering a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostResult {
    /// The task has it.
    Delivered,
    /// The task has ended and accepts no more letters.
    Ended,
    /// The task has too many unread letters.
    MailboxFull,
}

/// The result of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryResult {
    /// A new task retries it.
    New(TaskId),
    /// This task already retries it and has not ended.
    Open(TaskId),
}

/// What a child takes from its parent's state. There may be thousands at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentTask {
    pub(crate) id: TaskId,
    pub(crate) root: TaskId,
    pub(crate) depth: u32,
}

impl From<&TaskState> for ParentTask {
    fn from(state: &TaskState) -> ParentTask {
        ParentTask { id: state.id, root: state.root, depth: state.depth }
    }
}

/// A task to be submitted.
pub(crate) struct TaskPlan {
    pub(crate) key: TaskKey,
    pub(crate) order: Order,
    pub(crate) team: TeamRef,
    /// The parent; none for a root.
    pub(crate) parent: Option<ParentTask>,
    pub(crate) continues: Option<TaskId>,
    pub(crate) letter: Option<LetterId>,
    pub(crate) retries: Option<TaskId>,
    /// The agents above it whose permissions apply.
    pub(crate) above: Vec<AgentName>,
}

impl TaskService {
    /// Writes a task to the store. Returns true if it did not exist before.
    pub(crate) async fn submit(&self, plan: Box<TaskPlan>) -> Result<(TaskId, bool), StoreError> {
        let _in_progress = self.launches.begin_launch();
        for id in plan.key.candidate_ids() {
            let root = plan.parent.as_ref().map_or(id, |parent| parent.root);
            let submitted = Submission {
                parent: plan.parent.as_ref().map(|parent| parent.id),
                depth: plan.parent.as_ref().map_or(0, |parent| parent.depth + 1),
                continues: plan.continues,
                letter: plan.letter.clone(),
                retries: plan.retries,
                above: plan.above.clone(),
                ..Submission::root(root, plan.key.clone(), plan.order.clone(), plan.team.clone())
            };
            if root == id {
                // The worker must know the tree before it can claim the first task.
                self.adopt_tree(root);
            }
            let mut batch = Batch::one(id, Fence::New, vec![Entry::Submitted(Box::new(submitted))]);
            batch.only_if = self.limit_conditions(root, plan.parent.is_some());
            // A retry continues what the first try continued; the link in that task stays as it is.
            if let Some(old) = plan.continues.filter(|_| plan.retries.is_none()) {
                batch = batch.and_write(old, Fence::Anyone, vec![Entry::Continued { by: id }]);
            }
            match journal::append(&*self.store, batch).await {
                Ok(_) => return Ok((id, true)),
                Err(StoreError::Exists(_)) => {
                    if self.submission(id).await?.key == plan.key {
                        return Ok((id, false));
                    }
                    // Another task has this short id: take one more character.
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Database {
            what: "no free task id is left in this store".to_owned(),
            fault: DatabaseFault::Permanent,
        })
    }

    /// The conditions under which another task may be submitted. Those of a tree are made once, not for each of its tasks.
    fn limit_conditions(&self, root: TaskId, is_child: bool) -> Arc<[CountCondition]> {
        let mut last = self.last_conditions.lock().unwrap_or_else(PoisonError::into_inner);
        if !last.as_ref().is_some_and(|last| last.root == root && last.is_child == is_child) {
            let conditions = self.new_limit_conditions(root, is_child).into();
            *last = Some(LaunchConditions { root, is_child, conditions });
        }
        last.as_ref().map(|last| last.conditions.clone()).unwrap_or_default()
    }

    fn new_limit_conditions(&self, root: TaskId, is_child: bool) -> Vec<CountCondition> {
        let mut bounds = Vec::new();
        if let Some(limit) = self.limits.queue {
            let filter = TaskFilter { status: vec![Status::Pending], ..TaskFilter::default() };
            // Tasks that nothing keeps from running do not wait, even if no worker has claimed them yet.
            let running = u32::try_from(self.limits.running).unwrap_or(u32::MAX);
            let or_fewer = Some((TaskFilter::default().live(), running.saturating_add(limit)));
            bounds.push(CountCondition { filter, limit, or_fewer, what: "tasks waiting to run" });
        }
        if let Some(limit) = self.limits.tree.filter(|_| is_child) {
            let filter = TaskFilter::tree(root);
            bounds.push(CountCondition { filter, limit, or_fewer: None, what: "tasks in one tree" });
        }
        if self.limits.reject_when_full {
            let limit = u32::try_from(self.limits.running).unwrap_or(u32::MAX);
            bounds.push(CountCondition {
                filter: TaskFilter::default().live(),
                limit,
                or_fewer: None,
                what: "running tasks",
            });
        }
        bounds
    }

    /// The submission of a task.
    pub(crate) async fn submission(&self, id: TaskId) -> Result<Submission, StoreError> {
        journal::read_submission(&*self.store, id).await
    }

    /// Sends a letter to a task. If the task has ended, a new task continues it, with the letter as its
    /// order.
    pub(crate) async fn send(&self, to: TaskId, letter: Letter) -> Result<SendReceipt, StoreError> {
        self.send_with_budget(to, letter, Budget::default()).await
    }

    /// Like [`send`](Self::send); in addition, each limit set in the budget applies to the receiving task and
    /// everything below it.
    pub(crate) async fn send_with_budget(
        &self,
        to: TaskId,
        letter: Letter,
        budget: Budget,
    ) -> Result<SendReceipt, StoreError> {
        let mut at = to;
        loop {
            if !budget.is_open() && !self.state(at).await?.status.is_final() {
                self.add_budget(at, budget).await?;
            }
            match self.deliver_letter(at, &letter).await? {
                PostResult::Delivered => return Ok(SendReceipt { to: at, continued: at != to }),
                PostResult::MailboxFull => {
                    return Err(StoreError::Illegal { task: at, why: IllegalTransition::MailboxFull });
                }
                PostResult::Ended => {}
            }
            let state = self.state(at).await?;
            let next = match state.continued_by {
                Some(next) => next,
                None => {
                    let mut plan = self.continuation(&state, &letter).await?;
                    plan.order.tree_budget = budget.or(plan.order.tree_budget);
                    self.submit(Box::new(plan)).await?.0
                }
            };
            if self.submission(next).await?.letter.as_ref() == Some(&letter.id) {
                return Ok(SendReceipt { to: next, continued: true });
            }
            // Another process has continued it: deliver the letter there.
            at = next;
        }
    }

    /// Allows a task and everything below it this much more than it has used. Each limit set here replaces
    /// the earlier one.
    pub(crate) async fn add_budget(&self, id: TaskId, more: Budget) -> Result<(), StoreError> {
        let state = self.state(id).await?;
        let (mut tokens, mut cost) = (0_u64, 0_u64);
        for task in tasks_below(&*self.store, &state).await?.iter().chain([&state]) {
            tokens = tokens.saturating_add(task.usage.total());
            cost = cost.saturating_add(task.cost);
        }
        let budget = Budget {
            tokens: more.tokens.map(|more| tokens.saturating_add(more)),
            cost: more.cost.map(|more| cost.saturating_add(more)),
            time: more.time.map(|more| state.worked.saturating_add(more)),
        };
        journal::append(&*self.store, Batch::one(id, Fence::Anyone, vec![Entry::BudgetSet { budget }]))
            .await
            .map(drop)
    }

    /// Delivers a letter to this task and to no other. A task that already has the letter accepts it even if
    /// it has ended, so a repeated letter is written once.
    pub(crate) async fn deliver_letter(&self, to: TaskId, letter: &Letter) -> Result<PostResult, StoreError> {
        let entries = vec![Entry::Letter(Box::new(letter.clone()))];
        match journal::append(&*self.store, Batch::one(to, Fence::Anyone, entries)).await {
            Ok(_) => Ok(PostResult::Delivered),
            Err(StoreError::Illegal { why: IllegalTransition::NotNow { .. }, .. }) => Ok(PostResult::Ended),
            Err(StoreError::Illegal { why: IllegalTransition::MailboxFull, .. }) => {
                Ok(PostResult::MailboxFull)
            }
            Err(error) => Err(error),
        }
    }

    /// From now on the tasks of this tree run here, if this process does not run all trees anyway.
    pub(crate) fn adopt_tree(&self, root: TaskId) {
        if let Some(roots) = self.roots.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
            && !roots.contains(&root)
        {
            roots.push(root);
        }
    }

    async fn continuation(&self, old: &TaskState, letter: &Letter) -> Result<TaskPlan, StoreError> {
        let submitted = self.submission(old.id).await?;
        let order = Order { task: letter.text.clone(), title: None, ..submitted.order };
        let parent = match submitted.parent {
            // The parent's continuation gets the letter about its end.
            Some(parent) => Some((&self.completion_recipient(parent, &letter.from).await?).into()),
            None => None,
        };
        Ok(TaskPlan {
            key: TaskKey::for_continuation(old.id),
            order,
            team: submitted.team,
            parent,
            continues: Some(old.id),
            letter: Some(letter.id.clone()),
            retries: None,
            above: submitted.above,
        })
    }

    /// Submits the order of a task again.
    pub(crate) async fn retry(&self, old: &TaskState) -> Result<RetryResult, StoreError> {
        // Also finds a retry that an earlier version of Longhaul created under another key.
        let open = TaskFilter { retries: Some(old.id), limit: Some(1), ..TaskFilter::default() }.live();
        if let Some(open) = self.store.list(open).await?.first() {
            return Ok(RetryResult::Open(open.id));
        }
        let submitted = self.submission(old.id).await?;
        let parent = match submitted.parent {
            Some(parent) => Some((&latest_continuation(&*self.store, parent).await?).into()),
            None => None,
        };
        for nth in 1..=u32::MAX {
            let plan = TaskPlan {
                key: TaskKey::for_retry(old.id, nth),
                order: submitted.order.clone(),
                team: submitted.team.clone(),
                parent,
                continues: submitted.continues,
                letter: submitted.letter.clone(),
                retries: Some(old.id),
                above: submitted.above.clone(),
            };
            let (id, is_new) = self.submit(Box::new(plan)).await?;
            if is_new {
                return Ok(RetryResult::New(id));
            }
            // Another process was faster; or this is the previous retry, and the task may be retried once
            // more.
            if !self.state(id).await?.status.is_final() {
                return Ok(RetryResult::Open(id));
            }
        }
        Err(StoreError::Database {
            what: format!("task {} was retried too often", old.id),
            fault: DatabaseFault::Permanent,
        })
    }

    /// Which task gets the letter about the end of a task that continues a child of `parent`: the parent or
    /// its continuation; if those have ended, the task that sent the letter.
    async fn completion_recipient(&self, parent: TaskId, from: &Sender) -> Result<TaskState, StoreError> {
        let last = latest_continuation(&*self.store, parent).await?;
        match from {
            Sender::Task(writer) if last.status.is_final() => {
                latest_continuation(&*self.store, *writer).await
            }
            _ => Ok(last),
        }
    }

    /// Stops a task and everything below it, unless the cause spares that.
    pub(crate) async fn stop(&self, id: TaskId, stop: &StopRequest) -> Result<(), StoreError> {
        let state = self.state(id).await?;
        stop_task(&*self.store, state.clone(), stop, None).await?;
        let below = match stop.cause.spares_children() {
            true => Vec::new(),
            false => stop_descendants(&*self.store, &state, StopCause::ParentStopped, None).await?,
        };
        self.release_abandoned(&below.into_iter().chain([id]).collect()).await
    }

    /// Releases tasks whose process is gone. A task with a stop request ends by that. It is done
    /// here because perhaps no other process ever does it.
    pub(crate) async fn release_abandoned(&self, which: &HashSet<TaskId>) -> Result<(), StoreError> {
        if which.is_empty() {
            return Ok(());
        }
        for state in self.store.abandoned_tasks().await?.into_iter().filter(|state| which.contains(&state.id))
        {
            let fence = Fence::Abandoned(state.attempt);
            match release_task(&*self.store, state, fence, ReleaseReason::Lost).await {
                // Another process was faster, or the owner is back.
                Err(StoreError::Superseded { .. } | StoreError::Illegal { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves the waiting calls of a task to the background. Returns whether it was running any call.
    pub(crate) async fn background(&self, id: TaskId) -> Result<bool, StoreError> {
        let state = self.state(id).await?;
        if state.status != Status::Running || state.calling.is_empty() {
            return Ok(false);
        }
        match journal::append(&*self.store, Batch::one(id, Fence::Anyone, vec![Entry::Backgrounded])).await {
            Ok(_) => Ok(true),
            // It has just ended or was released.
            Err(StoreError::Illegal { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until one or all tasks have ended, or the timeout expires.
    pub(crate) async fn wait(
        &self,
        ids: &[TaskId],
        join: WaitMode,
        timeout: Option<Duration>,
    ) -> Result<WaitResult, StoreError> {
        let ends =
            EntryKinds::from_kinds([EntryKind::Finished, EntryKind::StopRequested, EntryKind::Released]);
        let subscription = self.subscriptions.for_tasks(ids, ends);
        let deadline = timeout.and_then(|timeout| tokio::time::Instant::now().checked_add(timeout));
        let mut open = HashMap::new();
        for id in ids {
            open.insert(*id, self.state(*id).await?.status.is_final());
        }
        let over = |open: &HashMap<TaskId, bool>| match join {
            WaitMode::All => open.values().all(|ended| *ended),
            WaitMode::Any => open.is_empty() || open.values().any(|ended| *ended),
        };
        let mut timed_out = false;
        while !over(&open) && !timed_out {
            let wake = tokio::select! {
                wake = subscription.next_wake() => Some(wake),
                () = tokio::time::sleep(RECHECK_INTERVAL) => None,
                () = until(deadline) => {
                    timed_out = true;
                    None
                }
            };
            let look: Vec<TaskId> = match wake {
                Some(wake) if !wake.lagged => wake.tasks.into_iter().collect(),
                _ => open.iter().filter(|(_, ended)| !**ended).map(|(id, _)| *id).collect(),
            };
            for id in look {
                open.insert(id, self.state(id).await?.status.is_final());
            }
            timed_out &= !over(&open);
        }
        let mut tasks = Vec::with_capacity(ids.len());
        for id in ids {
            tasks.push(self.snapshot(*id).await?);
        }
        Ok(WaitResult { tasks, timed_out })
    }

    /// Adjusts states for an observer: a task whose worker is gone is not running, whatever its journal says
    /// last, and a wait for a provider is over when its time is.
    pub(crate) async fn as_observed(&self, states: Vec<TaskState>) -> Result<Vec<TaskState>, StoreError> {
        if states.iter().all(|state| state.status != Status::Running) {
            return Ok(states);
        }
        let now = self.store.now();
        let gone: HashMap<TaskId, Attempt> =
            self.store.abandoned_tasks().await?.into_iter().map(|state| (state.id, state.attempt)).collect();
        let silent = self.silent_workers(&states, now).await?;
        let seen = |state: TaskState| match gone.get(&state.id) {
            Some(attempt) if *attempt == state.attempt => state.into_interrupted(),
            _ if state.worker.as_ref().is_some_and(|worker| silent.contains(worker)) => {
                state.into_interrupted()
            }
            _ => TaskState { waiting: state.waiting_at(now).cloned(), ..state },
        };
        Ok(states.into_iter().map(seen).collect())
    }

    /// The workers whose leases ended long ago by wall-clock time. Clocks may differ, so their tasks are not
    /// taken away, but they are not shown as running either.
    async fn silent_workers(
        &self,
        states: &[TaskState],
        now: Timestamp,
    ) -> Result<HashSet<WorkerId>, StoreError> {
        let workers: HashSet<&WorkerId> = states.iter().filter_map(|state| state.worker.as_ref()).collect();
        let mut silent = HashSet::new();
        for worker in workers {
            let lease = self.store.lease(worker.clone()).await?;
            let ended = lease.map(|lease| lease.until.saturating_add(LONG_SILENT).unwrap_or(Timestamp::MAX));
            if ended.is_some_and(|ended| ended < now) {
                silent.insert(worker.clone());
            }
        }
        Ok(silent)
    }

    pub(crate) async fn state(&self, id: TaskId) -> Result<TaskState, StoreError> {
        journal::state(&*self.store, id).await
    }

    /// Like [`snapshot`](Self::snapshot), but reads no more of an ended task's journal than is shown.
    pub(crate) async fn recent_snapshot(&self, id: TaskId) -> Result<Snapshot, StoreError> {
        /// How many entries at the end of a journal are enough.
        const LAST: u64 = 500;
        let state = self.state(id).await?;
        if state.status.is_final() && state.seq.0 > 2 * LAST {
            let after = Seq(state.seq.0 - LAST);
            let (first, last) =
                futures::join!(self.store.read(id, Seq(0), 1), self.store.read(id, after, usize::MAX));
            let (first, last) = (first?, last?);
            // Something may have happened to it since.
            let whole = last.last().is_some_and(|record| record.seq == state.seq);
            let seen =
                first.first().filter(|_| whole).and_then(|first| Snapshot::from_tail(state, first, &last));
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
        self.snapshot(id).await
    }

    pub(crate) async fn snapshot(&self, id: TaskId) -> Result<Snapshot, StoreError> {
        let illegal = |why| StoreError::Illegal { task: id, why };
        let mut pages = std::pin::pin!(pages(&*self.store, id, Seq(0)));
        let first = pages.next().await.transpose()?.unwrap_or_default();
        let mut snapshot =
            Snapshot::from_journal(id, &first).map_err(illegal)?.ok_or(StoreError::NoTask(id))?;
        while let Some(page) = pages.next().await {
            snapshot.apply_all(&page?).map_err(illegal)?;
        }
        snapshot.update_output();
        Ok(snapshot)
    }

    pub(crate) fn team(&self, reference: &TeamRef) -> Option<Arc<Team>> {
        self.teams.get(reference)
    }
}

/// How often to check tasks even without a hint: hints may be lost.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Completes at the deadline; never, if there is none.
async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
