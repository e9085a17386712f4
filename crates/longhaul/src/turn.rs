//! The conversation loop as a machine that does no IO.
//!
//! A [`Turn`] is the fold of a task's journal into what its owner needs to carry it on: [`apply`](Turn::apply) takes
//! an entry in, [`next`](Turn::next) says what is to be done now. The runner does it, writes down what came of it,
//! and applies that. A crash at any point is therefore no special case: read the journal, ask what is next.

mod condense;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{AtTurnLimit, Habits, Notices, Shape};
use crate::entry::{
    Answer, Deliver, Entry, Failure, FailureKind, Letter, ModelChoice, Nudge, Order, Outcome, Question,
    Record, Sender, Submitted, Voice, Wait,
};
use crate::id::{AgentName, Attempt, CallId, Digest, LetterId, QuestionId, TaskId};
use crate::message::{Call, Message, Reply, StopReason, ToolResult};
use crate::model::wire::is_only_calls;
pub(crate) use condense::middle_out;
pub use condense::{Condensable, summary_text};

/// A task's conversation, and where it stands in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turn {
    conversation: Arc<Vec<Message>>,
    /// How many messages at the beginning are the order, which is never compacted away.
    order_at: usize,
    agent: AgentName,
    interactive: bool,
    attempt: Attempt,
    mailbox: Vec<Letter>,
    collected: HashSet<TaskId>,
    #[serde(default)]
    cut_outputs: Vec<Digest>,
    open: Vec<OpenCall>,
    /// What the open calls ask a person.
    #[serde(default)]
    inquiries: Vec<Inquiry>,
    replies: u32,
    /// Replies since the task, or the person who talks to it, last gave it something new to do.
    turns: u32,
    wakes: u32,
    ball: Ball,
    run: Option<CallRun>,
    reminded: bool,
    /// Whether the hooks that run when a task begins have run.
    #[serde(default)]
    begun: bool,
    /// Whether it was told that its answer has not the shape that it must have.
    #[serde(default)]
    reshaped: bool,
    last_word: Option<String>,
    /// Its last word was nothing but calls, which are not made any more.
    #[serde(default)]
    called_last: bool,
    live: String,
    said: Arc<str>,
    /// Another model than the agent's own, which it has chosen itself.
    #[serde(default)]
    model: Option<String>,
    /// So many messages were so many tokens, the last time that a model counted them.
    #[serde(default)]
    measured: Option<(usize, u64)>,
}

/// Whose move it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Ball {
    /// The model has something to answer.
    Model,
    /// The model has said what it had to say, and this is why it stopped.
    Silent(StopReason),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenCall {
    call: Call,
    /// Whether the model's output limit cut it, so that it is not the call that was meant.
    #[serde(default)]
    cut: bool,
    begun: Option<Attempt>,
    result: Option<(Arc<str>, bool)>,
}

/// A question of an open call, and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inquiry {
    /// Its name.
    pub question: QuestionId,
    /// What is asked.
    pub asks: Question,
    /// What came of it.
    pub answer: Option<Answer>,
}

/// The same call, made again and again.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CallRun {
    tool: String,
    arguments: String,
    times: u32,
    told: bool,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Run these tool calls.
    Act(Vec<Act>),
    /// Take these letters into the conversation.
    Read {
        /// The letters.
        letters: Vec<LetterId>,
        /// Letters that tell nothing new.
        known: Vec<LetterId>,
    },
    /// Say this to the model.
    Nudge {
        /// Why.
        why: Nudge,
        /// What.
        text: Arc<str>,
    },
    /// Ask the model, with or without tools.
    Think {
        /// Whether it may call tools.
        tools: bool,
    },
    /// Nothing more to say: end with [`Turn::answer`], or wait for letters.
    Rest,
    /// The task has failed.
    Fail(Failure),
}

/// A tool call to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// Its name in the task.
    pub id: CallId,
    /// The call.
    pub call: Call,
    /// Whether the model's output limit cut it, so that it must not be made.
    pub cut: bool,
    /// Whether it is written down that it begins.
    pub begun: bool,
    /// Whether an earlier attempt began it, and nobody knows how far it came.
    pub interrupted: bool,
}

impl Turn {
    /// The turn of a task that begins with its order.
    pub fn begin(submitted: &Submitted, root_agent: &AgentName) -> Turn {
        let order = &submitted.order;
        Turn {
            conversation: Arc::new(vec![Message::User(order_text(order))]),
            order_at: 0,
            agent: order.agent.clone().unwrap_or_else(|| root_agent.clone()),
            interactive: order.interactive,
            attempt: Attempt(0),
            mailbox: Vec::new(),
            collected: HashSet::new(),
            cut_outputs: Vec::new(),
            open: Vec::new(),
            inquiries: Vec::new(),
            replies: 0,
            turns: 0,
            wakes: 0,
            ball: Ball::Model,
            run: None,
            reminded: false,
            begun: false,
            reshaped: false,
            last_word: None,
            called_last: false,
            live: String::new(),
            said: Arc::from(""),
            model: None,
            measured: None,
        }
    }

    /// The turn of a task that continues this one: the same conversation, with a new order at its end.
    pub fn continued(mut self, submitted: &Submitted) -> Turn {
        self.close_calls("The task ended before this call did.");
        if !self.live.is_empty() {
            let partial = Reply::text_only(std::mem::take(&mut self.live));
            self.push(Message::Assistant(Arc::new(partial)));
        }
        let unread = std::mem::take(&mut self.mailbox);
        let unread: Vec<_> = unread.into_iter().filter(|letter| !self.is_known(letter)).collect();
        if !unread.is_empty() {
            self.hear(letters_text(&unread));
        }
        self.order_at = self.conversation.len();
        self.hear(submitted.order.task.clone());
        Turn {
            interactive: submitted.order.interactive,
            attempt: Attempt(0),
            replies: 0,
            turns: 0,
            wakes: 0,
            run: None,
            reminded: false,
            begun: false,
            reshaped: false,
            last_word: None,
            called_last: false,
            said: Arc::from(""),
            ..self
        }
    }

    /// The conversation, shared: asking the model costs no copy of it.
    pub fn conversation(&self) -> Arc<Vec<Message>> {
        self.conversation.clone()
    }

    /// The agent that has the conversation now.
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The model that it has chosen itself.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Where the outputs are kept of which the conversation has only a part.
    pub fn cut_outputs(&self) -> &[Digest] {
        &self.cut_outputs
    }

    /// What the open calls have asked a person.
    pub fn inquiries(&self) -> &[Inquiry] {
        &self.inquiries
    }

    /// Whether nothing has been done about the task yet, and no hook has been heard about its beginning.
    pub fn is_untouched(&self) -> bool {
        !self.begun && self.replies == 0
    }

    /// How many replies there have been.
    pub fn replies(&self) -> u32 {
        self.replies
    }

    /// All that has been said since the order, for a task that ends without an answer.
    pub fn partial(&self) -> Arc<str> {
        let replies = self.conversation.iter().skip(self.order_at).filter_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text()),
            _ => None,
        });
        let said = replies.chain([self.live.clone()]).filter(|text| !text.trim().is_empty());
        said.collect::<Vec<_>>().join("\n\n").into()
    }

    /// Whether the model has said what it had to say.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.ball, Ball::Silent(_)) && self.open.is_empty() && !self.said.trim().is_empty()
    }

    /// Letters that tell nothing that the conversation does not have.
    pub fn known_letters(&self) -> Vec<LetterId> {
        self.mailbox.iter().filter(|l| self.is_known(l)).map(|l| l.id.clone()).collect()
    }

    /// Whether nothing but the ends of children lies in the mailbox, so that a moment's patience may bring more.
    pub fn only_endings(&self) -> bool {
        self.mailbox.iter().any(|l| !self.is_known(l)) && self.has_only_endings()
    }

    /// Whether children have woken it so often by their ends that it had better wait until all have ended.
    pub fn is_weary(&self, habits: &Habits) -> bool {
        let resting = matches!(self.ball, Ball::Silent(_)) && self.only_endings();
        resting && !self.interactive && self.wakes >= habits.max_wakes / 2
    }

    /// Whether nobody has written but children, of their ends.
    pub fn has_only_endings(&self) -> bool {
        self.mailbox.iter().all(|l| l.ending.is_some())
    }

    /// Whether the end of a child is told in one of these letters.
    pub fn tells_of_ends(&self, letters: &[LetterId]) -> bool {
        self.mailbox.iter().any(|letter| letter.ending.is_some() && letters.contains(&letter.id))
    }

    /// All letters that it has not read, unless it has said its last word.
    pub fn unread(&self) -> Option<Step> {
        if self.last_word.is_some() { None } else { self.due(|_| true) }
    }

    /// What is to be done before a task at rest may end, if its answer has not the shape that it must have.
    pub fn misshapen(&self, shape: Option<&Shape>) -> Option<Step> {
        let wrong = shape?.of(&self.said).err()?;
        if self.reshaped {
            return Some(
                self.fail(FailureKind::Shape, format!("the answer does not fit its schema: {wrong}")),
            );
        }
        let text = format!(
            "Your answer does not have the form that is asked for: {wrong}. Answer again, with nothing but JSON that \
             fits the schema."
        );
        Some(Step::Nudge { why: Nudge::Shape, text: text.into() })
    }

    /// The answer of a task that is at rest.
    pub fn answer(&self, shape: Option<&Shape>) -> Outcome {
        // What is around JSON that was asked for is not part of it.
        let shaped = shape.and_then(|shape| shape.of(&self.said).ok()).map(Arc::from);
        let length =
            || (self.ball == Ball::Silent(StopReason::Length)).then(|| "the model's output limit".to_owned());
        Outcome::Completed {
            output: shaped.unwrap_or_else(|| self.said.clone()),
            cut_short: self.last_word.clone().or_else(length),
        }
    }

    /// What is to be done now. `looks` says of a tool whether it only looks at tasks.
    pub fn next(&self, habits: &Habits, looks: impl Fn(&str) -> bool) -> Step {
        let acts = self.acts();
        if !acts.is_empty() {
            return Step::Act(acts);
        }
        match self.ball {
            Ball::Model => self.next_reply(habits, looks),
            Ball::Silent(stop) => self.next_silence(habits, stop),
        }
    }

    fn next_reply(&self, habits: &Habits, looks: impl Fn(&str) -> bool) -> Step {
        if let Some(run) = self.run.as_ref().filter(|run| !looks(&run.tool)) {
            if run.times >= habits.repeats_failed {
                let what =
                    format!("'{}' was called {} times in a row with the same arguments", run.tool, run.times);
                return self.fail(FailureKind::Repeating, what);
            }
            if run.times >= habits.repeats_told && !run.told {
                let text = format!(
                    "You have called '{}' {} times in a row with the same arguments. Calling it again will not \
                     help: do something else, or answer with what you have.",
                    run.tool, run.times
                );
                return Step::Nudge { why: Nudge::Repeating, text: text.into() };
            }
        }
        if let Some(read) = self.due(|l| l.deliver == Deliver::Asap && habits.letters == Deliver::Asap) {
            return read;
        }
        if self.last_word.is_some() {
            return Step::Think { tools: false };
        }
        let over = |limit: String| {
            match habits.at_turn_limit {
            AtTurnLimit::Fail => self.fail(FailureKind::TurnLimit, limit),
            AtTurnLimit::LastWord => Step::Nudge {
                text: format!(
                    "You have reached {limit}. Tools are off now.{} Answer with all the results that you have: this is \
                     your last word.",
                    self.reminder()
                )
                .into(),
                why: Nudge::LastWord(limit),
            },
        }
        };
        if habits.max_turns > 0 && self.turns >= habits.max_turns {
            return over(format!("the limit of {} turns", habits.max_turns));
        }
        if self.wakes > habits.max_wakes && !self.interactive {
            return over(format!("the limit of {} wake-ups by ending tasks", habits.max_wakes));
        }
        Step::Think { tools: true }
    }

    /// What the task was, for a model that may have lost sight of it. A session has moved on since.
    fn reminder(&self) -> String {
        match self.conversation.get(self.order_at) {
            Some(Message::User(order)) if !self.interactive => {
                let cut = &order[..order.floor_char_boundary(REMINDER)];
                format!(" Your task was:\n\n{cut}{}\n\n", if cut.len() < order.len() { "…" } else { "" })
            }
            _ => String::new(),
        }
    }

    fn next_silence(&self, habits: &Habits, stop: StopReason) -> Step {
        if self.last_word.is_none() || self.interactive {
            // An ending may wake a resting task only so often; words of others always do.
            let tired = self.wakes >= habits.max_wakes && self.interactive;
            let wakes = |l: &Letter| l.ending.is_none() || (habits.notices == Notices::Wake && !tired);
            if self.mailbox.iter().any(|l| !self.is_known(l) && wakes(l))
                && let Some(read) = self.due(|_| true)
            {
                return read;
            }
        }
        if stop == StopReason::Refused {
            return self.fail(FailureKind::Refused, "the model refused to answer");
        }
        if !self.said.trim().is_empty() {
            return Step::Rest;
        }
        if self.reminded || (self.last_word.is_some() && !self.called_last) {
            return self
                .fail(FailureKind::NoAnswer, "the model ended without saying anything, also when reminded");
        }
        if self.called_last {
            return Step::Nudge {
                why: Nudge::Empty,
                text: format!(
                    "Tools are off: nothing was called.{} Say now, in words and without a call, what the result is.",
                    self.reminder()
                )
                .into(),
            };
        }
        Step::Nudge {
            why: Nudge::Empty,
            text: "You ended without an answer. Say now, in words, what the result of your task is.".into(),
        }
    }

    fn fail(&self, kind: FailureKind, message: impl Into<String>) -> Step {
        Step::Fail(Failure::new(kind, message))
    }

    fn is_known(&self, letter: &Letter) -> bool {
        letter.ending.is_some_and(|task| self.collected.contains(&task))
    }

    fn due(&self, which: impl Fn(&Letter) -> bool) -> Option<Step> {
        let letters: Vec<_> =
            self.mailbox.iter().filter(|l| !self.is_known(l) && which(l)).map(|l| l.id.clone()).collect();
        (!letters.is_empty()).then(|| Step::Read { letters, known: self.known_letters() })
    }

    /// How often in a row the model has made the very call that is to be made now.
    pub fn times_called(&self, tool: &str) -> u32 {
        self.run.as_ref().filter(|run| run.tool == tool).map_or(0, |run| run.times)
    }

    fn acts(&self) -> Vec<Act> {
        let turn = self.replies;
        let unfinished = self.open.iter().enumerate().filter(|(_, open)| open.result.is_none());
        unfinished
            .map(|(index, open)| Act {
                id: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
                call: open.call.clone(),
                cut: open.cut,
                begun: open.begun == Some(self.attempt),
                interrupted: open.begun.is_some_and(|attempt| attempt < self.attempt),
            })
            .collect()
    }

    /// Takes an entry in.
    pub fn apply(&mut self, record: &Record) {
        match &record.entry {
            Entry::Claimed { attempt, .. } => {
                self.attempt = *attempt;
                self.live.clear();
            }
            Entry::Letter(letter) => self.mailbox.push((**letter).clone()),
            Entry::Read { letters, known, all_ended } => self.read(letters, known, *all_ended),
            Entry::Replied(reply) => self.replied(reply),
            Entry::Called { call, arguments, .. } => {
                let attempt = self.attempt;
                if let Some(open) = self.open_call(*call) {
                    open.begun = Some(attempt);
                    if let Some(arguments) = arguments {
                        open.call.arguments.clone_from(arguments);
                    }
                }
            }
            Entry::Asked { question, asks, .. } => {
                self.inquiries.retain(|inquiry| inquiry.question != *question);
                self.inquiries.push(Inquiry { question: *question, asks: (**asks).clone(), answer: None });
            }
            Entry::Answered { question, answer } => {
                let asked = self.inquiries.iter_mut().find(|inquiry| inquiry.question == *question);
                asked.into_iter().for_each(|inquiry| inquiry.answer = Some(answer.clone()));
            }
            Entry::Returned(returned) => {
                if let Some(open) = self.open_call(returned.call) {
                    open.result = Some((returned.output.clone(), returned.is_error));
                }
                self.collected.extend(&returned.collected);
                let cut = returned.whole.iter().filter(|whole| !self.cut_outputs.contains(whole));
                self.cut_outputs.extend(cut.cloned().collect::<Vec<_>>());
                if let Some(agent) = &returned.handoff {
                    self.agent = agent.clone();
                    self.model = None;
                }
                match &returned.model {
                    Some(ModelChoice::Other(name)) => self.model = Some(name.clone()),
                    Some(ModelChoice::Own) => self.model = None,
                    None => {}
                }
                if self.open.iter().all(|open| open.result.is_some()) {
                    self.flush_results();
                }
            }
            Entry::Said { voice: Voice::Text, text } => self.live.push_str(text),
            Entry::Waiting { on: Wait::Provider(_), .. } => self.live.clear(),
            Entry::Nudged { why, text } => {
                match why {
                    Nudge::Empty => self.reminded = true,
                    Nudge::Shape => self.reshaped = true,
                    Nudge::Begun => self.begun = true,
                    Nudge::Repeating => self.run.iter_mut().for_each(|run| run.told = true),
                    Nudge::LastWord(limit) => self.last_word = Some(limit.clone()),
                }
                if !text.is_empty() {
                    self.hear(text.clone());
                }
            }
            Entry::Compacted { summary, replaces, .. } => self.condense(summary, *replaces),
            _ => {}
        }
    }

    fn read(&mut self, letters: &[LetterId], known: &[LetterId], all_ended: Option<bool>) {
        let mut taken = Vec::new();
        self.mailbox.retain(|letter| {
            if letters.contains(&letter.id) {
                taken.push(letter.clone());
            }
            !letters.contains(&letter.id) && !known.contains(&letter.id)
        });
        taken.sort_by_key(|letter| letters.iter().position(|id| *id == letter.id));
        if taken.is_empty() {
            return;
        }
        if taken.iter().all(|l| l.ending.is_some()) {
            if matches!(self.ball, Ball::Silent(_)) {
                self.wakes += 1;
            }
        } else {
            self.wakes = 0;
        }
        if self.interactive && taken.iter().any(|l| l.from == Sender::Person) {
            self.turns = 0;
            self.last_word = None;
        }
        self.reminded = false;
        self.reshaped = false;
        let lead = match all_ended {
            Some(true) => ALL_ENDED,
            Some(false) => SOME_RUN,
            None => "",
        };
        self.hear(format!("{}{lead}", letters_text(&taken)).into());
    }

    fn replied(&mut self, reply: &Arc<Reply>) {
        self.live.clear();
        self.replies += 1;
        self.turns += 1;
        self.push(Message::Assistant(reply.clone()));
        if reply.usage.input > 0 {
            self.measured = Some((self.conversation.len(), reply.usage.total()));
        }
        let mut text = reply.text();
        let was_cut = |call: &Call| {
            let whole = serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok();
            reply.stop == StopReason::Length && !whole
        };
        let open =
            |call: &Call| OpenCall { cut: was_cut(call), call: call.clone(), begun: None, result: None };
        self.open = reply.calls().map(open).collect();
        if self.last_word.is_some() {
            // The last word is the last word. But no call may stay without a result: providers refuse that.
            self.close_calls("Tools are off: this call was not made.");
            // A call that is written as text is not an answer either.
            let written = is_only_calls(&text, &|tool| self.has_called(tool));
            self.called_last = written || (text.trim().is_empty() && reply.calls().next().is_some());
            if written {
                text = String::new();
            }
        }
        if self.open.is_empty() {
            self.ball = Ball::Silent(reply.stop);
            self.said = text.into();
            self.run = None;
        } else {
            self.ball = Ball::Model;
            if !text.trim().is_empty() {
                self.said = text.into();
            }
            for call in reply.calls() {
                self.count(call);
            }
        }
    }

    /// Whether it has called this tool in its conversation.
    fn has_called(&self, tool: &str) -> bool {
        let calls = |message: &Message| match message {
            Message::Assistant(reply) => reply.calls().any(|call| call.tool == tool),
            _ => false,
        };
        self.conversation.iter().any(calls)
    }

    fn count(&mut self, call: &Call) {
        match &mut self.run {
            Some(run) if run.tool == call.tool && run.arguments == call.arguments => run.times += 1,
            run => {
                *run = Some(CallRun {
                    tool: call.tool.clone(),
                    arguments: call.arguments.clone(),
                    times: 1,
                    told: false,
                });
            }
        }
    }

    fn open_call(&mut self, id: CallId) -> Option<&mut OpenCall> {
        if id.turn != self.replies {
            return None;
        }
        self.open.get_mut(id.index as usize)
    }

    /// Gives this result to the calls that have none, and will have none.
    fn close_calls(&mut self, why: &str) {
        for open in &mut self.open {
            open.result.get_or_insert_with(|| (why.into(), true));
        }
        self.flush_results();
    }

    /// Puts the results into the conversation, in the order of the calls.
    fn flush_results(&mut self) {
        self.inquiries.clear();
        for open in std::mem::take(&mut self.open) {
            let (output, is_error) = open.result.unwrap_or_default();
            let result =
                ToolResult { call: open.call.id.into(), tool: open.call.tool.into(), output, is_error };
            self.push(Message::Tool(result));
        }
    }

    fn hear(&mut self, text: Arc<str>) {
        self.push(Message::User(text));
        self.ball = Ball::Model;
    }

    fn push(&mut self, message: Message) {
        Arc::make_mut(&mut self.conversation).push(message);
    }
}

/// How much of its order a task is reminded of.
const REMINDER: usize = 1000;

/// What stands below the ends of children, to lead the model on. Small models go on looking otherwise.
const ALL_ENDED: &str = "\n\n<note>All the tasks that you have started have ended: you have all their results. Do not start them \
                         again. If nothing new has to be started, answer now, with all of these results.</note>";
const SOME_RUN: &str = "\n\n<note>Other tasks that you have started are still running. Their results will come to you in the same \
                        way: do not look for them, and do not start them again. If there is nothing else to do, end your \
                        turn with one short sentence.</note>";

/// An order as the agent reads it, its parts clearly told apart.
fn order_text(order: &Order) -> Arc<str> {
    if order.expected_output.is_none() && order.context.is_none() {
        return order.task.clone();
    }
    let mut text = format!("<task>\n{}\n</task>", order.task);
    if let Some(context) = &order.context {
        text.push_str(&format!("\n\n<context>\n{context}\n</context>"));
    }
    if let Some(expected) = &order.expected_output {
        text.push_str(&format!("\n\n<expected_output>\n{expected}\n</expected_output>"));
    }
    text.into()
}

/// Letters as the model reads them: those that came together are one message.
fn letters_text(letters: &[Letter]) -> Arc<str> {
    let one = |letter: &Letter| match &letter.from {
        Sender::Task(task) if letter.ending.is_none() => {
            format!("<message from=\"{task}\">\n{}\n</message>", letter.text)
        }
        _ => letter.text.to_string(),
    };
    letters.iter().map(one).collect::<Vec<_>>().join("\n\n").into()
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
