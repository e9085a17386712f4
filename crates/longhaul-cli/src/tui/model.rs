//! The model of the TUI: its state, the messages that change it, and the effects that it requests.

use std::collections::{HashMap, HashSet};

use crossterm::event::{KeyEvent, MouseEvent};
use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::approval::{AskedQuestion, QuestionQueue, Visibility};
use longhaul::entry::{Order, Record};
use longhaul::id::{CallId, QuestionId, Seq};
use longhaul::task::TaskState;
use longhaul::transcript::{Transcript, TranscriptLimits};

use super::detail_page::DetailPage;
use super::graphemes::{truncate_graphemes, wrap_graphemes};
use super::layout::{ScreenAreas, screen_areas};
use super::running::RunningCalls;
use super::text_input::TextInput;
use super::text_search::TextSearch;
use super::theme::Theme;
use super::tree::{TaskTreeView, TreeViewOptions, TuiRow, is_interrupted};
use crate::view::markdown::SyntaxHighlighter;
use crate::view::questions::wrap_question;
use crate::view::{Ink, one_line};

/// The maximum number of tasks to keep. Beyond it, the oldest ended trees are dropped.
pub(crate) const MAX_TASKS: usize = 5_000;
/// How many entries to read when a task is opened.
pub(crate) const INITIAL_ENTRIES: usize = 400;
/// How many entries to read when the user scrolls further.
pub(crate) const READ_CHUNK: usize = 1_000;
/// The maximum number of entries to keep.
pub(crate) const MAX_ENTRIES: usize = 3_000;

/// How much of long texts to keep.
pub(crate) const TEXT_LIMITS: TranscriptLimits = TranscriptLimits { text: 64 * 1024, call: 16 * 1024 };

/// The state.
#[derive(Default)]
pub(crate) struct TuiModel {
    pub(crate) size: (u16, u16),
    pub(crate) now: Timestamp,
    pub(crate) theme: Theme,
    /// The syntax highlighter for code.
    pub(crate) highlighter: SyntaxHighlighter,
    /// The team to start runs of.
    pub(crate) team: Option<String>,
    /// Whether the tasks have been loaded.
    pub(crate) loaded: bool,

    pub(crate) tasks: IndexMap<TaskId, TaskState>,
    pub(crate) tree: TaskTreeView,
    /// Whether the tree has to be rebuilt.
    pub(crate) tree_stale: bool,
    pub(crate) folded: HashSet<TaskId>,
    pub(crate) pinned: IndexSet<TaskId>,
    pub(crate) grouped: bool,
    pub(crate) list_search: TextInput,
    /// The task that was selected when the search began.
    pub(crate) sought_from: Option<TaskId>,
    pub(crate) text_search: TextSearch,
    /// The questions that were shown, and the state of the one that is.
    pub(crate) questions: QuestionQueue,
    /// The question that is being read.
    pub(crate) reading_question: Option<(TaskId, QuestionId)>,
    /// The arguments of running calls, for tasks that were visible.
    pub(crate) calls: RunningCalls,

    /// The selected task. `None` with a team: a new run of it.
    pub(crate) selected: Option<TaskId>,
    /// The first visible line of the list.
    pub(crate) list_top: usize,
    /// Whether to scroll the selected line into view.
    pub(crate) scroll_to_selected: bool,
    pub(crate) detail: Option<TuiDetail>,
    pub(crate) tab: DetailTab,

    pub(crate) focus: Focus,
    /// Which pane is shown if there is room for only one.
    pub(crate) pane: Pane,
    /// Unsent text, by purpose: a draft is only ever sent for the purpose it was begun for.
    pub(crate) drafts: HashMap<PromptPurpose, TextInput>,
    /// The purpose of the prompt while it has the focus.
    pub(crate) purpose: Option<PromptPurpose>,
    /// Sent texts, newest last.
    pub(crate) history: Vec<String>,
    /// The history entry in the prompt.
    pub(crate) history_index: Option<usize>,
    pub(crate) confirm: Option<Confirmation>,
    pub(crate) help: Option<usize>,
    pub(crate) notice: Option<TuiNotice>,
    pub(crate) notice_count: u64,
    /// Whether the TUI is quitting.
    pub(crate) quitting: bool,
}

/// The open task.
pub(crate) struct TuiDetail {
    pub(crate) task: TaskId,
    pub(crate) order: Option<Order>,
    /// The display name of its team.
    pub(crate) team: Option<String>,
    pub(crate) transcript: Transcript,
    /// Whether the journal continues after the part that was read.
    pub(crate) has_newer: bool,
    /// Whether a read is in progress. The next read waits for it.
    pub(crate) reading: bool,
    pub(crate) read_again: bool,
    /// Whether nothing has been read yet.
    pub(crate) loading: bool,
    /// Blocks that were unfolded.
    pub(crate) unfolded: HashSet<Seq>,
    pub(crate) page: DetailPage,
    /// The first visible line, and the line of the cursor.
    pub(crate) top: usize,
    pub(crate) cursor: usize,
    /// Whether to stay at the end as it grows.
    pub(crate) follow: bool,
    /// The entry to keep in place when earlier entries are read.
    pub(crate) anchor: Option<(Seq, usize)>,
    /// The entry to scroll to once the current read is done.
    pub(crate) back_to: Option<(Seq, usize)>,
}

impl TuiDetail {
    pub(crate) fn new(task: TaskId, state: Option<&TaskState>) -> TuiDetail {
        let end = state.map_or(Seq(0), |state| state.seq);
        TuiDetail {
            task,
            order: None,
            team: None,
            transcript: Transcript::starting_after(
                task,
                Seq(end.0.saturating_sub(INITIAL_ENTRIES as u64)),
                TEXT_LIMITS,
            ),
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

    /// Starts to read another part of the journal.
    pub(super) fn start_read(&mut self, after: Seq, limit: usize) -> TuiEffect {
        self.reading = true;
        TuiEffect::ReadJournal { task: self.task, after, limit, order: false }
    }
}

/// The tabs of a task.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Focus {
    #[default]
    List,
    Detail,
    Prompt,
    /// The search in the list.
    Search,
    /// The search in the text.
    Find,
}

/// The two halves of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pane {
    #[default]
    List,
    Detail,
}

/// The purpose of the text in the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PromptPurpose {
    /// A letter to this task. If the task has ended, the letter continues it.
    Write(TaskId),
    /// The answer to a question.
    Answer(TaskId, QuestionId),
    /// A new run of the team.
    Run,
}

/// An action to confirm first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Stop(TaskId),
    StopAll,
    Quit,
}

/// A notice that is shown for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TuiNotice {
    pub(crate) number: u64,
    pub(crate) ink: Ink,
    pub(crate) text: String,
}

/// The messages.
#[derive(Debug)]
pub(crate) enum TuiMessage {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// All tasks, and the pinned ones.
    Loaded(Vec<TaskState>, Vec<TaskId>),
    /// These tasks have changed.
    TasksChanged(Vec<TaskState>),
    /// Part of a journal: at most `limit` entries after `after`, and the order.
    Records {
        task: TaskId,
        after: Seq,
        limit: usize,
        records: Vec<Record>,
        order: Option<(Box<Order>, String)>,
    },
    /// The open questions of a task.
    Questions(Vec<AskedQuestion>),
    /// The arguments of calls; empty if unknown.
    Calls(Vec<(TaskId, CallId, String)>),
    /// The task does not exist any more.
    TaskGone(TaskId),
    /// An action has succeeded or failed.
    ActionDone(ActionReport),
    /// An action failed, for this reason.
    ActionFailed(String),
    /// Time has passed.
    Tick,
    /// A notice has been shown long enough.
    NoticeExpired(u64),
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionReport {
    pub(crate) text: String,
    pub(crate) select: Option<TaskId>,
}

/// The effects to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TuiEffect {
    /// Read part of a journal.
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
    /// Resume the tree of this task.
    Resume(TaskId),
    /// Retry this task.
    Retry(TaskId),
    /// Read the open questions of this task.
    ReadQuestions(TaskId),
    /// Read the arguments of running calls in these tasks.
    ReadCalls(Vec<(TaskId, Seq, Vec<CallId>)>),
    /// Start a run of the team.
    Run(String),
    /// Save the pinned tasks.
    SavePins(Vec<TaskId>),
    /// Send `NoticeExpired` after a while.
    ExpireNotice(u64),
    /// Redraw everything.
    Redraw,
    /// Suspend the TUI, and leave the terminal to the shell.
    Suspend,
    /// Quit; optionally ask the processes that run tasks to drain.
    Quit {
        drain: bool,
    },
}

impl TuiModel {
    pub(crate) fn new(theme: Theme, team: Option<String>, now: Timestamp) -> TuiModel {
        let size = (80, 24);
        TuiModel { size, now, theme, team, tree_stale: true, grouped: true, ..TuiModel::default() }
    }

    /// Returns the areas of the screen, or `None` if it is too small.
    pub(crate) fn areas(&self) -> Option<ScreenAreas> {
        let typed = self.typed_rows();
        let areas = |rows| screen_areas(self.size, self.pane, rows, typed);
        let without = areas(0)?;
        if self.open_question().is_none() || without.text.width == 0 {
            return Some(without);
        }
        let rows = self.question_lines(usize::from(without.text.width.saturating_sub(2))).len();
        // With a rule above, and with keys below if the prompt is not right there.
        areas(u16::try_from(rows + 1 + usize::from(without.two_panes)).unwrap_or(u16::MAX))
    }

    pub(crate) fn selected_task(&self) -> Option<&TaskState> {
        self.selected.and_then(|id| self.tasks.get(&id))
    }

    /// Returns the first open question: of the selected task, or of the first task below it that asks.
    pub(crate) fn open_question(&self) -> Option<(&TaskState, &longhaul::task::OpenQuestion)> {
        let state = self.selected_task()?;
        let own = !state.status.is_final() && !state.asked.is_empty();
        let asks = if own { state.id } else { self.tree.totals.get(&state.id)?.asking_task? };
        let asking = self.tasks.get(&asks)?;
        Some((asking, asking.asked.first()?))
    }

    /// Returns the question wrapped to this many columns.
    pub(crate) fn question_lines(&self, columns: usize) -> Vec<(Ink, String)> {
        let Some((state, question)) = self.open_question() else { return Vec::new() };
        let agent = one_line(state.agent.as_str());
        let left = question
            .until
            .map(|until| format!(" ({})", crate::view::text_format::format_time_left(until, self.now)));
        let left = left.unwrap_or_default();
        let wrapped = |text: &str| -> Vec<(Ink, String)> {
            wrap_graphemes(text, columns).into_iter().map(|line| (Ink::Attention, line)).collect()
        };
        let Some(known) = self.known_question().filter(|known| known.is_approval()) else {
            let text = one_line(&question.text);
            return wrapped(&format!("{agent} {} asks{left}: {text}", state.id));
        };
        let tool = one_line(question.tool.as_deref().unwrap_or_default());
        let more =
            if state.asked.len() > 1 { format!(" (1 of {})", state.asked.len()) } else { String::new() };
        let mut lines = wrapped(&format!("{agent} {}: may it call {tool}?{more}{left}", state.id));
        lines.extend(self.choice_lines(columns));
        // The title has the tool.
        lines.extend(wrap_question(&known.asks, columns).into_iter().skip(1));
        if !self.questions.rejected().is_empty() {
            lines.extend(
                wrap_graphemes(self.questions.rejected(), columns).into_iter().map(|line| (Ink::Bad, line)),
            );
        }
        lines
    }

    /// Returns what the user can choose to allow from now on.
    pub(super) fn choice_lines(&self, columns: usize) -> Vec<(Ink, String)> {
        let mut lines = Vec::new();
        for choice in self.questions.choices() {
            let line = format!("[{}] {}", choice.key, choice.text);
            // The first choice is the call itself, and long.
            let exact = choice.key == 'e';
            lines.extend(if exact {
                vec![truncate_graphemes(&line, columns)]
            } else {
                wrap_graphemes(&line, columns)
            });
        }
        lines.into_iter().map(|line| (Ink::Attention, line)).collect()
    }

    /// Returns the open question in full, if it was read.
    fn known_question(&self) -> Option<&AskedQuestion> {
        let (state, question) = self.open_question()?;
        self.questions.first().filter(|known| (known.task, known.id) == (state.id, question.question))
    }

    /// Puts the open question in front, and records how much of it is on the screen. Returns the effect that
    /// reads it, if it is not known in full yet.
    pub(crate) fn show_question(&mut self) -> Option<TuiEffect> {
        let (task, id) = self.open_question().map(|(state, question)| (state.id, question.question))?;
        if !self.questions.focus(task, id) {
            let reads = self.reading_question.replace((task, id)) == Some((task, id));
            return (!reads).then_some(TuiEffect::ReadQuestions(task));
        }
        let visibility = if self.is_question_visible() { Visibility::Whole } else { Visibility::Hidden };
        self.questions.mark_shown(visibility, self.now);
        None
    }

    /// Returns whether elapsed times advance.
    pub(crate) fn has_running_tasks(&self) -> bool {
        self.tasks.values().any(|state| state.status == longhaul::Status::Running)
    }

    /// Returns how many tasks are open and run by a process.
    pub(crate) fn open_task_count(&self) -> usize {
        self.tasks.values().filter(|state| !state.status.is_final() && !is_interrupted(state)).count()
    }

    /// Prepares what the next frame shows: lays out lines and scrolls.
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
            // Include its activity line, and the title above the first task.
            let last = line + usize::from(matches!(self.tree.rows.get(line + 1), Some(TuiRow::Activity(_))));
            let first = if line <= 1 { 0 } else { line };
            if first < self.list_top {
                self.list_top = first;
            } else if last >= self.list_top + height {
                self.list_top = last + 1 - height.min(last + 1);
            }
        }
        self.scroll_to_selected = false;
        if let Some((task, id)) = self.open_question().map(|(state, question)| (state.id, question.question))
        {
            self.questions.focus(task, id);
        }
        self.list_top = self.list_top.min(self.tree.rows.len().saturating_sub(height));
        self.layout_detail(areas.text);
    }
}
