//! The keys of an agent.

use super::team::PERMISSIONS;
use super::{KeyRule, KeySchema, KeyStatus, ObjectSchema, ValueType, ignored_key, key};

pub(super) static AGENT: ObjectSchema = ObjectSchema {
    name: "an agent",
    id: "Agent",
    doc: "An agent: its model, instruction, tools and sub-agents.",
    keys: &[
        key(
            "model",
            ValueType::Names,
            "A name under `models`, provider/model, or auto. Several take turns. Default: auto.",
        ),
        key("description", ValueType::Text, "What it is good for. Other agents read this."),
        key("instruction", ValueType::Text, "The system instruction."),
        key("instruction_file", ValueType::Texts, "Files with its instruction, beside the team file."),
        key("toolsets", ValueType::List(&ValueType::Toolset), "Its tools."),
        key("use_toolsets", ValueType::Names, "Names under `toolsets`."),
        key(
            "sub_agents",
            ValueType::Names,
            "The agents it may send tasks to: agents of this file, or name:reference for another team file.",
        ),
        key("handoffs", ValueType::Names, "The agents it may hand its conversation over to."),
        key("commands", ValueType::Commands, "Prompts by name."),
        key("use_commands", ValueType::Names, "Names under `commands`."),
        key("welcome_message", ValueType::Text, "The first message that a person sees."),
        key("add_date", ValueType::Bool, "Add today's date to the instruction."),
        key(
            "add_environment_info",
            ValueType::Bool,
            "Add the working directory and the operating system to the instruction.",
        ),
        key(
            "add_prompt_files",
            ValueType::Names,
            "Files of the working directory whose text is added to its instruction.",
        ),
        key("fallback", ValueType::Object(&FALLBACK), "Models to use when its own fails."),
        key("hooks", ValueType::Object(&HOOKS), "Commands to run on events."),
        key(
            "permissions",
            ValueType::Object(&PERMISSIONS),
            "Which tools are allowed, need approval or are denied. Each list is added to the file's `permissions`.",
        ),
        key(
            "skills",
            ValueType::AnyOf(&[ValueType::Bool, ValueType::Texts]),
            "Skills: true for the usual folders, or a list of folders.",
        ),
        key("use_skills", ValueType::Names, "Names under `skills`."),
        key("structured_output", ValueType::Object(&STRUCTURED), "The schema of its final answer."),
        key("max_iterations", ValueType::Integer(0), "The maximum number of replies; 0 means no limit."),
        key(
            "num_history_items",
            ValueType::Integer(0),
            "How many items of the conversation the model sees; 0 means all.",
        ),
        key(
            "max_consecutive_tool_calls",
            ValueType::Integer(0),
            "The task fails after this many identical calls in a row.",
        ),
        key(
            "max_tool_result_tokens",
            ValueType::Integer(0),
            "How many tokens of a tool result the model sees.",
        ),
        key(
            "max_old_tool_call_tokens",
            ValueType::Integer(-1),
            "How many tokens of old tool results are kept.",
        ),
        key("budget", ValueType::Object(&BUDGET), "The budget of one task of this agent."),
        key("budgets", ValueType::Names, "Names under `budgets`; the smallest limit of each kind applies."),
        key("limits", ValueType::Object(&LIMITS), "Limits on its tasks."),
        key("background", ValueType::Object(&BACKGROUND), "How it works with background tasks."),
        key(
            "isolation",
            ValueType::Keyword(&["none", "worktree"]),
            "Where its tasks work: worktree gives each its own git worktree.",
        ),
        key("readonly", ValueType::Bool, "Only tools that change nothing."),
        key("redact_secrets", ValueType::Bool, "Redact what looks like a secret in tool results."),
        key("add_description_parameter", ValueType::Bool, "Make the model give a reason with each call."),
        ignored_key("safety", ValueType::Any, "A safety setting of another runtime."),
        ignored_key("harness", ValueType::Any, "Another runtime for this agent."),
        ignored_key("code_mode_tools", ValueType::Bool, "Whether tools are called by code."),
        ignored_key("rag", ValueType::Names, "Sources for retrieval."),
        ignored_key("name", ValueType::Text, "Its name; the key above already gives it."),
        KeySchema {
            name: "think",
            kind: ValueType::Bool,
            doc: "An older spelling of the toolset think.",
            status: KeyStatus::AliasOfToolset,
        },
        KeySchema {
            name: "todo",
            kind: ValueType::AnyOf(&[ValueType::Bool, ValueType::Object(&TODO_FLAG)]),
            doc: "An older spelling of the toolset todo.",
            status: KeyStatus::AliasOfToolset,
        },
        KeySchema {
            name: "memory",
            kind: ValueType::AnyOf(&[ValueType::Bool, ValueType::Object(&MEMORY_FLAG)]),
            doc: "An older spelling of the toolset memory.",
            status: KeyStatus::AliasOfToolset,
        },
    ],
    rules: &[KeyRule::AtMostOne(&["instruction", "instruction_file"])],
};

static TODO_FLAG: ObjectSchema = ObjectSchema {
    name: "todo",
    id: "OldTodo",
    doc: "An older spelling of the toolset todo.",
    keys: &[key("shared", ValueType::Bool, "Whether all agents share one list.")],
    rules: &[],
};

static MEMORY_FLAG: ObjectSchema = ObjectSchema {
    name: "memory",
    id: "OldMemory",
    doc: "An older spelling of the toolset memory.",
    keys: &[key("path", ValueType::Text, "The file that holds it.")],
    rules: &[],
};

static FALLBACK: ObjectSchema = ObjectSchema {
    name: "fallback",
    id: "Fallback",
    doc: "Models to use when the agent's own fails.",
    keys: &[
        key("models", ValueType::Names, "The models, in the order in which they are tried."),
        key(
            "retries",
            ValueType::Integer(-1),
            "How often a model is retried before the next one; -1 means never. Default: 2.",
        ),
        key("cooldown", ValueType::Duration, "How long a model that failed is skipped. Default: 1m."),
    ],
    rules: &[KeyRule::Required(&["models"])],
};

static STRUCTURED: ObjectSchema = ObjectSchema {
    name: "structured_output",
    id: "StructuredOutput",
    doc: "The schema of a final answer.",
    keys: &[
        key("name", ValueType::Text, "A name for it."),
        key("description", ValueType::Text, "What it is."),
        key("schema", ValueType::Map(&ValueType::Any), "Its JSON schema."),
        key("strict", ValueType::Bool, "Whether the provider enforces the schema."),
    ],
    rules: &[KeyRule::Required(&["name", "schema"])],
};

pub(super) static BUDGET: ObjectSchema = ObjectSchema {
    name: "a budget",
    id: "Budget",
    doc: "A budget. A key that is left out means no limit.",
    keys: &[
        key("max_cost", ValueType::Number(0.0, f64::INFINITY), "The cost in dollars."),
        key("max_tokens", ValueType::Integer(0), "Input and output tokens."),
        key("max_time", ValueType::Duration, "Working time, counted like `limits.timeout`."),
    ],
    rules: &[],
};

pub(super) static LIMITS: ObjectSchema = ObjectSchema {
    name: "limits",
    id: "Limits",
    doc: "Limits on tasks. running, processes, depth and tree apply to the whole run; set them on the root agent.",
    keys: &[
        key("running", ValueType::Integer(1), "How many tasks run at once."),
        key(
            "processes",
            ValueType::Integer(1),
            "How many commands and hooks of all its tasks run at once; more wait.",
        ),
        key("depth", ValueType::Integer(0), "The maximum depth of a task below its root."),
        key("tree", ValueType::Integer(1), "The maximum number of tasks in a tree."),
        key("turns", ValueType::Integer(0), "The maximum number of replies; 0 means no limit."),
        key(
            "timeout",
            ValueType::Duration,
            "How long a task may be worked on. Time in which nobody runs it, the machine sleeps, or it waits for a person or in \
             the queue does not count.",
        ),
        key(
            "ask_timeout",
            ValueType::Duration,
            "How long a person has to answer an approval or a question; then the answer is no. Default: no limit.",
        ),
        key("inactivity", ValueType::Duration, "How long its model may send nothing."),
    ],
    rules: &[],
};

static BACKGROUND: ObjectSchema = ObjectSchema {
    name: "background",
    id: "Background",
    doc: "How an agent works with background tasks.",
    keys: &[
        key(
            "dialect",
            ValueType::Keyword(&["background_agents", "sub_agents", "agents", "transfer"]),
            "The tool names for working with sub-agents.",
        ),
        key(
            "on_finish",
            ValueType::Keyword(&["wait", "detach", "stop"]),
            "What happens to tasks that are still running when the agent finishes.",
        ),
        key("notices", ValueType::Keyword(&["wake", "quiet"]), "Whether the end of a task wakes it."),
        key("letters", ValueType::Keyword(&["asap", "when_idle"]), "When letters are delivered."),
    ],
    rules: &[],
};

static HOOKS: ObjectSchema = ObjectSchema {
    name: "hooks",
    id: "Hooks",
    doc: "Commands to run on events. They get JSON on stdin; exit code 2 blocks.",
    keys: &[
        key("pre_tool_use", ValueType::List(&ValueType::Object(&PRE_MATCHER)), "Before a tool runs."),
        key("post_tool_use", ValueType::List(&ValueType::Object(&MATCHER)), "After a tool has run."),
        key("session_start", ValueType::List(&ValueType::Object(&HOOK)), "When a session begins."),
        key("session_end", ValueType::List(&ValueType::Object(&HOOK)), "When a session ends."),
        key("on_user_input", ValueType::List(&ValueType::Object(&HOOK)), "When a person is asked something."),
        key("task_start", ValueType::List(&ValueType::Object(&HOOK)), "When a task begins."),
        key("task_end", ValueType::List(&ValueType::Object(&HOOK)), "When a task ends."),
        key(
            "env",
            ValueType::Map(&ValueType::TextWithVariables),
            "Variables for the commands. Nothing is inherited.",
        ),
    ],
    rules: &[],
};

static MATCHER: ObjectSchema = ObjectSchema {
    name: "a hook for tools",
    id: "Matcher",
    doc: "Hooks for some tools.",
    keys: &[
        key(
            "matcher",
            ValueType::Text,
            "A pattern of tool names, such as shell|edit_file; * is all. Default: all.",
        ),
        key("hooks", ValueType::List(&ValueType::Object(&HOOK)), "The commands to run."),
    ],
    rules: &[KeyRule::Required(&["hooks"])],
};

static PRE_MATCHER: ObjectSchema = ObjectSchema {
    name: "a hook before tools",
    id: "PreMatcher",
    doc: "Hooks before some tools.",
    keys: &[
        key(
            "matcher",
            ValueType::Text,
            "A pattern of tool names, such as shell|edit_file; * is all. Default: all.",
        ),
        key("hooks", ValueType::List(&ValueType::Object(&PRE_HOOK)), "The commands to run."),
    ],
    rules: &[KeyRule::Required(&["hooks"])],
};

static HOOK: ObjectSchema = ObjectSchema {
    name: "a hook",
    id: "Hook",
    doc: "A command to run.",
    keys: &[
        key("type", ValueType::Keyword(&["command"]), "What it is."),
        key("command", ValueType::Text, "The command."),
        key("timeout", ValueType::Duration, "How long it may take. Default: 60 seconds."),
    ],
    rules: &[KeyRule::Required(&["command"])],
};

static PRE_HOOK: ObjectSchema = ObjectSchema {
    name: "a hook that judges a call",
    id: "PreHook",
    doc: "A command that allows or denies a call before it is made.",
    keys: &[
        key("type", ValueType::Keyword(&["command"]), "What it is."),
        key("command", ValueType::Text, "The command."),
        key("timeout", ValueType::Duration, "How long it may take. Default: 60 seconds."),
        key(
            "on_error",
            ValueType::Keyword(&["deny", "allow"]),
            "What happens to the call if the hook fails. Default: deny.",
        ),
    ],
    rules: &[KeyRule::Required(&["command"])],
};
