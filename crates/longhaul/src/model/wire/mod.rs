//! The wire protocols: request bodies and streamed replies, as pure code. One module per family of providers.
//!
//! Nothing here does I/O: a [`WireProtocol`] builds the body of a request, and a [`ReplyParser`] takes the
//! bytes of the response in chunks of any size.

pub mod anthropic;
pub(crate) mod parsing;
mod schema_dialect;
pub mod gemini;
mod surrogates;
mod message_list;
pub(crate) mod tool_names;
mod status_errors;
pub mod openai_chat;
pub mod openai_responses;
mod structured_output;
#[cfg(test)]
mod published_tests;
mod reply_chunks;
#[cfg(test)]
mod rules_tests;
mod schema;
pub(crate) mod sse;
mod sse_reply;
#[cfg(test)]
mod testing;
mod text_calls;
mod tools;
#[cfg(test)]
mod traffic_tests;
mod alternating_turns;

pub use anthropic::Anthropic;
pub use gemini::Gemini;

use std::any::Any;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) use text_calls::is_only_calls;
pub use text_calls::{TextCalls, parse_text_calls};

use super::settings::ModelSettings;
use super::{ModelErrorKind, ModelRequest, ReplyChunk};
use crate::message::Reply;

/// Why a request cannot be made: the protocol does not support a setting, or the conversation cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireRequestError(String);

/// A protocol that a family of providers shares.
pub trait WireProtocol: Send + Sync + 'static {
    /// Checks that the protocol supports these settings. The error names the key.
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError>;

    /// The path of the request below the provider's base URL.
    fn request_path(&self, settings: &ModelSettings) -> String;

    /// Builds the body of the request. `memo` caches the part of the conversation that is already in this
    /// wire format, so that a turn costs only what is new. Fails if the conversation cannot be sent.
    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, WireRequestError>;

    /// A parser for one response.
    fn parser(&self) -> Box<dyn ReplyParser>;

    /// Parses a response with an error status. The text is bounded and contains no secrets.
    fn error_from_response(&self, status: u16, body: &[u8]) -> ModelErrorKind {
        parsing::error_from_response(status, body)
    }

    /// How long to wait before a retry, if the body of an error response says so.
    fn retry_after(&self, _body: &[u8]) -> Option<Duration> {
        None
    }
}

/// Parses a streamed response chunk by chunk.
pub trait ReplyParser: Send {
    /// Takes more bytes and adds what they contain to `chunks`. An error ends the reply.
    fn feed(&mut self, bytes: &[u8], chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind>;

    /// Ends the stream and returns the whole reply. Fails if the reply is incomplete: a stream without a stop
    /// reason was cut off.
    fn finish(&mut self) -> Result<Reply, ModelErrorKind>;

    /// Whether the reply is already complete, so that nothing is lost if the stream never ends.
    fn is_complete(&self) -> bool {
        false
    }
}

/// A task's cache of its conversation in a wire format. Starts empty.
#[derive(Default)]
pub struct WireCache {
    kept: Mutex<Option<Box<dyn Any + Send>>>,
    warnings: Mutex<Vec<String>>,
}

impl WireCache {
    /// Works on the cached value, or on a new `T` if there is none or it has another type.
    pub fn with<T: Default + Send + 'static, R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut slot = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut remembered: Box<T> = slot.take().and_then(|any| any.downcast().ok()).unwrap_or_default();
        let result = work(&mut remembered);
        *slot = Some(remembered);
        result
    }

    /// Clears the cache, because the conversation was rewritten.
    pub fn clear(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Adds a warning for people. The task writes it into its journal once, however often it is repeated.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// Takes the warnings that were added since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for WireCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memo")
    }
}
