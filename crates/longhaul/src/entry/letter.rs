//! Messages to a task: letters and stop requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Status;
use crate::id::{AgentName, LetterId, TaskId};

/// A message to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// Which child that is, and how it ended. Earlier versions recorded it only in the text:
    /// [`task_ending`](Self::task_ending) knows it for all letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<TaskEnding>>,
    /// Whether that child, or a task below it, made calls that may have changed something outside of
    /// Longhaul.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub effects: bool,
}

fluent_setters!(Letter {
    summary: Option<String>,
    deliver: Delivery,
    ending: Option<TaskId>,
    ended: Option<Box<TaskEnding>>,
    effects: bool,
});

/// The end of a child, as a letter to its parent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnding {
    /// The child.
    pub task: TaskId,
    /// Its agent.
    pub agent: AgentName,
    /// How it ended.
    pub status: Status,
}

impl Letter {
    /// A letter that reports no end.
    pub fn new(id: LetterId, from: Sender, text: impl Into<Arc<str>>) -> Letter {
        Letter {
            id,
            from,
            text: text.into(),
            summary: None,
            deliver: Delivery::default(),
            ending: None,
            ended: None,
            effects: false,
        }
    }

    /// Which child's end it reports, and how that ended.
    pub fn task_ending(&self) -> Option<TaskEnding> {
        // Anyone can write the tag: only a letter that the engine marked is such a report.
        let task = self.ending?;
        self.ended.as_deref().cloned().or_else(|| TaskEnding::from_tag(task, &self.text))
    }
}

impl TaskEnding {
    /// The text of such a letter without the tag that models read.
    pub fn body(text: &str) -> &str {
        let inside = text.trim().strip_prefix("<task_ended").and_then(|rest| rest.split_once('>'));
        inside.map_or(text, |(_, body)| body.strip_suffix("</task_ended>").unwrap_or(body).trim())
    }

    /// Reads the tag, for letters of earlier versions.
    fn from_tag(task: TaskId, text: &str) -> Option<TaskEnding> {
        let (tag, _) = text.trim().strip_prefix("<task_ended ")?.split_once('>')?;
        let attribute = |name: &str| tag.split_once(&format!("{name}=\""))?.1.split('"').next();
        let status = attribute("status")?;
        let status = Status::ALL.into_iter().find(|known| known.as_str() == status)?;
        let agent = attribute("agent").unwrap_or_default();
        let agent = agent.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
        Some(TaskEnding { task, agent: agent.as_str().into(), status })
    }
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
    /// A person interrupted its turn. What it has launched goes on, and a letter to it continues it.
    Interrupted,
    /// Its parent ended, and the parent's policy stops its children.
    ParentEnded,
    /// Its parent, or a task above, was stopped.
    ParentStopped,
    /// An agent stopped it.
    Agent,
    /// A person stopped it.
    Person,
}

impl StopCause {
    /// Whether what the task has launched goes on.
    pub fn spares_children(self) -> bool {
        self == StopCause::Interrupted
    }
}

impl std::fmt::Display for StopCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopCause::Closed => "its session was closed",
            StopCause::Interrupted => "interrupted by a person",
            StopCause::ParentEnded => "its parent ended",
            StopCause::ParentStopped => "its parent was stopped",
            StopCause::Agent => "stopped by its parent agent",
            StopCause::Person => "stopped by a person",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(text: &str, ending: Option<TaskId>) -> Letter {
        let (id, from, deliver) = (LetterId::random(), Sender::System, Delivery::Asap);
        Letter::new(id, from, text).deliver(deliver).ending(ending)
    }

    #[test]
    fn the_end_of_a_child_is_known_from_letters_of_earlier_versions() {
        let task: TaskId = "t-00001".parse().unwrap();
        let text =
            "<task_ended id=\"t-1\" agent=\"a &quot;b&quot;\" status=\"completed\">\nA > B\n</task_ended>";
        let ended = letter(text, Some(task)).task_ending().unwrap();
        assert_eq!((ended.task, ended.agent.as_str(), ended.status), (task, "a \"b\"", Status::Completed));
        assert_eq!(TaskEnding::body(text), "A > B");
        assert_eq!(letter(text, None).task_ending(), None, "anyone can write the tag");
    }

    #[test]
    fn other_letters_report_no_end() {
        let task = "t-00001".parse().ok();
        for text in ["", "Hello.", "<b>as it is", "<task_ended id=\"t-1\">x</task_ended>", "<task_ended "] {
            assert_eq!(letter(text, task).task_ending(), None, "{text}");
        }
        assert_eq!(TaskEnding::body("<b>as it is"), "<b>as it is");
    }
}
