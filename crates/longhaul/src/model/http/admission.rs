//! Which request goes next: pure, without clocks and IO.
//!
//! [`Admission`] knows how many requests run, which ones wait, and how many may run. The
//! [gate](super::rate_limit_gate) asks it after every change, and wakes whoever was admitted.

use std::collections::BTreeSet;

use super::concurrency_limit::{ConcurrencyLimit, Descriptors, Growth};
use super::fair_queue::{FairQueue, QueuePlace};
use super::start_queue::{StartQueue, TreeCounts};
use crate::id::TaskId;

/// As many requests as this part of the limit wait at the gate, so that one goes as soon as another has ended.
const READY: usize = 4;

/// Admits requests in fair turns, up to a limit.
#[derive(Debug)]
pub(super) struct Admission {
    limit: ConcurrencyLimit,
    queue: FairQueue,
    starts: StartQueue,
    /// The requests that have arrived and were not admitted: those in the queue, and those that wait for something else.
    at_gate: TreeCounts,
    arrivals: u64,
    admitted: u64,
    /// Slots below `slots` that are free.
    free_slots: BTreeSet<usize>,
    slots: usize,
}

/// An admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    /// The smallest number that no other running request has.
    pub(super) slot: usize,
    /// How many were admitted before it.
    before: u64,
    /// How many ran when it was admitted, with it.
    running: usize,
}

impl Admission {
    pub(super) fn new(limit: ConcurrencyLimit) -> Admission {
        Admission {
            limit,
            queue: FairQueue::default(),
            starts: StartQueue::default(),
            at_gate: TreeCounts::default(),
            arrivals: 0,
            admitted: 0,
            free_slots: BTreeSet::new(),
            slots: 0,
        }
    }

    pub(super) fn limit(&self) -> &ConcurrencyLimit {
        &self.limit
    }

    /// How many requests run.
    pub(super) fn running(&self) -> usize {
        self.slots - self.free_slots.len()
    }

    /// The place of a request that arrives now. It keeps the place when it leaves the queue and joins it
    /// again.
    pub(super) fn arrive(&mut self, root: TaskId, depth: u32) -> QueuePlace {
        self.arrivals += 1;
        QueuePlace { root, depth, arrival: self.arrivals }
    }

    pub(super) fn join(&mut self, place: QueuePlace) {
        self.queue.push(place);
    }

    pub(super) fn leave(&mut self, place: QueuePlace) {
        self.queue.remove(place);
    }

    /// A request of a tree waits at the gate, in the queue or not.
    pub(super) fn enter(&mut self, root: TaskId) {
        self.at_gate.add(root);
    }

    /// A request of a tree waits no longer: it is sent, or nobody wants it any more.
    pub(super) fn exit(&mut self, root: TaskId) {
        self.at_gate.remove(root);
        self.starts.tree_changed(root, &self.at_gate);
    }

    /// A task arrives that has not begun.
    pub(super) fn arrive_to_start(&mut self, root: TaskId, depth: u32) -> QueuePlace {
        let place = self.arrive(root, depth);
        self.starts.push(place, &self.at_gate);
        place
    }

    /// The task whose turn it is to begin, if one waits and may. Call it until it returns `None`.
    pub(super) fn start(&mut self) -> Option<QueuePlace> {
        let limit = self.limit.current();
        let free = limit.saturating_sub(self.running());
        self.starts.pop(&self.at_gate, free + (limit / READY).max(1))
    }

    /// The first request of a task is at the gate, or the task no longer waits to begin.
    pub(super) fn end_start(&mut self, place: QueuePlace) {
        self.starts.remove(place, &self.at_gate);
    }

    /// Admits the request whose turn it is, if one waits and may go. Call it until it returns `None`.
    pub(super) fn admit(&mut self) -> Option<(QueuePlace, Admitted)> {
        if self.running() >= self.limit.current() {
            return None;
        }
        let place = self.queue.pop()?;
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let admitted = Admitted { slot, before: self.admitted, running: self.running() };
        self.admitted += 1;
        Some((place, admitted))
    }

    /// A request has ended.
    pub(super) fn release(&mut self, request: Admitted) {
        self.free_slots.insert(request.slot);
    }

    /// The reply to a request begins, promptly or not.
    pub(super) fn on_answer(&mut self, prompt: bool) -> Growth {
        self.limit.on_answer(prompt && !(self.queue.is_empty() && self.starts.is_empty()))
    }

    /// The provider has refused a request that still runs.
    pub(super) fn on_refusal(&mut self, request: Admitted) {
        // Others may have ended since it was sent, and others may have been sent since.
        let running = self.running().max(request.running);
        self.limit.on_refusal(running, request.before, self.admitted);
    }

    pub(super) fn raise_ceiling(&mut self, descriptors: Descriptors) {
        self.limit.raise_ceiling(descriptors);
    }

    pub(super) fn fix(&mut self, limit: usize) {
        self.limit.fix(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const PLENTY: Descriptors = Descriptors { limit: 1 << 20, free: 1 << 20 };

    fn tree(n: u32) -> TaskId {
        format!("t-7f3k{n}").parse().unwrap()
    }

    /// A provider that takes `capacity` requests at once and refuses the rest. Every round, what runs is
    /// answered or refused, and who was refused joins again. Returns the running requests of each round.
    fn play(mut admission: Admission, capacity: usize, requests: usize) -> Vec<usize> {
        let mut rounds = Vec::new();
        for n in 0..requests {
            let place = admission.arrive(tree(n as u32 % 3), n as u32 % 2);
            admission.join(place);
        }
        let mut served = 0;
        while served < requests {
            let running: Vec<_> = std::iter::from_fn(|| admission.admit()).collect();
            rounds.push(running.len());
            assert!(rounds.len() < 2000, "{rounds:?}");
            for (n, (place, request)) in running.into_iter().enumerate() {
                if n < capacity {
                    if admission.on_answer(true) == Growth::AtCeiling {
                        admission.raise_ceiling(PLENTY);
                    }
                    served += 1;
                } else {
                    admission.on_refusal(request);
                    admission.join(place);
                }
                admission.release(request);
            }
            assert_eq!(admission.running(), 0);
        }
        rounds
    }

    #[test]
    fn it_settles_near_what_the_provider_takes() {
        for capacity in [1, 2, 7, 40, 300, 1000] {
            let rounds = play(Admission::new(ConcurrencyLimit::adaptive(PLENTY)), capacity, capacity * 100);
            let settled = &rounds[12..rounds.len() - 1];
            let most = settled.iter().max().unwrap();
            assert!(*most <= capacity + capacity / 8 + 2, "{capacity}: {rounds:?}");
            let used: usize = settled.iter().map(|running| (*running).min(capacity)).sum();
            assert!(used * 3 >= settled.len() * capacity * 2, "{capacity}: less than two thirds: {rounds:?}");
        }
    }

    #[test]
    fn slots_are_used_again_from_the_smallest() {
        let mut admission = Admission::new(ConcurrencyLimit::fixed(3));
        for _ in 0..5 {
            let place = admission.arrive(tree(1), 0);
            admission.join(place);
        }
        let running: Vec<_> =
            std::iter::from_fn(|| admission.admit()).map(|(_, admitted)| admitted).collect();
        assert_eq!(running.iter().map(|request| request.slot).collect::<Vec<_>>(), [0, 1, 2]);
        admission.release(running[1]);
        assert_eq!(admission.admit().unwrap().1.slot, 1);
        assert!(admission.admit().is_none());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive {
            root: u32,
            depth: u32,
        },
        /// The n-th that waits goes away.
        Leave(usize),
        /// The n-th that runs is answered and ends.
        Answer(usize),
        /// The n-th that runs is refused and ends.
        Refuse(usize),
        /// The n-th that runs ends, because nobody reads it any more.
        Drop(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let arrive = (0..5u32, 0..4u32).prop_map(|(root, depth)| Step::Arrive { root, depth });
        let one = prop_oneof![
            6 => arrive,
            1 => (0..99usize).prop_map(Step::Leave),
            4 => (0..99usize).prop_map(Step::Answer),
            1 => (0..99usize).prop_map(Step::Refuse),
            1 => (0..99usize).prop_map(Step::Drop),
        ];
        prop::collection::vec(one, 1..300)
    }

    proptest! {
        /// Nobody is admitted above the limit, nobody waits while there is room, slots are not shared, and all
        /// who stay are served in the end.
        #[test]
        fn the_limit_holds_and_everybody_is_served(
            fixed in prop::option::of(1..9usize),
            descriptors in 0..64usize,
            steps in steps(),
        ) {
            let adaptive = || ConcurrencyLimit::adaptive(Descriptors { limit: descriptors, free: descriptors });
            let mut admission = Admission::new(fixed.map_or_else(adaptive, ConcurrencyLimit::fixed));
            let mut waiting: Vec<QueuePlace> = Vec::new();
            let mut running: HashMap<usize, Admitted> = HashMap::new();
            let ending = (0..2000).map(|_| Step::Answer(0));
            for step in steps.into_iter().chain(ending) {
                let pick = |running: &mut HashMap<usize, Admitted>, n: usize| {
                    let mut slots: Vec<usize> = running.keys().copied().collect();
                    slots.sort_unstable();
                    running.remove(slots.get(n % slots.len().max(1))?)
                };
                match step {
                    Step::Arrive { root, depth } => {
                        let place = admission.arrive(tree(root), depth);
                        admission.join(place);
                        waiting.push(place);
                    }
                    Step::Leave(_) if waiting.is_empty() => {}
                    Step::Leave(n) => admission.leave(waiting.remove(n % waiting.len())),
                    Step::Answer(n) => {
                        if let Some(request) = pick(&mut running, n) {
                            if admission.on_answer(true) == Growth::AtCeiling {
                                admission.raise_ceiling(Descriptors { limit: descriptors, free: descriptors / 2 });
                            }
                            admission.release(request);
                        }
                    }
                    Step::Refuse(n) => {
                        if let Some(request) = pick(&mut running, n) {
                            admission.on_refusal(request);
                            admission.release(request);
                        }
                    }
                    Step::Drop(n) => {
                        if let Some(request) = pick(&mut running, n) {
                            admission.release(request);
                        }
                    }
                }
                while let Some((place, request)) = admission.admit() {
                    prop_assert!(admission.running() <= admission.limit().current());
                    let at = waiting.iter().position(|other| *other == place);
                    prop_assert!(at.is_some(), "{place:?} does not wait");
                    waiting.remove(at.unwrap_or_default());
                    prop_assert!(running.insert(request.slot, request).is_none(), "a slot is shared");
                }
                prop_assert_eq!(admission.running(), running.len());
                prop_assert!(waiting.is_empty() || running.len() >= admission.limit().current());
                if let Some(fixed) = fixed {
                    prop_assert_eq!(admission.limit().current(), fixed);
                }
            }
            prop_assert!(waiting.is_empty() && running.is_empty());
        }
    }
}
