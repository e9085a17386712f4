//! What an observer sees of a task: a snapshot and events, folded from the journal.
//!
//! [`Snapshot`] is one task at one moment. [`EventProjector`] turns a journal, entry by entry, into the
//! [`Event`]s that a person or a program follows.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::entry::{
    Budget, Entry, HookFailure, LiveTextKind, NudgeReason, Order, Outcome, Question, QuestionAnswer, Record,
    ReleaseReason, Sender, StopCause, TaskEnding, WaitReason,
};
use crate::id::{AgentName, Attempt, CallId, LetterId, QuestionId, Seq, TaskId};
use crate::message::{Call, Usage};
use crate::permission::Pattern;
use crate::task::{IllegalTransition, Status, TaskState};

/// How many events a snapshot keeps. Older ones are only counted.
pub const EVENTS_KEPT: usize = 200;

/// One task at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its state.
    pub state: TaskState,
    /// Its order.
    pub order: Order,
    /// The answer, or the text so far if there is none yet.
    pub output: String,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Its unanswered questions, in full.
    pub questions: Vec<(QuestionId, Question)>,
    /// The latest events, at most [`EVENTS_KEPT`].
    pub events: VecDeque<Event>,
    /// How many older events were left out.
    pub dropped: u64,
    projector: EventProjector,
    said: String,
    live: String,
}

impl Snapshot {
    /// The snapshot after the first entry. Fails if that is not a submission.
    pub fn begin(id: TaskId, record: &Record) -> Result<Snapshot, IllegalTransition> {
        let state = TaskState::begin(id, record)?;
        let order = match &record.entry {
            Entry::Submitted(submitted) => submitted.order.clone(),
            _ => Order::default(),
        };
        let mut snapshot = Snapshot {
            state,
            order,
            output: String::new(),
            outcome: None,
            questions: Vec::new(),
            events: VecDeque::new(),
            dropped: 0,
            projector: EventProjector::new(id),
            said: String::new(),
            live: String::new(),
        };
        snapshot.push_events(record);
        Ok(snapshot)
    }

    /// The snapshot after a whole journal; `None` if the journal is empty. Fails at the first illegal
    /// transition.
    pub fn from_journal(id: TaskId, journal: &[Record]) -> Result<Option<Snapshot>, IllegalTransition> {
        let Some((first, rest)) = journal.split_first() else { return Ok(None) };
        let mut snapshot = Snapshot::begin(id, first)?;
        snapshot.apply_all(rest)?;
        snapshot.update_output();
        Ok(Some(snapshot))
    }

    /// The snapshot of an ended task, from its state, its first entry and the last entries of its journal.
    /// The entries in between are only counted. Returns `None` if the last entries hold neither its end nor
    /// the start of a turn.
    pub(crate) fn from_tail(state: TaskState, first: &Record, last: &[Record]) -> Option<Snapshot> {
        let mut snapshot = Snapshot::begin(state.id, first).ok()?;
        let is_reply = |record: &Record| matches!(record.entry, Entry::Replied(_));
        let begins = last.iter().position(is_reply)?;
        let replies = last.iter().filter(|record| is_reply(record)).count();
        // Calls are identified by their turn, and by the reply that contains them.
        snapshot.projector.turn = Some(state.turns.checked_sub(u32::try_from(replies).ok()?)?);
        snapshot.projector.project(&last[begins]);
        snapshot.events.clear();
        snapshot.dropped = last[begins].seq.0;
        for record in &last[begins + 1..] {
            if let Entry::Finished(outcome) = &record.entry {
                snapshot.outcome = Some((**outcome).clone());
            }
            snapshot.push_events(record);
        }
        snapshot.outcome.is_some().then(|| {
            snapshot.state = state;
            snapshot.update_output();
            snapshot
        })
    }

    /// Applies the following entries. Call [`update_output`](Self::update_output) afterwards.
    pub(crate) fn apply_all(&mut self, more: &[Record]) -> Result<(), IllegalTransition> {
        more.iter().try_for_each(|record| self.apply(record))
    }

    fn apply(&mut self, record: &Record) -> Result<(), IllegalTransition> {
        self.state.apply(record)?;
        match &record.entry {
            Entry::Said { voice: LiveTextKind::Text, text } => self.live.push_str(text),
            Entry::Replied(reply) => {
                self.live.clear();
                let text = reply.text();
                if !text.trim().is_empty() {
                    if !self.said.is_empty() {
                        self.said.push_str("\n\n");
                    }
                    self.said.push_str(&text);
                }
            }
            Entry::Waiting { on: WaitReason::Provider(_), .. } | Entry::Claimed { .. } => self.live.clear(),
            Entry::Finished(outcome) => self.outcome = Some((**outcome).clone()),
            Entry::Asked { question, asks, .. } => {
                self.questions.retain(|(id, _)| id != question);
                self.questions.push((*question, (**asks).clone()));
                self.questions.sort_by_key(|(question, _)| *question);
            }
            _ => {}
        }
        // The state knows which questions are still open.
        if !self.questions.is_empty() {
            let open = &self.state.asked;
            self.questions.retain(|(id, _)| open.iter().any(|asked| asked.question == *id));
        }
        self.push_events(record);
        Ok(())
    }

    /// Recomputes the output after the entries applied so far.
    pub(crate) fn update_output(&mut self) {
        self.output = match &self.outcome {
            Some(outcome) => outcome.output().to_string(),
            None if self.live.is_empty() => self.said.clone(),
            None if self.said.is_empty() => self.live.clone(),
            None => format!("{}\n\n{}", self.said, self.live),
        };
    }

    fn push_events(&mut self, record: &Record) {
        for event in self.projector.project(record) {
            if self.events.len() == EVENTS_KEPT {
                self.events.pop_front();
                self.dropped += 1;
            }
            self.events.push_back(event);
        }
    }
}

/// Something that happened to a task, for anyone following it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The task.
    pub task: TaskId,
    /// The entry it comes from. Pass it back to resume from here.
    pub seq: Seq,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Something that happened to a task.
    pub fn new(task: TaskId, seq: Seq, at: Timestamp, kind: EventKind) -> Event {
        Event { task, seq, at, kind }
    }
}

/// What can happen to a task, as an observer sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The task was submitted.
    Submitted {
        /// The agent that runs it.
        agent: AgentName,
        /// The order in one line.
        headline: String,
        /// The task that launched it.
        parent: Option<TaskId>,
        /// The task that it continues.
        continues: Option<TaskId>,
    },
    /// A worker claimed it.
    Started {
        /// The number of the attempt.
        attempt: Attempt,
    },
    /// Text of the model.
    Text {
        /// The text, to be appended to the text before.
        text: String,
    },
    /// Reasoning of the model.
    Reasoning {
        /// The text, to be appended to the reasoning before.
        text: String,
    },
    /// A reply is complete.
    Usage {
        /// The tokens of the reply.
        usage: Usage,
        /// Their cost in millionths of a dollar, if known.
        cost: Option<u64>,
        /// The model that answered.
        model: String,
    },
    /// A tool is called.
    Call {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments.
        arguments: String,
    },
    /// A tool returned.
    Result {
        /// The call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// What it returned.
        output: Arc<str>,
        /// Whether that is an error.
        is_error: bool,
    },
    /// A tool reports progress.
    Progress {
        /// The message.
        text: String,
    },
    /// It waits.
    Waiting {
        /// What it waits for.
        on: WaitReason,
        /// The latest end of the wait, if known.
        until: Option<Timestamp>,
    },
    /// It received a letter.
    Letter {
        /// The letter's id.
        letter: LetterId,
        /// The sender.
        from: Sender,
        /// The text.
        text: Arc<str>,
        /// The child whose end it reports, and how that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<TaskEnding>,
    },
    /// It read letters.
    Read {
        /// The letters.
        letters: Vec<LetterId>,
    },
    /// The engine added a message for the model.
    Nudged {
        /// The reason.
        why: NudgeReason,
    },
    /// A person is asked.
    Asked {
        /// The question's id.
        question: QuestionId,
        /// The question.
        asks: Box<Question>,
        /// When the question expires.
        until: Option<Timestamp>,
    },
    /// A question was answered, or it is certain that nobody will answer it.
    Answered {
        /// The question's id.
        question: QuestionId,
        /// The answer, or why there is none.
        answer: QuestionAnswer,
    },
    /// A person approved calls like these for its tree.
    Granted {
        /// The approved calls.
        pattern: Pattern,
    },
    /// A person moved its waiting calls to the background.
    Backgrounded,
    /// A hook failed.
    HookFailed {
        /// The hook, the reason, and whether a call was denied because of it.
        failure: HookFailure,
    },
    /// A warning for people: the task continues, but not quite as intended.
    Warned {
        /// The warning.
        text: Arc<str>,
    },
    /// A person changed the budget of it and everything below it.
    BudgetSet {
        /// The changed limits, counted from its start.
        budget: Budget,
    },
    /// It was asked to stop.
    Stopping {
        /// The cause.
        cause: StopCause,
    },
    /// A summary replaced the older part of its conversation.
    Compacted,
    /// An MCP server that it called asked its model (sampling).
    Sampled {
        /// The call.
        call: CallId,
        /// The tokens used.
        usage: Usage,
        /// Their cost in millionths of a dollar, if the price is known.
        cost: Option<u64>,
        /// The model.
        model: String,
    },
    /// It was released and can be claimed again.
    Released {
        /// The reason.
        why: ReleaseReason,
    },
    /// It ended.
    Finished {
        /// Its final status.
        status: Status,
        /// The answer, or the part of it that exists.
        output: Arc<str>,
        /// Why there is no answer.
        error: Option<String>,
        /// What made it answer early.
        cut_short: Option<String>,
    },
    /// Another task continues it.
    Continued {
        /// The task that continues it.
        by: TaskId,
    },
}

impl EventKind {
    /// The status of the task from this event on, if the event changes it.
    pub fn status(&self) -> Option<Status> {
        match self {
            EventKind::Submitted { .. } | EventKind::Released { .. } => Some(Status::Pending),
            EventKind::Started { .. } => Some(Status::Running),
            EventKind::Finished { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the text streamed so far of an unfinished reply is void. The model is asked again, and its new
    /// reply is reported from the start.
    pub fn voids_partial_reply(&self) -> bool {
        matches!(self, EventKind::Started { .. } | EventKind::Waiting { on: WaitReason::Provider(_), .. })
    }
}

/// Turns a journal into events.
///
/// Streamed text becomes events as it arrives. When the complete reply follows, only its new part is
/// reported, so the texts of all events together are exactly what the model said. After an event that
/// [voids](EventKind::voids_partial_reply) an unfinished reply, the reply is reported again from its start.
#[derive(Debug, Clone)]
pub struct EventProjector {
    task: TaskId,
    text: usize,
    reasoning: usize,
    /// The number of replies so far, if it is known.
    turn: Option<u32>,
    calls: Vec<Call>,
}

impl EventProjector {
    /// A projector for a task, before its first entry.
    pub fn new(task: TaskId) -> Self {
        EventProjector { task, text: 0, reasoning: 0, turn: Some(0), calls: Vec::new() }
    }

    /// A projector for a task, before an entry somewhere in its journal. The arguments of calls that were
    /// made before it are unknown.
    pub fn midway(task: TaskId) -> Self {
        EventProjector { turn: None, ..EventProjector::new(task) }
    }

    /// The task.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The events of the next entry: none, one or a few.
    pub fn project(&mut self, record: &Record) -> Vec<Event> {
        let mut events = Vec::new();
        let (task, seq, at) = (self.task, record.seq, record.at);
        let mut tell = |what| events.push(Event { task, seq, at, kind: what });
        match &record.entry {
            Entry::Submitted(s) => tell(EventKind::Submitted {
                agent: s.order.agent.clone().unwrap_or_else(|| AgentName::from("root")),
                headline: s.order.headline(),
                parent: s.parent,
                continues: s.continues,
            }),
            Entry::Claimed { attempt, .. } => {
                self.discard_live_text();
                tell(EventKind::Started { attempt: *attempt });
            }
            Entry::Letter(letter) => tell(EventKind::Letter {
                letter: letter.id.clone(),
                from: letter.from.clone(),
                text: letter.text.clone(),
                ended: letter.task_ending(),
            }),
            Entry::StopRequested(stop) => tell(EventKind::Stopping { cause: stop.cause }),
            Entry::Read { letters, .. } if letters.is_empty() => {}
            Entry::Read { letters, .. } => tell(EventKind::Read { letters: letters.clone() }),
            Entry::Said { voice, text } => match voice {
                LiveTextKind::Text => {
                    self.text += text.len();
                    tell(EventKind::Text { text: text.clone() });
                }
                LiveTextKind::Reasoning => {
                    self.reasoning += text.len();
                    tell(EventKind::Reasoning { text: text.clone() });
                }
                LiveTextKind::Progress => tell(EventKind::Progress { text: text.clone() }),
            },
            Entry::Replied(reply) => {
                let (text, reasoning) = (reply.text(), reply.reasoning());
                if let Some(rest) = reasoning.get(self.reasoning..).filter(|r| !r.is_empty()) {
                    tell(EventKind::Reasoning { text: rest.to_owned() });
                }
                if let Some(rest) = text.get(self.text..).filter(|r| !r.is_empty()) {
                    tell(EventKind::Text { text: rest.to_owned() });
                }
                self.discard_live_text();
                self.turn = self.turn.map(|turn| turn + 1);
                self.calls = reply.calls().cloned().collect();
                tell(EventKind::Usage { usage: reply.usage, cost: reply.cost, model: reply.model.clone() });
            }
            Entry::Called { call, tool, arguments, .. } => {
                let asked = || self.call(*call).map(|c| c.arguments.clone()).unwrap_or_default();
                let arguments = arguments.clone().unwrap_or_else(asked);
                tell(EventKind::Call { call: *call, tool: tool.clone(), arguments });
            }
            Entry::Returned(returned) => tell(EventKind::Result {
                call: returned.call,
                tool: match &returned.foreign {
                    Some(tool) => tool.clone(),
                    None => self.call(returned.call).map(|c| c.tool.as_str()).unwrap_or_default().into(),
                },
                output: returned.output.clone(),
                is_error: returned.is_error,
            }),
            Entry::Waiting { on, until } => {
                if matches!(on, WaitReason::Provider(_)) {
                    self.discard_live_text();
                }
                tell(EventKind::Waiting { on: on.clone(), until: *until });
            }
            // Hooks without output.
            Entry::Nudged { text, .. } if text.is_empty() => {}
            Entry::Nudged { why, .. } => tell(EventKind::Nudged { why: why.clone() }),
            Entry::Asked { question, asks, until } => {
                tell(EventKind::Asked { question: *question, asks: asks.clone(), until: *until });
            }
            Entry::Answered { question, answer } => {
                tell(EventKind::Answered { question: *question, answer: answer.clone() });
            }
            Entry::Backgrounded => tell(EventKind::Backgrounded),
            Entry::HookFailed(failure) => tell(EventKind::HookFailed { failure: (**failure).clone() }),
            Entry::Warned { text } => tell(EventKind::Warned { text: text.clone() }),
            Entry::BudgetSet { budget } => tell(EventKind::BudgetSet { budget: *budget }),
            Entry::Granted { pattern, .. } => tell(EventKind::Granted { pattern: pattern.clone() }),
            Entry::Compacted { .. } => tell(EventKind::Compacted),
            Entry::Sampled(sampled) => tell(EventKind::Sampled {
                call: sampled.call,
                usage: sampled.usage,
                cost: sampled.cost,
                model: sampled.model.clone(),
            }),
            Entry::Worked { .. }
            | Entry::Denied { .. }
            | Entry::SessionOpened(_)
            | Entry::Prompted { .. } => {}
            Entry::Released { why, .. } => tell(EventKind::Released { why: why.clone() }),
            Entry::Finished(outcome) => tell(EventKind::Finished {
                status: outcome.status(),
                output: outcome.output().clone(),
                error: outcome.error(),
                cut_short: outcome.cut_short().map(str::to_owned),
            }),
            Entry::Continued { by } => tell(EventKind::Continued { by: *by }),
        }
        events
    }

    fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.get(id.index as usize).filter(|_| self.turn.is_none_or(|turn| turn == id.turn))
    }

    /// Forgets the streamed text of a reply that is over.
    fn discard_live_text(&mut self) {
        self.text = 0;
        self.reasoning = 0;
    }
}
