//! Turns the entries of the feed into events, task by task.

use std::collections::HashMap;

use longhaul::entry::{Entry, Record};
use longhaul::id::Seq;
use longhaul::snapshot::EventProjector;
use longhaul::store::{Store, StoreError};
use longhaul::{Event, TaskId};

/// How many tasks are remembered. One that is forgotten is read again when it is needed.
const REMEMBERED: usize = 4_096;
/// How many entries are read at once.
const AT_ONCE: usize = 1_000;

/// The projectors of the tasks that were seen.
#[derive(Default)]
pub(super) struct Projection {
    known: HashMap<TaskId, (EventProjector, Seq)>,
}

impl Projection {
    /// The events of an entry. If the task is not known, its journal up to the entry is read first.
    pub(super) async fn project(
        &mut self,
        store: &dyn Store,
        task: TaskId,
        record: &Record,
    ) -> Result<Vec<Event>, StoreError> {
        let before = Seq(record.seq.0.saturating_sub(1));
        let known = self.known.get(&task).is_some_and(|(_, seq)| *seq == before);
        if !known {
            if !depends_on_earlier(&record.entry) {
                return Ok(EventProjector::midway(task).project(record));
            }
            let projector = rebuild(store, task, before).await?;
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            self.known.insert(task, (projector, before));
        }
        let Some((projector, seq)) = self.known.get_mut(&task) else { return Ok(Vec::new()) };
        *seq = record.seq;
        let events = projector.project(record);
        if matches!(record.entry, Entry::Finished(_)) {
            self.known.remove(&task);
        }
        Ok(events)
    }
}

/// Whether the events of an entry depend on earlier entries, or those of later entries on it.
fn depends_on_earlier(entry: &Entry) -> bool {
    matches!(
        entry,
        Entry::Said { .. }
            | Entry::Replied(_)
            | Entry::Called { .. }
            | Entry::Returned(_)
            | Entry::Waiting { .. }
            | Entry::Claimed { .. }
    )
}

/// A projector that has seen the journal up to an entry.
async fn rebuild(store: &dyn Store, task: TaskId, last: Seq) -> Result<EventProjector, StoreError> {
    let (mut projector, mut after) = (EventProjector::new(task), Seq(0));
    while after < last {
        let left = usize::try_from(last.0 - after.0).unwrap_or(usize::MAX);
        let records = store.read(task, after, left.min(AT_ONCE)).await?;
        let Some(end) = records.last().map(|record| record.seq) else { break };
        for record in &records {
            projector.project(record);
        }
        after = end;
    }
    Ok(projector)
}
