//! What the screen knows: the state, what can happen to it, and what it wants to have done.

use std::collections::{HashMap, HashSet};

use crossterm::event::{KeyEvent, MouseEvent};
use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{Order, Record};
use longhaul::id::{CallId, QuestionId, Seq};
use longhaul::task::TaskState;

use super::detail_page::DetailPage;
use super::graphemes::wrap_graphemes;
use super::layout::{ScreenAreas, screen_areas};
use super::running::RunningCalls;
use super::text_input::TextInput;
use super::text_search::TextSearch;
use super::theme::Theme;
use super::transcript::TuiTranscript;
use super::tree::{TaskTreeView, TreeViewOptions, TuiRow, is_interrupted};
use crate::view::markdown::SyntaxHighlighter;
use crate::view::{Ink, one_line};

/// How many tasks are kept at most; of more, the oldest trees that have ended are forgotten.
pub(crate) const MAX_TASKS: usize = 5_000;
/// How much of a journal is read when a task is looked at.
pub(crate) const INITIAL_ENTRIES: usize = 400;
/// How much is read when somebody scrolls further.
pub(crate) const READ_CHUNK: usize = 1_000;
/// How much of a journal is kept at most.
pub(crate) const MAX_ENTRIES: usize = 3_000;

/// The state.
pub(crate) struct TuiModel {
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) theme: Theme,
    /// The colours of code.
    pub(crate) highlighter: SyntaxHighlighter,
    /// The team whose runs can be started from here.
    pub(crate) team: Option<String>,
    /// Whether what there is has been read.
    pub(crate) loaded: bool,

    pub(crate) tasks: IndexMap<TaskId, TaskState>,
    pub(crate) tree: TaskTreeView,
    /// The lines do not show what is known.
    pub(crate) tree_stale: bool,
    pub(crate) folded: HashSet<TaskId>,
    pub(crate) pinned: IndexSet<TaskId>,
    pub(crate) grouped: bool,
    pub(crate) list_search: TextInput,
    /// What was chosen when the search among the tasks began.
    pub(crate) sought_from: Option<TaskId>,
    pub(crate) text_search: TextSearch,
    /// What the tools are called with that run now, of tasks that were in sight.
    pub(crate) calls: RunningCalls,

    /// The task that is looked at; with a team and none chosen, the next run of it.
    pub(crate) selected: Option<TaskId>,
    /// The first line of the list in sight.
    pub(crate) list_top: usize,
    /// Whether the chosen line has to be in sight.
    pub(crate) scroll_to_selected: bool,
    pub(crate) detail: Option<TuiDetail>,
    pub(crate) tab: DetailTab,

    pub(crate) focus: Focus,
    /// Which of the two is shown where there is room for one.
    pub(crate) pane: Pane,
    /// What was typed and not sent yet: each draft is for what it was begun for, and for nothing else.
    pub(crate) drafts: HashMap<PromptPurpose, TextInput>,
    /// What is typed now is for, while keys go to the prompt.
    pub(crate) purpose: Option<PromptPurpose>,
    /// What was written before, the newest last.
    pub(crate) history: Vec<String>,
    /// Which of those is in the prompt.
    pub(crate) history_index: Option<usize>,
    pub(crate) confirm: Option<Confirmation>,
    pub(crate) help: Option<usize>,
    pub(crate) notice: Option<TuiNotice>,
    pub(crate) notice_count: u64,
    /// It is over.
    pub(crate) quitting: bool,
}

/// The task that is looked at.
pub(crate) struct TuiDetail {
    pub(crate) task: TaskId,
    pub(crate) order: Option<Order>,
    /// What people call its team.
    pub(crate) team: Option<String>,
    pub(crate) transcript: TuiTranscript,
    /// Whether the journal goes on after what was read.
    pub(crate) has_newer: bool,
    /// What is read now: a second look waits until it is there.
    pub(crate) reading: bool,
    pub(crate) read_again: bool,
    /// Where nothing has come yet.
    pub(crate) loading: bool,
    /// Blocks that were unfolded.
    pub(crate) unfolded: HashSet<Seq>,
    pub(crate) page: DetailPage,
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

impl TuiDetail {
    pub(crate) fn new(task: TaskId, head: Option<&TaskState>) -> TuiDetail {
        let end = head.map_or(Seq(0), |head| head.seq);
        TuiDetail {
            task,
            order: None,
            team: None,
            transcript: TuiTranscript::starting_after(Seq(end.0.saturating_sub(INITIAL_ENTRIES as u64))),
            has_newer: false,
            reading: true,
            read_again: false,
            loading: true,
            unfolded: HashSet::new(),
            page: DetailPage::default(),
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
pub(crate) enum DetailTab {
    #[default]
    Transcript,
    Order,
    Output,
    Letters,
    Timeline,
    Usage,
}

impl DetailTab {
    pub(crate) const ALL: [DetailTab; 6] = [
        DetailTab::Transcript,
        DetailTab::Order,
        DetailTab::Output,
        DetailTab::Letters,
        DetailTab::Timeline,
        DetailTab::Usage,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            DetailTab::Transcript => "Transcript",
            DetailTab::Order => "Order",
            DetailTab::Output => "Output",
            DetailTab::Letters => "Letters",
            DetailTab::Timeline => "Timeline",
            DetailTab::Usage => "Usage",
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
pub(crate) enum PromptPurpose {
    /// A letter to this task; one that has ended is continued by it.
    Write(TaskId),
    /// The answer to a question.
    Answer(TaskId, QuestionId),
    /// A new run of the team.
    Run,
}

/// What is asked before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Stop(TaskId),
    StopAll,
    Quit,
}

/// Something to be told for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TuiNotice {
    pub(crate) number: u64,
    pub(crate) ink: Ink,
    pub(crate) text: String,
}

/// What can happen.
#[derive(Debug)]
pub(crate) enum TuiMessage {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// All there is, and what is pinned.
    Loaded(Vec<TaskState>, Vec<TaskId>),
    /// These have something new.
    TasksChanged(Vec<TaskState>),
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
    TaskGone(TaskId),
    /// Something was done, or could not be.
    ActionDone(Result<ActionReport, String>),
    /// Time has passed.
    Tick,
    /// A notice has been there long enough.
    NoticeExpired(u64),
}

/// What is told when something was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionReport {
    pub(crate) text: String,
    /// The task to be looked at now.
    pub(crate) select: Option<TaskId>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TuiEffect {
    /// Read a stretch of a journal.
    ReadJournal {
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
    SavePins(Vec<TaskId>),
    /// Say `Forget` in a while.
    ExpireNotice(u64),
    /// Draw everything anew.
    Redraw,
    /// Leave the terminal to the shell for a while.
    Suspend,
    /// End; with the processes that run tasks asked to drain, if so.
    Quit {
        drain: bool,
    },
}

impl TuiModel {
    pub(crate) fn new(theme: Theme, team: Option<String>, now: Timestamp) -> TuiModel {
        TuiModel {
            size: (80, 24),
            now,
            theme,
            highlighter: SyntaxHighlighter::default(),
            team,
            loaded: false,
            tasks: IndexMap::new(),
            tree: TaskTreeView::default(),
            tree_stale: true,
            folded: HashSet::new(),
            pinned: IndexSet::new(),
            grouped: true,
            list_search: TextInput::default(),
            sought_from: None,
            calls: RunningCalls::default(),
            text_search: TextSearch::default(),
            selected: None,
            list_top: 0,
            scroll_to_selected: false,
            detail: None,
            tab: DetailTab::default(),
            focus: Focus::List,
            pane: Pane::List,
            drafts: HashMap::new(),
            purpose: None,
            history: Vec::new(),
            history_index: None,
            confirm: None,
            help: None,
            notice: None,
            notice_count: 0,
            quitting: false,
        }
    }

    /// The places on the screen; none, if there is no room for any.
    pub(crate) fn areas(&self) -> Option<ScreenAreas> {
        let typed = self.typed_rows();
        let areas = |rows| screen_areas(self.size, self.pane, rows, typed);
        let without = areas(0)?;
        if self.open_question().is_none() || without.text.width == 0 {
            return Some(without);
        }
        let rows = self.question_lines(usize::from(without.text.width.saturating_sub(2))).len();
        // With a rule above, and keys below where the prompt is not right there.
        areas(u16::try_from(rows + 1 + usize::from(without.two_panes)).unwrap_or(u16::MAX))
    }

    /// The task that is looked at.
    pub(crate) fn selected_task(&self) -> Option<&TaskState> {
        self.selected.and_then(|id| self.tasks.get(&id))
    }

    /// The task that asks something: the chosen one, or the first below it; and the question.
    pub(crate) fn open_question(&self) -> Option<(&TaskState, &longhaul::task::OpenQuestion)> {
        let head = self.selected_task()?;
        let own = !head.status.is_final() && !head.asked.is_empty();
        let asks = if own { head.id } else { self.tree.totals.get(&head.id)?.asking_task? };
        let asking = self.tasks.get(&asks)?;
        Some((asking, asking.asked.first()?))
    }

    /// What is asked, in lines of so many columns.
    pub(crate) fn question_lines(&self, columns: usize) -> Vec<String> {
        let Some((head, question)) = self.open_question() else { return Vec::new() };
        let agent = one_line(head.agent.as_str());
        let left = question
            .until
            .map(|until| format!(" ({})", crate::view::text_format::format_time_left(until, self.now)));
        let left = left.unwrap_or_default();
        wrap_graphemes(&format!("{agent} {} asks{left}: {}", head.id, one_line(&question.text)), columns)
    }

    /// Whether times go on.
    pub(crate) fn has_running_tasks(&self) -> bool {
        self.tasks.values().any(|head| head.status == longhaul::Status::Running)
    }

    /// How many tasks have not ended and are run by somebody.
    pub(crate) fn open_task_count(&self) -> usize {
        self.tasks.values().filter(|head| !head.status.is_final() && !is_interrupted(head)).count()
    }

    /// Makes ready what is drawn: lines, and which of them are in sight.
    pub(crate) fn prepare_frame(&mut self) {
        if self.tree_stale {
            self.tree_stale = false;
            self.tree = TaskTreeView::build(&TreeViewOptions {
                tasks: &self.tasks,
                folded: &self.folded,
                pinned: &self.pinned,
                grouped: self.grouped,
                gaps: self.size.1 >= 20,
                search: self.list_search.text(),
                now: self.now,
            });
        }
        let Some(areas) = self.areas() else { return };
        let height = usize::from(areas.list.height);
        if self.scroll_to_selected
            && let Some(line) = self.selected.and_then(|id| self.tree.line_of(id))
        {
            // With what it does, and with the title above the first.
            let last = line + usize::from(matches!(self.tree.rows.get(line + 1), Some(TuiRow::Activity(_))));
            let first = if line <= 1 { 0 } else { line };
            if first < self.list_top {
                self.list_top = first;
            } else if last >= self.list_top + height {
                self.list_top = last + 1 - height.min(last + 1);
            }
        }
        self.scroll_to_selected = false;
        self.list_top = self.list_top.min(self.tree.rows.len().saturating_sub(height));
        self.layout_detail(areas.text);
    }
}
