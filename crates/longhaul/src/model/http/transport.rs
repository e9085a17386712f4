//! One request and its response, over the network or from a recording.

use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http_body::Body as _;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::cassette::{Cassette, Recording};
use super::client::ClientPool;
use super::endpoint::Endpoint;
use super::plain_http::{PlainBody, PlainHttpError};
use crate::model::ModelErrorKind;

/// Sends requests.
pub(super) enum Transport {
    /// The network, with or without recording.
    Network { clients: Box<ClientPool>, tape: Option<Arc<Cassette>> },
    /// A recording that is replayed.
    Replay(Arc<Cassette>),
}

/// The status and the headers of a response.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: ResponseBody,
}

/// The body of a response.
pub(super) enum ResponseBody {
    Network { body: NetworkBody, recording: Option<Box<Recording>> },
    Replay { chunks: VecDeque<Bytes>, cut: Option<String> },
}

/// The body of a response from the network, by the client that sent the request.
pub(super) enum NetworkBody {
    Plain(Box<PlainBody>),
    Reqwest(Box<reqwest::Body>),
}

impl Transport {
    /// Adds the secrets of an endpoint to those that are removed from a recording.
    pub(super) fn add_secrets(&self, endpoint: &Endpoint) {
        if let Transport::Network { tape: Some(tape), .. } | Transport::Replay(tape) = self {
            tape.add_secrets(endpoint);
        }
    }

    /// What a `GET` request returns, up to `limit` bytes. `None` if it fails, or if this is a recording.
    pub(super) async fn get(&self, url: Url, limit: usize) -> Option<Vec<u8>> {
        let Transport::Network { clients, .. } = self else { return None };
        let sent = send_over_network(clients, Method::GET, HeaderMap::new(), url, Vec::new(), 0);
        let mut response = sent.await.ok().filter(|response| response.status().is_success())?;
        let mut body = Vec::new();
        while let Some(bytes) = poll_fn(|context| response.body_mut().poll_chunk(context)).await.ok()? {
            body.extend_from_slice(&bytes);
            if body.len() > limit {
                return None;
            }
        }
        Some(body)
    }

    /// Sends a request that has the number `slot` among the running ones. An error means that there was no
    /// response.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        url: Url,
        body: Vec<u8>,
        slot: usize,
    ) -> Result<HttpResponse, ModelErrorKind> {
        match self {
            Transport::Network { clients, tape } => {
                let recording = tape.as_ref().map(|tape| tape.begin_recording(&url, &body));
                match send_over_network(clients, Method::POST, endpoint.headers(), url, body, slot).await {
                    Ok(response) => {
                        let (parts, body) = response.into_parts();
                        let status = parts.status.as_u16();
                        let recording = recording
                            .map(|recording| Box::new(recording.record_response(status, &parts.headers)));
                        let body = ResponseBody::Network { body, recording };
                        Ok(HttpResponse { status, headers: parts.headers, body })
                    }
                    Err(SendFailure { why, is_final }) => {
                        let why = format!("{}: {why}", endpoint.host());
                        if let Some(recording) = recording {
                            recording.finish_unreachable(&why);
                        }
                        Err(match is_final {
                            true => ModelErrorKind::Rejected(why),
                            false => ModelErrorKind::Unreachable(why),
                        })
                    }
                }
            }
            Transport::Replay(tape) => tape.replay(&url, &body),
        }
    }
}

/// Why there is no response, in words, and whether the next request will get none either.
struct SendFailure {
    why: String,
    is_final: bool,
}

impl From<String> for SendFailure {
    fn from(why: String) -> SendFailure {
        SendFailure { why, is_final: false }
    }
}

/// Sends a request.
async fn send_over_network(
    clients: &ClientPool,
    method: Method,
    headers: HeaderMap,
    url: Url,
    body: Vec<u8>,
    slot: usize,
) -> Result<http::Response<NetworkBody>, SendFailure> {
    if let Some(uri) = clients.plain().accepts(&url) {
        let response = clients.plain().send(method, uri, headers, body).await;
        let response = response.map_err(|error| SendFailure {
            why: root_of(&*error),
            is_final: error.downcast_ref::<PlainHttpError>().is_some_and(PlainHttpError::is_final),
        })?;
        return Ok(response.map(|body| NetworkBody::Plain(Box::new(body))));
    }
    let client = clients.client(slot).map_err(|error| error.to_string())?;
    let response = client.request(method, url).headers(headers).body(body).send().await;
    let response: http::Response<reqwest::Body> =
        response.map_err(|error| root_of(&error.without_url()))?.into();
    Ok(response.map(|body| NetworkBody::Reqwest(Box::new(body))))
}

impl NetworkBody {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, String>> {
        let body = match self {
            NetworkBody::Plain(body) => {
                return body.poll_chunk(context).map_err(|error| root_of(&error));
            }
            NetworkBody::Reqwest(body) => body,
        };
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(context)) {
                None => return Poll::Ready(Ok(None)),
                Some(Err(error)) => return Poll::Ready(Err(root_of(&error.without_url()))),
                Some(Ok(frame)) => {
                    // Trailers say nothing that we need.
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Ok(Some(bytes)));
                    }
                }
            }
        }
    }
}

impl ResponseBody {
    /// The next chunk of the body, or `None` at its end.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Bytes>, ModelErrorKind> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ModelErrorKind>> {
        match self {
            ResponseBody::Network { body, recording } => {
                let next = ready!(body.poll_chunk(context));
                if let Some(recording) = recording {
                    match &next {
                        Ok(Some(bytes)) => recording.record_chunk(bytes),
                        Ok(None) => recording.finish(None),
                        Err(why) => recording.finish(Some(why.as_str())),
                    }
                }
                Poll::Ready(next.map_err(ModelErrorKind::Truncated))
            }
            ResponseBody::Replay { chunks, cut } => Poll::Ready(match chunks.pop_front() {
                Some(bytes) => Ok(Some(bytes)),
                None => cut.take().map_or(Ok(None), |why| Err(ModelErrorKind::Truncated(why))),
            }),
        }
    }
}

/// The root cause of an error. The errors above it add nothing, and may show a URL.
fn root_of(error: &(dyn Error + 'static)) -> String {
    let mut timed_out = false;
    let mut cause = error;
    loop {
        timed_out |= cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout)
            || cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => break,
        }
    }
    let text = cause.to_string();
    if timed_out && !text.contains("time") { format!("{text} (timed out)") } else { text }
}
