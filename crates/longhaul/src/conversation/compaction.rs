//! Making a conversation shorter: what may go, and what a summary is made from.
//!
//! The order never goes, and a call never goes without its result: providers refuse a half.

use std::sync::Arc;

use super::Conversation;
use crate::message::prompt_tags::escape;
use crate::message::{Block, Message};

/// What could go, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionInput {
    /// How many messages, counted from the first and without the order, can be replaced by a summary.
    pub replaces: u32,
    /// What is in them, in words, long outputs cut.
    pub transcript: String,
}

/// How much of one output, or of one call's arguments, is in a transcript.
const PIECE: usize = 2_000;
/// How many bytes make a token, about.
const BYTES_A_TOKEN: u64 = 4;

impl Conversation {
    /// How many tokens the conversation has, about: what the last reply said it read and wrote, and a guess at what
    /// came after it.
    pub fn tokens(&self) -> u64 {
        let (counted, tokens) = self.measured.unwrap_or_default();
        let new: usize = self.conversation.iter().skip(counted).map(size).sum();
        tokens + (new as u64).div_ceil(BYTES_A_TOKEN)
    }

    /// The older part of the conversation, if it is worth replacing. About `keep` tokens at the end stay as they are;
    /// of what goes, a transcript of at most `most` bytes is made.
    pub fn compaction_input(&self, keep: u64, most: usize) -> Option<CompactionInput> {
        let rest: Vec<&Message> = self.without_order();
        let mut kept = 0;
        let mut from = rest.len();
        for (at, message) in rest.iter().enumerate().rev() {
            kept += size(message) as u64 / BYTES_A_TOKEN;
            if kept > keep {
                break;
            }
            // What stays must not begin with the result of a call that goes.
            if !matches!(message, Message::Tool(_)) {
                from = at;
            }
        }
        let (old, _) = rest.split_at(from);
        let is_summary = |message: &&Message| matches!(message, Message::User(text) if is_summary(text));
        if old.iter().filter(|message| !is_summary(message)).count() < 2 {
            return None;
        }
        let told: Vec<String> = old.iter().map(|message| transcript_of(message)).collect();
        Some(CompactionInput {
            replaces: u32::try_from(old.len()).unwrap_or(u32::MAX),
            transcript: truncate_middle(&told.join("\n\n"), most),
        })
    }

    /// Replaces the first messages, the order apart, by a summary of them, which comes after the order.
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
    }

    fn without_order(&self) -> Vec<&Message> {
        let others = self.conversation.iter().enumerate().filter(|(at, _)| *at != self.order_at);
        others.map(|(_, message)| message).collect()
    }

    /// What of the conversation is sent, where the agent is to see only a part of it: the order and the last `items`
    /// messages, without the outputs of tools that lie more than `old_outputs` tokens back.
    pub fn visible_messages(&self, items: Option<usize>, old_outputs: Option<u64>) -> Option<Vec<Message>> {
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

/// What a summary looks like in the conversation.
pub fn summary_text(summary: &str, open_tasks: &[String]) -> Arc<str> {
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

/// A text of at most about `most` bytes: if it is longer, its middle is left out, and it says so.
pub(crate) fn truncate_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(most / 2);
    let tail = text.ceil_char_boundary(text.len() - most / 2).max(head);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}
