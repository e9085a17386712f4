//! The public handle: submit, wait, send, answer, stop, follow.

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

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answer::AnswerReceipt;
pub use builder::LonghaulBuilder;
use error::check_text;
pub use error::{LonghaulError, MAX_TEXT_BYTES};
use follow::FollowUntil;
pub use follow::TaskEvents;
use task_service::{NewTask, TaskService};
pub use tree_group::TreeGroup;
pub use wait::TaskWait;

use crate::agent::Team;
use crate::dispatch::{TaskLimits, WaitMode};
use crate::entry::{Order, StopCause, StopRequest, TeamRef};
use crate::id::{Seq, TaskId, TaskKey, WorkerId};
use crate::snapshot::{EventProjector, Snapshot};
use crate::store::{Store, StoreError, TaskFilter};
use crate::task::{Status, TaskState};

/// A running Longhaul: submit tasks, watch them, write to them, stop them. Clones are the same Longhaul.
///
/// Dropping all clones without [`shutdown`](Longhaul::shutdown) is like a crash: nothing that was acknowledged is
/// lost, and whoever opens the store next carries on.
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
    /// A Longhaul that runs the tasks of a team.
    pub fn builder(team: Team) -> LonghaulBuilder {
        LonghaulBuilder::new(Some(team))
    }

    /// A Longhaul that submits, watches, writes to and stops tasks, but runs none.
    pub async fn client(store: Arc<dyn Store>) -> Result<Longhaul, LonghaulError> {
        LonghaulBuilder::new(None).shared_store(store).start().await
    }

    /// Submits an order of the team's. When the id comes back, the task is on disk.
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

    /// The same, once: an order submitted again under the same key is the task that is already there.
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
        self.submit_new(key, reference, order).await
    }

    /// Submits an order to a team that some other process runs.
    pub async fn submit_to(&self, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_new(TaskKey::random(), team, order).await
    }

    async fn submit_new(&self, key: TaskKey, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        check_text("task", &order.task)?;
        let plan = NewTask {
            key,
            order,
            team,
            parent: None,
            continues: None,
            letter: None,
            retries: None,
            above: Vec::new(),
        };
        Ok(self.0.service.submit(plan).await?.0)
    }

    /// What happens in a tree, from its beginning, until its root has ended.
    pub fn follow(&self, root: TaskId) -> TaskEvents {
        follow::follow_tree(self.0.service.clone(), root, HashMap::new(), FollowUntil::Ended)
    }

    /// What happens to a task, from after an entry on, until it has ended.
    pub fn events(&self, id: TaskId, after: Seq) -> TaskEvents {
        follow::follow_task(self.0.service.clone(), id, after)
    }

    /// The same, for whoever has read the journal up to that entry: its narrator goes on from there, and nothing is read
    /// again.
    pub fn events_from(&self, narrator: EventProjector, after: Seq) -> TaskEvents {
        follow::follow_from(self.0.service.clone(), narrator, after)
    }

    /// A task as [`snapshot`](Self::snapshot) shows it, for whoever wants to see its last events and its output: of one that has
    /// ended the long middle of its journal is not read, and `dropped` counts entries there.
    pub async fn recent_snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.service.recent_snapshot(id).await?;
        if let Some(head) = self.0.service.as_observed(vec![snapshot.state.clone()]).await?.pop() {
            snapshot.state = head;
        }
        Ok(snapshot)
    }

    /// Where a task stands.
    pub async fn state(&self, id: TaskId) -> Result<TaskState, LonghaulError> {
        let office = &self.0.service;
        let head = office.state(id).await?;
        Ok(office.as_observed(vec![head.clone()]).await?.pop().unwrap_or(head))
    }

    /// Waits for tasks: for all of them and without end, unless told otherwise.
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

    /// One task at this moment. One whose process is gone is shown as what it is: pending, and not running.
    pub async fn snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.service.snapshot(id).await?;
        if let Some(head) = self.0.service.as_observed(vec![snapshot.state.clone()]).await?.pop() {
            snapshot.state = head;
        }
        Ok(snapshot)
    }

    /// Where the tasks stand that match, in the order of their submission.
    pub async fn list(&self, filter: TaskFilter) -> Result<Vec<TaskState>, LonghaulError> {
        let office = &self.0.service;
        Ok(office.as_observed(office.store.list(filter).await?).await?)
    }

    /// The answer of a task; before there is one, all it has said so far.
    pub async fn output(&self, id: TaskId) -> Result<String, LonghaulError> {
        Ok(self.snapshot(id).await?.output)
    }

    /// The task with this id, or the only one whose id begins like this.
    pub async fn find(&self, typed: &str) -> Result<TaskId, LonghaulError> {
        Ok(self.0.service.store.find(typed).await?)
    }

    /// How many tasks run.
    pub async fn count_running(&self) -> Result<usize, LonghaulError> {
        let filter = TaskFilter { status: vec![Status::Running], ..TaskFilter::default() };
        Ok(self.list(filter).await?.len())
    }

    /// Stops a task and everything below it. When this returns the wish is on disk; a running task settles it soon.
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

    /// Tells a task not to wait for others any longer: the calls of it that do return at once, with the ids of the tasks that
    /// they waited for. Those go on, and their results are sent to it as letters. Whether it was in the middle of any
    /// call; one that does not wait for tasks goes on.
    pub async fn background(&self, id: TaskId) -> Result<bool, LonghaulError> {
        Ok(self.0.service.background(id).await?)
    }

    /// Stops every task that has not ended. Which those are.
    pub async fn stop_all(&self) -> Result<Vec<TaskId>, LonghaulError> {
        let open = self.list(TaskFilter::default().live()).await?;
        for task in &open {
            self.stop(task.id).await?;
        }
        Ok(open.into_iter().map(|task| task.id).collect())
    }

    /// Takes tasks of a tree that some other process submitted; only for one that runs its own trees alone.
    pub fn adopt_tree(&self, root: TaskId) {
        self.0.service.adopt_tree(root);
        self.0.service.subscriptions.announce_submitted(root);
    }

    /// The bounds on how many tasks there may be.
    pub fn limits(&self) -> &TaskLimits {
        &self.0.service.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.service.store
    }

    /// Waits until the store takes nothing any more, and says why (a full disk, say). Tasks that were interrupted by
    /// it are given back as soon as it is well again; whoever does not want to wait for that may simply leave.
    pub async fn store_failure(&self) -> StoreError {
        let mut trouble = self.0.store_failure.subscribe();
        let found = trouble.wait_for(Option::is_some).await.ok().and_then(|trouble| trouble.clone());
        match found {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until another process has taken a task that ran here, and says which. That happens when this process was stopped, or
    /// could not reach the store, for longer than its lease. What it did by then stands; it does nothing more for the task.
    pub async fn lost_task(&self) -> TaskId {
        let mut lost = self.0.lost.subscribe();
        let found = lost.wait_for(|lost| !lost.is_empty()).await.ok().and_then(|lost| lost.first().copied());
        match found {
            Some(task) => task,
            None => std::future::pending().await,
        }
    }

    /// Begins to drain: no new task is taken, those that run finish their step and are given back.
    pub fn drain(&self) {
        self.0.drain.cancel();
    }

    /// Ends this Longhaul in bounded time. Tasks that have not ended can be resumed.
    pub async fn shutdown(&self) {
        self.shutdown_within(self.0.grace).await;
    }

    /// The same, where steps have this time to be finished in, and not the usual one: for whoever hands tasks over to
    /// another process. What is cut off is done again there.
    pub async fn shutdown_within(&self, grace: Duration) {
        // 1. No task is taken any more, and those that run finish their step and are given back.
        self.0.drain.cancel();
        self.0.runs.close();
        // 2. They have some time for that.
        if tokio::time::timeout(grace, self.0.runs.wait()).await.is_err() {
            // 3. Whoever has not ended by then is dropped, and given back all the same.
            self.0.abort.cancel();
            let _ = tokio::time::timeout(self.0.grace, self.0.runs.wait()).await;
        }
        // 4. Nothing of ours runs any more.
        self.0.abort.cancel();
        self.0.background.close();
        self.0.background.wait().await;
        // 5. The lease ends, so that others need not wait for it to run out.
        if let Some(worker) = &self.0.worker
            && let Err(error) = self.0.service.store.retire_worker(worker.clone()).await
        {
            tracing::warn!(%error, "the lease could not be given up");
        }
        // 6. Toolsets end what they have started.
        let teams = self.0.service.teams.all();
        let toolsets = teams.iter().flat_map(|team| team.agents()).flat_map(|agent| &agent.toolsets);
        let closing = toolsets.map(|toolset| async {
            if tokio::time::timeout(self.0.grace, toolset.close()).await.is_err() {
                tracing::warn!(toolset = toolset.name(), "the toolset did not end in time");
            }
        });
        // All at once: each may take some seconds.
        futures::future::join_all(closing).await;
    }
}
