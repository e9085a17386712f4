//! Language models: a trait that streams a reply, one wire format per provider family, and [`scripted`].
//!
//! [`wire`] is what providers are sent and stream back, as pure code; [`http`] takes it there.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;

use crate::id::{AgentName, TaskId};
use crate::message::{Message, Reply};
use settings::StructuredOutput;
use wire::WireCache;

#[cfg(any(test, feature = "testing"))]
mod fn_model;
pub mod http;
pub mod prices;
pub mod scripted;
pub mod settings;
mod spelling;
mod context_windows;
pub mod wire;

#[cfg(any(test, feature = "testing"))]
pub use fn_model::FnModel;

/// A language model. Always used as `Arc<dyn Model>`.
pub trait Model: Send + Sync + 'static {
    /// What people call it, e.g. `openai/gpt-5`.
    fn name(&self) -> &str;

    /// Streams the reply to a conversation.
    ///
    /// The stream ends with [`ReplyChunk::Done`] or with an error; one that ends otherwise was cut. Nothing is asked
    /// of the provider before the stream is polled, and dropping it closes whatever it had open.
    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a>;

    /// How many tokens it can read, where that is known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// The name of a model, this one or one behind it, of whose replies nobody will know the cost: it has no price, and
    /// its provider does not tell. A limit of cost cannot hold for it.
    fn unpriced_model(&self) -> Option<String> {
        None
    }
}

/// A reply on its way.
pub type ReplyStream<'a> = BoxStream<'a, Result<ReplyChunk, ModelError>>;

/// What a model is asked. Everything is borrowed: a turn costs what is new in it, not the whole conversation.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The task that asks.
    pub task: TaskId,
    /// The agent that asks.
    pub agent: &'a AgentName,
    /// The system instruction.
    pub system: &'a str,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// The tools that may be called. Empty when tools are off.
    pub tools: &'a [Arc<ToolSpec>],
    /// The shape of the final answer, where the agent must give it one.
    pub output: Option<&'a StructuredOutput>,
    /// How many replies the task has got before this one.
    pub turn: u32,
    /// How often this very reply has been asked for before, because it failed.
    pub retry: u32,
    /// Where the model keeps what of the conversation is already in the form of its wire.
    pub wire_cache: &'a WireCache,
}

/// What a model is told of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: serde_json::Value,
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyChunk {
    /// Some text.
    Text(String),
    /// Some thinking.
    Reasoning(String),
    /// Nothing is being asked right now: the provider wants to be left alone, or too many are asking it. What was said
    /// before is void.
    Delayed(RequestDelay),
    /// What was held is being sent now.
    Resumed,
    /// The end: the whole reply, the streamed pieces included.
    Done(Box<Reply>),
}

/// A request that is not sent yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestDelay {
    /// Why not, in words.
    pub reason: String,
    /// For how long, where that is known.
    pub remaining: Option<Duration>,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{model}: {kind}")]
pub struct ModelError {
    /// The model that was asked.
    pub model: String,
    /// What went wrong.
    pub kind: ModelErrorKind,
    /// How long the provider wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// The ways in which a model does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelErrorKind {
    /// Too many requests.
    #[error("the provider is rate limiting (429){}", suffix(.0))]
    RateLimited(String),
    /// The provider failed.
    #[error("the provider failed ({status}){}", suffix(.message))]
    Server {
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The provider cannot be reached: no connection, or one that broke before anything was answered.
    #[error("the provider cannot be reached{}", suffix(.0))]
    Unreachable(String),
    /// The stream ended before the reply did.
    #[error("the stream was cut before the reply was complete{}", suffix(.0))]
    Truncated(String),
    /// Nothing came for too long.
    #[error("the model sent nothing for {0:?}")]
    TimedOut(Duration),
    /// The reply is larger than any that can be meant: a model that does not stop, or a provider gone wrong. Asked again, it
    /// would be as large.
    #[error("the reply does not end{}", suffix(.0))]
    TooLarge(String),
    /// The provider will never answer this request: bad key, unknown model, conversation too long.
    #[error("the provider refused the request{}", suffix(.0))]
    Rejected(String),
}

fn suffix(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl ModelErrorKind {
    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            ModelErrorKind::RateLimited(_)
            | ModelErrorKind::Unreachable(_)
            | ModelErrorKind::Truncated(_)
            | ModelErrorKind::TimedOut(_) => true,
            ModelErrorKind::Server { status, .. } => *status >= 500 || matches!(status, 408 | 409 | 429),
            ModelErrorKind::Rejected(_) | ModelErrorKind::TooLarge(_) => false,
        }
    }

    /// Whether the provider refused because the conversation is too long for the model. Each says it in other words.
    pub fn is_context_overflow(&self) -> bool {
        let ModelErrorKind::Rejected(text) = self else { return false };
        let text = text.to_lowercase();
        let said = |parts: &[&str]| parts.iter().all(|part| text.contains(part));
        said(&["context_length_exceeded"])
            || said(&["exceed_context_size"])
            || said(&["maximum context length"])
            || said(&["context window", "exceed"])
            || said(&["context length", "exceed"])
            || said(&["context size", "exceed"])
            || said(&["prompt is too long"])
            || said(&["input is too long"])
            || said(&["too many tokens"])
            || said(&["input token count", "exceeds"])
            || said(&["maximum prompt length"])
            || said(&["reduce the length"])
    }

    /// Whether it tells of the provider's state, and nothing of this request: it passes when the provider is well.
    pub fn is_outage(&self) -> bool {
        match self {
            ModelErrorKind::RateLimited(_) | ModelErrorKind::Unreachable(_) => true,
            ModelErrorKind::Server { status, .. } => *status >= 500 || *status == 429,
            ModelErrorKind::Truncated(_)
            | ModelErrorKind::TimedOut(_)
            | ModelErrorKind::TooLarge(_)
            | ModelErrorKind::Rejected(_) => false,
        }
    }
}
