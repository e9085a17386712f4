//! Questions to a person as a state machine without a terminal: when a key counts, and what it answers.
//!
//! `run`, `attach` and the TUI draw it and pass it keys.
//!
//! A key counts only
//! - some time ([`GUARD_TIME`]) after its question appeared: a key typed before was meant for something else;
//! - until the answer is on its way, and before the deadline;
//! - for *yes* and *always*: if the call is visible, all of it or both of its ends ([`Visibility`]).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::entry::{Approval, ExpectedAnswer, GrantScope, Question, QuestionAnswer};
use crate::id::{QuestionId, TaskId};
use crate::permission;
use crate::snapshot::{Event, EventKind};
use crate::transcript::{escape_invisible_line, one_line};

/// A key this soon after a question appeared was meant for something else.
pub const GUARD_TIME: Duration = Duration::from_millis(400);

/// With this many rows, the start and the end of a call are shown, and that something is left out between.
const ENDS: usize = 4;

/// An open question.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedQuestion {
    /// The task that asks.
    pub task: TaskId,
    /// The question's id.
    pub id: QuestionId,
    /// The question.
    pub asks: Question,
    /// When it expires.
    pub until: Option<Timestamp>,
}

impl AskedQuestion {
    /// Whether it asks for the approval of a call.
    pub fn is_approval(&self) -> bool {
        matches!(self.asks.wants, ExpectedAnswer::Leave { .. })
    }
}

/// How much of the first question is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Visibility {
    /// Too little to approve it.
    #[default]
    Hidden,
    /// Its start and its end, how much is left out between, and how to see that.
    Ends,
    /// All of it.
    Whole,
}

/// A key, as every door has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKey {
    /// A character. For an approval: `y`, `n`, `a` (always …), and the key of a [`GrantChoice`].
    Char(char),
    /// Sends the typed answer.
    Enter,
    /// Leaves the choice; declines a question in words.
    Escape,
    /// Deletes a character.
    Backspace,
    /// Deletes all that was typed.
    Clear,
}

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// It answers the first question.
    Answer(GivenAnswer),
    /// What is shown has changed.
    Changed,
    /// Nothing, for this reason.
    Ignored(Ignored),
}

/// Why a key did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// No question is open.
    NothingAsked,
    /// The question has not been visible for long enough.
    TooSoon,
    /// The answer is on its way.
    Sent,
    /// The deadline has passed.
    Expired,
    /// Nobody can approve what is not visible.
    NotVisible,
    /// The key means nothing here.
    NoMeaning,
}

/// An answer to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenAnswer {
    /// The task that asks.
    pub task: TaskId,
    /// The question.
    pub question: QuestionId,
    /// The answer, or `None` if the person declines.
    pub text: Option<String>,
}

/// Something that can be allowed from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantChoice {
    /// The key that chooses it.
    pub key: char,
    /// The answer that allows it.
    pub answer: &'static str,
    /// What it allows, in full.
    pub text: String,
}

/// The open questions, in the order in which they are shown.
#[derive(Debug, Clone, Default)]
pub struct QuestionQueue {
    open: VecDeque<AskedQuestion>,
    agents: HashMap<TaskId, String>,
    /// The guard time, if it is another one.
    guard: Option<Duration>,
    /// Since when the first question is shown, and how much of it.
    since: Option<Timestamp>,
    visibility: Visibility,
    sent: bool,
    choosing: bool,
    typed: String,
    rejected: String,
    /// Whether the last answer from here was an *always*, which may answer other questions too.
    granted: bool,
}

impl QuestionQueue {
    /// Sets the guard time.
    pub fn with_guard_time(self, guard: Duration) -> QuestionQueue {
        QuestionQueue { guard: Some(guard), ..self }
    }

    /// Applies an event. Returns a message if it settles a question.
    pub fn apply_event(&mut self, event: &Event) -> Option<String> {
        match &event.kind {
            EventKind::Submitted { agent, .. } => {
                self.agents.insert(event.task, one_line(agent.as_str()));
            }
            EventKind::Asked { question, asks, until } => {
                let (task, id, asks, until) = (event.task, *question, (**asks).clone(), *until);
                self.ask(AskedQuestion { task, id, asks, until });
            }
            EventKind::Answered { question, answer } => return self.settle(event.task, *question, answer),
            EventKind::Finished { .. } | EventKind::Released { .. } => {
                self.retain(|open| open.task != event.task);
            }
            _ => {}
        }
        None
    }

    /// Adds a question. The same question may be asked again, after a restart.
    pub fn ask(&mut self, asked: AskedQuestion) {
        match self.open.iter().position(|open| (open.task, open.id) == (asked.task, asked.id)) {
            Some(at) if self.open[at] == asked => {}
            Some(at) => {
                self.remove(at);
                self.open.push_back(asked);
            }
            None => self.open.push_back(asked),
        }
    }

    /// Removes a question that was answered, here or elsewhere, and says how.
    pub fn settle(&mut self, task: TaskId, id: QuestionId, answer: &QuestionAnswer) -> Option<String> {
        let at = self.open.iter().position(|open| (open.task, open.id) == (task, id))?;
        let here = (at == 0 && self.sent) || self.granted;
        let open = self.remove(at)?;
        let elsewhere = match (here, answer) {
            (false, QuestionAnswer::Given(_) | QuestionAnswer::Declined) => " (answered elsewhere)",
            _ => "",
        };
        let what = match &open.asks.wants {
            ExpectedAnswer::Leave { tool, .. } => format!("{}:", one_line(tool)),
            ExpectedAnswer::Words { .. } => one_line(&open.asks.headline()),
        };
        Some(format!("{} · {what} {}{elsewhere}", self.agent_of(task), one_line(&answer.to_string())))
    }

    /// Removes the questions that are no longer open. Returns whether the first one was among them, without an
    /// answer from here.
    pub fn retain(&mut self, is_open: impl Fn(&AskedQuestion) -> bool) -> bool {
        let gone = self.open.front().is_some_and(|first| !is_open(first)) && !self.sent;
        while let Some(at) = self.open.iter().position(|open| !is_open(open)) {
            self.remove(at);
        }
        gone
    }

    /// Shows this question first. Returns whether it is there.
    pub fn focus(&mut self, task: TaskId, id: QuestionId) -> bool {
        match self.open.iter().position(|open| (open.task, open.id) == (task, id)) {
            None => false,
            Some(0) => true,
            Some(at) => {
                let focused = self.open.remove(at);
                self.open.extend(focused);
                self.open.rotate_right(1);
                self.reset();
                true
            }
        }
    }

    fn remove(&mut self, at: usize) -> Option<AskedQuestion> {
        if at == 0 {
            self.reset();
        }
        self.open.remove(at)
    }

    /// Forgets all about the first question, because another one is first now.
    fn reset(&mut self) {
        self.typed.clear();
        self.rejected.clear();
        (self.since, self.visibility) = (None, Visibility::Hidden);
        (self.sent, self.choosing) = (false, false);
    }

    /// The question that is shown.
    pub fn first(&self) -> Option<&AskedQuestion> {
        self.open.front()
    }

    /// How many questions are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no question is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether this question is known.
    pub fn contains(&self, task: TaskId, id: QuestionId) -> bool {
        self.open.iter().any(|open| (open.task, open.id) == (task, id))
    }

    /// The agent of a task, or `?`.
    pub fn agent_of(&self, task: TaskId) -> &str {
        self.agents.get(&task).map_or("?", String::as_str)
    }

    /// What was typed so far.
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// Why the last answer was rejected; empty if it was not.
    pub fn rejected(&self) -> &str {
        &self.rejected
    }

    /// Rejects the answer that is on its way, if one is.
    pub fn reject_answer(&mut self, why: &str) {
        if std::mem::take(&mut self.sent) {
            self.rejected = one_line(why);
        }
    }

    /// Records how much of the first question is on the screen now. Every door calls this when it draws.
    pub fn mark_shown(&mut self, visibility: Visibility, now: Timestamp) {
        self.visibility = visibility;
        self.since = self.since.or_else(|| self.open.front().map(|_| now));
    }

    /// Why no key counts now.
    fn deaf(&self, now: Timestamp) -> Option<Ignored> {
        let Some(open) = self.open.front() else { return Some(Ignored::NothingAsked) };
        let shown = self.since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        match shown {
            _ if self.sent => Some(Ignored::Sent),
            _ if open.until.is_some_and(|until| until <= now) => Some(Ignored::Expired),
            Some(shown) if shown >= self.guard.unwrap_or(GUARD_TIME) => None,
            _ => Some(Ignored::TooSoon),
        }
    }

    /// Whether a key counts now.
    pub fn accepts_keys(&self, now: Timestamp) -> bool {
        self.deaf(now).is_none()
    }

    /// Whether the person is choosing what to allow from now on.
    pub fn is_choosing(&self) -> bool {
        self.choosing
    }

    /// What the person can choose to allow from now on: none, unless they are choosing.
    pub fn choices(&self) -> Vec<GrantChoice> {
        match self.open.front().map(|open| &open.asks.wants) {
            Some(ExpectedAnswer::Leave { tool, arguments, .. }) if self.choosing => {
                grant_choices(tool, arguments)
            }
            _ => Vec::new(),
        }
    }

    /// The keys that count, in words, and a shorter form.
    pub fn key_help(&self, now: Timestamp) -> [&'static str; 2] {
        let Some(open) = self.open.front().filter(|_| self.accepts_keys(now)) else { return ["…"; 2] };
        match (&open.asks.wants, self.choosing) {
            (ExpectedAnswer::Leave { .. }, _) if self.visibility == Visibility::Hidden => {
                ["[n] no; a taller terminal for yes"; 2]
            }
            (ExpectedAnswer::Leave { .. }, false) => ["[y] yes  [n] no  [a] always …"; 2],
            (ExpectedAnswer::Leave { .. }, true) => {
                ["[n] no  [y] only this time  [Esc] back", "[n] no  [y] once  [Esc] back"]
            }
            (ExpectedAnswer::Words { schema: None }, _) => {
                ["type an answer and Enter; Esc gives none", "Enter: answer  Esc: no answer"]
            }
            (ExpectedAnswer::Words { schema: Some(_) }, _) => {
                ["type an answer as JSON and Enter; Esc gives none", "Enter: answer (JSON)  Esc: no answer"]
            }
        }
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: QuestionKey, now: Timestamp) -> Reaction {
        if let Some(why) = self.deaf(now) {
            return Reaction::Ignored(why);
        }
        let Some(open) = self.open.front() else { return Reaction::Ignored(Ignored::NothingAsked) };
        let (task, question) = (open.task, open.id);
        let text = match (&open.asks.wants, key) {
            (ExpectedAnswer::Leave { .. }, QuestionKey::Char('n' | 'N')) => Some("no".to_owned()),
            (ExpectedAnswer::Leave { .. }, QuestionKey::Escape) => {
                self.choosing = false;
                return Reaction::Changed;
            }
            // Do not approve what the person cannot see.
            (ExpectedAnswer::Leave { .. }, QuestionKey::Char(_)) if self.visibility == Visibility::Hidden => {
                return Reaction::Ignored(Ignored::NotVisible);
            }
            (ExpectedAnswer::Leave { .. }, QuestionKey::Char('y' | 'Y')) => Some("yes".to_owned()),
            (ExpectedAnswer::Leave { .. }, QuestionKey::Char(c)) if self.choosing => {
                let chosen = self.choices().into_iter().find(|choice| choice.key == c.to_ascii_lowercase());
                let Some(chosen) = chosen else { return Reaction::Ignored(Ignored::NoMeaning) };
                Some(chosen.answer.to_owned())
            }
            (ExpectedAnswer::Leave { .. }, QuestionKey::Char('a' | 'A')) => {
                self.choosing = true;
                return Reaction::Changed;
            }
            (ExpectedAnswer::Leave { .. }, _) => return Reaction::Ignored(Ignored::NoMeaning),
            (ExpectedAnswer::Words { .. }, QuestionKey::Enter) if self.typed.trim().is_empty() => {
                return Reaction::Ignored(Ignored::NoMeaning);
            }
            (ExpectedAnswer::Words { .. }, QuestionKey::Enter) => Some(self.typed.trim().to_owned()),
            (ExpectedAnswer::Words { .. }, QuestionKey::Escape) => None,
            (ExpectedAnswer::Words { .. }, key) => {
                match key {
                    QuestionKey::Char(c) => self.typed.push(c),
                    QuestionKey::Backspace => drop(self.typed.pop()),
                    _ => self.typed.clear(),
                }
                return Reaction::Changed;
            }
        };
        self.send(task, question, text)
    }

    /// Answers the first question with typed text. The rules for keys hold: of an approval that is not visible, only
    /// a no counts.
    pub fn answer_in_words(&mut self, text: &str, now: Timestamp) -> Reaction {
        let Some(open) = self.open.front() else { return Reaction::Ignored(Ignored::NothingAsked) };
        let (task, question, text) = (open.task, open.id, text.trim());
        let denies = || matches!(Approval::parse(text), Ok(Approval::No(_)));
        match self.deaf(now) {
            Some(why) => Reaction::Ignored(why),
            None if text.is_empty() => Reaction::Ignored(Ignored::NoMeaning),
            None if open.is_approval() && self.visibility == Visibility::Hidden && !denies() => {
                Reaction::Ignored(Ignored::NotVisible)
            }
            None => self.send(task, question, Some(text.to_owned())),
        }
    }

    fn send(&mut self, task: TaskId, question: QuestionId, text: Option<String>) -> Reaction {
        self.rejected.clear();
        self.sent = true;
        self.granted = text.as_deref().is_some_and(|text| text.starts_with("always"));
        Reaction::Answer(GivenAnswer { task, question, text })
    }
}

/// What can be allowed from now on, the narrowest first.
fn grant_choices(tool: &str, arguments: &str) -> Vec<GrantChoice> {
    let parsed = permission::arguments(arguments);
    let pattern = |grant: GrantScope| {
        grant.pattern(tool, &parsed).ok().map(|pattern| escape_invisible_line(&pattern.to_string()))
    };
    let exact = pattern(GrantScope::Exact).map(|pattern| GrantChoice {
        key: 'e',
        answer: "always exact",
        text: format!("exactly this call: {pattern}"),
    });
    let program = pattern(GrantScope::Program).map(|pattern| GrantChoice {
        key: 'p',
        answer: "always program",
        text: format!("this program with any arguments, as one plain command: {pattern}"),
    });
    let tool = escape_invisible_line(tool);
    let tool = GrantChoice {
        key: 't',
        answer: "always tool",
        text: format!("every call of {tool}, whatever its arguments, unless a rule denies it"),
    };
    exact.into_iter().chain(program).chain([tool]).collect()
}

/// Fits the lines of a question into this many rows: all of them, or the first and the last with a hint between
/// them. `hint` makes that from the number of lines left out; it may take a few rows, as long as more are left
/// for the question. With fewer than four rows, too little is visible to approve anything.
pub fn fit_question<L: Clone>(
    all: &[L],
    rows: usize,
    hint: impl Fn(usize, bool) -> Vec<L>,
) -> (Vec<L>, Visibility) {
    if all.len() <= rows {
        return (all.to_vec(), Visibility::Whole);
    }
    let wanted = hint(all.len(), true).len();
    let gap = if wanted * 2 <= rows && wanted + ENDS <= rows + 1 { wanted } else { 1 };
    let last = rows.saturating_sub(gap) / 2;
    let first = rows.saturating_sub(gap + last);
    let left = all.len() - first - last;
    let mut said = hint(left, true);
    if said.len() > gap {
        said = hint(left, false);
    }
    let lines = [&all[..first], &said, &all[all.len() - last..]].concat();
    (lines, if rows < ENDS { Visibility::Hidden } else { Visibility::Ends })
}

#[cfg(test)]
#[path = "approval_tests.rs"]
mod tests;
