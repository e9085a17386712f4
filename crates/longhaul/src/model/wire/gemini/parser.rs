//! Parses the stream of Gemini's responses.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::parsing::sanitized_line;
use super::super::reply_chunks::{LenientStr, assign_call_ids, push_reasoning_chunk, push_text_chunk};
use super::super::sse::SseEvent;
use super::super::sse_reply::SseReplyBuilder;
use super::GeminiError;
use super::content_parts::SignatureTarget;
use crate::message::{Block, Call, Reply, StopReason, Usage};
use crate::model::{ModelErrorKind, ReplyChunk};

/// Builds the reply of one response.
#[derive(Default)]
pub(super) struct GeminiReplyBuilder {
    blocks: Vec<Block>,
    /// Whether the last block is complete, so that the next part begins a new one.
    closed: bool,
    /// The finish reason. It may come more than once; the last one counts.
    finish: Option<String>,
    finish_message: String,
    blocked: bool,
    usage: GeminiUsage,
    model: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiEvent<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<GeminiCandidate<'a>>>,
    prompt_feedback: Option<GeminiPromptFeedback>,
    usage_metadata: Option<GeminiUsage>,
    #[serde(borrow, default)]
    model_version: LenientStr<'a>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate<'a> {
    #[serde(borrow, default)]
    content: Option<GeminiContent<'a>>,
    #[serde(borrow, default)]
    finish_reason: LenientStr<'a>,
    #[serde(borrow, default)]
    finish_message: LenientStr<'a>,
    index: Option<u64>,
}

#[derive(Deserialize)]
struct GeminiContent<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<GeminiPart<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart<'a> {
    #[serde(borrow, default)]
    text: Option<LenientStr<'a>>,
    thought: Option<bool>,
    #[serde(borrow, default)]
    thought_signature: LenientStr<'a>,
    #[serde(borrow, default)]
    function_call: Option<GeminiFunctionCall<'a>>,
    executable_code: Option<Value>,
    code_execution_result: Option<Value>,
    tool_call: Option<Value>,
    tool_response: Option<Value>,
}

#[derive(Deserialize)]
struct GeminiFunctionCall<'a> {
    #[serde(borrow, default)]
    id: LenientStr<'a>,
    #[serde(borrow, default)]
    name: LenientStr<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPromptFeedback {
    block_reason: Option<String>,
}

/// The usage as the provider counts it: the output does not include thinking.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct GeminiUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl SseReplyBuilder for GeminiReplyBuilder {
    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        // Without `alt=sse`, and for some errors, the response is an array.
        if data.starts_with('[') {
            for one in read::<Vec<&RawValue>>(data)? {
                self.take(read(one.get())?, chunks)?;
            }
            return Ok(());
        }
        self.take(read(data)?, chunks)
    }

    fn reply(&mut self) -> Result<Reply, ModelErrorKind> {
        std::mem::take(self).into_reply()
    }
}

impl GeminiReplyBuilder {
    fn take(&mut self, event: GeminiEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        if let Some(error) = event.error {
            return Err(GeminiError::from_json(&error).kind());
        }
        if let Some(usage) = event.usage_metadata {
            self.usage = usage;
        }
        if !event.model_version.0.is_empty() {
            self.model = event.model_version.0.into_owned();
        }
        self.blocked |= event.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        let first = |candidate: &GeminiCandidate<'_>| candidate.index.unwrap_or(0) == 0;
        for candidate in event.candidates.into_iter().flatten().filter(first) {
            for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
                self.part(part, chunks);
            }
            if !matches!(&*candidate.finish_reason.0, "" | "FINISH_REASON_UNSPECIFIED") {
                self.finish = Some(candidate.finish_reason.0.into_owned());
                self.finish_message = candidate.finish_message.0.into_owned();
            }
        }
        Ok(())
    }

    fn part(&mut self, mut part: GeminiPart<'_>, chunks: &mut Vec<ReplyChunk>) {
        let signature = std::mem::take(&mut part.thought_signature).0;
        let signature = &*signature;
        let sign = |blocks: &mut Vec<Block>, on: SignatureTarget| {
            if !signature.is_empty() {
                blocks.push(Block::Reasoning { text: String::new(), opaque: Some(on.to_block(signature)) });
            }
        };
        let blocks = &mut self.blocks;
        if let Some(call) = part.function_call.take() {
            sign(blocks, SignatureTarget::Call);
            let arguments = call.args.map_or("{}", RawValue::get).to_owned();
            let (id, tool) = (call.id.0.into_owned(), call.name.0.into_owned());
            blocks.push(Block::Call(Call { id, tool, arguments }));
            self.closed = true;
        } else if let Some(part) = own_tool(&mut part, signature) {
            blocks.push(Block::Reasoning { text: String::new(), opaque: Some(json!({ "part": part })) });
            self.closed = true;
        } else if let Some(LenientStr(text)) = part.text {
            let open = !self.closed;
            if text.is_empty() && signature.is_empty() {
                return;
            }
            if part.thought == Some(true) {
                push_reasoning_chunk(chunks, &text);
                match blocks.last_mut() {
                    Some(Block::Reasoning { text: thought, opaque }) if open => {
                        thought.push_str(&text);
                        *opaque =
                            (!signature.is_empty()).then(|| SignatureTarget::Thought.to_block(signature));
                    }
                    _ => blocks.push(Block::Reasoning {
                        text: text.into_owned(),
                        opaque: (!signature.is_empty()).then(|| SignatureTarget::Thought.to_block(signature)),
                    }),
                }
                self.closed = !signature.is_empty();
                return;
            }
            push_text_chunk(chunks, &text);
            match blocks.last_mut() {
                _ if text.is_empty() => sign(blocks, SignatureTarget::Nothing),
                // A signed part stays a separate block.
                _ if !signature.is_empty() => {
                    sign(blocks, SignatureTarget::Text);
                    blocks.push(Block::Text(text.into_owned()));
                }
                Some(Block::Text(said)) if open => said.push_str(&text),
                _ => {
                    blocks.push(Block::Text(text.into_owned()));
                    self.closed = false;
                }
            }
            self.closed |= !signature.is_empty();
        } else if !signature.is_empty() {
            sign(blocks, SignatureTarget::Nothing);
            self.closed = true;
        }
    }

    fn into_reply(mut self) -> Result<Reply, ModelErrorKind> {
        let stop = self.stop()?;
        assign_call_ids(&mut self.blocks);
        let used = self.usage;
        let reasoning = used.thoughts_token_count.unwrap_or(0);
        let tools = used.tool_use_prompt_token_count.unwrap_or(0);
        let usage = Usage {
            input: used.prompt_token_count.unwrap_or(0).saturating_add(tools),
            cached: used.cached_content_token_count.unwrap_or(0),
            cache_written: 0,
            output: used.candidates_token_count.unwrap_or(0).saturating_add(reasoning),
            reasoning,
        };
        Ok(Reply { blocks: self.blocks, stop, usage, model: self.model, cost: None })
    }

    fn stop(&self) -> Result<StopReason, ModelErrorKind> {
        let Some(finish) = self.finish.as_deref() else {
            return match self.blocked {
                true => Ok(StopReason::Refused),
                false if self.blocks.is_empty() => Err(ModelErrorKind::Truncated("nothing came".to_owned())),
                false => Err(ModelErrorKind::Truncated("no finishReason came".to_owned())),
            };
        };
        let words = || sanitized_line(&format!("{finish} {}", self.finish_message));
        match finish {
            "MAX_TOKENS" => Ok(StopReason::Length),
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "OTHER"
            | "NO_IMAGE" | "ESCALATION" => Ok(StopReason::Refused),
            _ if finish.starts_with("IMAGE_") => Ok(StopReason::Refused),
            // The model made a mistake: a retry may succeed.
            "MALFORMED_FUNCTION_CALL"
            | "MALFORMED_RESPONSE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS" => Err(ModelErrorKind::Truncated(words())),
            "MISSING_THOUGHT_SIGNATURE" => Err(ModelErrorKind::Rejected(words())),
            _ if self.blocks.iter().any(|block| matches!(block, Block::Call(_))) => Ok(StopReason::Calls),
            _ => Ok(StopReason::End),
        }
    }
}

/// A part of the provider's own tools.
fn own_tool(part: &mut GeminiPart<'_>, signature: &str) -> Option<Value> {
    let (name, value) = [
        ("executableCode", &mut part.executable_code),
        ("codeExecutionResult", &mut part.code_execution_result),
        ("toolCall", &mut part.tool_call),
        ("toolResponse", &mut part.tool_response),
    ]
    .into_iter()
    .find_map(|(name, value)| Some((name, value.take()?)))?;
    let mut made = json!({ name: value });
    if !signature.is_empty() {
        made["thoughtSignature"] = json!(signature);
    }
    Some(made)
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelErrorKind> {
    serde_json::from_str(data)
        .map_err(|_| ModelErrorKind::Truncated(format!("unexpected event: {}", sanitized_line(data))))
}
