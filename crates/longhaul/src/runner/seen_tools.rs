//! What a tree of tasks has seen of the tools of MCP servers, and what follows from it.
//!
//! Rules of the team's author, and hints that a tool is harmless, apply to what the server listed first in
//! this tree. A later listing may be stricter, not laxer: a tool that the server changes or adds needs
//! approval. The first listing is a stored value of the tree, so that a restart changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, TaskId};
use crate::permission::{ToolIdentity, join_with_and};
use crate::store::{Store, StoreError};
use crate::tool::ToolEffects;
use crate::toolset::{is_reserved, qualified_tool_name};

/// How many tools of a server are recorded for a tree. If a server invents more names, those need approval.
const MOST: usize = 4000;

/// The first listing of each server's tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SeenTools {
    /// How often something new was seen.
    round: u32,
    /// By toolset, then by the server's own tool names.
    servers: BTreeMap<String, BTreeMap<String, SeenTool>>,
    /// Tools that could not have their own name: `agent toolset tool`. They never get it.
    renamed: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SeenTool {
    /// When it was seen first.
    round: u32,
    /// Whether other tools of its server were seen earlier.
    #[serde(default, skip_serializing_if = "is_false")]
    late: bool,
    description: String,
    arguments: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    hints: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    setting: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    read_only: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    repeatable: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A tool of an agent, before its name for the model is decided.
pub(super) struct ToolCandidate<'a> {
    /// The preferred name.
    pub(super) name: &'a str,
    pub(super) identity: &'a ToolIdentity,
    pub(super) effects: ToolEffects,
    /// The name prefix of its toolset.
    pub(super) prefix: Option<&'a str>,
}

/// The decision on a tool in a tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolDecision {
    /// The name for the model; `None` if another tool has it.
    pub(super) name: Option<String>,
    pub(super) effects: ToolEffects,
    /// Why rules that allow do not apply to it.
    pub(super) changed: Option<String>,
}

impl SeenTools {
    /// Records what is new in the servers' listings.
    pub(super) fn record_new<'a>(
        &mut self,
        offers: impl IntoIterator<Item = (&'a ToolIdentity, ToolEffects)>,
    ) {
        let known: HashSet<String> = self.servers.keys().cloned().collect();
        let round = self.round + 1;
        for (tool, effects) in offers {
            let tools = self.servers.entry(tool.toolset.clone()).or_default();
            if tools.contains_key(&tool.tool) || tools.len() >= MOST {
                continue;
            }
            self.round = round;
            let seen = SeenTool {
                round,
                late: known.contains(&tool.toolset),
                description: tool.description.clone(),
                arguments: tool.arguments.clone(),
                hints: tool.hints.clone(),
                setting: tool.setting.clone(),
                read_only: effects.read_only,
                repeatable: effects.repeatable,
            };
            tools.insert(tool.tool.clone(), seen);
        }
    }

    fn tool(&self, tool: &ToolIdentity) -> Option<&SeenTool> {
        self.servers.get(&tool.toolset)?.get(&tool.tool)
    }

    /// Decides on the tools of an agent: their names, their trusted effects, and what has changed. `prefixes`
    /// are those of all servers of the team. Records names that a tool could not have.
    pub(super) fn decide(
        &mut self,
        agent: &AgentName,
        tools: &[ToolCandidate<'_>],
        prefixes: &[String],
    ) -> Vec<ToolDecision> {
        let mut judged: Vec<ToolDecision> = tools.iter().map(|tool| self.decide_effects(tool)).collect();
        let mut taken: HashSet<String> = HashSet::new();
        let mut take = |name: &str| taken.insert(name.to_ascii_lowercase());
        // Own tools first, wherever they are listed: no other tool gets their names.
        for (tool, judged) in
            tools.iter().zip(&mut judged).filter(|(tool, _)| !tool.identity.is_from_server())
        {
            judged.name = take(tool.name).then(|| tool.name.to_owned());
        }
        // Then the tools that had a name before.
        let mut order: Vec<usize> =
            (0..tools.len()).filter(|at| tools[*at].identity.is_from_server()).collect();
        order.sort_by_key(|at| self.tool(tools[*at].identity).map_or(u32::MAX, |seen| seen.round));
        for at in order {
            let ToolCandidate { name, identity, prefix, .. } = &tools[at];
            let key = format!("{agent} {} {}", identity.toolset, identity.tool);
            let foreign = |other: &&String| {
                prefix.is_none_or(|own| !own.eq_ignore_ascii_case(other)) && begins_with(name, other)
            };
            let free = !self.renamed.contains(&key) && !is_reserved(name);
            if free && !prefixes.iter().any(|other| foreign(&other)) && take(name) {
                judged[at].name = Some((*name).to_owned());
                continue;
            }
            let server = identity.server.as_deref().unwrap_or(&identity.toolset);
            let marked = format!("{} {}", identity.toolset, identity.tool);
            let other = [None, Some(marked.as_str())].map(|mark| qualified_tool_name(server, name, mark));
            judged[at].name = other.into_iter().find(|other| !is_reserved(other) && take(other));
            if self.renamed.len() < 2 * MOST {
                self.renamed.insert(key);
            }
        }
        judged
    }

    /// The trusted effects of a tool.
    fn decide_effects(&self, tool: &ToolCandidate<'_>) -> ToolDecision {
        let ToolCandidate { identity, effects, .. } = tool;
        let Some(server) = &identity.server else {
            return ToolDecision { name: None, effects: *effects, changed: None };
        };
        match self.tool(identity) {
            Some(seen) if !seen.late => {
                let first = ToolIdentity {
                    description: seen.description.clone(),
                    arguments: seen.arguments.clone(),
                    hints: seen.hints.clone(),
                    setting: seen.setting.clone(),
                    ..(*identity).clone()
                };
                let parts = first.changed_parts(identity);
                let changed = (!parts.is_empty()).then(|| {
                    format!(
                        "the server '{server}' changed its {} since this run first saw it",
                        join_with_and(&parts)
                    )
                });
                let effects = ToolEffects {
                    read_only: effects.read_only && seen.read_only,
                    repeatable: effects.repeatable && seen.repeatable,
                    ..*effects
                };
                ToolDecision { name: None, effects, changed }
            }
            _ => {
                let changed = format!("the server '{server}' added it after this run had listed its tools");
                ToolDecision { name: None, effects: ToolEffects::default(), changed: Some(changed) }
            }
        }
    }
}

/// Whether a name starts with this prefix. Rules ignore case.
fn begins_with(name: &str, prefix: &str) -> bool {
    let rest = name.get(..prefix.len()).filter(|start| start.eq_ignore_ascii_case(prefix));
    rest.is_some() && name[prefix.len()..].starts_with('_')
}

/// Updates what a tree has seen, if it changed.
pub(super) async fn update_seen_tools<T>(
    store: &dyn Store,
    root: TaskId,
    mut change: impl FnMut(&mut SeenTools) -> T,
) -> Result<(T, bool), StoreError> {
    let key = format!("tools:{root}");
    loop {
        let stored = store.stored_value(&key).await?;
        let before: SeenTools = serde_json::from_slice(&stored.bytes).unwrap_or_default();
        let mut seen = before.clone();
        let answer = change(&mut seen);
        if seen == before {
            return Ok((answer, false));
        }
        let bytes = serde_json::to_vec(&seen).unwrap_or_default();
        if store.put_stored_value(&key, stored.version, bytes).await? {
            return Ok((answer, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::identity_from_spec;

    fn tool(server: &str, name: &str, description: &str) -> ToolIdentity {
        let spec = crate::model::ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: serde_json::json!({}),
        };
        let identity = identity_from_spec(&spec, ToolEffects::default());
        ToolIdentity { toolset: format!("mcp:{server}"), server: Some(server.to_owned()), ..identity }
    }

    fn judge(seen: &mut SeenTools, tools: &[(&ToolIdentity, ToolEffects)]) -> Vec<ToolDecision> {
        seen.record_new(tools.iter().filter(|(tool, _)| tool.is_from_server()).copied());
        let listed: Vec<_> = tools
            .iter()
            .map(|(identity, effects)| ToolCandidate {
                name: &identity.tool,
                identity,
                effects: *effects,
                prefix: None,
            })
            .collect();
        seen.decide(&"a".into(), &listed, &[])
    }

    fn names(judged: &[ToolDecision]) -> Vec<&str> {
        judged.iter().map(|judged| judged.name.as_deref().unwrap_or("-")).collect()
    }

    const PLAIN: ToolEffects = ToolEffects {
        read_only: false,
        repeatable: false,
        polls_tasks: false,
        internal: false,
        launches: false,
        stops_tasks: false,
    };

    #[test]
    fn who_had_a_name_keeps_it_also_when_the_other_comes_first_or_is_gone() {
        let (one, two) = (tool("one", "act", "A."), tool("two", "act", "B."));
        let mut seen = SeenTools::default();
        assert_eq!(names(&judge(&mut seen, &[(&two, PLAIN)])), ["act"]);
        assert_eq!(names(&judge(&mut seen, &[(&one, PLAIN), (&two, PLAIN)])), ["one_act", "act"]);
        assert_eq!(names(&judge(&mut seen, &[(&one, PLAIN)])), ["one_act"]);
        let mut seen = SeenTools::default();
        assert_eq!(names(&judge(&mut seen, &[(&one, PLAIN), (&two, PLAIN)])), ["act", "two_act"]);
        let own = ToolIdentity { server: None, ..tool("own", "Act", "C.") };
        let mut seen = SeenTools::default();
        assert_eq!(names(&judge(&mut seen, &[(&one, PLAIN), (&own, PLAIN)])), ["one_act", "Act"]);
    }

    #[test]
    fn what_is_noted_is_bounded_and_what_is_not_noted_is_asked_about() {
        let tools: Vec<_> = (0..MOST + 10).map(|n| tool("s", &format!("t{n}"), "")).collect();
        let mut seen = SeenTools::default();
        let all: Vec<_> = tools.iter().map(|tool| (tool, ToolEffects::READ_ONLY)).collect();
        let judged = judge(&mut seen, &all);
        assert_eq!(judged.iter().filter(|judged| judged.changed.is_none()).count(), MOST);
        assert!(judged.iter().all(|judged| judged.changed.is_none() == judged.effects.read_only));
    }

    #[test]
    fn it_is_read_again_as_it_was_written() {
        let mut seen = SeenTools::default();
        judge(&mut seen, &[(&tool("s", "shell", "x"), ToolEffects::READ_ONLY)]);
        let text = serde_json::to_vec(&seen).unwrap();
        assert_eq!(serde_json::from_slice::<SeenTools>(&text).unwrap(), seen);
        assert_eq!(seen.renamed.len(), 1);
    }
}
