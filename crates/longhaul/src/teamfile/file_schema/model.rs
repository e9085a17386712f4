//! The keys of models and providers.

use super::{ObjectSchema, ValueType, alias_key, ignored_key, key};

/// How much a model thinks, in words.
const EFFORTS: ValueType = ValueType::Keyword(&[
    "none", "off", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive", "dynamic",
]);

/// What providers speak.
const API_TYPES: ValueType =
    ValueType::Keyword(&["openai_chatcompletions", "openai_responses", "anthropic", "gemini"]);

pub(super) static MODEL: ObjectSchema = ObjectSchema {
    name: "a model",
    id: "Model",
    doc: "A model, and how it is asked.",
    keys: &[
        key(
            "provider",
            ValueType::Text,
            "Who provides it: openai, anthropic, google, ollama …, a name under `providers`, or scripted.",
        ),
        key("model", ValueType::Text, "The model, as its provider names it; of `scripted`, the script file."),
        key("max_tokens", ValueType::Integer(1), "At most this many tokens in a reply."),
        key("temperature", ValueType::Number(0.0, 2.0), "How freely it chooses its words."),
        key("top_p", ValueType::Number(0.0, 1.0), "Nucleus sampling."),
        key("frequency_penalty", ValueType::Number(-2.0, 2.0), "Dislike of words that were used often."),
        key("presence_penalty", ValueType::Number(-2.0, 2.0), "Dislike of words that were used at all."),
        key(
            "thinking_budget",
            ValueType::AnyOf(&[ValueType::Integer(-1), EFFORTS, ValueType::Object(&THINKING)]),
            "How much it thinks: tokens (0 is off, -1 as it sees fit), a word, or {effort: word}.",
        ),
        key("parallel_tool_calls", ValueType::Bool, "Whether it may make several calls in one reply."),
        key(
            "api_type",
            API_TYPES,
            "What it speaks. Default: what its provider speaks, and what the model needs.",
        ),
        key(
            "provider_opts",
            ValueType::Map(&ValueType::Any),
            "Whatever else the provider takes, put into the request; docker-agent's own options are translated or refused.",
        ),
        key("base_url", ValueType::TextWithVariables, "Where it is, if not where its provider usually is."),
        key("token_key", ValueType::Text, "The name of the variable with its key."),
        key("script", ValueType::Text, "Of `scripted`: the script itself, in place of a file."),
        ignored_key("track_usage", ValueType::Bool, "Whether usage is counted; it always is."),
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
    keys: &[key("effort", EFFORTS, "In a word."), key("tokens", ValueType::Integer(-1), "In tokens.")],
    rules: &[],
};

pub(super) static PROVIDER: ObjectSchema = ObjectSchema {
    name: "a provider",
    id: "Provider",
    doc: "A provider of your own.",
    keys: &[
        key("api_type", API_TYPES, "What it speaks. Default: openai_chatcompletions."),
        key("base_url", ValueType::TextWithVariables, "Where it is."),
        key("token_key", ValueType::Text, "The name of the variable with its key."),
        key("provider", ValueType::Text, "The known provider that it is like."),
    ],
    rules: &[],
};
