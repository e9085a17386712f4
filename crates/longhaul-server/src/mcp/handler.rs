//! The requests of MCP clients.

use std::sync::Arc;

use longhaul::toolset::client_tools::{ClientCallError, client_tools, parse_client_call};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Role, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, ToolAnnotations,
    UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use super::McpServer;
use super::calls::{Retry, error_result, problem_text};
use super::resources;
use super::task_handle::detailed_task;
use crate::problem::ProblemDocument;

/// The longest text of the server's instructions, in bytes. Clients cut longer ones.
const INSTRUCTIONS_LIMIT: usize = 2000;

/// How many agents the instructions name. The tools name all of them.
const AGENTS_NAMED: usize = 12;

/// The prompt that reports on all tasks.
const REPORT_PROMPT: &str = "tasks";

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities).with_instructions(self.instructions());
        info.server_info = Implementation::new("longhaul", env!("CARGO_PKG_VERSION"));
        info
    }

    /// Clients may listen, but there is nothing to tell: tools do not change, and tasks are polled.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::default())
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

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let what = "Report on all background tasks: results, what still runs, what waits for you";
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new(REPORT_PROMPT, Some(what), None)]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != REPORT_PROMPT {
            return Err(ErrorData::invalid_params(format!("there is no prompt '{}'", request.name), None));
        }
        let text = "Call list_background_agents. Then call wait_background_agents once, with the ids of all tasks that you have not \
                    told me the result of yet and a timeout of 1. Tell me in a few lines what each task found, which ones still run, \
                    which ones failed and why, and ask me the questions in needs_you.";
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }

    /// There are no completions, and what is not declared is not served.
    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
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
        let agents = self.tasks.agents();
        let names: Vec<&str> = agents.iter().take(AGENTS_NAMED).map(|agent| agent.name.as_str()).collect();
        let more = if agents.len() > names.len() { ", and others" } else { "" };
        let mut text = format!(
            "Longhaul runs durable background agents: {}{more}. A task goes on when this client is closed, and its id stays valid.\n\
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
            names.join(", ")
        );
        if text.len() > INSTRUCTIONS_LIMIT {
            text.truncate(text.floor_char_boundary(INSTRUCTIONS_LIMIT));
        }
        text
    }
}

/// The problem as an error of the protocol.
fn protocol_error(problem: ProblemDocument) -> ErrorData {
    let text = problem_text(&problem);
    match problem.status {
        400..500 => ErrorData::invalid_params(text, Some(json!({"code": problem.code}))),
        _ => ErrorData::internal_error(text, None),
    }
}
