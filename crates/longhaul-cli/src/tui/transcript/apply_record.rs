//! Adds journal entries to a transcript.

use longhaul::Status;
use longhaul::entry::{
    Entry, ExpectedAnswer, LiveTextKind, NudgeReason, Outcome, Record, ReleaseReason, WaitReason,
};
use longhaul::id::CallId;

use super::{
    MAX_BLOCK_BYTES, MAX_OUTPUT_BYTES, TranscriptBlockKind, TuiCallResult, TuiTaskEnd, TuiTranscript, said,
    truncate_kept,
};
use crate::view::event_text::{budget_words, describe_sampling, describe_wait, format_call};
use crate::view::letter::ending;
use crate::view::{Ink, escape_invisible, escape_invisible_line, one_line, sanitize};

impl TuiTranscript {
    /// Adds an entry; ignores one that is already included.
    pub(crate) fn apply_record(&mut self, record: &Record) {
        if record.seq <= self.last {
            return;
        }
        self.last = record.seq;
        self.entries += 1;
        match &record.entry {
            Entry::Submitted(submitted) => {
                let order = &submitted.order;
                let mut text = sanitize(&order.task);
                for (title, more) in
                    [("Expected output", &order.expected_output), ("Context", &order.context)]
                {
                    if let Some(more) = more {
                        text.push_str(&format!("\n\n{title}: {}", sanitize(more)));
                    }
                }
                self.push(record, TranscriptBlockKind::Order { text: truncate_kept(text, MAX_BLOCK_BYTES) });
                if let Some(old) = submitted.continues {
                    self.note(record, Ink::Faint, format!("continues {old}"), false);
                }
            }
            Entry::Claimed { attempt, .. } => {
                self.discard_live_text();
                let again = attempt.0 > 1;
                let text = if again {
                    format!("started again (attempt {})", attempt.0)
                } else {
                    "started".to_owned()
                };
                self.note(record, if again { Ink::Attention } else { Ink::Faint }, text, !again);
            }
            Entry::Said { voice: LiveTextKind::Progress, text } => self.set_progress(text),
            Entry::Said { voice, text } => self.append_text(record, *voice == LiveTextKind::Reasoning, text),
            Entry::Replied(reply) => {
                let (before, seq) = (self.blocks.len(), self.live_seq());
                self.discard_live_text();
                let first = self.blocks.len();
                for (thought, text) in [(true, reply.reasoning()), (false, reply.text())] {
                    if !text.trim().is_empty() {
                        self.push(
                            record,
                            said(thought, truncate_kept(sanitize(text.trim()), MAX_BLOCK_BYTES), false),
                        );
                    }
                }
                // The block that was streaming keeps its identity.
                if let (Some(seq), Some(block), true) = (seq, self.blocks.get_mut(first), before > first) {
                    block.seq = seq;
                    block.version = 1;
                }
                self.calls = reply.calls().cloned().collect();
            }
            Entry::Called { call: id, tool, arguments, .. } => {
                let of = |id: CallId| self.calls.get(id.index as usize);
                let arguments = arguments.clone().or_else(|| of(*id).map(|call| call.arguments.clone()));
                let arguments = arguments.unwrap_or_default();
                let what = TranscriptBlockKind::Call {
                    call: *id,
                    summary: format_call(tool, &arguments, 400),
                    arguments: truncate_kept(format_arguments(&arguments), MAX_OUTPUT_BYTES),
                    progress: None,
                    result: None,
                };
                self.push(record, what);
            }
            Entry::Returned(returned) => {
                let got = TuiCallResult {
                    lines: returned.output.lines().count(),
                    text: truncate_kept(sanitize(&returned.output), MAX_OUTPUT_BYTES),
                    is_error: returned.is_error,
                    at: record.at,
                };
                self.set_result(record, returned.call, got);
            }
            Entry::Letter(letter) => {
                let text = match letter.ending.and_then(|_| ending(&letter.text)) {
                    Some(end) => format!("{} {}: {}", end.agent, end.verb(), end.text),
                    None => letter.text.trim().to_owned(),
                };
                let text = truncate_kept(sanitize(&text), MAX_BLOCK_BYTES);
                let what = TranscriptBlockKind::Letter {
                    id: letter.id.clone(),
                    from: letter.from.clone(),
                    text,
                    read: None,
                };
                self.push(record, what);
            }
            Entry::Read { letters, known, .. } => {
                for block in &mut self.blocks {
                    if let TranscriptBlockKind::Letter { id, read, .. } = &mut block.kind
                        && read.is_none()
                        && (letters.contains(id) || known.contains(id))
                    {
                        *read = Some(record.at);
                        block.version += 1;
                    }
                }
            }
            Entry::Asked { question, asks, .. } => {
                let mut text = sanitize(&asks.text);
                if let ExpectedAnswer::Leave { tool, arguments, why, changed, .. } = &asks.wants {
                    // In full, however long: the user reads it here before approving.
                    text = format!("may it call {}?", format_call(tool, arguments, usize::MAX));
                    if let Some(changed) = changed {
                        text.push_str(&format!("\nnote: {}", one_line(changed)));
                    }
                    if let Some(why) = why {
                        text.push_str(&format!("\na person has to decide: {}", one_line(why)));
                    }
                }
                self.blocks.retain(|block| {
                    !matches!(&block.kind, TranscriptBlockKind::Asked { question: other, answer: None, .. } if other == question)
                });
                self.push(record, TranscriptBlockKind::Asked { question: *question, text, answer: None });
            }
            Entry::Answered { question, answer } => {
                let said = one_line(&answer.to_string());
                let asked = self.blocks.iter_mut().rev().find(
                    |block| matches!(&block.kind, TranscriptBlockKind::Asked { question: other, .. } if other == question),
                );
                match asked {
                    Some(block) => {
                        if let TranscriptBlockKind::Asked { answer, .. } = &mut block.kind {
                            *answer = Some(said);
                        }
                        block.version += 1;
                    }
                    None => self.note(record, Ink::Plain, format!("answered: {said}"), false),
                }
            }
            Entry::Waiting { on, .. } => {
                if matches!(on, WaitReason::Provider(_)) {
                    self.discard_live_text();
                }
                self.note(record, Ink::Faint, format!("waits for {}", describe_wait(on)), true);
            }
            Entry::Nudged { text, .. } if text.is_empty() => {}
            Entry::Nudged { why, .. } => {
                let why = match why {
                    NudgeReason::Empty => "reminded: the answer was empty".to_owned(),
                    NudgeReason::Shape => {
                        "reminded: the answer does not match the required schema".to_owned()
                    }
                    NudgeReason::Begun => "given the output of its start hooks".to_owned(),
                    NudgeReason::Repeating => "reminded: it repeats itself".to_owned(),
                    NudgeReason::Launching => {
                        "reminded: it has the results, but starts the same tasks again".to_owned()
                    }
                    NudgeReason::Unchanged => "reminded: its calls return nothing new".to_owned(),
                    NudgeReason::ToolsOff => "asked for an answer: it is stuck in a loop".to_owned(),
                    NudgeReason::LastWord(limit) => {
                        format!("asked for its final answer: {}", one_line(limit))
                    }
                };
                self.note(record, Ink::Attention, why, false);
            }
            Entry::Backgrounded => {
                self.note(record, Ink::Plain, "sent to the background".to_owned(), false);
            }
            Entry::HookFailed(failure) => {
                self.note(record, Ink::Attention, one_line(&failure.to_string()), false);
            }
            Entry::Warned { text } => {
                self.note(record, Ink::Attention, format!("warning: {}", one_line(text)), false);
            }
            Entry::BudgetSet { budget } => {
                self.note(record, Ink::Plain, format!("allowed {}", budget_words(budget)), false);
            }
            Entry::Granted { pattern, .. } => {
                let text = format!("allowed for the whole tree: {}", one_line(&pattern.to_string()));
                self.note(record, Ink::Plain, text, false);
            }
            Entry::StopRequested(stop) => {
                self.note(record, Ink::Attention, format!("stopping: {}", stop.cause), false);
            }
            Entry::Compacted { .. } => {
                self.note(record, Ink::Faint, "its conversation was compacted".to_owned(), false);
            }
            Entry::Sampled(asked) => {
                self.note(record, Ink::Faint, describe_sampling(&asked.usage, &asked.model), false);
            }
            // The result of the call shows it.
            Entry::Worked { .. } | Entry::Denied { .. } => {}
            Entry::Released { why, .. } => {
                let why = match why {
                    ReleaseReason::Drained => "its process ended",
                    ReleaseReason::Lost => "its process is gone",
                };
                self.note(record, Ink::Attention, format!("released: {why}"), false);
            }
            Entry::Finished(outcome) => {
                let status = match **outcome {
                    Outcome::Completed { .. } => Status::Completed,
                    Outcome::Failed { .. } => Status::Failed,
                    Outcome::Cancelled { .. } => Status::Cancelled,
                };
                let error = outcome.error().map(|error| one_line(&error));
                let output = truncate_kept(sanitize(outcome.output().trim()), MAX_BLOCK_BYTES);
                self.end = Some(TuiTaskEnd { output, error: error.clone() });
                self.push(record, TranscriptBlockKind::End { status, error });
            }
            Entry::Continued { by } => self.note(record, Ink::Plain, format!("continued by {by}"), false),
        }
    }
}

/// Formats arguments one per line.
fn format_arguments(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let line = |(key, value): (&String, &serde_json::Value)| match value {
                serde_json::Value::String(text) => {
                    format!("{}: {}", escape_invisible_line(key), escape_invisible(text))
                }
                other => format!("{}: {}", escape_invisible_line(key), escape_invisible(&other.to_string())),
            };
            map.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Err(_) => escape_invisible(arguments),
    }
}
