//! An agent's gear: its tools opened, and what the model is told of them. Opened once, shared by all its tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::agent::{Agent, Team};
use crate::entry::TeamRef;
use crate::id::AgentName;
use crate::message::envelope::escape;
use crate::model::ToolSpec;
use crate::tool::{DynTool, Manner};
use crate::toolset::ToolsetError;

/// What an agent works with.
pub(crate) struct Gear {
    /// Its system instruction.
    pub(crate) system: Arc<str>,
    /// What its model is told of its tools.
    pub(crate) specs: Vec<Arc<ToolSpec>>,
    tools: HashMap<String, (Arc<dyn DynTool>, Manner)>,
    /// Whether every toolset could be opened.
    whole: bool,
    /// Which tools it was opened with.
    generation: u64,
}

/// How long a toolset may take to start.
const LONGEST_OPEN: Duration = Duration::from_secs(30);

impl Gear {
    /// No tools: for a task that will take no step.
    pub(crate) fn none(agent: &Agent) -> Gear {
        Gear {
            system: agent.instruction.clone(),
            specs: Vec::new(),
            tools: HashMap::new(),
            whole: false,
            generation: generation(agent),
        }
    }

    async fn open(team: &Team, agent: &Agent) -> Gear {
        let patron = team.patron(agent);
        // Before they are opened: what changes meanwhile is opened again.
        let generation = generation(agent);
        let mut system = agent.instruction.to_string();
        let mut gear = Gear {
            system: agent.instruction.clone(),
            specs: Vec::new(),
            tools: HashMap::new(),
            whole: true,
            generation,
        };
        for toolset in &agent.toolsets {
            let opened = tokio::time::timeout(LONGEST_OPEN, toolset.open(&patron)).await;
            let opened = opened.unwrap_or_else(|_| {
                let why = format!("it did not start within {LONGEST_OPEN:?}");
                Err(ToolsetError { toolset: toolset.name().to_owned(), why })
            });
            let tools = match opened {
                Ok(tools) => tools,
                Err(error) => {
                    tracing::error!(agent = %agent.name, "the agent runs without some of its tools: {error}");
                    // The model is told, so that it does not promise what it cannot do.
                    let why = error.to_string();
                    add(&mut system, &format!("Some of your tools are not available: {}.", escape(&why)));
                    gear.whole = false;
                    continue;
                }
            };
            if let Some(text) = toolset.instruction(&patron).filter(|_| !tools.is_empty()) {
                add(&mut system, &text);
            }
            for tool in tools {
                if agent.habits.read_only && !tool.manner().read_only {
                    continue;
                }
                let spec = Arc::new(tool.spec());
                if gear.tools.contains_key(&spec.name) {
                    tracing::warn!(agent = %agent.name, tool = spec.name, "two tools have one name; the first is used");
                    continue;
                }
                gear.tools.insert(spec.name.clone(), (tool.clone(), tool.manner()));
                gear.specs.push(spec);
            }
        }
        gear.system = system.into();
        gear
    }

    /// The tool of a name.
    pub(crate) fn tool(&self, name: &str) -> Option<&(Arc<dyn DynTool>, Manner)> {
        self.tools.get(name)
    }

    /// The same, with only these tools.
    pub(crate) fn narrowed(&self, names: &[String]) -> Gear {
        let tools = self.tools.iter().filter(|(name, _)| names.contains(name));
        Gear {
            system: self.system.clone(),
            specs: self.specs.iter().filter(|spec| names.contains(&spec.name)).cloned().collect(),
            tools: tools.map(|(name, tool)| (name.clone(), tool.clone())).collect(),
            whole: self.whole,
            generation: self.generation,
        }
    }

    /// The same, with this tool too.
    pub(crate) fn with(&self, tool: Arc<dyn DynTool>) -> Gear {
        let spec = Arc::new(tool.spec());
        let mut gear = Gear {
            system: self.system.clone(),
            specs: self.specs.iter().filter(|had| had.name != spec.name).cloned().collect(),
            tools: self.tools.clone(),
            whole: self.whole,
            generation: self.generation,
        };
        gear.tools.insert(spec.name.clone(), (tool.clone(), tool.manner()));
        gear.specs.push(spec);
        gear
    }

    /// Whether the agent has other tools by now.
    pub(crate) fn is_old(&self, agent: &Agent) -> bool {
        self.generation != generation(agent)
    }

    /// The names of all tools, for a model that asked for another.
    pub(crate) fn names(&self) -> String {
        self.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn generation(agent: &Agent) -> u64 {
    agent.toolsets.iter().fold(0, |sum, toolset| sum.wrapping_add(toolset.generation()))
}

/// One more paragraph.
pub(super) fn add(system: &mut String, text: &str) {
    if !system.is_empty() {
        system.push_str("\n\n");
    }
    system.push_str(text);
}

/// Where the gear of all agents is kept.
#[derive(Default)]
pub(crate) struct Locker(Mutex<HashMap<(TeamRef, AgentName), Shelf>>);

type Shelf = Arc<OnceCell<Arc<Gear>>>;

impl Locker {
    /// The gear of an agent, opened now if it is not yet.
    pub(crate) async fn gear(&self, team: &Team, agent: &Agent) -> Arc<Gear> {
        let key = (team.reference().clone(), agent.name.clone());
        let shelf = {
            let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let shelf = shelves.entry(key).or_default();
            if shelf.get().is_some_and(|gear| gear.is_old(agent)) {
                *shelf = Shelf::default();
            }
            shelf.clone()
        };
        let open = || async {
            let gear = Arc::new(Gear::open(team, agent).await);
            // What could not be opened is tried again for the next task.
            if gear.whole { Ok(gear) } else { Err(gear) }
        };
        match shelf.get_or_try_init(open).await {
            Ok(gear) => gear.clone(),
            Err(gear) => gear,
        }
    }
}
