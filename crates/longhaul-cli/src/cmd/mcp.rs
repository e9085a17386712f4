//! `longhaul mcp`: an MCP server over stdio for the agents of a team. It runs no task itself.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use longhaul::agent::{TASK_SECRET, TASK_SOCKET};
use longhaul::entry::TeamRef;
use longhaul::{Longhaul, TaskId};
use longhaul_server::backend::{Backend, BackendError, CarryError, ServedTeam, TaskCarrier};
use longhaul_server::mcp::TeamMcpServer;

use super::{CliContext, mcp_install};
use crate::args::{McpArgs, McpSubcommand, ProviderArgs, ServedTeamArgs};
use crate::background;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::serve_lock::{ServerInfo, running_server};
use crate::signals::ExitSignals;
use crate::team::{self, TeamFromFile};
use crate::trust::TeamFileTrust;

pub(super) async fn run(context: &CliContext, args: &McpArgs) -> Result<CliExitCode, CliError> {
    if let Some(McpSubcommand::Install(install)) = &args.command {
        return mcp_install::run(context, install);
    }
    if args.task {
        return Err(CliError::new(CliExitCode::Usage, "`mcp --task` takes nothing else"));
    }
    let mut signals = ExitSignals::listen()?;
    let data_dir = context.data_dir()?;
    let environment = team::build_environment(context, &args.providers, &data_dir)?;
    let file = team_file(&args.served)?;
    let dir = served_dir(&args.served)?;
    let made = team::assemble_served_team(context, &environment, &args.served.model, &file, &dir)?;
    require_trust(context, &data_dir, &args.served, &file, &made)?;
    if std::io::stdin().is_terminal() {
        context
            .note("an MCP client starts this command; `longhaul mcp install CLIENT --team FILE` sets one up");
    }
    let store = data_dir.open_store()?;
    let team = made.save_to(&*store).await?;
    let longhaul = Longhaul::client(store).await?;
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let served = ServedTeam { name, team, working_dir: dir, budget: made.budget };
    let carrier = Arc::new(BackgroundCarrier::new(&data_dir, &args.providers));
    let server = TeamMcpServer::new(Backend::new(longhaul.clone(), vec![served], carrier), None)
        .map_err(|error| CliError::new(CliExitCode::Failed, error.to_string()))?;
    // Tasks whose process was killed go on as soon as a client is there. Serve the client even if they cannot.
    let unfinished = server.clone();
    let carrying = async move {
        if let Err(error) = unfinished.carry_unfinished().await {
            context.note(&format!("warning: {error}"));
            if let BackendError::NotCarried { error: CarryError { hint: Some(hint), .. }, .. } = &error {
                context.note(&format!("hint: {hint}"));
            }
        }
        std::future::pending().await
    };
    let served = tokio::select! {
        served = server.serve_stdio() => served,
        () = carrying => Ok(()),
        () = signals.next() => Ok(()),
    };
    longhaul.shutdown().await;
    team::close_environment(&environment).await;
    match served {
        Ok(()) => Ok(CliExitCode::Success),
        Err(error) => Err(CliError::new(CliExitCode::Failed, error.to_string())),
    }
}

/// Passes the calls of an MCP client on to the process that owns the client's task. Knows nothing but its socket and
/// the secret, which come in variables.
pub(crate) fn forward_task_tools() -> ExitCode {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let (socket, secret) = (variable(TASK_SOCKET), variable(TASK_SECRET));
    let forwarded = match (socket, secret.and_then(|secret| secret.into_string().ok())) {
        (Some(socket), Some(secret)) => {
            let (input, output) = (std::io::stdin(), std::io::stdout());
            longhaul::agent::forward_task_tools(Path::new(&socket), &secret, input, output)
                .map_err(|error| format!("the task cannot be reached: {error}"))
        }
        _ => Err(format!(
            "{TASK_SOCKET} and {TASK_SECRET} are not set: Longhaul starts this command itself, for programs that run agents"
        )),
    };
    match forwarded {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The team file with its whole path, so that the team is the same however the path was typed.
pub(super) fn team_file(args: &ServedTeamArgs) -> Result<PathBuf, CliError> {
    let Some(file) = &args.team else {
        return Err(CliError::new(CliExitCode::Usage, "--team: name a team file"));
    };
    file.canonicalize().map_err(|error| {
        CliError::new(CliExitCode::Team, format!("the team file {} cannot be read: {error}", file.display()))
            .with_hint("`longhaul init FILE` writes a starter file")
    })
}

/// The directory that tasks work in.
pub(super) fn served_dir(args: &ServedTeamArgs) -> Result<PathBuf, CliError> {
    team::resolve_working_dir(args.dir.as_deref())
        .map_err(|error| error.with_hint("`--dir DIR` names a directory that exists"))
}

/// Fails if the team file is not trusted. A client cannot ask, so this never does.
pub(super) fn require_trust(
    context: &CliContext,
    data_dir: &DataDir,
    args: &ServedTeamArgs,
    file: &Path,
    made: &TeamFromFile,
) -> Result<(), CliError> {
    let trust = TeamFileTrust::new(data_dir, file, &made.bundle);
    trust.require_trust(context, args.trust).map_err(|error| {
        let shown = file.display();
        let accept = data_dir.shell_command(&format!("mcp install CLIENT --team {shown} --trust"));
        error.with_hint(format!(
            "`longhaul check {shown}` lists it; to accept it, add `--trust`, once: `{accept}` or `longhaul mcp --team {shown} \
             --trust`"
        ))
    })
}

/// Has `longhaul serve` run the tasks if it serves the team, or else a background process.
pub(super) struct BackgroundCarrier {
    data_dir: DataDir,
    providers: ProviderArgs,
    /// The last failure to start a process. Held while one is started: one at a time.
    last_failure: tokio::sync::Mutex<Option<(Instant, CarryError)>>,
}

/// How long not to try again after a process failed to start. Clients poll.
const START_RETRY: Duration = Duration::from_secs(10);

impl BackgroundCarrier {
    pub(super) fn new(data_dir: &DataDir, providers: &ProviderArgs) -> BackgroundCarrier {
        let (data_dir, providers) = (data_dir.clone(), providers.clone());
        BackgroundCarrier { data_dir, providers, last_failure: tokio::sync::Mutex::new(None) }
    }
}

impl TaskCarrier for BackgroundCarrier {
    fn carry<'a>(&'a self, _: TaskId, team: &'a TeamRef) -> BoxFuture<'a, Result<(), CarryError>> {
        Box::pin(async move {
            let TeamRef::File(digest) = team else { return Ok(()) };
            let is_served = |server: ServerInfo| server.teams.contains(digest);
            if running_server(&self.data_dir).is_some_and(is_served) {
                return Ok(());
            }
            let mut last_failure = self.last_failure.lock().await;
            if background::served_pid(&self.data_dir, digest).is_some() {
                return Ok(());
            }
            if let Some((at, error)) = &*last_failure
                && at.elapsed() < START_RETRY
            {
                return Err(error.clone());
            }
            let started = background::start_served(&self.data_dir, digest, &self.providers).await;
            let started = started.map_err(|error| CarryError {
                why: error.message().to_owned(),
                hint: error.hint_text().map(str::to_owned),
            });
            *last_failure = started.as_ref().err().map(|error| (Instant::now(), error.clone()));
            started
        })
    }
}
