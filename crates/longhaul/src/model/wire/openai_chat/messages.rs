//! Writes a conversation as chat messages.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::quirks::{Quirks, ReasoningReplay};
use crate::message::{Block, Reply};
use crate::model::wire::message_list::{MessageWriter, has_content, json_arguments, push_json};
use crate::model::wire::parsing::raw_string;
use crate::model::wire::tool_names::wire_name;

/// The longest call id.
const LONGEST_ID: usize = 40;

#[derive(Debug, Clone)]
pub(super) struct ChatMessageWriter {
    pub(super) quirks: Quirks,
    last: LastRole,
}

/// The role of the last message.
#[derive(Debug, Clone)]
enum LastRole {
    Nothing,
    /// The user: the offset at which the message begins in the output, and its text.
    User(usize, String),
    Assistant,
    Tool,
}

#[derive(Serialize)]
struct ChatTextMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct ChatAssistantMessage<'a> {
    role: &'static str,
    content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatToolCall<'a>>,
}

#[derive(Serialize)]
struct ChatToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: ChatFunctionCall<'a>,
}

#[derive(Serialize)]
struct ChatFunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Serialize)]
struct ChatToolMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    content: &'a str,
}

impl ChatMessageWriter {
    pub(super) fn new(quirks: Quirks) -> Self {
        ChatMessageWriter { quirks, last: LastRole::Nothing }
    }

    fn content(&self, reply: &Reply) -> Option<Value> {
        let text = reply.text();
        let reasoning = own_reasoning(reply);
        if self.quirks.reasoning_replay == ReasoningReplay::Parts && !reasoning.is_empty() {
            let mut parts =
                vec![json!({"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]})];
            if !text.is_empty() {
                parts.push(json!({"type": "text", "text": text}));
            }
            return Some(Value::Array(parts));
        }
        (!text.is_empty()).then_some(Value::String(text))
    }
}

impl MessageWriter for ChatMessageWriter {
    fn write_user(&mut self, out: &mut Vec<u8>, text: &str) {
        match &mut self.last {
            LastRole::User(at, said) if self.quirks.merge_user_messages => {
                said.push_str("\n\n");
                said.push_str(text);
                out.truncate(*at);
                push_json(out, &ChatTextMessage { role: "user", content: said });
                return;
            }
            LastRole::Tool if self.quirks.bridge_tool_to_user => {
                push_json(out, &ChatTextMessage { role: "assistant", content: "Understood." });
            }
            _ => {}
        }
        let said = if self.quirks.merge_user_messages { text.to_owned() } else { String::new() };
        self.last = LastRole::User(out.len(), said);
        push_json(out, &ChatTextMessage { role: "user", content: text });
    }

    fn write_reply(&mut self, out: &mut Vec<u8>, reply: &Reply, ids: &[String]) {
        if !has_content(reply) {
            return;
        }
        self.last = LastRole::Assistant;
        let tool_calls = reply.calls().zip(ids).map(|(call, id)| ChatToolCall {
            id,
            r#type: "function",
            function: ChatFunctionCall {
                name: wire_name(&call.tool),
                arguments: json_arguments(&call.arguments),
            },
        });
        let demanded = self.quirks.reasoning_replay == ReasoningReplay::Content && !ids.is_empty();
        let answered = ChatAssistantMessage {
            role: "assistant",
            content: self.content(reply),
            reasoning_content: demanded.then(|| own_reasoning(reply)),
            reasoning_details: (self.quirks.reasoning_replay == ReasoningReplay::Details)
                .then(|| details(reply))
                .flatten(),
            tool_calls: tool_calls.collect(),
        };
        push_json(out, &answered);
    }

    fn write_result(&mut self, out: &mut Vec<u8>, id: &str, tool: &str, output: &str) {
        self.last = LastRole::Tool;
        let name = self.quirks.nine_char_ids.then(|| wire_name(tool));
        push_json(out, &ChatToolMessage { role: "tool", tool_call_id: id, name, content: output });
    }

    fn accepts_id(&self, id: &str) -> bool {
        match self.quirks.nine_char_ids {
            true => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            false => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
                (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)
            }
        }
    }

    fn make_id(&self, n: usize) -> String {
        if self.quirks.nine_char_ids { format!("{n:09}") } else { format!("call_{n}") }
    }
}

/// The thinking that is plain text or came from this family. The opaque data of other families is unknown.
fn own_reasoning(reply: &Reply) -> String {
    let pieces = reply.blocks.iter().filter_map(|block| match block {
        Block::Reasoning { text, opaque }
            if opaque.as_ref().is_none_or(|seal| seal.get(DETAILS).is_some()) =>
        {
            Some(text.as_str())
        }
        _ => None,
    });
    pieces.collect()
}

/// The key that marks opaque data of this family.
pub(super) const DETAILS: &str = "reasoning_details";

fn details(reply: &Reply) -> Option<&Value> {
    reply.blocks.iter().find_map(|block| match block {
        Block::Reasoning { opaque, .. } => opaque.as_ref()?.get(DETAILS),
        _ => None,
    })
}

/// Converts arguments that came as JSON instead of a string into a string. A string stays unchanged.
pub(super) fn arguments_text(raw: &RawValue) -> String {
    let text = raw.get();
    match raw_string(Some(raw)) {
        Some(string) => string,
        None if text == "null" => String::new(),
        None => text.to_owned(),
    }
}
