//! Messages to a task: letters and stop requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{LetterId, TaskId};

/// A message to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// Its id. A task accepts each letter id only once.
    pub id: LetterId,
    /// The sender.
    pub from: Sender,
    /// The text.
    pub text: Arc<str>,
    /// A short summary of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When the task reads it.
    #[serde(default)]
    pub deliver: Delivery,
    /// The child whose end it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<TaskId>,
    /// Whether that child, or a task below it, made calls that may have changed something outside of
    /// Longhaul.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub effects: bool,
}

/// The sender of a letter or a stop request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    /// A person, or a program acting for one.
    Person,
    /// Another task.
    Task(TaskId),
    /// Longhaul itself.
    System,
}

/// When a task reads a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Before the next model call.
    #[default]
    Asap,
    /// When the task has nothing left to do.
    WhenIdle,
}

/// A request to stop a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// The cause. Of several requests, the strongest cause is kept.
    pub cause: StopCause,
    /// A note by the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a task is stopped, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// Its session was closed: no more letters will come. An idle task ends with its answer.
    Closed,
    /// Its parent ended, and the parent's policy stops its children.
    ParentEnded,
    /// Its parent, or a task above, was stopped.
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
