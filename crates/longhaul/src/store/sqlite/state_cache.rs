//! The heads that the writer remembers, so that it need not read what it wrote a moment ago.

use std::collections::HashMap;

use crate::id::{Seq, TaskId};
use crate::task::TaskState;

/// How many heads are remembered at least, once there are so many.
const REMEMBERED: usize = 2048;
/// How many entries a stored head may be behind its journal: whoever reads it reads those too.
const BEHIND: u64 = 16;

/// A head, and what of it the database does not know yet.
pub(super) struct CachedState {
    /// The number of the task.
    pub(super) n: i64,
    pub(super) state: TaskState,
    pub(super) unsaved: UnsavedPart,
    /// Up to where the database knows it.
    saved: Seq,
}

/// What of a head the database must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnsavedPart {
    /// Nothing: it is not too far behind.
    Nothing,
    /// Only what is in the head itself.
    Head,
    /// What it has columns for, too.
    Columns,
}

/// The heads of the tasks that were written to last: two generations, of which the older is dropped when the
/// younger is full. Valid only until another process writes.
#[derive(Default)]
pub(super) struct StateCache {
    young: HashMap<TaskId, Box<CachedState>>,
    old: HashMap<TaskId, Box<CachedState>>,
    unsaved: Vec<TaskId>,
}

impl StateCache {
    pub(super) fn get(&mut self, task: TaskId) -> Option<&CachedState> {
        if let Some(found) = self.old.remove(&task) {
            self.young.insert(task, found);
        }
        self.young.get(&task).map(|known| &**known)
    }

    /// Remembers a head that the database has, up to `saved` in so many words and beyond that in the journal.
    pub(super) fn insert_saved(&mut self, n: i64, head: TaskState, saved: Seq) {
        self.young
            .insert(head.id, Box::new(CachedState { n, state: head, unsaved: UnsavedPart::Nothing, saved }));
    }

    /// Changes a head that is remembered.
    pub(super) fn update(&mut self, head: TaskState) {
        let Some(known) = self.young.get_mut(&head.id) else { return };
        let moved = known.state.status != head.status
            || known.state.attempt != head.attempt
            || known.state.worker != head.worker
            || (head.status.is_final() && known.state.active != head.active);
        let unsaved = match head.seq.0.saturating_sub(known.saved.0) {
            _ if moved => UnsavedPart::Columns,
            BEHIND.. => UnsavedPart::Head,
            _ => UnsavedPart::Nothing,
        };
        if known.unsaved == UnsavedPart::Nothing && unsaved > UnsavedPart::Nothing {
            self.unsaved.push(head.id);
        }
        known.unsaved = known.unsaved.max(unsaved);
        known.state = head;
    }

    /// Hands out, one after another, what the database must be told. A task that has ended is then forgotten: hardly
    /// anybody writes to one.
    pub(super) fn save<E>(&mut self, mut save: impl FnMut(&CachedState) -> Result<(), E>) -> Result<(), E> {
        for task in self.unsaved.drain(..) {
            let Some(known) = self.young.get_mut(&task) else { continue };
            save(known)?;
            (known.unsaved, known.saved) = (UnsavedPart::Nothing, known.state.seq);
            if known.state.status.is_final() {
                self.young.remove(&task);
            }
        }
        Ok(())
    }

    /// Forgets what has not been needed for long. Only for when everything is saved.
    pub(super) fn evict_old(&mut self) {
        if self.young.len() >= REMEMBERED && self.unsaved.is_empty() {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Forgets one that is deleted.
    pub(super) fn remove(&mut self, task: TaskId) {
        self.young.remove(&task);
        self.old.remove(&task);
    }

    pub(super) fn clear(&mut self) {
        *self = StateCache::default();
    }
}
