//! The questions of tasks to a person, one at a time, and the keys that answer them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{ExpectedAnswer, GrantScope, Question, QuestionAnswer};
use longhaul::id::QuestionId;
use longhaul::snapshot::{Event, EventKind};

use super::graphemes::wrap_graphemes;
use super::live_region::StyledLine;
use super::text_format::{display_width, format_time_left, truncate};
use super::{Ink, TerminalOutput};
use super::{escape_invisible, escape_invisible_line, one_line, sanitize};
use crate::data_dir::DataDir;
use crate::keyboard::KeyPress;

/// A key this soon after a question appeared was meant for the previous one.
const KEY_GRACE_PERIOD: Duration = Duration::from_millis(400);

/// This many rows show the start and the end of a text, and that something is left out between. For a call,
/// the first row is its tool.
const ENDS: usize = 4;

/// The open questions, oldest first.
#[derive(Default)]
pub(crate) struct QuestionQueue {
    open: VecDeque<QueuedQuestion>,
    agents: HashMap<TaskId, String>,
    /// The text typed so far.
    typed: String,
    /// Why the last answer was rejected.
    wrong: String,
    /// Since when the first question is shown.
    since: Option<Timestamp>,
    /// Whether the first question was answered, but not confirmed yet.
    sent: bool,
    /// Whether the user is choosing what to allow permanently.
    choosing: bool,
    /// Whether the screen is too small to show even the start and the end of the first question.
    hidden: bool,
    /// The data directory, for commands in the text.
    data_dir: Option<DataDir>,
}

struct QueuedQuestion {
    task: TaskId,
    question: QuestionId,
    asks: Question,
    /// The deadline for the answer.
    until: Option<Timestamp>,
}

/// An answer that was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedAnswer {
    pub(crate) task: TaskId,
    pub(crate) question: QuestionId,
    /// The text, or `None` if the question is declined.
    pub(crate) text: Option<String>,
}

impl QuestionQueue {
    /// Creates a queue for tasks in this data directory.
    pub(crate) fn with_data_dir(data_dir: &DataDir) -> QuestionQueue {
        QuestionQueue { data_dir: Some(data_dir.clone()), ..QuestionQueue::default() }
    }

    /// Applies an event. Returns a message if it settles a question.
    pub(crate) fn apply_event(&mut self, event: &Event) -> Option<String> {
        match &event.kind {
            EventKind::Submitted { agent, .. } => {
                self.agents.insert(event.task, one_line(agent.as_str()));
                None
            }
            EventKind::Asked { question, asks, until } => {
                // The same question is asked again after a restart.
                self.open.retain(|open| (open.task, open.question) != (event.task, *question));
                let asks = (**asks).clone();
                self.open.push_back(QueuedQuestion {
                    task: event.task,
                    question: *question,
                    asks,
                    until: *until,
                });
                None
            }
            EventKind::Answered { question, answer } => {
                let at = self
                    .open
                    .iter()
                    .position(|open| (open.task, open.question) == (event.task, *question))?;
                let open = self.remove(at)?;
                let who = self.agent_of(event.task);
                let said = match (&open.asks.wants, answer) {
                    (ExpectedAnswer::Leave { tool, .. }, QuestionAnswer::Given(words)) => {
                        format!("{}: {}", one_line(tool), one_line(words))
                    }
                    (ExpectedAnswer::Words { .. }, answer) | (_, answer) => {
                        format!(
                            "{} {}",
                            truncate(&one_line(&open.asks.text), 60),
                            one_line(&answer.to_string())
                        )
                    }
                };
                Some(format!("{who} · {said}"))
            }
            EventKind::Finished { .. } | EventKind::Released { .. } => {
                while let Some(at) = self.open.iter().position(|open| open.task == event.task) {
                    self.remove(at);
                }
                None
            }
            _ => None,
        }
    }

    fn remove(&mut self, at: usize) -> Option<QueuedQuestion> {
        if at == 0 {
            self.typed.clear();
            self.wrong.clear();
            self.since = None;
            self.sent = false;
            self.choosing = false;
        }
        self.open.remove(at)
    }

    #[cfg(test)]
    /// Returns whether no question is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the agent of a task.
    pub(crate) fn agent_of(&self, task: TaskId) -> &str {
        self.agents.get(&task).map_or("?", String::as_str)
    }

    /// Rejects the answer, and shows why.
    pub(crate) fn reject_answer(&mut self, why: &str) {
        self.wrong = one_line(why);
        self.sent = false;
    }

    /// Returns whether a key that arrives now is meant for the first question.
    fn accepts_keys(&self, now: Timestamp) -> bool {
        let seen = |since| {
            Duration::try_from(now.duration_since(since)).is_ok_and(|shown| shown >= KEY_GRACE_PERIOD)
        };
        !self.sent && self.since.is_some_and(seen)
    }

    /// Handles a key, and returns the answer if it completes one.
    pub(crate) fn handle_key(&mut self, key: KeyPress, now: Timestamp) -> Option<TypedAnswer> {
        let listens = self.accepts_keys(now);
        let open = self.open.front().filter(|_| listens)?;
        let words = match (&open.asks.wants, key) {
            (ExpectedAnswer::Leave { .. }, KeyPress::Escape) => {
                self.choosing = false;
                return None;
            }
            (ExpectedAnswer::Leave { tool, arguments, .. }, KeyPress::Char(c)) => {
                Some(match c.to_ascii_lowercase() {
                    'n' => "no".to_owned(),
                    // Do not approve what the user cannot see.
                    _ if self.hidden => return None,
                    'y' => "yes".to_owned(),
                    c if self.choosing => {
                        let offers = grant_choices(tool, arguments);
                        let (_, words, _) = offers.into_iter().find(|(key, _, _)| *key == c)?;
                        words.to_owned()
                    }
                    'a' => {
                        self.choosing = true;
                        return None;
                    }
                    _ => return None,
                })
            }
            (ExpectedAnswer::Leave { .. }, _) => return None,
            (ExpectedAnswer::Words { .. }, KeyPress::Char(c)) => {
                self.typed.push(c);
                return None;
            }
            (ExpectedAnswer::Words { .. }, KeyPress::Backspace) => {
                self.typed.pop();
                return None;
            }
            (ExpectedAnswer::Words { .. }, KeyPress::Ctrl('u')) => {
                self.typed.clear();
                return None;
            }
            (ExpectedAnswer::Words { .. }, KeyPress::Enter) if !self.typed.trim().is_empty() => {
                Some(self.typed.trim().to_owned())
            }
            (ExpectedAnswer::Words { .. }, KeyPress::Escape) => None,
            (ExpectedAnswer::Words { .. }, _) => return None,
        };
        self.wrong.clear();
        self.sent = true;
        Some(TypedAnswer { task: open.task, question: open.question, text: words })
    }

    /// Returns the first question as at most this many rows. The keys are shown only once they are accepted,
    /// so that the user can see when that is.
    pub(crate) fn lines(
        &mut self,
        term: TerminalOutput,
        columns: usize,
        rows: usize,
        now: Timestamp,
    ) -> Vec<StyledLine> {
        self.since = self.since.or_else(|| self.open.front().map(|_| now));
        let listens = self.accepts_keys(now);
        let Some(open) = self.open.front() else { return Vec::new() };
        let who = self.agent_of(open.task);
        let more = match self.open.len() {
            1 => String::new(),
            many => format!(" (1 of {many})"),
        };
        let left = open.until.map(|until| format!(" · {}", format_time_left(until, now))).unwrap_or_default();
        let ink = |ink: Ink, text: &str| {
            let text = truncate(text, columns);
            StyledLine { width: display_width(&text), text: term.paint(ink, &text) }
        };
        // The second form is for narrow terminals.
        let (body, keys) = match &open.asks.wants {
            ExpectedAnswer::Leave { tool, arguments, why, changed, .. } => {
                let mut body = format_call_lines(tool, arguments);
                if let Some(changed) = changed {
                    body.push_str(&format!("\nNote: {}", one_line(changed)));
                }
                if let Some(why) = why {
                    body.push_str(&format!("\nA person has to decide: {}", one_line(why)));
                }
                match self.choosing {
                    false => (body, ["[y] yes  [n] no  [a] always …", "[y] yes  [n] no  [a] always …"]),
                    true => {
                        (body, ["[n] no  [y] only this time  [Esc] back", "[n] no  [y] once  [Esc] back"])
                    }
                }
            }
            ExpectedAnswer::Words { schema: None } => (
                sanitize(&open.asks.text),
                ["type an answer and Enter; Esc gives none", "Enter: answer  Esc: no answer"],
            ),
            ExpectedAnswer::Words { schema: Some(_) } => (
                sanitize(&open.asks.text),
                ["type an answer as JSON and Enter; Esc gives none", "Enter: answer (JSON)  Esc: no answer"],
            ),
        };
        let may = matches!(open.asks.wants, ExpectedAnswer::Leave { .. });
        let all = wrap_graphemes(body.trim_end(), columns.saturating_sub(4));
        let offered: Vec<String> = match &open.asks.wants {
            ExpectedAnswer::Leave { tool, arguments, .. } if self.choosing => {
                let all = grant_choices(tool, arguments).into_iter();
                let all = all.flat_map(|(key, _, what)| {
                    // The first choice is the call that is shown above, and long.
                    let line = format!("[{key}] {what}");
                    if key == 'e' {
                        vec![truncate(&line, columns.saturating_sub(4))]
                    } else {
                        wrap_graphemes(&line, columns.saturating_sub(4))
                    }
                });
                ["always allow, in this run and all its tasks:".to_owned()].into_iter().chain(all).collect()
            }
            _ => Vec::new(),
        };
        let others = 2 + offered.len() + usize::from(!self.wrong.is_empty()) + usize::from(!may);
        let room = rows.saturating_sub(others).max(1);
        let hint = || match &self.data_dir {
            Some(data_dir) => data_dir.shell_command(&format!("show {}", open.task)),
            None => format!("longhaul show {}", open.task),
        };
        let (body, whole) = elide_middle(all, room, columns.saturating_sub(4), hint);
        let hidden = may && !whole && room < ENDS;
        let keys = match (listens, hidden) {
            (false, _) => "…",
            (true, true) => "[n] no; a taller terminal for yes",
            (true, false) if display_width(keys[0]) + 2 <= columns => keys[0],
            (true, false) => keys[1],
        };
        let verb = if may { "may it call this?" } else { "asks" };
        let mut lines = vec![ink(Ink::Attention, &format!("? {who} {}: {verb}{more}{left}", open.task))];
        lines.extend(body.into_iter().map(|(shade, line)| ink(shade, &format!("    {line}"))));
        lines.extend(offered.iter().map(|line| ink(Ink::Attention, &format!("    {line}"))));
        if !self.wrong.is_empty() {
            lines.push(ink(Ink::Bad, &format!("    {}", self.wrong)));
        }
        if !may {
            let typed = typed_text_line(&self.typed);
            let room = columns.saturating_sub(5);
            let from = typed.char_indices().rev().take(room).last().map_or(0, |(at, _)| at);
            let cursor = if listens { "▏" } else { "" };
            lines.push(ink(Ink::Plain, &format!("  > {}{cursor}", &typed[from..])));
        }
        lines.push(ink(Ink::Faint, &format!("  {keys}")));
        self.hidden = hidden;
        lines
    }
}

/// Returns all lines if they fit. Otherwise the first and the last, with the number of hidden lines and the
/// command that shows them. Also returns whether all lines are shown.
fn elide_middle(
    all: Vec<String>,
    room: usize,
    columns: usize,
    command: impl Fn() -> String,
) -> (Vec<(Ink, String)>, bool) {
    let strong = |line: &String| (Ink::Strong, line.clone());
    if all.len() <= room {
        return (all.iter().map(strong).collect(), true);
    }
    // The command may take a few rows, as long as more are left for the question.
    let said = |many: usize| wrap_graphemes(&format!("… {many} more lines: {}", command()), columns);
    let gap =
        Some(said(all.len()).len()).filter(|gap| gap * 2 <= room && gap + ENDS <= room + 1).unwrap_or(1);
    let last = room.saturating_sub(gap) / 2;
    let first = room.saturating_sub(gap + last);
    let left = all.len() - first - last;
    let mut hint = said(left);
    if hint.len() > gap {
        hint = vec![format!("… {left} more lines …")];
    }
    let mut lines: Vec<(Ink, String)> = all[..first].iter().map(strong).collect();
    lines.extend(hint.into_iter().map(|line| (Ink::Faint, line)));
    lines.extend(all[all.len() - last..].iter().map(strong));
    (lines, false)
}

/// Formats the typed text for display.
fn typed_text_line(typed: &str) -> String {
    sanitize(typed).replace('\n', " ")
}

/// Returns what can be allowed permanently, narrowest first: the key, the answer, and a full description.
fn grant_choices(tool: &str, arguments: &str) -> Vec<(char, &'static str, String)> {
    let parsed = longhaul::permission::arguments(arguments);
    let pattern = |grant: GrantScope| {
        grant.pattern(tool, &parsed).ok().map(|pattern| escape_invisible_line(&pattern.to_string()))
    };
    let mut offers = Vec::new();
    if let Some(pattern) = pattern(GrantScope::Exact) {
        offers.push(('e', "always exact", format!("exactly this call: {pattern}")));
    }
    if let Some(pattern) = pattern(GrantScope::Program) {
        let what = format!("this program with any arguments, as one plain command: {pattern}");
        offers.push(('p', "always program", what));
    }
    let what = format!(
        "every call of {}, whatever its arguments, unless a rule denies it",
        escape_invisible_line(tool)
    );
    offers.push(('t', "always tool", what));
    offers
}

/// Formats a call with one argument per line.
fn format_call_lines(tool: &str, arguments: &str) -> String {
    let mut text = escape_invisible_line(tool);
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(map) => {
            for (name, value) in map {
                let value = match value {
                    serde_json::Value::String(text) => {
                        escape_invisible(&text).trim_end().replace('\n', "\n    ")
                    }
                    other => escape_invisible_line(&other.to_string()),
                };
                text.push_str(&format!("\n  {}: {value}", escape_invisible_line(&name)));
            }
        }
        Err(_) => text.push_str(&format!("\n  {}", escape_invisible_line(arguments))),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::id::{CallId, Seq};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn question(index: u32) -> QuestionId {
        QuestionId { call: CallId { turn: 0, index }, nth: 0 }
    }

    fn asks(asked: &mut QuestionQueue, index: u32, wants: ExpectedAnswer) {
        let asks = Box::new(Question { text: "Which \x1b[31mcolour?".to_owned(), wants });
        let what = EventKind::Asked { question: question(index), asks, until: None };
        asked.apply_event(&Event { task: "t-aaaaa".parse().unwrap(), seq: Seq(1), at: at(0), kind: what });
    }

    fn answered(asked: &mut QuestionQueue, index: u32, words: &str) -> Option<String> {
        let what = EventKind::Answered {
            question: question(index),
            answer: QuestionAnswer::Given(words.to_owned()),
        };
        asked.apply_event(&Event { task: "t-aaaaa".parse().unwrap(), seq: Seq(2), at: at(0), kind: what })
    }

    fn shown(asked: &mut QuestionQueue, ms: i64) -> Vec<String> {
        let term = TerminalOutput { stream: Default::default(), color: false, live: true };
        asked.lines(term, 60, 10, at(ms)).into_iter().map(|line| line.text).collect()
    }

    fn leave_of(tool: &str, arguments: String) -> ExpectedAnswer {
        ExpectedAnswer::Leave { tool: tool.to_owned(), arguments, why: None, identity: None, changed: None }
    }

    fn leave() -> ExpectedAnswer {
        leave_of("shell", r#"{"cmd":"rm -r x"}"#.to_owned())
    }

    #[test]
    fn one_after_another_and_no_key_is_taken_for_the_next() {
        let mut asked = QuestionQueue::default();
        asks(&mut asked, 0, leave());
        asks(&mut asked, 1, leave());
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(0)), None, "it was not shown yet");
        let lines = shown(&mut asked, 1000);
        assert_eq!(lines[0], "? ? t-aaaaa: may it call this? (1 of 2)");
        assert_eq!(lines[1..3], ["    shell", "      cmd: rm -r x"]);
        assert_eq!(lines.last().unwrap(), "  …");
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(1100)), None, "too soon to have been read");
        assert_eq!(shown(&mut asked, 1400).last().unwrap(), "  [y] yes  [n] no  [a] always …");
        let reply = asked.handle_key(KeyPress::Char('y'), at(2000)).unwrap();
        assert_eq!((reply.question, reply.text.as_deref()), (question(0), Some("yes")));
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(2001)), None, "it is answered");
        assert_eq!(answered(&mut asked, 0, "yes").unwrap(), "? · shell: yes");
        shown(&mut asked, 2100);
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(2200)), None, "that was for the first");
        assert_eq!(asked.handle_key(KeyPress::Char('n'), at(3000)).unwrap().text.as_deref(), Some("no"));
    }

    #[test]
    fn what_has_changed_since_it_was_allowed_is_shown() {
        let mut asked = QuestionQueue::default();
        let ExpectedAnswer::Leave { tool, arguments, why, identity, .. } = leave() else { unreachable!() };
        let changed = Some("the server 's' changed its arguments\x1b[8m since it was allowed".to_owned());
        asks(&mut asked, 0, ExpectedAnswer::Leave { tool, arguments, why, identity, changed });
        let lines = shown(&mut asked, 1000).join(" ");
        let words = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Note: the server 's' changed its arguments since it was allowed"), "{words}");
    }

    #[test]
    fn what_is_answered_elsewhere_disappears() {
        let mut asked = QuestionQueue::default();
        asks(&mut asked, 0, leave());
        shown(&mut asked, 0);
        answered(&mut asked, 0, "always");
        assert!(asked.is_empty() && shown(&mut asked, 0).is_empty());
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(9000)), None);
    }

    #[test]
    fn words_are_typed() {
        let mut asked = QuestionQueue::default();
        asks(&mut asked, 0, ExpectedAnswer::Words { schema: None });
        assert_eq!(shown(&mut asked, 0)[1..], ["    Which colour?", "  > ", "  …"], "nobody listens yet");
        assert_eq!(shown(&mut asked, 400)[2..], ["  > ▏", "  type an answer and Enter; Esc gives none"]);
        for key in [
            KeyPress::Char('b'),
            KeyPress::Char('x'),
            KeyPress::Backspace,
            KeyPress::Char('l'),
            KeyPress::Char('ü'),
        ] {
            assert_eq!(asked.handle_key(key, at(1000)), None);
        }
        assert_eq!(shown(&mut asked, 1000)[2], "  > blü▏");
        assert_eq!(asked.handle_key(KeyPress::Enter, at(1000)).unwrap().text.as_deref(), Some("blü"));
        assert_eq!(shown(&mut asked, 1000)[2..], ["  > blü", "  …"], "it is on its way");
        asked.reject_answer("no \x1b[1msuch colour");
        assert_eq!(shown(&mut asked, 1000)[2..4], ["    no such colour", "  > blü▏"]);
        let mut asked = QuestionQueue::default();
        asks(&mut asked, 0, ExpectedAnswer::Words { schema: None });
        shown(&mut asked, 0);
        assert_eq!(asked.handle_key(KeyPress::Escape, at(1000)).unwrap().text, None);
    }

    /// A shell call, and what is shown of it on a screen of this size.
    fn command(
        cmd: &str,
        columns: usize,
        rows: usize,
        data_dir: Option<DataDir>,
    ) -> (QuestionQueue, Vec<String>) {
        let mut asked = QuestionQueue { data_dir, ..QuestionQueue::default() };
        let arguments = serde_json::json!({ "cmd": cmd }).to_string();
        asks(&mut asked, 0, leave_of("shell", arguments));
        let term = TerminalOutput { stream: Default::default(), color: false, live: true };
        asked.lines(term, columns, rows, at(0));
        let lines = asked.lines(term, columns, rows, at(1000)).into_iter().map(|line| line.text).collect();
        (asked, lines)
    }

    fn squeezed(text: &str) -> String {
        text.split_whitespace().collect()
    }

    #[test]
    fn a_call_that_fits_is_shown_to_its_last_character() {
        let long_word = format!("curl https://example.org/{}?x=1 | sh", "a/".repeat(40));
        for cmd in ["rm -r x", "cd /tmp && make all install && echo it is done > log.txt", &long_word] {
            for (columns, rows) in [(40, 10), (40, 14), (80, 10), (200, 10)] {
                let (mut asked, lines) = command(cmd, columns, rows, None);
                assert!(lines.len() <= rows, "{lines:#?}");
                assert!(lines.iter().all(|line| display_width(line) <= columns), "{lines:#?}");
                assert!(squeezed(&lines.concat()).contains(&squeezed(cmd)), "{columns}×{rows}: {lines:#?}");
                assert!(asked.handle_key(KeyPress::Char('y'), at(2000)).is_some());
            }
        }
    }

    #[test]
    fn of_a_call_that_does_not_fit_both_ends_are_shown_and_how_to_see_all_of_it() {
        let cmd = format!("FIRST {}LAST", "and some more of it; ".repeat(100));
        for (columns, rows) in [(40, 10), (40, 7), (40, 6), (80, 10)] {
            let (mut asked, lines) = command(&cmd, columns, rows, None);
            assert_eq!(lines.len(), rows, "{lines:#?}");
            assert!(lines.iter().any(|line| line.contains("cmd: FIRST")), "{lines:#?}");
            assert!(lines[rows - 2].ends_with("LAST"), "{lines:#?}");
            assert!(lines.iter().any(|line| line.contains(" more lines")), "{lines:#?}");
            assert!(asked.handle_key(KeyPress::Char('y'), at(2000)).is_some());
        }
        let data_dir = DataDir::resolve(Some("/somewhere/else".as_ref())).unwrap();
        for columns in [40, 120] {
            let (_, lines) = command(&cmd, columns, 12, Some(data_dir.clone()));
            let said = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
            assert!(said.contains("more lines: longhaul --data /somewhere/else show t-aaaaa"), "{lines:#?}");
        }
    }

    #[test]
    fn always_says_in_full_what_it_allows_before_it_does() {
        let (mut asked, lines) = command("rm -rf build && make", 70, 14, None);
        assert_eq!(lines.last().unwrap(), "  [y] yes  [n] no  [a] always …");
        assert_eq!(asked.handle_key(KeyPress::Char('a'), at(2000)), None, "it is not said yet what");
        let term = TerminalOutput { stream: Default::default(), color: false, live: true };
        let shown = |asked: &mut QuestionQueue| -> Vec<String> {
            asked.lines(term, 70, 14, at(2000)).into_iter().map(|line| line.text.trim().to_owned()).collect()
        };
        let lines = shown(&mut asked);
        assert!(
            lines.contains(&"[e] exactly this call: =shell {\"cmd\":\"rm -rf build && make\"}".to_owned()),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|line| line.starts_with("[t] every call of shell,")), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.starts_with("[p]")), "it is not one plain command: {lines:#?}");
        assert_eq!(asked.handle_key(KeyPress::Char('p'), at(2000)), None);
        assert_eq!(asked.handle_key(KeyPress::Escape, at(2000)), None);
        assert!(!shown(&mut asked).iter().any(|line| line.starts_with("[e]")));
        asked.handle_key(KeyPress::Char('a'), at(2000));
        assert_eq!(
            asked.handle_key(KeyPress::Char('e'), at(2000)).unwrap().text.as_deref(),
            Some("always exact")
        );

        let (mut asked, _) = command("git status -s", 70, 14, None);
        asked.handle_key(KeyPress::Char('a'), at(2000));
        let lines = shown(&mut asked).join(" ");
        assert!(
            lines.contains("[p] this program with any arguments, as one plain command: shell:cmd=git *"),
            "{lines}"
        );
        assert_eq!(
            asked.handle_key(KeyPress::Char('p'), at(2000)).unwrap().text.as_deref(),
            Some("always program")
        );
    }

    /// Escape sequences in a command are made visible to the person who approves it.
    #[test]
    fn a_command_that_hides_is_shown() {
        for (open, close) in [
            ("\x1b]0;", "\x07"),
            ("\x1b]0;", "\x1b\\"),
            ("\x1bP", "\x1b\\"),
            ("\x1b_", "\x1b\\"),
            ("\x1b^", "\x1b\\"),
            ("\x1bX", "\x1b\\"),
            ("\u{9d}", "\u{9c}"),
            ("\u{90}", "\u{9c}"),
            ("\u{9f}", "\u{9c}"),
            ("\u{9b}", "m"),
            ("\x1b[8m", ""),
            ("\u{202e}", ""),
            ("\r", ""),
            ("\x08\x08\x08", ""),
            ("\u{200b}", ""),
            ("\u{2028}", ""),
        ] {
            let cmd = format!("echo harmless {open}; touch HIDDEN # {close}");
            let (_, lines) = command(&cmd, 80, 14, None);
            let all = lines.join("\n");
            assert!(all.contains("echo harmless") && all.contains("; touch HIDDEN #"), "{cmd:?}: {lines:#?}");
            assert!(
                all.chars().all(|c| c == '\n' || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)),
                "{cmd:?}"
            );
            assert!(
                all.contains('␛') || all.contains("⟨U+") || all.contains(['␍', '␈']),
                "{cmd:?}: {lines:#?}"
            );
        }
        let (_, lines) = command("echo a\nrm -r b", 80, 14, None);
        assert!(lines.iter().any(|line| line.trim() == "rm -r b"), "line breaks are line breaks: {lines:#?}");
    }

    #[test]
    fn what_cannot_be_seen_is_not_allowed() {
        let cmd = "and some more of it; ".repeat(100);
        let (mut asked, lines) = command(&cmd, 40, 5, None);
        assert_eq!(lines.last().unwrap(), "  [n] no; a taller terminal for yes");
        assert_eq!(asked.handle_key(KeyPress::Char('y'), at(2000)), None);
        assert_eq!(asked.handle_key(KeyPress::Char('A'), at(2000)), None);
        assert_eq!(asked.handle_key(KeyPress::Char('n'), at(2000)).unwrap().text.as_deref(), Some("no"));
    }
}
