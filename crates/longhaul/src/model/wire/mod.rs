//! The wire: what providers are sent and what they stream back, as pure code. One file a family.
//!
//! Nothing here does IO: a [`WireProtocol`] makes the body of a request, and a [`ReplyParser`] takes the bytes of the answer as
//! they come, however they are cut.

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

/// A family of providers that speak the same protocol.
pub trait WireProtocol: Send + Sync + 'static {
    /// Whether it can do what the settings ask for; if not, why not, naming the key.
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), String>;

    /// The path of the request below the provider's base URL.
    fn request_path(&self, settings: &ModelSettings) -> String;

    /// The body of the request. `memo` keeps what of the conversation is already in the form of this wire, so
    /// that a turn costs what is new in it.
    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, String>;

    /// A parser for one answer.
    fn parser(&self) -> Box<dyn ReplyParser>;

    /// What an answer with an error status says. The text has no secrets in it and is bounded.
    fn error_from_response(&self, status: u16, body: &[u8]) -> ModelErrorKind;

    /// How long the provider wants to be left alone, where it says so in the body of such an answer.
    fn retry_after(&self, _body: &[u8]) -> Option<Duration> {
        None
    }
}

/// Takes the bytes of a streamed answer as they come.
pub trait ReplyParser: Send {
    /// More bytes: what they say is added to `chunks`. An error ends the answer.
    fn feed(&mut self, bytes: &[u8], chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind>;

    /// No more bytes: the whole reply, or why it is none. A stream that ended without saying why it stopped was
    /// cut.
    fn finish(&mut self) -> Result<Reply, ModelErrorKind>;

    /// Whether the answer has said that it is complete, so that nothing is lost if its end never comes.
    fn is_complete(&self) -> bool {
        false
    }
}

/// What a task remembers of its conversation in the form of a wire. Empty until somebody remembers something.
#[derive(Default)]
pub struct WireCache {
    kept: Mutex<Option<Box<dyn Any + Send>>>,
    warnings: Mutex<Vec<String>>,
}

impl WireCache {
    /// Works on what is remembered, or on a fresh `T` if nothing, or something else, is.
    pub fn with<T: Default + Send + 'static, R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut slot = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut remembered: Box<T> = slot.take().and_then(|any| any.downcast().ok()).unwrap_or_default();
        let result = work(&mut remembered);
        *slot = Some(remembered);
        result
    }

    /// Forgets everything: the conversation was made anew.
    pub fn clear(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Says something that people should know of. The task writes it into its journal, once, however often it is said.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// What was said since this was asked the last time.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for WireCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memo")
    }
}
