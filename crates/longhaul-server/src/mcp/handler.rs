//! The requests of MCP clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul::dispatch::WaitMode;
use longhaul::id::QuestionId;
use longhaul::snapshot::Snapshot;
use longhaul::toolset::client_tools::{
    ClientCall, ClientCallError, PendingQuestion, WaitSummary, client_tools, list_text, parse_client_call,
    send_text, started_text, still_running_text, stop_text, view_text,
};
use longhaul::{Budget, Order, TaskId};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CreateTaskResult, GetTaskParams, GetTaskResult, Implementation, InputRequiredResult, InputResponses,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::McpServer;
use super::bounded_wait::{BoundedWait, WaitEnd};
use super::call_key::call_key;
use super::questions::{input_request, question_key};
use super::resources;
use super::task_handle::{detailed_task, task_handle, task_result, with_task_id};
use crate::problem::Problem;

/// The longest text of the server's instructions, in bytes. Clients cut longer ones.
const INSTRUCTIONS_LIMIT: usize = 2000;

/// What a client gives back when it repeats a call with a person's answers. It is not secret, and nothing in it
/// is trusted: the task is looked up like any other.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RetryState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(default)]
    shown: BTreeSet<String>,
}

/// A repeated call.
struct Retry {
    state: RetryState,
    responses: InputResponses,
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(self.instructions());
        info.server_info = Implementation::new("longhaul", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = client_tools(&self.tasks.agents()).into_iter().map(|tool| {
            let schema =
                if let Value::Object(schema) = tool.spec.parameters { schema } else { Default::default() };
            let stops = tool.spec.name == "stop_background_agent";
            let hints = ToolAnnotations::new()
                .read_only(tool.read_only)
                .destructive(stops)
                .open_world(!tool.read_only);
            Tool::new(tool.spec.name, tool.spec.description, Arc::new(schema)).with_annotations(hints)
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = match parse_client_call(&request.name, &arguments, &self.tasks.agents()) {
            Ok(call) => call,
            Err(error @ ClientCallError::UnknownTool(_)) => {
                return Err(ErrorData::invalid_params(error.to_string(), None));
            }
            Err(error) => return Ok(error_result(error.to_string()).into()),
        };
        let retry = match &request.request_state {
            None => None,
            Some(state) => match serde_json::from_str(state) {
                Ok(state) => Some(Retry { state, responses: request.input_responses.unwrap_or_default() }),
                Err(_) => {
                    return Err(ErrorData::invalid_params("`requestState` is not from this server", None));
                }
            },
        };
        match self.answer_call(&request.name, call, retry, &context).await {
            Ok(response) => Ok(response),
            Err(problem) => Ok(error_result(problem_text(&problem)).into()),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.tasks.resources().await.map_err(protocol_error)?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match self.tasks.read_resource(&request.uri).await.map_err(protocol_error)? {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => {
                let data = json!({"uri": request.uri});
                Err(ErrorData::resource_not_found(
                    format!("there is no resource {}", request.uri),
                    Some(data),
                ))
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let state = self.tasks.find(&request.task_id).await.map_err(protocol_error)?;
        self.tasks.keep_running(&state).await;
        let task = async {
            let snapshot = self.tasks.snapshot(state.id).await?;
            let (questions, below) = match snapshot.state.status.is_final() {
                true => (Vec::new(), 0),
                false => {
                    (self.tasks.questions(&state).await?, self.tasks.others_in_tree(&state).await?.len())
                }
            };
            Ok(detailed_task(&snapshot, &questions, below, self.tasks.now()))
        };
        Ok(GetTaskResult::new(task.await.map_err(protocol_error)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let state = self.tasks.find(&request.task_id).await.map_err(protocol_error)?;
        self.pass_on_replies(&[state.id], &request.input_responses).await.map_err(protocol_error)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let state = self.tasks.find(&request.task_id).await.map_err(protocol_error)?;
        if !state.status.is_final() {
            self.tasks.longhaul().stop(state.id).await.map_err(|error| protocol_error(error.into()))?;
        }
        Ok(())
    }
}

impl McpServer {
    fn instructions(&self) -> String {
        let agents: Vec<String> = self.tasks.agents().iter().map(|agent| agent.name.to_string()).collect();
        let mut text = format!(
            "Longhaul runs durable background agents: {}. A task goes on when this client is closed, and its id stays valid.\n\
             - One thing, soon: ask_<agent>. Several things at once, or long ones: run_background_agent for each, all in one \
             turn.\n\
             - If your client shows a call as a background task, do not wait or poll: end your turn. The result comes by \
             itself.\n\
             - Otherwise call wait_background_agents once with all ids. If it times out, call it again, or tell the user the \
             ids and end your turn. A call that comes back with an id and no answer has not failed.\n\
             - Never start a task again because it takes long. After a restart, list_background_agents finds the tasks of \
             earlier sessions.\n\
             - Approvals and questions are for the user: show them, then call answer with what the user says.\n\
             - A task that failed or was cancelled says why, and what it had by then. Never present that as a success.\n\
             - Long results are resources: longhaul://task/ID/result. What a task did: longhaul://task/ID/transcript.",
            agents.join(", ")
        );
        if text.len() > INSTRUCTIONS_LIMIT {
            text.truncate(text.floor_char_boundary(INSTRUCTIONS_LIMIT));
        }
        text
    }

    async fn answer_call(
        &self,
        tool: &str,
        call: ClientCall,
        retry: Option<Retry>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Problem> {
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
                    Err(error) => return Err(Problem::invalid(error.to_string())),
                };
                let receipt = tasks.backend().answer(state.id, question, &answer).await?;
                let mut text = format!("Question {} of {} is answered.", receipt.question, state.id);
                if let Some(granted) = receipt.granted {
                    text.push_str(&format!(" From now on its tree may call {granted} without asking."));
                }
                text_result(text).into()
            }
            call => return Err(Problem::invalid(format!("the call {call:?} is not supported"))),
        })
    }

    async fn run(
        &self,
        tool: &str,
        order: Order,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Problem> {
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
    ) -> Result<CallToolResponse, Problem> {
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
    ) -> Result<CallToolResponse, Problem> {
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
    ) -> Result<(WaitEnd, BTreeSet<String>), Problem> {
        // Nothing to wait for: no id was found.
        if ids.is_empty() {
            return Ok((WaitEnd::Over, shown));
        }
        let mut wait = BoundedWait { tasks: &self.tasks, context, ids, mode, timeout, shown };
        let end = wait.run().await?;
        Ok((end, wait.shown))
    }

    /// Passes on the answers that came with a repeated call. Returns the questions that were shown before.
    async fn begin_retry(&self, ids: &[TaskId], retry: Option<Retry>) -> Result<BTreeSet<String>, Problem> {
        let Some(Retry { state, responses }) = retry else { return Ok(BTreeSet::new()) };
        self.pass_on_replies(ids, &responses).await?;
        Ok(state.shown)
    }

    /// Passes on the replies to the questions of these tasks. Replies to other questions, and to those that were
    /// answered meanwhile, are ignored.
    async fn pass_on_replies(&self, ids: &[TaskId], replies: &InputResponses) -> Result<(), Problem> {
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

fn error_result(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn problem_text(problem: &Problem) -> String {
    match &problem.hint {
        Some(hint) => format!("{}. {hint}", problem.detail),
        None => problem.detail.clone(),
    }
}

/// The problem as an error of the protocol.
fn protocol_error(problem: Problem) -> ErrorData {
    let text = problem_text(&problem);
    match problem.status {
        400..500 => ErrorData::invalid_params(text, Some(json!({"code": problem.code}))),
        _ => ErrorData::internal_error(text, None),
    }
}
