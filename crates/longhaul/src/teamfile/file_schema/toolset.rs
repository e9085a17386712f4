//! The keys of toolsets: some are on all, the others depend on the type.

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

const TYPE: KeySchema = key("type", ValueType::Text, "Which toolset it is.");
const TOOLS: KeySchema = key("tools", ValueType::Names, "Only these of its tools.");
const INSTRUCTION: KeySchema = key(
    "instruction",
    ValueType::Text,
    "What the agent is told about it; {ORIGINAL_INSTRUCTIONS} stands for the built-in text.",
);
const TOON: KeySchema = ignored_key("toon", ValueType::Names, "Which results are written in a shorter form.");
const MODEL: KeySchema = ignored_key("model", ValueType::Text, "The model that reads its results.");
const DEFER: KeySchema = ignored_key(
    "defer",
    ValueType::AnyOf(&[ValueType::Bool, ValueType::Names]),
    "Whether its tools are loaded later.",
);
const ENV: KeySchema =
    key("env", ValueType::Map(&ValueType::TextWithVariables), "Variables for its processes.");
const ENV_FILE: KeySchema = ignored_key("env_file", ValueType::Texts, "Files with variables, in old files.");
const HEADERS: KeySchema =
    key("headers", ValueType::Map(&ValueType::TextWithVariables), "Headers of its requests.");
const URL: KeySchema = key("url", ValueType::TextWithVariables, "Where it is.");

/// A toolset with nothing of its own.
static PLAIN: ObjectSchema = ObjectSchema {
    name: "this toolset",
    id: "PlainToolset",
    doc: "A toolset without keys of its own.",
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
            "Commands that are run when files have been changed.",
        ),
        key("ignore_vcs", ValueType::Bool, "Whether files that git ignores are passed over. Default: true."),
        key("allow_paths", ValueType::Texts, "Other directories that may be used."),
    ],
    rules: &[],
};

static POST_EDIT: ObjectSchema = ObjectSchema {
    name: "post_edit",
    id: "PostEdit",
    doc: "A command that is run when a file has been changed.",
    keys: &[
        key("path", ValueType::Text, "For which files: a pattern such as *.rs."),
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
    key("timeout", ValueType::Duration, "How long a command may take where the model does not say.");

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
    doc: "Commands of your own as tools.",
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
        key("required", ValueType::Names, "The arguments that must be there. Default: all."),
        key("env", ValueType::Map(&ValueType::TextWithVariables), "Variables for it."),
        key("working_dir", ValueType::Text, "Where it runs."),
    ],
    rules: &[KeyRule::Required(&["cmd"])],
};

static TODO: ObjectSchema = ObjectSchema {
    name: "a todo toolset",
    id: "TodoToolset",
    doc: "A list of things to do.",
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
        key("path", ValueType::Text, "Where they are kept."),
    ],
    rules: &[],
};

static MEMORY: ObjectSchema = ObjectSchema {
    name: "a memory toolset",
    id: "MemoryToolset",
    doc: "What is remembered between runs.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, key("path", ValueType::Text, "Where it is kept.")],
    rules: &[],
};

static FETCH: ObjectSchema = ObjectSchema {
    name: "a fetch toolset",
    id: "FetchToolset",
    doc: "Pages of the web as text.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("timeout", ValueType::Duration, "How long a page may take."),
        key(
            "allow_private",
            ValueType::Bool,
            "Whether addresses of this machine and its network may be asked.",
        ),
        key("max_bytes", ValueType::Integer(1), "How much of a page is read."),
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
            "How it is called. Default: GET.",
        ),
        key("headers", ValueType::Map(&ValueType::TextWithVariables), "Its headers."),
        key("args", ValueType::Map(&ValueType::Any), "Its arguments: their JSON schemas, by name."),
        key("required", ValueType::Names, "The arguments that must be there."),
        ignored_key("output_schema", ValueType::Any, "The JSON schema of what it answers."),
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
        key("name", ValueType::Text, "What it is called here."),
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
        key("command", ValueType::Text, "The program that is the server."),
        key("args", ValueType::Texts, "Its arguments."),
        key("remote", ValueType::Object(&REMOTE), "A server elsewhere."),
        key("ref", ValueType::Text, "docker:name for Docker's MCP gateway, or a name under `mcps`."),
        ENV,
        ENV_FILE,
        key("name", ValueType::Text, "What it is called here: its tools begin with it."),
        key("working_dir", ValueType::Text, "Where it runs."),
        ignored_key("config", ValueType::Any, "Settings for Docker's MCP gateway."),
        ignored_key("version", ValueType::Text, "The package that another runtime would install."),
    ],
    rules: &[KeyRule::OneOf(&["command", "remote", "ref"])],
};

static REMOTE: ObjectSchema = ObjectSchema {
    name: "remote",
    id: "Remote",
    doc: "An MCP server elsewhere.",
    keys: &[
        URL,
        key(
            "transport_type",
            ValueType::Keyword(&["streamable", "streamable-http", "http", "sse"]),
            "How it is spoken to. Default: streamable.",
        ),
        HEADERS,
        ignored_key("oauth", ValueType::Any, "How a token is got; servers that ask for one say so."),
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
        key("models", ValueType::Names, "The models that it may take."),
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
        key("limits", ValueType::Object(&LIMITS), "Bounds on the tasks that it launches."),
        key("budget", ValueType::Object(&BUDGET), "What one of these tasks may use."),
    ],
    rules: &[],
};

static LSP: ObjectSchema = ObjectSchema {
    name: "an lsp toolset",
    id: "LspToolset",
    doc: "A language server. Read, but not run.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("command", ValueType::Text, "The program that is the server."),
        key("args", ValueType::Texts, "Its arguments."),
        ENV,
        key("file_types", ValueType::Names, "For which files."),
        key("version", ValueType::Text, "The package that another runtime would install."),
    ],
    rules: &[KeyRule::Required(&["command"])],
};

static RAG: ObjectSchema = ObjectSchema {
    name: "a rag toolset",
    id: "RagToolset",
    doc: "Retrieval. Read, but not run.",
    keys: &[
        TYPE,
        TOOLS,
        INSTRUCTION,
        TOON,
        MODEL,
        DEFER,
        key("ref", ValueType::Text, "A name under `rag`."),
        key("name", ValueType::Text, "What it is called here."),
        key("rag_config", ValueType::Any, "The source."),
        key("docs", ValueType::Texts, "Its documents."),
        key("strategies", ValueType::Any, "How they are searched."),
        key("results", ValueType::Any, "What is shown of what is found."),
        key("tool", ValueType::Any, "What the tool is called."),
        key("respect_vcs", ValueType::Bool, "Whether files that git ignores are passed over."),
    ],
    rules: &[],
};
