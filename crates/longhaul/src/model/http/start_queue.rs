//! Which tasks begin: pure, without clocks and IO.
//!
//! A task that has begun holds its conversation, its tools and its next request in memory, also while it waits at the
//! gate. So tasks begin only when their first request will be sent soon: when there is room at the gate, and
//! some more, so that no place there stays empty while the next task begins. A tree of which nothing waits may begin
//! another task at any time. It competes with the other trees at the gate, in fair turns.

use std::collections::HashMap;

use super::fair_queue::{FairQueue, QueuePlace};
use crate::id::TaskId;

/// How many there are of each tree.
#[derive(Debug, Default)]
pub(super) struct TreeCounts {
    by_tree: HashMap<TaskId, usize>,
    total: usize,
}

impl TreeCounts {
    pub(super) fn add(&mut self, root: TaskId) {
        *self.by_tree.entry(root).or_default() += 1;
        self.total += 1;
    }

    pub(super) fn remove(&mut self, root: TaskId) {
        if let Some(count) = self.by_tree.get_mut(&root) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.by_tree.remove(&root);
            }
        }
    }

    fn has(&self, root: TaskId) -> bool {
        self.by_tree.contains_key(&root)
    }
}

/// Tasks that have not begun, and those that have and whose first request is not at the gate yet.
#[derive(Debug, Default)]
pub(super) struct StartQueue {
    waiting: FairQueue,
    /// Those that have begun and are not at the gate yet.
    starting: TreeCounts,
    /// Trees of which nothing is at the gate, and which may begin a task for that.
    idle: Vec<TaskId>,
}

impl StartQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A task arrives. `gate` counts the requests that wait at the gate.
    pub(super) fn push(&mut self, place: QueuePlace, gate: &TreeCounts) {
        self.waiting.push(place);
        self.tree_changed(place.root, gate);
    }

    /// Fewer requests of a tree are at the gate.
    pub(super) fn tree_changed(&mut self, root: TaskId, gate: &TreeCounts) {
        if self.is_idle(root, gate) && self.waiting.len_of(root) > 0 {
            self.idle.push(root);
        }
    }

    fn is_idle(&self, root: TaskId, gate: &TreeCounts) -> bool {
        !gate.has(root) && !self.starting.has(root)
    }

    /// Takes the next task that may begin. `room` is how many requests the gate should have at most, beside those that run.
    pub(super) fn pop(&mut self, gate: &TreeCounts, room: usize) -> Option<QueuePlace> {
        let mut next = None;
        while next.is_none()
            && let Some(root) = self.idle.pop()
        {
            next = self.is_idle(root, gate).then(|| self.waiting.pop_from(root)).flatten();
        }
        let is_room = gate.total + self.starting.total < room;
        let place = next.or_else(|| is_room.then(|| self.waiting.pop()).flatten())?;
        self.starting.add(place.root);
        Some(place)
    }

    /// The first request of a task is at the gate, or the task is no longer interested.
    pub(super) fn remove(&mut self, place: QueuePlace, gate: &TreeCounts) {
        if !self.waiting.remove(place) {
            self.starting.remove(place.root);
            self.tree_changed(place.root, gate);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(root: u32, arrival: u64) -> QueuePlace {
        QueuePlace { root: format!("t-7f3k{root}").parse().unwrap(), depth: 1, arrival }
    }

    /// The arrivals of the tasks that may begin now.
    fn begin(starts: &mut StartQueue, gate: &TreeCounts, room: usize) -> Vec<u64> {
        std::iter::from_fn(|| starts.pop(gate, room)).map(|place| place.arrival).collect()
    }

    #[test]
    fn as_many_begin_as_there_is_room_for_and_the_others_when_these_are_through() {
        let (mut starts, gate) = (StartQueue::default(), TreeCounts::default());
        (0..5).for_each(|arrival| starts.push(place(1, arrival), &gate));
        assert_eq!(begin(&mut starts, &gate, 2), [0, 1]);
        starts.remove(place(1, 3), &gate);
        assert_eq!(begin(&mut starts, &gate, 2), [0; 0], "one that waited has gone away");
        starts.remove(place(1, 0), &gate);
        assert_eq!(begin(&mut starts, &gate, 2), [2]);
        starts.remove(place(1, 1), &gate);
        starts.remove(place(1, 2), &gate);
        assert_eq!(begin(&mut starts, &gate, 0), [4], "nothing else of its tree is on the way");
        assert!(starts.is_empty());
    }

    #[test]
    fn a_tree_with_nothing_at_the_gate_does_not_wait_for_a_tree_with_much() {
        let (mut starts, mut gate) = (StartQueue::default(), TreeCounts::default());
        (0..9).for_each(|_| gate.add(place(1, 0).root));
        (10..13).for_each(|arrival| starts.push(place(1, arrival), &gate));
        (20..23).for_each(|arrival| starts.push(place(2, arrival), &gate));
        assert_eq!(begin(&mut starts, &gate, 4), [20]);
        gate.add(place(2, 0).root);
        starts.remove(place(2, 20), &gate);
        assert_eq!(begin(&mut starts, &gate, 4), [0; 0], "its request is at the gate");
        gate.remove(place(2, 0).root);
        starts.tree_changed(place(2, 0).root, &gate);
        assert_eq!(begin(&mut starts, &gate, 4), [21]);
    }

    proptest! {
        /// Whatever happens, all begin in the end, and never more than there is room for but one of each tree.
        #[test]
        fn all_begin_and_few_at_once(roots in prop::collection::vec(0..4u32, 1..60), room in 0..9usize, leave in 0..60usize) {
            let (mut starts, mut gate) = (StartQueue::default(), TreeCounts::default());
            let mut arrivals: Vec<QueuePlace> = roots.iter().zip(0..).map(|(root, n)| place(*root, n)).collect();
            arrivals.iter().for_each(|place| starts.push(*place, &gate));
            if leave < arrivals.len() {
                starts.remove(arrivals.remove(leave), &gate);
            }
            let (mut begun, mut at_gate) = (0, Vec::new());
            for _ in 0..1000 {
                let starting: Vec<QueuePlace> = std::iter::from_fn(|| starts.pop(&gate, room)).collect();
                begun += starting.len();
                prop_assert!(starting.len() + at_gate.len() <= room + 4);
                for task in starting {
                    at_gate.push(task.root);
                    gate.add(task.root);
                    starts.remove(task, &gate);
                }
                if let Some(root) = at_gate.pop() {
                    gate.remove(root);
                    starts.tree_changed(root, &gate);
                }
            }
            prop_assert_eq!(begun, arrivals.len());
            prop_assert!(starts.is_empty() && starts.starting.total == 0 && starts.starting.by_tree.is_empty());
        }
    }
}
