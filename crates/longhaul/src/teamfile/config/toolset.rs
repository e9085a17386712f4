//! A toolset as the file says it.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{BudgetConfig, LimitsConfig, time};

/// A toolset.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolsetConfig {
    /// Only these of its tools; none named is all.
    pub tools: Option<Vec<String>>,
    /// What the agent is told about it; `{ORIGINAL_INSTRUCTIONS}` stands for the built-in text.
    pub instruction: Option<String>,
    /// Which results are written in a shorter form.
    pub toon: Option<Vec<String>>,
    /// The model that reads its results.
    pub model: Option<String>,
    /// Whether its tools are loaded later.
    pub defer: Option<DeferConfig>,
    /// Which it is.
    #[serde(flatten)]
    pub kind: ToolsetKind,
}

/// The types of toolsets, with the keys of each.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolsetKind {
    /// Files below the working directory.
    Filesystem(FilesystemConfig),
    /// Commands.
    Shell(ShellConfig),
    /// Commands of the team's own as tools.
    Script(ScriptConfig),
    /// A place to think.
    Think,
    /// A list of things to do.
    Todo {
        /// Whether all agents share one list.
        #[serde(default)]
        shared: bool,
    },
    /// Tasks with dependencies.
    Tasks {
        /// Where they are kept.
        path: Option<String>,
    },
    /// What is remembered between runs.
    Memory {
        /// Where it is kept.
        path: Option<String>,
    },
    /// Pages of the web.
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
        /// The models that it may take.
        #[serde(default)]
        models: Vec<String>,
    },
    /// Sub-agents in the background.
    BackgroundAgents {
        /// Bounds on the tasks that it launches.
        #[serde(default)]
        limits: LimitsConfig,
        /// What one of these tasks may use.
        #[serde(default)]
        budget: BudgetConfig,
    },
    /// Sub-agents as managed agents.
    Agents {
        /// Bounds on the tasks that it launches.
        #[serde(default)]
        limits: LimitsConfig,
        /// What one of these tasks may use.
        #[serde(default)]
        budget: BudgetConfig,
    },
    /// A language server: read, and not run.
    Lsp,
    /// Retrieval: read, and not run.
    Rag,
    /// A type that nobody knows.
    Unknown {
        /// What the file calls it.
        name: String,
    },
    /// What was wrong, and has been told.
    #[default]
    Wrong,
}

impl ToolsetKind {
    /// The word for it, as files write it.
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

/// Which tools are loaded later.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum DeferConfig {
    /// All, or none.
    Switch(bool),
    /// These.
    Tools(Vec<String>),
}

/// Files below the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FilesystemConfig {
    /// Commands that are run when files have been changed.
    pub post_edit: Vec<PostEditConfig>,
    /// Whether files that git ignores are passed over.
    pub ignore_vcs: Option<bool>,
    /// Other directories that may be used.
    pub allow_paths: Vec<String>,
}

/// A command that is run when a file has been changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PostEditConfig {
    /// For which files.
    pub path: String,
    /// The command.
    pub cmd: String,
}

/// Whether commands are confined.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum SandboxConfig {
    /// They are, or not.
    Switch(bool),
    /// In a word: on or off.
    Word(String),
    /// As files of old say it, for another runtime.
    Old(Map<String, Value>),
}

/// Commands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ShellConfig {
    /// Variables for them.
    pub env: IndexMap<String, String>,
    /// Whether they are confined.
    pub sandbox: Option<SandboxConfig>,
    /// Whether confined ones may use the network.
    pub network: Option<bool>,
    /// How long one may take.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
}

/// Commands of the team's own as tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ScriptConfig {
    /// The tools.
    pub shell: IndexMap<String, ScriptToolConfig>,
    /// Variables for them.
    pub env: IndexMap<String, String>,
    /// Whether they are confined.
    pub sandbox: Option<SandboxConfig>,
    /// Whether confined ones may use the network.
    pub network: Option<bool>,
    /// How long one may take.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
}

/// A command as a tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ScriptToolConfig {
    /// The command.
    pub cmd: String,
    /// What it does.
    pub description: String,
    /// Its arguments: their JSON schemas.
    pub args: Map<String, Value>,
    /// The arguments that must be there.
    pub required: Option<Vec<String>>,
    /// Variables for it.
    pub env: IndexMap<String, String>,
    /// Where it runs.
    pub working_dir: Option<String>,
}

/// Pages of the web.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FetchConfig {
    /// How long one may take.
    #[serde(deserialize_with = "time")]
    pub timeout: Option<Duration>,
    /// Whether addresses of this machine and its network may be asked.
    pub allow_private: bool,
    /// How much of one is read.
    pub max_bytes: Option<u64>,
}

/// One HTTP call as a tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ApiConfig {
    /// The call.
    pub api_config: ApiCallConfig,
}

/// An HTTP call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ApiCallConfig {
    /// The name of the tool.
    pub name: String,
    /// What it does.
    pub instruction: String,
    /// Its URL.
    pub endpoint: String,
    /// How it is called.
    pub method: Option<String>,
    /// Its headers.
    pub headers: IndexMap<String, String>,
    /// Its arguments: their JSON schemas.
    pub args: Map<String, Value>,
    /// The arguments that must be there.
    pub required: Vec<String>,
}

/// The operations of an OpenAPI document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OpenApiConfig {
    /// Where the document is.
    pub url: String,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}

/// A remote agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct A2aConfig {
    /// Where it is.
    pub url: String,
    /// What it is called here.
    pub name: Option<String>,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}

/// An MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct McpConfig {
    /// The program that is the server.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// A server elsewhere.
    pub remote: Option<McpRemoteConfig>,
    /// `docker:name`, or a name under `mcps`.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// Variables for it.
    pub env: IndexMap<String, String>,
    /// What it is called here.
    pub name: Option<String>,
    /// Where it runs.
    pub working_dir: Option<String>,
}

/// An MCP server elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct McpRemoteConfig {
    /// Where it is.
    pub url: String,
    /// How it is spoken to.
    pub transport_type: Option<String>,
    /// Headers of every request.
    pub headers: IndexMap<String, String>,
}
