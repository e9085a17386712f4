//! What others write to a task: letters, and the wish that it stop.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{LetterId, TaskId};

/// Something written to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// Its name. A task takes a letter of one name only once.
    pub id: LetterId,
    /// Who wrote it.
    pub from: Sender,
    /// What it says.
    pub text: Arc<str>,
    /// What it says, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When it is to be read.
    #[serde(default)]
    pub deliver: Delivery,
    /// The child whose end it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<TaskId>,
    /// Whether that child, or a task below it, has made calls that may have changed something outside of Longhaul.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub effects: bool,
}

/// Who wrote a letter, or asked for a stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    /// A person, or a program that speaks for one.
    Person,
    /// Another task.
    Task(TaskId),
    /// Longhaul itself.
    System,
}

/// When a letter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Before the next model call.
    #[default]
    Asap,
    /// When the task has nothing more to say of its own.
    WhenIdle,
}

/// A wish that a task stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Why; the strongest reason is the one that is kept.
    pub cause: StopCause,
    /// In somebody's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a task is stopped, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// Its session was closed: no more letters will come. A task that is at rest ends with its answer.
    Closed,
    /// Its parent ended and did not want it any more.
    ParentEnded,
    /// Its parent, or somebody above, was stopped.
    ParentStopped,
    /// An agent stopped it.
    Agent,
    /// A person stopped it.
    Person,
}

impl std::fmt::Display for StopCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopCause::Closed => "its session was closed",
            StopCause::ParentEnded => "its parent ended",
            StopCause::ParentStopped => "its parent was stopped",
            StopCause::Agent => "stopped by its parent agent",
            StopCause::Person => "stopped by a person",
        })
    }
}
