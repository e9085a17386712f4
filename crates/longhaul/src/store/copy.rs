//! Copies a store into another one, of whatever kind.

use std::collections::HashSet;

use super::{DatabaseFault, Store, StoreError, TaskFilter};
use crate::entry::{Entry, Record, ReleaseReason, TeamRef};
use crate::id::{Digest, Seq, TaskId};
use crate::task::{Status, TaskState};

/// How many entries are read at once, and written in one transaction.
const TOGETHER: usize = 1_000;

/// What was copied from a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CopiedStore {
    /// Tasks.
    pub tasks: u64,
    /// Entries of their journals.
    pub entries: u64,
    /// Blobs that they refer to.
    pub blobs: u64,
    /// Stored values.
    pub values: u64,
    /// Tasks that were running: in the copy they are pending.
    pub released: u64,
}

/// Copies all tasks with their journals, the blobs that they refer to, and stored values into an empty store.
/// Reports the progress from time to time.
///
/// No process may run tasks of either store meanwhile. A task that was running is released in the copy. Fails
/// if the target is not empty; after any other failure, the target is incomplete and has to be emptied.
pub async fn copy_store(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(&CopiedStore),
) -> Result<CopiedStore, StoreError> {
    if to.count(TaskFilter::newest(1)).await? > 0 || !to.stored_value_names().await?.is_empty() {
        let what = "the store to copy into is not empty".to_owned();
        return Err(StoreError::Database { what, fault: DatabaseFault::Permanent });
    }
    let mut copied = CopiedStore::default();
    let mut blobs: HashSet<Digest> = HashSet::new();
    let (mut batch, mut size) = (Vec::new(), 0);
    let ids = from.ids(TaskFilter::default()).await?;
    let last = ids.last().copied();
    for id in ids {
        let journal = read_released(from, id, &mut copied).await?;
        for digest in journal.iter().filter_map(|record| blob_of(&record.entry)) {
            if !blobs.contains(digest)
                && let Some(bytes) = from.blob(digest.clone()).await?
            {
                blobs.insert(to.put_blob(bytes).await?);
                copied.blobs += 1;
            }
        }
        copied.tasks += 1;
        copied.entries += journal.len() as u64;
        size += journal.len();
        batch.push((id, journal));
        if size >= TOGETHER || Some(id) == last {
            to.import_journals(std::mem::take(&mut batch)).await?;
            size = 0;
            progress(&copied);
        }
    }
    for name in from.stored_value_names().await? {
        let value = from.stored_value(&name).await?;
        copied.values += u64::from(to.put_stored_value(&name, 0, value.bytes).await?);
    }
    progress(&copied);
    Ok(copied)
}

/// A whole journal, which ends with a release if the task was running.
async fn read_released(
    from: &dyn Store,
    id: TaskId,
    copied: &mut CopiedStore,
) -> Result<Vec<Record>, StoreError> {
    let mut journal: Vec<Record> = Vec::new();
    loop {
        let after = journal.last().map_or(Seq(0), |record| record.seq);
        let page = from.read(id, after, TOGETHER).await?;
        let ended = page.len() < TOGETHER;
        journal.extend(page);
        if ended {
            break;
        }
    }
    let state = folded(id, &journal)?;
    if state.status == Status::Running {
        let entry = Entry::Released { attempt: state.attempt, why: ReleaseReason::Lost };
        journal.push(Record { seq: Seq(state.seq.0 + 1), at: state.active, entry });
        copied.released += 1;
    }
    Ok(journal)
}

/// The state of a task with this journal. Fails if it is not one.
pub(super) fn folded(task: TaskId, journal: &[Record]) -> Result<TaskState, StoreError> {
    let state = TaskState::from_journal(task, journal).map_err(|why| StoreError::Illegal { task, why })?;
    state.ok_or(StoreError::NoTask(task))
}

/// The blob that an entry refers to.
fn blob_of(entry: &Entry) -> Option<&Digest> {
    match entry {
        Entry::Submitted(submitted) => match &submitted.team {
            TeamRef::File(digest) => Some(digest),
            _ => None,
        },
        Entry::Returned(returned) => returned.whole.as_ref(),
        _ => None,
    }
}
