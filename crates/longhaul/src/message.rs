//! What models and tools say to each other: messages, replies, tool calls.
//!
//! A [`Reply`] keeps its [`Block`]s in the order in which the model gave them, with whatever the provider wants
//! to see again (signatures, encrypted reasoning), so that a conversation can be sent back as it was.

pub(crate) mod prompt_tags;

use std::ops::{Add, AddAssign};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One message of a conversation. The system instruction is not one of them: it belongs to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What the task is told: its order, letters, nudges.
    User(Arc<str>),
    /// What the model answered.
    Assistant(Arc<Reply>),
    /// What a tool returned.
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

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text for the reader.
    Text(String),
    /// The model's thinking.
    Reasoning {
        /// The thinking, or its summary; may be empty where it is encrypted.
        text: String,
        /// What the provider wants to see again with it, in the provider's own form.
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
    /// The arguments as the model wrote them: meant to be JSON, not always JSON.
    pub arguments: String,
}

/// What a model answered, whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The pieces, in order.
    pub blocks: Vec<Block>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// What it cost in millionths of a dollar; `None` where the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

impl Reply {
    /// A reply that is just text.
    pub fn text_only(text: impl Into<String>) -> Self {
        Reply { blocks: vec![Block::Text(text.into())], ..Reply::default() }
    }

    /// The text of the reply, its pieces put together.
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

    /// The thinking of the reply, its pieces put together.
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
pub enum StopReason {
    /// It had said what it had to say.
    #[default]
    End,
    /// It wants tools to be called.
    Calls,
    /// It ran into its output limit: the reply is cut.
    Length,
    /// It, or a filter, refused.
    Refused,
}

/// What was used, in tokens. `cached` and `cache_written` are part of `input`; `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read by the model.
    #[serde(default)]
    pub input: u64,
    /// Of those, the ones that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Of those, the ones that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// Tokens written by the model.
    #[serde(default)]
    pub output: u64,
    /// Of those, the ones that were thinking.
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
