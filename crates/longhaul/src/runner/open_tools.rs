//! An agent's open tools and their specs for the model. Opened once, shared by all its tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::seen_tools::{self, SeenTools, ToolCandidate, ToolDecision};
use crate::agent::{Agent, Team};
use crate::entry::TeamRef;
use crate::id::{AgentName, TaskId};
use crate::message::prompt_tags::escape;
use crate::model::ToolSpec;
use crate::permission::ToolIdentity;
use crate::store::{Store, StoreError};
use crate::tool::{DynTool, ToolEffects};
use crate::toolset::{ToolsetError, rename_tool};

/// An open tool, under the name that the model uses.
#[derive(Clone)]
pub(crate) struct OpenTool {
    pub(crate) tool: Arc<dyn DynTool>,
    /// Its effects, as far as they are trusted.
    pub(crate) effects: ToolEffects,
    pub(crate) identity: Arc<ToolIdentity>,
    /// Why rules that allow do not apply to it: it differs from the tool that was seen first.
    pub(crate) changed: Option<Arc<str>>,
}

/// An agent's open tools.
pub(crate) struct OpenTools {
    /// The agent's system prompt.
    pub(crate) system: Arc<str>,
    /// The specs of its tools, for the model.
    pub(crate) specs: Vec<Arc<ToolSpec>>,
    tools: HashMap<String, OpenTool>,
    /// The tools of MCP servers, if there are any.
    server_tools: Option<Arc<ServerTools>>,
    /// Notices for people: which toolsets could not be opened, and why.
    pub(crate) missing: Vec<String>,
    /// The generation of the tools it was opened with.
    generation: u64,
}

/// The tools of an agent that has MCP servers. A tree decides their names and how far they are trusted.
struct ServerTools {
    agent: AgentName,
    read_only: bool,
    /// All tools, in their order.
    tools: Vec<ListedTool>,
    /// All that servers offer, including what the agent does not get.
    offers: Vec<(Arc<ToolIdentity>, ToolEffects)>,
    /// The prefixes of all servers of the team.
    prefixes: Vec<String>,
    /// The decisions for a tree that has seen nothing before.
    judged: Vec<ToolDecision>,
}

/// A tool as its toolset provides it.
struct ListedTool {
    tool: Arc<dyn DynTool>,
    spec: Arc<ToolSpec>,
    effects: ToolEffects,
    identity: Arc<ToolIdentity>,
    prefix: Option<String>,
}

impl ServerTools {
    /// Decides on the tools, given what the tree has seen. Records what is new.
    fn decide(&self, seen: &mut SeenTools) -> Vec<ToolDecision> {
        seen.record_new(self.offers.iter().map(|(identity, effects)| (&**identity, *effects)));
        let listed: Vec<ToolCandidate<'_>> = self
            .tools
            .iter()
            .map(|opened| ToolCandidate {
                name: &opened.spec.name,
                identity: &opened.identity,
                effects: opened.effects,
                prefix: opened.prefix.as_deref(),
            })
            .collect();
        seen.decide(&self.agent, &listed, &self.prefixes)
    }

    /// Notices about tools whose names differ from those of their server.
    fn rename_notices(&self, decisions: &[ToolDecision]) -> Vec<String> {
        let pairs = self.tools.iter().zip(decisions).filter(|(opened, _)| opened.identity.is_from_server());
        let notice = |(opened, decision): (&ListedTool, &ToolDecision)| {
            let (had, server) = (&opened.spec.name, opened.identity.server.as_deref().unwrap_or_default());
            match &decision.name {
                Some(name) if name == had => None,
                Some(name) => Some(format!(
                    "the tool '{had}' of the server '{server}' is called '{name}' here: its name is another tool's"
                )),
                None => Some(format!(
                    "the tool '{had}' of the server '{server}' is left out: its name is another tool's"
                )),
            }
        };
        pairs.filter_map(notice).collect()
    }
}

/// How long a toolset may take to start.
const LONGEST_OPEN: Duration = Duration::from_secs(30);

impl OpenTools {
    /// No tools: for a task that takes no step.
    pub(crate) fn none(agent: &Agent) -> OpenTools {
        OpenTools {
            system: agent.instruction.clone(),
            specs: Vec::new(),
            tools: HashMap::new(),
            server_tools: None,
            missing: Vec::new(),
            generation: generation(agent),
        }
    }

    /// Opens the toolsets of an agent. One that cannot be opened is left out and listed in `missing`.
    pub(crate) async fn open(team: &Team, agent: &Agent) -> OpenTools {
        let context = team.toolset_context(agent);
        // Read before opening: a change in the meantime leads to opening them again.
        let generation = generation(agent);
        let mut system = agent.instruction.to_string();
        let (mut missing, mut all, mut offers) = (Vec::new(), Vec::new(), Vec::new());
        for toolset in &agent.toolsets {
            let opened = tokio::time::timeout(LONGEST_OPEN, toolset.open(&context)).await;
            let opened = opened.unwrap_or_else(|_| {
                let why = format!("it did not start within {LONGEST_OPEN:?}");
                Err(ToolsetError { toolset: toolset.name().to_owned(), why })
            });
            let tools = match opened {
                Ok(tools) => tools,
                Err(error) => {
                    missing.push(format!("{} runs without some of its tools: {error}", agent.name));
                    // The model is told too, so that it does not promise what it cannot do.
                    let why = error.to_string();
                    push_paragraph(
                        &mut system,
                        &format!("Some of your tools are not available: {}.", escape(&why)),
                    );
                    continue;
                }
            };
            if let Some(text) = toolset.instruction(&context).filter(|_| !tools.is_empty()) {
                push_paragraph(&mut system, &text);
            }
            let identity = |tool: &Arc<dyn DynTool>| {
                let mut identity = tool.identity();
                if identity.toolset.is_empty() {
                    toolset.name().clone_into(&mut identity.toolset);
                }
                Arc::new(identity)
            };
            offers.extend(toolset.offered_tools().iter().map(|tool| (identity(tool), tool.effects())));
            for tool in tools {
                let (spec, effects) = (Arc::new(tool.spec()), tool.effects());
                let (identity, prefix) = (identity(&tool), toolset.prefix().map(str::to_owned));
                offers.push((identity.clone(), effects));
                if !agent.policy.read_only || effects.read_only {
                    all.push(ListedTool { tool, spec, effects, identity, prefix });
                }
            }
        }
        offers.retain(|(identity, _)| identity.is_from_server());
        let toolsets = team.agents().flat_map(|agent| &agent.toolsets);
        let prefixes = toolsets.filter_map(|toolset| toolset.prefix().map(str::to_owned)).collect();
        let mut foreign = ServerTools {
            agent: agent.name.clone(),
            read_only: agent.policy.read_only,
            tools: all,
            offers,
            prefixes,
            judged: Vec::new(),
        };
        foreign.judged = foreign.decide(&mut SeenTools::default());
        let open_tools = OpenTools {
            system: system.into(),
            specs: Vec::new(),
            tools: HashMap::new(),
            server_tools: None,
            missing,
            generation,
        };
        let open_tools = open_tools.with_decisions(&foreign, &foreign.judged);
        OpenTools { server_tools: (!foreign.offers.is_empty()).then(|| Arc::new(foreign)), ..open_tools }
    }

    /// A copy with these tools, as decided.
    fn with_decisions(&self, from: &ServerTools, decisions: &[ToolDecision]) -> OpenTools {
        let mut open_tools = OpenTools {
            system: self.system.clone(),
            specs: Vec::new(),
            tools: HashMap::new(),
            server_tools: self.server_tools.clone(),
            missing: self.missing.clone(),
            generation: self.generation,
        };
        for (opened, decision) in from.tools.iter().zip(decisions) {
            let ListedTool { tool, spec, identity, .. } = opened;
            let ToolDecision { name, effects, changed } = decision;
            if from.read_only && !effects.read_only {
                continue;
            }
            let Some(name) = name else {
                tracing::warn!(agent = %from.agent, tool = spec.name, "two tools have the same name; the first is used");
                continue;
            };
            let (tool, spec) = match *name == spec.name {
                true => (tool.clone(), spec.clone()),
                false => {
                    let tool = rename_tool(tool.clone(), name.clone());
                    let spec = Arc::new(tool.spec());
                    (tool, spec)
                }
            };
            let changed = changed.as_deref().map(Arc::from);
            let open = OpenTool { tool, effects: *effects, identity: identity.clone(), changed };
            open_tools.tools.insert(name.clone(), open);
            open_tools.specs.push(spec);
        }
        open_tools
    }

    /// A copy for a tree, which may have seen other tools before, and notices for people.
    pub(super) async fn for_tree(
        self: Arc<Self>,
        store: &dyn Store,
        root: TaskId,
    ) -> Result<(Arc<OpenTools>, Vec<String>), StoreError> {
        let Some(foreign) = self.server_tools.clone() else { return Ok((self, Vec::new())) };
        let (decisions, is_new) =
            seen_tools::update_seen_tools(store, root, |seen| foreign.decide(seen)).await?;
        let notices = if is_new { foreign.rename_notices(&decisions) } else { Vec::new() };
        match decisions == foreign.judged {
            true => Ok((self, notices)),
            false => Ok((Arc::new(self.with_decisions(&foreign, &decisions)), notices)),
        }
    }

    /// The tool with this name.
    pub(crate) fn tool(&self, name: &str) -> Option<&OpenTool> {
        self.tools.get(name)
    }

    /// Whether one of them launches tasks.
    pub(crate) fn can_launch(&self) -> bool {
        self.tools.values().any(|tool| tool.effects.launches)
    }

    /// A copy with only these tools.
    pub(crate) fn restricted_to(&self, names: &[String]) -> OpenTools {
        let tools = self.tools.iter().filter(|(name, _)| names.contains(name));
        OpenTools {
            system: self.system.clone(),
            specs: self.specs.iter().filter(|spec| names.contains(&spec.name)).cloned().collect(),
            tools: tools.map(|(name, tool)| (name.clone(), tool.clone())).collect(),
            server_tools: self.server_tools.clone(),
            missing: self.missing.clone(),
            generation: self.generation,
        }
    }

    /// A copy with this tool added.
    pub(crate) fn with_tool(&self, tool: Arc<dyn DynTool>) -> OpenTools {
        let spec = Arc::new(tool.spec());
        let mut open_tools = OpenTools {
            system: self.system.clone(),
            specs: self.specs.iter().filter(|had| had.name != spec.name).cloned().collect(),
            tools: self.tools.clone(),
            server_tools: self.server_tools.clone(),
            missing: self.missing.clone(),
            generation: self.generation,
        };
        let (effects, identity) = (tool.effects(), Arc::new(tool.identity()));
        open_tools.tools.insert(spec.name.clone(), OpenTool { tool, effects, identity, changed: None });
        open_tools.specs.push(spec);
        open_tools
    }

    /// Whether the agent has other tools by now.
    pub(crate) fn is_outdated(&self, agent: &Agent) -> bool {
        self.generation != generation(agent)
    }

    /// The names of all tools, for a model that called an unknown one.
    pub(crate) fn names(&self) -> String {
        self.specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn generation(agent: &Agent) -> u64 {
    agent.toolsets.iter().fold(0, |sum, toolset| sum.wrapping_add(toolset.generation()))
}

/// Adds a paragraph.
pub(super) fn push_paragraph(system: &mut String, text: &str) {
    if !system.is_empty() {
        system.push_str("\n\n");
    }
    system.push_str(text);
}

/// Caches the open tools of all agents.
#[derive(Default)]
pub(crate) struct ToolCache(Mutex<HashMap<(TeamRef, AgentName), ToolCacheSlot>>);

type ToolCacheSlot = Arc<OnceCell<Arc<OpenTools>>>;

impl ToolCache {
    /// The tools of an agent; opens them if needed.
    pub(crate) async fn get_or_open(&self, team: &Team, agent: &Agent) -> Arc<OpenTools> {
        let key = (team.reference().clone(), agent.name.clone());
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = slots.entry(key).or_default();
            if slot.get().is_some_and(|open_tools| open_tools.is_outdated(agent)) {
                *slot = ToolCacheSlot::default();
            }
            slot.clone()
        };
        let open = || async {
            let open_tools = Arc::new(OpenTools::open(team, agent).await);
            // Toolsets that could not be opened are tried again for the next task.
            if open_tools.missing.is_empty() { Ok(open_tools) } else { Err(open_tools) }
        };
        match slot.get_or_try_init(open).await {
            Ok(open_tools) => open_tools.clone(),
            Err(open_tools) => open_tools,
        }
    }
}
