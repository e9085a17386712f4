//! The keys of models and providers.

use super::{Object, Type, idle, key, old};

/// How much a model thinks, in words.
const EFFORTS: Type =
    Type::Word(&["none", "off", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive", "dynamic"]);

/// What providers speak.
const API_TYPES: Type = Type::Word(&["openai_chatcompletions", "openai_responses", "anthropic", "gemini"]);

pub(super) static MODEL: Object = Object {
    name: "a model",
    id: "Model",
    doc: "A model, and how it is asked.",
    keys: &[
        key(
            "provider",
            Type::Text,
            "Who provides it: openai, anthropic, google, ollama …, a name under `providers`, or scripted.",
        ),
        key("model", Type::Text, "The model, as its provider names it; of `scripted`, the script file."),
        key("max_tokens", Type::Whole(1), "At most this many tokens in a reply."),
        key("temperature", Type::Number(0.0, 2.0), "How freely it chooses its words."),
        key("top_p", Type::Number(0.0, 1.0), "Nucleus sampling."),
        key("frequency_penalty", Type::Number(-2.0, 2.0), "Dislike of words that were used often."),
        key("presence_penalty", Type::Number(-2.0, 2.0), "Dislike of words that were used at all."),
        key(
            "thinking_budget",
            Type::Either(&[Type::Whole(-1), EFFORTS, Type::Object(&THINKING)]),
            "How much it thinks: tokens (0 is off, -1 as it sees fit), a word, or {effort: word}.",
        ),
        key("parallel_tool_calls", Type::Bool, "Whether it may make several calls in one reply."),
        key(
            "api_type",
            API_TYPES,
            "What it speaks. Default: what its provider speaks, and what the model needs.",
        ),
        key(
            "provider_opts",
            Type::Map(&Type::Any),
            "Whatever else the provider takes, put into the request; docker-agent's own options are translated or refused.",
        ),
        key("base_url", Type::Variables, "Where it is, if not where its provider usually is."),
        key("token_key", Type::Text, "The name of the variable with its key."),
        key("script", Type::Text, "Of `scripted`: the script itself, in place of a file."),
        idle("track_usage", Type::Bool, "Whether usage is counted; it always is."),
        idle("routing", Type::Any, "Rules that pick another model."),
        idle("env", Type::Map(&Type::Text), "Variables of old files."),
        old("type", Type::Text, "provider"),
    ],
    rules: &[],
};

static THINKING: Object = Object {
    name: "thinking_budget",
    id: "Thinking",
    doc: "How much a model thinks.",
    keys: &[key("effort", EFFORTS, "In a word."), key("tokens", Type::Whole(-1), "In tokens.")],
    rules: &[],
};

pub(super) static PROVIDER: Object = Object {
    name: "a provider",
    id: "Provider",
    doc: "A provider of your own.",
    keys: &[
        key("api_type", API_TYPES, "What it speaks. Default: openai_chatcompletions."),
        key("base_url", Type::Variables, "Where it is."),
        key("token_key", Type::Text, "The name of the variable with its key."),
        key("provider", Type::Text, "The known provider that it is like."),
    ],
    rules: &[],
};
