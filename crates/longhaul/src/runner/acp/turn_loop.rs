//! Drives one turn: sends the prompt, records what the agent does, passes its questions on, and cancels it when
//! the task is stopped.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::model_call::LiveTextBuffer;
use super::super::{Halt, TaskRun, deadline_passed, journal_may_have_changed};
use super::agent_turn::{self, AgentTurn, TurnEffect};
use super::permission::{self, AskDecision};
use super::session::AgentProcess;
use super::steering::TurnPrompts;
use super::task_calls::{TaskCalls, next_call};
use super::wire::{self, AgentMessage, PermissionAsked, RpcError, Update};
use crate::agent::AcpAgent;
use crate::entry::{Entry, Failure, FailureKind, LiveTextKind, QuestionAnswer};
use crate::id::CallId;
use crate::message::StopReason;
use crate::tool::ToolOutput;

/// How long an agent may take to end its turn after it was cancelled.
const CANCELLING: Duration = Duration::from_secs(2);
/// How often at most a step of the agent's plan is recorded.
const PROGRESS: Duration = Duration::from_millis(250);

/// How a turn ended.
pub(super) enum TurnEnd {
    /// With a reply, which is in the journal.
    Replied,
    /// The task cannot continue.
    Failed(Failure),
    /// The process is gone.
    Died(String),
}

/// A request for permission that waits for a person.
pub(super) struct Waiting {
    request: Value,
    asked: PermissionAsked,
    call: CallId,
    tool: std::sync::Arc<str>,
    answer: Option<QuestionAnswer>,
}

/// A turn that is going on.
pub(super) struct RunningTurn<'a> {
    acp: &'a AcpAgent,
    pub(super) process: &'a mut AgentProcess,
    pub(super) prompts: TurnPrompts,
    pub(super) turn: AgentTurn,
    words: LiveTextBuffer,
    /// Calls of our own tools, and all questions to people.
    pub(super) tasks: TaskCalls,
    pub(super) waiting: FuturesUnordered<BoxFuture<'static, Waiting>>,
    /// Requests that wait for a person.
    open_requests: Vec<Value>,
    /// Why it was cancelled, and until when its end is waited for.
    pub(super) halt: Option<(Halt, Instant)>,
    silent_at: Option<Instant>,
    progress_at: Instant,
    cost: Option<u64>,
}

impl RunningTurn<'_> {
    /// Cancels the turn. Its end is waited for a little.
    pub(super) fn cancel(&mut self, halt: Halt) {
        if self.halt.is_some() {
            return;
        }
        self.halt = Some((halt, Instant::now() + CANCELLING));
        let session = self.process.session.id.clone();
        self.process.connection.send(&wire::notification("session/cancel", json!({ "sessionId": session })));
        for request in self.open_requests.drain(..) {
            self.process.connection.send(&wire::response(&request, wire::cancelled()));
        }
        self.tasks.cancel();
        self.waiting.clear();
    }
}

impl TaskRun {
    /// Sends a prompt and drives the turn to its end. The prompt is in the journal.
    pub(super) async fn run_turn(
        &mut self,
        acp: &AcpAgent,
        process: &mut AgentProcess,
        text: &str,
    ) -> Result<TurnEnd, Halt> {
        let params = json!({ "sessionId": process.session.id, "prompt": [{ "type": "text", "text": text }] });
        let prompt = process.send_request("session/prompt", params);
        let mut now = RunningTurn {
            acp,
            process,
            prompts: TurnPrompts::new(prompt),
            turn: AgentTurn::new(self.conversation.session().next_call()),
            words: LiveTextBuffer::default(),
            tasks: TaskCalls::new(),
            waiting: FuturesUnordered::new(),
            open_requests: Vec::new(),
            halt: None,
            silent_at: Instant::now().checked_add(self.policy.inactivity_timeout),
            progress_at: Instant::now(),
            cost: None,
        };
        let end = self.drive_turn(&mut now).await;
        // Whatever ended it, nothing of it is left open.
        if now.halt.is_some() || !matches!(end, Ok(Ok(_))) {
            let effects = now.turn.close_calls(super::prompt::INTERRUPTED);
            self.record_effects(&mut now, effects).await?;
        }
        self.flush_live_text(&mut now.words).await?;
        let end = match (end?, now.halt.take()) {
            (_, Some((halt, _))) => return Err(halt),
            (Ok(result), None) => result,
            (Err(lost), None) => return Ok(TurnEnd::Died(lost)),
        };
        self.end_turn(now, end).await
    }

    /// The result of the prompt, or how the process was lost.
    async fn drive_turn(
        &mut self,
        now: &mut RunningTurn<'_>,
    ) -> Result<Result<Result<Value, RpcError>, String>, Halt> {
        loop {
            let until = now.halt.as_ref().map(|(_, until)| *until);
            let is_working = now.turn.is_calling() || !now.tasks.running.is_empty();
            let quiet = now.waiting.is_empty() && !is_working && now.halt.is_none();
            let silent_at = now.silent_at.filter(|_| quiet);
            // In this order: an agent that talks without end must not delay a stop.
            tokio::select! {
                biased;
                () = deadline_passed(until), if until.is_some() => {
                    return Ok(Err("it did not end its turn".to_owned()));
                }
                () = deadline_passed(now.prompts.due()), if now.prompts.due().is_some() => {
                    return Ok(Err("it did not say whether it took a message".to_owned()));
                }
                () = journal_may_have_changed(&self.subscription, self.recheck_at, &self.lease) => {
                    self.catch_up().await?;
                    now.tasks.active.background(&self.state.backgrounded);
                    if self.state.stop.is_some() {
                        now.cancel(Halt::Stop);
                    }
                }
                // The turn goes on where the task is resumed.
                () = self.context.drain.cancelled(), if now.halt.is_none() => now.cancel(Halt::Drain),
                () = deadline_passed(self.stopwatch.deadline()), if now.halt.is_none() => {
                    now.cancel(self.timeout_halt());
                }
                () = deadline_passed(now.tasks.active.asking.due()) => {
                    self.expire_questions(&now.tasks.active.asking).await?;
                }
                () = deadline_passed(now.tasks.active.progress.due) => {
                    self.append_entries(now.tasks.active.progress.take()).await?;
                }
                () = deadline_passed(now.words.due) => self.append_entries(now.words.take()).await?,
                () = deadline_passed(silent_at) => {
                    let time = self.policy.inactivity_timeout;
                    let text = format!("the agent {} sent nothing for {time:?}", now.acp.program_name());
                    now.cancel(Halt::Fail(Failure::new(FailureKind::Silent, text)));
                }
                Some(answered) = now.waiting.next() => self.answer_permission(now, answered).await?,
                Some(end) = now.tasks.running.next() => self.end_task_call(now, end).await?,
                Some(signal) = now.tasks.signals.recv() => self.handle_signal(signal, &mut now.tasks.active).await?,
                Some(request) = now.tasks.requests.recv() => self.take_task_call_request(now, request).await?,
                call = next_call(now.process.server.as_mut()), if now.halt.is_none() => {
                    self.start_task_call(now, call).await?;
                }
                message = now.process.connection.receive() => {
                    now.silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
                    match message {
                        Ok(AgentMessage::Response { id, result }) => self.take_turn_answer(now, id, result).await?,
                        Ok(message) => self.take_message(now, message).await?,
                        Err(lost) => return Ok(Err(lost.to_string())),
                    }
                }
            }
            if let Some(result) = now.prompts.take_end() {
                return Ok(Ok(result));
            }
            self.steer(now).await?;
            self.deliver_answers(&mut now.tasks.active.asking);
            self.rest_while_waiting(now).await?;
            if now.words.is_enough() {
                self.append_entries(now.words.take()).await?;
            }
        }
    }

    async fn take_message(&mut self, now: &mut RunningTurn<'_>, message: AgentMessage) -> Result<(), Halt> {
        match message {
            AgentMessage::Notification { method, params } if method == "session/update" => {
                match wire::parse_update(&params) {
                    // Some tell a cost of 0 if they do not know it.
                    Update::Cost(cost) if now.acp.reports_cost() => self.take_cost(now, cost).await?,
                    Update::Cost(_) => {}
                    Update::Mode(mode) if AcpAgent::is_bypass_mode(&mode) && !self.order.approved => {
                        let text = format!(
                            "the agent {} switched to mode '{mode}', in which it does everything without asking",
                            now.acp.program_name()
                        );
                        now.cancel(Halt::Fail(Failure::new(FailureKind::Tool, text)));
                    }
                    update => {
                        let effects = now.turn.update(update);
                        self.record_effects(now, effects).await?;
                    }
                }
            }
            AgentMessage::Request { id, method, params } if method == "session/request_permission" => {
                self.decide_permission(now, id, &params).await?;
            }
            AgentMessage::Request { id, method, .. } => {
                now.process.connection.send(&wire::not_offered(&id, &method));
            }
            AgentMessage::Response { .. } | AgentMessage::Notification { .. } | AgentMessage::Noise => {}
        }
        Ok(())
    }

    async fn record_effects(
        &mut self,
        now: &mut RunningTurn<'_>,
        effects: Vec<TurnEffect>,
    ) -> Result<(), Halt> {
        let mut entries = Vec::new();
        for effect in effects {
            let entry = match effect {
                TurnEffect::Say(kind, text) => {
                    let is_watched = || self.context.store.is_read_live(self.state.root);
                    now.words.push(kind, text, is_watched);
                    continue;
                }
                TurnEffect::Progress(_) if Instant::now() < now.progress_at => continue,
                TurnEffect::Progress(text) => {
                    now.progress_at = Instant::now() + PROGRESS;
                    Entry::Said { voice: LiveTextKind::Progress, text }
                }
                TurnEffect::Called { index, tool, arguments, effects } => {
                    let (call, arguments) = (self.foreign_call(index), Some(arguments));
                    Entry::Called { call, tool, arguments, effects, foreign: true }
                }
                TurnEffect::Returned { index, tool, output, is_error } => {
                    let output = ToolOutput { is_error, ..output.into() };
                    let mut result = self.cap_output(self.foreign_call(index), output).await?;
                    result.foreign = Some(tool);
                    Entry::Returned(Box::new(result))
                }
            };
            entries.push(entry);
        }
        if entries.is_empty() {
            return Ok(());
        }
        // What was said before comes before.
        let words = if now.words.len() > 0 { now.words.take() } else { Vec::new() };
        self.append_entries(words.into_iter().chain(entries).collect()).await
    }

    /// Counts what the turn has cost so far, and cancels it when a budget is used up.
    async fn take_cost(&mut self, now: &mut RunningTurn<'_>, total: u64) -> Result<(), Halt> {
        // A program that was started again may count from zero.
        let cost = total.checked_sub(now.process.cost).unwrap_or(total);
        now.cost = Some(cost);
        let mut state = self.state.clone();
        state.cost = state.cost.saturating_add(cost);
        match self.ledger.check(&state, self.stopwatch.total(), &*self.context.store).await {
            Err(Halt::Fail(failure)) => now.cancel(Halt::Fail(failure)),
            other => other?,
        }
        Ok(())
    }

    async fn decide_permission(
        &mut self,
        now: &mut RunningTurn<'_>,
        request: Value,
        params: &Value,
    ) -> Result<(), Halt> {
        let refuse = |now: &mut RunningTurn<'_>, request: &Value| {
            now.process.connection.send(&wire::response(request, wire::cancelled()));
        };
        let Some(asked) = wire::parse_permission(params).filter(|_| now.halt.is_none()) else {
            refuse(now, &request);
            return Ok(());
        };
        let (effects, call) = now.turn.asked(asked.call.clone());
        self.record_effects(now, effects).await?;
        let Some(call) = call else {
            refuse(now, &request);
            return Ok(());
        };
        let has_tool = |name: &str| self.tools.tool(name).is_some();
        if now.process.server_name.is_some_and(|server| permission::is_task_tool(server, has_tool, &call)) {
            now.process.connection.send(&wire::response(&request, asked.outcome(true)));
            return Ok(());
        }
        let id = self.foreign_call(call.index);
        let dir = self.order.working_dir.clone();
        let program = now.acp.program_name().to_owned();
        let question = match permission::decide(self.rights.as_deref(), &program, &call, dir.as_deref()) {
            AskDecision::Allow => {
                now.process.connection.send(&wire::response(&request, asked.outcome(true)));
                return Ok(());
            }
            AskDecision::Deny => {
                now.process.connection.send(&wire::response(&request, asked.outcome(false)));
                return Ok(());
            }
            AskDecision::Ask(question) => *question,
        };
        let (reply, answer) = oneshot::channel();
        self.ask_approval(&mut now.tasks.active.asking, id, question, reply).await?;
        now.open_requests.push(request.clone());
        let tool = call.tool;
        let wait = async move { Waiting { request, asked, call: id, tool, answer: answer.await.ok() } };
        now.waiting.push(wait.boxed());
        self.deliver_answers(&mut now.tasks.active.asking);
        // An answer that is known already needs no wait.
        if let Some(Some(answered)) = now.waiting.next().now_or_never() {
            return self.answer_permission(now, answered).await;
        }
        if let Some(entry) = self.waiting_for_person_entry() {
            self.append_entries(vec![entry]).await?;
        }
        self.seat.park();
        self.count_time(false);
        Ok(())
    }

    async fn answer_permission(&mut self, now: &mut RunningTurn<'_>, waiting: Waiting) -> Result<(), Halt> {
        let Waiting { request, asked, call, tool, answer } = waiting;
        now.open_requests.retain(|open| *open != request);
        if matches!(answer, Some(QuestionAnswer::Nobody(_))) {
            self.append_entries(vec![Entry::Denied { call, tool }]).await?;
        }
        let allow = answer.as_ref().is_some_and(permission::is_allowed);
        if now.waiting.is_empty() {
            match self.take_seat().await {
                Err(halt @ (Halt::Stop | Halt::Drain)) => {
                    now.process.connection.send(&wire::response(&request, wire::cancelled()));
                    now.cancel(halt);
                    return Ok(());
                }
                other => other?,
            }
            now.silent_at = Instant::now().checked_add(self.policy.inactivity_timeout);
        }
        // The last check before the effect.
        self.ensure_lease().await?;
        now.process.connection.send(&wire::response(&request, asked.outcome(allow)));
        Ok(())
    }

    /// Records the reply of a turn that has ended.
    async fn end_turn(
        &mut self,
        mut now: RunningTurn<'_>,
        result: Result<Value, RpcError>,
    ) -> Result<TurnEnd, Halt> {
        let name = now.acp.program_name();
        let effects = now.turn.close_calls("the agent ended its turn without saying how this call ended");
        self.record_effects(&mut now, effects).await?;
        self.close_task_calls(None, "the agent ended its turn without waiting for this call").await?;
        self.flush_live_text(&mut now.words).await?;
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let error = match error.needs_login() {
                    true => super::AgentError::Login { logins: Vec::new() },
                    false => super::AgentError::Rejected { method: "session/prompt", error },
                };
                return Ok(TurnEnd::Failed(error.into_failure(now.acp)));
            }
        };
        let stop = wire::text_at(&result, "stopReason").unwrap_or("end_turn");
        let failed = match stop {
            "max_turn_requests" => {
                Some((FailureKind::TurnLimit, "reached its own limit of requests in one turn"))
            }
            "cancelled" => Some((FailureKind::Tool, "cancelled its turn by itself")),
            _ => None,
        };
        let reason = match stop {
            "max_tokens" => StopReason::Length,
            "refusal" => StopReason::Refused,
            _ => StopReason::End,
        };
        now.process.cost = now.process.cost.saturating_add(now.cost.unwrap_or_default());
        let warnings = self.conversation.new_warnings(now.turn.warning().into_iter().collect());
        let model = now.process.session.program.clone();
        let reply = now.turn.into_reply(reason, agent_turn::usage(&result), model, now.cost);
        let entries = warnings.into_iter().chain([Entry::Replied(std::sync::Arc::new(reply))]).collect();
        self.append_entries(entries).await?;
        Ok(match failed {
            None => TurnEnd::Replied,
            Some((kind, what)) => TurnEnd::Failed(Failure::new(kind, format!("the agent {name} {what}"))),
        })
    }
}
