//! How a task ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::StopRequest;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No worker runs it; it can be claimed.
    Pending,
    /// A worker runs it.
    Running,
    /// It ended with an answer.
    Completed,
    /// It ended without an answer.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Cancelled];

    /// Whether the task has ended. An ended task never changes its status.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// The status as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It completed with an answer.
    Completed {
        /// The answer.
        output: Arc<str>,
        /// What made it answer early: a limit, or a loop in which its tools were turned off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_short: Option<String>,
    },
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// The text it had produced by then.
        partial: Arc<str>,
    },
    /// It was stopped.
    Cancelled {
        /// Why.
        stop: StopRequest,
        /// The text it had produced by then.
        partial: Arc<str>,
    },
}

impl Outcome {
    /// The status of a task that ended like this.
    pub fn status(&self) -> Status {
        match self {
            Outcome::Completed { .. } => Status::Completed,
            Outcome::Failed { .. } => Status::Failed,
            Outcome::Cancelled { .. } => Status::Cancelled,
        }
    }

    /// The answer, or the part of it that exists.
    pub fn output(&self) -> &Arc<str> {
        match self {
            Outcome::Completed { output, .. } => output,
            Outcome::Failed { partial, .. } | Outcome::Cancelled { partial, .. } => partial,
        }
    }

    /// Appends a line to the output.
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        let (Outcome::Completed { output: said, .. }
        | Outcome::Failed { partial: said, .. }
        | Outcome::Cancelled { partial: said, .. }) = &mut self;
        let gap = if said.is_empty() { "" } else { "\n\n" };
        *said = format!("{}{gap}{note}", said.trim_end()).into();
        self
    }

    /// What made it answer early.
    pub fn cut_short(&self) -> Option<&str> {
        match self {
            Outcome::Completed { cut_short, .. } => cut_short.as_deref(),
            Outcome::Failed { .. } | Outcome::Cancelled { .. } => None,
        }
    }

    /// Why there is no answer; `None` if the task completed.
    pub fn error(&self) -> Option<String> {
        match self {
            Outcome::Completed { .. } => None,
            Outcome::Failed { failure, .. } => Some(failure.to_string()),
            Outcome::Cancelled { stop, .. } => Some(
                stop.note.clone().map_or_else(|| stop.cause.to_string(), |n| format!("{}: {n}", stop.cause)),
            ),
        }
    }
}

/// Why a task failed: a kind for programs and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
#[non_exhaustive]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The message.
    pub message: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
}

/// The kinds of failure. None of them is ever shown as success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The model replied with nothing, also after a reminder.
    NoAnswer,
    /// The provider rejected the request, failed for good, or cut the stream too often.
    Model,
    /// The model stopped sending in the middle of a reply.
    Silent,
    /// The model or a filter refused to answer.
    Refused,
    /// The turn limit was reached, and the policy treats that as a failure.
    TurnLimit,
    /// A budget was used up.
    Budget,
    /// The task took too long.
    Timeout,
    /// The answer does not match the required schema, also after a correction was requested.
    Shape,
    /// The model kept repeating the same call.
    Repeating,
    /// A tool reported that the run cannot continue.
    Tool,
    /// Longhaul itself failed while running the task.
    Panic,
    /// The worker that ran the task is gone, and the policy says not to resume it.
    LostWorker,
    /// The task's agent or model is not in its team.
    Team,
    /// The task's journal cannot be read.
    Journal,
    /// The task's working directory cannot be set up.
    Place,
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FailureKind::NoAnswer => "no answer",
            FailureKind::Model => "model error",
            FailureKind::Silent => "silent model",
            FailureKind::Refused => "refused",
            FailureKind::TurnLimit => "turn limit",
            FailureKind::Budget => "budget used up",
            FailureKind::Timeout => "timed out",
            FailureKind::Shape => "misshapen answer",
            FailureKind::Repeating => "repeating itself",
            FailureKind::Tool => "tool error",
            FailureKind::Panic => "internal error",
            FailureKind::LostWorker => "worker lost",
            FailureKind::Team => "team error",
            FailureKind::Journal => "unreadable journal",
            FailureKind::Place => "no place to work",
        })
    }
}
