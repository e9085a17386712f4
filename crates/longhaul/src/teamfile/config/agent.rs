//! The configuration of an agent.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;

use super::toolset::SANDBOX;
use super::{SandboxConfig, ToolsetConfig, doc_text, time};
use crate::agent::CompletionNotice;
use crate::entry::{Delivery, OnFinish};
use crate::teamfile::file_schema::{
    KeyRule, KeySchema, KeyStatus, ObjectSchema, ValueType, alias_key, ignored_key, key,
};

team_config! {
    /// An agent: its model, instruction, tools and sub-agents.
    AgentConfig [] = AGENT("an agent", "Agent") {
        /// A name under `models`, provider/model, or auto. Several take turns. Default: auto.
        model: Vec<String> = Names,
        /// What it is good for. Other agents read this.
        description: String = Text,
        /// The system instruction.
        instruction: String = Text,
        /// Files with its instruction, beside the team file.
        instruction_file: Vec<String> = Texts,
        /// The program that runs it instead of a model, such as claude-code, codex or gemini, over the Agent Client Protocol.
        acp: Option<AcpConfig> = AnyOf(&[Object(&ACP), Text]),
        /// Its tools.
        toolsets: Vec<ToolsetConfig> = List(&Toolset),
        /// Names under `toolsets`.
        use_toolsets: Vec<String> = Names,
        /// The agents it may send tasks to: agents of this file, or name:reference for another team file.
        sub_agents: Vec<String> = Names,
        /// The agents it may hand its conversation over to.
        handoffs: Vec<String> = Names,
        /// Prompts by name.
        commands: IndexMap<String, CommandConfig> = Commands,
        /// Names under `commands`.
        use_commands: Vec<String> = Names,
        /// The first message that a person sees.
        welcome_message: Option<String> = Text,
        /// Add today's date to the instruction.
        add_date: bool = Bool,
        /// Add the working directory and the operating system to the instruction.
        add_environment_info: bool = Bool,
        /// Files of the working directory whose text is added to its instruction.
        add_prompt_files: Vec<String> = Names,
        /// Models to use when its own fails.
        fallback: Option<FallbackConfig> = Object(&FALLBACK),
        /// Commands to run on events.
        hooks: HooksConfig = Object(&HOOKS),
        /// Which tools are allowed, need approval or are denied. Each list is added to the file's `permissions`.
        permissions: PermissionsConfig = Object(&PERMISSIONS),
        /// Skills: true for the usual folders, or a list of folders.
        skills: Option<SkillsConfig> = AnyOf(&[Bool, Texts]),
        /// Names under `skills`.
        use_skills: Vec<String> = Names,
        /// The schema of its final answer.
        structured_output: Option<StructuredOutputConfig> = Object(&STRUCTURED),
        /// The maximum number of replies; 0 means no limit.
        max_iterations: Option<u32> = Integer(0),
        /// How many items of the conversation the model sees; 0 means all.
        num_history_items: Option<u32> = Integer(0),
        /// The task fails after this many identical calls in a row.
        max_consecutive_tool_calls: Option<u32> = Integer(0),
        /// How many tokens of a tool result the model sees.
        max_tool_result_tokens: Option<u64> = Integer(0),
        /// How many tokens of old tool results are kept.
        max_old_tool_call_tokens: Option<i64> = Integer(-1),
        /// The budget of one task of this agent.
        budget: BudgetConfig = Object(&BUDGET),
        /// Names under `budgets`; the smallest limit of each kind applies.
        budgets: Vec<String> = Names,
        /// Limits on its tasks.
        limits: LimitsConfig = Object(&LIMITS),
        /// How it works with background tasks.
        background: BackgroundConfig = Object(&BACKGROUND),
        /// Where its tasks work: worktree gives each its own git worktree.
        isolation: Option<String> = Keyword(&["none", "worktree"]),
        /// Only tools that change nothing.
        readonly: bool = Bool,
        /// Redact what looks like a secret in tool results.
        redact_secrets: bool = Bool,
        /// Make the model give a reason with each call.
        add_description_parameter: bool = Bool,
    }
    also [
        ignored_key("safety", Any, "A safety setting of another runtime."),
        alias_key("harness", AnyOf(&[Object(&ACP), Text]), "acp"),
        ignored_key("code_mode_tools", Bool, "Whether tools are called by code."),
        ignored_key("rag", Names, "Sources for retrieval."),
        ignored_key("name", Text, "Its name; the key above already gives it."),
        toolset_flag("think", Bool, "An older spelling of the toolset think."),
        toolset_flag("todo", AnyOf(&[Bool, Object(&TODO_FLAG)]), "An older spelling of the toolset todo."),
        toolset_flag("memory", AnyOf(&[Bool, Object(&MEMORY_FLAG)]), "An older spelling of the toolset memory."),
    ]
    rules [KeyRule::AtMostOne(&["instruction", "instruction_file"])]
}

team_config! {
    /// A program that runs an agent, over the Agent Client Protocol.
    AcpConfig [] = ACP("acp", "Acp") {
        /// The name of a known program: claude-code, codex, gemini, opencode, goose and others.
        program ("type"): Option<String> = Text,
        /// The program and its arguments, if it is another one or in another place.
        command: Vec<String> = Texts,
        /// The mode of its sessions, as the program names it.
        mode: Option<String> = Text,
        /// Variables for the program. Besides these it gets PATH and a few others that hold no secrets.
        env: IndexMap<String, String> = Map(&TextWithVariables),
        /// Files and directories of your home directory that it shares, such as .codex/auth.json. Otherwise it has its own home.
        logins: Vec<String> = Texts,
        /// Whether it may write only below the working directory and its own home.
        sandbox: Option<SandboxConfig> = SANDBOX,
        /// Whether it may use the network in the sandbox. Default: true, because it calls its models itself.
        network: Option<bool> = Bool,
    }
}

const fn toolset_flag(name: &'static str, kind: ValueType, doc: &'static str) -> KeySchema {
    KeySchema { name, kind, doc, status: KeyStatus::AliasOfToolset }
}

static TODO_FLAG: ObjectSchema = ObjectSchema::new(
    ("todo", "OldTodo", "An older spelling of the toolset todo."),
    &[key("shared", ValueType::Bool, "Whether all agents share one list.")],
    &[],
);

static MEMORY_FLAG: ObjectSchema = ObjectSchema::new(
    ("memory", "OldMemory", "An older spelling of the toolset memory."),
    &[key("path", ValueType::Text, "The file that holds it.")],
    &[],
);

team_config! {
    /// A prompt with a name.
    CommandConfig [Eq] = COMMAND("a command", "Command") {
        /// What it does.
        description: Option<String> = Text,
        /// The prompt.
        instruction: String = Text,
    }
}

team_config! {
    /// Models to use when the agent's own fails.
    FallbackConfig [Eq] = FALLBACK("fallback", "Fallback") {
        /// The models, in the order in which they are tried.
        models: Vec<String> = Names,
        /// How often a model is retried before the next one; -1 means never. Default: 2.
        retries: Option<i64> = Integer(-1),
        /// How long a model that failed is skipped. Default: 1m.
        #[serde(deserialize_with = "time")]
        cooldown: Option<Duration> = Duration,
    }
    rules [KeyRule::Required(&["models"])]
}

/// Where skills come from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SkillsConfig {
    /// The default folders, or none.
    Switch(bool),
    /// These folders.
    Sources(Vec<String>),
}

team_config! {
    /// The schema of a final answer.
    StructuredOutputConfig [] = STRUCTURED("structured_output", "StructuredOutput") {
        /// A name for it.
        name: String = Text,
        /// What it is.
        description: Option<String> = Text,
        /// Its JSON schema.
        schema: serde_json::Value = Map(&Any),
        /// Whether the provider enforces the schema.
        strict: bool = Bool,
    }
    rules [KeyRule::Required(&["name", "schema"])]
}

team_config! {
    /// Patterns such as `shell`, `read_*` or `shell:cmd=git*`. Deny beats everything.
    PermissionsConfig [Eq] = PERMISSIONS("permissions", "Permissions") {
        /// These run without approval.
        allow: Vec<String> = Texts,
        /// These need approval, even if they only read.
        ask: Vec<String> = Texts,
        /// These never run, whatever else is set.
        deny: Vec<String> = Texts,
    }
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

team_config! {
    /// A budget. A key that is left out means no limit.
    BudgetConfig [Copy] = BUDGET("a budget", "Budget") {
        /// The cost in dollars.
        max_cost: Option<f64> = Number(0.0, f64::INFINITY),
        /// Input and output tokens.
        max_tokens: Option<u64> = Integer(0),
        /// Working time, counted like `limits.timeout`.
        #[serde(deserialize_with = "time")]
        max_time: Option<Duration> = Duration,
    }
}

team_config! {
    /// Limits on tasks. running, processes, depth and tree apply to the whole run; set them on the root agent.
    LimitsConfig [Copy, Eq] = LIMITS("limits", "Limits") {
        /// How many tasks run at once.
        running: Option<u32> = Integer(1),
        /// How many commands and hooks of all its tasks run at once; more wait.
        processes: Option<u32> = Integer(1),
        /// The maximum depth of a task below its root.
        depth: Option<u32> = Integer(0),
        /// The maximum number of tasks in a tree.
        tree: Option<u32> = Integer(1),
        /// The maximum number of replies; 0 means no limit.
        turns: Option<u32> = Integer(0),
        /// How long a task may be worked on. Time in which nobody runs it, the machine sleeps, or it waits for a person
        /// or in the queue does not count.
        #[serde(deserialize_with = "time")]
        timeout: Option<Duration> = Duration,
        /// How long a person has to answer an approval or a question; then the answer is no. Default: no limit.
        #[serde(deserialize_with = "time")]
        ask_timeout: Option<Duration> = Duration,
        /// How long its model may send nothing.
        #[serde(deserialize_with = "time")]
        inactivity: Option<Duration> = Duration,
    }
}

team_config! {
    /// How an agent works with background tasks.
    BackgroundConfig [Eq] = BACKGROUND("background", "Background") {
        /// The tool names for working with sub-agents.
        dialect: Option<String> = Keyword(&["background_agents", "sub_agents", "agents", "transfer"]),
        /// What happens to tasks that are still running when the agent finishes.
        on_finish: Option<OnFinish> = Keyword(&["wait", "detach", "stop"]),
        /// Whether the end of a task wakes it.
        #[serde(deserialize_with = "notices")]
        notices: Option<CompletionNotice> = Keyword(&["wake", "quiet"]),
        /// When letters are delivered.
        letters: Option<Delivery> = Keyword(&["asap", "when_idle"]),
    }
}

fn notices<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<CompletionNotice>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.map(|word| if word == "quiet" { CompletionNotice::Quiet } else { CompletionNotice::Wake }))
}

team_config! {
    /// Commands to run on events. They get JSON on stdin; exit code 2 blocks.
    HooksConfig [Eq] = HOOKS("hooks", "Hooks") {
        /// Before a tool runs.
        pre_tool_use: Vec<HookMatcherConfig> = List(&Object(&PRE_MATCHER)),
        /// After a tool has run.
        post_tool_use: Vec<HookMatcherConfig> = List(&Object(&MATCHER)),
        /// When a session begins.
        session_start: Vec<HookConfig> = List(&Object(&HOOK)),
        /// When a session ends.
        session_end: Vec<HookConfig> = List(&Object(&HOOK)),
        /// When a person is asked something.
        on_user_input: Vec<HookConfig> = List(&Object(&HOOK)),
        /// When a task begins.
        task_start: Vec<HookConfig> = List(&Object(&HOOK)),
        /// When a task ends.
        task_end: Vec<HookConfig> = List(&Object(&HOOK)),
        /// Variables for the commands. Nothing is inherited.
        env: IndexMap<String, String> = Map(&TextWithVariables),
    }
}

team_config! {
    /// Hooks before some tools.
    HookMatcherConfig [Eq] = PRE_MATCHER("a hook before tools", "PreMatcher") {
        /// A pattern of tool names, such as shell|edit_file; * is all. Default: all.
        matcher: Option<String> = Text,
        /// The commands to run.
        hooks: Vec<HookConfig> = List(&Object(&PRE_HOOK)),
    }
    rules [KeyRule::Required(&["hooks"])]
}

static MATCHER: ObjectSchema = ObjectSchema::new(
    ("a hook for tools", "Matcher", "Hooks for some tools."),
    &[
        key(
            "matcher",
            ValueType::Text,
            "A pattern of tool names, such as shell|edit_file; * is all. Default: all.",
        ),
        key("hooks", ValueType::List(&ValueType::Object(&HOOK)), "The commands to run."),
    ],
    &[KeyRule::Required(&["hooks"])],
);

team_config! {
    /// A command that allows or denies a call before it is made.
    HookConfig [Eq] = PRE_HOOK("a hook that judges a call", "PreHook") {
        /// The command.
        command: String = Text,
        /// How long it may take. Default: 60 seconds.
        #[serde(deserialize_with = "time")]
        timeout: Option<Duration> = Duration,
        /// What happens to the call if the hook fails. Default: deny.
        on_error: Option<String> = Keyword(&["deny", "allow"]),
    }
    also [HOOK_TYPE]
    rules [KeyRule::Required(&["command"])]
}

const HOOK_TYPE: KeySchema = key("type", ValueType::Keyword(&["command"]), "What it is.");

static HOOK: ObjectSchema = ObjectSchema::new(
    ("a hook", "Hook", "A command to run."),
    &[
        HOOK_TYPE,
        key("command", ValueType::Text, "The command."),
        key("timeout", ValueType::Duration, "How long it may take. Default: 60 seconds."),
    ],
    &[KeyRule::Required(&["command"])],
);
