//! Schemas as Anthropic takes them.

use std::borrow::Cow;

use serde_json::{Value, json};

/// The schema of a tool's arguments: always that of an object.
pub(super) fn of_input(schema: &Value) -> Cow<'_, Value> {
    match schema {
        Value::Object(map) if map.get("type").is_some_and(Value::is_string) => Cow::Borrowed(schema),
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("type".to_owned(), json!("object"));
            Cow::Owned(Value::Object(map))
        }
        _ => Cow::Owned(json!({"type": "object"})),
    }
}

/// What the compiler of schemas does not know.
const UNKNOWN: [&str; 12] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "$schema",
];

/// The schema of an answer, as far as a model can be held to it: objects are closed, and bounds, which are not
/// known there, are left out.
pub(super) fn strict(schema: &Value) -> Value {
    match schema {
        Value::Array(all) => Value::Array(all.iter().map(strict).collect()),
        Value::Object(map) => {
            let mut strict_map = serde_json::Map::new();
            for (key, value) in map.iter().filter(|(key, _)| !UNKNOWN.contains(&key.as_str())) {
                let value = match (key.as_str(), value) {
                    // Names, not keywords.
                    ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                        named.iter().map(|(name, schema)| (name.clone(), strict(schema))).collect()
                    }
                    ("enum" | "const" | "default" | "examples" | "required", value) => value.clone(),
                    // More than one is not known either.
                    ("minItems", value) => json!(value.as_u64().unwrap_or(0).min(1)),
                    (_, value) => strict(value),
                };
                strict_map.insert(key.clone(), value);
            }
            if map.get("type").is_some_and(|kind| kind == "object") || map.contains_key("properties") {
                strict_map.insert("additionalProperties".to_owned(), json!(false));
            }
            Value::Object(strict_map)
        }
        other => other.clone(),
    }
}
