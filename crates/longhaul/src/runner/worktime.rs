//! The working time of a task, which `timeout` and `max_time` limit.
//!
//! The stopwatch of a run uses the runtime's clock, which stands still while the machine sleeps, and is
//! paused while the task waits for a person or for a seat. The journal carries the time to the next run: the
//! task's state counts from one entry of the owner to the next, and where that differs from the stopwatch,
//! the run writes [`Entry::Worked`].

use std::time::Duration;

use tokio::time::Instant;

use super::{Halt, TaskRun};
use crate::entry::{Entry, EntryKind};
use crate::id::TaskId;
use crate::store::{EntryKinds, Subscription, TaskFilter};
use crate::task::{TaskState, all_wait_for_people};

/// How many tasks are looked at first, to find one at work.
const FEW: usize = 16;
/// How far the journal may differ from the stopwatch when something is written.
const TOLERANCE: Duration = Duration::from_secs(1);

/// How long the working time of a task with this limit may go unwritten, so that a crash does not lose it.
/// The journal is not read more often than every ten seconds anyway.
pub(super) fn max_unwritten(limit: Duration) -> Duration {
    (limit / 10).clamp(TOLERANCE, Duration::from_secs(30))
}

/// Measures the working time of a task.
#[derive(Debug)]
pub(super) struct Stopwatch {
    /// The time counted before.
    before: Duration,
    /// When it was started, if it is running.
    since: Option<Instant>,
    limit: Option<Duration>,
}

impl Stopwatch {
    /// Continues from the time in the journal; it has run since then.
    pub(super) fn new(before: Duration, limit: Option<Duration>, since: Instant) -> Stopwatch {
        Stopwatch { before, since: Some(since), limit }
    }

    pub(super) fn total(&self) -> Duration {
        self.before + self.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// When the time is up, if it counts now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since?.checked_add(self.limit?.saturating_sub(self.before))
    }

    pub(super) fn start(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn pause(&mut self) {
        self.before = self.total();
        self.since = None;
    }

    fn is_paused(&self) -> bool {
        self.since.is_none()
    }
}

/// Wakes when tasks of the tree may have started or stopped waiting for people.
pub(super) struct PeopleSubscription {
    subscription: Subscription,
    paused: bool,
    /// One of the awaited tasks that was working: while it is, no other need be checked.
    at_work: Option<TaskId>,
}

/// Completes when it wakes; never, if there is none.
pub(super) async fn people_wake(people: Option<&PeopleSubscription>) {
    match people {
        Some(people) => drop(people.subscription.next_wake().await),
        None => std::future::pending().await,
    }
}

impl TaskRun {
    /// Whether a time limit applies, so that the journal has to hold the working time.
    pub(super) fn has_time_limit(&self) -> bool {
        self.unwritten.is_some()
    }

    /// The entry that corrects the working time in the journal, if it is needed.
    pub(super) fn corrected_time(&self) -> Option<Entry> {
        let written = self.state.worked_at(self.context.store.now(), Duration::MAX);
        let off = self.has_time_limit() && written.abs_diff(self.stopwatch.total()) > TOLERANCE;
        off.then(|| self.time_until_now())
    }

    fn time_until_now(&self) -> Entry {
        let ms = u64::try_from(self.stopwatch.total().as_millis()).unwrap_or(u64::MAX);
        Entry::Worked { ms, paused: self.stopwatch.is_paused() }
    }

    /// Writes the working time if it was last written long ago.
    pub(super) async fn record_time(&mut self) -> Result<(), Halt> {
        let behind = self.stopwatch.total().saturating_sub(self.state.worked);
        match self.unwritten {
            Some(most) if !self.stopwatch.is_paused() && behind >= most => {
                let time = self.time_until_now();
                self.append_entries(vec![time]).await
            }
            _ => Ok(()),
        }
    }

    /// The task only waits for these others: the time counts unless all of them wait for people.
    pub(super) async fn count_time_unless_waiting_for_people(
        &mut self,
        tasks: &[TaskId],
    ) -> Result<(), Halt> {
        if !self.has_time_limit() {
            return Ok(());
        }
        loop {
            // Subscribe before reading, so that nothing is missed in between.
            let paused = self.stopwatch.is_paused();
            if self.people_subscription.as_ref().is_none_or(|people| people.paused != paused) {
                let news = match paused {
                    true => EntryKinds::from_kinds([
                        EntryKind::Submitted,
                        EntryKind::Claimed,
                        EntryKind::Answered,
                        EntryKind::Letter,
                        EntryKind::Replied,
                        EntryKind::Called,
                        EntryKind::Returned,
                        EntryKind::Released,
                        EntryKind::Finished,
                    ]),
                    false => EntryKinds::from_kinds([EntryKind::Waiting, EntryKind::Finished]),
                };
                let subscription = self.context.subscriptions.for_tree(self.state.root, news);
                self.people_subscription = Some(PeopleSubscription { subscription, paused, at_work: None });
            }
            if let Some(id) = self
                .people_subscription
                .as_ref()
                .and_then(|people| people.at_work)
                .filter(|id| tasks.contains(id))
                && self.context.store.task_state(id).await?.is_some_and(|state| state.is_at_work())
            {
                return Ok(());
            }
            // One task at work is enough: first look at a few, and only then at all.
            let live = TaskFilter::tree(self.state.root).live();
            let few = self.context.store.list(TaskFilter { limit: Some(FEW), ..live.clone() }).await?;
            let is_at_work = |state: &TaskState| tasks.contains(&state.id) && state.is_at_work();
            let tree = match few.len() < FEW || few.iter().any(is_at_work) {
                true => few,
                false => self.context.store.list(live).await?,
            };
            if let Some(people) = &mut self.people_subscription {
                // The last one was launched last.
                let mut candidates = tree.iter().filter(|state| tasks.contains(&state.id));
                people.at_work = candidates.rfind(|state| state.is_at_work()).map(|state| state.id);
            }
            match (all_wait_for_people(tasks, &tree), paused) {
                (true, false) => {
                    self.stopwatch.pause();
                    let time = self.time_until_now();
                    self.append_entries(vec![time]).await?;
                }
                (false, true) => self.stopwatch.start(),
                _ => return Ok(()),
            }
        }
    }

    /// Starts or pauses the stopwatch.
    pub(super) fn count_time(&mut self, counts: bool) {
        self.people_subscription = None;
        if counts { self.stopwatch.start() } else { self.stopwatch.pause() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stopwatch_counts_while_it_goes_and_has_a_deadline_only_then() {
        let second = Duration::from_secs(1);
        let mut watch = Stopwatch::new(2 * second, Some(10 * second), Instant::now());
        assert_eq!(watch.deadline(), Some(Instant::now() + 8 * second));
        tokio::time::advance(3 * second).await;
        watch.pause();
        assert_eq!((watch.total(), watch.deadline()), (5 * second, None));
        tokio::time::advance(600 * second).await;
        watch.start();
        assert_eq!((watch.total(), watch.deadline()), (5 * second, Some(Instant::now() + 5 * second)));
        watch.start();
        tokio::time::advance(9 * second).await;
        assert_eq!(watch.deadline(), Some(Instant::now() - 4 * second), "it is over");
    }
}
