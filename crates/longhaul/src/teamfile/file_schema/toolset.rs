//! The keys of toolsets: some are common, the others depend on the type.

use super::agent::{BUDGET, LIMITS};
use super::{KeyRule, KeySchema, ObjectSchema, ValueType, ignored_key, key};

/// Every type of toolset.
pub(in crate::teamfile) static TOOLSETS: &[(&str, &ObjectSchema)] = &[
    ("filesystem", &FILESYSTEM),
    ("shell", &SHELL),
    ("script", &SCRIPT),
    ("think", &PLAIN),
    ("todo", &TODO),
    ("tasks", &TASKS),
    ("memory", &MEMORY),
    ("fetch", &FETCH),
    ("user_prompt", &PLAIN),
    ("api", &API),
    ("openapi", &OPENAPI),
    ("a2a", &A2A),
    ("mcp", &MCP),
    ("model_picker", &MODEL_PICKER),
    ("background_agents", &BACKGROUND_AGENTS),
    ("agents", &BACKGROUND_AGENTS),
    ("lsp", &LSP),
    ("rag", &RAG),
];

const TYPE: KeySchema = key("type", ValueType::Text, "The type of the toolset.");
const TOOLS: KeySchema = key("tools", ValueType::Names, "Only these of its tools.");
const INSTRUCTION: KeySchema = key(
    "instruction",
    ValueType::Text,
    "Instructions for the agent; {ORIGINAL_INSTRUCTIONS} stands for the built-in text.",
);
const TOON: KeySchema = ignored_key("toon", ValueType::Names, "Which results are written in a shorter form.");
const MODEL: KeySchema = ignored_key("model", ValueType::Text, "The model that reads its results.");
const DEFER: KeySchema = ignored_key(
    "defer",
    ValueType::AnyOf(&[ValueType::Bool, ValueType::Names]),
    "Whether its tools are loaded on demand.",
);
const ENV: KeySchema =
    key("env", ValueType::Map(&ValueType::TextWithVariables), "Environment variables of its processes.");
const ENV_FILE: KeySchema = ignored_key("env_file", ValueType::Texts, "Files with variables, in old files.");
const HEADERS: KeySchema =
    key("headers", ValueType::Map(&ValueType::TextWithVariables), "Headers of its requests.");
const URL: KeySchema = key("url", ValueType::TextWithVariables, "The URL.");

/// A toolset without its own keys.
static PLAIN: ObjectSchema = ObjectSchema {
    name: "this toolset",
    id: "PlainToolset",
    doc: "A toolset without its own keys.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER],
    rules: &[],
};

static FILESYSTEM: ObjectSchema = ObjectSchema {
    name: "a filesystem toolset",
    id: "FilesystemToolset",
    doc: "Files below the working directory.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key(
            "post_edit",
            ValueType::List(&ValueType::Object(&POST_EDIT)),
            "Commands to run after a file is changed.",
        ),
        key("ignore_vcs", ValueType::Bool, "Whether to skip files that git ignores. Default: true."),
        key("allow_paths", ValueType::Texts, "Additional directories that the agent may use."),
    ],
    rules: &[],
};

static POST_EDIT: ObjectSchema = ObjectSchema {
    name: "post_edit",
    id: "PostEdit",
    doc: "A command to run after a file is changed.",
    keys: &[
        key("path", ValueType::Text, "A pattern of the files, such as *.rs."),
        key("cmd", ValueType::Text, "The command; ${path} is the file."),
    ],
    rules: &[KeyRule::Required(&["path", "cmd"])],
};

const SANDBOX: KeySchema = key(
    "sandbox",
    ValueType::AnyOf(&[ValueType::Bool, ValueType::Keyword(&["on", "off"]), ValueType::Map(&ValueType::Any)]),
    "Whether commands may write only below the working directory.",
);
const NETWORK: KeySchema = key("network", ValueType::Bool, "Whether sandboxed commands may use the network.");

const TIMEOUT: KeySchema =
    key("timeout", ValueType::Duration, "The timeout of a command, if the model does not set one.");

static SHELL: ObjectSchema = ObjectSchema {
    name: "a shell toolset",
    id: "ShellToolset",
    doc: "Commands, also in the background.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, ENV, ENV_FILE, SANDBOX, NETWORK, TIMEOUT],
    rules: &[],
};

static SCRIPT: ObjectSchema = ObjectSchema {
    name: "a script toolset",
    id: "ScriptToolset",
    doc: "Your own commands as tools.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("shell", ValueType::Map(&ValueType::Object(&SCRIPT_TOOL)), "The tools, by name."),
        ENV,
        ENV_FILE,
        SANDBOX,
        NETWORK,
        TIMEOUT,
    ],
    rules: &[KeyRule::Required(&["shell"])],
};

static SCRIPT_TOOL: ObjectSchema = ObjectSchema {
    name: "a script tool",
    id: "ScriptTool",
    doc: "A command as a tool.",
    keys: &[
        key("cmd", ValueType::Text, "The command. Its arguments are variables in it."),
        key("description", ValueType::Text, "What it does."),
        key("args", ValueType::Map(&ValueType::Any), "Its arguments: their JSON schemas, by name."),
        key("required", ValueType::Names, "The required arguments. Default: all."),
        key("env", ValueType::Map(&ValueType::TextWithVariables), "Environment variables of the command."),
        key("working_dir", ValueType::Text, "The working directory."),
    ],
    rules: &[KeyRule::Required(&["cmd"])],
};

static TODO: ObjectSchema = ObjectSchema {
    name: "a todo toolset",
    id: "TodoToolset",
    doc: "A to-do list.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("shared", ValueType::Bool, "Whether all agents share one list."),
    ],
    rules: &[],
};

static TASKS: ObjectSchema = ObjectSchema {
    name: "a tasks toolset",
    id: "TasksToolset",
    doc: "Tasks with dependencies, kept in a file.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("path", ValueType::Text, "The file that holds them."),
    ],
    rules: &[],
};

static MEMORY: ObjectSchema = ObjectSchema {
    name: "a memory toolset",
    id: "MemoryToolset",
    doc: "Memory across runs.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("path", ValueType::Text, "The file that holds it."),
    ],
    rules: &[],
};

static FETCH: ObjectSchema = ObjectSchema {
    name: "a fetch toolset",
    id: "FetchToolset",
    doc: "Web pages as text.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("timeout", ValueType::Duration, "The timeout of a page."),
        key("allow_private", ValueType::Bool, "Whether private and local addresses are allowed."),
        key("max_bytes", ValueType::Integer(1), "The maximum number of bytes of a page."),
    ],
    rules: &[],
};

static API: ObjectSchema = ObjectSchema {
    name: "an api toolset",
    id: "ApiToolset",
    doc: "One HTTP call as a tool.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("api_config", ValueType::Object(&API_CONFIG), "The call."),
    ],
    rules: &[KeyRule::Required(&["api_config"])],
};

static API_CONFIG: ObjectSchema = ObjectSchema {
    name: "api_config",
    id: "ApiConfig",
    doc: "An HTTP call.",
    keys: &[
        key("name", ValueType::Text, "The name of the tool."),
        key("instruction", ValueType::Text, "What it does."),
        key("endpoint", ValueType::TextWithVariables, "Its URL; ${name} stands for an argument."),
        key(
            "method",
            ValueType::Keyword(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            "The HTTP method. Default: GET.",
        ),
        key("headers", ValueType::Map(&ValueType::TextWithVariables), "Its headers."),
        key("args", ValueType::Map(&ValueType::Any), "Its arguments: their JSON schemas, by name."),
        key("required", ValueType::Names, "The required arguments."),
        ignored_key("output_schema", ValueType::Any, "The JSON schema of the response."),
    ],
    rules: &[KeyRule::Required(&["name", "endpoint"])],
};

static OPENAPI: ObjectSchema = ObjectSchema {
    name: "an openapi toolset",
    id: "OpenapiToolset",
    doc: "Every operation of an OpenAPI document as a tool.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, URL, HEADERS],
    rules: &[KeyRule::Required(&["url"])],
};

static A2A: ObjectSchema = ObjectSchema {
    name: "an a2a toolset",
    id: "A2aToolset",
    doc: "A remote agent as a tool.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        URL,
        key("name", ValueType::Text, "Its name in the team."),
        HEADERS,
    ],
    rules: &[KeyRule::Required(&["url"])],
};

pub(super) static MCP: ObjectSchema = ObjectSchema {
    name: "an mcp toolset",
    id: "McpToolset",
    doc: "The tools of an MCP server.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("command", ValueType::Text, "The program to start."),
        key("args", ValueType::Texts, "Its arguments."),
        key("remote", ValueType::Object(&REMOTE), "A remote server."),
        key("ref", ValueType::Text, "docker:name for Docker's MCP gateway, or a name under `mcps`."),
        ENV,
        ENV_FILE,
        key("name", ValueType::Text, "Its name in the team, and the prefix of its tools."),
        key("working_dir", ValueType::Text, "The working directory."),
        ignored_key("config", ValueType::Any, "Settings for Docker's MCP gateway."),
        ignored_key("version", ValueType::Text, "The package that another runtime would install."),
    ],
    rules: &[KeyRule::OneOf(&["command", "remote", "ref"])],
};

static REMOTE: ObjectSchema = ObjectSchema {
    name: "remote",
    id: "Remote",
    doc: "A remote MCP server.",
    keys: &[
        URL,
        key(
            "transport_type",
            ValueType::Keyword(&["streamable", "streamable-http", "http", "sse"]),
            "The transport. Default: streamable.",
        ),
        HEADERS,
        ignored_key("oauth", ValueType::Any, "How to get a token; a server that needs one says so."),
    ],
    rules: &[KeyRule::Required(&["url"])],
};

static MODEL_PICKER: ObjectSchema = ObjectSchema {
    name: "a model_picker toolset",
    id: "ModelPickerToolset",
    doc: "Lets the agent change its model.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("models", ValueType::Names, "The models to choose from."),
    ],
    rules: &[KeyRule::Required(&["models"])],
};

static BACKGROUND_AGENTS: ObjectSchema = ObjectSchema {
    name: "this toolset",
    id: "BackgroundAgentsToolset",
    doc: "Sub-agents that work in the background.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("limits", ValueType::Object(&LIMITS), "Limits on the tasks that it launches."),
        key("budget", ValueType::Object(&BUDGET), "The budget of one of these tasks."),
    ],
    rules: &[],
};

static LSP: ObjectSchema = ObjectSchema {
    name: "an lsp toolset",
    id: "LspToolset",
    doc: "A language server. Accepted, but not run.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("command", ValueType::Text, "The program to start."),
        key("args", ValueType::Texts, "Its arguments."),
        ENV,
        key("file_types", ValueType::Names, "The file types."),
        key("version", ValueType::Text, "The package that another runtime would install."),
    ],
    rules: &[KeyRule::Required(&["command"])],
};

static RAG: ObjectSchema = ObjectSchema {
    name: "a rag toolset",
    id: "RagToolset",
    doc: "Retrieval. Accepted, but not run.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("ref", ValueType::Text, "A name under `rag`."),
        key("name", ValueType::Text, "Its name in the team."),
        key("rag_config", ValueType::Any, "The source."),
        key("docs", ValueType::Texts, "Its documents."),
        key("strategies", ValueType::Any, "How they are searched."),
        key("results", ValueType::Any, "How results are shown."),
        key("tool", ValueType::Any, "The name of the tool."),
        key("respect_vcs", ValueType::Bool, "Whether to skip files that git ignores."),
    ],
    rules: &[],
};
