//! The MCP interface: the agents of a team as tools of an MCP server, over stdio and streamable HTTP.
//!
//! The server owns no task. A client that declares the Tasks extension gets task handles that are backed by the
//! store; others get ids and bounded waits. Either may die at any time and find its tasks again.

mod bounded_wait;
mod call_key;
mod call_tool;
mod handler;
mod http;
mod questions;
mod resources;
mod task_handle;
mod team_tasks;

use std::sync::Arc;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;

pub use self::http::{McpHttpOptions, http_service, router};
use self::team_tasks::TeamTasks;
use crate::backend::{Backend, BackendError};

/// The MCP server of one team. Clones share it.
#[derive(Clone)]
pub struct TeamMcpServer {
    tasks: Arc<TeamTasks>,
}

impl TeamMcpServer {
    /// The server of the team with this name; of the only team if no name is given. Fails if there is no such
    /// team.
    pub fn new(backend: Backend, team: Option<&str>) -> Result<TeamMcpServer, BackendError> {
        let name = backend.team(team)?.name.clone();
        Ok(TeamMcpServer { tasks: Arc::new(TeamTasks::new(backend, name)) })
    }

    /// Serves one client over stdin and stdout, until it closes them.
    pub async fn serve_stdio(self) -> Result<(), StdioError> {
        let running = match self.serve(rmcp::transport::io::stdio_pipes()).await {
            Ok(running) => running,
            // The client has left before it said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(StdioError(error.to_string())),
        };
        match running.waiting().await {
            Ok(_) => Ok(()),
            Err(error) => Err(StdioError(error.to_string())),
        }
    }
}

/// Why a client over stdio could not be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP client could not be served: {0}")]
pub struct StdioError(String);
