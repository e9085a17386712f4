//! What the tools do.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul::dispatch::WaitMode;
use longhaul::id::QuestionId;
use longhaul::snapshot::Snapshot;
use longhaul::toolset::client_tools::{
    ClientCall, PendingQuestion, WaitSummary, list_text, send_text, started_text, still_running_text,
    stop_text, view_text,
};
use longhaul::{Budget, Order, TaskId};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, InputRequiredResult, InputResponses,
};
use rmcp::service::RequestContext;
use serde::{Deserialize, Serialize};

use super::McpServer;
use super::bounded_wait::{BoundedWait, WaitEnd};
use super::call_key::call_key;
use super::questions::{input_request, question_key};
use super::task_handle::{task_handle, task_result, with_task_id};
use crate::problem::ProblemDocument;

/// What a client gives back when it repeats a call with a person's answers. It is not secret, and nothing in it
/// is trusted: the task is looked up like any other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RetryState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(default)]
    shown: BTreeSet<String>,
}

/// A repeated call.
pub(super) struct Retry {
    pub(super) state: RetryState,
    pub(super) responses: InputResponses,
}

impl McpServer {
    pub(super) async fn answer_call(
        &self,
        tool: &str,
        call: ClientCall,
        retry: Option<Retry>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ProblemDocument> {
        let tasks = &self.tasks;
        Ok(match call {
            ClientCall::Run(order) => self.run(tool, order, context).await?,
            ClientCall::Ask(order, wait) => self.ask(tool, order, wait, retry, context).await?,
            ClientCall::List => text_result(list_text(&tasks.roots().await?, tasks.now())).into(),
            ClientCall::View(typed, part) => {
                let state = tasks.find(&typed).await?;
                tasks.keep_running(&state).await;
                let snapshot = tasks.snapshot(state.id).await?;
                let questions =
                    if state.status.is_final() { Vec::new() } else { tasks.questions(&state).await? };
                text_result(view_text(&snapshot, part, &questions, tasks.now())).into()
            }
            ClientCall::Stop(typed) => {
                let before = tasks.find(&typed).await?;
                if !before.status.is_final() {
                    tasks.longhaul().stop(before.id).await?;
                }
                text_result(stop_text(&before)).into()
            }
            ClientCall::Wait { tasks, mode, timeout } => {
                self.wait(&tasks, mode, timeout, retry, context).await?
            }
            ClientCall::Send { task, message } => {
                let state = tasks.find(&task).await?;
                let sent = tasks.backend().send(state.id, &message, Budget::default()).await?;
                with_task_id(text_result(send_text(&task, &sent)), sent.to).into()
            }
            ClientCall::Answer { task, question, answer } => {
                let state = tasks.find(&task).await?;
                let question = match question.map(|typed| typed.parse::<QuestionId>()).transpose() {
                    Ok(question) => question,
                    Err(error) => return Err(ProblemDocument::invalid(error.to_string())),
                };
                let receipt = tasks.backend().answer(state.id, question, &answer).await?;
                let mut text = format!("Question {} of {} is answered.", receipt.question, state.id);
                if let Some(granted) = receipt.granted {
                    text.push_str(&format!(" From now on its tree may call {granted} without asking."));
                }
                text_result(text).into()
            }
            call => return Err(ProblemDocument::invalid(format!("the call {call:?} is not supported"))),
        })
    }

    async fn run(
        &self,
        tool: &str,
        order: Order,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ProblemDocument> {
        let key = call_key(&context.meta, tool, &order);
        let started = self.tasks.start(order, key).await?;
        let state = self.tasks.longhaul().state(started.task).await?;
        if declares_tasks(context) {
            return Ok(CreateTaskResult::new(task_handle(&state, 0, self.tasks.now())).into());
        }
        Ok(with_task_id(text_result(started_text(&state, started.created)), state.id).into())
    }

    async fn ask(
        &self,
        tool: &str,
        order: Order,
        wait: Duration,
        retry: Option<Retry>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ProblemDocument> {
        let tasks = &self.tasks;
        let asked = retry.as_ref().and_then(|retry| retry.state.task.clone());
        let id = match asked {
            Some(typed) => tasks.find(&typed).await?.id,
            None if declares_tasks(context) => return self.run(tool, order, context).await,
            None => {
                let key = call_key(&context.meta, tool, &order);
                tasks.start(order, key).await?.task
            }
        };
        let shown = self.begin_retry(&[id], retry).await?;
        let (end, shown) = self.wait_for(vec![id], WaitMode::All, wait, shown, context).await?;
        let snapshot = tasks.snapshot(id).await?;
        Ok(match end {
            WaitEnd::Over => task_result(&snapshot).into(),
            WaitEnd::Ask(questions) => ask_client(&questions, Some(id), shown),
            WaitEnd::TimedOut | WaitEnd::NeedsPerson => {
                tasks.keep_running(&snapshot.state).await;
                let questions = tasks.questions(&snapshot.state).await?;
                let text = still_running_text(&snapshot.state, &questions, tasks.now());
                with_task_id(text_result(text), id).into()
            }
        })
    }

    async fn wait(
        &self,
        typed: &[String],
        mode: WaitMode,
        timeout: Duration,
        retry: Option<Retry>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ProblemDocument> {
        let mut found: Vec<Result<TaskId, (String, String)>> = Vec::new();
        let mut ids: Vec<TaskId> = Vec::new();
        for typed in typed {
            match self.tasks.find(typed).await {
                Ok(state) if ids.contains(&state.id) => {}
                Ok(state) => {
                    self.tasks.keep_running(&state).await;
                    ids.push(state.id);
                    found.push(Ok(state.id));
                }
                Err(problem) if problem.status == 404 => {
                    found.push(Err((typed.clone(), problem_text(&problem))));
                }
                Err(problem) => return Err(problem),
            }
        }
        let shown = self.begin_retry(&ids, retry).await?;
        let (end, shown) = self.wait_for(ids, mode, timeout, shown, context).await?;
        let mut summary = WaitSummary::default();
        summary.timed_out = matches!(end, WaitEnd::TimedOut);
        if let WaitEnd::Ask(questions) = end {
            return Ok(ask_client(&questions, None, shown));
        }
        let mut roots = BTreeSet::new();
        for task in found {
            match task {
                Err(lost) => summary.tasks.push(Err(lost)),
                Ok(id) => {
                    let snapshot: Snapshot = self.tasks.snapshot(id).await?;
                    if !snapshot.state.status.is_final() && roots.insert(snapshot.state.root) {
                        summary.questions.extend(self.tasks.questions(&snapshot.state).await?);
                    }
                    summary.tasks.push(Ok(Box::new(snapshot)));
                }
            }
        }
        Ok(text_result(summary.text()).into())
    }

    async fn wait_for(
        &self,
        ids: Vec<TaskId>,
        mode: WaitMode,
        timeout: Duration,
        shown: BTreeSet<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(WaitEnd, BTreeSet<String>), ProblemDocument> {
        // Nothing to wait for: no id was found.
        if ids.is_empty() {
            return Ok((WaitEnd::Over, shown));
        }
        let mut wait = BoundedWait { tasks: &self.tasks, context, ids, mode, timeout, shown };
        let end = wait.run().await?;
        Ok((end, wait.shown))
    }

    /// Passes on the answers that came with a repeated call. Returns the questions that were shown before.
    async fn begin_retry(
        &self,
        ids: &[TaskId],
        retry: Option<Retry>,
    ) -> Result<BTreeSet<String>, ProblemDocument> {
        let Some(Retry { state, responses }) = retry else { return Ok(BTreeSet::new()) };
        self.pass_on_replies(ids, &responses).await?;
        Ok(state.shown)
    }

    /// Passes on the replies to the questions of these tasks. Replies to other questions, and to those that were
    /// answered meanwhile, are ignored.
    pub(super) async fn pass_on_replies(
        &self,
        ids: &[TaskId],
        replies: &InputResponses,
    ) -> Result<(), ProblemDocument> {
        if replies.is_empty() {
            return Ok(());
        }
        for id in ids {
            let state = self.tasks.longhaul().state(*id).await?;
            for question in self.tasks.questions(&state).await? {
                if let Some(reply) = replies.get(&question_key(&question)) {
                    self.tasks.reply(&question, reply).await?;
                }
            }
        }
        Ok(())
    }
}

/// Whether this request declares that the client understands task handles.
fn declares_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Has the client ask these questions and repeat its call.
fn ask_client(
    questions: &[PendingQuestion],
    task: Option<TaskId>,
    mut shown: BTreeSet<String>,
) -> CallToolResponse {
    shown.extend(questions.iter().map(question_key));
    let requests =
        questions.iter().map(|question| (question_key(question), input_request(question))).collect();
    let state = RetryState { task: task.map(|id| id.to_string()), shown };
    InputRequiredResult::new(Some(requests), serde_json::to_string(&state).ok()).into()
}

fn text_result(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

pub(super) fn error_result(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

pub(super) fn problem_text(problem: &ProblemDocument) -> String {
    match &problem.hint {
        Some(hint) => format!("{}. {hint}", problem.detail),
        None => problem.detail.clone(),
    }
}
