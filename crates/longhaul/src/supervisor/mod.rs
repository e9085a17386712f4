//! The public handle: submit, wait, send, answer, stop, follow.

mod agent_tools;
mod answer;
mod builder;
mod dispatcher;
mod error;
mod follow;
mod tree_group;
mod task_service;
mod event_order;
mod messaging;
mod wait;
#[cfg(feature = "toolsets")]
mod worktrees;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(feature = "toolsets")]
pub use crate::runner::{DiffCommit, FileDiff, FileDiffKind, WorktreeDiff, WorktreePlace};
pub use agent_tools::{AgentTools, ToolGroup, list_agent_tools};
pub use answer::AnswerReceipt;
pub use builder::LonghaulBuilder;
use error::check_text;
pub use error::{LonghaulError, MAX_TEXT_BYTES};
use follow::FollowUntil;
pub use follow::TaskEvents;
use task_service::{TaskPlan, TaskService};
pub use tree_group::TreeGroup;
pub use wait::TaskWait;

use crate::agent::Team;
use crate::dispatch::{TaskLimits, WaitMode};
use crate::entry::{Order, StopCause, StopRequest, TeamRef};
use crate::id::{Seq, TaskId, TaskKey, WorkerId};
use crate::snapshot::{EventProjector, Snapshot};
use crate::store::{Store, StoreError, TaskFilter};
use crate::task::{Status, TaskState};

/// A running Longhaul: submits, follows, messages and stops tasks. Clones refer to the same instance.
///
/// Dropping all clones without [`shutdown`](Longhaul::shutdown) is like a crash: nothing acknowledged is
/// lost, and the next process that opens the store continues the work.
#[derive(Clone)]
pub struct Longhaul(Arc<LonghaulInner>);

struct LonghaulInner {
    service: Arc<TaskService>,
    team: Option<TeamRef>,
    worker: Option<WorkerId>,
    background: TaskTracker,
    runs: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
    store_failure: Arc<watch::Sender<Option<StoreError>>>,
    lost: Arc<watch::Sender<Vec<TaskId>>>,
    grace: Duration,
}

impl Drop for LonghaulInner {
    fn drop(&mut self) {
        self.drain.cancel();
        self.abort.cancel();
    }
}

impl Longhaul {
    /// Starts building a Longhaul that runs the tasks of a team.
    pub fn builder(team: Team) -> LonghaulBuilder {
        LonghaulBuilder::new(Some(team))
    }

    /// Creates a Longhaul that submits, follows, messages and stops tasks, but runs none.
    pub async fn client(store: Arc<dyn Store>) -> Result<Longhaul, LonghaulError> {
        LonghaulBuilder::new(None).shared_store(store).start().await
    }

    /// Submits an order to the team. When this returns the id, the task is on disk. Fails if the order is
    /// empty or too long, or names an unknown agent or model.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let id = longhaul.submit(Order::new("worker", "Look around.").max_turns(8)).await?;
    /// assert_eq!(longhaul.wait([id]).await?.tasks[0].state.status, Status::Completed);
    /// # Ok(()) }
    /// ```
    pub async fn submit(&self, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_with(TaskKey::random(), order).await
    }

    /// Like [`submit`](Self::submit), but only once per key: submitting again under the same key returns the
    /// existing task.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let first = longhaul.submit_once("nightly 2026-11-15", Order::new("worker", "Look around.")).await?;
    /// let again = longhaul.submit_once("nightly 2026-11-15", Order::new("worker", "Look around.")).await?;
    /// assert_eq!(first, again);
    /// # Ok(()) }
    /// ```
    pub async fn submit_once(&self, key: &str, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_with(TaskKey::named(key), order).await
    }

    async fn submit_with(&self, key: TaskKey, mut order: Order) -> Result<TaskId, LonghaulError> {
        let reference = self.0.team.clone().ok_or(LonghaulError::NoTeam)?;
        if let Some(team) = self.0.service.team(&reference) {
            let agent = order.agent.get_or_insert_with(|| team.root().clone());
            if team.agent(agent).is_none() {
                let have = team.agents().map(|agent| agent.name.to_string()).collect();
                return Err(LonghaulError::UnknownAgent { asked: agent.to_string(), team: reference, have });
            }
            if let Some(model) = order.model.as_ref().filter(|model| team.model(model).is_none()) {
                let have = team.model_names();
                return Err(LonghaulError::UnknownModel { asked: model.clone(), team: reference, have });
            }
        }
        Ok(self.submit_new(key, reference, order).await?.0)
    }

    /// Submits an order to a team that another process runs.
    pub async fn submit_to(&self, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        Ok(self.submit_new(TaskKey::random(), team, order).await?.0)
    }

    /// Like [`submit_to`](Self::submit_to), but only once per key. Returns whether the task is new.
    ///
    /// If the key was used before for another order, the existing task is returned all the same: compare the
    /// orders if that matters to you.
    pub async fn submit_once_to(
        &self,
        team: TeamRef,
        key: &str,
        order: Order,
    ) -> Result<(TaskId, bool), LonghaulError> {
        self.submit_new(TaskKey::named(key), team, order).await
    }

    /// The order of a task. Fails if there is no such task.
    pub async fn order(&self, id: TaskId) -> Result<Order, LonghaulError> {
        Ok(self.0.service.submission(id).await?.order)
    }

    async fn submit_new(
        &self,
        key: TaskKey,
        team: TeamRef,
        order: Order,
    ) -> Result<(TaskId, bool), LonghaulError> {
        check_text("task", &order.task)?;
        let plan = TaskPlan {
            key,
            order,
            team,
            parent: None,
            continues: None,
            letter: None,
            retries: None,
            above: Vec::new(),
        };
        Ok(self.0.service.submit(Box::new(plan)).await?)
    }

    /// The events of a task and its tree, from the start until the task has ended.
    pub fn follow(&self, root: TaskId) -> TaskEvents {
        follow::follow_tree(self.0.service.clone(), root, HashMap::new(), FollowUntil::Ended, true)
    }

    /// Like [`follow`](Self::follow), for a caller that shows no text while it is streamed: the text of a
    /// reply may come only when the reply is complete. In a tree with many tasks, this costs much less.
    pub fn follow_without_live_text(&self, root: TaskId) -> TaskEvents {
        follow::follow_tree(self.0.service.clone(), root, HashMap::new(), FollowUntil::Ended, false)
    }

    /// The events of a task after the entry `after`, until it has ended.
    pub fn events(&self, id: TaskId, after: Seq) -> TaskEvents {
        follow::follow_task(self.0.service.clone(), id, after)
    }

    /// Like [`events`](Self::events), for a caller that has already projected the journal up to `after`: the
    /// projector continues from there, and nothing is read twice.
    pub fn events_from(&self, projector: EventProjector, after: Seq) -> TaskEvents {
        follow::follow_from(self.0.service.clone(), projector, after)
    }

    /// Like [`snapshot`](Self::snapshot), but cheaper if you only need the latest events and the output: the
    /// long middle of an ended task's journal is not read, and `dropped` counts entries there.
    pub async fn recent_snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.service.recent_snapshot(id).await?;
        if let Some(state) = self.0.service.as_observed(vec![snapshot.state.clone()]).await?.pop() {
            snapshot.state = state;
        }
        Ok(snapshot)
    }

    /// The state of a task. Fails if there is no such task.
    pub async fn state(&self, id: TaskId) -> Result<TaskState, LonghaulError> {
        let service = &self.0.service;
        let state = service.state(id).await?;
        Ok(service.as_observed(vec![state.clone()]).await?.pop().unwrap_or(state))
    }

    /// Waits for tasks: by default for all of them and without a timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let one = longhaul.submit(Order::new("worker", "One.")).await?;
    /// let two = longhaul.submit(Order::new("worker", "Two.")).await?;
    /// let first = longhaul.wait([one, two]).any().timeout(Duration::from_secs(30)).await?;
    /// assert!(!first.timed_out && first.tasks.iter().any(|task| task.state.status.is_final()));
    /// let both = longhaul.wait([one, two]).await?;
    /// assert_eq!(both.tasks[1].state.id, two); // in the order in which they were asked for
    /// # Ok(()) }
    /// ```
    pub fn wait(&self, ids: impl IntoIterator<Item = TaskId>) -> TaskWait {
        TaskWait {
            service: self.0.service.clone(),
            ids: ids.into_iter().collect(),
            mode: WaitMode::All,
            timeout: None,
        }
    }

    /// A snapshot of a task. A task whose process is gone is shown as pending, not as running. Fails if there
    /// is no such task.
    pub async fn snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.service.snapshot(id).await?;
        if let Some(state) = self.0.service.as_observed(vec![snapshot.state.clone()]).await?.pop() {
            snapshot.state = state;
        }
        Ok(snapshot)
    }

    /// The states of the tasks that match, in submission order.
    pub async fn list(&self, filter: TaskFilter) -> Result<Vec<TaskState>, LonghaulError> {
        let service = &self.0.service;
        Ok(service.as_observed(service.store.list(filter).await?).await?)
    }

    /// The answer of a task, or its text so far if there is none yet.
    pub async fn output(&self, id: TaskId) -> Result<String, LonghaulError> {
        Ok(self.snapshot(id).await?.output)
    }

    /// The task with this id, or the only one whose id starts with it. Fails if there is none, or more than
    /// one.
    pub async fn find(&self, typed: &str) -> Result<TaskId, LonghaulError> {
        Ok(self.0.service.store.find(typed).await?)
    }

    /// How many tasks are running.
    pub async fn count_running(&self) -> Result<usize, LonghaulError> {
        let filter = TaskFilter { status: vec![Status::Running], ..TaskFilter::default() };
        Ok(self.list(filter).await?.len())
    }

    /// Stops a task and everything below it. When this returns, the stop request is on disk; a running task
    /// settles it soon after.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, _) = longhaul.open_session("Stay.").await?;
    /// longhaul.stop(session).await?;
    /// let stopped = longhaul.wait([session]).await?;
    /// assert_eq!(stopped.tasks[0].state.status, Status::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn stop(&self, id: TaskId) -> Result<(), LonghaulError> {
        Ok(self.0.service.stop(id, &StopRequest { cause: StopCause::Person, note: None }).await?)
    }

    /// Moves a task's waiting calls to the background: they return at once with the ids of the tasks they
    /// waited for. Those tasks continue, and their results arrive as letters. Calls that do not wait for
    /// tasks are not affected. Returns whether the task was running any call.
    pub async fn background(&self, id: TaskId) -> Result<bool, LonghaulError> {
        Ok(self.0.service.background(id).await?)
    }

    /// Stops every task that has not ended. Returns those tasks.
    pub async fn stop_all(&self) -> Result<Vec<TaskId>, LonghaulError> {
        let open = self.list(TaskFilter::default().live()).await?;
        for task in &open {
            self.stop(task.id).await?;
        }
        Ok(open.into_iter().map(|task| task.id).collect())
    }

    /// Also runs the tasks of a tree that another process submitted. Only needed if this Longhaul runs its
    /// own trees only.
    pub fn adopt_tree(&self, root: TaskId) {
        self.0.service.adopt_tree(root);
        self.0.service.subscriptions.announce_submitted(root);
    }

    /// The limits on the number of tasks.
    pub fn limits(&self) -> &TaskLimits {
        &self.0.service.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.service.store
    }

    /// Waits until the store stops accepting writes, and returns the reason (a full disk, for example). Tasks
    /// that this interrupts are released as soon as the store works again. You can also exit instead of
    /// waiting for that.
    pub async fn store_failure(&self) -> StoreError {
        let mut failure = self.0.store_failure.subscribe();
        let found = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match found {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until another process has taken over a task that ran here, and returns the task. This happens if
    /// this process was suspended, or could not reach the store, for longer than its lease. What it has
    /// written stays valid; it does nothing more for the task.
    pub async fn lost_task(&self) -> TaskId {
        let mut lost = self.0.lost.subscribe();
        let found = lost.wait_for(|lost| !lost.is_empty()).await.ok().and_then(|lost| lost.first().copied());
        match found {
            Some(task) => task,
            None => std::future::pending().await,
        }
    }

    /// Starts draining: no new task is claimed, and running tasks finish their current step and are released.
    pub fn drain(&self) {
        self.0.drain.cancel();
    }

    /// Shuts down in bounded time. Unfinished tasks can be resumed.
    pub async fn shutdown(&self) {
        self.shutdown_within(self.0.grace).await;
    }

    /// Like [`shutdown`](Self::shutdown), with this grace period for running steps, for example to hand tasks
    /// over to another process. Steps that are cut off are repeated there.
    pub async fn shutdown_within(&self, grace: Duration) {
        // 1. No task is claimed any more, and running tasks finish their step and are released.
        self.0.drain.cancel();
        self.0.runs.close();
        // 2. They get the grace period for that.
        if tokio::time::timeout(grace, self.0.runs.wait()).await.is_err() {
            // 3. Tasks that are still running are dropped, and released too.
            self.0.abort.cancel();
            let _ = tokio::time::timeout(self.0.grace, self.0.runs.wait()).await;
        }
        // 4. Nothing is running any more.
        self.0.abort.cancel();
        self.0.background.close();
        self.0.background.wait().await;
        // 5. End the lease, so that other processes need not wait for it to expire.
        if let Some(worker) = &self.0.worker
            && let Err(error) = self.0.service.store.retire_worker(worker.clone()).await
        {
            tracing::warn!(%error, "the lease could not be ended");
        }
        // 6. Toolsets stop what they have started.
        let teams = self.0.service.teams.all();
        let toolsets = teams.iter().flat_map(|team| team.agents()).flat_map(|agent| &agent.toolsets);
        let closing = toolsets.map(|toolset| async {
            if tokio::time::timeout(self.0.grace, toolset.close()).await.is_err() {
                tracing::warn!(toolset = toolset.name(), "the toolset did not end in time");
            }
        });
        // Concurrently: each may take some seconds.
        futures::future::join_all(closing).await;
    }
}
