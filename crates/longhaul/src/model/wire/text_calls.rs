//! Parses tool calls that a small model writes as text.
//!
//! When in doubt, it is text. A reply counts as calls only if it has no real ones and contains *nothing but*
//! calls: JSON objects that name an offered tool and hold only a call, bare, in code fences, or in the tags
//! that models are trained on. Words before the calls are allowed only if such tags follow, outside of any
//! code fence: a model that explains how to call a tool shows an example, and does not call it.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::tool_names::resolve_tool_name;
use crate::message::Call;
use crate::model::ToolSpec;

/// The text of a reply, and the calls written after it.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCalls<'a> {
    /// The text before the calls.
    pub text: &'a str,
    /// The calls.
    pub calls: Vec<Call>,
}

/// Whether there is a tool of this name.
type IsKnownTool<'a> = &'a dyn Fn(&str) -> bool;

/// The tags that models put around a call.
const TAGS: [(&str, &str); 3] =
    [("<tool_call>", "</tool_call>"), ("<function_call>", "</function_call>"), ("<tools>", "</tools>")];
/// The prefixes of replies that are nothing but calls.
const BEGINNINGS: [&str; 3] = ["<|python_tag|>", "[TOOL_CALLS]", "functools"];

/// The calls in a text, if the text is there to make them. `None` if in doubt.
pub fn parse_text_calls<'a>(text: &'a str, tools: &[Arc<ToolSpec>]) -> Option<TextCalls<'a>> {
    if tools.is_empty() {
        return None;
    }
    calls_of(text, &|name| resolve_tool_name(name, tools).is_some())
}

/// Whether a text is nothing but calls of such tools.
pub(crate) fn is_only_calls(text: &str, tools: &dyn Fn(&str) -> bool) -> bool {
    calls_of(text, tools).is_some_and(|found| found.text.trim().is_empty())
}

fn calls_of<'a>(text: &'a str, tools: IsKnownTool<'_>) -> Option<TextCalls<'a>> {
    // Skip parsing if there is no JSON.
    if !text.contains(['{', '[']) {
        return None;
    }
    let text = text.trim();
    let tagged = TAGS.iter().filter_map(|(open, close)| Some((text.find(open)?, *open, *close)));
    let Some((at, open, close)) = tagged.min_by_key(|(at, ..)| *at) else {
        let bare = BEGINNINGS.iter().find_map(|beginning| text.strip_prefix(beginning));
        return found("", &[bare.unwrap_or(text)], tools);
    };
    let (said, rest) = text.split_at(at);
    if said.contains("```") {
        return None;
    }
    let parts: Vec<&str> = rest.split(open).skip(1).map(|part| strip(part, close)).collect();
    found(said, &parts, tools)
}

fn found<'a>(said: &'a str, parts: &[&str], tools: IsKnownTool<'_>) -> Option<TextCalls<'a>> {
    let mut calls = Vec::new();
    for part in parts {
        for json in fenced(part.trim())? {
            if !json.starts_with(['{', '[']) {
                return None;
            }
            for value in serde_json::Deserializer::from_str(json).into_iter::<Value>() {
                several(&value.ok()?, tools, &mut calls)?;
            }
        }
    }
    (!calls.is_empty()).then_some(TextCalls { text: said.trim_end(), calls })
}

/// The contents of the code fences in a text that has nothing else; the text itself if there are none.
fn fenced(text: &str) -> Option<Vec<&str>> {
    if !text.starts_with("```") {
        return (!text.contains("```")).then(|| vec![text]);
    }
    let mut inside = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (language, after) = rest.strip_prefix("```")?.split_once('\n')?;
        if language.contains(['{', '[']) {
            return None;
        }
        // An unclosed fence ends with the text.
        let (json, after) = after.split_once("```").unwrap_or((after, ""));
        inside.push(json.trim());
        rest = after.trim_start();
    }
    Some(inside)
}

fn strip<'a>(part: &'a str, close: &str) -> &'a str {
    let part = part.trim();
    part.strip_suffix(close).unwrap_or(part)
}

/// Collects a call, a list of calls, or an object with such a list.
fn several(value: &Value, tools: IsKnownTool<'_>, calls: &mut Vec<Call>) -> Option<()> {
    match value {
        Value::Array(list) => list.iter().try_for_each(|one| several(one, tools, calls)),
        Value::Object(object) => {
            if let (1, Some(list @ Value::Array(_))) = (object.len(), object.get("tool_calls")) {
                return several(list, tools, calls);
            }
            calls.push(call(object, tools, calls.len())?);
            Some(())
        }
        _ => None,
    }
}

fn call(object: &Map<String, Value>, tools: IsKnownTool<'_>, at: usize) -> Option<Call> {
    const NAMES: [&str; 4] = ["name", "tool", "tool_name", "function"];
    const ARGUMENTS: [&str; 5] = ["arguments", "parameters", "args", "input", "tool_input"];
    let first =
        |object: &Map<String, Value>, keys: &[&str]| keys.iter().find_map(|key| object.get(*key).cloned());
    let known = |key: &String| {
        matches!(key.as_str(), "id" | "type")
            || NAMES.contains(&key.as_str())
            || ARGUMENTS.contains(&key.as_str())
    };
    if !object.keys().all(known) {
        return None;
    }
    let inner = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let name = first(inner, &NAMES)?;
    let tool = name.as_str().filter(|name| tools(name))?;
    let arguments = match first(inner, &ARGUMENTS)? {
        Value::String(json) => json,
        Value::Object(object) => serde_json::to_string(&object).ok()?,
        _ => return None,
    };
    // A string counts only if it holds a JSON object.
    serde_json::from_str::<Map<String, Value>>(&arguments).ok()?;
    Some(Call { id: format!("call_{at}"), tool: tool.to_owned(), arguments })
}

#[cfg(test)]
#[path = "text_calls_tests.rs"]
mod tests;
