//! The HTTP client, with its own crypto provider: nothing is installed for the whole process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::{HttpError, HttpOptions};

/// How many concurrent requests share a client. Over HTTP/2 a client opens one connection to a host, and most
/// providers take 100 requests at once on a connection: more would wait inside the client, out of turn, until
/// they time out.
const REQUESTS_PER_CLIENT: usize = 64;

/// Clients, as many as concurrent requests need.
pub(super) struct ClientPool {
    tls: ClientConfig,
    connect_timeout: Duration,
    system_proxy: bool,
    first: reqwest::Client,
    more: Mutex<Vec<reqwest::Client>>,
}

impl ClientPool {
    /// Fails if the TLS configuration or the first client cannot be set up.
    pub(super) fn new(options: &HttpOptions) -> Result<ClientPool, HttpError> {
        let tls = tls_config().map_err(|error| HttpError::Client(error.to_string()))?;
        let (connect_timeout, system_proxy) = (options.connect_timeout, options.system_proxy);
        let first = build_client(tls.clone(), connect_timeout, system_proxy)?;
        Ok(ClientPool { tls, connect_timeout, system_proxy, first, more: Mutex::default() })
    }

    pub(super) fn first(&self) -> &reqwest::Client {
        &self.first
    }

    /// The client for a request with this number among the running ones.
    pub(super) fn client(&self, slot: usize) -> reqwest::Client {
        let index = slot / REQUESTS_PER_CLIENT;
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        while more.len() < index {
            match build_client(self.tls.clone(), self.connect_timeout, self.system_proxy) {
                Ok(client) => more.push(client),
                Err(error) => {
                    // The first client was built in the same way, so this is not expected.
                    tracing::warn!(%error, "requests share a client");
                    break;
                }
            }
        }
        index.checked_sub(1).and_then(|index| more.get(index)).unwrap_or(&self.first).clone()
    }
}

fn build_client(
    tls: ClientConfig,
    connect_timeout: Duration,
    system_proxy: bool,
) -> Result<reqwest::Client, HttpError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        // Do not follow redirects: a key in a custom header would be sent to the redirect's target.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .pool_idle_timeout(Duration::from_secs(90))
        .tcp_keepalive(Duration::from_secs(30))
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
            versions(provider)?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn versions(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}
