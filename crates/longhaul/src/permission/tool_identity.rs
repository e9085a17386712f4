//! Ties an approval to the tool that was shown when it was given, not to any tool of that name.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Pattern;
use crate::id::Digest;

/// The identity of a tool at some moment: its provider, its description and how it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolIdentity {
    /// Its toolset; unique for each MCP server.
    pub toolset: String,
    /// The server's display name, if an MCP server defines the tool. Such a tool may change at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its name in the toolset.
    pub tool: String,
    /// The digest of its description for the model.
    pub description: String,
    /// The digest of the schema of its arguments.
    pub arguments: String,
    /// Its declared effects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hints: String,
    /// How it runs, apart from its arguments, in words that follow "it runs": "in a sandbox".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
}

impl ToolIdentity {
    /// The identity of a tool with this name, description and schema.
    pub fn new(tool: &str, description: &str, parameters: &Value) -> ToolIdentity {
        ToolIdentity {
            tool: tool.to_owned(),
            description: short_digest(description),
            arguments: short_digest(&in_order(parameters, false).to_string()),
            ..ToolIdentity::default()
        }
    }

    /// Whether an MCP server defines the tool.
    pub fn is_from_server(&self) -> bool {
        self.server.is_some()
    }

    /// Whether an approval for this tool also covers the other. Longhaul's own tools may be described
    /// differently in another version; only how they run counts. For a server's tool, everything counts.
    pub fn covers(&self, now: &ToolIdentity) -> bool {
        match (self.is_from_server(), now.is_from_server()) {
            (false, false) => self.toolset == now.toolset && self.setting == now.setting,
            (true, true) => {
                self.toolset == now.toolset && self.tool == now.tool && self.changed_parts(now).is_empty()
            }
            _ => false,
        }
    }

    /// What has changed in a tool that is otherwise the same.
    pub fn changed_parts(&self, now: &ToolIdentity) -> Vec<&'static str> {
        let parts = [
            ("description", self.description != now.description),
            ("arguments", self.arguments != now.arguments),
            ("hints", self.hints != now.hints),
            ("settings", self.setting != now.setting),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Why an approval for this tool does not cover the other, as text.
    fn difference(&self, now: &ToolIdentity) -> String {
        let whose = |tool: &ToolIdentity| match &tool.server {
            Some(server) => format!("the server '{server}'"),
            None => format!("the toolset '{}'", tool.toolset),
        };
        if self.toolset != now.toolset || self.is_from_server() != now.is_from_server() {
            return format!("it was allowed as a tool of {}, and this one is of {}", whose(self), whose(now));
        }
        if !now.is_from_server() {
            let runs = |tool: &ToolIdentity| tool.setting.clone().unwrap_or_else(|| "as it is".to_owned());
            return format!("it was allowed where it runs {}; this one runs {}", runs(self), runs(now));
        }
        if self.tool != now.tool {
            return format!("another tool of {} was allowed, '{}'", whose(self), self.tool);
        }
        format!("{} changed its {} since it was allowed", whose(now), join_with_and(&self.changed_parts(now)))
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn join_with_and(words: &[&str]) -> String {
    let mut text = String::new();
    for (index, word) in words.iter().enumerate() {
        let between = match index {
            0 => "",
            last if last + 1 == words.len() => " and ",
            _ => ", ",
        };
        let _ = write!(text, "{between}{word}");
    }
    text
}

/// Long enough that no server finds two texts with the same digest.
fn short_digest(text: &str) -> String {
    Digest::of_bytes(text.as_bytes()).as_str()[..40].to_owned()
}

/// The schema in a fixed order: a server may list its keys and required fields in a different order each
/// time.
fn in_order(value: &Value, is_required: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort_unstable();
            let field = |name: &String| {
                let value = fields.get(name).unwrap_or(&Value::Null);
                (name.clone(), in_order(value, name == "required"))
            };
            Value::Object(names.into_iter().map(field).collect())
        }
        Value::Array(all) => {
            let mut all: Vec<Value> = all.iter().map(|value| in_order(value, false)).collect();
            if is_required && all.iter().all(Value::is_string) {
                all.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            Value::Array(all)
        }
        other => other.clone(),
    }
}

/// An approval for a tree: the calls that a pattern matches, of the tool that was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredConsent", into = "StoredConsent")]
pub struct Consent {
    /// The approved calls.
    pub pattern: Pattern,
    /// The tool; unknown for approvals that earlier versions have written.
    pub tool: Option<ToolIdentity>,
}

/// A stored approval: earlier versions have written only the pattern.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredConsent {
    Pattern(Pattern),
    Whole { pattern: Pattern, tool: ToolIdentity },
}

impl From<StoredConsent> for Consent {
    fn from(form: StoredConsent) -> Self {
        match form {
            StoredConsent::Pattern(pattern) => Consent { pattern, tool: None },
            StoredConsent::Whole { pattern, tool } => Consent { pattern, tool: Some(tool) },
        }
    }
}

impl From<Consent> for StoredConsent {
    fn from(Consent { pattern, tool }: Consent) -> Self {
        match tool {
            None => StoredConsent::Pattern(pattern),
            Some(tool) => StoredConsent::Whole { pattern, tool },
        }
    }
}

impl Consent {
    /// Whether it applies to this tool. An old approval does not say which tool it was for: it applies to
    /// Longhaul's own tools, whose names no server can have.
    pub fn applies_to(&self, tool: Option<&ToolIdentity>) -> bool {
        match (&self.tool, tool) {
            (Some(seen), Some(now)) => seen.covers(now),
            (None, Some(now)) => !now.is_from_server(),
            // A question of an earlier version.
            (seen, None) => seen.as_ref().is_none_or(|seen| !seen.is_from_server()),
        }
    }

    /// Why it does not apply to this tool, as text.
    pub fn mismatch_reason(&self, now: &ToolIdentity) -> String {
        match &self.tool {
            Some(seen) => seen.difference(now),
            None => {
                let server = now.server.as_deref().unwrap_or(&now.toolset);
                format!("it was allowed before it was noted that it is a tool of the server '{server}'")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_server(description: &str, parameters: Value) -> ToolIdentity {
        let tool = ToolIdentity::new("act", description, &parameters);
        ToolIdentity { toolset: "mcp:1".to_owned(), server: Some("s".to_owned()), ..tool }
    }

    #[test]
    fn the_order_of_keys_is_no_change_and_everything_else_is() {
        let seen =
            of_server("Notes.", json!({"type": "object", "required": ["a", "b"], "properties": {"a": {}}}));
        let same =
            of_server("Notes.", json!({"required": ["b", "a"], "properties": {"a": {}}, "type": "object"}));
        assert!(seen.covers(&same));
        let other = of_server("Runs.", json!({"type": "object", "required": ["a"], "properties": {"a": {}}}));
        assert_eq!(seen.changed_parts(&other), ["description", "arguments"]);
        let consent = Consent { pattern: Pattern::for_tool("act").unwrap(), tool: Some(seen.clone()) };
        assert!(consent.applies_to(Some(&seen)) && !consent.applies_to(Some(&other)));
        assert_eq!(
            consent.mismatch_reason(&other),
            "the server 's' changed its description and arguments since it was allowed"
        );
        for other in [
            ToolIdentity { toolset: "mcp:2".to_owned(), ..seen.clone() },
            ToolIdentity { tool: "Act".to_owned(), ..seen.clone() },
            ToolIdentity { hints: "read-only".to_owned(), ..seen.clone() },
            ToolIdentity { server: None, ..seen.clone() },
        ] {
            assert!(!seen.covers(&other) && !other.covers(&seen), "{other:?}");
        }
    }

    #[test]
    fn tools_of_longhauls_own_are_told_apart_by_what_they_act_with() {
        let shell = |setting: &str| ToolIdentity {
            toolset: "shell".to_owned(),
            setting: Some(setting.to_owned()),
            ..ToolIdentity::new("shell", setting, &json!({}))
        };
        let (inside, outside) = (shell("in a sandbox"), shell("without a sandbox"));
        assert!(
            inside.covers(&ToolIdentity { description: "of another version".to_owned(), ..inside.clone() })
        );
        let consent = Consent { pattern: Pattern::for_tool("shell").unwrap(), tool: Some(inside) };
        assert!(!consent.applies_to(Some(&outside)));
        assert_eq!(
            consent.mismatch_reason(&outside),
            "it was allowed where it runs in a sandbox; this one runs without a sandbox"
        );
    }

    #[test]
    fn what_earlier_versions_have_written_is_read_and_holds_for_no_server() {
        let old: Consent = serde_json::from_str("\"shell:cmd=git *\"").unwrap();
        assert_eq!(serde_json::to_string(&old).unwrap(), "\"shell:cmd=git *\"");
        let shell = ToolIdentity { toolset: "shell".to_owned(), ..ToolIdentity::default() };
        assert!(old.applies_to(Some(&shell)) && old.applies_to(None));
        let server = of_server("Notes.", json!({}));
        assert!(!old.applies_to(Some(&server)));
        let new = Consent { tool: Some(server), ..old };
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(serde_json::from_str::<Consent>(&text).unwrap(), new);
        assert!(!new.applies_to(None));
    }
}
