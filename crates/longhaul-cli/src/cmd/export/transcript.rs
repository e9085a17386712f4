//! The transcripts of tasks, for files.

use jiff::Timestamp;
use longhaul::Status;
use longhaul::entry::Order;
use longhaul::task::TaskState;
use longhaul::transcript::{ItemKind, Transcript, TranscriptItem};
use serde::Serialize;

use crate::exit::CliError;
use crate::view::{TerminalOutput, format_count, format_dollars, one_line, time_of};

/// A task with its transcript.
#[derive(Debug, Serialize)]
pub(super) struct ExportedTask {
    #[serde(rename = "head")]
    pub(super) state: TaskState,
    pub(super) order: Order,
    pub(super) output: String,
    pub(super) items: Vec<TranscriptItem>,
}

impl ExportedTask {
    pub(super) fn new(state: TaskState, transcript: Transcript) -> ExportedTask {
        let mut order = Order::default();
        let mut items = Vec::from(transcript.items);
        items.retain_mut(|item| match &mut item.kind {
            ItemKind::Order(own) => {
                order = std::mem::take(&mut **own);
                false
            }
            _ => true,
        });
        ExportedTask { state, order, output: transcript.end.map(|end| end.output).unwrap_or_default(), items }
    }

    /// Returns the index of the item that repeats the output, if it is the last text: it is shown once, as
    /// the answer.
    pub(super) fn answer_at(&self) -> Option<usize> {
        let last = self.items.iter().rposition(|item| matches!(item.kind, ItemKind::Said { .. }))?;
        let answers = |text: &str| !text.trim().is_empty() && text.trim() == self.output.trim();
        matches!(&self.items[last].kind, ItemKind::Said { text, .. } if answers(text)).then_some(last)
    }

    pub(super) fn before_answer(&self) -> impl Iterator<Item = &TranscriptItem> {
        let answer = self.answer_at();
        self.items.iter().enumerate().filter(move |(at, _)| Some(*at) != answer).map(|(_, item)| item)
    }

    /// Returns the title of the output section.
    pub(super) fn output_title(&self) -> &'static str {
        match self.state.status {
            Status::Completed => "Answer",
            _ => "What it had said by then",
        }
    }
}

/// Formats a line about a task: status, duration, usage.
pub(super) fn status_line(state: &TaskState, now: Timestamp) -> String {
    let mut line = format!("{} · {}", state.status, one_line(state.agent.as_str()));
    if state.started.is_some() {
        line += &format!(" · {}", time_of(state, now));
    }
    if state.usage.total() > 0 {
        line += &format!(" · {} tokens", format_count(state.usage.total()));
    }
    match (state.cost, state.unpriced) {
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
    use longhaul::entry::{CallResult, Entry, LiveTextKind, Record, Submission, TeamRef, WaitReason};
    use longhaul::id::{Attempt, CallId, Seq, TaskKey};
    use longhaul::message::{Block, Call, Reply};
    use longhaul::transcript::TranscriptLimits;

    /// Creates a transcript of these entries, after a submission.
    pub(crate) fn transcript(entries: Vec<Entry>) -> ExportedTask {
        let key = TaskKey::named("export");
        let id = key.candidate_ids().next().unwrap();
        let submitted =
            Submission::root(id, key, Order::new("scout", "Look <b>around</b>"), TeamRef::Named("t".into()));
        let entries = [vec![Entry::Submitted(Box::new(submitted))], entries].concat();
        let record = |(entry, seq)| Record { seq: Seq(seq), at: Timestamp::UNIX_EPOCH, entry };
        let records: Vec<Record> = entries.into_iter().zip(1..).map(record).collect();
        let state = TaskState::from_journal(id, &records).unwrap().unwrap();
        let transcript = Transcript::starting_after(id, Seq(0), TranscriptLimits::NONE);
        ExportedTask::new(state, transcript.with_records(&records))
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
        let words = exported.items.iter().map(|item| match &item.kind {
            ItemKind::Said { text, .. } => text.clone(),
            ItemKind::Note(phrase) => phrase.sentence(),
            other => panic!("{other:?}"),
        });
        let words: Vec<String> = words.collect();
        assert_eq!(words, ["started", "waits for its provider: 429", "Hello, you.", "And so on."]);
    }

    #[test]
    fn a_result_is_told_with_its_call() {
        let call = Call { id: String::new(), tool: "look".to_owned(), arguments: "{}".to_owned() };
        let mut reply = Reply::text_only("");
        reply.blocks = vec![Block::Call(call)];
        let id = CallId { turn: 1, index: 0 };
        let returned = CallResult { is_error: true, ..CallResult::new(id, "seen") };
        let exported = transcript(vec![
            claimed(),
            Entry::Replied(std::sync::Arc::new(reply)),
            Entry::Called { call: id, tool: "look".into(), arguments: None, effects: false, foreign: false },
            Entry::Returned(Box::new(returned)),
        ]);
        let [_, TranscriptItem { kind: ItemKind::Call { tool, result: Some(got), .. }, .. }] =
            &exported.items[..]
        else {
            panic!("{:?}", exported.items)
        };
        assert_eq!((&**tool, got.output.as_str(), got.is_error), ("look", "seen", true));
    }
}
