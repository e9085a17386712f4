//! The HTTP client, with its own crypto provider: nothing is installed for the whole process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::Url;
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
    connect_timeout: Duration,
    system_proxy: bool,
    /// For plain HTTP to this machine, which needs no certificates.
    plain: ClientSet,
    secure: ClientSet,
}

#[derive(Default)]
struct ClientSet {
    /// Set up when it is first needed: reading the certificates of a machine takes longer than all the rest.
    tls: OnceLock<ClientConfig>,
    clients: Mutex<Vec<reqwest::Client>>,
}

impl ClientPool {
    /// Fails if a client cannot be set up.
    pub(super) fn new(options: &HttpOptions) -> Result<ClientPool, HttpError> {
        let HttpOptions { connect_timeout, system_proxy, .. } = *options;
        let (plain, secure) = (ClientSet::default(), ClientSet::default());
        let pool = ClientPool { connect_timeout, system_proxy, plain, secure };
        pool.plain_client(0)?;
        Ok(pool)
    }

    /// The client for a request to this URL that has this number among the running ones.
    pub(super) fn client(&self, url: &Url, slot: usize) -> Result<reqwest::Client, HttpError> {
        match url.scheme() == "http" && url.host_str().is_some_and(is_loopback) {
            true => self.plain_client(slot),
            false => self.get_or_build(&self.secure, slot, tls_config),
        }
    }

    fn plain_client(&self, slot: usize) -> Result<reqwest::Client, HttpError> {
        self.get_or_build(&self.plain, slot, || without_certificates(Arc::new(ring::default_provider())))
    }

    fn get_or_build(
        &self,
        set: &ClientSet,
        slot: usize,
        tls: impl FnOnce() -> Result<ClientConfig, rustls::Error>,
    ) -> Result<reqwest::Client, HttpError> {
        let mut clients = set.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let index = slot / REQUESTS_PER_CLIENT;
        if let Some(client) = clients.get(index) {
            return Ok(client.clone());
        }
        let config = match set.tls.get() {
            Some(config) => config,
            None => {
                let config = tls().map_err(|error| HttpError::Client(error.to_string()))?;
                set.tls.get_or_init(|| config)
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

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
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
