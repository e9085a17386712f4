//! The JSON of responses, output items and events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{FailureKind, Outcome};
use longhaul::id::CallId;
use longhaul::message::Usage;
use serde_json::{Map, Value, json};

use super::projection::{Change, Item, ItemBody, ItemStatus, NumberedEvent, Phase, Projection, Step};
use super::request::Shown;

/// What stays the same during the life of a response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub(super) task: TaskId,
    pub(super) created: Timestamp,
    pub(super) model: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) instructions: Option<String>,
    pub(super) background: bool,
    pub(super) previous: Option<TaskId>,
}

/// What is known about a response besides its journal.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    /// The tokens of the task and everything below it.
    pub(super) usage: Usage,
    pub(super) ended: Option<Timestamp>,
    /// It was stopped, and its end is not in the journal yet.
    pub(super) stopped: bool,
    /// A question of the task, or of one below it.
    pub(super) question: Option<NeededAnswer>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NeededAnswer {
    pub(super) task: TaskId,
    pub(super) question: String,
    pub(super) text: String,
}

/// The id of a task's response.
pub(super) fn response_id(task: TaskId) -> String {
    format!("resp_{}", task.letters())
}

/// The status of a response.
fn status(projection: &Projection, stopped: bool) -> &'static str {
    match &projection.outcome {
        Some(Outcome::Completed { cut_short: None, .. }) => "completed",
        Some(Outcome::Completed { .. }) => "incomplete",
        Some(Outcome::Failed { failure, .. }) if failure.kind == FailureKind::Budget => "incomplete",
        Some(Outcome::Failed { .. }) => "failed",
        Some(Outcome::Cancelled { .. }) => "cancelled",
        None if stopped => "cancelled",
        None if projection.started => "in_progress",
        None => "queued",
    }
}

/// The response object, with the output that is wanted.
pub(super) fn response(
    header: &Header,
    projection: &Projection,
    surroundings: &Surroundings,
    output: Vec<Value>,
) -> Value {
    let mut metadata: Map<String, Value> =
        header.metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let mut own = |key: &str, value: &str| {
        metadata.insert(format!("longhaul.{key}"), json!(value.chars().take(512).collect::<String>()));
    };
    let (mut error, mut incomplete, mut completed_at) = (Value::Null, Value::Null, Value::Null);
    match &projection.outcome {
        Some(Outcome::Completed { cut_short: None, .. }) => {
            completed_at = json!(surroundings.ended.map(Timestamp::as_second));
        }
        Some(Outcome::Completed { cut_short: Some(limit), .. }) => {
            own("cut_short", limit);
            incomplete = json!({ "reason": "max_output_tokens" });
        }
        Some(Outcome::Failed { failure, .. }) if failure.kind == FailureKind::Budget => {
            own("cut_short", &failure.message);
            incomplete = json!({ "reason": "max_output_tokens" });
        }
        Some(Outcome::Failed { failure, .. }) => {
            error = json!({ "code": "server_error", "message": failure.to_string() });
        }
        Some(Outcome::Cancelled { .. }) => {}
        None => {
            if let Some(needed) = &surroundings.question {
                own("needs", &needed.text);
                own("question", &needed.question);
                own("task", &needed.task.to_string());
            }
        }
    }
    let usage = projection.outcome.as_ref().map(|_| usage(&surroundings.usage));
    json!({
        "id": response_id(header.task),
        "object": "response",
        "created_at": header.created.as_second(),
        "completed_at": completed_at,
        "status": status(projection, surroundings.stopped),
        "background": header.background,
        "error": error,
        "incomplete_details": incomplete,
        "instructions": header.instructions,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": metadata,
        "model": header.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": header.previous.map(response_id),
        "reasoning": { "effort": null, "summary": null },
        "service_tier": "default",
        "store": true,
        "temperature": null,
        "text": { "format": { "type": "text" } },
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
        "usage": usage,
    })
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.total(),
    })
}

/// The output of a response: its answer, or the message that is being written; the rest as it is wanted.
pub(super) fn output(task: TaskId, projection: &Projection, shown: Shown) -> Vec<Value> {
    let is_shown = |(at, item): &(usize, &Item)| match item.body {
        ItemBody::Message { .. } => {
            projection.answer.or(projection.open()) == Some(*at)
                || shown.commentary && item.status != ItemStatus::Withdrawn
        }
        ItemBody::Reasoning { .. } => shown.reasoning,
        ItemBody::Call { .. } | ItemBody::CallOutput { .. } => shown.tool_calls,
    };
    let mut items: Vec<_> =
        projection.items.iter().enumerate().filter(is_shown).map(|(_, item)| item).collect();
    items.sort_by_key(|item| item.number);
    items.into_iter().map(|item| done_item(task, item)).collect()
}

/// The items that a stream has had so far. Their positions are their `output_index`es.
pub(super) fn streamed_output(task: TaskId, projection: &Projection, shown: Shown) -> Vec<Value> {
    let mut items: Vec<_> = projection.items.iter().filter(|item| is_streamed(item, shown)).collect();
    items.sort_by_key(|item| item.number);
    items.into_iter().map(|item| done_item(task, item)).collect()
}

/// Whether a stream shows an item.
pub(super) fn is_streamed(item: &Item, shown: Shown) -> bool {
    match item.body {
        ItemBody::Message { .. } => true,
        ItemBody::Reasoning { .. } => shown.reasoning,
        ItemBody::Call { .. } | ItemBody::CallOutput { .. } => shown.tool_calls,
    }
}

fn item_id(task: TaskId, item: &Item) -> String {
    let kind = match item.body {
        ItemBody::Message { .. } => "msg",
        ItemBody::Reasoning { .. } => "rs",
        ItemBody::Call { .. } => "fc",
        ItemBody::CallOutput { .. } => "fco",
    };
    format!("{kind}_{}_{}", task.letters(), item.number)
}

fn call_id(call: CallId) -> String {
    format!("call_{}_{}", call.turn, call.index)
}

/// An item as it is when it was just added.
fn new_item(task: TaskId, item: &Item) -> Value {
    let body = match &item.body {
        ItemBody::Message { .. } => ItemBody::Message { text: String::new() },
        ItemBody::Reasoning { .. } => ItemBody::Reasoning { text: String::new() },
        ItemBody::Call { call, tool, .. } => {
            ItemBody::Call { call: *call, tool: tool.clone(), arguments: String::new() }
        }
        output @ ItemBody::CallOutput { .. } => output.clone(),
    };
    done_item(task, &Item { body, status: ItemStatus::InProgress, phase: None, ..*item })
}

/// An item as it is now.
fn done_item(task: TaskId, item: &Item) -> Value {
    let id = item_id(task, item);
    let status = match item.status {
        ItemStatus::InProgress => "in_progress",
        ItemStatus::Completed => "completed",
        ItemStatus::Incomplete | ItemStatus::Withdrawn => "incomplete",
    };
    match &item.body {
        ItemBody::Message { text } => {
            let is_empty = text.is_empty() || item.status == ItemStatus::Withdrawn;
            let content = if is_empty { vec![] } else { vec![text_part(text)] };
            let mut message = json!({
                "id": id, "type": "message", "role": "assistant", "status": status, "content": content,
            });
            if let Some(phase) = item.phase {
                message["phase"] = json!(match phase {
                    Phase::Commentary => "commentary",
                    Phase::FinalAnswer => "final_answer",
                });
            }
            message
        }
        ItemBody::Reasoning { text } => {
            let summary = if text.is_empty() { vec![] } else { vec![summary_part(text)] };
            json!({ "id": id, "type": "reasoning", "status": status, "summary": summary })
        }
        ItemBody::Call { call, tool, arguments } => json!({
            "id": id, "type": "function_call", "status": status,
            "call_id": call_id(*call), "name": tool, "arguments": arguments,
        }),
        ItemBody::CallOutput { call, output } => json!({
            "id": id, "type": "function_call_output", "status": status,
            "call_id": call_id(*call), "output": output,
        }),
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// The event of an item; `None` if the change is none of an item.
pub(super) fn item_event(
    task: TaskId,
    projection: &Projection,
    event: &NumberedEvent,
    shown: Shown,
) -> Option<Value> {
    let Change::Item { at, step } = &event.change else { return None };
    let item = projection.items.get(*at)?;
    let earlier = |other: &&Item| other.number < item.number && is_streamed(other, shown);
    let mut told = Map::new();
    told.insert("sequence_number".to_owned(), json!(event.number));
    told.insert("output_index".to_owned(), json!(projection.items.iter().filter(earlier).count()));
    if !matches!(step, Step::Added | Step::Done) {
        told.insert("item_id".to_owned(), json!(item_id(task, item)));
    }
    let (kind, more) = match (&item.body, step) {
        (_, Step::Added) => ("output_item.added", json!({ "item": new_item(task, item) })),
        (_, Step::Done) => ("output_item.done", json!({ "item": done_item(task, item) })),
        (ItemBody::Message { .. }, Step::PartAdded) => {
            ("content_part.added", json!({ "content_index": 0, "part": text_part("") }))
        }
        (ItemBody::Message { .. }, Step::Text(text)) => {
            ("output_text.delta", json!({ "content_index": 0, "delta": text, "logprobs": [] }))
        }
        (ItemBody::Message { text }, Step::TextDone) => {
            ("output_text.done", json!({ "content_index": 0, "text": text, "logprobs": [] }))
        }
        (ItemBody::Message { text }, Step::PartDone) => {
            ("content_part.done", json!({ "content_index": 0, "part": text_part(text) }))
        }
        (ItemBody::Reasoning { .. }, Step::PartAdded) => {
            ("reasoning_summary_part.added", json!({ "summary_index": 0, "part": summary_part("") }))
        }
        (ItemBody::Reasoning { .. }, Step::Delta(text)) => {
            ("reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": text }))
        }
        (ItemBody::Reasoning { text }, Step::TextDone) => {
            ("reasoning_summary_text.done", json!({ "summary_index": 0, "text": text }))
        }
        (ItemBody::Reasoning { text }, Step::PartDone) => {
            ("reasoning_summary_part.done", json!({ "summary_index": 0, "part": summary_part(text) }))
        }
        (ItemBody::Call { .. }, Step::Delta(arguments)) => {
            ("function_call_arguments.delta", json!({ "delta": arguments }))
        }
        (ItemBody::Call { tool, arguments, .. }, Step::TextDone) => {
            ("function_call_arguments.done", json!({ "name": tool, "arguments": arguments }))
        }
        _ => return None,
    };
    told.insert("type".to_owned(), json!(format!("response.{kind}")));
    if let Value::Object(more) = more {
        told.extend(more);
    }
    Some(Value::Object(told))
}

/// The name of the event that ends a response.
pub(super) fn end_event(response: &Value) -> &'static str {
    match response["status"].as_str() {
        Some("completed") => "response.completed",
        Some("failed") => "response.failed",
        // There is no event for a cancelled response: its status says so.
        _ => "response.incomplete",
    }
}
