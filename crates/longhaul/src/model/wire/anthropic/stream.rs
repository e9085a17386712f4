//! The stream of Anthropic's messages, taken in as it comes.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Parser;
use super::super::common::bounded;
use super::super::reply::{Text, name_calls, say, think};
use super::super::sse::{Sse, SseEvent};
use super::error;
use super::history::is_server_block;
use crate::message::{Block, Call, Reply, StopReason, Usage};
use crate::model::{Chunk, ModelErrorKind};

/// One answer.
#[derive(Default)]
pub(super) struct Stream {
    sse: Sse,
    answer: Answer,
}

impl Parser for Stream {
    fn is_over(&self) -> bool {
        self.answer.over
    }

    fn feed(&mut self, bytes: &[u8], chunks: &mut Vec<Chunk>) -> Result<(), ModelErrorKind> {
        let Stream { sse, answer } = self;
        sse.feed(bytes, |event| answer.event(event, chunks))
    }

    fn end(&mut self) -> Result<Reply, ModelErrorKind> {
        let Stream { sse, answer } = self;
        sse.end(|event| answer.event(event, &mut Vec::new()))?;
        std::mem::take(answer).reply()
    }
}

#[derive(Default)]
struct Answer {
    /// With the index that the stream gives them.
    pieces: Vec<(u64, Piece)>,
    stop: Option<String>,
    usage: Counts,
    model: String,
    over: bool,
}

enum Piece {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(Value),
    Call {
        id: String,
        tool: String,
        whole: Value,
        written: String,
    },
    /// What one of the provider's own tools did.
    Server {
        block: Value,
        written: String,
    },
    Unknown,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Start {
    message: StartedMessage,
}

/// The beginning of a message, or, from a server that does not stream, all of it.
#[derive(Deserialize)]
struct StartedMessage {
    model: Option<String>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(default)]
    content: Option<Vec<Value>>,
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct BlockStart {
    #[serde(default)]
    index: u64,
    content_block: Value,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
}

#[derive(Deserialize)]
struct MessageDelta {
    delta: Option<Stopped>,
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Stopped {
    stop_reason: Option<String>,
}

/// What was used, as the provider counts it: the input is what no cache had a hand in.
#[derive(Deserialize, Default)]
struct Counts {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    thinking_tokens: Option<u64>,
}

impl Answer {
    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<Chunk>) -> Result<(), ModelErrorKind> {
        let data = event.data.trim();
        if self.over || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        match event.event {
            "content_block_delta" => self.delta(read(data)?, chunks),
            "content_block_start" => self.start(read(data)?, chunks),
            "content_block_stop" | "ping" => {}
            "error" => return Err(error::in_stream(data)),
            _ => {
                let kind: Kind<'_> = read(data)?;
                match &*kind.kind.0 {
                    "content_block_delta" => self.delta(read(data)?, chunks),
                    "content_block_start" => self.start(read(data)?, chunks),
                    "message_start" => self.begin(read::<Start>(data)?.message, chunks),
                    "message_delta" => self.message_delta(read(data)?),
                    "message_stop" => self.over = true,
                    "message" => self.begin(read(data)?, chunks),
                    "error" => return Err(error::in_stream(data)),
                    _ if kind.error.is_some() => return Err(error::in_stream(data)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, message: StartedMessage, chunks: &mut Vec<Chunk>) {
        self.model = message.model.unwrap_or_default();
        self.count(message.usage);
        for (index, content_block) in (0..).zip(message.content.into_iter().flatten()) {
            self.start(BlockStart { index, content_block }, chunks);
        }
        self.stop = message.stop_reason.or(self.stop.take());
    }

    fn start(&mut self, start: BlockStart, chunks: &mut Vec<Chunk>) {
        let BlockStart { index, mut content_block } = start;
        if !content_block.is_object() {
            return;
        }
        let block = &mut content_block;
        let kind = block["type"].as_str().unwrap_or_default();
        // Some servers begin a block again with each delta.
        let again = match (kind, self.piece(index)) {
            ("text", Some(Piece::Text(_))) | ("thinking", Some(Piece::Thinking { .. })) => true,
            ("tool_use", Some(Piece::Call { id, .. })) => block["id"].as_str() == Some(id),
            _ => false,
        };
        if !again {
            let piece = match kind {
                "text" => Piece::Text(String::new()),
                "thinking" => Piece::Thinking { text: String::new(), signature: String::new() },
                "redacted_thinking" => Piece::Redacted(block.take()),
                "tool_use" => Piece::Call {
                    id: string(&mut block["id"]),
                    tool: string(&mut block["name"]),
                    whole: block["input"].take(),
                    written: String::new(),
                },
                _ if is_server_block(block) => Piece::Server { block: block.take(), written: String::new() },
                _ => Piece::Unknown,
            };
            self.pieces.push((index, piece));
        }
        match self.piece(index) {
            Some(Piece::Text(text)) => add(text, &string(&mut block["text"]), say, chunks),
            Some(Piece::Thinking { text, signature }) => {
                add(text, &string(&mut block["thinking"]), think, chunks);
                signature.push_str(&string(&mut block["signature"]));
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: BlockDelta<'_>, chunks: &mut Vec<Chunk>) {
        let BlockDelta { index, delta } = delta;
        if self.piece(index).is_none() {
            let piece = match &*delta.kind.0 {
                "text_delta" => Piece::Text(String::new()),
                "thinking_delta" => Piece::Thinking { text: String::new(), signature: String::new() },
                _ => return,
            };
            self.pieces.push((index, piece));
        }
        match (self.piece(index), &*delta.kind.0) {
            (Some(Piece::Text(text)), "text_delta") => add(text, &delta.text.0, say, chunks),
            (Some(Piece::Thinking { text, .. }), "thinking_delta") => {
                add(text, &delta.thinking.0, think, chunks);
            }
            (Some(Piece::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&delta.signature.0);
            }
            (Some(Piece::Call { written, .. } | Piece::Server { written, .. }), "input_json_delta") => {
                written.push_str(&delta.partial_json.0);
            }
            _ => {}
        }
    }

    fn message_delta(&mut self, delta: MessageDelta) {
        self.stop = delta.delta.and_then(|delta| delta.stop_reason).or(self.stop.take());
        self.count(delta.usage);
    }

    fn count(&mut self, more: Option<Counts>) {
        let Some(more) = more else { return };
        let last = &mut self.usage;
        last.input_tokens = more.input_tokens.or(last.input_tokens);
        last.cache_read_input_tokens = more.cache_read_input_tokens.or(last.cache_read_input_tokens);
        last.cache_creation_input_tokens =
            more.cache_creation_input_tokens.or(last.cache_creation_input_tokens);
        last.output_tokens = more.output_tokens.or(last.output_tokens);
        last.output_tokens_details = more.output_tokens_details.or(last.output_tokens_details.take());
    }

    /// The block that a stream means by its index: the last that was begun with it.
    fn piece(&mut self, index: u64) -> Option<&mut Piece> {
        self.pieces.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, piece)| piece)
    }

    fn reply(self) -> Result<Reply, ModelErrorKind> {
        let Some(stop) = self.stop else {
            let seen = if self.pieces.is_empty() { "nothing came" } else { "no stop_reason came" };
            return Err(ModelErrorKind::Cut(seen.to_owned()));
        };
        let mut blocks: Vec<Block> = self.pieces.into_iter().filter_map(|(_, piece)| piece.block()).collect();
        name_calls(&mut blocks);
        // A last call that the limit left without arguments was cut before it had any: it is not one with none.
        if let ("max_tokens" | "model_context_window_exceeded", Some(Block::Call(call))) =
            (&*stop, blocks.last_mut())
            && call.arguments == "{}"
        {
            call.arguments.clear();
        }
        let calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
        let stop = match stop.as_str() {
            "refusal" => StopReason::Refused,
            // A paused turn is not at its end either.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => StopReason::Length,
            _ if calls => StopReason::Calls,
            _ => StopReason::End,
        };
        let used = self.usage;
        let cached = used.cache_read_input_tokens.unwrap_or(0);
        let cache_written = used.cache_creation_input_tokens.unwrap_or(0);
        let usage = Usage {
            input: used.input_tokens.unwrap_or(0).saturating_add(cached).saturating_add(cache_written),
            cached,
            cache_written,
            output: used.output_tokens.unwrap_or(0),
            reasoning: used.output_tokens_details.and_then(|details| details.thinking_tokens).unwrap_or(0),
        };
        Ok(Reply { blocks, stop, usage, model: self.model, cost: None })
    }
}

impl Piece {
    fn block(self) -> Option<Block> {
        match self {
            Piece::Text(text) if text.is_empty() => None,
            Piece::Text(text) => Some(Block::Text(text)),
            // Without a signature it cannot be sent back: llama.cpp has none.
            Piece::Thinking { text, signature } if signature.is_empty() => {
                (!text.is_empty()).then_some(Block::Reasoning { text, opaque: None })
            }
            Piece::Thinking { text, signature } => Some(Block::Reasoning {
                text,
                opaque: Some(json!({"type": "thinking", "signature": signature})),
            }),
            Piece::Redacted(block) => Some(Block::Reasoning { text: String::new(), opaque: Some(block) }),
            Piece::Call { id, tool, whole, written } => {
                let arguments = match written.trim().is_empty() {
                    true if whole.is_null() => "{}".to_owned(),
                    true => whole.to_string(),
                    false => written,
                };
                Some(Block::Call(Call { id, tool, arguments }))
            }
            Piece::Server { mut block, written } => {
                if let Ok(input) = serde_json::from_str::<Value>(&written) {
                    block["input"] = input;
                }
                Some(Block::Reasoning { text: String::new(), opaque: Some(block) })
            }
            Piece::Unknown => None,
        }
    }
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelErrorKind> {
    serde_json::from_str(data)
        .map_err(|_| ModelErrorKind::Cut(format!("an event that makes no sense: {}", bounded(data))))
}

fn string(value: &mut Value) -> String {
    match value.take() {
        Value::String(text) => text,
        _ => String::new(),
    }
}

fn add(whole: &mut String, more: &str, tell: fn(&mut Vec<Chunk>, &str), chunks: &mut Vec<Chunk>) {
    whole.push_str(more);
    tell(chunks, more);
}
