//! The YAML of a script, before anything in it is compiled.

use std::fmt;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_saphyr::Spanned;

use super::error::{ModelScriptError, ScriptSource};
use crate::message::StopReason;
use crate::model::yaml_tree::YamlTree;

/// The maximum size of a script in bytes.
const LARGEST: usize = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptYaml {
    #[serde(default)]
    pub(super) defaults: PaceYaml,
    pub(super) agents: IndexMap<String, Spanned<AgentYaml>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaceYaml {
    pub(super) chunk: Option<Spanned<u32>>,
    pub(super) pace: Option<Spanned<String>>,
    pub(super) delay: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentYaml {
    pub(super) turns: Option<Vec<Spanned<TurnYaml>>>,
    pub(super) cases: Option<Vec<CaseYaml>>,
    pub(super) otherwise: Option<Spanned<TurnYaml>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseYaml {
    pub(super) when: Option<Spanned<String>>,
    pub(super) turns: Vec<Spanned<TurnYaml>>,
    pub(super) otherwise: Option<Spanned<TurnYaml>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnYaml {
    pub(super) until: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) errors: Vec<Spanned<FailureYaml>>,
    pub(super) reasoning: Option<Spanned<String>>,
    pub(super) text: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) calls: Vec<CallYaml>,
    pub(super) usage: Option<UsageYaml>,
    pub(super) stop: Option<StopReason>,
    pub(super) chunk: Option<Spanned<u32>>,
    pub(super) pace: Option<Spanned<String>>,
    pub(super) delay: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallYaml {
    pub(super) tool: String,
    pub(super) arguments: Option<Spanned<YamlTree<String>>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsageYaml {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) cache_written: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

#[derive(Debug)]
pub(super) enum FailureYaml {
    Word(String),
    Status(StatusYaml),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusYaml {
    pub(super) status: u16,
    pub(super) retry_after: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) message: String,
}

impl<'de> Deserialize<'de> for FailureYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrStatus;

        impl<'de> Visitor<'de> for WordOrStatus {
            type Value = FailureYaml;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cut, hang, empty or a mapping with a status")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<FailureYaml, E> {
                Ok(FailureYaml::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FailureYaml, A::Error> {
                StatusYaml::deserialize(MapAccessDeserializer::new(map)).map(FailureYaml::Status)
            }
        }

        deserializer.deserialize_any(WordOrStatus)
    }
}

pub(super) fn parse_script_yaml(source: ScriptSource<'_>) -> Result<ScriptYaml, ModelScriptError> {
    if source.yaml.len() > LARGEST {
        let message = format!("a script has at most {LARGEST} bytes, this one has {}", source.yaml.len());
        return Err(source.error_at(serde_saphyr::Location::UNKNOWN, message));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: 50_000,
            max_events: 150_000,
            max_depth: 32,
            max_documents: 1,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
            max_recorded_anchor_events: 50_000,
            max_total_scalar_bytes: LARGEST,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(source.yaml, options).map_err(|error| source.yaml_error(&error))
}
