//! What can happen to a task: the words of the journal.
//!
//! A task *is* its journal, so these types are what is kept for ever. Each entry is stored with the number of
//! the format it was written in ([`FORMAT`]); an entry of a later format is an error that says so, never a guess.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, Attempt, CallId, Digest, LetterId, Seq, TaskId, TaskKey, WorkerId};
use crate::message::Reply;

/// The format in which entries are written now.
pub const FORMAT: u16 = 1;

/// An entry at its place in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its place.
    pub seq: Seq,
    /// When it was appended.
    pub at: Timestamp,
    /// What happened.
    pub entry: Entry,
}

/// What happened to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The task came to be. Always the first entry.
    Submitted(Box<Submitted>),
    /// A worker took the task.
    Claimed {
        /// Which attempt this is.
        attempt: Attempt,
        /// Who took it.
        worker: WorkerId,
    },
    /// Somebody wrote to the task.
    Letter(Box<Letter>),
    /// Somebody wants the task to stop.
    StopRequested(Stop),
    /// The owner took these letters into the conversation.
    Read {
        /// The letters that entered the conversation here, in this order.
        letters: Vec<LetterId>,
        /// Letters about results that were collected before: they are done with, and the model does not see them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        known: Vec<LetterId>,
    },
    /// The model answered.
    Replied(Arc<Reply>),
    /// A tool is about to run.
    Called {
        /// Which call of which reply.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments, where they differ from the ones in the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
    },
    /// A tool returned.
    Returned(Box<Returned>),
    /// Live words on the way to a reply, coalesced. A crash may lose the last of them.
    Said {
        /// What kind of words.
        voice: Voice,
        /// The words.
        text: String,
    },
    /// The owner waits for something that is not in this journal. A crash may lose it.
    Waiting {
        /// For what.
        on: Wait,
        /// Until when at the latest, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The engine said something to the model on its own account.
    Nudged {
        /// Why.
        why: Nudge,
        /// What it said.
        text: Arc<str>,
    },
    /// A person is asked for an approval or an answer.
    Asked {
        /// The name of the question; the answer bears it too.
        question: CallId,
        /// What is asked.
        text: String,
    },
    /// A person answered.
    Answered {
        /// Which question.
        question: CallId,
        /// The answer.
        text: String,
    },
    /// The conversation up to here was replaced by a summary; the order stays.
    Compacted {
        /// The summary.
        summary: Arc<str>,
        /// How many messages, counted from the one after the order, it replaces.
        replaces: u32,
    },
    /// An attempt ended without an outcome; the task can be claimed again.
    Released {
        /// Which attempt.
        attempt: Attempt,
        /// Why.
        why: Release,
    },
    /// The task ended.
    Finished(Box<Outcome>),
    /// Another task continues this one, which stays as it ended.
    Continued {
        /// The other task.
        by: TaskId,
    },
}

/// The kinds of entries, for filters and indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained at the entry of the same name")]
#[repr(u8)]
pub enum Kind {
    Submitted = 1,
    Claimed = 2,
    Letter = 3,
    StopRequested = 4,
    Read = 5,
    Replied = 6,
    Called = 7,
    Returned = 8,
    Said = 9,
    Waiting = 10,
    Nudged = 11,
    Asked = 12,
    Answered = 13,
    Compacted = 14,
    Released = 15,
    Finished = 16,
    Continued = 17,
}

impl Entry {
    /// What kind of entry this is.
    pub fn kind(&self) -> Kind {
        match self {
            Entry::Submitted(_) => Kind::Submitted,
            Entry::Claimed { .. } => Kind::Claimed,
            Entry::Letter(_) => Kind::Letter,
            Entry::StopRequested(_) => Kind::StopRequested,
            Entry::Read { .. } => Kind::Read,
            Entry::Replied(_) => Kind::Replied,
            Entry::Called { .. } => Kind::Called,
            Entry::Returned(_) => Kind::Returned,
            Entry::Said { .. } => Kind::Said,
            Entry::Waiting { .. } => Kind::Waiting,
            Entry::Nudged { .. } => Kind::Nudged,
            Entry::Asked { .. } => Kind::Asked,
            Entry::Answered { .. } => Kind::Answered,
            Entry::Compacted { .. } => Kind::Compacted,
            Entry::Released { .. } => Kind::Released,
            Entry::Finished(_) => Kind::Finished,
            Entry::Continued { .. } => Kind::Continued,
        }
    }

    /// Whether the entry only says what is going on right now, so that it need not survive a power cut.
    pub fn is_live(&self) -> bool {
        matches!(self, Entry::Said { .. } | Entry::Waiting { .. })
    }

    /// The entry as it is stored, in the format [`FORMAT`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        serde_json::to_vec(self).map_err(|e| CodecError::Unreadable(e.to_string()))
    }

    /// An entry as it was stored in some format.
    pub fn decode(format: u16, bytes: &[u8]) -> Result<Entry, CodecError> {
        if format > FORMAT {
            return Err(CodecError::Future { format });
        }
        serde_json::from_slice(bytes).map_err(|e| CodecError::Unreadable(e.to_string()))
    }
}

/// Why a stored entry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A newer Longhaul wrote it.
    #[error(
        "it was written by a newer Longhaul (entry format {format}; this one reads up to {FORMAT}): upgrade Longhaul to read it"
    )]
    Future {
        /// The format it is in.
        format: u16,
    },
    /// It is not an entry.
    #[error("it is damaged: {0}")]
    Unreadable(String),
}

/// How a task came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// What makes it the task it is.
    pub key: TaskKey,
    /// What is to be done.
    pub order: Order,
    /// The team its agent belongs to.
    pub team: TeamRef,
    /// The task that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The first task of its tree; a root names itself.
    pub root: TaskId,
    /// How far it is from its root.
    pub depth: u32,
    /// The finished task whose conversation it takes up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<TaskId>,
    /// The letter that made it continue that task; its text is the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<LetterId>,
}

/// Where the team of a task is found again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeamRef {
    /// A team built in code: only processes that have registered it under this name can run its tasks.
    Named(Arc<str>),
    /// A team file, kept in the store.
    File(Digest),
}

impl std::fmt::Display for TeamRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TeamRef::Named(name) => write!(f, "team '{name}'"),
            TeamRef::File(digest) => write!(f, "team file {:.12}", digest.as_str()),
        }
    }
}

/// What is to be done, by whom, and within which bounds.
///
/// What is left out is the agent's own choice, or else the default of the policy.
///
/// ```
/// use std::time::Duration;
/// use longhaul::{Budget, Order};
///
/// let order = Order::new("researcher", "What is new in Rust?\nOnly the last two years.")
///     .expected_output("Five lines, each with a source.")
///     .max_turns(8)
///     .timeout(Duration::from_secs(600))
///     .budget(Budget { tokens: Some(50_000), ..Budget::default() });
/// assert_eq!(order.headline(), "What is new in Rust?");
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Order {
    /// The agent that is asked.
    pub agent: Option<AgentName>,
    /// What it is asked to do.
    pub task: Arc<str>,
    /// What the result should look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    /// What the agent should know besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// A few words for lists; the beginning of the task where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Another model than the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only these of the agent's tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Where its tools work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
    /// Whether it stays, silent and without a seat, for the next letter instead of ending.
    #[serde(skip_serializing_if = "is_false")]
    pub interactive: bool,
    /// At most this many replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// At most this long from the first claim on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What this task may use.
    #[serde(skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// What this task and all below it may use together.
    #[serde(skip_serializing_if = "Budget::is_open")]
    pub tree_budget: Budget,
    /// What becomes of children that still run when this task would end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_finish: Option<OnFinish>,
}

fn is_false(b: &bool) -> bool {
    !*b
}

impl Order {
    /// An order for an agent.
    pub fn new(agent: impl Into<AgentName>, task: impl Into<Arc<str>>) -> Self {
        Order { agent: Some(agent.into()), task: task.into(), ..Order::default() }
    }

    /// What the result should look like.
    pub fn expected_output(mut self, text: impl Into<String>) -> Self {
        self.expected_output = Some(text.into());
        self
    }

    /// A few words for lists.
    pub fn title(mut self, text: impl Into<String>) -> Self {
        self.title = Some(text.into());
        self
    }

    /// At most this many replies.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.max_turns = Some(turns);
        self
    }

    /// At most this long from the first claim on.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What this task may use.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// What this task and all below it may use together.
    pub fn tree_budget(mut self, budget: Budget) -> Self {
        self.tree_budget = budget;
        self
    }

    /// Another model than the agent's own.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Only these of the agent's tools.
    pub fn tools<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Where its tools work.
    pub fn working_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.working_dir = Some(dir.into());
        self
    }

    /// Stay for the next letter instead of ending.
    pub fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// What becomes of children that still run when this task would end.
    pub fn on_finish(mut self, policy: OnFinish) -> Self {
        self.on_finish = Some(policy);
        self
    }

    /// What a list shows of the order: its title, or the first line of its task, at most 120 characters.
    pub fn headline(&self) -> String {
        let text = self.title.as_deref().unwrap_or(&self.task);
        let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
        match line.char_indices().nth(119) {
            Some((cut, c)) if cut + c.len_utf8() < line.len() => format!("{}…", &line[..cut]),
            _ => line.to_owned(),
        }
    }
}

/// What may be used. `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Tokens, read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// Time since the first claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
}

impl Budget {
    /// Whether nothing is bounded.
    pub fn is_open(&self) -> bool {
        *self == Budget::default()
    }
}

/// What becomes of children that still run when their parent would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFinish {
    /// The parent waits for them and reads their letters.
    #[default]
    Wait,
    /// They go on without it.
    Detach,
    /// They are stopped.
    Stop,
}

/// Something written to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// Its name. A task takes a letter of one name only once.
    pub id: LetterId,
    /// Who wrote it.
    pub from: Sender,
    /// What it says.
    pub text: Arc<str>,
    /// What it says, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When it is to be read.
    #[serde(default)]
    pub deliver: Deliver,
    /// The child whose end it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<TaskId>,
}

/// Who wrote a letter, or asked for a stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    /// A person, or a program that speaks for one.
    Person,
    /// Another task.
    Task(TaskId),
    /// Longhaul itself.
    System,
}

/// When a letter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// Before the next model call.
    #[default]
    Asap,
    /// When the task has nothing more to say of its own.
    WhenIdle,
}

/// A wish that a task stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why; the strongest reason is the one that is kept.
    pub cause: StopCause,
    /// In somebody's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a task is stopped, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// Its session was closed: no more letters will come. A task that is at rest ends with its answer.
    Closed,
    /// Its parent ended and did not want it any more.
    ParentEnded,
    /// Its parent, or somebody above, was stopped.
    ParentStopped,
    /// An agent stopped it.
    Agent,
    /// A person stopped it.
    Person,
}

impl std::fmt::Display for StopCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopCause::Closed => "its session was closed",
            StopCause::ParentEnded => "its parent ended",
            StopCause::ParentStopped => "its parent was stopped",
            StopCause::Agent => "stopped by its parent agent",
            StopCause::Person => "stopped by a person",
        })
    }
}

/// What a tool returned, and what that did to other tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// Which call.
    pub call: CallId,
    /// What the model sees.
    pub output: Arc<str>,
    /// Whether it is an error.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_error: bool,
    /// Where the whole output is kept, if `output` is only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Digest>,
    /// Tasks whose final result is in the output, so that no letter need tell of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<TaskId>,
    /// The agent that goes on with the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<AgentName>,
}

/// The kinds of live words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    /// Text of the reply that is on its way.
    Text,
    /// Thinking of the reply that is on its way.
    Reasoning,
    /// What a tool says about its progress.
    Progress,
}

/// What an owner waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For other tasks to end.
    Tasks(Vec<TaskId>),
    /// For a letter: an interactive task that has said what it had to say.
    Letter,
    /// For a person's answer.
    Person(String),
    /// For a provider that said "later", or that failed and is to be asked again. The live text so far is void.
    Provider(String),
}

/// Why the engine spoke to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nudge {
    /// It answered nothing.
    Empty,
    /// It makes the same call again and again.
    Repeating,
    /// This limit is reached: tools are off, and what it says now is its last word.
    LastWord(String),
}

/// Why an attempt ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Release {
    /// The owner is shutting down and gave the task back.
    Drained,
    /// The owner is gone.
    Lost,
    /// The owner could not go on here, for this reason.
    GaveUp(String),
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked to do.
    Completed {
        /// The answer.
        output: Arc<str>,
        /// The limit that made it answer early.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_short: Option<String>,
    },
    /// It did not.
    Failed {
        /// Why.
        failure: Failure,
        /// What it had said by then.
        partial: Arc<str>,
    },
    /// It was stopped.
    Cancelled {
        /// Why.
        stop: Stop,
        /// What it had said by then.
        partial: Arc<str>,
    },
}

impl Outcome {
    /// The answer, or what there is of it.
    pub fn output(&self) -> &Arc<str> {
        match self {
            Outcome::Completed { output, .. } => output,
            Outcome::Failed { partial, .. } | Outcome::Cancelled { partial, .. } => partial,
        }
    }

    /// Why there is no answer, in words.
    pub fn error(&self) -> Option<String> {
        match self {
            Outcome::Completed { .. } => None,
            Outcome::Failed { failure, .. } => Some(failure.to_string()),
            Outcome::Cancelled { stop, .. } => Some(
                stop.note.clone().map_or_else(|| stop.cause.to_string(), |n| format!("{}: {n}", stop.cause)),
            ),
        }
    }
}

/// Why a task failed: a word for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// The word.
    pub kind: FailureKind,
    /// The sentence.
    pub message: String,
}

impl Failure {
    /// A failure of a kind, with its sentence.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
}

/// The ways in which a task fails. Each has its own word; none is ever shown as success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The model said nothing, and nothing again when it was reminded.
    NoAnswer,
    /// The provider refused, failed for good, or cut the stream too often.
    Model,
    /// The model fell silent in the middle of a reply.
    Silent,
    /// The model, or a filter, refused to answer.
    Refused,
    /// The turn limit was reached, and the policy says that this is a failure.
    TurnLimit,
    /// A budget was used up.
    Budget,
    /// The task took too long.
    Timeout,
    /// The model made the same call again and again.
    Repeating,
    /// A tool said that the run cannot go on.
    Tool,
    /// Longhaul itself failed while running the task.
    Panic,
    /// The worker that ran the task is gone, and the policy says not to resume it.
    LostWorker,
    /// The task's agent or model is not in its team.
    Team,
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FailureKind::NoAnswer => "no answer",
            FailureKind::Model => "model error",
            FailureKind::Silent => "silent model",
            FailureKind::Refused => "refused",
            FailureKind::TurnLimit => "turn limit",
            FailureKind::Budget => "budget used up",
            FailureKind::Timeout => "timed out",
            FailureKind::Repeating => "repeating itself",
            FailureKind::Tool => "tool error",
            FailureKind::Panic => "internal error",
            FailureKind::LostWorker => "worker lost",
            FailureKind::Team => "team error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let entry = Entry::Returned(Box::new(Returned {
            call: CallId { turn: 2, index: 0 },
            output: "done".into(),
            is_error: false,
            whole: None,
            collected: vec![TaskKey::fresh().candidates().next().unwrap()],
            handoff: None,
        }));
        assert_eq!(Entry::decode(FORMAT, &entry.encode().unwrap()).unwrap(), entry);
    }

    #[test]
    fn an_entry_of_the_future_says_so() {
        let error = Entry::decode(FORMAT + 1, b"{}").unwrap_err();
        assert_eq!(error, CodecError::Future { format: FORMAT + 1 });
        assert!(error.to_string().contains("upgrade"));
    }

    #[test]
    fn an_unknown_or_damaged_entry_is_an_error_and_not_a_panic() {
        for bytes in [&b"{\"no_such_entry\":{}}"[..], b"\xff\xfe", b"", b"{\"claimed\":{}}"] {
            assert!(matches!(Entry::decode(FORMAT, bytes), Err(CodecError::Unreadable(_))));
        }
    }

    #[test]
    fn a_headline_is_one_short_line() {
        assert_eq!(Order::new("a", "\n  first line \nsecond").headline(), "first line");
        assert_eq!(Order::new("a", "x".repeat(120)).headline(), "x".repeat(120));
        let long = Order::new("a", "é".repeat(500)).headline();
        assert_eq!(long.chars().count(), 120);
        assert!(long.ends_with('…'));
    }
}
