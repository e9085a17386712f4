//! Runs the tool calls of a reply concurrently, and records their results in order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::approval::{ApprovalGate, ApprovalRequest, Denied, PendingQuestions};
use super::open_tools::{OpenTool, OpenTools};
use super::worktime::people_wake;
use super::{Halt, TaskRun, call_hooks, deadline_passed, journal_may_have_changed};
use crate::conversation::PendingCall;
use crate::entry::{CallResult, Entry, Failure, FailureKind, LiveTextKind, WaitReason};
use crate::hook::HookEvent;
use crate::id::{CallId, TaskId};
use crate::message::prompt_tags::escape_tags;
use crate::permission::PermissionVerdict;
use crate::tool::{BudgetDenial, CallContext, CallSignal, RunnerChannel, ToolError, ToolOutput, ToolStorage};
use crate::toolset::truncate_output;

/// How long tools may take to return when they are cancelled.
const GRACE: Duration = Duration::from_secs(3);

/// The result of a call; `None` if it was cancelled while it only waited, to be made again later.
pub(super) struct CallOutcome {
    pub(super) call: CallId,
    pub(super) result: Option<Result<ToolOutput, ToolError>>,
    /// Text of hooks for the model.
    pub(super) hook_texts: Vec<String>,
    /// Whether it needed approval and nobody was there.
    pub(super) unattended: bool,
}

impl CallOutcome {
    pub(super) fn new(call: CallId, result: Option<Result<ToolOutput, ToolError>>) -> CallOutcome {
        CallOutcome { call, result, hook_texts: Vec::new(), unattended: false }
    }
}

impl TaskRun {
    /// Runs these calls to their end, unless the run is halted.
    pub(super) async fn run_calls(&mut self, pending_calls: Vec<PendingCall>) -> Result<(), Halt> {
        self.throttle_polling(&pending_calls).await?;
        let (line, mut signals) = RunnerChannel::new();
        let (request_sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let names: HashMap<CallId, String> =
            pending_calls.iter().map(|pending| (pending.id, pending.call.tool.clone())).collect();
        let mut now = ActiveCalls {
            give_up: pending_calls.iter().map(|pending| (pending.id, CancellationToken::new())).collect(),
            backgrounded: pending_calls
                .iter()
                .map(|pending| (pending.id, CancellationToken::new()))
                .collect(),
            ..ActiveCalls::default()
        };
        let asks_first = |pending: &PendingCall| {
            let begun = pending.started || pending.interrupted || pending.truncated;
            !begun && !self.starts_without_approval(&pending.call)
        };
        let pending_calls = pending_calls.into_iter().map(|pending| {
            let asks = asks_first(&pending);
            (pending, asks)
        });
        let pending_calls: Vec<(PendingCall, bool)> = pending_calls.collect();
        self.record_started(pending_calls.iter().filter(|(_, asks)| !asks).map(|(pending, _)| pending))
            .await?;
        let start = |(pending, asks_first): (PendingCall, bool)| {
            let give_up = now.give_up.get(&pending.id).cloned().unwrap_or_default();
            let gate = ApprovalGate {
                rights: self.rights.clone(),
                directory: self.order.working_dir.clone(),
                requests: request_sender.clone(),
                stop: stop.clone(),
                abandon: give_up,
            };
            let hurry = now.backgrounded.get(&pending.id).cloned().unwrap_or_default();
            self.start(pending, &line, gate, hurry, asks_first)
        };
        let mut running: FuturesUnordered<_> = pending_calls.into_iter().map(start).collect();
        let mut halt: Option<(Halt, Instant)> = None;
        // A person moved them to the background before the process that ran them died.
        now.background(&self.state.backgrounded);

        while !running.is_empty() {
            let until = halt.as_ref().map(|(_, until)| *until);
            let wants_seat = now.asking.ready_calls().next().is_some() && self.seat.is_parked();
            // In this order: a tool that reports progress without end must not delay a stop.
            tokio::select! {
                biased;
                // A tool that ignores the stop for too long is dropped, which ends what it has started.
                () = deadline_passed(until), if until.is_some() => break,
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    now.background(&self.state.backgrounded);
                    if self.state.stop.is_some() && halt.is_none() {
                        halt = Some((Halt::Stop, Instant::now() + GRACE));
                        stop.cancel();
                    }
                }
                () = self.context.drain.cancelled(), if !now.draining => now.draining = true,
                () = deadline_passed(self.stopwatch.deadline()), if halt.is_none() => {
                    halt = Some((self.timeout_halt(), Instant::now() + GRACE));
                    stop.cancel();
                }
                () = deadline_passed(now.asking.due()) => self.expire_questions(&now.asking).await?,
                () = deadline_passed(now.progress.due) => self.append_entries(now.progress.take()).await?,
                Some(outcome) = running.next() => {
                    let mut all = vec![outcome];
                    while let Some(Some(more)) = running.next().now_or_never() {
                        all.push(more);
                    }
                    // Signals of a call, and of its hooks, come before its result.
                    while let Ok(signal) = signals.try_recv() {
                        self.handle_signal(signal, &mut now).await?;
                    }
                    while let Ok(request) = requests.try_recv() {
                        self.handle_approval_request(request, &mut now).await?;
                    }
                    if now.progress.due.is_some() {
                        self.append_entries(now.progress.take()).await?;
                    }
                    all.iter().for_each(|outcome| drop(now.waiting.remove(&outcome.call)));
                    let last = running.is_empty() && halt.is_none();
                    if let Some(fatal) = self.record_results(all, &names, last).await? {
                        halt = halt.or(Some((Halt::Fail(fatal), Instant::now() + GRACE)));
                        stop.cancel();
                    }
                }
                Some(signal) = signals.recv() => self.handle_signal(signal, &mut now).await?,
                Some(request) = requests.recv() => self.handle_approval_request(request, &mut now).await?,
                () = self.seat.take(), if wants_seat => {}
                () = people_wake(self.people_subscription.as_ref()) => {}
            }
            self.deliver_answers(&mut now.asking);
            if halt.is_some() {
                // No answer is waited for any more.
                now.asking.clear();
            } else if now.draining {
                now.give_up_waiting();
            } else if now.asking.ready_calls().next().is_some() && !self.seat.is_parked() {
                self.start_approved_calls(&mut now.asking).await?;
            }
            if !running.is_empty() && now.idle() == running.len() {
                self.wait_for(&now).await?;
            }
            // Calls that start as soon as there is a seat are not running either.
            let queued = if self.seat.is_parked() { now.asking.ready_calls().count() } else { 0 };
            if halt.is_some() || now.idle() + queued < running.len() {
                self.count_time(true);
            } else if now.waiting.is_empty() {
                self.count_time(running.is_empty());
            } else {
                self.count_time_unless_waiting_for_people(&now.tasks()).await?;
            }
        }
        self.count_time(true);
        match halt {
            Some((halt, _)) => Err(halt),
            None if now.give_up.values().any(CancellationToken::is_cancelled) => Err(Halt::Drain),
            None => Ok(()),
        }
    }

    /// Whether a call of this tool may change something outside of Longhaul.
    pub(super) fn has_effects(&self, tool: &str) -> bool {
        self.tools.tool(tool).is_some_and(|tool| !tool.effects.is_harmless())
    }

    /// Records the start of calls that did not start together with their reply.
    async fn record_started<'a>(
        &mut self,
        pending_calls: impl Iterator<Item = &'a PendingCall>,
    ) -> Result<(), Halt> {
        let fresh = pending_calls.filter(|pending| !pending.started).map(|pending| Entry::Called {
            call: pending.id,
            tool: pending.call.tool.as_str().into(),
            arguments: None,
            effects: self.has_effects(&pending.call.tool),
            foreign: false,
        });
        let fresh: Vec<_> = fresh.collect();
        if fresh.is_empty() { Ok(()) } else { self.append_entries(fresh).await }
    }

    pub(super) fn start(
        &self,
        mut pending: PendingCall,
        line: &RunnerChannel,
        gate: ApprovalGate,
        hurry: CancellationToken,
        asks_first: bool,
    ) -> impl Future<Output = CallOutcome> + use<> {
        let context = CallContext {
            storage: ToolStorage::new(self.context.store.clone(), &self.caller()),
            caller: self.caller(),
            call: pending.id,
            dispatcher: self.context.dispatcher.clone(),
            cancel: gate.stop.clone(),
            backgrounded: hurry,
            earlier: self.conversation.earlier(self.state.id, pending.id),
            working_dir: self.order.working_dir.clone(),
            model: self.model().unwrap_or_else(|_| self.agent.model.clone()),
            processes: self.context.processes.clone(),
            runner: line.clone(),
        };
        let open_tools = self.tools.clone();
        let judged_by = self.previous_tools.clone().filter(|_| pending.started && !pending.interrupted);
        let hooks = self.call_hooks(&pending).map(Box::new);
        let lease = self.lease.clone();
        async move {
            let id = pending.id;
            let returned = |result| CallOutcome::new(id, Some(result));
            let name = &pending.call.tool;
            let Some(open) = open_tools.tool(name) else {
                let text = format!("There is no tool '{name}'. Your tools are: {}.", open_tools.names());
                return returned(Err(ToolError::Retry(text)));
            };
            let OpenTool { tool, effects, changed, identity } = open;
            // It started as a call of the tool that the model saw, and nobody approved this other one.
            let saw = |had: Arc<OpenTools>| had.tool(name).is_some_and(|had| had.identity.covers(identity));
            if judged_by.is_some_and(|had| !saw(had)) {
                let text = format!(
                    "This call was not made: '{name}' is another tool now than when you called it. Look at its \
                     description and arguments before you call it again."
                );
                return returned(Err(ToolError::Retry(text)));
            }
            if pending.truncated {
                let text = "This call was not made: your reply ran into its length limit in the middle of it. Make \
                            it again, with less text before it or shorter arguments.";
                return returned(Err(ToolError::Retry(text.to_owned())));
            }
            // Nor is a call repeated whose tool has changed.
            if pending.interrupted && (!effects.repeatable || changed.is_some()) {
                let text = "This call was interrupted: the program was stopped while it ran. Whether it had an \
                            effect is unknown. Find out before you make it again.";
                return returned(Err(ToolError::Failed(text.to_owned())));
            }
            // Rules, hooks and people see the arguments exactly as the tool gets them.
            match tool.canonical_arguments(&pending.call.arguments) {
                Ok(arguments) => pending.call.arguments = arguments,
                Err(error) => return CallOutcome::new(pending.id, Some(Err(error))),
            }
            let mut hook_texts = Vec::new();
            if asks_first {
                lease.wait_until_held().await;
                match Box::pin(gate.request_approval(&mut pending, open, hooks.as_deref(), &context)).await {
                    Ok(verdict) => {
                        verdict.user_messages.into_iter().for_each(|note| context.progress(note));
                        hook_texts.extend(call_hooks::hook_text(HookEvent::PreToolUse, &verdict.context));
                    }
                    Err(Denied::Refused(error)) => return CallOutcome::new(pending.id, Some(Err(error))),
                    Err(Denied::Unattended(error)) => {
                        return CallOutcome {
                            unattended: true,
                            ..CallOutcome::new(pending.id, Some(Err(error)))
                        };
                    }
                    Err(Denied::Cancelled) => return CallOutcome::new(pending.id, None),
                }
            } else if pending.interrupted
                && let PermissionVerdict::Refuse(why) = gate.verdict(&pending.call, open)
            {
                return CallOutcome::new(pending.id, Some(Err(ToolError::Failed(why))));
            }
            if let Some(changed) = changed
                && !gate.asks_people()
                && !effects.is_harmless()
            {
                context.progress(format!("{} is called though {changed}", pending.call.tool));
            }
            // The last check before the effect: a process that was suspended here continues here.
            lease.wait_until_held().await;
            let call =
                AssertUnwindSafe(async { tool.call(&pending.call.arguments, &context).await }).catch_unwind();
            let result = tokio::select! {
                result = call => result,
                () = gate.abandon.cancelled(), if effects.repeatable => return CallOutcome::new(pending.id, None),
            };
            let result = result.unwrap_or_else(|panic| {
                Err(ToolError::Failed(format!("the tool failed: {}", panic_message(&*panic))))
            });
            if let Some(hooks) = &hooks {
                // The hooks do not run if the task is stopping.
                lease.wait_until_held().await;
                let texts = tokio::select! {
                    biased;
                    () = gate.stop.cancelled() => Vec::new(),
                    texts = Box::pin(hooks.run_after(&pending.call, &result, &context, &gate)) => texts,
                };
                hook_texts.extend(call_hooks::hook_text(HookEvent::PostToolUse, &texts));
            }
            CallOutcome { hook_texts, ..CallOutcome::new(pending.id, Some(result)) }
        }
    }

    /// All running calls only wait: give up the seat.
    pub(super) async fn wait_for(&mut self, now: &ActiveCalls) -> Result<(), Halt> {
        self.seat.park();
        let for_tasks = || Entry::Waiting { on: WaitReason::Tasks(now.tasks()), until: None };
        let person = now.asking.waiting_calls().next().and_then(|_| self.waiting_for_person_entry());
        let entry = person.unwrap_or_else(for_tasks);
        match (&self.state.waiting, &entry) {
            (Some(waiting), Entry::Waiting { on, .. }) if waiting.on == *on => Ok(()),
            _ => self.append_entries(vec![entry]).await,
        }
    }

    /// Handles a signal of a running call.
    pub(super) async fn handle_signal(
        &mut self,
        signal: CallSignal,
        now: &mut ActiveCalls,
    ) -> Result<(), Halt> {
        match signal {
            CallSignal::Progress(text) => now.progress.push(text),
            CallSignal::WaitsForTasks { call, tasks } => drop(now.waiting.insert(call, tasks)),
            CallSignal::WorksAgain { call } => drop(now.waiting.remove(&call)),
            CallSignal::AsksPerson { call, question, reply } => {
                self.ask_question(&mut now.asking, call, *question, reply).await?;
            }
            CallSignal::WantsModel { tokens, reply } => {
                let may = match self
                    .ledger
                    .check_for(&self.state, self.stopwatch.total(), &*self.context.store, tokens)
                    .await
                {
                    Ok(()) => Ok(()),
                    Err(Halt::Fail(failure)) => Err(BudgetDenial(failure.to_string())),
                    Err(halt) => return Err(halt),
                };
                let _ = reply.send(may);
            }
            CallSignal::Sampled { sampled, noted } => {
                self.append_entries(vec![Entry::Sampled(sampled)]).await?;
                let _ = noted.send(());
            }
        }
        Ok(())
    }

    /// Handles the request of a call that is about to start.
    pub(super) async fn handle_approval_request(
        &mut self,
        request: ApprovalRequest,
        now: &mut ActiveCalls,
    ) -> Result<(), Halt> {
        match request {
            // While draining nothing is asked: it is asked when the task is resumed.
            ApprovalRequest::Ask { call, .. } if now.draining => now.give_up(call),
            ApprovalRequest::Ask { call, question, reply } => {
                self.ask_approval(&mut now.asking, call, *question, reply).await?;
            }
            ApprovalRequest::Begin { call, tool, arguments, go } => {
                let effects = self.has_effects(&tool);
                now.asking.add_ready_call(call, tool, arguments, effects, false, go);
            }
            ApprovalRequest::HooksFailed(failures) => {
                self.append_entries(call_hooks::hook_failed_entries(failures).collect()).await?
            }
        }
        Ok(())
    }

    /// Records results. The last ones of a reply are deferred if the calls can be repeated. Returns a failure
    /// if one of them ends the run.
    async fn record_results(
        &mut self,
        outcomes: Vec<CallOutcome>,
        names: &HashMap<CallId, String>,
        last: bool,
    ) -> Result<Option<Failure>, Halt> {
        let mut entries = Vec::with_capacity(outcomes.len());
        let mut fatal = None;
        for CallOutcome { call, result, hook_texts, unattended } in outcomes {
            let Some(result) = result else { continue };
            if unattended {
                let tool = names.get(&call).map_or("", String::as_str).into();
                entries.push(Entry::Denied { call, tool });
            }
            if let Err(ToolError::Fatal(why)) = &result {
                let tool = names.get(&call).map_or("a tool", String::as_str);
                fatal = Some(Failure::new(FailureKind::Tool, format!("{tool}: {why}")));
            }
            let output =
                result.unwrap_or_else(|error| ToolOutput { is_error: true, ..error.to_string().into() });
            let mut returned = self.cap_output(call, output).await?;
            // A tool's output must not look like text of a hook.
            if names.get(&call).is_some_and(|tool| self.has_tool_hooks(tool))
                && let Cow::Owned(escaped) = escape_tags(&returned.output, &["hook"])
            {
                returned.output = escaped.into();
            }
            if !hook_texts.is_empty() {
                returned.output = format!("{}\n\n{}", returned.output, hook_texts.join("\n")).into();
            }
            entries.push(Entry::Returned(Box::new(returned)));
        }
        let repeatable = |entry: &Entry| match entry {
            Entry::Returned(returned) => {
                let tool = names.get(&returned.call).map_or("", String::as_str);
                let effects = self.tools.tool(tool).map(|tool| tool.effects);
                // A result that changes the agent, the model or the collected tasks is written first.
                let plain =
                    returned.collected.is_empty() && returned.handoff.is_none() && returned.model.is_none();
                // So is one that hooks ran for: they would run again.
                plain && !self.has_tool_hooks(tool) && effects.is_some_and(|effects| effects.repeatable)
            }
            _ => false,
        };
        if last && fatal.is_none() && entries.iter().all(repeatable) {
            self.defer(entries);
        } else if !entries.is_empty() {
            self.append_entries(entries).await?;
        }
        Ok(fatal)
    }

    /// The part of an output that the model sees; an output that is too long is stored whole.
    pub(super) async fn cap_output(&self, call: CallId, output: ToolOutput) -> Result<CallResult, Halt> {
        let ToolOutput { text, is_error, collected, all_ended, handoff, model } = output;
        let Some(part) = truncate_output(&text, self.policy.output_cap) else {
            return Ok(CallResult {
                call,
                output: text.into(),
                is_error,
                whole: None,
                collected,
                all_ended,
                handoff,
                model,
                foreign: None,
            });
        };
        let whole = Some(self.context.store.put_blob(text.into_bytes()).await?);
        // A result that is not shown whole does not count as collected.
        let (output, collected) = (part.into(), Vec::new());
        Ok(CallResult { call, output, is_error, whole, collected, all_ended, handoff, model, foreign: None })
    }
}

/// The state of the running calls.
#[derive(Default)]
pub(super) struct ActiveCalls {
    /// Calls that wait for other tasks, and those tasks.
    pub(super) waiting: HashMap<CallId, Vec<TaskId>>,
    /// Calls that wait for a person, or to start.
    pub(super) asking: PendingQuestions,
    pub(super) progress: ProgressBuffer,
    pub(super) give_up: HashMap<CallId, CancellationToken>,
    /// Fires for calls that a person moves to the background.
    pub(super) backgrounded: HashMap<CallId, CancellationToken>,
    draining: bool,
}

impl ActiveCalls {
    /// Moves these calls to the background.
    pub(super) fn background(&self, calls: &[CallId]) {
        calls.iter().filter_map(|call| self.backgrounded.get(call)).for_each(CancellationToken::cancel);
    }

    /// The tasks that calls wait for.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = self.waiting.values().flatten().copied().collect();
        tasks.sort();
        tasks.dedup();
        tasks
    }

    /// How many calls only wait.
    pub(super) fn idle(&self) -> usize {
        let mut asking: Vec<CallId> =
            self.asking.waiting_calls().filter(|call| !self.waiting.contains_key(call)).collect();
        asking.sort();
        asking.dedup();
        self.waiting.len() + asking.len()
    }

    /// Cancels the calls that only wait, to be made again later.
    fn give_up_waiting(&self) {
        let asking = self.asking.waiting_calls().chain(self.asking.ready_calls());
        self.waiting.keys().copied().chain(asking).for_each(|call| self.give_up(call));
    }

    fn give_up(&self, call: CallId) {
        self.give_up.get(&call).into_iter().for_each(CancellationToken::cancel);
    }
}

/// Progress messages: only the latest in an interval is written.
#[derive(Default)]
pub(super) struct ProgressBuffer {
    last: Option<String>,
    pub(super) due: Option<Instant>,
}

impl ProgressBuffer {
    const MOMENT: Duration = Duration::from_millis(50);

    fn push(&mut self, text: String) {
        self.last = Some(text);
        self.due = self.due.or_else(|| Some(Instant::now() + Self::MOMENT));
    }

    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.due = None;
        self.last.take().map(|text| Entry::Said { voice: LiveTextKind::Progress, text }).into_iter().collect()
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
