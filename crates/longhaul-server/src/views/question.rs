//! Questions to a person as JSON.

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{ExpectedAnswer, GrantScope, Question};
use longhaul::id::QuestionId;
use longhaul::supervisor::AnswerReceipt;
use longhaul::task::{OpenQuestion, TaskState};
use longhaul::transcript::{LineKind, question_lines};
use serde::Serialize;
use utoipa::ToSchema;

use super::task::Namer;

/// What kind of answer a question expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// Whether a tool call may run.
    Approval,
    /// Text, or JSON if there is a `schema`.
    Text,
}

/// An open question of a task, in full.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuestionView {
    /// The task that asks.
    #[schema(value_type = String)]
    pub task: TaskId,
    /// The root of its tree.
    #[schema(value_type = String)]
    pub root: TaskId,
    /// The name of its team, if it is served here.
    pub team: Option<String>,
    /// Its agent.
    pub agent: String,
    /// What the task is about.
    pub headline: String,
    /// The id of the question in its task.
    pub question: String,
    /// What kind of answer it expects.
    pub kind: QuestionKind,
    /// The question.
    pub text: String,
    /// The question laid out for reading, with all arguments and the diff. Every control and invisible
    /// character is made visible.
    pub lines: Vec<LineView>,
    /// The tool, if it asks for approval.
    pub tool: Option<String>,
    /// The tool's arguments as the tool will read them.
    pub arguments: Option<String>,
    /// Why a person has to approve this call even if a rule allows it.
    pub why: Option<String>,
    /// How the tool differs from the one that was approved before.
    pub changed: Option<String>,
    /// What the call does to a file.
    pub file: Option<FileChangeView>,
    /// What `always` can allow, from narrow to wide.
    pub grants: Vec<GrantView>,
    /// The JSON schema of the answer, if there is one.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<serde_json::Value>,
    /// When it was asked.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

impl QuestionView {
    /// The view of an open question.
    pub fn new(state: &TaskState, open: &OpenQuestion, asks: &Question, names: &Namer) -> QuestionView {
        let mut view = QuestionView {
            task: state.id,
            root: state.root,
            team: names.name(&state.team),
            agent: state.agent.to_string(),
            headline: state.headline.clone(),
            question: open.question.to_string(),
            kind: QuestionKind::Text,
            text: asks.text.clone(),
            lines: question_lines(asks).into_iter().map(LineView::from).collect(),
            tool: None,
            arguments: None,
            why: None,
            changed: None,
            file: None,
            grants: Vec::new(),
            schema: None,
            since: open.since,
            until: open.until,
        };
        match &asks.wants {
            ExpectedAnswer::Leave { tool, arguments, why, changed, file, .. } => {
                view.kind = QuestionKind::Approval;
                view.grants = grants(tool, arguments);
                view.tool = Some(tool.clone());
                view.arguments = Some(arguments.clone());
                view.why.clone_from(why);
                view.changed.clone_from(changed);
                view.file = file.as_deref().map(|file| FileChangeView {
                    path: file.path.clone(),
                    exists: file.exists,
                    diff: file.diff.clone(),
                    problem: file.problem.clone(),
                });
            }
            ExpectedAnswer::Words { schema } => {
                view.schema = schema.clone().filter(|schema| schema.is_object())
            }
        }
        view
    }
}

/// The patterns that `always` can allow for a call.
fn grants(tool: &str, arguments: &str) -> Vec<GrantView> {
    let arguments = serde_json::from_str(arguments).unwrap_or_default();
    let scopes = [("exact", GrantScope::Exact), ("program", GrantScope::Program), ("tool", GrantScope::Tool)];
    let grant = |(scope, grant): (&str, GrantScope)| {
        let pattern = grant.pattern(tool, &arguments).ok()?.to_string();
        Some(GrantView { scope: scope.to_owned(), pattern })
    };
    scopes.into_iter().filter_map(grant).collect()
}

/// A line of a question.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LineView {
    /// What it is: `text`, `note`, `added`, `removed` or `same`.
    pub kind: String,
    /// The line.
    pub text: String,
}

impl From<(LineKind, String)> for LineView {
    fn from((kind, text): (LineKind, String)) -> LineView {
        let kind = match kind {
            LineKind::Text => "text",
            LineKind::Note => "note",
            LineKind::Added => "added",
            LineKind::Removed => "removed",
            LineKind::Same => "same",
        };
        LineView { kind: kind.to_owned(), text }
    }
}

/// What a call would do to a file.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FileChangeView {
    /// The file, as the tool names it.
    pub path: String,
    /// Whether the file exists.
    pub exists: bool,
    /// The difference: lines with ` `, `-` or `+` in front.
    pub diff: String,
    /// Why there is no difference to show.
    pub problem: Option<String>,
}

/// What `always` can allow.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct GrantView {
    /// Pass this as `scope`: `exact`, `program` or `tool`.
    pub scope: String,
    /// The pattern that it allows.
    pub pattern: String,
}

/// The open questions of all tasks.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuestionPage {
    /// The questions, oldest first.
    pub questions: Vec<QuestionView>,
}

/// The effect of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnswerView {
    /// The task.
    #[schema(value_type = String)]
    pub task: TaskId,
    /// The question that was answered.
    pub question: String,
    /// The calls that are allowed in the whole tree from now on.
    pub granted: Option<String>,
    /// Other open questions of the tree that this answered too.
    pub also: Vec<AlsoAnswered>,
}

/// Another question that an answer answered too.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlsoAnswered {
    /// The task.
    #[schema(value_type = String)]
    pub task: TaskId,
    /// The question.
    pub question: String,
}

impl AnswerView {
    /// The view of a receipt.
    pub fn new(task: TaskId, receipt: &AnswerReceipt) -> AnswerView {
        let also = |(task, question): &(TaskId, QuestionId)| AlsoAnswered {
            task: *task,
            question: question.to_string(),
        };
        AnswerView {
            task,
            question: receipt.question.to_string(),
            granted: receipt.granted.as_ref().map(ToString::to_string),
            also: receipt.also_answered.iter().map(also).collect(),
        }
    }
}
