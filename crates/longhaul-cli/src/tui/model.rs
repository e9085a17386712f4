//! What the screen knows: the state, what can happen to it, and what it wants to have done.

use std::collections::{HashMap, HashSet};

use crossterm::event::{KeyEvent, MouseEvent};
use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{Order, Record};
use longhaul::id::{CallId, QuestionId, Seq};
use longhaul::task::Head;

use super::areas::{Areas, areas};
use super::find::Find;
use super::forest::{Forest, Plan, Row, is_interrupted};
use super::input::Input;
use super::pages::Page;
use super::running::RunningCalls;
use super::talk::Talk;
use super::theme::Theme;
use super::wrap::wrap;
use crate::view::markdown::Colors;
use crate::view::{Ink, one_line};

/// How many tasks are kept at most; of more, the oldest trees that have ended are forgotten.
pub(crate) const TASKS_KEPT: usize = 5_000;
/// How much of a journal is read when a task is looked at.
pub(crate) const LOOK: usize = 400;
/// How much is read when somebody scrolls further.
pub(crate) const STRIDE: usize = 1_000;
/// How much of a journal is kept at most.
pub(crate) const KEPT: usize = 3_000;

/// The state.
pub(crate) struct Model {
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) theme: Theme,
    /// The colours of code.
    pub(crate) colors: Colors,
    /// The team whose runs can be started from here.
    pub(crate) team: Option<String>,
    /// Whether what there is has been read.
    pub(crate) loaded: bool,

    pub(crate) heads: IndexMap<TaskId, Head>,
    pub(crate) forest: Forest,
    /// The lines do not show what is known.
    pub(crate) stale: bool,
    pub(crate) folded: HashSet<TaskId>,
    pub(crate) pinned: IndexSet<TaskId>,
    pub(crate) grouped: bool,
    pub(crate) search: Input,
    /// What was chosen when the search among the tasks began.
    pub(crate) sought_from: Option<TaskId>,
    pub(crate) find: Find,
    /// What the tools are called with that run now, of tasks that were in sight.
    pub(crate) calls: RunningCalls,

    /// The task that is looked at; with a team and none chosen, the next run of it.
    pub(crate) selected: Option<TaskId>,
    /// The first line of the list in sight.
    pub(crate) top: usize,
    /// Whether the chosen line has to be in sight.
    pub(crate) seek: bool,
    pub(crate) detail: Option<Detail>,
    pub(crate) tab: Tab,

    pub(crate) focus: Focus,
    /// Which of the two is shown where there is room for one.
    pub(crate) pane: Pane,
    /// What was typed and not sent yet: each draft is for what it was begun for, and for nothing else.
    pub(crate) drafts: HashMap<Purpose, Input>,
    /// What is typed now is for, while keys go to the prompt.
    pub(crate) purpose: Option<Purpose>,
    /// What was written before, the newest last.
    pub(crate) written: Vec<String>,
    /// Which of those is in the prompt.
    pub(crate) recalled: Option<usize>,
    pub(crate) confirm: Option<Confirm>,
    pub(crate) help: Option<usize>,
    pub(crate) notice: Option<Notice>,
    pub(crate) notices: u64,
    /// It is over.
    pub(crate) leaving: bool,
}

/// The task that is looked at.
pub(crate) struct Detail {
    pub(crate) task: TaskId,
    pub(crate) order: Option<Order>,
    /// What people call its team.
    pub(crate) team: Option<String>,
    pub(crate) talk: Talk,
    /// Whether the journal goes on after what was read.
    pub(crate) behind: bool,
    /// What is read now: a second look waits until it is there.
    pub(crate) reading: bool,
    pub(crate) again: bool,
    /// Where nothing has come yet.
    pub(crate) fresh: bool,
    /// Blocks that were unfolded.
    pub(crate) opened: HashSet<Seq>,
    pub(crate) page: Page,
    /// The first line in sight, and the one that is pointed at.
    pub(crate) top: usize,
    pub(crate) cursor: usize,
    /// Whether the end is kept in sight.
    pub(crate) follow: bool,
    /// The entry that is to stay where it is when more is read before it.
    pub(crate) anchor: Option<(Seq, usize)>,
    /// The entry that is to be the first in sight when what is being read now is there.
    pub(crate) back_to: Option<(Seq, usize)>,
}

impl Detail {
    pub(crate) fn of(task: TaskId, head: Option<&Head>) -> Detail {
        let end = head.map_or(Seq(0), |head| head.seq);
        Detail {
            task,
            order: None,
            team: None,
            talk: Talk::after(Seq(end.0.saturating_sub(LOOK as u64))),
            behind: false,
            reading: true,
            again: false,
            fresh: true,
            opened: HashSet::new(),
            page: Page::default(),
            top: 0,
            cursor: 0,
            follow: true,
            anchor: None,
            back_to: None,
        }
    }
}

/// What is shown of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Tab {
    #[default]
    Transcript,
    Order,
    Output,
    Letters,
    Timeline,
    Usage,
}

impl Tab {
    pub(crate) const ALL: [Tab; 6] =
        [Tab::Transcript, Tab::Order, Tab::Output, Tab::Letters, Tab::Timeline, Tab::Usage];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Tab::Transcript => "Transcript",
            Tab::Order => "Order",
            Tab::Output => "Output",
            Tab::Letters => "Letters",
            Tab::Timeline => "Timeline",
            Tab::Usage => "Usage",
        }
    }
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    List,
    Detail,
    Prompt,
    /// Words to be found in the list.
    Search,
    /// Words to be found in the text.
    Find,
}

/// The two halves of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    List,
    Detail,
}

/// What is typed is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// A letter to this task; one that has ended is continued by it.
    Write(TaskId),
    /// The answer to a question.
    Answer(TaskId, QuestionId),
    /// A new run of the team.
    Run,
}

/// What is asked before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirm {
    Stop(TaskId),
    StopAll,
    Leave,
}

/// Something to be told for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) number: u64,
    pub(crate) ink: Ink,
    pub(crate) text: String,
}

/// What can happen.
#[derive(Debug)]
pub(crate) enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// All there is, and what is pinned.
    Loaded(Vec<Head>, Vec<TaskId>),
    /// These have something new.
    Heads(Vec<Head>),
    /// A stretch of a journal: at most `limit` entries after `after`, and the order.
    Records {
        task: TaskId,
        after: Seq,
        limit: usize,
        records: Vec<Record>,
        order: Option<(Box<Order>, String)>,
    },
    /// What tools are called with; empty where that is not known.
    Calls(Vec<(TaskId, CallId, String)>),
    /// There is no such task any more.
    Gone(TaskId),
    /// Something was done, or could not be.
    Done(Result<Said, String>),
    /// Time has passed.
    Tick,
    /// A notice has been there long enough.
    Forget(u64),
}

/// What is told when something was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// The task to be looked at now.
    pub(crate) show: Option<TaskId>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read a stretch of a journal.
    Read {
        task: TaskId,
        after: Seq,
        limit: usize,
        order: bool,
    },
    Send {
        to: TaskId,
        text: String,
    },
    Answer {
        task: TaskId,
        question: QuestionId,
        words: String,
    },
    Stop(TaskId),
    StopAll,
    /// Have the tree of this task carried on.
    Resume(TaskId),
    /// Submit the order of this task again.
    Retry(TaskId),
    /// Read what the tools are called with that run in these tasks.
    ReadCalls(Vec<(TaskId, Seq, Vec<CallId>)>),
    /// Start a run of the team.
    Run(String),
    /// Remember what is pinned.
    Pin(Vec<TaskId>),
    /// Say `Forget` in a while.
    Later(u64),
    /// Draw everything anew.
    Redraw,
    /// Leave the terminal to the shell for a while.
    Aside,
    /// End; with the processes that run tasks asked to drain, if so.
    Leave {
        drain: bool,
    },
}

impl Model {
    pub(crate) fn new(theme: Theme, team: Option<String>, now: Timestamp) -> Model {
        Model {
            size: (80, 24),
            now,
            theme,
            colors: Colors::default(),
            team,
            loaded: false,
            heads: IndexMap::new(),
            forest: Forest::default(),
            stale: true,
            folded: HashSet::new(),
            pinned: IndexSet::new(),
            grouped: true,
            search: Input::default(),
            sought_from: None,
            calls: RunningCalls::default(),
            find: Find::default(),
            selected: None,
            top: 0,
            seek: false,
            detail: None,
            tab: Tab::default(),
            focus: Focus::List,
            pane: Pane::List,
            drafts: HashMap::new(),
            purpose: None,
            written: Vec::new(),
            recalled: None,
            confirm: None,
            help: None,
            notice: None,
            notices: 0,
            leaving: false,
        }
    }

    /// The places on the screen; none, if there is no room for any.
    pub(crate) fn areas(&self) -> Option<Areas> {
        let typed = self.typed_rows();
        let areas = |rows| areas(self.size, self.pane, rows, typed);
        let without = areas(0)?;
        if self.asks().is_none() || without.text.width == 0 {
            return Some(without);
        }
        let rows = self.question(usize::from(without.text.width.saturating_sub(2))).len();
        // With a rule above, and keys below where the prompt is not right there.
        areas(u16::try_from(rows + 1 + usize::from(without.both)).unwrap_or(u16::MAX))
    }

    /// The task that is looked at.
    pub(crate) fn head(&self) -> Option<&Head> {
        self.selected.and_then(|id| self.heads.get(&id))
    }

    /// The task that asks something: the chosen one, or the first below it; and the question.
    pub(crate) fn asks(&self) -> Option<(&Head, &longhaul::task::OpenQuestion)> {
        let head = self.head()?;
        let own = !head.status.is_final() && !head.asked.is_empty();
        let asks = if own { head.id } else { self.forest.sums.get(&head.id)?.asks? };
        let asking = self.heads.get(&asks)?;
        Some((asking, asking.asked.first()?))
    }

    /// What is asked, in lines of so many columns.
    pub(crate) fn question(&self, columns: usize) -> Vec<String> {
        let Some((head, question)) = self.asks() else { return Vec::new() };
        let agent = one_line(head.agent.as_str());
        let left =
            question.until.map(|until| format!(" ({})", crate::view::words::time_left(until, self.now)));
        let left = left.unwrap_or_default();
        wrap(&format!("{agent} {} asks{left}: {}", head.id, one_line(&question.text)), columns)
    }

    /// Whether times go on.
    pub(crate) fn ticks(&self) -> bool {
        self.heads.values().any(|head| head.status == longhaul::Status::Running)
    }

    /// How many tasks have not ended and are run by somebody.
    pub(crate) fn open(&self) -> usize {
        self.heads.values().filter(|head| !head.status.is_final() && !is_interrupted(head)).count()
    }

    /// Makes ready what is drawn: lines, and which of them are in sight.
    pub(crate) fn prepare(&mut self) {
        if self.stale {
            self.stale = false;
            self.forest = Forest::grow(&Plan {
                heads: &self.heads,
                folded: &self.folded,
                pinned: &self.pinned,
                grouped: self.grouped,
                gaps: self.size.1 >= 20,
                search: self.search.text(),
                now: self.now,
            });
        }
        let Some(areas) = self.areas() else { return };
        let height = usize::from(areas.list.height);
        if self.seek
            && let Some(line) = self.selected.and_then(|id| self.forest.line(id))
        {
            // With what it does, and with the title above the first.
            let last = line + usize::from(matches!(self.forest.rows.get(line + 1), Some(Row::Doing(_))));
            let first = if line <= 1 { 0 } else { line };
            if first < self.top {
                self.top = first;
            } else if last >= self.top + height {
                self.top = last + 1 - height.min(last + 1);
            }
        }
        self.seek = false;
        self.top = self.top.min(self.forest.rows.len().saturating_sub(height));
        self.lay(areas.text);
    }
}
