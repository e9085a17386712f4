//! Lets an agent that launches thousands of tasks in one reply finish that before the tasks start.
//!
//! Otherwise the first ones would compete with the launches for the processor and the disk, and the agent would
//! continue only when most of its tasks have run.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// With more launches in progress than this, tasks wait to be claimed.
const FEW: usize = 32;
/// How long they wait, at most: others may launch tasks all the time.
const LONGEST: Duration = Duration::from_secs(2);

/// The launches of this process that are not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct LaunchBurst {
    state: Mutex<BurstState>,
    over: Notify,
}

#[derive(Debug, Default)]
struct BurstState {
    in_progress: usize,
    /// Since when there have been more than a few.
    since: Option<Instant>,
}

/// A launch that is in progress until this is dropped.
#[derive(Debug)]
pub(crate) struct LaunchInProgress<'a>(&'a LaunchBurst);

impl LaunchBurst {
    pub(crate) fn begin_launch(&self) -> LaunchInProgress<'_> {
        self.with_state(|state| {
            state.in_progress += 1;
            if state.in_progress > FEW {
                state.since.get_or_insert_with(Instant::now);
            }
        });
        LaunchInProgress(self)
    }

    /// Waits until only a few launches are in progress, or two seconds have passed since there were more.
    pub(crate) async fn wait_until_over(&self) {
        loop {
            let notified = self.over.notified();
            let Some(since) = self.with_state(|state| state.since) else { return };
            if timeout_at(since + LONGEST, notified).await.is_err() {
                return;
            }
        }
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut BurstState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LaunchInProgress<'_> {
    fn drop(&mut self) {
        let is_over = self.0.with_state(|state| {
            state.in_progress -= 1;
            state.in_progress <= FEW && state.since.take().is_some()
        });
        if is_over {
            self.0.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_wait_while_many_launches_are_in_progress_but_not_forever() {
        let burst = LaunchBurst::default();
        let mut launches: Vec<_> = (0..FEW).map(|_| burst.begin_launch()).collect();
        assert!(burst.wait_until_over().now_or_never().is_some(), "a few hold up nothing");

        launches.push(burst.begin_launch());
        let mut waits = Box::pin(burst.wait_until_over());
        assert!(waits.as_mut().now_or_never().is_none());
        launches.pop();
        waits.await;

        launches.push(burst.begin_launch());
        let began = Instant::now();
        burst.wait_until_over().await;
        assert_eq!(began.elapsed(), LONGEST);
        launches.push(burst.begin_launch());
        assert!(burst.wait_until_over().now_or_never().is_some(), "they are launched all the time");
    }
}
