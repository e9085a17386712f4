//! HTTP with server-sent events, as it was until 2025: one stream that the server writes to, and an address, told in
//! its first event, that messages are posted to.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::header::ACCEPT;
use reqwest::{Method, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use super::fault::Fault;
use super::wire::{self, Incoming};
use crate::model::wire::sse::Sse;

/// What a tool returned comes as one event, and may be large.
const LONGEST_EVENT: usize = 16 << 20;

use crate::toolset::outward::{Outward, shown};
use crate::toolset::text::clipped;

/// How long a message may take to be posted.
const POST: Duration = Duration::from_secs(60);

/// What went wrong on the way.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OldSseError(String);

/// The two halves: events in, posts out.
pub(super) struct OldSse {
    outward: Arc<Outward>,
    post: Url,
    events: Events,
    fault: Fault,
}

struct Events {
    bytes: BoxStream<'static, Result<bytes::Bytes, String>>,
    sse: Sse,
    /// Events that have come and are not taken: name and data.
    waiting: std::collections::VecDeque<(String, String)>,
}

impl Events {
    async fn next(&mut self) -> Result<Option<(String, String)>, String> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let Some(bytes) = self.bytes.try_next().await? else { return Ok(None) };
            // Each message is bounded; how many there are in the life of a connection is not.
            self.sse.count_anew();
            let waiting = &mut self.waiting;
            let fed = self.sse.feed(&bytes, |event| {
                waiting.push_back((event.event.to_owned(), event.data.to_owned()));
                Ok(())
            });
            fed.map_err(|error| error.to_string())?;
        }
    }
}

impl OldSse {
    /// Opens the stream and waits for the address.
    pub(super) async fn connect(outward: Outward, url: Url, fault: Fault) -> Result<OldSse, String> {
        let request = outward.request(Method::GET, url.clone()).header(ACCEPT, "text/event-stream");
        let response = outward.begin(request).await.map_err(|why| format!("{}: {why}", shown(&url)))?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!(
                "{} answered {} to the request for its events",
                shown(&url),
                status.as_u16()
            ));
        }
        let outward = Arc::new(outward);
        let explains = outward.clone();
        let bytes = response.bytes_stream().map_err(move |error| explains.explained(error)).boxed();
        let mut events = Events { bytes, sse: Sse::up_to(LONGEST_EVENT), waiting: Default::default() };
        let post = loop {
            match events.next().await? {
                Some((name, data)) if name == "endpoint" => break data,
                Some(_) => {}
                None => return Err(format!("{} ended its events before it said where to post", shown(&url))),
            }
        };
        let post =
            url.join(post.trim()).map_err(|_| "the server's address to post to is no URL".to_owned())?;
        // The headers go there too.
        if post.origin() != url.origin() {
            return Err(format!("the server wants messages posted to another server, {}", shown(&post)));
        }
        Ok(OldSse { outward, post, events, fault })
    }
}

impl Transport<RoleClient> for OldSse {
    type Error = OldSseError;

    fn name() -> std::borrow::Cow<'static, str> {
        "event stream".into()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), OldSseError>> + Send + 'static {
        let (outward, post) = (self.outward.clone(), self.post.clone());
        async move {
            let body = serde_json::to_vec(&item).map_err(|error| OldSseError(error.to_string()))?;
            let request =
                outward.request(Method::POST, post).header("content-type", "application/json").body(body);
            let reply = outward.send(request, 4 << 10, POST).await.map_err(OldSseError)?;
            match reply.status {
                200..=299 => Ok(()),
                status => Err(OldSseError(format!("it answered {status}: {}", clipped(&reply.text, 200)))),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.events.next().await {
                Ok(Some((name, data))) if matches!(name.as_str(), "" | "message") => {
                    match wire::read(data.as_bytes()) {
                        Incoming::Message(message) => return Some(*message),
                        Incoming::Nothing => {}
                        Incoming::Lost(why) => {
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

    async fn close(&mut self) -> Result<(), OldSseError> {
        self.events.bytes = futures::stream::empty().boxed();
        Ok(())
    }
}
