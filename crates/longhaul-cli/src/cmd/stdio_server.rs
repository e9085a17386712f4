//! What `mcp` and `acp` have in common: a team that is served to one client over stdio. This process runs no task.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use longhaul::entry::TeamRef;
use longhaul::teamfile::Environment;
use longhaul::{Longhaul, TaskId};
use longhaul_server::backend::{Backend, BackendError, CarryError, ServedTeam, TaskCarrier};

use super::CliContext;
use crate::args::{ProviderArgs, ServedTeamArgs};
use crate::background;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::serve_lock::{ServerInfo, running_server};
use crate::signals::ExitSignals;
use crate::team::{self, TeamFromFile};
use crate::trust::TeamFileTrust;

/// A team that one client uses. A background process, or `longhaul serve`, runs its tasks.
pub(super) struct StdioServer<'a> {
    context: &'a CliContext,
    signals: ExitSignals,
    environment: Environment,
    backend: Backend,
}

impl<'a> StdioServer<'a> {
    /// Loads the team, if it is trusted, and opens the database. A person at a terminal is told what the command is for.
    pub(super) async fn open(
        context: &'a CliContext,
        args: &ServedTeamArgs,
        providers: &ProviderArgs,
        for_a_person: &str,
    ) -> Result<StdioServer<'a>, CliError> {
        let signals = ExitSignals::listen()?;
        let data_dir = context.data_dir()?;
        let environment = team::build_environment(context, providers, &data_dir)?;
        let file = team_file(args)?;
        let dir = served_dir(args)?;
        let made = team::assemble_served_team(context, &environment, &args.model, &file, &dir)?
            .bound_to_this_machine(&data_dir);
        require_trust(context, &data_dir, args, &file, &made)?;
        if std::io::stdin().is_terminal() {
            context.note(for_a_person);
        }
        let store = data_dir.open_store().await?;
        let team = made.save_to(&*store).await?;
        let longhaul = Longhaul::client(store).await?;
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let served = ServedTeam { name, team, working_dir: dir, budget: made.budget };
        let carrier = Arc::new(BackgroundCarrier::new(&data_dir, providers));
        let backend = Backend::new(longhaul, vec![served], carrier);
        Ok(StdioServer { context, signals, environment, backend })
    }

    /// What clients can do with the team.
    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Serves until the client leaves or a signal comes. Tasks whose process was killed go on meanwhile.
    pub(super) async fn run<E: Display>(
        mut self,
        client: impl Future<Output = Result<(), E>>,
    ) -> Result<CliExitCode, CliError> {
        let served = tokio::select! {
            served = client => served,
            () = self.signals.next() => Ok(()),
            () = carry_unfinished(self.context, &self.backend) => Ok(()),
        };
        self.backend.longhaul().shutdown().await;
        team::close_environment(&self.environment).await;
        match served {
            Ok(()) => Ok(CliExitCode::Success),
            Err(error) => Err(CliError::new(CliExitCode::Failed, error.to_string())),
        }
    }
}

/// Has unfinished tasks go on, and never returns. The client is served even if they cannot.
async fn carry_unfinished(context: &CliContext, backend: &Backend) {
    if let Err(error) = backend.carry_unfinished().await {
        context.note(&format!("warning: {error}"));
        if let BackendError::NotCarried { error: CarryError { hint: Some(hint), .. }, .. } = &error {
            context.note(&format!("hint: {hint}"));
        }
    }
    std::future::pending().await
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
struct BackgroundCarrier {
    data_dir: DataDir,
    providers: ProviderArgs,
    /// The last failure to start a process. Held while one is started: one at a time.
    last_failure: tokio::sync::Mutex<Option<(Instant, CarryError)>>,
}

/// How long not to try again after a process failed to start. Clients poll.
const START_RETRY: Duration = Duration::from_secs(10);

impl BackgroundCarrier {
    fn new(data_dir: &DataDir, providers: &ProviderArgs) -> BackgroundCarrier {
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
