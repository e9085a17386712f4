//! What happened to one task, as blocks to be read: a fold of a stretch of its journal.
//!
//! It begins anywhere in the journal, so that the end of a long one is opened as quickly as a short one, and it keeps a
//! bounded part of what is long.

mod apply_record;

use std::collections::VecDeque;

use jiff::Timestamp;
use longhaul::Status;
use longhaul::entry::{Record, Sender};
use longhaul::id::{CallId, LetterId, QuestionId, Seq};
use longhaul::message::Call;

use crate::view::{Ink, one_line, sanitize};

/// How much of a text is kept.
const MAX_BLOCK_BYTES: usize = 64 * 1024;
/// How much of a tool's output is kept.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// A stretch of a journal, told.
#[derive(Debug, Clone)]
pub(crate) struct TuiTranscript {
    /// The entry before the first that was taken in.
    pub(crate) after: Seq,
    /// The last entry that was taken in.
    pub(crate) last: Seq,
    /// What is to be read, oldest first.
    pub(crate) blocks: VecDeque<TranscriptBlock>,
    /// What the task ended with.
    pub(crate) end: Option<TuiTaskEnd>,
    /// The calls of the last reply.
    calls: Vec<Call>,
    /// How many entries are told of.
    pub(crate) entries: usize,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(crate) struct TuiTaskEnd {
    pub(crate) output: String,
    pub(crate) error: Option<String>,
}

/// One thing to be read.
#[derive(Debug, Clone)]
pub(crate) struct TranscriptBlock {
    /// The entry that it began with.
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) kind: TranscriptBlockKind,
    /// Goes up when it changes.
    pub(crate) version: u32,
}

/// The kinds of blocks. Their words are harmless for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TranscriptBlockKind {
    /// What was ordered.
    Order { text: String },
    /// What the model said; `live` while the reply is on its way.
    Text { text: String, live: bool },
    /// What the model thought.
    Thought { text: String, live: bool },
    /// A tool call.
    Call {
        call: CallId,
        told: String,
        arguments: String,
        progress: Option<String>,
        result: Option<TuiCallResult>,
    },
    /// A letter, and when the task read it.
    Letter { id: LetterId, from: Sender, text: String, read: Option<Timestamp> },
    /// A question to a person, and what came of it.
    Asked { question: QuestionId, text: String, answer: Option<String> },
    /// Something that is said in a line; `minor` where it is only for the timeline.
    Note { ink: Ink, text: String, minor: bool },
    /// The end.
    End { status: Status, error: Option<String> },
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TuiCallResult {
    pub(crate) text: String,
    pub(crate) lines: usize,
    pub(crate) is_error: bool,
    pub(crate) at: Timestamp,
}

impl TuiTranscript {
    /// Nothing yet; the first entry to come is the one after this.
    pub(crate) fn starting_after(after: Seq) -> TuiTranscript {
        TuiTranscript {
            after,
            last: after,
            blocks: VecDeque::new(),
            end: None,
            calls: Vec::new(),
            entries: 0,
        }
    }

    /// The journal from `after` on.
    pub(crate) fn from_records(after: Seq, records: &[Record]) -> TuiTranscript {
        let mut talk = TuiTranscript::starting_after(after);
        records.iter().for_each(|record| talk.apply_record(record));
        talk
    }

    /// Forgets the oldest blocks until this many are left. How many were forgotten.
    pub(crate) fn truncate_to(&mut self, most: usize) -> usize {
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
    pub(crate) fn text_so_far(&self) -> String {
        let texts = self.blocks.iter().rev().filter_map(|block| match &block.kind {
            TranscriptBlockKind::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let mut room = MAX_BLOCK_BYTES;
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

    fn push(&mut self, record: &Record, what: TranscriptBlockKind) {
        self.blocks.push_back(TranscriptBlock { seq: record.seq, at: record.at, kind: what, version: 0 });
    }

    fn note(&mut self, record: &Record, ink: Ink, text: String, minor: bool) {
        self.push(record, TranscriptBlockKind::Note { ink, text, minor });
    }

    fn append_text(&mut self, record: &Record, thought: bool, words: &str) {
        if let Some(block) = self.blocks.back_mut() {
            let open = match (&mut block.kind, thought) {
                (TranscriptBlockKind::Text { text, live: true }, false)
                | (TranscriptBlockKind::Thought { text, live: true }, true) => Some(text),
                _ => None,
            };
            if let Some(text) = open {
                if text.len() < MAX_BLOCK_BYTES {
                    text.push_str(&sanitize(words));
                }
                block.version += 1;
                return;
            }
        }
        self.push(record, said(thought, sanitize(words), true));
    }

    fn live_seq(&self) -> Option<Seq> {
        let live = self.blocks.iter().rev().take_while(|block| is_live(&block.kind));
        live.last().map(|block| block.seq)
    }

    /// The words so far are void, or come again as a whole.
    fn discard_live_text(&mut self) {
        while self.blocks.back().is_some_and(|block| is_live(&block.kind)) {
            self.blocks.pop_back();
        }
    }

    fn set_progress(&mut self, words: &str) {
        let open = self
            .blocks
            .iter_mut()
            .rev()
            .find(|b| matches!(b.kind, TranscriptBlockKind::Call { result: None, .. }));
        if let Some(block) = open
            && let TranscriptBlockKind::Call { progress, .. } = &mut block.kind
        {
            *progress = Some(truncate_kept(one_line(words), 400));
            block.version += 1;
        }
    }

    fn set_result(&mut self, record: &Record, id: CallId, got: TuiCallResult) {
        let called = self
            .blocks
            .iter_mut()
            .rev()
            .find(|block| matches!(&block.kind, TranscriptBlockKind::Call { call, result: None, .. } if *call == id));
        match called {
            Some(block) => {
                if let TranscriptBlockKind::Call { result, progress, .. } = &mut block.kind {
                    *result = Some(got);
                    *progress = None;
                }
                block.version += 1;
            }
            // It was called before this stretch begins.
            None => {
                let told = self.calls.get(id.index as usize).map_or("a tool", |call| call.tool.as_str());
                let what = TranscriptBlockKind::Call {
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

impl TranscriptBlockKind {
    /// Whether there is more of it than is shown at first.
    pub(crate) fn is_foldable(&self) -> bool {
        matches!(
            self,
            TranscriptBlockKind::Call { .. }
                | TranscriptBlockKind::Thought { .. }
                | TranscriptBlockKind::Letter { .. }
        )
    }
}

fn said(thought: bool, text: String, live: bool) -> TranscriptBlockKind {
    if thought {
        TranscriptBlockKind::Thought { text, live }
    } else {
        TranscriptBlockKind::Text { text, live }
    }
}

fn is_live(what: &TranscriptBlockKind) -> bool {
    matches!(
        what,
        TranscriptBlockKind::Text { live: true, .. } | TranscriptBlockKind::Thought { live: true, .. }
    )
}

/// The text, or its beginning and how much more there is.
fn truncate_kept(mut text: String, most: usize) -> String {
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

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
