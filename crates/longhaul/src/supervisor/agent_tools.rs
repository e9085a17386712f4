//! Lists the tools that an agent has, without running it.

use serde::Serialize;

use crate::agent::{Agent, Team};
use crate::id::AgentName;
use crate::runner::OpenTools;
use crate::tool::ToolDescription;

/// The tools of an agent, as its model sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AgentTools {
    /// The agent.
    pub agent: AgentName,
    /// Its tools, by toolset.
    pub toolsets: Vec<ToolGroup>,
    /// Why toolsets could not be opened, in words for people. Empty if all were.
    pub unavailable: Vec<String>,
}

/// The tools of one toolset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ToolGroup {
    /// The name of the toolset, or of the MCP server.
    pub name: String,
    /// Whether an MCP server provides the tools.
    pub is_server: bool,
    /// The tools.
    pub tools: Vec<ToolDescription>,
}

/// Opens the toolsets of an agent, as a run of it would, and lists their tools. This starts MCP servers and
/// contacts other machines; close the toolsets afterwards. Toolsets without tools are left out.
pub async fn list_agent_tools(team: &Team, agent: &Agent) -> AgentTools {
    let open = OpenTools::open(team, agent).await;
    let mut toolsets: Vec<ToolGroup> = Vec::new();
    for spec in &open.specs {
        let Some(tool) = open.tool(&spec.name) else { continue };
        let server = tool.identity.server.as_ref();
        let (name, is_server) = (server.unwrap_or(&tool.identity.toolset), server.is_some());
        let described = ToolDescription::new(spec, tool.effects);
        match toolsets.iter_mut().find(|group| group.name == *name && group.is_server == is_server) {
            Some(group) => group.tools.push(described),
            None => toolsets.push(ToolGroup { name: name.clone(), is_server, tools: vec![described] }),
        }
    }
    AgentTools { agent: agent.name.clone(), toolsets, unavailable: open.missing }
}
