//! The client's side of a connection: answers the requests and notifications that a server sends.
#![expect(
    deprecated,
    reason = "sampling and roots are on their way out of the protocol; servers still ask for them"
)]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest,
    CustomResult, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode,
    FormElicitationCapability, Implementation, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, RootsCapabilities, SamplingCapability,
    UrlElicitationCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::running_calls::{McpRunningCall, McpRunningCalls};
use super::{limits, server_requests, wire};
use crate::toolset::text::truncate;

/// The handler that `rmcp` calls.
#[derive(Clone)]
pub(super) struct McpClientHandler {
    pub(super) server: Arc<str>,
    pub(super) calls: Arc<McpRunningCalls>,
    /// Notified when the server says that its tools have changed.
    pub(super) changed: Arc<Notify>,
    pub(super) sampling: bool,
    /// One permit for each question that may be open at once.
    pub(super) question_slots: Arc<Semaphore>,
}

/// Returns the permits for the open questions of a connection.
pub(super) fn question_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limits::QUESTIONS_AT_ONCE))
}

fn refuse<T>(why: &str) -> Result<T, ErrorData> {
    Err(ErrorData::new(ErrorCode::INVALID_REQUEST, why.to_owned(), None))
}

impl McpClientHandler {
    fn call_of(&self, context: &RequestContext<RoleClient>) -> Option<Arc<McpRunningCall>> {
        let of = match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        self.calls.call_of_request(of)
    }

    fn opens_question(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        let most = limits::QUESTIONS_AT_ONCE;
        let why = || format!("{most} questions of this server are open, which is the limit");
        self.question_slots.clone().try_acquire_owned().or_else(|_| refuse(&why()))
    }
}

impl ClientHandler for McpClientHandler {
    fn get_info(&self) -> ClientConfig {
        let mut can = ClientCapabilities::default();
        can.roots = Some(RootsCapabilities::default());
        can.sampling = self.sampling.then(SamplingCapability::default);
        let form = FormElicitationCapability::new();
        can.elicitation =
            Some(ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::new()));
        let ours = Implementation::new("longhaul", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(can, ours).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(running) = self.call_of(&context) else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let _open = self.opens_question()?;
        tokio::select! {
            result = server_requests::elicit(&running, &self.server, request) => result,
            () = context.ct.cancelled() => Ok(ElicitResult::new(ElicitationAction::Cancel)),
            () = running.context.cancel.cancelled() => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.sampling {
            return refuse("this server may not ask the model");
        }
        let Some(running) = self.call_of(&context) else {
            return refuse("no call is under way, so there is no model to ask");
        };
        let _open = self.opens_question()?;
        tokio::select! {
            result = server_requests::sample(&running, params) => result,
            () = context.ct.cancelled() => refuse("cancelled"),
        }
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(server_requests::roots(self.call_of(&context).as_deref()))
    }

    /// Refuses a request that replaces an unreadable one: see [`wire::UNREADABLE`].
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == wire::UNREADABLE {
            let why = request.params.as_ref().and_then(|why| why.as_str()).unwrap_or_default();
            return refuse(&format!("the request cannot be read: {why}"));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, truncate(&request.method, 100), None))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.calls.report_progress(params).await;
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        tracing::debug!(server = %self.server, "{}", truncate(&params.data.to_string(), 500));
    }
}
