//! Models behind HTTP: one client for the process, one gate per endpoint and key, and the wire of each provider.
//!
//! ```no_run
//! use longhaul::model::http::{Http, HttpOptions, ModelSpec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = |name: &str| std::env::var(name).ok().map(Into::into);
//! let http = Http::new(HttpOptions::default())?;
//! let model = http.model(&ModelSpec::parse("anthropic/claude-sonnet-4-5")?, &keys)?;
//! # Ok(()) }
//! ```
//!
//! Nothing here tries again: a [`Provider`] asks once, and says what went wrong and when to come back. Whoever asked
//! decides; the gate sees to it that nobody asks too early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod cassette;
mod catalog;
mod client;
mod endpoint;
mod exchange;
mod fallback;
mod foreign;
mod gate;
mod keys;
mod limits;
mod local;
mod options;
mod provider;

pub(crate) use client::tls;

pub use cassette::{Cassette, CassetteError};
pub use catalog::{
    ApiType, CatalogError, CustomProvider, ModelSpec, is_known_provider, known_providers, usual_keys,
};
pub(crate) use catalog::{is_at_home, usual_keys_of};
pub use endpoint::{Auth, Endpoint};
pub use fallback::Fallback;
pub use keys::{Key, Keys, NoKeys};
pub use provider::Provider;

use crate::model::prices::Prices;
use crate::model::settings::ModelSettings;
use crate::model::wire::Wire;
use endpoint::Identity;
use exchange::Line;
use gate::Gate;

/// How providers are asked.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long an answer may take to begin.
    pub first_byte: Duration,
    /// How long an answer may pause.
    pub silence: Duration,
    /// How many requests may be under way at once, for each endpoint and key.
    pub concurrent: usize,
    /// Whether the proxies of the machine, its environment variables included, are used.
    pub system_proxy: bool,
    /// What tokens cost.
    pub prices: Prices,
    /// Where providers are that are not at their usual place, such as a server of this machine at another port: base
    /// URLs by the provider's name.
    pub places: HashMap<String, String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            silence: Duration::from_secs(120),
            concurrent: 64,
            system_proxy: false,
            prices: Prices::shipped(),
            places: HashMap::new(),
        }
    }
}

/// The way out: one a process, cloned freely. Connections and gates are shared by all that is made with it.
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    options: HttpOptions,
    line: Line,
    gates: Mutex<HashMap<Identity, Arc<Gate>>>,
}

impl Http {
    /// A way to the network.
    pub fn new(options: HttpOptions) -> Result<Http, HttpError> {
        let line = Line::Net { client: client::build(&options)?, tape: None };
        Ok(Http::over(options, line))
    }

    /// The same, and what goes over it is recorded.
    pub fn recording(options: HttpOptions, cassette: Cassette) -> Result<Http, HttpError> {
        let line = Line::Net { client: client::build(&options)?, tape: Some(Arc::new(cassette)) };
        Ok(Http::over(options, line))
    }

    /// No network at all: what was recorded is answered again.
    pub fn replaying(options: HttpOptions, cassette: Cassette) -> Http {
        Http::over(options, Line::Tape(Arc::new(cassette)))
    }

    fn over(options: HttpOptions, line: Line) -> Http {
        Http(Arc::new(Inner { options, line, gates: Mutex::default() }))
    }

    /// A model that speaks this wire at this endpoint. `name` is what people call it.
    pub fn provider(
        &self,
        name: &str,
        wire: impl Wire,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> Result<Provider, HttpError> {
        self.provider_of(name, Box::new(wire), settings, endpoint)
    }

    fn provider_of(
        &self,
        name: &str,
        wire: Box<dyn Wire>,
        settings: ModelSettings,
        endpoint: Endpoint,
    ) -> Result<Provider, HttpError> {
        wire.check(&settings).map_err(|why| HttpError::Settings { model: name.to_owned(), why })?;
        self.line().know(&endpoint);
        Ok(Provider::new(self.clone(), name, wire, settings, endpoint))
    }

    fn options(&self) -> &HttpOptions {
        &self.0.options
    }

    fn line(&self) -> &Line {
        &self.0.line
    }

    fn gate(&self, endpoint: &Endpoint) -> Arc<Gate> {
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(endpoint.identity()).or_insert_with(|| Gate::new(self.0.options.concurrent)).clone()
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
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
