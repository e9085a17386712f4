//! `auto`: the first model that is available.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use super::catalog::{PROVIDERS, ProviderEntry};
use super::transport::Transport;
use super::{CatalogError, HttpClient, HttpModel, KeySource, ModelSpec, api_keys};

/// How long to wait for a local server to respond.
const PROBE_TIMEOUT: Duration = Duration::from_millis(750);
/// A longer list of models is not read.
const MODEL_LIST: usize = 4 << 20;

#[derive(Deserialize)]
struct ModelList {
    #[serde(default)]
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

impl HttpClient {
    /// The first provider whose key is set, or else a local server that responds. Fails if there is neither.
    pub async fn auto_model(&self, keys: &dyn KeySource) -> Result<Arc<HttpModel>, CatalogError> {
        self.auto_model_among(keys, &self.local_server_urls()).await
    }

    /// The URLs at which local servers are looked for.
    fn local_server_urls(&self) -> [(&'static str, &str); 2] {
        ["ollama", "llamacpp"].map(|name| {
            let entry = PROVIDERS.iter().find(|entry| entry.name == name);
            let place = self.0.options.base_urls.get(name).map(String::as_str);
            (name, place.or(entry.and_then(|entry| entry.base_url)).unwrap_or_default())
        })
    }

    /// Probes the local servers: the name, the URL, and one of its models if it responds.
    pub async fn probe_local_servers(&self) -> Vec<(&'static str, String, Option<String>)> {
        let ask = |(name, place): (&'static str, &str)| {
            let place = place.to_owned();
            async move {
                let model = self.first_model(&place).await;
                (name, place, model)
            }
        };
        futures::future::join_all(self.local_server_urls().map(ask)).await
    }

    /// Like [`auto_model`](Self::auto_model), with local servers that were already probed.
    pub async fn auto_model_among(
        &self,
        keys: &dyn KeySource,
        servers: &[(&str, &str)],
    ) -> Result<Arc<HttpModel>, CatalogError> {
        if let Some(found) = self.auto_model_by_key(keys) {
            return found;
        }
        for (provider, base_url) in servers {
            if let Some(model) = self.first_model(base_url).await {
                let spec = ModelSpec::parse(&format!("{provider}/{model}"))?;
                return self.model(&ModelSpec { base_url: Some((*base_url).to_owned()), ..spec }, keys);
            }
        }
        Err(CatalogError::NoModelFound)
    }

    /// The model of the first provider whose key is set, if any; in a replay, the one that was recorded.
    pub fn auto_model_by_key(&self, keys: &dyn KeySource) -> Option<Result<Arc<HttpModel>, CatalogError>> {
        let fits = |entry: &&ProviderEntry| match self.transport() {
            Transport::Network { .. } => api_keys::first_key(keys, entry.keys).is_some(),
            Transport::Replay(tape) => entry.base_url.is_some_and(|url| tape.recorded_model(url).is_some()),
        };
        let entry = PROVIDERS.iter().filter(|entry| entry.default_model.is_some()).find(fits)?;
        let name = format!("{}/{}", entry.name, entry.default_model?);
        Some(ModelSpec::parse(&name).and_then(|spec| self.model(&spec, keys)))
    }

    /// Whether a recording answers instead of the network.
    pub(super) fn is_replaying(&self) -> bool {
        matches!(self.transport(), Transport::Replay(_))
    }

    async fn first_model(&self, base_url: &str) -> Option<String> {
        let url: reqwest::Url = format!("{}/models", base_url.trim_end_matches('/')).parse().ok()?;
        if let Transport::Replay(tape) = self.transport() {
            return tape.recorded_model(base_url);
        }
        let body = timeout(PROBE_TIMEOUT, self.transport().get(url, MODEL_LIST)).await.ok()??;
        let listed: ModelList = serde_json::from_slice(&body).ok()?;
        listed.data.into_iter().map(|one| one.id).find(|id| !id.is_empty() && !id.contains("embed"))
    }
}
