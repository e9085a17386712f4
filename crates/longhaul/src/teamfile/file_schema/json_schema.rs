//! The JSON schema of team files, generated from the tables that the reader uses.

use serde_json::{Map, Value, json};

use super::{KeyRule, KeyStatus, ObjectSchema, TEAM, TOOLSETS, ValueType};

/// The JSON schema of team files, for editors.
pub fn json_schema() -> Value {
    let mut defs = Map::new();
    let mut root = object_schema(&TEAM, &mut defs);
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        root.insert("title".into(), "Longhaul team file".into());
        root.insert("$defs".into(), Value::Object(defs));
    }
    root
}

fn object_schema(object: &'static ObjectSchema, defs: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in object.keys() {
        let mut shape = value_schema(&key.kind, defs);
        if let Some(fields) = shape.as_object_mut() {
            fields.insert("description".into(), key.doc.into());
            if !matches!(key.status, KeyStatus::Used) {
                fields.insert("deprecated".into(), true.into());
            }
        }
        properties.insert(key.name.into(), shape);
    }
    let mut shape = json!({
        "type": "object",
        "description": object.doc,
        "properties": properties,
        "additionalProperties": false,
    });
    let mut all = Vec::new();
    for rule in object.rules {
        match rule {
            KeyRule::Required(keys) => shape["required"] = json!(keys),
            KeyRule::OneOf(keys) => all.push(json!({"oneOf": required(keys)})),
            KeyRule::AtMostOne(keys) => all.push(json!({"not": {"required": keys}})),
        }
    }
    if !all.is_empty() {
        shape["allOf"] = Value::Array(all);
    }
    shape
}

fn required(keys: &[&str]) -> Vec<Value> {
    keys.iter().map(|key| json!({"required": [key]})).collect()
}

fn schema_ref(what: &'static ObjectSchema, defs: &mut Map<String, Value>) -> Value {
    if !defs.contains_key(what.id) {
        defs.insert(what.id.into(), Value::Null);
        let shape = object_schema(what, defs);
        defs.insert(what.id.into(), shape);
    }
    json!({"$ref": format!("#/$defs/{}", what.id)})
}

fn value_schema(kind: &'static ValueType, defs: &mut Map<String, Value>) -> Value {
    match kind {
        ValueType::Text | ValueType::TextWithVariables => json!({"type": ["string", "number", "boolean"]}),
        ValueType::Bool => json!({"type": "boolean"}),
        ValueType::Integer(least) => {
            json!({"type": "integer", "minimum": least, "maximum": super::MAX_INTEGER})
        }
        ValueType::Number(least, most) if most.is_finite() => {
            json!({"type": "number", "minimum": least, "maximum": most})
        }
        ValueType::Number(least, _) => json!({"type": "number", "minimum": least}),
        ValueType::Duration => json!({"type": ["string", "integer"], "examples": ["30s", "5m", "1h30m"]}),
        ValueType::Keyword(words) => {
            // YAML reads some of these words as true and false.
            let taken = [("on", true), ("off", false)].into_iter().filter(|(word, _)| words.contains(word));
            let all: Vec<Value> =
                words.iter().map(|word| json!(word)).chain(taken.map(|(_, value)| json!(value))).collect();
            json!({"enum": all})
        }
        ValueType::Texts | ValueType::Names => {
            json!({"anyOf": [{"type": "array", "items": {"type": ["string", "number", "boolean"]}}, {"type": "string"}]})
        }
        ValueType::List(item) => json!({"type": "array", "items": value_schema(item, defs)}),
        ValueType::Map(item) => json!({"type": "object", "additionalProperties": value_schema(item, defs)}),
        ValueType::Object(object) => schema_ref(object, defs),
        ValueType::AnyOf(kinds) => {
            json!({"anyOf": kinds.iter().map(|kind| value_schema(kind, defs)).collect::<Vec<_>>()})
        }
        ValueType::Toolset => {
            if !defs.contains_key("Toolset") {
                defs.insert("Toolset".into(), Value::Null);
                let shape = toolset(defs);
                defs.insert("Toolset".into(), shape);
            }
            json!({"$ref": "#/$defs/Toolset"})
        }
        ValueType::Commands => {
            let one = json!({"anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"description": {"type": "string"}, "instruction": {"type": "string"}}, "additionalProperties": false},
            ]});
            let map = json!({"type": "object", "additionalProperties": one});
            json!({"anyOf": [map, {"type": "array", "items": map}]})
        }
        ValueType::Any => json!({}),
    }
}

/// The schema of a toolset: the keys of each type. Unknown types are allowed, because they are skipped.
fn toolset(defs: &mut Map<String, Value>) -> Value {
    let names: Vec<&str> = TOOLSETS.iter().map(|(name, _)| *name).collect();
    let cases: Vec<Value> = TOOLSETS
        .iter()
        .map(|(name, what)| {
            json!({
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": schema_ref(what, defs),
            })
        })
        .collect();
    json!({
        "type": "object",
        "description": "A group of tools.",
        "properties": {"type": {"anyOf": [{"enum": names}, {"type": "string"}]}},
        "required": ["type"],
        "allOf": cases,
    })
}
