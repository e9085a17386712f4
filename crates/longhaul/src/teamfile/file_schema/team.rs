//! The keys at the top of a team file.

use super::agent::{AGENT, BUDGET};
use super::model::{MODEL, PROVIDER};
use super::toolset::MCP;
use super::{KeyRule, KeySchema, ObjectSchema, ValueType, ignored_key, key};

pub(in crate::teamfile) static TEAM: ObjectSchema = ObjectSchema {
    name: "a team file",
    id: "Team",
    doc: "A team of agents.",
    keys: &[
        key(
            "version",
            ValueType::Text,
            "The version of the format; files of every version from 0 on are read.",
        ),
        key(
            "agents",
            ValueType::Map(&ValueType::Object(&AGENT)),
            "The agents. A run starts with the agent root, or else with the first one.",
        ),
        key(
            "models",
            ValueType::Map(&ValueType::AnyOf(&[ValueType::Object(&MODEL), ValueType::Text])),
            "Models by name; a string is provider/model.",
        ),
        key("providers", ValueType::Map(&ValueType::Object(&PROVIDER)), "Custom providers."),
        key("mcps", ValueType::Map(&ValueType::Object(&MCP)), "MCP servers by name, for `ref` of a toolset."),
        key("metadata", ValueType::Object(&METADATA), "Information about the file."),
        key(
            "permissions",
            ValueType::Object(&PERMISSIONS),
            "Which tools are allowed, need approval or are denied.",
        ),
        key("budget", ValueType::Object(&BUDGET), "The budget of a whole run."),
        key(
            "budgets",
            ValueType::Map(&ValueType::Object(&BUDGET)),
            "Budgets by name, for `budgets` of an agent.",
        ),
        key(
            "toolsets",
            ValueType::Map(&ValueType::AnyOf(&[ValueType::List(&ValueType::Toolset), ValueType::Toolset])),
            "Toolsets by name, for `use_toolsets` of an agent.",
        ),
        key(
            "commands",
            ValueType::Map(&ValueType::Commands),
            "Groups of commands by name, for `use_commands` of an agent.",
        ),
        key(
            "skills",
            ValueType::Map(&ValueType::AnyOf(&[ValueType::Bool, ValueType::Texts])),
            "Sources of skills by name, for `use_skills` of an agent.",
        ),
        ignored_key("rag", ValueType::Map(&ValueType::Any), "Sources for retrieval."),
        ignored_key("runtime", ValueType::Any, "The settings of another runtime."),
        ignored_key("env", ValueType::Map(&ValueType::Text), "Variables of old files."),
    ],
    rules: &[KeyRule::Required(&["agents"])],
};

static METADATA: ObjectSchema = ObjectSchema {
    name: "metadata",
    id: "Metadata",
    doc: "Information about the file.",
    keys: &[
        key("author", ValueType::Text, "The author."),
        key("license", ValueType::Text, "The license."),
        key("description", ValueType::Text, "What the team is for."),
        key("readme", ValueType::Text, "More information."),
        key("version", ValueType::Text, "The version of the team."),
        key("tags", ValueType::Names, "Search keywords."),
    ],
    rules: &[],
};

const PATTERNS: ValueType = ValueType::Texts;

pub(super) static PERMISSIONS: ObjectSchema = ObjectSchema {
    name: "permissions",
    id: "Permissions",
    doc: "Patterns such as `shell`, `read_*` or `shell:cmd=git*`. Deny beats everything.",
    keys: &[
        pattern("allow", "These run without approval."),
        pattern("ask", "These need approval, even if they only read."),
        pattern("deny", "These never run, whatever else is set."),
    ],
    rules: &[],
};

const fn pattern(name: &'static str, doc: &'static str) -> KeySchema {
    key(name, PATTERNS, doc)
}
