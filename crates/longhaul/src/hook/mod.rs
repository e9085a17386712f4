//! Commands of the team's author that run at fixed points of a task and can allow, change or deny calls.
//!
//! A hook gets a JSON object on its standard input. Exit code 0 is fine, and a JSON object on its output may decide; exit code
//! 2 blocks, and its standard error says why. Everything else is a failure of the hook: it is written down, and a call that
//! such a hook should have judged is denied, unless its author says [`OnHookError::Allow`].
//! `docs/hooks.md` has the whole contract. [`HookVerdict::from_results`] decides what several hooks together mean, and does no IO;
//! [`HookRunner`] runs them.

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
pub use hook_runner::HookRunner;
pub use verdict::{HookDecision, HookResult, HookVerdict};

/// How long a hook may take where its author does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A command that is run at a certain moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The command line, for `/bin/sh -c`.
    pub command: String,
    /// How long it may take; then it is ended, with everything that it has started.
    pub timeout: Duration,
    /// What becomes of a call if this hook is to judge it and fails.
    pub on_error: OnHookError,
}

/// What becomes of a call whose `pre_tool_use` hook fails: it cannot be run, takes too long, exits with an error, or
/// says something that cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnHookError {
    /// The call is denied.
    #[default]
    Deny,
    /// The call is made as if the hook were not there.
    Allow,
}

impl Hook {
    /// A command that may take a minute.
    pub fn command(command: impl Into<String>) -> Hook {
        Hook { command: command.into(), timeout: DEFAULT_TIMEOUT, on_error: OnHookError::Deny }
    }

    /// The same, with another time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Hook {
        self.timeout = timeout;
        self
    }

    /// The same, with something else to be done where it fails.
    #[must_use]
    pub fn on_error(mut self, on_error: OnHookError) -> Hook {
        self.on_error = on_error;
        self
    }
}

/// Tools by name: a regular expression that has to match the whole of it; nothing, or `*`, is every tool.
#[derive(Debug, Clone)]
pub struct ToolMatcher {
    text: String,
    pattern: Option<regex::Regex>,
}

impl ToolMatcher {
    /// The matcher of a text, as `shell|edit_file`.
    pub fn parse(text: &str) -> Result<ToolMatcher, String> {
        let pattern = match text.trim() {
            "" | "*" => None,
            text => {
                let whole = regex::RegexBuilder::new(&format!("^(?:{text})$")).size_limit(1 << 18).build();
                let wrong = |error| format!("the matcher '{text}' is no regular expression: {error}");
                Some(whole.map_err(wrong)?)
            }
        };
        Ok(ToolMatcher { text: text.to_owned(), pattern })
    }

    /// Every tool.
    pub fn all() -> ToolMatcher {
        ToolMatcher { text: String::new(), pattern: None }
    }

    /// Whether a tool is meant.
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
pub struct Hooks {
    /// Before a tool is called: may block the call, rewrite its arguments, allow it or have a person asked.
    pub pre_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// After a tool has returned: what it says is told to the model with the result.
    pub post_tool_use: Vec<(ToolMatcher, Vec<Hook>)>,
    /// When a task that a person started begins: what it says the model reads first.
    pub session_start: Vec<Hook>,
    /// When such a task has ended.
    pub session_end: Vec<Hook>,
    /// When a person is asked something, or a session waits for the next word. Nothing waits for it.
    pub on_user_input: Vec<Hook>,
    /// When any task begins: what it says the model reads first.
    pub task_start: Vec<Hook>,
    /// When any task has ended.
    pub task_end: Vec<Hook>,
    /// What their environment has, besides a plain `PATH`. Nothing of this process's own is inherited.
    pub env: Arc<IndexMap<OsString, OsString>>,
    /// Who runs them.
    pub runner: HookRunner,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the environment says may be secret.
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
    /// Runs some of these hooks at once, and says what they mean together.
    pub async fn run(&self, which: &[&Hook], dir: Option<&Path>, occasion: &HookInput) -> HookVerdict {
        let heard = self.runner.run(which, self, dir, occasion).await;
        let counsel = HookVerdict::from_results(occasion.hook_event_name, which.iter().copied().zip(heard));
        for failure in &counsel.failures {
            tracing::warn!(task = occasion.task_id, "{failure}");
        }
        counsel
    }

    /// The hooks that run before a call of a tool; each command once.
    pub fn before_tool(&self, tool: &str) -> Vec<&Hook> {
        matching_hooks(&self.pre_tool_use, tool)
    }

    /// The hooks that run after a call of a tool; each command once.
    pub fn after_tool(&self, tool: &str) -> Vec<&Hook> {
        matching_hooks(&self.post_tool_use, tool)
    }
}

fn matching_hooks<'a>(matched: &'a [(ToolMatcher, Vec<Hook>)], tool: &str) -> Vec<&'a Hook> {
    let mut hooks: Vec<&Hook> = Vec::new();
    for hook in matched.iter().filter(|(matcher, _)| matcher.matches(tool)).flat_map(|(_, hooks)| hooks) {
        if !hooks.iter().any(|had| had.command == hook.command) {
            hooks.push(hook);
        }
    }
    hooks
}

/// The moments at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained at the field of the same name of `Hooks`")]
pub enum HookEvent {
    PreToolUse,
    PostToolUse,
    SessionStart,
    SessionEnd,
    OnUserInput,
    TaskStart,
    TaskEnd,
}

impl HookEvent {
    /// Its name in team files, and in what hooks are told.
    pub fn as_str(self) -> &'static str {
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

/// What a hook is told on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookInput {
    /// The first task of the tree.
    pub session_id: String,
    /// The task.
    pub task_id: String,
    /// The agent that has the conversation.
    pub agent: String,
    /// Where the task works.
    pub cwd: String,
    /// What happens.
    pub hook_event_name: HookEvent,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The call's name in the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The call's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<Value>,
    /// What the tool returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_response: Option<String>,
    /// Whether that is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_error: Option<bool>,
    /// `startup`, or `resume` where the task goes on with the conversation of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// How the task ended: `completed`, `failed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it answered, or had said by then; the beginning of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

impl HookInput {
    /// Something that happens in a task.
    pub fn new(
        moment: HookEvent,
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
            hook_event_name: moment,
            tool_name: None,
            tool_use_id: None,
            tool_input: None,
            tool_response: None,
            tool_error: None,
            source: None,
            reason: None,
            error: None,
            output: None,
            question: None,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
