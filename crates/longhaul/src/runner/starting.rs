//! Between the claim and the first step: opening tools and making a worktree can take long, and a stop does not wait for it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Halt, LOOK_ANYWAY, Surroundings, Tenure, heard, overdue};
use crate::entry::{Failure, FailureKind};
use crate::store::{Bell, StoreError};
use crate::task::Head;

/// A task that has been claimed and does not run yet.
pub(super) struct Starting<'a> {
    around: &'a Surroundings,
    bell: Arc<Bell>,
    head: &'a Head,
    deadline: Option<Instant>,
    tenure: &'a Tenure,
    look_at: Instant,
    /// Whether somebody has written to it since its journal was read.
    heard: bool,
    stopped: bool,
}

impl<'a> Starting<'a> {
    pub(super) fn new(
        around: &'a Surroundings,
        bell: &Arc<Bell>,
        head: &'a Head,
        deadline: Option<Instant>,
        tenure: &'a Tenure,
    ) -> Self {
        let (look_at, stopped) = (Instant::now() + LOOK_ANYWAY, head.stop.is_some());
        Starting { around, bell: bell.clone(), head, deadline, tenure, look_at, heard: false, stopped }
    }

    /// Waits for something that the first step needs. `None` if the task is to stop; then the work is dropped, which ends
    /// what it has started.
    ///
    /// # Errors
    /// When the worker drains, the time is up, or somebody else has the task.
    pub(super) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<Option<T>, Halt> {
        let mut work = Box::pin(work);
        while !self.stopped {
            tokio::select! {
                biased;
                done = &mut work => return Ok(Some(done)),
                () = heard(&self.bell, self.look_at, self.tenure) => self.look().await?,
                () = self.around.drain.cancelled() => return Err(Halt::Drain),
                () = overdue(self.deadline) => {
                    let why = "the task's time was up before it could start";
                    return Err(Halt::Fail(Failure::new(FailureKind::Timeout, why)));
                }
            }
        }
        Ok(None)
    }

    async fn look(&mut self) -> Result<(), Halt> {
        (self.heard, self.look_at) = (true, Instant::now() + LOOK_ANYWAY);
        let (id, term) = (self.head.id, self.tenure.now());
        let now = self.around.store.head(id).await?.ok_or(StoreError::NoTask(id))?;
        if now.attempt != self.head.attempt || now.status != self.head.status {
            return Err(Halt::Lost);
        }
        self.tenure.confirm(term);
        self.stopped = now.stop.is_some();
        Ok(())
    }

    /// When the journal is to be looked at next: at once, if a hint was taken here.
    pub(super) fn look_at(&self) -> Instant {
        if self.heard { Instant::now() } else { self.look_at }
    }
}
