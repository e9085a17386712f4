//! The HTTP+SSE transport that was used until 2025: the server writes to one event stream, and its first
//! event names the URL to which messages are posted.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::header::ACCEPT;
use reqwest::{Method, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use super::connection_fault::ConnectionFault;
use super::wire::{self, Incoming};
use crate::model::wire::sse::SseParser;

/// A tool's result arrives as one event, which may be large.
const LONGEST_EVENT: usize = 16 << 20;

use crate::toolset::http_client::{ToolHttpClient, display_url};
use crate::toolset::text::truncate;

/// How long posting a message may take.
const POST: Duration = Duration::from_secs(60);

/// A transport error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct LegacySseError(String);

/// The transport: receives events, posts messages.
pub(super) struct LegacySseTransport {
    client: Arc<ToolHttpClient>,
    post: Url,
    events: LegacySseEvents,
    fault: ConnectionFault,
}

struct LegacySseEvents {
    bytes: BoxStream<'static, Result<bytes::Bytes, LegacySseError>>,
    sse: SseParser,
    /// Events that have arrived and were not handled yet: name and data.
    waiting: std::collections::VecDeque<(String, String)>,
}

impl LegacySseEvents {
    async fn next(&mut self) -> Result<Option<(String, String)>, LegacySseError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let Some(bytes) = self.bytes.try_next().await? else { return Ok(None) };
            // Limit each message, but not how many of them a connection carries.
            self.sse.reset_total();
            let waiting = &mut self.waiting;
            let fed = self.sse.feed(&bytes, |event| {
                waiting.push_back((event.name.to_owned(), event.data.to_owned()));
                Ok(())
            });
            fed.map_err(|error| LegacySseError(error.to_string()))?;
        }
    }
}

impl LegacySseTransport {
    /// Opens the stream and waits for the URL.
    pub(super) async fn connect(
        client: ToolHttpClient,
        url: Url,
        fault: ConnectionFault,
    ) -> Result<LegacySseTransport, LegacySseError> {
        let request = client.request(Method::GET, url.clone()).header(ACCEPT, "text/event-stream");
        let response = client
            .start(request)
            .await
            .map_err(|why| LegacySseError(format!("{}: {why}", display_url(&url))))?;
        let status = response.status();
        if !status.is_success() {
            return Err(LegacySseError(format!(
                "{} answered {} to the request for its events",
                display_url(&url),
                status.as_u16()
            )));
        }
        let client = Arc::new(client);
        let explains = client.clone();
        let bytes = response
            .bytes_stream()
            .map_err(move |error| LegacySseError(explains.explain_error(error).to_string()))
            .boxed();
        let mut events = LegacySseEvents {
            bytes,
            sse: SseParser::with_max_event(LONGEST_EVENT),
            waiting: Default::default(),
        };
        let post = loop {
            match events.next().await? {
                Some((name, data)) if name == "endpoint" => break data,
                Some(_) => {}
                None => {
                    return Err(LegacySseError(format!(
                        "{} closed its event stream before it named the URL for messages",
                        display_url(&url)
                    )));
                }
            }
        };
        let post = url
            .join(post.trim())
            .map_err(|_| LegacySseError("the server's URL for messages is invalid".to_owned()))?;
        // The headers are sent there too, so the URL must be on the same host.
        if post.origin() != url.origin() {
            return Err(LegacySseError(format!(
                "the server's URL for messages is on another server, {}",
                display_url(&post)
            )));
        }
        Ok(LegacySseTransport { client, post, events, fault })
    }
}

impl Transport<RoleClient> for LegacySseTransport {
    type Error = LegacySseError;

    fn name() -> std::borrow::Cow<'static, str> {
        "event stream".into()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), LegacySseError>> + Send + 'static {
        let (client, post) = (self.client.clone(), self.post.clone());
        async move {
            let body = serde_json::to_vec(&item).map_err(|error| LegacySseError(error.to_string()))?;
            let request =
                client.request(Method::POST, post).header("content-type", "application/json").body(body);
            let reply =
                client.send(request, 4 << 10, POST).await.map_err(|why| LegacySseError(why.to_string()))?;
            match reply.status {
                200..=299 => Ok(()),
                status => {
                    Err(LegacySseError(format!("it answered {status}: {}", truncate(&reply.text, 200))))
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.events.next().await {
                Ok(Some((name, data))) if matches!(name.as_str(), "" | "message") => {
                    match wire::parse_message(data.as_bytes()) {
                        Incoming::Message(message) => return Some(*message),
                        Incoming::Nothing => {}
                        Incoming::Unattributed(why) => {
                            self.fault.raise(format!("it sent a message that cannot be read: {why}"));
                            return None;
                        }
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.fault.raise(format!("its stream of events broke: {error}"));
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), LegacySseError> {
        self.events.bytes = futures::stream::empty().boxed();
        Ok(())
    }
}
