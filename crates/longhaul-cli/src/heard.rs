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
        let parents: HashMap<TaskId, Option<TaskId>> =
            heads.iter().map(|head| (head.id, head.parent)).collect();
        let above = |head: &Head| {
            std::iter::successors(head.parent, |task| parents.get(task).copied().flatten())
                .any(|task| parents.contains_key(&task) && !self.ended.contains(&task))
        };
        heads.iter().filter(|head| !self.ended.contains(&head.id) && !above(head)).collect()
    }
}
