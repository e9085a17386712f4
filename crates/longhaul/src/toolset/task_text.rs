//! The texts about tasks that models read, in one place for all toolsets.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::text_paging::{OUTPUT_LIMIT, TextRange, start_and_end, text_page};
use crate::dispatch::{AgentInfo, Caller};
use crate::entry::WaitReason;
use crate::id::{AgentName, TaskId};
use crate::message::prompt_tags::escape;
use crate::snapshot::Snapshot;
use crate::task::{Status, TaskState};
use crate::transcript::pluralize;

/// Keeps a model from polling.
pub(super) const RESULT_IS_SENT: &str =
    "Call no tool for it now: its result will be sent to you as a message when it ends.";
/// Tells a model to end its turn. It has the sentence to say: a small model that is told to end its turn stops the task instead,
/// or starts it once more.
pub(super) const END_YOUR_TURN: &str = "If nothing else has to be started, reply with one short sentence, for example \"I am waiting for the \
                                result.\" You will be called again with it.";

/// Added to a result that a model has waited for. Small models give out the same task again otherwise.
pub(super) fn task_is_done(tools_used: u32) -> String {
    let how = match tools_used {
        0 => "without any tool call".to_owned(),
        calls => format!("with {}", pluralize(calls as usize, "tool call")),
    };
    format!(
        "Note: this task is done, {how}, and this is its result. Do not start it again. If this is all that you need, \
         write your answer now, in words."
    )
}

/// Who reads a text about tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextReader {
    /// An agent of the team: the results of its tasks are sent to it.
    Agent,
    /// A client outside of the team: it has to fetch results.
    Client,
}

/// Tells a client how to get a result without polling.
pub(super) const FETCH_RESULT: &str = "Nothing is lost if you do not wait. To get results, call wait_background_agents once with all \
                                       the ids you need; do not poll with view or list.";

/// The note on a launch that is similar to an earlier one.
pub(super) fn much_like(earlier: TaskId) -> String {
    format!(
        "Note: {earlier} had a task much like this one, and you have its result. If that answers it, answer now."
    )
}

/// The answer to a launch that repeats an earlier one.
pub(super) fn done_before(id: TaskId, output: &str) -> String {
    format!(
        "{id} has done this task already, so it was not started again. Its result:\n\n{output}\n\n{LEAD_ON}"
    )
}

/// The answer to a launch of what a task is to do already.
pub(super) fn already_running(id: TaskId) -> String {
    format!(
        "{id} has this task already, so it was not started again. {RESULT_IS_SENT} If you need something else, say in \
         `task` what is different. {END_YOUR_TURN}"
    )
}

/// Tells a model to answer with the earlier result.
pub(super) const LEAD_ON: &str = "Nothing has happened here since that could change it. Answer now with this result. If you need something else, say in \
                                  `task` what is different (or add `again`: true to have just this done once more).";

/// How many tasks a list shows.
const LISTED: usize = 100;

/// Formats a duration: `7s`, `1m05s`, `2h03m`.
pub(super) fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        s @ ..60 => format!("{s}s"),
        s @ ..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
    }
}

/// Suggests after how many seconds to look again at a task that has run this long.
fn look_again(elapsed: Duration) -> u64 {
    [15, 30, 60, 120].into_iter().find(|step| *step * 2 >= elapsed.as_secs()).unwrap_or(300)
}

/// Lists the agents, one per line.
pub(super) fn agent_list(agents: &[AgentInfo]) -> String {
    let line = |info: &AgentInfo| match info.description.trim() {
        "" => format!("- {}\n", info.name),
        what => format!("- {}: {what}\n", info.name),
    };
    agents.iter().map(line).collect()
}

/// The task in examples. It is empty of meaning on purpose: small models copy a real example as their own
/// task.
pub(super) const EXAMPLE_TASK: &str = "...";

/// Explains to an agent how to launch tasks: which agents it can call, what a task says, how results arrive, an example.
pub(super) fn delegation_guide(agents: &[AgentInfo], launch: &str, wait: &str, example: &str) -> String {
    format!(
        "You can give tasks to these agents. They work at the same time as you and each other:\n{}\
         How to use them:\n\
         1. To have something done or found out, call {launch} now, once for each independent task. Do not announce it, do not tell the \
         user how to do it, and never answer with a guess.\n\
         2. An agent sees nothing but `task`. Write it as you would ask a colleague: full sentences that say what to do or to find out, \
         with file names and other words exactly as the user wrote them.\n\
         3. Then do other work, or simply finish your turn. When a task ends, its result comes to you as a message, once. Do not poll, and \
         do not start a task again. {wait} only when you cannot go on without a result.\n\
         4. When you have the results, answer with them. A task that failed or was cancelled says why, and what it had by then. Never present that as a success.\n\
         Example: {example}\n",
        agent_list(agents)
    )
}

/// A task's id, under the JSON key that the toolset uses.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) enum TaskIdField {
    #[serde(rename = "task_id")]
    Task(TaskId),
    #[serde(rename = "agent_id")]
    Agent(TaskId),
}

impl TaskIdField {
    pub(super) fn id(self) -> TaskId {
        let (TaskIdField::Task(id) | TaskIdField::Agent(id)) = self;
        id
    }

    /// Says how to read on from an offset, for toolsets with JSON results.
    pub(super) fn read_on(self, from: usize) -> String {
        let tool = match self {
            TaskIdField::Task(_) => "get_task_result",
            TaskIdField::Agent(_) => "task_output",
        };
        read_on(tool, self.id(), from)
    }
}

/// Says how to read the output of a task from an offset on, with this tool.
pub(super) fn read_on(tool: &str, id: TaskId, from: usize) -> String {
    format!(r#" To read on: {tool} {{"task_id": "{id}", "offset": {from}}}."#)
}

/// Names the tools that a task is running now.
fn tools(state: &TaskState) -> Option<String> {
    let mut names: Vec<&str> = state.calling.iter().map(|(_, tool)| &**tool).collect();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Says what a task waits for, and since when.
fn waiting(state: &TaskState, now: Timestamp) -> Option<String> {
    let waiting = state.waiting_at(now)?;
    let what = match &waiting.on {
        WaitReason::Tasks(ids) if ids.is_empty() => "its tasks".to_owned(),
        WaitReason::Tasks(ids) => ids.iter().map(TaskId::to_string).collect::<Vec<_>>().join(", "),
        WaitReason::Letter => "a message".to_owned(),
        WaitReason::Person(what) => format!("a person ({what})"),
        WaitReason::Provider(why) => format!("its model provider ({why})"),
    };
    let since = Duration::try_from(now.duration_since(waiting.since)).unwrap_or_default();
    Some(format!("{}, for {}", escape(&what), format_duration(since)))
}

/// A task in a list.
#[derive(Debug, Serialize)]
pub(super) struct TaskRow {
    #[serde(flatten)]
    id: TaskIdField,
    agent: AgentName,
    status: Status,
    elapsed: String,
    tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<String>,
    /// The task that launched it, if that is not the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_by: Option<TaskId>,
    task: String,
}

impl TaskRow {
    fn new(
        state: &TaskState,
        caller: Option<&Caller>,
        named: fn(TaskId) -> TaskIdField,
        now: Timestamp,
    ) -> TaskRow {
        TaskRow {
            id: named(state.id),
            agent: state.agent.clone(),
            status: state.status,
            elapsed: format_duration(state.elapsed(now)),
            tokens: state.usage.total(),
            tool: tools(state),
            waiting_for: waiting(state, now),
            parent: state.parent.filter(|parent| caller.is_none_or(|caller| *parent != caller.task)),
            continued_by: state.continued_by,
            task: escape(&state.headline).into_owned(),
        }
    }
}

impl fmt::Display for TaskRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskRow { agent, status, elapsed, tokens, .. } = self;
        write!(f, "{} · {agent} · {status} · {elapsed} · {tokens} tokens", self.id.id())?;
        if let Some(tool) = &self.tool {
            write!(f, " · in {tool}")?;
        }
        if let Some(waiting) = &self.waiting_for {
            write!(f, " · waits for {waiting}")?;
        }
        if let Some(parent) = self.parent {
            write!(f, " · launched by {parent}")?;
        }
        if let Some(by) = self.continued_by {
            write!(f, " · continued by {by}")?;
        }
        write!(f, " · {}", self.task)
    }
}

/// The tasks of a caller (of all clients if there is none), oldest first. If there are very many, the oldest ended ones are only counted.
pub(super) struct TaskTable {
    pub(super) rows: Vec<TaskRow>,
    /// A note below the rows.
    pub(super) note: Option<String>,
    /// Whether there are tasks, and all of them have ended.
    pub(super) all_ended: bool,
}

impl TaskTable {
    pub(super) fn new(
        states: &[TaskState],
        caller: Option<&Caller>,
        named: fn(TaskId) -> TaskIdField,
        now: Timestamp,
    ) -> TaskTable {
        let reader = if caller.is_some() { TextReader::Agent } else { TextReader::Client };
        let mut over = states.len().saturating_sub(LISTED);
        let mut left_out = 0_usize;
        let kept = states.iter().filter(|state| {
            let drop = over > 0 && state.status.is_final();
            over -= usize::from(drop);
            left_out += usize::from(drop);
            !drop
        });
        let rows: Vec<TaskRow> = kept.map(|state| TaskRow::new(state, caller, named, now)).collect();
        let mut notes = Vec::new();
        if states.is_empty() {
            notes.push(match reader {
                TextReader::Agent => {
                    "You have started no tasks yet: call the tool that starts one.".to_owned()
                }
                TextReader::Client => "No task has been started yet.".to_owned(),
            });
        }
        if left_out > 0 {
            notes.push(format!("{left_out} older tasks that have ended are not shown."));
        }
        notes.extend(tasks_note(states, reader));
        let all_ended = !states.is_empty() && states.iter().all(|state| state.status.is_final());
        TaskTable { rows, note: (!notes.is_empty()).then(|| notes.join(" ")), all_ended }
    }
}

impl fmt::Display for TaskTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        f.write_str(self.note.as_deref().unwrap_or_default())
    }
}

/// The note on all of the caller's tasks: they have ended, or polling is pointless.
fn tasks_note(states: &[TaskState], reader: TextReader) -> Option<String> {
    let running = states.iter().filter(|state| !state.status.is_final()).count();
    match (running, reader) {
        (0, TextReader::Agent) => all_ended_note(states.len()),
        (0, TextReader::Client) => None,
        (_, TextReader::Client) => {
            Some(format!("{running} of {} not ended yet. {FETCH_RESULT}", tasks(states.len())))
        }
        (_, TextReader::Agent) => Some(format!(
            "{running} of {} not ended yet. The result of each is sent to you as a message when it ends: no need to \
             look again. {END_YOUR_TURN}",
            tasks(states.len())
        )),
    }
}

/// The note for the case that all of the caller's tasks have ended.
pub(super) fn all_ended_note(tasks: usize) -> Option<String> {
    let all = match tasks {
        0 => return None,
        1 => "Your task has ended; what came of it is".to_owned(),
        n => format!("All {n} tasks have ended; what came of them is"),
    };
    Some(format!(
        "{all} here or in the messages that you have got: nothing more will come. \
                   If there is nothing else to start, answer now."
    ))
}

fn tasks(n: usize) -> String {
    if n == 1 { "1 task has".to_owned() } else { format!("{n} tasks have") }
}

/// The note on a task that has not ended.
pub(super) fn not_ended_note(state: &TaskState, now: Timestamp, reader: TextReader) -> String {
    let elapsed = state.elapsed(now);
    let stands = match (&state.stop, state.status) {
        (Some(_), _) => "It is being stopped.",
        (None, Status::Pending) if state.started.is_none() => "It waits for its turn to start.",
        (None, Status::Pending) => "It waits for its turn to go on.",
        _ => "It is still running.",
    };
    match reader {
        TextReader::Agent => {
            format!("{stands} {RESULT_IS_SENT} If you must, look again in {} seconds.", look_again(elapsed))
        }
        TextReader::Client => format!("{stands} {FETCH_RESULT}"),
    }
}

/// The note on an answer that was cut short.
fn cut_short_note(state: &TaskState) -> Option<String> {
    let limit = state.cut_short.as_ref()?;
    Some(format!("it was cut short ({}), so this may not be all of the answer", escape(limit)))
}

/// Returns why a task ended without an answer.
pub(super) fn failure_reason(state: &TaskState) -> Option<String> {
    let why = || state.stop.as_ref().map(|stop| stop.cause.to_string());
    match state.status {
        Status::Failed | Status::Cancelled => {
            let why = state.error.clone().or_else(why).unwrap_or_else(|| state.status.to_string());
            Some(escape(&why).into_owned())
        }
        _ => None,
    }
}

/// Returns the output of a task, or the requested part, within `limit` bytes; and whether something is left
/// out. `how` says how to read on from an offset. If no part is requested, shows the beginning and the end of
/// an answer, or the end of live output.
pub(super) fn output_text(
    snapshot: &Snapshot,
    part: Option<TextRange>,
    limit: usize,
    how: impl FnOnce(usize) -> String,
) -> (String, bool) {
    let (mut shown, truncated) = cut(snapshot, part, limit, how);
    if let Some(early) = cut_short_note(&snapshot.state) {
        let _ = write!(shown, "\n\n[{early}]");
    }
    (shown, truncated)
}

fn cut(
    snapshot: &Snapshot,
    part: Option<TextRange>,
    limit: usize,
    how: impl FnOnce(usize) -> String,
) -> (String, bool) {
    let (shown, truncated) = part_of(snapshot, part, limit, how);
    match escape(&shown) {
        Cow::Borrowed(_) => (shown, truncated),
        Cow::Owned(escaped) => (escaped, truncated),
    }
}

fn part_of(
    snapshot: &Snapshot,
    part: Option<TextRange>,
    limit: usize,
    how: impl FnOnce(usize) -> String,
) -> (String, bool) {
    let text = snapshot.output.as_str();
    if let Some(part) = part {
        let page = text_page(text, part, limit);
        return (page.with_marker(how), !page.is_whole());
    }
    if snapshot.state.status.is_final() {
        return start_and_end(text, limit, how).map_or_else(|| (text.to_owned(), false), |cut| (cut, true));
    }
    if text.len() <= limit {
        return (text.to_owned(), false);
    }
    let at = text.ceil_char_boundary(text.len() - limit);
    let (before, total) = (text[..at].chars().count(), text.chars().count());
    (format!("[… the first {before} of {total} characters are left out.{} …]\n{}", how(0), &text[at..]), true)
}

/// One task in JSON.
#[derive(Debug, Serialize)]
pub(super) struct TaskReport {
    #[serde(flatten)]
    id: TaskIdField,
    agent: AgentName,
    pub(super) status: Status,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    pub(super) truncated: bool,
    elapsed: String,
    tokens: u64,
    tools_used: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_by: Option<TaskId>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl TaskReport {
    pub(super) fn new(
        snapshot: &Snapshot,
        part: Option<TextRange>,
        named: fn(TaskId) -> TaskIdField,
        now: Timestamp,
    ) -> TaskReport {
        let state = &snapshot.state;
        let id = named(state.id);
        let (output, truncated) = output_text(snapshot, part, OUTPUT_LIMIT, |from| id.read_on(from));
        TaskReport {
            id,
            agent: state.agent.clone(),
            status: state.status,
            output,
            error: failure_reason(state),
            truncated,
            elapsed: format_duration(state.elapsed(now)),
            tokens: state.usage.total(),
            tools_used: state.calls,
            tool: tools(state),
            waiting_for: waiting(state, now),
            continued_by: state.continued_by,
            timed_out: false,
            note: (!state.status.is_final()).then(|| not_ended_note(state, now, TextReader::Agent)),
        }
    }
}

/// Formats one task as plain text with a part of its output; also returns whether that is its whole final
/// result. `how` says how to read on from an offset.
pub(super) fn task_details(
    snapshot: &Snapshot,
    part: Option<TextRange>,
    now: Timestamp,
    reader: TextReader,
    how: impl FnOnce(usize) -> String,
) -> (String, bool) {
    let state = &snapshot.state;
    let ended = state.status.is_final();
    let (elapsed, tokens) = (format_duration(state.elapsed(now)), state.usage.total());
    let mut text = format!(
        "{} · {} · {} · {elapsed} · {tokens} tokens · {} turns · {} tools used\nTask: {}\n",
        state.id,
        state.agent,
        state.status,
        state.turns,
        state.calls,
        escape(&state.headline)
    );
    let progress =
        state.progress.as_ref().map(|progress| format!(" ({})", escape(progress))).unwrap_or_default();
    let lines = [
        ("Now in", tools(state).map(|tools| tools + &progress)),
        ("Waits for", waiting(state, now)),
        ("Unread messages", (state.unread > 0).then(|| state.unread.to_string())),
        ("Error", failure_reason(state)),
        ("Note", cut_short_note(state)),
        ("Continued by", state.continued_by.map(|by| by.to_string())),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    let title = match state.status {
        Status::Completed => "Output",
        Status::Failed | Status::Cancelled => "Output before it ended",
        Status::Pending | Status::Running => "Output so far",
    };
    let (shown, truncated) = cut(snapshot, part, OUTPUT_LIMIT, how);
    let _ = match shown.trim() {
        "" => writeln!(text, "\n{title}: none"),
        _ => writeln!(text, "\n{title}:\n{shown}"),
    };
    if !ended {
        let _ = writeln!(text, "\n{}", not_ended_note(state, now, reader));
    }
    (text.trim_end().to_owned(), ended && !truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_say_them() {
        for (seconds, said) in
            [(0, "0s"), (59, "59s"), (65, "1m05s"), (3599, "59m59s"), (3600, "1h00m"), (93_784, "26h03m")]
        {
            assert_eq!(format_duration(Duration::from_secs(seconds)), said);
        }
    }

    #[test]
    fn the_longer_a_task_runs_the_later_it_is_worth_a_look() {
        for (elapsed, next) in [(0, 15), (30, 15), (31, 30), (65, 60), (200, 120), (4000, 300)] {
            assert_eq!(look_again(Duration::from_secs(elapsed)), next, "{elapsed}");
        }
    }
}
