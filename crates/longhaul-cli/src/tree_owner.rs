//! Finds out which process runs a tree and whether it is alive, for commands that want to take the tree over.
//!
//! A killed process is known to be dead at once. One that is stopped, or on another machine, is not: watch
//! its lease until it is renewed or expires.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use longhaul::id::{Seq, WorkerId};
use longhaul::store::{Store, TaskFilter};
use longhaul::task::TaskState;
use longhaul::{Status, TaskId};
use tokio::time::Instant;

use crate::background;
use crate::data_dir::DataDir;
use crate::exit::CliError;

/// How often to check the leases.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How much longer than the lease to wait for it to expire.
const MARGIN: Duration = Duration::from_secs(2);
/// The assumed length of a lease that cannot be read.
const LEASE: Duration = Duration::from_secs(15);

/// What is known about a process that runs tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WorkerLiveness {
    renewals: u64,
    /// The sum of the journal positions of its tasks.
    written: u64,
    length: Duration,
}

/// Returns the trees with tasks that a process runs, unless that process is known to be dead.
pub(crate) async fn owned_trees(store: &dyn Store) -> Result<HashSet<TaskId>, CliError> {
    Ok(tasks_of_live_workers(store).await?.into_iter().map(|state| state.root).collect())
}

/// Returns the tasks of processes that are not known to be dead.
async fn tasks_of_live_workers(store: &dyn Store) -> Result<Vec<TaskState>, CliError> {
    let running = TaskFilter::default().status(vec![Status::Running]);
    let running = store.list(running).await?;
    let abandoned: HashSet<TaskId> =
        store.abandoned_tasks().await?.into_iter().map(|state| state.id).collect();
    Ok(running.into_iter().filter(|state| !abandoned.contains(&state.id)).collect())
}

/// Waits for trees that other processes run, until those processes end, release the trees, or let their
/// leases expire. Stops waiting for a tree once its process proves to be alive. Returns the trees that are
/// still run by others.
///
/// Calls `tell` once, with what it waits for and for how long at most.
pub(crate) async fn wait_until_free(
    store: &dyn Store,
    data_dir: &DataDir,
    roots: &HashSet<TaskId>,
    mut tell: impl FnMut(&str),
) -> Result<HashSet<TaskId>, CliError> {
    let begun = Instant::now();
    let mut announced = false;
    let mut first: HashMap<WorkerId, WorkerLiveness> = HashMap::new();
    let mut alive: HashSet<WorkerId> = HashSet::new();
    loop {
        let held: Vec<TaskState> = tasks_of_live_workers(store)
            .await?
            .into_iter()
            .filter(|state| roots.contains(&state.root))
            .collect();
        let mut longest = Duration::ZERO;
        for worker in held.iter().filter_map(|state| state.worker.as_ref()).collect::<BTreeSet<_>>() {
            let sign = worker_liveness(store, worker, &held).await?;
            longest = longest.max(sign.length);
            let seen = *first.entry(worker.clone()).or_insert(sign);
            if (seen.renewals, seen.written) != (sign.renewals, sign.written) {
                alive.insert(worker.clone());
            }
        }
        let is_alive = |state: &TaskState| state.worker.as_ref().is_some_and(|worker| alive.contains(worker));
        let open: HashSet<TaskId> =
            held.iter().filter(|state| !is_alive(state)).map(|state| state.root).collect();
        let most = longest + longest / 3 + MARGIN;
        if open.is_empty() || begun.elapsed() >= most {
            return Ok(held.into_iter().map(|state| state.root).collect());
        }
        // Most live processes renew their lease at once.
        if begun.elapsed() > 3 * POLL_INTERVAL && !std::mem::replace(&mut announced, true) {
            let which: BTreeSet<String> = open.iter().map(|root| describe_owner(data_dir, *root)).collect();
            let which = which.into_iter().collect::<Vec<_>>().join(", ");
            tell(&format!("checking for up to {} s whether it is alive: {which}", most.as_secs()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Describes a tree and the process that runs it.
fn describe_owner(data_dir: &DataDir, root: TaskId) -> String {
    match background::running_pid(data_dir, root) {
        Some(pid) => format!("process {pid}, which runs {root}"),
        None => format!("the process that runs {root}"),
    }
}

async fn worker_liveness(
    store: &dyn Store,
    worker: &WorkerId,
    held: &[TaskState],
) -> Result<WorkerLiveness, CliError> {
    let lease = store.lease(worker.clone()).await?;
    let own = held.iter().filter(|state| state.worker.as_ref() == Some(worker));
    Ok(WorkerLiveness {
        renewals: lease.map_or(0, |lease| lease.renewals),
        written: own.map(|state| state.seq).map(|Seq(seq)| seq).sum(),
        length: lease.map_or(LEASE, |lease| lease.length).min(Duration::from_secs(60)),
    })
}
