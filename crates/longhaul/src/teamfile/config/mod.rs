//! A team file as data: every spelling normalized, nothing resolved, nothing started.

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
    A2aConfig, ApiCallConfig, ApiConfig, FetchConfig, FilesystemConfig, McpConfig, McpRemoteConfig,
    OpenApiConfig, PostEditConfig, SandboxConfig, ScriptConfig, ScriptToolConfig, ShellConfig, ToolsetConfig,
    ToolsetKind,
};

use super::reader::SpanIndex;
use crate::model::http::ApiType;

/// A parsed team file. Every name in it that refers to something is resolved.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TeamFile {
    /// The version of the format, as the file says.
    pub version: Option<String>,
    /// The agents, in the order of the file.
    pub agents: IndexMap<String, AgentConfig>,
    /// Models by name.
    pub models: IndexMap<String, ModelConfig>,
    /// Providers by name.
    pub providers: IndexMap<String, ProviderConfig>,
    /// MCP servers by name.
    pub mcps: IndexMap<String, ToolsetConfig>,
    /// Information about the file.
    pub metadata: MetadataConfig,
    /// Which tools are allowed, need approval or are denied.
    pub permissions: PermissionsConfig,
    /// The budget of a whole run.
    pub budget: BudgetConfig,
    /// Budgets by name.
    pub budgets: IndexMap<String, BudgetConfig>,
    /// Toolsets by name.
    pub toolsets: IndexMap<String, Vec<ToolsetConfig>>,
    /// Groups of commands by name.
    pub commands: IndexMap<String, IndexMap<String, CommandConfig>>,
    /// Sources of skills by name.
    pub skills: IndexMap<String, SkillsConfig>,
    #[serde(skip)]
    pub(super) spans: SpanIndex,
}

impl TeamFile {
    /// The name of the root agent: `root`, or else the first one in the file. `None` if there are no agents.
    pub fn root_agent(&self) -> Option<&str> {
        match self.agents.get_key_value("root") {
            Some((name, _)) => Some(name),
            None => self.agents.keys().next().map(String::as_str),
        }
    }
}

/// A model and its settings.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The provider.
    pub provider: Option<String>,
    /// The provider's name for the model; for `scripted`, the script file.
    pub model: Option<String>,
    /// The maximum number of tokens in a reply.
    pub max_tokens: Option<u64>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Penalty for tokens by how often they were used.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens that were used at all.
    pub presence_penalty: Option<f64>,
    /// How much the model thinks.
    pub thinking_budget: Option<ThinkingConfig>,
    /// Whether the model may make several calls in one reply.
    pub parallel_tool_calls: Option<bool>,
    /// The protocol, if it is not the provider's default.
    pub api_type: Option<ApiType>,
    /// Other options for the provider.
    pub provider_opts: Map<String, Value>,
    /// The base URL.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub token_key: Option<String>,
    /// A fixed maximum number of concurrent requests.
    pub max_concurrent: Option<usize>,
    /// For `scripted`: the script itself.
    pub script: Option<String>,
}

/// How much a model thinks, as written in the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ThinkingConfig {
    /// A number of tokens: 0 is off, -1 lets the model decide.
    Tokens(i64),
    /// An effort level.
    Effort(String),
    /// As a map.
    Map {
        /// An effort level.
        effort: Option<String>,
        /// A number of tokens.
        tokens: Option<i64>,
    },
}

/// A custom provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// The protocol.
    pub api_type: Option<ApiType>,
    /// The base URL.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub token_key: Option<String>,
    /// The known provider that it behaves like.
    pub provider: Option<String>,
    /// A fixed maximum number of concurrent requests.
    pub max_concurrent: Option<usize>,
}

/// Information about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MetadataConfig {
    /// The author.
    pub author: Option<String>,
    /// The license.
    pub license: Option<String>,
    /// What the team is for.
    pub description: Option<String>,
    /// More information.
    pub readme: Option<String>,
    /// The version of the team.
    pub version: Option<String>,
    /// Search keywords.
    pub tags: Vec<String>,
}

/// Patterns of tools that are allowed, need approval or are denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionsConfig {
    /// These run without approval.
    pub allow: Vec<String>,
    /// These need approval.
    pub ask: Vec<String>,
    /// These never run.
    pub deny: Vec<String>,
}

impl PermissionsConfig {
    /// Joins each list with the other's.
    pub(crate) fn merged_with(&self, others: &PermissionsConfig) -> PermissionsConfig {
        PermissionsConfig {
            allow: [&self.allow[..], &others.allow[..]].concat(),
            ask: [&self.ask[..], &others.ask[..]].concat(),
            deny: [&self.deny[..], &others.deny[..]].concat(),
        }
    }
}

/// Budget limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BudgetConfig {
    /// The cost in dollars.
    pub max_cost: Option<f64>,
    /// Input and output tokens.
    pub max_tokens: Option<u64>,
    /// The time.
    #[serde(deserialize_with = "time")]
    pub max_time: Option<Duration>,
}

/// Deserializes a duration, which the reader passes in nanoseconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_nanos))
}
