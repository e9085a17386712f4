//! Who can be asked: agents as data, and the checked [`Team`].

mod preamble;
mod shape;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use crate::dispatch::Card;
use crate::entry::{Budget, Deliver, Isolation, OnFinish, Order, TeamRef};
use crate::hook::Hooks;
use crate::id::AgentName;
use crate::model::Model;
use crate::permission::Permissions;
use crate::tool::Tool;
pub use preamble::Preamble;
pub use shape::Shape;
pub(crate) use shape::validator;

use crate::toolset::{BackgroundAgents, Delegation, ManagedAgents, Patron, SubAgentTools, Tools, Toolset};

/// An agent: a model, what it is told, what it can do and whom it can ask.
#[derive(Clone)]
pub struct Agent {
    /// Its name, unique in its team.
    pub name: AgentName,
    /// What it is good for, for those who may ask it.
    pub description: String,
    /// What it is told before everything else.
    pub instruction: Arc<str>,
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Its tools.
    pub toolsets: Vec<Arc<dyn Toolset>>,
    /// Whom it may send tasks to.
    pub sub_agents: Vec<AgentName>,
    /// To whom it may hand its conversation over.
    pub handoffs: Vec<AgentName>,
    /// What it is told of the day and the place.
    pub preamble: Preamble,
    /// The shape that its answer must have.
    pub shape: Option<Arc<Shape>>,
    /// How it works.
    pub habits: Habits,
    /// What it may do without asking, has to ask for and must not do, besides what its team says. Where neither says
    /// anything, it may do everything.
    pub permissions: Option<Permissions>,
    /// Commands that run at certain moments of its tasks.
    pub hooks: Arc<Hooks>,
    kin: Vec<Agent>,
}

impl Agent {
    /// An agent to be built.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{testing::{FnModel, reply}, model::Model};
    /// use longhaul::toolset::Files;
    /// use longhaul::{Agent, Dialect, Habits, Team};
    ///
    /// # let model: Arc<dyn Model> = Arc::new(FnModel::new(|_| reply().text("Fine.")));
    /// let reader = Agent::builder("reader")
    ///     .description("Reads files and says what is in them.")
    ///     .instruction("You are exact.")
    ///     .model(model.clone())
    ///     .toolset(Files::new())
    ///     .habits(Habits { max_turns: 20, ..Habits::default() })
    ///     .build()?;
    /// let lead = Agent::builder("lead").model(model).sub_agent(reader).dialect(Dialect::Background).build()?;
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
            shape: None,
            habits: Habits::default(),
            permissions: None,
            hooks: Arc::default(),
            kin: Vec::new(),
        }
    }

    fn card(&self) -> Card {
        Card { name: self.name.clone(), description: self.description.clone() }
    }
}

/// In which words an agent speaks of its sub-agents: three sets of tools over one desk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Each sub-agent is a tool of its own name, with `get_task_result`, `stop_task` and `list_tasks` beside them.
    #[default]
    SubAgents,
    /// `run_background_agent` and its kin, with `transfer_task` beside them.
    Background,
    /// `spawn_agent` and its kin.
    Managed,
    /// `transfer_task` alone, which waits for the answer.
    Transfer,
}

/// How an agent works: every policy is a field, not a habit of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habits {
    /// At most this many replies; 0 is no bound.
    pub max_turns: u32,
    /// What happens at that bound.
    pub at_turn_limit: AtTurnLimit,
    /// At most this long from the first claim on.
    pub timeout: Option<Duration>,
    /// How long a model may send nothing before it counts as silent. A running tool is never silent.
    pub inactivity: Duration,
    /// After so many identical calls in a row the model is told so.
    pub repeats_told: u32,
    /// After so many the task fails.
    pub repeats_failed: u32,
    /// How often in a row the ends of children may wake it without a new word from a person.
    pub max_wakes: u32,
    /// What becomes of children that still run when it would end.
    pub on_finish: OnFinish,
    /// Whether the end of a child wakes it when it is idle.
    pub notices: Notices,
    /// When letters are read; with [`Deliver::WhenIdle`] none is read before the agent has nothing more to say.
    pub letters: Deliver,
    /// How often a reply is asked for when the provider fails.
    pub patience: Patience,
    /// How much of a tool's output the model sees, in bytes; the whole is kept in the store.
    pub output_cap: usize,
    /// Whether its tasks have places of their own to work in.
    pub isolation: Isolation,
    /// How long a person has for an answer; then the model is told that nobody answered, and goes on. `None` is no bound.
    pub ask_timeout: Option<Duration>,
    /// What becomes of a question when nobody is there who could answer it.
    pub nobody: Nobody,
    /// How many tokens a conversation may have before the older part is replaced by a summary. Where it is left out, it
    /// is four fifths of what the model can read, if that is known; a conversation that the provider finds too long is
    /// always made shorter.
    pub compact_at: Option<u64>,
    /// How many messages, besides the order, the model sees of its conversation; all where it is left out.
    pub history_items: Option<usize>,
    /// Outputs of tools that lie more tokens of such outputs back are not shown again.
    pub old_outputs: Option<u64>,
    /// It has none of its tools but those that change nothing.
    pub read_only: bool,
    /// What each of its tasks may use, besides what the order of the task allows.
    pub budget: Budget,
    /// Bounds on the tasks that it launches.
    pub launches: Launches,
}

impl Default for Habits {
    fn default() -> Self {
        Habits {
            max_turns: 50,
            at_turn_limit: AtTurnLimit::LastWord,
            timeout: None,
            inactivity: Duration::from_secs(300),
            repeats_told: 5,
            repeats_failed: 8,
            max_wakes: 40,
            on_finish: OnFinish::Wait,
            notices: Notices::Wake,
            letters: Deliver::Asap,
            patience: Patience::default(),
            output_cap: 48 * 1024,
            isolation: Isolation::None,
            ask_timeout: Some(Duration::from_secs(600)),
            nobody: Nobody::Wait,
            compact_at: None,
            history_items: None,
            old_outputs: None,
            read_only: false,
            budget: Budget::default(),
            launches: Launches::default(),
        }
    }
}

/// Bounds on the tasks that an agent launches. What it asks for may be less, never more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Launches {
    /// At most this many replies.
    pub max_turns: Option<u32>,
    /// At most this long.
    pub timeout: Option<Duration>,
    /// What each may use.
    pub budget: Budget,
}

impl Launches {
    /// An order within the bounds.
    #[must_use]
    pub fn bound(&self, mut order: Order) -> Order {
        order.max_turns = order
            .max_turns
            .filter(|turns| *turns > 0)
            .into_iter()
            .chain(self.max_turns)
            .min()
            .or(order.max_turns);
        order.timeout = order.timeout.into_iter().chain(self.timeout).min();
        order.budget = order.budget.and(self.budget);
        order
    }
}

/// What happens at the turn limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtTurnLimit {
    /// One last call with tools off, so that the task ends with an answer, marked as cut short.
    #[default]
    LastWord,
    /// The task fails.
    Fail,
}

/// What becomes of a question when nobody is there who could answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nobody {
    /// It waits all the same: somebody may come, also from another terminal.
    #[default]
    Wait,
    /// The answer is no, at once: the model is told that nobody is there, and goes on.
    Deny,
}

/// Whether the end of a child wakes its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Notices {
    /// It does.
    #[default]
    Wake,
    /// It is read when the parent next has something else to read.
    Quiet,
}

/// How often, and how far apart, a reply is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often at most, the first time included, where the reply itself failed.
    pub tries: u32,
    /// Where the provider is down: for how long at least, however often that is.
    pub outage: Duration,
    /// Where the provider says when to come back: for how long.
    pub invited: Duration,
    /// The pause before the second try; it doubles with each.
    pub pause: Duration,
    /// The longest pause of our own; a provider that asks for a longer one gets it.
    pub longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            tries: 6,
            outage: Duration::from_secs(600),
            invited: Duration::from_secs(3600),
            pause: Duration::from_millis(500),
            longest: Duration::from_secs(30),
        }
    }
}

/// An agent on its way.
pub struct AgentBuilder {
    name: AgentName,
    description: String,
    instruction: Arc<str>,
    model: Option<Arc<dyn Model>>,
    toolsets: Vec<Arc<dyn Toolset>>,
    tools: Tools,
    sub_agents: Vec<AgentName>,
    handoffs: Vec<AgentName>,
    dialect: Option<Dialect>,
    preamble: Preamble,
    shape: Option<Arc<Shape>>,
    habits: Habits,
    permissions: Option<Permissions>,
    hooks: Arc<Hooks>,
    kin: Vec<Agent>,
}

impl AgentBuilder {
    /// What it is good for, for those who may ask it.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// What it is told before everything else.
    pub fn instruction(mut self, text: impl Into<Arc<str>>) -> Self {
        self.instruction = text.into();
        self
    }

    /// Its model.
    pub fn model(mut self, model: Arc<dyn Model>) -> Self {
        self.model = Some(model);
        self
    }

    /// One more tool.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools = self.tools.with(tool);
        self
    }

    /// One more group of tools.
    pub fn toolset(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// One more agent that it may send tasks to.
    pub fn sub_agent(mut self, agent: Agent) -> Self {
        self.sub_agents.push(agent.name.clone());
        self.kin.push(agent);
        self
    }

    /// One more agent that it may send tasks to, which some other agent of the team brings along.
    pub fn sub_agent_named(mut self, name: impl Into<AgentName>) -> Self {
        self.sub_agents.push(name.into());
        self
    }

    /// One more agent to which it may hand its conversation over.
    pub fn handoff(mut self, agent: Agent) -> Self {
        self.handoffs.push(agent.name.clone());
        self.kin.push(agent);
        self
    }

    /// One more agent to which it may hand its conversation over, which some other agent of the team brings along.
    pub fn handoff_named(mut self, name: impl Into<AgentName>) -> Self {
        self.handoffs.push(name.into());
        self
    }

    /// In which words it speaks of its sub-agents.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// What it is told of the day and the place.
    pub fn preamble(mut self, preamble: Preamble) -> Self {
        self.preamble = preamble;
        self
    }

    /// The shape that its answer must have. It is told once if the answer has another; then the task fails.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = Some(Arc::new(shape));
        self
    }

    /// How it works.
    pub fn habits(mut self, habits: Habits) -> Self {
        self.habits = habits;
        self
    }

    /// What it may do without asking, has to ask for and must not do.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = Some(permissions);
        self
    }

    /// Commands that run at certain moments of its tasks.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = Arc::new(hooks);
        self
    }

    /// At most this many replies; 0 is no bound.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.habits.max_turns = turns;
        self
    }

    /// The agent, if it can be one.
    pub fn build(self) -> Result<Agent, TeamError> {
        let name = self.name;
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        if name.as_str().is_empty() || !name.as_str().chars().all(fits) {
            return Err(TeamError::BadName(name));
        }
        let model = self.model.ok_or_else(|| TeamError::NoModel(name.clone()))?;
        let mut toolsets = self.toolsets;
        toolsets.insert(0, Arc::new(self.tools));
        match self.dialect.unwrap_or_default() {
            _ if self.sub_agents.is_empty() => {}
            Dialect::SubAgents => {
                if let Some(other) = self.sub_agents.iter().find(|other| !is_tool_name(other.as_str())) {
                    return Err(TeamError::NotATool { agent: name, other: other.clone() });
                }
                toolsets.push(Arc::new(SubAgentTools));
            }
            Dialect::Background => toolsets.push(Arc::new(BackgroundAgents)),
            Dialect::Managed => toolsets.push(Arc::new(ManagedAgents)),
            Dialect::Transfer => {}
        }
        let transfers = matches!(self.dialect, Some(Dialect::Background | Dialect::Transfer));
        if !self.handoffs.is_empty() || transfers {
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
            shape: self.shape,
            habits: self.habits,
            permissions: self.permissions,
            hooks: self.hooks,
            kin: self.kin,
        })
    }
}

/// Whether a model's provider takes it for the name of a tool.
fn is_tool_name(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Agents that know one another. Every name that is used in it is in it.
#[derive(Clone)]
pub struct Team {
    reference: TeamRef,
    root: AgentName,
    agents: IndexMap<AgentName, Arc<Agent>>,
    models: IndexMap<String, Arc<dyn Model>>,
    permissions: Option<Arc<Permissions>>,
    /// What counts for each agent: the team's permissions and its own.
    rules: HashMap<AgentName, Arc<Permissions>>,
}

impl Team {
    /// The team of an agent and all that it, or they, can ask. It is named after the agent.
    pub fn new(root: Agent) -> Result<Team, TeamError> {
        Team::of(root, [])
    }

    /// The team of an agent and others, which may know one another by name only.
    pub fn of(root: Agent, others: impl IntoIterator<Item = Agent>) -> Result<Team, TeamError> {
        let mut team = Team {
            reference: TeamRef::Named(root.name.as_str().into()),
            root: root.name.clone(),
            agents: IndexMap::new(),
            models: IndexMap::new(),
            permissions: None,
            rules: HashMap::new(),
        };
        team.admit(root)?;
        others.into_iter().try_for_each(|agent| team.admit(agent))?;
        team.rule();
        for agent in team.agents.values() {
            let mut seen = HashSet::new();
            for other in agent.sub_agents.iter().chain(&agent.handoffs) {
                if !team.agents.contains_key(other) {
                    return Err(TeamError::Unknown { agent: agent.name.clone(), other: other.clone() });
                }
            }
            for other in &agent.sub_agents {
                if *other == agent.name {
                    return Err(TeamError::Itself(agent.name.clone()));
                }
                if !seen.insert(other) {
                    return Err(TeamError::Twice { agent: agent.name.clone(), other: other.clone() });
                }
            }
        }
        Ok(team)
    }

    fn admit(&mut self, mut agent: Agent) -> Result<(), TeamError> {
        let kin = std::mem::take(&mut agent.kin);
        let name = agent.name.clone();
        if let Some(had) = self.agents.get(&name) {
            let same = had.instruction == agent.instruction && Arc::ptr_eq(&had.model, &agent.model);
            return if same { Ok(()) } else { Err(TeamError::NameTaken(name)) };
        }
        self.models.entry(agent.model.name().to_owned()).or_insert_with(|| agent.model.clone());
        self.agents.insert(name, Arc::new(agent));
        kin.into_iter().try_for_each(|agent| self.admit(agent))
    }

    /// The same team under another name. Tasks find their team again by its name, so it should not change.
    pub fn named(mut self, name: &str) -> Self {
        self.reference = TeamRef::Named(name.into());
        self
    }

    /// The same team, known by its file in the store.
    pub fn kept_as(mut self, reference: TeamRef) -> Self {
        self.reference = reference;
        self
    }

    /// One more model that an order may ask for by its name.
    pub fn with_model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// What all agents may do without asking, have to ask for and must not do; what each of them says is added to it.
    pub fn with_permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = Some(Arc::new(permissions));
        self.rule();
        self
    }

    fn rule(&mut self) {
        let rules = |agent: &Arc<Agent>| match (&self.permissions, &agent.permissions) {
            (all, None) => all.clone(),
            (None, Some(own)) => Some(Arc::new(own.clone())),
            (Some(all), Some(own)) => Some(Arc::new(all.and(own))),
        };
        self.rules = self.agents.values().filter_map(|a| Some((a.name.clone(), rules(a)?))).collect();
    }

    /// The permissions that count for an agent: the team's and its own. None, if it may do everything. An agent that is
    /// not in the team (any more) has to ask for everything.
    pub fn permissions_of(&self, agent: &AgentName) -> Option<Arc<Permissions>> {
        match self.rules.get(agent) {
            Some(rules) => Some(rules.clone()),
            None if self.agents.contains_key(agent) => None,
            None => Some(Arc::default()),
        }
    }

    /// Where tasks find the team again.
    pub fn reference(&self) -> &TeamRef {
        &self.reference
    }

    /// The agent that is asked where none is named.
    pub fn root(&self) -> &AgentName {
        &self.root
    }

    /// The agent of a name.
    pub fn agent(&self, name: &AgentName) -> Option<&Arc<Agent>> {
        self.agents.get(name)
    }

    /// All agents, in the order in which they came to the team.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values()
    }

    /// The model of a name.
    pub fn model(&self, name: &str) -> Option<&Arc<dyn Model>> {
        self.models.get(name)
    }

    /// The names of all models.
    pub fn model_names(&self) -> Vec<String> {
        self.models.keys().cloned().collect()
    }

    /// What the toolsets of an agent are opened with.
    pub fn patron(&self, agent: &Agent) -> Patron {
        let cards =
            |names: &[AgentName]| names.iter().filter_map(|n| self.agents.get(n)).map(|a| a.card()).collect();
        Patron {
            agent: agent.name.clone(),
            sub_agents: cards(&agent.sub_agents),
            handoffs: cards(&agent.handoffs),
        }
    }
}

/// Why agents do not make a team.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TeamError {
    /// A name that is none.
    #[error("'{0}' cannot be an agent's name: use letters, digits, '-' and '_'")]
    BadName(AgentName),
    /// An agent without a model.
    #[error("agent '{0}' has no model: give it one with .model(…)")]
    NoModel(AgentName),
    /// Two different agents of one name.
    #[error("two different agents are called '{0}': names are unique in a team")]
    NameTaken(AgentName),
    /// An agent that nobody brought along.
    #[error("agent '{agent}' names '{other}', which is not in the team")]
    Unknown {
        /// Who names it.
        agent: AgentName,
        /// Whom.
        other: AgentName,
    },
    /// The same sub-agent twice.
    #[error("agent '{agent}' has '{other}' twice among its sub-agents")]
    Twice {
        /// Whose.
        agent: AgentName,
        /// Whom.
        other: AgentName,
    },
    /// A sub-agent whose name cannot be the name of a tool.
    #[error(
        "agent '{agent}' has its sub-agents as tools, and '{other}' cannot be a tool's name: use at most 64 of a-z, A-Z, 0-9, '-' and '_', or another dialect"
    )]
    NotATool {
        /// Whose.
        agent: AgentName,
        /// Which.
        other: AgentName,
    },
    /// A team file that does not load.
    #[error("the team does not load: {0}")]
    File(String),
    /// An agent that is its own sub-agent.
    #[error("agent '{0}' is its own sub-agent")]
    Itself(AgentName),
}
