//! What is ordered, and within which bounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::id::AgentName;

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
    /// At most this long at work: not while nobody runs it, while the machine sleeps, or while it waits for a person.
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
    /// Whether it has a place of its own to work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Whether everything that is not denied is approved of, for this task and all below it. Only who starts a tree can say
    /// that: a child has what its parent has, whatever its order says.
    #[serde(skip_serializing_if = "is_false")]
    pub approved: bool,
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

    /// At most this long at work: not while nobody runs it, while the machine sleeps, or while it waits for a person.
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

    /// Whether it has a place of its own to work in.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// What becomes of children that still run when this task would end.
    pub fn on_finish(mut self, policy: OnFinish) -> Self {
        self.on_finish = Some(policy);
        self
    }

    /// Approve of everything that is not denied, for this task and all below it.
    pub fn approve_all(mut self) -> Self {
        self.approved = true;
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
    /// Time at work, as [`Order::timeout`] counts it. Of a tree it is that of the task at its top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
}

impl Budget {
    /// Both: of each bound the smaller one.
    #[must_use]
    pub fn and(self, other: Budget) -> Budget {
        fn less<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.into_iter().chain(b).min()
        }
        Budget {
            tokens: less(self.tokens, other.tokens),
            cost: less(self.cost, other.cost),
            time: less(self.time, other.time),
        }
    }

    /// These bounds, and where there is none, the other's.
    #[must_use]
    pub fn or(self, other: Budget) -> Budget {
        Budget {
            tokens: self.tokens.or(other.tokens),
            cost: self.cost.or(other.cost),
            time: self.time.or(other.time),
        }
    }

    /// Whether nothing is bounded.
    pub fn is_open(&self) -> bool {
        *self == Budget::default()
    }
}

/// Whether a task has a place of its own to work in, so that writers do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It works in the directory that was ordered, as others may.
    #[default]
    None,
    /// It works in a git worktree on a branch of its own, which the working directory must be in a repository for. The
    /// result says where that is. It is removed when nothing was changed there, and kept otherwise.
    Worktree,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_is_one_short_line() {
        assert_eq!(Order::new("a", "\n  first line \nsecond").headline(), "first line");
        assert_eq!(Order::new("a", "x".repeat(120)).headline(), "x".repeat(120));
        let long = Order::new("a", "é".repeat(500)).headline();
        assert_eq!(long.chars().count(), 120);
        assert!(long.ends_with('…'));
    }
}
