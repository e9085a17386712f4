//! `provider_opts` that are not for the provider's body: docker-agent's own, translated or refused.

use serde_json::{Value, json};

use super::ApiType;
use crate::model::settings::ModelSettings;

/// Options of docker-agent that say nothing here, and what to do instead.
const REFUSED: [(&str, &str); 11] = [
    ("runtime_flags", "start the server with these flags yourself"),
    ("speculative_draft_model", "start the server with it yourself"),
    ("speculative_num_tokens", "start the server with it yourself"),
    ("speculative_acceptance_rate", "start the server with it yourself"),
    ("project", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("location", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("publisher", "Vertex AI is not supported: use the provider google with a key, or a base_url"),
    ("region", "amazon-bedrock is not supported: use the maker's own provider"),
    ("role_arn", "amazon-bedrock is not supported: use the maker's own provider"),
    ("rerank_prompt", "nothing is re-ranked by a model"),
    ("disable_prompt_caching", "write `cache: false`"),
];

/// Tools that Gemini runs itself, as docker-agent names them.
const GEMINI_TOOLS: [(&str, &str); 3] =
    [("google_search", "googleSearch"), ("google_maps", "googleMaps"), ("code_execution", "codeExecution")];

/// Takes the protocol out of the options.
pub(super) fn api_type(settings: &mut ModelSettings) -> Result<Option<ApiType>, String> {
    let Some(value) = settings.provider_opts.remove("api_type") else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|_| {
        format!(
            "provider_opts: api_type is openai_chatcompletions, openai_responses, anthropic or gemini, not {value}"
        )
    })
}

/// Translates what can be, and gives the headers that come of it.
pub(super) fn translate(
    api: ApiType,
    settings: &mut ModelSettings,
) -> Result<Vec<(&'static str, &'static str)>, String> {
    let opts = &mut settings.provider_opts;
    if let Some((key, instead)) = REFUSED.iter().find(|(key, _)| opts.contains_key(*key)) {
        return Err(format!("provider_opts: {key} is docker-agent's own and does nothing here: {instead}"));
    }
    let mut headers = Vec::new();
    if is_on(opts, "interleaved_thinking")? {
        if api != ApiType::Anthropic {
            return Err("provider_opts: interleaved_thinking is for Anthropic's models only".to_owned());
        }
        headers.push(("anthropic-beta", "interleaved-thinking-2025-05-14"));
    }
    for (key, tool) in GEMINI_TOOLS {
        if !is_on(opts, key)? {
            continue;
        }
        if api != ApiType::Gemini {
            return Err(format!("provider_opts: {key} is for Gemini only"));
        }
        match opts.entry("tools").or_insert_with(|| json!([])) {
            Value::Array(tools) => tools.push(json!({ tool: {} })),
            other => return Err(format!("provider_opts: tools is a list, not {other}")),
        }
    }
    if let Some(shown) = opts.remove("thinking_display") {
        if api != ApiType::Anthropic {
            return Err("provider_opts: thinking_display is for Anthropic's models only".to_owned());
        }
        opts.entry("thinking").or_insert_with(|| json!({}))["display"] = shown;
    }
    match opts.remove("transport").as_ref().map(|value| value.as_str().unwrap_or_default()) {
        None | Some("sse") => {}
        Some(_) => return Err("provider_opts: transport can only be sse here; leave it out".to_owned()),
    }
    if let Some(size) = opts.remove("context_size") {
        let tokens = size.as_u64().filter(|tokens| *tokens > 0);
        settings.context_size = Some(
            tokens.ok_or_else(|| format!("provider_opts: context_size is a number of tokens, not {size}"))?,
        );
    }
    Ok(headers)
}

fn is_on(opts: &mut serde_json::Map<String, Value>, key: &str) -> Result<bool, String> {
    match opts.remove(key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(on),
        Some(other) => Err(format!("provider_opts: {key} is true or false, not {other}")),
    }
}

/// Whether a model of OpenAI's has its tools only with Responses: `gpt-5.4` and later, and those that were never anywhere else.
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
