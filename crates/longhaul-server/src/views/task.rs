//! Tasks as JSON.

use std::collections::HashMap;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::TeamRef;
use longhaul::message::Usage;
use longhaul::task::{Status, TaskState};
use longhaul::transcript::{Activity, Standing, describe_wait, one_line};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::diff::WorktreeView;
use super::question::QuestionView;
use crate::backend::ServedTeam;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// No process runs it now.
    Pending,
    /// A process runs it.
    Running,
    /// It ended with an answer.
    Completed,
    /// It ended without an answer.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl From<Status> for TaskStatus {
    fn from(status: Status) -> TaskStatus {
        match status {
            Status::Pending => TaskStatus::Pending,
            Status::Running => TaskStatus::Running,
            Status::Completed => TaskStatus::Completed,
            Status::Failed => TaskStatus::Failed,
            Status::Cancelled => TaskStatus::Cancelled,
        }
    }
}

impl From<TaskStatus> for Status {
    fn from(status: TaskStatus) -> Status {
        match status {
            TaskStatus::Pending => Status::Pending,
            TaskStatus::Running => Status::Running,
            TaskStatus::Completed => Status::Completed,
            TaskStatus::Failed => Status::Failed,
            TaskStatus::Cancelled => Status::Cancelled,
        }
    }
}

/// The names of the teams that are served, by their references.
#[derive(Debug, Clone, Default)]
pub struct Namer(HashMap<TeamRef, String>);

impl Namer {
    /// The names of these teams.
    pub fn new(teams: &[ServedTeam]) -> Namer {
        Namer(teams.iter().map(|team| (team.team.reference().clone(), team.name.clone())).collect())
    }

    /// The name of a team; `None` if it is a team file that is not served here.
    pub fn name(&self, team: &TeamRef) -> Option<String> {
        match (self.0.get(team), team) {
            (Some(name), _) => Some(name.clone()),
            (None, TeamRef::Named(name)) => Some(name.to_string()),
            (None, TeamRef::File(_)) => None,
        }
    }
}

/// A task.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TaskView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: TaskId,
    /// The name of its team; null if the team is not served here.
    pub team: Option<String>,
    /// The agent that runs it.
    pub agent: String,
    /// Its order in one line.
    pub headline: String,
    /// The task that launched it.
    #[schema(value_type = Option<String>)]
    pub parent: Option<TaskId>,
    /// The first task of its tree.
    #[schema(value_type = String)]
    pub root: TaskId,
    /// Its distance from the root.
    pub depth: u32,
    /// Whether it waits for the next letter instead of ending.
    pub interactive: bool,
    /// The ended task that it continues.
    #[schema(value_type = Option<String>)]
    pub continues: Option<TaskId>,
    /// The failed or cancelled task that it retries.
    #[schema(value_type = Option<String>)]
    pub retries: Option<TaskId>,
    /// The task that continues it.
    #[schema(value_type = Option<String>)]
    pub continued_by: Option<TaskId>,
    /// Its status.
    pub status: TaskStatus,
    /// How it stands: its status, or `asks`, `waiting`, `stopping`, `interrupted`.
    pub standing: String,
    /// What it does now, in words; empty if there is nothing to say.
    pub activity: String,
    /// Whether it waits for a person's answer.
    pub needs_you: bool,
    /// How often it was claimed.
    pub attempt: u32,
    /// The stop request, if it was asked to stop.
    pub stop: Option<StopView>,
    /// Why it ended without an answer.
    pub error: Option<String>,
    /// What made it answer early: a limit, or a loop.
    pub cut_short: Option<String>,
    /// The position of the last entry of its journal.
    pub seq: u64,
    /// When it was submitted.
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    /// When it was first claimed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended: Option<Timestamp>,
    /// When anything last happened in it.
    #[schema(value_type = String, format = DateTime)]
    pub active: Timestamp,
    /// Its working time in milliseconds, as far as it is written.
    pub worked_ms: u64,
    /// What it waits for.
    pub waiting: Option<WaitView>,
    /// Its open questions, in short. `/api/v1/questions` has all of them in full.
    pub asked: Vec<OpenQuestionView>,
    /// The tools that run now.
    pub calling: Vec<String>,
    /// The last progress message of a tool.
    pub progress: Option<String>,
    /// Letters that it has not read.
    pub unread: u32,
    /// Replies of its model.
    pub turns: u32,
    /// Tool calls that it started.
    pub calls: u32,
    /// The tokens it used.
    pub usage: UsageView,
    /// Their cost in millionths of a dollar, as far as prices are known.
    pub cost: u64,
    /// Replies whose price is not known.
    pub unpriced: u32,
    /// Calls that were denied because nobody was there to approve them.
    pub denied: u32,
    /// The sums of it and everything below it, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<SumsView>,
}

impl TaskView {
    /// The view of a state.
    pub fn new(state: &TaskState, names: &Namer, now: Timestamp) -> TaskView {
        let tools: Vec<String> = state.calling.iter().map(|(_, tool)| one_line(tool)).collect();
        let activity = Activity::from_state(state, &tools.join(", "), now);
        TaskView {
            id: state.id,
            team: names.name(&state.team),
            agent: state.agent.to_string(),
            headline: state.headline.clone(),
            parent: state.parent,
            root: state.root,
            depth: state.depth,
            interactive: state.interactive,
            continues: state.continues,
            retries: state.retries,
            continued_by: state.continued_by,
            status: state.status.into(),
            standing: Standing::of(state).as_str().to_owned(),
            activity: activity.words(state.status).0,
            needs_you: needs_you(state),
            attempt: state.attempt.0,
            stop: state
                .stop
                .as_ref()
                .map(|stop| StopView { cause: stop.cause.to_string(), note: stop.note.clone() }),
            error: state.error.clone(),
            cut_short: state.cut_short.clone(),
            seq: state.seq.0,
            created: state.created,
            started: state.started,
            ended: state.ended,
            active: state.active,
            worked_ms: u64::try_from(state.worked.as_millis()).unwrap_or(u64::MAX),
            waiting: state.waiting_at(now).map(|waiting| WaitView {
                on: describe_wait(&waiting.on),
                since: waiting.since,
                until: waiting.until,
            }),
            asked: open_questions(state),
            calling: tools,
            progress: state.progress.clone(),
            unread: state.unread,
            turns: state.turns,
            calls: state.calls,
            usage: state.usage.into(),
            cost: state.cost,
            unpriced: state.unpriced,
            denied: state.denied,
            tree: None,
        }
    }
}

/// Whether a task waits for a person's answer. One that no process runs can be answered too.
pub(crate) fn needs_you(state: &TaskState) -> bool {
    !state.asked.is_empty() && !state.status.is_final()
}

fn open_questions(state: &TaskState) -> Vec<OpenQuestionView> {
    let open = state.asked.iter().filter(|_| !state.status.is_final());
    open.map(|asked| OpenQuestionView {
        question: asked.question.to_string(),
        text: asked.text.clone(),
        tool: asked.tool.clone(),
        since: asked.since,
        until: asked.until,
    })
    .collect()
}

/// A stop request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StopView {
    /// The cause, in words.
    pub cause: String,
    /// A note by the sender.
    pub note: Option<String>,
}

/// What a task waits for.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WaitView {
    /// What it waits for, in words.
    pub on: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The latest end of the wait, if known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// An open question, in short.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OpenQuestionView {
    /// Its id.
    pub question: String,
    /// The question in one line.
    pub text: String,
    /// The tool, if it asks for approval of a call.
    pub tool: Option<String>,
    /// When it was asked.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// Used tokens. `cached` and `cache_written` are part of `input`; `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, ToSchema)]
pub struct UsageView {
    /// Input tokens.
    pub input: u64,
    /// Input tokens from the provider's cache.
    pub cached: u64,
    /// Input tokens written to the provider's cache.
    pub cache_written: u64,
    /// Output tokens.
    pub output: u64,
    /// Output tokens that were reasoning.
    pub reasoning: u64,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> UsageView {
        let Usage { input, cached, cache_written, output, reasoning } = usage;
        UsageView { input, cached, cache_written, output, reasoning }
    }
}

/// Sums over tasks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, ToSchema)]
pub struct SumsView {
    /// How many tasks.
    pub tasks: usize,
    /// How many of them have ended.
    pub ended: usize,
    /// How many of them failed.
    pub failed: usize,
    /// How many of them wait for a person.
    pub needs_you: usize,
    /// Replies.
    pub turns: u64,
    /// Tool calls.
    pub calls: u64,
    /// Tokens.
    pub usage: UsageView,
    /// Their cost in millionths of a dollar, as far as prices are known.
    pub cost: u64,
    /// Replies whose price is not known.
    pub unpriced: u64,
}

impl SumsView {
    /// Adds a task.
    pub fn add(&mut self, state: &TaskState) {
        self.tasks += 1;
        self.ended += usize::from(state.status.is_final());
        self.failed += usize::from(state.status == Status::Failed);
        self.needs_you += usize::from(needs_you(state));
        self.turns += u64::from(state.turns);
        self.calls += u64::from(state.calls);
        self.add_usage(state.usage);
        self.cost = self.cost.saturating_add(state.cost);
        self.unpriced += u64::from(state.unpriced);
    }

    /// Adds tokens.
    pub fn add_usage(&mut self, usage: Usage) {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        let had = self.usage;
        self.usage = UsageView {
            input: sum(had.input, usage.input),
            cached: sum(had.cached, usage.cached),
            cache_written: sum(had.cache_written, usage.cache_written),
            output: sum(had.output, usage.output),
            reasoning: sum(had.reasoning, usage.reasoning),
        };
    }

    /// The sums over these tasks.
    pub fn over<'a>(states: impl IntoIterator<Item = &'a TaskState>) -> SumsView {
        let mut sums = SumsView::default();
        states.into_iter().for_each(|state| sums.add(state));
        sums
    }
}

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskPage {
    /// The tasks, newest first.
    pub tasks: Vec<TaskView>,
    /// Pass this as `cursor` for the next page; null if there is none. A page can be shorter than the limit,
    /// or empty, although there are more.
    pub next_cursor: Option<String>,
}

/// One task with its order, children, questions and output.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskDetail {
    /// The task.
    pub task: TaskView,
    /// Its order: `agent`, `task`, and what else was set.
    #[schema(value_type = Object)]
    pub order: serde_json::Value,
    /// Its children, oldest first.
    pub children: Vec<TaskView>,
    /// The sums of it and everything below it.
    pub tree: SumsView,
    /// The tasks that retry it.
    #[schema(value_type = Vec<String>)]
    pub retried_as: Vec<TaskId>,
    /// Its open questions, in full.
    pub questions: Vec<QuestionView>,
    /// Its git worktree; null if it has none. `/diff` has what was changed there.
    pub worktree: Option<WorktreeView>,
    /// The answer, or the text so far; at most the first 16 KiB.
    pub output: String,
    /// Whether `output` is shortened: `/result` has all of it.
    pub output_shortened: bool,
}

/// A task with everything below it.
#[derive(Debug, Serialize, ToSchema)]
pub struct TreeView {
    /// The task, and the tasks below it, oldest first. Each has the sums of what is below it.
    pub tasks: Vec<TaskView>,
    /// The sums of all of them.
    pub tree: SumsView,
}
