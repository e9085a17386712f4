//! Builds a [`Team`] from a team file: its models, toolsets and agents.

mod acp;
mod agents;
mod composite_models;
mod hooks;
#[cfg(feature = "mcp")]
mod mcp;
mod models;
mod remote_agent;
mod toolsets;

use std::path::PathBuf;
use std::sync::Arc;

use super::bundle::{FileProblem, TeamBundle};
use super::problem::{MAX_PROBLEMS, Problem, ProblemKind};
use super::{TeamFile, VariableError, find_cycles, parse};
use crate::agent::{Agent, Team, TeamError};
use crate::dispatch::TaskLimits;
use crate::entry::Budget;
use crate::model::http::HttpClient;
use crate::process::ProcessGuardian;
#[cfg(feature = "mcp")]
use crate::toolset::McpPool;
use crate::toolset::OwnServer;
use crate::worker::TeamLoader;
pub(super) use acp::acp_command;

/// Looks up a variable. The library does not read the environment; its caller does.
pub type VariableLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Everything that a team needs and its file does not contain.
#[derive(Clone)]
#[non_exhaustive]
pub struct Environment {
    /// The HTTP client for providers.
    pub http: HttpClient,
    /// Variables: the keys of providers, and `${env.NAME}` in the file.
    pub variables: VariableLookup,
    /// The directory for the data of toolsets: memories, tokens.
    pub data_dir: PathBuf,
    /// Models that replace those of the file.
    pub model_overrides: Vec<ModelOverride>,
    /// Ends the processes of toolsets when this process ends.
    pub guardian: ProcessGuardian,
    /// The MCP servers of this process. Close it when you are done with all teams.
    #[cfg(feature = "mcp")]
    pub mcp: McpPool,
    /// The program that can sandbox itself if there is no bubblewrap: see `toolset::Sandbox::helper`.
    pub sandbox_helper: Option<PathBuf>,
    /// The server that this process is.
    pub own_server: OwnServer,
}

fluent_setters!(Environment {
    model_overrides: Vec<ModelOverride>,
    guardian: ProcessGuardian,
    sandbox_helper: Option<PathBuf>,
});

impl Environment {
    /// Sets the MCP servers of this process.
    #[cfg(feature = "mcp")]
    #[must_use]
    pub fn mcp(mut self, mcp: McpPool) -> Self {
        self.mcp = mcp;
        self
    }

    /// An environment with defaults. MCP servers inherit `PATH`, `HOME` and a few other variables that
    /// programs need to start and that hold no secrets. Login tokens are stored below `data`.
    pub fn new(
        http: HttpClient,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        data: impl Into<PathBuf>,
    ) -> Environment {
        let (data_dir, guardian): (PathBuf, _) = (data.into(), ProcessGuardian::new());
        let variables: VariableLookup = Arc::new(variables);
        Environment {
            http,
            #[cfg(feature = "mcp")]
            mcp: McpPool::new(mcp::mcp_options(&variables, &data_dir, &guardian)),
            variables,
            data_dir,
            model_overrides: Vec::new(),
            guardian,
            sandbox_helper: None,
            own_server: OwnServer::default(),
        }
    }

    /// Sets the server that this process is. The tools of its teams can neither call it nor read its tokens and
    /// its store.
    #[must_use]
    pub fn own_server(mut self, server: OwnServer) -> Self {
        #[cfg(feature = "mcp")]
        {
            self.mcp = McpPool::new(self.mcp.options().clone().own_server(server.clone()));
        }
        self.own_server = server;
        self
    }
}

/// Replaces a model of the file. The last matching override wins.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ModelOverride {
    /// The agent, or `None` for all agents.
    pub agent: Option<String>,
    /// The model, as in the file: a name under `models`, provider/model, or auto.
    pub model: String,
}

/// The result of [`assemble`].
#[non_exhaustive]
pub struct AssembledTeam {
    /// The team. It has a reference to its file only after the bundle was stored: see
    /// [`Team::with_reference`].
    pub team: Team,
    /// What the team runs without, or differently from the file.
    pub warnings: Vec<FileProblem>,
    /// The limits on tasks, from `limits` of the root agent.
    pub limits: TaskLimits,
    /// The budget of a whole run, for the root's order.
    pub budget: Budget,
}

/// Why a team cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A team file has errors.
    #[error("{}", rendered(.file, .text, .problems))]
    InvalidFile {
        /// The name of the file.
        file: String,
        /// Its text.
        text: String,
        /// Its errors.
        problems: Vec<Problem>,
    },
    /// The agents do not form a team.
    #[error(transparent)]
    Team(#[from] TeamError),
}

fn rendered(file: &str, text: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.render(file, text)).collect::<Vec<_>>().join("\n")
}

/// Builds a team from a team file and the files it refers to. Fails if a file has errors, or if something
/// that it needs is missing: a key, a variable, a file.
pub fn assemble(bundle: &TeamBundle, environment: &Environment) -> Result<AssembledTeam, AssembleError> {
    let cycles = find_cycles(bundle);
    if !cycles.is_empty() {
        let (file, text) = (bundle.name.clone(), bundle.text.clone());
        return Err(AssembleError::InvalidFile { file, text, problems: cycles });
    }
    let mut assembler = TeamAssembler {
        bundle,
        environment,
        models: models::ModelRegistry::default(),
        agents: Vec::new(),
        warnings: Vec::new(),
    };
    let source = TeamFileSource { key: String::new(), name: bundle.name.clone(), text: &bundle.text };
    let team = assembler.assemble_file(source, None)?;
    let root_name = team.root_agent().unwrap_or_default().to_owned();
    let root_part = team.agents.get(&root_name).cloned().unwrap_or_default();
    let mut agents = assembler.agents;
    let at = agents.iter().position(|agent| agent.name.as_str() == root_name).unwrap_or(0);
    let root = agents.remove(at);
    let mut whole =
        Team::with_agents(root, agents)?.with_permissions(agents::permissions(&team.permissions)?);
    for (name, model) in assembler.models.named() {
        whole = whole.with_model(name, model);
    }
    Ok(AssembledTeam {
        team: whole,
        warnings: assembler.warnings,
        limits: agents::limits(&root_part),
        budget: agents::budget(&team.budget),
    })
}

/// A team file that is being assembled.
#[derive(Clone)]
struct TeamFileSource<'a> {
    /// Its path in the bundle; empty for the main file.
    key: String,
    /// The display name.
    name: String,
    text: &'a str,
}

/// Assembles the files of a team.
struct TeamAssembler<'a> {
    bundle: &'a TeamBundle,
    environment: &'a Environment,
    models: models::ModelRegistry,
    agents: Vec<Agent>,
    warnings: Vec<FileProblem>,
}

/// A file that is being assembled, and its problems so far.
struct FileAssembly<'a> {
    source: TeamFileSource<'a>,
    team: TeamFile,
    /// The prefix of its agents' names, if another file refers to it.
    prefix: Option<String>,
    problems: Vec<Problem>,
}

impl FileAssembly<'_> {
    /// The name of an agent in the whole team.
    fn full_name(&self, name: &str) -> String {
        match &self.prefix {
            None => name.to_owned(),
            Some(prefix) if self.team.root_agent() == Some(name) => prefix.clone(),
            Some(prefix) => format!("{prefix}/{name}"),
        }
    }

    /// Adds a possible mistake. It is reported whether or not the file has errors.
    fn doubtful(&mut self, path: &str, message: impl Into<String>, help: String) {
        let problem = Problem::warning(self.team.span_of(path).value, path, message).with_help(help);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn add_error(&mut self, path: &str, message: impl Into<String>) {
        self.add_error_of(ProblemKind::default(), path, message);
    }

    fn add_error_of(&mut self, kind: ProblemKind, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::error(self.team.span_of(path).value, path, message).with_kind(kind));
    }

    /// Reports variables that cannot be filled in. Returns the text to go on with.
    fn add_variable_error(&mut self, path: &str, why: &VariableError) -> String {
        self.add_error_of(why.problem_kind(), path, why.to_string());
        String::new()
    }
}

impl<'a> TeamAssembler<'a> {
    /// Assembles the agents of a file.
    fn assemble_file(
        &mut self,
        source: TeamFileSource<'a>,
        prefix: Option<String>,
    ) -> Result<TeamFile, AssembleError> {
        let reading = parse(source.text);
        let Some(team) = reading.file else {
            let problems = reading.problems.into_iter().filter(Problem::is_error).collect();
            return Err(AssembleError::InvalidFile {
                file: source.name,
                text: source.text.to_owned(),
                problems,
            });
        };
        for problem in reading.problems {
            self.warnings.push(FileProblem { file: source.name.clone(), problem });
        }
        let mut job = FileAssembly { source, team, prefix, problems: Vec::new() };
        let names: Vec<String> = job.team.agents.keys().cloned().collect();
        for name in names {
            self.assemble_agent(&mut job, &name)?;
        }
        if !job.problems.iter().any(Problem::is_error) {
            let file = &job.source.name;
            let doubts = job.problems.into_iter().map(|problem| FileProblem { file: file.clone(), problem });
            self.warnings.extend(doubts);
            return Ok(job.team);
        }
        let (file, text) = (job.source.name, job.source.text.to_owned());
        Err(AssembleError::InvalidFile { file, text, problems: job.problems })
    }

    /// Warns of something that the team runs without.
    fn warn(&mut self, job: &FileAssembly<'_>, path: &str, message: impl Into<String>, help: &str) {
        let problem = Problem::warning(job.team.span_of(path).value, path, message);
        let problem = if help.is_empty() { problem } else { problem.with_help(help) };
        let notice = FileProblem { file: job.source.name.clone(), problem };
        if self.warnings.len() < MAX_PROBLEMS && !self.warnings.contains(&notice) {
            self.warnings.push(notice);
        }
    }
}

/// Builds teams from the bundles in the store, so that any process can continue their tasks.
#[derive(Clone)]
pub struct BundleLoader {
    environment: Environment,
}

impl BundleLoader {
    /// A loader that uses this environment.
    pub fn new(environment: Environment) -> BundleLoader {
        BundleLoader { environment }
    }
}

impl TeamLoader for BundleLoader {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        let bundle = TeamBundle::decode(file).map_err(|error| TeamError::File(error.to_string()))?;
        let assembly =
            assemble(&bundle, &self.environment).map_err(|error| TeamError::File(error.to_string()))?;
        for notice in &assembly.warnings {
            tracing::info!(%notice, "the team differs from its file");
        }
        Ok(assembly.team)
    }
}

#[cfg(test)]
mod tests;
