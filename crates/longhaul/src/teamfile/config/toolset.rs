//! The configuration of a toolset.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BudgetConfig, LimitsConfig, time};

/// A toolset.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolsetConfig {
    /// The tools to offer. None named means all.
    pub tools: Option<Vec<String>>,
    /// Instructions for the agent; `{ORIGINAL_INSTRUCTIONS}` stands for the built-in text.
    pub instruction: Option<String>,
    /// The model that reads its results.
    pub model: Option<String>,
    /// The type and its keys.
    #[serde(flatten)]
    pub kind: ToolsetKind,
}

/// The types of toolsets, with the keys of each.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolsetKind {
    /// Files below the working directory.
    Filesystem(FilesystemConfig),
    /// Shell commands.
    Shell(ShellConfig),
    /// Commands of the team as tools.
    Script(ScriptConfig),
    /// A tool to write down thoughts.
    Think,
    /// A to-do list.
    Todo {
        /// Whether all agents share one list.
        #[serde(default)]
        shared: bool,
    },
    /// Tasks with dependencies.
    Tasks {
        /// The file that holds them.
        path: Option<String>,
    },
    /// Memory across runs.
    Memory {
        /// The file that holds it.
        path: Option<String>,
    },
    /// Web pages.
    Fetch(FetchConfig),
    /// Questions to a person.
    UserPrompt,
    /// One HTTP call.
    Api(ApiConfig),
    /// The operations of an OpenAPI document.
    Openapi(OpenApiConfig),
    /// A remote agent.
    A2a(A2aConfig),
    /// The tools of an MCP server.
    Mcp(McpConfig),
    /// Lets the agent change its model.
    ModelPicker {
        /// The models to choose from.
        #[serde(default)]
        models: Vec<String>,
    },
    /// Sub-agents in the background.
    BackgroundAgents {
        /// Limits on the tasks that it launches.
        #[serde(default)]
        limits: LimitsConfig,
        /// The budget of one of these tasks.
        #[serde(default)]
        budget: BudgetConfig,
    },
    /// Sub-agents as managed agents.
    Agents {
        /// Limits on the tasks that it launches.
        #[serde(default)]
        limits: LimitsConfig,
        /// The budget of one of these tasks.
        #[serde(default)]
        budget: BudgetConfig,
    },
    /// A language server: accepted but not run.
    Lsp,
    /// Retrieval: accepted but not run.
    Rag,
    /// An unknown type.
    Unknown {
        /// The type in the file.
        name: String,
    },
    /// A toolset with an error that is already reported.
    #[default]
    Wrong,
}

impl ToolsetKind {
    /// The type, as written in files.
    pub fn name(&self) -> &str {
        match self {
            ToolsetKind::Filesystem(_) => "filesystem",
            ToolsetKind::Shell(_) => "shell",
            ToolsetKind::Script(_) => "script",
            ToolsetKind::Think => "think",
            ToolsetKind::Todo { .. } => "todo",
            ToolsetKind::Tasks { .. } => "tasks",
            ToolsetKind::Memory { .. } => "memory",
            ToolsetKind::Fetch(_) => "fetch",
            ToolsetKind::UserPrompt => "user_prompt",
            ToolsetKind::Api(_) => "api",
            ToolsetKind::Openapi(_) => "openapi",
            ToolsetKind::A2a(_) => "a2a",
            ToolsetKind::Mcp(_) => "mcp",
            ToolsetKind::ModelPicker { .. } => "model_picker",
            ToolsetKind::BackgroundAgents { .. } => "background_agents",
            ToolsetKind::Agents { .. } => "agents",
            ToolsetKind::Lsp => "lsp",
            ToolsetKind::Rag => "rag",
            ToolsetKind::Unknown { name } => name,
            ToolsetKind::Wrong => "wrong",
        }
    }
}

/// Files below the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FilesystemConfig {
    /// Commands to run after a file is changed.
    pub post_edit: Vec<PostEditConfig>,
    /// Whether to skip files that git ignores.
    pub ignore_vcs: Option<bool>,
    /// Additional directories that the agent may use.
    pub allow_paths: Vec<String>,
}

/// A command to run after a file is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PostEditConfig {
    /// A pattern of the files.
    pub path: String,
    /// The command.
    pub cmd: String,
}

/// Whether commands run in a sandbox.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum SandboxConfig {
    /// On or off.
    Switch(bool),
    /// `on` or `off`.
    Word(String),
    /// The map of older files, for another runtime.
    Old(Map<String, Value>),
}

/// Shell commands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ShellConfig {
    /// Environment variables of the commands.
    pub env: IndexMap<String, String>,
    /// Whether commands run in a sandbox.
    pub sandbox: Option<SandboxConfig>,
    /// Whether sandboxed commands may use the network.
    pub network: Option<bool>,
    /// The timeout of a command.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
}

/// Commands of the team as tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ScriptConfig {
    /// The tools.
    pub shell: IndexMap<String, ScriptToolConfig>,
    /// Environment variables of the commands.
    pub env: IndexMap<String, String>,
    /// Whether commands run in a sandbox.
    pub sandbox: Option<SandboxConfig>,
    /// Whether sandboxed commands may use the network.
    pub network: Option<bool>,
    /// The timeout of a command.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
}

/// A command as a tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ScriptToolConfig {
    /// The command.
    pub cmd: String,
    /// What it does.
    pub description: String,
    /// The JSON schemas of its arguments.
    pub args: Map<String, Value>,
    /// The required arguments.
    pub required: Option<Vec<String>>,
    /// Environment variables of the command.
    pub env: IndexMap<String, String>,
    /// The working directory.
    pub working_dir: Option<String>,
}

/// Web pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FetchConfig {
    /// The timeout of a page.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
    /// Whether private and local addresses are allowed.
    pub allow_private: bool,
    /// The maximum number of bytes of a page.
    pub max_bytes: Option<u64>,
}

/// One HTTP call as a tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ApiConfig {
    /// The call.
    pub api_config: ApiCallConfig,
}

/// An HTTP call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ApiCallConfig {
    /// The name of the tool.
    pub name: String,
    /// What it does.
    pub instruction: String,
    /// Its URL.
    pub endpoint: String,
    /// The HTTP method.
    pub method: Option<String>,
    /// Its headers.
    pub headers: IndexMap<String, String>,
    /// The JSON schemas of its arguments.
    pub args: Map<String, Value>,
    /// The required arguments.
    pub required: Vec<String>,
}

/// The operations of an OpenAPI document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OpenApiConfig {
    /// The URL of the document.
    pub url: String,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}

/// A remote agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct A2aConfig {
    /// Its URL.
    pub url: String,
    /// Its name in the team.
    pub name: Option<String>,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}

/// An MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct McpConfig {
    /// The program to start.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// A remote server.
    pub remote: Option<McpRemoteConfig>,
    /// `docker:name`, or a name under `mcps`.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Environment variables of the server.
    pub env: IndexMap<String, String>,
    /// Its name in the team.
    pub name: Option<String>,
    /// The working directory.
    pub working_dir: Option<String>,
}

/// A remote MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct McpRemoteConfig {
    /// Its URL.
    pub url: String,
    /// The transport.
    pub transport_type: Option<String>,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}
