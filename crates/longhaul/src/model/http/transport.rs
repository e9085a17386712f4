//! One request and its response, over the network or from a recording.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::cassette::{Cassette, Recording};
use super::client::ClientPool;
use super::endpoint::Endpoint;
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
    Network { response: Box<reqwest::Response>, recording: Option<Box<Recording>> },
    Replay { chunks: VecDeque<Bytes>, cut: Option<String> },
}

impl Transport {
    /// Adds the secrets of an endpoint to those that are removed from a recording.
    pub(super) fn add_secrets(&self, endpoint: &Endpoint) {
        if let Transport::Network { tape: Some(tape), .. } | Transport::Replay(tape) = self {
            tape.add_secrets(endpoint);
        }
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
                let client = clients
                    .client(&url, slot)
                    .map_err(|error| ModelErrorKind::Unreachable(format!("{}: {error}", endpoint.host())))?;
                let recording = tape.as_ref().map(|tape| tape.begin_recording(&url, &body));
                match client.post(url).headers(endpoint.headers()).body(body).send().await {
                    Ok(mut response) => {
                        let status = response.status().as_u16();
                        let headers = std::mem::take(response.headers_mut());
                        let recording =
                            recording.map(|recording| Box::new(recording.record_response(status, &headers)));
                        let response = Box::new(response);
                        Ok(HttpResponse {
                            status,
                            headers,
                            body: ResponseBody::Network { response, recording },
                        })
                    }
                    Err(error) => {
                        let why = format!("{}: {}", endpoint.host(), root_of(error));
                        if let Some(recording) = recording {
                            recording.finish_unreachable(&why);
                        }
                        Err(ModelErrorKind::Unreachable(why))
                    }
                }
            }
            Transport::Replay(tape) => tape.replay(&url, &body),
        }
    }
}

impl ResponseBody {
    /// The next chunk of the body, or `None` at its end.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Bytes>, ModelErrorKind> {
        match self {
            ResponseBody::Network { response, recording } => {
                let next = response.chunk().await.map_err(root_of);
                if let Some(recording) = recording {
                    match &next {
                        Ok(Some(bytes)) => recording.record_chunk(bytes),
                        Ok(None) => recording.finish(None),
                        Err(why) => recording.finish(Some(why.as_str())),
                    }
                }
                next.map_err(ModelErrorKind::Truncated)
            }
            ResponseBody::Replay { chunks, cut } => match chunks.pop_front() {
                Some(bytes) => Ok(Some(bytes)),
                None => cut.take().map_or(Ok(None), |why| Err(ModelErrorKind::Truncated(why))),
            },
        }
    }
}

/// The root cause of an error. The errors above it add nothing, and may show a URL.
fn root_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    let timed_out = error.is_timeout();
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    if timed_out && !text.contains("time") { format!("{text} (timed out)") } else { text }
}
