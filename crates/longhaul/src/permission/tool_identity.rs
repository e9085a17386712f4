//! What a consent is about: the tool that was seen when it was given, and no other of that name.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Pattern;
use crate::id::Digest;

/// What a tool was when somebody saw it: who provides it, what it says of itself, and what it acts with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolIdentity {
    /// The toolset that it is of; of a server's, one that no other server has.
    pub toolset: String,
    /// What people call the server, if a server says what the tool is. Such a tool may become another at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What its toolset calls it.
    pub tool: String,
    /// The digest of what the model is told of it.
    pub description: String,
    /// The digest of the schema of its arguments.
    pub arguments: String,
    /// What it says of its effects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hints: String,
    /// What it acts with besides its arguments, in words that follow "it runs": "in a sandbox".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
}

impl ToolIdentity {
    /// A tool of this name, description and schema.
    pub fn new(tool: &str, description: &str, parameters: &Value) -> ToolIdentity {
        ToolIdentity {
            tool: tool.to_owned(),
            description: short_digest(description),
            arguments: short_digest(&in_order(parameters, false).to_string()),
            ..ToolIdentity::default()
        }
    }

    /// Whether a server says what the tool is.
    pub fn is_from_server(&self) -> bool {
        self.server.is_some()
    }

    /// Whether a consent to this tool is one to the other. Tools of Longhaul's own may be described in other words by another
    /// version; what they act with counts. Of a server's tool everything does.
    pub fn covers(&self, now: &ToolIdentity) -> bool {
        match (self.is_from_server(), now.is_from_server()) {
            (false, false) => self.toolset == now.toolset && self.setting == now.setting,
            (true, true) => {
                self.toolset == now.toolset && self.tool == now.tool && self.changed_parts(now).is_empty()
            }
            _ => false,
        }
    }

    /// What is different now of a tool that is the same otherwise.
    pub fn changed_parts(&self, now: &ToolIdentity) -> Vec<&'static str> {
        let parts = [
            ("description", self.description != now.description),
            ("arguments", self.arguments != now.arguments),
            ("hints", self.hints != now.hints),
            ("settings", self.setting != now.setting),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Why a consent to this tool is none to the other, in words.
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

/// So long that no server finds two texts of one digest.
fn short_digest(text: &str) -> String {
    Digest::of_bytes(text.as_bytes()).as_str()[..40].to_owned()
}

/// The same schema in one order: a server may write its keys, and what is required, in another each time.
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

/// What a person has allowed a tree: calls that a pattern means, of the tool that was shown then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredConsent", into = "StoredConsent")]
pub struct Consent {
    /// Which calls.
    pub pattern: Pattern,
    /// The tool; not known of what earlier versions have written.
    pub tool: Option<ToolIdentity>,
}

/// A consent in a store: earlier versions have written the pattern alone.
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
    /// Whether it is one to this tool. Of which tool an old one was is not known: it holds for those of Longhaul's own, whose
    /// names no server has.
    pub fn applies_to(&self, tool: Option<&ToolIdentity>) -> bool {
        match (&self.tool, tool) {
            (Some(seen), Some(now)) => seen.covers(now),
            (None, Some(now)) => !now.is_from_server(),
            // An old question.
            (seen, None) => seen.as_ref().is_none_or(|seen| !seen.is_from_server()),
        }
    }

    /// Why it is none to this tool, in words.
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
