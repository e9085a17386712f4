//! Compacting a conversation: which part a summary can replace, and the input for it.
//!
//! The order always stays, and a call is never separated from its result: providers reject that.

use std::sync::Arc;

use super::Conversation;
use crate::message::prompt_tags::escape;
use crate::message::{Block, Message};

/// The part of a conversation that a summary can replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompactionInput {
    /// How many messages a summary can replace, counted from the first one after the order.
    pub(crate) replaces: u32,
    /// These messages as text, with long outputs cut.
    pub(crate) transcript: String,
}

/// How much of one output, or of one call's arguments, the transcript shows, in bytes.
const PIECE: usize = 2_000;
/// The approximate number of bytes in a token.
const BYTES_A_TOKEN: u64 = 4;

impl Conversation {
    /// The approximate number of tokens in the conversation: the usage of the last reply, plus an estimate
    /// for what came after it.
    pub(crate) fn tokens(&self) -> u64 {
        let (counted, tokens) = self.measured.unwrap_or_default();
        let new: usize = self.conversation.iter().skip(counted).map(size).sum();
        tokens + (new as u64).div_ceil(BYTES_A_TOKEN)
    }

    /// The older part of the conversation, if it is worth replacing. About `keep` tokens at the end stay. The
    /// transcript has at most `most` bytes.
    pub(crate) fn compaction_input(&self, keep: u64, most: usize) -> Option<CompactionInput> {
        let rest: Vec<&Message> = self.without_order();
        let mut kept = 0;
        let mut from = rest.len();
        for (at, message) in rest.iter().enumerate().rev() {
            kept += size(message) as u64 / BYTES_A_TOKEN;
            if kept > keep {
                break;
            }
            // The remaining part must not start with the result of a removed call.
            if !matches!(message, Message::Tool(_)) {
                from = at;
            }
        }
        let (old, _) = rest.split_at(from);
        let is_summary = |message: &&Message| matches!(message, Message::User(text) if is_summary(text));
        if old.iter().filter(|message| !is_summary(message)).count() < 2 {
            return None;
        }
        let parts: Vec<String> = old.iter().map(|message| transcript_of(message)).collect();
        Some(CompactionInput {
            replaces: u32::try_from(old.len()).unwrap_or(u32::MAX),
            transcript: truncate_middle(&parts.join("\n\n"), most),
        })
    }

    /// Replaces the first messages after the order with a summary.
    pub(super) fn compact(&mut self, summary: &Arc<str>, replaces: u32) {
        let replaces = (replaces as usize).min(self.conversation.len().saturating_sub(1));
        let conversation = Arc::make_mut(&mut self.conversation);
        if conversation.is_empty() {
            return;
        }
        let order = conversation.remove(self.order_at.min(conversation.len() - 1));
        conversation.splice(..replaces, [order, Message::User(summary.clone())]);
        self.order_at = 0;
        self.measured = None;
        // It no longer sees what its calls have returned, and may have to make them again.
        self.loop_detector.begin_anew();
    }

    fn without_order(&self) -> Vec<&Message> {
        let others = self.conversation.iter().enumerate().filter(|(at, _)| *at != self.order_at);
        others.map(|(_, message)| message).collect()
    }

    /// The messages to send if the agent sees only a part of them: the order and the last `items` messages,
    /// without tool outputs that are followed by more than `old_outputs` tokens of newer ones.
    pub(crate) fn visible_messages(
        &self,
        items: Option<usize>,
        old_outputs: Option<u64>,
    ) -> Option<Vec<Message>> {
        if items.is_none() && old_outputs.is_none() {
            return None;
        }
        let rest = self.without_order();
        let mut from = rest.len().saturating_sub(items.unwrap_or(usize::MAX));
        while rest.get(from).is_some_and(|message| matches!(message, Message::Tool(_))) {
            from += 1;
        }
        let mut seen = 0;
        let mut shown: Vec<Message> = Vec::with_capacity(rest.len() - from + 1);
        for message in rest[from..].iter().rev() {
            let mut message = (*message).clone();
            if let (Message::Tool(result), Some(most)) = (&mut message, old_outputs) {
                seen += result.output.len() as u64 / BYTES_A_TOKEN;
                if seen > most {
                    result.output = "[an old output, left out]".into();
                }
            }
            shown.push(message);
        }
        let order_comes_first = from > 0 || self.order_at == 0;
        let at = if order_comes_first { shown.len() } else { shown.len().saturating_sub(self.order_at) };
        shown.insert(at, self.conversation.get(self.order_at)?.clone());
        shown.reverse();
        Some(shown)
    }
}

/// A summary as it appears in the conversation.
pub(crate) fn summary_text(summary: &str, open_tasks: &[String]) -> Arc<str> {
    let mut text = format!("{OPENING}\n{}\n</summary>", escape(summary.trim()));
    if !open_tasks.is_empty() {
        text.push_str("\n\nTasks that you have launched and that have not ended yet; a message will tell you of each end:\n");
        text.push_str(&escape(&open_tasks.join("\n")));
    }
    text.into()
}

const OPENING: &str = "<summary of the conversation so far>";

fn is_summary(text: &str) -> bool {
    text.starts_with(OPENING)
}

fn size(message: &Message) -> usize {
    match message {
        Message::User(text) => text.len(),
        Message::Tool(result) => result.output.len(),
        Message::Assistant(reply) => {
            let block = |block: &Block| match block {
                Block::Text(text) | Block::Reasoning { text, .. } => text.len(),
                Block::Call(call) => call.tool.len() + call.arguments.len(),
            };
            reply.blocks.iter().map(block).sum()
        }
    }
}

fn transcript_of(message: &Message) -> String {
    match message {
        Message::User(text) => format!("TOLD TO THE AGENT:\n{text}"),
        Message::Tool(result) => {
            let how = if result.is_error { "FAILED" } else { "RETURNED" };
            format!("{} {how}:\n{}", result.tool, truncate_middle(&result.output, PIECE))
        }
        Message::Assistant(reply) => {
            let mut text = format!("THE AGENT:\n{}", reply.text());
            for call in reply.calls() {
                text.push_str(&format!("\ncalls {} {}", call.tool, truncate_middle(&call.arguments, PIECE)));
            }
            text
        }
    }
}

/// Shortens a text to about `most` bytes by leaving out its middle, with a note that says so.
pub(crate) fn truncate_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(most / 2);
    let end = text.ceil_char_boundary(text.len() - most / 2).max(start);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..start], end - start, &text[end..])
}
