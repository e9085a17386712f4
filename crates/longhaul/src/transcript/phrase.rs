//! Events in words. Every door shows these: each event is worded here and nowhere else.

use serde::{Serialize, Serializer};

use super::call::{format_call, shorten};
use super::numbers::{format_count, format_dollars, format_duration, pluralize};
use super::sanitize::{escape_invisible_line, one_line, sanitize};
use crate::entry::{Budget, NudgeReason, ReleaseReason, Sender, TaskEnding, WaitReason};
use crate::message::Usage;
use crate::snapshot::EventKind;
use crate::task::Status;

/// What happened, in words. [`sentence`](Self::sentence) reads as one; doors with columns put
/// [`label`](Self::label) into one of its own. All text is sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase {
    /// How it matters to the reader.
    pub tone: Tone,
    /// Who should see it.
    pub level: Level,
    /// The first words: a verb, or a title with a colon.
    pub label: &'static str,
    /// The rest; may be empty.
    pub text: String,
}

/// How something matters to the reader. A door chooses the colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As usual.
    Plain,
    /// The beginning of something.
    Strong,
    /// In the background.
    Faint,
    /// Work goes on.
    Busy,
    /// Somebody should look at it.
    Attention,
    /// The status of a task.
    Status(Status),
}

/// Who should see a phrase, from few to all details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everyone.
    Main,
    /// Readers of logs and timelines; a transcript shows it in other ways.
    Routine,
    /// Readers of the whole journal.
    Trace,
}

/// How much of long texts to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// One line each, shortened.
    Brief,
    /// All of it; texts keep their line breaks.
    Full,
}

impl Detail {
    fn body(self, text: &str) -> String {
        match self {
            Detail::Brief => shorten(&one_line(text), 160),
            Detail::Full => sanitize(text.trim_end()),
        }
    }
}

impl Phrase {
    fn at(self, level: Level) -> Phrase {
        Phrase { level, ..self }
    }

    /// The phrase as one sentence: `waits for a letter`.
    pub fn sentence(&self) -> String {
        format!("{} {}", self.label, self.text).trim_end().to_owned()
    }

    /// The phrase with its label in a column of eight: `waits   for a letter`.
    pub fn columns(&self) -> String {
        format!("{:<7} {}", self.label, self.text).trim_end().to_owned()
    }
}

impl Serialize for Phrase {
    /// As `{"text": …}`: the words are for people, and the rest is for those who draw them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut phrase = serializer.serialize_struct("Phrase", 1)?;
        phrase.serialize_field("text", &self.sentence())?;
        phrase.end()
    }
}

fn phrase(tone: Tone, label: &'static str, text: impl Into<String>) -> Phrase {
    Phrase { tone, level: Level::Main, label, text: text.into() }
}

/// Describes an event.
pub fn describe(event: &EventKind, detail: Detail) -> Phrase {
    match event {
        EventKind::Submitted { headline, parent, continues, .. } => {
            let from = match (parent, continues) {
                (_, Some(old)) => format!(" (continues {old})"),
                (Some(parent), None) => format!(" (for {parent})"),
                (None, None) => String::new(),
            };
            phrase(Tone::Strong, "order", format!("{}{from}", one_line(headline)))
        }
        EventKind::Started { attempt } if attempt.0 > 1 => {
            phrase(Tone::Attention, "started", format!("again (attempt {attempt})"))
        }
        EventKind::Started { .. } => phrase(Tone::Busy, "started", "").at(Level::Routine),
        EventKind::Text { text } => phrase(Tone::Plain, "says", detail.body(text)),
        EventKind::Reasoning { text } => phrase(Tone::Faint, "thinks", detail.body(text)).at(Level::Trace),
        EventKind::Usage { usage, model, .. } => {
            phrase(Tone::Faint, "used", describe_usage(usage, model)).at(Level::Trace)
        }
        EventKind::Call { tool, arguments, .. } => {
            let most = if detail == Detail::Full { 2000 } else { 120 };
            phrase(Tone::Plain, "calls", format_call(tool, arguments, most))
        }
        EventKind::Result { tool, output, is_error: true, .. } => {
            phrase(Tone::Attention, "error", format!("{}: {}", one_line(tool), detail.body(output)))
        }
        EventKind::Result { tool, output, .. } if detail == Detail::Full => {
            phrase(Tone::Faint, "got", format!("{}: {}", one_line(tool), detail.body(output)))
        }
        EventKind::Result { tool, output, .. } => {
            let lines = pluralize(output.lines().count(), "line");
            phrase(Tone::Faint, "got", format!("{lines} from {}", one_line(tool)))
        }
        EventKind::Progress { text } => phrase(Tone::Faint, "…", one_line(text)).at(Level::Trace),
        EventKind::Waiting { on, .. } => {
            phrase(Tone::Attention, "waits", format!("for {}", describe_wait(on))).at(Level::Routine)
        }
        EventKind::Letter { from, text, ended: Some(ended), .. } => {
            let body = match detail {
                Detail::Brief => String::new(),
                Detail::Full => format!(": {}", detail.body(TaskEnding::body(text))),
            };
            phrase(Tone::Plain, "letter", format!("from {}: it {}{body}", sender(from), ended.verb()))
        }
        EventKind::Letter { from, text, .. } => {
            phrase(Tone::Plain, "letter", format!("from {}: {}", sender(from), detail.body(text)))
        }
        EventKind::Read { letters } => {
            phrase(Tone::Faint, "read", pluralize(letters.len(), "letter")).at(Level::Trace)
        }
        EventKind::Nudged { why } => {
            let (label, why) = match why {
                NudgeReason::Empty => ("reminded:", "its reply was no answer".to_owned()),
                NudgeReason::Shape => {
                    ("reminded:", "the answer does not match the required schema".to_owned())
                }
                NudgeReason::Repeating => ("reminded:", "it repeats itself".to_owned()),
                NudgeReason::Launching => ("reminded:", "it starts the same tasks again".to_owned()),
                NudgeReason::Unchanged => ("reminded:", "its calls lead to nothing new".to_owned()),
                NudgeReason::Begun => ("given", "the output of its start hooks".to_owned()),
                NudgeReason::ToolsOff => ("told", "to answer now: it is stuck in a loop".to_owned()),
                NudgeReason::LastWord(limit) => {
                    ("told", format!("to give its final answer: {}", one_line(limit)))
                }
            };
            phrase(Tone::Attention, label, why)
        }
        EventKind::Asked { asks, .. } => phrase(Tone::Attention, "asks", detail.body(&asks.text)),
        EventKind::Answered { answer, .. } => phrase(Tone::Plain, "answer:", one_line(&answer.to_string())),
        EventKind::Granted { pattern } => {
            let pattern = one_line(&pattern.to_string());
            phrase(Tone::Plain, "allowed", format!("for the whole tree: {pattern}"))
        }
        EventKind::Backgrounded => {
            phrase(Tone::Plain, "stopped", "waiting: the tasks that it waited for go on in the background")
        }
        EventKind::HookFailed { failure } => {
            phrase(Tone::Attention, "warning:", one_line(&failure.to_string()))
        }
        EventKind::Warned { text } => phrase(Tone::Attention, "warning:", one_line(text)),
        EventKind::BudgetSet { budget } => phrase(Tone::Plain, "allowed", describe_budget(budget)),
        EventKind::Stopping { cause } => phrase(Tone::Attention, "stopping:", cause.to_string()),
        EventKind::Compacted => phrase(Tone::Faint, "compacted", "its conversation"),
        EventKind::Sampled { usage, model, .. } => {
            phrase(Tone::Faint, "sampled", format!("by an MCP server: {}", describe_usage(usage, model)))
        }
        EventKind::Released { why } => {
            let why = match why {
                ReleaseReason::Drained => "its process is ending",
                ReleaseReason::Lost => "its process is gone",
            };
            phrase(Tone::Attention, "released:", why)
        }
        EventKind::Finished { status, output, error, cut_short } => {
            let (label, mut text) = end_words(*status, error.as_deref(), cut_short.as_deref());
            if detail == Detail::Full && *status != Status::Completed && !output.trim().is_empty() {
                text = format!("{text}\n{}", detail.body(output));
            }
            phrase(Tone::Status(*status), label, text)
        }
        EventKind::Continued { by } => phrase(Tone::Plain, "continued", format!("by {by}")),
    }
}

/// The end of a task in words: `failed: timeout: it took too long`.
pub fn describe_end(status: Status, error: Option<&str>, cut_short: Option<&str>) -> String {
    let (label, text) = end_words(status, error, cut_short);
    format!("{label} {text}").trim_end().to_owned()
}

fn end_words(status: Status, error: Option<&str>, cut_short: Option<&str>) -> (&'static str, String) {
    match (status, error, cut_short) {
        (Status::Completed, _, Some(limit)) => ("completed,", format!("cut short by {}", one_line(limit))),
        (Status::Failed, Some(error), _) => ("failed:", one_line(error)),
        (Status::Cancelled, Some(error), _) => ("cancelled:", one_line(error)),
        (status, ..) => (status.as_str(), String::new()),
    }
}

impl TaskEnding {
    /// How the task ended, as a verb: `completed`, `was cancelled`.
    pub fn verb(&self) -> &'static str {
        match self.status {
            Status::Cancelled => "was cancelled",
            status => status.as_str(),
        }
    }
}

/// The sender of a letter: `a person`, `t-7f3k2`.
pub fn sender(from: &Sender) -> String {
    match from {
        Sender::Person => "a person".to_owned(),
        Sender::Task(id) => id.to_string(),
        Sender::System => "longhaul".to_owned(),
    }
}

/// What a task waits for: `t-7f3k2 and t-9d2m4`, `a letter`.
pub fn describe_wait(on: &WaitReason) -> String {
    match on {
        WaitReason::Tasks(ids) if ids.is_empty() => "its tasks".to_owned(),
        WaitReason::Tasks(ids) if ids.len() <= 2 => {
            ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
        }
        WaitReason::Tasks(ids) => pluralize(ids.len(), "task"),
        WaitReason::Letter => "a letter".to_owned(),
        WaitReason::Person(what) => format!("a person: {}", one_line(what)),
        WaitReason::Provider(why) => format!("its provider: {}", one_line(why)),
    }
}

/// What to know before approving a call: how its tool has changed, and why a rule alone does not allow it.
pub fn approval_notes(why: Option<&str>, changed: Option<&str>) -> Vec<String> {
    let changed = changed.map(|changed| format!("Note: {}", one_line(changed)));
    let why = why.map(|why| format!("A person has to decide: {}", one_line(why)));
    changed.into_iter().chain(why).collect()
}

fn describe_usage(usage: &Usage, model: &str) -> String {
    let (read, written) = (format_count(usage.input), format_count(usage.output));
    format!("{read} tokens in, {written} out ({})", escape_invisible_line(model))
}

fn describe_budget(budget: &Budget) -> String {
    let tokens = budget.tokens.map(|tokens| format!("{} tokens", format_count(tokens)));
    let bounds =
        tokens.into_iter().chain(budget.cost.map(format_dollars)).chain(budget.time.map(format_duration));
    format!("{} in all, with what it has used", bounds.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::StopCause;
    use crate::id::Attempt;

    fn sentence(event: EventKind) -> String {
        describe(&event, Detail::Brief).sentence()
    }

    #[test]
    fn a_phrase_reads_as_a_sentence_and_in_columns() {
        let waits = EventKind::Waiting { on: WaitReason::Letter, until: None };
        assert_eq!(describe(&waits, Detail::Brief).columns(), "waits   for a letter");
        assert_eq!(sentence(waits), "waits for a letter");
        assert_eq!(sentence(EventKind::Started { attempt: Attempt(2) }), "started again (attempt 2)");
        assert_eq!(
            sentence(EventKind::Stopping { cause: StopCause::Closed }),
            "stopping: its session was closed"
        );
        assert_eq!(describe_end(Status::Completed, None, None), "completed");
        assert_eq!(
            describe_end(Status::Completed, None, Some("the limit of 2 turns")),
            "completed, cut short by the limit of 2 turns"
        );
        assert_eq!(describe_end(Status::Failed, Some("time\nout"), None), "failed: time out");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_in_a_phrase() {
        let evil = "a\x1b]0;t\x07\u{202e}b";
        for detail in [Detail::Brief, Detail::Full] {
            for event in [
                EventKind::Text { text: evil.into() },
                EventKind::Warned { text: evil.into() },
                EventKind::Call {
                    call: crate::id::CallId { turn: 1, index: 0 },
                    tool: evil.into(),
                    arguments: evil.into(),
                },
                EventKind::Waiting { on: WaitReason::Person(evil.into()), until: None },
                EventKind::Usage { usage: Usage::default(), cost: None, model: evil.into() },
            ] {
                let said = describe(&event, detail).sentence();
                assert!(!said.contains(['\x1b', '\x07', '\u{202e}']), "{said:?}");
            }
        }
    }
}
