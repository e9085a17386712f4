//! The HTTP client, with its own crypto provider: nothing is installed for the whole process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::plain_http::PlainHttpClient;
use super::{HttpError, HttpOptions};

/// How many concurrent requests share a client. Over HTTP/2 a client opens one connection to a host, and most
/// providers take 100 requests at once on a connection: more would wait inside the client, out of turn, until
/// they time out.
const REQUESTS_PER_CLIENT: usize = 64;
pub(super) const USER_AGENT_VALUE: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));
/// How long a connection is kept that nobody uses.
pub(super) const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// After how much silence TCP asks whether the other side is still there.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The clients of a process: one for plain HTTP, and as many of reqwest's as concurrent requests need.
pub(super) struct ClientPool {
    connect_timeout: Duration,
    system_proxy: bool,
    plain: PlainHttpClient,
    /// Set up when it is first needed: reading the certificates of a machine takes longer than all the rest.
    tls: OnceLock<ClientConfig>,
    clients: Mutex<Vec<reqwest::Client>>,
}

impl ClientPool {
    pub(super) fn new(options: &HttpOptions) -> ClientPool {
        let HttpOptions { connect_timeout, system_proxy, .. } = *options;
        let plain = PlainHttpClient::new(connect_timeout, system_proxy);
        let (tls, clients) = (OnceLock::new(), Mutex::default());
        ClientPool { connect_timeout, system_proxy, plain, tls, clients }
    }

    pub(super) fn plain(&self) -> &PlainHttpClient {
        &self.plain
    }

    /// The client for TLS and proxies, for a request that has this number among the running ones. Fails if it
    /// cannot be set up.
    pub(super) fn client(&self, slot: usize) -> Result<reqwest::Client, HttpError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let index = slot / REQUESTS_PER_CLIENT;
        if let Some(client) = clients.get(index) {
            return Ok(client.clone());
        }
        let config = match self.tls.get() {
            Some(config) => config,
            None => {
                let config = tls_config().map_err(|error| HttpError::Client(error.to_string()))?;
                self.tls.get_or_init(|| config)
            }
        };
        while clients.len() < index {
            clients.push(build_client(config.clone(), self.connect_timeout, self.system_proxy)?);
        }
        let client = build_client(config.clone(), self.connect_timeout, self.system_proxy)?;
        clients.push(client.clone());
        Ok(client)
    }
}

fn build_client(
    tls: ClientConfig,
    connect_timeout: Duration,
    system_proxy: bool,
) -> Result<reqwest::Client, HttpError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT_VALUE)
        .connect_timeout(connect_timeout)
        // Do not follow redirects: a key in a custom header would be sent to the redirect's target.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_adaptive_window(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(20));
    let builder = if system_proxy { builder } else { builder.no_proxy() };
    builder.build().map_err(|error| HttpError::Client(error.without_url().to_string()))
}

/// The TLS configuration, with the certificates of this machine.
pub(crate) fn tls_config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = match versions(provider.clone())?.with_platform_verifier() {
        Ok(config) => config.with_no_client_auth(),
        Err(error) => {
            // Plain HTTP to a local server needs no certificates.
            tracing::warn!(%error, "cannot read this machine's certificates: HTTPS will fail");
            without_certificates(provider)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A TLS configuration that trusts no one.
fn without_certificates(provider: Arc<CryptoProvider>) -> Result<ClientConfig, rustls::Error> {
    let none = rustls::RootCertStore::empty();
    Ok(versions(provider)?.with_root_certificates(none).with_no_client_auth())
}

fn versions(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}
