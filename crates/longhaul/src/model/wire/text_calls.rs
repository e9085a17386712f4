//! Calls that a small model writes as text.

use std::sync::Arc;

use serde_json::Value;

use crate::message::Call;
use crate::model::ToolSpec;

/// The calls that a text consists of, if it consists of nothing else: JSON that names one of these tools, bare, in a
/// code fence or in `<tool_call>` tags. Anything less plain is just text.
pub fn text_calls(text: &str, tools: &[Arc<ToolSpec>]) -> Option<Vec<Call>> {
    let text = text.trim();
    let mut found = Vec::new();
    if text.starts_with("<tool_call>") {
        for part in text.split("<tool_call>").skip(1) {
            let part = part.trim();
            found.push(unfenced(part.strip_suffix("</tool_call>").unwrap_or(part)));
        }
    } else {
        found.push(unfenced(text.strip_prefix("[TOOL_CALLS]").unwrap_or(text)));
    }
    let mut calls = Vec::new();
    for json in found {
        // Nothing else is worth the parsing.
        if !json.starts_with(['{', '[']) {
            return None;
        }
        for value in serde_json::Deserializer::from_str(json).into_iter::<Value>() {
            match value.ok()? {
                Value::Array(several) => {
                    for one in &several {
                        calls.push(call(one, tools, calls.len())?);
                    }
                }
                one => calls.push(call(&one, tools, calls.len())?),
            }
        }
    }
    (!calls.is_empty()).then_some(calls)
}

/// What is in a code fence, if the text is one.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((language, inner)) if !language.contains(['{', '[']) && !inner.contains("```") => inner.trim(),
        _ => text,
    }
}

fn call(value: &Value, tools: &[Arc<ToolSpec>], at: usize) -> Option<Call> {
    const KEYS: [&str; 6] = ["name", "arguments", "parameters", "id", "type", "function"];
    let object = value.as_object()?;
    if !object.keys().all(|key| KEYS.contains(&key.as_str())) {
        return None;
    }
    let inner = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let name = inner.get("name").or_else(|| object.get("function"))?.as_str()?;
    let tool = tools.iter().find(|tool| tool.name == name)?;
    let arguments = match inner.get("arguments").or_else(|| inner.get("parameters"))? {
        Value::String(json) => json.clone(),
        Value::Object(object) => serde_json::to_string(object).ok()?,
        _ => return None,
    };
    // A string counts only if an object is written in it.
    serde_json::from_str::<serde_json::Map<String, Value>>(&arguments).ok()?;
    Some(Call { id: format!("call_{at}"), tool: tool.name.clone(), arguments })
}
