//! Request bodies: settings, conversation, cache marks.

use serde_json::{Value, json};

use super::super::testing::exam::{TestConversation, assistant, call, failed, refused, result, settings};
use super::super::testing::{text, user};
use super::*;
use std::sync::Arc;

use crate::model::ToolSpec;
use crate::model::settings::{StructuredOutput, Thinking};

const MODEL: &str = "claude-sonnet-4-5";

fn body(messages: impl IntoIterator<Item = Message>) -> Value {
    TestConversation::new(messages).body(&Anthropic, &settings(MODEL))
}

/// The turns, without cache marks.
fn turns(body: &Value) -> Value {
    let mut turns = body["messages"].clone();
    for block in
        turns.as_array_mut().unwrap().iter_mut().flat_map(|turn| turn["content"].as_array_mut().unwrap())
    {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    turns
}

fn said(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn tool_use(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "weather", "input": input})
}

fn tool_result(id: &str, output: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": output})
}

#[test]
fn a_plain_body() {
    let conversation = TestConversation::new([user("Hi")]);
    let mark = json!({"type": "ephemeral"});
    let asked = ModelSettings { max_tokens: Some(100), temperature: Some(0.5), ..settings(MODEL) };
    assert_eq!(
        conversation.body(&Anthropic, &asked),
        json!({
            "model": MODEL, "max_tokens": 100, "stream": true, "temperature": 0.5,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
            "tools": [{"name": "weather", "description": "The weather.", "input_schema": conversation.tools[0].parameters}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": mark}]}],
        })
    );
    assert_eq!(Anthropic.request_path(&asked), "/messages");
}

#[test]
fn roles_alternate_and_results_come_first() {
    let body = body([
        user("Go"),
        user(""),
        user("on"),
        assistant("m", [text("Yes."), call("a", r#"{"city":"Oslo"}"#), call("b", "")]),
        user("A letter."),
        result("b", "rain"),
        failed("a", " "),
        assistant("m", [text("\n"), text("")]),
        user("Well?"),
        assistant("m", [text("Rain.")]),
        assistant("m", [text("Indeed.")]),
        user("Thanks"),
    ]);
    assert_eq!(
        turns(&body),
        json!([
            {"role": "user", "content": [said("Go"), said("on")]},
            {"role": "assistant", "content": [said("Yes."), tool_use("a", json!({"city": "Oslo"})), tool_use("b", json!({}))]},
            {"role": "user", "content": [
                tool_result("b", "rain"),
                {"type": "tool_result", "tool_use_id": "a", "content": "The tool failed.", "is_error": true},
                said("A letter."), said("Well?"),
            ]},
            {"role": "assistant", "content": [said("Rain."), said("Indeed.")]},
            {"role": "user", "content": [said("Thanks")]},
        ])
    );
}

#[test]
fn every_call_is_answered_and_every_result_was_asked_for() {
    let body = body([
        user("Go"),
        assistant("m", [call("a", "{}")]),
        assistant("m", [call("b", "{}"), call("c", "{}")]),
        result("a", "late"),
        result("b", ""),
    ]);
    let turns = turns(&body);
    let none = json!({"type": "tool_result", "is_error": true, "content": "There is no result: the call was not carried out."});
    let none = |id: &str| {
        let mut none = none.clone();
        none["tool_use_id"] = json!(id);
        none
    };
    assert_eq!(turns[2], json!({"role": "user", "content": [none("a")]}));
    assert_eq!(
        turns[4]["content"],
        json!([{"type": "tool_result", "tool_use_id": "b"}, none("c"), said("Result of 'weather':\nlate")])
    );
}

#[test]
fn ids_are_unique_and_arguments_an_object() {
    let body = body([
        user("Go"),
        assistant("m", [call("call:1", "not json"), call("", "null")]),
        result("call:1", "1"),
        result("", "2"),
        assistant("m", [call("call:1", r#"["list"]"#), call("x", r#"{"half":"\ud83d"}"#)]),
        result("call:1", "3"),
    ]);
    let turns = turns(&body);
    assert_eq!(
        turns[1]["content"],
        json!([tool_use("call_1", json!({"arguments": "not json"})), tool_use("unnamed", json!({}))])
    );
    assert_eq!(turns[2]["content"], json!([tool_result("call_1", "1"), tool_result("unnamed", "2")]));
    let half = json!({"arguments": r#"{"half":"\ud83d"}"#});
    let list = json!({"arguments": "[\"list\"]"});
    assert_eq!(turns[3]["content"], json!([tool_use("call_1_2", list), tool_use("x", half)]));
    assert_eq!(turns[4]["content"][0], tool_result("call_1_2", "3"));
}

fn thought(text: &str, opaque: Value) -> Block {
    Block::Reasoning { text: text.into(), opaque: Some(opaque) }
}

fn thoughts() -> [Block; 5] {
    [
        thought("Hm.", json!({"type": "thinking", "signature": "sig"})),
        thought("", json!({"type": "redacted_thinking", "data": "xyz"})),
        thought("Foreign.", json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "…"})),
        Block::Reasoning { text: "Unsigned.".into(), opaque: None },
        thought("", json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
    ]
}

#[test]
fn thinking_goes_back_to_the_model_that_signed_it() {
    let with = |model: &str| {
        let blocks = thoughts().into_iter().chain([call("a", "{}"), thoughts()[0].clone()]);
        turns(&body([user("Go"), assistant(model, blocks), result("a", "1")]))
    };
    let own = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        tool_use("a", json!({})),
    ]);
    assert_eq!(with("claude-sonnet-4-5-20250929")[1]["content"], own);
    assert_eq!(with("claude-opus-5")[1]["content"], json!([own[2], own[3]]));
    // A turn with only thinking is left out.
    let [first, ..] = thoughts();
    assert_eq!(
        turns(&body([user("Go"), assistant(MODEL, [first]), user("on")])).as_array().unwrap().len(),
        1
    );
}

#[test]
fn a_budget_for_thinking_is_left_out_where_the_turn_did_not_begin_with_it() {
    let asked = ModelSettings { thinking: Some(Thinking::Tokens(2048)), ..settings(MODEL) };
    let [own, ..] = thoughts();
    let thinks = |messages: Vec<Message>| {
        TestConversation::new(messages).body(&Anthropic, &asked).get("thinking").is_some()
    };
    assert!(thinks(vec![user("Go")]));
    assert!(thinks(vec![user("Go"), assistant(MODEL, [own.clone(), call("a", "{}")]), result("a", "1")]));
    assert!(!thinks(vec![user("Go"), assistant("gpt-5", [own, call("a", "{}")]), result("a", "1")]));
    assert!(thinks(vec![user("Go"), assistant("gpt-5", [text("Done.")]), user("More")]));
}

#[test]
fn thinking_settings() {
    let with = |model: &str, thinking: Thinking| {
        let asked = ModelSettings { thinking: Some(thinking), ..settings(model) };
        let body = TestConversation::new([user("Hi")])
            .try_body(&Anthropic, &asked)
            .map_err(|why| why.to_string())?;
        Ok::<_, String>((
            body["thinking"].clone(),
            body["output_config"]["effort"].clone(),
            body["max_tokens"].clone(),
        ))
    };
    let effort = |word: &str| Thinking::Effort(word.into());
    let enabled = |n: u32| json!({"type": "enabled", "budget_tokens": n});
    let adaptive = json!({"type": "adaptive"});
    let shown = json!({"type": "adaptive", "display": "summarized"});
    let off = json!({"type": "disabled"});
    for (model, thinking, expected) in [
        (MODEL, Thinking::Tokens(2048), (enabled(2048), Value::Null, json!(32_000))),
        (MODEL, Thinking::Tokens(60_000), (enabled(60_000), Value::Null, json!(68_192))),
        (MODEL, effort("low"), (enabled(4096), Value::Null, json!(32_000))),
        (MODEL, Thinking::Off, (Value::Null, Value::Null, json!(32_000))),
        ("claude-opus-4-6", Thinking::Adaptive, (adaptive.clone(), Value::Null, json!(32_000))),
        ("claude-opus-4-6", effort("minimal"), (adaptive, json!("low"), json!(32_000))),
        ("claude-opus-4-8", effort("xhigh"), (shown.clone(), json!("xhigh"), json!(32_000))),
        ("claude-fable-5-1", Thinking::Adaptive, (shown, Value::Null, json!(32_000))),
        ("claude-opus-4-8", Thinking::Off, (Value::Null, Value::Null, json!(32_000))),
        ("claude-opus-5", effort("none"), (off.clone(), Value::Null, json!(32_000))),
        ("claude-haiku-5-5", Thinking::Off, (off, Value::Null, json!(32_000))),
        ("claude-sonnet-5-5", Thinking::Off, (json!({"type": "between_tools"}), Value::Null, json!(32_000))),
        ("qwen", Thinking::Tokens(1024), (enabled(1024), Value::Null, json!(9_216))),
    ] {
        assert_eq!(with(model, thinking.clone()).unwrap(), expected, "{model} {thinking:?}");
    }
    for (model, thinking, word) in [
        (MODEL, Thinking::Tokens(5), "at least 1024"),
        (MODEL, Thinking::Adaptive, "does not support adaptive thinking"),
        (MODEL, effort("very"), "'very'"),
        ("claude-opus-4-7", Thinking::Tokens(2048), "takes no budget"),
        ("claude-opus-5-5", Thinking::Off, "always thinks"),
        ("claude-mythos-preview", Thinking::Off, "always thinks"),
        ("claude-3-5-haiku-latest", effort("low"), "does not think"),
    ] {
        let error = with(model, thinking).unwrap_err();
        assert!(error.starts_with("thinking: ") && error.contains(word), "{error}");
    }
}

#[test]
fn limits_by_the_family() {
    let limit = |model: &str| {
        TestConversation::new([user("Hi")]).body(&Anthropic, &settings(model))["max_tokens"].clone()
    };
    assert_eq!(limit("claude-3-haiku-20240307"), 4096);
    assert_eq!(limit("claude-3-5-sonnet-20241022"), 8192);
    assert_eq!(limit("claude-opus-5"), 32_000);
    assert_eq!(limit("qwen2.5"), 8192);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let base = || settings(MODEL);
    let opts = |value: Value| value.as_object().unwrap().clone();
    let thinks = Some(Thinking::Tokens(2048));
    for (asked, word) in [
        (ModelSettings { frequency_penalty: Some(1.0), ..base() }, "frequency_penalty"),
        (ModelSettings { presence_penalty: Some(1.0), ..base() }, "presence_penalty"),
        (ModelSettings { temperature: Some(1.5), ..base() }, "temperature: must be between 0 and 1"),
        (ModelSettings { temperature: Some(0.5), top_p: Some(0.5), ..base() }, "top_p: "),
        (ModelSettings { temperature: Some(0.5), thinking: thinks.clone(), ..base() }, "temperature: "),
        (ModelSettings { top_p: Some(0.5), thinking: thinks.clone(), ..base() }, "top_p: "),
        (ModelSettings { temperature: Some(1.0), ..settings("claude-opus-4-7") }, "temperature: "),
        (ModelSettings { max_tokens: Some(2048), thinking: thinks, ..base() }, "max_tokens: "),
        (ModelSettings { max_tokens: Some(0), ..base() }, "max_tokens: "),
        (
            ModelSettings { provider_opts: opts(json!({"messages": []})), ..base() },
            "provider_opts: 'messages'",
        ),
        (ModelSettings { provider_opts: opts(json!({"cache": 3})), ..base() }, "provider_opts: cache"),
    ] {
        let error = refused(&Anthropic, &asked);
        assert!(error.starts_with(word), "{error}");
    }
    let fine = ModelSettings { temperature: Some(1.7), top_p: Some(0.3), ..settings("qwen") };
    assert_eq!(Anthropic.check_settings(&fine), Ok(()));
    assert!(TestConversation::new([user(" ")]).try_body(&Anthropic, &base()).is_err());
}

#[test]
fn the_shape_of_the_answer() {
    let schema = json!({"type": "object", "$schema": "x", "properties": {
        "minimum": {"type": "integer", "minimum": 1},
        "list": {"type": "array", "minItems": 4, "items": {"anyOf": [{"type": "object", "properties": {"a": {"type": "null"}}}]}}}});
    let shape = StructuredOutput { name: "s".into(), description: None, schema, strict: true };
    let asked = ModelSettings { structured_output: Some(shape), ..settings(MODEL) };
    assert_eq!(
        TestConversation::new([user("Hi")]).body(&Anthropic, &asked)["output_config"],
        json!({"format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false,
            "properties": {"minimum": {"type": "integer", "description": "(minimum: 1)"},
                "list": {"type": "array", "minItems": 1, "description": "(minItems: 4)", "items":
                    {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": false}}}}}})
    );
}

#[test]
fn tools_one_at_a_time_or_not_at_all() {
    let one = ModelSettings { parallel_tool_calls: Some(false), ..settings(MODEL) };
    let mut conversation = TestConversation::new([user("Hi")]);
    let choice = conversation.body(&Anthropic, &one)["tool_choice"].clone();
    assert_eq!(choice, json!({"type": "auto", "disable_parallel_tool_use": true}));
    let tools = std::mem::take(&mut conversation.tools);
    let none = conversation.body(&Anthropic, &one);
    assert!(none.get("tools").is_none() && none.get("tool_choice").is_none());
    // With calls in the conversation, the tools stay but must not be called.
    conversation.messages.extend([assistant("m", [call("a", "{}")]), result("a", "1")]);
    let off = conversation.body(&Anthropic, &one);
    assert_eq!(
        (&off["tools"][0]["name"], &off["tool_choice"]),
        (&json!("weather"), &json!({"type": "none"}))
    );
    conversation.memo.clear();
    assert_eq!(conversation.body(&Anthropic, &one)["tools"][0]["name"], "none");
    assert!(conversation.body(&Anthropic, &settings("qwen")).get("tools").is_none());
    // An invalid schema becomes a valid one.
    conversation.tools = vec![Arc::new(ToolSpec { parameters: Value::Null, ..(*tools[0]).clone() })];
    assert_eq!(
        conversation.body(&Anthropic, &one)["tools"][0]["input_schema"],
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn options_of_the_provider_come_last() {
    let opts = json!({"top_k": 5, "max_tokens": 7, "thinking": {"display": "omitted"}, "cache": "1h",
        "tools": [{"type": "web_search_20250305", "name": "web_search"}]});
    let asked = ModelSettings {
        provider_opts: opts.as_object().unwrap().clone(),
        thinking: Some(Thinking::Adaptive),
        ..settings("claude-opus-5")
    };
    let body = TestConversation::new([user("Hi")]).body(&Anthropic, &asked);
    assert_eq!((&body["top_k"], &body["max_tokens"]), (&json!(5), &json!(7)));
    assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "omitted"}));
    assert_eq!(body["tools"][1]["name"], "web_search");
    assert!(body.get("cache").is_none());
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
}

/// The API refuses thinking without a type, and thinking in a turn that did not begin with it.
#[test]
fn options_for_thinking_go_only_where_there_is_some() {
    let opts = json!({"thinking": {"display": "omitted"}});
    let asked = ModelSettings {
        provider_opts: opts.as_object().unwrap().clone(),
        thinking: Some(Thinking::Tokens(2048)),
        ..settings(MODEL)
    };
    let mut conversation =
        TestConversation::new([user("Hi"), assistant("another", [call("a", "{}")]), result("a", "1")]);
    assert_eq!(conversation.body(&Anthropic, &asked).get("thinking"), None);
    conversation = TestConversation::new([user("Hi")]);
    let shown = json!({"type": "enabled", "budget_tokens": 2048, "display": "omitted"});
    assert_eq!(conversation.body(&Anthropic, &asked)["thinking"], shown);
    assert_eq!(
        conversation.body(&Anthropic, &ModelSettings { thinking: None, ..asked }).get("thinking"),
        None
    );
}

/// The positions of the marks: in tools, system and (turn, block) of the messages.
fn marks(body: &Value) -> (usize, usize, Vec<(usize, usize)>) {
    let count = |blocks: &Value| {
        blocks.as_array().into_iter().flatten().filter(|block| block.get("cache_control").is_some()).count()
    };
    let mut found = Vec::new();
    for (at, turn) in body["messages"].as_array().unwrap().iter().enumerate() {
        for (n, block) in turn["content"].as_array().unwrap().iter().enumerate() {
            if block.get("cache_control").is_some() {
                found.push((at, n));
            }
        }
    }
    (count(&body["tools"]), count(&body["system"]), found)
}

#[test]
fn the_marks_move_with_the_conversation() {
    let mut conversation = TestConversation::new([user("Go")]);
    let mut expected = vec![vec![(0, 0)], vec![(0, 0), (2, 1)], vec![(2, 1), (4, 1)], vec![(4, 1), (6, 1)]];
    for turn in 0..4 {
        let body = conversation.body(&Anthropic, &settings(MODEL));
        assert_eq!(marks(&body), (0, 1, expected.remove(0)));
        let (a, b) = (format!("a{turn}"), format!("b{turn}"));
        conversation.messages.extend([
            assistant("m", [call(&a, "{}"), call(&b, "{}")]),
            result(&a, "1"),
            result(&b, "2"),
        ]);
    }
    conversation.messages.push(assistant("m", [text("Done.")]));
    assert_eq!(marks(&conversation.body(&Anthropic, &settings(MODEL))).2, [(6, 1), (8, 1)]);
    conversation.system = " ";
    assert_eq!(marks(&conversation.body(&Anthropic, &settings(MODEL))).0, 1);
    let off = json!({"cache": false}).as_object().unwrap().clone();
    let off = ModelSettings { provider_opts: off, ..settings(MODEL) };
    assert_eq!(marks(&conversation.body(&Anthropic, &off)), (0, 0, vec![]));
}

#[test]
fn only_what_is_new_is_serialised() {
    let mut conversation =
        TestConversation::new([user("first"), assistant("m", [call("a", "{}")]), result("a", "1")]);
    let before = conversation.body(&Anthropic, &settings(MODEL));
    // If the beginning were written again, the change would show.
    conversation.messages[0] = user("changed behind the back");
    assert_eq!(conversation.body(&Anthropic, &settings(MODEL)), before);
    conversation.messages.extend([assistant("m", [text("Well.")]), user("second")]);
    let after = conversation.body(&Anthropic, &settings(MODEL));
    assert_eq!(turns(&after).as_array().unwrap()[..3], turns(&before).as_array().unwrap()[..3]);
    assert_eq!(turns(&after)[4]["content"], json!([said("second")]));
    // The cached body equals a new one.
    conversation.messages[0] = user("first");
    assert_eq!(
        TestConversation::new(conversation.messages.clone()).body(&Anthropic, &settings(MODEL)),
        after
    );
    // Another conversation, a shorter one, another model, and a cleared cache: everything is written again.
    conversation.messages[0] = user("new");
    let first = |conversation: &TestConversation, model: &str| {
        turns(&conversation.body(&Anthropic, &settings(model)))[0]["content"][0].clone()
    };
    assert_eq!(first(&conversation, MODEL), said("first"));
    assert_eq!(first(&conversation, "claude-opus-5"), said("new"));
    conversation.messages.truncate(1);
    conversation.messages[0] = user("short");
    assert_eq!(first(&conversation, "claude-opus-5"), said("short"));
    conversation.memo.clear();
    assert_eq!(first(&conversation, "claude-opus-5"), said("short"));
}
