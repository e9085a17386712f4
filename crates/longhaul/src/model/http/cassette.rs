//! Recordings of HTTP traffic without secrets, one exchange per line of JSON, and their replay.
//!
//! Request headers are not recorded, and of the response headers only those that the program reads. Every key
//! in use is removed from URLs, bodies and responses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use regex::Regex;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api_keys::{self, ApiKey};
use super::endpoint::Endpoint;
use super::transport::{HttpResponse, ResponseBody};
use crate::model::ModelErrorKind;

/// A recording that is being made or replayed.
pub struct Cassette {
    inner: Mutex<CassetteState>,
    volatile: Regex,
}

#[derive(Default)]
struct CassetteState {
    file: Option<File>,
    secrets: Vec<ApiKey>,
    exchanges: Vec<(RecordedExchange, String, bool)>,
}

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path of the file.
        path: String,
        /// The I/O error.
        error: std::io::Error,
    },
    /// A line that is not a recorded exchange.
    #[error("line {line} is not a recorded exchange: {error}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The parse error.
        error: serde_json::Error,
    },
}

/// One request and its response.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RecordedExchange {
    url: String,
    body: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<RecordedChunk>,
    /// Why there was no response, or why it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
}

/// A chunk of a response, as text if it is valid UTF-8.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedChunk {
    Text(String),
    Bytes(Vec<u8>),
}

impl RecordedChunk {
    fn from_bytes(bytes: &[u8]) -> RecordedChunk {
        match std::str::from_utf8(bytes) {
            Ok(text) => RecordedChunk::Text(text.to_owned()),
            Err(_) => RecordedChunk::Bytes(bytes.to_vec()),
        }
    }
}

impl Cassette {
    /// Creates an empty cassette to record on. Only its owner can read the file.
    pub fn create(path: &Path) -> Result<Cassette, CassetteError> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| unusable(path, error))?;
        Ok(Cassette::with_state(CassetteState { file: Some(file), ..CassetteState::default() }))
    }

    /// Loads a recording from a file. Fails if the file cannot be read or a line is not an exchange.
    pub fn load(path: &Path) -> Result<Cassette, CassetteError> {
        Cassette::parse(&std::fs::read_to_string(path).map_err(|error| unusable(path, error))?)
    }

    /// Parses the text of a recording. Fails if a line is not an exchange.
    pub fn parse(text: &str) -> Result<Cassette, CassetteError> {
        let cassette = Cassette::with_state(CassetteState::default());
        let mut exchanges = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let exchange: RecordedExchange =
                serde_json::from_str(line).map_err(|error| CassetteError::Line { line: at + 1, error })?;
            let lasting = cassette.without_volatile(&exchange.body);
            exchanges.push((exchange, lasting, false));
        }
        cassette.lock().exchanges = exchanges;
        Ok(cassette)
    }

    fn with_state(inner: CassetteState) -> Cassette {
        #[expect(clippy::expect_used, reason = "a constant, and tested")]
        let fleeting = Regex::new(r"\bt-[0-9a-z]{4,}\b|[0-9]+").expect("a pattern");
        Cassette { inner: Mutex::new(inner), volatile: fleeting }
    }

    fn lock(&self) -> MutexGuard<'_, CassetteState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the secrets of an endpoint to those that are removed from the recording.
    pub(super) fn add_secrets(&self, endpoint: &Endpoint) {
        self.lock().secrets.extend(endpoint.secrets());
    }

    pub(super) fn begin_recording(self: &Arc<Self>, url: &Url, body: &[u8]) -> Recording {
        let exchange = RecordedExchange {
            url: url.to_string(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            status: None,
            headers: BTreeMap::new(),
            chunks: Vec::new(),
            cut: Some("the reader stopped before the end".to_owned()),
        };
        Recording { cassette: self.clone(), exchange: Some(exchange), chunks: Vec::new() }
    }

    fn write(&self, mut exchange: RecordedExchange, received: &[Bytes]) {
        let mut inner = self.lock();
        let whole = String::from_utf8_lossy(&received.concat()).into_owned();
        let clean = inner.redact(whole.clone());
        // A key may be split across two chunks.
        exchange.chunks = match clean == whole {
            true => received.iter().map(|bytes| RecordedChunk::from_bytes(bytes)).collect(),
            false => vec![RecordedChunk::Text(clean)],
        };
        let line = serde_json::to_string(&exchange).map(|line| inner.redact(line));
        let Some(file) = &mut inner.file else { return };
        let written = line.map_err(std::io::Error::from).and_then(|line| writeln!(file, "{line}"));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot record an exchange");
        }
    }

    /// Returns the recorded response to a request: to the same request, or to one that differs only in parts
    /// that change from run to run, such as task ids and times. Fails if nothing matches.
    pub(super) fn replay(&self, url: &Url, body: &[u8]) -> Result<HttpResponse, ModelErrorKind> {
        let mut inner = self.lock();
        let asked = inner.redact(String::from_utf8_lossy(body).into_owned());
        let asked: Value = serde_json::from_str(&asked).unwrap_or_default();
        let (url, lasting) = (inner.redact(url.to_string()), self.without_volatile(&asked));
        let mut fresh = inner.exchanges.iter_mut().filter(|(old, _, played)| !played && old.url == url);
        let same = fresh.position(|(old, _, _)| old.body == asked);
        let mut fresh = inner.exchanges.iter_mut().filter(|(old, _, played)| !played && old.url == url);
        let found = match same {
            Some(at) => fresh.nth(at),
            None => fresh.find(|(_, old, _)| *old == lasting),
        };
        let Some((exchange, _, played)) = found else {
            let of = inner.exchanges.iter().filter(|(old, _, _)| old.url == url).count();
            let why = match of {
                0 => {
                    format!(
                        "the recording has no answer from {url}: it was made with another model or base URL"
                    )
                }
                _ => format!(
                    "the recording has no (more) answer to this request: none of its {of} requests to {url} is the \
                     same. Has the team, the prompt or a tool's result changed since? Then record it again"
                ),
            };
            return Err(ModelErrorKind::Rejected(why));
        };
        *played = true;
        let exchange = exchange.clone();
        drop(inner);
        self.answer(exchange, &asked)
    }

    /// The model of the first request to a base URL, if the request names it. `None` if there was no request.
    pub(super) fn recorded_model(&self, base_url: &str) -> Option<String> {
        let below = format!("{}/", base_url.trim_end_matches('/'));
        let inner = self.lock();
        let (exchange, _, _) = inner.exchanges.iter().find(|(old, _, _)| old.url.starts_with(&below))?;
        Some(exchange.body["model"].as_str().unwrap_or_default().to_owned())
    }

    fn answer(&self, exchange: RecordedExchange, asked: &Value) -> Result<HttpResponse, ModelErrorKind> {
        let Some(status) = exchange.status else {
            return Err(ModelErrorKind::Unreachable(exchange.cut.unwrap_or_default()));
        };
        // Replace the recorded task ids with the current ones.
        let (then, now) = (exchange.body.to_string(), asked.to_string());
        let ids: Vec<(&str, &str)> = self
            .volatile
            .find_iter(&then)
            .zip(self.volatile.find_iter(&now))
            .map(|(then, now)| (then.as_str(), now.as_str()))
            .filter(|(then, now)| then.starts_with("t-") && then != now)
            .collect();
        let renamed = |text: String| ids.iter().fold(text, |text, (then, now)| text.replace(then, now));
        let chunks = exchange.chunks.into_iter().map(|piece| match piece {
            RecordedChunk::Text(text) => Bytes::from(renamed(text)),
            RecordedChunk::Bytes(bytes) => Bytes::from(bytes),
        });
        let header = |(name, value): (String, String)| {
            Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(&value).ok()?))
        };
        let headers = exchange.headers.into_iter().filter_map(header).collect();
        Ok(HttpResponse {
            status,
            headers,
            body: ResponseBody::Replay { chunks: chunks.collect(), cut: exchange.cut },
        })
    }

    /// A body without the parts that change from run to run.
    fn without_volatile(&self, body: &Value) -> String {
        self.volatile.replace_all(&body.to_string(), "#").into_owned()
    }
}

impl CassetteState {
    fn redact(&self, text: String) -> String {
        api_keys::scrub(text, &self.secrets)
    }
}

impl std::fmt::Debug for Cassette {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cassette")
    }
}

fn unusable(path: &Path, error: std::io::Error) -> CassetteError {
    CassetteError::File { path: path.display().to_string(), error }
}

/// An exchange that is being recorded. It is written when the exchange ends, however it ends.
pub(super) struct Recording {
    cassette: Arc<Cassette>,
    exchange: Option<RecordedExchange>,
    chunks: Vec<Bytes>,
}

impl Recording {
    pub(super) fn record_response(mut self, status: u16, headers: &HeaderMap) -> Recording {
        if let Some(exchange) = &mut self.exchange {
            exchange.status = Some(status);
            let is_recorded = |name: &str| {
                matches!(name, "content-type" | "retry-after" | "retry-after-ms")
                    || name.contains("ratelimit")
            };
            let kept = headers.iter().filter(|(name, _)| is_recorded(name.as_str()));
            let text = |(name, value): (&HeaderName, &HeaderValue)| {
                Some((name.to_string(), value.to_str().ok()?.to_owned()))
            };
            exchange.headers = kept.filter_map(text).collect();
        }
        self
    }

    pub(super) fn finish_unreachable(mut self, why: &str) {
        self.finish(Some(why));
    }

    pub(super) fn record_chunk(&mut self, bytes: &Bytes) {
        self.chunks.push(bytes.clone());
    }

    pub(super) fn finish(&mut self, cut: Option<&str>) {
        if let Some(exchange) = self.exchange.take() {
            self.cassette.write(RecordedExchange { cut: cut.map(str::to_owned), ..exchange }, &self.chunks);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.cassette.write(exchange, &self.chunks);
        }
    }
}
