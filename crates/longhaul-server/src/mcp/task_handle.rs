//! Tasks of the store as tasks of the MCP Tasks extension, and their results.

use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::Outcome;
use longhaul::snapshot::Snapshot;
use longhaul::task::TaskState;
use longhaul::toolset::client_tools::{PendingQuestion, failure_text, progress_text};
use longhaul::{Status, TaskId};
use rmcp::model::{
    CallToolResult, ContentBlock, DetailedTask, InputRequests, MetaObject, Resource, Task, TaskPayload,
    TaskStatus,
};
use serde_json::{Value, json};

use super::questions::{input_request, question_key};

/// How many bytes of text a result has at most: about 25,000 tokens, which is where clients cut.
pub(super) const RESULT_LIMIT: usize = 100_000;
/// How much of a longer result is shown.
const RESULT_START: usize = 16_000;

/// The task as the extension describes it, without its payload.
pub(super) fn task_handle(state: &TaskState, below: usize, now: Timestamp) -> Task {
    let status = match state.status {
        Status::Pending | Status::Running => TaskStatus::Working,
        // An MCP task fails only if the protocol does; a failure of ours is a result.
        Status::Completed | Status::Failed => TaskStatus::Completed,
        Status::Cancelled => TaskStatus::Cancelled,
    };
    let message = match state.status {
        Status::Pending | Status::Running => progress_text(state, below, now),
        ended => failure_text(state).unwrap_or_else(|| ended.to_string()),
    };
    Task::new(state.id.to_string(), status, timestamp(state.created), timestamp(state.active))
        .with_status_message(message)
        .with_poll_interval_ms(poll_interval(state.elapsed(now)))
}

/// ISO 8601 with milliseconds.
fn timestamp(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// How often to ask for a task that has run this long.
fn poll_interval(elapsed: Duration) -> u64 {
    match elapsed.as_secs() {
        ..60 => 1000,
        60..600 => 2000,
        _ => 5000,
    }
}

/// The task with its questions or its result.
pub(super) fn detailed_task(
    snapshot: &Snapshot,
    questions: &[PendingQuestion],
    below: usize,
    now: Timestamp,
) -> DetailedTask {
    let state = &snapshot.state;
    let payload = match state.status {
        Status::Cancelled => TaskPayload::Cancelled,
        Status::Completed | Status::Failed => {
            let result = serde_json::to_value(task_result(snapshot)).unwrap_or_default();
            let result = if let Value::Object(result) = result { result } else { Default::default() };
            TaskPayload::Completed { result }
        }
        Status::Pending | Status::Running if questions.is_empty() => TaskPayload::Working,
        Status::Pending | Status::Running => {
            let requests: InputRequests =
                questions.iter().map(|question| (question_key(question), input_request(question))).collect();
            TaskPayload::InputRequired { input_requests: requests }
        }
    };
    DetailedTask::new(task_handle(state, below, now), payload)
}

/// The result of an ended task as the result of the call that started it.
pub(super) fn task_result(snapshot: &Snapshot) -> CallToolResult {
    let state = &snapshot.state;
    let id = state.id;
    if state.status == Status::Completed {
        let mut content = limited_text(id, &snapshot.output);
        if let Some(limit) = &state.cut_short {
            let note = format!("[It was cut short ({limit}), so this may not be all of the answer.]");
            content.push(ContentBlock::text(note));
        }
        return with_task_id(CallToolResult::success(content), id);
    }
    let why = failure_text(state).unwrap_or_else(|| state.status.to_string());
    let mut content =
        vec![ContentBlock::text(format!("Task {id} of {} {}: {why}", state.agent, state.status))];
    let (kind, partial) = match &snapshot.outcome {
        Some(Outcome::Failed { failure, partial }) => {
            (serde_json::to_value(failure.kind).unwrap_or_default(), partial.as_ref())
        }
        Some(Outcome::Cancelled { partial, .. }) => (Value::Null, partial.as_ref()),
        _ => (Value::Null, snapshot.output.as_str()),
    };
    if !partial.trim().is_empty() {
        content.push(ContentBlock::text("Its text before it ended:"));
        content.extend(limited_text(id, partial));
    }
    let mut result = CallToolResult::error(content);
    result.structured_content = Some(json!({
        "task_id": id,
        "status": state.status,
        "failure_kind": kind,
        "error": why,
        "partial_output": start_of(partial, RESULT_START),
    }));
    with_task_id(result, id)
}

/// Names the task in the metadata of a result.
pub(super) fn with_task_id(mut result: CallToolResult, id: TaskId) -> CallToolResult {
    let mut meta = MetaObject::new();
    meta.insert("longhaul/taskId".to_owned(), id.to_string().into());
    result.meta = Some(meta);
    result
}

/// A text, or the start of a long one with a link to the rest.
fn limited_text(id: TaskId, text: &str) -> Vec<ContentBlock> {
    if text.len() <= RESULT_LIMIT {
        return vec![ContentBlock::text(text)];
    }
    let start = start_of(text, RESULT_START);
    let note = format!(
        "{start}\n\n[… {} of {} bytes are shown. All of it is the resource longhaul://task/{id}/result; or read on with \
         view_background_agent {{\"task_id\": \"{id}\", \"offset\": {}}}. …]",
        start.len(),
        text.len(),
        start.chars().count()
    );
    let link = Resource::new(format!("longhaul://task/{id}/result"), format!("result of {id}"))
        .with_mime_type("text/plain")
        .with_size(text.len() as u64);
    vec![ContentBlock::text(note), ContentBlock::resource_link(link)]
}

fn start_of(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
