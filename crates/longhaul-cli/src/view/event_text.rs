//! Formats events as lines for a terminal. Their words are those of `longhaul::transcript`.

use std::collections::{HashMap, HashSet};

use longhaul::snapshot::{Event, EventKind};
use longhaul::transcript::{Detail, Level, describe, one_line};
use longhaul::{AgentName, TaskId};

use super::text_format::{align_left, format_clock, format_timestamp, truncate};
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
        let mut lines = match &event.kind {
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
            EventKind::Usage { .. } => {
                let (reasoning, text) = self.pending_text.remove(&event.task).unwrap_or_default();
                let written = |text: &String| !text.trim().is_empty();
                let reasoning = Some(reasoning).filter(written).map(|text| EventKind::Reasoning { text });
                let text = Some(text).filter(written).map(|text| EventKind::Text { text });
                [reasoning, text, Some(event.kind.clone())]
                    .into_iter()
                    .flatten()
                    .filter_map(|kind| self.phrase(&kind))
                    .collect()
            }
            kind => self.phrase(kind).into_iter().collect(),
        };
        if let EventKind::Asked { question, asks, until } = &event.kind {
            if let Some(data_dir) = &self.data_dir {
                let command = data_dir.answer_command(event.task, Some(*question), &asks.wants);
                lines.push((Ink::Attention, format!("        answer it with:  {command}")));
            }
            if let Some(until) = until {
                let deadline = format!("        until {}, then the answer is no", format_timestamp(*until));
                lines.push((Ink::Attention, deadline));
            }
        }
        self.note_event(event);
        lines.into_iter().map(|(ink, text)| self.format_line(event, ink, &text)).collect()
    }

    fn phrase(&self, kind: &EventKind) -> Option<(Ink, String)> {
        let (detail, level) = match self.detail {
            EventDetail::Full => (Detail::Full, Level::Trace),
            EventDetail::Team | EventDetail::OneTask => (Detail::Brief, Level::Routine),
        };
        let phrase = describe(kind, detail);
        let text = || phrase.columns().replace('\n', "\n                  ");
        (phrase.level <= level).then(|| (phrase.tone.into(), text()))
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every event is worded in `longhaul::transcript`. A door may know a few kinds of events, for what it does
    /// besides showing them.
    #[test]
    fn no_door_has_words_of_its_own_for_events() {
        fn visit(directory: &Path, found: &mut Vec<(String, usize)>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.display().to_string();
                if path.is_dir() {
                    visit(&path, found);
                } else if name.ends_with(".rs") && !name.contains("test") {
                    let source = std::fs::read_to_string(&path).unwrap();
                    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
                    let kinds = ["EventKind::", "Entry::"].into_iter().flat_map(|of| {
                        let names = source.split(of).skip(1);
                        names.map(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).collect())
                    });
                    found.push((name, kinds.collect::<BTreeSet<String>>().len()));
                }
            }
        }
        let mut found = Vec::new();
        visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert!(found.len() > 50);
        for (file, kinds) in found {
            assert!(
                kinds <= 8,
                "{file} knows {kinds} kinds of events: put the words into longhaul::transcript"
            );
        }
    }
}
