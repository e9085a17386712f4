//! The keys of toolsets: some are on all, the others depend on the type.

use super::agent::{BUDGET, LIMITS};
use super::{Key, Object, Rule, Type, idle, key};

/// Every type of toolset.
pub(in crate::teamfile) static TOOLSETS: &[(&str, &Object)] = &[
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

const TYPE: Key = key("type", Type::Text, "Which toolset it is.");
const TOOLS: Key = key("tools", Type::Names, "Only these of its tools.");
const INSTRUCTION: Key = key(
    "instruction",
    Type::Text,
    "What the agent is told about it; {ORIGINAL_INSTRUCTIONS} stands for the built-in text.",
);
const TOON: Key = idle("toon", Type::Names, "Which results are written in a shorter form.");
const MODEL: Key = idle("model", Type::Text, "The model that reads its results.");
const DEFER: Key =
    idle("defer", Type::Either(&[Type::Bool, Type::Names]), "Whether its tools are loaded later.");
const ENV: Key = key("env", Type::Map(&Type::Variables), "Variables for its processes.");
const ENV_FILE: Key = idle("env_file", Type::Texts, "Files with variables, in old files.");
const HEADERS: Key = key("headers", Type::Map(&Type::Variables), "Headers of its requests.");
const URL: Key = key("url", Type::Variables, "Where it is.");

/// A toolset with nothing of its own.
static PLAIN: Object = Object {
    name: "this toolset",
    id: "PlainToolset",
    doc: "A toolset without keys of its own.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER],
    rules: &[],
};

static FILESYSTEM: Object = Object {
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
            Type::List(&Type::Object(&POST_EDIT)),
            "Commands that are run when files have been changed.",
        ),
        key("ignore_vcs", Type::Bool, "Whether files that git ignores are passed over. Default: true."),
        key("allow_paths", Type::Texts, "Other directories that may be used."),
    ],
    rules: &[],
};

static POST_EDIT: Object = Object {
    name: "post_edit",
    id: "PostEdit",
    doc: "A command that is run when a file has been changed.",
    keys: &[
        key("path", Type::Text, "For which files: a pattern such as *.rs."),
        key("cmd", Type::Text, "The command; ${path} is the file."),
    ],
    rules: &[Rule::Needs(&["path", "cmd"])],
};

const SANDBOX: Key = key(
    "sandbox",
    Type::Either(&[Type::Bool, Type::Word(&["on", "off"]), Type::Map(&Type::Any)]),
    "Whether commands may write only below the working directory.",
);
const NETWORK: Key = key("network", Type::Bool, "Whether sandboxed commands may use the network.");

const TIMEOUT: Key = key("timeout", Type::Time, "How long a command may take where the model does not say.");

static SHELL: Object = Object {
    name: "a shell toolset",
    id: "ShellToolset",
    doc: "Commands, also in the background.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, ENV, ENV_FILE, SANDBOX, NETWORK, TIMEOUT],
    rules: &[],
};

static SCRIPT: Object = Object {
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
        key("shell", Type::Map(&Type::Object(&SCRIPT_TOOL)), "The tools, by name."),
        ENV,
        ENV_FILE,
        SANDBOX,
        NETWORK,
        TIMEOUT,
    ],
    rules: &[Rule::Needs(&["shell"])],
};

static SCRIPT_TOOL: Object = Object {
    name: "a script tool",
    id: "ScriptTool",
    doc: "A command as a tool.",
    keys: &[
        key("cmd", Type::Text, "The command. Its arguments are variables in it."),
        key("description", Type::Text, "What it does."),
        key("args", Type::Map(&Type::Any), "Its arguments: their JSON schemas, by name."),
        key("required", Type::Names, "The arguments that must be there. Default: all."),
        key("env", Type::Map(&Type::Variables), "Variables for it."),
        key("working_dir", Type::Text, "Where it runs."),
    ],
    rules: &[Rule::Needs(&["cmd"])],
};

static TODO: Object = Object {
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
        key("shared", Type::Bool, "Whether all agents share one list."),
    ],
    rules: &[],
};

static TASKS: Object = Object {
    name: "a tasks toolset",
    id: "TasksToolset",
    doc: "Tasks with dependencies, kept in a file.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, key("path", Type::Text, "Where they are kept.")],
    rules: &[],
};

static MEMORY: Object = Object {
    name: "a memory toolset",
    id: "MemoryToolset",
    doc: "What is remembered between runs.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, key("path", Type::Text, "Where it is kept.")],
    rules: &[],
};

static FETCH: Object = Object {
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
        key("timeout", Type::Time, "How long a page may take."),
        key("allow_private", Type::Bool, "Whether addresses of this machine and its network may be asked."),
        key("max_bytes", Type::Whole(1), "How much of a page is read."),
    ],
    rules: &[],
};

static API: Object = Object {
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
        key("api_config", Type::Object(&API_CONFIG), "The call."),
    ],
    rules: &[Rule::Needs(&["api_config"])],
};

static API_CONFIG: Object = Object {
    name: "api_config",
    id: "ApiConfig",
    doc: "An HTTP call.",
    keys: &[
        key("name", Type::Text, "The name of the tool."),
        key("instruction", Type::Text, "What it does."),
        key("endpoint", Type::Variables, "Its URL; ${name} stands for an argument."),
        key(
            "method",
            Type::Word(&["GET", "POST", "PUT", "PATCH", "DELETE"]),
            "How it is called. Default: GET.",
        ),
        key("headers", Type::Map(&Type::Variables), "Its headers."),
        key("args", Type::Map(&Type::Any), "Its arguments: their JSON schemas, by name."),
        key("required", Type::Names, "The arguments that must be there."),
        idle("output_schema", Type::Any, "The JSON schema of what it answers."),
    ],
    rules: &[Rule::Needs(&["name", "endpoint"])],
};

static OPENAPI: Object = Object {
    name: "an openapi toolset",
    id: "OpenapiToolset",
    doc: "Every operation of an OpenAPI document as a tool.",
    keys: &[TYPE, TOOLS, INSTRUCTION, TOON, MODEL, DEFER, URL, HEADERS],
    rules: &[Rule::Needs(&["url"])],
};

static A2A: Object = Object {
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
        key("name", Type::Text, "What it is called here."),
        HEADERS,
    ],
    rules: &[Rule::Needs(&["url"])],
};

pub(super) static MCP: Object = Object {
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
        key("command", Type::Text, "The program that is the server."),
        key("args", Type::Texts, "Its arguments."),
        key("remote", Type::Object(&REMOTE), "A server elsewhere."),
        key("ref", Type::Text, "docker:name for Docker's MCP gateway, or a name under `mcps`."),
        ENV,
        ENV_FILE,
        key("name", Type::Text, "What it is called here: its tools begin with it."),
        key("working_dir", Type::Text, "Where it runs."),
        idle("config", Type::Any, "Settings for Docker's MCP gateway."),
        idle("version", Type::Text, "The package that another runtime would install."),
    ],
    rules: &[Rule::OneOf(&["command", "remote", "ref"])],
};

static REMOTE: Object = Object {
    name: "remote",
    id: "Remote",
    doc: "An MCP server elsewhere.",
    keys: &[
        URL,
        key(
            "transport_type",
            Type::Word(&["streamable", "streamable-http", "http", "sse"]),
            "How it is spoken to. Default: streamable.",
        ),
        HEADERS,
        idle("oauth", Type::Any, "How a token is got; servers that ask for one say so."),
    ],
    rules: &[Rule::Needs(&["url"])],
};

static MODEL_PICKER: Object = Object {
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
        key("models", Type::Names, "The models that it may take."),
    ],
    rules: &[Rule::Needs(&["models"])],
};

static BACKGROUND_AGENTS: Object = Object {
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
        key("limits", Type::Object(&LIMITS), "Bounds on the tasks that it launches."),
        key("budget", Type::Object(&BUDGET), "What one of these tasks may use."),
    ],
    rules: &[],
};

static LSP: Object = Object {
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
        key("command", Type::Text, "The program that is the server."),
        key("args", Type::Texts, "Its arguments."),
        ENV,
        key("file_types", Type::Names, "For which files."),
        key("version", Type::Text, "The package that another runtime would install."),
    ],
    rules: &[Rule::Needs(&["command"])],
};

static RAG: Object = Object {
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
        key("ref", Type::Text, "A name under `rag`."),
        key("name", Type::Text, "What it is called here."),
        key("rag_config", Type::Any, "The source."),
        key("docs", Type::Texts, "Its documents."),
        key("strategies", Type::Any, "How they are searched."),
        key("results", Type::Any, "What is shown of what is found."),
        key("tool", Type::Any, "What the tool is called."),
        key("respect_vcs", Type::Bool, "Whether files that git ignores are passed over."),
    ],
    rules: &[],
};
