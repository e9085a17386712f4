//! The command line.

mod groups;
mod ids;
mod serve_args;
mod mcp_args;
mod store_args;
mod suggest;
mod task_args;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::demo::DemoPace;
use crate::exit;
use crate::notify::NotifyMethod;
use crate::view::OutputStream;

pub(crate) use groups::command;
pub(crate) use ids::task_ids;
pub(crate) use mcp_args::*;
pub(crate) use serve_args::*;
pub(crate) use store_args::*;
pub(crate) use suggest::parse;
pub(crate) use task_args::*;

/// Run, watch and steer durable background agents from a terminal
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, after_help = exit::HELP)]
#[command(infer_subcommands = false, propagate_version = true)]
pub(crate) struct Cli {
    /// Data directory, or database file [default: the user's data directory]
    #[arg(long, global = true, value_name = "DIR|FILE", env = "LONGHAUL_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    /// Where tasks are kept: a PostgreSQL URL, a database file, or `@FILE` with a URL in it [default: the database in
    /// the data directory]
    ///
    /// A URL with a password belongs into LONGHAUL_STORE or into a file: others can see the arguments of a process. With
    /// PostgreSQL, the data directory has this machine's own files only. See docs/fleet.md.
    #[arg(long, global = true, value_name = "URL|FILE")]
    pub(crate) store: Option<String>,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a team on a prompt
    ///
    /// The answer goes to stdout, progress to stderr.
    Run(RunArgs),
    /// Watch a scripted team explore the current directory: no key needed
    Demo(DemoArgs),
    /// Open the TUI to watch and steer all tasks
    ///
    /// `longhaul` without a command does the same on a terminal.
    Tui(TuiArgs),
    /// List open tasks, and those of the last day
    Tasks(TasksArgs),
    /// Show one task in full
    Show(ShowArgs),
    /// Print a task's journal
    Logs(LogsArgs),
    /// Send a message to a task; an ended task is continued by a new one
    Send(SendArgs),
    /// Answer a task's approval request or question
    Answer(AnswerArgs),
    /// Re-run a failed or cancelled task
    Retry(RetryArgs),
    /// Export a task and everything below it as Markdown, HTML or JSON
    Export(ExportArgs),
    /// Delete old task trees that have ended and were read
    Prune(PruneArgs),
    /// Wait until tasks have ended
    Wait(WaitArgs),
    /// Stop a task and everything below it
    Stop(StopArgs),
    /// Resume tasks that a killed or interrupted process left
    Resume(ResumeArgs),
    /// Watch a run of another process; Ctrl-C detaches
    Attach(AttachArgs),
    /// Run a tree in the background: what `run --detach` starts
    #[command(hide = true)]
    Carry(CarryArgs),
    /// Serve teams to other programs over HTTP
    ///
    /// Clients need a token: `longhaul serve` creates the first one and prints where it is. See docs/serve.md.
    Serve(ServeArgs),
    /// Create, list and revoke the tokens of `longhaul serve`
    Token(TokenArgs),
    /// Print a link that signs a browser in to the running server
    Open(OpenArgs),
    /// Offer a team's agents as tools to an MCP client over stdio
    ///
    /// An MCP client such as Claude Code, Codex, Cursor, opencode or VS Code starts this command itself; `longhaul mcp
    /// install` tells it how. Tasks are run by a background process, so they go on when the client and this command are
    /// killed.
    Mcp(McpArgs),
    /// Be an agent of an editor, over the Agent Client Protocol on stdio
    ///
    /// An ACP client such as Zed, a JetBrains IDE, Neovim or Emacs starts this command itself. Its sessions are tasks, run
    /// by a background process: they go on when the editor is closed, and the editor can load them again. See docs/acp.md.
    Acp(AcpArgs),
    /// Set up a store that several machines share, and copy tasks into it or back
    Store(StoreArgs),
    /// Check team files for errors
    Check(CheckArgs),
    /// List the tools of a team's agents
    ///
    /// Starts the team's MCP servers to ask for their tools, and stops them again. docs/toolsets.md lists the
    /// built-in tools.
    Tools(ToolsArgs),
    /// Check the installation and suggest fixes
    Doctor(DoctorArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each command
    Man(ManArgs),
    /// Print the JSON schema of team files or events
    Schema(SchemaArgs),
    /// Write a starter team file
    Init(InitArgs),
}

impl CliCommand {
    /// Returns the stream for progress: stderr if stdout is for the answer.
    pub(crate) fn progress_stream(&self) -> OutputStream {
        match self {
            CliCommand::Run(_)
            | CliCommand::Attach(_)
            | CliCommand::Carry(_)
            | CliCommand::Mcp(_)
            | CliCommand::Acp(_) => OutputStream::Stderr,
            _ => OutputStream::Stdout,
        }
    }
}

/// Arguments of `tui`.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct TuiArgs {
    /// A team file, to start runs of it from the TUI
    #[arg(value_name = "TEAM")]
    pub(crate) team: Option<PathBuf>,
    /// Trust what the team file starts, reads and contacts, and remember it
    ///
    /// At a terminal you are asked once for each team file that starts programs, reads environment variables or contacts
    /// other machines, and again when what it does changes. `longhaul check TEAM` lists it.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
}

/// Adds the default command if there is none: `tui` on a terminal, `--help` elsewhere.
pub(crate) fn with_default_command(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    use std::io::IsTerminal as _;
    let mut args: Vec<_> = args.collect();
    let bare = match &args[1.min(args.len())..] {
        [] => true,
        [flag, _] => flag == "--data" || flag == "--store",
        [flag] => ["--data=", "--store="].iter().any(|given| flag.to_string_lossy().starts_with(given)),
        _ => false,
    };
    if bare {
        let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        args.push(if on_terminal { "tui" } else { "--help" }.into());
    }
    args
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The team file; optional with --session
    #[arg(value_name = "TEAM", required_unless_present = "session")]
    pub(crate) team: Option<PathBuf>,
    /// The prompt; `-` reads stdin, `@FILE` a file, `/NAME …` runs a team command
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Another prompt; several run in order, in one session
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT")]
    pub(crate) prompts: Vec<String>,
    /// Continue an earlier run: its conversation, its agent, its limits
    ///
    /// Without TEAM, the run continues with its own team from the database. --max-cost and --max-tokens set
    /// what it may use from now on.
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "detach"], add = task_ids())]
    pub(crate) session: Option<String>,
    /// The agent to ask, instead of the team's first
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Use another model: `provider/model` for all agents, or `agent=provider/model`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,
    /// Trust what the team file starts, reads and contacts, and remember it
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
    /// Deny approvals and questions that are unanswered after this time [default: none]
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// Exit with 8 if a call was denied because no one was there to approve it
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
    /// What to do with tasks that still run when the root has answered [default: set by the team file]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) on_finish: Option<OnFinishArg>,
    /// Print only the answer and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Notify when the run ends or needs input
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) notify: Option<NotifyMethod>,
    /// Notify only if the run took at least this long
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration, default_value = "10s")]
    pub(crate) notify_after: Duration,
    /// Print the id and return; a background process runs it
    ///
    /// Watch it with `longhaul attach ID`.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Stop calling models once the run has cost this many dollars
    #[arg(long, value_name = "DOLLARS", value_parser = crate::view::parse_dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Stop calling models once the run has used this many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the run after this much wall-clock time: 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The team's working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) working_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Print one JSON event per line
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

/// What to do with tasks that outlive their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnFinishArg {
    /// The root waits for them and reads their results
    Wait,
    /// They continue in the background
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

/// How to handle questions when no one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UnattendedArg {
    /// Deny: the model is notified and continues
    Deny,
    /// Wait for `longhaul answer` from another terminal
    Wait,
    /// Release the run with exit code 8: answer, then resume it
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

/// Provider arguments: keys, prices, concurrency, recordings.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct ProviderArgs {
    /// Read environment variables from a file of NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub(crate) env_from_file: Vec<PathBuf>,
    /// Token prices that override the built-in ones: {"provider/model": {"input": …, "output": …}}
    #[arg(long, value_name = "FILE", env = "LONGHAUL_PRICES", hide_env_values = true)]
    pub(crate) prices: Option<PathBuf>,
    /// Send at most this many model requests at once per URL and key [default: set by the provider's limits]
    ///
    /// Overrides max_concurrent of models and providers in the team file. Without either, the number starts at
    /// 256, grows while requests wait and replies begin, and is halved when the provider rate limits, refuses
    /// connections or does not answer.
    #[arg(long, value_name = "N", value_parser = parse_max_concurrent)]
    pub(crate) max_concurrent: Option<usize>,
    /// Record model requests and replies to a file, without keys
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Answer model requests from a recording, without network
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
}

impl ProviderArgs {
    /// Returns the command-line arguments that give another process the same providers, with every path
    /// converted.
    pub(crate) fn to_flags(&self, path: impl Fn(&Path) -> PathBuf) -> Vec<OsString> {
        let files = self.env_from_file.iter().map(|file| ("--env-from-file", file));
        let more = [("--prices", &self.prices), ("--record", &self.record), ("--replay", &self.replay)];
        let files = files.chain(more.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?))));
        let mut flags: Vec<OsString> =
            files.flat_map(|(flag, file)| [flag.into(), path(file).into_os_string()]).collect();
        if let Some(limit) = self.max_concurrent {
            flags.extend(["--max-concurrent".into(), limit.to_string().into()]);
        }
        flags
    }
}

fn parse_max_concurrent(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err("it must be a whole number above 0".to_owned()),
    }
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Print one JSON event per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Delay factor: 1 is made for watching, 0 does not wait
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE")]
    pub(crate) pace: DemoPace,
    /// Play another script with the same team (see docs/scripted.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<std::path::PathBuf>,
}

/// Arguments of `resume`.
#[derive(Debug, Default, Args)]
pub(crate) struct ResumeArgs {
    /// Ids or id prefixes of tasks [default: the runs of the current project]
    #[arg(value_name = "ID", add = task_ids())]
    pub(crate) ids: Vec<String>,
    /// Resume the runs of all projects
    ///
    /// Without this flag and without an id, `resume` takes the runs of the current project: the git
    /// repository you are in, or else the current directory.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Return at once; background processes run them
    #[arg(long)]
    pub(crate) detach: bool,
    /// How to handle approvals and questions when no one is at the terminal [default: wait]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) unattended: Option<UnattendedArg>,
    /// Deny approvals and questions that are unanswered after this time [default: none]
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// Exit with 8 if a call was denied because no one was there to approve it
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
    /// Let each run spend this many more dollars, instead of its own limit
    #[arg(long, value_name = "DOLLARS", value_parser = crate::view::parse_dollars)]
    pub(crate) max_cost: Option<f64>,
    /// Let each run use this many more tokens, instead of its own limit
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Stop the runs after this much wall-clock time: 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print one JSON event per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Delay factor of the demo's team
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE", hide = true)]
    pub(crate) pace: DemoPace,
}

impl ResumeArgs {
    /// Returns arguments for these tasks, with defaults for everything else.
    pub(crate) fn for_tasks(ids: Vec<String>, providers: ProviderArgs, json: bool) -> ResumeArgs {
        ResumeArgs { ids, providers, json, ..ResumeArgs::default() }
    }
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Id or id prefix of any task in the tree
    #[arg(add = task_ids())]
    pub(crate) id: String,
    /// Print one JSON event per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `carry`.
#[derive(Debug, Args)]
pub(crate) struct CarryArgs {
    /// The root of the tree
    #[arg(required_unless_present = "served")]
    pub(crate) root: Option<longhaul::TaskId>,
    /// Run all tasks of the served team with this digest, until it has had none for a while
    #[arg(long, value_name = "DIGEST", conflicts_with = "root")]
    pub(crate) served: Option<String>,
    /// With --served: exit when the team has had no unfinished task for this long
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration, env = "LONGHAUL_LINGER")]
    pub(crate) linger: Option<Duration>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// How to handle approvals and questions when no one is at the terminal
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = UnattendedArg::Wait)]
    pub(crate) unattended: UnattendedArg,
    /// Deny approvals and questions that are unanswered after this time
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) ask_timeout: Option<Duration>,
    /// Stop the run after this much wall-clock time
    #[arg(long, value_name = "TIME", value_parser = crate::view::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Delay factor of the demo's team
    #[arg(long, value_name = "N", default_value = "1", env = "LONGHAUL_DEMO_PACE", hide = true)]
    pub(crate) pace: DemoPace,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Team files, or directories to search for .yaml and .yml files
    #[arg(required = true, value_name = "FILE|DIR")]
    pub(crate) paths: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object per file
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
}

/// Arguments of `tools`.
#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// The team file
    #[arg(value_name = "TEAM")]
    pub(crate) team: PathBuf,
    /// List only the tools of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Trust what the team file starts, reads and contacts, and remember it
    ///
    /// Without it, a team file that you have not accepted is refused, because listing the tools of its servers
    /// starts them.
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Print one JSON object per agent
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// What to print the schema of
    #[arg(value_enum, default_value_t = SchemaKind::Team)]
    pub(crate) of: SchemaKind,
}

/// The available schemas.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum SchemaKind {
    /// Team files
    Team,
    /// The `--json` lines of run, demo, resume, attach and logs
    Events,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "team.yaml")]
    pub(crate) file: PathBuf,
    /// Write a scripted team that needs no key
    #[arg(long)]
    pub(crate) scripted: bool,
    /// Overwrite an existing file
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

    #[test]
    fn another_process_gets_the_same_providers() {
        #[derive(Debug, Parser)]
        struct Only {
            #[command(flatten)]
            providers: ProviderArgs,
        }
        let typed = ["x", "--env-from-file", "a", "--env-from-file", "b", "--prices", "p", "--record", "r"];
        let typed = typed.into_iter().chain(["--max-concurrent", "7"]);
        let only = Only::try_parse_from(typed).unwrap();
        let flags = only.providers.to_flags(|path| Path::new("/here").join(path));
        let again = Only::try_parse_from(std::iter::once("x".into()).chain(flags)).unwrap();
        let expected = format!("{only:?}").replace("[\"a\", \"b\"]", "[\"/here/a\", \"/here/b\"]");
        let expected = expected.replace("(\"p\")", "(\"/here/p\")").replace("(\"r\")", "(\"/here/r\")");
        assert_eq!(format!("{again:?}"), expected);
        for wrong in ["0", "-1", "many"] {
            let error = Only::try_parse_from(["x", &format!("--max-concurrent={wrong}")]).unwrap_err();
            assert!(error.to_string().contains("above 0"), "{error}");
        }
    }
}
