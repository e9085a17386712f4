//! The JSON that the HTTP API sends: one shape for each thing, with the names that `longhaul … --json` uses.

mod diff;
mod question;
mod task;
mod timeline;
mod transcript;

pub use diff::{CommitView, DiffView, FileDiffView, WorktreeView};
pub use question::{
    AlsoAnswered, AnswerView, FileChangeView, GrantView, LineView, QuestionKind, QuestionPage, QuestionView,
};
pub(crate) use task::needs_you;
pub use task::{
    Namer, OpenQuestionView, StopView, SumsView, TaskDetail, TaskPage, TaskStatus, TaskView, TreeView,
    UsageView, WaitView,
};
pub(crate) use timeline::{MOST_SPANS, Timeline};
pub use timeline::{SpanKind, SpanView, TimelinePage, TimelineView};
pub use transcript::{ItemView, TranscriptPage, words};

use longhaul::entry::Record;
use serde::Serialize;
use utoipa::ToSchema;

/// A team that is served.
#[derive(Debug, Serialize, ToSchema)]
pub struct TeamView {
    /// Its name in requests.
    pub name: String,
    /// The agent that gets a task if the request names none.
    pub root: String,
    /// Its agents, the root first.
    pub agents: Vec<AgentView>,
    /// The models that a task may name instead of its agent's own.
    pub models: Vec<String>,
}

/// An agent of a team.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// All teams that are served.
#[derive(Debug, Serialize, ToSchema)]
pub struct TeamPage {
    /// The teams.
    pub teams: Vec<TeamView>,
}

/// The answer of a task, or the part of it that exists.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResultView {
    /// The task.
    #[schema(value_type = String)]
    pub task: longhaul::TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// Whether this is the final answer. If not, it is the text so far.
    pub is_final: bool,
    /// The text from `offset` on.
    pub output: String,
    /// Why there is no answer.
    pub error: Option<String>,
    /// The kind of failure, if the task failed.
    pub failure: Option<String>,
    /// What made it answer early: a limit, or a loop.
    pub cut_short: Option<String>,
    /// Where this part begins, in bytes of the whole text in UTF-8.
    pub offset: usize,
    /// How long the whole text is, in bytes.
    pub total: usize,
    /// Where the next part begins; null if this is the last.
    pub next_offset: Option<usize>,
}

/// A part of a journal.
#[derive(Debug, Serialize, ToSchema)]
pub struct JournalPage {
    /// The entries, in order.
    pub records: Vec<RecordView>,
    /// Pass this as `after` to read on; null if this is the end of the journal.
    pub next_after: Option<u64>,
}

/// An entry of a journal.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecordView {
    /// Its position in the journal.
    pub seq: u64,
    /// When it was appended.
    #[schema(value_type = String, format = DateTime)]
    pub at: jiff::Timestamp,
    /// What happened, as docs/journal.md describes it.
    #[schema(value_type = Object)]
    pub entry: serde_json::Value,
}

impl From<&Record> for RecordView {
    fn from(record: &Record) -> RecordView {
        // An unit variant is text; everything else is an object with one key.
        let entry = match serde_json::to_value(&record.entry).unwrap_or_default() {
            serde_json::Value::String(kind) => serde_json::json!({ kind: {} }),
            other => other,
        };
        RecordView { seq: record.seq.0, at: record.at, entry }
    }
}

/// Where a letter went.
#[derive(Debug, Serialize, ToSchema)]
pub struct LetterView {
    /// The task that has it.
    #[schema(value_type = String)]
    pub task: longhaul::TaskId,
    /// Whether that is a new task, which continues the one that had ended.
    pub continued: bool,
}

/// The result of a wait.
#[derive(Debug, Serialize, ToSchema)]
pub struct WaitedView {
    /// Whether the time was up first. The tasks go on.
    pub timed_out: bool,
    /// The tasks, in the order in which they were named.
    pub tasks: Vec<TaskView>,
}

/// What tasks used.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsagePage {
    /// What the rows are for.
    pub by: crate::api::UsageKey,
    /// One row for each.
    pub rows: Vec<UsageRow>,
    /// Of all rows.
    pub total: SumsView,
    /// Whether there were too many tasks to count all of them: the newest are counted. Narrow the time.
    pub is_partial: bool,
}

/// What the tasks of one team, agent, model or day used.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageRow {
    /// The team, the agent, the model, or the day (UTC).
    pub key: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: SumsView,
}

/// The health of the server.
#[derive(Debug, Serialize, ToSchema)]
pub struct HealthView {
    /// `ok`.
    pub status: String,
    /// The version of Longhaul.
    pub version: String,
}

/// An event of a stream, with the fields of server-sent events.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Connect again with this to get what comes after it. `lagging` and `bye` have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    pub id: Option<String>,
    /// Its name.
    pub event: String,
    /// What happened, as JSON: the fields that `--json` has, `root` and `words`.
    pub data: String,
}
