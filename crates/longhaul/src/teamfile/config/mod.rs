//! A team file as data: every spelling in its one form, nothing looked up, nothing started.

mod agent;
mod toolset;

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

pub use agent::{
    AgentConfig, BackgroundConfig, CommandConfig, FallbackConfig, HookConfig, HookMatcherConfig, HooksConfig,
    LimitsConfig, SkillsConfig, StructuredOutputConfig,
};
pub use toolset::{
    A2aConfig, ApiCallConfig, ApiConfig, DeferConfig, FetchConfig, FilesystemConfig, McpConfig,
    McpRemoteConfig, OpenApiConfig, PostEditConfig, SandboxConfig, ScriptConfig, ScriptToolConfig,
    ShellConfig, ToolsetConfig, ToolsetKind,
};

use super::reader::SpanIndex;
use crate::model::http::ApiType;

/// A team file that has been read. Every name in it that refers to something refers to something that is there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TeamFile {
    /// The version of the format, as the file says.
    pub version: Option<String>,
    /// The agents, in the order of the file.
    pub agents: IndexMap<String, AgentConfig>,
    /// Models by their names.
    pub models: IndexMap<String, ModelConfig>,
    /// Providers by their names.
    pub providers: IndexMap<String, ProviderConfig>,
    /// MCP servers by their names.
    pub mcps: IndexMap<String, ToolsetConfig>,
    /// What the file says about itself.
    pub metadata: MetadataConfig,
    /// Which tools run, which are asked about, and which never run.
    pub permissions: PermissionsConfig,
    /// What a whole run may use.
    pub budget: BudgetConfig,
    /// Budgets by their names.
    pub budgets: IndexMap<String, BudgetConfig>,
    /// Toolsets by their names.
    pub toolsets: IndexMap<String, Vec<ToolsetConfig>>,
    /// Groups of commands by their names.
    pub commands: IndexMap<String, IndexMap<String, CommandConfig>>,
    /// Sources of skills by their names.
    pub skills: IndexMap<String, SkillsConfig>,
    #[serde(skip)]
    pub(super) spans: SpanIndex,
}

impl TeamFile {
    /// The name of the agent that is asked first: `root`, or the first of the file.
    pub fn root_agent(&self) -> Option<&str> {
        match self.agents.get_key_value("root") {
            Some((name, _)) => Some(name),
            None => self.agents.keys().next().map(String::as_str),
        }
    }
}

/// A model, and how it is asked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Who provides it.
    pub provider: Option<String>,
    /// The model, as its provider names it; of `scripted`, the script file.
    pub model: Option<String>,
    /// At most this many tokens in a reply.
    pub max_tokens: Option<u64>,
    /// How freely it chooses its words.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Dislike of words that were used often.
    pub frequency_penalty: Option<f64>,
    /// Dislike of words that were used at all.
    pub presence_penalty: Option<f64>,
    /// How much it thinks.
    pub thinking_budget: Option<ThinkingConfig>,
    /// Whether it may make several calls in one reply.
    pub parallel_tool_calls: Option<bool>,
    /// What it speaks, if not what its provider usually does.
    pub api_type: Option<ApiType>,
    /// Whatever else the provider takes.
    pub provider_opts: Map<String, Value>,
    /// Where it is.
    pub base_url: Option<String>,
    /// The name of the variable with its key.
    pub token_key: Option<String>,
    /// Of `scripted`: the script itself.
    pub script: Option<String>,
}

/// How much a model thinks, as the file says it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ThinkingConfig {
    /// In tokens: 0 is off, -1 as it sees fit.
    Tokens(i64),
    /// In a word.
    Effort(String),
    /// As a map.
    Map {
        /// In a word.
        effort: Option<String>,
        /// In tokens.
        tokens: Option<i64>,
    },
}

/// A provider of the team's own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProviderConfig {
    /// What it speaks.
    pub api_type: Option<ApiType>,
    /// Where it is.
    pub base_url: Option<String>,
    /// The name of the variable with its key.
    pub token_key: Option<String>,
    /// The known provider that it is like.
    pub provider: Option<String>,
}

/// What a file says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MetadataConfig {
    /// Who wrote it.
    pub author: Option<String>,
    /// Under which license.
    pub license: Option<String>,
    /// What the team is for.
    pub description: Option<String>,
    /// More about it.
    pub readme: Option<String>,
    /// The version of the team.
    pub version: Option<String>,
}

/// Which tools run, which are asked about, and which never run: patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PermissionsConfig {
    /// These run.
    pub allow: Vec<String>,
    /// These are asked about.
    pub ask: Vec<String>,
    /// These never run.
    pub deny: Vec<String>,
}

impl PermissionsConfig {
    /// These and others, list by list.
    pub(crate) fn merged_with(&self, others: &PermissionsConfig) -> PermissionsConfig {
        PermissionsConfig {
            allow: [&self.allow[..], &others.allow[..]].concat(),
            ask: [&self.ask[..], &others.ask[..]].concat(),
            deny: [&self.deny[..], &others.deny[..]].concat(),
        }
    }
}

/// What may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    /// Money, in dollars.
    pub max_cost: Option<f64>,
    /// Tokens, read and written.
    pub max_tokens: Option<u64>,
    /// Time.
    #[serde(deserialize_with = "time")]
    pub max_time: Option<Duration>,
}

/// A time, which the reader hands on in nanoseconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_nanos))
}
