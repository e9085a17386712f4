//! The state of the tasks of a tree: a fold of their events.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use super::call::format_call;
use super::numbers::pluralize;
use super::phrase::{Tone, describe_wait};
use super::sanitize::one_line;
use super::standing::Standing;
use crate::entry::{StopCause, WaitReason};
use crate::id::TaskId;
use crate::snapshot::{Event, EventKind};
use crate::task::{Status, TaskState};

/// The tasks of a tree, one row each, with what each does now.
#[derive(Debug, Clone, Default)]
pub struct TaskBoard {
    rows: Vec<BoardRow>,
    /// The position of each task in `rows`.
    places: HashMap<TaskId, usize>,
    /// The tasks that wait for others.
    waiting: HashSet<TaskId>,
}

/// A task of a [`TaskBoard`]. Its texts are sanitized.
#[derive(Debug, Clone)]
pub struct BoardRow {
    /// Its id.
    pub id: TaskId,
    /// The task that launched it.
    pub parent: Option<TaskId>,
    /// Its agent.
    pub agent: String,
    /// Its order in one line.
    pub headline: String,
    /// Its status.
    pub status: Status,
    /// What it does now.
    pub activity: Activity,
    /// When it was submitted.
    pub created: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The tokens used so far.
    pub tokens: u64,
    /// The cost so far in millionths of a dollar, as far as known.
    pub cost: u64,
    /// Replies with unknown cost.
    pub unpriced: u64,
    /// The number of calls that have not returned.
    calls: usize,
}

/// What a task does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
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
    Stopping(StopCause),
    /// It has started, but no process runs it now.
    Interrupted,
    /// It ended without an answer.
    Failed(String),
    /// It ended with an answer, early: because of a limit, or a loop.
    CutShort(String),
}

impl Activity {
    /// What a task does now, from its state. `calls` names the calls that run, in words; it may be empty.
    pub fn from_state(state: &TaskState, calls: &str, now: Timestamp) -> Activity {
        if state.status.is_final() {
            return Activity::of_ended(state.error.as_deref(), state.cut_short.as_deref());
        }
        if let Some(asked) = state.asked.first() {
            return Activity::Asking(one_line(&asked.text));
        }
        match (Standing::of(state), &state.stop, state.waiting_at(now)) {
            (Standing::Interrupted, ..) => Activity::Interrupted,
            (Standing::Plain(Status::Pending), ..) => Activity::Idle,
            (_, Some(stop), _) => Activity::Stopping(stop.cause),
            (_, None, Some(waiting)) => Activity::Waiting(describe_wait(&waiting.on)),
            (_, None, None) if calls.is_empty() => Activity::Idle,
            (_, None, None) => Activity::Calling(match &state.progress {
                Some(progress) => format!("{calls}: {}", one_line(progress)),
                None => calls.to_owned(),
            }),
        }
    }

    fn of_ended(error: Option<&str>, cut_short: Option<&str>) -> Activity {
        match (error, cut_short) {
            (Some(error), _) => Activity::Failed(one_line(error)),
            (None, Some(limit)) => Activity::CutShort(one_line(limit)),
            (None, None) => Activity::Idle,
        }
    }

    /// What a task of this status does, in words, and how it matters. Empty if there is nothing to say.
    pub fn words(&self, status: Status) -> (String, Tone) {
        match self {
            Activity::Failed(why) => (why.clone(), Tone::Status(status)),
            Activity::CutShort(limit) => (format!("cut short by {limit}"), Tone::Attention),
            Activity::Stopping(cause) => (format!("stopping: {cause}"), Tone::Attention),
            Activity::Interrupted => ("not running".to_owned(), Tone::Attention),
            Activity::WaitingForTasks(ids) => {
                (format!("waits for {}", pluralize(ids.len(), "task")), Tone::Attention)
            }
            Activity::Waiting(what) => (format!("waits for {what}"), Tone::Attention),
            Activity::Asking(what) => (format!("asks: {what}"), Tone::Attention),
            Activity::Calling(what) => (format!("→ {what}"), Tone::Plain),
            Activity::Called(what) => (format!("✓ {what}"), Tone::Faint),
            Activity::Saying(said) => (one_line(said), Tone::Faint),
            Activity::Idle => match status {
                Status::Running => ("thinking".to_owned(), Tone::Faint),
                Status::Pending => ("queued".to_owned(), Tone::Faint),
                _ => (String::new(), Tone::Faint),
            },
        }
    }
}

/// How much of a task's text to keep, in bytes.
const REMEMBERED: usize = 400;

impl TaskBoard {
    /// Applies an event.
    pub fn apply_event(&mut self, event: &Event) {
        if let EventKind::Submitted { agent, headline, parent, .. } = &event.kind {
            self.rows.push(BoardRow {
                id: event.task,
                parent: *parent,
                agent: one_line(agent.as_str()),
                headline: one_line(headline),
                status: Status::Pending,
                activity: Activity::Idle,
                created: event.at,
                started: None,
                ended: None,
                tokens: 0,
                cost: 0,
                unpriced: 0,
                calls: 0,
            });
            // Events arrive task by task; show the tasks in order of creation.
            let is_last = self.rows.iter().rev().nth(1).is_none_or(|before| before.created <= event.at);
            self.places.insert(event.task, self.rows.len() - 1);
            if !is_last {
                self.rows.sort_by_key(|row| row.created);
                self.places = self.rows.iter().zip(0..).map(|(row, place)| (row.id, place)).collect();
            }
            return;
        }
        if matches!(event.kind, EventKind::Finished { .. }) {
            for waiting in &self.waiting {
                if let Some(row) = self.places.get(waiting).and_then(|place| self.rows.get_mut(*place)) {
                    row.remove_awaited(event.task);
                }
            }
        }
        let Some(row) = self.places.get(&event.task).and_then(|place| self.rows.get_mut(*place)) else {
            return;
        };
        row.apply_event(event);
        match row.activity {
            Activity::WaitingForTasks(_) => self.waiting.insert(event.task),
            _ => self.waiting.remove(&event.task),
        };
    }

    /// Returns the tasks with a call that only waits for other tasks.
    pub fn blocked(&self) -> impl Iterator<Item = TaskId> {
        let blocked = |row: &&BoardRow| row.calls > 0 && matches!(row.activity, Activity::WaitingForTasks(_));
        let waiting = self.waiting.iter().filter_map(|task| self.rows.get(*self.places.get(task)?));
        waiting.filter(blocked).map(|row| row.id)
    }

    /// Returns whether there are such tasks.
    pub fn is_blocked(&self) -> bool {
        self.blocked().next().is_some()
    }

    /// Returns the rows as a tree. For each level of a row, the flag says whether it is the last of its
    /// siblings.
    pub fn tree(&self) -> Vec<(Vec<bool>, &BoardRow)> {
        let mut children: HashMap<Option<TaskId>, Vec<&BoardRow>> = HashMap::new();
        for row in &self.rows {
            children
                .entry(row.parent.filter(|parent| self.places.contains_key(parent)))
                .or_default()
                .push(row);
        }
        let mut tree = Vec::with_capacity(self.rows.len());
        for top in children.get(&None).into_iter().flatten() {
            push_subtree(top, &children, &mut Vec::new(), &mut tree);
        }
        tree
    }
}

fn push_subtree<'a>(
    row: &'a BoardRow,
    children: &HashMap<Option<TaskId>, Vec<&'a BoardRow>>,
    lasts: &mut Vec<bool>,
    tree: &mut Vec<(Vec<bool>, &'a BoardRow)>,
) {
    tree.push((lasts.clone(), row));
    let mut below = children.get(&Some(row.id)).into_iter().flatten().peekable();
    while let Some(child) = below.next() {
        lasts.push(below.peek().is_none());
        push_subtree(child, children, lasts, tree);
        lasts.pop();
    }
}

impl BoardRow {
    /// Removes an ended task from what others wait for. They notice it only when they wake, but the viewer
    /// should see it at once.
    fn remove_awaited(&mut self, ended: TaskId) {
        if let Activity::WaitingForTasks(ids) = &mut self.activity {
            ids.retain(|id| *id != ended);
            if ids.is_empty() {
                self.activity = Activity::Idle;
            }
        }
    }

    fn apply_event(&mut self, event: &Event) {
        self.status = event.kind.status().unwrap_or(self.status);
        match &event.kind {
            EventKind::Started { .. } => {
                self.started = self.started.or(Some(event.at));
                self.activity = Activity::Idle;
            }
            EventKind::Text { text } => {
                if !matches!(self.activity, Activity::Saying(_)) {
                    self.activity = Activity::Saying(String::new());
                }
                if let Activity::Saying(said) = &mut self.activity {
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
                self.activity = Activity::Calling(format_call(tool, arguments, 80));
            }
            EventKind::Result { .. } => {
                self.calls = self.calls.saturating_sub(1);
                if let Activity::Calling(what) = &self.activity {
                    self.activity = Activity::Called(what.clone());
                }
            }
            EventKind::Progress { text } => self.activity = Activity::Calling(one_line(text)),
            EventKind::Asked { asks, .. } => self.activity = Activity::Asking(one_line(&asks.text)),
            EventKind::Answered { .. } => self.activity = Activity::Idle,
            // It has just asked this.
            EventKind::Waiting { on: WaitReason::Person(_), .. }
                if matches!(self.activity, Activity::Asking(_)) => {}
            EventKind::Waiting { on, .. } => {
                self.activity = match on {
                    WaitReason::Tasks(ids) => Activity::WaitingForTasks(ids.clone()),
                    other => Activity::Waiting(describe_wait(other)),
                };
            }
            EventKind::Stopping { cause } if !self.status.is_final() => {
                self.activity = Activity::Stopping(*cause);
            }
            EventKind::Released { .. } => {
                self.calls = 0;
                self.activity = Activity::Idle;
            }
            EventKind::Finished { error, cut_short, .. } => {
                self.ended = Some(event.at);
                self.activity = Activity::of_ended(error.as_deref(), cut_short.as_deref());
            }
            _ => {}
        }
    }
}
