//! The heads that the writer remembers, so that it need not read what it wrote a moment ago.

use std::collections::HashMap;

use crate::id::TaskId;
use crate::task::Head;

/// How many heads are remembered at least, once there are so many.
const REMEMBERED: usize = 2048;

/// A head, and what of it the database does not know yet.
pub(super) struct Remembered {
    /// The number of the task.
    pub(super) n: i64,
    pub(super) head: Head,
    pub(super) unsaved: Unsaved,
}

/// What of a head the database does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unsaved {
    /// Nothing.
    Nothing,
    /// Only what is in the head itself.
    Head,
    /// What it has columns for, too.
    Columns,
}

/// The heads of the tasks that were written to last: two generations, of which the older is dropped when the
/// younger is full. Valid only until another process writes.
#[derive(Default)]
pub(super) struct Heads {
    young: HashMap<TaskId, Remembered>,
    old: HashMap<TaskId, Remembered>,
    unsaved: Vec<TaskId>,
}

impl Heads {
    pub(super) fn get(&mut self, task: TaskId) -> Option<&Remembered> {
        if let Some(found) = self.old.remove(&task) {
            self.young.insert(task, found);
        }
        self.young.get(&task)
    }

    /// Remembers a head that the database has.
    pub(super) fn learn(&mut self, n: i64, head: Head) {
        self.young.insert(head.id, Remembered { n, head, unsaved: Unsaved::Nothing });
    }

    /// Changes a head that is remembered.
    pub(super) fn change(&mut self, head: Head) {
        let Some(known) = self.young.get_mut(&head.id) else { return };
        if known.unsaved == Unsaved::Nothing {
            self.unsaved.push(head.id);
        }
        let moved = known.head.status != head.status
            || known.head.attempt != head.attempt
            || known.head.worker != head.worker;
        known.unsaved = known.unsaved.max(if moved { Unsaved::Columns } else { Unsaved::Head });
        known.head = head;
    }

    /// Hands out, one after another, what the database does not know yet.
    pub(super) fn save<E>(&mut self, mut save: impl FnMut(&Remembered) -> Result<(), E>) -> Result<(), E> {
        for task in self.unsaved.drain(..) {
            if let Some(known) = self.young.get_mut(&task) {
                save(known)?;
                known.unsaved = Unsaved::Nothing;
            }
        }
        Ok(())
    }

    /// Forgets what has not been needed for long. Only for when everything is saved.
    pub(super) fn age(&mut self) {
        if self.young.len() >= REMEMBERED && self.unsaved.is_empty() {
            self.old = std::mem::take(&mut self.young);
        }
    }

    pub(super) fn forget(&mut self) {
        *self = Heads::default();
    }
}
