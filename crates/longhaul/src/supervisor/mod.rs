//! The public handle: submit, wait, send, answer, stop, follow.

mod answer;
mod build;
mod desk;
mod error;
mod follow;
mod grove;
mod office;
mod sequence;
mod talk;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answer::Taken;
pub use build::LonghaulBuilder;
use error::check_text;
pub use error::{LONGEST_TEXT, LonghaulError};
pub use follow::Events;
use follow::Until;
pub use grove::Grove;
use office::{Office, Plan};
pub use wait::Waiter;

use crate::agent::Team;
use crate::dispatch::{Join, Limits};
use crate::entry::{Order, Stop, StopCause, TeamRef};
use crate::id::{Seq, TaskId, TaskKey, WorkerId};
use crate::snapshot::{Narrator, Snapshot};
use crate::store::{Filter, Store, StoreError};
use crate::task::{Head, Status};

/// A running Longhaul: submit tasks, watch them, write to them, stop them. Clones are the same Longhaul.
///
/// Dropping all clones without [`shutdown`](Longhaul::shutdown) is like a crash: nothing that was acknowledged is
/// lost, and whoever opens the store next carries on.
#[derive(Clone)]
pub struct Longhaul(Arc<Inner>);

struct Inner {
    office: Arc<Office>,
    team: Option<TeamRef>,
    worker: Option<WorkerId>,
    background: TaskTracker,
    runs: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
    trouble: Arc<watch::Sender<Option<StoreError>>>,
    lost: Arc<watch::Sender<Vec<TaskId>>>,
    grace: Duration,
}

impl Drop for Inner {
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
        LonghaulBuilder::new(None).store_arc(store).start().await
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
    /// assert_eq!(longhaul.wait([id]).await?.tasks[0].head.status, Status::Completed);
    /// # Ok(()) }
    /// ```
    pub async fn submit(&self, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_with(TaskKey::fresh(), order).await
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
        self.submit_with(TaskKey::chosen(key), order).await
    }

    async fn submit_with(&self, key: TaskKey, mut order: Order) -> Result<TaskId, LonghaulError> {
        let reference = self.0.team.clone().ok_or(LonghaulError::NoTeam)?;
        if let Some(team) = self.0.office.team(&reference) {
            let agent = order.agent.get_or_insert_with(|| team.root().clone());
            if team.agent(agent).is_none() {
                let have = team.agents().map(|agent| agent.name.to_string()).collect();
                return Err(LonghaulError::NoAgent { asked: agent.to_string(), team: reference, have });
            }
            if let Some(model) = order.model.as_ref().filter(|model| team.model(model).is_none()) {
                let have = team.model_names();
                return Err(LonghaulError::NoModel { asked: model.clone(), team: reference, have });
            }
        }
        self.plan(key, reference, order).await
    }

    /// Submits an order to a team that some other process runs.
    pub async fn submit_to(&self, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        self.plan(TaskKey::fresh(), team, order).await
    }

    async fn plan(&self, key: TaskKey, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        check_text("task", &order.task)?;
        let plan = Plan {
            key,
            order,
            team,
            parent: None,
            continues: None,
            letter: None,
            retries: None,
            above: Vec::new(),
        };
        Ok(self.0.office.submit(plan).await?.0)
    }

    /// What happens in a tree, from its beginning, until its root has ended.
    pub fn follow(&self, root: TaskId) -> Events {
        follow::tree(self.0.office.clone(), root, HashMap::new(), Until::End)
    }

    /// What happens to a task, from after an entry on, until it has ended.
    pub fn events(&self, id: TaskId, after: Seq) -> Events {
        follow::task(self.0.office.clone(), id, after)
    }

    /// The same, for whoever has read the journal up to that entry: its narrator goes on from there, and nothing is read
    /// again.
    pub fn events_with(&self, narrator: Narrator, after: Seq) -> Events {
        follow::told(self.0.office.clone(), narrator, after)
    }

    /// A task as [`snapshot`](Self::snapshot) shows it, for whoever wants to see its last events and its output: of one that has
    /// ended the long middle of its journal is not read, and `dropped` counts entries there.
    pub async fn glance(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.office.glance(id).await?;
        if let Some(head) = self.0.office.seen(vec![snapshot.head.clone()]).await?.pop() {
            snapshot.head = head;
        }
        Ok(snapshot)
    }

    /// Where a task stands.
    pub async fn head(&self, id: TaskId) -> Result<Head, LonghaulError> {
        let office = &self.0.office;
        let head = office.head(id).await?;
        Ok(office.seen(vec![head.clone()]).await?.pop().unwrap_or(head))
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
    /// assert!(!first.timed_out && first.tasks.iter().any(|task| task.head.status.is_final()));
    /// let both = longhaul.wait([one, two]).await?;
    /// assert_eq!(both.tasks[1].head.id, two); // in the order in which they were asked for
    /// # Ok(()) }
    /// ```
    pub fn wait(&self, ids: impl IntoIterator<Item = TaskId>) -> Waiter {
        Waiter {
            office: self.0.office.clone(),
            ids: ids.into_iter().collect(),
            join: Join::All,
            timeout: None,
        }
    }

    /// One task at this moment. One whose process is gone is shown as what it is: pending, and not running.
    pub async fn snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.office.snapshot(id).await?;
        if let Some(head) = self.0.office.seen(vec![snapshot.head.clone()]).await?.pop() {
            snapshot.head = head;
        }
        Ok(snapshot)
    }

    /// Where the tasks stand that match, in the order of their submission.
    pub async fn snapshots(&self, filter: Filter) -> Result<Vec<Head>, LonghaulError> {
        let office = &self.0.office;
        Ok(office.seen(office.store.list(filter).await?).await?)
    }

    /// The answer of a task; before there is one, all it has said so far.
    pub async fn output(&self, id: TaskId) -> Result<String, LonghaulError> {
        Ok(self.snapshot(id).await?.output)
    }

    /// The task with this id, or the only one whose id begins like this.
    pub async fn find(&self, typed: &str) -> Result<TaskId, LonghaulError> {
        Ok(self.0.office.store.find(typed).await?)
    }

    /// How many tasks run.
    pub async fn running(&self) -> Result<usize, LonghaulError> {
        let filter = Filter { status: vec![Status::Running], ..Filter::default() };
        Ok(self.snapshots(filter).await?.len())
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
    /// let (session, _) = longhaul.open("Stay.").await?;
    /// longhaul.stop(session).await?;
    /// let stopped = longhaul.wait([session]).await?;
    /// assert_eq!(stopped.tasks[0].head.status, Status::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn stop(&self, id: TaskId) -> Result<(), LonghaulError> {
        Ok(self.0.office.stop(id, &Stop { cause: StopCause::Person, note: None }).await?)
    }

    /// Tells a task not to wait for others any longer: the calls of it that do return at once, with the ids of the tasks that
    /// they waited for. Those go on, and their results are sent to it as letters. Whether it was in the middle of any
    /// call; one that does not wait for tasks goes on.
    pub async fn background(&self, id: TaskId) -> Result<bool, LonghaulError> {
        Ok(self.0.office.background(id).await?)
    }

    /// Stops every task that has not ended. Which those are.
    pub async fn stop_all(&self) -> Result<Vec<TaskId>, LonghaulError> {
        let open = self.snapshots(Filter::default().live()).await?;
        for task in &open {
            self.stop(task.id).await?;
        }
        Ok(open.into_iter().map(|task| task.id).collect())
    }

    /// Takes tasks of a tree that some other process submitted; only for one that runs its own trees alone.
    pub fn adopt(&self, root: TaskId) {
        self.0.office.adopt(root);
        self.0.office.bells.wake(root);
    }

    /// The bounds on how many tasks there may be.
    pub fn limits(&self) -> &Limits {
        &self.0.office.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.office.store
    }

    /// Waits until the store takes nothing any more, and says why (a full disk, say). Tasks that were interrupted by
    /// it are given back as soon as it is well again; whoever does not want to wait for that may simply leave.
    pub async fn trouble(&self) -> StoreError {
        let mut trouble = self.0.trouble.subscribe();
        let found = trouble.wait_for(Option::is_some).await.ok().and_then(|trouble| trouble.clone());
        match found {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until another process has taken a task that ran here, and says which. That happens when this process was stopped, or
    /// could not reach the store, for longer than its lease. What it did by then stands; it does nothing more for the task.
    pub async fn lost(&self) -> TaskId {
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
            && let Err(error) = self.0.office.store.retire(worker.clone()).await
        {
            tracing::warn!(%error, "the lease could not be given up");
        }
        // 6. Toolsets end what they have started.
        let teams = self.0.office.teams.all();
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
