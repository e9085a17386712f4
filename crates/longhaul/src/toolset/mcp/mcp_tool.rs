//! A tool of an MCP server, as the engine calls it.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, ClientRequest,
    ErrorCode, InputRequest, InputRequiredResult, JsonObject, RequestId, ServerResult, Tool,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::{Peer, RoleClient};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::connection::ConnectionGuard;
use super::running_calls::{McpRunningCall, ServerRequestQuota};
use super::server_requests;
use super::shared_server::McpSharedServer;
use super::tool_result::to_tool_output;
use super::{error_text, wire};
use crate::model::ToolSpec;
use crate::permission::ToolIdentity;
use crate::tool::{CallContext, CallFuture, DynTool, ToolEffects, ToolError, parse_arguments};
use crate::toolset::text::truncate;

/// How many times a server may ask for input before it must answer.
const ROUNDS: usize = 10;

/// A tool of a server.
pub(super) struct McpTool {
    pub(super) shared: Arc<McpSharedServer>,
    /// The server's name for people.
    pub(super) label: Arc<str>,
    /// The tool's name for models.
    pub(super) name: String,
    pub(super) tool: Tool,
}

impl DynTool for McpTool {
    fn spec(&self) -> ToolSpec {
        let said = self.tool.description.as_deref().or(self.tool.title.as_deref());
        ToolSpec {
            name: self.name.clone(),
            description: said.unwrap_or(&self.tool.name).to_owned(),
            parameters: Value::Object((*self.tool.input_schema).clone()),
        }
    }

    /// The effects, as the server's annotations describe them.
    fn effects(&self) -> ToolEffects {
        let hints = self.tool.annotations.as_ref();
        match hints.map(|hints| (hints.read_only_hint, hints.idempotent_hint)) {
            Some((Some(true), _)) => ToolEffects::READ_ONLY,
            Some((_, Some(true))) => ToolEffects::REPEATABLE,
            _ => ToolEffects::default(),
        }
    }

    fn identity(&self) -> ToolIdentity {
        let hints = self.tool.annotations.as_ref().map(|hints| {
            let words = [
                ("read-only", hints.read_only_hint),
                ("idempotent", hints.idempotent_hint),
                ("destructive", hints.destructive_hint),
                ("open-world", hints.open_world_hint),
            ];
            let said = |(word, hint): (&str, Option<bool>)| Some(format!("{word}: {}", hint?));
            words.into_iter().filter_map(said).collect::<Vec<_>>().join(", ")
        });
        let ToolSpec { description, parameters, .. } = self.spec();
        ToolIdentity {
            toolset: self.shared.server.id(),
            server: Some(self.label.to_string()),
            hints: hints.unwrap_or_default(),
            ..ToolIdentity::new(&self.tool.name, &description, &parameters)
        }
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let arguments: JsonObject = parse_arguments(arguments)?;
            if context.cancel.is_cancelled() {
                return Err(stopped());
            }
            let connection = tokio::select! {
                connection = self.shared.connection() => connection,
                () = context.cancel.cancelled() => return Err(stopped()),
            };
            let connection = connection.map_err(|why| self.failed(format!("is not available: {why}")))?;
            self.check_unchanged()?;
            let mut params = CallToolRequestParams::new(self.tool.name.clone()).with_arguments(arguments);
            let quota = Arc::<ServerRequestQuota>::default();
            for _ in 0..ROUNDS {
                let (answer, running) = self.ask(&connection, params.clone(), context, &quota).await?;
                let wanted = match answer {
                    CallToolResponse::Complete(result) => return to_tool_output(result),
                    CallToolResponse::InputRequired(wanted) => wanted,
                    _ => {
                        return Err(
                            self.failed("has made a task of this call, which nobody asked for".to_owned())
                        );
                    }
                };
                params.request_state = wanted.request_state.clone();
                params.input_responses =
                    Some(self.input(&running, wanted).await?).filter(|given| !given.is_empty());
            }
            Err(self.failed(format!("has asked back {ROUNDS} times, and still gives no result")))
        })
    }
}

impl McpTool {
    /// Fails if the server has changed or removed the tool since the model, or the person who approved the
    /// call, saw it.
    fn check_unchanged(&self) -> Result<(), ToolError> {
        let same = |now: &Tool| {
            let description =
                |tool: &Tool| tool.description.clone().or_else(|| tool.title.clone().map(Into::into));
            now.name == self.tool.name
                && description(now) == description(&self.tool)
                && now.input_schema == self.tool.input_schema
                && now.annotations == self.tool.annotations
        };
        match self.shared.known_listing() {
            Some(listed) if !listed.tools.iter().any(same) => Err(ToolError::Retry(format!(
                "The MCP server '{}' has changed or removed its tool '{}' meanwhile: the call was not made. Look at your \
                 tools again before you make another.",
                self.label, self.name
            ))),
            _ => Ok(()),
        }
    }

    fn failed(&self, what: String) -> ToolError {
        ToolError::Failed(format!("the MCP server '{}' {what}", self.shared.label))
    }

    /// Sends one request and waits for the result.
    async fn ask(
        &self,
        connection: &ConnectionGuard,
        params: CallToolRequestParams,
        context: &CallContext,
        quota: &Arc<ServerRequestQuota>,
    ) -> Result<(CallToolResponse, Arc<McpRunningCall>), ToolError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = connection.peer.send_request_with_option(request, PeerRequestOptions::no_options());
        let mut handle = tokio::select! {
            biased;
            sent = sent => match sent {
                Ok(handle) => handle,
                Err(error) => return Err(self.explain_error(connection, error).await),
            },
            () = context.cancel.cancelled() => return Err(stopped()),
            how = connection.until_ended() => return Err(self.connection_ended_error(how)),
        };
        let entered =
            connection.calls.register(handle.id.clone(), handle.progress_token.clone(), context, quota);
        let mut abandoned = CancelRequestOnDrop {
            peer: &connection.peer,
            id: Some(handle.id.clone()),
            tasks: &self.shared.tasks,
        };
        let longest = self.shared.options.inactivity_timeout;
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer,
            () = context.cancel.cancelled() => return Err(stopped()),
            how = connection.until_ended() => {
                abandoned.id = None;
                return Err(self.connection_ended_error(how));
            }
            () = entered.running.until_silent(longest) => {
                return Err(self.failed(format!("gave no sign of life for {longest:?}: the call was given up")));
            }
        };
        abandoned.id = None;
        let answer = match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
            Ok(ServerResult::CallToolResult(result)) => CallToolResponse::Complete(result),
            Ok(ServerResult::InputRequiredResult(wanted)) => CallToolResponse::InputRequired(wanted),
            Ok(ServerResult::CreateTaskResult(task)) => CallToolResponse::Task(task),
            Ok(_) => {
                return Err(self.failed("answered with something that is no result of a tool".to_owned()));
            }
            Err(error) => return Err(self.explain_error(connection, error).await),
        };
        Ok((answer, entered.running.clone()))
    }

    async fn explain_error(&self, connection: &ConnectionGuard, error: ServiceError) -> ToolError {
        let said = |text: &str, most| truncate(&self.shared.server.scrub(text.to_owned()), most);
        match error {
            ServiceError::McpError(error) if wire::is_unreadable(&error) => {
                let next = match self.effects().repeatable {
                    true => "",
                    false => " The call was made: find out what it has done before you make it again.",
                };
                self.failed(format!(
                    "sent an answer that cannot be read: {}.{next}",
                    said(&error.message, 300)
                ))
            }
            // The model can correct its arguments.
            ServiceError::McpError(error) if error.code == ErrorCode::INVALID_PARAMS => {
                ToolError::Retry(said(&error.message, 2000))
            }
            ServiceError::McpError(error) => self.failed(format!(
                "refused the call: {} (error {})",
                said(&error.message, 2000),
                error.code.0
            )),
            ServiceError::TransportClosed => {
                match timeout(Duration::from_secs(2), connection.until_ended()).await {
                    Ok(how) => self.connection_ended_error(how),
                    Err(_) => self.connection_ended_error("died during the call: it closed the connection"),
                }
            }
            error => {
                connection.retire();
                self.failed(format!(
                    "could not be asked: {}",
                    said(&error_text::service_error_text(&error), 500)
                ))
            }
        }
    }

    fn connection_ended_error(&self, how: &str) -> ToolError {
        let next = match self.effects().repeatable {
            true => "It is started again when it is needed; this tool may be called again as it was.",
            false => {
                "It is started again when it is needed. Whether this call had an effect is unknown: find out before \
                 you make it again."
            }
        };
        self.failed(format!("{how}. {next}"))
    }

    /// Collects the input that the server requests before it continues.
    async fn input(
        &self,
        running: &Arc<McpRunningCall>,
        wanted: InputRequiredResult,
    ) -> Result<std::collections::BTreeMap<String, Value>, ToolError> {
        let mut given = std::collections::BTreeMap::new();
        let wanted = wanted.input_requests.unwrap_or_default();
        if wanted.is_empty() {
            // The server only wants the request to be repeated.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for (name, request) in wanted {
            let answering = async {
                match request {
                    InputRequest::Elicitation(asked) => {
                        server_requests::elicit(running, &self.shared.label, asked.params)
                            .await
                            .map(serde_json::to_value)
                    }
                    InputRequest::ListRoots(_) => {
                        Ok(serde_json::to_value(server_requests::roots(Some(running))))
                    }
                    InputRequest::CreateMessage(asked) if self.shared.server.sampling => {
                        server_requests::sample(running, asked.params).await.map(serde_json::to_value)
                    }
                    _ => Err(rmcp::ErrorData::new(ErrorCode::INVALID_REQUEST, "it may not ask that", None)),
                }
            };
            let answer = tokio::select! {
                answer = answering => answer,
                () = running.context.cancel.cancelled() => return Err(stopped()),
            };
            let answer = answer.map_err(|error| {
                self.failed(format!("asked something that was refused: {}", error.message))
            })?;
            given.insert(name, answer.unwrap_or_default());
        }
        Ok(given)
    }
}

fn stopped() -> ToolError {
    ToolError::Failed("[the task is being stopped: the call was cancelled]".to_owned())
}

/// When dropped with an id, cancels that request at the server: no one waits for it any more.
struct CancelRequestOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
    tasks: &'a TaskTracker,
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Without a runtime nothing can be sent; but then no request was sent either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        let tell = async move {
            let reason = Some("the caller has given the call up".to_owned());
            let _ = timeout(
                Duration::from_secs(5),
                peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)),
            )
            .await;
        };
        self.tasks.spawn_on(tell, &runtime);
    }
}
