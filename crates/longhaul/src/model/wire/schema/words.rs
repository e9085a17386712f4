//! The types and values of a schema, and their description in words.

use serde_json::{Map, Value};

/// The maximum number of bytes of a keyword in a description.
const LONGEST_NOTE: usize = 240;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// The types that a schema names, by their standard names.
pub(super) fn types(map: &Map<String, Value>, notes: &mut Vec<String>) -> Vec<String> {
    let named = match map.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut kinds: Vec<String> = Vec::new();
    for name in named {
        let kind = match name.to_ascii_lowercase().as_str() {
            "int" | "int32" | "int64" => "integer".to_owned(),
            "float" | "double" => "number".to_owned(),
            "bool" => "boolean".to_owned(),
            "str" => "string".to_owned(),
            other => other.to_owned(),
        };
        if !TYPES.contains(&kind.as_str()) {
            notes.push(format!("(type: {})", bounded(name)));
        } else if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// The types of a schema that does not name any: several only if its values have several types.
pub(super) fn inferred(map: &Map<String, Value>) -> Vec<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    if let Some(values) = values(map) {
        let mut kinds = Vec::new();
        for kind in values.into_iter().map(kind_of) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.contains(&"number") {
            kinds.retain(|kind| *kind != "integer");
        }
        return kinds;
    }
    if has(&["properties", "required", "additionalProperties", "patternProperties", "propertyNames"]) {
        vec!["object"]
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]) {
        vec!["array"]
    } else if has(&["minLength", "maxLength", "pattern", "format"]) {
        vec!["string"]
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        vec!["number"]
    } else {
        Vec::new()
    }
}

/// The values that a schema lists.
pub(super) fn values(map: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (map.get("const"), map.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => Some(vec![only]),
        (None, Some(all)) if !all.is_empty() => Some(all.iter().collect()),
        (None, _) => None,
    }
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(all) if !all.is_empty() => Some(all),
        _ => None,
    }
}

pub(super) fn said(map: &Map<String, Value>) -> Option<String> {
    map.get("description").and_then(Value::as_str).map(str::to_owned)
}

pub(super) fn described(words: String) -> Map<String, Value> {
    Map::from_iter([("description".to_owned(), Value::String(words))])
}

pub(super) fn describe(map: &mut Map<String, Value>, said: Option<String>, notes: &[String]) {
    let words = said.into_iter().chain(notes.iter().cloned()).collect::<Vec<_>>().join(" ");
    if !words.is_empty() {
        map.insert("description".to_owned(), Value::String(words));
    }
}

pub(super) fn note(keyword: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("({keyword}: {})", bounded(text)),
        value => format!("({keyword}: {})", bounded(&value.to_string())),
    }
}

pub(super) fn bounded(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(LONGEST_NOTE).collect();
    short.push('…');
    short
}

pub(super) fn is_short_key(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(fine)
}
