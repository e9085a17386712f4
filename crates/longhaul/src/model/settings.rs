//! What a model is asked with, whoever provides it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a model is asked. What is left out is the provider's own choice.
///
/// A provider that cannot do what is set here refuses it with a clear word when the model is made; nothing is
/// dropped silently.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// The model, as the provider names it.
    pub model: String,
    /// At most this many tokens in a reply.
    pub max_tokens: Option<u64>,
    /// How freely it chooses its words.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Dislike of words that were used often.
    pub frequency_penalty: Option<f64>,
    /// Dislike of words that were used at all.
    pub presence_penalty: Option<f64>,
    /// How much it thinks.
    pub thinking: Option<Thinking>,
    /// Whether it may make several calls in one reply.
    pub parallel_tool_calls: Option<bool>,
    /// The shape of its final answer.
    pub structured_output: Option<StructuredOutput>,
    /// Whether calls that the model writes as text are taken for calls. If nothing is said: only of servers of one's own,
    /// where small models run.
    pub reads_text_calls: Option<bool>,
    /// How many tokens it can read, where its server was started with a window of its own.
    pub context_size: Option<u64>,
    /// Whatever else the provider takes, put into the body as it is.
    pub provider_opts: Map<String, Value>,
}

/// How much a model thinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// At most this many tokens.
    Tokens(u32),
    /// In the provider's words: `minimal`, `low`, `medium`, `high`, …
    Effort(String),
    /// As the model sees fit.
    Adaptive,
}

/// The shape of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructuredOutput {
    /// A name for it.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub description: Option<String>,
    /// Its JSON schema.
    pub schema: Value,
    /// Whether the provider is to hold the model to it.
    #[serde(default)]
    pub strict: bool,
}
