//! Groups of tools with a lifecycle: the built-in ones, MCP, and wrappers.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::dispatch::Card;
use crate::id::{AgentName, TaskId};
use crate::tool::{DynTool, Tool};

mod a2a;
mod api;
mod aside;
mod background;
#[cfg(unix)]
mod command;
mod delegation;
mod derived;
mod errand;
mod excerpt;
mod explained;
mod fetch;
mod files;
mod managed;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
#[cfg(feature = "sqlite")]
mod memory;
mod openapi;
mod model_picker;
mod names;
mod outputs;
mod outward;
mod redacted;
#[cfg(unix)]
mod sandbox;
#[cfg(unix)]
mod script;
#[cfg(unix)]
mod shell;
mod skills;
mod subagents;
mod tasks;
mod text;
mod think;
mod todo;
mod user_prompt;
mod verb;
mod wording;
mod wrap;

#[cfg(test)]
mod dialect_tests;
#[cfg(test)]
mod fake_desk;
#[cfg(test)]
pub(crate) mod loopback;
#[cfg(test)]
mod no_desk;

pub use a2a::A2a;
pub use api::{Api, ApiSettings};
pub use background::BackgroundAgents;
pub use delegation::Delegation;
pub use explained::explained;
pub use fetch::Fetch;
pub use files::{Files, Filesystem, FilesystemBuilder, PostEdit};
pub use managed::ManagedAgents;
#[cfg(all(unix, feature = "mcp"))]
pub use mcp::{
    FileTokens, Mcp, McpCommand, McpOptions, McpPool, McpRemote, McpServer, McpTransport, McpWay,
    MemoryTokens, ShowLogin, TokenStore, Vars,
};
#[cfg(feature = "sqlite")]
pub use memory::Memory;
pub use model_picker::ModelPicker;
pub(crate) use names::{is_reserved, server_name};
pub use openapi::OpenApi;
pub(crate) use outputs::{cut_output, read_tool_output};
pub use outward::Headers;
pub use redacted::redacted;
#[cfg(unix)]
pub(crate) use sandbox::linked_git_dirs;
#[cfg(target_os = "linux")]
pub use sandbox::sandbox_exec;
#[cfg(unix)]
pub use sandbox::{SANDBOX_EXEC, Sandbox};
#[cfg(unix)]
pub use script::{Script, ScriptBuilder, ScriptTool};
#[cfg(unix)]
pub use shell::{Shell, ShellBuilder};
pub use skills::Skills;
pub use subagents::SubAgentTools;
pub use tasks::Tasks;
pub use think::Think;
pub use todo::Todo;
pub use user_prompt::UserPrompt;
pub(crate) use wrap::named;
pub use wrap::{instructed, narrowed, prefixed};

use aside::blocking;

/// A group of tools. Always used as `Arc<dyn Toolset>`; one instance serves all tasks of its agent.
///
/// New behaviour is a toolset around another. This one adds a hint to what the agent is told:
///
/// ```
/// # use std::sync::Arc;
/// use futures::future::BoxFuture;
/// use longhaul::tool::DynTool;
/// use longhaul::toolset::{Files, Patron, Toolset, ToolsetError};
///
/// struct Hinted<T>(T, &'static str);
///
/// impl<T: Toolset> Toolset for Hinted<T> {
///     fn name(&self) -> &str {
///         self.0.name()
///     }
///
///     fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
///         self.0.open(patron)
///     }
///
///     fn instruction(&self, _: &Patron) -> Option<String> {
///         Some(self.1.to_owned())
///     }
///
///     fn close(&self) -> BoxFuture<'_, ()> {
///         self.0.close()
///     }
/// }
///
/// let files = Hinted(Files::new(), "Read a file before you speak of it.");
/// # let patron = Patron { agent: "reader".into(), sub_agents: vec![], handoffs: vec![] };
/// # let tools = futures::executor::block_on(files.open(&patron))?;
/// # assert_eq!(tools.len(), 4);
/// # Ok::<(), ToolsetError>(())
/// ```
pub trait Toolset: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> &str;

    /// The tools, for an agent. Whatever they need is started here, if it is not yet.
    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>>;

    /// What the agent should know about using them; goes into its system instruction.
    fn instruction(&self, _patron: &Patron) -> Option<String> {
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
    fn offers(&self) -> Vec<Arc<dyn DynTool>> {
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
pub struct Patron {
    /// The agent.
    pub agent: AgentName,
    /// Whom it may send tasks to.
    pub sub_agents: Vec<Card>,
    /// To whom it may hand its conversation over.
    pub handoffs: Vec<Card>,
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

    fn open<'a>(&'a self, _patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}
