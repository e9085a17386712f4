//! Selects tasks.

use jiff::Timestamp;

use crate::entry::TeamRef;
use crate::id::{AgentName, TaskId, WorkerId};
use crate::task::{Status, TaskState};

/// Selects tasks: those that match every field.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TaskFilter {
    /// With one of these statuses; any if empty.
    pub status: Vec<Status>,
    /// In this tree.
    pub root: Option<TaskId>,
    /// Children of one of these tasks; of any if empty.
    pub parents: Vec<TaskId>,
    /// Continuing this task.
    pub continues: Option<TaskId>,
    /// Retrying this task.
    pub retries: Option<TaskId>,
    /// Of one of these agents; of any if empty.
    pub agents: Vec<AgentName>,
    /// Of one of these teams; of any if empty.
    pub teams: Vec<TeamRef>,
    /// Run by this worker now.
    pub worker: Option<WorkerId>,
    /// Only roots.
    pub roots: bool,
    /// Submitted before this task, in submission order; none if there is no such task. With a limit, this is
    /// the next page of a list from the newest to the oldest.
    pub submitted_before: Option<TaskId>,
    /// Submitted at or after this.
    pub since: Option<Timestamp>,
    /// Submitted before this.
    pub before: Option<Timestamp>,
    /// Unfinished, or active at or after this time.
    pub active_since: Option<Timestamp>,
    /// Ended, and not active at or after this time.
    pub quiet_before: Option<Timestamp>,
    /// At most this many, the newest ones.
    pub limit: Option<usize>,
}

fluent_setters!(TaskFilter {
    status: Vec<Status>,
    root: Option<TaskId>,
    parents: Vec<TaskId>,
    continues: Option<TaskId>,
    retries: Option<TaskId>,
    agents: Vec<AgentName>,
    teams: Vec<TeamRef>,
    worker: Option<WorkerId>,
    roots: bool,
    submitted_before: Option<TaskId>,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
    active_since: Option<Timestamp>,
    quiet_before: Option<Timestamp>,
    limit: Option<usize>,
});

impl TaskFilter {
    /// All tasks of the tree with this root.
    pub fn tree(root: TaskId) -> Self {
        TaskFilter { root: Some(root), ..TaskFilter::default() }
    }

    /// The children of a task.
    pub fn children(parent: TaskId) -> Self {
        TaskFilter { parents: vec![parent], ..TaskFilter::default() }
    }

    /// The newest tasks.
    pub fn newest(limit: usize) -> Self {
        TaskFilter { limit: Some(limit), ..TaskFilter::default() }
    }

    /// Whether a task matches, whatever the limit and `submitted_before` are: those depend on other tasks.
    pub fn matches(&self, state: &TaskState) -> bool {
        (self.status.is_empty() || self.status.contains(&state.status))
            && self.root.is_none_or(|root| state.root == root)
            && (self.parents.is_empty() || state.parent.is_some_and(|parent| self.parents.contains(&parent)))
            && self.continues.is_none_or(|old| state.continues == Some(old))
            && self.retries.is_none_or(|old| state.retries == Some(old))
            && (self.agents.is_empty() || self.agents.contains(&state.agent))
            && (self.teams.is_empty() || self.teams.contains(&state.team))
            && self.worker.as_ref().is_none_or(|worker| state.worker.as_ref() == Some(worker))
            && (!self.roots || state.parent.is_none())
            && self.since.is_none_or(|since| state.created >= since)
            && self.before.is_none_or(|before| state.created < before)
            && self.active_since.is_none_or(|since| !state.status.is_final() || state.active >= since)
            && self.quiet_before.is_none_or(|before| state.status.is_final() && state.active < before)
    }

    /// Limits the filter to tasks that have not ended.
    pub fn live(mut self) -> Self {
        self.status = vec![Status::Pending, Status::Running];
        self
    }
}
