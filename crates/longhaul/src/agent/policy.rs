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

/// How an agent works. Every policy of the engine is a field here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Maximum number of replies; 0 means no limit.
    pub max_turns: u32,
    /// What happens at that limit.
    pub at_turn_limit: AtTurnLimit,
    /// Maximum working time. Time does not count while no process runs the task, while the machine sleeps, or
    /// while the task waits for a person.
    pub timeout: Option<Duration>,
    /// How long a model may send nothing before the call counts as stalled. A running tool never does.
    pub inactivity_timeout: Duration,
    /// After this many identical calls in a row, the model gets a warning.
    pub warn_after_repeats: u32,
    /// After this many identical calls in a row, the task fails.
    pub fail_after_repeats: u32,
    /// How often in a row finished children may wake the agent without new input from a person.
    pub max_wakes: u32,
    /// What happens to children that are still running when the task would finish.
    pub on_finish: OnFinish,
    /// Whether a finished child wakes the agent when it is idle.
    pub completion_notice: CompletionNotice,
    /// When letters are read. With [`Delivery::WhenIdle`], the agent reads none until it has nothing left to
    /// do.
    pub letter_delivery: Delivery,
    /// How often a model call is retried when the provider fails.
    pub retry: RetryPolicy,
    /// How much of a tool's output the model sees, in bytes. The store keeps all of it.
    pub output_cap: usize,
    /// Whether each task gets its own working directory.
    pub isolation: Isolation,
    /// How long to wait for a person's answer. After that the model is told that nobody answered, and
    /// continues. `None` means no limit.
    pub ask_timeout: Option<Duration>,
    /// How to handle approvals and questions when no one is there to answer.
    pub unattended: Unattended,
    /// How many tokens a conversation may have before its older part is replaced by a summary. The default is
    /// four fifths of the model's context window, if that is known. A conversation that the provider rejects
    /// as too long is always compacted.
    pub compact_at: Option<u64>,
    /// How many messages of its conversation the model sees, besides the order. `None` means all.
    pub history_items: Option<usize>,
    /// Leaves out tool outputs that are followed by more than this many tokens of newer tool outputs.
    pub old_output_tokens: Option<u64>,
    /// Whether it gets only the tools that change nothing.
    pub read_only: bool,
    /// What each of its tasks may use, in addition to the budget in the task's order.
    pub budget: Budget,
    /// Limits on the tasks that it launches.
    pub launch_limits: LaunchLimits,
}

fluent_setters!(Policy {
    max_turns: u32,
    at_turn_limit: AtTurnLimit,
    timeout: Option<Duration>,
    inactivity_timeout: Duration,
    warn_after_repeats: u32,
    fail_after_repeats: u32,
    max_wakes: u32,
    on_finish: OnFinish,
    completion_notice: CompletionNotice,
    letter_delivery: Delivery,
    retry: RetryPolicy,
    output_cap: usize,
    isolation: Isolation,
    ask_timeout: Option<Duration>,
    unattended: Unattended,
    compact_at: Option<u64>,
    history_items: Option<usize>,
    old_output_tokens: Option<u64>,
    read_only: bool,
    budget: Budget,
    launch_limits: LaunchLimits,
});

impl Default for Policy {
    fn default() -> Self {
        Policy {
            max_turns: 50,
            at_turn_limit: AtTurnLimit::LastWord,
            timeout: None,
            inactivity_timeout: Duration::from_secs(300),
            warn_after_repeats: 5,
            fail_after_repeats: 8,
            max_wakes: 40,
            on_finish: OnFinish::Wait,
            completion_notice: CompletionNotice::Wake,
            letter_delivery: Delivery::Asap,
            retry: RetryPolicy::default(),
            output_cap: 48 * 1024,
            isolation: Isolation::None,
            ask_timeout: None,
            unattended: Unattended::Wait,
            compact_at: None,
            history_items: None,
            old_output_tokens: None,
            read_only: false,
            budget: Budget::default(),
            launch_limits: LaunchLimits::default(),
        }
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

/// How often, and at which intervals, a model call is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Maximum number of tries, including the first, when the reply itself failed.
    pub max_tries: u32,
    /// How long to keep trying, at least, while the provider is down, regardless of the number of tries.
    pub max_outage: Duration,
    /// How long to keep trying when the provider says when to retry.
    pub max_requested_wait: Duration,
    /// The pause before the second try. It doubles with each further try.
    pub initial_backoff: Duration,
    /// The longest pause between tries. If the provider asks for a longer one, that one is used.
    pub max_backoff: Duration,
}

fluent_setters!(RetryPolicy {
    max_tries: u32,
    max_outage: Duration,
    max_requested_wait: Duration,
    initial_backoff: Duration,
    max_backoff: Duration,
});

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_tries: 6,
            max_outage: Duration::from_secs(600),
            max_requested_wait: Duration::from_secs(3600),
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
        }
    }
}
