//! Parses the stream of Anthropic's Messages API.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::parsing::sanitized_line;
use super::super::reply_chunks::{LenientStr, assign_call_ids, push_reasoning_chunk, push_text_chunk};
use super::super::sse::SseEvent;
use super::super::sse_reply::SseReplyBuilder;
use super::content_blocks::is_server_block;
use super::error;
use crate::message::{Block, Call, Reply, StopReason, Usage};
use crate::model::{ModelErrorKind, ReplyChunk};

/// Builds the reply of one response.
#[derive(Default)]
pub(super) struct AnthropicReplyBuilder {
    /// The blocks, with their index in the stream.
    pieces: Vec<(u64, AnthropicBlock)>,
    stop: Option<String>,
    usage: AnthropicUsage,
    model: String,
    over: bool,
}

enum AnthropicBlock {
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
    /// A block of one of the provider's own tools.
    Server {
        block: Value,
        written: String,
    },
    Unknown,
}

#[derive(Deserialize)]
struct AnthropicEventType<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: LenientStr<'a>,
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct AnthropicMessageStart {
    message: AnthropicMessage,
}

/// The beginning of a message, or all of it from a server that does not stream.
#[derive(Deserialize)]
struct AnthropicMessage {
    model: Option<String>,
    usage: Option<AnthropicUsage>,
    content: Option<Vec<Value>>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicBlockStart {
    #[serde(default)]
    index: u64,
    content_block: Value,
}

#[derive(Deserialize)]
struct AnthropicBlockDelta<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: AnthropicDelta<'a>,
}

#[derive(Deserialize)]
struct AnthropicDelta<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: LenientStr<'a>,
    #[serde(borrow, default)]
    text: LenientStr<'a>,
    #[serde(borrow, default)]
    thinking: LenientStr<'a>,
    #[serde(borrow, default)]
    signature: LenientStr<'a>,
    #[serde(borrow, default)]
    partial_json: LenientStr<'a>,
}

#[derive(Deserialize)]
struct AnthropicMessageDelta {
    delta: Option<AnthropicStopDelta>,
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct AnthropicStopDelta {
    stop_reason: Option<String>,
}

/// The usage as the provider counts it: the input does not include cached tokens.
#[derive(Deserialize, Default)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<AnthropicOutputDetails>,
}

#[derive(Deserialize)]
struct AnthropicOutputDetails {
    thinking_tokens: Option<u64>,
}

impl SseReplyBuilder for AnthropicReplyBuilder {
    fn is_complete(&self) -> bool {
        self.over
    }

    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        let data = event.data.trim();
        if self.over || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        match event.name {
            "content_block_delta" => self.delta(read(data)?, chunks),
            "content_block_start" => self.start(read(data)?, chunks),
            "content_block_stop" | "ping" => {}
            "error" => return Err(error::error_from_stream(data)),
            _ => {
                let kind: AnthropicEventType<'_> = read(data)?;
                match &*kind.kind.0 {
                    "content_block_delta" => self.delta(read(data)?, chunks),
                    "content_block_start" => self.start(read(data)?, chunks),
                    "message_start" => self.begin(read::<AnthropicMessageStart>(data)?.message, chunks),
                    "message_delta" => self.message_delta(read(data)?),
                    "message_stop" => self.over = true,
                    "message" => self.begin(read(data)?, chunks),
                    "error" => return Err(error::error_from_stream(data)),
                    _ if kind.error.is_some() => return Err(error::error_from_stream(data)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, ModelErrorKind> {
        std::mem::take(self).into_reply()
    }
}

impl AnthropicReplyBuilder {
    fn begin(&mut self, message: AnthropicMessage, chunks: &mut Vec<ReplyChunk>) {
        self.model = message.model.unwrap_or_default();
        self.count(message.usage);
        for (index, content_block) in (0..).zip(message.content.into_iter().flatten()) {
            self.start(AnthropicBlockStart { index, content_block }, chunks);
        }
        self.stop = message.stop_reason.or(self.stop.take());
    }

    fn start(&mut self, start: AnthropicBlockStart, chunks: &mut Vec<ReplyChunk>) {
        let AnthropicBlockStart { index, mut content_block } = start;
        if !content_block.is_object() {
            return;
        }
        let block = &mut content_block;
        let kind = block["type"].as_str().unwrap_or_default();
        // Some servers begin a block again with each delta.
        let again = match (kind, self.piece(index)) {
            ("text", Some(AnthropicBlock::Text(_))) | ("thinking", Some(AnthropicBlock::Thinking { .. })) => {
                true
            }
            ("tool_use", Some(AnthropicBlock::Call { id, .. })) => block["id"].as_str() == Some(id),
            _ => false,
        };
        if !again {
            let piece = match kind {
                "text" => AnthropicBlock::Text(String::new()),
                "thinking" => AnthropicBlock::Thinking { text: String::new(), signature: String::new() },
                "redacted_thinking" => AnthropicBlock::Redacted(block.take()),
                "tool_use" => AnthropicBlock::Call {
                    id: string(&mut block["id"]),
                    tool: string(&mut block["name"]),
                    whole: block["input"].take(),
                    written: String::new(),
                },
                _ if is_server_block(block) => {
                    AnthropicBlock::Server { block: block.take(), written: String::new() }
                }
                _ => AnthropicBlock::Unknown,
            };
            self.pieces.push((index, piece));
        }
        match self.piece(index) {
            Some(AnthropicBlock::Text(text)) => {
                add(text, &string(&mut block["text"]), push_text_chunk, chunks)
            }
            Some(AnthropicBlock::Thinking { text, signature }) => {
                add(text, &string(&mut block["thinking"]), push_reasoning_chunk, chunks);
                signature.push_str(&string(&mut block["signature"]));
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: AnthropicBlockDelta<'_>, chunks: &mut Vec<ReplyChunk>) {
        let AnthropicBlockDelta { index, delta } = delta;
        if self.piece(index).is_none() {
            let piece = match &*delta.kind.0 {
                "text_delta" => AnthropicBlock::Text(String::new()),
                "thinking_delta" => {
                    AnthropicBlock::Thinking { text: String::new(), signature: String::new() }
                }
                _ => return,
            };
            self.pieces.push((index, piece));
        }
        match (self.piece(index), &*delta.kind.0) {
            (Some(AnthropicBlock::Text(text)), "text_delta") => {
                add(text, &delta.text.0, push_text_chunk, chunks)
            }
            (Some(AnthropicBlock::Thinking { text, .. }), "thinking_delta") => {
                add(text, &delta.thinking.0, push_reasoning_chunk, chunks);
            }
            (Some(AnthropicBlock::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&delta.signature.0);
            }
            (
                Some(AnthropicBlock::Call { written, .. } | AnthropicBlock::Server { written, .. }),
                "input_json_delta",
            ) => {
                written.push_str(&delta.partial_json.0);
            }
            _ => {}
        }
    }

    fn message_delta(&mut self, delta: AnthropicMessageDelta) {
        self.stop = delta.delta.and_then(|delta| delta.stop_reason).or(self.stop.take());
        self.count(delta.usage);
    }

    fn count(&mut self, more: Option<AnthropicUsage>) {
        let Some(more) = more else { return };
        let last = &mut self.usage;
        last.input_tokens = more.input_tokens.or(last.input_tokens);
        last.cache_read_input_tokens = more.cache_read_input_tokens.or(last.cache_read_input_tokens);
        last.cache_creation_input_tokens =
            more.cache_creation_input_tokens.or(last.cache_creation_input_tokens);
        last.output_tokens = more.output_tokens.or(last.output_tokens);
        last.output_tokens_details = more.output_tokens_details.or(last.output_tokens_details.take());
    }

    /// The block of an index: the last one that began with it.
    fn piece(&mut self, index: u64) -> Option<&mut AnthropicBlock> {
        self.pieces.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, piece)| piece)
    }

    fn into_reply(self) -> Result<Reply, ModelErrorKind> {
        let Some(stop) = self.stop else {
            let seen = if self.pieces.is_empty() { "nothing came" } else { "no stop_reason came" };
            return Err(ModelErrorKind::Truncated(seen.to_owned()));
        };
        let mut blocks: Vec<Block> = self.pieces.into_iter().filter_map(|(_, piece)| piece.block()).collect();
        assign_call_ids(&mut blocks);
        // A last call that hit the limit without arguments was cut off; it is not a call without arguments.
        if let ("max_tokens" | "model_context_window_exceeded", Some(Block::Call(call))) =
            (&*stop, blocks.last_mut())
            && call.arguments == "{}"
        {
            call.arguments.clear();
        }
        let calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
        let stop = match stop.as_str() {
            "refusal" => StopReason::Refused,
            // A paused turn is not complete either.
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

impl AnthropicBlock {
    fn block(self) -> Option<Block> {
        match self {
            AnthropicBlock::Text(text) if text.is_empty() => None,
            AnthropicBlock::Text(text) => Some(Block::Text(text)),
            // Thinking without a signature cannot be sent back. llama.cpp sends none.
            AnthropicBlock::Thinking { text, signature } if signature.is_empty() => {
                (!text.is_empty()).then_some(Block::Reasoning { text, opaque: None })
            }
            AnthropicBlock::Thinking { text, signature } => Some(Block::Reasoning {
                text,
                opaque: Some(json!({"type": "thinking", "signature": signature})),
            }),
            AnthropicBlock::Redacted(block) => {
                Some(Block::Reasoning { text: String::new(), opaque: Some(block) })
            }
            AnthropicBlock::Call { id, tool, whole, written } => {
                let arguments = match written.trim().is_empty() {
                    true if whole.is_null() => "{}".to_owned(),
                    true => whole.to_string(),
                    false => written,
                };
                Some(Block::Call(Call { id, tool, arguments }))
            }
            AnthropicBlock::Server { mut block, written } => {
                if let Ok(input) = serde_json::from_str::<Value>(&written) {
                    block["input"] = input;
                }
                Some(Block::Reasoning { text: String::new(), opaque: Some(block) })
            }
            AnthropicBlock::Unknown => None,
        }
    }
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelErrorKind> {
    serde_json::from_str(data)
        .map_err(|_| ModelErrorKind::Truncated(format!("unexpected event: {}", sanitized_line(data))))
}

fn string(value: &mut Value) -> String {
    match value.take() {
        Value::String(text) => text,
        _ => String::new(),
    }
}

fn add(whole: &mut String, more: &str, tell: fn(&mut Vec<ReplyChunk>, &str), chunks: &mut Vec<ReplyChunk>) {
    whole.push_str(more);
    tell(chunks, more);
}
