use serde_json::{Value, json};

use super::*;
use crate::message::Message;
use crate::model::settings::{StructuredOutput, Thinking};
use crate::model::wire::testing::{body, call, returned, said, settings, text, thought, tools, user};

fn messages(quirks: Quirks, messages: &[Message]) -> Value {
    let (_, body) = body(&OpenAiChat::new(quirks), messages, &[], &settings(), &WireCache::default());
    let Value::Array(mut all) = body["messages"].clone() else { panic!("{body}") };
    assert_eq!(all.remove(0), json!({"role": "system", "content": "Be brief."}));
    Value::Array(all)
}

fn with(change: impl FnOnce(&mut ModelSettings)) -> ModelSettings {
    let mut settings = settings();
    change(&mut settings);
    settings
}

fn made(quirks: Quirks, change: impl FnOnce(&mut ModelSettings)) -> Value {
    body(&OpenAiChat::new(quirks), &[user("Hi")], &tools(), &with(change), &WireCache::default()).1
}

#[test]
fn a_plain_request_is_plain() {
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.",
            "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}}],
    });
    assert_eq!(made(Quirks::PLAIN, |_| {}), expected);
    let (_, without) =
        body(&OpenAiChat::new(Quirks::MISTRAL), &[user("Hi")], &[], &settings(), &WireCache::default());
    assert!(without.get("tools").is_none() && without.get("stream_options").is_none());
}

#[test]
fn every_setting_reaches_the_wire() {
    let body = made(Quirks::OPENAI, |s| {
        s.max_tokens = Some(9);
        s.temperature = Some(0.5);
        s.top_p = Some(0.9);
        s.frequency_penalty = Some(0.1);
        s.presence_penalty = Some(0.2);
        s.parallel_tool_calls = Some(false);
        s.thinking = Some(Thinking::Effort("low".into()));
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
        s.structured_output =
            Some(StructuredOutput { name: "n".into(), description: Some("d".into()), schema, strict: true });
        s.provider_opts =
            json!({"seed": 7, "temperature": 1, "stream_options": {"x": 1}}).as_object().unwrap().clone();
    });
    for (key, value) in [
        ("max_completion_tokens", json!(9)),
        ("temperature", json!(1)),
        ("top_p", json!(0.9)),
        ("frequency_penalty", json!(0.1)),
        ("presence_penalty", json!(0.2)),
        ("parallel_tool_calls", json!(false)),
        ("reasoning_effort", json!("low")),
        ("seed", json!(7)),
        ("stream_options", json!({"include_usage": true, "x": 1})),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    let schema = json!({"name": "n", "description": "d", "strict": true, "schema": {"type": "object",
        "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}});
    assert_eq!(body["response_format"], json!({"type": "json_schema", "json_schema": schema}));
    assert!(body.get("max_tokens").is_none() && body.get("tool_choice").is_none());
    assert_eq!(made(Quirks::LOCAL, |s| s.max_tokens = Some(9))["max_tokens"], 9);
    let no_tools = with(|s| s.parallel_tool_calls = Some(true));
    let (_, body) = crate::model::wire::testing::body(
        &OpenAiChat::new(Quirks::PLAIN),
        &[],
        &[],
        &no_tools,
        &WireCache::default(),
    );
    assert!(body.get("parallel_tool_calls").is_none());
}

#[test]
fn thinking_is_asked_for_in_each_providers_way() {
    let effort = || Thinking::Effort("high".into());
    for (provider, thinking, key, value) in [
        ("openai", effort(), "reasoning_effort", json!("high")),
        ("openai", Thinking::Off, "reasoning_effort", json!("none")),
        ("openai", Thinking::Adaptive, "reasoning_effort", Value::Null),
        ("openrouter", effort(), "reasoning", json!({"effort": "high"})),
        ("openrouter", Thinking::Tokens(100), "reasoning", json!({"max_tokens": 100})),
        ("openrouter", Thinking::Off, "reasoning", json!({"enabled": false})),
        ("openrouter", Thinking::Adaptive, "reasoning", json!({"enabled": true})),
        ("deepseek", effort(), "thinking", json!({"type": "enabled"})),
        ("deepseek", Thinking::Off, "thinking", json!({"type": "disabled"})),
        ("deepseek", Thinking::Adaptive, "thinking", json!({"type": "enabled"})),
        ("vllm", Thinking::Off, "chat_template_kwargs", json!({"enable_thinking": false})),
        ("vllm", effort(), "reasoning_effort", json!("high")),
    ] {
        let body = made(Quirks::for_provider(provider), |s| s.thinking = Some(thinking.clone()));
        assert_eq!(body.get(key).cloned().unwrap_or_default(), value, "{provider} {thinking:?}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let refused = |provider: &str, change: fn(&mut ModelSettings)| {
        OpenAiChat::new(Quirks::for_provider(provider)).check_settings(&with(change)).unwrap_err().to_string()
    };
    assert!(refused("openai", |s| s.thinking = Some(Thinking::Tokens(1))).starts_with("thinking:"));
    let options = |s: &mut ModelSettings| {
        s.provider_opts.insert("messages".into(), json!([]));
    };
    assert!(refused("groq", options).contains("`messages`"));
}

#[test]
fn calls_and_their_results_go_together() {
    let conversation = [
        user("Hi"),
        said(vec![text("Let me see."), call("a", "look", "{}"), call("b", "look", "{\"at\":1}")]),
        returned("b", "two"),
        user("A letter."),
        returned("a", ""),
        said(vec![call("c", "look", "")]),
        returned("c", "three"),
    ];
    let called = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
    let expected = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [called("a", "{}"), called("b", "{\"at\":1}")]},
        {"role": "tool", "tool_call_id": "a", "content": "(no output)"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "user", "content": "A letter."},
        {"role": "assistant", "content": null, "tool_calls": [called("c", "{}")]},
        {"role": "tool", "tool_call_id": "c", "content": "three"},
    ]);
    assert_eq!(messages(Quirks::PLAIN, &conversation), expected);
}

#[test]
fn ids_are_unique_in_the_conversation_and_as_the_provider_wants_them() {
    let long = "x".repeat(41);
    let conversation = [
        said(vec![call("call_0", "look", "{}")]),
        returned("call_0", "one"),
        said(vec![call("call_0", "look", "{}"), call(&long, "look", "{}")]),
        returned("call_0", "two"),
        returned(&long, "three"),
    ];
    let sent = messages(Quirks::PLAIN, &conversation);
    let given: Vec<&str> = [0, 2, 2]
        .iter()
        .zip([0, 0, 1])
        .map(|(m, c)| sent[m]["tool_calls"][c]["id"].as_str().unwrap())
        .collect();
    let answered: Vec<&str> = [1, 3, 4].iter().map(|m| sent[m]["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(given, ["call_0", "call_1", "call_2"]);
    assert_eq!(answered, given);

    let sent = messages(
        Quirks::MISTRAL,
        &[&conversation[..2], &[said(vec![call("abcdEF012", "look", "{}")]), returned("abcdEF012", "x")]]
            .concat(),
    );
    assert_eq!(sent[1]["tool_call_id"], "000000000");
    assert_eq!(sent[0]["tool_calls"][0]["id"], "000000000");
    assert_eq!(sent[1]["name"], "look");
    assert_eq!(sent[3]["tool_call_id"], "abcdEF012");
}

#[test]
fn what_does_not_fit_is_made_to_fit() {
    let conversation = [
        returned("gone", "late"),
        said(vec![]),
        said(vec![thought("hm", None)]),
        user("  "),
        said(vec![call("a", "look", "at 7"), call("b", "look", "{}")]),
        returned("b", "two"),
        said(vec![text("Done.")]),
        returned("a", "too late"),
    ];
    let expected = json!([
        {"role": "user", "content": "Result of look:\nlate"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"not_json\":\"at 7\"}"}},
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "(no result: the call was not finished)"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Result of look:\ntoo late"},
    ]);
    assert_eq!(messages(Quirks::PLAIN, &conversation), expected);
}

#[test]
fn roles_take_turns_where_they_must() {
    let conversation = [
        user("a"),
        user("b"),
        said(vec![call("abcdefghi", "look", "{}")]),
        returned("abcdefghi", "x"),
        user("c"),
        user("d"),
    ];
    let roles = |sent: &Value| -> Vec<String> {
        sent.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap().to_owned()).collect()
    };
    let plain = messages(Quirks::PLAIN, &conversation);
    assert_eq!(roles(&plain), ["user", "user", "assistant", "tool", "user", "user"]);
    let merged = messages(Quirks::LOCAL, &conversation);
    assert_eq!(roles(&merged), ["user", "assistant", "tool", "user"]);
    assert_eq!((&merged[0]["content"], &merged[3]["content"]), (&json!("a\n\nb"), &json!("c\n\nd")));
    let bridged = messages(Quirks::MISTRAL, &conversation);
    assert_eq!(roles(&bridged), ["user", "assistant", "tool", "assistant", "user"]);
}

#[test]
fn thinking_goes_back_to_those_who_want_it_and_only_their_own() {
    let details = json!([{"type": "reasoning.text", "text": "hm", "signature": "s"}]);
    let own = said(vec![thought("hm", Some(json!({"reasoning_details": details}))), call("a", "look", "{}")]);
    let foreign = said(vec![
        thought("hm", Some(json!({"type": "thinking", "signature": "s"}))),
        call("b", "look", "{}"),
    ]);
    let plain = said(vec![thought("hm", None), text("x")]);
    let sent = |quirks, message: &Message| messages(quirks, std::slice::from_ref(message))[0].clone();
    assert_eq!(sent(Quirks::OPENROUTER, &own)["reasoning_details"], details);
    assert!(sent(Quirks::OPENROUTER, &foreign).get("reasoning_details").is_none());
    assert_eq!(sent(Quirks::DEEPSEEK, &own)["reasoning_content"], "hm");
    assert_eq!(sent(Quirks::DEEPSEEK, &foreign)["reasoning_content"], "");
    assert!(sent(Quirks::DEEPSEEK, &plain).get("reasoning_content").is_none());
    let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}]);
    assert_eq!(sent(Quirks::MISTRAL, &plain)["content"], parts);
    for message in [&own, &foreign, &plain] {
        assert!(!sent(Quirks::OPENAI, message).to_string().contains("hm"));
    }
}

#[test]
fn a_turn_writes_only_what_is_new() {
    let wire = OpenAiChat::new(Quirks::LOCAL);
    let memo = WireCache::default();
    let mut conversation = vec![user("Hi")];
    let mut before: Vec<u8> = Vec::new();
    for n in 0..20 {
        let id = format!("c{n}");
        conversation.push(said(vec![text("Hm."), call(&id, "look", "{}")]));
        conversation.push(returned(&id, "seen"));
        let (bytes, _) = body(&wire, &conversation, &tools(), &settings(), &memo);
        assert_eq!(bytes, body(&wire, &conversation, &tools(), &settings(), &WireCache::default()).0);
        let written = memo.with(|ChatCache(r)| r.as_ref().unwrap().written());
        assert_eq!(written, conversation.len());
        let end = bytes.windows(12).position(|w| w == b"],\"tools\":[{").unwrap();
        assert!(bytes.starts_with(&before));
        before = bytes[..end].to_vec();
    }
    // Letters that come one by one are merged like letters that come at once.
    for letter in ["a", "b", "c"] {
        conversation.push(user(letter));
        let (bytes, _) = body(&wire, &conversation, &tools(), &settings(), &memo);
        assert_eq!(bytes, body(&wire, &conversation, &tools(), &settings(), &WireCache::default()).0);
    }
}

#[test]
fn another_conversation_and_another_provider_are_written_anew() {
    let memo = WireCache::default();
    let fresh = |quirks, conversation: &[Message]| {
        body(&OpenAiChat::new(quirks), conversation, &[], &settings(), &WireCache::default()).0
    };
    let long = [user("a"), said(vec![call("x", "look", "{}")]), returned("x", "y"), user("b")];
    let other = [user("summary"), said(vec![text("ok")]), user("b"), user("c"), user("d")];
    for (quirks, conversation) in [
        (Quirks::PLAIN, &long[..]),
        (Quirks::PLAIN, &long[..1]),
        (Quirks::PLAIN, &long[..]),
        (Quirks::PLAIN, &other[..]),
        (Quirks::MISTRAL, &long[..]),
        (Quirks::PLAIN, &long[..]),
    ] {
        assert_eq!(
            body(&OpenAiChat::new(quirks), conversation, &[], &settings(), &memo).0,
            fresh(quirks, conversation)
        );
    }
}
