//! The transcript of one task as blocks: a fold of part of its journal.
//!
//! It can begin anywhere in the journal, so that a long one opens as quickly as a short one, and it limits
//! how much of a long text it keeps.

mod apply_record;

use std::collections::VecDeque;

use jiff::Timestamp;
use longhaul::Status;
use longhaul::entry::{Record, Sender};
use longhaul::id::{CallId, LetterId, QuestionId, Seq};
use longhaul::message::Call;

use crate::view::{Ink, one_line, sanitize};

/// How much of a text to keep.
const MAX_BLOCK_BYTES: usize = 64 * 1024;
/// How much of a tool's output to keep.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// The transcript of part of a journal.
#[derive(Debug, Clone)]
pub(crate) struct TuiTranscript {
    /// The entry before the first one included.
    pub(crate) after: Seq,
    /// The last entry included.
    pub(crate) last: Seq,
    /// The blocks, oldest first.
    pub(crate) blocks: VecDeque<TranscriptBlock>,
    /// How the task ended.
    pub(crate) end: Option<TuiTaskEnd>,
    /// The calls of the last reply.
    calls: Vec<Call>,
    /// The number of entries included.
    pub(crate) entries: usize,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(crate) struct TuiTaskEnd {
    pub(crate) output: String,
    pub(crate) error: Option<String>,
}

/// One block of the transcript.
#[derive(Debug, Clone)]
pub(crate) struct TranscriptBlock {
    /// The entry that it began with.
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) kind: TranscriptBlockKind,
    /// Increases with every change.
    pub(crate) version: u32,
}

/// The kinds of blocks. Their text is sanitized.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TranscriptBlockKind {
    /// The order.
    Order { text: String },
    /// Text of the model; `live` while the reply is streaming.
    Text { text: String, live: bool },
    /// Reasoning of the model.
    Thought { text: String, live: bool },
    /// A tool call.
    Call {
        call: CallId,
        summary: String,
        arguments: String,
        progress: Option<String>,
        result: Option<TuiCallResult>,
    },
    /// A letter, and when the task read it.
    Letter { id: LetterId, from: Sender, text: String, read: Option<Timestamp> },
    /// A question to a person, and its answer.
    Asked { question: QuestionId, text: String, answer: Option<String> },
    /// A one-line note; `minor` if only the timeline shows it.
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
    /// Creates an empty transcript; the next entry is the one after `after`.
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

    /// Creates a transcript of these entries.
    pub(crate) fn from_records(after: Seq, records: &[Record]) -> TuiTranscript {
        let mut transcript = TuiTranscript::starting_after(after);
        records.iter().for_each(|record| transcript.apply_record(record));
        transcript
    }

    /// Drops the oldest blocks until `most` are left, and returns how many were dropped.
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

    /// Returns the text of this part of the journal, or its end.
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

    /// Discards streamed text, because it is void or the complete reply follows.
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
            // The call was made before this part of the journal.
            None => {
                let summary = self.calls.get(id.index as usize).map_or("a tool", |call| call.tool.as_str());
                let what = TranscriptBlockKind::Call {
                    call: id,
                    summary: one_line(summary),
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
    /// Returns whether the block has more than is shown when folded.
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

/// Truncates a text, and says how much is left out.
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
