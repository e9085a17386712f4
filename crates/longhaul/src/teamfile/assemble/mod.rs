//! Makes a [`Team`] of a team file: models that can be asked, tools that can be called, agents that know one another.

mod agents;
mod auto;
mod hooks;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
mod models;
mod relay;
mod toolsets;

use std::path::PathBuf;
use std::sync::Arc;

use super::bundle::{Bundle, Notice};
use super::problem::{MOST, Problem};
use super::{TeamFile, read};
use crate::agent::{Agent, Team, TeamError};
use crate::dispatch::Limits;
use crate::entry::Budget;
use crate::model::http::Http;
use crate::process::Watchman;
#[cfg(all(unix, feature = "mcp"))]
use crate::toolset::McpPool;
use crate::worker::TeamLoader;

/// Looks up a variable. The library reads no environment; whoever calls it does.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a team is put together with: all that is not in its file.
#[derive(Clone)]
pub struct Outfit {
    /// The way to providers.
    pub http: Http,
    /// Variables: keys of providers, and what stands in the file as `${env.NAME}`.
    pub variables: Lookup,
    /// Where toolsets keep what they keep: memories, tokens.
    pub data: PathBuf,
    /// Other models than those of the file.
    pub models: Vec<ModelOverride>,
    /// Sees to it that the processes of toolsets end with this one.
    pub watchman: Watchman,
    /// The MCP servers of this process. Whoever is done with all teams closes it.
    #[cfg(all(unix, feature = "mcp"))]
    pub mcp: McpPool,
    /// The program that can confine itself for a sandbox where there is no bubblewrap: see `toolset::Sandbox::helper`.
    pub helper: Option<PathBuf>,
}

impl Outfit {
    /// An outfit with nothing special. MCP servers get these variables of the caller's, if they are set: `PATH`, `HOME`
    /// and a few more that programs need to start and that are no secrets. Tokens of logins are kept below `data`.
    pub fn new(
        http: Http,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        data: impl Into<PathBuf>,
    ) -> Outfit {
        let (data, watchman): (PathBuf, _) = (data.into(), Watchman::new());
        let variables: Lookup = Arc::new(variables);
        Outfit {
            http,
            #[cfg(all(unix, feature = "mcp"))]
            mcp: McpPool::new(mcp::options(&variables, &data, &watchman)),
            variables,
            data,
            models: Vec::new(),
            watchman,
            helper: None,
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
pub struct Assembly {
    /// The team. It is known by its file only when it was kept: see [`Team::kept_as`].
    pub team: Team,
    /// What it runs without, or otherwise than written.
    pub notices: Vec<Notice>,
    /// Bounds on how many tasks there may be, as the root's `limits` say.
    pub limits: Limits,
    /// What a whole run may use: the budget of the tree of a root's order.
    pub budget: Budget,
}

/// Why there is no team.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A team file is wrong.
    #[error("{}", rendered(.file, .text, .problems))]
    Wrong {
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
pub fn assemble(bundle: &Bundle, outfit: &Outfit) -> Result<Assembly, AssembleError> {
    let mut workshop = Workshop {
        bundle,
        outfit,
        models: models::Models::default(),
        agents: Vec::new(),
        open: Vec::new(),
        notices: Vec::new(),
    };
    let source = Source { key: String::new(), name: bundle.name.clone(), text: &bundle.text };
    let team = workshop.file(source, None)?;
    let root_name = team.root().unwrap_or_default().to_owned();
    let root_part = team.agents.get(&root_name).cloned().unwrap_or_default();
    let mut agents = workshop.agents;
    let at = agents.iter().position(|agent| agent.name.as_str() == root_name).unwrap_or(0);
    let root = agents.remove(at);
    let mut whole = Team::of(root, agents)?.with_permissions(agents::permissions(&team.permissions)?);
    for (name, model) in workshop.models.named() {
        whole = whole.with_model(name, model);
    }
    Ok(Assembly {
        team: whole,
        notices: workshop.notices,
        limits: agents::limits(&root_part),
        budget: agents::budget(&team.budget),
    })
}

/// A team file that is being put together.
#[derive(Clone)]
struct Source<'a> {
    /// Its path in the bundle; empty for the first.
    key: String,
    /// What people call it.
    name: String,
    text: &'a str,
}

/// Where a team is put together.
struct Workshop<'a> {
    bundle: &'a Bundle,
    outfit: &'a Outfit,
    models: models::Models,
    agents: Vec<Agent>,
    /// The files on the way to the one that is being put together.
    open: Vec<String>,
    notices: Vec<Notice>,
}

/// What is being put together: the file, and what went wrong with it so far.
struct Job<'a> {
    source: Source<'a>,
    team: TeamFile,
    /// What its agents' names begin with, where another file brought it.
    prefix: Option<String>,
    problems: Vec<Problem>,
}

impl Job<'_> {
    /// An agent's name in the whole team.
    fn full_name(&self, name: &str) -> String {
        match &self.prefix {
            None => name.to_owned(),
            Some(prefix) if self.team.root() == Some(name) => prefix.clone(),
            Some(prefix) => format!("{prefix}/{name}"),
        }
    }

    /// Something that may be a mistake. It is told whether the file can be run or not.
    fn doubtful(&mut self, path: &str, message: impl Into<String>, help: String) {
        let problem = Problem::warning(self.team.place(path).value, path, message).help(help);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn wrong(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::error(self.team.place(path).value, path, message));
    }
}

impl<'a> Workshop<'a> {
    /// Puts the agents of a file together.
    fn file(&mut self, source: Source<'a>, prefix: Option<String>) -> Result<TeamFile, AssembleError> {
        let reading = read(source.text);
        let Some(team) = reading.file else {
            let problems = reading.problems.into_iter().filter(Problem::is_error).collect();
            return Err(AssembleError::Wrong { file: source.name, text: source.text.to_owned(), problems });
        };
        for problem in reading.problems {
            self.notices.push(Notice { file: source.name.clone(), problem });
        }
        self.open.push(source.key.clone());
        let mut job = Job { source, team, prefix, problems: Vec::new() };
        let names: Vec<String> = job.team.agents.keys().cloned().collect();
        for name in names {
            self.agent(&mut job, &name)?;
        }
        self.open.pop();
        if !job.problems.iter().any(Problem::is_error) {
            let file = &job.source.name;
            let doubts = job.problems.into_iter().map(|problem| Notice { file: file.clone(), problem });
            self.notices.extend(doubts);
            return Ok(job.team);
        }
        let (file, text) = (job.source.name, job.source.text.to_owned());
        Err(AssembleError::Wrong { file, text, problems: job.problems })
    }

    /// Tells something that the team runs without.
    fn notice(&mut self, job: &Job<'_>, path: &str, message: impl Into<String>, help: &str) {
        let problem = Problem::warning(job.team.place(path).value, path, message);
        let problem = if help.is_empty() { problem } else { problem.help(help) };
        let notice = Notice { file: job.source.name.clone(), problem };
        if self.notices.len() < MOST && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }
}

/// Makes teams of the bundles that are kept in the store, so that any process can carry their tasks on.
#[derive(Clone)]
pub struct Loader {
    outfit: Outfit,
}

impl Loader {
    /// A loader with an outfit.
    pub fn new(outfit: Outfit) -> Loader {
        Loader { outfit }
    }
}

impl TeamLoader for Loader {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        let bundle = Bundle::decode(file).map_err(TeamError::File)?;
        let assembly = assemble(&bundle, &self.outfit).map_err(|error| TeamError::File(error.to_string()))?;
        for notice in &assembly.notices {
            tracing::info!(%notice, "the team is not quite as it is written");
        }
        Ok(assembly.team)
    }
}

#[cfg(test)]
mod tests;
