//! Turns a task's journal into the events of a response, each with its `sequence_number`.
//!
//! # Numbers
//!
//! A client that lost its connection, or whose server was killed, continues with `starting_after=N`. Any
//! process on the same store must then send exactly what the client misses. So a number depends on the
//! journal alone, not on the process, the time or the options of the request:
//!
//! - The first event is 0. Every event takes the next number, also one that this client does not get to see
//!   (reasoning and tool calls are only shown on request).
//! - A piece of text takes as many numbers as it has bytes, and its own number is the last of them. The number
//!   of a delta therefore says how much of the message the client has. The text of a reply comes first in
//!   `Said` entries, and then whole in `Replied`: it makes no difference for the numbers in which pieces it
//!   was journaled, or whether its `Said` entries still exist. If `N` is inside of a piece, the client gets the
//!   rest of the piece.
//! - Six numbers before the text of each reply are reserved for its reasoning, which is complete only with
//!   the reply.
//! - `Said` and `Waiting` are the only entries that a power failure may lose, always together with everything
//!   after them, and the next entry is then a new claim of the task. Each claim after the first skips
//!   [`RECLAIM_GAP`] numbers, more than a lost end can have taken. So no number is used twice.
//!
//! # Text that is withdrawn
//!
//! If a model call is cut off (the process was killed, the provider failed), its reply is requested again, and
//! the new one may differ. The message that was being streamed ends with the status `incomplete` and without
//! content, and the new reply is a new message. A reply that does not begin with the text that was streamed
//! is handled in the same way.

use std::collections::{BTreeMap, HashSet};

use longhaul::entry::{Entry, LiveTextKind, Outcome, Record, WaitReason};
use longhaul::id::{CallId, QuestionId};
use longhaul::message::{Call, Reply};

/// How many numbers a claim after the first one skips: more than the text of one reply that is journaled while
/// it streams (1 MiB).
pub(super) const RECLAIM_GAP: u64 = 1 << 21;
/// The events of a reasoning item.
const REASONING_EVENTS: u64 = 6;

/// An event of a response, with its number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NumberedEvent {
    pub(super) number: u64,
    pub(super) change: Change,
}

impl NumberedEvent {
    /// What of this event comes after the event `after`: all, nothing, or the rest of a text.
    pub(super) fn after(mut self, after: Option<u64>) -> Option<NumberedEvent> {
        let Some(after) = after else { return Some(self) };
        if self.number <= after {
            return None;
        }
        if let Change::Item { step: Step::Text(text), .. } = &mut self.change {
            let missing = usize::try_from(self.number - after).unwrap_or(usize::MAX);
            let start = text.len().saturating_sub(missing);
            *text = text.split_off(text.floor_char_boundary(start));
        }
        Some(self)
    }
}

/// Puts events into the order of their numbers.
///
/// Reasoning is complete only with its reply, and comes before the reply's text. A client that wants reasoning
/// therefore gets the text when the reply is complete; others get it while it is written.
#[derive(Debug)]
pub(super) struct EventOrder {
    wants_reasoning: bool,
    held: Vec<NumberedEvent>,
}

impl EventOrder {
    pub(super) fn new(wants_reasoning: bool) -> EventOrder {
        EventOrder { wants_reasoning, held: Vec::new() }
    }

    /// The events that can be sent after an entry was applied that had these.
    pub(super) fn next(&mut self, projection: &Projection, events: Vec<NumberedEvent>) -> Vec<NumberedEvent> {
        if !self.wants_reasoning {
            return events;
        }
        self.held.extend(events);
        if projection.is_streaming() {
            return Vec::new();
        }
        self.held.sort_by_key(|event| event.number);
        std::mem::take(&mut self.held)
    }
}

/// What an event reports.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Created,
    Queued,
    InProgress,
    /// Something happened to the output item at this position of [`Projection::items`].
    Item {
        at: usize,
        step: Step,
    },
    /// The response is over; [`Projection::outcome`] says how.
    Ended,
}

/// What happened to an output item.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Added,
    PartAdded,
    /// A piece of a message. It takes as many numbers as it has bytes.
    Text(String),
    /// All of a reasoning text, or of a call's arguments.
    Delta(String),
    TextDone,
    PartDone,
    Done,
}

/// An output item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// The number of the event that added it. Identifies it in its response.
    pub(super) number: u64,
    pub(super) body: ItemBody,
    pub(super) status: ItemStatus,
    pub(super) phase: Option<Phase>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ItemBody {
    Message { text: String },
    Reasoning { text: String },
    Call { call: CallId, tool: String, arguments: String },
    CallOutput { call: CallId, output: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    /// The task ended in the middle of it.
    Incomplete,
    /// Its text does not count; see the module's documentation.
    Withdrawn,
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Commentary,
    FinalAnswer,
}

/// The fold of a journal into a response.
#[derive(Debug, Default)]
pub(super) struct Projection {
    next: u64,
    pub(super) items: Vec<Item>,
    /// The message that is being written.
    open: Option<usize>,
    /// Whether the reply that it belongs to is complete. It stays open as long as it may be the answer,
    /// because the end of a task may add to it.
    replied: bool,
    /// Streamed text of a reply that is only white space so far. A message needs more than that.
    blank: String,
    /// The numbers that are reserved for the reasoning of the unfinished reply.
    reserved: Option<u64>,
    calls: Vec<Call>,
    called: HashSet<CallId>,
    /// The open questions of the task.
    pub(super) questions: BTreeMap<QuestionId, String>,
    /// Whether a worker has claimed the task.
    pub(super) started: bool,
    /// How the task ended.
    pub(super) outcome: Option<Outcome>,
    /// The item that holds the answer.
    pub(super) answer: Option<usize>,
}

impl Projection {
    /// Applies the next entry of the journal. Returns its events.
    pub(super) fn apply(&mut self, record: &Record) -> Vec<NumberedEvent> {
        let mut events = Vec::new();
        if self.outcome.is_some() {
            return events;
        }
        let out = &mut events;
        match &record.entry {
            Entry::Submitted(_) => {
                self.push(out, Change::Created);
                self.push(out, Change::Queued);
            }
            Entry::Claimed { .. } => {
                if std::mem::replace(&mut self.started, true) {
                    self.next += RECLAIM_GAP;
                }
                match self.replied {
                    true => self.close(out, ItemStatus::Completed, None),
                    false => self.close(out, ItemStatus::Withdrawn, None),
                }
                self.forget_reply();
                self.push(out, Change::InProgress);
            }
            Entry::Said { voice: LiveTextKind::Text, text } if !text.is_empty() => {
                self.close_replied(out, Some(Phase::Commentary));
                self.blank.push_str(text);
                if self.open.is_some() || !self.blank.trim().is_empty() {
                    let text = std::mem::take(&mut self.blank);
                    self.write(out, &text);
                }
            }
            Entry::Waiting { on: WaitReason::Provider(_), .. } if !self.replied => {
                self.close(out, ItemStatus::Withdrawn, None);
                self.forget_reply();
            }
            Entry::Replied(reply) => self.reply(out, reply),
            Entry::Called { call, tool, arguments, .. } => {
                self.close_replied(out, Some(Phase::Commentary));
                if self.called.insert(*call) {
                    let made = self.calls.get(call.index as usize).map(|call| call.arguments.clone());
                    let arguments = arguments.clone().or(made).unwrap_or_default();
                    let body =
                        ItemBody::Call { call: *call, tool: tool.to_string(), arguments: arguments.clone() };
                    self.push_whole(out, body, &[Step::Added, Step::Delta(arguments), Step::TextDone]);
                }
            }
            Entry::Returned(result) => {
                let body = ItemBody::CallOutput { call: result.call, output: result.output.to_string() };
                self.push_whole(out, body, &[Step::Added]);
            }
            Entry::Read { letters, .. } if !letters.is_empty() => {
                self.close_replied(out, Some(Phase::Commentary));
            }
            Entry::Nudged { .. } => self.close_replied(out, Some(Phase::Commentary)),
            Entry::Asked { question, asks, .. } => {
                self.questions.insert(*question, asks.headline());
                self.push(out, Change::InProgress);
            }
            Entry::Answered { question, .. } => {
                self.questions.remove(question);
                self.push(out, Change::InProgress);
            }
            Entry::Finished(outcome) => self.finish(out, outcome),
            _ => {}
        }
        events
    }

    /// Whether a message is being streamed whose reply is not complete.
    fn is_streaming(&self) -> bool {
        self.open.is_some() && !self.replied
    }

    /// The message that is being written.
    pub(super) fn open(&self) -> Option<usize> {
        self.open
    }

    /// The number of the last event.
    pub(super) fn last_number(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    fn push(&mut self, out: &mut Vec<NumberedEvent>, change: Change) {
        out.push(NumberedEvent { number: self.next, change });
        self.next += 1;
    }

    fn step(&mut self, out: &mut Vec<NumberedEvent>, at: usize, step: Step) {
        self.push(out, Change::Item { at, step });
    }

    fn add_item(&mut self, number: u64, body: ItemBody, status: ItemStatus) -> usize {
        self.items.push(Item { number, body, status, phase: None });
        self.items.len() - 1
    }

    /// An item that is complete at once.
    fn push_whole(&mut self, out: &mut Vec<NumberedEvent>, body: ItemBody, steps: &[Step]) {
        let at = self.add_item(self.next, body, ItemStatus::Completed);
        for step in steps {
            self.step(out, at, step.clone());
        }
        self.step(out, at, Step::Done);
    }

    /// Adds text to the open message, or to a new one.
    fn write(&mut self, out: &mut Vec<NumberedEvent>, more: &str) {
        self.reserve();
        let at = match self.open {
            Some(at) => at,
            None => self.open_message(out),
        };
        if more.is_empty() {
            return;
        }
        if let ItemBody::Message { text } = &mut self.items[at].body {
            text.push_str(more);
        }
        self.next += more.len() as u64;
        let change = Change::Item { at, step: Step::Text(more.to_owned()) };
        out.push(NumberedEvent { number: self.next - 1, change });
    }

    fn open_message(&mut self, out: &mut Vec<NumberedEvent>) -> usize {
        let body = ItemBody::Message { text: String::new() };
        let at = self.add_item(self.next, body, ItemStatus::InProgress);
        self.step(out, at, Step::Added);
        self.step(out, at, Step::PartAdded);
        (self.open, self.replied) = (Some(at), false);
        at
    }

    /// Reserves the numbers of the reasoning, once for each reply.
    fn reserve(&mut self) -> u64 {
        *self.reserved.get_or_insert_with(|| {
            let first = self.next;
            self.next += REASONING_EVENTS;
            first
        })
    }

    /// The next text belongs to another reply.
    fn forget_reply(&mut self) {
        self.reserved = None;
        self.blank.clear();
    }

    fn close(&mut self, out: &mut Vec<NumberedEvent>, status: ItemStatus, phase: Option<Phase>) {
        let Some(at) = self.open.take() else { return };
        self.replied = false;
        (self.items[at].status, self.items[at].phase) = (status, phase);
        if status != ItemStatus::Withdrawn {
            self.step(out, at, Step::TextDone);
            self.step(out, at, Step::PartDone);
        }
        self.step(out, at, Step::Done);
    }

    /// Closes the message of a complete reply: something else follows.
    fn close_replied(&mut self, out: &mut Vec<NumberedEvent>, phase: Option<Phase>) {
        if self.replied {
            self.close(out, ItemStatus::Completed, phase);
        }
    }

    fn reply(&mut self, out: &mut Vec<NumberedEvent>, reply: &Reply) {
        self.close_replied(out, Some(Phase::Commentary));
        let text = reply.text();
        let streamed = self.open.map(|at| self.text(at).len()).unwrap_or_default();
        if self.open.is_some_and(|at| !text.starts_with(self.text(at))) {
            self.close(out, ItemStatus::Withdrawn, None);
            self.forget_reply();
        }
        let first = self.reserve();
        let reasoning = reply.reasoning();
        if !reasoning.trim().is_empty() {
            self.reason(out, first, reasoning);
        }
        if self.open.is_some() || !text.trim().is_empty() {
            let rest = if self.open.is_some() { &text[streamed..] } else { &text };
            self.write(out, rest);
            self.replied = true;
        }
        self.forget_reply();
        self.calls = reply.calls().cloned().collect();
        if !self.calls.is_empty() {
            self.close_replied(out, Some(Phase::Commentary));
        }
    }

    /// The reasoning of a reply, with the numbers that were reserved for it.
    fn reason(&mut self, out: &mut Vec<NumberedEvent>, first: u64, text: String) {
        let body = ItemBody::Reasoning { text: text.clone() };
        let at = self.add_item(first, body, ItemStatus::Completed);
        let steps =
            [Step::Added, Step::PartAdded, Step::Delta(text), Step::TextDone, Step::PartDone, Step::Done];
        out.extend(
            (first..)
                .zip(steps)
                .map(|(number, step)| NumberedEvent { number, change: Change::Item { at, step } }),
        );
    }

    fn finish(&mut self, out: &mut Vec<NumberedEvent>, outcome: &Outcome) {
        match outcome {
            Outcome::Completed { output, .. } => {
                let said = self.open.or_else(|| self.last_message());
                let same = said.is_some_and(|at| self.text(at).trim() == output.trim());
                let continues = self.open.is_some_and(|at| output.starts_with(self.text(at)));
                if !same && continues {
                    let rest = output[self.open.map_or(0, |at| self.text(at).len())..].to_owned();
                    self.write(out, &rest);
                } else if !same {
                    match self.replied {
                        true => self.close(out, ItemStatus::Completed, Some(Phase::Commentary)),
                        false => self.close(out, ItemStatus::Withdrawn, None),
                    }
                    self.forget_reply();
                    if !output.trim().is_empty() {
                        self.write(out, output);
                    }
                }
                self.answer = match (self.open, same) {
                    (None, true) => said,
                    (open, _) => open,
                };
                self.close(out, ItemStatus::Completed, Some(Phase::FinalAnswer));
                if let Some(at) = self.answer {
                    self.items[at].phase = Some(Phase::FinalAnswer);
                }
            }
            Outcome::Failed { .. } | Outcome::Cancelled { .. } => {
                let status = if self.replied { ItemStatus::Completed } else { ItemStatus::Incomplete };
                self.close(out, status, None);
                self.answer = self.last_message();
            }
        }
        self.outcome = Some(outcome.clone());
        self.push(out, Change::Ended);
    }

    fn text(&self, at: usize) -> &str {
        match &self.items[at].body {
            ItemBody::Message { text } => text,
            _ => "",
        }
    }

    /// The last message that counts.
    fn last_message(&self) -> Option<usize> {
        self.items.iter().rposition(|item| {
            matches!(item.body, ItemBody::Message { .. }) && item.status != ItemStatus::Withdrawn
        })
    }
}
