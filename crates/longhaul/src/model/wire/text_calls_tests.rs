use std::sync::Arc;

use serde_json::json;

use super::*;

fn tools() -> Vec<Arc<ToolSpec>> {
    ["look", "read_file"]
        .map(|name| {
            let parameters = json!({"type": "object"});
            Arc::new(ToolSpec { name: name.to_owned(), description: String::new(), parameters })
        })
        .to_vec()
}

fn found(text: &str) -> Option<Vec<(String, String)>> {
    Some(parse_text_calls(text, &tools())?.calls.into_iter().map(|c| (c.tool, c.arguments)).collect())
}

fn look(arguments: &str) -> Option<Vec<(String, String)>> {
    Some(vec![("look".to_owned(), arguments.to_owned())])
}

#[test]
fn a_call_written_as_text_is_found_where_it_is_unmistakable() {
    assert_eq!(found(r#"{"name": "look", "arguments": {"at": 1}}"#), look(r#"{"at":1}"#));
    assert_eq!(found("```json\n{\"name\": \"look\", \"parameters\": {}}\n```\n"), look("{}"));
    assert_eq!(found("```\n[{\"name\": \"look\", \"arguments\": \"{}\"}]\n```"), look("{}"));
    assert_eq!(found("<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>"), look("{}"));
    assert_eq!(found("<tool_call>{\"name\": \"look\", \"arguments\": {}}"), look("{}"));
    assert_eq!(found("[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {}}]"), look("{}"));
    // What small models really write: Llama, Hermes, Qwen Coder, Phi, and some that improvise.
    assert_eq!(
        found("<|python_tag|>{\"name\": \"look\", \"parameters\": {\"at\": \"1\"}}"),
        look(r#"{"at":"1"}"#)
    );
    assert_eq!(found("<tools>\n{\"name\": \"look\", \"arguments\": {}}\n</tools>"), look("{}"));
    assert_eq!(found("functools[{\"name\": \"look\", \"arguments\": {}}]"), look("{}"));
    assert_eq!(found("```tool_call\n{\"tool\": \"look\", \"args\": {}}\n```"), look("{}"));
    assert_eq!(found("{\"tool_calls\": [{\"name\": \"look\", \"arguments\": {}}]}"), look("{}"));
    assert_eq!(
        found("```json\n{\"name\": \"look\", \"arguments\": {}}"),
        look("{}"),
        "a fence that the end closes"
    );
    let fences = "```json\n{\"name\":\"look\",\"arguments\":{}}\n```\n\n```json\n{\"name\":\"look\",\"arguments\":{}}\n```\n";
    assert_eq!(found(fences).map(|calls| calls.len()), Some(2));
    let lines = "{\"name\":\"look\",\"arguments\":{}}\n{\"name\":\"look\",\"arguments\":{}}";
    assert_eq!(found(lines).map(|calls| calls.len()), Some(2));
    let nested = r#"{"type": "function", "function": {"name": "look", "arguments": {}}}"#;
    assert_eq!(found(nested), look("{}"));
    let two = "<tool_call>{\"name\":\"look\",\"arguments\":{}}</tool_call>\n\
               <tool_call>{\"name\":\"read_file\",\"arguments\":{\"path\":\"a\"}}</tool_call>";
    assert_eq!(found(two).map(|calls| calls.len()), Some(2));
    assert_eq!(parse_text_calls(two, &tools()).unwrap().calls[1].id, "call_1");
}

#[test]
fn words_before_a_call_are_kept_where_tags_say_that_it_is_one() {
    let text = "I ask for it.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
    let found = parse_text_calls(text, &[tools()[0].clone()]).unwrap();
    assert_eq!((found.text, found.calls.len()), ("I ask for it.", 1));
}

#[test]
fn anything_less_plain_is_just_text() {
    for text in [
        "",
        "look",
        "{}",
        "[]",
        "I will call it: {\"name\": \"look\", \"arguments\": {}}",
        "{\"name\": \"look\", \"arguments\": {}} and then some",
        "{\"name\": \"unknown\", \"arguments\": {}}",
        "{\"name\": \"look\"}",
        "{\"name\": \"look\", \"arguments\": [1]}",
        "{\"name\": \"look\", \"arguments\": \"now\"}",
        "{\"name\": \"look\", \"arguments\": {}, \"age\": 3}",
        "```json\n{\"name\": \"look\", \"arguments\": {}}\n```\nand\n```json\n{}\n```",
        "<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call> done",
        "To call it, write:\n```\n<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>\n```",
        "The file has [TOOL_CALLS] in it: [{\"name\": \"look\", \"arguments\": {}}]",
        "[{\"name\": \"look\", \"arguments\": {}}, {\"name\": \"Ada\", \"age\": 36}]",
        "{\"name\": \"Ada\", \"arguments\": {}}",
        "{\"city\": \"Bern\", \"look\": {\"at\": 1}}",
        "Use it like this:\n```json\n{\"name\": \"look\", \"arguments\": {}}\n```",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}
