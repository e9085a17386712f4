//! Streams like the recorded ones, split at every position.

use serde_json::{Value, json};

use super::super::testing::exam::survives;
use super::super::testing::{
    RecordedCase, data_lines, failure, limited, outcome, recorded, rejected, reply, server,
};
use super::*;
use crate::message::{Call, Reply, StopReason, Usage};

fn sse(events: &[Value]) -> String {
    let one = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(one).collect()
}

fn begin() -> Value {
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 100,
        "output_tokens": 1});
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-opus-5", "content": [], "stop_reason": null, "usage": usage}})
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    let usage =
        json!({"input_tokens": 12, "output_tokens": 40, "output_tokens_details": {"thinking_tokens": 7}});
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage});
    [delta, json!({"type": "message_stop"})]
}

fn says(text: &str) -> Value {
    delta(0, json!({"type": "text_delta", "text": text}))
}

fn text_reply(reason: &str) -> Vec<Value> {
    let mut events = vec![begin(), start(0, json!({"type": "text", "text": ""})), json!({"type": "ping"})];
    events.extend([says("Grüß "), says("Gott 🗼"), stop(0)]);
    events.extend(end(reason));
    events
}

#[test]
fn text_and_usage() {
    let reply = reply(&Anthropic, &sse(&text_reply("end_turn")));
    assert_eq!(reply.blocks, [Block::Text("Grüß Gott 🗼".into())]);
    assert_eq!((reply.stop, reply.model.as_str()), (StopReason::End, "claude-opus-5"));
    assert_eq!(reply.usage, Usage { input: 115, cached: 100, cache_written: 3, output: 40, reasoning: 7 });
}

#[test]
fn line_ends_comments_and_nameless_events_make_no_difference() {
    let plain = sse(&text_reply("end_turn"));
    let expected = reply(&Anthropic, &plain);
    assert_eq!(reply(&Anthropic, &plain.replace('\n', "\r\n")), expected);
    assert_eq!(reply(&Anthropic, &plain.replace("\n\n", "\n\n: keep-alive\n\n")), expected);
    let nameless: String =
        plain.lines().filter(|l| !l.starts_with("event:")).map(|l| format!("{l}\n")).collect();
    assert_eq!(reply(&Anthropic, &nameless), expected);
}

#[test]
fn every_stop_reason() {
    for (reason, expected) in [
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("tool_use", StopReason::End),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("pause_turn", StopReason::Length),
        ("refusal", StopReason::Refused),
        ("something_new", StopReason::End),
    ] {
        assert_eq!(reply(&Anthropic, &sse(&text_reply(reason))).stop, expected, "{reason}");
    }
}

#[test]
fn a_stream_without_its_end() {
    let events = text_reply("end_turn");
    let (all, but_stop) = (sse(&events), sse(&events[..events.len() - 1]));
    assert_eq!(reply(&Anthropic, &but_stop), reply(&Anthropic, &all));
    // Not even the blank line came.
    assert_eq!(reply(&Anthropic, but_stop.trim_end()), reply(&Anthropic, &all));
    let cut = sse(&events[..events.len() - 2]);
    let broken = ["", &cut, &cut[..cut.len() - 30], "data: {\"type\n\n", "<html>Bad gateway</html>"];
    for stream in broken {
        assert!(matches!(failure(&Anthropic, stream), ModelErrorKind::Truncated(_)), "{stream}");
    }
}

#[test]
fn thinking_keeps_its_signature() {
    let mut events = vec![
        begin(),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Let me "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "see."})),
        delta(0, json!({"type": "signature_delta", "signature": "EqQB"})),
        delta(0, json!({"type": "signature_delta", "signature": "abc="})),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "EmwKAhgB"})),
        stop(1),
        start(2, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(2, json!({"type": "thinking_delta", "thinking": ""})),
        delta(2, json!({"type": "signature_delta", "signature": "hidden"})),
        stop(2),
        start(3, json!({"type": "text", "text": "So"})),
        delta(3, json!({"type": "text_delta", "text": " it is."})),
        stop(3),
    ];
    events.extend(end("end_turn"));
    let reasoning = |text: &str, opaque: Value| Block::Reasoning { text: text.into(), opaque: Some(opaque) };
    assert_eq!(
        reply(&Anthropic, &sse(&events)).blocks,
        [
            reasoning("Let me see.", json!({"type": "thinking", "signature": "EqQBabc="})),
            reasoning("", json!({"type": "redacted_thinking", "data": "EmwKAhgB"})),
            reasoning("", json!({"type": "thinking", "signature": "hidden"})),
            Block::Text("So it is.".into()),
        ]
    );
}

fn tool(index: u64, id: &str, name: &str) -> Value {
    start(
        index,
        json!({"type": "tool_use", "id": id, "name": name, "input": {}, "caller": {"type": "direct"}}),
    )
}

fn argument(index: u64, piece: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": piece}))
}

fn calls(reply: &Reply) -> Vec<(&str, &str, &str)> {
    reply
        .calls()
        .map(|Call { id, tool, arguments }| (id.as_str(), tool.as_str(), arguments.as_str()))
        .collect()
}

#[test]
fn calls_come_in_fragments_and_interleaved() {
    let mut events = vec![begin(), tool(0, "toolu_1", "a"), tool(1, "toolu_2", "b"), tool(2, "toolu_3", "c")];
    events.extend([argument(0, ""), argument(1, "{\"x\":"), argument(0, "{\"y\": \"ü"), argument(1, "1}")]);
    events.extend([argument(0, "\"}"), stop(0), stop(1), argument(2, ""), stop(2)]);
    events.extend(end("tool_use"));
    let reply = reply(&Anthropic, &sse(&events));
    let expected =
        [("toolu_1", "a", "{\"y\": \"ü\"}"), ("toolu_2", "b", "{\"x\":1}"), ("toolu_3", "c", "{}")];
    assert_eq!((calls(&reply).as_slice(), reply.stop), (expected.as_slice(), StopReason::Calls));
}

#[test]
fn calls_with_no_id_or_that_of_another_get_one() {
    let mut events =
        vec![begin(), tool(0, "same", "a"), stop(0), tool(1, "same", "b"), stop(1), tool(2, "", "c")];
    events.extend([start(3, json!({"type": "tool_use", "name": "d", "input": {"z": 1}})), argument(3, "")]);
    events.extend(end("end_turn"));
    let reply = reply(&Anthropic, &sse(&events));
    let expected = [
        ("same", "a", "{}"),
        ("lh_call_1", "b", "{}"),
        ("lh_call_2", "c", "{}"),
        ("lh_call_3", "d", "{\"z\":1}"),
    ];
    assert_eq!((calls(&reply).as_slice(), reply.stop), (expected.as_slice(), StopReason::Calls));
}

#[test]
fn a_call_cut_by_the_limit_stays_as_it_was_written() {
    let mut events = vec![begin(), tool(0, "toolu_1", "a"), argument(0, "{\"x\": [1, "), stop(0)];
    events.extend(end("max_tokens"));
    let reply = reply(&Anthropic, &sse(&events));
    assert_eq!((calls(&reply)[0].2, reply.stop), ("{\"x\": [1, ", StopReason::Length));
    let mut events =
        vec![begin(), tool(0, "toolu_1", "a"), stop(0), tool(1, "toolu_2", "a"), argument(1, "")];
    events.extend(end("max_tokens"));
    let cut = super::super::testing::reply(&Anthropic, &sse(&events));
    assert_eq!((calls(&cut)[0].2, calls(&cut)[1].2), ("{}", ""));
}

#[test]
fn tools_of_the_provider_are_kept_and_what_is_unknown_is_not() {
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "u"}]});
    let mut events = vec![
        begin(),
        start(0, json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}})),
        argument(0, "{\"query\": "),
        argument(0, "\"sky\"}"),
        stop(0),
        start(1, found.clone()),
        stop(1),
        start(2, json!({"type": "hologram", "light": true})),
        delta(2, json!({"type": "hologram_delta", "light": [1, 2]})),
        stop(2),
        json!({"type": "weather_report", "delta": "sunny", "index": "none"}),
        start(3, json!({"type": "text", "text": "", "citations": null})),
        delta(3, json!({"type": "citations_delta", "citation": {"type": "char_location"}})),
        delta(3, json!({"type": "text_delta", "text": "Blue."})),
        start(4, json!("not a block")),
    ];
    events.extend(end("end_turn"));
    let searched =
        json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "sky"}});
    let kept = |opaque| Block::Reasoning { text: String::new(), opaque: Some(opaque) };
    assert_eq!(
        reply(&Anthropic, &sse(&events)).blocks,
        [kept(searched), kept(found), Block::Text("Blue.".into())]
    );
}

#[test]
fn errors_in_the_middle() {
    for (kind, expected) in [
        ("overloaded_error", server(529, "overloaded_error: Oh no")),
        ("api_error", server(500, "api_error: Oh no")),
        ("timeout_error", server(504, "timeout_error: Oh no")),
        ("rate_limit_error", limited("rate_limit_error: Oh no")),
        ("invalid_request_error", rejected("invalid_request_error: Oh no")),
        ("authentication_error", rejected("authentication_error: Oh no")),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": "Oh no"}, "request_id": "r"});
        let mut events = text_reply("end_turn")[..4].to_vec();
        events.push(error.clone());
        assert_eq!(failure(&Anthropic, &sse(&events)), expected);
        assert_eq!(outcome(&Anthropic, [sse(&events).as_bytes()]).1.0, "Grüß ");
        // The same error as the whole response, with status 200.
        assert_eq!(failure(&Anthropic, &error.to_string()), expected);
    }
    // The errors of llama.cpp.
    let answer = "error: {\"code\":503,\"message\":\"Loading model\",\"type\":\"unavailable_error\"}\n\n";
    assert!(failure(&Anthropic, answer).is_transient());
    let answer = "event: error\ndata: {\"error\":{\"code\":400,\"message\":\"too long\",\"type\":\"exceed_context_size_error\"}}\n\n";
    assert!(!failure(&Anthropic, answer).is_transient());
    // Ignore everything after the end.
    let mut events = text_reply("end_turn");
    events.push(json!({"type": "error", "error": {"type": "api_error", "message": "late"}}));
    assert_eq!(reply(&Anthropic, &sse(&events)).stop, StopReason::End);
}

#[test]
fn what_llama_cpp_sends() {
    let thinking = json!({"type": "thinking", "thinking": ""});
    let mut events = vec![json!({"type": "message_start", "message": {"id": "chatcmpl-1", "type": "message",
        "role": "assistant", "content": [], "model": "qwen", "stop_reason": null, "stop_sequence": null,
        "usage": {"cache_read_input_tokens": 5, "input_tokens": 20, "output_tokens": 0}}})];
    events.push(start(0, thinking.clone()));
    events.push(delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})));
    // Older servers begin the block again with each token.
    events.push(start(0, thinking));
    events.push(delta(0, json!({"type": "thinking_delta", "thinking": "m."})));
    events.push(delta(0, json!({"type": "signature_delta", "signature": ""})));
    events.push(stop(0));
    events.push(start(1, json!({"type": "tool_use", "id": "Xk2", "name": "weather"})));
    events.push(argument(1, "{\"city\":\"Oslo\"}"));
    events.push(stop(1));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
        "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    let reply = reply(&Anthropic, &sse(&events));
    assert_eq!(reply.blocks[0], Block::Reasoning { text: "Hmm.".into(), opaque: None });
    assert_eq!(calls(&reply), [("Xk2", "weather", "{\"city\":\"Oslo\"}")]);
    assert_eq!(reply.usage, Usage { input: 25, cached: 5, output: 9, ..Usage::default() });
}

#[test]
fn deltas_without_a_beginning_and_answers_that_are_not_streamed() {
    let mut events = vec![begin(), says("Hi"), argument(7, "{}")];
    events.extend(end("end_turn"));
    assert_eq!(reply(&Anthropic, &sse(&events)).blocks, [Block::Text("Hi".into())]);
    let whole = json!({"type": "message", "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1,
        "output_tokens": 2}, "content": [{"type": "text", "text": "Well."},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}]});
    let reply = reply(&Anthropic, &whole.to_string());
    assert_eq!(
        (reply.text().as_str(), calls(&reply)[0], reply.stop),
        ("Well.", ("t", "n", "{\"a\":1}"), StopReason::Calls)
    );
}

#[test]
fn error_answers() {
    let body =
        br#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature: range: 0..1"}}"#;
    let words = "invalid_request_error: temperature: range: 0..1";
    for (status, expected) in [
        (400, rejected(words)),
        (401, rejected(words)),
        (413, rejected(words)),
        (429, limited(words)),
        (408, server(408, words)),
        (529, server(529, words)),
    ] {
        assert_eq!(Anthropic.error_from_response(status, body), expected);
    }
    let long = format!("<html>\n{}\n</html>", "é".repeat(9_000));
    let ModelErrorKind::Server { status: 502, message } = Anthropic.error_from_response(502, long.as_bytes())
    else {
        panic!()
    };
    assert!(message.starts_with("<html>") && message.chars().count() < 700);
    assert_eq!(Anthropic.error_from_response(404, b"\xff"), rejected("\u{fffd}"));
}

#[test]
fn any_bytes_are_survived() {
    let mut events = vec![begin(), tool(0, "t", "a"), argument(0, "{\"é\":1}"), stop(0)];
    events.extend(end("tool_use"));
    survives(&Anthropic, &[sse(&text_reply("end_turn")), sse(&events)]);
}

/// Parses a recorded stream in another way, to compare.
fn oracle(case: &RecordedCase) -> (String, String, Vec<(String, Value)>, [u64; 5], StopReason) {
    let (mut text, mut thought, mut calls, mut stop) =
        (String::new(), String::new(), Vec::new(), String::new());
    let mut counts = json!({});
    let mut arguments = std::collections::BTreeMap::<u64, String>::new();
    for data in data_lines(&case.body) {
        let (delta, block) = (&data["delta"], &data["content_block"]);
        text += delta["text"].as_str().unwrap_or("");
        text += block["text"].as_str().unwrap_or("");
        thought += delta["thinking"].as_str().unwrap_or("");
        if let Some(piece) = delta["partial_json"].as_str() {
            *arguments.entry(data["index"].as_u64().unwrap()).or_default() += piece;
        }
        if block["type"] == "tool_use" {
            calls.push((data["index"].as_u64().unwrap(), block["name"].as_str().unwrap().to_owned()));
        }
        for usage in [&data["message"]["usage"], &data["usage"]] {
            for (key, count) in usage.as_object().into_iter().flatten() {
                counts[key] = count.clone();
            }
        }
        stop = delta["stop_reason"].as_str().map_or(stop, str::to_owned);
    }
    let calls: Vec<_> = calls
        .into_iter()
        .map(|(index, name)| {
            let written = arguments.get(&index).filter(|json| !json.is_empty());
            (name, written.map_or(json!({}), |json| serde_json::from_str(json).unwrap()))
        })
        .collect();
    let count = |key: &str| counts[key].as_u64().unwrap_or(0);
    let (cached, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let thinking = counts["output_tokens_details"]["thinking_tokens"].as_u64().unwrap_or(0);
    let used = [count("input_tokens") + cached + written, cached, written, count("output_tokens"), thinking];
    let stop = match stop.as_str() {
        "end_turn" | "stop_sequence" => StopReason::End,
        "tool_use" => StopReason::Calls,
        "max_tokens" => StopReason::Length,
        other => panic!("{other}"),
    };
    (text, thought, calls, used, stop)
}

#[test]
fn recorded_traffic() {
    for (case, reply) in recorded(&Anthropic, "anthropic") {
        let calls =
            reply.calls().map(|c| (c.tool.clone(), serde_json::from_str(&c.arguments).unwrap())).collect();
        let used = reply.usage;
        let used = [used.input, used.cached, used.cache_written, used.output, used.reasoning];
        assert_eq!(
            (reply.text(), reply.reasoning(), calls, used, reply.stop),
            oracle(&case),
            "{}",
            case.case
        );
        let signatures =
            data_lines(&case.body).iter().filter(|d| d["delta"]["type"] == "signature_delta").count();
        let kept = reply
            .blocks
            .iter()
            .filter(|block| super::content_blocks::is_thinking(block, &reply, &reply.model));
        assert_eq!(kept.count(), signatures, "{}", case.case);
    }
}
