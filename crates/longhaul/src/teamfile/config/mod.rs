//! A team file as data: every spelling normalized, nothing resolved, nothing started.
//!
//! [`team_config!`] declares each map of the format once: the struct that holds it, and the table that the reader, the
//! JSON schema and the suggestions use.

/// Declares a map of the format: a struct, and its table. A field has the type of its value in the file behind the
/// `=`. `("ref")` behind a field is its key, if that is not its name. `hidden` is a field that no key sets; `shared`
/// names keys that other maps have too, `also` lists keys without a field, and `rules` the rules about keys.
macro_rules! team_config {
    (
        $(#[doc = $about:literal])+
        $name:ident [$($derive:ident),*] = $schema:ident($title:literal, $id:literal) $(shared $shared:ident)? {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)+)])?
                $field:ident $(($key:literal))?: $kind:ty = $value:expr,
            )*
        }
        $(hidden [$hidden:ident: $hidden_type:ty])?
        $(also [$($extra:expr),+ $(,)?])?
        $(rules [$($rule:expr),+ $(,)?])?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq, $($derive,)* Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $doc])+ $(#[serde($($serde)+)])? $(#[serde(rename = $key)])? pub $field: $kind,)*
            $(#[serde(skip)] pub(in crate::teamfile) $hidden: $hidden_type,)?
        }

        pub(in crate::teamfile) static $schema: ObjectSchema = {
            use ValueType::*;
            ObjectSchema {
                name: $title,
                id: $id,
                doc: doc_text(concat!($($about),+)),
                shared: shared_keys!($($shared)?),
                keys: &[
                    $(key(key_name!($field $($key)?), $value, doc_text(concat!($($doc),+))),)*
                    $($($extra),+)?
                ],
                rules: &[$($($rule),+)?],
            }
        };
    };
}

macro_rules! key_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

macro_rules! shared_keys {
    () => {
        &[]
    };
    ($shared:ident) => {
        $shared
    };
}

mod agent;
mod model;
mod toolset;

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer};

pub(in crate::teamfile) use agent::COMMAND;
pub use agent::{
    AcpConfig, AgentConfig, BackgroundConfig, BudgetConfig, CommandConfig, FallbackConfig, HookConfig,
    HookMatcherConfig, HooksConfig, LimitsConfig, PermissionsConfig, SkillsConfig, StructuredOutputConfig,
};
pub use model::{ModelConfig, ProviderConfig, ThinkingConfig};
pub(in crate::teamfile) use toolset::TOOLSETS;
pub use toolset::{
    A2aConfig, ApiCallConfig, ApiConfig, FetchConfig, FileToolsConfig, FilesystemConfig, LauncherConfig,
    McpConfig, McpRemoteConfig, ModelPickerConfig, OpenApiConfig, PostEditConfig, SandboxConfig,
    ScriptConfig, ScriptToolConfig, ShellConfig, TodoConfig, ToolsetConfig, ToolsetKind,
};

use super::file_schema::{KeyRule, ObjectSchema, ValueType, ignored_key, key};
use super::reader::SpanIndex;
use agent::{AGENT, BUDGET, PERMISSIONS};
use model::{MODEL, PROVIDER};
use toolset::MCP;

team_config! {
    /// A team of agents.
    TeamFile [] = TEAM("a team file", "Team") {
        /// The version of the format; files of every version from 0 on are read.
        version: Option<String> = Text,
        /// The agents. A run starts with the agent root, or else with the first one.
        agents: IndexMap<String, AgentConfig> = Map(&Object(&AGENT)),
        /// Models by name; a string is provider/model.
        models: IndexMap<String, ModelConfig> = Map(&AnyOf(&[Object(&MODEL), Text])),
        /// Custom providers.
        providers: IndexMap<String, ProviderConfig> = Map(&Object(&PROVIDER)),
        /// MCP servers by name, for `ref` of a toolset.
        mcps: IndexMap<String, ToolsetConfig> = Map(&Object(&MCP)),
        /// Information about the file.
        metadata: MetadataConfig = Object(&METADATA),
        /// Which tools are allowed, need approval or are denied.
        permissions: PermissionsConfig = Object(&PERMISSIONS),
        /// The budget of a whole run.
        budget: BudgetConfig = Object(&BUDGET),
        /// Budgets by name, for `budgets` of an agent.
        budgets: IndexMap<String, BudgetConfig> = Map(&Object(&BUDGET)),
        /// Toolsets by name, for `use_toolsets` of an agent.
        toolsets: IndexMap<String, Vec<ToolsetConfig>> = Map(&AnyOf(&[List(&Toolset), Toolset])),
        /// Groups of commands by name, for `use_commands` of an agent.
        commands: IndexMap<String, IndexMap<String, CommandConfig>> = Map(&Commands),
        /// Sources of skills by name, for `use_skills` of an agent.
        skills: IndexMap<String, SkillsConfig> = Map(&AnyOf(&[Bool, Texts])),
    }
    hidden [spans: SpanIndex]
    also [
        ignored_key("rag", Map(&Any), "Sources for retrieval."),
        ignored_key("runtime", Any, "The settings of another runtime."),
        ignored_key("env", Map(&Text), "Variables of old files."),
    ]
    rules [KeyRule::Required(&["agents"])]
}

impl TeamFile {
    /// The name of the root agent: `root`, or else the first one in the file. `None` if there are no agents.
    pub fn root_agent(&self) -> Option<&str> {
        match self.agents.get_key_value("root") {
            Some((name, _)) => Some(name),
            None => self.agents.keys().next().map(String::as_str),
        }
    }
}

team_config! {
    /// Information about the file.
    MetadataConfig [Eq] = METADATA("metadata", "Metadata") {
        /// The author.
        author: Option<String> = Text,
        /// The license.
        license: Option<String> = Text,
        /// What the team is for.
        description: Option<String> = Text,
        /// More information.
        readme: Option<String> = Text,
        /// The version of the team.
        version: Option<String> = Text,
        /// Search keywords.
        tags: Vec<String> = Names,
    }
}

/// Deserializes a duration, which the reader passes in nanoseconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_nanos))
}

/// The text of a doc comment, without the space at its start.
const fn doc_text(doc: &'static str) -> &'static str {
    doc.split_at(1).1
}
