//! The HTTP client, with its own crypto provider: nothing is installed for the whole process.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::{HttpError, HttpOptions};

pub(super) fn build_client(options: &HttpOptions) -> Result<reqwest::Client, HttpError> {
    let wrong = |error: &dyn std::fmt::Display| HttpError::Client(error.to_string());
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config().map_err(|error| wrong(&error))?)
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        // Do not follow redirects: a key in a custom header would be sent to the redirect's target.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .pool_idle_timeout(Duration::from_secs(90))
        .tcp_keepalive(Duration::from_secs(30))
        .http2_adaptive_window(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(20));
    let builder = if options.system_proxy { builder } else { builder.no_proxy() };
    builder.build().map_err(|error| wrong(&error.without_url()))
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
