//! Checks captured bodies against what each provider publishes: the JSON schemas in `tests/published`,
//! written by hand from the provider's documents (each names its source), and the rules that a JSON schema
//! cannot express.

use serde_json::{Value, json};

use super::WireProtocol;
use super::openai_chat::{OpenAiChat, Quirks};
use super::openai_responses::OpenAiResponses;
use super::testing::conversation::{awkward, bodies_of, body_of, families, shape, tools_of};
use crate::model::settings::{ModelSettings, StructuredOutput, Thinking};

fn published(family: &str) -> jsonschema::Validator {
    let text = match family {
        "openai" => include_str!("../../../tests/published/openai_chat.json"),
        "responses" => include_str!("../../../tests/published/openai_responses.json"),
        "anthropic" => include_str!("../../../tests/published/anthropic.json"),
        _ => include_str!("../../../tests/published/gemini.json"),
    };
    jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
}

/// The schema of the answer in a body, and whether it is strict.
fn answer_of<'a>(family: &str, body: &'a Value) -> Option<(&'a Value, bool)> {
    let at = |path: &str| body.pointer(path);
    match family {
        "openai" => {
            let strict = at("/response_format/json_schema/strict") == Some(&json!(true));
            Some((at("/response_format/json_schema/schema")?, strict))
        }
        "responses" => Some((at("/text/format/schema")?, at("/text/format/strict") == Some(&json!(true)))),
        "anthropic" => Some((at("/output_config/format/schema")?, true)),
        _ => Some((at("/generationConfig/responseJsonSchema")?, false)),
    }
}

/// The counts of a schema.
#[derive(Debug, Default)]
struct Counts {
    properties: usize,
    optional: usize,
    unions: usize,
    depth: usize,
    values: usize,
    letters: usize,
}

fn count(schema: &Value, depth: usize, counts: &mut Counts) {
    counts.depth = counts.depth.max(depth);
    counts.unions += usize::from(schema.get("anyOf").is_some() || schema["type"].is_array());
    for value in schema["enum"].as_array().into_iter().flatten() {
        counts.values += 1;
        counts.letters += value.as_str().map_or(0, |text| text.chars().count());
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        counts.properties += 1;
        counts.letters += name.chars().count();
        counts.optional += usize::from(!required.contains(&json!(name)));
        count(inner, depth + usize::from(inner.get("properties").is_some()), counts);
    }
    for inner in schema["anyOf"].as_array().into_iter().flatten().chain(schema.get("items")) {
        count(inner, depth + usize::from(inner.get("properties").is_some()), counts);
    }
}

/// Rules for every schema that JSON Schema itself cannot express.
fn hold_schema(schema: &Value, all_required: bool, faults: &mut Vec<String>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    for name in &required {
        if !properties.contains_key(name.as_str().unwrap_or_default()) {
            faults.push(format!("{name} is required and not there"));
        }
    }
    if all_required && required.len() != properties.len() {
        faults.push(format!("not all of {:?} are required", properties.keys()));
    }
    let inner = schema["anyOf"].as_array().into_iter().flatten();
    let inner = inner.chain(["items", "additionalProperties"].iter().filter_map(|key| schema.get(*key)));
    for one in inner.chain(properties.values()).filter(|one| one.is_object()) {
        hold_schema(one, all_required, faults);
    }
}

/// The violations in a body.
fn faults(family: &str, body: &Value) -> Vec<String> {
    let wrong = published(family);
    let mut faults: Vec<String> =
        wrong.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect();
    if body.get("tools").is_some() {
        for (name, _, schema) in tools_of(family, body) {
            if let Err(error) = jsonschema::meta::validate(&schema) {
                faults.push(format!("{name}: no JSON schema: {error}"));
            }
            hold_schema(&schema, false, &mut faults);
        }
    }
    if let Some((schema, strict)) = answer_of(family, body) {
        if let Err(error) = jsonschema::meta::validate(schema) {
            faults.push(format!("no JSON schema: {error}"));
        }
        let openai = matches!(family, "openai" | "responses") && strict;
        hold_schema(schema, openai, &mut faults);
        let mut counts = Counts::default();
        count(schema, 1, &mut counts);
        // "Structured model outputs": limits on depth and size.
        let small = counts.properties <= 5_000
            && counts.depth <= 10
            && counts.values <= 1_000
            && counts.letters <= 120_000;
        // "Structured outputs": schema complexity limits. A schema with 16 unions was refused as too complex.
        let simple = counts.optional <= 24 && counts.unions < 16;
        if openai && !small || family == "anthropic" && !simple {
            faults.push(format!("too much: {counts:?}"));
        }
    }
    if family == "anthropic" && body.to_string().matches("\"cache_control\"").count() > 4 {
        faults.push("more than four marks of the cache".to_owned());
    }
    faults
}

fn hold(family: &str, model: &str, body: &Value) {
    let faults = faults(family, body);
    assert!(faults.is_empty(), "{family} {model}: {faults:#?}\n{body:#}");
}

#[test]
fn captured_bodies_are_what_each_provider_publishes() {
    let (strict, loose, tools) = (shape(true), shape(false), awkward());
    let efforts = |model: &str| match model {
        "gpt-4o" | "ft:gpt-4o-mini-2024-07-18:me::x" => vec![None],
        "claude-opus-5-5" | "gemini-3-pro" => {
            vec![None, Some(Thinking::Effort("high".into())), Some(Thinking::Adaptive)]
        }
        _ => vec![None, Some(Thinking::Off), Some(Thinking::Effort("low".into()))],
    };
    let more = |family: &str| match family {
        "openai" => vec!["gpt-5", "gpt-4o", "o4-mini", "ft:gpt-4o-mini-2024-07-18:me::x"],
        "responses" => vec!["gpt-5.4", "gpt-4o", "gpt-5.6-terra", "ft:gpt-4o-mini-2024-07-18:me::x"],
        "anthropic" => vec!["claude-sonnet-4-5", "claude-sonnet-4-0", "claude-opus-5-5", "claude-sonnet-5-5"],
        _ => vec!["gemini-3-pro", "gemini-2.5-flash"],
    };
    for (family, _, wire) in families() {
        for model in more(family) {
            for thinking in efforts(model) {
                let settings = ModelSettings { model: model.into(), thinking, ..ModelSettings::default() };
                for (tools, output) in [
                    (&tools[..], None),
                    (&tools, Some(&strict)),
                    (&[], Some(&strict)),
                    (&[], Some(&loose)),
                    (&[], None),
                ] {
                    for body in bodies_of(&*wire, &settings, tools, output) {
                        hold(family, model, &body);
                    }
                }
            }
        }
    }
}

fn answer(schema: Value) -> StructuredOutput {
    StructuredOutput { name: "answer".into(), description: None, schema, strict: true }
}

fn object(properties: impl Iterator<Item = (String, Value)>, required: bool) -> Value {
    let properties: serde_json::Map<_, _> = properties.collect();
    let names: Vec<&String> = if required { properties.keys().collect() } else { Vec::new() };
    json!({"type": "object", "required": names, "properties": properties, "additionalProperties": false})
}

/// Answer schemas, each of them unusual for some provider.
fn odd_answers() -> Vec<(&'static str, StructuredOutput)> {
    let named = |count: usize, schema: Value| (0..count).map(move |n| (format!("p{n}"), schema.clone()));
    let one = |schema: Value| answer(object([("a".to_owned(), schema)].into_iter(), true));
    let deep = (0..12)
        .fold(json!({"type": "string"}), |inner, _| object([("inner".to_owned(), inner)].into_iter(), true));
    let many: Vec<String> = (0..1_200).map(|n| format!("value {n}")).collect();
    let long: Vec<String> = (0..300).map(|n| format!("{n:0>60}")).collect();
    vec![
        ("optional", answer(object(named(25, json!({"type": "string"})), false))),
        ("unions", answer(object(named(16, json!({"type": ["string", "null"]})), true))),
        ("deep", answer(deep)),
        ("values", one(json!({"type": "string", "enum": many}))),
        ("long values", one(json!({"type": "string", "enum": long}))),
        ("lists", one(json!({"enum": [[1, 2], {"b": 1}]}))),
        ("list", one(json!({"const": [1, 2]}))),
        ("mixed", one(json!({"enum": [1, "a", true, null]}))),
        ("only null", one(json!({"enum": [null]}))),
        ("empty", one(json!({"type": "object", "properties": {}, "additionalProperties": false}))),
        ("pattern", one(json!({"type": "string", "pattern": "^a+$", "format": "uuid"}))),
        (
            "at most",
            one(json!({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4})),
        ),
        ("anything", one(json!({}))),
    ]
}

#[test]
fn odd_answers_are_asked_for_only_as_far_as_each_provider_takes_them() {
    for (family, model, wire) in families() {
        for (what, shape) in odd_answers() {
            let body = body_of(&*wire, model, &[], Some(&shape));
            let wrong = faults(family, &body);
            assert!(
                wrong.is_empty(),
                "{family} {what}: {wrong:#?}\n{:#}",
                answer_of(family, &body).unwrap().0
            );
            let told = body.to_string().contains("It fits the JSON schema");
            assert_eq!(answer_of(family, &body).is_none(), told, "{family} {what}: in words, or as a schema");
        }
    }
}

/// "Some type-specific keywords are not yet supported" for fine-tuned models.
#[test]
fn a_tuned_model_is_not_held_to_patterns_and_bounds() {
    let shape = answer(json!({"type": "object", "required": ["a", "n", "l"], "properties": {
        "a": {"type": "string", "pattern": "^a+$", "format": "uuid"},
        "n": {"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 2},
        "l": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3}}}));
    let chat = OpenAiChat::new(Quirks::OPENAI);
    for (family, wire) in [("openai", &chat as &dyn WireProtocol), ("responses", &OpenAiResponses::new())] {
        let body = body_of(wire, "ft:gpt-4o-2024-08-06:me::x", &[], Some(&shape));
        let (schema, strict) = answer_of(family, &body).unwrap();
        assert!(strict, "{family}");
        for (at, keys) in [
            ("a", &["pattern", "format"][..]),
            ("n", &["minimum", "maximum", "multipleOf"]),
            ("l", &["minItems", "maxItems"]),
        ] {
            let part = &schema["properties"][at];
            assert!(keys.iter().all(|key| part.get(*key).is_none()), "{family}: {part}");
            assert!(keys.iter().all(|key| part["description"].as_str().unwrap().contains(key)), "{part}");
        }
        let body = body_of(wire, "gpt-4o-2024-08-06", &[], Some(&shape));
        assert_eq!(answer_of(family, &body).unwrap().0["properties"]["a"]["pattern"], "^a+$", "{family}");
    }
}

/// The tests above can fail: each of these bodies has one error.
#[test]
fn wrong_bodies_are_found() {
    let shape = shape(true);
    let anything = json!({"type": "object", "properties": {}});
    let cases: [(&str, &str, Value); 30] = [
        ("openai", "/surprise", json!(1)),
        ("openai", "/tools/0/function/name", json!("a b")),
        ("openai", "/tools/0/function/name", json!("x".repeat(65))),
        ("openai", "/tools/0/function/parameters", json!({"type": "object"})),
        (
            "openai",
            "/tools/0/function/parameters",
            json!({"type": "object", "properties": {}, "anyOf": [anything]}),
        ),
        ("openai", "/tools/0/function/parameters/properties", json!({"a": {"type": "array"}})),
        ("openai", "/tools/0/function/parameters/properties", json!({"a": {"type": "any"}})),
        ("openai", "/tools/0/function/parameters/required", json!(["nowhere"])),
        ("openai", "/messages/2/tool_calls/0/function/arguments", json!({})),
        ("openai", "/messages/2/tool_calls/0/function/name", json!("")),
        ("openai", "/response_format/json_schema/name", json!("The answer!")),
        ("openai", "/response_format/json_schema/schema/properties/city/minLength", json!(1)),
        ("openai", "/response_format/json_schema/schema/required", json!(["city"])),
        ("responses", "/include/0", json!("reasoning.content")),
        ("responses", "/reasoning/summary", json!("long")),
        ("responses", "/text/format/schema/additionalProperties", json!(true)),
        ("responses", "/tools/0/strict", json!(true)),
        ("anthropic", "/thinking", json!({"display": "omitted"})),
        ("anthropic", "/interleaved_thinking", json!(true)),
        ("anthropic", "/tools/0/input_schema/type", json!("string")),
        ("anthropic", "/tools/0/input_schema/properties", json!({"a b": {"type": "string"}})),
        ("anthropic", "/output_config/format/schema/properties/city/minLength", json!(1)),
        ("anthropic", "/output_config/format/schema/properties/tags/minItems", json!(2)),
        ("anthropic", "/messages/1/content/2/input", json!("{}")),
        ("anthropic", "/messages/1/content/2/name", json!("a.b")),
        ("gemini", "/google_search", json!(true)),
        ("gemini", "/tools/0/functionDeclarations/0/name", json!("3d")),
        ("gemini", "/tools/0/functionDeclarations/1/parametersJsonSchema/properties/a", json!({"const": 3})),
        ("gemini", "/generationConfig/responseJsonSchema/properties/city", json!({"description": "no type"})),
        ("gemini", "/contents/1/parts/1/functionCall/args", json!("{}")),
    ];
    for (family, model, wire) in families() {
        let body = body_of(&*wire, model, &awkward(), Some(&shape));
        hold(family, model, &body);
        for (_, path, value) in cases.iter().filter(|case| case.0 == family) {
            let mut wrong = body.clone();
            let (above, key) = path.rsplit_once('/').unwrap();
            match wrong.pointer_mut(above).unwrap_or_else(|| panic!("{family}: nothing at {above}: {body:#}"))
            {
                Value::Array(all) => all[key.parse::<usize>().unwrap()] = value.clone(),
                inner => inner[key] = value.clone(),
            }
            assert!(!faults(family, &wrong).is_empty(), "{family}: {path} = {value} is not found");
        }
    }
}
