//! Arguments of the commands that list, show and steer tasks.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul::id::QuestionId;

use super::task_ids;

/// Arguments of `tasks`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without a filter: all open tasks, and those of the last day. Several filters must all \
                  match.\n\nExamples:\n    longhaul tasks --state failed,cancelled --since 7d\n    longhaul \
                  tasks --root t-7f3k2 --watch\n    longhaul tasks --json --state open | jq -r .id"
)]
pub(crate) struct TasksArgs {
    /// List all tasks
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only tasks in these states, separated by commas: open, ended, pending, interrupted, running, waiting,
    /// asks, stopping, completed, failed, cancelled
    #[arg(long, value_name = "STATE", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub(crate) state: Vec<StateFilter>,
    /// Only tasks of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Vec<String>,
    /// Only the tree of this task: its id or id prefix
    #[arg(long, value_name = "ID", add = task_ids())]
    pub(crate) root: Vec<String>,
    /// Only tasks submitted within this time: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age)]
    pub(crate) since: Option<Duration>,
    /// Only tasks submitted longer ago than this: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age)]
    pub(crate) older_than: Option<Duration>,
    /// Print a flat list, oldest first, instead of trees
    #[arg(long)]
    pub(crate) table: bool,
    /// Redraw on every change; in a pipe, print one line per change
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Print one JSON object per task
    #[arg(long)]
    pub(crate) json: bool,
}

/// A state to filter by: the five statuses of the journal, finer states, and two groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StateFilter {
    /// Pending or running
    Open,
    /// Completed, failed or cancelled
    #[value(aliases = ["done", "finished", "final"])]
    Ended,
    Pending,
    /// Pending, and its process is gone
    Interrupted,
    /// Running, including tasks that wait
    Running,
    Waiting,
    /// Waits for an answer of a person
    #[value(aliases = ["asking", "blocked"])]
    Asks,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id or id prefix of the task
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id or id prefix of the task
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// Follow the journal until the task has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON event per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Id or id prefix of the task
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// The message; `-` reads stdin
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Wait for the answer, as `run` does, instead of using a background process
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print where the message went, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
}

/// Arguments of `answer`.
#[derive(Debug, Args)]
#[command(
    after_help = "To answer an approval request: `yes`, `no [REASON]`, or to allow more in the whole tree: \
                  `always` or `always exact` (this exact call), `always program` (this program with any arguments), \
                  `always tool` (every call of the tool) or `always PATTERN` (such as `always shell:cmd=git *`). \
                  Other questions take any text. `longhaul show ID` shows the question.\n\nExit codes: 0 answered; \
                  1 no open question, or answered already; 2 not a valid answer, or several questions are open; \
                  4 no such task"
)]
pub(crate) struct AnswerArgs {
    /// Id or id prefix of the task that asks, or of an ancestor if only one question is open below it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// The answer; `-` reads stdin
    #[arg(value_name = "ANSWER", required_unless_present = "decline", conflicts_with = "decline")]
    pub(crate) words: Vec<String>,
    /// The question to answer, if the task asks several
    #[arg(long, value_name = "NAME")]
    pub(crate) question: Option<QuestionId>,
    /// Decline to answer
    #[arg(long)]
    pub(crate) decline: bool,
    /// Print what was answered, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Ids or id prefixes of the tasks
    #[arg(required = true, value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Wait until one of them has ended
    #[arg(long, conflicts_with = "all")]
    pub(crate) any: bool,
    /// Wait until all of them have ended [the default]
    #[arg(long)]
    pub(crate) all: bool,
    /// Wait no longer than this: 30s, 5m, 1h30m, 500ms
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print one JSON object per task
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]))]
pub(crate) struct StopArgs {
    /// Ids or id prefixes of the tasks
    #[arg(value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Stop every open task
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object per task
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `retry`.
#[derive(Debug, Args)]
#[command(
    after_help = "The new task has the order of the old one and its position: team, parent, tree, permissions and \
                  tree budget. A root becomes a new root with its own budget. `longhaul show` links both. It runs \
                  in the process that runs its tree, or with `longhaul resume`. A task has one retry at a time: \
                  while an earlier one is open, `retry` names it and exits with 1."
)]
pub(crate) struct RetryArgs {
    /// Ids or id prefixes of the tasks
    #[arg(required = true, value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Wait until the tasks have ended, as `run` does, instead of using background processes
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print one JSON object per task
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n    longhaul export t-7f3k2 -o run.html\n    longhaul export t-7f3k2 --format json | jq '.tasks[].head.cost'"
)]
pub(crate) struct ExportArgs {
    /// Id or id prefix of the task
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// Output format [default: by the extension of FILE, or markdown]
    #[arg(long, short, value_name = "FORM", value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// An export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// One object with all tasks and their events
    Json,
    /// Readable text
    #[value(alias = "md")]
    Markdown,
    /// One self-contained page
    Html,
}

/// Arguments of `prune`.
#[derive(Debug, Args)]
#[command(
    after_help = "A tree is deleted as a whole, with all trees that continue it, when none of its tasks had any \
                  activity for that long: journals, letters, stored values of tools, and outputs and teams that nothing \
                  else refers to.\n\nWithout --force, open and unread tasks are kept. A task is unread if no one has \
                  looked at it since it ended (show, logs, wait, export, run, attach, the TUI), no one has continued \
                  it, and its parent was not notified.\n\nNew tasks reuse the freed space in the file. --vacuum \
                  returns it to the disk; it needs as much free space as the remaining data, and gives up after a few \
                  seconds while other processes run tasks."
)]
pub(crate) struct PruneArgs {
    /// Delete trees without activity for this long: 12h, 30d, 8w
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_age, required_unless_present = "vacuum")]
    pub(crate) older_than: Option<Duration>,
    /// Shrink the database file afterwards
    #[arg(long)]
    pub(crate) vacuum: bool,
    /// Print what would be deleted, without deleting it
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Also delete unread and open trees; open tasks are stopped first
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object per group of trees
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no errors (there may be warnings); 1 errors found")]
pub(crate) struct DoctorArgs {
    /// Also check this team file: its syntax, its keys and its MCP servers
    #[arg(value_name = "TEAM")]
    pub(crate) team: Option<PathBuf>,
    /// Trust what the team file starts, reads and contacts, and remember it
    ///
    /// Without it, a team file that you have not accepted is refused, because checking its servers starts
    /// them.
    #[arg(long)]
    pub(crate) trust: bool,
    /// Check the whole database: every journal, index and stored value
    ///
    /// Without it, a database larger than 4 MB is checked only for open tasks and the newest 200.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) providers: super::ProviderArgs,
    /// Print one JSON object per check
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `completions`.
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

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
