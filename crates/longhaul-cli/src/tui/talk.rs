//! What happened to one task, as blocks to be read: a fold of a stretch of its journal.
//!
//! It begins anywhere in the journal, so that the end of a long one is opened as quickly as a short one, and it keeps a
//! bounded part of what is long.

use std::collections::VecDeque;

use jiff::Timestamp;
use longhaul::Status;
use longhaul::entry::{Entry, Nudge, Outcome, Record, Release, Sender, Voice, Wants};
use longhaul::id::{CallId, LetterId, QuestionId, Seq};
use longhaul::message::Call;

use crate::view::tell::{call, waits_for};
use crate::view::{Ink, clean, one_line};

/// How much of a text is kept.
const TEXT_KEPT: usize = 64 * 1024;
/// How much of a tool's output is kept.
const OUTPUT_KEPT: usize = 16 * 1024;

/// A stretch of a journal, told.
#[derive(Debug, Clone)]
pub(crate) struct Talk {
    /// The entry before the first that was taken in.
    pub(crate) after: Seq,
    /// The last entry that was taken in.
    pub(crate) last: Seq,
    /// What is to be read, oldest first.
    pub(crate) blocks: VecDeque<Block>,
    /// What the task ended with.
    pub(crate) end: Option<End>,
    /// The calls of the last reply.
    calls: Vec<Call>,
    /// How many entries are told of.
    pub(crate) entries: usize,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) output: String,
    pub(crate) error: Option<String>,
}

/// One thing to be read.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The entry that it began with.
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) what: What,
    /// Goes up when it changes.
    pub(crate) version: u32,
}

/// The kinds of blocks. Their words are harmless for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// What was ordered.
    Order { text: String },
    /// What the model said; `live` while the reply is on its way.
    Text { text: String, live: bool },
    /// What the model thought.
    Thought { text: String, live: bool },
    /// A tool call.
    Call { call: CallId, told: String, arguments: String, progress: Option<String>, result: Option<Got> },
    /// A letter.
    Letter { id: LetterId, from: Sender, text: String, read: bool },
    /// A question to a person, and what came of it.
    Asked { question: QuestionId, text: String, answer: Option<String> },
    /// Something that is said in a line; `minor` where it is only for the timeline.
    Note { ink: Ink, text: String, minor: bool },
    /// The end.
    End { status: Status, error: Option<String> },
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Got {
    pub(crate) text: String,
    pub(crate) lines: usize,
    pub(crate) is_error: bool,
    pub(crate) at: Timestamp,
}

impl Talk {
    /// Nothing yet; the first entry to come is the one after this.
    pub(crate) fn after(after: Seq) -> Talk {
        Talk { after, last: after, blocks: VecDeque::new(), end: None, calls: Vec::new(), entries: 0 }
    }

    /// The journal from `after` on.
    pub(crate) fn of(after: Seq, records: &[Record]) -> Talk {
        let mut talk = Talk::after(after);
        records.iter().for_each(|record| talk.feed(record));
        talk
    }

    /// Takes an entry in; one that it has already is passed over.
    pub(crate) fn feed(&mut self, record: &Record) {
        if record.seq <= self.last {
            return;
        }
        self.last = record.seq;
        self.entries += 1;
        match &record.entry {
            Entry::Submitted(submitted) => {
                let order = &submitted.order;
                let mut text = clean(&order.task);
                for (title, more) in
                    [("Expected output", &order.expected_output), ("Context", &order.context)]
                {
                    if let Some(more) = more {
                        text.push_str(&format!("\n\n{title}: {}", clean(more)));
                    }
                }
                self.push(record, What::Order { text: kept(text, TEXT_KEPT) });
                if let Some(old) = submitted.continues {
                    self.note(record, Ink::Faint, format!("continues {old}"), false);
                }
            }
            Entry::Claimed { attempt, .. } => {
                self.hush();
                let again = attempt.0 > 1;
                let text = if again {
                    format!("started again (attempt {})", attempt.0)
                } else {
                    "started".to_owned()
                };
                self.note(record, if again { Ink::Waits } else { Ink::Faint }, text, !again);
            }
            Entry::Said { voice: Voice::Progress, text } => self.progress(text),
            Entry::Said { voice, text } => self.say(record, *voice == Voice::Reasoning, text),
            Entry::Replied(reply) => {
                let (before, seq) = (self.blocks.len(), self.live_seq());
                self.hush();
                let first = self.blocks.len();
                for (thought, text) in [(true, reply.reasoning()), (false, reply.text())] {
                    if !text.trim().is_empty() {
                        self.push(record, said(thought, kept(clean(text.trim()), TEXT_KEPT), false));
                    }
                }
                // What was being read stays the block that it was.
                if let (Some(seq), Some(block), true) = (seq, self.blocks.get_mut(first), before > first) {
                    block.seq = seq;
                    block.version = 1;
                }
                self.calls = reply.calls().cloned().collect();
            }
            Entry::Called { call: id, tool, arguments } => {
                let of = |id: CallId| self.calls.get(id.index as usize);
                let arguments = arguments.clone().or_else(|| of(*id).map(|call| call.arguments.clone()));
                let arguments = arguments.unwrap_or_default();
                let what = What::Call {
                    call: *id,
                    told: call(tool, &arguments, 400),
                    arguments: kept(pretty(&arguments), OUTPUT_KEPT),
                    progress: None,
                    result: None,
                };
                self.push(record, what);
            }
            Entry::Returned(returned) => {
                let got = Got {
                    lines: returned.output.lines().count(),
                    text: kept(clean(&returned.output), OUTPUT_KEPT),
                    is_error: returned.is_error,
                    at: record.at,
                };
                self.got(record, returned.call, got);
            }
            Entry::Letter(letter) => {
                let text = match (letter.ending, &letter.summary) {
                    (Some(_), Some(summary)) => format!("{summary}: {}", inner(&letter.text)),
                    _ => letter.text.trim().to_owned(),
                };
                let text = kept(clean(&text), TEXT_KEPT);
                let what =
                    What::Letter { id: letter.id.clone(), from: letter.from.clone(), text, read: false };
                self.push(record, what);
            }
            Entry::Read { letters, known, .. } => {
                for block in &mut self.blocks {
                    if let What::Letter { id, read, .. } = &mut block.what
                        && !*read
                        && (letters.contains(id) || known.contains(id))
                    {
                        *read = true;
                        block.version += 1;
                    }
                }
            }
            Entry::Asked { question, asks, .. } => {
                let mut text = clean(&asks.text);
                if let Wants::Leave { tool, arguments } = &asks.wants {
                    text = format!("may it call {}?", call(tool, arguments, 2000));
                }
                self.blocks.retain(|block| {
                    !matches!(&block.what, What::Asked { question: other, answer: None, .. } if other == question)
                });
                self.push(record, What::Asked { question: *question, text, answer: None });
            }
            Entry::Answered { question, answer } => {
                let said = one_line(&answer.to_string());
                let asked = self.blocks.iter_mut().rev().find(
                    |block| matches!(&block.what, What::Asked { question: other, .. } if other == question),
                );
                match asked {
                    Some(block) => {
                        if let What::Asked { answer, .. } = &mut block.what {
                            *answer = Some(said);
                        }
                        block.version += 1;
                    }
                    None => self.note(record, Ink::Plain, format!("answered: {said}"), false),
                }
            }
            Entry::Waiting { on, .. } => {
                if matches!(on, longhaul::entry::Wait::Provider(_)) {
                    self.hush();
                }
                self.note(record, Ink::Faint, format!("waits for {}", waits_for(on)), true);
            }
            Entry::Nudged { text, .. } if text.is_empty() => {}
            Entry::Nudged { why, .. } => {
                let why = match why {
                    Nudge::Empty => "told: it answered nothing".to_owned(),
                    Nudge::Shape => "told: its answer has not the form that is asked for".to_owned(),
                    Nudge::Begun => "told what its hooks say at the beginning".to_owned(),
                    Nudge::Repeating => "told: it repeats itself".to_owned(),
                    Nudge::LastWord(limit) => format!("asked for its last word: {}", one_line(limit)),
                };
                self.note(record, Ink::Waits, why, false);
            }
            Entry::Backgrounded => {
                self.note(
                    record,
                    Ink::Plain,
                    "told not to wait: it goes on in the background".to_owned(),
                    false,
                );
            }
            Entry::Granted { pattern } => {
                let text = format!("allowed for the whole tree: {}", one_line(&pattern.to_string()));
                self.note(record, Ink::Plain, text, false);
            }
            Entry::StopRequested(stop) => {
                self.note(record, Ink::Waits, format!("is to stop: {}", stop.cause), false);
            }
            Entry::Compacted { .. } => {
                self.note(record, Ink::Faint, "its conversation was made shorter".to_owned(), false);
            }
            Entry::Released { why, .. } => {
                let why = match why {
                    Release::Drained => "its process ended",
                    Release::Lost => "its process is gone",
                };
                self.note(record, Ink::Waits, format!("given back: {why}"), false);
            }
            Entry::Finished(outcome) => {
                let status = match **outcome {
                    Outcome::Completed { .. } => Status::Completed,
                    Outcome::Failed { .. } => Status::Failed,
                    Outcome::Cancelled { .. } => Status::Cancelled,
                };
                let error = outcome.error().map(|error| one_line(&error));
                let output = kept(clean(outcome.output().trim()), TEXT_KEPT);
                self.end = Some(End { output, error: error.clone() });
                self.push(record, What::End { status, error });
            }
            Entry::Continued { by } => self.note(record, Ink::Plain, format!("continued by {by}"), false),
        }
    }

    /// Forgets the oldest blocks until this many are left. How many were forgotten.
    pub(crate) fn keep(&mut self, most: usize) -> usize {
        let over = self.blocks.len().saturating_sub(most);
        if over > 0 {
            self.blocks.drain(..over);
            if let Some(first) = self.blocks.front() {
                self.after = Seq(first.seq.0.saturating_sub(1));
            }
            self.entries = usize::try_from(self.last.0 - self.after.0).unwrap_or(usize::MAX);
        }
        over
    }

    /// What was said in this stretch, or the end of it.
    pub(crate) fn said(&self) -> String {
        let texts = self.blocks.iter().rev().filter_map(|block| match &block.what {
            What::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let mut room = TEXT_KEPT;
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

    fn push(&mut self, record: &Record, what: What) {
        self.blocks.push_back(Block { seq: record.seq, at: record.at, what, version: 0 });
    }

    fn note(&mut self, record: &Record, ink: Ink, text: String, minor: bool) {
        self.push(record, What::Note { ink, text, minor });
    }

    fn say(&mut self, record: &Record, thought: bool, words: &str) {
        if let Some(block) = self.blocks.back_mut() {
            let open = match (&mut block.what, thought) {
                (What::Text { text, live: true }, false) | (What::Thought { text, live: true }, true) => {
                    Some(text)
                }
                _ => None,
            };
            if let Some(text) = open {
                if text.len() < TEXT_KEPT {
                    text.push_str(&clean(words));
                }
                block.version += 1;
                return;
            }
        }
        self.push(record, said(thought, clean(words), true));
    }

    fn live_seq(&self) -> Option<Seq> {
        let live = self.blocks.iter().rev().take_while(|block| is_live(&block.what));
        live.last().map(|block| block.seq)
    }

    /// The words so far are void, or come again as a whole.
    fn hush(&mut self) {
        while self.blocks.back().is_some_and(|block| is_live(&block.what)) {
            self.blocks.pop_back();
        }
    }

    fn progress(&mut self, words: &str) {
        let open = self.blocks.iter_mut().rev().find(|b| matches!(b.what, What::Call { result: None, .. }));
        if let Some(block) = open
            && let What::Call { progress, .. } = &mut block.what
        {
            *progress = Some(kept(one_line(words), 400));
            block.version += 1;
        }
    }

    fn got(&mut self, record: &Record, id: CallId, got: Got) {
        let called = self
            .blocks
            .iter_mut()
            .rev()
            .find(|block| matches!(&block.what, What::Call { call, result: None, .. } if *call == id));
        match called {
            Some(block) => {
                if let What::Call { result, progress, .. } = &mut block.what {
                    *result = Some(got);
                    *progress = None;
                }
                block.version += 1;
            }
            // It was called before this stretch begins.
            None => {
                let told = self.calls.get(id.index as usize).map_or("a tool", |call| call.tool.as_str());
                let what = What::Call {
                    call: id,
                    told: one_line(told),
                    arguments: String::new(),
                    progress: None,
                    result: Some(got),
                };
                self.push(record, what);
            }
        }
    }
}

impl What {
    /// Whether there is more of it than is shown at first.
    pub(crate) fn folds(&self) -> bool {
        matches!(self, What::Call { .. } | What::Thought { .. } | What::Letter { .. })
    }
}

fn said(thought: bool, text: String, live: bool) -> What {
    if thought { What::Thought { text, live } } else { What::Text { text, live } }
}

fn is_live(what: &What) -> bool {
    matches!(what, What::Text { live: true, .. } | What::Thought { live: true, .. })
}

/// What is between the tags of a letter about an end: they are for models.
fn inner(text: &str) -> &str {
    let text = text.trim();
    let inner =
        text.strip_prefix("<task_ended ").and_then(|text| text.split_once('>')).map(|(_, inner)| inner);
    inner.map_or(text, |inner| inner.trim_end_matches("</task_ended>").trim())
}

/// The text, or its beginning and how much more there is.
fn kept(mut text: String, most: usize) -> String {
    if text.len() > most {
        let more = text.len() - most;
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!(
            "\n… {} KiB more: `longhaul show` and `longhaul logs` have it all",
            more.div_ceil(1024)
        ));
    }
    text
}

/// Arguments as people read them: one a line.
fn pretty(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let line = |(key, value): (&String, &serde_json::Value)| match value {
                serde_json::Value::String(text) => format!("{}: {}", one_line(key), clean(text)),
                other => format!("{}: {}", one_line(key), clean(&other.to_string())),
            };
            map.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Err(_) => clean(arguments),
    }
}

#[cfg(test)]
#[path = "talk_tests.rs"]
mod tests;
