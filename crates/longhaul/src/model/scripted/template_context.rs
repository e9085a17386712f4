//! The conversation as the templates of a script see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use minijinja::value::{Object, Value};
use minijinja::{Error, ErrorKind};
use regex::Regex;

use crate::message::Message;
use crate::model::ModelRequest;

/// The variables of a template.
pub(super) const TEMPLATE_VARIABLES: [&str; 9] =
    ["agent", "find_all", "last", "letters", "result", "results", "results_of", "task", "turn"];

/// Where the task's own messages begin; the ones before belong to the task that it continues.
pub(super) fn own_messages_start(messages: &[Message], turn: u32) -> usize {
    let mut replies = turn;
    for (index, message) in messages.iter().enumerate().rev() {
        match message {
            Message::User(_) => {}
            Message::Assistant(_) | Message::Tool(_) if replies == 0 => return index + 1,
            Message::Assistant(_) => replies -= 1,
            Message::Tool(_) => {}
        }
    }
    0
}

/// The first message to the task.
pub(super) fn task_text<'a>(request: &ModelRequest<'a>) -> &'a str {
    let own = request.messages.get(own_messages_start(request.messages, request.turn)..).unwrap_or_default();
    own.iter().find_map(user).map_or("", |text| &**text)
}

fn user(message: &Message) -> Option<&Arc<str>> {
    match message {
        Message::User(text) => Some(text),
        _ => None,
    }
}

fn incoming_text(message: &Message) -> Option<&Arc<str>> {
    match message {
        Message::User(text) => Some(text),
        Message::Tool(result) => Some(&result.output),
        Message::Assistant(_) => None,
    }
}

/// The task's own messages up to some point. Each variable is computed only when it is used.
#[derive(Debug, Clone)]
pub(super) struct TemplateContext {
    agent: Arc<str>,
    turn: u32,
    messages: Arc<[Message]>,
    len: usize,
}

impl TemplateContext {
    pub(super) fn new(request: &ModelRequest<'_>) -> Self {
        let own =
            request.messages.get(own_messages_start(request.messages, request.turn)..).unwrap_or_default();
        TemplateContext {
            agent: request.agent.as_str().into(),
            turn: request.turn,
            messages: own.into(),
            len: own.len(),
        }
    }

    /// The positions of the task's replies, oldest first. Fewer than the task has received if some were
    /// compacted.
    pub(super) fn reply_positions(&self) -> Vec<usize> {
        let all = self.messages.iter().enumerate();
        all.filter(|(_, m)| matches!(m, Message::Assistant(_))).map(|(index, _)| index).collect()
    }

    /// The conversation before message `len`, when the task had received `turn` replies.
    pub(super) fn truncated_before(&self, len: usize, turn: u32) -> Self {
        TemplateContext { len: len.min(self.messages.len()), turn, ..self.clone() }
    }

    pub(super) fn into_value(self) -> Value {
        Value::from_object(self)
    }

    fn visible_messages(&self) -> &[Message] {
        self.messages.get(..self.len).unwrap_or_default()
    }

    fn results(&self, of: Option<&str>) -> Value {
        let outputs = self.visible_messages().iter().filter_map(|message| match message {
            Message::Tool(result) if of.is_none_or(|tool| *result.tool == *tool) => {
                Some(result.output.clone())
            }
            _ => None,
        });
        outputs.map(Value::from).collect()
    }
}

impl Object for TemplateContext {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "agent" => Some(self.agent.clone().into()),
            "turn" => Some(self.turn.into()),
            "task" => self.visible_messages().iter().find_map(user).cloned().map(Value::from),
            "last" => self.visible_messages().iter().rev().find_map(incoming_text).cloned().map(Value::from),
            "letters" => Some(
                self.visible_messages().iter().filter_map(user).skip(1).cloned().map(Value::from).collect(),
            ),
            "results" => Some(self.results(None)),
            "result" => {
                let since =
                    self.visible_messages().iter().rev().take_while(|m| !matches!(m, Message::Assistant(_)));
                let mut outputs = since.filter_map(|m| match m {
                    Message::Tool(result) => Some(result.output.clone()),
                    _ => None,
                });
                outputs.next().map(Value::from)
            }
            "results_of" => {
                let context = Arc::clone(self);
                Some(Value::from_function(move |tool: &str| context.results(Some(tool))))
            }
            "find_all" => {
                let context = Arc::clone(self);
                Some(Value::from_function(move |pattern: &str| {
                    find_all(
                        context.visible_messages().iter().filter_map(incoming_text).map(|text| &**text),
                        pattern,
                    )
                }))
            }
            _ => None,
        }
    }
}

/// The matches of a pattern in some texts (its first group, if it has one), unique and sorted.
fn find_all<'a>(texts: impl Iterator<Item = &'a str>, pattern: &str) -> Result<Value, Error> {
    let pattern = Regex::new(pattern)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("'{pattern}' is not a pattern: {e}")))?;
    let mut found = BTreeSet::new();
    for text in texts {
        for groups in pattern.captures_iter(text) {
            found.extend(groups.get(1).or_else(|| groups.get(0)).map(|m| m.as_str()));
        }
    }
    Ok(found.into_iter().map(Value::from).collect())
}

/// The filter `find_all`, for a text or a list of texts.
pub(super) fn find_all_in(texts: &Value, pattern: &str) -> Result<Value, Error> {
    if let Some(text) = texts.as_str() {
        return find_all(std::iter::once(text), pattern);
    }
    let texts: Vec<Value> = texts.try_iter()?.collect();
    find_all(texts.iter().filter_map(Value::as_str), pattern)
}

/// The filter `from_json`: parses a JSON text.
pub(super) fn from_json(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("'{text}' is not JSON: {e}")))
}
