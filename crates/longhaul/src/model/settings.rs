//! The settings of a model, for every provider.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings of a model. A setting that is left out uses the provider's default.
///
/// A provider that does not support a setting refuses it with an error when the model is created; no setting
/// is dropped silently.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelSettings {
    /// The model, as the provider names it.
    pub model: String,
    /// The maximum number of tokens in a reply.
    pub max_tokens: Option<u64>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Penalty for tokens by how often they were used.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens that were used at all.
    pub presence_penalty: Option<f64>,
    /// How much the model thinks.
    pub thinking: Option<Thinking>,
    /// Whether the model may make several calls in one reply.
    pub parallel_tool_calls: Option<bool>,
    /// The schema of the final answer.
    pub structured_output: Option<StructuredOutput>,
    /// Whether tool calls that the model writes as text are parsed as calls. By default only for local
    /// servers, which run small models.
    pub reads_text_calls: Option<bool>,
    /// The context window in tokens, if the server was started with its own.
    pub context_size: Option<u64>,
    /// Other options for the provider, copied into the request body unchanged.
    pub provider_opts: Map<String, Value>,
}

impl ModelSettings {
    /// The settings of a model as the provider makes them.
    pub fn new(model: impl Into<String>) -> ModelSettings {
        ModelSettings { model: model.into(), ..ModelSettings::default() }
    }
}

fluent_setters!(ModelSettings {
    /// Sets the model, as the provider names it.
    model: impl Into<String> => model.into(),
    /// Sets the maximum number of tokens in a reply.
    max_tokens: u64 => Some(max_tokens),
    /// Sets the sampling temperature.
    temperature: f64 => Some(temperature),
    /// Sets nucleus sampling.
    top_p: f64 => Some(top_p),
    /// Sets the penalty for tokens by how often they were used.
    frequency_penalty: f64 => Some(frequency_penalty),
    /// Sets the penalty for tokens that were used at all.
    presence_penalty: f64 => Some(presence_penalty),
    /// Sets how much the model thinks.
    thinking: Thinking => Some(thinking),
    /// Sets whether the model may make several calls in one reply.
    parallel_tool_calls: bool => Some(parallel_tool_calls),
    /// Sets the schema of the final answer.
    structured_output: StructuredOutput => Some(structured_output),
    /// Sets whether tool calls that the model writes as text are parsed as calls.
    reads_text_calls: bool => Some(reads_text_calls),
    /// Sets the context window in tokens.
    context_size: u64 => Some(context_size),
    /// Sets other options for the provider.
    provider_opts: Map<String, Value>,
});

/// How much a model thinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// No thinking.
    Off,
    /// A budget of at most this many tokens.
    Tokens(u32),
    /// The provider's effort level: `minimal`, `low`, `medium`, `high`, …
    Effort(String),
    /// The model decides.
    Adaptive,
}

/// The required schema of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructuredOutput {
    /// The name of the schema.
    pub name: String,
    /// A description of the answer.
    pub description: Option<String>,
    /// The JSON schema.
    pub schema: Value,
    /// Whether the provider enforces the schema.
    #[serde(default)]
    pub strict: bool,
}
