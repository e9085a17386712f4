//! What can be typed.

mod groups;
mod ids;
mod suggest;
mod task_args;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::demo::DemoPace;
use crate::exit;
use crate::notify::NotifyMethod;
use crate::view::OutputStream;

pub(crate) use groups::command;
pub(crate) use ids::task_ids;
pub(crate) use suggest::parse;
pub(crate) use task_args::*;

/// Background agents that survive: run, watch and steer them from a terminal.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, after_help = exit::HELP)]
#[command(infer_subcommands = false, propagate_version = true)]
pub(crate) struct Cli {
    /// Where the database is: a directory, or a database file of any name [default: the user's data directory]
    #[arg(long, global = true, value_name = "DIR|FILE", env = "LONGHAUL_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a team on a prompt: the answer goes to standard output, progress to standard error
    Run(RunArgs),
    /// Watch a scripted team at work on the current directory: no key, no server, nothing to set up
    Demo(DemoArgs),
    /// Show all tasks on a screen of their own, and steer them: what `longhaul` alone does on a terminal
    Tui(TuiArgs),
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
    /// Submit the order of a task that failed or was cancelled again
    Retry(RetryArgs),
    /// Write down a task and all below it: as Markdown, as a page of HTML, as JSON
    Export(ExportArgs),
    /// Delete old trees of tasks that have ended and whose end somebody has seen
    Prune(PruneArgs),
    /// Wait until tasks have ended
    Wait(WaitArgs),
    /// Stop a task and everything below it
    Stop(StopArgs),
    /// Carry on tasks that a killed or interrupted process left behind
    Resume(ResumeArgs),
    /// Watch a tree that another process carries, as `run` does; Ctrl-C leaves it, and the tasks go on
    Attach(AttachArgs),
    /// Carry a tree on in the background: what `run --detach` starts
    #[command(hide = true)]
    Carry(CarryArgs),
    /// Tell what is wrong with team files
    Check(CheckArgs),
    /// Look whether all is there that Longhaul needs, and say what to do about what is not
    Doctor(DoctorArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands
    Man(ManArgs),
    /// Print the JSON schema of team files, for editors, or that of events
    Schema(SchemaArgs),
    /// Write a team file to begin with
    Init(InitArgs),
}

impl CliCommand {
    /// Where progress goes: to standard error, if standard output is for the answer.
    pub(crate) fn progress_stream(&self) -> OutputStream {
        match self {
            CliCommand::Run(_) | CliCommand::Attach(_) | CliCommand::Carry(_) => OutputStream::Stderr,
            _ => OutputStream::Stdout,
        }
    }
}

/// What the screen shows.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct TuiArgs {
    /// A team file, to start runs of it from the screen
    #[arg(value_name = "TEAM")]
    pub(crate) team: Option<PathBuf>,
    /// Accept what the team file starts, reads and contacts by itself, and remember that
    ///
    /// At a terminal you are asked once for each team file that starts programs, reads environment variables or contacts
    /// other machines, and again when what it does changes. `longhaul check TEAM` lists it.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
}

/// What was typed; nothing but `longhaul` is the screen, and where there is no terminal the help.
pub(crate) fn with_default_command(
    args: impl Iterator<Item = std::ffi::OsString>,
) -> Vec<std::ffi::OsString> {
    use std::io::IsTerminal as _;
    let mut args: Vec<_> = args.collect();
    let bare = match &args[1.min(args.len())..] {
        [] => true,
        [flag, _] => flag == "--data",
        [flag] => flag.to_string_lossy().starts_with("--data="),
        _ => false,
    };
    if bare {
        let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        args.push(if on_terminal { "tui" } else { "--help" }.into());
    }
    args
}

/// What is run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The team file; with --session it can be left out
    #[arg(value_name = "TEAM", required_unless_present = "session")]
    pub(crate) team: Option<PathBuf>,
    /// What to do; `-` reads it from standard input, `@FILE` from a file, `/NAME …` is a command of the team
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// What to do next, when that is done: several run in turn, in one session
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT")]
    pub(crate) prompts: Vec<String>,
    /// Go on with an earlier run: its conversation, its agent, its bounds
    ///
    /// Without TEAM its own team goes on, which is in the database. --max-cost and --max-tokens set what it may use from now on.
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "detach"], add = task_ids())]
    pub(crate) session: Option<String>,
    /// The agent to ask, instead of the team's first
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Another model: `provider/model` for all agents, or `agent=provider/model` for one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,
    /// Accept what the team file starts, reads and contacts by itself, and remember that
    ///
    /// At a terminal you are asked once for each team file that starts programs, reads environment variables or contacts
    /// other machines, and again when what it does changes. `longhaul check TEAM` lists it.
    #[arg(long)]
    pub(crate) trust: bool,
    /// Approve every call that is not denied
    #[arg(long)]
    pub(crate) yolo: bool,
    /// How to handle approvals and questions when no one is at the terminal [default: deny; with --detach: wait]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) unattended: Option<UnattendedArg>,
    /// How long a person has to answer an approval or a question; then the answer is no [default: no end]
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// Exit with 8 if a call was denied because no one was there to approve it
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
    /// What becomes of tasks that still run when the root has nothing more to say [default: what the team file says]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) on_finish: Option<OnFinishArg>,
    /// Nothing but the answer, and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Ring when it ends or asks something, if it has taken long enough to look away
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) notify: Option<NotifyMethod>,
    /// How long that is
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration, default_value = "10s")]
    pub(crate) notify_after: Duration,
    /// Print the id and return; a process in the background carries it on, and `longhaul attach ID` joins it
    #[arg(long)]
    pub(crate) detach: bool,
    /// No model is asked any more when the whole run has cost this many dollars
    #[arg(long, value_name = "DOLLARS", value_parser = crate::view::parse_dollars)]
    pub(crate) max_cost: Option<f64>,
    /// No model is asked any more when the whole run has used this many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the run after this time on the clock, whatever it does or waits for: 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Where the team works [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) working_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// One event a line, as JSON
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

/// What becomes of tasks that outlive their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnFinishArg {
    /// The root waits for them, and reads what they have to say
    Wait,
    /// They go on in the background when the root has answered
    Detach,
    /// They are stopped
    Stop,
}

impl From<OnFinishArg> for longhaul::OnFinish {
    fn from(policy: OnFinishArg) -> Self {
        match policy {
            OnFinishArg::Wait => longhaul::OnFinish::Wait,
            OnFinishArg::Detach => longhaul::OnFinish::Detach,
            OnFinishArg::Stop => longhaul::OnFinish::Stop,
        }
    }
}

/// What becomes of questions that nobody is there to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UnattendedArg {
    /// The answer is no: the model is told, and goes on
    Deny,
    /// The task waits: `longhaul answer` may come from another terminal
    Wait,
    /// The run is given back with exit code 8: answer, and resume it
    Stop,
}

impl From<UnattendedArg> for longhaul::agent::Unattended {
    fn from(policy: UnattendedArg) -> Self {
        match policy {
            UnattendedArg::Deny => longhaul::agent::Unattended::Deny,
            UnattendedArg::Wait | UnattendedArg::Stop => longhaul::agent::Unattended::Wait,
        }
    }
}

/// What comes from outside: keys, prices, recordings.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct ProviderArgs {
    /// More environment variables for keys and team files, as NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub(crate) env_from_file: Vec<PathBuf>,
    /// What tokens cost, laid over the prices that are known: {"provider/model": {"input": …, "output": …}}
    #[arg(long, value_name = "FILE", env = "LONGHAUL_PRICES", hide_env_values = true)]
    pub(crate) prices: Option<PathBuf>,
    /// Record what goes to and comes from models, without keys
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Answer from such a recording, without any network
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
}

/// How the demo is played.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How slowly it goes: 1 is made for watching, 0 does not wait at all
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE")]
    pub(crate) pace: DemoPace,
    /// Play another script with the same team (docs/scripted.md tells what can be in it)
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<std::path::PathBuf>,
}

/// What is carried on.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// These tasks and their trees: ids, or the beginnings of them [default: the runs of the current project]
    #[arg(value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// The runs of all projects
    ///
    /// Without this flag and without an id, `resume` takes the runs of the current project: the git repository you are in,
    /// or else the current directory.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Return at once; a process in the background carries each run on
    #[arg(long)]
    pub(crate) detach: bool,
    /// How to handle approvals and questions when no one is at the terminal [default: wait]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) unattended: Option<UnattendedArg>,
    /// How long a person has to answer an approval or a question; then the answer is no [default: no end]
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// Exit with 8 if a call was denied because no one was there to approve it
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
    /// Let each run spend this many dollars from now on, instead of the limit that it has
    #[arg(long, value_name = "DOLLARS", value_parser = crate::view::parse_dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Let each run use this many tokens from now on, instead of the limit that it has
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop after this time on the clock, whatever the runs do or wait for: 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// How slowly the demo's team goes
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE", hide = true)]
    pub(crate) pace: DemoPace,
}

impl ResumeArgs {
    /// These tasks, and all else as it is usually.
    pub(crate) fn for_tasks(ids: Vec<String>, providers: ProviderArgs, json: bool) -> ResumeArgs {
        ResumeArgs {
            ids,
            all: false,
            detach: false,
            unattended: None,
            ask_timeout: None,
            fail_on_denied: false,
            max_cost: None,
            max_tokens: None,
            timeout: None,
            json,
            providers,
            pace: DemoPace::default(),
        }
    }
}

/// What is joined.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// A task of the tree: its id, or the beginning of it
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// One event a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a process in the background carries on.
#[derive(Debug, Args)]
pub(crate) struct CarryArgs {
    /// The root of the tree
    pub(crate) root: longhaul::TaskId,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// How to handle approvals and questions when no one is at the terminal
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = UnattendedArg::Wait)]
    pub(crate) unattended: UnattendedArg,
    /// How long a person has to answer
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// For how long at most
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How slowly the demo's team goes
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE", hide = true)]
    pub(crate) pace: DemoPace,
}

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Team files, or directories: of those every .yaml and .yml file, also further down
    #[arg(required = true, value_name = "FILE|DIR")]
    pub(crate) paths: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// One file a line, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
}

/// Whose schema is printed.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Of what
    #[arg(value_enum, default_value_t = SchemaKind::Team)]
    pub(crate) of: SchemaKind,
}

/// What has a schema.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum SchemaKind {
    /// Team files
    Team,
    /// The lines of `--json` of run, demo, resume, attach and logs
    Events,
}

/// What is written where.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = "team.yaml")]
    pub(crate) file: PathBuf,
    /// A team that needs no key: its words are written down in the file
    #[arg(long)]
    pub(crate) scripted: bool,
    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }
}
