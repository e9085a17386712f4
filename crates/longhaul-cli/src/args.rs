//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use longhaul::id::QuestionId;

use crate::demo::Pace;
use crate::exit;

/// Background agents that survive: run, watch and steer them from a terminal.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, after_help = exit::HELP, arg_required_else_help = true)]
#[command(infer_subcommands = false, propagate_version = true)]
pub(crate) struct Cli {
    /// Where the database is [default: the user's data directory]
    #[arg(long, global = true, value_name = "DIR", env = "LONGHAUL_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch a scripted team at work on the current directory: no key, no server, nothing to set up
    Demo(DemoArgs),
    /// List tasks: those that have not ended, and those of the last day
    Tasks(TasksArgs),
    /// Show all there is to know about a task
    Show(ShowArgs),
    /// Tell a task's journal, line by line
    Logs(LogsArgs),
    /// Write to a task; one that has ended is continued by a new one
    Send(SendArgs),
    /// Answer what a task asks: whether it may call a tool, or what else it wants to know
    Answer(AnswerArgs),
    /// Wait until tasks have ended
    Wait(WaitArgs),
    /// Stop a task and everything below it
    Stop(StopArgs),
    /// Carry on tasks that a killed or interrupted process left behind
    Resume(ResumeArgs),
}

/// How the demo is played.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How slowly it goes: 1 is made for watching, 0 does not wait at all
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE")]
    pub(crate) pace: Pace,
    /// Play another script with the same team (docs/scripted.md tells what can be in it)
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<std::path::PathBuf>,
}

/// Which tasks are listed.
#[derive(Debug, Args)]
pub(crate) struct TasksArgs {
    /// All tasks there are
    #[arg(long, short)]
    pub(crate) all: bool,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which task is shown.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The task's id, or the beginning of it
    pub(crate) id: String,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose journal is told.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The task's id, or the beginning of it
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
    pub(crate) id: String,
    /// What to say; `-` reads it from standard input
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Where the letter went, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is answered to whom.
#[derive(Debug, Args)]
#[command(
    after_help = "Whether a tool may be called is answered with `yes`, `no [REASON]`, `always` (all calls of the tool, in \
                        the whole tree) or `always PATTERN` (as `always shell:cmd=git *`). Other questions take any text. \
                        `longhaul show ID` shows what is asked.\n\nExit codes: 0 answered; 1 nothing is asked, or it has \
                        been answered already; 2 these words are no answer, or several things are asked; 4 no such task"
)]
pub(crate) struct AnswerArgs {
    /// The task's id, or the beginning of it
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
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Until one of them has ended, not all
    #[arg(long)]
    pub(crate) any: bool,
    /// No longer than this: 30s, 5m, 1h30m, 500ms
    #[arg(long, value_name = "TIME", value_parser = crate::view::duration)]
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
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Every task that has not ended
    #[arg(long)]
    pub(crate) all: bool,
    /// One task a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is carried on.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Only these tasks and their trees: ids, or the beginnings of them
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How slowly the demo's team goes
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE", hide = true)]
    pub(crate) pace: Pace,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
