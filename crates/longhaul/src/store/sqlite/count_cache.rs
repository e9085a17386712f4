//! How many tasks match the conditions that were checked last, so that they need not be counted again.

use std::collections::VecDeque;

use crate::store::TaskFilter;
use crate::task::TaskState;

/// How many conditions are remembered.
const REMEMBERED: usize = 16;

/// The counts. Valid only until another process writes.
#[derive(Default)]
pub(super) struct CountCache(VecDeque<(TaskFilter, i64)>);

impl CountCache {
    pub(super) fn get(&self, filter: &TaskFilter) -> Option<i64> {
        self.0.iter().find(|(known, _)| known == filter).map(|(_, count)| *count)
    }

    pub(super) fn insert(&mut self, filter: TaskFilter, count: i64) {
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front((filter, count));
    }

    /// Updates the counts for a task that is new or has changed.
    pub(super) fn update(&mut self, old: Option<&TaskState>, new: &TaskState) {
        for (filter, count) in &mut self.0 {
            let before = old.is_some_and(|old| filter.matches(old));
            *count += i64::from(filter.matches(new)) - i64::from(before);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
