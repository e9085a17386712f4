//! Ends an attempt.

use std::time::Duration;

use tokio::time::Instant;

use super::{AttemptEnd, Halt, RECHECK_INTERVAL, TaskRun, Worktree, WorktreeError, hint_or_recheck};
use crate::conversation::NextStep;
use crate::entry::{Entry, Failure, OnFinish, Outcome, ReleaseReason, StopCause, StopRequest};
use crate::id::Seq;
use crate::journal::{self, fail_task, finish_task, release_task, stop_descendants};
use crate::store::{Fence, Store, StoreError};
use crate::task::TaskState;
use crate::tool::ToolEffects;

/// How long git may take at the end of a task that is stopping.
pub(super) const GIT_STOP_GRACE: Duration = Duration::from_secs(1);
/// How long end hooks may take if the task is stopping.
pub(super) const HOOK_STOP_GRACE: Duration = Duration::from_secs(3);

impl TaskRun {
    /// Ends the attempt after a halt.
    pub(super) async fn end_attempt(&mut self, halt: Halt) -> AttemptEnd {
        let store = self.context.store.clone();
        // A run that lost its task must not touch the tasks below.
        let ours = match &halt {
            Halt::Stop | Halt::Fail(_) => self.ensure_owner().await,
            _ => Ok(()),
        };
        if let Err(lost) = ours {
            return settle_halt(&*store, &self.state, lost).await;
        }
        let owner = Some((self.state.id, Fence::Attempt(self.attempt)));
        let settled = match halt {
            Halt::Stop => {
                let stop =
                    self.state.stop.clone().unwrap_or(StopRequest { cause: StopCause::Person, note: None });
                let stands = match stop.cause {
                    StopCause::Closed => self.conversation.is_idle(),
                    _ => self.has_final_answer().await,
                };
                if !stop.cause.spares_children()
                    && let Err(error) =
                        stop_descendants(&*store, &self.state, StopCause::ParentStopped, owner).await
                {
                    return settle_halt(&*store, &self.state, error.into()).await;
                }
                let outcome = match stands {
                    true => self.conversation.answer(self.agent.output_schema.as_deref()),
                    false => Outcome::Cancelled { stop, partial: self.conversation.partial_output() },
                };
                self.finish(outcome, None).await
            }
            Halt::Fail(failure) => self.fail(failure).await,
            Halt::Drain => {
                let halt = self.flush().await.err().unwrap_or(Halt::Drain);
                return settle_halt(&*store, &self.state, halt).await;
            }
            halt => return settle_halt(&*store, &self.state, halt).await,
        };
        match settled {
            Ok(ended) => ended,
            Err(halt) => settle_halt(&*store, &self.state, halt).await,
        }
    }

    /// Whether the answer existed before the stop was seen: then it stands.
    async fn has_final_answer(&self) -> bool {
        let is_over = !self.state.interactive
            && matches!(
                self.conversation.next_step(&self.policy, |_| ToolEffects::default(), false),
                NextStep::Idle
            );
        is_over && self.has_no_open_children().await
    }

    /// Adds to the outcome where the work is; also returns whether git could tell. An answer with a required
    /// schema stays unchanged.
    async fn with_worktree_note(&self, worktree: &Worktree, outcome: Outcome) -> (Outcome, bool) {
        if self.agent.output_schema.is_some() && matches!(outcome, Outcome::Completed { .. }) {
            return (outcome, true);
        }
        // The end is not recorded yet: neither a stop nor a drain waits for git.
        let drained = async {
            self.context.drain.cancelled().await;
            tokio::time::sleep(GIT_STOP_GRACE).await;
        };
        let work = tokio::select! {
            biased;
            work = self.with_stop_grace(GIT_STOP_GRACE, worktree.changes()) => work,
            () = drained => None,
        };
        let answers = work.is_some();
        let work = work.unwrap_or_else(|| Err(WorktreeError("it did not answer in time".to_owned())));
        (outcome.with_note(&worktree.describe(&work, !self.has_no_open_children().await)), answers)
    }

    /// Waits for work at the end of a task, but only this long once the task is stopping. Then the work is
    /// dropped, which ends what it has started.
    pub(super) async fn with_stop_grace<T>(
        &self,
        hurry: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let halted = async {
            self.wait_for_stop().await;
            tokio::time::sleep(hurry).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = halted => None,
        }
    }

    /// Waits until the task is stopping.
    async fn wait_for_stop(&self) {
        let mut stopped = self.state.stop.is_some();
        while !stopped {
            hint_or_recheck(&self.subscription, Instant::now() + RECHECK_INTERVAL).await;
            let now = self.context.store.task_state(self.state.id).await;
            stopped = now.is_ok_and(|now| now.is_some_and(|now| now.stop.is_some()));
        }
    }

    /// Whether no child is still working, possibly in the same directory.
    pub(super) async fn has_no_open_children(&self) -> bool {
        self.has_open_children().await.is_ok_and(|open| !open)
    }

    async fn fail(&mut self, failure: Failure) -> Result<AttemptEnd, Halt> {
        if self.policy.on_finish != OnFinish::Detach {
            // No one is left to read their letters.
            let owner = Some((self.state.id, Fence::Attempt(self.attempt)));
            stop_descendants(&*self.context.store, &self.state, StopCause::ParentEnded, owner).await?;
        }
        self.finish(Outcome::Failed { failure, partial: self.conversation.partial_output() }, None).await
    }

    /// Records the outcome; with `after`, only if no one has written to the task since.
    pub(super) async fn finish(&mut self, outcome: Outcome, after: Option<Seq>) -> Result<AttemptEnd, Halt> {
        self.ensure_lease().await?;
        let (outcome, git_answers) = match &self.worktree {
            Some(worktree) => Box::pin(self.with_worktree_note(worktree, outcome)).await,
            None => (outcome, true),
        };
        self.git_answers = git_answers;
        self.prepare_end_hooks(&outcome);
        let known = self.conversation.known_letters();
        let read = (!known.is_empty()).then_some(Entry::Read { letters: Vec::new(), known, all_ended: None });
        let fence = Fence::Attempt(self.attempt);
        let before = self.deferred.entries().iter().cloned().chain(read).collect();
        finish_task(&*self.context.store, &self.state, fence, before, outcome, after, None).await?;
        self.ledger.report_with(&self.state, self.deferred.entries());
        Ok(AttemptEnd::Finished)
    }
}

/// Settles a task whose run cannot settle itself.
pub(crate) async fn settle_halt(store: &dyn Store, state: &TaskState, halt: Halt) -> AttemptEnd {
    let fence = Fence::Attempt(state.attempt);
    let settled = match halt {
        Halt::Fail(failure) => fail_task(store, state, fence, failure).await.map(|()| AttemptEnd::Finished),
        Halt::Drain | Halt::Stop | Halt::Stale => {
            if matches!(halt, Halt::Stale) {
                let (task, attempt) = (state.id, state.attempt);
                tracing::warn!(%task, %attempt, "the store has lost what this attempt wrote last; it is started again");
            }
            give_back(store, state).await.map(|()| AttemptEnd::Released)
        }
        Halt::Newer(why) => {
            tracing::warn!(task = %state.id, %why, "the task is left to a newer Longhaul");
            give_back(store, state).await.map(|()| AttemptEnd::LeftToNewer)
        }
        Halt::Lost => return AttemptEnd::Lost,
        Halt::Store(error) => return AttemptEnd::StoreFailed(error),
    };
    match settled.map_err(Halt::from) {
        Ok(ended) => ended,
        Err(Halt::Store(error)) => AttemptEnd::StoreFailed(error),
        Err(_) => AttemptEnd::Lost,
    }
}

/// Releases a task. If it has a stop request, this ends it. An earlier release, or end, whose answer was lost
/// counts.
async fn give_back(store: &dyn Store, state: &TaskState) -> Result<(), StoreError> {
    let now = journal::state(store, state.id).await?;
    let over = now.attempt == state.attempt && now.worker.is_none();
    match over {
        true => Ok(()),
        false => release_task(store, now, Fence::Attempt(state.attempt), ReleaseReason::Drained).await,
    }
}
