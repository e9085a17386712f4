//! The streamable HTTP client, with bodies and events of limited length. Every request receives an answer,
//! and errors contain no URL, because it may contain a secret.
//!
//! The client that comes with `rmcp` reads bodies of any length, skips events that it cannot read, and then
//! waits for ever. A server that no longer knows a session should answer 404. Some answer 400 with an error
//! that names no request; that client passes it on without a request id, and waits for ever too.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::connection_fault::ConnectionFault;
use super::limits;
use super::wire::{self, Incoming};
use crate::toolset::http_client::describe_error;
use crate::toolset::text::truncate;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";

/// An HTTP error, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct McpHttpError(String);

impl From<reqwest::Error> for McpHttpError {
    fn from(error: reqwest::Error) -> Self {
        McpHttpError(describe_error(error))
    }
}

type McpHttpFailure = StreamableHttpError<McpHttpError>;
type McpHttpHeaders = HashMap<HeaderName, HeaderValue>;
type SseEventStream = BoxStream<'static, Result<Sse, sse_stream::Error>>;

/// The HTTP client of one connection.
#[derive(Clone)]
pub(super) struct McpHttpClient {
    pub(super) client: Client,
    pub(super) fault: ConnectionFault,
}

fn client_error(error: reqwest::Error) -> McpHttpFailure {
    StreamableHttpError::Client(error.into())
}

fn unexpected(why: impl Into<String>) -> McpHttpFailure {
    StreamableHttpError::UnexpectedServerResponse(why.into().into())
}

/// Adds the request's id to an error that names no request. In a session such an error means that the session
/// has expired, and a new one begins.
fn with_request_id(
    mut answer: StreamableHttpPostResponse,
    asked: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, McpHttpFailure> {
    if let StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _) = &mut answer
        && let Some(id) = request_id(asked)
        && error.id.is_none()
    {
        if in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        error.id = Some(id.clone());
    }
    Ok(answer)
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

/// Fails if the server requires a login, or a login with a wider scope.
fn challenge(response: &Response) -> Result<(), McpHttpFailure> {
    let status = response.status();
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(());
    }
    let Some(header) = response.headers().get(WWW_AUTHENTICATE) else { return Ok(()) };
    let header = header.to_str().map_err(|_| unexpected("its header `WWW-Authenticate` is not text"))?;
    if header.len() > limits::LINK {
        return Err(unexpected("its header `WWW-Authenticate` is too long"));
    }
    Err(match status {
        StatusCode::UNAUTHORIZED => {
            StreamableHttpError::AuthRequired(AuthRequiredError::new(header.to_owned()))
        }
        _ => StreamableHttpError::InsufficientScope(InsufficientScopeError::new(
            header.to_owned(),
            scope(header),
        )),
    })
}

/// Returns the scope that a challenge names.
fn scope(header: &str) -> Option<String> {
    let at = header.to_ascii_lowercase().find("scope=")? + "scope=".len();
    let rest = header.get(at..)?;
    let scope = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split([',', ';', ' ']).next(),
    };
    scope.filter(|scope| !scope.is_empty()).map(str::to_owned)
}

/// Reads a body; `None` if it is longer than `most`.
async fn body(response: Response, most: usize) -> Result<Option<Vec<u8>>, McpHttpFailure> {
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Ok(None);
    }
    let (mut bytes, mut response) = (Vec::new(), response);
    while let Some(chunk) = response.chunk().await.map_err(client_error)? {
        if bytes.len() + chunk.len() > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// Builds the answer to `server/discover` from a server that does not know it, so that the older protocol is
/// tried.
fn not_discovered(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    body: &[u8],
) -> Option<StreamableHttpPostResponse> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    if !matches!(request.request, ClientRequest::DiscoverRequest(_)) || !status.is_client_error() {
        return None;
    }
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(body) {
        Ok(JsonRpcMessage::Error(error)) => error.error,
        _ => ErrorData::invalid_request(refusal(status, body), None),
    };
    let answer = JsonRpcMessage::error(error, Some(request.id.clone()));
    Some(StreamableHttpPostResponse::Json(answer, None))
}

/// Describes how a server refused a request.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body);
    match truncate(said.trim(), 200) {
        said if said.is_empty() => format!("it answered HTTP {}", status.as_u16()),
        said => format!("it answered HTTP {}: {said}", status.as_u16()),
    }
}

impl McpHttpClient {
    fn with(
        &self,
        mut request: RequestBuilder,
        auth: Option<String>,
        headers: McpHttpHeaders,
    ) -> RequestBuilder {
        if let Some(token) = auth {
            request = request.bearer_auth(token);
        }
        headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Handles a response with an error status.
    async fn refused(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, McpHttpFailure> {
        let status = response.status();
        let is_json = has_type(&response, JSON);
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let of_status = (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
            .then(|| HttpStatusError::new(status.as_u16(), retry_after.map(str::to_owned)));
        if let Some(error) = of_status
            && (!is_json || status == StatusCode::TOO_MANY_REQUESTS)
        {
            return Err(error.into());
        }
        let body = body(response, limits::ERROR_BODY).await.ok().flatten().unwrap_or_default();
        let is_login = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !in_session
            && !is_login
            && let Some(answer) = not_discovered(message, status, &body)
        {
            return Ok(answer);
        }
        if is_json
            && !is_login
            && let Incoming::Message(answer) = wire::parse_message(&body)
            && let JsonRpcMessage::Error(error) = &*answer
            && !wire::is_unreadable(&error.error)
        {
            return Ok(StreamableHttpPostResponse::Json(*answer, None));
        }
        Err(unexpected(refusal(status, &body)))
    }

    async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: McpHttpHeaders,
    ) -> Result<StreamableHttpPostResponse, McpHttpFailure> {
        let in_session = session.is_some();
        let mut request = self.client.post(uri).header(ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(session) = session {
            request = request.header(SESSION, &*session);
        }
        let response = self.with(request, auth, headers).json(message).send().await.map_err(client_error)?;
        challenge(&response)?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return self.refused(response, message, in_session).await;
        }
        let asked = request_id(message).cloned();
        let begun = response.headers().get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if asked.is_none() && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if has_type(&response, EVENTS) {
            let events = self.readable(bounded(response.bytes_stream()), asked);
            return Ok(StreamableHttpPostResponse::Sse(events, begun));
        }
        if !has_type(&response, JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(content_type(&response)));
        }
        let read = match body(response, limits::MESSAGE).await? {
            Some(bytes) => wire::parse_message(&bytes),
            None => Incoming::Unattributed(wire::too_long()),
        };
        // The message was not a request, so its answer does not matter.
        let Some(id) = asked else { return Ok(StreamableHttpPostResponse::Accepted) };
        let answer = match read {
            Incoming::Message(answer) => *answer,
            Incoming::Nothing => wire::unreadable_answer(id, "it is not a JSON-RPC message"),
            Incoming::Unattributed(why) => wire::unreadable_answer(id, &why),
        };
        Ok(StreamableHttpPostResponse::Json(answer, begun))
    }

    /// Replaces each unreadable event with an error for the request that waits for it.
    fn readable(
        &self,
        events: impl Stream<Item = Result<Sse, sse_stream::Error>> + Send + 'static,
        asked: Option<RequestId>,
    ) -> SseEventStream {
        let fault = self.fault.clone();
        let read = move |event: Result<Sse, sse_stream::Error>| {
            let why = match event {
                Ok(event) => {
                    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
                    let Some(data) = event.data.as_ref().filter(|_| is_message) else {
                        return Some(Ok(event));
                    };
                    match wire::parse_message(data.as_bytes()) {
                        Incoming::Nothing => return Some(Ok(event)),
                        Incoming::Unattributed(why) => why,
                        Incoming::Message(message) => {
                            let JsonRpcMessage::Error(error) = &*message else { return Some(Ok(event)) };
                            if !wire::is_unreadable(&error.error) {
                                return Some(Ok(event));
                            }
                            return Some(Ok(Sse { data: serde_json::to_string(&message).ok(), ..event }));
                        }
                    }
                }
                Err(error) => match unfit(&error) {
                    Some(why) => why,
                    // The connection broke; it may be resumed.
                    None => return Some(Err(error)),
                },
            };
            match &asked {
                Some(id) => {
                    let error = wire::unreadable_answer(id.clone(), &why);
                    Some(Ok(Sse { data: serde_json::to_string(&error).ok(), ..Sse::default() }))
                }
                None => {
                    fault.raise(format!("it sent an event that cannot be read: {why}"));
                    None
                }
            }
        };
        events.filter_map(move |event| std::future::ready(read(event))).boxed()
    }
}

/// Returns what is wrong with an event; `None` if the connection failed instead.
fn unfit(error: &sse_stream::Error) -> Option<String> {
    match error {
        sse_stream::Error::Body(error) => match error.downcast_ref()? {
            SseStreamError::TooLong => Some(wire::too_long()),
            SseStreamError::Broken(_) => None,
        },
        sse_stream::Error::Utf8Parse(_) => Some("it is not UTF-8".to_owned()),
        _ => Some("it is not a server-sent event".to_owned()),
    }
}

fn content_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    Some(truncate(&String::from_utf8_lossy(value.as_bytes()), 100))
}

fn has_type(response: &Response, wanted: &str) -> bool {
    content_type(response).is_some_and(|found| found.to_ascii_lowercase().starts_with(wanted))
}

/// Why a stream of events ended early.
#[derive(Debug, thiserror::Error)]
enum SseStreamError {
    #[error("an event is longer than {}", limits::MESSAGE_WORDS)]
    TooLong,
    #[error(transparent)]
    Broken(#[from] McpHttpError),
}

/// Limits the length of each event. An event that is too long ends the stream.
fn bounded(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = Result<Sse, sse_stream::Error>> + Send {
    let (mut length, mut line, mut over, mut after_cr) = (0_usize, 0_usize, false, false);
    let measured = bytes.map(move |chunk| -> Result<Bytes, SseStreamError> {
        let chunk = chunk.map_err(McpHttpError::from)?;
        for byte in &chunk {
            let ends_crlf = std::mem::replace(&mut after_cr, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if ends_crlf => {}
                b'\n' | b'\r' if line == 0 => length = 0,
                b'\n' | b'\r' => line = 0,
                _ => {
                    line += 1;
                    length += 1;
                }
            }
            over |= length > limits::MESSAGE;
        }
        if over { Err(SseStreamError::TooLong) } else { Ok(chunk) }
    });
    let mut ended = false;
    let until_too_long = measured.take_while(move |chunk| {
        let go_on = !ended;
        ended = chunk.is_err();
        std::future::ready(go_on)
    });
    SseStream::from_bytes_stream(until_too_long)
}

impl StreamableHttpClient for McpHttpClient {
    type Error = McpHttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: McpHttpHeaders,
    ) -> Result<StreamableHttpPostResponse, McpHttpFailure> {
        let in_session = session.is_some();
        let answer = self.post(&uri, &message, session, auth, headers).await?;
        with_request_id(answer, &message, in_session)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: McpHttpHeaders,
        _: usize,
    ) -> Result<StreamableHttpPostResponse, McpHttpFailure> {
        self.post_message(uri, message, session, auth, headers).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: McpHttpHeaders,
    ) -> Result<(), McpHttpFailure> {
        let request = self.client.delete(&*uri).header(SESSION, &*session);
        // Ignore a failure: the session is not used any more.
        self.with(request, auth, headers).send().await.map(drop).map_err(client_error)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: McpHttpHeaders,
    ) -> Result<SseEventStream, McpHttpFailure> {
        let mut request = self.client.get(&*uri).header(ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(session) = session {
            request = request.header(SESSION, &*session);
        }
        if let Some(last) = last_event {
            request = request.header("last-event-id", last);
        }
        let response = self.with(request, auth, headers).send().await.map_err(client_error)?;
        challenge(&response)?;
        let status = response.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), None).into());
        }
        if !status.is_success() {
            return Err(unexpected(format!("it answered HTTP {}", status.as_u16())));
        }
        if !has_type(&response, EVENTS) && !has_type(&response, JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(content_type(&response)));
        }
        Ok(self.readable(bounded(response.bytes_stream()), None))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: McpHttpHeaders,
        _: usize,
    ) -> Result<SseEventStream, McpHttpFailure> {
        self.get_stream(uri, session, last_event, auth, headers).await
    }
}
