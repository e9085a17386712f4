//! The entry types of the journal: everything that can happen to a task.
//!
//! A task *is* its journal, so these types are what is kept for ever. Each entry is stored with the number of
//! the format it was written in ([`FORMAT`]); an entry of a later format is an error that says so, never a guess.

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

pub use letter::{Delivery, Letter, Sender, StopCause, StopRequest};
pub use order::{Budget, Isolation, OnFinish, Order};
pub use outcome::{Failure, FailureKind, Outcome};
pub use question::{Approval, ExpectedAnswer, GrantScope, Question, QuestionAnswer};

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
    Submitted(Box<Submission>),
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
    StopRequested(StopRequest),
    /// The owner took these letters into the conversation.
    Read {
        /// The letters that entered the conversation here, in this order.
        letters: Vec<LetterId>,
        /// Letters about results that were collected before: they are done with, and the model does not see them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        known: Vec<LetterId>,
        /// Where ends of children are among them: whether all that the task has started has ended by now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        all_ended: Option<bool>,
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
        /// Whether it may change something outside of Longhaul.
        #[serde(default, skip_serializing_if = "is_false")]
        effects: bool,
    },
    /// A tool returned.
    Returned(Box<CallResult>),
    /// Live words on the way to a reply, coalesced. A crash may lose the last of them.
    Said {
        /// What kind of words.
        voice: LiveTextKind,
        /// The words.
        text: String,
    },
    /// The owner waits for something that is not in this journal. A crash may lose it.
    Waiting {
        /// For what.
        on: WaitReason,
        /// Until when at the latest, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The engine said something to the model on its own account.
    Nudged {
        /// Why.
        why: NudgeReason,
        /// What it said.
        text: Arc<str>,
    },
    /// A person is asked for an approval or an answer. Asked again under the same name after a restart.
    Asked {
        /// The name of the question; the answer bears it too.
        question: QuestionId,
        /// What is asked.
        asks: Box<Question>,
        /// Until when an answer is waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// A person answered; or it is certain that nobody will.
    Answered {
        /// Which question.
        question: QuestionId,
        /// What came of it.
        answer: QuestionAnswer,
    },
    /// A person allowed calls like these from now on, for all tasks of the tree of which this is the root.
    Granted {
        /// Which calls.
        pattern: Pattern,
        /// Of the tool that was shown; earlier versions did not note it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<Box<ToolIdentity>>,
    },
    /// A person does not want the task to wait for others: its calls that do return, and what they wait for goes on in
    /// the background.
    Backgrounded,
    /// A hook did not do what it is there for.
    HookFailed(Box<HookFailure>),
    /// The conversation up to here was replaced by a summary; the order stays.
    Compacted {
        /// The summary.
        summary: Arc<str>,
        /// How many messages, counted from the first and without the order, it replaces.
        replaces: u32,
        /// What the summary has used.
        #[serde(default)]
        usage: Usage,
        /// What it cost in millionths of a dollar; `None` where the price is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<u64>,
    },
    /// A tool call asked the model: the MCP server that was called did (sampling). It is the task that pays.
    Sampled(Box<SamplingUsage>),
    /// For how long the task has been worked on, where the times of the entries before do not tell: the machine slept, nobody
    /// but people was waited for, or nothing has happened for long.
    Worked {
        /// The time until now, in milliseconds, over all attempts.
        ms: u64,
        /// Whether the time from here on does not count, until the owner writes again.
        #[serde(default, skip_serializing_if = "is_false")]
        paused: bool,
    },
    /// A call was denied because nobody was there to allow it: its result, which follows, tells the model so.
    Denied {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: Arc<str>,
    },
    /// Something that people should know of: the task goes on, but not quite as it was meant to. A task says it once.
    Warned {
        /// What it is.
        text: Arc<str>,
    },
    /// A person changed what the task, with all below it, may use. Of each bound that is named this one counts from here on.
    BudgetSet {
        /// The bounds, counted from the beginning of the task.
        budget: Budget,
    },
    /// An attempt ended without an outcome; the task can be claimed again.
    Released {
        /// Which attempt.
        attempt: Attempt,
        /// Why.
        why: ReleaseReason,
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
}

impl Entry {
    /// What kind of entry this is.
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
            Entry::Released { .. } => EntryKind::Released,
            Entry::Finished(_) => EntryKind::Finished,
            Entry::Continued { .. } => EntryKind::Continued,
        }
    }

    /// Whether the entry only says what is going on right now, so that it need not survive a power cut.
    pub fn is_live(&self) -> bool {
        matches!(self, Entry::Said { .. } | Entry::Waiting { .. })
    }

    /// The entry as it is stored, in the format [`FORMAT`].
    pub fn encode(&self) -> Result<Vec<u8>, EntryCodecError> {
        serde_json::to_vec(self).map_err(|e| EntryCodecError::Unreadable(e.to_string()))
    }

    /// An entry as it was stored in some format.
    pub fn decode(format: u16, bytes: &[u8]) -> Result<Entry, EntryCodecError> {
        if format > FORMAT {
            return Err(EntryCodecError::NewerFormat { format });
        }
        serde_json::from_slice(bytes).map_err(|e| EntryCodecError::Unreadable(e.to_string()))
    }
}

/// Why a stored entry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryCodecError {
    /// A newer Longhaul wrote it.
    #[error(
        "it was written by a newer Longhaul (entry format {format}; this one reads up to {FORMAT}): upgrade Longhaul to read it"
    )]
    NewerFormat {
        /// The format it is in.
        format: u16,
    },
    /// It is not an entry.
    #[error("it is damaged: {0}")]
    Unreadable(String),
}

/// A hook that could not be run, took too long, exited with an error, or said something that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFailure {
    /// The event it was run for: `pre_tool_use`, `task_end` and so on.
    pub event: String,
    /// Its command line; the beginning of it, if it is long.
    pub command: String,
    /// What went wrong.
    pub why: String,
    /// Whether a call was denied because of that.
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

/// What a tool call has asked the model, and what that has used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingUsage {
    /// Which call.
    pub call: CallId,
    /// The model that answered.
    pub model: String,
    /// What the answer has used.
    #[serde(default)]
    pub usage: Usage,
    /// What it cost in millionths of a dollar; `None` where the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
}

/// How a task came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
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
    /// The task that failed, or was cancelled, and whose order this is again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<TaskId>,
    /// The agents of the tasks above it when they launched it, the root's first: their permissions count too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<AgentName>,
}

impl Submission {
    /// The beginning of a task that nobody launched and that continues none.
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

fn is_false(b: &bool) -> bool {
    !*b
}

/// What a tool returned, and what that did to other tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
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
    /// The model that is asked from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
}

/// Which model goes on with a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChoice {
    /// Another of the team's, by its name.
    Other(String),
    /// The agent's own again.
    Own,
}

/// The kinds of live words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveTextKind {
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
pub enum WaitReason {
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
pub enum NudgeReason {
    /// It answered nothing.
    Empty,
    /// Its answer does not have the form that it must have.
    Shape,
    /// It makes the same call again and again.
    Repeating,
    /// It only launches tasks, though it has results.
    Launching,
    /// It goes round in circles: in its next reply it has no tools.
    ToolsOff,
    /// It begins its task: the hooks for that have run, and the text, if there is any, is what they told it.
    Begun,
    /// This limit is reached: tools are off, and what it says now is its last word.
    LastWord(String),
}

/// Why an attempt ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// The owner is shutting down and gave the task back.
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
            call: CallId { turn: 2, index: 0 },
            output: "done".into(),
            is_error: false,
            whole: None,
            collected: vec![TaskKey::random().candidate_ids().next().unwrap()],
            handoff: None,
            model: None,
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
