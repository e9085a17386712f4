//! How far a tree has been told: a root's end is not the end of those that it leaves, and their last words are told too.

use std::collections::{HashMap, HashSet};

use longhaul::TaskId;
use longhaul::id::Seq;
use longhaul::snapshot::{Event, EventKind};
use longhaul::task::TaskState;

/// What was heard of each task.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenEvents {
    seen: HashMap<TaskId, Seq>,
    ended: HashSet<TaskId>,
}

impl SeenEvents {
    /// Takes an event in.
    pub(crate) fn record(&mut self, event: &Event) {
        self.seen.insert(event.task, event.seq);
        if matches!(event.kind, EventKind::Finished { .. }) {
            self.ended.insert(event.task);
        }
    }

    /// Whether an event is news.
    pub(crate) fn is_new(&self, event: &Event) -> bool {
        self.seen.get(&event.task).is_none_or(|seen| event.seq > *seen)
    }

    /// The tasks whose end was not heard of; of those below each other, the uppermost.
    pub(crate) fn without_end<'a>(&self, heads: &'a [TaskState]) -> Vec<&'a TaskState> {
        uppermost(heads, |head| !self.ended.contains(&head.id))
    }
}

/// The tasks of which something holds; of those below each other, the uppermost.
pub(crate) fn uppermost(heads: &[TaskState], holds: impl Fn(&TaskState) -> bool) -> Vec<&TaskState> {
    let found: Vec<TaskId> = heads.iter().filter(|head| holds(head)).map(|head| head.id).collect();
    let lower: HashSet<TaskId> = descendants(heads, &found).map(|head| head.id).collect();
    heads.iter().filter(|head| holds(head) && !lower.contains(&head.id)).collect()
}

/// The tasks that are below one of these.
pub(crate) fn descendants<'a>(
    heads: &'a [TaskState],
    these: &[TaskId],
) -> impl Iterator<Item = &'a TaskState> {
    let these: HashSet<TaskId> = these.iter().copied().collect();
    let parents: HashMap<TaskId, Option<TaskId>> = heads.iter().map(|head| (head.id, head.parent)).collect();
    heads.iter().filter(move |head| {
        std::iter::successors(head.parent, |task| parents.get(task).copied().flatten())
            .any(|task| these.contains(&task))
    })
}

/// Whose ends are worth telling to one who wants to know of `asked`: those of them that are open. In a tree without such,
/// the root's; if that has ended long since, those of the uppermost that are open.
pub(crate) fn tasks_to_report(tree: &[TaskState], root: TaskId, asked: &[TaskId]) -> Vec<TaskId> {
    let is_open = |head: &TaskState| !head.status.is_final();
    let named: Vec<TaskId> =
        tree.iter().filter(|head| is_open(head) && asked.contains(&head.id)).map(|head| head.id).collect();
    if !named.is_empty() {
        return named;
    }
    let open = uppermost(tree, is_open);
    match open.is_empty() || open.iter().any(|head| head.id == root) {
        true => vec![root],
        false => open.into_iter().map(|head| head.id).collect(),
    }
}
