//! The configuration of toolsets: some keys are common, the others depend on the type.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use super::agent::{BUDGET, LIMITS};
use super::{BudgetConfig, LimitsConfig, doc_text, time};
use crate::teamfile::file_schema::{KeyRule, KeySchema, ObjectSchema, ValueType, ignored_key, key};

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

/// The keys that every toolset has.
static COMMON: &[KeySchema] = &[
    key("type", ValueType::Text, "The type of the toolset."),
    key("tools", ValueType::Names, "Only these of its tools."),
    key(
        "instruction",
        ValueType::Text,
        "Instructions for the agent; {ORIGINAL_INSTRUCTIONS} stands for the built-in text.",
    ),
    ignored_key("toon", ValueType::Names, "Which results are written in a shorter form."),
    ignored_key("model", ValueType::Text, "The model that reads its results."),
    ignored_key(
        "defer",
        ValueType::AnyOf(&[ValueType::Bool, ValueType::Names]),
        "Whether its tools are loaded on demand.",
    ),
];

const ENV_FILE: KeySchema = ignored_key("env_file", ValueType::Texts, "Files with variables, in old files.");

/// Declares the types of toolsets: the name in files, the variant with its keys, and their table.
macro_rules! toolset_kinds {
    ($($(#[doc = $doc:literal])+ $name:literal = $variant:ident $(($config:ty))?: $schema:ident,)+) => {
        /// The types of toolsets, with the keys of each.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum ToolsetKind {
            $($(#[doc = $doc])+ $variant $(($config))?,)+
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
                    $(ToolsetKind::$variant { .. } => $name,)+
                    ToolsetKind::Unknown { name } => name,
                    ToolsetKind::Wrong => "wrong",
                }
            }
        }

        /// Every type of toolset.
        pub(in crate::teamfile) static TOOLSETS: &[(&str, &ObjectSchema)] = &[$(($name, &$schema)),+];
    };
}

toolset_kinds! {
    /// Files below the working directory.
    "filesystem" = Filesystem(FilesystemConfig): FILESYSTEM,
    /// Shell commands.
    "shell" = Shell(ShellConfig): SHELL,
    /// Commands of the team as tools.
    "script" = Script(ScriptConfig): SCRIPT,
    /// A tool to write down thoughts.
    "think" = Think: PLAIN,
    /// A to-do list.
    "todo" = Todo(TodoConfig): TODO,
    /// Tasks with dependencies.
    "tasks" = Tasks(FileToolsConfig): TASKS,
    /// Memory across runs.
    "memory" = Memory(FileToolsConfig): MEMORY,
    /// Web pages.
    "fetch" = Fetch(FetchConfig): FETCH,
    /// Questions to a person.
    "user_prompt" = UserPrompt: PLAIN,
    /// One HTTP call.
    "api" = Api(ApiConfig): API,
    /// The operations of an OpenAPI document.
    "openapi" = Openapi(OpenApiConfig): OPENAPI,
    /// A remote agent.
    "a2a" = A2a(A2aConfig): A2A,
    /// The tools of an MCP server.
    "mcp" = Mcp(McpConfig): MCP,
    /// Lets the agent change its model.
    "model_picker" = ModelPicker(ModelPickerConfig): MODEL_PICKER,
    /// Sub-agents in the background.
    "background_agents" = BackgroundAgents(LauncherConfig): BACKGROUND_AGENTS,
    /// Sub-agents as managed agents.
    "agents" = Agents(LauncherConfig): BACKGROUND_AGENTS,
    /// A language server: accepted but not run.
    "lsp" = Lsp: LSP,
    /// Retrieval: accepted but not run.
    "rag" = Rag: RAG,
}

/// A toolset without its own keys.
static PLAIN: ObjectSchema =
    ObjectSchema::new(("this toolset", "PlainToolset", "A toolset without its own keys."), &[], &[])
        .with_shared(COMMON);

team_config! {
    /// Files below the working directory.
    FilesystemConfig [Eq] = FILESYSTEM("a filesystem toolset", "FilesystemToolset") shared COMMON {
        /// Commands to run after a file is changed.
        post_edit: Vec<PostEditConfig> = List(&Object(&POST_EDIT)),
        /// Whether to skip files that git ignores. Default: true.
        ignore_vcs: Option<bool> = Bool,
        /// Additional directories that the agent may use.
        allow_paths: Vec<String> = Texts,
    }
}

team_config! {
    /// A command to run after a file is changed.
    PostEditConfig [Eq] = POST_EDIT("post_edit", "PostEdit") {
        /// A pattern of the files, such as *.rs.
        path: String = Text,
        /// The command; ${path} is the file.
        cmd: String = Text,
    }
    rules [KeyRule::Required(&["path", "cmd"])]
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
    Old(serde_json::Map<String, Value>),
}

pub(super) const SANDBOX: ValueType =
    ValueType::AnyOf(&[ValueType::Bool, ValueType::Keyword(&["on", "off"]), ValueType::Map(&ValueType::Any)]);

team_config! {
    /// Commands, also in the background.
    ShellConfig [] = SHELL("a shell toolset", "ShellToolset") shared COMMON {
        /// Environment variables of its processes.
        env: IndexMap<String, String> = Map(&TextWithVariables),
        /// Whether commands may write only below the working directory.
        sandbox: Option<SandboxConfig> = SANDBOX,
        /// Whether sandboxed commands may use the network.
        network: Option<bool> = Bool,
        /// The timeout of a command, if the model does not set one.
        #[serde(deserialize_with = "time")]
        timeout: Option<Duration> = Duration,
    }
    also [ENV_FILE]
}

team_config! {
    /// Your own commands as tools.
    ScriptConfig [] = SCRIPT("a script toolset", "ScriptToolset") shared COMMON {
        /// The tools, by name.
        shell: IndexMap<String, ScriptToolConfig> = Map(&Object(&SCRIPT_TOOL)),
        /// Environment variables of its processes.
        env: IndexMap<String, String> = Map(&TextWithVariables),
        /// Whether commands may write only below the working directory.
        sandbox: Option<SandboxConfig> = SANDBOX,
        /// Whether sandboxed commands may use the network.
        network: Option<bool> = Bool,
        /// The timeout of a command, if the model does not set one.
        #[serde(deserialize_with = "time")]
        timeout: Option<Duration> = Duration,
    }
    also [ENV_FILE]
    rules [KeyRule::Required(&["shell"])]
}

team_config! {
    /// A command as a tool.
    ScriptToolConfig [] = SCRIPT_TOOL("a script tool", "ScriptTool") {
        /// The command. Its arguments are variables in it.
        cmd: String = Text,
        /// What it does.
        description: String = Text,
        /// Its arguments: their JSON schemas, by name.
        args: serde_json::Map<String, Value> = Map(&Any),
        /// The required arguments. Default: all.
        required: Option<Vec<String>> = Names,
        /// Environment variables of the command.
        env: IndexMap<String, String> = Map(&TextWithVariables),
        /// The working directory.
        working_dir: Option<String> = Text,
    }
    rules [KeyRule::Required(&["cmd"])]
}

team_config! {
    /// A to-do list.
    TodoConfig [Eq] = TODO("a todo toolset", "TodoToolset") shared COMMON {
        /// Whether all agents share one list.
        shared: bool = Bool,
    }
}

team_config! {
    /// Memory across runs.
    FileToolsConfig [Eq] = MEMORY("a memory toolset", "MemoryToolset") shared COMMON {
        /// The file that holds it.
        path: Option<String> = Text,
    }
}

static TASKS: ObjectSchema = ObjectSchema::new(
    ("a tasks toolset", "TasksToolset", "Tasks with dependencies, kept in a file."),
    &[key("path", ValueType::Text, "The file that holds them.")],
    &[],
)
.with_shared(COMMON);

team_config! {
    /// Web pages as text.
    FetchConfig [Eq] = FETCH("a fetch toolset", "FetchToolset") shared COMMON {
        /// The timeout of a page.
        #[serde(deserialize_with = "time")]
        timeout: Option<Duration> = Duration,
        /// Whether private and local addresses are allowed.
        allow_private: bool = Bool,
        /// The maximum number of bytes of a page.
        max_bytes: Option<u64> = Integer(1),
    }
}

team_config! {
    /// One HTTP call as a tool.
    ApiConfig [] = API("an api toolset", "ApiToolset") shared COMMON {
        /// The call.
        api_config: ApiCallConfig = Object(&API_CALL),
    }
    rules [KeyRule::Required(&["api_config"])]
}

team_config! {
    /// An HTTP call.
    ApiCallConfig [] = API_CALL("api_config", "ApiConfig") {
        /// The name of the tool.
        name: String = Text,
        /// What it does.
        instruction: String = Text,
        /// Its URL; ${name} stands for an argument.
        endpoint: String = TextWithVariables,
        /// The HTTP method. Default: GET.
        method: Option<String> = Keyword(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
        /// Its headers.
        headers: IndexMap<String, String> = Map(&TextWithVariables),
        /// Its arguments: their JSON schemas, by name.
        args: serde_json::Map<String, Value> = Map(&Any),
        /// The required arguments.
        required: Vec<String> = Names,
    }
    also [ignored_key("output_schema", Any, "The JSON schema of the response.")]
    rules [KeyRule::Required(&["name", "endpoint"])]
}

team_config! {
    /// Every operation of an OpenAPI document as a tool.
    OpenApiConfig [Eq] = OPENAPI("an openapi toolset", "OpenapiToolset") shared COMMON {
        /// The URL.
        url: String = TextWithVariables,
        /// Headers of its requests.
        headers: IndexMap<String, String> = Map(&TextWithVariables),
    }
    rules [KeyRule::Required(&["url"])]
}

team_config! {
    /// A remote agent as a tool.
    A2aConfig [Eq] = A2A("an a2a toolset", "A2aToolset") shared COMMON {
        /// The URL.
        url: String = TextWithVariables,
        /// Its name in the team.
        name: Option<String> = Text,
        /// Headers of its requests.
        headers: IndexMap<String, String> = Map(&TextWithVariables),
    }
    rules [KeyRule::Required(&["url"])]
}

team_config! {
    /// The tools of an MCP server.
    McpConfig [Eq] = MCP("an mcp toolset", "McpToolset") shared COMMON {
        /// The program to start.
        command: Option<String> = Text,
        /// Its arguments.
        args: Vec<String> = Texts,
        /// A remote server.
        remote: Option<McpRemoteConfig> = Object(&REMOTE),
        /// docker:name for Docker's MCP gateway, or a name under `mcps`.
        reference("ref"): Option<String> = Text,
        /// Environment variables of its processes.
        env: IndexMap<String, String> = Map(&TextWithVariables),
        /// Its name in the team, and the prefix of its tools.
        name: Option<String> = Text,
        /// The working directory.
        working_dir: Option<String> = Text,
    }
    also [
        ENV_FILE,
        ignored_key("config", Any, "Settings for Docker's MCP gateway."),
        ignored_key("version", Text, "The package that another runtime would install."),
    ]
    rules [KeyRule::OneOf(&["command", "remote", "ref"])]
}

team_config! {
    /// A remote MCP server.
    McpRemoteConfig [Eq] = REMOTE("remote", "Remote") {
        /// The URL.
        url: String = TextWithVariables,
        /// The transport. Default: streamable.
        transport_type: Option<String> = Keyword(&["streamable", "streamable-http", "http", "sse"]),
        /// Headers of its requests.
        headers: IndexMap<String, String> = Map(&TextWithVariables),
    }
    also [ignored_key("oauth", Any, "How to get a token; a server that needs one says so.")]
    rules [KeyRule::Required(&["url"])]
}

team_config! {
    /// Lets the agent change its model.
    ModelPickerConfig [Eq] = MODEL_PICKER("a model_picker toolset", "ModelPickerToolset") shared COMMON {
        /// The models to choose from.
        models: Vec<String> = Names,
    }
    rules [KeyRule::Required(&["models"])]
}

team_config! {
    /// Sub-agents that work in the background.
    LauncherConfig [] = BACKGROUND_AGENTS("this toolset", "BackgroundAgentsToolset") shared COMMON {
        /// Limits on the tasks that it launches.
        limits: LimitsConfig = Object(&LIMITS),
        /// The budget of one of these tasks.
        budget: BudgetConfig = Object(&BUDGET),
    }
}

static LSP: ObjectSchema = ObjectSchema::new(
    ("an lsp toolset", "LspToolset", "A language server. Accepted, but not run."),
    &[
        key("command", ValueType::Text, "The program to start."),
        key("args", ValueType::Texts, "Its arguments."),
        key("env", ValueType::Map(&ValueType::TextWithVariables), "Environment variables of its processes."),
        key("file_types", ValueType::Names, "The file types."),
        key("version", ValueType::Text, "The package that another runtime would install."),
    ],
    &[KeyRule::Required(&["command"])],
)
.with_shared(COMMON);

static RAG: ObjectSchema = ObjectSchema::new(
    ("a rag toolset", "RagToolset", "Retrieval. Accepted, but not run."),
    &[
        key("ref", ValueType::Text, "A name under `rag`."),
        key("name", ValueType::Text, "Its name in the team."),
        key("rag_config", ValueType::Any, "The source."),
        key("docs", ValueType::Texts, "Its documents."),
        key("strategies", ValueType::Any, "How they are searched."),
        key("results", ValueType::Any, "How results are shown."),
        key("tool", ValueType::Any, "The name of the tool."),
        key("respect_vcs", ValueType::Bool, "Whether to skip files that git ignores."),
    ],
    &[],
)
.with_shared(COMMON);
