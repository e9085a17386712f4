//! Groups of tools with a lifecycle: the built-in ones, MCP, and wrappers.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::dispatch::AgentInfo;
use crate::id::{AgentName, TaskId};
use crate::tool::{DynTool, Tool};

mod a2a;
mod api;
mod blocking;
mod background_agents;
#[cfg(unix)]
mod command;
mod delegation;
mod stable_ids;
mod task_ops;
mod text_paging;
mod call_description;
mod fetch;
mod files;
mod managed_agents;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
#[cfg(feature = "sqlite")]
mod memory;
mod openapi;
mod model_picker;
mod tool_names;
mod output_truncation;
mod http_client;
mod redaction;
#[cfg(unix)]
mod sandbox;
#[cfg(unix)]
mod script;
#[cfg(unix)]
mod shell;
mod skills;
mod sub_agent_tools;
mod project_tasks;
mod text;
mod think;
mod todo;
mod user_prompt;
mod fn_tool;
mod task_text;
mod wrappers;

#[cfg(test)]
mod dialect_tests;
#[cfg(test)]
mod fake_dispatcher;
#[cfg(test)]
pub(crate) mod loopback;
#[cfg(test)]
mod no_dispatcher;

pub use a2a::A2a;
pub use api::{Api, ApiSettings};
pub use background_agents::BackgroundAgents;
pub use call_description::with_call_description;
pub use delegation::Delegation;
pub use fetch::Fetch;
pub use files::{Filesystem, FilesystemBuilder, PostEdit, ReadOnlyFiles};
pub use http_client::SecretHeaders;
pub use managed_agents::ManagedAgents;
#[cfg(all(unix, feature = "mcp"))]
pub use mcp::{
    FileTokenStore, Mcp, McpCommand, McpEndpoint, McpOptions, McpPool, McpRemote, McpServer, McpTransport,
    MemoryTokenStore, SecretEnv, ShowLogin, TokenStore,
};
#[cfg(feature = "sqlite")]
pub use memory::AgentMemory;
pub use model_picker::ModelPicker;
pub use openapi::OpenApi;
pub(crate) use output_truncation::{read_tool_output, truncate_output};
pub use project_tasks::ProjectTasks;
pub use redaction::with_redaction;
#[cfg(unix)]
pub(crate) use sandbox::linked_git_dirs;
#[cfg(target_os = "linux")]
pub use sandbox::sandbox_exec;
#[cfg(unix)]
pub use sandbox::{SANDBOX_EXEC, Sandbox};
#[cfg(unix)]
pub use script::{ScriptTool, ScriptTools, ScriptToolsBuilder};
#[cfg(unix)]
pub use shell::{Shell, ShellBuilder};
pub use skills::Skills;
pub use sub_agent_tools::SubAgentTools;
pub use think::Think;
pub use todo::Todo;
pub(crate) use tool_names::{is_reserved, qualified_tool_name};
pub use user_prompt::UserPrompt;
pub(crate) use wrappers::rename_tool;
pub use wrappers::{only_tools, with_instruction, with_prefix};

use blocking::run_blocking;

/// A group of tools. Always used as `Arc<dyn Toolset>`; one instance serves all tasks of its agent.
///
/// New behaviour is a toolset around another. This one adds a hint to what the agent is told:
///
/// ```
/// # use std::sync::Arc;
/// use futures::future::BoxFuture;
/// use longhaul::tool::DynTool;
/// use longhaul::toolset::{ReadOnlyFiles, ToolsetContext, Toolset, ToolsetError};
///
/// struct Hinted<T>(T, &'static str);
///
/// impl<T: Toolset> Toolset for Hinted<T> {
///     fn name(&self) -> &str {
///         self.0.name()
///     }
///
///     fn open<'a>(&'a self, patron: &'a ToolsetContext) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
///         self.0.open(patron)
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
/// # let patron = ToolsetContext { agent: "reader".into(), sub_agents: vec![], handoffs: vec![] };
/// # let tools = futures::executor::block_on(files.open(&patron))?;
/// # assert_eq!(tools.len(), 4);
/// # Ok::<(), ToolsetError>(())
/// ```
pub trait Toolset: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> &str;

    /// The tools, for an agent. Whatever they need is started here, if it is not yet.
    fn open<'a>(
        &'a self,
        patron: &'a ToolsetContext,
    ) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>>;

    /// What the agent should know about using them; goes into its system instruction.
    fn instruction(&self, _patron: &ToolsetContext) -> Option<String> {
        None
    }

    /// This process does not run the task any more: it has ended, or was given back. Ends whatever was started for it.
    fn task_ended(&self, _task: TaskId) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Changes when the tools do: agents that are at work then have them opened again. A toolset whose tools never
    /// change need not say anything.
    fn generation(&self) -> u64 {
        0
    }

    /// All tools that the server of this toolset offers now, also those that the agent is not given. One that no server is
    /// behind need not say anything.
    fn offered_tools(&self) -> Vec<Arc<dyn DynTool>> {
        Vec::new()
    }

    /// What the names of its tools begin with, and those of no other server's: `prefix_name`.
    fn prefix(&self) -> Option<&str> {
        None
    }

    /// Ends whatever was started. Called once, when the engine shuts down.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// For whom a toolset is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsetContext {
    /// The agent.
    pub agent: AgentName,
    /// Whom it may send tasks to.
    pub sub_agents: Vec<AgentInfo>,
    /// To whom it may hand its conversation over.
    pub handoffs: Vec<AgentInfo>,
}

/// Why a toolset could not be opened. The agent runs without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("toolset '{toolset}': {why}")]
pub struct ToolsetError {
    /// Which.
    pub toolset: String,
    /// Why not.
    pub why: String,
}

/// A toolset that is just some tools.
#[derive(Clone, Default)]
pub struct Tools(Vec<Arc<dyn DynTool>>);

impl Tools {
    /// No tools yet.
    pub fn new() -> Self {
        Tools::default()
    }

    /// One more tool.
    pub fn with(mut self, tool: impl Tool) -> Self {
        self.0.push(Arc::new(tool));
        self
    }

    /// One more tool, whose arguments are only known at run time.
    pub fn with_dyn(mut self, tool: Arc<dyn DynTool>) -> Self {
        self.0.push(tool);
        self
    }
}

impl Toolset for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn open<'a>(
        &'a self,
        _patron: &'a ToolsetContext,
    ) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}
