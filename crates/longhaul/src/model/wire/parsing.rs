//! Shared by the parsers: collects deltas into blocks, makes ids unique, reads errors.

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use super::reply_chunks::{push_reasoning_chunk, push_text_chunk};
use super::{status_errors, surrogates};
use crate::message::{Block, Call, StopReason};
use crate::model::{ModelErrorKind, ReplyChunk};

/// How many characters of a provider's error message are kept.
const LONGEST_ERROR: usize = 600;

/// Collects the deltas of a reply into blocks, in the order in which the blocks began.
#[derive(Debug, Default)]
pub(crate) struct BlockCollector {
    blocks: Vec<Block>,
    /// The first half of a surrogate pair, and the block that ended with it.
    half: Option<(usize, char)>,
}

impl BlockCollector {
    /// Appends text to the last block if that is text, else begins a new one.
    pub(crate) fn push_text(&mut self, piece: &str, chunks: &mut Vec<ReplyChunk>) {
        if piece.is_empty() {
            return;
        }
        let at = match self.blocks.last() {
            Some(Block::Text(_)) => self.blocks.len() - 1,
            _ => self.open_block(Block::Text(String::new())),
        };
        self.append(at, piece, chunks);
    }

    /// Appends thinking to the last block if that is thinking, else begins a new one.
    pub(crate) fn push_reasoning(&mut self, piece: &str, chunks: &mut Vec<ReplyChunk>) {
        if piece.is_empty() {
            return;
        }
        let at = match self.blocks.last() {
            Some(Block::Reasoning { .. }) => self.blocks.len() - 1,
            _ => self.open_block(Block::Reasoning { text: String::new(), opaque: None }),
        };
        self.append(at, piece, chunks);
    }

    /// Begins a block and returns its index.
    pub(crate) fn open_block(&mut self, block: Block) -> usize {
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Appends to the text or thinking at this index.
    pub(crate) fn append(&mut self, at: usize, piece: &str, chunks: &mut Vec<ReplyChunk>) {
        if piece.is_empty() {
            return;
        }
        // A half whose other half comes in another block is never completed.
        let mut half = self.half.take().filter(|(block, _)| *block == at).map(|(_, half)| half);
        let piece = surrogates::join_piece(&mut half, piece);
        self.half = half.map(|half| (at, half));
        if piece.is_empty() {
            return;
        }
        match self.blocks.get_mut(at) {
            Some(Block::Text(text)) => {
                text.push_str(&piece);
                push_text_chunk(chunks, &piece);
            }
            Some(Block::Reasoning { text, .. }) => {
                text.push_str(&piece);
                push_reasoning_chunk(chunks, &piece);
            }
            _ => {}
        }
    }

    /// The block at this index.
    pub(crate) fn block_mut(&mut self, at: usize) -> Option<&mut Block> {
        self.blocks.get_mut(at)
    }

    /// The call at this index.
    pub(crate) fn call_mut(&mut self, at: usize) -> Option<&mut Call> {
        match self.blocks.get_mut(at) {
            Some(Block::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Attaches the provider's opaque data to the first thinking of the reply.
    pub(crate) fn attach_opaque(&mut self, seal: Value) {
        let thinking = self.blocks.iter_mut().find_map(|block| match block {
            Block::Reasoning { opaque, .. } => Some(opaque),
            _ => None,
        });
        match thinking {
            Some(opaque) => *opaque = Some(seal),
            None => self.blocks.insert(0, Block::Reasoning { text: String::new(), opaque: Some(seal) }),
        }
    }

    /// Whether there is a call. A call without a name or arguments does not count.
    pub(crate) fn has_calls(&self) -> bool {
        self.blocks.iter().any(|b| matches!(b, Block::Call(call) if !is_void(call)))
    }

    /// Whether no block has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the blocks: without empty ones, each call with a unique id, missing arguments as `{}`. In a
    /// reply that hit its length limit, a call without arguments was cut off, so they stay empty.
    pub(crate) fn finish(&mut self, stop: StopReason) -> Vec<Block> {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.retain(|block| match block {
            Block::Text(text) => !text.is_empty(),
            Block::Reasoning { text, opaque } => !text.is_empty() || opaque.is_some(),
            Block::Call(call) => !is_void(call),
        });
        // They stay in memory for as long as the task runs.
        blocks.shrink_to_fit();
        let mut ids = UniqueIds::default();
        for (at, block) in blocks.iter_mut().enumerate() {
            let call = match block {
                Block::Call(call) => call,
                Block::Text(text) | Block::Reasoning { text, .. } => {
                    text.shrink_to_fit();
                    continue;
                }
            };
            call.arguments = surrogates::repair(std::mem::take(&mut call.arguments));
            if stop != StopReason::Length && matches!(call.arguments.trim(), "" | "null") {
                call.arguments = "{}".to_owned();
            }
            call.id = ids.claim(std::mem::take(&mut call.id), at);
        }
        blocks
    }
}

fn is_void(call: &Call) -> bool {
    call.tool.is_empty() && call.arguments.is_empty()
}

/// A set of unique ids.
#[derive(Debug, Default)]
pub(crate) struct UniqueIds(HashSet<String>);

impl UniqueIds {
    /// Returns this id, or a similar one if it is taken.
    pub(crate) fn claim(&mut self, id: String, at: usize) -> String {
        if !id.is_empty() && self.0.insert(id.clone()) {
            return id;
        }
        let base = if id.is_empty() { "call" } else { id.as_str() };
        let mut n = at;
        loop {
            let next = format!("{base}_{n}");
            if self.0.insert(next.clone()) {
                return next;
            }
            n += 1;
        }
    }
}

/// Tracks streamed JSON to detect when an object is complete.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct JsonCompletion {
    depth: u32,
    in_string: bool,
    escaped: bool,
    whole: bool,
}

impl JsonCompletion {
    /// Takes more of the JSON.
    pub(crate) fn feed(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.whole |= self.depth == 0;
                }
                _ => {}
            }
        }
    }

    /// Whether an object is complete.
    pub(crate) fn is_complete(self) -> bool {
        self.whole
    }
}

/// The string in a raw value, or `None` if it is something else.
pub(crate) fn raw_string(raw: Option<&RawValue>) -> Option<String> {
    let literal = raw?.get();
    serde_json::from_str(literal).ok().or_else(|| surrogates::decode_json_string(literal))
}

/// The number in a raw value, also if it is written as a float or a string.
pub(crate) fn raw_number(raw: Option<&RawValue>) -> Option<u64> {
    let text = raw?.get().trim_matches('"');
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|n| *n >= 0.0).map(|n| n as u64))
}

/// The number at the first of these paths that has one, or 0.
pub(crate) fn token_count(object: &Value, paths: &[&str]) -> u64 {
    paths
        .iter()
        .find_map(|path| {
            let n = object.pointer(path)?;
            n.as_u64().or_else(|| n.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
        })
        .unwrap_or(0)
}

/// The cost of a reply in millionths of a dollar, if its usage reports one: the provider knows best. Anything
/// below a millionth is rounded up to one, because it is not free.
pub(crate) fn reported_cost(usage: &Value) -> Option<u64> {
    let number =
        |path: &str| usage.pointer(path).and_then(Value::as_f64).filter(|n| *n >= 0.0 && n.is_finite());
    // OpenRouter reports the whole cost, or only its fee if the user's own key was used. Perplexity reports
    // parts.
    let own_key = usage.get("is_byok") == Some(&Value::Bool(true));
    let upstream = own_key.then(|| number("/cost_details/upstream_inference_cost")).flatten();
    let dollars =
        number("/cost").map(|cost| cost + upstream.unwrap_or(0.0)).or_else(|| number("/cost/total_cost"));
    // xAI counts in ten-billionths of a dollar.
    let dollars = dollars.or_else(|| number("/cost_in_usd_ticks").map(|ticks| ticks / 1e10))?;
    // Do not round up because of a binary rounding error.
    Some(((dollars * 1e6) - 1e-6).ceil().max(0.0) as u64)
}

/// Parses a response with an error status.
pub(crate) fn error_from_response(status: u16, body: &[u8]) -> ModelErrorKind {
    let error: Option<Value> = serde_json::from_slice(body).ok();
    let message = match &error {
        Some(value) => error_message(value),
        None => sanitized_line(&String::from_utf8_lossy(body)),
    };
    error_kind(status, code_of(error.as_ref()).as_str(), message)
}

/// Parses an error in the middle of a stream. An unknown error counts as transient.
pub(crate) fn error_from_stream(error: &Value) -> ModelErrorKind {
    let code = code_of(Some(error));
    let told = ["/error/code", "/code", "/error/status", "/status", "/error/status_code", "/status_code"]
        .iter()
        .find_map(|path| {
            let code = error.pointer(path)?;
            code.as_u64().or_else(|| code.as_str()?.parse().ok())
        })
        .and_then(|n| u16::try_from(n).ok())
        .filter(|n| (400..600).contains(n));
    error_kind(told.unwrap_or_else(|| status_of(&code)), &code, error_message(error))
}

fn error_kind(status: u16, code: &str, message: String) -> ModelErrorKind {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if has(&["insufficient_quota", "billing"]) {
        return ModelErrorKind::Rejected(message);
    }
    if has(&["tool_use_failed"]) {
        return ModelErrorKind::Truncated(message);
    }
    match status {
        429 => ModelErrorKind::RateLimited(message),
        408 | 409 | 500.. if !status_errors::is_permanent(&message) => {
            ModelErrorKind::Server { status, message }
        }
        _ if message.is_empty() => ModelErrorKind::Rejected(status.to_string()),
        _ => ModelErrorKind::Rejected(format!("{message} ({status})")),
    }
}

/// The status that matches an error without one.
fn status_of(code: &str) -> u16 {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if has(&["rate_limit", "resource_exhausted", "too_many_requests", "throttl"]) {
        429
    } else if has(&["overloaded", "unavailable"]) {
        503
    } else if has(&["authentication", "invalid_api_key", "unauthorized", "unauthenticated"]) {
        401
    } else if has(&["permission", "forbidden"]) {
        403
    } else if has(&["not_found"]) {
        404
    } else if has(&["invalid", "context_length", "context_size", "unsupported", "bad_request", "too_large"]) {
        400
    } else {
        500
    }
}

/// All codes and types of an error, in lower case.
fn code_of(error: Option<&Value>) -> String {
    let Some(error) = error else { return String::new() };
    let names = ["/error/code", "/error/type", "/error/status", "/code", "/type", "/status"];
    let names: Vec<&str> = names.iter().filter_map(|path| error.pointer(path)?.as_str()).collect();
    names.join(" ").to_ascii_lowercase()
}

/// The message of an error, wherever it is.
pub(crate) fn error_message(error: &Value) -> String {
    let first = match error {
        Value::Array(several) => several.first().unwrap_or(error),
        _ => error,
    };
    let places = ["/error/message", "/error/error/message", "/error", "/message", "/detail", "/detail/0/msg"];
    let said = places
        .iter()
        .find_map(|path| first.pointer(path)?.as_str().filter(|text| !text.is_empty()))
        .or_else(|| first.as_str());
    let upstream = first.pointer("/error/metadata/raw").and_then(Value::as_str);
    match (said, upstream) {
        (Some(said), Some(upstream)) => sanitized_line(&format!("{said}: {upstream}")),
        (Some(said), None) => sanitized_line(said),
        (None, _) => sanitized_line(&first.to_string()),
    }
}

/// External text as one bounded line, without anything that looks like a key.
pub(crate) fn sanitized_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > LONGEST_ERROR {
            let room = LONGEST_ERROR.saturating_sub(line.len());
            line.extend(word.chars().take(room));
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(if is_key(word) { "[key]" } else { word });
    }
    line
}

/// Whether a word looks like a secret: a known prefix, long, and not masked.
fn is_key(word: &str) -> bool {
    const BEGINNINGS: [&str; 9] =
        ["sk-", "gsk_", "xai-", "AIza", "ghp_", "gho_", "github_pat_", "pplx-", "eyJ"];
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.len() >= 20 && !word.contains('*') && BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
}

#[cfg(test)]
#[path = "parsing_tests.rs"]
mod tests;
