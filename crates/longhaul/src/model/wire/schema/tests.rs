use serde_json::json;

use super::super::schema_dialect::{ANTHROPIC, ANTHROPIC_OUTPUT, GEMINI, OPENAI, OPENAI_STRICT};
use super::*;

fn made(schema: Value, dialect: &SchemaDialect) -> (Value, String) {
    let adapted = adapt_arguments(&schema, dialect).unwrap();
    (adapted.schema, adapted.notes.join(" "))
}

#[test]
fn what_a_provider_takes_stays_as_it_is() {
    let schema = json!({"type": "object", "properties": {
        "path": {"type": "string", "description": "Where.", "minLength": 1},
        "depth": {"type": ["integer", "null"], "minimum": 0, "default": 3},
        "kind": {"type": "string", "enum": ["a", "b"]}},
        "required": ["path"], "additionalProperties": false});
    for dialect in [&OPENAI, &ANTHROPIC] {
        assert_eq!(made(schema.clone(), dialect), (schema.clone(), String::new()));
    }
}

#[test]
fn nullable_for_gemini() {
    let schema = json!({"properties": {
        "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A."},
        "b": {"type": "integer", "nullable": true},
        "c": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "C."}}});
    let (schema, _) = made(schema, &GEMINI);
    assert_eq!(schema["properties"]["a"], json!({"type": ["string", "null"], "description": "A."}));
    assert_eq!(schema["properties"]["b"], json!({"type": ["integer", "null"]}));
    let c =
        json!({"anyOf": [{"type": "string", "description": "C."}, {"type": "integer"}, {"type": "null"}]});
    assert_eq!(schema["properties"]["c"], c);
    let values = json!({"properties": {"d": {"enum": ["a", null]}, "e": {"enum": [1, "b", 2.5, true]}}});
    let (schema, _) = made(values, &GEMINI);
    let d = json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]});
    assert_eq!(schema["properties"]["d"], d);
    let e = &schema["properties"]["e"]["anyOf"];
    assert_eq!(e[0], json!({"type": "string", "enum": ["b"]}));
    assert_eq!(e[1], json!({"type": "number", "enum": [1, 2.5]}));
    assert_eq!(e[2]["type"], "boolean");
}

#[test]
fn what_cannot_be_said_is_an_error_that_says_why() {
    assert!(adapt_arguments(&json!({"type": "array"}), &OPENAI).unwrap_err().to_string().contains("array"));
    let named = json!({"properties": {"a b": {"type": "string"}}, "required": ["a b"]});
    assert!(adapt_arguments(&named, &ANTHROPIC).unwrap_err().to_string().contains("'a b'"));
    assert!(adapt_arguments(&named, &OPENAI).is_ok());
    let (schema, words) = made(json!({"properties": {"a b": {"type": "string"}}}), &ANTHROPIC);
    assert_eq!(schema["properties"], json!({}));
    assert!(words.contains("'a b'"), "{words}");
}

/// References that double with each step, circular ones and very deep ones all terminate.
#[test]
fn schemas_that_would_never_end_end() {
    let mut defs = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(format!("d{n}"), json!({"type": "object", "properties": {"l": next, "r": next}}));
    }
    let bomb = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    assert!(adapt_arguments(&bomb, &OPENAI).unwrap_err().to_string().contains("parts"));
    let circle =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    assert!(adapt_arguments(&circle, &OPENAI).is_ok());
    let own = json!({"$ref": "#"});
    assert!(adapt_arguments(&own, &GEMINI).is_ok());
    let all = json!({"allOf": [{"$ref": "#"}]});
    assert!(adapt_arguments(&all, &GEMINI).is_ok_and(|made| made.schema["type"] == "object"));
    let deep = (0..100).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    assert!(adapt_arguments(&json!({"properties": {"x": deep}}), &GEMINI).is_ok());
}

#[test]
fn an_answer_is_held_only_to_what_allows_all_that_its_schema_does() {
    let open = json!({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["a"]});
    assert_eq!(adapt_output(&open, &OPENAI_STRICT), None);
    assert_eq!(adapt_output(&open, &ANTHROPIC_OUTPUT), None);
    assert!(adapt_output(&open, &OPENAI).is_some() && adapt_output(&open, &GEMINI).is_some());
    let recursive = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    assert_eq!(adapt_output(&recursive, &ANTHROPIC_OUTPUT), None);
    let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    assert_eq!(adapt_output(&optional, &OPENAI_STRICT), None);
    assert!(adapt_output(&optional, &ANTHROPIC_OUTPUT).is_some());
}
