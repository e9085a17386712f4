//! Connects to a server on the network.

use std::sync::Arc;

use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{AuthClient, StreamableHttpClientTransport};

use super::client_handler::McpClientHandler;
use super::connection_fault::ConnectionFault;
use super::legacy_sse::LegacySseTransport;
use super::limited_transport::LimitedTransport;
use super::login;
use super::settings::{McpRemote, McpTransport};
use super::shared_server::{ConnectError, McpServerError, McpService, McpSharedServer};
use super::streamable_http::McpHttpClient;
use crate::toolset::http_client::{ToolHttpClient, display_url, parse_web_url};
use crate::toolset::text::truncate;

/// Connects, after a login if the server requires one.
pub(super) async fn connect(
    shared: &Arc<McpSharedServer>,
    remote: &McpRemote,
    handler: McpClientHandler,
    mode: ClientLifecycleMode,
    fault: &ConnectionFault,
) -> Result<McpService, ConnectError> {
    let url = parse_web_url(&remote.url).map_err(|why| {
        let url = truncate(&remote.display_url(), 100);
        McpServerError(format!("'{url}' is not the URL of a server: {why}"))
    })?;
    let named = |error| format!("{}: {}", display_url(&url), shared.explain_error(&error, fault));
    let http_client = ToolHttpClient::new(&remote.headers, &shared.options.own_server)?;
    if remote.transport == McpTransport::Sse {
        let transport = LegacySseTransport::connect(http_client, url.clone(), fault.clone()).await?;
        let transport = LimitedTransport::new(transport, fault.clone());
        // Servers with this transport speak no newer protocol.
        let served = serve_client_with_lifecycle(handler, transport, ClientLifecycleMode::Initialize).await;
        return served.map_err(|error| McpServerError(named(error)).into());
    }
    let client = http_client.client_for(&url)?;
    let headers = remote.headers.to_header_map()?;
    let own_key = headers.contains_key(reqwest::header::AUTHORIZATION);
    let all = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
    let http = McpHttpClient { client, fault: fault.clone() };
    if own_key {
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let transport = LimitedTransport::new(transport, fault.clone());
        let served = serve_client_with_lifecycle(handler, transport, mode).await;
        return served.map_err(|error| match error.is_authorization_required() {
            true => {
                McpServerError(format!("{} does not accept the header `Authorization`", display_url(&url)))
                    .into()
            }
            false => ConnectError::retry_legacy(named(error)),
        });
    }
    let mut may_ask = true;
    loop {
        let (mut manager, refusal) = login::authorization_manager(shared, &url).await?;
        let wrong = |error| McpServerError(format!("its login cannot be used: {}", refusal.explain(&error)));
        manager.initialize_from_store().await.map_err(wrong)?;
        let transport = StreamableHttpClientTransport::with_client(
            AuthClient::new(http.clone(), manager),
            config.clone(),
        );
        let transport = LimitedTransport::new(transport, fault.clone());
        let error = match serve_client_with_lifecycle(handler.clone(), transport, mode.clone()).await {
            Ok(service) => return Ok(service),
            Err(error) => error,
        };
        let challenge = error.auth_challenge().map(str::to_owned);
        if !may_ask || (challenge.is_none() && !error.is_authorization_required()) {
            return Err(ConnectError::retry_legacy(named(error)));
        }
        may_ask = false;
        shared.logins.login(shared, &url, challenge, shared.options.connect_timeout / 2).await?;
    }
}
