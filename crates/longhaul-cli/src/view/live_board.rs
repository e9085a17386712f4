//! The state of the tasks of a tree: a fold of their events.

use longhaul::entry::WaitReason;
use longhaul::snapshot::{Event, EventKind};
use longhaul::{Status, TaskId};

use jiff::Timestamp;

use super::event_text::{describe_wait, format_call};
use super::sanitize::one_line;

/// The tasks, one row each.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveTaskBoard {
    rows: Vec<LiveTaskRow>,
}

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct LiveTaskRow {
    pub(crate) id: TaskId,
    pub(crate) parent: Option<TaskId>,
    pub(crate) agent: String,
    pub(crate) headline: String,
    pub(crate) status: Status,
    pub(crate) activity: LiveActivity,
    pub(crate) created: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) tokens: u64,
    /// The cost so far in millionths of a dollar, as far as known.
    pub(crate) cost: u64,
    /// Replies with unknown cost.
    pub(crate) unpriced: u64,
    /// The number of calls that have not returned.
    calls: usize,
}

/// What a task does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LiveActivity {
    /// Nothing visible.
    Idle,
    /// The model writes or reasons.
    Saying(String),
    /// A tool runs.
    Calling(String),
    /// A tool has returned, and the next step is not known yet.
    Called(String),
    /// It waits for those of these tasks that have not ended.
    WaitingForTasks(Vec<TaskId>),
    /// It asks a person.
    Asking(String),
    /// It waits for something else.
    Waiting(String),
    /// It is being stopped.
    Stopping,
    /// It ended without an answer.
    Failed(String),
}

/// How much of a task's text to keep, in bytes.
const REMEMBERED: usize = 400;

impl LiveTaskBoard {
    /// Applies an event.
    pub(crate) fn apply_event(&mut self, event: &Event) {
        if let EventKind::Submitted { agent, headline, parent, .. } = &event.kind {
            self.rows.push(LiveTaskRow {
                id: event.task,
                parent: *parent,
                agent: one_line(agent.as_str()),
                headline: one_line(headline),
                status: Status::Pending,
                activity: LiveActivity::Idle,
                created: event.at,
                started: None,
                ended: None,
                tokens: 0,
                cost: 0,
                unpriced: 0,
                calls: 0,
            });
            // Events arrive task by task; show the tasks in order of creation.
            self.rows.sort_by_key(|row| row.created);
            return;
        }
        if matches!(event.kind, EventKind::Finished { .. }) {
            for row in &mut self.rows {
                row.remove_awaited(event.task);
            }
        }
        let Some(row) = self.rows.iter_mut().find(|row| row.id == event.task) else { return };
        row.apply_event(event);
    }

    /// Returns the tasks with a call that only waits for other tasks.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = TaskId> {
        let blocked =
            |row: &&LiveTaskRow| row.calls > 0 && matches!(row.activity, LiveActivity::WaitingForTasks(_));
        self.rows.iter().filter(blocked).map(|row| row.id)
    }

    /// Returns whether there are such tasks.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked().next().is_some()
    }

    /// Returns the rows as a tree. For each level of a row, the flag says whether it is the last of its
    /// siblings.
    pub(crate) fn tree(&self) -> Vec<(Vec<bool>, &LiveTaskRow)> {
        let mut tree = Vec::with_capacity(self.rows.len());
        let is_top =
            |row: &&LiveTaskRow| row.parent.is_none_or(|p| self.rows.iter().all(|other| other.id != p));
        for top in self.rows.iter().filter(is_top) {
            self.push_subtree(top, &mut Vec::new(), &mut tree);
        }
        tree
    }

    fn push_subtree<'a>(
        &'a self,
        row: &'a LiveTaskRow,
        lasts: &mut Vec<bool>,
        tree: &mut Vec<(Vec<bool>, &'a LiveTaskRow)>,
    ) {
        tree.push((lasts.clone(), row));
        let mut children = self.rows.iter().filter(|other| other.parent == Some(row.id)).peekable();
        while let Some(child) = children.next() {
            lasts.push(children.peek().is_none());
            self.push_subtree(child, lasts, tree);
            lasts.pop();
        }
    }
}

impl LiveTaskRow {
    /// Removes an ended task from what others wait for. They notice it only when they wake, but the viewer
    /// should see it at once.
    fn remove_awaited(&mut self, ended: TaskId) {
        if let LiveActivity::WaitingForTasks(ids) = &mut self.activity {
            ids.retain(|id| *id != ended);
            if ids.is_empty() {
                self.activity = LiveActivity::Idle;
            }
        }
    }

    fn apply_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Started { .. } => {
                self.status = Status::Running;
                self.started = self.started.or(Some(event.at));
                self.activity = LiveActivity::Idle;
            }
            EventKind::Text { text } => {
                if !matches!(self.activity, LiveActivity::Saying(_)) {
                    self.activity = LiveActivity::Saying(String::new());
                }
                if let LiveActivity::Saying(said) = &mut self.activity {
                    if said.len() > REMEMBERED {
                        let keep = said.ceil_char_boundary(said.len() - REMEMBERED / 2);
                        said.drain(..keep);
                    }
                    said.push_str(text);
                }
            }
            EventKind::Usage { usage, cost, .. } | EventKind::Sampled { usage, cost, .. } => {
                self.tokens = self.tokens.saturating_add(usage.total());
                self.cost = self.cost.saturating_add(cost.unwrap_or(0));
                self.unpriced += u64::from(cost.is_none());
            }
            EventKind::Call { tool, arguments, .. } => {
                self.calls += 1;
                self.activity = LiveActivity::Calling(format_call(tool, arguments, 80));
            }
            EventKind::Result { .. } => {
                self.calls = self.calls.saturating_sub(1);
                if let LiveActivity::Calling(what) = &self.activity {
                    self.activity = LiveActivity::Called(what.clone());
                }
            }
            EventKind::Progress { text } => self.activity = LiveActivity::Calling(one_line(text)),
            EventKind::Asked { asks, .. } => self.activity = LiveActivity::Asking(one_line(&asks.text)),
            EventKind::Answered { .. } => self.activity = LiveActivity::Idle,
            // It has just asked this.
            EventKind::Waiting { on: WaitReason::Person(_), .. }
                if matches!(self.activity, LiveActivity::Asking(_)) => {}
            EventKind::Waiting { on, .. } => {
                self.activity = match on {
                    WaitReason::Tasks(ids) => LiveActivity::WaitingForTasks(ids.clone()),
                    other => LiveActivity::Waiting(describe_wait(other)),
                };
            }
            EventKind::Stopping { .. } if !self.status.is_final() => self.activity = LiveActivity::Stopping,
            EventKind::Released { .. } => {
                self.status = Status::Pending;
                self.calls = 0;
                self.activity = LiveActivity::Idle;
            }
            EventKind::Finished { status, error, .. } => {
                self.status = *status;
                self.ended = Some(event.at);
                self.activity = match error {
                    Some(error) => LiveActivity::Failed(one_line(error)),
                    None => LiveActivity::Idle,
                };
            }
            _ => {}
        }
    }
}
