//! The JSON schema of team files, made of the same tables that the reader reads.

use serde_json::{Map, Value, json};

use super::{Object, Rule, Standing, TEAM, TOOLSETS, Type};

/// The JSON schema of team files, for editors.
pub fn schema() -> Value {
    let mut defs = Map::new();
    let mut root = object(&TEAM, &mut defs);
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        root.insert("title".into(), "Longhaul team file".into());
        root.insert("$defs".into(), Value::Object(defs));
    }
    root
}

fn object(object: &'static Object, defs: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in object.keys {
        let mut shape = of(&key.kind, defs);
        if let Some(fields) = shape.as_object_mut() {
            fields.insert("description".into(), key.doc.into());
            if !matches!(key.standing, Standing::Used) {
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
            Rule::Needs(keys) => shape["required"] = json!(keys),
            Rule::OneOf(keys) => all.push(json!({"oneOf": required(keys)})),
            Rule::AtMostOne(keys) => all.push(json!({"not": {"required": keys}})),
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

fn refer(what: &'static Object, defs: &mut Map<String, Value>) -> Value {
    if !defs.contains_key(what.id) {
        defs.insert(what.id.into(), Value::Null);
        let shape = object(what, defs);
        defs.insert(what.id.into(), shape);
    }
    json!({"$ref": format!("#/$defs/{}", what.id)})
}

fn of(kind: &'static Type, defs: &mut Map<String, Value>) -> Value {
    match kind {
        Type::Text | Type::Variables => json!({"type": ["string", "number", "boolean"]}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Whole(least) => json!({"type": "integer", "minimum": least, "maximum": super::MOST}),
        Type::Number(least, most) if most.is_finite() => {
            json!({"type": "number", "minimum": least, "maximum": most})
        }
        Type::Number(least, _) => json!({"type": "number", "minimum": least}),
        Type::Time => json!({"type": ["string", "integer"], "examples": ["30s", "5m", "1h30m"]}),
        Type::Word(words) => {
            // YAML takes some words for true and false.
            let taken = [("on", true), ("off", false)].into_iter().filter(|(word, _)| words.contains(word));
            let all: Vec<Value> =
                words.iter().map(|word| json!(word)).chain(taken.map(|(_, value)| json!(value))).collect();
            json!({"enum": all})
        }
        Type::Texts | Type::Names => {
            json!({"anyOf": [{"type": "array", "items": {"type": ["string", "number", "boolean"]}}, {"type": "string"}]})
        }
        Type::List(item) => json!({"type": "array", "items": of(item, defs)}),
        Type::Map(item) => json!({"type": "object", "additionalProperties": of(item, defs)}),
        Type::Object(object) => refer(object, defs),
        Type::Either(kinds) => {
            json!({"anyOf": kinds.iter().map(|kind| of(kind, defs)).collect::<Vec<_>>()})
        }
        Type::Toolset => {
            if !defs.contains_key("Toolset") {
                defs.insert("Toolset".into(), Value::Null);
                let shape = toolset(defs);
                defs.insert("Toolset".into(), shape);
            }
            json!({"$ref": "#/$defs/Toolset"})
        }
        Type::Commands => {
            let one = json!({"anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"description": {"type": "string"}, "instruction": {"type": "string"}}, "additionalProperties": false},
            ]});
            let map = json!({"type": "object", "additionalProperties": one});
            json!({"anyOf": [map, {"type": "array", "items": map}]})
        }
        Type::Any => json!({}),
    }
}

/// A toolset: for each type the keys that it has. Types that are not known are skipped, so they are allowed here.
fn toolset(defs: &mut Map<String, Value>) -> Value {
    let names: Vec<&str> = TOOLSETS.iter().map(|(name, _)| *name).collect();
    let cases: Vec<Value> = TOOLSETS
        .iter()
        .map(|(name, what)| {
            json!({
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": refer(what, defs),
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
