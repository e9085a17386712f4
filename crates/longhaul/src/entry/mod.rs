//! The entries of the journal: everything that can happen to a task.
//!
//! A task *is* its journal, so these types are kept on disk forever. Each entry is stored with the version of
//! the format it was written in ([`FORMAT`]). Decoding an entry of a newer format fails with an error that
//! says so.

mod agent_session;
mod letter;
mod order;
mod outcome;
mod question;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, Attempt, CallId, Digest, LetterId, QuestionId, Seq, TaskId, TaskKey, WorkerId};
use crate::message::{Reply, Usage};
use crate::permission::{Pattern, ToolIdentity};

pub use agent_session::AgentSession;
pub use letter::{Delivery, Letter, Sender, StopCause, StopRequest, TaskEnding};
pub use order::{Budget, Isolation, OnFinish, Order};
pub use outcome::{Failure, FailureKind, Outcome, Status};
pub use question::{
    Approval, ApprovalError, ExpectedAnswer, FileChange, GrantScope, Question, QuestionAnswer,
};

/// The format version of new entries.
pub const FORMAT: u16 = 1;

/// An entry with its position in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The position.
    pub seq: Seq,
    /// When it was appended.
    pub at: Timestamp,
    /// What happened.
    pub entry: Entry,
}

/// What happened to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// The task was created. Always the first entry.
    Submitted(Box<Submission>),
    /// A worker claimed the task.
    Claimed {
        /// The number of the attempt.
        attempt: Attempt,
        /// The worker.
        worker: WorkerId,
    },
    /// The task received a letter.
    Letter(Box<Letter>),
    /// The task was asked to stop.
    StopRequested(StopRequest),
    /// The owner added these letters to the conversation.
    Read {
        /// The letters that were added here, in this order.
        letters: Vec<LetterId>,
        /// Letters about results that the task had already collected. They count as read, and the model does
        /// not see them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        known: Vec<LetterId>,
        /// If some of the letters report ended children: whether everything that the task launched has ended
        /// by now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        all_ended: Option<bool>,
    },
    /// The model replied.
    Replied(Arc<Reply>),
    /// A tool is about to run.
    Called {
        /// The call and its reply.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments, if they differ from the ones in the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// Whether it may change something outside of Longhaul.
        #[serde(default, skip_serializing_if = "is_false")]
        effects: bool,
        /// Whether an agent of another program makes the call itself. It is recorded and never run here. The
        /// arguments are then always set, and no reply contains the call.
        #[serde(default, skip_serializing_if = "is_false")]
        foreign: bool,
    },
    /// A tool returned.
    Returned(Box<CallResult>),
    /// Streamed text of an unfinished reply, coalesced. A crash may lose the end of it.
    Said {
        /// The kind of text.
        voice: LiveTextKind,
        /// The text.
        text: String,
    },
    /// The owner waits for something outside of this journal. A crash may lose this entry.
    Waiting {
        /// What it waits for.
        on: WaitReason,
        /// The latest end of the wait, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The engine added a message of its own for the model.
    Nudged {
        /// Why.
        why: NudgeReason,
        /// The message.
        text: Arc<str>,
    },
    /// A person is asked for an approval or an answer. After a restart the same question is asked again under
    /// the same id.
    Asked {
        /// The question's id; the answer refers to it.
        question: QuestionId,
        /// The question.
        asks: Box<Question>,
        /// When the question expires.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// A person answered, or it is certain that nobody will.
    Answered {
        /// Which question.
        question: QuestionId,
        /// The answer, or why there is none.
        answer: QuestionAnswer,
    },
    /// A person approved calls like these from now on, for all tasks of the tree. Only in the journal of a
    /// root.
    Granted {
        /// The approved calls.
        pattern: Pattern,
        /// The tool that the person saw. Earlier versions did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<Box<ToolIdentity>>,
    },
    /// A person moved the task's waiting calls to the background: they return now, and the tasks that they
    /// waited for continue.
    Backgrounded,
    /// A hook failed.
    HookFailed(Box<HookFailure>),
    /// A summary replaced the conversation up to here. The order stays.
    Compacted {
        /// The summary.
        summary: Arc<str>,
        /// How many messages it replaces, counted from the first one after the order.
        replaces: u32,
        /// The tokens used to write the summary.
        #[serde(default)]
        usage: Usage,
        /// Its cost in millionths of a dollar; `None` if the price is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<u64>,
    },
    /// A tool call asked the model on behalf of an MCP server (sampling). The task is charged for it.
    Sampled(Box<SamplingUsage>),
    /// The working time of the task, written when the timestamps of the entries cannot tell: the machine
    /// slept, only people were waited for, or nothing has happened for a long time.
    Worked {
        /// The working time so far, in milliseconds, over all attempts.
        ms: u64,
        /// Whether time stops counting here until the owner writes again.
        #[serde(default, skip_serializing_if = "is_false")]
        paused: bool,
    },
    /// A call was denied because nobody was there to approve it. Its result follows and tells the model so.
    Denied {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
    },
    /// A warning for people: the task continues, but not quite as intended. A task gives each warning once.
    Warned {
        /// The warning.
        text: Arc<str>,
    },
    /// A person changed the budget of the task and everything below it. Each limit set here replaces the
    /// earlier one.
    BudgetSet {
        /// The limits, counted from the start of the task.
        budget: Budget,
    },
    /// A session with an agent of another program was opened, or opened again. Written before its first
    /// prompt.
    SessionOpened(Box<AgentSession>),
    /// A prompt is about to be sent to the last opened session. After a crash nobody knows whether it
    /// arrived until the session was loaded.
    Prompted {
        /// The prompt as it is sent.
        text: Arc<str>,
        /// Whether it replaces the prompt before it, which did not arrive.
        #[serde(default, skip_serializing_if = "is_false")]
        again: bool,
        /// Whether it was meant for a turn that had ended, and was not taken: it is sent after the reply.
        #[serde(default, skip_serializing_if = "is_false")]
        held: bool,
    },
    /// An attempt ended without an outcome; the task can be claimed again.
    Released {
        /// The number of the attempt.
        attempt: Attempt,
        /// Why.
        why: ReleaseReason,
    },
    /// The task ended.
    Finished(Box<Outcome>),
    /// Another task continues this one. This one stays as it ended.
    Continued {
        /// The task that continues it.
        by: TaskId,
    },
}

/// The kinds of entries, for filters and indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained at the entry of the same name")]
#[repr(u8)]
#[non_exhaustive]
pub enum EntryKind {
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
    Granted = 18,
    Backgrounded = 19,
    HookFailed = 20,
    Sampled = 21,
    Worked = 22,
    Denied = 23,
    Warned = 24,
    BudgetSet = 25,
    SessionOpened = 26,
    Prompted = 27,
}

impl Entry {
    /// The kind of this entry.
    pub fn kind(&self) -> EntryKind {
        match self {
            Entry::Submitted(_) => EntryKind::Submitted,
            Entry::Claimed { .. } => EntryKind::Claimed,
            Entry::Letter(_) => EntryKind::Letter,
            Entry::StopRequested(_) => EntryKind::StopRequested,
            Entry::Read { .. } => EntryKind::Read,
            Entry::Replied(_) => EntryKind::Replied,
            Entry::Called { .. } => EntryKind::Called,
            Entry::Returned(_) => EntryKind::Returned,
            Entry::Said { .. } => EntryKind::Said,
            Entry::Waiting { .. } => EntryKind::Waiting,
            Entry::Nudged { .. } => EntryKind::Nudged,
            Entry::Asked { .. } => EntryKind::Asked,
            Entry::Answered { .. } => EntryKind::Answered,
            Entry::Granted { .. } => EntryKind::Granted,
            Entry::Backgrounded => EntryKind::Backgrounded,
            Entry::HookFailed(_) => EntryKind::HookFailed,
            Entry::Compacted { .. } => EntryKind::Compacted,
            Entry::Sampled(_) => EntryKind::Sampled,
            Entry::Worked { .. } => EntryKind::Worked,
            Entry::Denied { .. } => EntryKind::Denied,
            Entry::Warned { .. } => EntryKind::Warned,
            Entry::BudgetSet { .. } => EntryKind::BudgetSet,
            Entry::SessionOpened(_) => EntryKind::SessionOpened,
            Entry::Prompted { .. } => EntryKind::Prompted,
            Entry::Released { .. } => EntryKind::Released,
            Entry::Finished(_) => EntryKind::Finished,
            Entry::Continued { .. } => EntryKind::Continued,
        }
    }

    /// Whether the entry only describes what is going on right now, so that it need not survive a power
    /// failure.
    pub fn is_live(&self) -> bool {
        matches!(self, Entry::Said { .. } | Entry::Waiting { .. })
    }

    /// Encodes the entry for storage, in the format [`FORMAT`].
    pub fn encode(&self) -> Result<Vec<u8>, EntryCodecError> {
        serde_json::to_vec(self).map_err(|e| EntryCodecError::Unreadable(e.to_string()))
    }

    /// Decodes a stored entry. Fails if the format is newer than [`FORMAT`] or the bytes are not an entry.
    pub fn decode(format: u16, bytes: &[u8]) -> Result<Entry, EntryCodecError> {
        if format > FORMAT {
            return Err(EntryCodecError::NewerFormat { format });
        }
        serde_json::from_slice(bytes).map_err(|e| EntryCodecError::Unreadable(e.to_string()))
    }
}

/// Why a stored entry cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryCodecError {
    /// A newer version of Longhaul wrote it.
    #[error(
        "it was written by a newer Longhaul (entry format {format}; this one reads up to {FORMAT}): upgrade Longhaul to read it"
    )]
    NewerFormat {
        /// The entry's format.
        format: u16,
    },
    /// It is not an entry.
    #[error("it is damaged: {0}")]
    Unreadable(String),
}

/// A hook that could not run, took too long, exited with an error, or printed something invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFailure {
    /// The event that it ran for: `pre_tool_use`, `task_end` and so on.
    pub event: String,
    /// Its command line, shortened if it is long.
    pub command: String,
    /// What went wrong.
    pub why: String,
    /// Whether a call was denied because of the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

impl std::fmt::Display for HookFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HookFailure { event, command, why, denied } = self;
        write!(f, "{event} hook `{command}` failed: {why}")?;
        if *denied { f.write_str("; the call was denied") } else { Ok(()) }
    }
}

/// The tokens and cost of a model request made by a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingUsage {
    /// The call.
    pub call: CallId,
    /// The model that answered.
    pub model: String,
    /// The tokens used.
    #[serde(default)]
    pub usage: Usage,
    /// The cost in millionths of a dollar; `None` if the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// How a task was created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The key that its id is derived from.
    pub key: TaskKey,
    /// The order.
    pub order: Order,
    /// The team its agent belongs to.
    pub team: TeamRef,
    /// The task that launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The first task of its tree; a root refers to itself.
    pub root: TaskId,
    /// Its distance from the root.
    pub depth: u32,
    /// The ended task whose conversation it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<TaskId>,
    /// The letter that made it continue that task; the letter's text is the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<LetterId>,
    /// The failed or cancelled task that it retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<TaskId>,
    /// The agents of the tasks above it when it was launched, the root's first. Their permissions apply too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<AgentName>,
}

impl Submission {
    /// The submission of a root task that continues no other.
    pub fn root(id: TaskId, key: TaskKey, order: Order, team: TeamRef) -> Submission {
        Submission {
            key,
            order,
            team,
            parent: None,
            root: id,
            depth: 0,
            continues: None,
            letter: None,
            retries: None,
            above: Vec::new(),
        }
    }
}

/// How a task refers to its team.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeamRef {
    /// A team built in code. Only processes that have registered it under this name can run its tasks.
    Named(Arc<str>),
    /// A team file that is kept in the store.
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

fn is_false(b: &bool) -> bool {
    !*b
}

/// The result of a tool call, and its effect on the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call.
    pub call: CallId,
    /// What the model sees.
    pub output: Arc<str>,
    /// Whether it is an error.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_error: bool,
    /// The whole output in the store, if `output` is only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Digest>,
    /// Tasks whose final result is in the output, so that no letter about them is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<TaskId>,
    /// Whether the call looked at the caller's tasks and all of them had ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_ended: bool,
    /// The agent that continues the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<AgentName>,
    /// The model that continues the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// The tool, if an agent of another program made the call itself: see [`Entry::Called`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Arc<str>>,
}

impl CallResult {
    /// A result that is no error and collects nothing.
    pub fn new(call: CallId, output: impl Into<Arc<str>>) -> CallResult {
        let (is_error, whole, collected, handoff, model) = (false, None, Vec::new(), None, None);
        let output = output.into();
        CallResult {
            call,
            output,
            is_error,
            whole,
            collected,
            all_ended: false,
            handoff,
            model,
            foreign: None,
        }
    }
}

/// Which model continues a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChoice {
    /// Another model of the team, by name.
    Other(String),
    /// The agent's own model.
    Own,
}

/// The kinds of streamed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveTextKind {
    /// Text of the unfinished reply.
    Text,
    /// Reasoning of the unfinished reply.
    Reasoning,
    /// A tool's progress message.
    Progress,
}

/// What an owner waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// Other tasks, until they end.
    Tasks(Vec<TaskId>),
    /// A letter: the task is interactive and has nothing left to do.
    Letter,
    /// A person's answer.
    Person(String),
    /// A provider that is rate limiting or failed; the call will be retried. The text streamed so far is
    /// void.
    Provider(String),
}

/// Why the engine added a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NudgeReason {
    /// The reply was no answer: it was empty, or described a call instead of making it.
    Empty,
    /// The answer does not match the required schema.
    Shape,
    /// The model repeats the same call.
    Repeating,
    /// The model keeps launching tasks although it has results.
    Launching,
    /// The model's calls return what they returned before.
    Unchanged,
    /// The model is in a loop: it gets no tools for its next reply.
    ToolsOff,
    /// The task starts: its start hooks have run, and the text, if any, is their output.
    Begun,
    /// A limit is reached: tools are off, and the next reply is the final answer.
    LastWord(String),
}

/// Why an attempt ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReleaseReason {
    /// The owner is shutting down and released the task.
    Drained,
    /// The owner is gone.
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let entry = Entry::Returned(Box::new(CallResult {
            collected: vec![TaskKey::random().candidate_ids().next().unwrap()],
            ..CallResult::new(CallId { turn: 2, index: 0 }, "done")
        }));
        assert_eq!(Entry::decode(FORMAT, &entry.encode().unwrap()).unwrap(), entry);
    }

    #[test]
    fn an_entry_of_the_future_says_so() {
        let error = Entry::decode(FORMAT + 1, b"{}").unwrap_err();
        assert_eq!(error, EntryCodecError::NewerFormat { format: FORMAT + 1 });
        assert!(error.to_string().contains("upgrade"));
    }

    #[test]
    fn an_unknown_or_damaged_entry_is_an_error_and_not_a_panic() {
        for bytes in [&b"{\"no_such_entry\":{}}"[..], b"\xff\xfe", b"", b"{\"claimed\":{}}"] {
            assert!(matches!(Entry::decode(FORMAT, bytes), Err(EntryCodecError::Unreadable(_))));
        }
    }
}
