//! What a group of appends is validated against: what the database had when all its rows were locked, and what the
//! earlier ones of the group have changed since.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;

use super::rows;
use crate::entry::Entry;
use crate::id::{LetterId, TaskId};
use crate::store::validate::{StoreLookup, ValidatedBatch, WriteDraft};
use crate::store::{CountCondition, Fence, StoreError, TaskFilter};
use crate::task::TaskState;

/// What was gathered, and what became of it.
#[derive(Default)]
pub(super) struct Gathered {
    /// The tasks, as they are now. One that cannot be loaded fails only who asks for it.
    pub(super) tasks: HashMap<TaskId, Result<TaskState, StoreError>>,
    /// Those that are in the database.
    pub(super) stored: HashSet<TaskId>,
    /// Letters that are there, by their keys.
    pub(super) letters: HashSet<(TaskId, Vec<u8>)>,
    /// Running tasks whose worker has a lease.
    pub(super) alive: HashSet<TaskId>,
    /// How many tasks match a filter.
    pub(super) counts: Vec<(TaskFilter, i64)>,
    /// Tasks that changed, in the order in which they did first.
    pub(super) changed: IndexSet<TaskId>,
}

impl Gathered {
    /// Checks the conditions of a batch.
    pub(super) fn check_limits(
        &self,
        drafts: &[WriteDraft],
        conditions: &[CountCondition],
    ) -> Result<(), StoreError> {
        let Some(first) = drafts.first() else { return Ok(()) };
        if first.fence == Fence::New && self.tasks.contains_key(&first.task) {
            return Ok(());
        }
        for condition in conditions {
            let holds = |(filter, most): (&TaskFilter, u32)| {
                let count = self.counts.iter().find(|(counted, _)| counted == filter);
                count.is_some_and(|(_, count)| *count < i64::from(most))
            };
            if !condition.alternatives().any(holds) {
                return Err(StoreError::Limit { limit: condition.limit, what: condition.what });
            }
        }
        Ok(())
    }

    /// Takes over what a batch changes.
    pub(super) fn apply(&mut self, drafts: &[WriteDraft], verdict: ValidatedBatch) {
        for draft in drafts {
            for record in draft.new_records() {
                if let Entry::Letter(letter) = &record.entry {
                    self.letters.insert((draft.task, rows::letter_key(&letter.id)));
                }
            }
        }
        for (id, state) in verdict.states {
            let Some(state) = state else { continue };
            let old = self.tasks.get(&id).and_then(|task| task.as_ref().ok());
            if old.is_some_and(|old| old.seq == state.seq) {
                continue;
            }
            for (filter, count) in &mut self.counts {
                *count += i64::from(filter.matches(&state));
                *count -= i64::from(old.is_some_and(|old| filter.matches(old)));
            }
            self.tasks.insert(id, Ok(state));
            self.changed.insert(id);
        }
    }
}

impl StoreLookup for Gathered {
    fn task_state(&mut self, task: TaskId) -> Result<Option<TaskState>, StoreError> {
        self.tasks.get(&task).cloned().transpose()
    }

    fn has_letter(&mut self, task: TaskId, letter: &LetterId) -> Result<bool, StoreError> {
        Ok(self.letters.contains(&(task, rows::letter_key(letter))))
    }

    fn is_abandoned(&mut self, state: &TaskState) -> Result<bool, StoreError> {
        Ok(state.worker.is_none() || !self.alive.contains(&state.id))
    }
}
