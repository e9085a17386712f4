//! Who runs a tree, and whether it is still alive: for those who want to carry the tree on.
//!
//! A process that was killed is known to be dead at once. One that is stopped, or on another machine, is not: its lease has to
//! be watched until it is renewed, or has run out.

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

/// How often the leases are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How much longer than a lease is waited for it to run out.
const MARGIN: Duration = Duration::from_secs(2);
/// The length that is assumed of a lease of which nothing is known.
const LEASE: Duration = Duration::from_secs(15);

/// What is known of a process that runs tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WorkerLiveness {
    renewals: u64,
    /// How far the journals of its tasks are, all together.
    written: u64,
    length: Duration,
}

/// The trees of which a process runs tasks that is not known to be gone.
pub(crate) async fn owned_trees(store: &dyn Store) -> Result<HashSet<TaskId>, CliError> {
    Ok(tasks_of_live_workers(store).await?.into_iter().map(|head| head.root).collect())
}

/// The tasks that such processes run.
async fn tasks_of_live_workers(store: &dyn Store) -> Result<Vec<TaskState>, CliError> {
    let running = TaskFilter { status: vec![Status::Running], ..TaskFilter::default() };
    let running = store.list(running).await?;
    let abandoned: HashSet<TaskId> = store.abandoned_tasks().await?.into_iter().map(|head| head.id).collect();
    Ok(running.into_iter().filter(|head| !abandoned.contains(&head.id)).collect())
}

/// Waits for trees that other processes run: until those have ended or let go, or their leases have run out. A tree whose process
/// is seen to be alive is not waited for any longer. Answers which trees are still run by others.
///
/// `tell` is told, once, what is waited for and for how long at most.
pub(crate) async fn wait_until_free(
    store: &dyn Store,
    place: &DataDir,
    roots: &HashSet<TaskId>,
    mut tell: impl FnMut(&str),
) -> Result<HashSet<TaskId>, CliError> {
    let begun = Instant::now();
    let mut told = false;
    let mut first: HashMap<WorkerId, WorkerLiveness> = HashMap::new();
    let mut alive: HashSet<WorkerId> = HashSet::new();
    loop {
        let held: Vec<TaskState> = tasks_of_live_workers(store)
            .await?
            .into_iter()
            .filter(|head| roots.contains(&head.root))
            .collect();
        let mut longest = Duration::ZERO;
        for worker in held.iter().filter_map(|head| head.worker.as_ref()).collect::<BTreeSet<_>>() {
            let sign = worker_liveness(store, worker, &held).await?;
            longest = longest.max(sign.length);
            let seen = *first.entry(worker.clone()).or_insert(sign);
            if (seen.renewals, seen.written) != (sign.renewals, sign.written) {
                alive.insert(worker.clone());
            }
        }
        let is_alive = |head: &TaskState| head.worker.as_ref().is_some_and(|worker| alive.contains(worker));
        let open: HashSet<TaskId> =
            held.iter().filter(|head| !is_alive(head)).map(|head| head.root).collect();
        let most = longest + longest / 3 + MARGIN;
        if open.is_empty() || begun.elapsed() >= most {
            return Ok(held.into_iter().map(|head| head.root).collect());
        }
        // Most of those who live show it at once.
        if begun.elapsed() > 3 * POLL_INTERVAL && !std::mem::replace(&mut told, true) {
            let which: BTreeSet<String> = open.iter().map(|root| describe_owner(place, *root)).collect();
            let which = which.into_iter().collect::<Vec<_>>().join(", ");
            tell(&format!("waiting up to {} s to see whether it is alive: {which}", most.as_secs()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A tree, and who runs it.
fn describe_owner(place: &DataDir, root: TaskId) -> String {
    match background::running_pid(place, root) {
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
    let own = held.iter().filter(|head| head.worker.as_ref() == Some(worker));
    Ok(WorkerLiveness {
        renewals: lease.map_or(0, |lease| lease.renewals),
        written: own.map(|head| head.seq).map(|Seq(seq)| seq).sum(),
        length: lease.map_or(LEASE, |lease| lease.length).min(Duration::from_secs(60)),
    })
}
