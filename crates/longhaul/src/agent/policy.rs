//! How an agent works: its policies as data.

use std::time::Duration;

use crate::entry::{Budget, Delivery, Isolation, OnFinish, Order};

/// In which words an agent speaks of its sub-agents: three sets of tools over one desk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubAgentDialect {
    /// Each sub-agent is a tool of its own name, with `get_task_result`, `stop_task` and `list_tasks` beside them.
    #[default]
    SubAgents,
    /// `run_background_agent` and its kin, with `transfer_task` beside them.
    Background,
    /// `spawn_agent` and its kin.
    Managed,
    /// `transfer_task` alone, which waits for the answer.
    Transfer,
}

/// How an agent works: every policy is a field, not a habit of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// At most this many replies; 0 is no bound.
    pub max_turns: u32,
    /// What happens at that bound.
    pub at_turn_limit: AtTurnLimit,
    /// At most this long at work: not while nobody runs it, while the machine sleeps, or while it waits for a person.
    pub timeout: Option<Duration>,
    /// How long a model may send nothing before it counts as silent. A running tool is never silent.
    pub inactivity_timeout: Duration,
    /// After so many identical calls in a row the model is told so.
    pub warn_after_repeats: u32,
    /// After so many the task fails.
    pub fail_after_repeats: u32,
    /// How often in a row the ends of children may wake it without a new word from a person.
    pub max_wakes: u32,
    /// What becomes of children that still run when it would end.
    pub on_finish: OnFinish,
    /// Whether the end of a child wakes it when it is idle.
    pub completion_notice: CompletionNotice,
    /// When letters are read; with [`Delivery::WhenIdle`] none is read before the agent has nothing more to say.
    pub letter_delivery: Delivery,
    /// How often a reply is asked for when the provider fails.
    pub retry: RetryPolicy,
    /// How much of a tool's output the model sees, in bytes; the whole is kept in the store.
    pub output_cap: usize,
    /// Whether its tasks have places of their own to work in.
    pub isolation: Isolation,
    /// How long a person has for an answer; then the model is told that nobody answered, and goes on. `None` is no bound.
    pub ask_timeout: Option<Duration>,
    /// What becomes of a question when nobody is there who could answer it.
    pub unattended: Unattended,
    /// How many tokens a conversation may have before the older part is replaced by a summary. Where it is left out, it
    /// is four fifths of what the model can read, if that is known; a conversation that the provider finds too long is
    /// always made shorter.
    pub compact_at: Option<u64>,
    /// How many messages, besides the order, the model sees of its conversation; all where it is left out.
    pub history_items: Option<usize>,
    /// Outputs of tools that lie more tokens of such outputs back are not shown again.
    pub old_output_tokens: Option<u64>,
    /// It has none of its tools but those that change nothing.
    pub read_only: bool,
    /// What each of its tasks may use, besides what the order of the task allows.
    pub budget: Budget,
    /// Bounds on the tasks that it launches.
    pub launch_limits: LaunchLimits,
}

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

/// Bounds on the tasks that an agent launches. What it asks for may be less, never more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchLimits {
    /// At most this many replies.
    pub max_turns: Option<u32>,
    /// At most this long.
    pub timeout: Option<Duration>,
    /// What each may use.
    pub budget: Budget,
}

impl LaunchLimits {
    /// An order within the bounds.
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
    /// One last call with tools off, so that the task ends with an answer, marked as cut short.
    #[default]
    LastWord,
    /// The task fails.
    Fail,
}

/// What becomes of a question when nobody is there who could answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unattended {
    /// It waits all the same: somebody may come, also from another terminal.
    #[default]
    Wait,
    /// The answer is no, at once: the model is told that nobody is there, and goes on.
    Deny,
}

/// Whether the end of a child wakes its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionNotice {
    /// It does.
    #[default]
    Wake,
    /// It is read when the parent next has something else to read.
    Quiet,
}

/// How often, and how far apart, a reply is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often at most, the first time included, where the reply itself failed.
    pub max_tries: u32,
    /// Where the provider is down: for how long at least, however often that is.
    pub max_outage: Duration,
    /// Where the provider says when to come back: for how long.
    pub max_requested_wait: Duration,
    /// The pause before the second try; it doubles with each.
    pub initial_backoff: Duration,
    /// The longest pause of our own; a provider that asks for a longer one gets it.
    pub max_backoff: Duration,
}

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
