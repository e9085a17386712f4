//! The journal as people read it: phrases for events, transcripts, and what tasks do now.
//!
//! Everything that shows tasks to people renders these: `run`, `logs`, `show`, `attach`, `export`, the TUI.
//! Nothing here knows a terminal. Colours, widths and markup are up to the renderer.
//!
//! - [`describe`] puts an event into words, as a [`Phrase`].
//! - [`Transcript`] is a fold of a journal, or of a part of it, into items: texts, calls with their results,
//!   letters, questions with their answers, notes.
//! - [`TaskBoard`] is a fold of the events of a tree into one row per task.
//! - [`Standing`] and [`Activity`] say how a task stands and what it does now, from its events or its state.
//! - [`sanitize`] and its siblings make foreign text safe to show.

mod board;
mod call;
mod numbers;
mod phrase;
mod question;
mod sanitize;
mod standing;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::entry::{Entry, Order, Question, QuestionAnswer, Record, Sender, TaskEnding};
use crate::id::{CallId, LetterId, QuestionId, Seq, TaskId};
use crate::message::Reply;
use crate::snapshot::{Event, EventKind, EventProjector};
use crate::task::Status;

pub use board::{Activity, BoardRow, TaskBoard};
pub use call::{arguments_text, brief_call, format_call, lay_out_arguments, main_argument};
pub use numbers::{format_count, format_dollars, format_duration, format_time_left, pluralize};
pub use phrase::{
    Detail, Level, Phrase, Tone, approval_notes, describe, describe_end, describe_wait, sender,
};
pub use question::{LineKind, describe_question, question_lines};
pub use sanitize::{
    escape_invisible, escape_invisible_json, escape_invisible_line, one_line, sanitize, strip_control_chars,
};
pub use standing::Standing;

/// The transcript of a task: a fold of its journal. It can begin anywhere in the journal, so that a long one
/// opens as quickly as a short one. Texts are as they were written: sanitize them before you show them.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The entry before the first one included.
    pub after: Seq,
    /// The last entry included.
    pub last: Seq,
    /// The items, oldest first.
    pub items: VecDeque<TranscriptItem>,
    /// How the task ended.
    pub end: Option<TranscriptEnd>,
    /// The number of entries included.
    pub entries: usize,
    limits: TranscriptLimits,
    projector: EventProjector,
    /// How many items are text that is still streaming.
    live: usize,
}

/// How much of a text a transcript keeps, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct TranscriptLimits {
    /// Of orders, replies, letters and the output.
    pub text: usize,
    /// Of what a tool returned, and of its arguments.
    pub call: usize,
}

impl TranscriptLimits {
    /// Keeps everything.
    pub const NONE: TranscriptLimits = TranscriptLimits { text: usize::MAX, call: usize::MAX };
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptEnd {
    /// Its final status.
    pub status: Status,
    /// The answer, or the part of it that exists.
    pub output: String,
    /// Why there is no answer.
    pub error: Option<String>,
    /// What made it answer early.
    pub cut_short: Option<String>,
}

/// One item of a transcript.
#[derive(Debug, Clone, Serialize)]
pub struct TranscriptItem {
    /// The entry that it began with.
    #[serde(skip)]
    pub seq: Seq,
    /// When that was.
    pub at: Timestamp,
    /// What it is.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// Increases with every change.
    #[serde(skip)]
    pub version: u32,
}

/// The kinds of items.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ItemKind {
    /// The order.
    Order(Box<Order>),
    /// Reasoning of the model.
    Thought {
        /// The text.
        text: String,
        /// Whether the reply is still streaming.
        #[serde(skip)]
        live: bool,
    },
    /// Text of the model.
    Said {
        /// The text.
        text: String,
        /// Whether the reply is still streaming.
        #[serde(skip)]
        live: bool,
    },
    /// A tool call.
    Call {
        /// The call.
        call: CallId,
        /// The tool; empty if the call was made before this part of the journal.
        tool: Arc<str>,
        /// Its arguments.
        arguments: String,
        /// Its last progress message, while it runs.
        #[serde(skip)]
        progress: Option<String>,
        /// What it returned.
        #[serde(flatten)]
        result: Option<CallOutput>,
    },
    /// A letter.
    Letter {
        /// Its id.
        #[serde(skip)]
        id: LetterId,
        /// The sender.
        #[serde(serialize_with = "serialize_sender")]
        from: Sender,
        /// Its text; without the tag for models, if it reports an end.
        text: String,
        /// The child whose end it reports, and how that ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        ended: Option<TaskEnding>,
        /// When the task read it.
        #[serde(skip)]
        read: Option<Timestamp>,
    },
    /// A question to a person.
    Asked {
        /// Its id.
        question: QuestionId,
        /// The question.
        #[serde(flatten)]
        asks: Box<Question>,
        /// The answer.
        #[serde(serialize_with = "serialize_answer")]
        answer: Option<QuestionAnswer>,
    },
    /// Anything else worth a line.
    Note(Phrase),
    /// The end.
    End {
        /// The final status.
        status: Status,
        /// Why there is no answer.
        error: Option<String>,
        /// What made it answer early.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short: Option<String>,
    },
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallOutput {
    /// The text.
    pub output: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// How many lines it has, also if `output` is shortened.
    #[serde(skip)]
    pub lines: usize,
    /// When it returned.
    #[serde(skip)]
    pub returned: Timestamp,
}

fn serialize_sender<S: serde::Serializer>(from: &Sender, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&sender(from))
}

fn serialize_answer<S: serde::Serializer>(
    answer: &Option<QuestionAnswer>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    answer.as_ref().map(ToString::to_string).serialize(serializer)
}

impl Transcript {
    /// Creates an empty transcript; the next entry is the one after `after`.
    pub fn starting_after(task: TaskId, after: Seq, limits: TranscriptLimits) -> Transcript {
        let projector =
            if after == Seq(0) { EventProjector::new(task) } else { EventProjector::midway(task) };
        let (items, last, end) = (VecDeque::new(), after, None);
        Transcript { after, last, items, end, entries: 0, limits, projector, live: 0 }
    }

    /// Adds entries.
    pub fn with_records(mut self, records: &[Record]) -> Transcript {
        records.iter().for_each(|record| self.apply_record(record));
        self
    }

    /// Adds an entry; ignores one that is already included.
    pub fn apply_record(&mut self, record: &Record) {
        if record.seq <= self.last {
            return;
        }
        self.last = record.seq;
        self.entries += 1;
        let events = self.projector.project(record);
        match &record.entry {
            Entry::Submitted(submitted) => {
                let mut order = submitted.order.clone();
                order.task = truncate(order.task.to_string(), self.limits.text).into();
                self.push(record, ItemKind::Order(Box::new(order)));
                if let Some(old) = submitted.continues {
                    let (tone, level, text) = (Tone::Faint, Level::Main, old.to_string());
                    self.push(record, ItemKind::Note(Phrase { tone, level, label: "continues", text }));
                }
            }
            // The texts of the events are what is new; here they replace what was streamed.
            Entry::Replied(reply) => self.apply_reply(record, reply),
            Entry::Read { letters, known, .. } => {
                self.mark_read(record.at, |id| letters.contains(id) || known.contains(id));
            }
            _ => events.into_iter().for_each(|event| self.apply_event(record, event)),
        }
    }

    fn apply_event(&mut self, record: &Record, event: Event) {
        if event.kind.voids_partial_reply() {
            self.remove_live();
        }
        match event.kind {
            EventKind::Text { text } => self.append(record, false, &text),
            EventKind::Reasoning { text } => self.append(record, true, &text),
            EventKind::Progress { text } => {
                let text = truncate(text, 400);
                let open = |kind: &ItemKind| matches!(kind, ItemKind::Call { result: None, .. });
                if let Some(ItemKind::Call { progress, .. }) = self.last_item(open) {
                    *progress = Some(text);
                }
            }
            EventKind::Call { call, tool, arguments } => {
                let arguments = truncate(arguments, self.limits.call);
                self.push(record, ItemKind::Call { call, tool, arguments, progress: None, result: None });
            }
            EventKind::Result { call: id, tool, output, is_error } => {
                let lines = output.lines().count();
                let output = truncate(output.to_string(), self.limits.call);
                let got = CallOutput { output, is_error, lines, returned: record.at };
                let open = |kind: &ItemKind| matches!(kind, ItemKind::Call { call, result: None, .. } if *call == id);
                if let Some(ItemKind::Call { result, progress, .. }) = self.last_item(open) {
                    (*result, *progress) = (Some(got), None);
                } else {
                    // The call was made before this part of the journal.
                    let (arguments, progress, result) = (String::new(), None, Some(got));
                    self.push(record, ItemKind::Call { call: id, tool, arguments, progress, result });
                }
            }
            EventKind::Letter { letter: id, from, text, ended } => {
                let text = if ended.is_some() { TaskEnding::body(&text) } else { text.trim() };
                let text = truncate(text.to_owned(), self.limits.text);
                self.push(record, ItemKind::Letter { id, from, text, ended, read: None });
            }
            EventKind::Asked { question, asks, .. } => {
                // The same question is asked again after a restart.
                self.items.retain(|item| {
                    !matches!(&item.kind, ItemKind::Asked { question: had, answer: None, .. } if *had == question)
                });
                self.push(record, ItemKind::Asked { question, asks, answer: None });
            }
            EventKind::Answered { question, answer: given } => {
                let asked = |kind: &ItemKind| matches!(kind, ItemKind::Asked { question: had, .. } if *had == question);
                if let Some(ItemKind::Asked { answer, .. }) = self.last_item(asked) {
                    *answer = Some(given);
                } else {
                    self.note(record, &EventKind::Answered { question, answer: given });
                }
            }
            EventKind::Finished { status, output, error, cut_short } => {
                let output = truncate(output.trim().to_owned(), self.limits.text);
                let item = ItemKind::End { status, error: error.clone(), cut_short: cut_short.clone() };
                self.end = Some(TranscriptEnd { status, output, error, cut_short });
                self.push(record, item);
            }
            other => self.note(record, &other),
        }
    }

    /// Replaces what was streamed of a reply by all of it. What was being read stays where it is.
    fn apply_reply(&mut self, record: &Record, reply: &Reply) {
        let first = self.items.iter().position(|item| item.kind.is_live()).filter(|_| self.live > 0);
        let streamed = first.map(|at| (self.items[at].seq, self.items[at].version + 1));
        let mut at = first.unwrap_or(self.items.len());
        self.remove_live();
        for (thought, text) in [(true, reply.reasoning()), (false, reply.text())] {
            if !text.trim().is_empty() {
                let kind = said(thought, truncate(text.trim().to_owned(), self.limits.text), false);
                let (seq, version) = streamed.unwrap_or((record.seq, 0));
                self.items.insert(at, TranscriptItem { seq, at: record.at, kind, version });
                at += 1;
            }
        }
    }

    fn append(&mut self, record: &Record, thought: bool, more: &str) {
        if let Some(item) = self.items.back_mut()
            && let (ItemKind::Said { text, live: true }, false)
            | (ItemKind::Thought { text, live: true }, true) = (&mut item.kind, thought)
        {
            if text.len() < self.limits.text {
                text.push_str(more);
            }
            item.version += 1;
            return;
        }
        self.live += 1;
        self.push(record, said(thought, more.to_owned(), true));
    }

    /// Removes streamed text, because it is void or the complete reply follows.
    fn remove_live(&mut self) {
        if std::mem::take(&mut self.live) > 0 {
            self.items.retain(|item| !item.kind.is_live());
        }
    }

    fn mark_read(&mut self, at: Timestamp, reads: impl Fn(&LetterId) -> bool) {
        for item in &mut self.items {
            if let ItemKind::Letter { id, read: read @ None, .. } = &mut item.kind
                && reads(id)
            {
                *read = Some(at);
                item.version += 1;
            }
        }
    }

    /// The last item of this kind, to be changed.
    fn last_item(&mut self, is: impl Fn(&ItemKind) -> bool) -> Option<&mut ItemKind> {
        let item = self.items.iter_mut().rev().find(|item| is(&item.kind))?;
        item.version += 1;
        Some(&mut item.kind)
    }

    fn push(&mut self, record: &Record, kind: ItemKind) {
        self.items.push_back(TranscriptItem { seq: record.seq, at: record.at, kind, version: 0 });
    }

    fn note(&mut self, record: &Record, event: &EventKind) {
        self.push(record, ItemKind::Note(describe(event, Detail::Brief)));
    }

    /// Drops the oldest items until `most` are left, and returns how many were dropped.
    pub fn truncate_to(&mut self, most: usize) -> usize {
        let over = self.items.len().saturating_sub(most);
        if over > 0 {
            self.items.drain(..over);
            self.live = self.items.iter().filter(|item| item.kind.is_live()).count();
            if let Some(first) = self.items.front() {
                self.after = Seq(first.seq.0.saturating_sub(1));
            }
            self.entries = usize::try_from(self.last.0 - self.after.0).unwrap_or(usize::MAX);
        }
        over
    }

    /// Returns the text of the model in this part of the journal, or the end of it.
    pub fn text_so_far(&self) -> String {
        let mut room = self.limits.text;
        let texts = self.items.iter().rev().filter_map(|item| match &item.kind {
            ItemKind::Said { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let mut texts: Vec<&str> = texts
            .take_while(|text| {
                let fits = room > 0;
                room = room.saturating_sub(text.len());
                fits
            })
            .collect();
        texts.reverse();
        texts.join("\n\n")
    }
}

impl ItemKind {
    fn is_live(&self) -> bool {
        matches!(self, ItemKind::Said { live: true, .. } | ItemKind::Thought { live: true, .. })
    }

    /// Returns whether the item has more than its first lines.
    pub fn is_foldable(&self) -> bool {
        matches!(self, ItemKind::Call { .. } | ItemKind::Thought { .. } | ItemKind::Letter { .. })
    }
}

fn said(thought: bool, text: String, live: bool) -> ItemKind {
    if thought { ItemKind::Thought { text, live } } else { ItemKind::Said { text, live } }
}

/// Truncates a text, and says how much is left out.
fn truncate(mut text: String, most: usize) -> String {
    if text.len() > most {
        let more = text.len() - most;
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("\n… {} KiB more: the journal has all of it", more.div_ceil(1024)));
    }
    text
}
