//! Handles the `provider_opts` that do not go into the request body: docker-agent's own options, translated
//! or refused. They are listed in its documentation (`docs/providers` and `docs/configuration/models`,
//! September 2026) and in `pkg/model/provider`.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::ApiType;
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::anthropic::binds_thinking;

/// Options of docker-agent that have no effect here, and what to do instead.
const REFUSED: [(&str, &str); 12] = [
    ("runtime_flags", "start the server with these flags yourself"),
    ("raw_runtime_flags", "start the server with these flags yourself"),
    ("speculative_draft_model", "start the server with it yourself"),
    ("speculative_num_tokens", "start the server with it yourself"),
    ("speculative_acceptance_rate", "start the server with it yourself"),
    ("project", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("location", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("publisher", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("region", "amazon-bedrock is not supported: use the maker's own provider"),
    ("role_arn", "amazon-bedrock is not supported: use the maker's own provider"),
    ("rerank_prompt", "Longhaul does not re-rank results with a model"),
    ("disable_prompt_caching", "write `cache: false`"),
];

/// Options that docker-agent passes to Docker Model Runner before a request. Other providers may use the same
/// names.
const REFUSED_BY_DMR: [&str; 4] = ["keep_alive", "mode", "gpu_memory_utilization", "hf_overrides"];

/// Tools that Gemini runs itself, by docker-agent's names.
const GEMINI_TOOLS: [(&str, &str); 4] = [
    ("google_search", "googleSearch"),
    ("google_maps", "googleMaps"),
    ("code_execution", "codeExecution"),
    ("url_context", "urlContext"),
];

/// Headers that only Longhaul sets.
const OUR_HEADERS: [&str; 8] = [
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "anthropic-version",
    "content-type",
    "content-length",
    "host",
];

/// The results of the options that do not go into the body.
#[derive(Debug, Default)]
pub(super) struct RequestExtras {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The version of Azure's API.
    pub(super) api_version: Option<String>,
}

/// An option that is wrong or not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider_opts: {0}")]
pub(super) struct ProviderOptsError(String);

fn wrong<T>(why: impl Into<String>) -> Result<T, ProviderOptsError> {
    Err(ProviderOptsError(why.into()))
}

/// Removes the protocol from the options and returns it.
pub(super) fn take_api_type(settings: &mut ModelSettings) -> Result<Option<ApiType>, ProviderOptsError> {
    let Some(value) = settings.provider_opts.remove("api_type") else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|_| {
        ProviderOptsError(format!(
            "api_type is openai_chatcompletions, openai_responses, anthropic or gemini, not {value}"
        ))
    })
}

/// Translates the options and returns those that do not go into the body. Fails on an option that is not
/// supported.
pub(super) fn translate_opts(
    provider: &str,
    api: ApiType,
    settings: &mut ModelSettings,
) -> Result<RequestExtras, ProviderOptsError> {
    let opts = &mut settings.provider_opts;
    if let Some((key, instead)) = REFUSED.iter().find(|(key, _)| opts.contains_key(*key)) {
        return wrong(format!(
            "{key} is an option of docker-agent that Longhaul does not support: {instead}"
        ));
    }
    if let Some(key) = REFUSED_BY_DMR.iter().find(|key| provider == "dmr" && opts.contains_key(**key)) {
        return wrong(format!(
            "{key} is an option of docker-agent that Longhaul does not support: use `docker model configure`"
        ));
    }
    let mut beside =
        RequestExtras { headers: http_headers(opts)?, api_version: api_version(provider, opts)? };
    match opts.remove("transport").as_ref().map(|value| value.as_str().unwrap_or_default()) {
        None | Some("sse") => {}
        Some(_) => {
            return wrong("transport can only be sse here; leave it out");
        }
    }
    if let Some(size) = opts.remove("context_size") {
        let Some(tokens) = size.as_u64().filter(|tokens| *tokens > 0) else {
            return wrong(format!("context_size is a number of tokens, not {size}"));
        };
        settings.context_size = Some(tokens);
    }
    match opts.remove("extra_body") {
        None => {}
        Some(Value::Object(body)) => opts.extend(body),
        Some(other) => {
            return wrong(format!("extra_body is a map, not {other}"));
        }
    }
    gemini(api, opts)?;
    let betas = anthropic(api, settings)?;
    if !betas.is_empty() {
        let value =
            HeaderValue::from_str(&betas.join(",")).map_err(|error| ProviderOptsError(error.to_string()))?;
        beside.headers.push((HeaderName::from_static("anthropic-beta"), value));
    }
    Ok(beside)
}

fn http_headers(opts: &mut Map<String, Value>) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderOptsError> {
    let wrong = |what: &str| ProviderOptsError(format!("http_headers {what}"));
    let headers = match opts.remove("http_headers") {
        None => return Ok(Vec::new()),
        Some(Value::Object(headers)) => headers,
        Some(other) => return Err(wrong(&format!("is a map of names and texts, not {other}"))),
    };
    let mut made = Vec::new();
    for (name, value) in headers {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| wrong(&format!("has '{name}', which is not a valid header name")))?;
        if OUR_HEADERS.contains(&header.as_str()) {
            return Err(wrong(&format!(
                "has '{name}', which Longhaul sets itself; use token_key to name a key"
            )));
        }
        let mut value = value
            .as_str()
            .and_then(|text| HeaderValue::from_str(text).ok())
            .ok_or_else(|| wrong(&format!("has '{name}' with a value that is not valid in a header")))?;
        value.set_sensitive(true);
        made.push((header, value));
    }
    Ok(made)
}

fn api_version(provider: &str, opts: &mut Map<String, Value>) -> Result<Option<String>, ProviderOptsError> {
    match opts.remove("api_version") {
        None => Ok(None),
        Some(_) if provider != "azure" => wrong("api_version is for azure only"),
        Some(Value::String(version)) => Ok(Some(version)),
        Some(other) => wrong(format!("api_version is a text, not {other}")),
    }
}

/// Gemini's built-in tools, and settings that belong elsewhere in its body.
fn gemini(api: ApiType, opts: &mut Map<String, Value>) -> Result<(), ProviderOptsError> {
    for (key, tool) in GEMINI_TOOLS {
        if !is_on(opts, key)? {
            continue;
        }
        if api != ApiType::Gemini {
            return wrong(format!("{key} is for Gemini only"));
        }
        match opts.entry("tools").or_insert_with(|| json!([])) {
            Value::Array(tools) => tools.push(json!({ tool: {} })),
            other => return wrong(format!("tools is a list, not {other}")),
        }
    }
    if api != ApiType::Gemini {
        return Ok(());
    }
    for (key, name) in [("top_k", "topK"), ("seed", "seed")] {
        let Some(value) = opts.remove(key) else { continue };
        match opts.entry("generationConfig").or_insert_with(|| json!({})) {
            Value::Object(config) => config.insert(name.to_owned(), value),
            other => {
                return wrong(format!("generationConfig is a map, not {other}"));
            }
        };
    }
    if let Some(tier) = opts.remove("service_tier") {
        opts.insert("serviceTier".to_owned(), tier);
    }
    Ok(())
}

/// Translates Anthropic's options and returns the names of the betas that they need.
fn anthropic(api: ApiType, settings: &mut ModelSettings) -> Result<Vec<&'static str>, ProviderOptsError> {
    let thinks = match &settings.thinking {
        None | Some(Thinking::Off) => false,
        Some(Thinking::Effort(word)) => word != "none",
        Some(_) => true,
    };
    let opts = &mut settings.provider_opts;
    let keys = ["interleaved_thinking", "thinking_display", "thinking_prefix_mismatch", "fallbacks"];
    if api != ApiType::Anthropic {
        if let Some(key) = keys.iter().find(|key| opts.get(**key).is_some_and(|value| value != false)) {
            return wrong(format!("{key} is for Anthropic's models only"));
        }
        opts.remove("interleaved_thinking");
        return Ok(Vec::new());
    }
    let mut betas = Vec::new();
    if is_on(opts, "interleaved_thinking")? {
        betas.push("interleaved-thinking-2025-05-14");
    }
    match opts.remove("fallbacks") {
        None => {}
        Some(Value::Array(models)) if models.iter().all(Value::is_string) => {
            let models: Vec<Value> = models.into_iter().map(|model| json!({ "model": model })).collect();
            opts.insert("fallbacks".to_owned(), Value::Array(models));
            betas.push("server-side-fallback-2026-06-01");
        }
        Some(other) => {
            return wrong(format!("fallbacks is a list of models, not {other}"));
        }
    }
    let mut thinking = Map::new();
    if let Some(shown) = opts.remove("thinking_display") {
        if !matches!(shown.as_str(), Some("summarized" | "omitted")) {
            return wrong(format!("thinking_display is summarized or omitted, not {shown}"));
        }
        if !thinks {
            return wrong("thinking_display has no effect without thinking: set thinking_budget");
        }
        thinking.insert("display".to_owned(), shown);
    }
    // Longhaul changes what comes before the thinking: a summary replaces messages, and the system
    // instruction is rebuilt. Models that check this reject the conversation from then on, unless they are
    // told to drop such thinking.
    let binding = match opts.remove("thinking_prefix_mismatch") {
        None => (binds_thinking(&settings.model) && (thinks || settings.thinking.is_none()))
            .then(|| json!("drop_block")),
        Some(value) if matches!(value.as_str(), Some("error" | "drop_block")) => Some(value),
        Some(other) => {
            return wrong(format!("thinking_prefix_mismatch is error or drop_block, not {other}"));
        }
    };
    if let Some(binding) = binding {
        betas.push("thinking-binding-controls-2026-08-01");
        thinking.insert("block_binding".to_owned(), json!({ "prefix_mismatch_behavior": binding }));
        if settings.thinking.is_none() && binds_thinking(&settings.model) {
            // The default of these models.
            thinking.insert("type".to_owned(), json!("adaptive"));
        }
    }
    if thinking.is_empty() {
        return Ok(betas);
    }
    match opts.entry("thinking").or_insert_with(|| json!({})) {
        Value::Object(own) => {
            for (key, value) in thinking {
                own.entry(key).or_insert(value);
            }
            Ok(betas)
        }
        other => wrong(format!("thinking is a map, not {other}")),
    }
}

fn is_on(opts: &mut Map<String, Value>, key: &str) -> Result<bool, ProviderOptsError> {
    match opts.remove(key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(on),
        Some(other) => wrong(format!("{key} is true or false, not {other}")),
    }
}

/// Whether an OpenAI model supports tools only with the Responses API: `gpt-5.4` and later, and models that
/// exist only there.
pub(super) fn needs_responses(model: &str) -> bool {
    let name = model.strip_prefix("ft:").unwrap_or(model);
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let name = name.split(':').next().unwrap_or_default();
    let thinks = name.starts_with("gpt-5") || name.starts_with('o') || name.starts_with("codex");
    if name.contains("codex") || name.contains("deep-research") || (thinks && name.ends_with("-pro")) {
        return true;
    }
    let Some(version) = name.strip_prefix("gpt-") else { return false };
    let version = version.split('-').next().unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    matches!((major.parse::<u32>(), minor.parse::<u32>()), (Ok(major), Ok(minor)) if (major, minor) >= (5, 4))
}
