//! The conversation of a task as a state machine without IO: what to do next.
//!
//! A [`Conversation`] is the fold of a task's journal into what its owner needs to carry it on: [`apply`](Conversation::apply) takes
//! an entry in, [`next_step`](Conversation::next_step) says what is to be done now. The runner does it, writes down what came of it,
//! and applies that. A crash at any point is therefore no special case: read the journal, ask what is next.

mod loop_detector;
mod compaction;
mod fold;
mod launch_history;
mod next_step;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Policy;
use crate::dispatch::EarlierResult;
use crate::entry::{Entry, Failure, Letter, NudgeReason, Order, Question, QuestionAnswer, Submission};
use crate::id::{AgentName, Attempt, CallId, Digest, LetterId, QuestionId, TaskId};
use crate::message::prompt_tags::{escape, escape_tags};
use crate::message::{Call, Message, Reply, StopReason};
pub(crate) use compaction::truncate_middle;
pub use compaction::{CompactionInput, summary_text};
use fold::letters_text;
pub(crate) use fold::repeated_calls;
use launch_history::LaunchHistory;
use loop_detector::LoopDetector;

/// A task's conversation, and where it stands in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conversation {
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
    inquiries: Vec<CallQuestion>,
    replies: u32,
    /// Replies since the task, or the person who talks to it, last gave it something new to do.
    turns: u32,
    wakes: u32,
    ball: NextSpeaker,
    run: Option<RepeatedCall>,
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
    /// What people have been warned of.
    #[serde(default)]
    warned: Vec<Arc<str>>,
    /// So many messages were so many tokens, the last time that a model counted them.
    #[serde(default)]
    measured: Option<(usize, u64)>,
    /// What it has launched.
    #[serde(default)]
    launches: LaunchHistory,
    /// Whether its last replies have led to anything new.
    #[serde(default)]
    circles: LoopDetector,
    /// Whether it has no tools in its next reply.
    #[serde(default)]
    tools_off: bool,
    /// What it was told when it had none.
    #[serde(default)]
    off_text: Option<Arc<str>>,
}

/// Whose move it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum NextSpeaker {
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
pub struct CallQuestion {
    /// Its name.
    pub question: QuestionId,
    /// What is asked.
    pub asks: Question,
    /// What came of it.
    pub answer: Option<QuestionAnswer>,
}

/// The same call, made again and again.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RepeatedCall {
    tool: String,
    arguments: String,
    times: u32,
    told: bool,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Run these tool calls.
    RunCalls(Vec<PendingCall>),
    /// Take these letters into the conversation.
    ReadLetters {
        /// The letters.
        letters: Vec<LetterId>,
        /// Letters that tell nothing new.
        known: Vec<LetterId>,
    },
    /// Say this to the model.
    Nudge {
        /// Why.
        why: NudgeReason,
        /// What.
        text: Arc<str>,
    },
    /// Ask the model, with or without tools.
    CallModel {
        /// Whether it may call tools.
        tools: bool,
    },
    /// Nothing more to say: end with [`Conversation::answer`], or wait for letters.
    Idle,
    /// The task has failed.
    Fail(Failure),
}

/// A tool call to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// Its name in the task.
    pub id: CallId,
    /// The call.
    pub call: Call,
    /// Whether the model's output limit cut it, so that it must not be made.
    pub truncated: bool,
    /// Whether it is written down that it begins.
    pub started: bool,
    /// Whether an earlier attempt began it, and nobody knows how far it came.
    pub interrupted: bool,
}

impl Conversation {
    /// The turn of a task that begins with its order.
    pub fn begin(submitted: &Submission, root_agent: &AgentName) -> Conversation {
        let order = &submitted.order;
        Conversation {
            conversation: Arc::new(vec![Message::User(order_text(order, submitted.parent.is_some()))]),
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
            ball: NextSpeaker::Model,
            run: None,
            reminded: false,
            begun: false,
            reshaped: false,
            last_word: None,
            called_last: false,
            live: String::new(),
            said: Arc::from(""),
            model: None,
            warned: Vec::new(),
            measured: None,
            launches: LaunchHistory::default(),
            circles: LoopDetector::default(),
            tools_off: false,
            off_text: None,
        }
    }

    /// The turn of a task that continues this one: the same conversation, with a new order at its end.
    pub fn continue_with(mut self, submitted: &Submission) -> Conversation {
        self.close_calls("The task ended before this call did.");
        if !self.live.is_empty() {
            let partial = Reply::text_only(std::mem::take(&mut self.live));
            self.push(Message::Assistant(Arc::new(partial)));
        }
        let unread = std::mem::take(&mut self.mailbox);
        let unread: Vec<_> = unread.into_iter().filter(|letter| !self.is_known(letter)).collect();
        if !unread.is_empty() {
            self.push_user_message(letters_text(&unread));
        }
        self.order_at = self.conversation.len();
        self.push_user_message(submitted.order.task.clone());
        Conversation {
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
            warned: Vec::new(),
            said: Arc::from(""),
            // What it goes on for is new, and calls are numbered anew.
            launches: LaunchHistory::default(),
            circles: LoopDetector::default(),
            tools_off: false,
            off_text: None,
            ..self
        }
    }

    /// The conversation, shared: asking the model costs no copy of it.
    pub fn messages(&self) -> Arc<Vec<Message>> {
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

    /// What is to be written down so that people hear of these: only what they have not heard of yet.
    pub fn new_warnings(&self, texts: Vec<String>) -> Vec<Entry> {
        let mut new: Vec<Arc<str>> = Vec::new();
        for text in texts {
            if !self.warned.iter().chain(&new).any(|told| **told == *text) {
                new.push(text.into());
            }
        }
        new.into_iter().map(|text| Entry::Warned { text }).collect()
    }

    /// What the open calls have asked a person.
    pub fn questions(&self) -> &[CallQuestion] {
        &self.inquiries
    }

    /// Whether nothing has been done about the task yet, and no hook has been heard about its beginning.
    pub fn is_new(&self) -> bool {
        !self.begun && self.replies == 0
    }

    /// The conversation as a model sees it that goes round in circles: its order, and what it has found, in words. The calls
    /// that led nowhere would only lead there again. `None` where it sees all of it.
    pub fn in_short(&self) -> Option<Vec<Message>> {
        let text = self.off_text.clone().filter(|_| self.tools_off && !self.interactive)?;
        Some(vec![self.conversation.get(self.order_at)?.clone(), Message::User(text)])
    }

    /// Which tasks it has launched with the words of this call, or much the same, and has the results of; the last first.
    /// `me` is the task itself.
    pub fn earlier(&self, me: TaskId, call: CallId) -> Vec<EarlierResult> {
        self.launches.earlier(me, call)
    }

    /// How many replies there have been.
    pub fn replies(&self) -> u32 {
        self.replies
    }

    /// All that has been said since the order, for a task that ends without an answer.
    pub fn partial_output(&self) -> Arc<str> {
        let replies = self.conversation.iter().skip(self.order_at).filter_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text()),
            _ => None,
        });
        let said = replies.chain([self.live.clone()]).filter(|text| !text.trim().is_empty());
        said.collect::<Vec<_>>().join("\n\n").into()
    }

    /// Whether the model has said what it had to say.
    pub fn is_idle(&self) -> bool {
        matches!(self.ball, NextSpeaker::Silent(_)) && self.open.is_empty() && !self.said.trim().is_empty()
    }

    /// Letters that tell nothing that the conversation does not have.
    pub fn known_letters(&self) -> Vec<LetterId> {
        self.mailbox.iter().filter(|l| self.is_known(l)).map(|l| l.id.clone()).collect()
    }

    /// Whether nothing but the ends of children lies in the mailbox, so that a moment's patience may bring more.
    pub fn has_new_endings_only(&self) -> bool {
        self.mailbox.iter().any(|l| !self.is_known(l)) && self.has_only_endings()
    }

    /// Whether children have woken it so often by their ends that it had better wait until all have ended.
    pub fn should_batch_endings(&self, habits: &Policy) -> bool {
        let resting = matches!(self.ball, NextSpeaker::Silent(_)) && self.has_new_endings_only();
        resting && !self.interactive && self.wakes >= habits.max_wakes / 2
    }

    /// Whether nobody has written but children, of their ends.
    pub fn has_only_endings(&self) -> bool {
        self.mailbox.iter().all(|l| l.ending.is_some())
    }

    /// Whether the end of a child is told in one of these letters.
    pub fn includes_endings(&self, letters: &[LetterId]) -> bool {
        self.mailbox.iter().any(|letter| letter.ending.is_some() && letters.contains(&letter.id))
    }
}

/// What would be somebody else's word in an order that another agent has written.
const NOT_IN_ORDERS: [&str; 4] = ["task_ended", "letter", "message", "hook"];

/// An order as the agent reads it, its parts clearly told apart.
fn order_text(order: &Order, from_agent: bool) -> Arc<str> {
    if order.expected_output.is_none() && order.context.is_none() {
        return match escape_tags(&order.task, &NOT_IN_ORDERS) {
            Cow::Owned(escaped) if from_agent => escaped.into(),
            _ => order.task.clone(),
        };
    }
    let mut text = format!("<task>\n{}\n</task>", escape(&order.task));
    if let Some(context) = &order.context {
        text.push_str(&format!("\n\n<context>\n{}\n</context>", escape(context)));
    }
    if let Some(expected) = &order.expected_output {
        text.push_str(&format!("\n\n<expected_output>\n{}\n</expected_output>", escape(expected)));
    }
    text.into()
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
