//! Agents as data, and the validated [`Team`].

mod acp;
pub(crate) mod task_connection;
mod policy;
mod preamble;
mod output_schema;
mod team;

use std::sync::Arc;

use crate::dispatch::AgentInfo;
use crate::hook::Hooks;
use crate::id::AgentName;
use crate::model::Model;
use crate::permission::Permissions;
use crate::tool::Tool;
use crate::toolset::{BackgroundAgents, Delegation, ManagedAgents, SubAgentTools, Tools, Toolset};
pub use acp::AcpAgent;
#[cfg(feature = "teamfile")]
pub(crate) use output_schema::compile_schema;
pub use output_schema::{OutputSchema, OutputSchemaError, SchemaViolation};
pub use policy::{
    AtTurnLimit, CompletionNotice, LaunchLimits, Policy, RetryPolicy, SubAgentDialect, Unattended,
};
pub use preamble::Preamble;
pub use task_connection::{TASK_SECRET, TASK_SOCKET, forward_task_tools};
pub use team::{Team, TeamError};

/// An agent: a model, its instruction, its tools and the agents that it may call.
#[derive(Clone)]
pub struct Agent {
    /// Its name, unique in its team.
    pub name: AgentName,
    /// What it does, shown to the agents that may call it.
    pub description: String,
    /// The start of its system prompt.
    pub instruction: Arc<str>,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Its tools.
    pub toolsets: Vec<Arc<dyn Toolset>>,
    /// Agents that it may send tasks to.
    pub sub_agents: Vec<AgentName>,
    /// Agents that it may hand its conversation over to.
    pub handoffs: Vec<AgentName>,
    /// What its system prompt says about the date and the environment.
    pub preamble: Preamble,
    /// The JSON schema that its answer must match.
    pub output_schema: Option<Arc<OutputSchema>>,
    /// Limits, timeouts, retries and other settings of its tasks.
    pub policy: Policy,
    /// What it may do without asking, what needs approval and what is forbidden, in addition to the team's
    /// permissions. If neither sets any, everything is allowed.
    pub permissions: Option<Permissions>,
    /// Commands that run on certain events of its tasks.
    pub hooks: Arc<Hooks>,
    /// The program that runs it, if it is not run here. Its model and toolsets are then unused.
    pub acp: Option<Arc<AcpAgent>>,
    bundled: Vec<Agent>,
}

impl Agent {
    /// Starts building an agent.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{testing::{FnModel, reply}, model::Model};
    /// use longhaul::toolset::ReadOnlyFiles;
    /// use longhaul::{Agent, SubAgentDialect, Policy, Team};
    ///
    /// # let model: Arc<dyn Model> = Arc::new(FnModel::new(|_| reply().text("Fine.")));
    /// let reader = Agent::builder("reader")
    ///     .description("Reads files and says what is in them.")
    ///     .instruction("You are exact.")
    ///     .model(model.clone())
    ///     .toolset(ReadOnlyFiles::new())
    ///     .policy(Policy::default().max_turns(20))
    ///     .build()?;
    /// let lead = Agent::builder("lead").model(model).sub_agent(reader).dialect(SubAgentDialect::Background).build()?;
    /// let team = Team::new(lead)?;
    /// assert_eq!(team.agents().count(), 2);
    /// # Ok::<(), longhaul::agent::TeamError>(())
    /// ```
    pub fn builder(name: impl Into<AgentName>) -> AgentBuilder {
        AgentBuilder {
            name: name.into(),
            description: String::new(),
            instruction: Arc::from(""),
            model: None,
            toolsets: Vec::new(),
            tools: Tools::new(),
            sub_agents: Vec::new(),
            handoffs: Vec::new(),
            dialect: None,
            preamble: Preamble::default(),
            output_schema: None,
            policy: Policy::default(),
            permissions: None,
            hooks: Arc::default(),
            acp: None,
            bundled: Vec::new(),
        }
    }

    fn info(&self) -> AgentInfo {
        AgentInfo { name: self.name.clone(), description: self.description.clone() }
    }
}

/// Builds an [`Agent`].
pub struct AgentBuilder {
    name: AgentName,
    description: String,
    instruction: Arc<str>,
    model: Option<Arc<dyn Model>>,
    toolsets: Vec<Arc<dyn Toolset>>,
    tools: Tools,
    sub_agents: Vec<AgentName>,
    handoffs: Vec<AgentName>,
    dialect: Option<SubAgentDialect>,
    preamble: Preamble,
    output_schema: Option<Arc<OutputSchema>>,
    policy: Policy,
    permissions: Option<Permissions>,
    hooks: Arc<Hooks>,
    acp: Option<Arc<AcpAgent>>,
    bundled: Vec<Agent>,
}

impl AgentBuilder {
    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools = self.tools.with(tool);
        self
    }

    /// Adds a toolset.
    pub fn toolset(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Adds an agent that it may send tasks to.
    pub fn sub_agent(mut self, agent: Agent) -> Self {
        self.sub_agents.push(agent.name.clone());
        self.bundled.push(agent);
        self
    }

    /// Adds an agent that it may send tasks to, by name. Another agent of the team must bring that agent
    /// along.
    pub fn sub_agent_named(mut self, name: impl Into<AgentName>) -> Self {
        self.sub_agents.push(name.into());
        self
    }

    /// Adds an agent that it may hand its conversation over to.
    pub fn handoff(mut self, agent: Agent) -> Self {
        self.handoffs.push(agent.name.clone());
        self.bundled.push(agent);
        self
    }

    /// Adds an agent that it may hand its conversation over to, by name. Another agent of the team must bring
    /// that agent along.
    pub fn handoff_named(mut self, name: impl Into<AgentName>) -> Self {
        self.handoffs.push(name.into());
        self
    }

    /// Sets the maximum number of replies; 0 means no limit.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.policy.max_turns = turns;
        self
    }

    /// Builds the agent. Fails if the name is invalid, if there is no model, or if a sub-agent's name cannot
    /// be used as a tool name.
    pub fn build(self) -> Result<Agent, TeamError> {
        let name = self.name;
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        if name.as_str().is_empty() || !name.as_str().chars().all(fits) {
            return Err(TeamError::BadName(name));
        }
        let model = self.model.or_else(|| self.acp.as_ref().map(|acp| acp.model()));
        let model = model.ok_or_else(|| TeamError::NoModel(name.clone()))?;
        let mut toolsets = self.toolsets;
        toolsets.insert(0, Arc::new(self.tools));
        // A program that runs an agent can make calls, and cannot hand its conversation over.
        let usual = if self.acp.is_some() { SubAgentDialect::Background } else { SubAgentDialect::default() };
        match self.dialect.unwrap_or(usual) {
            _ if self.sub_agents.is_empty() => {}
            SubAgentDialect::SubAgents => {
                if let Some(other) = self.sub_agents.iter().find(|other| !is_tool_name(other.as_str())) {
                    return Err(TeamError::NotAToolName { agent: name, other: other.clone() });
                }
                toolsets.push(Arc::new(SubAgentTools));
            }
            SubAgentDialect::Background => toolsets.push(Arc::new(BackgroundAgents)),
            SubAgentDialect::Managed => toolsets.push(Arc::new(ManagedAgents)),
            SubAgentDialect::Transfer => {}
        }
        let transfers = matches!(self.dialect, Some(SubAgentDialect::Background | SubAgentDialect::Transfer));
        if self.acp.is_none() && (!self.handoffs.is_empty() || transfers) {
            toolsets.push(Arc::new(Delegation));
        }
        Ok(Agent {
            name,
            description: self.description,
            instruction: self.instruction,
            model,
            toolsets,
            sub_agents: self.sub_agents,
            handoffs: self.handoffs,
            preamble: self.preamble,
            output_schema: self.output_schema,
            policy: self.policy,
            permissions: self.permissions,
            hooks: self.hooks,
            acp: self.acp,
            bundled: self.bundled,
        })
    }
}

fluent_setters!(AgentBuilder {
    /// Sets what it does, shown to the agents that may call it.
    description: impl Into<String> => description.into(),
    /// Sets the start of its system prompt.
    instruction: impl Into<Arc<str>> => instruction.into(),
    /// Sets its model. An agent without a model does not build.
    model: Arc<dyn Model> => Some(model),
    /// Sets which tools it gets for its sub-agents.
    dialect: SubAgentDialect => Some(dialect),
    /// Sets what its system prompt says about the date and the environment.
    preamble: Preamble,
    /// Sets the JSON schema that its answer must match. If an answer does not match, the model gets one
    /// chance to correct it; then the task fails.
    output_schema: OutputSchema => Some(Arc::new(output_schema)),
    /// Sets limits, timeouts, retries and other settings of its tasks.
    policy: Policy,
    /// Sets what it may do without asking, what needs approval and what is forbidden.
    permissions: Permissions => Some(permissions),
    /// Sets the commands that run on certain events of its tasks.
    hooks: Hooks => Arc::new(hooks),
    /// Sets the program that runs it. It then needs no model.
    acp: AcpAgent => Some(Arc::new(acp)),
});

/// Whether model providers accept it as a tool name.
fn is_tool_name(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
