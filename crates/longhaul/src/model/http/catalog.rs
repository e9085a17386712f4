//! Providers by name: the protocol, the base URL and the key variables of each.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::api_keys::{self, ApiKey, KeySource};
use super::endpoint::{Auth, Endpoint};
use super::{HttpClient, HttpError, HttpModel, provider_opts};
use crate::model::settings::ModelSettings;
use crate::model::wire::openai_chat::{OpenAiChat, Quirks};
use crate::model::wire::openai_responses::OpenAiResponses;
use crate::model::wire::{Anthropic, Gemini, WireProtocol};

/// The protocol that a provider uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ApiType {
    /// OpenAI's chat completions.
    #[serde(rename = "openai_chatcompletions")]
    Chat,
    /// OpenAI's Responses API.
    #[serde(rename = "openai_responses")]
    Responses,
    /// Anthropic's Messages API.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// Google's Gemini API.
    #[serde(rename = "gemini")]
    Gemini,
}

/// A custom provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CustomProvider {
    /// Its protocol. Default: chat completions.
    pub api_type: Option<ApiType>,
    /// Its base URL.
    pub base_url: Option<String>,
    /// The variable that holds its key.
    pub token_key: Option<String>,
    /// A fixed maximum number of concurrent requests; see [`ModelSpec::max_concurrent`].
    pub max_concurrent: Option<usize>,
}

/// A model as a team names it.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ModelSpec {
    /// The provider: a known one, or the name of `custom`.
    pub provider: String,
    /// The model and its settings.
    pub settings: ModelSettings,
    /// The base URL, if it is not the provider's default.
    pub base_url: Option<String>,
    /// The variable that holds the key, if it is not the provider's default.
    pub token_key: Option<String>,
    /// The protocol, if it is not the provider's default.
    pub api_type: Option<ApiType>,
    /// A fixed maximum number of concurrent requests, instead of one that follows the provider. It applies to
    /// all models that use the same base URL with the same key, and the smallest counts.
    /// [`HttpOptions::max_concurrent`](super::HttpOptions::max_concurrent) overrides it.
    pub max_concurrent: Option<usize>,
    /// The definition of the provider, if the team defines it.
    pub custom: Option<CustomProvider>,
}

impl ModelSpec {
    /// Parses `provider/model`. Fails if the name does not have this form.
    pub fn parse(name: &str) -> Result<ModelSpec, CatalogError> {
        match name.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                let settings = ModelSettings { model: model.to_owned(), ..ModelSettings::default() };
                Ok(ModelSpec { provider: provider.to_owned(), settings, ..ModelSpec::default() })
            }
            _ => Err(CatalogError::InvalidModelName(name.to_owned())),
        }
    }

    /// The name people use for it: `provider/model`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.settings.model)
    }
}

fluent_setters!(ModelSpec {
    /// Sets the model and its settings.
    settings: ModelSettings,
    /// Sets the base URL.
    base_url: impl Into<String> => Some(base_url.into()),
    /// Sets the variable that holds the key.
    token_key: impl Into<String> => Some(token_key.into()),
    /// Sets the protocol.
    api_type: ApiType => Some(api_type),
    /// Sets a fixed maximum number of concurrent requests.
    max_concurrent: usize => Some(max_concurrent),
    /// Sets the definition of the provider.
    custom: CustomProvider => Some(custom),
});

/// A known provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProviderEntry {
    pub(super) name: &'static str,
    api: ApiType,
    pub(super) base_url: Option<&'static str>,
    auth: Auth,
    /// The variables that may hold its key. Messages name the first one.
    pub(super) keys: &'static [&'static str],
    /// Whether it works without a key.
    keyless: bool,
    /// The model that `auto` uses.
    pub(super) default_model: Option<&'static str>,
}

const fn chat(name: &'static str, base_url: &'static str, keys: &'static [&'static str]) -> ProviderEntry {
    ProviderEntry { keys, keyless: false, ..local(name, Some(base_url)) }
}

const fn local(name: &'static str, base_url: Option<&'static str>) -> ProviderEntry {
    ProviderEntry {
        name,
        api: ApiType::Chat,
        base_url,
        auth: Auth::Bearer,
        keys: &[],
        keyless: true,
        default_model: None,
    }
}

const fn picked(entry: ProviderEntry, model: &'static str) -> ProviderEntry {
    ProviderEntry { default_model: Some(model), ..entry }
}

/// All known providers, in the order in which `auto` looks for their keys.
pub(super) const PROVIDERS: [ProviderEntry; 20] = [
    ProviderEntry {
        api: ApiType::Anthropic,
        auth: Auth::Anthropic,
        ..picked(
            chat("anthropic", "https://api.anthropic.com/v1", &["ANTHROPIC_API_KEY"]),
            "claude-sonnet-4-5",
        )
    },
    picked(chat("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"]), "gpt-5-mini"),
    ProviderEntry {
        api: ApiType::Gemini,
        auth: Auth::Google,
        ..picked(
            chat(
                "google",
                "https://generativelanguage.googleapis.com/v1beta",
                &["GOOGLE_API_KEY", "GEMINI_API_KEY"],
            ),
            "gemini-2.5-flash",
        )
    },
    picked(chat("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"]), "mistral-medium-latest"),
    picked(chat("xai", "https://api.x.ai/v1", &["XAI_API_KEY"]), "grok-4"),
    picked(chat("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"]), "deepseek-chat"),
    picked(chat("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"]), "openai/gpt-oss-120b"),
    picked(chat("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"]), "openrouter/auto"),
    picked(chat("nebius", "https://api.studio.nebius.com/v1", &["NEBIUS_API_KEY"]), "Qwen/Qwen3-32B"),
    picked(chat("minimax", "https://api.minimax.io/v1", &["MINIMAX_API_KEY"]), "MiniMax-M2"),
    chat("requesty", "https://router.requesty.ai/v1", &["REQUESTY_API_KEY"]),
    chat("perplexity", "https://api.perplexity.ai", &["PERPLEXITY_API_KEY"]),
    // Many environments hold a GitHub token that is not meant for this, so `auto` never picks it.
    chat("github-models", "https://models.github.ai/inference", &["GITHUB_TOKEN", "GH_TOKEN"]),
    ProviderEntry {
        auth: Auth::Azure,
        base_url: None,
        ..chat("azure", "", &["AZURE_API_KEY", "AZURE_OPENAI_API_KEY"])
    },
    local("ollama", Some("http://127.0.0.1:11434/v1")),
    local("llamacpp", Some("http://127.0.0.1:8080/v1")),
    local("lmstudio", Some("http://127.0.0.1:1234/v1")),
    local("vllm", Some("http://127.0.0.1:8000/v1")),
    local("dmr", Some("http://127.0.0.1:12434/engines/v1")),
    local("local", None),
];

/// Other spellings of provider names.
const PROVIDER_ALIASES: [(&str, &str); 7] = [
    ("gemini", "google"),
    ("github", "github-models"),
    ("llama.cpp", "llamacpp"),
    ("azure-openai", "azure"),
    ("azure_openai", "azure"),
    ("bedrock", "amazon-bedrock"),
    ("aws-bedrock", "amazon-bedrock"),
];

fn canonical_provider(provider: &str) -> &str {
    PROVIDER_ALIASES.iter().find(|(other, _)| *other == provider).map_or(provider, |(_, one)| one)
}

/// The names of all providers.
pub fn known_providers() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|entry| entry.name).chain(["amazon-bedrock"])
}

/// The key variables of every provider: its name, and the variables that may hold its key.
pub fn provider_key_variables() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    PROVIDERS.iter().filter(|entry| !entry.keys.is_empty()).map(|entry| (entry.name, entry.keys))
}

/// The variables that may hold the key of a provider.
pub(crate) fn key_variables_of(provider: &str) -> &'static [&'static str] {
    PROVIDERS.iter().find(|entry| entry.name == canonical_provider(provider)).map_or(&[], |entry| entry.keys)
}

/// Whether a URL points to the provider itself or to this machine, so that no third party receives what is
/// sent there.
pub(crate) fn is_provider_or_local_url(provider: &str, url: &str) -> bool {
    let entry = PROVIDERS.iter().find(|entry| entry.name == canonical_provider(provider));
    let home = entry.filter(|entry| entry.base_url.is_some());
    // A provider without a default URL has only this machine.
    let home = home.copied().unwrap_or(local("", Some("http://localhost")));
    Url::parse(url.trim()).is_ok() && foreign_host(url, &home).is_none()
}

/// Whether this is the name of a provider, in any spelling.
pub fn is_known_provider(name: &str) -> bool {
    known_providers().any(|known| known == canonical_provider(name))
}

/// Providers that serve their own models, under names that are the same for everyone. Gateways serve the
/// models of others, and clouds serve deployments that their customers name.
const MAKERS: [&str; 6] = ["anthropic", "openai", "google", "mistral", "xai", "deepseek"];

/// How long a local server may take to read a prompt.
const LOCAL_FIRST_BYTE: Duration = Duration::from_secs(600);

impl HttpClient {
    /// The known model that is closest to an unknown name, if one is close. Use it for a warning only,
    /// because new models come out all the time. Works only for makers at their default URL.
    pub fn meant(&self, provider: &str, model: &str) -> Option<&str> {
        let maker = canonical_provider(provider);
        if !MAKERS.contains(&maker) || self.0.options.base_urls.contains_key(maker) {
            return None;
        }
        self.0.options.prices.meant(maker, model)
    }

    /// Creates the model of this spec, with its key. Fails if the provider is unknown, the key is missing or
    /// a setting is not supported.
    pub fn model(&self, spec: &ModelSpec, keys: &dyn KeySource) -> Result<Arc<HttpModel>, CatalogError> {
        let name = spec.name();
        if spec.settings.model.is_empty() {
            return Err(CatalogError::InvalidModelName(name));
        }
        let provider = canonical_provider(&spec.provider);
        if provider == "amazon-bedrock" {
            return Err(CatalogError::Bedrock);
        }
        let custom = spec.custom.clone().unwrap_or_default();
        let own_url = spec.base_url.as_ref().or(custom.base_url.as_ref());
        let entry = match (PROVIDERS.iter().find(|entry| entry.name == provider), &spec.custom, own_url) {
            (Some(entry), None, _) => *entry,
            (known, Some(_), Some(_)) | (known @ None, None, Some(_)) => {
                ProviderEntry { name: known.map_or("custom", |entry| entry.name), ..local("", None) }
            }
            (Some(entry), Some(_), None) => *entry,
            (None, Some(_), None) => return Err(CatalogError::MissingBaseUrl(name)),
            (None, None, None) => return Err(CatalogError::UnknownProvider(spec.provider.clone())),
        };
        let place = || self.0.options.base_urls.get(entry.name).map(String::as_str).or(entry.base_url);
        let Some(base_url) = own_url.map(String::as_str).or_else(place) else {
            return Err(CatalogError::MissingBaseUrl(name));
        };
        let base_url = if entry.auth == Auth::Azure { azure(base_url) } else { base_url.to_owned() };
        let wrong = |why: provider_opts::ProviderOptsError| HttpError::Settings {
            model: name.clone(),
            why: why.to_string(),
        };
        let mut settings = spec.settings.clone();
        let from_opts = provider_opts::take_api_type(&mut settings).map_err(wrong)?;
        let by_model = || match matches!(entry.name, "openai" | "azure") && spec.custom.is_none() {
            true if provider_opts::needs_responses(&settings.model) => ApiType::Responses,
            _ => entry.api,
        };
        let api = spec.api_type.or(from_opts).or(custom.api_type).unwrap_or_else(by_model);
        let beside = provider_opts::translate_opts(provider, api, &mut settings).map_err(wrong)?;
        let base_url = with_version(api, base_url);
        let base_url = match beside.api_version {
            Some(version) => with_api_version(base_url, &version),
            None => base_url,
        };
        let auth = match (api, entry.auth) {
            (ApiType::Anthropic, Auth::Bearer) => Auth::Anthropic,
            (ApiType::Gemini, Auth::Bearer) => Auth::Google,
            (_, auth) => auth,
        };
        let token_key = spec.token_key.as_deref().or(custom.token_key.as_deref());
        let key = find_key(&name, token_key, &entry, own_url.is_some().then_some(base_url.as_str()), keys);
        let key = match key {
            // A recording needs no key.
            Err(CatalogError::MissingKey { .. }) if self.is_replaying() => None,
            key => key?,
        };
        let mut endpoint = Endpoint::new(&base_url, auth, key)?;
        for (name, value) in beside.headers {
            endpoint = endpoint.insert_header(name, value);
        }
        if entry.keyless {
            endpoint = endpoint.with_first_byte_timeout(LOCAL_FIRST_BYTE);
        }
        if let Some(limit) = spec.max_concurrent.or(custom.max_concurrent) {
            endpoint = endpoint.with_max_concurrent(limit);
        }
        let wire: Box<dyn WireProtocol> = match api {
            // A chat endpoint at a custom URL is usually a local server.
            ApiType::Chat => Box::new(OpenAiChat::new(Quirks::for_provider(provider))),
            ApiType::Responses => Box::new(OpenAiResponses::new()),
            ApiType::Anthropic => Box::new(Anthropic),
            ApiType::Gemini => Box::new(Gemini),
        };
        let mut model = self.build_model(&name, wire, settings, endpoint)?;
        model.reads_text_calls = entry.keyless;
        // The price depends on the provider itself, not on the name the team gives it.
        let usual_name = format!("{provider}/{}", spec.settings.model);
        model.price = model.price.or_else(|| self.0.options.prices.price_of(&usual_name));
        model.reports_cost = matches!(provider, "openrouter" | "perplexity");
        Ok(Arc::new(model))
    }
}

/// Finds the key. A `token_key` that is named must exist; a default key only if the provider needs one. A
/// provider's default key is sent to that provider and to this machine, never to another host that `base_url`
/// names.
fn find_key(
    model: &str,
    token_key: Option<&str>,
    entry: &ProviderEntry,
    own_url: Option<&str>,
    keys: &dyn KeySource,
) -> Result<Option<ApiKey>, CatalogError> {
    let missing = |names: &[&str]| CatalogError::MissingKey {
        model: model.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    if let Some(name) = token_key {
        return api_keys::first_key(keys, &[name]).map(|(_, key)| Some(key)).ok_or_else(|| missing(&[name]));
    }
    match api_keys::first_key(keys, entry.keys) {
        Some((name, key)) => match own_url.and_then(|url| foreign_host(url, entry)) {
            None => Ok(Some(key)),
            Some(host) => Err(CatalogError::KeyForOtherHost { model: model.to_owned(), host, name }),
        },
        None if entry.keyless || own_url.is_some() => Ok(None),
        None => Err(missing(entry.keys)),
    }
}

/// The host of a URL, if it is neither this machine nor below the provider's domain. `None` for providers
/// without a default URL, such as Azure.
fn foreign_host(url: &str, entry: &ProviderEntry) -> Option<String> {
    let (url, home) = (Url::parse(url.trim()).ok()?, Url::parse(entry.base_url?).ok()?);
    let host = url.host_str()?;
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    if host == "localhost" || host.ends_with(".localhost") || ip.is_ok_and(|ip| ip.is_loopback()) {
        return None;
    }
    let home_host = home.host_str()?;
    let domain = home_host.rmatch_indices('.').nth(1).map_or(home_host, |(at, _)| &home_host[at + 1..]);
    let below = host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    (!below || url.scheme() != home.scheme()).then(|| host.to_owned())
}

/// The SDKs of Anthropic and Google take a base URL without the API version, and so do most team files: add
/// the version.
fn with_version(api: ApiType, base_url: String) -> String {
    let version = match api {
        ApiType::Anthropic => "/v1",
        ApiType::Gemini => "/v1beta",
        ApiType::Chat | ApiType::Responses => return base_url,
    };
    let Ok(mut url) = Url::parse(base_url.trim()) else { return base_url };
    let path = url.path().trim_end_matches('/').to_owned();
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if path.split('/').any(is_version) {
        return base_url;
    }
    url.set_path(&format!("{path}{version}"));
    url.into()
}

/// Most people give the URL of an Azure resource without the path of the API: add the path.
fn azure(base_url: &str) -> String {
    let base = base_url.trim_end_matches('/');
    let bare = base.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
    if bare { format!("{base}/openai/v1") } else { base_url.to_owned() }
}

/// Azure's deployments take the API version as a query parameter. The newer API has the version in its path
/// and takes no date ("Azure OpenAI in Microsoft Foundry Models v1 API").
fn with_api_version(base_url: String, version: &str) -> String {
    let Ok(mut url) = Url::parse(base_url.trim()) else { return base_url };
    let is_dated = version.starts_with(|c: char| c.is_ascii_digit());
    if is_dated && url.path().trim_end_matches('/').ends_with("/openai/v1") {
        return base_url;
    }
    url.query_pairs_mut().append_pair("api-version", version);
    url.into()
}

/// Why a model cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The name is not `provider/model`.
    #[error("'{0}' does not name a model: write provider/model, such as openai/gpt-5")]
    InvalidModelName(String),
    /// The provider is unknown.
    #[error("there is no provider '{0}'; known providers: {names}. A custom provider needs a base_url", names = names())]
    UnknownProvider(String),
    /// The provider has no default URL.
    #[error("{0}: this provider needs a base_url")]
    MissingBaseUrl(String),
    /// No key was found.
    #[error("{model} needs a key: set {}", .names.join(" or "))]
    MissingKey {
        /// The model.
        model: String,
        /// The variables in which a key was looked for.
        names: Vec<String>,
    },
    /// The key would be sent to another host.
    #[error(
        "{model}: base_url points to {host}, which is not the provider's own host, so {name} is not sent there. Set \
         `token_key: {name}` if that key is meant for it, or name the right key; for a server that needs none, write \
         local/MODEL"
    )]
    KeyForOtherHost {
        /// The model.
        model: String,
        /// The host that would receive the key.
        host: String,
        /// The variable that holds the key.
        name: String,
    },
    /// Amazon's Bedrock protocol.
    #[error(
        "amazon-bedrock is not supported yet: it needs signed requests. Use the maker's own provider, or a gateway \
         with a base_url"
    )]
    Bedrock,
    /// `auto` found no model.
    #[error(
        "no model can be asked: set one of {}, start Ollama or llama.cpp's server, or name a model with a base_url",
        auto_keys()
    )]
    NoModelFound,
    /// The endpoint or the client cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
}

fn names() -> String {
    PROVIDERS.map(|entry| entry.name).join(", ")
}

fn auto_keys() -> String {
    let names = PROVIDERS.iter().filter(|entry| entry.default_model.is_some()).map(|entry| entry.keys[0]);
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
