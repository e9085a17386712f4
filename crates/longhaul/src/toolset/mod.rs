//! Groups of tools with a lifecycle: the built-in ones, MCP, and wrappers.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::dispatch::AgentInfo;
use crate::id::{AgentName, TaskId};
use crate::tool::{DynTool, Tool};

#[cfg(feature = "toolsets")]
mod a2a;
#[cfg(feature = "toolsets")]
mod api;
#[cfg(feature = "toolsets")]
mod blocking;
mod background_agents;
pub mod client_tools;
#[cfg(feature = "toolsets")]
mod command;
mod delegation;
#[cfg(feature = "toolsets")]
mod stable_ids;
mod task_ops;
mod text_paging;
mod call_description;
#[cfg(feature = "toolsets")]
mod fetch;
#[cfg(feature = "toolsets")]
mod files;
mod managed_agents;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(all(feature = "sqlite", feature = "toolsets"))]
mod memory;
#[cfg(feature = "toolsets")]
mod openapi;
mod model_picker;
mod tool_names;
mod output_truncation;
#[cfg(feature = "toolsets")]
mod http_client;
mod redaction;
#[cfg(feature = "toolsets")]
mod own_server;
#[cfg(feature = "toolsets")]
mod sandbox;
#[cfg(feature = "toolsets")]
mod script;
#[cfg(feature = "toolsets")]
mod shell;
#[cfg(feature = "toolsets")]
mod skills;
mod sub_agent_tools;
#[cfg(feature = "toolsets")]
mod project_tasks;
mod text;
mod think;
mod todo;
#[cfg(feature = "toolsets")]
mod user_prompt;
mod fn_tool;
mod task_text;
mod vcs_dirs;
mod wrappers;

#[cfg(test)]
mod dialect_tests;
#[cfg(test)]
mod fake_dispatcher;
#[cfg(test)]
pub(crate) mod loopback;
#[cfg(test)]
mod tool_fixture;

#[cfg(feature = "toolsets")]
pub use a2a::A2a;
#[cfg(feature = "toolsets")]
pub use api::{Api, ApiSettings};
pub use background_agents::BackgroundAgents;
pub use call_description::with_call_description;
#[cfg(feature = "toolsets")]
pub(crate) use command::remove_paths;
pub use delegation::Delegation;
#[cfg(feature = "toolsets")]
pub use fetch::Fetch;
#[cfg(feature = "toolsets")]
pub use files::{Filesystem, FilesystemBuilder, PostEdit, ReadOnlyFiles};
#[cfg(feature = "toolsets")]
pub use http_client::SecretHeaders;
pub use managed_agents::ManagedAgents;
#[cfg(feature = "mcp")]
pub use mcp::{
    FileTokenStore, Mcp, McpCommand, McpEndpoint, McpOptions, McpPool, McpRemote, McpServer, McpTransport,
    MemoryTokenStore, SecretEnv, ShowLogin, TokenStore,
};
#[cfg(all(feature = "sqlite", feature = "toolsets"))]
pub use memory::AgentMemory;
pub use model_picker::ModelPicker;
#[cfg(feature = "toolsets")]
pub use openapi::OpenApi;
pub(crate) use output_truncation::{read_tool_output, truncate_output};
#[cfg(feature = "toolsets")]
pub use own_server::OwnServer;
#[cfg(feature = "toolsets")]
pub use project_tasks::ProjectTasks;
pub use redaction::with_redaction;
#[cfg(all(feature = "toolsets", target_os = "linux"))]
pub use sandbox::sandbox_exec;
#[cfg(feature = "toolsets")]
pub(crate) use sandbox::{ConfinedProgram, linked_git_dirs};
#[cfg(feature = "toolsets")]
pub use sandbox::{SANDBOX_EXEC, Sandbox};
#[cfg(feature = "toolsets")]
pub use script::{ScriptTool, ScriptTools, ScriptToolsBuilder};
#[cfg(feature = "toolsets")]
pub use shell::{Shell, ShellBuilder};
#[cfg(feature = "toolsets")]
pub use skills::Skills;
pub use sub_agent_tools::SubAgentTools;
pub use think::Think;
pub use todo::Todo;
pub(crate) use tool_names::{is_reserved, qualified_tool_name};
#[cfg(feature = "toolsets")]
pub use user_prompt::UserPrompt;
pub(crate) use wrappers::rename_tool;
pub use wrappers::{only_tools, with_instruction, with_prefix};

#[cfg(feature = "toolsets")]
use blocking::run_blocking;

/// The tools of a toolset, on their way.
pub type OpenFuture<'a> = BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>>;

/// A group of tools that are opened and closed together. Always used as `Arc<dyn Toolset>`; one instance
/// serves all tasks of its agent.
///
/// To add behaviour, wrap another toolset. This one adds a hint to the agent's instruction:
///
/// ```
/// use futures::future::BoxFuture;
/// use longhaul::toolset::{OpenFuture, ReadOnlyFiles, ToolsetContext, Toolset, ToolsetError};
///
/// struct Hinted<T>(T, &'static str);
///
/// impl<T: Toolset> Toolset for Hinted<T> {
///     fn name(&self) -> &str {
///         self.0.name()
///     }
///
///     fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
///         self.0.open(context)
///     }
///
///     fn instruction(&self, _: &ToolsetContext) -> Option<String> {
///         Some(self.1.to_owned())
///     }
///
///     fn close(&self) -> BoxFuture<'_, ()> {
///         self.0.close()
///     }
/// }
///
/// let files = Hinted(ReadOnlyFiles::new(), "Read a file before you speak of it.");
/// # let context = ToolsetContext::new("reader");
/// # let tools = futures::executor::block_on(files.open(&context))?;
/// # assert_eq!(tools.len(), 4);
/// # Ok::<(), ToolsetError>(())
/// ```
pub trait Toolset: Send + Sync + 'static {
    /// The toolset's name, as people see it.
    fn name(&self) -> &str;

    /// Opens the tools for an agent, and starts whatever they need and is not running yet.
    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a>;

    /// Returns what the agent should know about using the tools. It becomes part of the system instruction.
    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        None
    }

    /// Stops whatever was started for a task. Called when this process no longer runs the task, because the
    /// task has ended or was given back.
    fn task_ended(&self, _task: TaskId) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Returns a number that changes whenever the tools change; running agents then open them again. A
    /// toolset whose tools never change need not implement this.
    fn generation(&self) -> u64 {
        0
    }

    /// Returns all tools that this toolset's server offers now, including those the agent is not given. A
    /// toolset without a server need not implement this.
    fn offered_tools(&self) -> Vec<Arc<dyn DynTool>> {
        Vec::new()
    }

    /// Returns the prefix of its tool names (`prefix_name`), which no other server's tools have.
    fn prefix(&self) -> Option<&str> {
        None
    }

    /// Stops whatever was started. Called once, when the engine shuts down.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The agent for which a toolset is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsetContext {
    /// The agent's name.
    pub agent: AgentName,
    /// The agents to which it may send tasks.
    pub sub_agents: Vec<AgentInfo>,
    /// The agents to which it may hand over its conversation.
    pub handoffs: Vec<AgentInfo>,
}

impl ToolsetContext {
    /// An agent without other agents.
    pub fn new(agent: impl Into<AgentName>) -> ToolsetContext {
        ToolsetContext { agent: agent.into(), sub_agents: Vec::new(), handoffs: Vec::new() }
    }
}

/// A toolset could not be opened. The agent runs without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("toolset '{toolset}': {why}")]
pub struct ToolsetError {
    /// The name of the toolset.
    pub toolset: String,
    /// The reason.
    pub why: String,
}

/// A toolset made of a fixed list of tools.
#[derive(Clone, Default)]
pub struct Tools(Vec<Arc<dyn DynTool>>);

impl Tools {
    /// Creates a toolset without tools.
    pub fn new() -> Self {
        Tools::default()
    }

    /// Adds a tool.
    pub fn with(mut self, tool: impl Tool) -> Self {
        self.0.push(Arc::new(tool));
        self
    }

    /// Adds a tool whose argument schema is known only at run time.
    pub fn with_dyn(mut self, tool: Arc<dyn DynTool>) -> Self {
        self.0.push(tool);
        self
    }
}

impl Toolset for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}
