//! Models behind HTTP: one client per process, one gate per endpoint and key, and a wire protocol per
//! provider.
//!
//! ```no_run
//! use longhaul::model::http::{HttpClient, HttpOptions, ModelSpec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = |name: &str| std::env::var(name).ok().map(Into::into);
//! let http = HttpClient::new(HttpOptions::default())?;
//! let model = http.model(&ModelSpec::parse("anthropic/claude-sonnet-4-5")?, &keys)?;
//! # Ok(()) }
//! ```
//!
//! Nothing here retries: a [`HttpModel`] sends one request, and its error says what failed and how long to
//! wait. The caller decides whether to retry; the gate delays a request that comes too early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod admission;
mod cassette;
mod catalog;
mod client;
mod concurrency_limit;
mod connect_pace;
mod descriptors;
mod endpoint;
mod fair_queue;
mod transport;
mod fallback;
mod plain_http;
mod unexpected_body;
mod rate_limit_gate;
mod api_keys;
mod response_reader;
mod retry_after;
mod start_queue;
mod auto_detect;
mod provider_opts;
mod http_model;

#[cfg(feature = "toolsets")]
pub(crate) use client::tls_config;

pub use api_keys::{ApiKey, KeySource, NoKeys};
pub use cassette::{Cassette, CassetteError};
pub use catalog::{
    ApiType, CatalogError, CustomProvider, ModelSpec, is_known_provider, known_providers,
    provider_key_variables,
};
#[cfg(feature = "teamfile")]
pub(crate) use catalog::{is_provider_or_local_url, key_variables_of};
pub use endpoint::{Auth, Endpoint};
pub use fallback::FallbackModel;
pub use http_model::HttpModel;

use crate::model::prices::PriceTable;
use crate::model::settings::ModelSettings;
use crate::model::wire::WireProtocol;
use client::ClientPool;
use concurrency_limit::ConcurrencyLimit;
use endpoint::EndpointId;
use rate_limit_gate::RateLimitGate;
use transport::Transport;

/// Options of the HTTP client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The timeout for opening a connection.
    pub connect_timeout: Duration,
    /// The timeout for the first byte of a response.
    pub first_byte_timeout: Duration,
    /// The longest pause within a response.
    pub idle_timeout: Duration,
    /// A fixed maximum number of concurrent requests, for each endpoint and key. It overrides the ones of
    /// models and providers. Without any, the number follows the provider: it begins at 256, or a quarter of
    /// the free file descriptors if that is less, grows while requests wait and replies begin, and is halved
    /// when the provider rate limits, refuses connections or does not answer.
    pub max_concurrent: Option<usize>,
    /// Whether to use the proxies of the machine, including those in environment variables.
    pub system_proxy: bool,
    /// Token prices.
    pub prices: PriceTable,
    /// Base URLs by provider name, for providers that are not at their default URL, such as a local server on
    /// another port.
    pub base_urls: HashMap<String, String>,
}

fluent_setters!(HttpOptions {
    connect_timeout: Duration,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    max_concurrent: Option<usize>,
    system_proxy: bool,
    prices: PriceTable,
    base_urls: HashMap<String, String>,
});

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(120),
            max_concurrent: None,
            system_proxy: false,
            prices: PriceTable::built_in(),
            base_urls: HashMap::new(),
        }
    }
}

/// The HTTP client: create one per process and clone it freely. All models made with it share its connections
/// and gates.
#[derive(Clone)]
pub struct HttpClient(Arc<HttpClientInner>);

struct HttpClientInner {
    options: HttpOptions,
    transport: Transport,
    gates: Mutex<HashMap<EndpointId, Arc<RateLimitGate>>>,
}

impl HttpClient {
    /// A client that uses the network. TLS is set up with the first request that needs it.
    pub fn new(options: HttpOptions) -> Result<HttpClient, HttpError> {
        let line = Transport::Network { clients: Box::new(ClientPool::new(&options)), tape: None };
        Ok(HttpClient::with_transport(options, line))
    }

    /// A client that uses the network and records every exchange on a cassette.
    pub fn recording(options: HttpOptions, cassette: Cassette) -> Result<HttpClient, HttpError> {
        let line = Transport::Network {
            clients: Box::new(ClientPool::new(&options)),
            tape: Some(Arc::new(cassette)),
        };
        Ok(HttpClient::with_transport(options, line))
    }

    /// A client without network: it answers from the recording.
    pub fn replaying(options: HttpOptions, cassette: Cassette) -> HttpClient {
        HttpClient::with_transport(options, Transport::Replay(Arc::new(cassette)))
    }

    fn with_transport(options: HttpOptions, line: Transport) -> HttpClient {
        HttpClient(Arc::new(HttpClientInner { options, transport: line, gates: Mutex::default() }))
    }

    /// A model that uses this wire protocol at this endpoint. `name` is the name people use for it.
    pub fn model_with_wire(
        &self,
        name: &str,
        wire: impl WireProtocol,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> Result<HttpModel, HttpError> {
        self.build_model(name, Box::new(wire), settings, endpoint)
    }

    fn build_model(
        &self,
        name: &str,
        wire: Box<dyn WireProtocol>,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> Result<HttpModel, HttpError> {
        wire.check_settings(&settings)
            .map_err(|why| HttpError::Settings { model: name.to_owned(), why: why.to_string() })?;
        self.transport().add_secrets(&endpoint);
        Ok(HttpModel::new(self.clone(), name, wire, settings, endpoint))
    }

    fn options(&self) -> &HttpOptions {
        &self.0.options
    }

    fn transport(&self) -> &Transport {
        &self.0.transport
    }

    fn gate(&self, endpoint: &Endpoint) -> Arc<RateLimitGate> {
        let limit = || match self.0.options.max_concurrent {
            Some(limit) => ConcurrencyLimit::fixed(limit),
            None => ConcurrencyLimit::adaptive(descriptors::measure()),
        };
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.entry(endpoint.endpoint_id()).or_insert_with(|| RateLimitGate::new(limit())).clone();
        drop(gates);
        if let (None, Some(limit)) = (self.0.options.max_concurrent, endpoint.max_concurrent) {
            gate.fix_limit(limit);
        }
        gate
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// Why a model cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The client could not be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
    /// An invalid URL.
    #[error("invalid base_url: {0}")]
    BaseUrl(String),
    /// A key that cannot be sent in a header.
    #[error(
        "the API key contains characters that cannot be sent in a header; check that you copied only the key"
    )]
    BadKey,
    /// The provider does not support a setting.
    #[error("{model}: {why}")]
    Settings {
        /// The model.
        model: String,
        /// What is not supported.
        why: String,
    },
}
