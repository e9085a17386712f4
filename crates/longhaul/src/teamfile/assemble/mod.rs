//! Makes a [`Team`] of a team file: models that can be asked, tools that can be called, agents that know one another.

mod agents;
mod composite_models;
mod hooks;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
mod models;
mod remote_agent;
mod toolsets;

use std::path::PathBuf;
use std::sync::Arc;

use super::bundle::{FileProblem, TeamBundle};
use super::problem::{MAX_PROBLEMS, Problem};
use super::{TeamFile, parse};
use crate::agent::{Agent, Team, TeamError};
use crate::dispatch::TaskLimits;
use crate::entry::Budget;
use crate::model::http::HttpClient;
use crate::process::ProcessGuardian;
#[cfg(all(unix, feature = "mcp"))]
use crate::toolset::McpPool;
use crate::worker::TeamLoader;

/// Looks up a variable. The library reads no environment; whoever calls it does.
pub type VariableLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a team is put together with: all that is not in its file.
#[derive(Clone)]
pub struct Environment {
    /// The way to providers.
    pub http: HttpClient,
    /// Variables: keys of providers, and what stands in the file as `${env.NAME}`.
    pub variables: VariableLookup,
    /// Where toolsets keep what they keep: memories, tokens.
    pub data_dir: PathBuf,
    /// Other models than those of the file.
    pub model_overrides: Vec<ModelOverride>,
    /// Sees to it that the processes of toolsets end with this one.
    pub watchman: ProcessGuardian,
    /// The MCP servers of this process. Whoever is done with all teams closes it.
    #[cfg(all(unix, feature = "mcp"))]
    pub mcp: McpPool,
    /// The program that can confine itself for a sandbox where there is no bubblewrap: see `toolset::Sandbox::helper`.
    pub sandbox_helper: Option<PathBuf>,
}

impl Environment {
    /// An outfit with nothing special. MCP servers get these variables of the caller's, if they are set: `PATH`, `HOME`
    /// and a few more that programs need to start and that are no secrets. Tokens of logins are kept below `data`.
    pub fn new(
        http: HttpClient,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        data: impl Into<PathBuf>,
    ) -> Environment {
        let (data, watchman): (PathBuf, _) = (data.into(), ProcessGuardian::new());
        let variables: VariableLookup = Arc::new(variables);
        Environment {
            http,
            #[cfg(all(unix, feature = "mcp"))]
            mcp: McpPool::new(mcp::mcp_options(&variables, &data, &watchman)),
            variables,
            data_dir: data,
            model_overrides: Vec::new(),
            watchman,
            sandbox_helper: None,
        }
    }
}

/// Another model than the file says. The last one that fits counts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ModelOverride {
    /// For which agent; for all, if `None`.
    pub agent: Option<String>,
    /// The model, in the words of the file: a name under `models`, provider/model, or auto.
    pub model: String,
}

/// A team that has been put together.
pub struct AssembledTeam {
    /// The team. It is known by its file only when it was kept: see [`Team::with_reference`].
    pub team: Team,
    /// What it runs without, or otherwise than written.
    pub warnings: Vec<FileProblem>,
    /// Bounds on how many tasks there may be, as the root's `limits` say.
    pub limits: TaskLimits,
    /// What a whole run may use: the budget of the tree of a root's order.
    pub budget: Budget,
}

/// Why there is no team.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A team file is wrong.
    #[error("{}", rendered(.file, .text, .problems))]
    InvalidFile {
        /// What the file is called.
        file: String,
        /// Its text.
        text: String,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
    /// The agents do not make a team.
    #[error(transparent)]
    Team(#[from] TeamError),
}

fn rendered(file: &str, text: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.render(file, text)).collect::<Vec<_>>().join("\n")
}

/// Makes a team of a team file and what it refers to.
pub fn assemble(bundle: &TeamBundle, outfit: &Environment) -> Result<AssembledTeam, AssembleError> {
    let mut workshop = TeamAssembler {
        bundle,
        environment: outfit,
        models: models::ModelRegistry::default(),
        agents: Vec::new(),
        open: Vec::new(),
        warnings: Vec::new(),
    };
    let source = TeamFileSource { key: String::new(), name: bundle.name.clone(), text: &bundle.text };
    let team = workshop.assemble_file(source, None)?;
    let root_name = team.root_agent().unwrap_or_default().to_owned();
    let root_part = team.agents.get(&root_name).cloned().unwrap_or_default();
    let mut agents = workshop.agents;
    let at = agents.iter().position(|agent| agent.name.as_str() == root_name).unwrap_or(0);
    let root = agents.remove(at);
    let mut whole =
        Team::with_agents(root, agents)?.with_permissions(agents::permissions(&team.permissions)?);
    for (name, model) in workshop.models.named() {
        whole = whole.with_model(name, model);
    }
    Ok(AssembledTeam {
        team: whole,
        warnings: workshop.warnings,
        limits: agents::limits(&root_part),
        budget: agents::budget(&team.budget),
    })
}

/// A team file that is being put together.
#[derive(Clone)]
struct TeamFileSource<'a> {
    /// Its path in the bundle; empty for the first.
    key: String,
    /// What people call it.
    name: String,
    text: &'a str,
}

/// Where a team is put together.
struct TeamAssembler<'a> {
    bundle: &'a TeamBundle,
    environment: &'a Environment,
    models: models::ModelRegistry,
    agents: Vec<Agent>,
    /// The files on the way to the one that is being put together.
    open: Vec<String>,
    warnings: Vec<FileProblem>,
}

/// What is being put together: the file, and what went wrong with it so far.
struct FileAssembly<'a> {
    source: TeamFileSource<'a>,
    team: TeamFile,
    /// What its agents' names begin with, where another file brought it.
    prefix: Option<String>,
    problems: Vec<Problem>,
}

impl FileAssembly<'_> {
    /// An agent's name in the whole team.
    fn full_name(&self, name: &str) -> String {
        match &self.prefix {
            None => name.to_owned(),
            Some(prefix) if self.team.root_agent() == Some(name) => prefix.clone(),
            Some(prefix) => format!("{prefix}/{name}"),
        }
    }

    /// Something that may be a mistake. It is told whether the file can be run or not.
    fn doubtful(&mut self, path: &str, message: impl Into<String>, help: String) {
        let problem = Problem::warning(self.team.span_of(path).value, path, message).with_help(help);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn add_error(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::error(self.team.span_of(path).value, path, message));
    }
}

impl<'a> TeamAssembler<'a> {
    /// Puts the agents of a file together.
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
        self.open.push(source.key.clone());
        let mut job = FileAssembly { source, team, prefix, problems: Vec::new() };
        let names: Vec<String> = job.team.agents.keys().cloned().collect();
        for name in names {
            self.assemble_agent(&mut job, &name)?;
        }
        self.open.pop();
        if !job.problems.iter().any(Problem::is_error) {
            let file = &job.source.name;
            let doubts = job.problems.into_iter().map(|problem| FileProblem { file: file.clone(), problem });
            self.warnings.extend(doubts);
            return Ok(job.team);
        }
        let (file, text) = (job.source.name, job.source.text.to_owned());
        Err(AssembleError::InvalidFile { file, text, problems: job.problems })
    }

    /// Tells something that the team runs without.
    fn warn(&mut self, job: &FileAssembly<'_>, path: &str, message: impl Into<String>, help: &str) {
        let problem = Problem::warning(job.team.span_of(path).value, path, message);
        let problem = if help.is_empty() { problem } else { problem.with_help(help) };
        let notice = FileProblem { file: job.source.name.clone(), problem };
        if self.warnings.len() < MAX_PROBLEMS && !self.warnings.contains(&notice) {
            self.warnings.push(notice);
        }
    }
}

/// Makes teams of the bundles that are kept in the store, so that any process can carry their tasks on.
#[derive(Clone)]
pub struct BundleLoader {
    environment: Environment,
}

impl BundleLoader {
    /// A loader with an outfit.
    pub fn new(outfit: Environment) -> BundleLoader {
        BundleLoader { environment: outfit }
    }
}

impl TeamLoader for BundleLoader {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        let bundle = TeamBundle::decode(file).map_err(TeamError::File)?;
        let assembly =
            assemble(&bundle, &self.environment).map_err(|error| TeamError::File(error.to_string()))?;
        for notice in &assembly.warnings {
            tracing::info!(%notice, "the team is not quite as it is written");
        }
        Ok(assembly.team)
    }
}

#[cfg(test)]
mod tests;
