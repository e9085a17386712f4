//! The conversation of a task as a state machine without IO.
//!
//! A [`Conversation`] is the fold of a task's journal into what its owner needs to continue it:
//! [`apply`](Conversation::apply) takes an entry, [`next_step`](Conversation::next_step) returns what to do
//! now. The runner does that, writes the result to the journal and applies it. A crash is therefore no
//! special case: read the journal, then ask for the next step.

mod loop_detector;
mod compaction;
mod fold;
mod foreign_session;
mod launch_history;
mod next_step;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Policy;
use crate::dispatch::EarlierLaunch;
use crate::entry::{Entry, Failure, Letter, NudgeReason, Order, Question, QuestionAnswer, Submission};
use crate::id::{AgentName, Attempt, CallId, Digest, LetterId, QuestionId, TaskId};
use crate::message::prompt_tags::{escape, escape_tags};
use crate::message::{Call, Message, Reply, StopReason};
pub(crate) use compaction::summary_text;
pub(crate) use compaction::truncate_middle;
use fold::letters_text;
pub(crate) use fold::repeated_calls;
pub(crate) use foreign_session::{CALL_KINDS, ForeignSession};
use launch_history::LaunchHistory;
use loop_detector::LoopDetector;

/// A task's conversation and its position in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Conversation {
    conversation: Arc<Vec<Message>>,
    /// How many messages at the start are the order, which is never compacted away.
    order_at: usize,
    agent: AgentName,
    interactive: bool,
    attempt: Attempt,
    mailbox: Vec<Letter>,
    collected: HashSet<TaskId>,
    #[serde(default)]
    cut_outputs: Vec<Digest>,
    open: Vec<OpenCall>,
    /// Questions of the open calls to a person.
    #[serde(default)]
    asked_questions: Vec<CallQuestion>,
    replies: u32,
    /// Replies since the task last got something new to do, from its order or from a person.
    turns: u32,
    wakes: u32,
    next_speaker: NextSpeaker,
    run: Option<RepeatedCall>,
    reminded: bool,
    /// Whether the start hooks have run.
    #[serde(default)]
    begun: bool,
    /// Whether the model was told that its answer does not match the schema.
    #[serde(default)]
    reshaped: bool,
    last_word: Option<String>,
    /// Its final reply had only calls, which are not made any more.
    #[serde(default)]
    called_last: bool,
    live: String,
    said: Arc<str>,
    /// The model that it switched to instead of the agent's own.
    model: Option<String>,
    /// The warnings that people have already been given.
    #[serde(default)]
    warned: Vec<Arc<str>>,
    /// The number of messages, and of tokens, at the last time a model counted them.
    measured: Option<(usize, u64)>,
    #[serde(default)]
    launches: LaunchHistory,
    /// Detects whether its latest replies led to anything new.
    #[serde(default)]
    loop_detector: LoopDetector,
    /// Whether it gets no tools for its next reply.
    #[serde(default)]
    tools_off: bool,
    /// The message it got when its tools were turned off.
    off_text: Option<Arc<str>>,
    /// Whether its last answer was given without tools, because it was in a loop.
    #[serde(default)]
    said_without_tools: bool,
    /// The session of its agent, if another program runs that.
    #[serde(default)]
    session: ForeignSession,
}

/// Who acts next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum NextSpeaker {
    /// The model has to reply.
    Model,
    /// The model has nothing left to say; this is why it stopped.
    Silent(StopReason),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenCall {
    call: Call,
    /// Whether the output limit cut the reply, so that the call is not the intended one.
    #[serde(default)]
    cut: bool,
    begun: Option<Attempt>,
    result: Option<(Arc<str>, bool)>,
    /// Whether it shows nothing but results of tasks that earlier calls have shown.
    #[serde(default)]
    shown_before: bool,
    /// Whether all tasks had ended when it returned.
    #[serde(default)]
    all_ended: bool,
}

/// A question of an open call, and its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallQuestion {
    pub(crate) question: QuestionId,
    pub(crate) asks: Question,
    pub(crate) answer: Option<QuestionAnswer>,
}

/// A call that the model keeps repeating.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RepeatedCall {
    tool: String,
    arguments: String,
    times: u32,
    /// Whether the model was told that it repeats the call.
    told: bool,
    /// What it returned last, and how often in a row.
    output: Arc<str>,
    unchanged: u32,
    /// Whether the model was asked for its answer, without tools.
    tools_off: bool,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NextStep {
    /// Run these tool calls.
    RunCalls(Vec<PendingCall>),
    /// Add these letters to the conversation.
    ReadLetters {
        letters: Vec<LetterId>,
        /// Letters without news.
        known: Vec<LetterId>,
    },
    /// Add a message of the engine for the model.
    Nudge {
        why: NudgeReason,
        /// The message.
        text: Arc<str>,
    },
    /// Call the model, with or without tools.
    CallModel {
        /// Whether it may call tools.
        tools: bool,
    },
    /// Nothing left to do: end with [`Conversation::answer`], or wait for letters.
    Idle,
    /// The task has failed.
    Fail(Failure),
}

/// A tool call to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingCall {
    /// Its id in the task.
    pub(crate) id: CallId,
    pub(crate) call: Call,
    /// Whether the output limit cut the reply, so that the call must not be made.
    pub(crate) truncated: bool,
    /// Whether its start is in the journal.
    pub(crate) started: bool,
    /// Whether an earlier attempt started it and it is unknown how far it got.
    pub(crate) interrupted: bool,
}

impl Conversation {
    /// The conversation of a task that starts with its order.
    pub(crate) fn begin(submitted: &Submission, root_agent: &AgentName) -> Conversation {
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
            asked_questions: Vec::new(),
            replies: 0,
            turns: 0,
            wakes: 0,
            next_speaker: NextSpeaker::Model,
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
            loop_detector: LoopDetector::default(),
            tools_off: false,
            off_text: None,
            said_without_tools: false,
            session: ForeignSession::default(),
        }
    }

    /// The conversation of a task that continues this one: the same messages, with a new order at the end.
    pub(crate) fn continue_with(mut self, submitted: &Submission) -> Conversation {
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
        self.session.continued();
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
            // The new order is a new start, and calls are numbered from the beginning again.
            launches: self.launches.continued(),
            loop_detector: LoopDetector::default(),
            tools_off: false,
            off_text: None,
            said_without_tools: false,
            ..self
        }
    }

    /// The messages, shared: calling the model does not copy them.
    pub(crate) fn messages(&self) -> Arc<Vec<Message>> {
        self.conversation.clone()
    }

    /// The agent that holds the conversation now.
    pub(crate) fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The model that it switched to.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The stored outputs of which the conversation shows only a part.
    pub(crate) fn cut_outputs(&self) -> &[Digest] {
        &self.cut_outputs
    }

    /// The entries that warn people of these; warnings that were already given are left out.
    pub(crate) fn new_warnings(&self, texts: Vec<String>) -> Vec<Entry> {
        let mut new: Vec<Arc<str>> = Vec::new();
        for text in texts {
            if !self.warned.iter().chain(&new).any(|told| **told == *text) {
                new.push(text.into());
            }
        }
        new.into_iter().map(|text| Entry::Warned { text }).collect()
    }

    /// The session of its agent, if another program runs that.
    pub(crate) fn session(&self) -> &ForeignSession {
        &self.session
    }

    /// Questions of the open calls to a person.
    pub(crate) fn questions(&self) -> &[CallQuestion] {
        &self.asked_questions
    }

    /// Whether the task has done nothing yet, and its start hooks have not run.
    pub(crate) fn is_new(&self) -> bool {
        !self.begun && self.replies == 0
    }

    /// The messages for a model that is in a loop: its order, and its findings as text. The calls that led
    /// nowhere would only lead there again. Returns `None` if the model should see all messages.
    pub(crate) fn in_short(&self) -> Option<Vec<Message>> {
        let text = self.off_text.clone().filter(|_| self.tools_off && !self.interactive)?;
        Some(vec![self.conversation.get(self.order_at)?.clone(), Message::User(text)])
    }

    /// Earlier launches with the same arguments as this call, or with similar ones if their results were read;
    /// the latest first. `me` is the task itself.
    pub(crate) fn earlier(&self, me: TaskId, call: CallId) -> Vec<EarlierLaunch> {
        self.launches.earlier(me, call)
    }

    /// The number of replies.
    pub(crate) fn replies(&self) -> u32 {
        self.replies
    }

    /// All text since the order, for a task that ends without an answer.
    pub(crate) fn partial_output(&self) -> Arc<str> {
        let replies = self.conversation.iter().skip(self.order_at).filter_map(|message| match message {
            Message::Assistant(reply) => Some(reply.text()),
            _ => None,
        });
        let said = replies.chain([self.live.clone()]).filter(|text| !text.trim().is_empty());
        said.collect::<Vec<_>>().join("\n\n").into()
    }

    /// Whether the model has nothing left to say.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.next_speaker, NextSpeaker::Silent(_))
            && self.open.is_empty()
            && !self.said.trim().is_empty()
    }

    /// Letters without news for the conversation.
    pub(crate) fn known_letters(&self) -> Vec<LetterId> {
        self.mailbox.iter().filter(|l| self.is_known(l)).map(|l| l.id.clone()).collect()
    }

    /// Whether the unread letters only report ended children, so that a short wait may bring more of them.
    pub(crate) fn has_new_endings_only(&self) -> bool {
        self.mailbox.iter().any(|l| !self.is_known(l)) && self.has_only_endings()
    }

    /// Whether ended children have woken it so often that it should wait until all have ended.
    pub(crate) fn should_batch_endings(&self, policy: &Policy) -> bool {
        let resting = matches!(self.next_speaker, NextSpeaker::Silent(_)) && self.has_new_endings_only();
        resting && !self.interactive && self.wakes >= policy.max_wakes / 2
    }

    /// Whether all unread letters report ended children.
    pub(crate) fn has_only_endings(&self) -> bool {
        self.mailbox.iter().all(|l| l.ending.is_some())
    }

    /// Whether one of these letters reports an ended child.
    pub(crate) fn includes_endings(&self, letters: &[LetterId]) -> bool {
        self.mailbox.iter().any(|letter| letter.ending.is_some() && letters.contains(&letter.id))
    }
}

/// Tags that another agent could use in an order to imitate someone else.
const NOT_IN_ORDERS: [&str; 4] = ["task_ended", "letter", "message", "hook"];

/// An order as the agent reads it, with its parts clearly separated.
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
