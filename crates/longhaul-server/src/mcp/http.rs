//! The MCP server over streamable HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::TeamMcpServer;
use crate::backend::{Backend, BackendError};

/// How the MCP server listens to HTTP requests.
#[derive(Debug, Clone)]
pub struct McpHttpOptions {
    /// The hosts that requests may name. `None` leaves the check to the guard in front.
    pub allowed_hosts: Option<Vec<String>>,
    /// The browser origins that may send requests. Any other request with an `Origin` is refused. `None` leaves the
    /// check to the guard in front.
    pub allowed_origins: Option<Vec<String>>,
    /// The longest body of a request, in bytes.
    pub max_body: usize,
    /// Ends all sessions and streams.
    pub shutdown: CancellationToken,
}

impl Default for McpHttpOptions {
    fn default() -> Self {
        McpHttpOptions {
            allowed_hosts: Some(["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()),
            allowed_origins: Some(Vec::new()),
            max_body: 4 * 1024 * 1024,
            shutdown: CancellationToken::new(),
        }
    }
}

impl McpHttpOptions {
    /// For a server on loopback at this address: its own origin is allowed, and no other.
    pub fn for_address(address: SocketAddr) -> McpHttpOptions {
        let port = address.port();
        let origins = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"));
        McpHttpOptions { allowed_origins: Some(origins.to_vec()), ..McpHttpOptions::default() }
    }
}

/// The routes of the MCP server: `/mcp` for the first team, `/mcp/NAME` for each team by its name. Fails if no
/// team is served.
pub fn router(backend: &Backend, options: &McpHttpOptions) -> Result<Router, BackendError> {
    let first = backend.teams().first().map(|team| team.name.clone());
    let Some(first) = first else { return Err(BackendError::NoTeam { have: Vec::new() }) };
    let mut router = Router::new().route_service("/mcp", service(backend, &first, options)?);
    for team in backend.teams() {
        // Only names that need no escaping in a path.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !team.name.is_empty() && team.name.chars().all(plain) {
            router =
                router.route_service(&format!("/mcp/{}", team.name), service(backend, &team.name, options)?);
        }
    }
    Ok(router)
}

fn service(
    backend: &Backend,
    team: &str,
    options: &McpHttpOptions,
) -> Result<StreamableHttpService<TeamMcpServer, LocalSessionManager>, BackendError> {
    Ok(http_service(TeamMcpServer::new(backend.clone(), Some(team))?, options))
}

/// An MCP handler as an HTTP service: stateless for the newest protocol, with sessions for older ones.
pub fn http_service<H: ServerHandler + Clone>(
    handler: H,
    options: &McpHttpOptions,
) -> StreamableHttpService<H, LocalSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(options.max_body)
        .with_cancellation_token(options.shutdown.clone());
    let config = match &options.allowed_hosts {
        Some(hosts) => config.with_allowed_hosts(hosts.clone()),
        None => config.disable_allowed_hosts(),
    };
    let config = match &options.allowed_origins {
        Some(origins) => config.with_allowed_origins(origins.clone()).enforce_origin_validation(),
        None => config.disable_allowed_origins(),
    };
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(LocalSessionManager::default()), config)
}
