//! The keys of an agent.

use super::team::PERMISSIONS;
use super::{Key, Object, Rule, Standing, Type, idle, key};

pub(super) static AGENT: Object = Object {
    name: "an agent",
    id: "Agent",
    doc: "An agent: a model, what it is told, what it can do and whom it can ask.",
    keys: &[
        key(
            "model",
            Type::Names,
            "A name under `models`, provider/model, or auto. Of several, one is picked each turn. Default: auto.",
        ),
        key("description", Type::Text, "What it is good for, for those who may ask it."),
        key("instruction", Type::Text, "What it is told before everything else."),
        key("instruction_file", Type::Texts, "Files with its instruction, beside the team file."),
        key("toolsets", Type::List(&Type::Toolset), "Its tools."),
        key("use_toolsets", Type::Names, "Names under `toolsets`."),
        key(
            "sub_agents",
            Type::Names,
            "Whom it may send tasks to: agents of this file, or name:reference for another team file.",
        ),
        key("handoffs", Type::Names, "To whom it may hand its conversation over."),
        key("commands", Type::Commands, "Prompts by name."),
        key("use_commands", Type::Names, "Names under `commands`."),
        key("welcome_message", Type::Text, "What a person is shown first."),
        key("add_date", Type::Bool, "Tell it today's date."),
        key("add_environment_info", Type::Bool, "Tell it the working directory and the operating system."),
        key(
            "add_prompt_files",
            Type::Names,
            "Files of the working directory whose text is added to its instruction.",
        ),
        key("fallback", Type::Object(&FALLBACK), "Models that stand in when its own fails."),
        key("hooks", Type::Object(&HOOKS), "Commands that are run when things happen."),
        key(
            "permissions",
            Type::Object(&PERMISSIONS),
            "Which tools it runs, asks about and never runs: added to the `permissions` of the file, list by list.",
        ),
        key(
            "skills",
            Type::Either(&[Type::Bool, Type::Texts]),
            "Skills: true for the usual folders, or a list of folders.",
        ),
        key("use_skills", Type::Names, "Names under `skills`."),
        key("structured_output", Type::Object(&STRUCTURED), "The shape of its final answer."),
        key("max_iterations", Type::Whole(0), "At most this many replies; 0 is no bound."),
        key("num_history_items", Type::Whole(0), "How much of the conversation the model sees; 0 is all."),
        key(
            "max_consecutive_tool_calls",
            Type::Whole(0),
            "After so many identical calls in a row the task fails.",
        ),
        key("max_tool_result_tokens", Type::Whole(0), "How much of a tool's result the model sees."),
        key("max_old_tool_call_tokens", Type::Whole(-1), "How much of old tool results is kept."),
        key("budget", Type::Object(&BUDGET), "What one task of this agent may use."),
        key("budgets", Type::Names, "Names under `budgets`; the smallest of each bound counts."),
        key("limits", Type::Object(&LIMITS), "Bounds on its tasks."),
        key("background", Type::Object(&BACKGROUND), "How it works with background tasks."),
        key(
            "isolation",
            Type::Word(&["none", "worktree"]),
            "Where its tasks work: worktree gives each its own git worktree.",
        ),
        key("readonly", Type::Bool, "Only tools that change nothing."),
        key("redact_secrets", Type::Bool, "Blots out what looks like a secret in what its tools return."),
        key("add_description_parameter", Type::Bool, "Has the model say with each call what it is for."),
        idle("safety", Type::Any, "How careful another runtime is."),
        idle("harness", Type::Any, "Another runtime for this agent."),
        idle("code_mode_tools", Type::Bool, "Whether tools are called by code."),
        idle("rag", Type::Names, "Sources for retrieval."),
        idle("name", Type::Text, "Its name, which the key above already says."),
        Key {
            name: "think",
            kind: Type::Bool,
            doc: "An older spelling of the toolset think.",
            standing: Standing::WasToolset,
        },
        Key {
            name: "todo",
            kind: Type::Either(&[Type::Bool, Type::Object(&TODO_FLAG)]),
            doc: "An older spelling of the toolset todo.",
            standing: Standing::WasToolset,
        },
        Key {
            name: "memory",
            kind: Type::Either(&[Type::Bool, Type::Object(&MEMORY_FLAG)]),
            doc: "An older spelling of the toolset memory.",
            standing: Standing::WasToolset,
        },
    ],
    rules: &[Rule::AtMostOne(&["instruction", "instruction_file"])],
};

static TODO_FLAG: Object = Object {
    name: "todo",
    id: "OldTodo",
    doc: "An older spelling of the toolset todo.",
    keys: &[key("shared", Type::Bool, "Whether all agents share one list.")],
    rules: &[],
};

static MEMORY_FLAG: Object = Object {
    name: "memory",
    id: "OldMemory",
    doc: "An older spelling of the toolset memory.",
    keys: &[key("path", Type::Text, "Where it is kept.")],
    rules: &[],
};

static FALLBACK: Object = Object {
    name: "fallback",
    id: "Fallback",
    doc: "Models that stand in when the agent's own fails.",
    keys: &[
        key("models", Type::Names, "They are asked in this order."),
        key("retries", Type::Whole(-1), "How often one is asked again first; -1 is never. Default: 2."),
        key("cooldown", Type::Time, "How long a model that failed is left alone. Default: 1m."),
    ],
    rules: &[Rule::Needs(&["models"])],
};

static STRUCTURED: Object = Object {
    name: "structured_output",
    id: "StructuredOutput",
    doc: "The shape of a final answer.",
    keys: &[
        key("name", Type::Text, "A name for it."),
        key("description", Type::Text, "What it is."),
        key("schema", Type::Map(&Type::Any), "Its JSON schema."),
        key("strict", Type::Bool, "Whether the provider is to hold the model to it."),
    ],
    rules: &[Rule::Needs(&["name", "schema"])],
};

pub(super) static BUDGET: Object = Object {
    name: "a budget",
    id: "Budget",
    doc: "What may be used. What is left out has no bound.",
    keys: &[
        key("max_cost", Type::Number(0.0, f64::INFINITY), "Money, in dollars."),
        key("max_tokens", Type::Whole(0), "Tokens, read and written."),
        key("max_time", Type::Time, "Time at work, counted as `limits.timeout` is."),
    ],
    rules: &[],
};

pub(super) static LIMITS: Object = Object {
    name: "limits",
    id: "Limits",
    doc: "Bounds on tasks. running, processes, depth and tree count for the whole run, and are read on the root.",
    keys: &[
        key("running", Type::Whole(1), "How many tasks run at once."),
        key(
            "processes",
            Type::Whole(1),
            "How many commands and hooks of all its tasks run at once; more wait.",
        ),
        key("depth", Type::Whole(0), "How far a task may be from its root."),
        key("tree", Type::Whole(1), "How many tasks a tree may have."),
        key("turns", Type::Whole(0), "At most this many replies; 0 is no bound."),
        key(
            "timeout",
            Type::Time,
            "How long a task may be worked on. Time in which nobody runs it, the machine sleeps, or it waits for a person or in \
             the queue does not count.",
        ),
        key(
            "ask_timeout",
            Type::Time,
            "How long a person has to answer an approval or a question; then the answer is no. Default: no end.",
        ),
        key("inactivity", Type::Time, "How long its model may send nothing."),
    ],
    rules: &[],
};

static BACKGROUND: Object = Object {
    name: "background",
    id: "Background",
    doc: "How an agent works with background tasks.",
    keys: &[
        key(
            "dialect",
            Type::Word(&["background_agents", "sub_agents", "agents", "transfer"]),
            "In which words it speaks of its sub-agents.",
        ),
        key(
            "on_finish",
            Type::Word(&["wait", "detach", "stop"]),
            "What becomes of tasks that still run when it would end.",
        ),
        key("notices", Type::Word(&["wake", "quiet"]), "Whether the end of a task wakes it."),
        key("letters", Type::Word(&["asap", "when_idle"]), "When letters are read."),
    ],
    rules: &[],
};

static HOOKS: Object = Object {
    name: "hooks",
    id: "Hooks",
    doc: "Commands that are run when things happen. They get JSON on standard input; exit code 2 blocks.",
    keys: &[
        key("pre_tool_use", Type::List(&Type::Object(&JUDGES)), "Before a tool runs."),
        key("post_tool_use", Type::List(&Type::Object(&MATCHER)), "After a tool has run."),
        key("session_start", Type::List(&Type::Object(&HOOK)), "When a session begins."),
        key("session_end", Type::List(&Type::Object(&HOOK)), "When a session ends."),
        key("on_user_input", Type::List(&Type::Object(&HOOK)), "When a person is asked."),
        key("task_start", Type::List(&Type::Object(&HOOK)), "When a task begins."),
        key("task_end", Type::List(&Type::Object(&HOOK)), "When a task ends."),
        key("env", Type::Map(&Type::Variables), "Variables for the commands. Nothing is inherited."),
    ],
    rules: &[],
};

static MATCHER: Object = Object {
    name: "a hook for tools",
    id: "Matcher",
    doc: "Hooks for some tools.",
    keys: &[
        key(
            "matcher",
            Type::Text,
            "A pattern of tool names, such as shell|edit_file; * is all. Default: all.",
        ),
        key("hooks", Type::List(&Type::Object(&HOOK)), "What is run."),
    ],
    rules: &[Rule::Needs(&["hooks"])],
};

static JUDGES: Object = Object {
    name: "a hook before tools",
    id: "PreMatcher",
    doc: "Hooks before some tools.",
    keys: &[
        key(
            "matcher",
            Type::Text,
            "A pattern of tool names, such as shell|edit_file; * is all. Default: all.",
        ),
        key("hooks", Type::List(&Type::Object(&JUDGE)), "What is run."),
    ],
    rules: &[Rule::Needs(&["hooks"])],
};

static HOOK: Object = Object {
    name: "a hook",
    id: "Hook",
    doc: "A command that is run.",
    keys: &[
        key("type", Type::Word(&["command"]), "What it is."),
        key("command", Type::Text, "The command."),
        key("timeout", Type::Time, "How long it may take. Default: 60 seconds."),
    ],
    rules: &[Rule::Needs(&["command"])],
};

static JUDGE: Object = Object {
    name: "a hook that judges a call",
    id: "PreHook",
    doc: "A command that judges a call before it is made.",
    keys: &[
        key("type", Type::Word(&["command"]), "What it is."),
        key("command", Type::Text, "The command."),
        key("timeout", Type::Time, "How long it may take. Default: 60 seconds."),
        key(
            "on_error",
            Type::Word(&["deny", "allow"]),
            "What becomes of the call if the hook fails. Default: deny.",
        ),
    ],
    rules: &[Rule::Needs(&["command"])],
};
