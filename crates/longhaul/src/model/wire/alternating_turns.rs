//! Writes a conversation for protocols whose turns alternate: every call gets a result, results come first,
//! and only new messages are serialised.

use std::borrow::Cow;
use std::collections::HashSet;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;

use crate::message::{Message, Reply};

/// Stands in for a result that never came.
const UNANSWERED: &str = "There is no result: the call was not carried out.";

/// How a protocol writes the parts of a conversation.
pub(super) trait TurnWriter: Send + 'static {
    /// The beginning of a user turn.
    const USER: &'static str;
    /// The beginning of a model turn.
    const MODEL: &'static str;
    /// The end of a turn. It follows the closing brace of the last part.
    const END: &'static str;

    /// Writes a message to the task.
    fn write_text(out: &mut Vec<u8>, text: &str);

    fn write_result(out: &mut Vec<u8>, asked: &UnansweredCall, output: &str, is_error: bool);

    /// Writes the parts of a reply that this model accepts, and returns the calls in it. `used` holds the
    /// call ids of the conversation so far.
    fn write_reply(
        pieces: &mut JsonPieces,
        reply: &Reply,
        model: &str,
        used: &mut HashSet<Box<str>>,
    ) -> Vec<UnansweredCall>;
}

/// A call that still needs its result.
#[derive(Debug)]
pub(super) struct UnansweredCall {
    /// The id in the conversation.
    pub(super) id: Box<str>,
    pub(super) wire_id: Box<str>,
    pub(super) tool: Box<str>,
}

/// The parts of a turn, separated by commas.
#[derive(Debug, Default)]
pub(super) struct JsonPieces(Vec<u8>);

impl JsonPieces {
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        write(&mut self.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

/// The conversation so far. Only the open turn is ever written again, and that as bytes.
#[derive(Debug, Default)]
pub(super) struct AlternatingTurns<F> {
    model: String,
    taken: usize,
    /// The last message that was written. If it is unchanged, everything before it is assumed to be
    /// unchanged.
    last: Option<Message>,
    done: Vec<u8>,
    /// The offsets in `done` at which the last two user turns end; 0 if there is none.
    ends: [usize; 2],
    open: Option<TurnRole>,
    results: JsonPieces,
    pieces: JsonPieces,
    asked: Vec<UnansweredCall>,
    used: HashSet<Box<str>>,
    form: PhantomData<F>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnRole {
    User,
    Model,
}

impl<F: TurnWriter + Default> AlternatingTurns<F> {
    /// Writes the new messages of a conversation, or all of them if the conversation or the model is a
    /// different one.
    pub(super) fn update(&mut self, messages: &[Message], model: &str) {
        let known = self.taken.checked_sub(1).and_then(|at| messages.get(at));
        if self.model != model || self.last.as_ref() != known {
            *self = AlternatingTurns { model: model.to_owned(), ..AlternatingTurns::default() };
        }
        for message in messages.get(self.taken..).unwrap_or_default() {
            self.add(message);
        }
        self.taken = messages.len();
        self.last = messages.last().cloned();
    }

    /// Whether the conversation is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.open.is_none()
    }

    /// Whether the conversation contains a call.
    pub(super) fn has_calls(&self) -> bool {
        !self.used.is_empty()
    }

    /// The approximate length in bytes.
    pub(super) fn estimated_len(&self) -> usize {
        self.done.len() + self.results.len() + self.pieces.len() + 256
    }

    /// Writes the turns. `mark` goes into the last part of each of the last two user turns.
    pub(super) fn write(&self, out: &mut Vec<u8>, mark: &str) {
        let answers = !self.asked.is_empty();
        let open = self.open == Some(TurnRole::User) || answers;
        let mut at = 0;
        for end in self.ends.into_iter().skip(usize::from(open)) {
            if end > 0 {
                let last = end - F::END.len() - 1;
                out.extend_from_slice(&self.done[at..last]);
                out.extend_from_slice(mark.as_bytes());
                at = last;
            }
        }
        out.extend_from_slice(&self.done[at..]);
        let comma = |out: &mut Vec<u8>| {
            if out.last() == Some(&b'}') {
                out.push(b',');
            }
        };
        if self.open == Some(TurnRole::Model) {
            comma(out);
            turn(out, F::MODEL, &[&self.pieces.0], F::END);
        }
        if open {
            comma(out);
            let mut late = JsonPieces::default();
            for asked in &self.asked {
                late.add(|out| F::write_result(out, asked, UNANSWERED, true));
            }
            let texts: &[u8] = if self.open == Some(TurnRole::User) { &self.pieces.0 } else { &[] };
            turn(out, F::USER, &[&self.results.0, &late.0, texts], F::END);
            let last = out.len() - F::END.len() - 1;
            out.truncate(last);
            out.extend_from_slice(mark.as_bytes());
            out.push(b'}');
            out.extend_from_slice(F::END.as_bytes());
        }
    }

    fn add(&mut self, message: &Message) {
        match message {
            Message::User(text) if text.trim().is_empty() => {}
            Message::User(text) => self.say(text),
            Message::Tool(result) => match self.asked.iter().position(|asked| *asked.id == *result.call) {
                Some(at) => {
                    let asked = self.asked.remove(at);
                    self.turn_to(TurnRole::User);
                    self.results.add(|out| F::write_result(out, &asked, &result.output, result.is_error));
                }
                None => self.say(&format!("Result of '{}':\n{}", result.tool, result.output)),
            },
            Message::Assistant(reply) => {
                let mut pieces = JsonPieces::default();
                let asked = F::write_reply(&mut pieces, reply, &self.model, &mut self.used);
                if pieces.len() == 0 {
                    return;
                }
                for asked in std::mem::take(&mut self.asked) {
                    self.turn_to(TurnRole::User);
                    self.results.add(|out| F::write_result(out, &asked, UNANSWERED, true));
                }
                self.turn_to(TurnRole::Model);
                self.pieces.add(|out| out.extend_from_slice(&pieces.0));
                self.asked = asked;
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.turn_to(TurnRole::User);
        self.pieces.add(|out| F::write_text(out, text));
    }

    fn turn_to(&mut self, role: TurnRole) {
        if self.open == Some(role) {
            return;
        }
        let begin = match self.open.replace(role) {
            None => return,
            Some(TurnRole::User) => F::USER,
            Some(TurnRole::Model) => F::MODEL,
        };
        if !self.done.is_empty() {
            self.done.push(b',');
        }
        turn(&mut self.done, begin, &[&self.results.0, &self.pieces.0], F::END);
        if role == TurnRole::Model {
            self.ends = [self.ends[1], self.done.len()];
        }
        self.results.0.clear();
        self.pieces.0.clear();
    }
}

fn turn(out: &mut Vec<u8>, begin: &str, parts: &[&[u8]], end: &str) {
    out.extend_from_slice(begin.as_bytes());
    for (n, part) in parts.iter().filter(|part| !part.is_empty()).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(end.as_bytes());
}

/// Writes a value as JSON. Writing strings, numbers and JSON values to memory cannot fail.
pub(super) fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}

/// The arguments of a call as a JSON object: unchanged if they are one.
pub(super) fn arguments_object(arguments: &str) -> Cow<'_, str> {
    let arguments = arguments.trim();
    if arguments.is_empty() || arguments == "null" {
        return Cow::Borrowed("{}");
    }
    // Parse fully: half a surrogate, for example, is valid JSON to some parsers only.
    if serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
        return Cow::Borrowed(arguments);
    }
    Cow::Owned(serde_json::json!({ "arguments": arguments }).to_string())
}

/// An id of letters, digits, `_` and `-` only, at most `longest` long.
pub(super) fn clean_id(name: &str, longest: usize) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= longest && name.chars().all(fine) {
        return Cow::Borrowed(name);
    }
    let cleaned: String = name.chars().take(longest).map(|c| if fine(c) { c } else { '_' }).collect();
    Cow::Owned(if cleaned.is_empty() { "unnamed".to_owned() } else { cleaned })
}

/// Merges `more` into `value`: objects are merged, everything else is replaced.
pub(super) fn merge_value(value: &mut Value, more: &Value) {
    match (value, more) {
        (Value::Object(map), Value::Object(more)) => {
            for (key, more) in more {
                merge_value(map.entry(key.clone()).or_insert(Value::Null), more);
            }
        }
        (value, more) => *value = more.clone(),
    }
}
