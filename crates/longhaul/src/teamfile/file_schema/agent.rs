//! The keys of an agent.

use super::team::PERMISSIONS;
use super::{KeyRule, KeySchema, KeyStatus, ObjectSchema, ValueType, ignored_key, key};

pub(super) static AGENT: ObjectSchema = ObjectSchema {
    name: "an agent",
    id: "Agent",
    doc: "An agent: a model, what it is told, what it can do and whom it can ask.",
    keys: &[
        key(
            "model",
            ValueType::Names,
            "A name under `models`, provider/model, or auto. Of several, one is picked each turn. Default: auto.",
        ),
        key("description", ValueType::Text, "What it is good for, for those who may ask it."),
        key("instruction", ValueType::Text, "What it is told before everything else."),
        key("instruction_file", ValueType::Texts, "Files with its instruction, beside the team file."),
        key("toolsets", ValueType::List(&ValueType::Toolset), "Its tools."),
        key("use_toolsets", ValueType::Names, "Names under `toolsets`."),
        key(
            "sub_agents",
            ValueType::Names,
            "Whom it may send tasks to: agents of this file, or name:reference for another team file.",
        ),
        key("handoffs", ValueType::Names, "To whom it may hand its conversation over."),
        key("commands", ValueType::Commands, "Prompts by name."),
        key("use_commands", ValueType::Names, "Names under `commands`."),
        key("welcome_message", ValueType::Text, "What a person is shown first."),
        key("add_date", ValueType::Bool, "Tell it today's date."),
        key(
            "add_environment_info",
            ValueType::Bool,
            "Tell it the working directory and the operating system.",
        ),
        key(
            "add_prompt_files",
            ValueType::Names,
            "Files of the working directory whose text is added to its instruction.",
        ),
        key("fallback", ValueType::Object(&FALLBACK), "Models that stand in when its own fails."),
        key("hooks", ValueType::Object(&HOOKS), "Commands that are run when things happen."),
        key(
            "permissions",
            ValueType::Object(&PERMISSIONS),
            "Which tools it runs, asks about and never runs: added to the `permissions` of the file, list by list.",
        ),
        key(
            "skills",
            ValueType::AnyOf(&[ValueType::Bool, ValueType::Texts]),
            "Skills: true for the usual folders, or a list of folders.",
        ),
        key("use_skills", ValueType::Names, "Names under `skills`."),
        key("structured_output", ValueType::Object(&STRUCTURED), "The shape of its final answer."),
        key("max_iterations", ValueType::Integer(0), "At most this many replies; 0 is no bound."),
        key(
            "num_history_items",
            ValueType::Integer(0),
            "How much of the conversation the model sees; 0 is all.",
        ),
        key(
            "max_consecutive_tool_calls",
            ValueType::Integer(0),
            "After so many identical calls in a row the task fails.",
        ),
        key("max_tool_result_tokens", ValueType::Integer(0), "How much of a tool's result the model sees."),
        key("max_old_tool_call_tokens", ValueType::Integer(-1), "How much of old tool results is kept."),
        key("budget", ValueType::Object(&BUDGET), "What one task of this agent may use."),
        key("budgets", ValueType::Names, "Names under `budgets`; the smallest of each bound counts."),
        key("limits", ValueType::Object(&LIMITS), "Bounds on its tasks."),
        key("background", ValueType::Object(&BACKGROUND), "How it works with background tasks."),
        key(
            "isolation",
            ValueType::Keyword(&["none", "worktree"]),
            "Where its tasks work: worktree gives each its own git worktree.",
        ),
        key("readonly", ValueType::Bool, "Only tools that change nothing."),
        key(
            "redact_secrets",
            ValueType::Bool,
            "Blots out what looks like a secret in what its tools return.",
        ),
        key("add_description_parameter", ValueType::Bool, "Has the model say with each call what it is for."),
        ignored_key("safety", ValueType::Any, "How careful another runtime is."),
        ignored_key("harness", ValueType::Any, "Another runtime for this agent."),
        ignored_key("code_mode_tools", ValueType::Bool, "Whether tools are called by code."),
        ignored_key("rag", ValueType::Names, "Sources for retrieval."),
        ignored_key("name", ValueType::Text, "Its name, which the key above already says."),
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
    keys: &[key("path", ValueType::Text, "Where it is kept.")],
    rules: &[],
};

static FALLBACK: ObjectSchema = ObjectSchema {
    name: "fallback",
    id: "Fallback",
    doc: "Models that stand in when the agent's own fails.",
    keys: &[
        key("models", ValueType::Names, "They are asked in this order."),
        key(
            "retries",
            ValueType::Integer(-1),
            "How often one is asked again first; -1 is never. Default: 2.",
        ),
        key("cooldown", ValueType::Duration, "How long a model that failed is left alone. Default: 1m."),
    ],
    rules: &[KeyRule::Required(&["models"])],
};

static STRUCTURED: ObjectSchema = ObjectSchema {
    name: "structured_output",
    id: "StructuredOutput",
    doc: "The shape of a final answer.",
    keys: &[
        key("name", ValueType::Text, "A name for it."),
        key("description", ValueType::Text, "What it is."),
        key("schema", ValueType::Map(&ValueType::Any), "Its JSON schema."),
        key("strict", ValueType::Bool, "Whether the provider is to hold the model to it."),
    ],
    rules: &[KeyRule::Required(&["name", "schema"])],
};

pub(super) static BUDGET: ObjectSchema = ObjectSchema {
    name: "a budget",
    id: "Budget",
    doc: "What may be used. What is left out has no bound.",
    keys: &[
        key("max_cost", ValueType::Number(0.0, f64::INFINITY), "Money, in dollars."),
        key("max_tokens", ValueType::Integer(0), "Tokens, read and written."),
        key("max_time", ValueType::Duration, "Time at work, counted as `limits.timeout` is."),
    ],
    rules: &[],
};

pub(super) static LIMITS: ObjectSchema = ObjectSchema {
    name: "limits",
    id: "Limits",
    doc: "Bounds on tasks. running, processes, depth and tree count for the whole run, and are read on the root.",
    keys: &[
        key("running", ValueType::Integer(1), "How many tasks run at once."),
        key(
            "processes",
            ValueType::Integer(1),
            "How many commands and hooks of all its tasks run at once; more wait.",
        ),
        key("depth", ValueType::Integer(0), "How far a task may be from its root."),
        key("tree", ValueType::Integer(1), "How many tasks a tree may have."),
        key("turns", ValueType::Integer(0), "At most this many replies; 0 is no bound."),
        key(
            "timeout",
            ValueType::Duration,
            "How long a task may be worked on. Time in which nobody runs it, the machine sleeps, or it waits for a person or in \
             the queue does not count.",
        ),
        key(
            "ask_timeout",
            ValueType::Duration,
            "How long a person has to answer an approval or a question; then the answer is no. Default: no end.",
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
            "In which words it speaks of its sub-agents.",
        ),
        key(
            "on_finish",
            ValueType::Keyword(&["wait", "detach", "stop"]),
            "What becomes of tasks that still run when it would end.",
        ),
        key("notices", ValueType::Keyword(&["wake", "quiet"]), "Whether the end of a task wakes it."),
        key("letters", ValueType::Keyword(&["asap", "when_idle"]), "When letters are read."),
    ],
    rules: &[],
};

static HOOKS: ObjectSchema = ObjectSchema {
    name: "hooks",
    id: "Hooks",
    doc: "Commands that are run when things happen. They get JSON on standard input; exit code 2 blocks.",
    keys: &[
        key("pre_tool_use", ValueType::List(&ValueType::Object(&PRE_MATCHER)), "Before a tool runs."),
        key("post_tool_use", ValueType::List(&ValueType::Object(&MATCHER)), "After a tool has run."),
        key("session_start", ValueType::List(&ValueType::Object(&HOOK)), "When a session begins."),
        key("session_end", ValueType::List(&ValueType::Object(&HOOK)), "When a session ends."),
        key("on_user_input", ValueType::List(&ValueType::Object(&HOOK)), "When a person is asked."),
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
        key("hooks", ValueType::List(&ValueType::Object(&HOOK)), "What is run."),
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
        key("hooks", ValueType::List(&ValueType::Object(&PRE_HOOK)), "What is run."),
    ],
    rules: &[KeyRule::Required(&["hooks"])],
};

static HOOK: ObjectSchema = ObjectSchema {
    name: "a hook",
    id: "Hook",
    doc: "A command that is run.",
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
    doc: "A command that judges a call before it is made.",
    keys: &[
        key("type", ValueType::Keyword(&["command"]), "What it is."),
        key("command", ValueType::Text, "The command."),
        key("timeout", ValueType::Duration, "How long it may take. Default: 60 seconds."),
        key(
            "on_error",
            ValueType::Keyword(&["deny", "allow"]),
            "What becomes of the call if the hook fails. Default: deny.",
        ),
    ],
    rules: &[KeyRule::Required(&["command"])],
};
