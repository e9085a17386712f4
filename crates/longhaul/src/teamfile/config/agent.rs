//! An agent as the file says it.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;

use super::{BudgetConfig, PermissionsConfig, ToolsetConfig, time};
use crate::agent::CompletionNotice;
use crate::entry::{Delivery, OnFinish};

/// An agent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Its models, of which one is picked each turn; none is `auto`.
    pub model: Vec<String>,
    /// What it is good for.
    pub description: String,
    /// What it is told.
    pub instruction: String,
    /// Files with what it is told.
    pub instruction_file: Vec<String>,
    /// Its tools.
    pub toolsets: Vec<ToolsetConfig>,
    /// Toolsets of the team that it uses.
    pub use_toolsets: Vec<String>,
    /// Whom it may send tasks to.
    pub sub_agents: Vec<String>,
    /// To whom it may hand its conversation over.
    pub handoffs: Vec<String>,
    /// Prompts by name.
    pub commands: IndexMap<String, CommandConfig>,
    /// Groups of commands of the team that it uses.
    pub use_commands: Vec<String>,
    /// What a person is shown first.
    pub welcome_message: Option<String>,
    /// Whether it is told today's date.
    pub add_date: bool,
    /// Whether it is told the working directory and the operating system.
    pub add_environment_info: bool,
    /// Files of the working directory whose text is added to its instruction.
    pub add_prompt_files: Vec<String>,
    /// Models that stand in when its own fails.
    pub fallback: Option<FallbackConfig>,
    /// Commands that are run when things happen.
    pub hooks: HooksConfig,
    /// Which tools run, are asked about, and never run, besides what the file says for all agents.
    pub permissions: PermissionsConfig,
    /// Its skills.
    pub skills: Option<SkillsConfig>,
    /// Sources of skills of the team that it uses.
    pub use_skills: Vec<String>,
    /// The shape of its final answer.
    pub structured_output: Option<StructuredOutputConfig>,
    /// At most this many replies; 0 is no bound.
    pub max_iterations: Option<u32>,
    /// How much of the conversation the model sees.
    pub num_history_items: Option<u32>,
    /// After so many identical calls in a row the task fails.
    pub max_consecutive_tool_calls: Option<u32>,
    /// How much of a tool's result the model sees.
    pub max_tool_result_tokens: Option<u64>,
    /// How much of old tool results is kept.
    pub max_old_tool_call_tokens: Option<i64>,
    /// What one task of it may use.
    pub budget: BudgetConfig,
    /// Budgets of the team that it keeps to.
    pub budgets: Vec<String>,
    /// Bounds on its tasks.
    pub limits: LimitsConfig,
    /// How it works with background tasks.
    pub background: BackgroundConfig,
    /// Where its tasks work.
    pub isolation: Option<String>,
    /// Only tools that change nothing.
    pub readonly: bool,
    /// Blots out what looks like a secret in what its tools return.
    pub redact_secrets: bool,
    /// Has the model say with each call what it is for.
    pub add_description_parameter: bool,
}

/// A prompt with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CommandConfig {
    /// What it does.
    pub description: Option<String>,
    /// The prompt.
    pub instruction: String,
}

/// Models that stand in for another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FallbackConfig {
    /// In the order in which they are asked.
    pub models: Vec<String>,
    /// How often one is asked again first; -1 is never, 0 and nothing the default.
    pub retries: Option<i64>,
    /// How long a model that failed is left alone.
    #[serde(deserialize_with = "time")]
    pub cooldown: Option<Duration>,
}

/// Where skills come from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SkillsConfig {
    /// The usual folders, or none.
    Switch(bool),
    /// These.
    Sources(Vec<String>),
}

/// The shape of a final answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StructuredOutputConfig {
    /// A name for it.
    pub name: String,
    /// What it is.
    pub description: Option<String>,
    /// Its JSON schema.
    pub schema: serde_json::Value,
    /// Whether the provider is to hold the model to it.
    pub strict: bool,
}

/// Bounds on tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LimitsConfig {
    /// How many run at once.
    pub running: Option<u32>,
    /// How many processes tool calls and hooks run at once.
    pub processes: Option<u32>,
    /// How far a task may be from its root.
    pub depth: Option<u32>,
    /// How many tasks a tree may have.
    pub tree: Option<u32>,
    /// At most this many replies; 0 is no bound.
    pub turns: Option<u32>,
    /// How long a task may take.
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
pub struct BackgroundConfig {
    /// In which words it speaks of its sub-agents.
    pub dialect: Option<String>,
    /// What becomes of tasks that still run when it would end.
    pub on_finish: Option<OnFinish>,
    /// Whether the end of a task wakes it.
    #[serde(deserialize_with = "notices")]
    pub notices: Option<CompletionNotice>,
    /// When letters are read.
    pub letters: Option<Delivery>,
}

fn notices<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<CompletionNotice>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.map(|word| if word == "quiet" { CompletionNotice::Quiet } else { CompletionNotice::Wake }))
}

/// Commands that are run when things happen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HooksConfig {
    /// Before a tool runs.
    pub pre_tool_use: Vec<HookMatcherConfig>,
    /// After a tool has run.
    pub post_tool_use: Vec<HookMatcherConfig>,
    /// When a session begins.
    pub session_start: Vec<HookConfig>,
    /// When a session ends.
    pub session_end: Vec<HookConfig>,
    /// When a person is asked.
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
pub struct HookMatcherConfig {
    /// A pattern of tool names; `*` and nothing are all.
    pub matcher: Option<String>,
    /// What is run.
    pub hooks: Vec<HookConfig>,
}

/// A command that is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HookConfig {
    /// The command.
    pub command: String,
    /// How long it may take.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
    /// `allow`: a call is made though the hook that is to judge it fails.
    pub on_error: Option<String>,
}
