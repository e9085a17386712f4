//! The configuration of an agent.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;

use super::{BudgetConfig, PermissionsConfig, ToolsetConfig, time};
use crate::agent::CompletionNotice;
use crate::entry::{Delivery, OnFinish};

/// An agent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentConfig {
    /// Its models, one per turn in rotation. Empty means `auto`.
    pub model: Vec<String>,
    /// What the agent is good for.
    pub description: String,
    /// The system instruction.
    pub instruction: String,
    /// Files that hold the instruction.
    pub instruction_file: Vec<String>,
    /// Its tools.
    pub toolsets: Vec<ToolsetConfig>,
    /// Names of the team's toolsets that it uses.
    pub use_toolsets: Vec<String>,
    /// The agents that it may send tasks to.
    pub sub_agents: Vec<String>,
    /// The agents that it may hand its conversation over to.
    pub handoffs: Vec<String>,
    /// Prompts by name.
    pub commands: IndexMap<String, CommandConfig>,
    /// Names of the team's groups of commands that it uses.
    pub use_commands: Vec<String>,
    /// The first message that a person sees.
    pub welcome_message: Option<String>,
    /// Whether the instruction includes today's date.
    pub add_date: bool,
    /// Whether the instruction includes the working directory and the operating system.
    pub add_environment_info: bool,
    /// Files of the working directory whose text is added to its instruction.
    pub add_prompt_files: Vec<String>,
    /// Models to use when its own fails.
    pub fallback: Option<FallbackConfig>,
    /// Commands to run on events.
    pub hooks: HooksConfig,
    /// Which tools are allowed, need approval or are denied, in addition to the file's own rules.
    pub permissions: PermissionsConfig,
    /// Its skills.
    pub skills: Option<SkillsConfig>,
    /// Names of the team's sources of skills that it uses.
    pub use_skills: Vec<String>,
    /// The schema of its final answer.
    pub structured_output: Option<StructuredOutputConfig>,
    /// The maximum number of replies; 0 means no limit.
    pub max_iterations: Option<u32>,
    /// How many items of the conversation the model sees.
    pub num_history_items: Option<u32>,
    /// The task fails after this many identical calls in a row.
    pub max_consecutive_tool_calls: Option<u32>,
    /// How many tokens of a tool result the model sees.
    pub max_tool_result_tokens: Option<u64>,
    /// How many tokens of old tool results are kept.
    pub max_old_tool_call_tokens: Option<i64>,
    /// The budget of one task.
    pub budget: BudgetConfig,
    /// Names of the team's budgets that apply.
    pub budgets: Vec<String>,
    /// Limits on its tasks.
    pub limits: LimitsConfig,
    /// How it works with background tasks.
    pub background: BackgroundConfig,
    /// Where its tasks work.
    pub isolation: Option<String>,
    /// Whether it has only tools that change nothing.
    pub readonly: bool,
    /// Whether to redact what looks like a secret in tool results.
    pub redact_secrets: bool,
    /// Whether the model must give a reason with each call.
    pub add_description_parameter: bool,
}

/// A prompt with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CommandConfig {
    /// What it does.
    pub description: Option<String>,
    /// The prompt.
    pub instruction: String,
}

/// Fallback models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FallbackConfig {
    /// The models, in the order in which they are tried.
    pub models: Vec<String>,
    /// How often a model is retried before the next one; -1 means never, 0 or nothing the default.
    pub retries: Option<i64>,
    /// How long a model that failed is skipped.
    #[serde(deserialize_with = "time")]
    pub cooldown: Option<Duration>,
}

/// Where skills come from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SkillsConfig {
    /// The default folders, or none.
    Switch(bool),
    /// These folders.
    Sources(Vec<String>),
}

/// The schema of a final answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StructuredOutputConfig {
    /// The name of the schema.
    pub name: String,
    /// A description of the answer.
    pub description: Option<String>,
    /// The JSON schema.
    pub schema: serde_json::Value,
    /// Whether the provider enforces the schema.
    pub strict: bool,
}

/// Limits on tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LimitsConfig {
    /// How many tasks run at once.
    pub running: Option<u32>,
    /// How many processes of tool calls and hooks run at once.
    pub processes: Option<u32>,
    /// The maximum depth of a task below its root.
    pub depth: Option<u32>,
    /// The maximum number of tasks in a tree.
    pub tree: Option<u32>,
    /// The maximum number of replies; 0 means no limit.
    pub turns: Option<u32>,
    /// The timeout of a task.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
    /// How long a model may send nothing.
    #[serde(deserialize_with = "time")]
    pub inactivity: Option<Duration>,
    /// How long a person has to answer.
    #[serde(deserialize_with = "time")]
    pub ask_timeout: Option<Duration>,
}

/// How an agent works with background tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BackgroundConfig {
    /// The tool names for working with sub-agents.
    pub dialect: Option<String>,
    /// What happens to tasks that are still running when the agent finishes.
    pub on_finish: Option<OnFinish>,
    /// Whether the end of a task wakes the agent.
    #[serde(deserialize_with = "notices")]
    pub notices: Option<CompletionNotice>,
    /// When letters are delivered.
    pub letters: Option<Delivery>,
}

fn notices<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<CompletionNotice>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.map(|word| if word == "quiet" { CompletionNotice::Quiet } else { CompletionNotice::Wake }))
}

/// Commands to run on events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HooksConfig {
    /// Before a tool runs.
    pub pre_tool_use: Vec<HookMatcherConfig>,
    /// After a tool has run.
    pub post_tool_use: Vec<HookMatcherConfig>,
    /// When a session begins.
    pub session_start: Vec<HookConfig>,
    /// When a session ends.
    pub session_end: Vec<HookConfig>,
    /// When a person is asked something.
    pub on_user_input: Vec<HookConfig>,
    /// When a task begins.
    pub task_start: Vec<HookConfig>,
    /// When a task ends.
    pub task_end: Vec<HookConfig>,
    /// Environment variables of the commands.
    pub env: IndexMap<String, String>,
}

/// Hooks for some tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HookMatcherConfig {
    /// A pattern of tool names; `*` or nothing matches all.
    pub matcher: Option<String>,
    /// The commands to run.
    pub hooks: Vec<HookConfig>,
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HookConfig {
    /// The command.
    pub command: String,
    /// The timeout.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
    /// `allow`: if the hook fails, the call is made anyway.
    pub on_error: Option<String>,
}
