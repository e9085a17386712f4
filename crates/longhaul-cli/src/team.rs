//! Teams from files: loads, checks and assembles them, and keeps them in the store so that any process can
//! run their tasks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul::agent::TeamError;
use longhaul::dispatch::TaskLimits;
use longhaul::entry::TeamRef;
use longhaul::process::ProcessGuardian;
use longhaul::store::Store;
use longhaul::teamfile::{
    self, AssembleError, AssembledTeam, BundleLoader, Environment, ModelOverride, Problem, ProblemKind,
    TeamBundle,
};
use longhaul::toolset::McpPool;
use longhaul::worker::TeamLoader;
use longhaul::{Budget, Team};

use crate::args::{ProviderArgs, RunArgs};
use crate::cmd::CliContext;
use crate::data_dir::DataDir;
use crate::demo::{self, DemoPace};
use crate::exit::{CliError, CliExitCode};
use crate::open_files;
use crate::provider_setup::{self, EnvFileVariables};
use crate::store_address::{STORE_VARIABLE, host_id};
use crate::view::sanitize;

/// A team that was assembled from a file.
pub(crate) struct TeamFromFile {
    pub(crate) team: Team,
    /// The commands of its root: name and instruction.
    pub(crate) commands: Vec<(String, String)>,
    pub(crate) limits: TaskLimits,
    /// The budget of a whole run, as the file sets it.
    pub(crate) budget: Budget,
    pub(crate) bundle: TeamBundle,
}

/// Returns the host of a URL. The URL has been checked to be http or https.
fn host_of(page: &str) -> &str {
    let rest = page.split_once("://").map_or(page, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Creates the environment that teams of this process are assembled with. Fails if an environment file, price
/// file or recording cannot be read.
pub(crate) fn build_environment(
    context: &CliContext,
    providers: &ProviderArgs,
    data_dir: &DataDir,
) -> Result<Environment, CliError> {
    open_files::raise_limit();
    let variables = EnvFileVariables::read(providers)?;
    let data = data_dir.path().to_owned();
    let http = provider_setup::build_http(providers, &variables)?;
    // No tool, hook, server or agent gets the address of the store: it may contain a password.
    let look = move |name: &str| variables.get(name).filter(|_| name != STORE_VARIABLE);
    let environment = Environment::new(http, look, data);
    let guardian = supervised(environment.guardian.clone());
    let mcp = {
        let screen = context.screen.clone();
        let show = move |server: &str, page: &str| {
            use std::io::Write as _;
            let host = host_of(page);
            let text = format!(
                "the MCP server '{server}' asks for a login on {host}; open this page in a browser:\n{page}"
            );
            // Ignore a failed write: the login completes only if someone opens the page.
            let _ = writeln!(screen.clone(), "{}", sanitize(&text));
        };
        let guardian = guardian.clone();
        McpPool::new(environment.mcp.options().clone().show_login(Some(Arc::new(show))).guardian(guardian))
    };
    Ok(environment.sandbox_helper(std::env::current_exe().ok()).guardian(guardian).mcp(mcp))
}

/// Lets this program supervise commands, hooks and MCP servers, where the platform supports it.
fn supervised(guardian: ProcessGuardian) -> ProcessGuardian {
    match cfg!(target_os = "linux") {
        // This stays the same program even if the file has been replaced by another version.
        true => guardian.helper("/proc/self/exe"),
        false => guardian,
    }
}

/// Stops what the teams of this process have started, and waits for it.
pub(crate) async fn close_environment(environment: &Environment) {
    environment.mcp.close().await;
}

/// Assembles a team from a file, to work in a directory. Prints warnings to stderr. Fails if the file is
/// invalid or needs something that is missing.
pub(crate) fn assemble_team(
    context: &CliContext,
    environment: &Environment,
    args: &RunArgs,
    file: &Path,
    dir: &Path,
) -> Result<TeamFromFile, CliError> {
    assemble_from_file(context, environment, &args.model, file, dir, false)
}

/// Assembles a team whose tasks come from clients. `file` and `dir` are whole paths: the same team file served in
/// the same directory is the same team for every process. Fails as [`assemble_team`] does.
pub(crate) fn assemble_served_team(
    context: &CliContext,
    environment: &Environment,
    models: &[String],
    file: &Path,
    dir: &Path,
) -> Result<TeamFromFile, CliError> {
    assemble_from_file(context, environment, models, file, dir, true)
}

fn assemble_from_file(
    context: &CliContext,
    environment: &Environment,
    models: &[String],
    file: &Path,
    dir: &Path,
    served: bool,
) -> Result<TeamFromFile, CliError> {
    let mut bundle = load_bundle(file)?;
    bundle.served = served;
    bundle.models = models.iter().map(|typed| parse_model_override(typed)).collect();
    for chosen in &bundle.models {
        check_model_name(&chosen.model, &bundle)?;
    }
    bundle.working_dir = Some(dir.to_owned());
    let assembly = assemble_bundle(context, environment, &bundle, file)?;
    for name in bundle.models.iter().filter_map(|chosen| chosen.agent.as_deref()) {
        check_agent_exists(&assembly.team, name, "--model", file)?;
    }
    Ok(TeamFromFile {
        team: assembly.team,
        commands: commands(&bundle),
        limits: assembly.limits,
        budget: assembly.budget,
        bundle,
    })
}

/// Loads a team file and the files it refers to. Fails if one cannot be read.
pub(crate) fn load_bundle(file: &Path) -> Result<TeamBundle, CliError> {
    TeamBundle::load(file).map_err(|error| {
        let hint = match file.is_dir() {
            true => "name a team file in it",
            false => "`longhaul init FILE` writes a starter file",
        };
        CliError::new(CliExitCode::Team, format!("the team file {error}")).with_hint(hint)
    })
}

/// Assembles the team of a bundle. Prints warnings to stderr. Fails if a file is invalid or needs something
/// that is missing.
pub(crate) fn assemble_bundle(
    context: &CliContext,
    environment: &Environment,
    bundle: &TeamBundle,
    file: &Path,
) -> Result<AssembledTeam, CliError> {
    let assembly = teamfile::assemble(bundle, environment).map_err(|error| assemble_failure(&error, file))?;
    for notice in &assembly.warnings {
        context.note(&format!("warning: {notice}"));
    }
    Ok(assembly)
}

/// Returns the commands of a team's root: name and instruction.
fn commands(bundle: &TeamBundle) -> Vec<(String, String)> {
    let read = teamfile::parse(&bundle.text).file;
    let commands = read.and_then(|file| {
        let root = file.agents.get(file.root_agent()?)?;
        let shared = root.use_commands.iter().filter_map(|name| file.commands.get(name)).flatten();
        let all = shared.chain(&root.commands).map(|(name, part)| (name.clone(), part.instruction.clone()));
        Some(all.collect())
    });
    commands.unwrap_or_default()
}

/// Returns the machine that the tasks of a stored team wait for, if it is not this one.
pub(crate) fn other_host(file: &[u8]) -> Option<String> {
    let bundle = TeamBundle::is_encoded(file).then(|| TeamBundle::decode(file).ok()).flatten()?;
    bundle.host.filter(|host| *host != host_id())
}

/// Returns the machine that the tasks of a team wait for, if it is not this one.
pub(crate) async fn awaited_host(store: &dyn Store, team: &TeamRef) -> Option<String> {
    let TeamRef::File(digest) = team else { return None };
    other_host(&store.blob(digest.clone()).await.ok().flatten()?)
}

/// Returns the display name of a team: the name of its file, if known.
pub(crate) async fn name(store: &dyn Store, team: &TeamRef) -> String {
    let TeamRef::File(digest) = team else { return team.to_string() };
    let kept = store.blob(digest.clone()).await.ok().flatten();
    match kept.filter(|file| TeamBundle::is_encoded(file)).and_then(|file| TeamBundle::decode(&file).ok()) {
        Some(bundle) => format!("team file {}", sanitize(&bundle.name)),
        None => team.to_string(),
    }
}

/// Returns the commands of a team whose file is in the store.
pub(crate) async fn stored_team_commands(
    store: &dyn Store,
    team: &TeamRef,
) -> Result<Vec<(String, String)>, CliError> {
    let TeamRef::File(digest) = team else { return Ok(Vec::new()) };
    let file = store.blob(digest.clone()).await?;
    let bundle =
        file.filter(|file| TeamBundle::is_encoded(file)).and_then(|file| TeamBundle::decode(&file).ok());
    Ok(bundle.map(|bundle| commands(&bundle)).unwrap_or_default())
}

/// Checks that a model can be found for `auto`, so that the error comes before a task is submitted.
pub(crate) async fn check_auto_model(team: &Team, environment: &Environment) -> Result<(), CliError> {
    if team.agents().all(|agent| agent.model.name() != "auto") {
        return Ok(());
    }
    let keys = |name: &str| (environment.variables)(name).map(Into::into);
    match environment.http.auto_model(&keys).await {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::new(CliExitCode::Team, format!("model auto: {error}"))
            .with_hint(
                "keys may also be in a file: `--env-from-file FILE`; `longhaul demo` needs none of these, and `longhaul \
                 init --scripted` writes a team that needs none",
            )),
    }
}

/// Checks that the team has an agent with this name.
pub(crate) fn check_agent_exists(team: &Team, name: &str, flag: &str, file: &Path) -> Result<(), CliError> {
    if team.agent(&name.into()).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = team.agents().map(|agent| agent.name.as_str()).collect();
    let what = format!("{flag}: there is no agent '{name}' in {}", file.display());
    Err(CliError::new(CliExitCode::Usage, what).with_hint(format!("there are: {}", names.join(", "))))
}

impl TeamFromFile {
    /// Binds its tasks to this machine, if others share the store: they work in a directory of this one.
    pub(crate) fn bound_to_this_machine(mut self, data_dir: &DataDir) -> TeamFromFile {
        self.bundle.host = data_dir.bound_host();
        self
    }

    /// Saves the file in the store, and returns the team with a reference to it.
    pub(crate) async fn save_to(&self, store: &dyn Store) -> Result<Team, CliError> {
        let digest = store.put_blob(self.bundle.encode()).await?;
        Ok(self.team.clone().with_reference(TeamRef::File(digest)))
    }
}

/// Parses `provider/model` (for all agents) or `agent=provider/model` (for one).
fn parse_model_override(typed: &str) -> ModelOverride {
    match typed.split_once('=') {
        Some((agent, model)) => ModelOverride { agent: Some(agent.to_owned()), model: model.to_owned() },
        None => ModelOverride { agent: None, model: typed.to_owned() },
    }
}

/// Checks that `--model` names a model, or one that the file defines. Reported separately because it is not
/// an error in the file.
fn check_model_name(chosen: &str, bundle: &TeamBundle) -> Result<(), CliError> {
    let named = teamfile::parse(&bundle.text).file.map(|file| file.models).unwrap_or_default();
    if chosen == "auto" || chosen.contains('/') || named.contains_key(chosen) {
        return Ok(());
    }
    let own = match named.is_empty() {
        true => String::new(),
        false => {
            format!(", or a model of the file ({})", named.keys().cloned().collect::<Vec<_>>().join(", "))
        }
    };
    Err(CliError::new(CliExitCode::Usage, format!("--model: '{chosen}' does not name a model"))
        .with_hint(format!("write provider/model, such as openai/gpt-5{own}")))
}

fn assemble_failure(error: &AssembleError, file: &Path) -> CliError {
    let name = file.display();
    let any = |problems: &[Problem], kind| problems.iter().any(|problem| problem.kind == kind);
    match error {
        AssembleError::InvalidFile { text, problems, .. }
            if teamfile::parse(text).error_count() == 0 && !any(problems, ProblemKind::Cycle) =>
        {
            let hint = match any(problems, ProblemKind::Environment) {
                true => {
                    "keys and variables come from the environment, or from a file: `--env-from-file FILE`; `longhaul \
                     demo` needs none"
                }
                false => "see docs/teams.md for what a team file may contain",
            };
            CliError::new(
                CliExitCode::Team,
                format!("the team file is valid, but cannot run here\n\n{error}"),
            )
            .with_hint(hint)
        }
        AssembleError::InvalidFile { file, text, problems } => {
            let problems = problems.iter().cloned().map(with_command_help).collect();
            let error = AssembleError::InvalidFile { file: file.clone(), text: text.clone(), problems };
            CliError::new(CliExitCode::Team, format!("the team file is wrong\n\n{error}"))
                .with_hint(format!("`longhaul check {name}` tells more"))
        }
        error => CliError::new(CliExitCode::Team, format!("{name}: {error}"))
            .with_hint(format!("`longhaul check {name}` tells more")),
    }
}

/// Adds to a problem which command helps.
pub(crate) fn with_command_help(problem: Problem) -> Problem {
    match problem.kind {
        ProblemKind::EmptyFile => problem.with_help("`longhaul init` writes a team to begin with"),
        _ => problem,
    }
}

/// Returns the limits that the file of a team sets, if it has one.
pub(crate) async fn stored_team_limits(
    store: &dyn Store,
    team: &TeamRef,
    environment: &Environment,
) -> Result<Option<TaskLimits>, CliError> {
    let TeamRef::File(digest) = team else { return Ok(None) };
    let file = store.blob(digest.clone()).await?;
    let bundle =
        file.filter(|file| TeamBundle::is_encoded(file)).and_then(|file| TeamBundle::decode(&file).ok());
    // If the team does not assemble, the process that runs its tasks reports that.
    Ok(bundle.and_then(|bundle| teamfile::assemble(&bundle, environment).ok()).map(|made| made.limits))
}

/// Loads teams from the store: team files, and scripts given to the demo.
pub(crate) struct StoredTeamLoader {
    pub(crate) scripts: demo::DemoScriptLoader,
    pub(crate) files: BundleLoader,
}

impl StoredTeamLoader {
    pub(crate) fn new(pace: DemoPace, environment: Environment) -> StoredTeamLoader {
        StoredTeamLoader { scripts: demo::DemoScriptLoader(pace), files: BundleLoader::new(environment) }
    }

    /// Returns whether these bytes are a team file or a script.
    pub(crate) fn recognizes(bytes: &[u8]) -> bool {
        demo::is_stored_script(bytes) || TeamBundle::is_encoded(bytes)
    }
}

impl TeamLoader for StoredTeamLoader {
    fn wants(&self, file: &[u8]) -> bool {
        other_host(file).is_none()
    }

    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        if TeamBundle::is_encoded(file) { self.files.load(file) } else { self.scripts.load(file) }
    }
}

/// Returns the working directory of a team. Fails if it does not exist.
pub(crate) fn resolve_working_dir(chosen: Option<&Path>) -> Result<PathBuf, CliError> {
    let dir = chosen.unwrap_or(Path::new("."));
    let cannot = |why: String| {
        CliError::new(
            CliExitCode::Usage,
            format!("the working directory {} cannot be used: {why}", dir.display()),
        )
        .with_hint("`--working-dir DIR` names one that exists")
    };
    let real = dir.canonicalize().map_err(|error| cannot(error.to_string()))?;
    if real.is_dir() { Ok(real) } else { Err(cannot("it is not a directory".to_owned())) }
}
