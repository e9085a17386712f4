//! A tool as people read about it: its name, its arguments, what it affects.

use serde::Serialize;
use serde_json::{Map, Value};

use super::ToolEffects;
use crate::model::ToolSpec;

/// How deep the arguments inside arguments are listed.
const MAX_DEPTH: usize = 5;

/// What people need to know about a tool: for reference pages and listings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ToolDescription {
    /// Its name, as the model calls it.
    pub name: String,
    /// What it does, as the model reads it.
    pub description: String,
    /// What it affects.
    pub effects: ToolEffects,
    /// Its arguments, the required ones first.
    pub arguments: Vec<ArgumentDescription>,
}

impl ToolDescription {
    /// Describes a tool from its spec and its effects.
    pub fn new(spec: &ToolSpec, effects: ToolEffects) -> ToolDescription {
        let mut arguments = Vec::new();
        collect_properties(&spec.parameters, "", 0, &mut arguments);
        ToolDescription { name: spec.name.clone(), description: spec.description.clone(), effects, arguments }
    }
}

/// An argument of a tool. The parts of an object have entries of their own, after it: `edits[].path` is the
/// key `path` of each item of `edits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArgumentDescription {
    /// Its name, or the path to it.
    pub name: String,
    /// Its type: `string`, `array of integer`, `"low" or "high"`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether a call must have it.
    pub required: bool,
    /// What to write there. Empty if the tool does not say.
    pub description: String,
}

fn collect_properties(schema: &Value, path: &str, depth: usize, found: &mut Vec<ArgumentDescription>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let names = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| names.is_some_and(|names| names.iter().any(|one| one == name));
    // Those that a call must have come first.
    let (required, optional): (Vec<_>, Vec<_>) = properties.iter().partition(|(name, _)| is_required(name));
    for (name, property) in required.into_iter().chain(optional) {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
        found.push(ArgumentDescription {
            name: full.clone(),
            kind: type_text(property),
            required: is_required(name),
            description: text.to_owned(),
        });
        if depth < MAX_DEPTH {
            collect_properties(property, &full, depth + 1, found);
            if let Some(items) = property.get("items") {
                collect_properties(items, &format!("{full}[]"), depth + 1, found);
            }
        }
    }
}

/// The type that a schema allows, in words.
fn type_text(schema: &Value) -> String {
    let Some(object) = schema.as_object() else { return "any".to_owned() };
    let choices = |values: &[Value]| join_choices(values.iter().map(Value::to_string));
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        return choices(values);
    }
    if let Some(value) = object.get("const") {
        return value.to_string();
    }
    match object.get("type") {
        Some(Value::String(kind)) => with_items(kind, object),
        Some(Value::Array(kinds)) => {
            join_choices(kinds.iter().filter_map(Value::as_str).map(|kind| with_items(kind, object)))
        }
        _ => {
            let options = ["anyOf", "oneOf"].iter().find_map(|key| object.get(*key)?.as_array());
            match options {
                Some(options) => join_choices(options.iter().map(type_text)),
                None if object.contains_key("properties") => "object".to_owned(),
                None => "any".to_owned(),
            }
        }
    }
}

fn with_items(kind: &str, schema: &Map<String, Value>) -> String {
    match schema.get("items") {
        Some(items) if kind == "array" => format!("array of {}", type_text(items)),
        _ => kind.to_owned(),
    }
}

fn join_choices(choices: impl Iterator<Item = String>) -> String {
    choices.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_argument_is_described_also_those_inside_others() {
        let parameters = json!({
            "properties": {
                "path": { "type": "string", "description": "Where." },
                "depth": { "type": ["integer", "null"] },
                "mode": { "enum": ["fast", "slow"] },
                "edits": { "type": "array", "items": {
                    "type": "object",
                    "properties": { "old": { "type": "string" } },
                    "required": ["old"],
                }},
                "names": { "type": "array", "items": { "type": "string" } },
                "either": { "anyOf": [{ "type": "string" }, { "type": "boolean" }] },
                "whatever": true,
                "linked": { "$ref": "#/$defs/Linked" },
            },
            "required": ["path", "edits"],
        });
        let spec = ToolSpec { name: "edit".to_owned(), description: "Edits.".to_owned(), parameters };
        let described = ToolDescription::new(&spec, ToolEffects::READ_ONLY);
        let told: Vec<String> = described
            .arguments
            .iter()
            .map(|a| format!("{} {}{}{}", a.name, a.kind, if a.required { "!" } else { "" }, a.description))
            .collect();
        let expected = [
            "edits array of object!",
            "edits[].old string!",
            "path string!Where.",
            "depth integer or null",
            "either string or boolean",
            "linked any",
            "mode \"fast\" or \"slow\"",
            "names array of string",
            "whatever any",
        ];
        assert_eq!(told, expected);
    }
}
