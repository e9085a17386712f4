//! Events, told in words.

use std::collections::{HashMap, HashSet};

use longhaul::entry::{Budget, Nudge, Release, Sender, Wait};
use longhaul::message::Usage;
use longhaul::snapshot::{Event, Happening};
use longhaul::{AgentName, Status, TaskId};

use super::clean::{clean, one_line, visible_line};
use super::letter::ending;
use super::words::{clock, count, dollars, elapsed, fit, left, many, moment};
use super::{Ink, Term};
use crate::place::Place;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What is worth a line while a team works; each line says whose it is.
    Lines,
    /// The same of one task, which need not be named.
    Own,
    /// Everything that is in the journal of one task.
    All,
}

/// Tells events as lines of text.
pub(crate) struct Teller {
    term: Term,
    detail: Detail,
    agents: HashMap<TaskId, AgentName>,
    said: HashMap<TaskId, (String, String)>,
    /// What was warned of: many tasks may say the same, and nobody wants to hear it from all of them.
    warned: HashSet<String>,
    /// Where the tasks are: for the words that answer what is asked.
    place: Option<Place>,
}

impl Teller {
    /// A teller for a terminal.
    pub(crate) fn new(term: Term, detail: Detail) -> Self {
        Teller {
            term,
            detail,
            agents: HashMap::new(),
            said: HashMap::new(),
            warned: HashSet::new(),
            place: None,
        }
    }

    /// The same, for tasks of a place: what is asked is told with the command that answers it.
    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    /// Whether this has not been warned of before.
    pub(crate) fn is_new(&mut self, warning: &str) -> bool {
        self.warned.insert(warning.to_owned())
    }

    /// Remembers an event that need not be told.
    pub(crate) fn skip(&mut self, event: &Event) {
        if let Happening::Submitted { agent, .. } = &event.what {
            self.agents.insert(event.task, agent.clone());
        }
        if matches!(event.what, Happening::Usage { .. }) || event.what.voids_words() {
            self.said.remove(&event.task);
        }
    }

    /// The lines that an event is worth.
    pub(crate) fn tell(&mut self, event: &Event) -> Vec<String> {
        let words = match &event.what {
            Happening::Warned { text } if !self.is_new(text) => Vec::new(),
            // Live words come in pieces: they are told when the reply is whole.
            Happening::Text { text } => {
                self.said.entry(event.task).or_default().1.push_str(text);
                Vec::new()
            }
            Happening::Reasoning { text } => {
                self.said.entry(event.task).or_default().0.push_str(text);
                Vec::new()
            }
            Happening::Usage { usage, model, .. } => {
                let (thought, said) = self.said.remove(&event.task).unwrap_or_default();
                let mut words = Vec::new();
                if self.detail == Detail::All && !thought.trim().is_empty() {
                    words.push((Ink::Faint, format!("thinks  {}", self.body(&thought))));
                }
                if !said.trim().is_empty() {
                    words.push((Ink::Plain, format!("says    {}", self.body(&said))));
                }
                if self.detail == Detail::All {
                    let (read, written) = (count(usage.input), count(usage.output));
                    let model = one_line(model);
                    words.push((Ink::Faint, format!("used    {read} tokens in, {written} out ({model})")));
                }
                words
            }
            Happening::Asked { question, asks, until } => {
                let mut words = vec![(Ink::Waits, format!("asks    {}", self.body(&asks.text)))];
                if let Some(place) = &self.place {
                    let command = place.answer(event.task, Some(*question), &asks.wants);
                    words.push((Ink::Waits, format!("        answer it with:  {command}")));
                }
                if let Some(until) = until {
                    let told = format!("        until {}, then the answer is no", moment(*until));
                    words.push((Ink::Waits, told));
                }
                words
            }
            what => self.words(what).into_iter().collect(),
        };
        self.skip(event);
        words.into_iter().map(|(ink, text)| self.line(event, ink, &text)).collect()
    }

    fn line(&self, event: &Event, ink: Ink, text: &str) -> String {
        let time = self.term.paint(Ink::Faint, &clock(event.at));
        let text = match self.detail {
            Detail::Own => self.term.paint(ink, &fit(text, self.term.size().0.saturating_sub(10))),
            Detail::Lines | Detail::All => self.term.paint(ink, text),
        };
        match self.detail {
            Detail::All | Detail::Own => format!("{time}  {text}"),
            Detail::Lines => {
                let agent = self.agents.get(&event.task).map_or("?", AgentName::as_str);
                let id = self.term.paint(Ink::Id, &event.task.to_string());
                format!("{time}  {id}  {}  {text}", left(&one_line(agent), 12))
            }
        }
    }

    fn body(&self, text: &str) -> String {
        match self.detail {
            Detail::Lines | Detail::Own => fit(&one_line(text), 160),
            Detail::All => clean(text.trim_end()).replace('\n', "\n                  "),
        }
    }

    fn words(&self, what: &Happening) -> Option<(Ink, String)> {
        let all = self.detail == Detail::All;
        Some(match what {
            Happening::Submitted { headline, parent, continues, .. } => {
                let from = match (parent, continues) {
                    (_, Some(old)) => format!(" (continues {old})"),
                    (Some(parent), None) => format!(" (for {parent})"),
                    (None, None) => String::new(),
                };
                (Ink::Strong, format!("asked   {}{from}", one_line(headline)))
            }
            Happening::Started { attempt } if attempt.0 > 1 => {
                (Ink::Busy, format!("started again, for the {} time", ordinal(attempt.0)))
            }
            Happening::Started { .. } => (Ink::Busy, "started".to_owned()),
            Happening::Call { tool, arguments, .. } => {
                (Ink::Plain, format!("calls   {}", call(tool, arguments, if all { 2000 } else { 120 })))
            }
            Happening::Result { tool, output, is_error: true, .. } => {
                (Ink::Waits, format!("error   {}: {}", one_line(tool), self.body(output)))
            }
            Happening::Result { tool, output, .. } if all => {
                (Ink::Faint, format!("got     {}: {}", one_line(tool), self.body(output)))
            }
            Happening::Result { tool, output, .. } => {
                let lines = many(output.lines().count(), "line");
                (Ink::Faint, format!("got     {lines} from {}", one_line(tool)))
            }
            Happening::Progress { text } if all => (Ink::Faint, format!("…       {}", one_line(text))),
            Happening::Progress { .. } | Happening::Compacted if !all => return None,
            Happening::Waiting { on, .. } => (Ink::Waits, format!("waits   for {}", waits_for(on))),
            Happening::Letter { from, text, .. } => {
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
            Happening::Read { letters } if all => {
                (Ink::Faint, format!("read    {}", many(letters.len(), "letter")))
            }
            Happening::Read { .. } => return None,
            Happening::Nudged { why } => {
                let why = match why {
                    Nudge::Empty => "it answered nothing".to_owned(),
                    Nudge::Shape => "its answer has not the form that is asked for".to_owned(),
                    Nudge::Begun => "what its hooks say at the beginning".to_owned(),
                    Nudge::Repeating => "it repeats itself".to_owned(),
                    Nudge::LastWord(limit) => format!("its last word: {}", one_line(limit)),
                };
                (Ink::Waits, format!("told    {why}"))
            }
            Happening::Answered { answer, .. } => {
                (Ink::Plain, format!("answer  {}", one_line(&answer.to_string())))
            }
            Happening::Backgrounded => {
                (Ink::Plain, "told    not to wait: it goes on in the background".to_owned())
            }
            Happening::HookFailed { failure } => {
                (Ink::Waits, format!("hook    {}", one_line(&failure.to_string())))
            }
            Happening::Warned { text } => (Ink::Waits, format!("warning {}", one_line(text))),
            Happening::BudgetSet { budget } => (Ink::Plain, format!("allowed {}", budget_words(budget))),
            Happening::Granted { pattern } => {
                (Ink::Plain, format!("allowed for the whole tree: {}", one_line(&pattern.to_string())))
            }
            Happening::Stopping { cause } => (Ink::Waits, format!("to stop {cause}")),
            Happening::Released { why } => {
                let why = match why {
                    Release::Drained => "its process is ending".to_owned(),
                    Release::Lost => "its process is gone".to_owned(),
                };
                (Ink::Waits, format!("given back: {why}"))
            }
            Happening::Finished { status, output, error } => {
                let mut text = status.to_string();
                if let Some(error) = error {
                    text = format!("{text}: {}", one_line(error));
                }
                if all && *status != Status::Completed && !output.trim().is_empty() {
                    text = format!("{text}\n                  {}", self.body(output));
                }
                (Ink::of(*status), text)
            }
            Happening::Continued { by } => (Ink::Plain, format!("continued by {by}")),
            Happening::Compacted => (Ink::Faint, "its conversation was made shorter".to_owned()),
            Happening::Sampled { usage, model, .. } => (Ink::Faint, sampled(usage, model)),
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

/// That an MCP server has asked the model, and what that has used.
pub(crate) fn sampled(usage: &Usage, model: &str) -> String {
    let (read, written) = (count(usage.input), count(usage.output));
    format!("an MCP server asked the model: {read} tokens in, {written} out ({})", one_line(model))
}

/// What a task may use with all below it, in words.
pub(crate) fn budget_words(budget: &Budget) -> String {
    let tokens = budget.tokens.map(|tokens| format!("{} tokens", count(tokens)));
    let bounds = tokens.into_iter().chain(budget.cost.map(dollars)).chain(budget.time.map(elapsed));
    format!("{} in all, with what it has used", bounds.collect::<Vec<_>>().join(", "))
}

/// What is waited for, in words.
pub(crate) fn waits_for(on: &Wait) -> String {
    match on {
        Wait::Tasks(ids) if ids.is_empty() => "its tasks".to_owned(),
        Wait::Tasks(ids) if ids.len() <= 2 => {
            ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
        }
        Wait::Tasks(ids) => many(ids.len(), "task"),
        Wait::Letter => "a letter".to_owned(),
        Wait::Person(what) => format!("a person: {}", one_line(what)),
        Wait::Provider(why) => format!("its provider: {}", one_line(why)),
    }
}

/// A tool call in a line: `search_files_content(TODO)`.
pub(crate) fn call(tool: &str, arguments: &str, most: usize) -> String {
    let told = match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let value = |value: &serde_json::Value| match value {
                serde_json::Value::String(text) => visible_line(text),
                other => visible_line(&other.to_string()),
            };
            match map.iter().collect::<Vec<_>>()[..] {
                [(_, only)] => value(only),
                ref several => several
                    .iter()
                    .map(|(key, v)| format!("{}: {}", visible_line(key), value(v)))
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        }
        Err(_) => visible_line(arguments),
    };
    format!("{}({})", visible_line(tool), fit(&told, most))
}

/// The argument that says most of a call, for where there is little room: `make all`, `src/main.rs`.
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
    let told = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => visible_line(text),
        other => visible_line(&other.to_string()),
    };
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            let main = MAIN.iter().find_map(|key| map.get(*key));
            let main = main.or_else(|| map.values().find(|value| value.is_string())).or(map.values().next());
            main.map(told).unwrap_or_default()
        }
        Err(_) => visible_line(arguments),
    }
}

/// A tool call in few words: `shell(make all)`, whatever other arguments it has.
pub(crate) fn brief_call(tool: &str, arguments: &str, most: usize) -> String {
    match main_argument(arguments) {
        main if main.is_empty() => visible_line(tool),
        main => format!("{}({})", visible_line(tool), fit(&main, most)),
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
        assert_eq!(call("read_file", r#"{"path":"a\nb"}"#, 40), "read_file(a ⏎ b)");
        assert_eq!(call("run", r#"{"agent":"x","n":3}"#, 40), "run(agent: x, n: 3)");
        assert_eq!(call("list", "{}", 40), "list()");
        assert_eq!(call("odd", "not \x1b[1mjson", 40), "odd(not ␛[1mjson)");
    }

    #[test]
    fn numbers_have_their_endings() {
        let told: Vec<_> = [1, 2, 3, 4, 11, 12, 21, 113].map(ordinal).into();
        assert_eq!(told, ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "113th"]);
    }
}
