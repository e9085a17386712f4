//! The parser of every family: splits the response into events, and builds the reply from them.

use super::ReplyParser;
use super::sse::{SseEvent, SseParser};
use crate::message::Reply;
use crate::model::{ModelErrorKind, ReplyChunk};

/// Builds a reply from the events of a response.
pub(super) trait SseReplyBuilder: Default + Send {
    /// Takes an event and adds what it contains to `chunks`.
    fn event(&mut self, event: &SseEvent<'_>, chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind>;

    /// The whole reply, when all events are taken.
    fn reply(&mut self) -> Result<Reply, ModelErrorKind>;

    /// See [`ReplyParser::is_complete`].
    fn is_complete(&self) -> bool {
        false
    }
}

/// Parses one response.
#[derive(Default)]
pub(super) struct SseReplyParser<B> {
    sse: SseParser,
    answer: B,
}

impl<B: SseReplyBuilder> ReplyParser for SseReplyParser<B> {
    fn is_complete(&self) -> bool {
        self.answer.is_complete()
    }

    fn feed(&mut self, bytes: &[u8], chunks: &mut Vec<ReplyChunk>) -> Result<(), ModelErrorKind> {
        let SseReplyParser { sse, answer } = self;
        sse.feed(bytes, |event| answer.event(event, chunks))
    }

    fn finish(&mut self) -> Result<Reply, ModelErrorKind> {
        let SseReplyParser { sse, answer } = self;
        // These chunks cannot be streamed any more, but their content is in the reply.
        sse.finish(|event| answer.event(event, &mut Vec::new()))?;
        answer.reply()
    }
}
