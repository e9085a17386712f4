//! One request and its answer, over the network or from a tape.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::cassette::{Cassette, Recording};
use super::endpoint::Endpoint;
use crate::model::ModelErrorKind;

/// What requests go out on.
pub(super) enum Line {
    /// The network, recorded or not.
    Net { client: reqwest::Client, tape: Option<Arc<Cassette>> },
    /// A recording.
    Tape(Arc<Cassette>),
}

/// The beginning of an answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// The rest of an answer.
pub(super) enum Body {
    Net { response: Box<reqwest::Response>, recording: Option<Box<Recording>> },
    Tape { chunks: VecDeque<Bytes>, cut: Option<String> },
}

impl Line {
    /// Learns of one more key that must not be on a tape.
    pub(super) fn know(&self, endpoint: &Endpoint) {
        if let Line::Net { tape: Some(tape), .. } | Line::Tape(tape) = self {
            tape.know(endpoint);
        }
    }

    /// Sends a request. An error here means that nothing was answered.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        url: Url,
        body: Vec<u8>,
    ) -> Result<Answer, ModelErrorKind> {
        match self {
            Line::Net { client, tape } => {
                let recording = tape.as_ref().map(|tape| tape.begin(&url, &body));
                match client.post(url).headers(endpoint.headers()).body(body).send().await {
                    Ok(mut response) => {
                        let status = response.status().as_u16();
                        let headers = std::mem::take(response.headers_mut());
                        let recording =
                            recording.map(|recording| Box::new(recording.answered(status, &headers)));
                        let response = Box::new(response);
                        Ok(Answer { status, headers, body: Body::Net { response, recording } })
                    }
                    Err(error) => {
                        let why = format!("{}: {}", endpoint.host(), root_of(error));
                        if let Some(recording) = recording {
                            recording.unreachable(&why);
                        }
                        Err(ModelErrorKind::Unreachable(why))
                    }
                }
            }
            Line::Tape(tape) => tape.play(&url, &body),
        }
    }
}

impl Body {
    /// More of the answer, or its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ModelErrorKind> {
        match self {
            Body::Net { response, recording } => {
                let next = response.chunk().await.map_err(root_of);
                if let Some(recording) = recording {
                    match &next {
                        Ok(Some(bytes)) => recording.heard(bytes),
                        Ok(None) => recording.ended(None),
                        Err(why) => recording.ended(Some(why.as_str())),
                    }
                }
                next.map_err(ModelErrorKind::Cut)
            }
            Body::Tape { chunks, cut } => match chunks.pop_front() {
                Some(bytes) => Ok(Some(bytes)),
                None => cut.take().map_or(Ok(None), |why| Err(ModelErrorKind::Cut(why))),
            },
        }
    }
}

/// What is at the bottom of an error. What lies above it only says that there was one, and may show a URL.
fn root_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    let timed_out = error.is_timeout();
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    if timed_out && !text.contains("time") { format!("{text} (it took too long)") } else { text }
}
