//! The team of `longhaul demo`: its replies are scripted in `script.yaml`, its tools are real.
//!
//! Every `longhaul` process knows the team by one name, so that any of them can resume its tasks.

mod pace;

use std::sync::Arc;

use longhaul::agent::TeamError;
use longhaul::model::Model;
use longhaul::model::scripted::{ModelScript, ModelScriptError, ScriptedModel};
use longhaul::toolset::ReadOnlyFiles;
use longhaul::worker::TeamLoader;
use longhaul::{Agent, SubAgentDialect, Team};

pub(crate) use pace::DemoPace;

/// The prompt of the lead. The script matches on its first words.
pub(crate) const DEMO_TASK: &str =
    "Take stock of this directory\nSend out your agents, and tell me what they found.";

const SCRIPT: &str = include_str!("script.yaml");

/// Why the demo cannot start: always a bug in Longhaul.
#[derive(Debug)]
pub(crate) enum DemoError {
    Script(ModelScriptError),
    Team(TeamError),
}

impl std::fmt::Display for DemoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DemoError::Script(error) => error.fmt(f),
            DemoError::Team(error) => error.fmt(f),
        }
    }
}

impl From<ModelScriptError> for DemoError {
    fn from(error: ModelScriptError) -> Self {
        DemoError::Script(error)
    }
}

impl From<TeamError> for DemoError {
    fn from(error: TeamError) -> Self {
        DemoError::Team(error)
    }
}

/// Returns the demo's team, at this pace.
pub(crate) fn demo_team(pace: DemoPace) -> Result<Team, DemoError> {
    Ok(team_from_script(ModelScript::parse("demo/script.yaml", SCRIPT)?, pace)?.with_name("demo"))
}

/// Encodes a user's script for the store, so that tasks of its team can be resumed without the file.
pub(crate) fn stored_script(script: &str) -> Vec<u8> {
    format!("{STORED_SCRIPT_PREFIX}{script}").into_bytes()
}

/// Returns whether these bytes are such a script.
pub(crate) fn is_stored_script(bytes: &[u8]) -> bool {
    bytes.starts_with(STORED_SCRIPT_PREFIX.as_bytes())
}

const STORED_SCRIPT_PREFIX: &str = "#!longhaul demo --script\n";

/// Loads the demo's team with a script from the store.
pub(crate) struct DemoScriptLoader(pub(crate) DemoPace);

impl TeamLoader for DemoScriptLoader {
    fn load(&self, file: &[u8]) -> Result<Team, TeamError> {
        let text = std::str::from_utf8(file).unwrap_or_default();
        let script = text
            .strip_prefix(STORED_SCRIPT_PREFIX)
            .ok_or_else(|| TeamError::File("it is not a script".to_owned()))?;
        let script =
            ModelScript::parse("the script", script).map_err(|error| TeamError::File(error.to_string()))?;
        team_from_script(script, self.0)
    }
}

/// Returns the demo's team with this script.
pub(crate) fn team_from_script(script: ModelScript, pace: DemoPace) -> Result<Team, TeamError> {
    let model: Arc<dyn Model> = Arc::new(pace::PacedModel::new(ScriptedModel::new(Arc::new(script)), pace));
    let mut lead = Agent::builder("lead")
        .description("Sends out the others, and tells what they found.")
        .model(model.clone())
        .dialect(SubAgentDialect::Background);
    for (name, description) in [
        ("cartographer", "Lists directories and counts lines."),
        ("librarian", "Reads what a project says about itself."),
        ("auditor", "Finds notes that people left for later."),
        ("examiner", "Finds tests."),
    ] {
        let agent =
            Agent::builder(name).description(description).model(model.clone()).toolset(ReadOnlyFiles::new());
        lead = lead.sub_agent(agent.build()?);
    }
    Team::new(lead.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_demo() {
        let team = demo_team(DemoPace::NONE).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(team.agents().count(), 5);
    }
}
