//! A validated set of agents that may call one another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

use super::Agent;
use crate::entry::{Order, TeamRef};
use crate::id::AgentName;
use crate::model::Model;
use crate::permission::Permissions;
use crate::toolset::ToolsetContext;

/// A validated set of agents. Every agent name that is used in it exists in it.
#[derive(Clone)]
pub struct Team {
    reference: TeamRef,
    root: AgentName,
    agents: IndexMap<AgentName, Arc<Agent>>,
    models: IndexMap<String, Arc<dyn Model>>,
    permissions: Option<Arc<Permissions>>,
    /// The effective permissions of each agent: the team's and its own.
    rules: HashMap<AgentName, Arc<Permissions>>,
}

impl Team {
    /// Builds the team of an agent and every agent it can reach. The team is named after the agent. Fails as
    /// [`TeamError`] says.
    pub fn new(root: Agent) -> Result<Team, TeamError> {
        Team::with_agents(root, [])
    }

    /// Builds the team of an agent and others, which may refer to one another by name. Fails as [`TeamError`]
    /// says.
    pub fn with_agents(root: Agent, others: impl IntoIterator<Item = Agent>) -> Result<Team, TeamError> {
        let mut team = Team {
            reference: TeamRef::Named(root.name.as_str().into()),
            root: root.name.clone(),
            agents: IndexMap::new(),
            models: IndexMap::new(),
            permissions: None,
            rules: HashMap::new(),
        };
        team.add_agent(root)?;
        others.into_iter().try_for_each(|agent| team.add_agent(agent))?;
        team.merge_permissions();
        for agent in team.agents.values() {
            let mut seen = HashSet::new();
            for other in agent.sub_agents.iter().chain(&agent.handoffs) {
                if !team.agents.contains_key(other) {
                    return Err(TeamError::UnknownAgent { agent: agent.name.clone(), other: other.clone() });
                }
            }
            for other in &agent.sub_agents {
                if *other == agent.name {
                    return Err(TeamError::OwnSubAgent(agent.name.clone()));
                }
                if !seen.insert(other) {
                    return Err(TeamError::DuplicateSubAgent {
                        agent: agent.name.clone(),
                        other: other.clone(),
                    });
                }
            }
        }
        Ok(team)
    }

    fn add_agent(&mut self, mut agent: Agent) -> Result<(), TeamError> {
        let kin = std::mem::take(&mut agent.bundled);
        let name = agent.name.clone();
        if let Some(had) = self.agents.get(&name) {
            let same = had.instruction == agent.instruction && Arc::ptr_eq(&had.model, &agent.model);
            return if same { Ok(()) } else { Err(TeamError::NameTaken(name)) };
        }
        self.models.entry(agent.model.name().to_owned()).or_insert_with(|| agent.model.clone());
        self.agents.insert(name, Arc::new(agent));
        kin.into_iter().try_for_each(|agent| self.add_agent(agent))
    }

    /// Renames the team. Tasks find their team by its name, so the name should stay the same between runs.
    pub fn with_name(mut self, name: &str) -> Self {
        self.reference = TeamRef::Named(name.into());
        self
    }

    /// Sets how tasks in the store refer to the team, for example by its file.
    pub fn with_reference(mut self, reference: TeamRef) -> Self {
        self.reference = reference;
        self
    }

    /// Adds a model that an order may ask for by name.
    pub fn with_model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Sets what every agent may do without asking, what needs approval and what is forbidden. Each agent's
    /// own permissions are added to these.
    pub fn with_permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = Some(Arc::new(permissions));
        self.merge_permissions();
        self
    }

    fn merge_permissions(&mut self) {
        let rules = |agent: &Arc<Agent>| match (&self.permissions, &agent.permissions) {
            (all, None) => all.clone(),
            (None, Some(own)) => Some(Arc::new(own.clone())),
            (Some(all), Some(own)) => Some(Arc::new(all.merge(own))),
        };
        self.rules = self.agents.values().filter_map(|a| Some((a.name.clone(), rules(a)?))).collect();
    }

    /// The effective permissions of an agent: the team's and its own. Returns `None` if it may do everything.
    /// An agent that is not in the team (any more) needs approval for everything.
    pub fn permissions_for(&self, agent: &AgentName) -> Option<Arc<Permissions>> {
        match self.rules.get(agent) {
            Some(rules) => Some(rules.clone()),
            None if self.agents.contains_key(agent) => None,
            None => Some(Arc::default()),
        }
    }

    /// How tasks in the store refer to the team.
    pub fn reference(&self) -> &TeamRef {
        &self.reference
    }

    /// The agent that runs an order that names none.
    pub fn root(&self) -> &AgentName {
        &self.root
    }

    /// The agent with this name.
    pub fn agent(&self, name: &AgentName) -> Option<&Arc<Agent>> {
        self.agents.get(name)
    }

    /// All agents, in the order in which they were added.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values()
    }

    /// The model with this name.
    pub fn model(&self, name: &str) -> Option<&Arc<dyn Model>> {
        self.models.get(name)
    }

    /// The names of all models.
    pub fn model_names(&self) -> Vec<String> {
        self.models.keys().cloned().collect()
    }

    /// The name of a model whose price is not known, although the order limits the cost of what it is used for.
    pub fn unpriced_model(&self, order: &Order) -> Option<String> {
        let (own, tree) = (order.budget.cost.is_some(), order.tree_budget.cost.is_some());
        let first = order.agent.as_ref().unwrap_or(&self.root);
        let chosen = order.model.as_ref().and_then(|model| self.model(model));
        let (mut seen, mut next) = (HashSet::new(), vec![first]);
        while let Some(name) = next.pop().filter(|_| own || tree) {
            let Some(agent) = self.agents.get(name).filter(|_| seen.insert(name)) else { continue };
            let model = chosen.filter(|_| name == first).unwrap_or(&agent.model);
            if let Some(unpriced) = model.unpriced_model() {
                return Some(unpriced);
            }
            // A handoff is the same task with another agent; a sub-agent has a task of its own in the tree.
            next.extend(&agent.handoffs);
            next.extend(agent.sub_agents.iter().filter(|_| tree));
        }
        None
    }

    /// The context that an agent's toolsets are opened with.
    pub fn toolset_context(&self, agent: &Agent) -> ToolsetContext {
        let infos =
            |names: &[AgentName]| names.iter().filter_map(|n| self.agents.get(n)).map(|a| a.info()).collect();
        ToolsetContext {
            agent: agent.name.clone(),
            sub_agents: infos(&agent.sub_agents),
            handoffs: infos(&agent.handoffs),
        }
    }
}

/// Why agents do not form a team.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// A name is invalid.
    #[error("'{0}' cannot be an agent's name: use letters, digits, '-' and '_'")]
    BadName(AgentName),
    /// An agent has no model.
    #[error("agent '{0}' has no model: give it one with .model(…)")]
    NoModel(AgentName),
    /// Two different agents have the same name.
    #[error("two different agents are called '{0}': names are unique in a team")]
    NameTaken(AgentName),
    /// An agent refers to one that is not in the team.
    #[error("agent '{agent}' names '{other}', which is not in the team")]
    UnknownAgent {
        /// The agent that refers to it.
        agent: AgentName,
        /// The missing agent.
        other: AgentName,
    },
    /// An agent lists the same sub-agent twice.
    #[error("agent '{agent}' lists the sub-agent '{other}' twice")]
    DuplicateSubAgent {
        /// The agent.
        agent: AgentName,
        /// The sub-agent.
        other: AgentName,
    },
    /// A sub-agent's name cannot be used as a tool name.
    #[error(
        "agent '{agent}' has its sub-agents as tools, and '{other}' cannot be a tool's name: use at most 64 of a-z, A-Z, 0-9, '-' and '_', or another dialect"
    )]
    NotAToolName {
        /// The agent.
        agent: AgentName,
        /// The sub-agent.
        other: AgentName,
    },
    /// A team file does not load.
    #[error("the team does not load: {0}")]
    File(String),
    /// An agent is its own sub-agent.
    #[error("agent '{0}' is its own sub-agent")]
    OwnSubAgent(AgentName),
}
