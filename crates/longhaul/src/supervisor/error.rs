//! Errors of the [`Longhaul`](super::Longhaul) handle.

use crate::entry::TeamRef;
use crate::id::{QuestionId, TaskId};
use crate::store::StoreError;
use crate::task::Status;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LonghaulError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The order names an agent that the team does not have.
    #[error("there is no agent '{asked}' in {team}; it has: {}", .have.join(", "))]
    UnknownAgent {
        /// The requested agent.
        asked: String,
        /// The team.
        team: TeamRef,
        /// The team's agents.
        have: Vec<String>,
    },
    /// The order names a model that the team does not have.
    #[error("there is no model '{asked}' in {team}; it has: {}", .have.join(", "))]
    UnknownModel {
        /// The requested model.
        asked: String,
        /// The team.
        team: TeamRef,
        /// The team's models.
        have: Vec<String>,
    },
    /// A client has no team of its own: the caller must name one.
    #[error("this Longhaul has no team: name one with `submit_to`")]
    NoTeam,
    /// The task to retry did not fail.
    #[error("task {task} is {status}: only a failed or cancelled task can be retried")]
    NotFailed {
        /// The task.
        task: TaskId,
        /// Its status.
        status: Status,
    },
    /// The task is already being retried.
    #[error("task {task} is already being retried as {by}, which has not ended")]
    AlreadyRetried {
        /// The task.
        task: TaskId,
        /// The task that retries it.
        by: TaskId,
    },
    /// The task has no open question.
    #[error("task {task} has no open question: it is {status}")]
    NotAsking {
        /// The task.
        task: TaskId,
        /// Its status.
        status: Status,
    },
    /// The task has several open questions.
    #[error("task {task} has several open questions; name the one you answer: {}", names(.open))]
    AmbiguousQuestion {
        /// The task.
        task: TaskId,
        /// The open questions.
        open: Vec<QuestionId>,
    },
    /// The question is no longer open.
    #[error("question {question} of task {task} is already closed: {said}")]
    AlreadyAnswered {
        /// The task.
        task: TaskId,
        /// The question.
        question: QuestionId,
        /// The answer, or why there is none.
        said: String,
    },
    /// The question was never asked.
    #[error("task {task} has no question {question}")]
    UnknownQuestion {
        /// The task.
        task: TaskId,
        /// The question.
        question: QuestionId,
    },
    /// The answer is invalid.
    #[error("{0}")]
    BadAnswer(String),
    /// The git worktree of a task cannot be read.
    #[error("the task's git worktree cannot be read: {0}")]
    Worktree(String),
    /// A text is empty.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A text is too long.
    #[error(
        "the {what} is {size} bytes long; at most {most} are taken. Put it in a file and name the file instead"
    )]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Its length in bytes.
        size: usize,
        /// The maximum length in bytes.
        most: usize,
    },
}

/// The maximum length of a task or a letter, in bytes.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

fn names(questions: &[QuestionId]) -> String {
    questions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Rejects a text that is empty or too long.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), LonghaulError> {
    if text.trim().is_empty() {
        return Err(LonghaulError::Empty(what));
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(LonghaulError::TooLong { what, size: text.len(), most: MAX_TEXT_BYTES });
    }
    Ok(())
}
