//! An agent's policy as data.

use std::time::Duration;

use crate::entry::{Budget, Delivery, Isolation, OnFinish, Order};

/// Which tools an agent gets for its sub-agents: different toolsets over the same
/// [`Dispatcher`](crate::dispatch::Dispatcher).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SubAgentDialect {
    /// Each sub-agent is a tool with its own name, plus `get_task_result`, `stop_task` and `list_tasks`.
    #[default]
    SubAgents,
    /// `run_background_agent` and its companions, plus `transfer_task`.
    Background,
    /// `spawn_agent` and its companions.
    Managed,
    /// Only `transfer_task`, which waits for the answer.
    Transfer,
}

options! {
    /// How an agent works. Every policy of the engine is a field here.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Policy {
        /// Maximum number of replies; 0 means no limit.
        max_turns: u32 = 50,
        /// What happens at that limit.
        at_turn_limit: AtTurnLimit = AtTurnLimit::LastWord,
        /// Maximum working time. Time does not count while no process runs the task, while the machine sleeps, or
        /// while the task waits for a person.
        timeout: Option<Duration> = None,
        /// How long a model may send nothing before the call counts as stalled. A running tool never does.
        inactivity_timeout: Duration = Duration::from_secs(300),
        /// After this many identical calls in a row, the model gets a warning.
        warn_after_repeats: u32 = 5,
        /// After this many identical calls in a row, the task fails.
        fail_after_repeats: u32 = 8,
        /// How often in a row finished children may wake the agent without new input from a person.
        max_wakes: u32 = 40,
        /// What happens to children that are still running when the task would finish.
        on_finish: OnFinish = OnFinish::Wait,
        /// Whether a finished child wakes the agent when it is idle.
        completion_notice: CompletionNotice = CompletionNotice::Wake,
        /// When letters are read. With [`Delivery::WhenIdle`], the agent reads none until it has nothing left to
        /// do.
        letter_delivery: Delivery = Delivery::Asap,
        /// How often a model call is retried when the provider fails.
        retry: RetryPolicy = RetryPolicy::default(),
        /// How much of a tool's output the model sees, in bytes. The store keeps all of it.
        output_cap: usize = 48 * 1024,
        /// Whether each task gets its own working directory.
        isolation: Isolation = Isolation::None,
        /// How long to wait for a person's answer. After that the model is told that nobody answered, and
        /// continues. `None` means no limit.
        ask_timeout: Option<Duration> = None,
        /// How to handle approvals and questions when no one is there to answer.
        unattended: Unattended = Unattended::Wait,
        /// How many tokens a conversation may have before its older part is replaced by a summary. The default is
        /// four fifths of the model's context window, if that is known. A conversation that the provider rejects
        /// as too long is always compacted.
        compact_at: Option<u64> = None,
        /// How many messages of its conversation the model sees, besides the order. `None` means all.
        history_items: Option<usize> = None,
        /// Leaves out tool outputs that are followed by more than this many tokens of newer tool outputs.
        old_output_tokens: Option<u64> = None,
        /// Whether it gets only the tools that change nothing.
        read_only: bool = false,
        /// What each of its tasks may use, in addition to the budget in the task's order.
        budget: Budget = Budget::default(),
        /// Limits on the tasks that it launches.
        launch_limits: LaunchLimits = LaunchLimits::default(),
    }
}

/// Limits on the tasks that an agent launches. The agent may ask for less, never for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LaunchLimits {
    /// Maximum number of replies.
    pub max_turns: Option<u32>,
    /// Maximum working time.
    pub timeout: Option<Duration>,
    /// What each task may use.
    pub budget: Budget,
}

fluent_setters!(LaunchLimits {
    max_turns: Option<u32>,
    timeout: Option<Duration>,
    budget: Budget,
});

impl LaunchLimits {
    /// Returns the order with its limits lowered to these.
    #[must_use]
    pub fn apply_to(&self, mut order: Order) -> Order {
        order.max_turns = order
            .max_turns
            .filter(|turns| *turns > 0)
            .into_iter()
            .chain(self.max_turns)
            .min()
            .or(order.max_turns);
        order.timeout = order.timeout.into_iter().chain(self.timeout).min();
        order.budget = order.budget.and(self.budget);
        order
    }
}

/// What happens at the turn limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtTurnLimit {
    /// Makes one last call without tools, so that the task ends with an answer, marked as cut short.
    #[default]
    LastWord,
    /// The task fails.
    Fail,
}

/// How to handle approvals and questions when no one is there to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unattended {
    /// Wait anyway: someone may still answer, also from another terminal.
    #[default]
    Wait,
    /// Deny at once: the model is told that nobody is there, and continues.
    Deny,
}

/// Whether a finished child wakes its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionNotice {
    /// It wakes the parent.
    #[default]
    Wake,
    /// The parent reads the notice the next time it has something else to read.
    Quiet,
}

options! {
    /// How often, and at which intervals, a model call is retried.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RetryPolicy {
        /// Maximum number of tries, including the first, when the reply itself failed.
        max_tries: u32 = 6,
        /// How long to keep trying, at least, while the provider is down, regardless of the number of tries.
        max_outage: Duration = Duration::from_secs(600),
        /// How long to keep trying when the provider says when to retry.
        max_requested_wait: Duration = Duration::from_secs(3600),
        /// The pause before the second try. It doubles with each further try.
        initial_backoff: Duration = Duration::from_millis(500),
        /// The longest pause between tries. If the provider asks for a longer one, that one is used.
        max_backoff: Duration = Duration::from_secs(30),
    }
}
