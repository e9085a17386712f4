//! What a client can choose for a session before its first prompt: agent, model, and whether it is asked. Pure.

use longhaul::Order;
use longhaul::id::AgentName;
use serde_json::{Value, json};

use super::connection::{INVALID_PARAMS, RequestError};
use crate::backend::ServedTeam;

/// The value of "the agent's own model".
const OWN: &str = "default";
/// The modes: people are asked, or everything that is not denied is allowed.
const MODES: [(&str, &str, &str); 2] = [
    ("ask", "Ask", "What is neither allowed nor denied by the team's rules is asked for."),
    (
        "yolo",
        "Allow everything",
        "What the team's rules do not deny is allowed, for all tasks of the session.",
    ),
];

/// What was chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SessionOptions {
    agent: Option<AgentName>,
    model: Option<String>,
    approved: bool,
}

impl SessionOptions {
    /// What was chosen for a session that has begun.
    pub(super) fn of_order(order: &Order) -> SessionOptions {
        SessionOptions { agent: order.agent.clone(), model: order.model.clone(), approved: order.approved }
    }

    /// Sets the order of the session's task.
    pub(super) fn apply(&self, order: &mut Order) {
        order.agent.clone_from(&self.agent);
        order.model.clone_from(&self.model);
        order.approved = self.approved;
    }

    fn mode(&self) -> &'static str {
        MODES[usize::from(self.approved)].0
    }

    /// Chooses a value.
    pub(super) fn set(&mut self, team: &ServedTeam, option: &str, value: &str) -> Result<(), RequestError> {
        let wrong = |what: String| Err(RequestError::new(INVALID_PARAMS, what));
        match option {
            "agent" => match team.agents().iter().find(|agent| agent.name.as_str() == value) {
                Some(agent) => self.agent = Some(agent.name.clone()),
                None => return wrong(format!("there is no agent '{value}'")),
            },
            "model" if value == OWN => self.model = None,
            "model" if team.team.model(value).is_some() => self.model = Some(value.to_owned()),
            "model" => return wrong(format!("there is no model '{value}'")),
            "mode" => match MODES.iter().position(|(id, ..)| *id == value) {
                Some(at) => self.approved = at == 1,
                None => return wrong(format!("there is no mode '{value}'")),
            },
            _ => return wrong(format!("there is no option '{option}'")),
        }
        Ok(())
    }

    /// The options as the protocol describes them.
    pub(super) fn describe(&self, team: &ServedTeam) -> Value {
        let select = |id: &str, name: &str, category: &str, current: &str, options: Vec<Value>| {
            json!({
                "id": id, "name": name, "category": category, "type": "select", "currentValue": current, "options": options,
            })
        };
        let value = |value: &str, name: &str, description: &str| json!({ "value": value, "name": name, "description": description });
        let agents = team.agents();
        let agent = self.agent.as_ref().unwrap_or_else(|| team.team.root());
        let agents =
            agents.iter().map(|agent| value(agent.name.as_str(), agent.name.as_str(), &agent.description));
        let own = value(OWN, "The agent's own", "");
        let names = team.team.model_names();
        let models = std::iter::once(own).chain(names.iter().map(|name| value(name, name, "")));
        let modes = MODES.iter().map(|(id, name, description)| value(id, name, description));
        json!([
            select("agent", "Agent", "_agent", agent.as_str(), agents.collect()),
            select("model", "Model", "model", self.model.as_deref().unwrap_or(OWN), models.collect()),
            select("mode", "Approvals", "mode", self.mode(), modes.collect()),
        ])
    }

    /// The result of opening a session.
    pub(super) fn opened(&self, team: &ServedTeam) -> Value {
        let modes: Vec<Value> = MODES
            .iter()
            .map(|(id, name, description)| json!({ "id": id, "name": name, "description": description }))
            .collect();
        json!({
            "configOptions": self.describe(team),
            "modes": { "currentModeId": self.mode(), "availableModes": modes },
        })
    }
}
