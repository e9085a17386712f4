//! Collects tool calls from deltas, however the provider numbers them.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::messages::arguments_text;
use crate::message::{Block, Call};
use crate::model::wire::parsing::{BlockCollector, JsonCompletion, raw_number, raw_string};

/// A delta of a call.
#[derive(Deserialize)]
pub(super) struct ChatCallDelta<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    function: Option<ChatFunctionDelta<'a>>,
}

impl<'a> ChatCallDelta<'a> {
    /// The index and the raw arguments, if the delta has nothing else.
    pub(super) fn only_arguments(&self) -> Option<(Option<u64>, &'a str)> {
        let function = self.function.as_ref().filter(|f| f.name.is_none())?;
        let arguments = function.arguments.filter(|_| self.id.is_none())?;
        Some((raw_number(self.index), arguments.get()))
    }
}

/// A delta of the function and its arguments.
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
    /// The index of its block in the reply.
    at: usize,
    whole: JsonCompletion,
}

impl ChatCallCollector {
    /// Adds a delta to the call that it belongs to, or begins a new call.
    ///
    /// Providers number calls in every possible way: properly; not at all; all with 0; with an id in the
    /// first delta, in each, or in none; with the name in the first delta or in each. A call with complete
    /// arguments has ended, so a later delta with a name begins a new one.
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

    /// Adds a delta by its parts. Missing parts are empty.
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

    /// Adds the single call of the legacy `function_call`.
    pub(super) fn add_function(&mut self, function: ChatFunctionDelta<'_>, collector: &mut BlockCollector) {
        self.add(ChatCallDelta { index: None, id: None, function: Some(function) }, collector);
    }

    /// Whether a delta that seems to belong to this call begins a new one.
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
        // A call without arguments has ended when a delta with another name and id comes.
        call.arguments.trim().is_empty() && other_id && name != call.tool
    }
}
