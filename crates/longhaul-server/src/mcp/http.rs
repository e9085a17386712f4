//! The MCP server over streamable HTTP.

use std::sync::Arc;

use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::McpServer;
use crate::backend::{Backend, BackendError};

/// How the MCP server listens to HTTP requests.
#[derive(Debug, Clone)]
pub struct McpHttpOptions {
    /// The hosts that requests may name. `None` leaves the check to the guard in front.
    pub allowed_hosts: Option<Vec<String>>,
    /// The browser origins that may send requests. Any other request with an `Origin` is refused.
    pub allowed_origins: Vec<String>,
    /// The longest body of a request, in bytes.
    pub max_body: usize,
    /// Ends all sessions and streams.
    pub shutdown: CancellationToken,
}

impl Default for McpHttpOptions {
    fn default() -> Self {
        McpHttpOptions {
            allowed_hosts: Some(["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()),
            allowed_origins: Vec::new(),
            max_body: 4 * 1024 * 1024,
            shutdown: CancellationToken::new(),
        }
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
) -> Result<StreamableHttpService<McpServer, LocalSessionManager>, BackendError> {
    let server = McpServer::new(backend.clone(), Some(team))?;
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(options.allowed_origins.clone())
        .enforce_origin_validation()
        .with_max_request_body_bytes(options.max_body)
        .with_cancellation_token(options.shutdown.clone());
    let config = match &options.allowed_hosts {
        Some(hosts) => config.with_allowed_hosts(hosts.clone()),
        None => config.disable_allowed_hosts(),
    };
    Ok(StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    ))
}
