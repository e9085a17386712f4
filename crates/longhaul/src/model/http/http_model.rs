//! A model behind HTTP.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use tokio::time::timeout;

use super::rate_limit_gate::{GateStep, GateTicket, RateLimitGate, RequestPermit};
use super::response_reader::{ReadFailure, ResponseReader, SilenceLimits};
use super::transport::HttpResponse;
use super::{Endpoint, HttpClient, retry_after, unexpected_body};
use crate::id::TaskId;
use crate::message::{Block, Reply, StopReason, Usage};
use crate::model::prices::Price;
use crate::model::settings::ModelSettings;
use crate::model::wire::tool_names::resolve_tool_name;
use crate::model::wire::{TextCalls, WireProtocol, parse_text_calls};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyChunk, ReplyStream, StartTicket};

/// The maximum number of bytes to read of an error response.
const ERROR_BODY: usize = 64 * 1024;
/// How long to wait for more of an error response.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(2);

/// A model behind HTTP: a wire protocol at an endpoint.
pub struct HttpModel {
    name: String,
    wire: Box<dyn WireProtocol>,
    settings: ModelSettings,
    endpoint: Endpoint,
    url: reqwest::Url,
    http: HttpClient,
    gate: std::sync::Arc<RateLimitGate>,
    pub(super) price: Option<Price>,
    window: Option<u64>,
    /// Small models sometimes write tool calls as text. `ModelSettings::reads_text_calls` overrides this.
    pub(super) reads_text_calls: bool,
    /// Whether the provider reports the cost of each reply.
    pub(super) reports_cost: bool,
}

impl HttpModel {
    pub(super) fn new(
        http: HttpClient,
        name: &str,
        wire: Box<dyn WireProtocol>,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> HttpModel {
        let gate = http.gate(&endpoint);
        let price = http.options().prices.price_of(name);
        let url = endpoint.url(&wire.request_path(&settings));
        // A local server starts with the context window that fits its memory; the team file says how large it
        // is.
        let window =
            settings.context_size.or_else(|| crate::model::context_windows::context_window(&settings.model));
        HttpModel {
            name: name.to_owned(),
            wire,
            settings,
            endpoint,
            url,
            http,
            gate,
            price,
            window,
            reads_text_calls: false,
            reports_cost: false,
        }
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> String {
        self.wire.request_path(&self.settings)
    }

    #[cfg(test)]
    pub(super) fn url(&self) -> String {
        self.url.to_string()
    }

    #[cfg(test)]
    pub(super) fn options(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.settings.provider_opts
    }

    #[cfg(test)]
    pub(super) fn header(&self, name: &str) -> Option<String> {
        Some(self.endpoint.headers().get(name)?.to_str().ok()?.to_owned())
    }

    fn first_byte_timeout(&self) -> Duration {
        self.endpoint.first_byte_timeout.unwrap_or(self.http.options().first_byte_timeout)
    }

    /// Builds an error with all secrets removed.
    fn error(&self, kind: ModelErrorKind, retry_after: Option<Duration>) -> ModelError {
        let clean = |text| self.endpoint.redact(text);
        let kind = match kind {
            ModelErrorKind::RateLimited(text) => ModelErrorKind::RateLimited(clean(text)),
            ModelErrorKind::Server { status, message } => {
                ModelErrorKind::Server { status, message: clean(message) }
            }
            ModelErrorKind::Unreachable(text) => ModelErrorKind::Unreachable(clean(text)),
            ModelErrorKind::Truncated(text) => ModelErrorKind::Truncated(clean(text)),
            ModelErrorKind::TooLarge(text) => ModelErrorKind::TooLarge(clean(text)),
            ModelErrorKind::TimedOut(time) => ModelErrorKind::TimedOut(time),
            ModelErrorKind::Rejected(text) => ModelErrorKind::Rejected(clean(text)),
        };
        // Whatever failed here, do not invite a retry while the gate is closed.
        let retry_after = retry_after.max(self.gate.pause_remaining().filter(|_| kind.is_transient()));
        ModelError { model: self.name.clone(), kind, retry_after }
    }

    /// Sends the request and checks the status of the response.
    async fn send(&self, request: &ModelRequest<'_>, slot: usize) -> Result<HttpResponse, ModelError> {
        let body = self
            .wire
            .request_body(request, &self.settings, request.wire_cache)
            .map_err(|why| self.error(ModelErrorKind::Rejected(why.to_string()), None))?;
        let sent = self.http.transport().send(&self.endpoint, self.url.clone(), body, slot);
        let silent = ModelErrorKind::TimedOut(self.first_byte_timeout());
        let answer = match timeout(self.first_byte_timeout(), sent).await {
            Ok(answer) => answer.map_err(|kind| self.error(kind, None))?,
            Err(_) => return Err(self.error(silent, None)),
        };
        if (200..300).contains(&answer.status) {
            if let Some(what) = unexpected_body::detect_by_headers(&answer.headers) {
                return Err(self.not_a_reply_error(what));
            }
            return Ok(answer);
        }
        Err(self.error_from_response(answer).await)
    }

    /// The error for a response with a good status that is not a model's reply.
    fn not_a_reply_error(&self, what: &str) -> ModelError {
        let why = format!(
            "{} answered with {what}, not with a model's reply: check base_url, and that no proxy or portal asks for a \
             login?",
            self.endpoint.host()
        );
        self.error(ModelErrorKind::Rejected(why), None)
    }

    async fn error_from_response(&self, mut answer: HttpResponse) -> ModelError {
        let mut said = Vec::new();
        while let Ok(Ok(Some(bytes))) = timeout(LAST_BYTES_TIMEOUT, answer.body.next_chunk()).await {
            said.extend_from_slice(&bytes);
            if said.len() > ERROR_BODY {
                break;
            }
        }
        let kind = self.wire.error_from_response(answer.status, &said);
        let delay = match kind.is_transient() {
            true => retry_after::delay_from_headers(&answer.headers, answer.status == 429, Timestamp::now())
                .or_else(|| self.wire.retry_after(&said)),
            false => None,
        };
        if let Some(delay) = delay {
            self.gate.pause_for(delay);
        }
        self.error(kind, delay)
    }

    fn finish_reply(&self, mut reply: Reply, request: &ModelRequest<'_>) -> Reply {
        if self.settings.reads_text_calls.unwrap_or(self.reads_text_calls)
            // A request for structured output gets JSON: that is never a tool call.
            && self.settings.structured_output.is_none()
            && request.output.is_none()
            && reply.stop == StopReason::End
            && reply.calls().next().is_none()
        {
            read_text_calls(&mut reply, request);
        }
        for block in &mut reply.blocks {
            if let Block::Call(call) = block
                && let Some(name) =
                    resolve_tool_name(&call.tool, request.tools).filter(|name| *name != call.tool)
            {
                call.tool = name.to_owned();
            }
        }
        if reply.model.is_empty() {
            reply.model.clone_from(&self.settings.model);
        }
        // An alias has the price of the model that answered.
        let maker = self.name.split('/').next().unwrap_or_default();
        let price =
            self.price.or_else(|| self.http.options().prices.price_of(&format!("{maker}/{}", reply.model)));
        // Missing usage does not mean that nothing was used.
        let used = reply.usage != Usage::default();
        reply.cost =
            reply.cost.or_else(|| Some(price.filter(|price| used || price.is_free())?.cost_of(&reply.usage)));
        reply
    }
}

impl Model for HttpModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let mut hasher = DefaultHasher::new();
        (request.task, request.turn, request.retry).hash(&mut hasher);
        // Two waves instead of an even spread: a provider that is not ready yet rejects fewer requests this
        // way.
        let jitter = (hasher.finish() % 2) as f64 / 2.0;
        let ticket = self.gate.enqueue(request.root, request.depth, request.retry > 0, jitter);
        let reply_stream = HttpReplyStream {
            model: self,
            request,
            ready: VecDeque::new(),
            failed: None,
            stage: RequestStage::AtGate { ticket, delayed: false },
        };
        // Boxed, because `unfold` moves its state for every item.
        stream::unfold(Box::new(reply_stream), async |mut reply_stream| {
            reply_stream.next().await.map(|item| (item, reply_stream))
        })
        .boxed()
    }

    fn start_ticket(&self, root: TaskId, depth: u32) -> Option<Box<dyn StartTicket>> {
        Some(Box::new(self.gate.enqueue_start(root, depth)))
    }

    fn context_window(&self) -> Option<u64> {
        self.window
    }

    fn unpriced_model(&self) -> Option<String> {
        (self.price.is_none() && !self.reports_cost).then(|| self.name.clone())
    }
}

impl std::fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpModel")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// One request and its streamed reply.
struct HttpReplyStream<'a> {
    model: &'a HttpModel,
    request: ModelRequest<'a>,
    ready: VecDeque<ReplyChunk>,
    failed: Option<ModelError>,
    stage: RequestStage,
}

enum RequestStage {
    AtGate { ticket: GateTicket, delayed: bool },
    Sending(RequestPermit),
    Reading(ResponseReader, RequestPermit),
    Done,
}

impl HttpReplyStream<'_> {
    async fn next(&mut self) -> Option<Result<ReplyChunk, ModelError>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(Ok(chunk));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return None,
                // Report the error after the chunks that came before it. The connection is already closed.
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Advances by one step. Returns `false` at the end.
    async fn step(&mut self) -> Result<bool, ModelError> {
        let model = self.model;
        // Handle reading in place: this stage runs more often than the others.
        if let RequestStage::Reading(reader, permit) = &mut self.stage {
            let Some(end) = poll_fn(|context| reader.poll_next(context, &mut self.ready)).await else {
                return Ok(true);
            };
            let error = match end {
                Ok(reply) => {
                    self.stage = RequestStage::Done;
                    let reply = model.finish_reply(reply, &self.request);
                    self.ready.push_back(ReplyChunk::Done(Box::new(reply)));
                    return Ok(true);
                }
                Err(ReadFailure::Failed(kind)) => model.error(kind, None),
                Err(ReadFailure::NotAReply(what)) => model.not_a_reply_error(what),
                Err(ReadFailure::Panicked(panic)) => std::panic::resume_unwind(panic),
            };
            permit.on_failure(&error.kind);
            self.stage = RequestStage::Done;
            return Err(error);
        }
        match std::mem::replace(&mut self.stage, RequestStage::Done) {
            RequestStage::AtGate { mut ticket, delayed } => match ticket.next_step().await {
                GateStep::Wait(delay) => {
                    self.ready.push_back(ReplyChunk::Delayed(delay));
                    self.stage = RequestStage::AtGate { ticket, delayed: true };
                }
                GateStep::Proceed(permit) => {
                    self.ready.extend(delayed.then_some(ReplyChunk::Resumed));
                    self.stage = RequestStage::Sending(permit);
                }
            },
            RequestStage::Sending(permit) => {
                // Boxed, to keep the future small while it waits at the gate.
                let sent = Box::pin(model.send(&self.request, permit.slot())).await;
                let body = sent.inspect_err(|error| permit.on_no_answer(&error.kind))?.body;
                permit.on_answer();
                let limits = SilenceLimits {
                    first_byte: model.first_byte_timeout(),
                    idle: model.http.options().idle_timeout,
                };
                let delay = self.request.text_delay.cloned();
                let reader = ResponseReader::start(body, model.wire.parser(), limits, delay);
                self.stage = RequestStage::Reading(reader, permit);
            }
            RequestStage::Reading(..) => {}
            RequestStage::Done => return Ok(false),
        }
        Ok(true)
    }
}

/// Replaces tool calls that the model wrote as text with real calls.
fn read_text_calls(reply: &mut Reply, request: &ModelRequest<'_>) {
    let text = reply.text();
    let Some(TextCalls { text: said, calls }) = parse_text_calls(&text, request.tools) else { return };
    reply.blocks.retain(|block| !matches!(block, Block::Text(_)));
    if !said.trim().is_empty() {
        reply.blocks.push(Block::Text(said.to_owned()));
    }
    reply.blocks.extend(calls.into_iter().map(Block::Call));
    reply.stop = StopReason::Calls;
}
