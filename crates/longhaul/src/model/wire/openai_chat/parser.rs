//! Parses a streamed chat completion.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::event_template::{ChatDeltaKind, EventTemplate};
use super::messages::DETAILS;
use super::tool_calls::{ChatCallCollector, ChatCallDelta, ChatFunctionDelta};
use super::usage::parse_usage;
use crate::message::{Reply, StopReason, Usage};
use crate::model::wire::parsing::{
    BlockCollector, error_from_stream, raw_number, raw_string, reported_cost, sanitized_line,
};
use crate::model::wire::sse::SseEvent;
use crate::model::wire::sse_reply::SseReplyBuilder;
use crate::model::{ModelErrorKind, ReplyChunk};

/// Builds the reply of one response.
#[derive(Default)]
pub(super) struct ChatReplyBuilder {
    collector: BlockCollector,
    calls: ChatCallCollector,
    details: ReasoningDetails,
    usage: Usage,
    /// The cost, if the provider reports it.
    cost: Option<u64>,
    model: String,
    /// The finish reason, if it came.
    finish: Option<String>,
    refused: bool,
    /// The index of the choice that is parsed. Other choices are ignored.
    choice: Option<u64>,
    done: bool,
    likeness: EventTemplate,
}

#[derive(Deserialize)]
struct ChatEvent<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    choices: Option<Vec<ChatChoice<'a>>>,
    usage: Option<&'a RawValue>,
    x_groq: Option<&'a RawValue>,
    model: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    delta: Option<ChatDelta<'a>>,
    /// The whole message, if the response is not streamed.
    message: Option<ChatDelta<'a>>,
    finish_reason: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatDelta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
    reasoning_content: Option<&'a RawValue>,
    reasoning: Option<&'a RawValue>,
    reasoning_details: Option<&'a RawValue>,
    tool_calls: Option<Vec<ChatCallDelta<'a>>>,
    function_call: Option<ChatFunctionDelta<'a>>,
}

impl<'a> ChatEvent<'a> {
    /// The choice, the kind and the raw string of a frame that holds one string and nothing else.
    fn only_piece(&self) -> Option<(u64, ChatDeltaKind, &'a str)> {
        let ChatEvent { error: None, choices: Some(choices), usage: None, x_groq: None, .. } = self else {
            return None;
        };
        let [
            ChatChoice {
                index,
                delta: Some(delta),
                message: None,
                finish_reason: None,
                error: None,
                usage: None,
            },
        ] = &choices[..]
        else {
            return None;
        };
        let ChatDelta { content, refusal: None, reasoning_details: None, function_call: None, .. } = delta
        else {
            return None;
        };
        let calls = delta.tool_calls.as_deref().unwrap_or_default();
        let (said, literal) = match (content, delta.reasoning_content, delta.reasoning, calls) {
            (Some(text), None, None, []) => (ChatDeltaKind::Text, text.get()),
            (None, Some(text), None, []) | (None, None, Some(text), []) => {
                (ChatDeltaKind::Reasoning, text.get())
            }
            (None, None, None, [call]) => {
                let (number, arguments) = call.only_arguments()?;
                (ChatDeltaKind::Arguments(number), arguments)
            }
            _ => return None,
        };
        literal.starts_with('"').then_some((raw_number(*index).unwrap_or(0), said, literal))
    }
}

impl SseReplyBuilder for ChatReplyBuilder {
    fn is_complete(&self) -> bool {
        self.done
    }

    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        let data = event.data.trim();
        if self.done {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if event.name == "error" {
            let error = serde_json::from_str(data).unwrap_or_else(|_| json!(data));
            return Err(error_from_stream(&error));
        }
        if let Some((said, text)) = self.likeness.match_event(data) {
            match said {
                ChatDeltaKind::Text => self.collector.push_text(&text, chunks),
                ChatDeltaKind::Reasoning => self.collector.push_reasoning(&text, chunks),
                ChatDeltaKind::Arguments(index) => {
                    self.calls.add_parts(index, String::new(), String::new(), &text, &mut self.collector);
                }
            }
            return Ok(());
        }
        if !data.starts_with(['{', '[']) {
            return Ok(());
        }
        let frame: ChatEvent<'_> = match serde_json::from_str(data) {
            Ok(frame) => frame,
            Err(why) => return Err(misread(data, &why)),
        };
        let wrong = frame.error.is_some_and(|error| !matches!(error.get(), "\"\"" | "{}" | "false"));
        if wrong || frame.object.is_some_and(|object| object.get() == "\"error\"") {
            return Err(error_from_stream(&serde_json::from_str(data).unwrap_or_default()));
        }
        if self.model.is_empty() {
            self.model = raw_string(frame.model).unwrap_or_default();
        }
        self.used(frame.usage);
        self.used_groq(frame.x_groq);
        if let Some((index, said, literal)) = frame.only_piece()
            && *self.choice.get_or_insert(index) == index
        {
            self.likeness.learn(data, literal, said);
        }
        for choice in frame.choices.unwrap_or_default() {
            self.choice(choice, data, chunks)?;
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, ModelErrorKind> {
        let Some(finish) = self.finish.take() else {
            let why = if self.collector.is_empty() { "nothing came" } else { "no finish_reason came" };
            return Err(ModelErrorKind::Truncated(why.to_owned()));
        };
        let said = if self.collector.has_calls() { StopReason::Calls } else { StopReason::End };
        let stop = match finish.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "model_length" | "max_output_tokens" => StopReason::Length,
            "content_filter" | "refusal" | "safety" | "sensitive" => StopReason::Refused,
            "error" | "insufficient_system_resource" | "network_error" => {
                return Err(ModelErrorKind::Server {
                    status: 503,
                    message: format!("it stopped with `{finish}`"),
                });
            }
            "abort" | "aborted" | "cancelled" => {
                return Err(ModelErrorKind::Truncated(format!("it stopped with `{finish}`")));
            }
            _ if self.refused && said == StopReason::End => StopReason::Refused,
            _ => said,
        };
        if let Some(details) = self.details.take() {
            self.collector.attach_opaque(json!({ DETAILS: details }));
        }
        let blocks = self.collector.finish(stop);
        Ok(Reply { blocks, stop, usage: self.usage, model: std::mem::take(&mut self.model), cost: self.cost })
    }
}

impl ChatReplyBuilder {
    fn choice(
        &mut self,
        choice: ChatChoice<'_>,
        data: &str,
        chunks: &mut Vec<ReplyChunk>,
    ) -> Result<(), ModelErrorKind> {
        if choice.error.is_some() {
            let error: Value = serde_json::from_str(data).unwrap_or_default();
            return Err(error_from_stream(error.pointer("/choices/0").unwrap_or(&error)));
        }
        let index = raw_number(choice.index).unwrap_or(0);
        if *self.choice.get_or_insert(index) != index {
            return Ok(());
        }
        self.used(choice.usage);
        if let Some(delta) = choice.delta.or(choice.message) {
            self.delta(delta, chunks);
        }
        if let Some(reason) = raw_string(choice.finish_reason).filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason);
        }
        Ok(())
    }

    fn delta(&mut self, delta: ChatDelta<'_>, chunks: &mut Vec<ReplyChunk>) {
        let thought = raw_string(delta.reasoning_content)
            .filter(|text| !text.is_empty())
            .or_else(|| raw_string(delta.reasoning));
        let said = delta.reasoning_details.map(|details| self.details.add(details)).unwrap_or_default();
        self.collector.push_reasoning(&thought.unwrap_or(said), chunks);
        match delta.content.map(|raw| (raw, raw_string(Some(raw)))) {
            Some((_, Some(text))) => self.collector.push_text(&text, chunks),
            Some((raw, None)) => self.parts(raw, chunks),
            None => {}
        }
        if let Some(refusal) = raw_string(delta.refusal).filter(|text| !text.is_empty()) {
            self.refused = true;
            self.collector.push_text(&refusal, chunks);
        }
        for piece in delta.tool_calls.unwrap_or_default() {
            self.calls.add(piece, &mut self.collector);
        }
        if let Some(function) = delta.function_call {
            self.calls.add_function(function, &mut self.collector);
        }
    }

    /// Content in parts: text, and thinking that itself has parts.
    fn parts(&mut self, raw: &RawValue, chunks: &mut Vec<ReplyChunk>) {
        let parts: Vec<Value> = serde_json::from_str(raw.get()).unwrap_or_default();
        for part in &parts {
            if let Some(thinking) = part.get("thinking") {
                for piece in thinking.as_array().into_iter().flatten() {
                    self.collector.push_reasoning(&text_of(piece), chunks);
                }
                self.collector.push_reasoning(thinking.as_str().unwrap_or_default(), chunks);
            } else if let Some(refusal) = part.get("refusal").and_then(Value::as_str) {
                self.refused |= !refusal.is_empty();
                self.collector.push_text(refusal, chunks);
            } else {
                self.collector.push_text(&text_of(part), chunks);
            }
        }
    }

    /// The usage so far: the last report counts, unless it is empty.
    fn used(&mut self, raw: Option<&RawValue>) {
        let Some(reported) = raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) else {
            return;
        };
        self.cost = reported_cost(&reported).or(self.cost);
        let used = parse_usage(&reported);
        if used.total() > 0 {
            self.usage = used;
        }
    }

    fn used_groq(&mut self, raw: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Groq<'a> {
            #[serde(borrow)]
            usage: Option<&'a RawValue>,
        }
        if let Some(groq) = raw.and_then(|raw| serde_json::from_str::<Groq<'_>>(raw.get()).ok()) {
            self.used(groq.usage);
        }
    }
}

/// The error for a frame that cannot be parsed: it may still contain an error message.
fn misread(data: &str, why: &serde_json::Error) -> ModelErrorKind {
    match serde_json::from_str::<Value>(data) {
        Ok(value) if value.get("error").is_some() || value.pointer("/0/error").is_some() => {
            error_from_stream(&value)
        }
        _ => ModelErrorKind::Truncated(sanitized_line(&format!("unexpected event: {why}"))),
    }
}

fn text_of(part: &Value) -> String {
    part.get("text").and_then(Value::as_str).or_else(|| part.as_str()).unwrap_or_default().to_owned()
}

/// OpenRouter's `reasoning_details`: they come in pieces, and go back unchanged.
#[derive(Default)]
struct ReasoningDetails {
    whole: Vec<Map<String, Value>>,
    by_place: HashMap<(String, u64), usize>,
}

impl ReasoningDetails {
    /// Adds details and returns the readable thinking in them.
    fn add(&mut self, raw: &RawValue) -> String {
        let pieces: Vec<Map<String, Value>> = serde_json::from_str(raw.get()).unwrap_or_default();
        let mut said = String::new();
        for piece in pieces {
            for key in ["text", "summary"] {
                said.push_str(piece.get(key).and_then(Value::as_str).unwrap_or_default());
            }
            let kind = piece.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            let index = piece.get("index").and_then(Value::as_u64);
            let next = self.whole.len();
            let at = match index {
                Some(index) => *self.by_place.entry((kind, index)).or_insert(next),
                None => next,
            };
            match self.whole.get_mut(at) {
                Some(whole) => join(whole, piece),
                None => self.whole.push(piece),
            }
        }
        said
    }

    fn take(&mut self) -> Option<Vec<Map<String, Value>>> {
        self.by_place.clear();
        Some(std::mem::take(&mut self.whole)).filter(|whole| !whole.is_empty())
    }
}

/// Merges a piece into a detail: text is appended, anything else is replaced.
fn join(whole: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (whole.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more))
                if matches!(key.as_str(), "text" | "summary" | "data") =>
            {
                text.push_str(&more);
            }
            (_, value) => {
                whole.insert(key, value);
            }
        }
    }
}
