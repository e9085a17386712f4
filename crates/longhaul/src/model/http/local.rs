//! `auto`: the first model that can be asked.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::catalog::{Entry, PROVIDERS};
use super::exchange::Line;
use super::{CatalogError, Http, Keys, ModelSpec, Provider, keys};

/// How long a server on this machine may take to say that it is there.
const THERE: Duration = Duration::from_millis(750);

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    data: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    id: String,
}

impl Http {
    /// The first provider whose key is set, or a server on this machine that answers.
    pub async fn auto(&self, keys: &dyn Keys) -> Result<Arc<Provider>, CatalogError> {
        self.auto_among(keys, &self.servers()).await
    }

    /// Where servers on this machine are looked for.
    fn servers(&self) -> [(&'static str, &str); 2] {
        ["ollama", "llamacpp"].map(|name| {
            let entry = PROVIDERS.iter().find(|entry| entry.name == name);
            let place = self.0.options.places.get(name).map(String::as_str);
            (name, place.or(entry.and_then(|entry| entry.base_url)).unwrap_or_default())
        })
    }

    /// The servers on this machine that are looked for: name, place, and a model of it if it answers.
    pub async fn servers_here(&self) -> Vec<(&'static str, String, Option<String>)> {
        let ask = |(name, place): (&'static str, &str)| {
            let place = place.to_owned();
            async move {
                let model = self.first_model(&place).await;
                (name, place, model)
            }
        };
        futures::future::join_all(self.servers().map(ask)).await
    }

    /// The same, with these servers.
    pub async fn auto_among(
        &self,
        keys: &dyn Keys,
        servers: &[(&str, &str)],
    ) -> Result<Arc<Provider>, CatalogError> {
        if let Some(found) = self.auto_by_key(keys) {
            return found;
        }
        for (provider, base_url) in servers {
            if let Some(model) = self.first_model(base_url).await {
                let spec = ModelSpec::parse(&format!("{provider}/{model}"))?;
                return self.model(&ModelSpec { base_url: Some((*base_url).to_owned()), ..spec }, keys);
            }
        }
        Err(CatalogError::Nothing)
    }

    /// The first provider whose key is set, if one is; in a recording, the one that was asked.
    pub fn auto_by_key(&self, keys: &dyn Keys) -> Option<Result<Arc<Provider>, CatalogError>> {
        let fits = |entry: &&Entry| match self.line() {
            Line::Net { .. } => keys::first(keys, entry.keys).is_some(),
            Line::Tape(tape) => entry.base_url.is_some_and(|url| tape.model_at(url).is_some()),
        };
        let entry = PROVIDERS.iter().filter(|entry| entry.default_model.is_some()).find(fits)?;
        let name = format!("{}/{}", entry.name, entry.default_model?);
        Some(ModelSpec::parse(&name).and_then(|spec| self.model(&spec, keys)))
    }

    /// Whether a recording answers, and no network is used.
    pub(super) fn is_replaying(&self) -> bool {
        matches!(self.line(), Line::Tape(_))
    }

    async fn first_model(&self, base_url: &str) -> Option<String> {
        let client = match self.line() {
            Line::Net { client, .. } => client,
            Line::Tape(tape) => return tape.model_at(base_url),
        };
        let sent = client.get(format!("{}/models", base_url.trim_end_matches('/'))).timeout(THERE).send();
        let body = sent.await.ok()?.error_for_status().ok()?.bytes().await.ok()?;
        let listed: Listed = serde_json::from_slice(&body).ok()?;
        listed.data.into_iter().map(|one| one.id).find(|id| !id.is_empty() && !id.contains("embed"))
    }
}
