//! The task operations behind all toolsets for sub-agents: launch, wait, list, view, stop and send.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::fn_tool::ToolCallResult;
use super::task_text::{
    self, END_YOUR_TURN, LEAD_ON, RESULT_IS_SENT, TaskIdField, TaskReport, TaskTable, TextReader,
};
use super::text_paging::{OUTPUT_LIMIT, TextRange};
use super::vcs_dirs::find_vcs_dir;
use super::{ToolsetContext, ToolsetError};
use crate::dispatch::{AgentInfo, LetterContent, SendReceipt, WaitMode, WaitResult};
use crate::entry::Order;
use crate::id::{AgentName, TaskId};
use crate::snapshot::Snapshot;
use crate::task::{Status, TaskState};
use crate::tool::{CallContext, ToolError, ToolOutput};

/// Finds the agent that a model means. The dispatcher checks whether the caller may call it.
pub(super) fn match_agent(agents: &[AgentInfo], typed: &str) -> AgentName {
    let typed = typed.trim();
    let exact = agents.iter().find(|info| info.name.as_str() == typed);
    let close = || agents.iter().find(|info| info.name.as_str().eq_ignore_ascii_case(typed));
    exact.or_else(close).map_or_else(|| AgentName::from(typed), |info| info.name.clone())
}

/// Fails if the agent has no sub-agents: the toolset would be useless to it.
pub(super) fn require_sub_agents(toolset: &str, context: &ToolsetContext) -> Result<(), ToolsetError> {
    if !context.sub_agents.is_empty() {
        return Ok(());
    }
    let why =
        format!("agent '{}' has no sub_agents to give tasks to: name some, or leave it out", context.agent);
    Err(ToolsetError { toolset: toolset.to_owned(), why })
}

/// The result of a launch.
pub(super) enum Launch {
    /// A task was launched. The text is an additional note on it.
    New(TaskId, Option<String>),
    /// No task was launched: this one has done the same, and nothing has changed since.
    Before(Box<Snapshot>),
    /// No task was launched: this one, which has not ended, has the same order.
    Running(TaskId, Status),
}

/// Launches a task. If the same task has not ended, or was done before, and `again` is not set, returns that one instead.
pub(super) async fn launch_task(
    cx: &CallContext,
    mut order: Order,
    again: bool,
) -> Result<Launch, ToolError> {
    order.working_dir = child_working_dir(cx, order.working_dir.take()).await?;
    if !again && let Some(before) = cx.dispatcher.answered(&cx.caller, &cx.earlier, &order).await? {
        return Ok(match before.state.status {
            status if status.is_final() => Launch::Before(Box::new(before)),
            // A second one would do the same at the same time. Several are started in one reply.
            status => Launch::Running(before.state.id, status),
        });
    }
    let id = cx.dispatcher.submit(&cx.caller, cx.call, order).await?;
    let known = cx.earlier.iter().filter(|_| !again).find_map(|earlier| earlier.result);
    Ok(Launch::New(id, known.map(|(task, _)| task_text::much_like(task))))
}

/// The plain-text answer to a launch of a task that was done before.
pub(super) fn done_before(snapshot: &Snapshot, tool: Option<&str>) -> ToolOutput {
    let id = snapshot.state.id;
    let how = |from| tool.map(|tool| task_text::read_on(tool, id, from)).unwrap_or_default();
    let (output, truncated) = task_text::output_text(snapshot, None, OUTPUT_LIMIT, how);
    // The letter about it may not have been read yet.
    let collected = if truncated { Vec::new() } else { vec![id] };
    ToolOutput { collected, ..task_text::done_before(id, &output).into() }
}

/// Returns the working directory of a child: its parent's, or one below.
async fn child_working_dir(cx: &CallContext, asked: Option<PathBuf>) -> Result<Option<PathBuf>, ToolError> {
    let Some(asked) = asked else { return Ok(cx.working_dir.clone()) };
    let Some(here) = cx.working_dir.clone() else {
        let text = "`working_dir` cannot be set: your own task has no working directory, and no task has more than its parent";
        return Err(ToolError::Retry(text.to_owned()));
    };
    let found = tokio::task::spawn_blocking(move || directory_below(&here, &asked)).await;
    let found = found.unwrap_or_else(|_| Err(ToolError::Retry("the program is ending".to_owned())));
    found.map(Some)
}

/// Returns the real path of `asked`, if it is a directory at or below `here`.
fn directory_below(here: &Path, asked: &Path) -> Result<PathBuf, ToolError> {
    let whole = here.join(asked);
    let shown = whole.display();
    let outside = || {
        ToolError::Retry(format!(
            "`working_dir`: {shown} is not below your own working directory {}",
            here.display()
        ))
    };
    let seems_inside =
        whole.starts_with(here) && !whole.components().any(|part| part == Component::ParentDir);
    let Ok(home) = here.canonicalize() else {
        // The directory cannot be resolved, so check the path as it is written.
        return if seems_inside { Ok(whole) } else { Err(outside()) };
    };
    match whole.canonicalize() {
        Ok(real) if !real.starts_with(&home) => Err(outside()),
        // Otherwise the child's tools could change files that are protected from those of the parent.
        Ok(real) if real.strip_prefix(&home).is_ok_and(|rel| find_vcs_dir(rel).is_some()) => {
            Err(ToolError::Retry(format!(
                "`working_dir`: {shown} is where git and its like keep their own files"
            )))
        }
        Ok(real) if !real.is_dir() => {
            Err(ToolError::Retry(format!("`working_dir`: {shown} is not a directory")))
        }
        Ok(real) => Ok(real),
        // Do not reveal what exists outside.
        Err(_) if !seems_inside => Err(outside()),
        Err(_) => Err(ToolError::Retry(format!(
            "`working_dir`: there is no directory {shown}; it must be there already"
        ))),
    }
}

/// Waits until a task that was just launched has ended.
pub(super) async fn wait_for_launched(cx: &CallContext, id: TaskId) -> Result<WaitResult, ToolError> {
    wait_without_seat(cx, &[id], WaitMode::All, None).await
}

/// The note on a task that its caller waited for, and that was moved to the background.
pub(super) fn moved_to_background_note(state: &TaskState) -> String {
    let (id, agent) = (state.id, &state.agent);
    format!(
        "Task {id} of {agent} goes on in the background: the user does not want to wait for it. {RESULT_IS_SENT} {END_YOUR_TURN}"
    )
}

/// Waits for tasks that were looked up. The caller needs no seat while it waits.
pub(super) async fn wait_for_tasks(
    cx: &CallContext,
    states: &[TaskState],
    join: WaitMode,
    timeout: Option<Duration>,
) -> Result<WaitResult, ToolError> {
    let ids: Vec<TaskId> = states.iter().map(|state| state.id).collect();
    let ended = |state: &TaskState| state.status.is_final();
    let over = match join {
        WaitMode::All => states.iter().all(ended),
        WaitMode::Any => states.iter().any(ended),
    };
    if over {
        // The wait is over already. Giving the seat back would mean queueing for another.
        let typed: Vec<String> = ids.iter().map(ToString::to_string).collect();
        return Ok(cx.dispatcher.wait(&cx.caller, &typed, join, timeout).await?);
    }
    wait_without_seat(cx, &ids, join, timeout).await
}

async fn wait_without_seat(
    cx: &CallContext,
    ids: &[TaskId],
    join: WaitMode,
    timeout: Option<Duration>,
) -> Result<WaitResult, ToolError> {
    let typed: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let _seatless = cx.waits_for(ids.to_vec());
    tokio::select! {
        biased;
        waited = cx.dispatcher.wait(&cx.caller, &typed, join, timeout) => Ok(waited?),
        // Return the tasks as they are now.
        () = cx.backgrounded.cancelled() => Ok(cx.dispatcher.wait(&cx.caller, &typed, join, Some(Duration::ZERO)).await?),
        () = cx.cancel.cancelled() => {
            Err(ToolError::Failed("you are being stopped: the wait was broken off".to_owned()))
        }
    }
}

/// Lists the caller's tasks.
pub(super) async fn list_tasks(
    cx: &CallContext,
    named: fn(TaskId) -> TaskIdField,
) -> Result<TaskTable, ToolError> {
    let states = cx.dispatcher.list(&cx.caller).await?;
    Ok(TaskTable::new(&states, Some(&cx.caller), named, cx.dispatcher.now()))
}

/// The note for the case that all of the caller's tasks have ended.
pub(super) async fn all_ended(cx: &CallContext) -> Result<Option<String>, ToolError> {
    Ok(cx.dispatcher.count_if_ended(&cx.caller).await?.and_then(task_text::all_ended_note))
}

/// Stops a task; returns its id, its status and a sentence for the model.
pub(super) async fn stop_task(cx: &CallContext, typed: &str) -> Result<(TaskId, Status, String), ToolError> {
    let before = cx.dispatcher.stop(&cx.caller, typed).await?;
    let then = match before.parent == Some(cx.caller.task) {
        true => "what it had by then will be sent to you as a message",
        false => LOOK_THEN,
    };
    let (status, said) = stop_receipt(&before, then);
    Ok((before.id, status, said))
}

/// How to see what a stopped task had, for callers that it is not sent to.
pub(super) const LOOK_THEN: &str = "look at it then to see what it had";

/// The status of a task after it was told to stop, and a sentence about it. `then` says how to get its text.
pub(super) fn stop_receipt(before: &TaskState, then: &str) -> (Status, String) {
    let id = before.id;
    match before.status {
        Status::Pending => (Status::Cancelled, format!("{id} had not started: it is cancelled.")),
        Status::Running => {
            let said =
                format!("{id} was told to stop, with everything below it. It ends within seconds; {then}.");
            (Status::Running, said)
        }
        ended => (ended, format!("{id} had already ended ({ended}): there was nothing to stop.")),
    }
}

/// Sends a message to a task; returns the receipt and a sentence for the model.
pub(super) async fn send_message(
    cx: &CallContext,
    typed: &str,
    note: LetterContent,
) -> Result<(SendReceipt, String), ToolError> {
    let sent = cx.dispatcher.send(&cx.caller, cx.call, typed, note).await?;
    let to = sent.to;
    let found = cx.dispatcher.find(&cx.caller, &[to.to_string()]).await?;
    let then = match found.iter().flatten().any(|state| state.parent == Some(cx.caller.task)) {
        true => RESULT_IS_SENT,
        // A task of one of its tasks, or one that it took over with the conversation.
        false => "Its result is sent to the task that it works for.",
    };
    let said = send_receipt(typed, &sent, then);
    Ok((sent, said))
}

/// The sentence about a message that was sent. `then` says how to get the result.
pub(super) fn send_receipt(typed: &str, sent: &SendReceipt, then: &str) -> String {
    let to = sent.to;
    match sent.continued {
        true => format!("{typed} had ended: a new task, {to}, goes on from there with your message. {then}"),
        false => format!("Your message is with {to}, which reads it before its next step. {then}"),
    }
}

/// Formats an answer as JSON.
pub(super) fn json_output(answer: &impl Serialize) -> ToolCallResult {
    match serde_json::to_string(answer) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(ToolError::Fatal(format!("the answer cannot be written as JSON: {error}"))),
    }
}

/// Formats an answer that contains the final results of tasks as JSON.
pub(super) fn json_output_with(
    answer: &impl Serialize,
    collected: Vec<TaskId>,
    is_error: bool,
) -> ToolCallResult {
    Ok(ToolOutput { collected, is_error, ..json_output(answer)? })
}

/// The answer to launching or stopping a task.
#[derive(Serialize)]
pub(super) struct TaskReceipt {
    #[serde(flatten)]
    id: TaskIdField,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentName>,
    status: Status,
    note: String,
}

impl TaskReceipt {
    /// The receipt for a task that its caller waited for, and that was moved to the background.
    pub(super) fn moved_to_background(id: TaskIdField, state: &TaskState) -> TaskReceipt {
        TaskReceipt {
            id,
            agent: Some(state.agent.clone()),
            status: state.status,
            note: moved_to_background_note(state),
        }
    }

    /// The receipt for a launch that was not made, because this task, which has not ended, has the same order.
    pub(super) fn already_running(id: TaskIdField, agent: AgentName, status: Status) -> TaskReceipt {
        let note = task_text::already_running(id.id());
        TaskReceipt { id, agent: Some(agent), status, note }
    }

    /// The receipt for a task that was just launched.
    pub(super) fn launched(id: TaskIdField, agent: AgentName, besides: Option<String>) -> TaskReceipt {
        let besides = besides.map(|besides| format!(" {besides}")).unwrap_or_default();
        let note = format!("{RESULT_IS_SENT} {END_YOUR_TURN}{besides}");
        TaskReceipt { id, agent: Some(agent), status: Status::Pending, note }
    }
}

pub(super) async fn stop_with_receipt(
    typed: &str,
    named: fn(TaskId) -> TaskIdField,
    cx: &CallContext,
) -> ToolCallResult {
    let (id, status, note) = stop_task(cx, typed).await?;
    json_output(&TaskReceipt { id: named(id), agent: None, status, note })
}

/// The JSON answer to a wait for one task, with its output or a part of it.
pub(super) fn task_report(
    waited: &WaitResult,
    part: Option<TextRange>,
    named: fn(TaskId) -> TaskIdField,
    note: Option<String>,
    cx: &CallContext,
) -> ToolCallResult {
    let Some(snapshot) = waited.tasks.first() else {
        return Err(ToolError::Failed("the task cannot be found any more".to_owned()));
    };
    let mut report = TaskReport::new(snapshot, part, named, cx.dispatcher.now());
    report.timed_out = waited.timed_out;
    report.note = match (note, report.note) {
        (Some(one), Some(two)) => Some(format!("{one}. {two}")),
        (one, two) => one.or(two),
    };
    let ended = report.status.is_final();
    let collected = if ended && !report.truncated { vec![snapshot.state.id] } else { Vec::new() };
    json_output_with(&report, collected, ended && report.status != Status::Completed)
}

/// The JSON answer to a launch of a task that was done before.
pub(super) fn answer_before(
    snapshot: Snapshot,
    named: fn(TaskId) -> TaskIdField,
    cx: &CallContext,
) -> ToolCallResult {
    let note =
        format!("{} has done this task already, so it was not started again. {LEAD_ON}", snapshot.state.id);
    task_report(&WaitResult { tasks: vec![snapshot], timed_out: false }, None, named, Some(note), cx)
}

/// Like [`task_report`], with a note on the next step if all tasks have ended.
pub(super) async fn task_report_with_next_step(
    waited: &WaitResult,
    part: Option<TextRange>,
    named: fn(TaskId) -> TaskIdField,
    note: Option<String>,
    cx: &CallContext,
) -> ToolCallResult {
    let plain = task_report(waited, part, named, note.clone(), cx)?;
    // Only if the model has seen the whole result.
    let next_step = match (&note, plain.collected.is_empty()) {
        (None, false) => all_ended(cx).await?,
        _ => None,
    };
    match next_step {
        Some(_) => Ok(ToolOutput { all_ended: true, ..task_report(waited, part, named, next_step, cx)? }),
        None => Ok(plain),
    }
}

/// Shows one task as plain text, with its output or a part of it.
pub(super) async fn view_task(
    typed: &str,
    part: Option<TextRange>,
    tool: &str,
    cx: &CallContext,
) -> ToolCallResult {
    let snapshot = cx.dispatcher.view(&cx.caller, typed).await?;
    let id = snapshot.state.id;
    let (mut text, whole) =
        task_text::task_details(&snapshot, part, cx.dispatcher.now(), TextReader::Agent, |from| {
            task_text::read_on(tool, id, from)
        });
    let collected = if whole { vec![id] } else { Vec::new() };
    let next_step = if whole { all_ended(cx).await? } else { None };
    let all_ended = next_step.is_some();
    if let Some(next_step) = next_step {
        text = format!("{text}\n\n{next_step}");
    }
    Ok(ToolOutput { text, collected, all_ended, ..ToolOutput::default() })
}

pub(super) async fn wait_for_task(
    typed: &str,
    timeout: Option<Duration>,
    cx: &CallContext,
) -> Result<WaitResult, ToolError> {
    let found = cx.dispatcher.find(&cx.caller, &[typed.to_owned()]).await?;
    let states: Result<Vec<_>, _> = found.into_iter().collect();
    wait_for_tasks(cx, &states?, WaitMode::All, timeout).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_works_where_its_parent_does_or_below() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap();
        let work = root.join("work");
        std::fs::create_dir_all(work.join("sub/deep")).unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        std::fs::write(work.join("file"), "").unwrap();
        std::os::unix::fs::symlink("../other", work.join("out")).unwrap();
        std::os::unix::fs::symlink("sub", work.join("in")).unwrap();
        let asked = |dir: &str| directory_below(&work, Path::new(dir));
        assert_eq!(asked("sub/deep"), Ok(work.join("sub/deep")));
        assert_eq!(asked("in"), Ok(work.join("sub")));
        assert_eq!(asked("."), Ok(work.clone()));
        assert_eq!(asked(work.join("sub").to_str().unwrap()), Ok(work.join("sub")));
        for out in ["..", "../other", "out", "sub/../..", "/", "/nowhere", "../nowhere"] {
            assert!(
                asked(out).unwrap_err().to_string().contains("is not below your own"),
                "{out}: {:?}",
                asked(out)
            );
        }
        std::fs::create_dir_all(work.join(".git/hooks")).unwrap();
        std::os::unix::fs::symlink(".git/hooks", work.join("hooks")).unwrap();
        for guarded in [".git", ".git/hooks", "hooks"] {
            assert!(
                asked(guarded).unwrap_err().to_string().contains("keep their own files"),
                "{guarded}: {:?}",
                asked(guarded)
            );
        }
        assert!(asked("missing").unwrap_err().to_string().contains("must be there already"));
        assert!(asked("file").unwrap_err().to_string().contains("is not a directory"));
        assert_eq!(directory_below(Path::new("/not/there"), Path::new("sub")), Ok("/not/there/sub".into()));
        assert!(directory_below(Path::new("/not/there"), Path::new("../sub")).is_err());
    }
}
