use serde_json::{Value, json};

use super::*;
use crate::message::Message;
use crate::model::settings::StructuredOutput;
use crate::model::wire::testing::{body, call, returned, said, settings, text, thought, tools, user};

fn made(change: impl FnOnce(&mut ModelSettings)) -> Value {
    let mut settings = settings();
    change(&mut settings);
    body(&OpenAiResponses, &[user("Hi")], &tools(), &settings, &WireCache::default()).1
}

fn input(messages: &[Message]) -> Value {
    body(&OpenAiResponses, messages, &[], &settings(), &WireCache::default()).1["input"].clone()
}

#[test]
fn a_plain_request_is_plain_and_stores_nothing() {
    let expected = json!({
        "model": "m", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "tools": [{"type": "function", "name": "look", "description": "Looks.", "strict": false,
            "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}],
    });
    assert_eq!(made(|_| {}), expected);
    assert!(made(|s| s.model = "gpt-4.1-mini".into()).get("include").is_none());
    assert!(made(|s| s.model = "gpt-5.1".into()).get("include").is_some());
}

#[test]
fn every_setting_reaches_the_wire_or_is_refused_by_name() {
    let body = made(|s| {
        s.max_tokens = Some(90);
        s.temperature = Some(0.5);
        s.top_p = Some(0.9);
        s.parallel_tool_calls = Some(false);
        s.thinking = Some(Thinking::Effort("low".into()));
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
        s.structured_output =
            Some(StructuredOutput { name: "n".into(), description: Some("d".into()), schema, strict: true });
        s.provider_opts =
            json!({"reasoning": {"summary": "auto"}, "service_tier": "flex"}).as_object().unwrap().clone();
    });
    for (key, value) in [
        ("max_output_tokens", json!(90)),
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("parallel_tool_calls", json!(false)),
        ("reasoning", json!({"effort": "low", "summary": "auto"})),
        ("service_tier", json!("flex")),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    let format = json!({"type": "json_schema", "name": "n", "description": "d", "strict": true, "schema": {"type": "object",
        "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}});
    assert_eq!(body["text"], json!({ "format": format }));
    assert_eq!(made(|s| s.thinking = Some(Thinking::Off))["reasoning"], json!({"effort": "none"}));

    let refused = |change: fn(&mut ModelSettings)| {
        let mut settings = settings();
        change(&mut settings);
        OpenAiResponses.check_settings(&settings).unwrap_err().to_string()
    };
    assert!(refused(|s| s.frequency_penalty = Some(1.0)).starts_with("frequency_penalty:"));
    assert!(refused(|s| s.presence_penalty = Some(1.0)).starts_with("presence_penalty:"));
    assert!(refused(|s| s.thinking = Some(Thinking::Tokens(1))).starts_with("thinking:"));
    assert!(refused(|s| drop(s.provider_opts.insert("input".into(), json!("")))).contains("`input`"));
}

#[test]
fn a_conversation_is_a_list_of_items() {
    let seal = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xyz"});
    let conversation = [
        user("Hi"),
        said(vec![
            thought("", Some(seal)),
            text("Let me see."),
            call("a", "look", "{}"),
            call("a", "look", "at 7"),
        ]),
        returned("a", "one"),
        user("A letter."),
        returned("a", "two"),
        returned("gone", "late"),
        said(vec![thought("", Some(json!({"type": "thinking", "signature": "s"}))), text("Done.")]),
    ];
    let message = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    let expected = json!([
        message("user", "input_text", "Hi"),
        {"type": "reasoning", "summary": [], "encrypted_content": "xyz"},
        message("assistant", "output_text", "Let me see."),
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"not_json\":\"at 7\"}"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "call_1", "output": "two"},
        message("user", "input_text", "A letter."),
        message("user", "input_text", "Result of look:\nlate"),
        message("assistant", "output_text", "Done."),
    ]);
    assert_eq!(input(&conversation), expected);
}

#[test]
fn thinking_that_nothing_came_of_is_left_out() {
    let seal = || Some(json!({"type": "reasoning", "summary": [], "encrypted_content": "xyz"}));
    assert_eq!(input(&[said(vec![thought("hm", seal())]), said(vec![])]), json!([]));
    let behind = input(&[said(vec![text("a"), thought("hm", seal())])]);
    assert_eq!(behind.as_array().unwrap().len(), 1);
    let bare = json!({"type": "reasoning", "summary": [], "encrypted_content": null});
    assert_eq!(input(&[said(vec![thought("hm", Some(bare)), text("a")])]).as_array().unwrap().len(), 1);
}

#[test]
fn a_turn_writes_only_what_is_new() {
    let memo = WireCache::default();
    let mut conversation = vec![user("Hi")];
    for n in 0..20 {
        let id = format!("c{n}");
        conversation.extend([said(vec![call(&id, "look", "{}")]), returned(&id, "seen")]);
        let (bytes, _) = body(&OpenAiResponses, &conversation, &tools(), &settings(), &memo);
        assert_eq!(
            bytes,
            body(&OpenAiResponses, &conversation, &tools(), &settings(), &WireCache::default()).0
        );
        assert_eq!(memo.with(|ResponsesCache(transcript)| transcript.written()), conversation.len());
    }
    conversation.truncate(3);
    let (bytes, _) = body(&OpenAiResponses, &conversation, &tools(), &settings(), &memo);
    assert_eq!(bytes, body(&OpenAiResponses, &conversation, &tools(), &settings(), &WireCache::default()).0);
}
