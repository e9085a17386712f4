//! Calls of the agent's tools by the program that runs the agent: through the MCP server of the task.
//!
//! They run like the calls of a model: rules, people and hooks decide, and the journal has a call before it
//! starts. After a crash nobody knows whether the agent has got a result. If it makes a call of the same turn again,
//! it is that call, under its id, so that a task is launched once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::approval::{ApprovalGate, ApprovalRequest};
use super::super::tool_calls::{ActiveCalls, CallOutcome};
use super::super::{Halt, TaskRun};
use super::prompt::INTERRUPTED;
use super::task_server::{TaskServer, TaskToolCall, TaskToolReply};
use super::turn_loop::RunningTurn;
use crate::conversation::PendingCall;
use crate::entry::{CallResult, Entry, Failure, FailureKind};
use crate::id::CallId;
use crate::message::Call;
use crate::tool::{CallSignal, RunnerChannel, ToolError, ToolOutput};

/// After this time a call that waits for tasks returns without them. MCP clients give up after a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// The running calls of one turn.
pub(super) struct TaskCalls {
    pub(super) active: ActiveCalls,
    pub(super) running: FuturesUnordered<BoxFuture<'static, TaskCallEnd>>,
    channel: RunnerChannel,
    pub(super) signals: mpsc::UnboundedReceiver<CallSignal>,
    request_sender: mpsc::UnboundedSender<ApprovalRequest>,
    pub(super) requests: mpsc::UnboundedReceiver<ApprovalRequest>,
    stop: CancellationToken,
    /// The arguments of calls that wait for approval.
    arguments: HashMap<CallId, String>,
    /// Calls of an earlier process that were made again.
    repeated: HashSet<CallId>,
}

/// The end of a call.
pub(super) struct TaskCallEnd {
    outcome: CallOutcome,
    tool: Arc<str>,
    reply: oneshot::Sender<TaskToolReply>,
}

impl TaskCalls {
    pub(super) fn new() -> TaskCalls {
        let (channel, signals) = RunnerChannel::new();
        let (request_sender, requests) = mpsc::unbounded_channel();
        TaskCalls {
            active: ActiveCalls::default(),
            running: FuturesUnordered::new(),
            channel,
            signals,
            request_sender,
            requests,
            stop: CancellationToken::new(),
            arguments: HashMap::new(),
            repeated: HashSet::new(),
        }
    }

    /// Ends all calls.
    pub(super) fn cancel(&mut self) {
        self.stop.cancel();
        self.active.asking.clear();
    }

    /// Whether calls run, and all of them only wait.
    pub(super) fn only_wait(&self) -> bool {
        !self.running.is_empty() && self.active.idle() == self.running.len()
    }
}

/// The next call; never one without a server.
pub(super) async fn next_call(server: Option<&mut TaskServer>) -> TaskToolCall {
    match server {
        Some(server) => match server.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl TaskRun {
    /// Starts a call.
    pub(super) async fn start_task_call(
        &mut self,
        now: &mut RunningTurn<'_>,
        call: TaskToolCall,
    ) -> Result<(), Halt> {
        let TaskToolCall { tool, arguments, mut reply } = call;
        let repeatable = self.tools.tool(&tool).is_some_and(|tool| tool.effects.repeatable);
        let taken = |id: CallId| now.tasks.repeated.contains(&id);
        let before = self.conversation.session().find_task_call(&tool, &arguments, taken);
        let interrupted = before.filter(|(_, returned)| !returned || repeatable).map(|(id, _)| id);
        now.tasks.repeated.extend(interrupted);
        let id = match interrupted {
            Some(id) => id,
            None => self.foreign_call(now.turn.take_index()),
        };
        let call = Call { id: id.to_string(), tool: tool.clone(), arguments: arguments.clone() };
        let asks_first = interrupted.is_none() && !self.starts_without_approval(&call);
        let tool: Arc<str> = tool.into();
        if interrupted.is_none() && !asks_first {
            let effects = self.has_effects(&tool);
            let (tool, arguments) = (tool.clone(), Some(arguments.clone()));
            self.append_entries(vec![Entry::Called { call: id, tool, arguments, effects, foreign: true }])
                .await?;
        }
        let (give_up, hurry) = (CancellationToken::new(), CancellationToken::new());
        now.tasks.active.give_up.insert(id, give_up.clone());
        now.tasks.active.backgrounded.insert(id, hurry.clone());
        now.tasks.arguments.insert(id, arguments);
        let gate = ApprovalGate {
            rights: self.rights.clone(),
            directory: self.order.working_dir.clone(),
            requests: now.tasks.request_sender.clone(),
            stop: now.tasks.stop.clone(),
            abandon: give_up,
        };
        let pending = PendingCall {
            id,
            call,
            truncated: false,
            started: !asks_first,
            interrupted: interrupted.is_some(),
        };
        let polls = self.tools.tool(&tool).is_some_and(|tool| tool.effects.polls_tasks);
        let running = self.start(pending, &now.tasks.channel, gate, hurry.clone(), asks_first);
        let ending = async move {
            let hurried = async {
                tokio::time::sleep(LONGEST_WAIT).await;
                hurry.cancel();
                std::future::pending::<CallOutcome>().await
            };
            let outcome = tokio::select! {
                outcome = running => outcome,
                outcome = hurried => outcome,
                // Nobody waits for what it would return.
                () = reply.closed(), if polls => CallOutcome::new(id, None),
            };
            TaskCallEnd { outcome, tool, reply }
        };
        now.tasks.running.push(ending.boxed());
        Ok(())
    }

    /// Handles the request of a call that is about to start.
    pub(super) async fn take_task_call_request(
        &mut self,
        now: &mut RunningTurn<'_>,
        request: ApprovalRequest,
    ) -> Result<(), Halt> {
        match request {
            ApprovalRequest::Begin { call, tool, arguments, go } => {
                let arguments = arguments.or_else(|| now.tasks.arguments.get(&call).cloned());
                let effects = self.has_effects(&tool);
                now.tasks.active.asking.add_ready_call(call, tool, arguments, effects, true, go);
                self.take_seat_again(now).await?;
                self.start_approved_calls(&mut now.tasks.active.asking).await
            }
            request => self.handle_approval_request(request, &mut now.tasks.active).await,
        }
    }

    /// Takes a seat, unless the turn waits for a person anyway.
    pub(super) async fn take_seat_again(&mut self, now: &mut RunningTurn<'_>) -> Result<(), Halt> {
        if !now.waiting.is_empty() || !self.seat.is_parked() {
            return Ok(());
        }
        match self.take_seat().await {
            Err(halt @ (Halt::Stop | Halt::Drain)) => {
                now.cancel(halt);
                Ok(())
            }
            other => other,
        }
    }

    /// Records the result of a call, and passes it on.
    pub(super) async fn end_task_call(
        &mut self,
        now: &mut RunningTurn<'_>,
        end: TaskCallEnd,
    ) -> Result<(), Halt> {
        let TaskCallEnd { outcome: CallOutcome { call, result, hook_texts, unattended }, tool, reply } = end;
        // Signals of a call come before its result.
        while let Ok(signal) = now.tasks.signals.try_recv() {
            self.handle_signal(signal, &mut now.tasks.active).await?;
        }
        now.tasks.active.waiting.remove(&call);
        now.tasks.active.give_up.remove(&call);
        now.tasks.active.backgrounded.remove(&call);
        now.tasks.arguments.remove(&call);
        let Some(result) = result else {
            // The client has cancelled it, or the task is being stopped.
            return match now.halt {
                Some(_) => Ok(()),
                None => self.close_task_calls(Some(call), "the agent did not wait for the result").await,
            };
        };
        self.take_seat_again(now).await?;
        let mut entries = Vec::new();
        if unattended {
            entries.push(Entry::Denied { call, tool: tool.clone() });
        }
        if let Err(ToolError::Fatal(why)) = &result {
            let failure = Failure::new(FailureKind::Tool, format!("{tool}: {why}"));
            now.cancel(Halt::Fail(failure));
        }
        let output = result.unwrap_or_else(|error| ToolOutput { is_error: true, ..error.to_string().into() });
        let mut returned = self.cap_output(call, output).await?;
        if !hook_texts.is_empty() {
            returned.output = format!("{}\n\n{}", returned.output, hook_texts.join("\n")).into();
        }
        returned.foreign = Some(tool);
        let said = TaskToolReply { text: returned.output.to_string(), is_error: returned.is_error };
        // An earlier process may have got this far, and not have passed it on.
        if self.conversation.session().open_task_calls().any(|(open, _)| open == call) {
            entries.push(Entry::Returned(Box::new(returned)));
        }
        if !entries.is_empty() {
            self.append_entries(entries).await?;
        }
        let _ = reply.send(said);
        Ok(())
    }

    /// Gives up the seat while all that the agent does is to wait for our tools.
    pub(super) async fn rest_while_waiting(&mut self, now: &mut RunningTurn<'_>) -> Result<(), Halt> {
        if now.halt.is_some() || !now.tasks.only_wait() {
            return Ok(());
        }
        self.wait_for(&now.tasks.active).await?;
        match now.tasks.active.waiting.is_empty() {
            true => self.count_time(false),
            false => self.count_time_unless_waiting_for_people(&now.tasks.active.tasks()).await?,
        }
        Ok(())
    }

    /// Records that calls have no result: one of them, or all that are open.
    pub(super) async fn close_task_calls(&mut self, only: Option<CallId>, why: &str) -> Result<(), Halt> {
        let open = self.conversation.session().open_task_calls();
        let entries: Vec<Entry> = open
            .filter(|(call, _)| only.is_none_or(|only| only == *call))
            .map(|(call, tool)| {
                let foreign = Some(tool.clone());
                let result = CallResult { is_error: true, foreign, ..CallResult::new(call, why) };
                Entry::Returned(Box::new(result))
            })
            .collect();
        if entries.is_empty() { Ok(()) } else { self.append_entries(entries).await }
    }

    /// Closes what is open in a task that ends.
    pub(super) async fn close_interrupted_task_calls(&mut self) -> Result<(), Halt> {
        self.close_task_calls(None, INTERRUPTED).await
    }
}
