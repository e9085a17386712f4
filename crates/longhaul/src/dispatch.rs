//! How a running agent reaches other tasks, and which agents it may call.
//!
//! Every tool call gets an `Arc<dyn Dispatcher>` and passes a [`Caller`] with every request. The supervisor
//! implements the trait, so tools do not depend on the supervisor. Every operation is idempotent: if the same
//! caller repeats the same call, it gets the same task and sends no second letter.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::entry::Order;
use crate::id::{AgentName, CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::store::StoreError;
use crate::task::{Status, TaskState};

/// The task that makes a request, and the agent that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The task.
    pub task: TaskId,
    /// The first task of its tree.
    pub root: TaskId,
    /// The agent that runs it now.
    pub agent: AgentName,
    /// The task's distance from its root.
    pub depth: u32,
}

/// An agent as the agents that may call it see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    /// Its name.
    pub name: AgentName,
    /// What it does.
    pub description: String,
}

/// The future that every [`Dispatcher`] operation returns.
pub type DispatchFuture<'a, T> = BoxFuture<'a, Result<T, DispatchError>>;

/// Launches, inspects, stops and messages tasks for a caller. `typed` is a task id, or a unique prefix of
/// one, as the model wrote it. Only tasks below the caller are found.
pub trait Dispatcher: Send + Sync + 'static {
    /// The current time, to compute how long something took.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Launches a task for one of the caller's sub-agents. When this returns the id, the task is on disk.
    /// Fails if the caller may not call that agent or a limit is reached.
    fn submit<'a>(&'a self, caller: &'a Caller, call: CallId, order: Order) -> DispatchFuture<'a, TaskId>;

    /// Returns the last of these tasks that makes another launch of `order` unnecessary: it has the same order,
    /// it runs or has succeeded, and nothing has happened since that could change its result.
    fn answered<'a>(
        &'a self,
        caller: &'a Caller,
        earlier: &'a [EarlierLaunch],
        order: &'a Order,
    ) -> DispatchFuture<'a, Option<Snapshot>> {
        let _ = (caller, earlier, order);
        Box::pin(async { Ok(None) })
    }

    /// The tasks below the caller, in submission order.
    fn list<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>>;

    /// The states of tasks below the caller: a result for each id, in the same order.
    fn find<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
    ) -> DispatchFuture<'a, Vec<Result<TaskState, DispatchError>>> {
        Box::pin(async move {
            let tasks = self.list(caller).await?;
            Ok(typed.iter().map(|typed| find_task(&tasks, typed).cloned()).collect())
        })
    }

    /// How many tasks are below the caller, if all of them have ended.
    fn count_if_ended<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Option<usize>> {
        Box::pin(async move {
            let tasks = self.list(caller).await?;
            Ok(tasks.iter().all(|task| task.status.is_final()).then_some(tasks.len()))
        })
    }

    /// One task below the caller. Fails if `typed` matches no task, or several.
    fn view<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, Snapshot>;

    /// Waits until one or all of the tasks have ended, or the timeout expires. A timeout does not affect the
    /// tasks. The result lists the tasks in the order in which they were requested.
    fn wait<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
        join: WaitMode,
        timeout: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult>;

    /// Stops a task and everything below it. Returns the task's state from before.
    fn stop<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, TaskState>;

    /// Sends a letter to a task. If the task has ended, a new task continues it, and the receipt holds the
    /// new id.
    fn send<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        typed: &'a str,
        note: LetterContent,
    ) -> DispatchFuture<'a, SendReceipt>;

    /// Sends a letter to every task below the caller that has not ended. Returns those tasks.
    fn broadcast<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        note: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>>;
}

/// A call with which the caller launched a task earlier, with the same or a similar order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlierLaunch {
    /// The call that launched the task.
    pub call: CallId,
    /// When it was launched.
    pub launched: Timestamp,
    /// The task, and when the caller read its result; `None` if it has not.
    pub result: Option<(TaskId, Timestamp)>,
    /// Whether the order was the same and the caller has done nothing since that could change the result.
    pub same: bool,
}

/// Whether the task of `earlier`, in this state, makes another launch of `order` unnecessary: it has the same order,
/// it runs or has succeeded, and nothing has happened in its tree since that could change its result.
pub fn is_answered_by(
    order: &Order,
    earlier: &EarlierLaunch,
    had: &Order,
    state: &TaskState,
    tree: &[TaskState],
) -> bool {
    let is_good = match state.status {
        Status::Pending | Status::Running => state.stop.is_none(),
        Status::Completed => state.cut_short.is_none() && state.continued_by.is_none(),
        Status::Failed | Status::Cancelled => false,
    };
    // The title is only for lists; it does not change what is asked for.
    let wanted = |order: &Order| Order {
        title: None,
        task: order.task.split_whitespace().collect::<Vec<_>>().join(" ").into(),
        ..order.clone()
    };
    let since = earlier.result.map_or(earlier.launched, |(_, read)| read);
    // What a task does itself before its result is read is no reason to launch it again.
    let counts = |task: &TaskState| earlier.result.is_some() || task.id != state.id;
    earlier.same
        && is_good
        && wanted(order) == wanted(had)
        && !tree.iter().any(|task| counts(task) && task.has_changed_since(since))
}

/// When a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitMode {
    /// When all tasks have ended.
    #[default]
    All,
    /// When one task has ended.
    Any,
}

/// How a wait ended.
#[derive(Debug, Clone)]
pub struct WaitResult {
    /// The tasks, in the order in which they were requested.
    pub tasks: Vec<Snapshot>,
    /// Whether the timeout expired first.
    pub timed_out: bool,
}

/// The content of a letter to a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterContent {
    /// The text.
    pub text: String,
    /// A short summary of the text.
    pub summary: Option<String>,
}

/// Which task receives a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReceipt {
    /// The task that receives it.
    pub to: TaskId,
    /// Whether that is a new task, because the addressee had ended.
    pub continued: bool,
}

options! {
    /// Limits on the number of tasks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskLimits {
        /// Tasks that run at the same time in one process.
        running: usize = 32,
        /// Tasks that wait in the queue; `None` means no limit.
        queue: Option<u32> = Some(1000),
        /// How far a task may be from its root.
        depth: u32 = 3,
        /// Tasks in one tree; `None` means no limit.
        tree: Option<u32> = Some(200),
        /// Child processes that tool calls and hooks of one Longhaul process run at the same time. Further ones
        /// wait, and the wait is shown. Background jobs, MCP servers and calls that start no process do not
        /// count.
        processes: usize = (2 * cores()).max(8),
        /// Whether to reject a new task, instead of queueing it, when as many tasks are unfinished as may run.
        reject_when_full: bool = false,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Why a request failed. The text is written for the model and says what it can do instead.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// There is no such agent, or the caller may not call it.
    #[error("there is no agent '{asked}' for you to call. {}", offer("You can call", .may))]
    UnknownAgent {
        /// The requested agent.
        asked: String,
        /// The agents that the caller may call.
        may: Vec<AgentName>,
    },
    /// There is no such task below the caller.
    #[error("you have no task '{asked}'. {}", offer_tasks(.have))]
    UnknownTask {
        /// The requested id.
        asked: String,
        /// The caller's tasks.
        have: Vec<TaskId>,
    },
    /// The prefix matches several of the caller's tasks.
    #[error("'{asked}' is the beginning of several of your tasks. {}", offer("Say which", .matches))]
    Ambiguous {
        /// The requested prefix.
        asked: String,
        /// The tasks that match.
        matches: Vec<TaskId>,
    },
    /// The order has no text.
    #[error("the task is empty: say in `task` what the agent should do")]
    EmptyTask,
    /// The letter has no text.
    #[error("the message is empty: say in `message` what the agent should know")]
    EmptyMessage,
    /// The order names a model that the team does not have.
    #[error("there is no model '{asked}' in this team. {}", offer("You can use", .may))]
    UnknownModel {
        /// The requested model.
        asked: String,
        /// The team's models.
        may: Vec<String>,
    },
    /// The order limits the cost, and the price of a model is not known.
    #[error(
        "the cost limit cannot be enforced: the price of {model} is not known. Leave max_cost out, or use another model."
    )]
    UnknownPrice {
        /// The model.
        model: String,
    },
    /// The caller is too deep in the tree to launch tasks.
    #[error(
        "you are {depth} levels below the first agent, which is as deep as it may go: do this work yourself"
    )]
    TooDeep {
        /// The caller's depth.
        depth: u32,
    },
    /// A limit on the number of tasks is reached.
    #[error("the limit of {limit} {what} is reached: wait for tasks to end, or do this work yourself")]
    Limit {
        /// The limit.
        limit: u32,
        /// What is limited.
        what: &'static str,
    },
    /// The caller is being stopped.
    #[error("you are being stopped: no new task is started")]
    Stopping,
    /// The addressee's mailbox is full.
    #[error("the mailbox of {0} is full: write again when it has read its letters")]
    MailboxFull(TaskId),
    /// The store failed. This error is not shown to the model: it ends the run.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn offer_tasks(have: &[TaskId]) -> String {
    match have {
        [] => "You have started none yet: call the tool that starts a task first. The id comes back from it."
            .to_owned(),
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

/// Checks that `caller`, which may call the agents in `may`, can give this order. The store checks the limits
/// that need a count when it writes the task.
pub fn check_order(
    caller: &Caller,
    may: &[AgentName],
    order: &Order,
    limits: &TaskLimits,
) -> Result<(), DispatchError> {
    // Models sometimes copy the `...` of an example instead of writing a task.
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

/// Finds the task whose id is `typed` or starts with it. Fails if none matches, or several do.
pub fn find_task<'a>(tasks: &'a [TaskState], typed: &str) -> Result<&'a TaskState, DispatchError> {
    let unknown = || DispatchError::UnknownTask {
        asked: typed.chars().take(40).collect(),
        have: tasks.iter().map(|t| t.id).collect(),
    };
    let prefix = TaskId::parse_prefix(typed).ok_or_else(unknown)?;
    if let Some(exact) = tasks.iter().find(|t| t.id.letters() == prefix) {
        return Ok(exact);
    }
    let matches: Vec<&TaskState> = tasks.iter().filter(|t| t.id.letters().starts_with(&prefix)).collect();
    match matches[..] {
        [] => Err(unknown()),
        [one] => Ok(one),
        _ => {
            let matches = matches.iter().map(|t| t.id).collect();
            Err(DispatchError::Ambiguous { asked: typed.to_owned(), matches })
        }
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

    /// A task that ended with `outcome` and last changed at `changed`.
    fn ended_task(name: &str, outcome: Outcome, changed: Option<i64>) -> TaskState {
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

    /// The launch of a task whose result was read at that second.
    fn launch_read_at(task: &TaskState, second: i64) -> EarlierLaunch {
        let result = Some((task.id, at(second)));
        EarlierLaunch { call: CallId { turn: 1, index: 0 }, launched: at(1), result, same: true }
    }

    fn completed(cut_short: Option<&str>) -> Outcome {
        Outcome::Completed { output: "BADGER".into(), cut_short: cut_short.map(str::to_owned) }
    }

    #[test]
    fn only_a_whole_answer_to_the_very_same_order_answers_it() {
        let order = || Order::new("reader", "Read it.");
        let done = ended_task("one", completed(None), None);
        let earlier = launch_read_at(&done, 10);
        let answers = |order: &Order, earlier: &EarlierLaunch, state: &TaskState| {
            is_answered_by(
                order,
                earlier,
                &Order::new("reader", "Read it."),
                state,
                std::slice::from_ref(state),
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
        assert!(!answers(&order(), &EarlierLaunch { same: false, ..earlier }, &done));
        let stop = crate::entry::StopRequest { cause: crate::entry::StopCause::Person, note: None };
        for outcome in
            [completed(Some("the limit of 9 turns")), Outcome::Cancelled { stop, partial: "".into() }]
        {
            assert!(!answers(&order(), &earlier, &ended_task("one", outcome, None)));
        }
    }

    #[test]
    fn a_task_that_still_runs_answers_it_unless_others_have_changed_something() {
        let order = Order::new("reader", "Read it.");
        let state = |status, changed: Option<i64>| TaskState {
            status,
            changed: changed.map(at),
            ..ended_task("one", completed(None), None)
        };
        let answers = |state: &TaskState, other: Option<i64>| {
            let earlier = EarlierLaunch { launched: at(10), result: None, ..launch_read_at(state, 0) };
            let tree = [state.clone(), ended_task("two", completed(None), other)];
            is_answered_by(&order, &earlier, &order, state, &tree)
        };
        for status in [Status::Pending, Status::Running, Status::Completed] {
            assert!(answers(&state(status, None), None), "{status}");
            assert!(
                answers(&state(status, Some(12)), Some(9)),
                "{status}: only it has changed something since"
            );
            assert!(
                !answers(&state(status, None), Some(12)),
                "{status}: another has changed something since"
            );
        }
        assert!(!answers(&state(Status::Failed, None), None));
        let stop = crate::entry::StopRequest { cause: crate::entry::StopCause::Person, note: None };
        assert!(!answers(&TaskState { stop: Some(stop), ..state(Status::Running, None) }, None));
    }

    proptest! {
        /// A change anywhere in the tree counts if it did not happen before the result was read.
        #[test]
        fn nothing_may_have_happened_since(
            changed in proptest::collection::vec(proptest::option::of(0..20i64), 1..8),
            read in 0..20i64,
        ) {
            let tree: Vec<TaskState> = changed
                .iter()
                .enumerate()
                .map(|(n, changed)| ended_task(&n.to_string(), completed(None), *changed))
                .collect();
            let order = Order::new("reader", "Read it.");
            let earlier = launch_read_at(&tree[0], read);
            let since = changed.iter().flatten().any(|changed| *changed >= read);
            prop_assert_eq!(is_answered_by(&order, &earlier, &order, &tree[0], &tree), !since);
        }
    }
}
