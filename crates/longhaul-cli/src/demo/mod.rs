//! The team of `longhaul demo`: its words are written down in `script.yaml`, its tools are real.
//!
//! Every `longhaul` process knows the team under one name, so that any of them can carry on what another began.

mod pace;

use std::sync::Arc;

use longhaul::agent::TeamError;
use longhaul::model::Model;
use longhaul::model::scripted::{Script, ScriptError, Scripted};
use longhaul::toolset::Files;
use longhaul::worker::TeamLoader;
use longhaul::{Agent, Dialect, Team};

pub(crate) use pace::Pace;

/// What the lead is asked. Its first words are what the script knows it by.
pub(crate) const TASK: &str =
    "Take stock of this directory\nSend out your agents, and tell me what they found.";

const SCRIPT: &str = include_str!("script.yaml");

/// Why there is no demo: only a fault in Longhaul itself can bring this about.
#[derive(Debug)]
pub(crate) enum NoDemo {
    Script(ScriptError),
    Team(TeamError),
}

impl std::fmt::Display for NoDemo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoDemo::Script(error) => error.fmt(f),
            NoDemo::Team(error) => error.fmt(f),
        }
    }
}

impl From<ScriptError> for NoDemo {
    fn from(error: ScriptError) -> Self {
        NoDemo::Script(error)
    }
}

impl From<TeamError> for NoDemo {
    fn from(error: TeamError) -> Self {
        NoDemo::Team(error)
    }
}

/// The team, speaking at a pace.
pub(crate) fn team(pace: Pace) -> Result<Team, NoDemo> {
    Ok(play(Script::parse("demo/script.yaml", SCRIPT)?, pace)?.named("demo"))
}

/// A script of somebody else's, as it is kept in the store: tasks of its team can be carried on without the file.
pub(crate) fn kept(script: &str) -> Vec<u8> {
    format!("{KEPT}{script}").into_bytes()
}

/// Whether this is such a script.
pub(crate) fn is_kept(bytes: &[u8]) -> bool {
    bytes.starts_with(KEPT.as_bytes())
}

const KEPT: &str = "#!longhaul demo --script\n";

/// Makes the demo's team of a script that is kept in the store.
pub(crate) struct Scripts(pub(crate) Pace);

impl TeamLoader for Scripts {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        let text = std::str::from_utf8(file).unwrap_or_default();
        let script = text.strip_prefix(KEPT).ok_or_else(|| TeamError::File("it is no script".to_owned()))?;
        let script =
            Script::parse("the script", script).map_err(|error| TeamError::File(error.to_string()))?;
        play(script, self.0)
    }
}

/// The demo's team, playing a script.
pub(crate) fn play(script: Script, pace: Pace) -> Result<Team, TeamError> {
    let model: Arc<dyn Model> = Arc::new(pace::Paced::new(Scripted::new(Arc::new(script)), pace));
    let mut lead = Agent::builder("lead")
        .description("Sends out the others, and tells what they found.")
        .model(model.clone())
        .dialect(Dialect::Background);
    for (name, description) in [
        ("cartographer", "Lists directories and counts lines."),
        ("librarian", "Reads what a project says about itself."),
        ("auditor", "Finds notes that people left for later."),
        ("examiner", "Finds tests."),
    ] {
        let agent = Agent::builder(name).description(description).model(model.clone()).toolset(Files::new());
        lead = lead.sub_agent(agent.build()?);
    }
    Team::new(lead.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_demo() {
        let team = team(Pace::NONE).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(team.agents().count(), 5);
    }
}
