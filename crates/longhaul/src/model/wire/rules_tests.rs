//! What goes to providers, held against the rules that they publish: a conversation of several turns with two parallel calls,
//! thinking, odd names, a structured answer, and tools of MCP servers with awkward schemas, in all four families.
//!
//! The rules are written here as data: which keywords a schema may have, which fields a message must have. They are those of
//! OpenAI's guides "Structured Outputs" and "Function calling" and of what its API answers 400 to, of Anthropic's "Tool use" and
//! "Structured outputs", and of Google's reference of `FunctionDeclaration` and `responseJsonSchema`.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::openai_chat::{OpenAiChat, Quirks};
use super::openai_responses::OpenAiResponses;
use super::testing::{call, said, text, thought, user};
use super::{Anthropic, Gemini, Memo, Wire};
use crate::id::{AgentName, TaskKey};
use crate::message::{Message, Reply, ToolResult};
use crate::model::settings::{ModelSettings, StructuredOutput, Thinking};
use crate::model::{Request, ToolSpec};

/// The rules of a provider for schemas.
struct Rules {
    keywords: &'static [&'static str],
    formats: &'static [&'static str],
    /// Every schema names its type, or is an `anyOf` that stands alone.
    plain: bool,
    /// Every object has `additionalProperties: false`.
    closed: bool,
    /// Every property is required.
    all_required: bool,
}

const COMMON: &[&str] = &[
    "type",
    "description",
    "title",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "anyOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
    "format",
];
const STRING_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

fn tool_rules(family: &str) -> Rules {
    match family {
        "gemini" => Rules {
            keywords: &[
                "type",
                "description",
                "title",
                "enum",
                "properties",
                "required",
                "additionalProperties",
                "items",
                "minItems",
                "maxItems",
                "anyOf",
                "minimum",
                "maximum",
                "format",
            ],
            formats: &["date-time", "date", "time"],
            plain: true,
            closed: false,
            all_required: false,
        },
        _ => Rules {
            keywords: &[
                "type",
                "description",
                "title",
                "default",
                "enum",
                "const",
                "properties",
                "required",
                "additionalProperties",
                "items",
                "minItems",
                "maxItems",
                "anyOf",
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "exclusiveMaximum",
                "multipleOf",
                "minLength",
                "maxLength",
                "pattern",
                "format",
            ],
            formats: STRING_FORMATS,
            plain: false,
            closed: false,
            all_required: false,
        },
    }
}

fn answer_rules(family: &str) -> Rules {
    match family {
        "gemini" => tool_rules("gemini"),
        "anthropic" => Rules {
            keywords: &[
                "type",
                "description",
                "title",
                "enum",
                "const",
                "properties",
                "required",
                "additionalProperties",
                "items",
                "minItems",
                "anyOf",
                "format",
            ],
            formats: &[
                "date-time",
                "time",
                "date",
                "duration",
                "email",
                "hostname",
                "uri",
                "ipv4",
                "ipv6",
                "uuid",
            ],
            plain: false,
            closed: true,
            all_required: false,
        },
        _ => Rules {
            keywords: COMMON,
            formats: STRING_FORMATS,
            plain: false,
            closed: true,
            all_required: true,
        },
    }
}

/// Holds a schema against the rules.
fn hold(schema: &Value, rules: &Rules, at: &str) {
    let map = schema.as_object().unwrap_or_else(|| panic!("{at}: not an object: {schema}"));
    for (keyword, value) in map {
        assert!(rules.keywords.contains(&keyword.as_str()), "{at}: keyword {keyword}");
        match keyword.as_str() {
            "format" => assert!(rules.formats.contains(&value.as_str().unwrap()), "{at}: format {value}"),
            "enum" => {
                let all = value.as_array().unwrap();
                assert!(!all.is_empty(), "{at}");
                if rules.plain {
                    assert!(all.iter().all(|v| v.is_string() && v != "") || all.iter().all(Value::is_number));
                }
            }
            "required" => {
                let names: Vec<&str> =
                    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
                assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{at}: twice");
                for name in names {
                    assert!(map["properties"].get(name).is_some(), "{at}: {name} is required and not there");
                }
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                assert!(value.is_number(), "{at}")
            }
            "description" | "title" | "pattern" => assert!(value.is_string(), "{at}"),
            _ => {}
        }
    }
    let kinds: Vec<&str> = match &map.get("type") {
        None => Vec::new(),
        Some(Value::Array(all)) => all.iter().map(|kind| kind.as_str().unwrap()).collect(),
        Some(kind) => vec![kind.as_str().unwrap()],
    };
    let known = ["string", "number", "integer", "boolean", "object", "array", "null"];
    assert!(kinds.iter().all(|kind| known.contains(kind)), "{at}: {kinds:?}");
    if rules.plain {
        assert!(kinds.iter().filter(|kind| **kind != "null").count() <= 1, "{at}: {kinds:?}");
        match map.get("anyOf") {
            Some(_) => assert_eq!(map.len(), 1, "{at}: beside anyOf: {schema}"),
            None => assert!(!kinds.is_empty(), "{at}: no type: {schema}"),
        }
    }
    if kinds.contains(&"object") {
        if !rules.plain {
            assert!(map["properties"].is_object(), "{at}: an object without properties");
        }
        if rules.closed {
            assert_eq!(map["additionalProperties"], false, "{at}");
        }
    }
    if kinds.contains(&"array") {
        assert!(map["items"].is_object(), "{at}: an array without items");
    }
    for (name, inner) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        hold(inner, rules, &format!("{at}.{name}"));
        if rules.all_required {
            assert!(map["required"].as_array().unwrap().iter().any(|one| one == name), "{at}.{name}");
        }
    }
    for (n, inner) in map.get("anyOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
        hold(inner, rules, &format!("{at}|{n}"));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get(key).filter(|inner| inner.is_object()) {
            hold(inner, rules, &format!("{at}/{key}"));
        }
    }
}

/// The schema of a tool's arguments: that of an object, and nothing else at the top.
fn hold_tool(name: &str, parameters: &Value, family: &str) {
    assert_eq!(parameters["type"], "object", "{family} {name}");
    for keyword in ["anyOf", "oneOf", "allOf", "enum", "not", "$ref"] {
        assert!(parameters.get(keyword).is_none(), "{family} {name}: {keyword} at the top");
    }
    hold(parameters, &tool_rules(family), &format!("{family} {name}"));
}

fn hold_name(name: &str) {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    assert!((1..=64).contains(&name.len()) && name.chars().all(fine), "{name:?}");
    assert!(name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), "{name:?}");
}

/// Tools as MCP servers have them.
fn awkward() -> Vec<Arc<ToolSpec>> {
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

fn conversation() -> Vec<Message> {
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
        said(vec![text("Half way.")]),
        user("Go on."),
    ]
}

fn shape(strict: bool) -> StructuredOutput {
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

fn body_of(
    wire: &dyn Wire,
    model: &str,
    tools: &[Arc<ToolSpec>],
    output: Option<&StructuredOutput>,
) -> Value {
    let settings = ModelSettings {
        model: model.into(),
        thinking: Some(Thinking::Effort("low".into())),
        ..ModelSettings::default()
    };
    let (agent, memo, messages) = (AgentName::from("worker"), Memo::default(), conversation());
    let task = TaskKey::chosen("test").candidates().next().unwrap();
    let ask = |messages: &[Message]| {
        let request = Request {
            task,
            agent: &agent,
            system: "Be brief.",
            messages,
            tools,
            output,
            turn: 0,
            retry: 0,
            memo: &memo,
        };
        serde_json::from_slice::<Value>(&wire.body(&request, &settings, &memo).unwrap()).unwrap()
    };
    // Turn by turn, as it grows, and what is remembered is the same as what is written at once.
    for end in [1, 4, 9] {
        ask(&messages[..end]);
    }
    let body = ask(&messages);
    // Whoever asked four times is warned once of a tool that is left out.
    let (warnings, left_out) =
        (memo.take_warnings(), tools.iter().filter(|tool| tool.name == CANNOT).count());
    assert_eq!(warnings.len(), left_out, "{warnings:?}");
    assert!(
        warnings.iter().all(|text| text.contains(CANNOT) && text.contains("not offered")),
        "{warnings:?}"
    );
    body
}

const CANNOT: &str = "not_an_object";

fn families() -> [(&'static str, &'static str, Box<dyn Wire>); 4] {
    [
        ("openai", "gpt-5", Box::new(OpenAiChat::new(Quirks::OPENAI))),
        ("responses", "gpt-5.4", Box::new(OpenAiResponses::new())),
        ("anthropic", "claude-sonnet-4-5", Box::new(Anthropic)),
        ("gemini", "gemini-3-pro", Box::new(Gemini)),
    ]
}

/// The tools of a body: name, description, schema.
fn tools_of(family: &str, body: &Value) -> Vec<(String, String, Value)> {
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

#[test]
fn tools_of_mcp_servers_are_what_each_provider_takes() {
    let tools = awkward();
    for (family, model, wire) in families() {
        let offered = tools_of(family, &body_of(&*wire, model, &tools, None));
        assert_eq!(offered.len(), tools.len() - 1, "{family}: only {CANNOT} is left out");
        let mut names = HashSet::new();
        for (name, description, parameters) in &offered {
            hold_name(name);
            hold_tool(name, parameters, family);
            assert!(names.insert(name.clone()) && name != CANNOT && description.starts_with("Does "));
        }
        let of = |name: &str| offered.iter().find(|one| one.0 == name).unwrap();
        // The meaning is kept, where it has to be in words.
        let (_, words, folded) = of("root_one_of");
        for name in ["kind", "x", "y"] {
            assert!(folded["properties"].get(name).is_some(), "{family}: {folded}");
        }
        assert_eq!(folded["required"], json!(["kind"]), "{family}");
        assert!(words.contains("kind = \"a\", x; or kind = \"b\", y"), "{family}: {words}");
        assert!(of("root_any_of").1.contains("route; or file"), "{family}: {}", of("root_any_of").1);
        let (_, _, all) = of("root_all_of");
        assert_eq!(all["required"].as_array().unwrap().len(), 2, "{family}: {all}");
        assert!(all["properties"]["id"]["description"].as_str().unwrap().contains("format: uri"));
        let (_, words, keywords) = of("keywords");
        assert!(words.contains("minProperties: 1"), "{family}: {words}");
        let told = |name: &str| keywords["properties"][name].to_string();
        assert!(
            told("mail").contains("idn-email") && told("mail").contains("(?!x)"),
            "{family}: {}",
            told("mail")
        );
        assert!(told("if").contains("minLength") && told("not").contains("not: "), "{family}");
        assert!(told("far").contains("https://example.com/schema.json"), "{family}: {}", told("far"));
        assert_eq!(keywords["required"], json!(["draft3"]), "{family}");
        assert!(of("tree").2.to_string().contains("again as above: Node"), "{family}: {}", of("tree").2);
    }
}

#[test]
fn a_structured_answer_is_asked_for_in_each_familys_own_form() {
    let shape = shape(true);
    for (family, model, wire) in families() {
        let body = body_of(&*wire, model, &awkward(), Some(&shape));
        let (schema, name) = match family {
            "openai" => {
                assert_eq!(body["response_format"]["type"], "json_schema");
                let format = &body["response_format"]["json_schema"];
                assert_eq!(format["strict"], true);
                (format["schema"].clone(), format["name"].as_str().unwrap().to_owned())
            }
            "responses" => {
                let format = &body["text"]["format"];
                assert_eq!((&format["type"], &format["strict"]), (&json!("json_schema"), &json!(true)));
                (format["schema"].clone(), format["name"].as_str().unwrap().to_owned())
            }
            "anthropic" => {
                assert_eq!(body["output_config"]["format"]["type"], "json_schema");
                (body["output_config"]["format"]["schema"].clone(), "x".to_owned())
            }
            _ => {
                assert_eq!(body["generationConfig"]["responseMimeType"], "application/json");
                (body["generationConfig"]["responseJsonSchema"].clone(), "x".to_owned())
            }
        };
        hold_name(&name);
        hold(&schema, &answer_rules(family), family);
        assert_eq!(schema["properties"]["when"]["properties"]["year"]["type"], "integer", "{family}");
    }
}

/// One that cannot be held to it is told of it; a schema that a provider cannot say strictly is not refused.
#[test]
fn who_cannot_be_held_to_a_schema_gets_it_in_words() {
    let shape = shape(true);
    let chat = |provider: &str| OpenAiChat::new(Quirks::of(provider));
    let words = "It fits the JSON schema `The answer!` (What was found.):\n{";
    let tools = awkward();
    for (provider, tools, in_words) in [
        ("deepseek", &tools[..], true),
        ("groq", &[], true),
        ("llamacpp", &tools, true),
        ("ollama", &tools, true),
        ("llamacpp", &[], false),
        ("mistral", &tools, false),
    ] {
        let body = body_of(&chat(provider), "m", tools, Some(&shape));
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(system.contains(words), in_words, "{provider}: {system}");
        assert_eq!(body.get("response_format").is_none(), in_words, "{provider}");
    }
    for (wire, model) in
        [(&Anthropic as &dyn Wire, "claude-sonnet-4-0"), (&Anthropic, "qwen2.5"), (&Gemini, "gemini-2.5-pro")]
    {
        let body = body_of(wire, model, &tools, Some(&shape));
        assert!(body.to_string().contains("It fits the JSON schema `The answer!`"), "{model}");
        assert!(
            body["output_config"].get("format").is_none()
                && body["generationConfig"].get("responseJsonSchema").is_none()
        );
    }
    let optional = StructuredOutput {
        schema: json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}),
        ..shape.clone()
    };
    let format =
        body_of(&chat("openai"), "gpt-5", &[], Some(&optional))["response_format"]["json_schema"].clone();
    assert_eq!((&format["strict"], &format["schema"]["required"]), (&json!(false), &json!(["a"])));
    let list = StructuredOutput { schema: json!({"type": "array", "items": {"type": "string"}}), ..shape };
    let body = body_of(&OpenAiResponses::new(), "gpt-5", &[], Some(&list));
    assert!(body.get("text").is_none() && body["instructions"].as_str().unwrap().contains("JSON schema"));
}

#[test]
fn names_and_ids_of_calls_fit_and_belong_together() {
    let tools = awkward();
    for (family, model, wire) in families() {
        let body = body_of(&*wire, model, &tools, None);
        // Calls and results, in order: (name, id).
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        match family {
            "openai" => {
                for message in body["messages"].as_array().unwrap() {
                    for call in message["tool_calls"].as_array().into_iter().flatten() {
                        assert!(call["function"]["arguments"].is_string());
                        calls.push((call["function"]["name"].clone(), call["id"].clone()));
                    }
                    if message["role"] == "tool" {
                        results.push(message["tool_call_id"].clone());
                        assert_ne!(message["content"], "");
                    }
                }
            }
            "responses" => {
                for item in body["input"].as_array().unwrap() {
                    match item["type"].as_str().unwrap() {
                        "function_call" => calls.push((item["name"].clone(), item["call_id"].clone())),
                        "function_call_output" => results.push(item["call_id"].clone()),
                        "reasoning" => {
                            assert!(item["encrypted_content"].is_string() && item["summary"].is_array())
                        }
                        _ => {}
                    }
                }
            }
            "anthropic" => {
                for block in
                    body["messages"].as_array().unwrap().iter().flat_map(|m| m["content"].as_array().unwrap())
                {
                    match block["type"].as_str().unwrap() {
                        "tool_use" => {
                            assert!(block["input"].is_object());
                            calls.push((block["name"].clone(), block["id"].clone()));
                        }
                        "tool_result" => results.push(block["tool_use_id"].clone()),
                        "thinking" => assert!(block["signature"].is_string()),
                        _ => {}
                    }
                }
            }
            _ => {
                for part in
                    body["contents"].as_array().unwrap().iter().flat_map(|m| m["parts"].as_array().unwrap())
                {
                    if let Some(call) = part.get("functionCall") {
                        assert!(call["args"].is_object());
                        calls.push((call["name"].clone(), call["id"].clone()));
                    }
                    if let Some(result) = part.get("functionResponse") {
                        assert!(result["response"].is_object());
                        hold_name(result["name"].as_str().unwrap());
                        results.push(result["id"].clone());
                    }
                }
            }
        }
        assert_eq!(calls.len(), 6, "{family}");
        let ids: Vec<Value> = calls.iter().map(|(_, id)| id.clone()).collect();
        assert_eq!(ids, results, "{family}: each call has its result");
        calls.iter().for_each(|(name, _)| hold_name(name.as_str().unwrap()));
        let names: HashSet<&str> = calls.iter().map(|(name, _)| name.as_str().unwrap()).collect();
        assert_eq!(names.len(), 6, "{family}: no two names become one");
        // A call of a tool that was offered has the very name that it was offered by.
        let offered = tools_of(family, &body);
        assert!(offered.iter().any(|tool| json!(tool.0) == calls[1].0), "{family}: {:?}", calls[1]);
    }
}
