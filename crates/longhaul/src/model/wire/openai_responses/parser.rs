//! Parses a streamed response.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::items::encrypted_reasoning;
use crate::message::{Block, Call, Reply, StopReason, Usage};
use crate::model::wire::parsing::{
    BlockCollector, error_from_stream, raw_number, raw_string, reported_cost, sanitized_line, token_count,
};
use crate::model::wire::sse::SseEvent;
use crate::model::wire::sse_reply::SseReplyBuilder;
use crate::model::{ModelErrorKind, ReplyChunk};

/// Builds the reply of one response.
#[derive(Default)]
pub(super) struct ResponsesReplyBuilder {
    collector: BlockCollector,
    /// The block of each item, by its output index and by its ids.
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
    last: Option<usize>,
    usage: Usage,
    /// The cost, if the provider reports it.
    cost: Option<u64>,
    model: String,
    refused: bool,
    stop: Option<StopReason>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
    output_index: Option<&'a RawValue>,
    item_id: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    summary_index: Option<&'a RawValue>,
    item: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct ResponsesObject<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    status: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    output: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    incomplete_details: Option<&'a RawValue>,
}

impl SseReplyBuilder for ResponsesReplyBuilder {
    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn event(&mut self, sse: &SseEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        let data = sse.data.trim();
        // Ignore anything after the end of the response.
        if self.stop.is_some() || (!data.starts_with(['{', '[']) && sse.name != "error") {
            return Ok(());
        }
        let event: ResponsesEvent<'_> = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(_) if sse.name == "error" => return Err(error_from_stream(&json!(data))),
            Err(why) => {
                return Err(ModelErrorKind::Truncated(sanitized_line(&format!("unexpected event: {why}"))));
            }
        };
        let kind = raw_string(event.kind).unwrap_or_else(|| sse.name.to_owned());
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.refused |= kind == "response.refusal.delta";
                let at = self.place(&event, no_text());
                self.collector.append(at, &raw_string(event.delta).unwrap_or_default(), chunks);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let at = self.place(&event, no_thinking());
                self.collector.append(at, &raw_string(event.delta).unwrap_or_default(), chunks);
            }
            "response.function_call_arguments.delta" => {
                let at = self.place(&event, no_call());
                if let Some(call) = self.collector.call_mut(at) {
                    call.arguments.push_str(&raw_string(event.delta).unwrap_or_default());
                }
            }
            "response.output_text.done" | "response.refusal.done" => {
                let said = raw_string(event.text).or_else(|| raw_string(event.refusal)).unwrap_or_default();
                self.refused |= kind == "response.refusal.done";
                let at = self.place(&event, no_text());
                self.fill(at, said, chunks);
            }
            "response.reasoning_summary_part.added" if raw_number(event.summary_index).unwrap_or(0) > 0 => {
                let at = self.place(&event, no_thinking());
                self.collector.append(at, "\n\n", chunks);
            }
            "response.function_call_arguments.done" => {
                let at = self.place(&event, no_call());
                self.arguments(at, raw_string(event.arguments));
            }
            "response.output_item.added" | "response.output_item.done" => {
                self.item(&event, kind.ends_with("done"), chunks);
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                self.model(&parse_response(event.response));
            }
            "response.completed" | "response.done" | "response.incomplete" => {
                self.ended(&parse_response(event.response), &kind, chunks)?;
            }
            "response.failed" | "response.cancelled" => return Err(failed(&parse_response(event.response))),
            "error" => return Err(error_from_stream(&serde_json::from_str(data).unwrap_or_default())),
            _ if event.error.is_some() => {
                // A response that is not streamed also has an `error` field, which is usually null.
                return Err(error_from_stream(&serde_json::from_str(data).unwrap_or_default()));
            }
            _ if raw_string(event.object).is_some_and(|object| object == "response") => {
                let response: ResponsesObject<'_> = serde_json::from_str(data).unwrap_or_default();
                // A response that is still in progress has not ended.
                if !matches!(raw_string(response.status).as_deref(), None | Some("queued" | "in_progress")) {
                    self.ended(&response, "", chunks)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, ModelErrorKind> {
        let Some(stop) = self.stop.take() else {
            let why = if self.collector.is_empty() { "nothing came" } else { "no final status came" };
            return Err(ModelErrorKind::Truncated(why.to_owned()));
        };
        let blocks = self.collector.finish(stop);
        Ok(Reply { blocks, stop, usage: self.usage, model: std::mem::take(&mut self.model), cost: self.cost })
    }
}

impl ResponsesReplyBuilder {
    /// The block of the item that an event is about, or a new one if no such item began.
    fn place(&mut self, event: &ResponsesEvent<'_>, new: Block) -> usize {
        let (index, id) = (raw_number(event.output_index), raw_string(event.item_id).unwrap_or_default());
        match self.known(index, [&id], &new) {
            Some(at) => at,
            None => self.open(index, [id], new),
        }
    }

    /// Finds the block of an item: by its index, else by one of its ids, else the last one.
    fn known<const N: usize>(&mut self, index: Option<u64>, ids: [&str; N], like: &Block) -> Option<usize> {
        let at = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None if ids.iter().all(|id| id.is_empty()) => self.last,
            None => ids.iter().find_map(|id| self.by_id.get(*id).copied()),
        };
        let kind = std::mem::discriminant(like);
        at.filter(|at| {
            self.collector.block_mut(*at).is_some_and(|block| std::mem::discriminant(block) == kind)
        })
    }

    fn open<const N: usize>(&mut self, index: Option<u64>, ids: [String; N], block: Block) -> usize {
        let at = self.collector.open_block(block);
        self.last = Some(at);
        if let Some(index) = index {
            self.by_index.insert(index, at);
        }
        for id in ids.into_iter().filter(|id| !id.is_empty()) {
            self.by_id.insert(id, at);
        }
        at
    }

    /// Handles an item that began or is complete.
    fn item(&mut self, event: &ResponsesEvent<'_>, whole: bool, chunks: &mut Vec<ReplyChunk>) {
        let item: Value = event.item.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let said = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let block = match item.get("type").and_then(Value::as_str) {
            Some("message") => no_text(),
            Some("reasoning") => no_thinking(),
            Some("function_call") => no_call(),
            _ => return,
        };
        let (index, ids) = (raw_number(event.output_index), [said("id"), said("call_id")]);
        let known = self.known(index, [&ids[0], &ids[1]], &block);
        let at = match known {
            // If nothing tells items apart, an item that begins is a new one.
            Some(at) if whole || index.is_some() => at,
            _ => self.open(index, ids, block),
        };
        self.take(at, &item, whole, chunks);
    }

    /// Takes from an item what the block does not have yet.
    fn take(&mut self, at: usize, item: &Value, whole: bool, chunks: &mut Vec<ReplyChunk>) {
        let said = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(call) = self.collector.call_mut(at) {
            if call.tool.is_empty() {
                call.tool = said("name");
            }
            if call.id.is_empty() {
                call.id = said("call_id");
            }
            self.arguments(at, Some(said("arguments")).filter(|arguments| whole || !arguments.is_empty()));
            return;
        }
        if !whole {
            return;
        }
        let mut text = String::new();
        for part in ["summary", "content"].iter().filter_map(|key| item.get(key)?.as_array()).flatten() {
            let refusal = part.get("refusal").and_then(Value::as_str);
            self.refused |= refusal.is_some();
            text.push_str(refusal.or_else(|| part.get("text")?.as_str()).unwrap_or_default());
        }
        self.fill(at, text, chunks);
        if let Some(Block::Reasoning { opaque, .. }) = self.collector.block_mut(at) {
            *opaque = encrypted_reasoning(item).map(Value::Object);
        }
    }

    /// Sets a text of which no delta came.
    fn fill(&mut self, at: usize, whole: String, chunks: &mut Vec<ReplyChunk>) {
        let nothing = match self.collector.block_mut(at) {
            Some(Block::Text(text) | Block::Reasoning { text, .. }) => text.is_empty(),
            _ => false,
        };
        if nothing {
            self.collector.append(at, &whole, chunks);
        }
    }

    /// Sets the complete arguments, whatever deltas came. Missing arguments do not replace existing ones.
    fn arguments(&mut self, at: usize, whole: Option<String>) {
        if let (Some(call), Some(whole)) = (self.collector.call_mut(at), whole)
            && (!whole.is_empty() || call.arguments.is_empty())
        {
            call.arguments = whole;
        }
    }

    fn model(&mut self, response: &ResponsesObject<'_>) {
        if let Some(model) = raw_string(response.model).filter(|model| !model.is_empty()) {
            self.model = model;
        }
    }

    /// Handles the end of the response.
    fn ended(
        &mut self,
        response: &ResponsesObject<'_>,
        kind: &str,
        chunks: &mut Vec<ReplyChunk>,
    ) -> Result<(), ModelErrorKind> {
        self.model(response);
        let status = raw_string(response.status).unwrap_or_default();
        if response.error.is_some() || matches!(status.as_str(), "failed" | "cancelled") {
            return Err(failed(response));
        }
        if let Some(reported) = response.usage.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) {
            self.cost = reported_cost(&reported);
            self.usage = usage(&reported);
        }
        if self.collector.is_empty() {
            self.output(response.output, chunks);
        }
        let why: Value = response
            .incomplete_details
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let incomplete = kind == "response.incomplete" || status == "incomplete";
        self.stop = Some(match why.get("reason").and_then(Value::as_str) {
            Some("content_filter") => StopReason::Refused,
            _ if incomplete => StopReason::Length,
            _ if self.collector.has_calls() => StopReason::Calls,
            _ if self.refused => StopReason::Refused,
            _ => StopReason::End,
        });
        Ok(())
    }

    /// Takes the items of a response if none was streamed.
    fn output(&mut self, raw: Option<&RawValue>, chunks: &mut Vec<ReplyChunk>) {
        let items: Vec<Value> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        for item in &items {
            let block = match item.get("type").and_then(Value::as_str) {
                Some("message") => no_text(),
                Some("reasoning") => no_thinking(),
                Some("function_call") => no_call(),
                _ => continue,
            };
            let at = self.collector.open_block(block);
            self.take(at, item, true, chunks);
        }
    }
}

fn no_text() -> Block {
    Block::Text(String::new())
}

fn no_thinking() -> Block {
    Block::Reasoning { text: String::new(), opaque: None }
}

fn no_call() -> Block {
    Block::Call(Call { id: String::new(), tool: String::new(), arguments: String::new() })
}

fn parse_response(raw: Option<&RawValue>) -> ResponsesObject<'_> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn failed(response: &ResponsesObject<'_>) -> ModelErrorKind {
    let status = raw_string(response.status).unwrap_or_default();
    match response.error.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) {
        Some(error) => error_from_stream(&json!({ "error": error })),
        None => ModelErrorKind::Server { status: 500, message: format!("the response is {status}") },
    }
}

/// Normalizes the usage.
fn usage(reported: &Value) -> Usage {
    let cached = token_count(reported, &["/input_tokens_details/cached_tokens"]);
    let cache_written = token_count(reported, &["/input_tokens_details/cache_write_tokens"]);
    let output = token_count(reported, &["/output_tokens"]);
    Usage {
        input: token_count(reported, &["/input_tokens"]).max(cached.saturating_add(cache_written)),
        cached,
        cache_written,
        output,
        reasoning: token_count(reported, &["/output_tokens_details/reasoning_tokens"]).min(output),
    }
}
