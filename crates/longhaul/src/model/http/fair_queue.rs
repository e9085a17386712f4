//! The order in which waiting requests go: pure, without clocks and IO.
//!
//! Trees of tasks take turns, so that a tree with a thousand waiting requests does not hold up a tree with
//! one. Within a tree, a request of a task nearer to the root goes first, because the tasks below wait for
//! what it decides; requests of the same depth go in the order of their arrival.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::id::TaskId;

/// How many requests in a row may overtake the oldest one of their tree. Then the oldest one goes, so that
/// requests of deep tasks are not put off forever.
pub(super) const MAX_OVERTAKES: u32 = 7;

/// The place of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct QueuePlace {
    /// The root of the tree of the task that sends it.
    pub(super) root: TaskId,
    /// The task's distance from the root.
    pub(super) depth: u32,
    /// When it arrived: smaller is earlier. No two requests share it.
    pub(super) arrival: u64,
}

/// Requests that wait, tree by tree.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    trees: HashMap<TaskId, TreeQueue>,
    /// The trees that have waiting requests, in the order of their turns.
    turns: BTreeMap<u64, TaskId>,
    next_turn: u64,
    len: usize,
}

/// The waiting requests of one tree, in both orders. It is never empty.
#[derive(Debug, Default)]
struct TreeQueue {
    turn: u64,
    by_depth: BTreeSet<(u32, u64)>,
    by_arrival: BTreeSet<(u64, u32)>,
    /// How many requests in a row have overtaken the oldest one.
    overtakes: u32,
}

impl FairQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many requests of a tree wait.
    pub(super) fn len_of(&self, root: TaskId) -> usize {
        self.trees.get(&root).map_or(0, |tree| tree.by_depth.len())
    }

    /// Adds a request. A tree that had none waits for its turn behind the others.
    pub(super) fn push(&mut self, place: QueuePlace) {
        let tree = self.trees.entry(place.root).or_insert_with(|| {
            let turn = self.next_turn;
            self.next_turn += 1;
            self.turns.insert(turn, place.root);
            TreeQueue { turn, ..TreeQueue::default() }
        });
        if tree.by_depth.insert((place.depth, place.arrival)) {
            tree.by_arrival.insert((place.arrival, place.depth));
            self.len += 1;
        }
    }

    /// Removes a request that no longer waits. Returns whether it was there.
    pub(super) fn remove(&mut self, place: QueuePlace) -> bool {
        let Some(tree) = self.trees.get_mut(&place.root) else { return false };
        if !tree.by_depth.remove(&(place.depth, place.arrival)) {
            return false;
        }
        tree.by_arrival.remove(&(place.arrival, place.depth));
        self.len -= 1;
        if tree.by_depth.is_empty() {
            self.turns.remove(&tree.turn);
            self.trees.remove(&place.root);
        }
        true
    }

    /// Takes the request whose turn it is.
    pub(super) fn pop(&mut self) -> Option<QueuePlace> {
        let root = *self.turns.first_key_value()?.1;
        self.pop_from(root)
    }

    /// Takes the next request of a tree, as if it were its turn.
    pub(super) fn pop_from(&mut self, root: TaskId) -> Option<QueuePlace> {
        let tree = self.trees.get_mut(&root)?;
        self.turns.remove(&tree.turn);
        let (depth, arrival) = tree.pop()?;
        self.len -= 1;
        if tree.by_depth.is_empty() {
            self.trees.remove(&root);
        } else {
            tree.turn = self.next_turn;
            self.turns.insert(self.next_turn, root);
            self.next_turn += 1;
        }
        Some(QueuePlace { root, depth, arrival })
    }
}

impl TreeQueue {
    fn pop(&mut self) -> Option<(u32, u64)> {
        let (oldest, oldest_depth) = *self.by_arrival.first()?;
        let (depth, arrival) = match self.overtakes >= MAX_OVERTAKES {
            true => (oldest_depth, oldest),
            false => *self.by_depth.first()?,
        };
        self.overtakes = if arrival == oldest { 0 } else { self.overtakes + 1 };
        self.by_depth.remove(&(depth, arrival));
        self.by_arrival.remove(&(arrival, depth));
        Some((depth, arrival))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn tree(n: u32) -> TaskId {
        format!("t-7f3k{n}").parse().unwrap()
    }

    fn queue(waiting: &[(u32, u32)]) -> FairQueue {
        let mut queue = FairQueue::default();
        for ((root, depth), arrival) in waiting.iter().zip(0..) {
            queue.push(QueuePlace { root: tree(*root), depth: *depth, arrival });
        }
        queue
    }

    /// The arrivals in the order in which they go.
    fn order(mut queue: FairQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).map(|place| place.arrival).collect()
    }

    #[test]
    fn trees_take_turns_and_the_orchestrator_goes_before_its_children() {
        for (waiting, expected) in [
            (&[][..], &[][..]),
            // One tree: in the order of arrival.
            (&[(1, 1), (1, 1), (1, 1)], &[0, 1, 2]),
            // The root's own request, though it came last; then depth by depth.
            (&[(1, 2), (1, 1), (1, 2), (1, 0)], &[3, 1, 0, 2]),
            // The single request of a second tree does not wait for all of the first.
            (&[(1, 1), (1, 1), (1, 1), (2, 1)], &[0, 3, 1, 2]),
            // Depth counts within a tree only.
            (&[(1, 3), (2, 0), (1, 3), (2, 0)], &[0, 1, 2, 3]),
            // Three trees in turn, until one is empty.
            (&[(1, 0), (2, 0), (3, 0), (1, 0), (2, 0), (1, 0)], &[0, 1, 2, 3, 4, 5]),
        ] {
            assert_eq!(order(queue(waiting)), expected, "{waiting:?}");
        }
    }

    #[test]
    fn the_oldest_of_a_tree_is_overtaken_a_few_times_only() {
        let mut queue = queue(&[(1, 5)]);
        for arrival in 1..100 {
            queue.push(QueuePlace { root: tree(1), depth: 0, arrival });
        }
        let order = order(queue);
        assert_eq!(order.iter().position(|arrival| *arrival == 0), Some(MAX_OVERTAKES as usize));
    }

    #[test]
    fn who_leaves_is_not_served_and_its_tree_loses_its_turn() {
        let mut queue = queue(&[(1, 0), (2, 0), (2, 1)]);
        let first = QueuePlace { root: tree(1), depth: 0, arrival: 0 };
        assert!(queue.remove(first) && !queue.remove(first));
        assert_eq!(queue.len, 2);
        queue.push(QueuePlace { arrival: 7, ..first });
        assert_eq!(order(queue), [1, 7, 2]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push {
            root: u32,
            depth: u32,
        },
        Pop,
        /// Removes the n-th of those that wait.
        Remove(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let push = || (0..6u32, 0..4u32).prop_map(|(root, depth)| Step::Push { root, depth });
        let one = prop_oneof![4 => push(), 3 => Just(Step::Pop), 1 => (0..64usize).prop_map(Step::Remove)];
        prop::collection::vec(one, 1..400)
    }

    proptest! {
        /// Everybody who does not leave is served once; no tree is passed over more than once by another; and
        /// no request waits longer than its place in its tree explains.
        #[test]
        fn all_are_served_and_nobody_starves(steps in steps()) {
            let mut queue = FairQueue::default();
            // Each that waits: how many of its tree were older when it came, and how often its tree was served since.
            let mut waiting: Vec<(QueuePlace, u32, u32)> = Vec::new();
            let mut passed: HashMap<(TaskId, TaskId), u32> = HashMap::new();
            let mut arrival = 0;
            let drained = (0..1000).map(|_| Step::Pop);
            for step in steps.into_iter().chain(drained) {
                match step {
                    Step::Push { root, depth } => {
                        let place = QueuePlace { root: tree(root), depth, arrival };
                        arrival += 1;
                        let older = waiting.iter().filter(|(other, ..)| other.root == place.root).count();
                        if older == 0 {
                            passed.retain(|(waits, _), _| *waits != place.root);
                        }
                        waiting.push((place, older as u32, 0));
                        queue.push(place);
                    }
                    Step::Remove(at) => {
                        if !waiting.is_empty() {
                            let (place, ..) = waiting.remove(at % waiting.len());
                            prop_assert!(queue.remove(place));
                        }
                    }
                    Step::Pop => {
                        let Some(served) = queue.pop() else {
                            prop_assert!(waiting.is_empty());
                            continue;
                        };
                        let at = waiting.iter().position(|(place, ..)| *place == served);
                        prop_assert!(at.is_some(), "{served:?} does not wait");
                        waiting.remove(at.unwrap_or_default());
                        for (place, older, turns) in &mut waiting {
                            if place.root == served.root {
                                *turns += 1;
                                prop_assert!(*turns <= (*older + 1) * (MAX_OVERTAKES + 1), "{place:?} starves");
                            }
                        }
                        passed.retain(|(waits, _), _| *waits != served.root);
                        let others: BTreeSet<TaskId> =
                            waiting.iter().map(|(place, ..)| place.root).filter(|root| *root != served.root).collect();
                        for other in others {
                            let times = passed.entry((other, served.root)).or_default();
                            *times += 1;
                            prop_assert!(*times <= 1, "{other} was passed over twice by {}", served.root);
                        }
                    }
                }
                prop_assert_eq!(queue.len, waiting.len());
            }
            prop_assert!(queue.is_empty() && queue.trees.is_empty() && queue.turns.is_empty());
        }
    }
}
