//! Lets an agent that launches thousands of tasks in one reply finish that before the tasks start.
//!
//! Otherwise the first ones would compete with the launches for the processor and the disk, and the agent would
//! continue only when most of its tasks have run.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

/// With more launches in progress than this, tasks wait to be claimed.
const FEW: usize = 32;
/// How long they wait, at most: others may launch tasks all the time.
const LONGEST: Duration = Duration::from_secs(2);

/// The launches of this process that are not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct LaunchBurst {
    in_progress: AtomicUsize,
    over: Notify,
}

/// A launch that is in progress until this is dropped.
#[derive(Debug)]
pub(crate) struct LaunchInProgress<'a>(&'a LaunchBurst);

impl LaunchBurst {
    pub(crate) fn begin_launch(&self) -> LaunchInProgress<'_> {
        self.in_progress.fetch_add(1, SeqCst);
        LaunchInProgress(self)
    }

    /// Waits until only a few launches are in progress, for two seconds at most.
    pub(crate) async fn wait_until_over(&self) {
        let over = async {
            loop {
                let notified = self.over.notified();
                if self.in_progress.load(SeqCst) <= FEW {
                    return;
                }
                notified.await;
            }
        };
        if self.in_progress.load(SeqCst) > FEW {
            let _ = tokio::time::timeout(LONGEST, over).await;
        }
    }
}

impl Drop for LaunchInProgress<'_> {
    fn drop(&mut self) {
        if self.0.in_progress.fetch_sub(1, SeqCst) == FEW + 1 {
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
        let began = tokio::time::Instant::now();
        burst.wait_until_over().await;
        assert_eq!(began.elapsed(), LONGEST);
    }
}
