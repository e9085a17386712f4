//! A conversation for all four families: several turns, two parallel calls, thinking of each family, odd
//! names, a structured answer, and tools of MCP servers with awkward schemas.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{call, request, said, text, thought, user};
use crate::message::{Message, Reply, ToolResult};
use crate::model::settings::{ModelSettings, StructuredOutput, Thinking};
use crate::model::wire::openai_chat::{OpenAiChat, Quirks};
use crate::model::wire::openai_responses::OpenAiResponses;
use crate::model::wire::{Anthropic, Gemini, WireCache, WireProtocol};
use crate::model::{ModelRequest, ToolSpec};

/// The tool of [`awkward`] whose schema no provider accepts.
pub(in super::super) const CANNOT: &str = "not_an_object";

/// Tools as MCP servers offer them.
pub(in super::super) fn awkward() -> Vec<Arc<ToolSpec>> {
    let tool = |name: &str, parameters: Value| {
        Arc::new(ToolSpec { name: name.into(), description: format!("Does {name}."), parameters })
    };
    vec![
        tool("bare_object", json!({"type": "object"})),
        tool("no_type", json!({"properties": {"a": {"description": "anything"}}, "required": ["a"]})),
        tool("nothing", Value::Null),
        tool("empty", json!({})),
        tool(
            "root_any_of",
            json!({"type": "object", "properties": {"route": {"type": "string"}, "file": {"type": "string"}},
                "anyOf": [{"required": ["route"]}, {"required": ["file"]}]}),
        ),
        tool(
            "root_one_of",
            json!({"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
                {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind", "y"]}]}),
        ),
        tool(
            "root_all_of",
            json!({"allOf": [
                {"$ref": "#/$defs/Base"},
                {"properties": {"extra": {"type": "boolean"}}, "required": ["extra"]}],
                "$defs": {"Base": {"type": "object", "properties": {"id": {"type": "string", "format": "uri"}}, "required": ["id"]}}}),
        ),
        tool(
            "array_without_items",
            json!({"type": "object", "properties": {
                "list": {"type": "array"}, "either": {"type": ["string", "array"]},
                "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
                "tuple": {"type": "array", "prefixItems": [{"type": "string"}]}}}),
        ),
        tool(
            "tree",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {"root": {"$ref": "#/definitions/Node"}},
                "definitions": {"Node": {"type": "object", "properties": {
                    "value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}}}}}}),
        ),
        tool(
            "keywords",
            json!({"type": "object", "additionalProperties": false, "minProperties": 1, "properties": {
                "mail": {"type": "string", "format": "idn-email", "pattern": "^(?!x).*$", "minLength": 3},
                "count": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "default": 5, "multipleOf": 2},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Maybe"},
                "word": {"enum": ["", "a", null]}, "mixed": {"enum": [1, "a", true]}, "only": {"const": 3},
                "map": {"type": "object", "additionalProperties": {"type": "string", "format": "uri"}},
                "props": {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
                "not": {"not": {"type": "string"}, "examples": [1, 2]},
                "odd": {"type": "any"}, "loud": {"type": "STRING"}, "draft3": {"type": "string", "required": true},
                "flag": true, "broken": "string", "if": {"if": {"type": "string"}, "then": {"minLength": 2}},
                "far": {"$ref": "https://example.com/schema.json"}, "lost": {"$ref": "#/$defs/Nowhere"}}}),
        ),
        tool("name with spaces.and/slashes", json!({"type": "object", "properties": {}})),
        tool(&"long".repeat(30), json!({"type": "object", "properties": {"a": {"type": "string"}}})),
        tool("not_an_object", json!({"type": "string"})),
    ]
}

pub(in super::super) fn conversation() -> Vec<Message> {
    let result = |call: &str, tool: &str, output: &str, is_error| {
        Message::Tool(ToolResult { call: call.into(), tool: tool.into(), output: output.into(), is_error })
    };
    let signed = |model: &str, blocks| {
        Message::Assistant(Arc::new(Reply { blocks, model: model.into(), ..Reply::default() }))
    };
    vec![
        user("Find both."),
        signed(
            "claude-sonnet-4-5",
            vec![
                thought("Two calls.", Some(json!({"type": "thinking", "signature": "s"}))),
                text("I look."),
                call("c1", "bare_object", "{}"),
                call("c2", "name with spaces.and/slashes", "{\"a\": 1}"),
            ],
        ),
        result("c1", "bare_object", "one", false),
        result("c2", "name with spaces.and/slashes", "", true),
        signed(
            "gpt-5",
            vec![
                thought("", Some(json!({"type": "reasoning", "summary": [], "encrypted_content": "e"}))),
                call("c3", "functions.alpha beta", "not json"),
                call("c4", "assistant<|channel|>commentary", ""),
                call("c5", "", "{}"),
                call("c6", &"y".repeat(90), "{}"),
            ],
        ),
        result("c3", "functions.alpha beta", "there is no such tool", true),
        result("c4", "assistant<|channel|>commentary", "there is no such tool", true),
        result("c5", "", "there is no such tool", true),
        result("c6", &"y".repeat(90), "there is no such tool", true),
        signed(
            "gemini-3-pro",
            vec![
                thought("", Some(json!({"thoughtSignature": "c2ln", "on": "call"}))),
                call("c7", "bare_object", "{}"),
            ],
        ),
        result("c7", "bare_object", "three", false),
        said(vec![text("Half way.")]),
        user("Go on."),
    ]
}

pub(in super::super) fn shape(strict: bool) -> StructuredOutput {
    StructuredOutput {
        name: "The answer!".into(),
        description: Some("What was found.".into()),
        schema: json!({"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {
                "city": {"type": "string", "minLength": 1},
                "when": {"$ref": "#/$defs/When"},
                "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}},
            "required": ["city", "when", "tags"],
            "$defs": {"When": {"type": "object", "properties": {"year": {"type": "integer", "minimum": 1900}}, "required": ["year"]}}}),
        strict,
    }
}

pub(in super::super) fn body_of(
    wire: &dyn WireProtocol,
    model: &str,
    tools: &[Arc<ToolSpec>],
    output: Option<&StructuredOutput>,
) -> Value {
    let settings = ModelSettings::new(model).thinking(Thinking::Effort("low".into()));
    bodies_of(wire, &settings, tools, output).pop().unwrap()
}

/// The bodies of the conversation as it grows turn by turn. A body from the cache equals a body built at
/// once.
pub(in super::super) fn bodies_of(
    wire: &dyn WireProtocol,
    settings: &ModelSettings,
    tools: &[Arc<ToolSpec>],
    output: Option<&StructuredOutput>,
) -> Vec<Value> {
    let (memo, messages) = (WireCache::default(), conversation());
    let ask = |end: usize| {
        let request = ModelRequest { output, ..request(&messages[..end], tools, &memo) };
        serde_json::from_slice::<Value>(&wire.request_body(&request, settings, &memo).unwrap()).unwrap()
    };
    let bodies = [1, 4, 9, 11, messages.len()].map(ask).to_vec();
    // A tool that is left out gives one warning, however many requests there are.
    let (warnings, left_out) =
        (memo.take_warnings(), tools.iter().filter(|tool| tool.name == CANNOT).count());
    assert_eq!(warnings.len(), left_out, "{warnings:?}");
    assert!(
        warnings.iter().all(|text| text.contains(CANNOT) && text.contains("not offered")),
        "{warnings:?}"
    );
    bodies
}

pub(in super::super) fn families() -> [(&'static str, &'static str, Box<dyn WireProtocol>); 4] {
    [
        ("openai", "gpt-5", Box::new(OpenAiChat::new(Quirks::OPENAI))),
        ("responses", "gpt-5.4", Box::new(OpenAiResponses::new())),
        ("anthropic", "claude-sonnet-4-5", Box::new(Anthropic)),
        ("gemini", "gemini-3-pro", Box::new(Gemini)),
    ]
}

/// The tools of a body: name, description, schema.
pub(in super::super) fn tools_of(family: &str, body: &Value) -> Vec<(String, String, Value)> {
    let take = |tool: &Value, schema: &str| {
        let parameters = tool.get(schema).cloned().unwrap_or(json!({"type": "object", "properties": {}}));
        let word = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        (word("name"), word("description"), parameters)
    };
    let all = body["tools"].as_array().unwrap();
    match family {
        "openai" => all.iter().map(|tool| take(&tool["function"], "parameters")).collect(),
        "responses" => all.iter().map(|tool| take(tool, "parameters")).collect(),
        "anthropic" => all.iter().map(|tool| take(tool, "input_schema")).collect(),
        _ => {
            let declared = all[0]["functionDeclarations"].as_array().unwrap();
            declared.iter().map(|tool| take(tool, "parametersJsonSchema")).collect()
        }
    }
}
