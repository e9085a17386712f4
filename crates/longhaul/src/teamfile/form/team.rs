//! The keys at the top of a team file.

use super::agent::{AGENT, BUDGET};
use super::model::{MODEL, PROVIDER};
use super::toolset::MCP;
use super::{Key, Object, Rule, Type, idle, key};

pub(in crate::teamfile) static TEAM: Object = Object {
    name: "a team file",
    id: "Team",
    doc: "A team of agents.",
    keys: &[
        key("version", Type::Text, "The version of the format; files of every version from 0 on are read."),
        key(
            "agents",
            Type::Map(&Type::Object(&AGENT)),
            "The agents. The one called root is asked first; if there is none, the first.",
        ),
        key(
            "models",
            Type::Map(&Type::Either(&[Type::Object(&MODEL), Type::Text])),
            "Models by names of your own; a text is provider/model.",
        ),
        key("providers", Type::Map(&Type::Object(&PROVIDER)), "Providers of your own."),
        key(
            "mcps",
            Type::Map(&Type::Object(&MCP)),
            "MCP servers by names of your own, for `ref` of a toolset.",
        ),
        key("metadata", Type::Object(&METADATA), "What the file says about itself."),
        key(
            "permissions",
            Type::Object(&PERMISSIONS),
            "Which tools run, which are asked about, and which never run.",
        ),
        key("budget", Type::Object(&BUDGET), "What a whole run may use."),
        key("budgets", Type::Map(&Type::Object(&BUDGET)), "Budgets by name, for `budgets` of an agent."),
        key(
            "toolsets",
            Type::Map(&Type::Either(&[Type::List(&Type::Toolset), Type::Toolset])),
            "Toolsets by name, for `use_toolsets` of an agent.",
        ),
        key(
            "commands",
            Type::Map(&Type::Commands),
            "Groups of commands by name, for `use_commands` of an agent.",
        ),
        key(
            "skills",
            Type::Map(&Type::Either(&[Type::Bool, Type::Texts])),
            "Sources of skills by name, for `use_skills` of an agent.",
        ),
        idle("rag", Type::Map(&Type::Any), "Sources for retrieval."),
        idle("runtime", Type::Any, "How another runtime is set up."),
        idle("env", Type::Map(&Type::Text), "Variables of old files."),
    ],
    rules: &[Rule::Needs(&["agents"])],
};

static METADATA: Object = Object {
    name: "metadata",
    id: "Metadata",
    doc: "What the file says about itself.",
    keys: &[
        key("author", Type::Text, "Who wrote it."),
        key("license", Type::Text, "Under which license."),
        key("description", Type::Text, "What the team is for."),
        key("readme", Type::Text, "More about it."),
        key("version", Type::Text, "The version of the team."),
        key("tags", Type::Names, "Words to find it by."),
    ],
    rules: &[],
};

const PATTERNS: Type = Type::Texts;

pub(super) static PERMISSIONS: Object = Object {
    name: "permissions",
    id: "Permissions",
    doc: "Patterns such as `shell`, `read_*` or `shell:cmd=git*`. Deny beats everything.",
    keys: &[
        pattern("allow", "These run without a question."),
        pattern("ask", "These are asked about, even if they only read."),
        pattern("deny", "These never run, whatever else is said."),
    ],
    rules: &[],
};

const fn pattern(name: &'static str, doc: &'static str) -> Key {
    key(name, PATTERNS, doc)
}
