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

/// Builds a [`Longhaul`].
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

    /// Sets the store. Without one, journals are kept in memory and are lost when the process exits.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Sets a store that is shared with others.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Adds another team whose tasks are run here.
    pub fn add_team(mut self, team: Team) -> Self {
        self.others.push(team);
        self
    }

    /// Sets how team files in the store are loaded.
    pub fn loader(mut self, loader: impl TeamLoader) -> Self {
        self.loader = Some(Arc::new(loader));
        self
    }

    /// Sets the limits on the number of tasks.
    pub fn limits(mut self, limits: TaskLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long a worker without a sign of life still counts as alive.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(30));
        self
    }

    /// Sets how long a shutdown waits for tasks to finish their step.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets what happens to tasks whose worker is gone.
    pub fn recovery(mut self, policy: RecoveryPolicy) -> Self {
        self.recovery = policy;
        self
    }

    /// Runs only tasks of trees that are submitted or adopted here.
    pub fn own_trees_only(mut self) -> Self {
        self.roots = Some(Vec::new());
        self
    }

    /// Runs only tasks of this tree, of trees added by further calls, and of trees that are submitted here.
    pub fn only_tree(mut self, root: TaskId) -> Self {
        self.roots.get_or_insert_default().push(root);
        self
    }

    /// Sets whether a person is there to see and answer the questions of tasks. The default is no.
    pub fn attended(mut self, attended: bool) -> Self {
        self.attended = attended;
        self
    }

    /// Sets how to handle approvals and questions when no one is there to answer, overriding the agents'
    /// policies.
    pub fn unattended(mut self, policy: Unattended) -> Self {
        self.unattended = Some(policy);
        self
    }

    /// Sets how long to wait for a person's answer, overriding the agents' policies. After that the answer is
    /// no, and the task continues.
    pub fn ask_timeout(mut self, timeout: Duration) -> Self {
        self.ask_timeout = Some(timeout);
        self
    }

    /// Starts it: from now on it claims tasks, including those left behind by other processes. Fails if the
    /// store does not open.
    pub async fn start(self) -> Result<Longhaul, LonghaulError> {
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let subscriptions = Subscriptions::default();
        let (background, runs) = (TaskTracker::new(), TaskTracker::new());
        let (drain, abort) = (CancellationToken::new(), CancellationToken::new());
        let running = self.limits.running;
        let processes = ProcessSlots::new(self.limits.processes);
        let reference = self.team.as_ref().map(|team| team.reference().clone());
        let runs_tasks = reference.is_some();
        let teams = Arc::new(TeamRegistry::new(self.team.into_iter().chain(self.others), self.loader));
        let roots = Arc::new(Mutex::new(self.roots));
        let (submissions, launches) = (Arc::default(), Arc::default());
        let service = Arc::new(TaskService {
            store: store.clone(),
            subscriptions: subscriptions.clone(),
            teams: teams.clone(),
            submissions: Arc::clone(&submissions),
            launches: Arc::clone(&launches),
            limits: self.limits,
            last_conditions: Mutex::default(),
            roots: roots.clone(),
        });

        // Subscribe first, so that no change from now on is missed.
        let hints = store.hints();
        let (forwarder, gone) = (subscriptions.clone(), abort.clone());
        background.spawn(async move {
            tokio::select! {
                () = forwarder.forward_hints(hints) => {}
                () = gone.cancelled() => {}
            }
        });

        let id = WorkerId::random();
        let store_failure = Arc::new(watch::Sender::new(None));
        let lost = Arc::new(watch::Sender::new(Vec::new()));
        if runs_tasks {
            let context = Arc::new(RunContext {
                processes,
                worktrees: Arc::default(),
                store: store.clone(),
                subscriptions,
                dispatcher: dispatcher(&service),
                tool_cache: Arc::default(),
                submissions,
                spending: Arc::default(),
                drain: drain.clone(),
                attended: self.attended,
                unattended: self.unattended,
                ask_timeout: self.ask_timeout,
            });
            let worker = Worker {
                id: id.clone(),
                context,
                teams,
                settings: WorkerSettings { running, lease: self.lease, recovery: self.recovery },
                roots,
                runs: runs.clone(),
                abort: abort.clone(),
                store_failure: store_failure.clone(),
                lease: Arc::new(LeaseKeeper::new(self.lease)),
                lost: lost.clone(),
                under_way: Arc::default(),
                unreadable: Arc::default(),
                launches,
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
            // Tracked with the runs: once they have been waited for, nothing may still start new ones.
            runs.spawn(worker.work());
        }
        Ok(Longhaul(Arc::new(LonghaulInner {
            service,
            team: reference,
            worker: runs_tasks.then_some(id),
            background,
            runs,
            drain,
            abort,
            store_failure,
            lost,
            grace: self.grace,
        })))
    }
}
