//! Arguments of the commands that list, show and steer tasks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul::id::QuestionId;

use super::task_ids;

/// Which tasks are listed.
#[derive(Debug, Args)]
#[command(
    after_help = "Without a filter: all that have not ended, and those of the last day. Filters are put together: a task is shown \
                        if it fits all of them.\n\nExamples:\n    longhaul tasks --state failed,cancelled --since 7d\n    longhaul \
                        tasks --root t-7f3k2 --watch\n    longhaul tasks --json --state open | jq -r .id"
)]
pub(crate) struct TasksArgs {
    /// All tasks there are
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only tasks that stand like this: open, ended, pending, interrupted, running, waiting, asks, stopping, completed,
    /// failed, cancelled; several with commas
    #[arg(long, value_name = "STATE", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub(crate) state: Vec<StateFilter>,
    /// Only tasks of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Vec<String>,
    /// Only the tree that this task is in: an id, or the beginning of it
    #[arg(long, value_name = "ID", add = task_ids())]
    pub(crate) root: Vec<String>,
    /// Only tasks submitted within this time: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age)]
    pub(crate) since: Option<Duration>,
    /// Only tasks submitted longer ago than this: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age)]
    pub(crate) older_than: Option<Duration>,
    /// One line a task, oldest first, instead of trees
    #[arg(long)]
    pub(crate) table: bool,
    /// Go on: drawn again when something changes; in a pipe, a line a change
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a task stands, as it can be asked for. The five words of the journal, finer ones, and two that take several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StateFilter {
    /// Pending or running
    Open,
    /// Completed, failed or cancelled
    #[value(aliases = ["done", "finished", "final"])]
    Ended,
    Pending,
    /// Pending, and run before by a process that is gone
    Interrupted,
    /// Running, also if it waits
    Running,
    Waiting,
    /// Asks a person
    #[value(aliases = ["asking", "blocked"])]
    Asks,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

/// Which task is shown.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The task's id, or the beginning of it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose journal is told.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The task's id, or the beginning of it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// Go on until the task has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is written to whom.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The task's id, or the beginning of it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// What to say; `-` reads it from standard input
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Stay until the task has answered, as `run` does; otherwise a process in the background carries it on
    #[arg(long)]
    pub(crate) wait: bool,
    /// Where the letter went, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
}

/// What is answered to whom.
#[derive(Debug, Args)]
#[command(
    after_help = "Whether a tool may be called is answered with `yes`, `no [REASON]`, or for the whole tree: `always` or \
                        `always exact` (this very call), `always program` (this program with any arguments), `always tool` \
                        (every call of the tool) or `always PATTERN` (as `always shell:cmd=git *`). Other questions take any text. \
                        `longhaul show ID` shows what is asked.\n\nExit codes: 0 answered; 1 nothing is asked, or it has \
                        been answered already; 2 these words are no answer, or several things are asked; 4 no such task"
)]
pub(crate) struct AnswerArgs {
    /// The id of the task that asks, or of one above it if nothing else is asked below that; or the beginning of an id
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// The answer; `-` reads it from standard input
    #[arg(value_name = "ANSWER", required_unless_present = "decline", conflicts_with = "decline")]
    pub(crate) words: Vec<String>,
    /// Which question, where the task asks several things
    #[arg(long, value_name = "NAME")]
    pub(crate) question: Option<QuestionId>,
    /// Say that there will be no answer
    #[arg(long)]
    pub(crate) decline: bool,
    /// What was answered, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is waited for.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The tasks' ids, or the beginnings of them
    #[arg(required = true, value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Until one of them has ended
    #[arg(long, conflicts_with = "all")]
    pub(crate) any: bool,
    /// Until all of them have ended [the default]
    #[arg(long)]
    pub(crate) all: bool,
    /// No longer than this: 30s, 5m, 1h30m, 500ms
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is stopped.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
pub(crate) struct StopArgs {
    /// The tasks' ids, or the beginnings of them
    #[arg(value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Every task that has not ended
    #[arg(long)]
    pub(crate) all: bool,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is tried again.
#[derive(Debug, Args)]
#[command(
    after_help = "The new task has the old one's order and its place: team, parent, tree, rights and tree budget. A root becomes \
                  a new root, with a budget of its own. Both are linked: `longhaul show` tells of it. It runs where its tree \
                  is run, or with `longhaul resume`. While an earlier retry of the same task has not ended there is no second \
                  one: it is named, and the exit code is 1."
)]
pub(crate) struct RetryArgs {
    /// The tasks' ids, or the beginnings of them
    #[arg(required = true, value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Stay until the tasks have ended, as `run` does; otherwise processes in the background carry them on
    #[arg(long)]
    pub(crate) wait: bool,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
}

/// What is written down.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n    longhaul export t-7f3k2 -o run.html\n    longhaul export t-7f3k2 --format json | jq '.tasks[].head.cost'"
)]
pub(crate) struct ExportArgs {
    /// The task's id, or the beginning of it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// The form [default: what the file's name ends with, or else markdown]
    #[arg(long, short, value_name = "FORM", value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Into this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A form in which a task is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// One object with all tasks and their events
    Json,
    /// Text to be read
    #[value(alias = "md")]
    Markdown,
    /// One page that needs nothing else
    Html,
}

/// What is deleted.
#[derive(Debug, Args)]
#[command(
    after_help = "A tree is deleted whole, with all trees that continue it, when nothing has happened to any of its tasks for \
                  that long: journals, letters, notes of tools, outputs and teams that nothing else refers to.\n\nKept without \
                  --force: what has not ended, and what is unread. Unread is a task whose end nobody has heard of: it was not \
                  looked at since (show, logs, wait, export, run, attach, the TUI), nobody went on from it, and its parent \
                  did not read of it.\n\nWhat is deleted leaves room in the file, which new tasks use. --vacuum gives that room back \
                  to the disk; it needs as much free space as what stays, and gives up after a few seconds while other processes \
                  run tasks."
)]
pub(crate) struct PruneArgs {
    /// How long nothing must have happened: 12h, 30d, 8w
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age, required_unless_present = "vacuum")]
    pub(crate) older_than: Option<Duration>,
    /// Then make the database file as small as what is left in it
    #[arg(long)]
    pub(crate) vacuum: bool,
    /// Say what would be deleted, and delete nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Also what is unread, and what has not ended: that is stopped first
    #[arg(long)]
    pub(crate) force: bool,
    /// One group of trees a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is looked at.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 nothing is broken (there may be warnings); 1 something is")]
pub(crate) struct DoctorArgs {
    /// A team file: whether it is right, its keys are set, and its MCP servers can be started
    #[arg(value_name = "TEAM")]
    pub(crate) team: Option<PathBuf>,
    /// Accept what the team file starts, reads and contacts by itself, and remember that
    ///
    /// Without it, a team file that nobody has agreed to is refused: looking at its servers starts them.
    #[arg(long)]
    pub(crate) trust: bool,
    /// Check the whole database: every journal, every index and everything kept
    ///
    /// Without it, a database of more than 4 MB is checked as far as tasks that have not ended and the newest 200 go.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
    /// One check a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// For which shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n    longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul\n    longhaul \
                        completions zsh > \"${fpath[1]}/_longhaul\"\n    longhaul completions fish > \
                        ~/.config/fish/completions/longhaul.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
