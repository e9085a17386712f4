//! The states that the writer caches, so that it need not read what it has just written.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::{Seq, TaskId};
use crate::task::TaskState;

/// How many states are cached, at least.
const REMEMBERED: usize = 2048;
/// How many entries a stored state may be behind its journal. Readers apply those entries.
const BEHIND: u64 = 16;
/// A large state may be further behind, by one entry for so many bytes: otherwise a task with many calls would
/// be written in full for each of them.
const BYTES_PER_ENTRY: usize = 128;

/// A state, and how far the database has it.
pub(super) struct CachedState {
    /// The number of the task.
    pub(super) n: i64,
    pub(super) state: Arc<TaskState>,
    pub(super) unsaved: UnsavedPart,
    /// The position up to which the database has it.
    saved: Seq,
    /// How large it was then.
    size: usize,
}

/// Which part of a state has to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnsavedPart {
    /// Nothing: it is not too far behind.
    Nothing,
    /// Only the state itself.
    State,
    /// Its columns too.
    Columns,
}

/// The states of the tasks that were written to last: two generations, of which the older is dropped when the
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

    /// Caches a state that the database has: up to `saved` as a state, beyond that in the journal.
    pub(super) fn insert_saved(&mut self, n: i64, state: Arc<TaskState>, saved: Seq) {
        self.young.insert(
            state.id,
            Box::new(CachedState { n, state, unsaved: UnsavedPart::Nothing, saved, size: 0 }),
        );
    }

    /// Updates a cached state.
    pub(super) fn update(&mut self, state: Arc<TaskState>) {
        let Some(known) = self.young.get_mut(&state.id) else { return };
        let moved = known.state.status != state.status
            || known.state.attempt != state.attempt
            || known.state.worker != state.worker
            || (state.status.is_final() && known.state.active != state.active);
        let most = BEHIND + (known.size / BYTES_PER_ENTRY) as u64;
        let unsaved = match state.seq.0.saturating_sub(known.saved.0) >= most {
            _ if moved => UnsavedPart::Columns,
            true => UnsavedPart::State,
            false => UnsavedPart::Nothing,
        };
        if known.unsaved == UnsavedPart::Nothing && unsaved > UnsavedPart::Nothing {
            self.unsaved.push(state.id);
        }
        known.unsaved = known.unsaved.max(unsaved);
        known.state = state;
    }

    /// Passes every unsaved state to `save`, which returns its size. An ended task is then removed: it is rarely written to.
    pub(super) fn save<E>(
        &mut self,
        mut save: impl FnMut(&CachedState) -> Result<usize, E>,
    ) -> Result<(), E> {
        for task in self.unsaved.drain(..) {
            let Some(known) = self.young.get_mut(&task) else { continue };
            let size = save(known)?;
            (known.unsaved, known.saved, known.size) = (UnsavedPart::Nothing, known.state.seq, size);
            if known.state.status.is_final() {
                self.young.remove(&task);
            }
        }
        Ok(())
    }

    /// Removes states that were not needed for long. Only call it when everything is saved.
    pub(super) fn evict_old(&mut self) {
        if self.young.len() >= REMEMBERED && self.unsaved.is_empty() {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Removes a deleted task.
    pub(super) fn remove(&mut self, task: TaskId) {
        self.young.remove(&task);
        self.old.remove(&task);
    }

    pub(super) fn clear(&mut self) {
        *self = StateCache::default();
    }
}
