//! What the derived description of the API does not say: who may use it, how large numbers may be, and which fields go
//! together.

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// The description as JSON.
pub(super) fn as_json(api: &OpenApi) -> Value {
    let mut json = serde_json::to_value(api).unwrap_or_default();
    describe_numbers(&mut json);
    for (schema, conditions) in
        [("LetterRequest", letter_conditions()), ("AnswerRequest", answer_conditions())]
    {
        if let Some(Value::Object(fields)) = json.pointer_mut(&format!("/components/schemas/{schema}")) {
            fields.insert("oneOf".to_owned(), conditions);
        }
    }
    describe_access(&mut json);
    json
}

/// Every request needs a token, but for the sign of life.
fn describe_access(json: &mut Value) {
    json["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    json["security"] = json!([{ "token": [] }]);
    json["paths"]["/healthz"]["get"]["security"] = json!([]);
}

/// All whole numbers are unsigned, of 32 or 64 bits.
fn describe_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if is_integer(fields) {
                let bits = match fields.get("format").and_then(Value::as_str) {
                    Some("int32") => 32,
                    _ => 64,
                };
                fields.insert("format".to_owned(), json!(format!("uint{bits}")));
                fields.entry("minimum").or_insert(json!(0));
                let most = if bits == 32 { u64::from(u32::MAX) } else { u64::MAX };
                fields.entry("maximum").or_insert(json!(most));
            }
            fields.values_mut().for_each(describe_numbers);
        }
        Value::Array(values) => values.iter_mut().for_each(describe_numbers),
        _ => {}
    }
}

fn is_integer(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::String(name)) => name == "integer",
        Some(Value::Array(names)) => names.contains(&json!("integer")),
        _ => false,
    }
}

/// A letter that waits until the task is idle changes no budget.
fn letter_conditions() -> Value {
    json!([
        { "properties": { "when_idle": { "const": false } } },
        { "properties": { "when_idle": { "const": true }, "budget": { "maxProperties": 0 } }, "required": ["when_idle"] },
    ])
}

/// An answer is a text or a decision, with what belongs to it.
fn answer_conditions() -> Value {
    let kind = |required: &[&str], set: &[(&str, Value)]| {
        let unset =
            ["text", "decision", "reason", "scope", "pattern"].map(|name| (name, json!({ "type": "null" })));
        let fields: Map<String, Value> = unset
            .into_iter()
            .chain(set.iter().cloned())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        json!({ "properties": fields, "required": required })
    };
    let decides = |decision: &str| ("decision", json!({ "const": decision }));
    json!([
        kind(&["text"], &[("text", json!({ "type": "string" }))]),
        kind(&["decision"], &[decides("approve")]),
        kind(&["decision"], &[decides("decline")]),
        kind(&["decision"], &[decides("deny"), ("reason", json!({ "type": ["string", "null"] }))]),
        kind(&["decision"], &[decides("always"), ("scope", json!({}))]),
        kind(&["decision", "pattern"], &[decides("always"), ("pattern", json!({ "type": "string" }))]),
    ])
}
