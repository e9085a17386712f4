//! Messages between models and tools: messages, replies, tool calls.
//!
//! A [`Reply`] keeps its [`Block`]s in the order of the model, with everything that the provider requires
//! back (signatures, encrypted reasoning), so that a conversation can be sent again unchanged.

pub(crate) mod prompt_tags;

use std::ops::{Add, AddAssign};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One message of a conversation. The system prompt is not a message: it belongs to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Input for the model: the order, letters, messages of the engine.
    User(Arc<str>),
    /// A reply of the model.
    Assistant(Arc<Reply>),
    /// The result of a tool call.
    Tool(ToolResult),
}

/// The result of one tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The provider's id of the call.
    pub call: Arc<str>,
    /// The tool's name.
    pub tool: Arc<str>,
    /// What it returned.
    pub output: Arc<str>,
    /// Whether that is an error.
    pub is_error: bool,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text(String),
    /// The model's reasoning.
    Reasoning {
        /// The reasoning or its summary; may be empty if it is encrypted.
        text: String,
        /// What the provider requires back with it, in the provider's own format.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<serde_json::Value>,
    },
    /// A tool call.
    Call(Call),
}

/// A tool call as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The provider's id of the call; unique in its reply, not in the task.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments as the model wrote them: usually, but not always, JSON.
    pub arguments: String,
}

/// A complete reply of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The parts, in order.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// The tokens used.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// The cost in millionths of a dollar; `None` if the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

impl Reply {
    /// A reply with only text.
    pub fn text_only(text: impl Into<String>) -> Self {
        Reply { blocks: vec![Block::Text(text.into())], ..Reply::default() }
    }

    /// The text of the reply, with its parts joined.
    pub fn text(&self) -> String {
        let pieces: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|b| match b {
                Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        pieces.concat()
    }

    /// The reasoning of the reply, with its parts joined.
    pub fn reasoning(&self) -> String {
        let pieces: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|b| match b {
                Block::Reasoning { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        pieces.concat()
    }

    /// The tool calls of the reply, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.blocks.iter().filter_map(|b| match b {
            Block::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It finished.
    #[default]
    End,
    /// It called tools.
    Calls,
    /// It reached its output limit: the reply is cut.
    Length,
    /// The model or a filter refused.
    Refused,
}

/// Used tokens. `cached` and `cache_written` are part of `input`; `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens.
    #[serde(default)]
    pub input: u64,
    /// Input tokens that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Input tokens that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// Output tokens.
    #[serde(default)]
    pub output: u64,
    /// Output tokens that were reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// All tokens.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}
