//! The messages of a conversation in a wire format, each written once and cached.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use super::WireCache;
use super::schema::SchemaDialect;
use super::tools::{ToolBytes, WireTool};
use crate::message::{Block, Message, Reply, ToolResult};
use crate::model::ToolSpec;
use crate::model::settings::ModelSettings;
use crate::model::wire::WireRequestError;

/// Stands in for the result of a call that never returned.
const UNFINISHED: &str = "(no result: the call was not finished)";
/// Stands in for an empty result: some providers refuse an empty message.
const NOTHING: &str = "(no output)";

/// How a protocol writes the messages of a conversation.
pub(crate) trait MessageWriter {
    /// Writes a message to the task.
    fn write_user(&mut self, out: &mut Vec<u8>, text: &str);
    /// Writes a reply of the model; `ids` are the wire ids of its calls.
    fn write_reply(&mut self, out: &mut Vec<u8>, reply: &Reply, ids: &[String]);
    /// Writes the result of a call.
    fn write_result(&mut self, out: &mut Vec<u8>, id: &str, tool: &str, output: &str);
    /// Whether the provider accepts this call id.
    fn accepts_id(&self, id: &str) -> bool;
    /// A call id that the provider accepts.
    fn make_id(&self, n: usize) -> String;
}

/// The part of a conversation that is already written in a wire format.
#[derive(Debug)]
pub(crate) struct MessageList<F> {
    /// The writer of the protocol.
    pub(crate) form: F,
    bytes: Vec<u8>,
    seen: usize,
    last: Option<Message>,
    ids: HashSet<String>,
    tools: ToolBytes,
    #[cfg(test)]
    written: usize,
}

impl<F: MessageWriter> MessageList<F> {
    /// An empty list.
    pub(crate) fn new(form: F) -> Self {
        MessageList {
            form,
            bytes: Vec::new(),
            seen: 0,
            last: None,
            ids: HashSet::new(),
            tools: ToolBytes::default(),
            #[cfg(test)]
            written: 0,
        }
    }

    /// Writes the new messages, separated by commas, or all of them if this is a different conversation.
    /// `fresh` creates the writer for a new start.
    pub(crate) fn update(&mut self, messages: &[Message], fresh: impl FnOnce() -> F) {
        let same = match (self.seen.checked_sub(1), &self.last) {
            (Some(at), Some(last)) => messages.get(at).is_some_and(|m| is_same(m, last)),
            _ => true,
        };
        if !same {
            *self = MessageList::new(fresh());
        }
        let from = self.seen;
        let mut placed = HashSet::new();
        for (at, message) in messages.iter().enumerate().skip(from) {
            match message {
                Message::User(text) if text.trim().is_empty() => {}
                Message::User(text) => self.form.write_user(&mut self.bytes, text),
                Message::Assistant(reply) => self.reply(reply, &messages[at + 1..], at + 1, &mut placed),
                Message::Tool(_) if placed.contains(&at) => {}
                // The reply with this call is gone, or it never existed.
                Message::Tool(result) => {
                    let note = format!("Result of {}:\n{}", result.tool, output(result));
                    self.form.write_user(&mut self.bytes, &note);
                }
            }
        }
        // It grew by doubling. The conversation of an agent that launches a thousand others is large.
        let (length, room) = (self.bytes.len(), self.bytes.len() / 8);
        if self.bytes.capacity() > length + 2 * room.max(32 << 10) {
            self.bytes.shrink_to(length + room);
        }
        self.seen = messages.len();
        self.last = messages.last().cloned();
        #[cfg(test)]
        {
            self.written += messages.len() - from;
        }
    }

    /// Builds the whole body: the frame, the written conversation under this key and after this prefix, and
    /// the tools.
    pub(crate) fn build_body<T: Serialize>(
        &mut self,
        frame: &serde_json::Map<String, serde_json::Value>,
        key: &str,
        beginning: &[u8],
        tools: &[Arc<ToolSpec>],
        (dialect, memo): (&SchemaDialect, &WireCache),
        form: impl Fn(WireTool) -> T,
    ) -> Vec<u8> {
        let tools = self.tools.write(tools, dialect, memo, |out, tool| write(out, &form(tool)));
        let mut body = Vec::with_capacity(1024 + beginning.len() + self.bytes.len() + tools.len());
        write(&mut body, frame);
        // The frame contains at least the model, so a comma must follow.
        body.pop();
        body.extend_from_slice(b",\"");
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(b"\":[");
        body.extend_from_slice(beginning);
        if !beginning.is_empty() && !self.bytes.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(&self.bytes);
        body.push(b']');
        if !tools.is_empty() {
            body.extend_from_slice(b",\"tools\":[");
            body.extend_from_slice(tools);
            body.push(b']');
        }
        body.push(b'}');
        body
    }

    /// How many messages have been written since the start.
    #[cfg(test)]
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// Writes a reply, followed by the results of its calls in their order.
    fn reply(&mut self, reply: &Reply, rest: &[Message], first: usize, placed: &mut HashSet<usize>) {
        let mut ids = Vec::new();
        for call in reply.calls() {
            ids.push(self.wire_id(&call.id));
        }
        self.form.write_reply(&mut self.bytes, reply, &ids);
        if ids.is_empty() {
            return;
        }
        let mut results: HashMap<&str, VecDeque<(usize, &ToolResult)>> = HashMap::new();
        for (n, message) in rest.iter().enumerate() {
            match message {
                Message::Assistant(_) => break,
                Message::Tool(result) => {
                    results.entry(&result.call).or_default().push_back((first + n, result))
                }
                Message::User(_) => {}
            }
        }
        for (call, id) in reply.calls().zip(&ids) {
            match results.get_mut(call.id.as_str()).and_then(VecDeque::pop_front) {
                Some((at, result)) => {
                    placed.insert(at);
                    self.form.write_result(&mut self.bytes, id, &call.tool, output(result));
                }
                None => self.form.write_result(&mut self.bytes, id, &call.tool, UNFINISHED),
            }
        }
    }

    /// The wire id of a call: its own, unless the provider does not accept it or it was used before.
    fn wire_id(&mut self, id: &str) -> String {
        if self.form.accepts_id(id) && self.ids.insert(id.to_owned()) {
            return id.to_owned();
        }
        let mut n = self.ids.len();
        loop {
            let id = self.form.make_id(n);
            if self.ids.insert(id.clone()) {
                return id;
            }
            n += 1;
        }
    }
}

fn output(result: &ToolResult) -> &str {
    if result.output.trim().is_empty() { NOTHING } else { &result.output }
}

fn is_same(a: &Message, b: &Message) -> bool {
    match (a, b) {
        (Message::User(a), Message::User(b)) => Arc::ptr_eq(a, b) || a == b,
        (Message::Assistant(a), Message::Assistant(b)) => Arc::ptr_eq(a, b) || a == b,
        (Message::Tool(a), Message::Tool(b)) => a == b,
        _ => false,
    }
}

/// Whether a reply contains anything that other providers understand.
pub(crate) fn has_content(reply: &Reply) -> bool {
    reply.blocks.iter().any(|block| match block {
        Block::Text(text) => !text.trim().is_empty(),
        Block::Reasoning { .. } => false,
        Block::Call(_) => true,
    })
}

/// The arguments of a call as valid JSON: some servers parse them and fail on anything else.
pub(crate) fn json_arguments(written: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(written) {
        Ok(_) => written.to_owned(),
        Err(_) if matches!(written.trim(), "" | "null") => "{}".to_owned(),
        Err(_) => serde_json::json!({ "not_json": written }).to_string(),
    }
}

/// Appends a value to a list that is being written.
pub(crate) fn push_json(out: &mut Vec<u8>, value: &impl Serialize) {
    if !out.is_empty() {
        out.push(b',');
    }
    write(out, value);
}

pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing strings, numbers and maps with string keys to memory cannot fail.
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "{written:?}");
}

/// Refuses options that would overwrite a key that only Longhaul sets.
pub(crate) fn reject_reserved_keys(settings: &ModelSettings, ours: &[&str]) -> Result<(), WireRequestError> {
    match ours.iter().find(|key| settings.provider_opts.contains_key(**key)) {
        Some(key) => {
            Err(WireRequestError(format!("provider_opts: `{key}` is set by Longhaul and cannot be changed")))
        }
        None => Ok(()),
    }
}

/// Merges options into a body: they come last and override; objects are merged.
pub(crate) fn merge_options(
    body: &mut serde_json::Map<String, serde_json::Value>,
    options: &serde_json::Map<String, serde_json::Value>,
) {
    use serde_json::Value;
    for (key, value) in options {
        match (body.get_mut(key), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => merge_options(ours, theirs),
            _ => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
}
