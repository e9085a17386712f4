//! Runs one task: the only place that calls models and tools.
//!
//! [`TaskRun::drive`] asks the [`Conversation`] for the next step and does it: `model_call` calls the model,
//! `tool_calls` runs tools, `idle` waits for letters. A result that cannot be reproduced is recorded before it
//! takes effect. Whatever interrupts a run is a [`Halt`], and `settle` turns that into the one entry that ends
//! the attempt.

mod acp;
mod begin;
mod tool_calls;
mod poll_on_wake;
mod system_prompt;
mod compact;
mod halt;
mod open_tools;
mod approval;
mod lease;
mod ledger;
mod deferred_entries;
mod load_task;
mod idle;
mod seat;
mod seen_tools;
mod settle;
mod spending;
mod startup;
mod model_call;
mod call_hooks;
mod worktime;
#[cfg(feature = "toolsets")]
mod worktree;
#[cfg(not(feature = "toolsets"))]
mod no_worktree;
mod journal_writer;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "toolsets")]
pub(crate) use begin::worktree_of;
pub(crate) use halt::{AttemptEnd, Halt};
pub(crate) use lease::{LeaseKeeper, RunLease};
pub(crate) use load_task::ClaimedRun;
pub(crate) use open_tools::{OpenTools, ToolCache};
pub(crate) use poll_on_wake::PollOnWake;
pub(crate) use seat::{Seat, Seats};
pub(crate) use settle::settle_halt;
pub(crate) use spending::TreeSpending;
pub(crate) use startup::RunStart;
pub(crate) use tool_calls::panic_message;

use crate::agent::{Agent, Policy, Team, Unattended};
use crate::conversation::{Conversation, NextStep, PendingCall};
use crate::dispatch::{Caller, Dispatcher};
use crate::entry::{Entry, EntryKind, Failure, FailureKind, Order, Submission};
use crate::hook::HookInput;
use crate::id::{AgentName, Attempt};
use crate::journal::SubmissionCache;
use crate::model::StartTicket;
use crate::model::wire::WireCache;
use crate::permission::Rights;
use crate::store::{Store, Subscription, Subscriptions};
use crate::task::TaskState;
use crate::tool::ProcessSlots;
use crate::toolset::read_tool_output;
use acp::OpenAgent;
use begin::{find_agent, open_agent_tools, policy_for, rights_for};
use deferred_entries::DeferredEntries;
use ledger::Ledger;
#[cfg(not(feature = "toolsets"))]
use no_worktree::{NoWorktree as Worktree, NoWorktreeError as WorktreeError};
use worktime::{PeopleSubscription, Stopwatch};
#[cfg(feature = "toolsets")]
pub use worktree::{DiffCommit, FileDiff, FileDiffKind, WorktreeDiff, WorktreePlace};
#[cfg(feature = "toolsets")]
use worktree::{Worktree, WorktreeError};
#[cfg(feature = "toolsets")]
pub(crate) use worktree::{find_worktree, read_worktree_diff};

/// What a run needs from its worker.
#[derive(Clone)]
pub(crate) struct RunContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) dispatcher: Arc<dyn Dispatcher>,
    pub(crate) tool_cache: Arc<ToolCache>,
    pub(crate) submissions: Arc<SubmissionCache>,
    /// What the trees with a budget have used.
    pub(crate) spending: Arc<TreeSpending>,
    /// Limits how many child processes run at once.
    pub(crate) processes: ProcessSlots,
    /// Held while a worktree is created or removed.
    pub(crate) worktrees: Arc<tokio::sync::Mutex<()>>,
    /// Fires when the worker drains: finish the step, then release the task.
    pub(crate) drain: CancellationToken,
    /// Whether a person is there to answer questions.
    pub(crate) attended: bool,
    /// How to handle questions when no one is there, if not left to the agents.
    pub(crate) unattended: Option<Unattended>,
    /// How long to wait for a person's answer, if not left to the agents.
    pub(crate) ask_timeout: Option<Duration>,
}

/// One attempt at one task.
pub(crate) struct TaskRun {
    context: Arc<RunContext>,
    team: Arc<Team>,
    seat: Seat,
    /// Its place among the tasks that begin, until its first request is sent.
    start_ticket: Option<Box<dyn StartTicket>>,
    subscription: Arc<Subscription>,
    /// Whether this run owns the task, as far as is known.
    lease: RunLease,
    /// The attempt. Everything this run writes is fenced by it, whatever the journal says by now.
    attempt: Attempt,
    state: TaskState,
    order: Order,
    /// Its own worktree, if it has one; the order then names that directory.
    worktree: Option<Box<Worktree>>,
    /// Whether git reported the worktree's changes in time; if not, the worktree is kept.
    git_answers: bool,
    conversation: Conversation,
    agent: Arc<Agent>,
    /// Agents that held the conversation earlier in this attempt.
    previous_agents: Vec<Arc<Agent>>,
    policy: Policy,
    tools: Arc<OpenTools>,
    /// The tools at the time of the last reply, if they have changed since: calls that started with the reply
    /// were checked against these.
    previous_tools: Option<Arc<OpenTools>>,
    /// The agent's system prompt.
    system: Arc<str>,
    /// How many of the cut outputs the current tools can read.
    readable_outputs: usize,
    /// What it may do; `None` if it may do everything.
    rights: Option<Arc<Rights>>,
    /// The agents above it, whose permissions apply too.
    above: Vec<AgentName>,
    /// Its working time.
    stopwatch: Stopwatch,
    /// How far the working time in the journal may lag behind; `None` if no limit depends on it.
    unwritten: Option<Duration>,
    /// While it waits for other tasks: tells whether those wait for people.
    people_subscription: Option<PeopleSubscription>,
    /// When to read the journal even without a hint.
    recheck_at: Instant,
    /// The kind of the last entry that it knows, to recognise its journal.
    last_kind: EntryKind,
    ledger: Ledger,
    /// The conversation in the provider's wire format, as far as it was sent.
    memo: Arc<WireCache>,
    /// Entries that are in the conversation but not yet in the journal.
    deferred: DeferredEntries,
    /// Whether it can have children. An agent without sub-agents launches none, which saves looking for them.
    may_launch: bool,
    /// Its submission, kept alive if it can have children: they need it.
    _submitted: Option<Arc<Submission>>,
    /// The input for the end hooks.
    end_hook_input: Option<Box<HookInput>>,
    /// Hooks that nothing waits for.
    background_hooks: Option<Box<JoinSet<()>>>,
    /// Notices for people about its tools.
    tool_notices: Vec<String>,
    /// The program that runs its agent, if it has one and a session.
    open_agent: Option<OpenAgent>,
}

/// How often to read the journal even without a hint: hints may be lost.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

impl TaskRun {
    /// Drives the task to its end, or to the end of this attempt.
    pub(crate) async fn drive(mut self: Box<Self>) -> AttemptEnd {
        let lease = self.lease.clone();
        let ended = tokio::select! {
            biased;
            // Drops everything, which kills its child processes: when the lease is over, another worker may
            // start.
            why = PollOnWake::new(async move { lease.wait_until_lost().await }) => AttemptEnd::StoreFailed(why),
            ended = self.run() => ended,
        };
        Box::pin(self.clean_up(&ended)).await;
        ended
    }

    /// Lets the toolsets stop what they have started for the task, removes an unchanged worktree, and runs
    /// the end hooks.
    async fn clean_up(&mut self, ended: &AttemptEnd) {
        const LONGEST: Duration = Duration::from_secs(5);
        self.close_agent().await;
        if !matches!(ended, AttemptEnd::Finished) {
            // They run again where the task continues.
            self.background_hooks = None;
        }
        let task = self.state.id;
        let toolsets = self.previous_agents.iter().chain([&self.agent]).flat_map(|agent| &agent.toolsets);
        let ending = toolsets.map(|toolset| async move {
            if tokio::time::timeout(LONGEST, toolset.task_ended(task)).await.is_err() {
                tracing::warn!(%task, toolset = toolset.name(), "what it started did not end in time");
            }
        });
        futures::future::join_all(ending).await;
        if !matches!(ended, AttemptEnd::Finished) {
            return;
        }
        if let Some(worktree) = &self.worktree
            && self.git_answers
            && self.has_no_open_children().await
            && self
                .with_stop_grace(
                    settle::GIT_STOP_GRACE,
                    worktree.remove_if_unchanged(&self.context.worktrees),
                )
                .await
                .is_none()
        {
            tracing::warn!(%task, "git takes too long: the task's worktree is kept");
        }
        // After the worktree is settled: what the task reports about it is true, whatever the hooks do.
        self.run_end_hooks().await;
    }

    async fn run(&mut self) -> AttemptEnd {
        let halt = loop {
            // Catch a panic here, where the task's output and children are still known.
            match AssertUnwindSafe(self.step()).catch_unwind().await {
                Ok(Ok(Some(ended))) => return ended,
                Ok(Ok(None)) => {}
                Ok(Err(halt)) => break halt,
                Err(panic) => break Halt::Fail(Failure::new(FailureKind::Panic, panic_message(&*panic))),
            }
        };
        self.settle(halt).await
    }

    async fn step(&mut self) -> Result<Option<AttemptEnd>, Halt> {
        if self.subscription.next_wake().now_or_never().is_some() || self.recheck_at <= Instant::now() {
            self.catch_up().await?;
        }
        self.ensure_lease().await?;
        if self.state.stop.is_some() {
            return Err(Halt::Stop);
        }
        if self.needs_start_hooks() {
            // They may take long. Another task may begin meanwhile.
            self.start_ticket = None;
            return Box::pin(self.run_start_hooks()).await.map(|()| None);
        }
        self.refresh_tools().await?;
        let open_tools = self.tools.clone();
        let effects = |tool: &str| open_tools.tool(tool).map(|tool| tool.effects).unwrap_or_default();
        // Where JSON is the answer, it may look like a call.
        let delegates = self.agent.output_schema.is_none() && open_tools.can_launch();
        let step = self.conversation.next_step(&self.policy, effects, delegates);
        if let NextStep::RunCalls(pending_calls) = step {
            self.run_calls_boxed(pending_calls).await?;
            return Ok(None);
        }
        if self.context.drain.is_cancelled() {
            return Err(Halt::Drain);
        }
        match step {
            NextStep::ReadLetters { .. } if self.should_wait_for_children().await? => {
                return self.rest().await;
            }
            NextStep::ReadLetters { letters, known } => self.read_letters(letters, known).await?,
            NextStep::Nudge { why, text } => self.append_entries(vec![Entry::Nudged { why, text }]).await?,
            NextStep::CallModel { tools } => match self.agent.acp.clone() {
                Some(acp) => Box::pin(self.prompt_agent(&acp)).await?,
                None => self.call_model(tools).await?,
            },
            NextStep::Idle => match self.conversation.schema_violation(self.agent.output_schema.as_deref()) {
                Some(NextStep::Nudge { why, text }) => {
                    self.append_entries(vec![Entry::Nudged { why, text }]).await?
                }
                Some(NextStep::Fail(failure)) => return Err(Halt::Fail(failure)),
                _ => return self.rest().await,
            },
            NextStep::Fail(failure) => return Err(Halt::Fail(failure)),
            NextStep::RunCalls(_) => {}
        }
        Ok(None)
    }

    // Boxed, like everything large and rare, so that a task that waits for its model uses little memory.

    fn run_calls_boxed(&mut self, pending_calls: Vec<PendingCall>) -> BoxFuture<'_, Result<(), Halt>> {
        Box::pin(self.run_calls(pending_calls))
    }

    fn rest(&mut self) -> BoxFuture<'_, Result<Option<AttemptEnd>, Halt>> {
        Box::pin(self.end_or_wait())
    }

    fn settle(&mut self, halt: Halt) -> BoxFuture<'_, AttemptEnd> {
        Box::pin(self.end_attempt(halt))
    }

    /// Waits for a seat.
    async fn take_seat(&mut self) -> Result<(), Halt> {
        if self.seat.is_parked() {
            self.flush().await?;
        }
        // Waiting for a seat is not working time.
        self.count_time(!self.seat.is_parked());
        while self.seat.is_parked() {
            tokio::select! {
                () = self.seat.take() => {}
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    if self.state.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.context.drain.cancelled() => return Err(Halt::Drain),
            }
        }
        self.count_time(true);
        Ok(())
    }

    fn timeout_halt(&self) -> Halt {
        let limit = self.policy.timeout.unwrap_or_default();
        Halt::Fail(Failure::new(FailureKind::Timeout, format!("the task took longer than {limit:?}")))
    }

    /// After a handoff another agent holds the conversation; tools may have changed; and once an output was
    /// cut, a tool to read it is added.
    async fn refresh_tools(&mut self) -> Result<(), Halt> {
        if *self.conversation.agent() != self.agent.name || self.tools.is_outdated(&self.agent) {
            self.readable_outputs = 0;
            let agent = find_agent(&self.team, &self.conversation)?;
            self.previous_agents.push(std::mem::replace(&mut self.agent, agent));
            self.may_launch |= !self.agent.sub_agents.is_empty();
            self.policy = policy_for(&self.agent, &self.order);
            self.rights = rights_for(&self.team, &self.above, Some(&self.agent), &self.order);
            let (context, team) = (self.context.clone(), self.team.clone());
            let (agent, order) = (self.agent.clone(), self.order.clone());
            let (root, had) = (self.state.root, self.tools.clone());
            let prepared = open_agent_tools(&context, &team, &agent, &order, root);
            (self.tools, self.system, self.tool_notices) = Box::pin(self.unless_halted(prepared)).await??;
            self.previous_tools.get_or_insert(had);
            self.readable_outputs = 0;
        }
        if !self.tool_notices.is_empty() {
            let notices = std::mem::take(&mut self.tool_notices);
            let warnings = self.conversation.new_warnings(notices);
            if !warnings.is_empty() {
                self.append_entries(warnings).await?;
            }
        }
        let kept = self.conversation.cut_outputs();
        if kept.len() > self.readable_outputs {
            self.readable_outputs = kept.len();
            let tool = read_tool_output(self.context.store.clone(), kept, self.policy.output_cap);
            self.tools = Arc::new(self.tools.with_tool(tool));
        }
        Ok(())
    }

    fn caller(&self) -> Caller {
        Caller {
            task: self.state.id,
            root: self.state.root,
            agent: self.agent.name.clone(),
            depth: self.state.depth,
        }
    }
}

/// Waits until the journal should be read: a hint came, none came for long, or another worker may own the
/// task now.
async fn journal_may_have_changed(subscription: &Subscription, recheck_at: Instant, lease: &RunLease) {
    tokio::select! {
        biased;
        () = lease.wait_for_new_term() => {}
        () = hint_or_recheck(subscription, recheck_at) => {}
    }
}

/// Waits for a hint, or until none came for long.
async fn hint_or_recheck(subscription: &Subscription, recheck_at: Instant) {
    tokio::select! {
        _ = subscription.next_wake() => {}
        () = tokio::time::sleep_until(recheck_at) => {}
    }
}

/// Completes at the deadline; never, if there is none.
async fn deadline_passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
