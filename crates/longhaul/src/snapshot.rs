//! What an observer sees of a task: events and a summary, folded from the journal.
//!
//! [`Snapshot`] is one task at one moment; [`EventProjector`] turns a journal, entry by entry, into the [`Event`]s that a
//! person or a program follows.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::entry::{
    Budget, Entry, HookFailure, LiveTextKind, NudgeReason, Order, Outcome, Question, QuestionAnswer, Record,
    ReleaseReason, Sender, StopCause, WaitReason,
};
use crate::id::{AgentName, Attempt, CallId, LetterId, QuestionId, Seq, TaskId};
use crate::message::{Call, Usage};
use crate::permission::Pattern;
use crate::task::{IllegalTransition, Status, TaskState};

/// How many events a snapshot keeps; older ones are counted, not kept.
pub const EVENTS_KEPT: usize = 200;

/// One task at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Where it stands.
    pub state: TaskState,
    /// What was ordered.
    pub order: Order,
    /// The answer; before there is one, all it has said so far.
    pub output: String,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// What it asks a person and nobody has answered yet, whole.
    pub questions: Vec<(QuestionId, Question)>,
    /// The last things that happened, at most [`EVENTS_KEPT`].
    pub events: VecDeque<Event>,
    /// How many events there were before those.
    pub dropped: u64,
    projector: EventProjector,
    said: String,
    live: String,
}

impl Snapshot {
    /// The snapshot after the first entry.
    pub fn begin(id: TaskId, record: &Record) -> Result<Snapshot, IllegalTransition> {
        let head = TaskState::begin(id, record)?;
        let order = match &record.entry {
            Entry::Submitted(submitted) => submitted.order.clone(),
            _ => Order::default(),
        };
        let mut snapshot = Snapshot {
            state: head,
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

    /// The snapshot after a whole journal.
    pub fn from_journal(id: TaskId, journal: &[Record]) -> Result<Option<Snapshot>, IllegalTransition> {
        let Some((first, rest)) = journal.split_first() else { return Ok(None) };
        let mut snapshot = Snapshot::begin(id, first)?;
        snapshot.apply_all(rest)?;
        snapshot.update_output();
        Ok(Some(snapshot))
    }

    /// The snapshot of a task that has ended, from where it stands, its first entry and the last ones of its journal:
    /// what was before those is counted in entries. `None` if its end, or the beginning of a turn, is not among them.
    pub(crate) fn from_tail(head: TaskState, first: &Record, last: &[Record]) -> Option<Snapshot> {
        let mut snapshot = Snapshot::begin(head.id, first).ok()?;
        let is_reply = |record: &Record| matches!(record.entry, Entry::Replied(_));
        let begins = last.iter().position(is_reply)?;
        let replies = last.iter().filter(|record| is_reply(record)).count();
        // Calls are found by their turn, and by the reply that has them.
        snapshot.projector.turn = head.turns.checked_sub(u32::try_from(replies).ok()?)?;
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
            snapshot.state = head;
            snapshot.update_output();
            snapshot
        })
    }

    /// Takes in the entries that follow; what the output is then, [`settle_output`](Self::settle_output) says.
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
        // Which are still open is the head's to say.
        if !self.questions.is_empty() {
            let open = &self.state.asked;
            self.questions.retain(|(id, _)| open.iter().any(|asked| asked.question == *id));
        }
        self.push_events(record);
        Ok(())
    }

    /// Makes the output what it is after all that was taken in.
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

/// Something that happened to a task, told to whoever follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The task.
    pub task: TaskId,
    /// The entry that it is told from; give it back to go on from here.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What can happen to a task, as an observer sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The task came to be.
    Submitted {
        /// Who is asked.
        agent: AgentName,
        /// What is asked, in a line.
        headline: String,
        /// The task that launched it.
        parent: Option<TaskId>,
        /// The task that it continues.
        continues: Option<TaskId>,
    },
    /// A worker took it.
    Started {
        /// For the how-many-th time.
        attempt: Attempt,
    },
    /// It says something.
    Text {
        /// The words, to be put after the ones before.
        text: String,
    },
    /// It thinks something.
    Reasoning {
        /// The words, to be put after the ones before.
        text: String,
    },
    /// A reply is complete.
    Usage {
        /// What the reply used.
        usage: Usage,
        /// What that cost in millionths of a dollar, if known.
        cost: Option<u64>,
        /// The model that answered.
        model: String,
    },
    /// A tool is called.
    Call {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments.
        arguments: String,
    },
    /// A tool returned.
    Result {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// What it returned.
        output: Arc<str>,
        /// Whether that is an error.
        is_error: bool,
    },
    /// A tool tells how far it is.
    Progress {
        /// In its words.
        text: String,
    },
    /// It waits.
    Waiting {
        /// For what.
        on: WaitReason,
        /// Until when at the latest.
        until: Option<Timestamp>,
    },
    /// Somebody wrote to it.
    Letter {
        /// The letter.
        letter: LetterId,
        /// Who.
        from: Sender,
        /// What.
        text: Arc<str>,
    },
    /// It has read letters.
    Read {
        /// Which.
        letters: Vec<LetterId>,
    },
    /// The engine spoke to its model.
    Nudged {
        /// Why.
        why: NudgeReason,
    },
    /// A person is asked.
    Asked {
        /// The question's name.
        question: QuestionId,
        /// The question.
        asks: Box<Question>,
        /// Until when an answer is waited for.
        until: Option<Timestamp>,
    },
    /// A person answered.
    Answered {
        /// The question's name.
        question: QuestionId,
        /// What came of it.
        answer: QuestionAnswer,
    },
    /// A person allowed its tree calls like these.
    Granted {
        /// Which.
        pattern: Pattern,
    },
    /// A person does not want it to wait for other tasks: they go on in the background.
    Backgrounded,
    /// A hook failed.
    HookFailed {
        /// Which, how, and whether a call was denied because of it.
        failure: HookFailure,
    },
    /// Something that people should know of: it goes on, but not quite as it was meant to.
    Warned {
        /// What it is.
        text: Arc<str>,
    },
    /// A person changed what it, with all below it, may use.
    BudgetSet {
        /// The bounds that were changed, counted from its beginning.
        budget: Budget,
    },
    /// It is to stop.
    Stopping {
        /// Why.
        cause: StopCause,
    },
    /// Its conversation was made shorter.
    Compacted,
    /// An MCP server that it called has asked its model.
    Sampled {
        /// During which call.
        call: CallId,
        /// What that has used.
        usage: Usage,
        /// What it cost in millionths of a dollar, where the price is known.
        cost: Option<u64>,
        /// The model.
        model: String,
    },
    /// It was given back, and can be claimed again.
    Released {
        /// Why.
        why: ReleaseReason,
    },
    /// It ended.
    Finished {
        /// How.
        status: Status,
        /// The answer, or what there is of it.
        output: Arc<str>,
        /// Why there is no answer.
        error: Option<String>,
    },
    /// Another task continues it.
    Continued {
        /// Which.
        by: TaskId,
    },
}

impl EventKind {
    /// Whether the words of a reply that was not complete yet are void: the model is asked for it again, and what
    /// it says then is told from the beginning.
    pub fn voids_partial_reply(&self) -> bool {
        matches!(self, EventKind::Started { .. } | EventKind::Waiting { on: WaitReason::Provider(_), .. })
    }
}

/// Tells a journal as events.
///
/// Live words come as they are said; when the whole reply follows, only what is new in it is told, so that the
/// texts of all events put together are what the model said, once. Where an event
/// [voids](EventKind::voids_partial_reply) what was said of a reply so far, the reply is told anew from its beginning.
#[derive(Debug, Clone)]
pub struct EventProjector {
    task: TaskId,
    text: usize,
    reasoning: usize,
    turn: u32,
    calls: Vec<Call>,
}

impl EventProjector {
    /// A narrator for a task, before its first entry.
    pub fn new(task: TaskId) -> Self {
        EventProjector { task, text: 0, reasoning: 0, turn: 0, calls: Vec::new() }
    }

    /// The task that it tells of.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// What an entry has to tell: nothing, one thing or a few.
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
                self.turn += 1;
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
                tool: self.call(returned.call).map(|c| c.tool.as_str()).unwrap_or_default().into(),
                output: returned.output.clone(),
                is_error: returned.is_error,
            }),
            Entry::Waiting { on, until } => {
                if matches!(on, WaitReason::Provider(_)) {
                    self.discard_live_text();
                }
                tell(EventKind::Waiting { on: on.clone(), until: *until });
            }
            // Hooks that had nothing to say.
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
            Entry::Worked { .. } | Entry::Denied { .. } => {}
            Entry::Released { why, .. } => tell(EventKind::Released { why: why.clone() }),
            Entry::Finished(outcome) => tell(EventKind::Finished {
                status: match **outcome {
                    Outcome::Completed { .. } => Status::Completed,
                    Outcome::Failed { .. } => Status::Failed,
                    Outcome::Cancelled { .. } => Status::Cancelled,
                },
                output: outcome.output().clone(),
                error: outcome.error(),
            }),
            Entry::Continued { by } => tell(EventKind::Continued { by: *by }),
        }
        events
    }

    fn call(&self, id: CallId) -> Option<&Call> {
        (id.turn == self.turn).then(|| self.calls.get(id.index as usize)).flatten()
    }

    /// The live words so far belong to a reply that is over.
    fn discard_live_text(&mut self) {
        self.text = 0;
        self.reasoning = 0;
    }
}
