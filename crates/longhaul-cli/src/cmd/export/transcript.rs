//! The transcript of a task, in order: a fold of its events.

use jiff::Timestamp;
use longhaul::entry::{Entry, NudgeReason, Order, Record, ReleaseReason, Sender};
use longhaul::id::CallId;
use longhaul::snapshot::{Event, EventKind};
use longhaul::task::TaskState;
use longhaul::{Status, TaskId};
use serde::Serialize;

use crate::exit::CliError;
use crate::view::event_text::{budget_words, describe_sampling};
use crate::view::{TerminalOutput, describe_wait, format_count, format_dollars, one_line, time_of};

/// A task with its transcript.
#[derive(Debug, Serialize)]
pub(super) struct ExportedTask {
    pub(super) head: TaskState,
    pub(super) order: Order,
    pub(super) output: String,
    pub(super) items: Vec<ExportedItem>,
    /// The index of the first item that belongs to an incomplete reply.
    #[serde(skip)]
    whole: usize,
}

/// One item of the transcript.
#[derive(Debug, Serialize)]
pub(super) struct ExportedItem {
    pub(super) at: Timestamp,
    #[serde(flatten)]
    pub(super) what: ExportedItemKind,
}

/// The kinds of items.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ExportedItemKind {
    /// The agent's reasoning.
    Thought { text: String },
    /// The agent's text.
    Said { text: String },
    /// A tool call, with its output if it has returned.
    Call { call: CallId, tool: String, arguments: String, output: Option<String>, is_error: bool },
    /// A letter; with the id of the ended task, if it reports an end.
    Letter {
        from: String,
        text: String,
        #[serde(skip)]
        ending: Option<TaskId>,
    },
    /// A question to a person, and its answer.
    Asked { text: String, answer: Option<String> },
    /// Anything else worth a line.
    Note { text: String },
}

impl ExportedTask {
    pub(super) fn new(head: TaskState) -> ExportedTask {
        ExportedTask { head, order: Order::default(), output: String::new(), items: Vec::new(), whole: 0 }
    }

    /// Adds a journal entry and its events.
    pub(super) fn apply_record(&mut self, record: &Record, events: Vec<Event>) {
        match &record.entry {
            Entry::Submitted(submitted) => self.order = submitted.order.clone(),
            Entry::Finished(outcome) => self.output = outcome.output().to_string(),
            _ => {}
        }
        for event in events {
            self.apply_event(event);
        }
        // Only the journal decides whether a letter reports an end: anyone can write the same text.
        if let Entry::Letter(letter) = &record.entry
            && let Some(ExportedItemKind::Letter { ending, .. }) =
                self.items.last_mut().map(|item| &mut item.what)
        {
            *ending = letter.ending;
        }
    }

    /// Returns the index of the item that repeats the output, if it is the last text: it is shown once, as
    /// the answer.
    pub(super) fn answer_at(&self) -> Option<usize> {
        let last = self.items.iter().rposition(|item| matches!(item.what, ExportedItemKind::Said { .. }))?;
        let answers = |text: &str| !text.trim().is_empty() && text.trim() == self.output.trim();
        matches!(&self.items[last].what, ExportedItemKind::Said { text } if answers(text)).then_some(last)
    }

    /// Returns all items before the answer.
    pub(super) fn before_answer(&self) -> impl Iterator<Item = &ExportedItem> {
        let answer = self.answer_at();
        self.items.iter().enumerate().filter(move |(at, _)| Some(*at) != answer).map(|(_, item)| item)
    }

    /// Returns the title of the output section.
    pub(super) fn output_title(&self) -> &'static str {
        match self.head.status {
            Status::Completed => "Answer",
            _ => "What it had said by then",
        }
    }

    fn push(&mut self, at: Timestamp, what: ExportedItemKind) {
        self.items.push(ExportedItem { at, what });
    }

    fn note(&mut self, at: Timestamp, text: impl Into<String>) {
        self.push(at, ExportedItemKind::Note { text: text.into() });
    }

    fn apply_event(&mut self, event: Event) {
        let at = event.at;
        if event.kind.voids_partial_reply() {
            // The reply in progress starts again.
            let mut at = 0;
            let whole = self.whole;
            self.items.retain(|item| {
                at += 1;
                at <= whole
                    || !matches!(item.what, ExportedItemKind::Said { .. } | ExportedItemKind::Thought { .. })
            });
        }
        match event.kind {
            EventKind::Text { text } => match self.open_item() {
                Some(ExportedItemKind::Said { text: said }) => said.push_str(&text),
                _ => self.push(at, ExportedItemKind::Said { text }),
            },
            EventKind::Reasoning { text } => match self.open_item() {
                Some(ExportedItemKind::Thought { text: thought }) => thought.push_str(&text),
                _ => self.push(at, ExportedItemKind::Thought { text }),
            },
            EventKind::Usage { .. } => self.whole = self.items.len(),
            EventKind::Call { call, tool, arguments } => {
                let tool = tool.to_string();
                self.push(
                    at,
                    ExportedItemKind::Call { call, tool, arguments, output: None, is_error: false },
                );
            }
            EventKind::Result { call: of, tool: name, output: text, is_error: wrong } => {
                let text = text.to_string();
                let open = self.items.iter_mut().rev().find_map(|item| match &mut item.what {
                    ExportedItemKind::Call { call, output: output @ None, is_error, .. } if *call == of => {
                        Some((output, is_error))
                    }
                    _ => None,
                });
                match open {
                    Some((output, is_error)) => (*output, *is_error) = (Some(text), wrong),
                    None => {
                        let (tool, arguments) = (name.to_string(), String::new());
                        self.push(
                            at,
                            ExportedItemKind::Call {
                                call: of,
                                tool,
                                arguments,
                                output: Some(text),
                                is_error: wrong,
                            },
                        );
                    }
                }
            }
            EventKind::Letter { from, text, .. } => {
                let from = match from {
                    Sender::Person => "a person".to_owned(),
                    Sender::Task(id) => id.to_string(),
                    Sender::System => "longhaul".to_owned(),
                };
                self.push(at, ExportedItemKind::Letter { from, text: text.to_string(), ending: None });
            }
            EventKind::Asked { asks, .. } => {
                self.push(at, ExportedItemKind::Asked { text: asks.text.clone(), answer: None })
            }
            EventKind::Answered { answer: given, .. } => {
                let open = self.items.iter_mut().rev().find_map(|item| match &mut item.what {
                    ExportedItemKind::Asked { answer: answer @ None, .. } => Some(answer),
                    _ => None,
                });
                if let Some(answer) = open {
                    *answer = Some(given.to_string());
                }
            }
            EventKind::Started { attempt } if attempt.0 > 1 => {
                self.note(at, format!("started again (attempt {attempt})"))
            }
            EventKind::Waiting { on, .. } => self.note(at, format!("waits for {}", describe_wait(&on))),
            EventKind::Nudged { why } => self.note(at, nudge(&why)),
            EventKind::Backgrounded => {
                self.note(at, "stopped waiting: the tasks it waited for go on in the background")
            }
            EventKind::HookFailed { failure } => self.note(at, failure.to_string()),
            EventKind::Warned { text } => self.note(at, format!("warning: {text}")),
            EventKind::BudgetSet { budget } => self.note(at, format!("allowed {}", budget_words(&budget))),
            EventKind::Granted { pattern } => self.note(at, format!("allowed for the whole tree: {pattern}")),
            EventKind::Stopping { cause } => self.note(at, format!("to stop: {cause}")),
            EventKind::Compacted => self.note(at, "its conversation was compacted"),
            EventKind::Sampled { usage, model, .. } => self.note(at, describe_sampling(&usage, &model)),
            EventKind::Released { why: ReleaseReason::Drained } => {
                self.note(at, "released: its process was ending")
            }
            EventKind::Released { why: ReleaseReason::Lost } => {
                self.note(at, "released: its process was gone")
            }
            EventKind::Finished { status, error, .. } => {
                let why = error.map(|error| format!(": {}", one_line(&error))).unwrap_or_default();
                self.note(at, format!("{status}{why}"));
            }
            EventKind::Continued { by } => self.note(at, format!("continued by {by}")),
            EventKind::Submitted { .. }
            | EventKind::Started { .. }
            | EventKind::Progress { .. }
            | EventKind::Read { .. } => {}
        }
    }

    /// Returns the last item, if its reply is incomplete.
    fn open_item(&mut self) -> Option<&mut ExportedItemKind> {
        self.items.get_mut(self.whole..)?.last_mut().map(|item| &mut item.what)
    }
}

fn nudge(why: &NudgeReason) -> String {
    match why {
        NudgeReason::Empty => "reminded: the answer was empty".to_owned(),
        NudgeReason::Shape => "reminded: the answer did not match the required schema".to_owned(),
        NudgeReason::Begun => "given the output of its start hooks".to_owned(),
        NudgeReason::Repeating => "reminded: it repeats itself".to_owned(),
        NudgeReason::Launching => "reminded: it has the results, but starts the same tasks again".to_owned(),
        NudgeReason::Unchanged => "reminded: its calls return nothing new".to_owned(),
        NudgeReason::ToolsOff => "asked for an answer: it is stuck in a loop".to_owned(),
        NudgeReason::LastWord(limit) => format!("asked for its final answer: {}", one_line(limit)),
    }
}

/// Formats a line about a task: status, duration, usage.
pub(super) fn status_line(head: &TaskState, now: Timestamp) -> String {
    let mut line = format!("{} · {}", head.status, one_line(head.agent.as_str()));
    if head.started.is_some() {
        line += &format!(" · {}", time_of(head, now));
    }
    if head.usage.total() > 0 {
        line += &format!(" · {} tokens", format_count(head.usage.total()));
    }
    match (head.cost, head.unpriced) {
        (0, 0) => {}
        (0, _) => line += " · price unknown",
        (cost, 0) => line += &format!(" · {}", format_dollars(cost)),
        (cost, _) => line += &format!(" · {} and more", format_dollars(cost)),
    }
    line
}

/// Pretty-prints arguments.
pub(super) fn pretty_arguments(arguments: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(arguments);
    value.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| arguments.to_owned())
}

/// Formats everything as one JSON object.
pub(super) fn export_json(tasks: &[ExportedTask], now: Timestamp) -> Result<String, CliError> {
    #[derive(Serialize)]
    struct Export<'a> {
        exported: Timestamp,
        tasks: &'a [ExportedTask],
    }
    TerminalOutput::to_json_line(&Export { exported: now, tasks })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use longhaul::entry::{CallResult, LiveTextKind, Submission, TeamRef, WaitReason};
    use longhaul::id::{Attempt, Seq, TaskKey};
    use longhaul::message::{Block, Call, Reply};
    use longhaul::snapshot::EventProjector;

    /// Creates a transcript of these entries, after a submission.
    pub(crate) fn transcript(entries: Vec<Entry>) -> ExportedTask {
        let key = TaskKey::named("export");
        let id = key.candidate_ids().next().unwrap();
        let submitted =
            Submission::root(id, key, Order::new("scout", "Look <b>around</b>"), TeamRef::Named("t".into()));
        let record = |seq, entry| Record { seq: Seq(seq), at: Timestamp::UNIX_EPOCH, entry };
        let first = record(1, Entry::Submitted(Box::new(submitted)));
        let mut transcript = ExportedTask::new(TaskState::begin(id, &first).unwrap());
        let mut narrator = EventProjector::new(id);
        transcript.apply_record(&first, narrator.project(&first));
        for (entry, seq) in entries.into_iter().zip(2..) {
            let record = record(seq, entry);
            transcript.head.apply(&record).unwrap();
            transcript.apply_record(&record, narrator.project(&record));
        }
        transcript
    }

    pub(crate) fn said(text: &str) -> Entry {
        Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() }
    }

    pub(crate) fn claimed() -> Entry {
        Entry::Claimed { attempt: Attempt(1), worker: "w".into() }
    }

    #[test]
    fn words_are_told_once_and_what_is_void_is_not_told() {
        let waits = Entry::Waiting { on: WaitReason::Provider("429".into()), until: None };
        let reply = |text: &str| Entry::Replied(std::sync::Arc::new(Reply::text_only(text)));
        let exported = transcript(vec![
            claimed(),
            said("Hel"),
            waits,
            said("Hello, "),
            reply("Hello, you."),
            said("And"),
            reply("And so on."),
        ]);
        let words: Vec<&ExportedItemKind> = exported.items.iter().map(|item| &item.what).collect();
        let said = |text: &str| ExportedItemKind::Said { text: text.to_owned() };
        let waits = ExportedItemKind::Note { text: "waits for its provider: 429".to_owned() };
        assert_eq!(words, [&waits, &said("Hello, you."), &said("And so on.")]);
    }

    #[test]
    fn a_result_is_told_with_its_call() {
        let call = Call { id: String::new(), tool: "look".to_owned(), arguments: "{}".to_owned() };
        let mut reply = Reply::text_only("");
        reply.blocks = vec![Block::Call(call)];
        let id = CallId { turn: 1, index: 0 };
        let returned = CallResult {
            call: id,
            output: "seen".into(),
            is_error: true,
            whole: None,
            collected: Vec::new(),
            handoff: None,
            model: None,
        };
        let exported = transcript(vec![
            claimed(),
            Entry::Replied(std::sync::Arc::new(reply)),
            Entry::Called { call: id, tool: "look".into(), arguments: None, effects: false },
            Entry::Returned(Box::new(returned)),
        ]);
        let [ExportedItem { what: ExportedItemKind::Call { tool, output, is_error: true, .. }, .. }] =
            &exported.items[..]
        else {
            panic!("{:?}", exported.items)
        };
        assert_eq!((tool.as_str(), output.as_deref()), ("look", Some("seen")));
    }
}
