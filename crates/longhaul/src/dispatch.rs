//! The only way a running agent reaches other tasks, and who may call whom.
//!
//! Tools get an `Arc<dyn Desk>` with every call, and say with every request who is asking. The supervisor
//! implements it; that is how tools reach the supervisor without knowing it. Everything here is repeatable: the
//! same caller making the same call again gets the same task, and writes no second letter.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::entry::Order;
use crate::id::{AgentName, CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::store::StoreError;
use crate::task::{Status, TaskState};

/// Who is asking: a task, and the agent that runs it. It travels with every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The task.
    pub task: TaskId,
    /// The first task of its tree.
    pub root: TaskId,
    /// The agent that runs it now.
    pub agent: AgentName,
    /// How far the task is from its root.
    pub depth: u32,
}

/// An agent as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    /// Its name.
    pub name: AgentName,
    /// What it is good for.
    pub description: String,
}

/// What the desk answers.
pub type DispatchFuture<'a, T> = BoxFuture<'a, Result<T, DispatchError>>;

/// The desk. `typed` is an id, or the unique beginning of one, as the model wrote it; only tasks below the caller
/// are found.
pub trait Dispatcher: Send + Sync + 'static {
    /// What time it is, for whoever tells how long something has taken.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Launches a task of one of the caller's sub-agents. When the id comes back, the task is on disk.
    fn submit<'a>(&'a self, caller: &'a Caller, call: CallId, order: Order) -> DispatchFuture<'a, TaskId>;

    /// How the last of these tasks ended, if it has had this very order and nothing has happened since that could lead to
    /// another result: then there is no need to launch it again.
    fn answered<'a>(
        &'a self,
        caller: &'a Caller,
        earlier: &'a [EarlierResult],
        order: &'a Order,
    ) -> DispatchFuture<'a, Option<Snapshot>> {
        let _ = (caller, earlier, order);
        Box::pin(async { Ok(None) })
    }

    /// The tasks below the caller, in the order of their submission.
    fn list<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>>;

    /// One task below the caller.
    fn view<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, Snapshot>;

    /// Waits until one or all of the tasks have ended, or the time is up, which harms nothing.
    /// The answer has the tasks in the order in which they were asked for.
    fn wait<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
        join: WaitMode,
        timeout: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult>;

    /// Stops a task and everything below it. Answers how it stood before.
    fn stop<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, TaskState>;

    /// Writes to a task. A task that has ended is continued by a new one, whose id is in the answer.
    fn send<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        typed: &'a str,
        note: LetterContent,
    ) -> DispatchFuture<'a, SendReceipt>;

    /// Writes to every task below the caller that has not ended. Answers which those are.
    fn broadcast<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        note: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>>;
}

/// A task that a caller has launched before with the words of a call, or with much the same, and whose result it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierResult {
    /// The task.
    pub task: TaskId,
    /// The call that launched it.
    pub call: CallId,
    /// When its result was read.
    pub read: Timestamp,
    /// Whether the words were the same, and the caller has done nothing since that may have made the result out of date.
    pub same: bool,
}

/// Whether an order need not be carried out: `earlier` has had it, with success, and nothing has happened anywhere in its tree
/// since its result was read that could lead to another.
pub fn is_answered_by(
    order: &Order,
    earlier: &EarlierResult,
    had: &Order,
    head: &TaskState,
    tree: &[TaskState],
) -> bool {
    let whole = head.status == Status::Completed && head.cut_short.is_none() && head.continued_by.is_none();
    // What it is called in lists is no part of what is wanted.
    let wanted = |order: &Order| Order {
        title: None,
        task: order.task.split_whitespace().collect::<Vec<_>>().join(" ").into(),
        ..order.clone()
    };
    earlier.same
        && whole
        && wanted(order) == wanted(had)
        && !tree.iter().any(|task| task.has_changed_since(earlier.read))
}

/// When a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitMode {
    /// When all have ended.
    #[default]
    All,
    /// When one has ended.
    Any,
}

/// How a wait ended.
#[derive(Debug, Clone)]
pub struct WaitResult {
    /// How the tasks stand, in the order in which they were asked for.
    pub tasks: Vec<Snapshot>,
    /// Whether the time was up first.
    pub timed_out: bool,
}

/// What is written to a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterContent {
    /// The text.
    pub text: String,
    /// The text in a few words.
    pub summary: Option<String>,
}

/// Where a letter went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReceipt {
    /// The task that will read it.
    pub to: TaskId,
    /// Whether that is a new task, because the one written to had ended.
    pub continued: bool,
}

/// Bounds on how many tasks there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLimits {
    /// Tasks that run at once in one process.
    pub running: usize,
    /// Tasks that wait to be run; `None` is no bound.
    pub queue: Option<u32>,
    /// How far a task may be from its root.
    pub depth: u32,
    /// Tasks in one tree; `None` is no bound.
    pub tree: Option<u32>,
    /// Processes that tool calls and hooks run at once in one process of Longhaul: the next one waits, visibly. Background
    /// jobs and MCP servers do not count; neither do calls that start nothing.
    pub processes: usize,
    /// Whether a task is refused, instead of queued, when there are as many tasks that have not ended as may run.
    pub reject_when_full: bool,
}

impl Default for TaskLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        TaskLimits {
            running: 32,
            queue: Some(1000),
            depth: 3,
            tree: Some(200),
            processes: (2 * cores).max(8),
            reject_when_full: false,
        }
    }
}

/// Why the desk refused. The text is for the model: it says what can be done instead.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DispatchError {
    /// There is no such agent, or it is not the caller's to call.
    #[error("there is no agent '{asked}' for you to call. {}", offer("You can call", .may))]
    UnknownAgent {
        /// Who was asked for.
        asked: String,
        /// Who may be called.
        may: Vec<AgentName>,
    },
    /// There is no such task below the caller.
    #[error("you have no task '{asked}'. {}", offer_tasks(.have))]
    UnknownTask {
        /// What was asked for.
        asked: String,
        /// What there is.
        have: Vec<TaskId>,
    },
    /// Several of the caller's tasks are called that.
    #[error("'{asked}' is the beginning of several of your tasks. {}", offer("Say which", .matches))]
    Ambiguous {
        /// What was asked for.
        asked: String,
        /// What it could be.
        matches: Vec<TaskId>,
    },
    /// An order with nothing in it.
    #[error("the task is empty: say in `task` what the agent should do")]
    EmptyTask,
    /// A letter with nothing in it.
    #[error("the message is empty: say in `message` what the agent should know")]
    EmptyMessage,
    /// The order names a model that the team does not have.
    #[error("there is no model '{asked}' in this team. {}", offer("You can use", .may))]
    UnknownModel {
        /// What was asked for.
        asked: String,
        /// What there is.
        may: Vec<String>,
    },
    /// The caller is too deep to launch anything.
    #[error(
        "you are {depth} levels below the first agent, which is as deep as it may go: do this work yourself"
    )]
    TooDeep {
        /// How deep the caller is.
        depth: u32,
    },
    /// Too many tasks.
    #[error("the limit of {limit} {what} is reached: wait for tasks to end, or do this work yourself")]
    Limit {
        /// The limit.
        limit: u32,
        /// Of what.
        what: &'static str,
    },
    /// The caller is being stopped.
    #[error("you are being stopped: no new task is started")]
    Stopping,
    /// The other's mailbox is full.
    #[error("the mailbox of {0} is full: write again when it has read its letters")]
    MailboxFull(TaskId),
    /// The store failed. That is not the model's business: the run ends.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn offer_tasks(have: &[TaskId]) -> String {
    match have {
        [] => "You have started none yet: start one first, and use the id that comes back.".to_owned(),
        some => offer("Your tasks are", some),
    }
}

fn offer<T: std::fmt::Display>(lead: &str, what: &[T]) -> String {
    match what {
        [] => "There are none.".to_owned(),
        some => {
            let names: Vec<_> = some.iter().take(20).map(ToString::to_string).collect();
            let more = if some.len() > 20 { ", …" } else { "" };
            format!("{lead}: {}{more}.", names.join(", "))
        }
    }
}

/// Whether `caller`, who may call `may`, can give this order. The limits that need a count are checked by the
/// store in the moment of writing.
pub fn check_order(
    caller: &Caller,
    may: &[AgentName],
    order: &Order,
    limits: &TaskLimits,
) -> Result<(), DispatchError> {
    // Dots are what an example has in the place of a task.
    if !order.task.contains(char::is_alphanumeric) {
        return Err(DispatchError::EmptyTask);
    }
    if !order.agent.as_ref().is_some_and(|agent| may.contains(agent)) {
        let asked = order.agent.as_ref().map(ToString::to_string).unwrap_or_default();
        return Err(DispatchError::UnknownAgent { asked, may: may.to_vec() });
    }
    if caller.depth >= limits.depth {
        return Err(DispatchError::TooDeep { depth: caller.depth });
    }
    Ok(())
}

/// The one of `tasks` that is called `typed`.
pub fn find_task(tasks: &[TaskState], typed: &str) -> Result<TaskId, DispatchError> {
    let unknown = || DispatchError::UnknownTask {
        asked: typed.chars().take(40).collect(),
        have: tasks.iter().map(|t| t.id).collect(),
    };
    let prefix = TaskId::parse_prefix(typed).ok_or_else(unknown)?;
    if let Some(exact) = tasks.iter().find(|t| t.id.letters() == prefix) {
        return Ok(exact.id);
    }
    let matches: Vec<TaskId> =
        tasks.iter().map(|t| t.id).filter(|id| id.letters().starts_with(&prefix)).collect();
    match matches.as_slice() {
        [] => Err(unknown()),
        [one] => Ok(*one),
        _ => Err(DispatchError::Ambiguous { asked: typed.to_owned(), matches }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{Entry, Outcome, Record, Submission, TeamRef};
    use crate::id::{Attempt, Seq, TaskKey, WorkerId};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A task that has ended like this, and in which something last happened at this time.
    fn head(name: &str, outcome: Outcome, changed: Option<i64>) -> TaskState {
        let key = TaskKey::named(name);
        let id = key.candidate_ids().next().unwrap();
        let submitted =
            Submission::root(id, key, Order::new("reader", "Read it."), TeamRef::Named("team".into()));
        let claimed = Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("w") };
        let entries = [Entry::Submitted(Box::new(submitted)), claimed, Entry::Finished(Box::new(outcome))];
        let record = |(n, entry): (usize, Entry)| Record { seq: Seq(n as u64 + 1), at: at(1), entry };
        let journal: Vec<Record> = entries.into_iter().enumerate().map(record).collect();
        TaskState { changed: changed.map(at), ..TaskState::from_journal(id, &journal).unwrap().unwrap() }
    }

    fn completed(cut_short: Option<&str>) -> Outcome {
        Outcome::Completed { output: "BADGER".into(), cut_short: cut_short.map(str::to_owned) }
    }

    #[test]
    fn only_a_whole_answer_to_the_very_same_order_answers_it() {
        let order = || Order::new("reader", "Read it.");
        let done = head("one", completed(None), None);
        let earlier =
            EarlierResult { task: done.id, call: CallId { turn: 1, index: 0 }, read: at(10), same: true };
        let answers = |order: &Order, earlier: &EarlierResult, head: &TaskState| {
            is_answered_by(
                order,
                earlier,
                &Order::new("reader", "Read it."),
                head,
                std::slice::from_ref(head),
            )
        };
        assert!(answers(&order(), &earlier, &done));
        assert!(answers(&order().title("another title"), &earlier, &done));
        assert!(answers(&Order::new("reader", " Read  it. "), &earlier, &done));
        for other in [
            Order::new("writer", "Read it."),
            Order::new("reader", "Read it!"),
            order().expected_output("One word."),
            order().model("large"),
            order().max_turns(9),
        ] {
            assert!(!answers(&other, &earlier, &done), "{other:?}");
        }
        assert!(!answers(&order(), &EarlierResult { same: false, ..earlier }, &done));
        let stop = crate::entry::StopRequest { cause: crate::entry::StopCause::Person, note: None };
        for outcome in
            [completed(Some("the limit of 9 turns")), Outcome::Cancelled { stop, partial: "".into() }]
        {
            assert!(!answers(&order(), &earlier, &head("one", outcome, None)));
        }
    }

    proptest! {
        /// Whatever happened in the tree, and in which task: it counts if it was not before the result was read.
        #[test]
        fn nothing_may_have_happened_since(
            changed in proptest::collection::vec(proptest::option::of(0..20i64), 1..8),
            read in 0..20i64,
        ) {
            let tree: Vec<TaskState> = changed
                .iter()
                .enumerate()
                .map(|(n, changed)| head(&n.to_string(), completed(None), *changed))
                .collect();
            let order = Order::new("reader", "Read it.");
            let earlier = EarlierResult { task: tree[0].id, call: CallId { turn: 1, index: 0 }, read: at(read), same: true };
            let since = changed.iter().flatten().any(|changed| *changed >= read);
            prop_assert_eq!(is_answered_by(&order, &earlier, &order, &tree[0], &tree), !since);
        }
    }
}
