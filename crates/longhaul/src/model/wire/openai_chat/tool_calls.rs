//! Calls that come in pieces, however the provider numbers them.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::messages::arguments_text;
use crate::message::{Block, Call};
use crate::model::wire::parsing::{BlockCollector, JsonCompletion, raw_number, raw_string};

/// A piece of a call.
#[derive(Deserialize)]
pub(super) struct ChatCallDelta<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    function: Option<ChatFunctionDelta<'a>>,
}

impl<'a> ChatCallDelta<'a> {
    /// Its number and its arguments as they stand there, if it has nothing else.
    pub(super) fn only_arguments(&self) -> Option<(Option<u64>, &'a str)> {
        let function = self.function.as_ref().filter(|f| f.name.is_none())?;
        let arguments = function.arguments.filter(|_| self.id.is_none())?;
        Some((raw_number(self.index), arguments.get()))
    }
}

/// What is called, and with what, in pieces.
#[derive(Deserialize)]
pub(super) struct ChatFunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
}

/// The calls of a reply so far.
#[derive(Debug, Default)]
pub(super) struct ChatCallCollector {
    calls: Vec<ChatOpenCall>,
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
}

#[derive(Debug)]
struct ChatOpenCall {
    /// Where it is in the reply.
    at: usize,
    whole: JsonCompletion,
}

impl ChatCallCollector {
    /// Adds a piece to the call that it belongs to, or begins one with it.
    ///
    /// Providers number calls in every way there is: properly; not at all; all with 0; with an id in the first piece,
    /// in each, or in none; with the name in the first piece or in each. A call whose arguments are whole is over, so
    /// a piece with a name after that begins another.
    pub(super) fn add(&mut self, piece: ChatCallDelta<'_>, collector: &mut BlockCollector) {
        let index = raw_number(piece.index);
        let id = raw_string(piece.id).unwrap_or_default();
        let (name, arguments) = match &piece.function {
            Some(f) => {
                (raw_string(f.name).unwrap_or_default(), f.arguments.map(arguments_text).unwrap_or_default())
            }
            None => Default::default(),
        };
        self.add_parts(index, id, name, &arguments, collector);
    }

    /// Adds a piece that has been taken apart. What it does not have is empty.
    pub(super) fn add_parts(
        &mut self,
        index: Option<u64>,
        id: String,
        name: String,
        arguments: &str,
        collector: &mut BlockCollector,
    ) {
        let known = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.by_id.get(&id).copied(),
        };
        let n = match known {
            Some(n) if !self.is_another(n, index, &id, &name, arguments, collector) => n,
            _ => {
                let at = collector.open_block(Block::Call(Call {
                    id: id.clone(),
                    tool: String::new(),
                    arguments: String::new(),
                }));
                self.calls.push(ChatOpenCall { at, whole: JsonCompletion::default() });
                self.calls.len() - 1
            }
        };
        if let Some(index) = index {
            self.by_index.insert(index, n);
        }
        let Some(open) = self.calls.get_mut(n) else { return };
        let Some(call) = collector.call_mut(open.at) else { return };
        if call.id.is_empty() {
            call.id.clone_from(&id);
        }
        if !id.is_empty() {
            self.by_id.insert(id, n);
        }
        if call.tool.is_empty() || (name.len() > call.tool.len() && name.starts_with(&call.tool)) {
            call.tool = name;
        } else if !name.is_empty() && name != call.tool && call.arguments.is_empty() {
            call.tool.push_str(&name);
        }
        open.whole.feed(arguments);
        call.arguments.push_str(arguments);
    }

    /// Adds the one call that the old `function_call` can be.
    pub(super) fn add_function(&mut self, function: ChatFunctionDelta<'_>, collector: &mut BlockCollector) {
        self.add(ChatCallDelta { index: None, id: None, function: Some(function) }, collector);
    }

    /// Whether a piece that seems to belong to this call begins another one.
    fn is_another(
        &self,
        n: usize,
        index: Option<u64>,
        id: &str,
        name: &str,
        arguments: &str,
        collector: &mut BlockCollector,
    ) -> bool {
        let Some(open) = self.calls.get(n) else { return true };
        let Some(call) = collector.call_mut(open.at) else { return true };
        if name.is_empty() || call.tool.is_empty() {
            return false;
        }
        let other_id = !id.is_empty() && !call.id.is_empty() && id != call.id;
        if open.whole.is_complete() {
            let named_the_same = index.is_some() && !id.is_empty();
            return other_id || (!named_the_same && !arguments.trim().is_empty());
        }
        // A call without any arguments is over when one of another name and id begins.
        call.arguments.trim().is_empty() && other_id && name != call.tool
    }
}
