//! An HTTP client for the protocol that never leaves a request without an answer, and whose errors tell no URL: there may
//! be a secret in it.
//!
//! A server that does not know a session any more should answer 404. Some answer 400 and an error that names no request,
//! which the protocol's own client passes on as an error of nobody's, and waits.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, sse_stream::Error>>;

/// See the module.
#[derive(Clone)]
pub(super) struct Answered(pub(super) Client);

/// An error that names no request is the answer to the one it came for; in a session it means that this is over, and
/// another is begun.
fn named(
    mut answer: StreamableHttpPostResponse,
    asked: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, Failure> {
    if let StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _) = &mut answer
        && let ClientJsonRpcMessage::Request(request) = asked
        && error.id.is_none()
    {
        if in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        error.id = Some(request.id.clone());
    }
    Ok(answer)
}

fn bare(error: Failure) -> Failure {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

impl StreamableHttpClient for Answered {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (asked, in_session) = (message.clone(), session.is_some());
        let answer = self.0.post_message(uri, message, session, auth, headers).await.map_err(bare)?;
        named(answer, &asked, in_session)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (asked, in_session) = (message.clone(), session.is_some());
        let posting = self.0.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most);
        named(posting.await.map_err(bare)?, &asked, in_session)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, auth, headers).await.map_err(bare)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.0.get_stream(uri, session, last_event, auth, headers).await.map_err(bare)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<Events, Failure> {
        let getting =
            self.0.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, most);
        getting.await.map_err(bare)
    }
}
