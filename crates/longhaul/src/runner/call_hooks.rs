//! Runs hooks: before and after calls, when a task starts and ends, when a person is asked.
//!
//! What the model sees because of a hook is recorded before it takes effect: changed arguments in `Called`,
//! text added to a result in `Returned`, start text in `Nudged`. So a resumed task has the same conversation,
//! and no hook runs twice for what is already recorded.

use std::path::PathBuf;
use std::sync::Arc;

use super::approval::ApprovalGate;
use super::settle::HOOK_STOP_GRACE;
use super::{Halt, TaskRun, deadline_passed, journal_may_have_changed, rights_for};
use crate::agent::Agent;
use crate::conversation::PendingCall;
use crate::entry::{Entry, HookFailure, NudgeReason, Outcome};
use crate::hook::{HookEvent, HookInput, HookVerdict, Hooks};
use crate::id::TaskId;
use crate::journal;
use crate::message::Call;
use crate::message::prompt_tags::escape;
use crate::permission::{Permissions, Rights, arguments};
use crate::store::{Batch, Fence, Store};
use crate::tool::{CallContext, ProcessSlots, ToolError, ToolOutput};

/// How much of the hooks' text the model sees, and how much of an output hooks see, in bytes.
const MAX_HOOK_TEXT: usize = 16 * 1024;

/// The hooks for one call.
pub(super) struct CallHooks {
    hooks: Arc<Hooks>,
    input: HookInput,
    dir: Option<PathBuf>,
    processes: ProcessSlots,
    /// The rights of the task if a hook allows what the agent itself would need approval for.
    pub(super) rights_if_hook_allows: Option<Arc<Rights>>,
    /// Whether the person who started the tree has approved everything that is not denied.
    pub(super) approved: bool,
}

impl CallHooks {
    /// Runs the hooks before a call.
    pub(super) async fn run_before(&self, call: &Call) -> HookVerdict {
        let which = self.hooks.before_tool(&call.tool);
        if which.is_empty() {
            return HookVerdict::default();
        }
        let input = self.input_for(HookEvent::PreToolUse, call);
        let _slot = self.processes.acquire(|_| ()).await;
        self.hooks.run(&which, self.dir.as_deref(), &input).await
    }

    /// Runs the hooks after a call, and adds their text to the result for the model.
    pub(super) async fn run_after(
        &self,
        call: &Call,
        result: &Result<ToolOutput, ToolError>,
        context: &CallContext,
        gate: &ApprovalGate,
    ) -> Vec<String> {
        let which = self.hooks.after_tool(&call.tool);
        if which.is_empty() {
            return Vec::new();
        }
        let mut input = self.input_for(HookEvent::PostToolUse, call);
        let (text, is_error) = match result {
            Ok(output) => (output.text.clone(), output.is_error),
            Err(error) => (error.to_string(), true),
        };
        (input.tool_response, input.tool_error) = (Some(text), Some(is_error));
        let _slot = self.processes.acquire(|_| ()).await;
        let mut verdict = self.hooks.run(&which, self.dir.as_deref(), &input).await;
        gate.report_hook_failures(&mut verdict);
        verdict.user_messages.iter().for_each(|note| context.progress(note.clone()));
        // The call has been made: a hook that blocks can only say so.
        verdict.blocked.into_iter().filter(|why| !why.is_empty()).chain(verdict.context).collect()
    }

    fn input_for(&self, moment: HookEvent, call: &Call) -> HookInput {
        let mut input = self.input.clone();
        input.hook_event_name = moment;
        input.tool_name = Some(call.tool.clone());
        input.tool_input = Some(arguments(&call.arguments));
        input
    }
}

/// The text of hooks as the model reads it, after a result or as a message.
pub(super) fn hook_text(moment: HookEvent, words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    if words.is_empty() {
        return None;
    }
    let all = words.join("\n");
    let shown = &all[..all.floor_char_boundary(MAX_HOOK_TEXT)];
    let more = if shown.len() < all.len() { "\n[… cut here]" } else { "" };
    let name = moment.as_str();
    Some(format!("<hook event=\"{name}\">\n{}{more}\n</hook>", escape(shown)))
}

/// The journal entries for failed hooks.
pub(super) fn hook_failed_entries(failures: Vec<HookFailure>) -> impl Iterator<Item = Entry> {
    failures.into_iter().map(|failure| Entry::HookFailed(Box::new(failure)))
}

/// Records failures of hooks that nothing waits for. The task may have ended.
async fn write_failures(store: &dyn Store, task: TaskId, failures: Vec<HookFailure>) {
    if failures.is_empty() {
        return;
    }
    let batch = Batch::one(task, Fence::Anyone, hook_failed_entries(failures).collect());
    if let Err(error) = journal::append(store, batch).await {
        tracing::warn!(%task, %error, "the failure of a hook could not be recorded");
    }
}

impl TaskRun {
    /// The hooks for a call, if there are any for its tool.
    pub(super) fn call_hooks(&self, pending: &PendingCall) -> Option<CallHooks> {
        let hooks = &self.agent.hooks;
        let tool = &pending.call.tool;
        let before = !hooks.before_tool(tool).is_empty();
        if !before && hooks.after_tool(tool).is_empty() {
            return None;
        }
        let mut input = self.hook_input(HookEvent::PreToolUse, &self.agent);
        input.tool_use_id = Some(pending.id.to_string());
        let dir = self.order.working_dir.clone();
        let rights_if_hook_allows = if before { self.rights_if_hook_allows() } else { None };
        let (approved, processes) = (self.order.approved, self.context.processes.clone());
        Some(CallHooks { hooks: hooks.clone(), input, dir, processes, rights_if_hook_allows, approved })
    }

    /// Whether there are hooks to run before a call of this tool.
    pub(super) fn has_pre_tool_hooks(&self, tool: &str) -> bool {
        !self.agent.hooks.before_tool(tool).is_empty()
    }

    /// Whether there are hooks to run before or after a call of this tool.
    pub(super) fn has_tool_hooks(&self, tool: &str) -> bool {
        self.has_pre_tool_hooks(tool) || !self.agent.hooks.after_tool(tool).is_empty()
    }

    /// The rights without anything that the agent itself needs approval for. What it must not do stays
    /// denied, and what the agents above need approval for still needs it.
    fn rights_if_hook_allows(&self) -> Option<Arc<Rights>> {
        let above = rights_for(&self.team, &self.above, None, &self.order);
        let Some(own) = self.team.permissions_for(&self.agent.name) else { return above };
        let all = Permissions::parse(["*"], [""; 0], [""; 0]).unwrap_or_default();
        let lenient = Arc::new(Permissions { deny: own.deny.clone(), ..all });
        let levels = above.iter().flat_map(|rights| &rights.levels).cloned().chain([lenient]).collect();
        Some(Arc::new(Rights { levels, approved: self.order.approved }))
    }

    fn hook_input(&self, moment: HookEvent, agent: &Agent) -> HookInput {
        let dir = self.order.working_dir.as_deref();
        HookInput::new(moment, self.state.id, self.state.root, &agent.name, dir)
    }

    /// The agent that the task was given to: its hooks run at the start and the end.
    fn first_agent(&self) -> Arc<Agent> {
        let name = self.order.agent.as_ref().unwrap_or(self.team.root());
        self.team.agent(name).unwrap_or(&self.agent).clone()
    }

    /// Whether start hooks have to run.
    pub(super) fn needs_start_hooks(&self) -> bool {
        self.conversation.is_new() && {
            let hooks = &self.first_agent().hooks;
            !hooks.task_start.is_empty() || (self.is_session() && !hooks.session_start.is_empty())
        }
    }

    /// Whether a person started the task.
    fn is_session(&self) -> bool {
        self.state.parent.is_none()
    }

    /// Runs the start hooks, and records their text.
    pub(super) async fn run_start_hooks(&mut self) -> Result<(), Halt> {
        let agent = self.first_agent();
        let hooks = agent.hooks.clone();
        let session = if self.is_session() { &hooks.session_start[..] } else { &[] };
        let (mut parts, mut entries) = (Vec::new(), Vec::new());
        for (moment, which) in
            [(HookEvent::SessionStart, session), (HookEvent::TaskStart, &hooks.task_start[..])]
        {
            let which: Vec<_> = which.iter().collect();
            if which.is_empty() {
                continue;
            }
            let mut input = self.hook_input(moment, &agent);
            input.source = Some(if self.state.continues.is_some() { "resume" } else { "startup" });
            let dir = self.order.working_dir.clone();
            self.ensure_lease().await?;
            let verdict = self.unless_halted(hooks.run(&which, dir.as_deref(), &input)).await?;
            self.log_hook_messages(moment, &verdict);
            entries.extend(hook_failed_entries(verdict.failures));
            parts.extend(hook_text(moment, &verdict.context));
        }
        entries.push(Entry::Nudged { why: NudgeReason::Begun, text: parts.join("\n\n").into() });
        self.append_entries(entries).await
    }

    /// Waits for hooks or toolsets unless the run is halted; then they are dropped, which kills them.
    pub(super) async fn unless_halted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Halt> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    if self.state.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.context.drain.cancelled() => return Err(Halt::Drain),
                () = deadline_passed(self.stopwatch.deadline()) => return Err(self.timeout_halt()),
            }
        }
    }

    /// Stores the input for the end hooks, which run when the task has ended.
    pub(super) fn prepare_end_hooks(&mut self, outcome: &Outcome) {
        let hooks = &self.first_agent().hooks;
        if hooks.task_end.is_empty() && hooks.session_end.is_empty() {
            return;
        }
        let reason = match outcome {
            Outcome::Completed { .. } => "completed",
            Outcome::Failed { .. } => "failed",
            Outcome::Cancelled { .. } => "cancelled",
        };
        let output = outcome.output();
        let mut input = self.hook_input(HookEvent::TaskEnd, &self.first_agent());
        input.reason = Some(reason.to_owned());
        input.error = outcome.error();
        input.output = Some(output[..output.floor_char_boundary(MAX_HOOK_TEXT)].to_owned());
        self.end_hook_input = Some(Box::new(input));
    }

    /// Runs the end hooks. The end is already recorded, and only the end of this run waits for them.
    pub(super) async fn run_end_hooks(&mut self) {
        if let Some(mut background) = self.background_hooks.take() {
            if self.state.stop.is_some() {
                background.abort_all();
            }
            // Dropping this kills them.
            let finished = async { while background.join_next().await.is_some() {} };
            self.with_stop_grace(HOOK_STOP_GRACE, finished).await;
        }
        let Some(mut input) = self.end_hook_input.take() else { return };
        self.seat.park();
        let hooks = self.first_agent().hooks.clone();
        let dir = match &self.worktree {
            Some(worktree) if !worktree.is_kept().await => Some(worktree.origin.clone()),
            _ => self.order.working_dir.clone(),
        };
        input.cwd = dir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
        let session = if self.is_session() { &hooks.session_end[..] } else { &[] };
        for (moment, which) in [(HookEvent::TaskEnd, &hooks.task_end[..]), (HookEvent::SessionEnd, session)] {
            let which: Vec<_> = which.iter().collect();
            if which.is_empty() {
                continue;
            }
            input.hook_event_name = moment;
            match self.with_stop_grace(HOOK_STOP_GRACE, hooks.run(&which, dir.as_deref(), &input)).await {
                Some(verdict) => {
                    self.log_hook_messages(moment, &verdict);
                    write_failures(&*self.context.store, self.state.id, verdict.failures).await;
                }
                None => {
                    let task = self.state.id;
                    tracing::warn!(%task, ?moment, "hooks of a stopped task took too long and were killed");
                }
            }
        }
    }

    /// Runs the hooks for a question to a person or a waiting session. Nothing waits for them.
    pub(super) fn run_user_input_hooks(&mut self, question: Option<String>) {
        if self.agent.hooks.on_user_input.is_empty() {
            return;
        }
        let mut input = self.hook_input(HookEvent::OnUserInput, &self.agent);
        input.question = question;
        let (hooks, dir) = (self.agent.hooks.clone(), self.order.working_dir.clone());
        let background = self.background_hooks.get_or_insert_with(Box::default);
        // Remove the finished ones.
        while background.try_join_next().is_some() {}
        let lease = self.lease.clone();
        let (store, task) = (self.context.store.clone(), self.state.id);
        background.spawn(async move {
            lease.wait_until_held().await;
            let which: Vec<_> = hooks.on_user_input.iter().collect();
            let verdict = hooks.run(&which, dir.as_deref(), &input).await;
            write_failures(&*store, task, verdict.failures).await;
        });
    }

    /// Logs what has no other place: messages of hooks for people, and blocks where nothing can be prevented.
    fn log_hook_messages(&self, moment: HookEvent, verdict: &HookVerdict) {
        for note in verdict.blocked.iter().chain(&verdict.user_messages) {
            tracing::warn!(task = %self.state.id, ?moment, note, "a hook says");
        }
    }
}
