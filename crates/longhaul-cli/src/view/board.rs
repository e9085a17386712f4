//! Where the tasks of a tree stand: a fold of their events.

use longhaul::entry::Wait;
use longhaul::snapshot::{Event, Happening};
use longhaul::{Status, TaskId};

use jiff::Timestamp;

use super::clean::one_line;
use super::tell::{call, waits_for};

/// The tasks, each in a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    rows: Vec<Row>,
}

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: TaskId,
    pub(crate) parent: Option<TaskId>,
    pub(crate) agent: String,
    pub(crate) headline: String,
    pub(crate) status: Status,
    pub(crate) doing: Doing,
    pub(crate) created: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) tokens: u64,
    /// What it cost so far, in millionths of a dollar, as far as that is known.
    pub(crate) cost: u64,
    /// Replies of which nobody knows what they cost.
    pub(crate) unpriced: u64,
    /// How many of its calls have not returned.
    calls: usize,
}

/// What a task does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing that can be seen.
    Nothing,
    /// It thinks, or says something.
    Saying(String),
    /// A tool runs.
    Calling(String),
    /// A tool has returned, and what follows from that is not known yet.
    Called(String),
    /// It waits for these tasks, as far as they have not ended.
    Awaiting(Vec<TaskId>),
    /// It asks a person.
    Asking(String),
    /// It waits for something else.
    Waiting(String),
    /// It is about to stop.
    Stopping,
    /// It ended without an answer.
    Failed(String),
}

/// How much of what a task says is remembered.
const REMEMBERED: usize = 400;

impl Board {
    /// Takes an event in.
    pub(crate) fn feed(&mut self, event: &Event) {
        if let Happening::Submitted { agent, headline, parent, .. } = &event.what {
            self.rows.push(Row {
                id: event.task,
                parent: *parent,
                agent: one_line(agent.as_str()),
                headline: one_line(headline),
                status: Status::Pending,
                doing: Doing::Nothing,
                created: event.at,
                started: None,
                ended: None,
                tokens: 0,
                cost: 0,
                unpriced: 0,
                calls: 0,
            });
            // Events of a tree come task by task; people want to see who came first.
            self.rows.sort_by_key(|row| row.created);
            return;
        }
        if matches!(event.what, Happening::Finished { .. }) {
            for row in &mut self.rows {
                row.no_longer_awaits(event.task);
            }
        }
        let Some(row) = self.rows.iter_mut().find(|row| row.id == event.task) else { return };
        row.step(event);
    }

    /// Tasks in the middle of a call that only waits for other tasks.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = TaskId> {
        let blocked = |row: &&Row| row.calls > 0 && matches!(row.doing, Doing::Awaiting(_));
        self.rows.iter().filter(blocked).map(|row| row.id)
    }

    /// Whether there are such.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked().next().is_some()
    }

    /// The rows as a tree, with how deep each is and whether it is the last of its siblings at each level.
    pub(crate) fn tree(&self) -> Vec<(Vec<bool>, &Row)> {
        let mut tree = Vec::with_capacity(self.rows.len());
        let is_top = |row: &&Row| row.parent.is_none_or(|p| self.rows.iter().all(|other| other.id != p));
        for top in self.rows.iter().filter(is_top) {
            self.below(top, &mut Vec::new(), &mut tree);
        }
        tree
    }

    fn below<'a>(&'a self, row: &'a Row, lasts: &mut Vec<bool>, tree: &mut Vec<(Vec<bool>, &'a Row)>) {
        tree.push((lasts.clone(), row));
        let mut children = self.rows.iter().filter(|other| other.parent == Some(row.id)).peekable();
        while let Some(child) = children.next() {
            lasts.push(children.peek().is_none());
            self.below(child, lasts, tree);
            lasts.pop();
        }
    }
}

impl Row {
    /// A task that waits notices the end of another only when it wakes; who watches sees it at once.
    fn no_longer_awaits(&mut self, ended: TaskId) {
        if let Doing::Awaiting(ids) = &mut self.doing {
            ids.retain(|id| *id != ended);
            if ids.is_empty() {
                self.doing = Doing::Nothing;
            }
        }
    }

    fn step(&mut self, event: &Event) {
        match &event.what {
            Happening::Started { .. } => {
                self.status = Status::Running;
                self.started = self.started.or(Some(event.at));
                self.doing = Doing::Nothing;
            }
            Happening::Text { text } => {
                if !matches!(self.doing, Doing::Saying(_)) {
                    self.doing = Doing::Saying(String::new());
                }
                if let Doing::Saying(said) = &mut self.doing {
                    if said.len() > REMEMBERED {
                        let keep = said.ceil_char_boundary(said.len() - REMEMBERED / 2);
                        said.drain(..keep);
                    }
                    said.push_str(text);
                }
            }
            Happening::Usage { usage, cost, .. } | Happening::Sampled { usage, cost, .. } => {
                self.tokens = self.tokens.saturating_add(usage.total());
                self.cost = self.cost.saturating_add(cost.unwrap_or(0));
                self.unpriced += u64::from(cost.is_none());
            }
            Happening::Call { tool, arguments, .. } => {
                self.calls += 1;
                self.doing = Doing::Calling(call(tool, arguments, 80));
            }
            Happening::Result { .. } => {
                self.calls = self.calls.saturating_sub(1);
                if let Doing::Calling(what) = &self.doing {
                    self.doing = Doing::Called(what.clone());
                }
            }
            Happening::Progress { text } => self.doing = Doing::Calling(one_line(text)),
            Happening::Asked { asks, .. } => self.doing = Doing::Asking(one_line(&asks.text)),
            Happening::Answered { .. } => self.doing = Doing::Nothing,
            // That is what it has just asked.
            Happening::Waiting { on: Wait::Person(_), .. } if matches!(self.doing, Doing::Asking(_)) => {}
            Happening::Waiting { on, .. } => {
                self.doing = match on {
                    Wait::Tasks(ids) => Doing::Awaiting(ids.clone()),
                    other => Doing::Waiting(waits_for(other)),
                };
            }
            Happening::Stopping { .. } if !self.status.is_final() => self.doing = Doing::Stopping,
            Happening::Released { .. } => {
                self.status = Status::Pending;
                self.calls = 0;
                self.doing = Doing::Nothing;
            }
            Happening::Finished { status, error, .. } => {
                self.status = *status;
                self.ended = Some(event.at);
                self.doing = match error {
                    Some(error) => Doing::Failed(one_line(error)),
                    None => Doing::Nothing,
                };
            }
            _ => {}
        }
    }
}
