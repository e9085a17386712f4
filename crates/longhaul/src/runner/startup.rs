//! Between the claim and the first step: a place at the provider's gate, tools and a worktree can take long, and a stop
//! does not wait for them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;

use super::load_task::ClaimedRun;
use super::model_call::provider_wait;
use super::worktime::Stopwatch;
use super::{
    Halt, RECHECK_INTERVAL, RunContext, RunLease, deadline_passed, journal_may_have_changed, policy_for,
};
use crate::agent::Team;
use crate::entry::{Entry, EntryKind, Failure, FailureKind};
use crate::journal;
use crate::model::{RequestDelay, StartTicket};
use crate::store::{Batch, EntryKinds, Fence, StoreError, Subscription};
use crate::task::TaskState;

/// A task that takes longer to begin no longer counts as one whose request is about to arrive.
const PROMPT_START: Duration = Duration::from_millis(100);

/// A run that may begin.
pub(crate) struct RunStart {
    /// Its place among those that begin, until its first request is at the gate.
    pub(super) ticket: Option<Box<dyn StartTicket>>,
    /// From when on its time counts.
    pub(super) since: Instant,
}

impl RunStart {
    /// Waits until the model of a task that never ran takes its first request soon. Until then, nothing of it is loaded: there
    /// may be thousands.
    ///
    /// # Errors
    /// Fails if the worker drains, the time limit is reached, or another worker owns the task.
    pub(crate) async fn wait(
        context: &RunContext,
        team: &Team,
        task: &ClaimedRun,
        lease: &RunLease,
    ) -> Result<RunStart, Halt> {
        let mut start = RunStart { ticket: None, since: Instant::now() };
        let Entry::Submitted(submitted) = &task.first.entry else { return Ok(start) };
        if !task.is_fresh() {
            return Ok(start);
        }
        let Some(agent) = team.agent(&task.state.agent) else { return Ok(start) };
        let chosen = submitted.order.model.as_ref().and_then(|name| team.model(name));
        let model = chosen.unwrap_or(&agent.model);
        let Some(mut ticket) = model.start_ticket(task.state.root, task.state.depth) else {
            return Ok(start);
        };
        start.ticket = match ticket.next_step().now_or_never() {
            Some(None) => Some(ticket),
            delay => {
                let limit = policy_for(agent, &submitted.order).timeout;
                let deadline = Stopwatch::new(task.state.worked, limit, start.since).deadline();
                Box::pin(wait_for_turn(context, &task.state, deadline, lease, ticket, delay.flatten()))
                    .await?
            }
        };
        Ok(start)
    }
}

/// Waits until the ticket lets the task begin; returns `None` if the task is stopping.
async fn wait_for_turn(
    context: &RunContext,
    state: &TaskState,
    deadline: Option<Instant>,
    lease: &RunLease,
    mut ticket: Box<dyn StartTicket>,
    mut delay: Option<RequestDelay>,
) -> Result<Option<Box<dyn StartTicket>>, Halt> {
    let kinds = EntryKinds::from_kinds([EntryKind::StopRequested, EntryKind::Released, EntryKind::Finished]);
    let subscription = Arc::new(context.subscriptions.for_tasks(&[state.id], kinds));
    let mut starting = TaskStartup::new(context, &subscription, state, deadline, lease);
    // Read after subscribing, so that nothing is missed in between.
    starting.check_journal().await?;
    loop {
        if let Some(RequestDelay { reason, remaining }) = delay {
            let waits = provider_wait(&*context.store, reason, remaining);
            let fence = Fence::Attempt(state.attempt);
            journal::append(&*context.store, Batch::one(state.id, fence, vec![waits])).await?;
        }
        delay = match starting.wait(ticket.next_step()).await? {
            None => return Ok(None),
            Some(None) => return Ok(Some(ticket)),
            Some(delay) => delay,
        };
    }
}

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
    /// Its place among those that begin, unless it takes too long, and until when that is.
    pub(super) ticket: Option<Box<dyn StartTicket>>,
    prompt_until: Instant,
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
            ticket: None,
            prompt_until: Instant::now() + PROMPT_START,
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
                () = tokio::time::sleep_until(self.prompt_until), if self.ticket.is_some() => self.ticket = None,
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
