//! How a task stands, in a word.

use super::phrase::Tone;
use crate::task::{Status, TaskState};

/// How a task stands: its status, with running tasks that wait and pending tasks that ran before told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It runs, and asks a person.
    Asks,
    /// It runs, and waits for something else.
    Waiting,
    /// It runs, and is being stopped.
    Stopping,
    /// It has started, but no process runs it now.
    Interrupted,
    /// Nothing but its status is to be said.
    Plain(Status),
}

impl Standing {
    /// How the task stands.
    pub fn of(state: &TaskState) -> Standing {
        match (state.status, &state.waiting) {
            (Status::Running, _) if !state.asked.is_empty() => Standing::Asks,
            (Status::Running, Some(_)) => Standing::Waiting,
            (Status::Running, None) if state.stop.is_some() => Standing::Stopping,
            (Status::Pending, _) if state.attempt.0 > 0 => Standing::Interrupted,
            (status, _) => Standing::Plain(status),
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Asks => "asks",
            Standing::Waiting => "waiting",
            Standing::Stopping => "stopping",
            Standing::Interrupted => "interrupted",
            Standing::Plain(status) => status.as_str(),
        }
    }

    /// How it matters to the reader.
    pub fn tone(self) -> Tone {
        match self {
            Standing::Plain(status) => Tone::Status(status),
            _ => Tone::Attention,
        }
    }
}
