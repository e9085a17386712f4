//! Teams from files: read, checked, put together, and kept in the store so that any process can carry their tasks on.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::Arc;

use longhaul::agent::TeamError;
use longhaul::dispatch::Limits;
use longhaul::entry::TeamRef;
#[cfg(unix)]
use longhaul::process::Watchman;
use longhaul::store::Store;
use longhaul::teamfile::{self, AssembleError, Bundle, Loader, ModelOverride, Outfit};
#[cfg(unix)]
use longhaul::toolset::{McpOptions, McpPool};
use longhaul::worker::TeamLoader;
use longhaul::{Budget, Team};

use crate::args::{Outside, RunArgs};
use crate::cmd::Desk;
use crate::demo::{self, Pace};
use crate::exit::{Code, Trouble};
use crate::outside::{self, Variables};
use crate::place::Place;
use crate::view::clean;

/// A team that was made of a file.
pub(crate) struct Made {
    pub(crate) team: Team,
    /// The commands of its root: name and instruction.
    pub(crate) commands: Vec<(String, String)>,
    pub(crate) limits: Limits,
    /// What a whole run may use, as the file says.
    pub(crate) budget: Budget,
    pub(crate) bundle: Bundle,
}

/// The host of a page, which has been checked to be one of the web.
#[cfg(unix)]
fn host_of(page: &str) -> &str {
    let rest = page.split_once("://").map_or(page, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// What teams of this process are put together with.
pub(crate) fn outfit(desk: &Desk, outside: &Outside, place: &Place) -> Result<Outfit, Trouble> {
    let variables = Variables::read(outside)?;
    let data = place.directory().to_owned();
    let http = outside::http(outside, &variables)?;
    let outfit = Outfit::new(http, move |name| variables.get(name), data);
    #[cfg(unix)]
    let watchman = supervised(outfit.watchman.clone());
    #[cfg(unix)]
    let mcp = {
        let screen = desk.screen.clone();
        let show = move |server: &str, page: &str| {
            use std::io::Write as _;
            let host = host_of(page);
            let text = format!(
                "the MCP server '{server}' asks for a login on {host}; open this page in a browser:\n{page}"
            );
            // Whether somebody is there shows when they come back.
            let _ = writeln!(screen.clone(), "{}", clean(&text));
        };
        let watchman = watchman.clone();
        McpPool::new(McpOptions { login: Some(Arc::new(show)), watchman, ..outfit.mcp.options().clone() })
    };
    Ok(Outfit {
        helper: std::env::current_exe().ok(),
        #[cfg(unix)]
        watchman,
        #[cfg(unix)]
        mcp,
        ..outfit
    })
}

/// Commands, hooks and MCP servers are supervised by this program, where that is possible.
#[cfg(unix)]
fn supervised(watchman: Watchman) -> Watchman {
    match cfg!(target_os = "linux") {
        // It is the same program, also when another version has been put in its place.
        true => watchman.helper("/proc/self/exe"),
        false => watchman,
    }
}

/// Ends what teams of this process have started, and waits for that.
pub(crate) async fn close(outfit: &Outfit) {
    #[cfg(unix)]
    outfit.mcp.close().await;
    #[cfg(not(unix))]
    let _ = outfit;
}

/// Makes a team of a file that works in a directory. What it runs without is told on standard error.
pub(crate) fn make(
    desk: &Desk,
    outfit: &Outfit,
    args: &RunArgs,
    file: &Path,
    dir: &Path,
) -> Result<Made, Trouble> {
    let mut bundle = Bundle::gather(file).map_err(|error| {
        let hint = match file.is_dir() {
            true => "name a team file in it",
            false => "`longhaul init FILE` writes one to begin with",
        };
        Trouble::new(Code::Team, format!("the team file {error}")).hint(hint)
    })?;
    bundle.models = args.model.iter().map(|typed| chosen(typed)).collect();
    for chosen in &bundle.models {
        names_a_model(&chosen.model, &bundle)?;
    }
    bundle.working_dir = Some(dir.to_owned());
    let assembly = teamfile::assemble(&bundle, outfit).map_err(|error| wrong(&error, file))?;
    for name in bundle.models.iter().filter_map(|chosen| chosen.agent.as_deref()) {
        known(&assembly.team, name, "--model", file)?;
    }
    for notice in &assembly.notices {
        desk.note(&format!("warning: {notice}"));
    }
    Ok(Made {
        team: assembly.team,
        commands: commands(&bundle),
        limits: assembly.limits,
        budget: assembly.budget,
        bundle,
    })
}

/// The commands of a team's root: name and instruction.
fn commands(bundle: &Bundle) -> Vec<(String, String)> {
    let read = teamfile::read(&bundle.text).file;
    let commands = read.and_then(|file| {
        let root = file.agents.get(file.root()?)?;
        let shared = root.use_commands.iter().filter_map(|name| file.commands.get(name)).flatten();
        let all = shared.chain(&root.commands).map(|(name, part)| (name.clone(), part.instruction.clone()));
        Some(all.collect())
    });
    commands.unwrap_or_default()
}

/// What people call a team: the name of its file, where that is known.
pub(crate) async fn name(store: &dyn Store, team: &TeamRef) -> String {
    let TeamRef::File(digest) = team else { return team.to_string() };
    let kept = store.kept(digest.clone()).await.ok().flatten();
    match kept.filter(|file| Bundle::is_one(file)).and_then(|file| Bundle::decode(&file).ok()) {
        Some(bundle) => format!("team file {}", clean(&bundle.name)),
        None => team.to_string(),
    }
}

/// The commands of a team whose file is in the store.
pub(crate) async fn kept_commands(
    store: &dyn Store,
    team: &TeamRef,
) -> Result<Vec<(String, String)>, Trouble> {
    let TeamRef::File(digest) = team else { return Ok(Vec::new()) };
    let file = store.kept(digest.clone()).await?;
    let bundle = file.filter(|file| Bundle::is_one(file)).and_then(|file| Bundle::decode(&file).ok());
    Ok(bundle.map(|bundle| commands(&bundle)).unwrap_or_default())
}

/// That there is somebody to ask where a model is `auto`: better said before there is a task than by its failure.
pub(crate) async fn somebody_to_ask(team: &Team, outfit: &Outfit) -> Result<(), Trouble> {
    if team.agents().all(|agent| agent.model.name() != "auto") {
        return Ok(());
    }
    let keys = |name: &str| (outfit.variables)(name).map(Into::into);
    match outfit.http.auto(&keys).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Trouble::new(Code::Team, format!("model auto: {error}"))
            .hint("keys may also be in a file: `--env-from-file FILE`; `longhaul init --scripted` writes a team that needs none")),
    }
}

/// That a team has an agent that was named on the command line.
pub(crate) fn known(team: &Team, name: &str, flag: &str, file: &Path) -> Result<(), Trouble> {
    if team.agent(&name.into()).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = team.agents().map(|agent| agent.name.as_str()).collect();
    let what = format!("{flag}: there is no agent '{name}' in {}", file.display());
    Err(Trouble::new(Code::Usage, what).hint(format!("there are: {}", names.join(", "))))
}

impl Made {
    /// The team, known by its file, which is kept in the store.
    pub(crate) async fn kept(&self, store: &dyn Store) -> Result<Team, Trouble> {
        let digest = store.keep(self.bundle.encode()).await?;
        Ok(self.team.clone().kept_as(TeamRef::File(digest)))
    }
}

/// `provider/model` is for all agents, `agent=provider/model` for one.
fn chosen(typed: &str) -> ModelOverride {
    match typed.split_once('=') {
        Some((agent, model)) => ModelOverride { agent: Some(agent.to_owned()), model: model.to_owned() },
        None => ModelOverride { agent: None, model: typed.to_owned() },
    }
}

/// That what was chosen on the command line is a model, or is called so in the file: it is not the file's fault.
fn names_a_model(chosen: &str, bundle: &Bundle) -> Result<(), Trouble> {
    let named = teamfile::read(&bundle.text).file.map(|file| file.models).unwrap_or_default();
    if chosen == "auto" || chosen.contains('/') || named.contains_key(chosen) {
        return Ok(());
    }
    let own = match named.is_empty() {
        true => String::new(),
        false => {
            format!(", or a model of the file ({})", named.keys().cloned().collect::<Vec<_>>().join(", "))
        }
    };
    Err(Trouble::new(Code::Usage, format!("--model: '{chosen}' does not name a model"))
        .hint(format!("write provider/model, such as openai/gpt-5{own}")))
}

fn wrong(error: &AssembleError, file: &Path) -> Trouble {
    let name = file.display();
    let circle = |problem: &teamfile::Problem| problem.message.ends_with("is on the way to itself");
    match error {
        AssembleError::Wrong { text, problems, .. }
            if teamfile::read(text).errors() == 0 && !problems.iter().any(circle) =>
        {
            let hint = match problems.iter().any(teamfile::Problem::is_of_environment) {
                true => {
                    "keys and variables come from the environment, or from a file: `--env-from-file FILE`; `longhaul \
                     demo` needs none"
                }
                false => "docs/teams.md tells what can be in a team file",
            };
            Trouble::new(Code::Team, format!("the team file is right, but cannot be run here\n\n{error}"))
                .hint(hint)
        }
        AssembleError::Wrong { .. } => Trouble::new(Code::Team, format!("the team file is wrong\n\n{error}"))
            .hint(format!("`longhaul check {name}` tells more")),
        AssembleError::Team(error) => Trouble::new(Code::Team, format!("{name}: {error}"))
            .hint(format!("`longhaul check {name}` tells more")),
    }
}

/// The bounds that the file of a team sets, if it has one.
pub(crate) async fn limits(
    store: &dyn Store,
    team: &TeamRef,
    outfit: &Outfit,
) -> Result<Option<Limits>, Trouble> {
    let TeamRef::File(digest) = team else { return Ok(None) };
    let file = store.kept(digest.clone()).await?;
    let bundle = file.filter(|file| Bundle::is_one(file)).and_then(|file| Bundle::decode(&file).ok());
    // What is wrong with it is told by whoever runs its tasks.
    Ok(bundle.and_then(|bundle| teamfile::assemble(&bundle, outfit).ok()).map(|made| made.limits))
}

/// Makes teams of what is kept in the store: team files, and scripts that the demo was given.
pub(crate) struct Kept {
    pub(crate) scripts: demo::Scripts,
    pub(crate) files: Loader,
}

impl Kept {
    pub(crate) fn new(pace: Pace, outfit: Outfit) -> Kept {
        Kept { scripts: demo::Scripts(pace), files: Loader::new(outfit) }
    }

    /// Whether these bytes are one of the two.
    pub(crate) fn knows(bytes: &[u8]) -> bool {
        demo::is_kept(bytes) || Bundle::is_one(bytes)
    }
}

impl TeamLoader for Kept {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        if Bundle::is_one(file) { self.files.load(file) } else { self.scripts.load(file) }
    }
}

/// The directory that a team works in.
pub(crate) fn working_dir(chosen: Option<&Path>) -> Result<PathBuf, Trouble> {
    let dir = chosen.unwrap_or(Path::new("."));
    let cannot = |why: String| {
        Trouble::new(Code::Usage, format!("the working directory {} cannot be used: {why}", dir.display()))
            .hint("`--working-dir DIR` names one that exists")
    };
    let real = dir.canonicalize().map_err(|error| cannot(error.to_string()))?;
    if real.is_dir() { Ok(real) } else { Err(cannot("it is not a directory".to_owned())) }
}
