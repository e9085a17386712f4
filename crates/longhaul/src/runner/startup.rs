//! Between the claim and the first step: opening tools and creating a worktree can take long, and a stop does
//! not wait for it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Halt, RECHECK_INTERVAL, RunContext, RunLease, deadline_passed, journal_may_have_changed};
use crate::entry::{Failure, FailureKind};
use crate::store::{StoreError, Subscription};
use crate::task::TaskState;

/// A claimed task that does not run yet.
pub(super) struct TaskStartup<'a> {
    context: &'a RunContext,
    subscription: Arc<Subscription>,
    state: &'a TaskState,
    deadline: Option<Instant>,
    lease: &'a RunLease,
    recheck_at: Instant,
    /// Whether anything was written to it since its journal was read.
    notified: bool,
    stopped: bool,
}

impl<'a> TaskStartup<'a> {
    pub(super) fn new(
        context: &'a RunContext,
        subscription: &Arc<Subscription>,
        state: &'a TaskState,
        deadline: Option<Instant>,
        lease: &'a RunLease,
    ) -> Self {
        let (look_at, stopped) = (Instant::now() + RECHECK_INTERVAL, state.stop.is_some());
        TaskStartup {
            context,
            subscription: subscription.clone(),
            state,
            deadline,
            lease,
            recheck_at: look_at,
            notified: false,
            stopped,
        }
    }

    /// Waits for something that the first step needs. Returns `None` if the task is stopping; the work is
    /// then dropped, which ends what it has started.
    ///
    /// # Errors
    /// Fails if the worker drains, the time limit is reached, or another worker owns the task.
    pub(super) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<Option<T>, Halt> {
        let mut work = Box::pin(work);
        while !self.stopped {
            tokio::select! {
                biased;
                done = &mut work => return Ok(Some(done)),
                () = journal_may_have_changed(&self.subscription, self.recheck_at, self.lease) => self.check_journal().await?,
                () = self.context.drain.cancelled() => return Err(Halt::Drain),
                () = deadline_passed(self.deadline) => {
                    let why = "the task's time was up before it could start";
                    return Err(Halt::Fail(Failure::new(FailureKind::Timeout, why)));
                }
            }
        }
        Ok(None)
    }

    async fn check_journal(&mut self) -> Result<(), Halt> {
        (self.notified, self.recheck_at) = (true, Instant::now() + RECHECK_INTERVAL);
        let (id, term) = (self.state.id, self.lease.current_term());
        let now = self.context.store.task_state(id).await?.ok_or(StoreError::NoTask(id))?;
        if now.attempt != self.state.attempt || now.status != self.state.status {
            return Err(Halt::Lost);
        }
        self.lease.confirm_term(term);
        self.stopped = now.stop.is_some();
        Ok(())
    }

    /// When to read the journal next: at once, if a hint was consumed here.
    pub(super) fn recheck_at(&self) -> Instant {
        if self.notified { Instant::now() } else { self.recheck_at }
    }
}
