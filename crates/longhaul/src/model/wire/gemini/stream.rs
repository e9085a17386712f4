//! The stream of Gemini's answers, taken in as it comes.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::Parser;
use super::super::common::bounded;
use super::super::reply::{Text, name_calls, say, think};
use super::super::sse::{Sse, SseEvent};
use super::Failure;
use super::history::On;
use crate::message::{Block, Call, Reply, StopReason, Usage};
use crate::model::{Chunk, ModelErrorKind};

/// One answer.
#[derive(Default)]
pub(super) struct Stream {
    sse: Sse,
    answer: Answer,
}

impl Parser for Stream {
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
    blocks: Vec<Block>,
    /// The last block is complete: what comes begins a new one.
    closed: bool,
    /// Why it stopped; it may say so more than once, and the last word counts.
    finish: Option<String>,
    finish_message: String,
    blocked: bool,
    usage: Counts,
    model: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(default)]
    prompt_feedback: Option<Feedback>,
    #[serde(default)]
    usage_metadata: Option<Counts>,
    #[serde(borrow, default)]
    model_version: Text<'a>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    finish_message: Text<'a>,
    #[serde(default)]
    index: Option<u64>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(borrow, default)]
    thought_signature: Text<'a>,
    #[serde(borrow, default)]
    function_call: Option<FunctionCall<'a>>,
    #[serde(default)]
    executable_code: Option<Value>,
    #[serde(default)]
    code_execution_result: Option<Value>,
    #[serde(default)]
    tool_call: Option<Value>,
    #[serde(default)]
    tool_response: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

/// What was used, as the provider counts it: the output is without the thinking.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Counts {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Answer {
    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<Chunk>) -> Result<(), ModelErrorKind> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        // Without `alt=sse`, and for some errors, it is an array.
        if data.starts_with('[') {
            for one in read::<Vec<&RawValue>>(data)? {
                self.take(read(one.get())?, chunks)?;
            }
            return Ok(());
        }
        self.take(read(data)?, chunks)
    }

    fn take(&mut self, event: Event<'_>, chunks: &mut Vec<Chunk>) -> Result<(), ModelErrorKind> {
        if let Some(error) = event.error {
            return Err(Failure::of(&error).kind());
        }
        if let Some(usage) = event.usage_metadata {
            self.usage = usage;
        }
        if !event.model_version.0.is_empty() {
            self.model = event.model_version.0.into_owned();
        }
        self.blocked |= event.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some());
        let first = |candidate: &Candidate<'_>| candidate.index.unwrap_or(0) == 0;
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

    fn part(&mut self, mut part: Part<'_>, chunks: &mut Vec<Chunk>) {
        let signature = std::mem::take(&mut part.thought_signature).0;
        let signature = &*signature;
        let sign = |blocks: &mut Vec<Block>, on: On| {
            if !signature.is_empty() {
                blocks.push(Block::Reasoning { text: String::new(), opaque: Some(on.signed(signature)) });
            }
        };
        let blocks = &mut self.blocks;
        if let Some(call) = part.function_call.take() {
            sign(blocks, On::Call);
            let arguments = call.args.map_or("{}", RawValue::get).to_owned();
            let (id, tool) = (call.id.0.into_owned(), call.name.0.into_owned());
            blocks.push(Block::Call(Call { id, tool, arguments }));
            self.closed = true;
        } else if let Some(part) = own_tool(&mut part, signature) {
            blocks.push(Block::Reasoning { text: String::new(), opaque: Some(json!({ "part": part })) });
            self.closed = true;
        } else if let Some(Text(text)) = part.text {
            let open = !self.closed;
            if text.is_empty() && signature.is_empty() {
                return;
            }
            if part.thought == Some(true) {
                think(chunks, &text);
                match blocks.last_mut() {
                    Some(Block::Reasoning { text: thought, opaque }) if open => {
                        thought.push_str(&text);
                        *opaque = (!signature.is_empty()).then(|| On::Thought.signed(signature));
                    }
                    _ => blocks.push(Block::Reasoning {
                        text: text.into_owned(),
                        opaque: (!signature.is_empty()).then(|| On::Thought.signed(signature)),
                    }),
                }
                self.closed = !signature.is_empty();
                return;
            }
            say(chunks, &text);
            match blocks.last_mut() {
                _ if text.is_empty() => sign(blocks, On::Nothing),
                // A part that is signed stays by itself.
                _ if !signature.is_empty() => {
                    sign(blocks, On::Text);
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
            sign(blocks, On::Nothing);
            self.closed = true;
        }
    }

    fn reply(mut self) -> Result<Reply, ModelErrorKind> {
        let stop = self.stop()?;
        name_calls(&mut self.blocks);
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
                false if self.blocks.is_empty() => Err(ModelErrorKind::Cut("nothing came".to_owned())),
                false => Err(ModelErrorKind::Cut("no finishReason came".to_owned())),
            };
        };
        let words = || bounded(&format!("{finish} {}", self.finish_message));
        match finish {
            "MAX_TOKENS" => Ok(StopReason::Length),
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "OTHER"
            | "NO_IMAGE" | "ESCALATION" => Ok(StopReason::Refused),
            _ if finish.starts_with("IMAGE_") => Ok(StopReason::Refused),
            // The model stumbled: the same question may well get an answer.
            "MALFORMED_FUNCTION_CALL"
            | "MALFORMED_RESPONSE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS" => Err(ModelErrorKind::Cut(words())),
            "MISSING_THOUGHT_SIGNATURE" => Err(ModelErrorKind::Rejected(words())),
            _ if self.blocks.iter().any(|block| matches!(block, Block::Call(_))) => Ok(StopReason::Calls),
            _ => Ok(StopReason::End),
        }
    }
}

/// What the provider ran itself, as a part.
fn own_tool(part: &mut Part<'_>, signature: &str) -> Option<Value> {
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
        .map_err(|_| ModelErrorKind::Cut(format!("an event that makes no sense: {}", bounded(data))))
}
