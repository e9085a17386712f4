//! One turn of another program's agent as a state machine without IO: its updates in, journal entries and the
//! reply out.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::wire::{self, CallStatus, CallUpdate, Update};
use crate::conversation::CALL_KINDS;
use crate::entry::LiveTextKind;
use crate::message::{Block, Reply, StopReason, Usage};

/// How many bytes of a turn's text, and of its narration, are kept.
const TEXT: usize = 1 << 20;
/// How many calls of a turn are recorded.
const CALLS: usize = 5000;
/// The kinds of calls that change nothing.
const HARMLESS: [&str; 3] = ["read", "search", "think"];

/// What is to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TurnEffect {
    Say(LiveTextKind, String),
    Progress(String),
    Called { index: u32, tool: Arc<str>, arguments: String, effects: bool },
    Returned { index: u32, tool: Arc<str>, output: String, is_error: bool },
}

/// A turn so far.
#[derive(Debug, Default)]
pub(super) struct AgentTurn {
    calls: Vec<TurnCall>,
    by_id: HashMap<String, usize>,
    next_index: u32,
    /// Calls that were not recorded because there are too many.
    unrecorded: u32,
    /// The message that the agent is saying, and its id.
    text: String,
    message: Option<String>,
    /// The last message that it has completed.
    last: String,
    /// What it has thought, and said between its calls.
    narration: String,
}

#[derive(Debug, Default)]
struct TurnCall {
    title: String,
    kind: String,
    input: Option<Value>,
    paths: Vec<String>,
    output: Option<String>,
    status: Option<CallStatus>,
    /// The index under which its start was recorded.
    index: Option<u32>,
    returned: bool,
}

impl TurnCall {
    fn tool(&self) -> Arc<str> {
        // Other names are those of our own tools.
        if CALL_KINDS.contains(&&*self.kind) { self.kind.as_str().into() } else { "other".into() }
    }

    fn is_over(&self) -> bool {
        matches!(self.status, Some(CallStatus::Done | CallStatus::Failed))
    }

    fn arguments(&self) -> Value {
        wire::arguments(&self.tool(), &self.title, self.input.as_ref(), &self.paths)
    }
}

/// A call that the agent asks permission for.
#[derive(Debug, PartialEq)]
pub(super) struct AskedCall {
    pub(super) index: u32,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Value,
    pub(super) harmless: bool,
    /// What the agent called it before it asked.
    pub(super) first_title: String,
    /// The MCP server and the tool that it names, if its input is nothing but a call of that tool.
    pub(super) server_tool: Option<(String, String)>,
}

impl AgentTurn {
    /// A turn whose calls are numbered from here on.
    pub(super) fn new(next_index: u32) -> AgentTurn {
        AgentTurn { next_index, ..AgentTurn::default() }
    }

    /// Takes an update.
    pub(super) fn update(&mut self, update: Update) -> Vec<TurnEffect> {
        match update {
            Update::Text(text, message) if !text.is_empty() => {
                // What was said before in a message of its own is not the answer either.
                if message != self.message {
                    self.end_message();
                    self.message = message;
                }
                push_capped(&mut self.text, &text);
                vec![TurnEffect::Say(LiveTextKind::Text, text)]
            }
            Update::Thought(text) if !text.is_empty() => {
                push_capped(&mut self.narration, &text);
                vec![TurnEffect::Say(LiveTextKind::Reasoning, text)]
            }
            Update::Plan(text) => vec![TurnEffect::Progress(text)],
            Update::Call(call) => self.call(call),
            _ => Vec::new(),
        }
    }

    /// Takes a request for permission. Its call is recorded before anyone is asked. Returns `None` for a call
    /// that is not recorded because there are too many.
    pub(super) fn asked(&mut self, call: CallUpdate) -> (Vec<TurnEffect>, Option<AskedCall>) {
        let id = call.id.clone();
        let first_title = self.by_id.get(&id).map(|at| self.calls[*at].title.clone());
        let mut effects = self.call(call);
        let Some(at) = self.by_id.get(&id).copied() else { return (effects, None) };
        effects.extend(self.record(at));
        let call = &self.calls[at];
        let asked = call.index.map(|index| AskedCall {
            index,
            tool: call.tool(),
            arguments: call.arguments(),
            harmless: HARMLESS.contains(&&*call.kind),
            first_title: first_title.unwrap_or_default(),
            server_tool: call.input.as_ref().and_then(server_tool),
        });
        (effects, asked)
    }

    /// The index of a call that is not the agent's own.
    pub(super) fn take_index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index = self.next_index.saturating_add(1);
        index
    }

    /// Whether a call of the agent is running: then it need not say anything.
    pub(super) fn is_calling(&self) -> bool {
        self.calls.iter().any(|call| !call.returned)
    }

    fn call(&mut self, update: CallUpdate) -> Vec<TurnEffect> {
        // What was said before a call is not the answer.
        self.end_message();
        let at = match self.by_id.get(&update.id) {
            Some(at) => *at,
            None if self.calls.len() >= CALLS => {
                self.unrecorded = self.unrecorded.saturating_add(1);
                return Vec::new();
            }
            None => {
                self.calls.push(TurnCall::default());
                self.by_id.insert(update.id.clone(), self.calls.len() - 1);
                self.calls.len() - 1
            }
        };
        // Agents announce a call first and fill in its arguments later; others may start meanwhile.
        let mut effects: Vec<TurnEffect> = Vec::new();
        let waiting = self.calls[..at].iter().rposition(|call| call.index.is_none());
        effects.extend(waiting.and_then(|waiting| self.record(waiting)));
        let call = &mut self.calls[at];
        if call.returned {
            return effects;
        }
        let CallUpdate { id: _, title, kind, status, input, output, paths } = update;
        title.into_iter().for_each(|title| call.title = title);
        kind.into_iter().for_each(|kind| call.kind = kind);
        call.input = input.or(call.input.take());
        call.output = output.or(call.output.take());
        call.status = status.or(call.status);
        if !paths.is_empty() {
            call.paths = paths;
        }
        // Some announce a command line with its directory first, and tell the line later.
        let is_whole = |input: &Value| {
            &*call.kind != "execute" || input.get("command").or_else(|| input.get("cmd")).is_some()
        };
        let known = call.input.as_ref().is_some_and(is_whole)
            || !matches!(call.status, None | Some(CallStatus::Pending));
        let is_over = call.is_over();
        if known {
            effects.extend(self.record(at));
        }
        if is_over {
            effects.extend(self.give_back(at, None));
        }
        effects
    }

    fn record(&mut self, at: usize) -> Option<TurnEffect> {
        let call = &mut self.calls[at];
        if call.index.is_some() {
            return None;
        }
        let index = self.next_index;
        self.next_index = self.next_index.saturating_add(1);
        call.index = Some(index);
        let effects = !HARMLESS.contains(&&*call.kind);
        Some(TurnEffect::Called {
            index,
            tool: call.tool(),
            arguments: call.arguments().to_string(),
            effects,
        })
    }

    fn give_back(&mut self, at: usize, why: Option<&str>) -> Option<TurnEffect> {
        let call = &mut self.calls[at];
        let index = call.index.filter(|_| !call.returned)?;
        call.returned = true;
        let is_error = why.is_some() || call.status == Some(CallStatus::Failed);
        let said = call.output.take().unwrap_or_default();
        // Free what is not needed any more: a turn may have thousands.
        call.input = None;
        let output = match (why, said.is_empty()) {
            (None, true) if is_error => "it failed".to_owned(),
            (None, _) => said,
            (Some(why), true) => why.to_owned(),
            (Some(why), false) => format!("{said}\n[{why}]"),
        };
        Some(TurnEffect::Returned { index, tool: call.tool(), output, is_error })
    }

    /// Ends the calls that are open, for this reason.
    pub(super) fn close_calls(&mut self, why: &str) -> Vec<TurnEffect> {
        let mut effects = Vec::new();
        for at in 0..self.calls.len() {
            effects.extend(self.record(at));
            effects.extend(self.give_back(at, Some(why)));
        }
        effects
    }

    /// What people should know about the turn.
    pub(super) fn warning(&self) -> Option<String> {
        (self.unrecorded > 0)
            .then(|| format!("the agent made {} more calls in one turn than are recorded", self.unrecorded))
    }

    fn end_message(&mut self) {
        if self.text.trim().is_empty() {
            return;
        }
        let said = std::mem::take(&mut self.text);
        if !self.narration.is_empty() {
            push_capped(&mut self.narration, "\n\n");
        }
        push_capped(&mut self.narration, &said);
        self.last = said;
    }

    /// The reply. The answer is what was said after the last call, or else the last that was said.
    pub(super) fn into_reply(
        self,
        stop: StopReason,
        usage: Usage,
        model: String,
        cost: Option<u64>,
    ) -> Reply {
        let text = if self.text.trim().is_empty() { self.last } else { self.text };
        let mut blocks = Vec::new();
        if !self.narration.trim().is_empty() {
            blocks.push(Block::Reasoning { text: self.narration, opaque: None });
        }
        if !text.trim().is_empty() {
            blocks.push(Block::Text(text));
        }
        Reply { blocks, stop, usage, model, cost }
    }
}

/// The server and the tool of an input that has nothing but these and the arguments: a model that writes them into
/// the input of another tool does not get through.
fn server_tool(input: &Value) -> Option<(String, String)> {
    let fields = input.as_object()?;
    let is_plain = fields.keys().all(|key| matches!(key.as_str(), "server" | "tool" | "arguments"));
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    Some((text("server")?, text("tool")?)).filter(|_| is_plain)
}

/// Adds to a text up to its limit.
fn push_capped(text: &mut String, more: &str) {
    let room = TEXT.saturating_sub(text.len());
    text.push_str(&more[..more.floor_char_boundary(room)]);
}

/// The usage that the answer to a prompt tells.
pub(super) fn usage(result: &Value) -> Usage {
    let Some(usage) = result.get("usage").filter(|usage| usage.is_object()) else { return Usage::default() };
    let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    let (cached, cache_written) = (count("cachedReadTokens"), count("cachedWriteTokens"));
    Usage {
        // In the protocol these are beside the input; in a journal they are part of it.
        input: count("inputTokens").saturating_add(cached).saturating_add(cache_written),
        cached,
        cache_written,
        output: count("outputTokens"),
        reasoning: count("thoughtTokens"),
    }
}
