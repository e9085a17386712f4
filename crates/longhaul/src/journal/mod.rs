//! Work on journals: appends that retry, whole journals, the tasks below a task, and how a task ends.

mod launch_burst;
mod pages;
mod settle;
mod submissions;

use std::collections::{HashMap, HashSet, hash_map};
use std::time::Duration;

use futures::StreamExt as _;

use crate::entry::{Entry, Record};
use crate::id::{LetterId, Seq, TaskId};
use crate::store::{Batch, DatabaseFault, Store, StoreError, TaskFilter};
use crate::task::TaskState;

pub(crate) use launch_burst::LaunchBurst;
pub use pages::pages;
pub(crate) use settle::{fail_task, finish_task, release_task, stop_descendants, stop_task};
pub(crate) use submissions::{SubmissionCache, read_submission, submission_in};

/// Appends, and retries for a while if that may help: a full disk or a lock may be temporary. If it is not
/// known whether the batch was written, it is only written again if that makes no difference.
pub(crate) async fn append(store: &dyn Store, batch: Batch) -> Result<Vec<Seq>, StoreError> {
    let mut pause = Duration::from_millis(100);
    loop {
        let may_retry = |fault| match fault {
            DatabaseFault::Busy | DatabaseFault::DiskFull => true,
            DatabaseFault::Uncertain => batch.is_idempotent(),
            DatabaseFault::Permanent => false,
        };
        match store.append(batch.clone()).await {
            Err(StoreError::Database { what, fault })
                if may_retry(fault) && pause < Duration::from_secs(5) =>
            {
                tracing::warn!(error = what, "the store rejected a write; retrying");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
}

/// A journal from an entry to its end.
pub(crate) async fn read_all(store: &dyn Store, task: TaskId, after: Seq) -> Result<Vec<Record>, StoreError> {
    let mut pages = std::pin::pin!(pages(store, task, after));
    let mut records = pages.next().await.transpose()?.unwrap_or_default();
    while let Some(more) = pages.next().await {
        records.extend(more?);
    }
    Ok(records)
}

/// The state of a task. Fails if there is no such task.
pub(crate) async fn state(store: &dyn Store, task: TaskId) -> Result<TaskState, StoreError> {
    store.task_state(task).await?.ok_or(StoreError::NoTask(task))
}

/// The task that holds this task's conversation now: itself, or its last continuation.
pub(crate) async fn latest_continuation(store: &dyn Store, task: TaskId) -> Result<TaskState, StoreError> {
    let mut last = state(store, task).await?;
    while let Some(next) = last.continued_by {
        last = state(store, next).await?;
    }
    Ok(last)
}

/// Whether a task is below `top`. Reads one state per level.
pub(crate) async fn is_below(store: &dyn Store, task: &TaskState, top: TaskId) -> Result<bool, StoreError> {
    let mut parent = task.parent;
    while let Some(above) = parent.filter(|above| *above != top) {
        parent = store.task_state(above).await?.and_then(|above| above.parent);
    }
    Ok(parent.is_some())
}

/// The tasks below `top`, in submission order. Lists those and no others, level by level.
pub(crate) async fn tasks_below(store: &dyn Store, top: &TaskState) -> Result<Vec<TaskState>, StoreError> {
    if top.id == top.root {
        let mut tree = store.list(TaskFilter::tree(top.root)).await?;
        tree.retain(|task| task.id != top.id);
        return Ok(tree);
    }
    let (mut found, mut level) = (Vec::new(), vec![top.id]);
    while !level.is_empty() {
        let below = store.list(TaskFilter { parents: level, ..TaskFilter::default() }).await?;
        level = below.iter().map(|task| task.id).collect();
        found.extend(below);
    }
    found.sort_by_key(|task| task.created);
    Ok(found)
}

/// The tasks below any of `tops`, of states that were listed before.
pub fn descendants<'a>(states: &'a [TaskState], tops: &[TaskId]) -> impl Iterator<Item = &'a TaskState> {
    let tops: HashSet<TaskId> = tops.iter().copied().collect();
    let parents: HashMap<TaskId, Option<TaskId>> =
        states.iter().map(|state| (state.id, state.parent)).collect();
    states.iter().filter(move |state| {
        std::iter::successors(state.parent, |task| parents.get(task).copied().flatten())
            .any(|task| tops.contains(&task))
    })
}

/// Which tasks know the end of which others. Reads the journal of each task once.
#[derive(Debug, Default)]
pub struct KnownEnds(HashMap<TaskId, HashSet<TaskId>>);

impl KnownEnds {
    /// Whether a task knows the end of another: from a letter that it read, or as the result of a call.
    pub async fn contains(
        &mut self,
        store: &dyn Store,
        task: TaskId,
        ended: TaskId,
    ) -> Result<bool, StoreError> {
        let known = match self.0.entry(task) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(place) => place.insert(known_ends(store, task).await?),
        };
        Ok(known.contains(&ended))
    }
}

async fn known_ends(store: &dyn Store, task: TaskId) -> Result<HashSet<TaskId>, StoreError> {
    let mut known_ends = HashSet::new();
    let mut endings: HashMap<LetterId, TaskId> = HashMap::new();
    for record in read_all(store, task, Seq(0)).await? {
        match record.entry {
            Entry::Letter(letter) => endings.extend(letter.ending.map(|child| (letter.id, child))),
            Entry::Read { letters, known, .. } => {
                known_ends.extend(letters.iter().chain(&known).filter_map(|letter| endings.get(letter)));
            }
            Entry::Returned(returned) => known_ends.extend(returned.collected),
            _ => {}
        }
    }
    Ok(known_ends)
}
