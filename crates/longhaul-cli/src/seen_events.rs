//! Tracks which events of a tree were shown. Tasks may go on after their root has ended, and their last
//! events are shown too.

use std::collections::{HashMap, HashSet};

use longhaul::TaskId;
use longhaul::id::Seq;
use longhaul::journal::descendants;
use longhaul::snapshot::{Event, EventKind};
use longhaul::task::TaskState;

/// The last event that was shown of each task.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenEvents {
    seen: HashMap<TaskId, Seq>,
    ended: HashSet<TaskId>,
}

impl SeenEvents {
    /// Marks an event as shown.
    pub(crate) fn record(&mut self, event: &Event) {
        self.seen.insert(event.task, event.seq);
        if matches!(event.kind, EventKind::Finished { .. }) {
            self.ended.insert(event.task);
        }
    }

    /// Returns whether an event has not been shown yet.
    pub(crate) fn is_new(&self, event: &Event) -> bool {
        self.seen.get(&event.task).is_none_or(|seen| event.seq > *seen)
    }

    /// Returns the topmost tasks whose end has not been shown.
    pub(crate) fn without_end<'a>(&self, states: &'a [TaskState]) -> Vec<&'a TaskState> {
        uppermost(states, |state| !self.ended.contains(&state.id))
    }
}

/// Returns the tasks that match, without those that are below another match.
pub(crate) fn uppermost(states: &[TaskState], holds: impl Fn(&TaskState) -> bool) -> Vec<&TaskState> {
    let found: Vec<TaskId> = states.iter().filter(|state| holds(state)).map(|state| state.id).collect();
    let lower: HashSet<TaskId> = descendants(states, &found).map(|state| state.id).collect();
    states.iter().filter(|state| holds(state) && !lower.contains(&state.id)).collect()
}

/// Returns the tasks whose ends to report to someone who named `asked`: the open ones among them. If there
/// are none, the root; and if the root has already ended, the topmost open tasks.
pub(crate) fn tasks_to_report(tree: &[TaskState], root: TaskId, asked: &[TaskId]) -> Vec<TaskId> {
    let is_open = |state: &TaskState| !state.status.is_final();
    let named: Vec<TaskId> = tree
        .iter()
        .filter(|state| is_open(state) && asked.contains(&state.id))
        .map(|state| state.id)
        .collect();
    if !named.is_empty() {
        return named;
    }
    let open = uppermost(tree, is_open);
    match open.is_empty() || open.iter().any(|state| state.id == root) {
        true => vec![root],
        false => open.into_iter().map(|state| state.id).collect(),
    }
}
