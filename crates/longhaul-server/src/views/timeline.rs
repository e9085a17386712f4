//! When a task worked and when it waited, as a fold of its journal.

use std::collections::VecDeque;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{Entry, LiveTextKind, Record, WaitReason};
use longhaul::id::{CallId, Seq};
use longhaul::transcript::{describe_wait, format_call, one_line};
use serde::Serialize;
use utoipa::ToSchema;

/// How many spans of a task are kept. The oldest go first.
pub(crate) const MOST_SPANS: usize = 1_000;
/// How much of a call or a text is in a span, in characters.
const GIST: usize = 100;

/// What a task does during a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// No process runs it yet, or not any more.
    Queued,
    /// It works: its model writes, or its tools run.
    Working,
    /// One of its tools runs, while it works or waits.
    Call,
    /// It waits for other tasks.
    WaitsForTasks,
    /// It waits for a person.
    WaitsForPerson,
    /// It waits for its provider, and tries again.
    WaitsForProvider,
    /// It has nothing to do until it gets a letter.
    WaitsForLetter,
}

/// A span of a task's time.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SpanView {
    /// What it does.
    pub kind: SpanKind,
    /// The entry of the journal with which it begins.
    pub seq: u64,
    /// When it begins.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// When it ends; null if it goes on.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub to: Option<Timestamp>,
    /// What it is in one line: the call, what it waits for, or the first line of the reply.
    pub text: String,
    /// Whether it is a call that returned an error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// How often the task had been claimed.
    pub attempt: u32,
}

/// The spans of a task.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimelineView {
    /// The task.
    #[schema(value_type = String)]
    pub task: TaskId,
    /// The spans, in the order in which they begin. Calls overlap the others.
    pub spans: Vec<SpanView>,
}

/// The spans of a task and everything below it.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimelinePage {
    /// One timeline for each task, oldest first.
    pub tasks: Vec<TimelineView>,
    /// Whether there are more tasks than are sent.
    pub is_partial: bool,
}

/// The fold: spans up to an entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) last: Seq,
    spans: VecDeque<SpanView>,
    attempt: u32,
    /// The arguments of the calls in the last reply.
    arguments: Vec<String>,
    open_calls: Vec<(CallId, u64)>,
}

impl Timeline {
    /// The newest spans, at most this many.
    pub(crate) fn spans(&self, most: usize) -> Vec<SpanView> {
        self.spans.iter().skip(self.spans.len().saturating_sub(most)).cloned().collect()
    }

    pub(crate) fn push(&mut self, record: &Record) {
        self.last = record.seq;
        let at = record.at;
        match &record.entry {
            Entry::Submitted(_) => self.begin(SpanKind::Queued, record, String::new()),
            Entry::Claimed { attempt, .. } => {
                self.attempt = attempt.0;
                self.begin(SpanKind::Working, record, String::new());
            }
            Entry::Released { .. } => {
                self.end_calls(at);
                self.begin(SpanKind::Queued, record, String::new());
            }
            Entry::Asked { asks, .. } => {
                let text = describe_wait(&WaitReason::Person(asks.headline()));
                self.begin(SpanKind::WaitsForPerson, record, text);
            }
            // The question says what it waits for, and since when.
            Entry::Waiting { on: WaitReason::Person(_), .. } if self.is_asking() => {}
            Entry::Waiting { on, .. } => {
                let kind = match on {
                    WaitReason::Tasks(_) => SpanKind::WaitsForTasks,
                    WaitReason::Letter => SpanKind::WaitsForLetter,
                    WaitReason::Person(_) => SpanKind::WaitsForPerson,
                    _ => SpanKind::WaitsForProvider,
                };
                self.begin(kind, record, describe_wait(on));
            }
            Entry::Finished(_) => {
                self.end_calls(at);
                self.end_phase(at);
            }
            Entry::Replied(reply) => {
                self.work(record);
                let text = reply.text();
                let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
                if !line.is_empty() {
                    self.label(one_line(&line.chars().take(GIST).collect::<String>()));
                }
                self.arguments = reply.calls().map(|call| call.arguments.to_string()).collect();
                self.begin(SpanKind::Working, record, String::new());
            }
            Entry::Called { call, tool, arguments, .. } => {
                self.work(record);
                let asked = usize::try_from(call.index).ok().and_then(|index| self.arguments.get(index));
                let asked = asked.map_or("{}", String::as_str);
                let text = format_call(tool, arguments.as_deref().unwrap_or(asked), GIST);
                self.open_calls.push((*call, record.seq.0));
                self.add(SpanKind::Call, record, text);
            }
            Entry::Returned(returned) => {
                if let Some(place) = self.open_calls.iter().position(|(call, _)| *call == returned.call) {
                    let (_, seq) = self.open_calls.remove(place);
                    let span = self
                        .spans
                        .iter_mut()
                        .rev()
                        .find(|span| span.seq == seq && span.kind == SpanKind::Call);
                    if let Some(span) = span {
                        (span.to, span.is_error) = (Some(at), returned.is_error);
                    }
                }
                self.work(record);
            }
            Entry::Answered { .. } | Entry::Read { .. } | Entry::Nudged { .. } | Entry::Compacted { .. } => {
                self.work(record);
            }
            Entry::Said { voice, .. } if *voice != LiveTextKind::Progress => self.work(record),
            _ => {}
        }
    }

    fn is_asking(&self) -> bool {
        let phase = self.spans.iter().rev().find(|span| span.kind != SpanKind::Call);
        phase.is_some_and(|span| span.kind == SpanKind::WaitsForPerson && span.to.is_none())
    }

    /// It works again, if it has waited.
    fn work(&mut self, record: &Record) {
        let phase = self.spans.iter().rev().find(|span| span.kind != SpanKind::Call);
        if phase.is_some_and(|span| {
            span.to.is_none() && !matches!(span.kind, SpanKind::Working | SpanKind::Queued)
        }) {
            self.begin(SpanKind::Working, record, String::new());
        }
    }

    /// Names the phase that goes on, if it has no name.
    fn label(&mut self, text: String) {
        let phase = self.spans.iter_mut().rev().find(|span| span.kind != SpanKind::Call);
        if let Some(span) = phase.filter(|span| span.text.is_empty() && span.kind == SpanKind::Working) {
            span.text = text;
        }
    }

    fn begin(&mut self, kind: SpanKind, record: &Record, text: String) {
        self.end_phase(record.at);
        self.add(kind, record, text);
    }

    fn add(&mut self, kind: SpanKind, record: &Record, text: String) {
        if self.spans.len() >= MOST_SPANS {
            self.spans.pop_front();
        }
        let (seq, attempt) = (record.seq.0, self.attempt);
        self.spans.push_back(SpanView {
            kind,
            seq,
            from: record.at,
            to: None,
            text,
            is_error: false,
            attempt,
        });
    }

    fn end_phase(&mut self, at: Timestamp) {
        let open = |span: &&mut SpanView| span.kind != SpanKind::Call && span.to.is_none();
        if let Some(span) = self.spans.iter_mut().rev().find(open) {
            span.to = Some(at);
        }
    }

    fn end_calls(&mut self, at: Timestamp) {
        self.open_calls.clear();
        for span in self.spans.iter_mut().filter(|span| span.kind == SpanKind::Call && span.to.is_none()) {
            span.to = Some(at);
        }
    }
}
