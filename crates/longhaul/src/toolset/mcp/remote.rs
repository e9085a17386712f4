//! A server on the network.

use std::sync::Arc;

use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{AuthClient, StreamableHttpClientTransport};

use super::fault::Fault;
use super::guarded::Guarded;
use super::handler::Handler;
use super::host::{Host, Refused, Service};
use super::http::Http;
use super::login;
use super::old_sse::OldSse;
use super::settings::{McpRemote, McpTransport};
use crate::toolset::outward::{Outward, shown, web_url};
use crate::toolset::text::clipped;

/// Connects, and has somebody log in first if the server insists.
pub(super) async fn connect(
    host: &Arc<Host>,
    remote: &McpRemote,
    handler: Handler,
    mode: ClientLifecycleMode,
    fault: &Fault,
) -> Result<Service, Refused> {
    let url = web_url(&remote.url)
        .map_err(|why| format!("'{}' is not the URL of a server: {why}", clipped(&remote.shown(), 100)))?;
    let named = |error| format!("{}: {}", shown(&url), host.explained(&error, fault));
    let outward = Outward::new(&remote.headers)?;
    if remote.transport == McpTransport::Sse {
        let transport = OldSse::connect(outward, url.clone(), fault.clone()).await?;
        let transport = Guarded::new(transport, fault.clone());
        // Who speaks this knows nothing newer.
        let served = serve_client_with_lifecycle(handler, transport, ClientLifecycleMode::Initialize).await;
        return served.map_err(|error| named(error).into());
    }
    let client = outward.client();
    let headers = remote.headers.map()?;
    let own_key = headers.contains_key(reqwest::header::AUTHORIZATION);
    let all = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str()).custom_headers(all);
    let http = Http { client, fault: fault.clone() };
    if own_key {
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let transport = Guarded::new(transport, fault.clone());
        let served = serve_client_with_lifecycle(handler, transport, mode).await;
        return served.map_err(|error| match error.is_authorization_required() {
            true => format!("{} does not accept the header `Authorization`", shown(&url)).into(),
            false => Refused::again(named(error)),
        });
    }
    let mut may_ask = true;
    loop {
        let (mut manager, refusal) = login::manager(host, &url).await?;
        let wrong = |error| format!("its login cannot be used: {}", refusal.explain(&error));
        manager.initialize_from_store().await.map_err(wrong)?;
        let transport = StreamableHttpClientTransport::with_client(
            AuthClient::new(http.clone(), manager),
            config.clone(),
        );
        let transport = Guarded::new(transport, fault.clone());
        let error = match serve_client_with_lifecycle(handler.clone(), transport, mode.clone()).await {
            Ok(service) => return Ok(service),
            Err(error) => error,
        };
        let challenge = error.auth_challenge().map(str::to_owned);
        if !may_ask || (challenge.is_none() && !error.is_authorization_required()) {
            return Err(Refused::again(named(error)));
        }
        may_ask = false;
        host.logins.login(host, &url, challenge, host.options.connect / 2).await?;
    }
}
