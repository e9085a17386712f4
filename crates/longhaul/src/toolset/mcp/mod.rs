//! Tools of MCP servers. All agents that name a server share it; it starts when needed and stops when idle.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{OpenFuture, OwnServer, Toolset, ToolsetContext, ToolsetError, tool_names};
use crate::message::prompt_tags::escape;
use crate::process::ProcessGuardian;
use crate::tool::DynTool;
use mcp_tool::McpTool;
use shared_server::{McpSharedServer, McpToolListing};

mod server_requests;
mod mcp_tool;
mod running_calls;
mod connection_fault;
mod limited_transport;
mod client_handler;
mod restart_backoff;
mod shared_server;
mod streamable_http;
mod limits;
mod connection;
mod link_check;
mod login;
mod oauth_client;
mod legacy_sse;
mod tool_result;
mod stdio;
mod error_text;
mod server_process;
mod remote;
mod json_scan;
mod settings;
mod token_store;
mod wire;

#[cfg(test)]
mod tests;

pub use settings::{McpCommand, McpEndpoint, McpRemote, McpServer, McpTransport, SecretEnv};
pub use token_store::{FileTokenStore, MemoryTokenStore, TokenStore};

/// Shows a person where to log in. The arguments are the server and the URL to open.
pub type ShowLogin = Arc<dyn Fn(&str, &str) + Send + Sync>;

options! {
    /// How servers are run and reached.
    #[derive(Clone)]
    pub struct McpOptions {
        /// How long a server may take to start, initialize and list its tools.
        connect_timeout: Duration = Duration::from_secs(25),
        /// Stops a server after this long without a call; `None` for never.
        idle_timeout: Option<Duration> = Some(Duration::from_secs(600)),
        /// How long a call may run without a result or a progress message.
        inactivity_timeout: Duration = Duration::from_secs(600),
        /// Environment variables of every server process, such as `PATH` and `HOME`. Nothing else is inherited.
        env: SecretEnv = SecretEnv::from_iter([("PATH", "/usr/local/bin:/usr/bin:/bin")]),
        /// The default working directory of server processes.
        working_dir: Option<PathBuf> = None,
        /// Kills server processes when this process is killed.
        guardian: ProcessGuardian = ProcessGuardian::new(),
        /// Stores the tokens of logins.
        token_store: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::new()),
        /// Shows a person where to log in. If `None`, servers that require a login cannot be used.
        show_login: Option<ShowLogin> = None,
        /// The server that this process is. It cannot be used as an MCP server of its own agents.
        own_server: OwnServer = OwnServer::default(),
    }
}

impl fmt::Debug for McpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let McpOptions {
            connect_timeout: connect,
            idle_timeout: idle,
            inactivity_timeout: silence,
            env,
            working_dir,
            ..
        } = self;
        let mut shown = f.debug_struct("McpOptions");
        shown.field("connect", connect).field("idle", idle).field("silence", silence);
        shown.field("env", env).field("working_dir", working_dir).finish_non_exhaustive()
    }
}

/// The MCP servers of a process. Clones share the servers; dropping the last clone stops them.
#[derive(Clone)]
pub struct McpPool(Arc<PooledServers>);

struct PooledServers {
    options: Arc<McpOptions>,
    servers: Mutex<HashMap<[u8; 32], Weak<McpSharedServer>>>,
    cancel: CancellationToken,
}

impl Drop for PooledServers {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Default for McpPool {
    fn default() -> Self {
        McpPool::new(McpOptions::default())
    }
}

impl fmt::Debug for McpPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpPool").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl McpPool {
    /// Creates a pool without servers.
    pub fn new(options: McpOptions) -> Self {
        let cancel = CancellationToken::new();
        McpPool(Arc::new(PooledServers { options: Arc::new(options), servers: Mutex::default(), cancel }))
    }

    /// Returns the options of its servers.
    pub fn options(&self) -> &McpOptions {
        &self.0.options
    }

    /// Returns a toolset for a server. The server starts only when the toolset is opened.
    pub fn toolset(&self, server: McpServer) -> Mcp {
        let (prefix, label) = (server.name.clone(), server.label());
        let key = server.key();
        let mut servers = self.servers();
        servers.retain(|_, shared| shared.strong_count() > 0);
        let known = servers.get(&key).and_then(Weak::upgrade).filter(|shared| !shared.cancel.is_cancelled());
        let shared = known.unwrap_or_else(|| {
            let shared = McpSharedServer::new(server, self.0.options.clone(), self.0.cancel.child_token());
            servers.insert(key, Arc::downgrade(&shared));
            shared
        });
        shared.add_user();
        Mcp { pool: self.clone(), shared, prefix, label, only: None, closed: AtomicBool::new(false) }
    }

    /// Stops all servers and waits until their processes are gone.
    pub async fn close(&self) {
        self.0.cancel.cancel();
        let servers: Vec<_> = self.servers().drain().filter_map(|(_, shared)| shared.upgrade()).collect();
        futures::future::join_all(servers.iter().map(|shared| shared.shut_down())).await;
    }

    fn servers(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Weak<McpSharedServer>>> {
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The toolset `mcp`: the tools of one server.
///
/// Toolsets of the pool that name the server with the same settings share it. A tool has the effects that the
/// server's first listing states: read-only is believed there, but not when the server adds it later.
pub struct Mcp {
    // Keeps the pool, and so the servers, running while a tool could be called.
    pool: McpPool,
    shared: Arc<McpSharedServer>,
    prefix: Option<String>,
    /// The name of the server here. Toolsets that share the server may use another name.
    label: String,
    only: Option<Vec<String>>,
    closed: AtomicBool,
}

impl Mcp {
    /// Keeps only these tools, named as the server or the model names them.
    pub fn only(mut self, tools: impl IntoIterator<Item = String>) -> Self {
        self.only = Some(tools.into_iter().collect());
        self
    }

    /// Returns all tools that the server has listed, under their names for models.
    fn tools(&self, listed: &McpToolListing) -> impl Iterator<Item = McpTool> {
        let names =
            tool_names::model_tool_names(self.prefix.as_deref(), listed.tools.iter().map(|tool| &*tool.name));
        let label: Arc<str> = self.label.as_str().into();
        let tool = |(name, tool): (String, &rmcp::model::Tool)| {
            let (shared, label) = (self.shared.clone(), label.clone());
            McpTool { shared, label, name, tool: tool.clone() }
        };
        names.into_iter().zip(listed.tools.iter()).map(tool).collect::<Vec<_>>().into_iter()
    }
}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcp")
            .field("server", &self.shared.server)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Toolset for Mcp {
    fn name(&self) -> &str {
        &self.label
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let listed = self.shared.listing().await.map_err(|why| ToolsetError {
                toolset: "mcp".to_owned(),
                why: format!("the MCP server '{}' did not start: {why}", self.label),
            })?;
            let wanted = |tool: &McpTool| {
                let says = |word: &String| *word == tool.name || *word == *tool.tool.name;
                self.only.as_ref().is_none_or(|only| only.iter().any(says))
            };
            Ok(self.tools(&listed).filter(wanted).map(|tool| Arc::new(tool) as Arc<dyn DynTool>).collect())
        })
    }

    fn offered_tools(&self) -> Vec<Arc<dyn DynTool>> {
        let listed = self.shared.known_listing().unwrap_or_default();
        self.tools(&listed).map(|tool| Arc::new(tool) as Arc<dyn DynTool>).collect()
    }

    fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let text = self.shared.known_listing()?.instructions?;
        Some(format!("About the tools of the MCP server '{}':\n{}", self.label, escape(&text)))
    }

    fn generation(&self) -> u64 {
        self.shared.generation()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.closed.swap(true, Ordering::SeqCst) {
                self.shared.remove_user().await;
            }
        })
    }
}
