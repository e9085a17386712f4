//! Why Longhaul did not do what it was asked.

use crate::entry::TeamRef;
use crate::id::{QuestionId, TaskId};
use crate::store::StoreError;
use crate::task::Status;

/// Why Longhaul did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LonghaulError {
    /// The store did not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The order names an agent that the team does not have.
    #[error("there is no agent '{asked}' in {team}; it has: {}", .have.join(", "))]
    UnknownAgent {
        /// Who was asked for.
        asked: String,
        /// In which team.
        team: TeamRef,
        /// Who there is.
        have: Vec<String>,
    },
    /// The order names a model that the team does not have.
    #[error("there is no model '{asked}' in {team}; it has: {}", .have.join(", "))]
    UnknownModel {
        /// What was asked for.
        asked: String,
        /// In which team.
        team: TeamRef,
        /// What there is.
        have: Vec<String>,
    },
    /// A client has no team of its own: say which one.
    #[error("this Longhaul has no team: name one with `submit_to`")]
    NoTeam,
    /// A task that is to be tried again, though it did not fail.
    #[error("task {task} is {status}: only one that failed or was cancelled can be tried again")]
    NotFailed {
        /// Which.
        task: TaskId,
        /// How it stands.
        status: Status,
    },
    /// A task that is to be tried again, and is being tried again already.
    #[error("task {task} is tried again already, as {by}, which has not ended")]
    AlreadyRetried {
        /// Which.
        task: TaskId,
        /// As which task.
        by: TaskId,
    },
    /// A task that asks nobody anything.
    #[error("task {task} asks nothing: it is {status}")]
    NotAsking {
        /// Which.
        task: TaskId,
        /// How it stands.
        status: Status,
    },
    /// A task that asks several things.
    #[error("task {task} asks several things; say which you answer: {}", names(.open))]
    AmbiguousQuestion {
        /// Which task.
        task: TaskId,
        /// What it asks.
        open: Vec<QuestionId>,
    },
    /// A question that is not open any more.
    #[error("the question {question} of task {task} has been settled already: {said}")]
    AlreadyAnswered {
        /// Which task.
        task: TaskId,
        /// Which question.
        question: QuestionId,
        /// What came of it.
        said: String,
    },
    /// A question that was never asked.
    #[error("task {task} has never asked a question {question}")]
    UnknownQuestion {
        /// Which task.
        task: TaskId,
        /// Which question.
        question: QuestionId,
    },
    /// Words that do not answer the question.
    #[error("{0}")]
    BadAnswer(String),
    /// Nothing to do.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// Too much at once.
    #[error(
        "the {what} is {size} bytes long; at most {most} are taken. Put it in a file and name the file instead"
    )]
    TooLong {
        /// What.
        what: &'static str,
        /// How long it is.
        size: usize,
        /// How long it may be.
        most: usize,
    },
}

/// How long a task or a letter may be, in bytes.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

fn names(questions: &[QuestionId]) -> String {
    questions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Refuses a text that says nothing, or too much.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), LonghaulError> {
    if text.trim().is_empty() {
        return Err(LonghaulError::Empty(what));
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(LonghaulError::TooLong { what, size: text.len(), most: MAX_TEXT_BYTES });
    }
    Ok(())
}
