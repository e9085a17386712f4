//! A conversation as chat completions want it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::quirks::{Quirks, ReasoningBack};
use crate::message::{Block, Reply};
use crate::model::wire::common::string;
use crate::model::wire::history::{Form, arguments, push, says_something};
use crate::model::wire::names::wire_name;

/// How long an id of a call may be.
const LONGEST_ID: usize = 40;

#[derive(Debug, Clone)]
pub(super) struct ChatForm {
    pub(super) quirks: Quirks,
    last: Last,
}

/// Who spoke last.
#[derive(Debug, Clone)]
enum Last {
    Nobody,
    /// The task: what it was told begins here in what is written.
    User(usize, String),
    Assistant,
    Tool,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct Answered<'a> {
    role: &'static str,
    content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Called<'a>>,
}

#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Serialize)]
struct Returned<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    content: &'a str,
}

impl ChatForm {
    pub(super) fn new(quirks: Quirks) -> Self {
        ChatForm { quirks, last: Last::Nobody }
    }

    fn content(&self, reply: &Reply) -> Option<Value> {
        let text = reply.text();
        let reasoning = own_reasoning(reply);
        if self.quirks.reasoning_back == ReasoningBack::Parts && !reasoning.is_empty() {
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

impl Form for ChatForm {
    fn user(&mut self, out: &mut Vec<u8>, text: &str) {
        match &mut self.last {
            Last::User(at, said) if self.quirks.merge_users => {
                said.push_str("\n\n");
                said.push_str(text);
                out.truncate(*at);
                push(out, &Said { role: "user", content: said });
                return;
            }
            Last::Tool if self.quirks.bridge => {
                push(out, &Said { role: "assistant", content: "Understood." });
            }
            _ => {}
        }
        let said = if self.quirks.merge_users { text.to_owned() } else { String::new() };
        self.last = Last::User(out.len(), said);
        push(out, &Said { role: "user", content: text });
    }

    fn assistant(&mut self, out: &mut Vec<u8>, reply: &Reply, ids: &[String]) {
        if !says_something(reply) {
            return;
        }
        self.last = Last::Assistant;
        let tool_calls = reply.calls().zip(ids).map(|(call, id)| Called {
            id,
            r#type: "function",
            function: Function { name: wire_name(&call.tool), arguments: arguments(&call.arguments) },
        });
        let demanded = self.quirks.reasoning_back == ReasoningBack::Content && !ids.is_empty();
        let answered = Answered {
            role: "assistant",
            content: self.content(reply),
            reasoning_content: demanded.then(|| own_reasoning(reply)),
            reasoning_details: (self.quirks.reasoning_back == ReasoningBack::Details)
                .then(|| details(reply))
                .flatten(),
            tool_calls: tool_calls.collect(),
        };
        push(out, &answered);
    }

    fn result(&mut self, out: &mut Vec<u8>, id: &str, tool: &str, output: &str) {
        self.last = Last::Tool;
        let name = self.quirks.short_ids.then(|| wire_name(tool));
        push(out, &Returned { role: "tool", tool_call_id: id, name, content: output });
    }

    fn takes_id(&self, id: &str) -> bool {
        match self.quirks.short_ids {
            true => id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            false => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
                (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)
            }
        }
    }

    fn id(&self, n: usize) -> String {
        if self.quirks.short_ids { format!("{n:09}") } else { format!("call_{n}") }
    }
}

/// The thinking that is plain text, or came from this family. Another's is sealed with a seal we do not know.
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

/// What a seal of ours is known by.
pub(super) const DETAILS: &str = "reasoning_details";

fn details(reply: &Reply) -> Option<&Value> {
    reply.blocks.iter().find_map(|block| match block {
        Block::Reasoning { opaque, .. } => opaque.as_ref()?.get(DETAILS),
        _ => None,
    })
}

/// Arguments that came as JSON rather than as a string with JSON in it, as a string; a string as it is.
pub(super) fn written(raw: &RawValue) -> String {
    let text = raw.get();
    match string(Some(raw)) {
        Some(string) => string,
        None if text == "null" => String::new(),
        None => text.to_owned(),
    }
}
