//! The configuration of models and providers.

use serde::Deserialize;
use serde_json::Value;

use super::doc_text;
use crate::model::http::ApiType;
use crate::teamfile::file_schema::{ObjectSchema, ValueType, alias_key, ignored_key, key};

/// The effort levels for thinking.
const EFFORTS: ValueType = ValueType::Keyword(&[
    "none", "off", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive", "dynamic",
]);

/// The protocols of providers.
const API_TYPES: ValueType =
    ValueType::Keyword(&["openai_chatcompletions", "openai_responses", "anthropic", "gemini"]);

team_config! {
    /// A model and its settings.
    ModelConfig [] = MODEL("a model", "Model") {
        /// The provider: openai, anthropic, google, ollama …, a name under `providers`, or scripted.
        provider: Option<String> = Text,
        /// The provider's name for the model; for `scripted`, the script file.
        model: Option<String> = Text,
        /// The maximum number of tokens in a reply.
        max_tokens: Option<u64> = Integer(1),
        /// The sampling temperature.
        temperature: Option<f64> = Number(0.0, 2.0),
        /// Nucleus sampling.
        top_p: Option<f64> = Number(0.0, 1.0),
        /// Penalty for tokens by how often they were used.
        frequency_penalty: Option<f64> = Number(-2.0, 2.0),
        /// Penalty for tokens that were used at all.
        presence_penalty: Option<f64> = Number(-2.0, 2.0),
        /// How much it thinks: tokens (0 is off, -1 lets the model decide), an effort level, or {effort: level}.
        thinking_budget: Option<ThinkingConfig> = AnyOf(&[Integer(-1), EFFORTS, Object(&THINKING)]),
        /// Whether it may make several calls in one reply.
        parallel_tool_calls: Option<bool> = Bool,
        /// The protocol. Default: chosen by provider and model.
        api_type: Option<ApiType> = API_TYPES,
        /// Other options for the provider, copied into the request; docker-agent's own options are translated or
        /// refused.
        provider_opts: serde_json::Map<String, Value> = Map(&Any),
        /// The base URL, if it is not the provider's default.
        base_url: Option<String> = TextWithVariables,
        /// The environment variable that holds its key.
        token_key: Option<String> = Text,
        /// A fixed maximum number of concurrent requests to its URL with its key. Default: as many as the
        /// provider takes.
        max_concurrent: Option<usize> = Integer(1),
        /// For `scripted`: the script itself, instead of a file.
        script: Option<String> = Text,
    }
    also [
        ignored_key("track_usage", Bool, "Whether to count usage; Longhaul always does."),
        ignored_key("routing", Any, "Rules that pick another model."),
        ignored_key("env", Map(&Text), "Variables of old files."),
        alias_key("type", Text, "provider"),
    ]
}

/// How much a model thinks, as written in the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ThinkingConfig {
    /// A number of tokens: 0 is off, -1 lets the model decide.
    Tokens(i64),
    /// An effort level.
    Effort(String),
    /// As a map.
    Map {
        /// An effort level.
        effort: Option<String>,
        /// A number of tokens.
        tokens: Option<i64>,
    },
}

static THINKING: ObjectSchema = ObjectSchema::new(
    ("thinking_budget", "Thinking", "How much a model thinks."),
    &[
        key("effort", EFFORTS, "An effort level."),
        key("tokens", ValueType::Integer(-1), "A number of tokens."),
    ],
    &[],
);

team_config! {
    /// A custom provider.
    ProviderConfig [] = PROVIDER("a provider", "Provider") {
        /// The protocol. Default: openai_chatcompletions.
        api_type: Option<ApiType> = API_TYPES,
        /// The URL.
        base_url: Option<String> = TextWithVariables,
        /// The environment variable that holds its key.
        token_key: Option<String> = Text,
        /// The known provider that it behaves like.
        provider: Option<String> = Text,
        /// A fixed maximum number of concurrent requests to its URL with its key. Default: as many as the
        /// provider takes.
        max_concurrent: Option<usize> = Integer(1),
    }
}
