//! Starting a Longhaul.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dispatcher::dispatcher;
use super::task_service::TaskService;
use super::{Longhaul, LonghaulError, LonghaulInner};
use crate::agent::{Team, Unattended};
use crate::dispatch::TaskLimits;
use crate::id::{TaskId, WorkerId};
use crate::runner::{LeaseKeeper, RunContext};
use crate::store::{MemoryStore, Store, Subscriptions};
use crate::tool::ProcessSlots;
use crate::worker::{RecoveryPolicy, TeamLoader, TeamRegistry, Worker, WorkerSettings};

/// A Longhaul on its way.
pub struct LonghaulBuilder {
    team: Option<Team>,
    others: Vec<Team>,
    loader: Option<Arc<dyn TeamLoader>>,
    store: Option<Arc<dyn Store>>,
    limits: TaskLimits,
    lease: Duration,
    grace: Duration,
    recovery: RecoveryPolicy,
    roots: Option<Vec<TaskId>>,
    attended: bool,
    unattended: Option<Unattended>,
    ask_timeout: Option<Duration>,
}

impl LonghaulBuilder {
    pub(super) fn new(team: Option<Team>) -> Self {
        LonghaulBuilder {
            team,
            others: Vec::new(),
            loader: None,
            store: None,
            limits: TaskLimits::default(),
            lease: Duration::from_secs(15),
            grace: Duration::from_secs(10),
            recovery: RecoveryPolicy::default(),
            roots: None,
            attended: false,
            unattended: None,
            ask_timeout: None,
        }
    }

    /// Where journals live. Without one they live in memory, and die with the process.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Where journals live, shared with others.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// One more team whose tasks are run here.
    pub fn add_team(mut self, team: Team) -> Self {
        self.others.push(team);
        self
    }

    /// How team files that are kept in the store become teams.
    pub fn loader(mut self, loader: impl TeamLoader) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// Bounds on how many tasks there may be.
    pub fn limits(mut self, limits: TaskLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a worker that says nothing still counts as alive.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(30));
        self
    }

    /// How long a shutdown waits for tasks to finish their step.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What is done with tasks whose worker is gone.
    pub fn recovery(mut self, policy: RecoveryPolicy) -> Self {
        self.recovery = policy;
        self
    }

    /// Take no tasks but those of trees that are submitted or adopted here.
    pub fn own_trees_only(mut self) -> Self {
        self.roots = Some(Vec::new());
        self
    }

    /// Take no tasks but those of this tree, of others named like this, and of trees that are submitted here.
    pub fn only_tree(mut self, root: TaskId) -> Self {
        self.roots.get_or_insert_default().push(root);
        self
    }

    /// Says whether a person is there who sees the questions of tasks and can answer them. Unless told otherwise, nobody is.
    pub fn attended(mut self, attended: bool) -> Self {
        self.attended = attended;
        self
    }

    /// What becomes of questions when nobody is there to answer them, whatever the habits of the agents say.
    pub fn unattended(mut self, policy: Unattended) -> Self {
        self.unattended = Some(policy);
        self
    }

    /// How long a person has for an answer, whatever the habits of the agents say; then it is no, and the task goes on.
    pub fn ask_timeout(mut self, timeout: Duration) -> Self {
        self.ask_timeout = Some(timeout);
        self
    }

    /// Starts it: from now on it claims tasks, those that others left behind included.
    pub async fn start(self) -> Result<Longhaul, LonghaulError> {
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let bells = Subscriptions::default();
        let (background, runs) = (TaskTracker::new(), TaskTracker::new());
        let (drain, abort) = (CancellationToken::new(), CancellationToken::new());
        let running = self.limits.running;
        let processes = ProcessSlots::new(self.limits.processes);
        let reference = self.team.as_ref().map(|team| team.reference().clone());
        let runs_tasks = reference.is_some();
        let teams = Arc::new(TeamRegistry::new(self.team.into_iter().chain(self.others), self.loader));
        let roots = Arc::new(Mutex::new(self.roots));
        let orders = Arc::default();
        let office = Arc::new(TaskService {
            store: store.clone(),
            subscriptions: bells.clone(),
            teams: teams.clone(),
            submissions: Arc::clone(&orders),
            limits: self.limits,
            roots: roots.clone(),
        });

        // The ears first, so that nothing that happens from now on goes unheard.
        let hints = store.hints();
        let (ears, gone) = (bells.clone(), abort.clone());
        background.spawn(async move {
            tokio::select! {
                () = ears.forward_hints(hints) => {}
                () = gone.cancelled() => {}
            }
        });

        let id = WorkerId::random();
        let trouble = Arc::new(watch::Sender::new(None));
        let lost = Arc::new(watch::Sender::new(Vec::new()));
        if runs_tasks {
            let around = RunContext {
                processes,
                worktrees: Arc::default(),
                store: store.clone(),
                subscriptions: bells,
                dispatcher: dispatcher(&office),
                tool_cache: Arc::default(),
                submissions: orders,
                drain: drain.clone(),
                attended: self.attended,
                unattended: self.unattended,
                ask_timeout: self.ask_timeout,
            };
            let worker = Worker {
                id: id.clone(),
                context: around,
                teams,
                settings: WorkerSettings { running, lease: self.lease, recovery: self.recovery },
                roots,
                runs: runs.clone(),
                abort: abort.clone(),
                store_failure: trouble.clone(),
                lease: Arc::new(LeaseKeeper::new(self.lease)),
                lost: lost.clone(),
                under_way: Arc::default(),
            };
            worker.lease.renew(&*store, &id).await?;
            worker.release_abandoned().await;
            worker.load_teams().await;
            let (alive, gone) = (worker.keep_alive(), abort.clone());
            background.spawn(async move {
                tokio::select! {
                    () = alive => {}
                    () = gone.cancelled() => {}
                }
            });
            // With the runs: when they are waited for, nobody may still be starting new ones.
            runs.spawn(worker.work());
        }
        Ok(Longhaul(Arc::new(LonghaulInner {
            service: office,
            team: reference,
            worker: runs_tasks.then_some(id),
            background,
            runs,
            drain,
            abort,
            store_failure: trouble,
            lost,
            grace: self.grace,
        })))
    }
}
