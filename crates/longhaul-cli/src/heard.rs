//! How far a tree has been told: a root's end is not the end of those that it leaves, and their last words are told too.

use std::collections::{HashMap, HashSet};

use longhaul::TaskId;
use longhaul::id::Seq;
use longhaul::snapshot::{Event, Happening};
use longhaul::task::Head;

/// What was heard of each task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    seen: HashMap<TaskId, Seq>,
    ended: HashSet<TaskId>,
}

impl Heard {
    /// Takes an event in.
    pub(crate) fn take(&mut self, event: &Event) {
        self.seen.insert(event.task, event.seq);
        if matches!(event.what, Happening::Finished { .. }) {
            self.ended.insert(event.task);
        }
    }

    /// Whether an event is news.
    pub(crate) fn is_new(&self, event: &Event) -> bool {
        self.seen.get(&event.task).is_none_or(|seen| event.seq > *seen)
    }

    /// The tasks whose end was not heard of; of those below each other, the uppermost.
    pub(crate) fn missing<'a>(&self, heads: &'a [Head]) -> Vec<&'a Head> {
        uppermost(heads, |head| !self.ended.contains(&head.id))
    }
}

/// The tasks of which something holds; of those below each other, the uppermost.
pub(crate) fn uppermost(heads: &[Head], holds: impl Fn(&Head) -> bool) -> Vec<&Head> {
    let found: Vec<TaskId> = heads.iter().filter(|head| holds(head)).map(|head| head.id).collect();
    let lower: HashSet<TaskId> = below(heads, &found).map(|head| head.id).collect();
    heads.iter().filter(|head| holds(head) && !lower.contains(&head.id)).collect()
}

/// The tasks that are below one of these.
pub(crate) fn below<'a>(heads: &'a [Head], these: &[TaskId]) -> impl Iterator<Item = &'a Head> {
    let these: HashSet<TaskId> = these.iter().copied().collect();
    let parents: HashMap<TaskId, Option<TaskId>> = heads.iter().map(|head| (head.id, head.parent)).collect();
    heads.iter().filter(move |head| {
        std::iter::successors(head.parent, |task| parents.get(task).copied().flatten())
            .any(|task| these.contains(&task))
    })
}

/// Whose ends are worth telling to one who wants to know of `asked`: those of them that are open. In a tree without such,
/// the root's; if that has ended long since, those of the uppermost that are open.
pub(crate) fn subjects(tree: &[Head], root: TaskId, asked: &[TaskId]) -> Vec<TaskId> {
    let is_open = |head: &Head| !head.status.is_final();
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
