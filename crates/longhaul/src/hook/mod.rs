//! Commands of the team's author that run on certain events of a task and can allow, change or deny calls.
//!
//! A hook gets a JSON object on stdin. With exit code 0 it succeeds, and a JSON object on stdout may decide;
//! with exit code 2 it blocks, and stderr says why. Everything else is a failure of the hook: it is recorded,
//! and the call is denied that the hook should have judged, unless its author sets [`OnHookError::Allow`].
//! `docs/hooks.md` has the full contract. `HookVerdict` combines the results of several hooks without IO;
//! `HookRunner` runs them.

mod verdict;
mod hook_runner;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use crate::id::{AgentName, TaskId};
pub(crate) use hook_runner::HookRunner;
use verdict::HookResult;
pub(crate) use verdict::{HookDecision, HookVerdict};

/// The timeout of a hook whose author sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A command that runs on an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hook {
    /// The command line, for `/bin/sh -c`.
    pub command: String,
    /// Its timeout. After that it is killed, with everything that it has started.
    pub timeout: Duration,
    /// What happens to a call if this hook has to judge it and fails.
    pub on_error: OnHookError,
}

/// What happens to a call whose `pre_tool_use` hook fails: it cannot run, takes too long, exits with an
/// error, or prints something invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnHookError {
    /// The call is denied.
    #[default]
    Deny,
    /// The call is made as if there were no hook.
    Allow,
}

impl Hook {
    /// A hook with the default timeout of one minute.
    pub fn command(command: impl Into<String>) -> Hook {
        Hook { command: command.into(), timeout: DEFAULT_TIMEOUT, on_error: OnHookError::Deny }
    }
}

fluent_setters!(Hook {
    timeout: Duration,
    /// Sets what happens if it fails.
    on_error: OnHookError,
});

/// Matches tools by name: a regular expression that has to match the whole name. Empty or `*` matches every
/// tool.
#[derive(Debug, Clone)]
pub struct ToolMatcher {
    text: String,
    pattern: Option<regex::Regex>,
}

/// A matcher that is not a valid regular expression.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the matcher '{matcher}' is not a valid regular expression: {error}")]
pub struct ToolMatcherError {
    matcher: String,
    error: regex::Error,
}

impl ToolMatcher {
    /// Parses a matcher such as `shell|edit_file`. Fails if it is not a valid regular expression.
    pub fn parse(text: &str) -> Result<ToolMatcher, ToolMatcherError> {
        let pattern = match text.trim() {
            "" | "*" => None,
            text => {
                let whole = regex::RegexBuilder::new(&format!("^(?:{text})$")).size_limit(1 << 18).build();
                Some(whole.map_err(|error| ToolMatcherError { matcher: text.to_owned(), error })?)
            }
        };
        Ok(ToolMatcher { text: text.to_owned(), pattern })
    }

    /// Matches every tool.
    pub fn all() -> ToolMatcher {
        ToolMatcher { text: String::new(), pattern: None }
    }

    /// Whether it matches a tool.
    pub fn matches(&self, tool: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(tool))
    }
}

impl fmt::Display for ToolMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The hooks of an agent.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Hooks {
    /// Before a tool is called: may block the call, rewrite its arguments, allow it or require a person's
    /// approval.
    pub pre_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// After a tool has returned: the output is added to the result for the model.
    pub post_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// When a task that a person started begins: the model reads the output first.
    pub session_start: Vec<Hook>,
    /// When such a task has ended.
    pub session_end: Vec<Hook>,
    /// When a person is asked something, or a session waits for the next message. Nothing waits for these
    /// hooks.
    pub on_user_input: Vec<Hook>,
    /// When any task begins: the model reads the output first.
    pub task_start: Vec<Hook>,
    /// When any task has ended.
    pub task_end: Vec<Hook>,
    /// Their environment variables, besides a plain `PATH`. Nothing is inherited from this process.
    pub env: Arc<IndexMap<OsString, OsString>>,
    /// Runs them.
    pub(crate) runner: HookRunner,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets.
        f.debug_struct("Hooks")
            .field("pre_tool_use", &self.pre_tool_use)
            .field("post_tool_use", &self.post_tool_use)
            .field("session_start", &self.session_start)
            .field("session_end", &self.session_end)
            .field("on_user_input", &self.on_user_input)
            .field("task_start", &self.task_start)
            .field("task_end", &self.task_end)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl Hooks {
    /// Runs some of these hooks concurrently and combines their results.
    pub(crate) async fn run(&self, which: &[&Hook], dir: Option<&Path>, input: &HookInput) -> HookVerdict {
        let results = self.runner.run(which, self, dir, input).await;
        let verdict = HookVerdict::from_results(input.hook_event_name, which.iter().copied().zip(results));
        for failure in &verdict.failures {
            tracing::warn!(task = input.task_id, "{failure}");
        }
        verdict
    }

    /// The hooks to run before a call of a tool; each command once.
    pub(crate) fn before_tool(&self, tool: &str) -> Vec<&Hook> {
        matching_hooks(&self.pre_tool_use, tool)
    }

    /// The hooks to run after a call of a tool; each command once.
    pub(crate) fn after_tool(&self, tool: &str) -> Vec<&Hook> {
        matching_hooks(&self.post_tool_use, tool)
    }
}

fluent_setters!(Hooks {
    /// Sets the hooks that run before a tool is called, each list for the tools that its matcher matches.
    pre_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// Sets the hooks that run after a tool has returned.
    post_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// Sets the hooks that run when a task that a person started begins.
    session_start: Vec<Hook>,
    /// Sets the hooks that run when such a task has ended.
    session_end: Vec<Hook>,
    /// Sets the hooks that run when a person is asked something, or a session waits for the next message.
    on_user_input: Vec<Hook>,
    /// Sets the hooks that run when any task begins.
    task_start: Vec<Hook>,
    /// Sets the hooks that run when any task has ended.
    task_end: Vec<Hook>,
});

fn matching_hooks<'a>(matched: &'a [(ToolMatcher, Vec<Hook>)], tool: &str) -> Vec<&'a Hook> {
    let mut hooks: Vec<&Hook> = Vec::new();
    for hook in matched.iter().filter(|(matcher, _)| matcher.matches(tool)).flat_map(|(_, hooks)| hooks) {
        if !hooks.iter().any(|had| had.command == hook.command) {
            hooks.push(hook);
        }
    }
    hooks
}

/// The events that hooks run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HookEvent {
    #[default]
    PreToolUse,
    PostToolUse,
    SessionStart,
    SessionEnd,
    OnUserInput,
    TaskStart,
    TaskEnd,
}

impl HookEvent {
    /// Its name in team files and in the input of hooks.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            HookEvent::PreToolUse => "pre_tool_use",
            HookEvent::PostToolUse => "post_tool_use",
            HookEvent::SessionStart => "session_start",
            HookEvent::SessionEnd => "session_end",
            HookEvent::OnUserInput => "on_user_input",
            HookEvent::TaskStart => "task_start",
            HookEvent::TaskEnd => "task_end",
        }
    }
}

/// The JSON object that a hook gets on stdin.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct HookInput {
    /// The first task of the tree.
    pub(crate) session_id: String,
    pub(crate) task_id: String,
    /// The agent that holds the conversation.
    pub(crate) agent: String,
    /// The working directory of the task.
    pub(crate) cwd: String,
    pub(crate) hook_event_name: HookEvent,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_name: Option<String>,
    /// The id of the call in the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_use_id: Option<String>,
    /// The call's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_error: Option<bool>,
    /// `startup`, or `resume` if the task continues the conversation of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<&'static str>,
    /// How the task ended: `completed`, `failed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Its answer, or its text so far; shortened if it is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// The question to a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<String>,
}

impl HookInput {
    pub(crate) fn new(
        event: HookEvent,
        task: TaskId,
        root: TaskId,
        agent: &AgentName,
        dir: Option<&Path>,
    ) -> HookInput {
        HookInput {
            session_id: root.to_string(),
            task_id: task.to_string(),
            agent: agent.to_string(),
            cwd: dir.map(|dir| dir.display().to_string()).unwrap_or_default(),
            hook_event_name: event,
            ..HookInput::default()
        }
    }
}

#[cfg(test)]
mod tests;
