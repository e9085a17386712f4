//! The keys of models and providers.

use super::{ObjectSchema, ValueType, alias_key, ignored_key, key};

/// The effort levels for thinking.
const EFFORTS: ValueType = ValueType::Keyword(&[
    "none", "off", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive", "dynamic",
]);

/// The protocols of providers.
const API_TYPES: ValueType =
    ValueType::Keyword(&["openai_chatcompletions", "openai_responses", "anthropic", "gemini"]);

const MAX_CONCURRENT: &str = "A fixed maximum number of concurrent requests to its URL with its key. Default: as many as the provider takes.";

pub(super) static MODEL: ObjectSchema = ObjectSchema {
    name: "a model",
    id: "Model",
    doc: "A model and its settings.",
    keys: &[
        key(
            "provider",
            ValueType::Text,
            "The provider: openai, anthropic, google, ollama …, a name under `providers`, or scripted.",
        ),
        key("model", ValueType::Text, "The provider's name for the model; for `scripted`, the script file."),
        key("max_tokens", ValueType::Integer(1), "The maximum number of tokens in a reply."),
        key("temperature", ValueType::Number(0.0, 2.0), "The sampling temperature."),
        key("top_p", ValueType::Number(0.0, 1.0), "Nucleus sampling."),
        key(
            "frequency_penalty",
            ValueType::Number(-2.0, 2.0),
            "Penalty for tokens by how often they were used.",
        ),
        key("presence_penalty", ValueType::Number(-2.0, 2.0), "Penalty for tokens that were used at all."),
        key(
            "thinking_budget",
            ValueType::AnyOf(&[ValueType::Integer(-1), EFFORTS, ValueType::Object(&THINKING)]),
            "How much it thinks: tokens (0 is off, -1 lets the model decide), an effort level, or {effort: level}.",
        ),
        key("parallel_tool_calls", ValueType::Bool, "Whether it may make several calls in one reply."),
        key("api_type", API_TYPES, "The protocol. Default: chosen by provider and model."),
        key(
            "provider_opts",
            ValueType::Map(&ValueType::Any),
            "Other options for the provider, copied into the request; docker-agent's own options are translated or refused.",
        ),
        key("base_url", ValueType::TextWithVariables, "The base URL, if it is not the provider's default."),
        key("token_key", ValueType::Text, "The environment variable that holds its key."),
        key("max_concurrent", ValueType::Integer(1), MAX_CONCURRENT),
        key("script", ValueType::Text, "For `scripted`: the script itself, instead of a file."),
        ignored_key("track_usage", ValueType::Bool, "Whether to count usage; Longhaul always does."),
        ignored_key("routing", ValueType::Any, "Rules that pick another model."),
        ignored_key("env", ValueType::Map(&ValueType::Text), "Variables of old files."),
        alias_key("type", ValueType::Text, "provider"),
    ],
    rules: &[],
};

static THINKING: ObjectSchema = ObjectSchema {
    name: "thinking_budget",
    id: "Thinking",
    doc: "How much a model thinks.",
    keys: &[
        key("effort", EFFORTS, "An effort level."),
        key("tokens", ValueType::Integer(-1), "A number of tokens."),
    ],
    rules: &[],
};

pub(super) static PROVIDER: ObjectSchema = ObjectSchema {
    name: "a provider",
    id: "Provider",
    doc: "A custom provider.",
    keys: &[
        key("api_type", API_TYPES, "The protocol. Default: openai_chatcompletions."),
        key("base_url", ValueType::TextWithVariables, "The URL."),
        key("token_key", ValueType::Text, "The environment variable that holds its key."),
        key("provider", ValueType::Text, "The known provider that it behaves like."),
        key("max_concurrent", ValueType::Integer(1), MAX_CONCURRENT),
    ],
    rules: &[],
};
