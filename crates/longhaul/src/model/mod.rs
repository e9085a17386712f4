//! Language models: a trait that streams a reply, one wire format per provider family, and [`scripted`].
//!
//! [`wire`] builds the requests and parses the replies of each provider, without I/O; [`http`] sends and
//! receives them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::id::{AgentName, TaskId};
use crate::message::{Message, Reply};
use settings::StructuredOutput;
use wire::WireCache;

#[cfg(any(test, feature = "testing"))]
mod fn_model;
#[cfg(feature = "http")]
pub mod http;
pub mod prices;
#[cfg(feature = "teamfile")]
pub mod scripted;
pub mod settings;
mod spelling;
mod context_windows;
pub mod wire;
#[cfg(feature = "teamfile")]
pub(crate) mod yaml_tree;

#[cfg(any(test, feature = "testing"))]
pub use fn_model::FnModel;

/// A language model. Always used as `Arc<dyn Model>`.
pub trait Model: Send + Sync + 'static {
    /// The name people use for it, e.g. `openai/gpt-5`.
    fn name(&self) -> &str;

    /// Streams the reply to a conversation.
    ///
    /// The stream ends with [`ReplyChunk::Done`] or with an error; if it ends any other way, the reply was
    /// cut off. Nothing is sent to the provider until the stream is polled, and dropping the stream closes
    /// its connection.
    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a>;

    /// The place of a task that has not begun, if tasks should wait before they do: one that waits for its first request
    /// needs less memory then. `None` if nothing is to be waited for.
    fn start_ticket(&self, _root: TaskId, _depth: u32) -> Option<Box<dyn StartTicket>> {
        None
    }

    /// The context window in tokens, if it is known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// The name of a model, this one or one behind it, whose replies have no known cost: it has no price, and
    /// its provider does not report the cost. A cost limit cannot be enforced for such a model.
    fn unpriced_model(&self) -> Option<String> {
        None
    }
}

/// The place of a task among those that wait to begin. Keep it until the task's first request is sent, and then drop it:
/// that lets the next task begin.
pub trait StartTicket: Send + Sync {
    /// Waits until the task may begin, and then returns `None`. Before that, returns why it waits, to be displayed.
    fn next_step(&mut self) -> BoxFuture<'_, Option<RequestDelay>>;
}

/// The stream of one reply.
pub type ReplyStream<'a> = BoxStream<'a, Result<ReplyChunk, ModelError>>;

/// A request to a model. Everything is borrowed, so that a turn costs what is new in it and not the whole
/// conversation.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The task that sends the request.
    pub task: TaskId,
    /// The first task of its tree. Trees take turns when requests have to wait.
    pub root: TaskId,
    /// The task's distance from the root. When requests of a tree have to wait, the smallest goes first.
    pub depth: u32,
    /// The agent that sends the request.
    pub agent: &'a AgentName,
    /// The system instruction.
    pub system: &'a str,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// The tools that the model may call. Empty when tools are off.
    pub tools: &'a [Arc<ToolSpec>],
    /// The schema of the final answer, if the agent requires one.
    pub output: Option<&'a StructuredOutput>,
    /// How many replies the task has received before this one.
    pub turn: u32,
    /// How many times this reply has already been requested and failed.
    pub retry: u32,
    /// Caches the part of the conversation that is already in the model's wire format.
    pub wire_cache: &'a WireCache,
    /// How long text may be held back, so that more of it is passed on at once; not at all if `None`.
    pub text_delay: Option<&'a TextDelay>,
}

/// How long streamed text may be held back. It is asked again and again while a reply streams, because someone
/// may begin or stop to watch.
#[derive(Clone)]
pub struct TextDelay(Arc<dyn Fn() -> Duration + Send + Sync>);

impl TextDelay {
    /// A delay that `now` returns.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> TextDelay {
        TextDelay(Arc::new(now))
    }

    /// The delay at this moment.
    pub fn get(&self) -> Duration {
        (self.0)()
    }
}

impl std::fmt::Debug for TextDelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TextDelay").field(&self.get()).finish()
    }
}

/// A tool as it is described to a model.
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
#[non_exhaustive]
pub enum ReplyChunk {
    /// Some text.
    Text(String),
    /// Some thinking.
    Reasoning(String),
    /// The request is waiting: the provider is rate limiting, or too many requests are already running.
    /// Chunks streamed before this one are void.
    Delayed(RequestDelay),
    /// The delayed request is being sent now.
    Resumed,
    /// The end: the whole reply, including the pieces already streamed.
    Done(Box<Reply>),
}

/// Why a request is waiting, and for how long.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RequestDelay {
    /// The reason, as a sentence to display.
    pub reason: String,
    /// How long it still waits, if that is known.
    pub remaining: Option<Duration>,
}

impl RequestDelay {
    /// A delay for this reason, without a known end.
    pub fn new(reason: impl Into<String>) -> RequestDelay {
        RequestDelay { reason: reason.into(), remaining: None }
    }
}

/// The error of a model that did not answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{model}: {kind}")]
pub struct ModelError {
    /// The model that failed.
    pub model: String,
    /// What went wrong.
    pub kind: ModelErrorKind,
    /// How long to wait before a retry, if the provider says so.
    pub retry_after: Option<Duration>,
}

/// The kinds of errors of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// Too many requests (429).
    #[error("the provider is rate limiting (429){}", suffix(.0))]
    RateLimited(String),
    /// The provider returned an error.
    #[error("the provider failed ({status}){}", suffix(.message))]
    Server {
        /// The HTTP status.
        status: u16,
        /// The provider's error message.
        message: String,
    },
    /// The provider cannot be reached: no connection, or the connection broke before the response began.
    #[error("the provider cannot be reached{}", suffix(.0))]
    Unreachable(String),
    /// The stream ended before the reply was complete.
    #[error("the stream was cut before the reply was complete{}", suffix(.0))]
    Truncated(String),
    /// The model sent nothing within the timeout.
    #[error("the model sent nothing for {0:?}")]
    TimedOut(Duration),
    /// The reply is larger than any useful one: the model does not stop, or the provider is broken. A retry
    /// would get the same.
    #[error("the reply is too large{}", suffix(.0))]
    TooLarge(String),
    /// The provider will never accept this request: bad key, unknown model, conversation too long.
    #[error("the provider refused the request{}", suffix(.0))]
    Rejected(String),
}

fn suffix(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl ModelErrorKind {
    /// Whether a retry may succeed.
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

    /// Whether the provider refused because the conversation is too long for the model. Each provider words
    /// this differently.
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

    /// Whether the error is about the provider's state and not about this request: it goes away when the
    /// provider recovers.
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
