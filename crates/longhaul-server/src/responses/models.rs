//! The agents of the served teams, as models.

use longhaul::AgentName;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::backend::{Backend, ServedTeam};

/// An agent that a request names as its model.
#[derive(Clone)]
pub(super) struct AgentModel<'a> {
    pub(super) team: &'a ServedTeam,
    pub(super) agent: AgentName,
}

impl AgentModel<'_> {
    /// Its full name: `team/agent`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.team.name, self.agent)
    }
}

/// Finds an agent by `team/agent`, by `team` (its root agent), or by its own name if only one team has it.
pub(super) fn find<'a>(backend: &'a Backend, asked: &str) -> Result<AgentModel<'a>, ApiError> {
    let teams = backend.teams();
    if let Some(team) = teams.iter().find(|team| team.name == asked) {
        return Ok(AgentModel { team, agent: team.team.root().clone() });
    }
    let in_team = |team: &'a ServedTeam, name: &str| {
        let agent = AgentName::from(name);
        team.team.agent(&agent).is_some().then_some(AgentModel { team, agent })
    };
    let full = teams.iter().find_map(|team| {
        let agent = asked.strip_prefix(&*team.name)?.strip_prefix('/')?;
        in_team(team, agent)
    });
    if let Some(found) = full {
        return Ok(found);
    }
    let mut found: Vec<_> = teams.iter().filter_map(|team| in_team(team, asked)).collect();
    let names = |found: &[AgentModel<'_>]| found.iter().map(AgentModel::name).collect::<Vec<_>>().join(", ");
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let asked: String = asked.chars().take(64).collect();
            let have: Vec<&str> = teams.iter().map(|team| &*team.name).collect();
            let message = format!(
                "The model '{asked}' does not exist: a model is a team or a team/agent. Teams here: {}.",
                have.join(", ")
            );
            Err(ApiError::new(http::StatusCode::NOT_FOUND, message).param("model").code("model_not_found"))
        }
        _ => {
            let message = format!("The agent '{asked}' is in several teams; name one of: {}.", names(&found));
            Err(ApiError::invalid("model", message).code("ambiguous_model"))
        }
    }
}

/// Every model: each team by its name, which is its root agent, and each agent as `team/agent`.
pub(super) fn list(backend: &Backend) -> Vec<Value> {
    let of_team = |team: &ServedTeam| {
        let agents = team.agents();
        let root = agents.first().map(|agent| object(&team.name, &agent.description));
        let all = agents
            .into_iter()
            .map(|agent| object(&format!("{}/{}", team.name, agent.name), &agent.description));
        root.into_iter().chain(all).collect::<Vec<_>>()
    };
    backend.teams().iter().flat_map(of_team).collect()
}

/// The model of this name.
pub(super) fn one(backend: &Backend, asked: &str) -> Result<Value, ApiError> {
    let found = find(backend, asked)?;
    let agent = found.team.team.agent(&found.agent);
    Ok(object(asked, agent.map(|agent| agent.description.as_ref()).unwrap_or_default()))
}

fn object(id: &str, description: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": "longhaul", "description": description })
}
