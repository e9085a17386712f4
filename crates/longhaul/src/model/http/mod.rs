//! Models behind HTTP: one client for the process, one gate per endpoint and key, and the wire of each provider.
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
//! Nothing here tries again: a [`HttpModel`] asks once, and says what went wrong and when to come back. Whoever asked
//! decides; the gate sees to it that nobody asks too early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod cassette;
mod catalog;
mod client;
mod endpoint;
mod transport;
mod fallback;
mod unexpected_body;
mod rate_limit_gate;
mod api_keys;
mod retry_after;
mod auto_detect;
mod provider_opts;
mod http_model;

pub(crate) use client::tls_config;

pub use api_keys::{ApiKey, KeySource, NoKeys};
pub use cassette::{Cassette, CassetteError};
pub use catalog::{
    ApiType, CatalogError, CustomProvider, ModelSpec, is_known_provider, known_providers,
    provider_key_variables,
};
pub(crate) use catalog::{is_provider_or_local_url, key_variables_of};
pub use endpoint::{Auth, Endpoint};
pub use fallback::FallbackModel;
pub use http_model::HttpModel;

use crate::model::prices::PriceTable;
use crate::model::settings::ModelSettings;
use crate::model::wire::WireProtocol;
use endpoint::EndpointId;
use rate_limit_gate::RateLimitGate;
use transport::Transport;

/// How providers are asked.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long an answer may take to begin.
    pub first_byte_timeout: Duration,
    /// How long an answer may pause.
    pub idle_timeout: Duration,
    /// How many requests may be under way at once, for each endpoint and key.
    pub max_concurrent: usize,
    /// Whether the proxies of the machine, its environment variables included, are used.
    pub system_proxy: bool,
    /// What tokens cost.
    pub prices: PriceTable,
    /// Where providers are that are not at their usual place, such as a server of this machine at another port: base
    /// URLs by the provider's name.
    pub base_urls: HashMap<String, String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(120),
            max_concurrent: 64,
            system_proxy: false,
            prices: PriceTable::built_in(),
            base_urls: HashMap::new(),
        }
    }
}

/// The way out: one a process, cloned freely. Connections and gates are shared by all that is made with it.
#[derive(Clone)]
pub struct HttpClient(Arc<HttpClientInner>);

struct HttpClientInner {
    options: HttpOptions,
    transport: Transport,
    gates: Mutex<HashMap<EndpointId, Arc<RateLimitGate>>>,
}

impl HttpClient {
    /// A way to the network.
    pub fn new(options: HttpOptions) -> Result<HttpClient, HttpError> {
        let line = Transport::Network { client: client::build_client(&options)?, tape: None };
        Ok(HttpClient::with_transport(options, line))
    }

    /// The same, and what goes over it is recorded.
    pub fn recording(options: HttpOptions, cassette: Cassette) -> Result<HttpClient, HttpError> {
        let line =
            Transport::Network { client: client::build_client(&options)?, tape: Some(Arc::new(cassette)) };
        Ok(HttpClient::with_transport(options, line))
    }

    /// No network at all: what was recorded is answered again.
    pub fn replaying(options: HttpOptions, cassette: Cassette) -> HttpClient {
        HttpClient::with_transport(options, Transport::Replay(Arc::new(cassette)))
    }

    fn with_transport(options: HttpOptions, line: Transport) -> HttpClient {
        HttpClient(Arc::new(HttpClientInner { options, transport: line, gates: Mutex::default() }))
    }

    /// A model that speaks this wire at this endpoint. `name` is what people call it.
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
        wire.check_settings(&settings).map_err(|why| HttpError::Settings { model: name.to_owned(), why })?;
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
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates
            .entry(endpoint.endpoint_id())
            .or_insert_with(|| RateLimitGate::new(self.0.options.max_concurrent))
            .clone()
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// Why there is no way to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The client could not be made.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
    /// A URL that is none.
    #[error("base_url cannot be used: {0}")]
    BaseUrl(String),
    /// A key that no header can carry.
    #[error("the key has characters in it that cannot be sent; was it copied whole, and nothing but it?")]
    BadKey,
    /// The provider cannot do what is asked of it.
    #[error("{model}: {why}")]
    Settings {
        /// The model.
        model: String,
        /// What it cannot do.
        why: String,
    },
}
