//! Formats events as text.

use std::collections::{HashMap, HashSet};

use longhaul::entry::{Budget, NudgeReason, ReleaseReason, Sender, WaitReason};
use longhaul::message::Usage;
use longhaul::snapshot::{Event, EventKind};
use longhaul::{AgentName, Status, TaskId};

use super::letter::ending;
use super::sanitize::{escape_invisible_line, one_line, sanitize};
use super::text_format::{
    align_left, format_clock, format_count, format_dollars, format_duration, format_timestamp, pluralize,
    truncate,
};
use super::{Ink, TerminalOutput};
use crate::data_dir::DataDir;

/// How much detail to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventDetail {
    /// The main events of a team; each line names its task.
    Team,
    /// The main events of one task, without its name.
    OneTask,
    /// Everything in the journal of one task.
    Full,
}

/// Formats events as lines of text.
pub(crate) struct EventFormatter {
    term: TerminalOutput,
    detail: EventDetail,
    agents: HashMap<TaskId, AgentName>,
    pending_text: HashMap<TaskId, (String, String)>,
    /// Warnings printed so far: many tasks may repeat the same one.
    warned: HashSet<String>,
    /// The data directory, for commands that answer questions.
    data_dir: Option<DataDir>,
}

impl EventFormatter {
    /// Creates a formatter for a terminal.
    pub(crate) fn new(term: TerminalOutput, detail: EventDetail) -> Self {
        EventFormatter {
            term,
            detail,
            agents: HashMap::new(),
            pending_text: HashMap::new(),
            warned: HashSet::new(),
            data_dir: None,
        }
    }

    /// Sets the data directory, so that questions are printed with the command that answers them.
    pub(crate) fn with_data_dir(mut self, data_dir: &DataDir) -> Self {
        self.data_dir = Some(data_dir.clone());
        self
    }

    /// Returns whether this warning has not been printed before.
    pub(crate) fn is_new(&mut self, warning: &str) -> bool {
        self.warned.insert(warning.to_owned())
    }

    /// Remembers an event without printing it.
    pub(crate) fn note_event(&mut self, event: &Event) {
        if let EventKind::Submitted { agent, .. } = &event.kind {
            self.agents.insert(event.task, agent.clone());
        }
        if matches!(event.kind, EventKind::Usage { .. }) || event.kind.voids_partial_reply() {
            self.pending_text.remove(&event.task);
        }
    }

    /// Returns the lines for an event.
    pub(crate) fn format_event(&mut self, event: &Event) -> Vec<String> {
        let words = match &event.kind {
            EventKind::Warned { text } if !self.is_new(text) => Vec::new(),
            // Text is streamed in pieces: print it when the reply is complete.
            EventKind::Text { text } => {
                self.pending_text.entry(event.task).or_default().1.push_str(text);
                Vec::new()
            }
            EventKind::Reasoning { text } => {
                self.pending_text.entry(event.task).or_default().0.push_str(text);
                Vec::new()
            }
            EventKind::Usage { usage, model, .. } => {
                let (thought, said) = self.pending_text.remove(&event.task).unwrap_or_default();
                let mut words = Vec::new();
                if self.detail == EventDetail::Full && !thought.trim().is_empty() {
                    words.push((Ink::Faint, format!("thinks  {}", self.body(&thought))));
                }
                if !said.trim().is_empty() {
                    words.push((Ink::Plain, format!("says    {}", self.body(&said))));
                }
                if self.detail == EventDetail::Full {
                    let (read, written) = (format_count(usage.input), format_count(usage.output));
                    let model = one_line(model);
                    words.push((Ink::Faint, format!("used    {read} tokens in, {written} out ({model})")));
                }
                words
            }
            EventKind::Asked { question, asks, until } => {
                let mut words = vec![(Ink::Attention, format!("asks    {}", self.body(&asks.text)))];
                if let Some(data_dir) = &self.data_dir {
                    let command = data_dir.answer_command(event.task, Some(*question), &asks.wants);
                    words.push((Ink::Attention, format!("        answer it with:  {command}")));
                }
                if let Some(until) = until {
                    let deadline =
                        format!("        until {}, then the answer is no", format_timestamp(*until));
                    words.push((Ink::Attention, deadline));
                }
                words
            }
            what => self.describe_event(what).into_iter().collect(),
        };
        self.note_event(event);
        words.into_iter().map(|(ink, text)| self.format_line(event, ink, &text)).collect()
    }

    fn format_line(&self, event: &Event, ink: Ink, text: &str) -> String {
        let time = self.term.paint(Ink::Faint, &format_clock(event.at));
        let text = match self.detail {
            EventDetail::OneTask => {
                self.term.paint(ink, &truncate(text, self.term.size().0.saturating_sub(10)))
            }
            EventDetail::Team | EventDetail::Full => self.term.paint(ink, text),
        };
        match self.detail {
            EventDetail::Full | EventDetail::OneTask => format!("{time}  {text}"),
            EventDetail::Team => {
                let agent = self.agents.get(&event.task).map_or("?", AgentName::as_str);
                let id = self.term.paint(Ink::Id, &event.task.to_string());
                format!("{time}  {id}  {}  {text}", align_left(&one_line(agent), 12))
            }
        }
    }

    fn body(&self, text: &str) -> String {
        match self.detail {
            EventDetail::Team | EventDetail::OneTask => truncate(&one_line(text), 160),
            EventDetail::Full => sanitize(text.trim_end()).replace('\n', "\n                  "),
        }
    }

    fn describe_event(&self, what: &EventKind) -> Option<(Ink, String)> {
        let all = self.detail == EventDetail::Full;
        Some(match what {
            EventKind::Submitted { headline, parent, continues, .. } => {
                let from = match (parent, continues) {
                    (_, Some(old)) => format!(" (continues {old})"),
                    (Some(parent), None) => format!(" (for {parent})"),
                    (None, None) => String::new(),
                };
                (Ink::Strong, format!("asked   {}{from}", one_line(headline)))
            }
            EventKind::Started { attempt } if attempt.0 > 1 => {
                (Ink::Busy, format!("started again, for the {} time", ordinal(attempt.0)))
            }
            EventKind::Started { .. } => (Ink::Busy, "started".to_owned()),
            EventKind::Call { tool, arguments, .. } => (
                Ink::Plain,
                format!("calls   {}", format_call(tool, arguments, if all { 2000 } else { 120 })),
            ),
            EventKind::Result { tool, output, is_error: true, .. } => {
                (Ink::Attention, format!("error   {}: {}", one_line(tool), self.body(output)))
            }
            EventKind::Result { tool, output, .. } if all => {
                (Ink::Faint, format!("got     {}: {}", one_line(tool), self.body(output)))
            }
            EventKind::Result { tool, output, .. } => {
                let lines = pluralize(output.lines().count(), "line");
                (Ink::Faint, format!("got     {lines} from {}", one_line(tool)))
            }
            EventKind::Progress { text } if all => (Ink::Faint, format!("…       {}", one_line(text))),
            EventKind::Progress { .. } | EventKind::Compacted if !all => return None,
            EventKind::Waiting { on, .. } => (Ink::Attention, format!("waits   for {}", describe_wait(on))),
            EventKind::Letter { from, text, .. } => {
                let from = match from {
                    Sender::Person => "a person".to_owned(),
                    Sender::Task(id) => id.to_string(),
                    Sender::System => "longhaul".to_owned(),
                };
                match ending(text).filter(|_| !all) {
                    Some(ending) => (Ink::Plain, format!("letter  from {from}: it {}", ending.verb())),
                    None => (Ink::Plain, format!("letter  from {from}: {}", self.body(text))),
                }
            }
            EventKind::Read { letters } if all => {
                (Ink::Faint, format!("read    {}", pluralize(letters.len(), "letter")))
            }
            EventKind::Read { .. } => return None,
            EventKind::Nudged { why } => {
                let why = match why {
                    NudgeReason::Empty => "the answer was empty".to_owned(),
                    NudgeReason::Shape => "the answer does not match the required schema".to_owned(),
                    NudgeReason::Begun => "the output of its start hooks".to_owned(),
                    NudgeReason::Repeating => "it repeats itself".to_owned(),
                    NudgeReason::Launching => {
                        "it has the results, but starts the same tasks again".to_owned()
                    }
                    NudgeReason::Unchanged => "its calls return nothing new".to_owned(),
                    NudgeReason::ToolsOff => "it is stuck in a loop, and must answer now".to_owned(),
                    NudgeReason::LastWord(limit) => format!("to give its final answer: {}", one_line(limit)),
                };
                (Ink::Attention, format!("nudged  {why}"))
            }
            EventKind::Answered { answer, .. } => {
                (Ink::Plain, format!("answer  {}", one_line(&answer.to_string())))
            }
            EventKind::Backgrounded => {
                (Ink::Plain, "moved   to the background: it no longer waits".to_owned())
            }
            EventKind::HookFailed { failure } => {
                (Ink::Attention, format!("hook    {}", one_line(&failure.to_string())))
            }
            EventKind::Warned { text } => (Ink::Attention, format!("warning {}", one_line(text))),
            EventKind::BudgetSet { budget } => (Ink::Plain, format!("allowed {}", budget_words(budget))),
            EventKind::Granted { pattern } => {
                (Ink::Plain, format!("allowed for the whole tree: {}", one_line(&pattern.to_string())))
            }
            EventKind::Stopping { cause } => (Ink::Attention, format!("to stop {cause}")),
            EventKind::Released { why } => {
                let why = match why {
                    ReleaseReason::Drained => "its process is ending".to_owned(),
                    ReleaseReason::Lost => "its process is gone".to_owned(),
                };
                (Ink::Attention, format!("released: {why}"))
            }
            EventKind::Finished { status, output, error } => {
                let mut text = status.to_string();
                if let Some(error) = error {
                    text = format!("{text}: {}", one_line(error));
                }
                if all && *status != Status::Completed && !output.trim().is_empty() {
                    text = format!("{text}\n                  {}", self.body(output));
                }
                (Ink::for_status(*status), text)
            }
            EventKind::Continued { by } => (Ink::Plain, format!("continued by {by}")),
            EventKind::Compacted => (Ink::Faint, "its conversation was compacted".to_owned()),
            EventKind::Sampled { usage, model, .. } => (Ink::Faint, describe_sampling(usage, model)),
            _ => return None,
        })
    }
}

fn ordinal(number: u32) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// Describes a model request made by an MCP server, with its usage.
pub(crate) fn describe_sampling(usage: &Usage, model: &str) -> String {
    let (read, written) = (format_count(usage.input), format_count(usage.output));
    format!("an MCP server asked the model: {read} tokens in, {written} out ({})", one_line(model))
}

/// Describes the budget of a task and everything below it.
pub(crate) fn budget_words(budget: &Budget) -> String {
    let tokens = budget.tokens.map(|tokens| format!("{} tokens", format_count(tokens)));
    let bounds =
        tokens.into_iter().chain(budget.cost.map(format_dollars)).chain(budget.time.map(format_duration));
    format!("{} in all, with what it has used", bounds.collect::<Vec<_>>().join(", "))
}

/// Describes what a task waits for.
pub(crate) fn describe_wait(on: &WaitReason) -> String {
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

/// Formats a tool call as one line: `search_files_content(TODO)`.
pub(crate) fn format_call(tool: &str, arguments: &str, most: usize) -> String {
    let shown = match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let value = |value: &serde_json::Value| match value {
                serde_json::Value::String(text) => escape_invisible_line(text),
                other => escape_invisible_line(&other.to_string()),
            };
            match map.iter().collect::<Vec<_>>()[..] {
                [(_, only)] => value(only),
                ref several => several
                    .iter()
                    .map(|(key, v)| format!("{}: {}", escape_invisible_line(key), value(v)))
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        }
        Err(_) => escape_invisible_line(arguments),
    };
    format!("{}({})", escape_invisible_line(tool), truncate(&shown, most))
}

/// Returns the most informative argument of a call, for narrow columns: `make all`, `src/main.rs`.
pub(crate) fn main_argument(arguments: &str) -> String {
    const MAIN: [&str; 12] = [
        "cmd",
        "command",
        "path",
        "file_path",
        "paths",
        "pattern",
        "query",
        "url",
        "task",
        "message",
        "agent",
        "name",
    ];
    let value_text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => escape_invisible_line(text),
        other => escape_invisible_line(&other.to_string()),
    };
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let main = MAIN.iter().find_map(|key| map.get(*key));
            let main = main.or_else(|| map.values().find(|value| value.is_string())).or(map.values().next());
            main.map(value_text).unwrap_or_default()
        }
        Err(_) => escape_invisible_line(arguments),
    }
}

/// Formats a tool call with its main argument only: `shell(make all)`.
pub(crate) fn brief_call(tool: &str, arguments: &str, most: usize) -> String {
    match main_argument(arguments) {
        main if main.is_empty() => escape_invisible_line(tool),
        main => format!("{}({})", escape_invisible_line(tool), truncate(&main, most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_call_the_main_argument_is_enough() {
        assert_eq!(brief_call("shell", r#"{"timeout":3,"cmd":"make\nall"}"#, 40), "shell(make ⏎ all)");
        assert_eq!(brief_call("odd", r#"{"n":3,"words":"some"}"#, 40), "odd(some)");
        assert_eq!(brief_call("odd", r#"{"n":3}"#, 40), "odd(3)");
        assert_eq!(brief_call("list", "{}", 40), "list");
        assert_eq!(brief_call("odd", "not \x1b[1mjson", 40), "odd(not ␛[1mjson)");
        assert_eq!(brief_call("shell", r#"{"cmd":"a long command"}"#, 6), "shell(a lon…)");
    }

    #[test]
    fn a_call_is_told_in_a_line() {
        assert_eq!(format_call("read_file", r#"{"path":"a\nb"}"#, 40), "read_file(a ⏎ b)");
        assert_eq!(format_call("run", r#"{"agent":"x","n":3}"#, 40), "run(agent: x, n: 3)");
        assert_eq!(format_call("list", "{}", 40), "list()");
        assert_eq!(format_call("odd", "not \x1b[1mjson", 40), "odd(not ␛[1mjson)");
    }

    #[test]
    fn numbers_have_their_endings() {
        let ordinals: Vec<_> = [1, 2, 3, 4, 11, 12, 21, 113].map(ordinal).into();
        assert_eq!(ordinals, ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "113th"]);
    }
}
