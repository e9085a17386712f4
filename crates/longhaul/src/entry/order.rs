//! Orders: what a task does, and within which limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::id::AgentName;

/// What to do, which agent does it, and within which limits.
///
/// Fields left out take the agent's setting, or else the policy's default.
///
/// ```
/// use std::time::Duration;
/// use longhaul::{Budget, Order};
///
/// let order = Order::new("researcher", "What is new in Rust?\nOnly the last two years.")
///     .expected_output("Five lines, each with a source.")
///     .max_turns(8)
///     .timeout(Duration::from_secs(600))
///     .budget(Budget::default().tokens(50_000));
/// assert_eq!(order.headline(), "What is new in Rust?");
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Order {
    /// The agent that runs it.
    pub agent: Option<AgentName>,
    /// What the agent should do.
    pub task: Arc<str>,
    /// What the result should look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    /// Further context for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// A short title for lists; the default is the start of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The model to use instead of the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's tools that it may use; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The working directory of its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
    /// Whether it waits for the next letter, without occupying a seat, instead of ending.
    #[serde(skip_serializing_if = "is_false")]
    pub interactive: bool,
    /// Maximum number of replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Maximum working time. Time does not count while no process runs the task, while the machine sleeps, or
    /// while the task waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What this task may use.
    #[serde(skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// What this task and everything below it may use together.
    #[serde(skip_serializing_if = "Budget::is_open")]
    pub tree_budget: Budget,
    /// What happens to children that are still running when this task would finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_finish: Option<OnFinish>,
    /// Whether it gets its own working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Whether everything that is not denied is approved, for this task and everything below it. Only the
    /// order of a root can set it: a child always inherits the value from its parent.
    #[serde(skip_serializing_if = "is_false")]
    pub approved: bool,
    /// What its submitter wants to find again with it. Longhaul itself does not use it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Order {
    /// Creates an order for an agent.
    pub fn new(agent: impl Into<AgentName>, task: impl Into<Arc<str>>) -> Self {
        Order { agent: Some(agent.into()), task: task.into(), ..Order::default() }
    }

    /// Limits the agent's tools to these.
    pub fn tools<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Makes the task wait for the next letter instead of ending.
    pub fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// Approves everything that is not denied, for this task and everything below it.
    pub fn approve_all(mut self) -> Self {
        self.approved = true;
        self
    }

    /// One line for lists: the title, or the first line of the task, at most 120 characters.
    pub fn headline(&self) -> String {
        let text = self.title.as_deref().unwrap_or(&self.task);
        let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
        match line.char_indices().nth(119) {
            Some((cut, c)) if cut + c.len_utf8() < line.len() => format!("{}…", &line[..cut]),
            _ => line.to_owned(),
        }
    }
}

fluent_setters!(Order {
    /// Sets what the result should look like.
    expected_output: impl Into<String> => Some(expected_output.into()),
    /// Sets further context for the agent.
    context: impl Into<String> => Some(context.into()),
    /// Sets a short title for lists.
    title: impl Into<String> => Some(title.into()),
    /// Sets the maximum number of replies.
    max_turns: u32 => Some(max_turns),
    /// Sets the maximum working time. Time does not count while no process runs the task, while the machine
    /// sleeps, or while the task waits for a person.
    timeout: Duration => Some(timeout),
    /// Sets what this task may use.
    budget: Budget,
    /// Sets what this task and everything below it may use together.
    tree_budget: Budget,
    /// Sets the model to use instead of the agent's own.
    model: impl Into<String> => Some(model.into()),
    /// Sets the working directory of its tools.
    working_dir: impl Into<PathBuf> => Some(working_dir.into()),
    /// Sets whether the task gets its own working directory.
    isolation: Isolation => Some(isolation),
    /// Sets what happens to children that are still running when this task would finish.
    on_finish: OnFinish => Some(on_finish),
    /// Sets what the submitter wants to find again with the task.
    labels: BTreeMap<String, String>,
});

/// What a task may use. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Budget {
    /// Input and output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// Working time, counted as for [`Order::timeout`]. For a tree, the working time of its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
}

impl Budget {
    /// Combines both budgets: the smaller of each limit.
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

    /// Fills limits that are not set from `other`.
    #[must_use]
    pub fn or(self, other: Budget) -> Budget {
        Budget {
            tokens: self.tokens.or(other.tokens),
            cost: self.cost.or(other.cost),
            time: self.time.or(other.time),
        }
    }

    /// Whether there is no limit at all.
    pub fn is_open(&self) -> bool {
        *self == Budget::default()
    }
}

fluent_setters!(Budget {
    /// Limits the input and output tokens.
    tokens: u64 => Some(tokens),
    /// Limits the cost, in millionths of a dollar.
    cost: u64 => Some(cost),
    /// Limits the working time.
    time: Duration => Some(time),
});

/// Whether a task gets its own working directory, so that tasks that write do not interfere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It works in the directory of the order, possibly together with others.
    #[default]
    None,
    /// It works in a git worktree on its own branch; the working directory must be in a repository. The
    /// result says where the worktree is. It is removed if nothing was changed in it, and kept otherwise.
    Worktree,
}

/// What happens to children that are still running when their parent would finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFinish {
    /// The parent waits for them and reads their letters.
    #[default]
    Wait,
    /// They continue without it.
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
