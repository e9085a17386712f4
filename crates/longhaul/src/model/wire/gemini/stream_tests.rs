//! Streams like the recorded ones, split at every position.

use serde_json::{Value, json};

use super::super::testing::exam::survives;
use super::super::testing::{
    RecordedCase, data_lines, failure, limited, outcome, read, recorded, rejected, reply, server,
};
use super::*;
use crate::message::{Block, Call, StopReason, Usage};

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\r\n\r\n")).collect()
}

fn event(parts: Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "responseId": "r",
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 3, "totalTokenCount": 23}})
}

fn said(text: &str) -> Value {
    json!([{"text": text}])
}

fn block(text: &str) -> Block {
    Block::Text(text.into())
}

fn signed(on: &str, signature: &str) -> Block {
    Block::Reasoning { text: String::new(), opaque: Some(json!({"thoughtSignature": signature, "on": on})) }
}

fn call(id: &str, tool: &str, arguments: &str) -> Block {
    Block::Call(Call { id: id.into(), tool: tool.into(), arguments: arguments.into() })
}

#[test]
fn text_and_the_last_usage() {
    let mut last = event(said("Gott 🗼"), Some("STOP"));
    last["usageMetadata"] = json!({"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5,
        "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 7, "totalTokenCount": 142});
    let reply = reply(&Gemini, &sse(&[event(said("Grüß "), None), last]));
    assert_eq!(reply.blocks, [block("Grüß Gott 🗼")]);
    assert_eq!((reply.stop, reply.model.as_str()), (StopReason::End, "gemini-2.5-flash"));
    assert_eq!(reply.usage, Usage { input: 107, cached: 60, cache_written: 0, output: 35, reasoning: 30 });
}

#[test]
fn every_finish_reason() {
    for (finish, expected) in [
        ("STOP", StopReason::End),
        ("MAX_TOKENS", StopReason::Length),
        ("SAFETY", StopReason::Refused),
        ("RECITATION", StopReason::Refused),
        ("LANGUAGE", StopReason::Refused),
        ("OTHER", StopReason::Refused),
        ("BLOCKLIST", StopReason::Refused),
        ("PROHIBITED_CONTENT", StopReason::Refused),
        ("SPII", StopReason::Refused),
        ("IMAGE_SAFETY", StopReason::Refused),
        ("IMAGE_PROHIBITED_CONTENT", StopReason::Refused),
        ("IMAGE_RECITATION", StopReason::Refused),
        ("IMAGE_OTHER", StopReason::Refused),
        ("NO_IMAGE", StopReason::Refused),
        ("SOMETHING_NEW", StopReason::End),
    ] {
        assert_eq!(reply(&Gemini, &sse(&[event(said("Hi"), Some(finish))])).stop, expected, "{finish}");
    }
    for finish in
        ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"]
    {
        let mut event = event(json!([]), Some(finish));
        event["candidates"][0]["finishMessage"] = json!("print(1)");
        let expected = ModelErrorKind::Truncated(format!("{finish} print(1)"));
        assert_eq!(failure(&Gemini, &sse(&[event])), expected);
    }
    let missing = sse(&[event(json!([]), Some("MISSING_THOUGHT_SIGNATURE"))]);
    assert!(matches!(failure(&Gemini, &missing), ModelErrorKind::Rejected(_)));
}

#[test]
fn a_stream_without_its_end() {
    let open = sse(&[event(said("Hi"), None)]);
    let unspecified = sse(&[event(said("Hi"), Some("FINISH_REASON_UNSPECIFIED"))]);
    for stream in [&open, &unspecified, "", "data: {\"candidates\": [{\"con\r\n\r\n"] {
        assert!(matches!(failure(&Gemini, stream), ModelErrorKind::Truncated(_)), "{stream}");
    }
    let whole = sse(&[event(said("Hi"), Some("STOP"))]);
    assert_eq!(reply(&Gemini, whole.trim_end()), reply(&Gemini, &whole));
}

#[test]
fn a_blocked_question_is_a_refusal() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}});
    let reply = reply(&Gemini, &sse(&[blocked]));
    assert_eq!((reply.stop, reply.blocks.len(), reply.usage.input), (StopReason::Refused, 0, 9));
}

#[test]
fn it_may_stop_more_than_once() {
    let events = [
        event(json!([{"executableCode": {"code": "print(1)", "language": "PYTHON"}}]), Some("STOP")),
        event(
            json!([{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}, "thoughtSignature": "s"}]),
            None,
        ),
        event(json!([{"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {}, "id": "t"}}]), None),
        event(json!([{"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "t"}}]), None),
        event(said("It is "), None),
        event(said("1."), Some("MAX_TOKENS")),
    ];
    let reply = reply(&Gemini, &sse(&events));
    let kept = |part: Value| Block::Reasoning { text: String::new(), opaque: Some(json!({ "part": part })) };
    assert_eq!(
        reply.blocks,
        [
            kept(json!({"executableCode": {"code": "print(1)", "language": "PYTHON"}})),
            kept(
                json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}, "thoughtSignature": "s"})
            ),
            kept(json!({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {}, "id": "t"}})),
            kept(json!({"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "t"}})),
            block("It is 1."),
        ]
    );
    assert_eq!(reply.stop, StopReason::Length);
}

#[test]
fn calls_with_and_without_ids() {
    let events = [
        event(json!([{"text": "Let me look."}]), None),
        event(
            json!([
                {"functionCall": {"name": "a", "args": {"x": [1, "ü"]}}, "thoughtSignature": "sig"},
                {"functionCall": {"name": "a"}},
                {"functionCall": {"name": "b", "args": null, "id": "fc-1"}},
            ]),
            None,
        ),
        event(json!([{"functionCall": {"name": "b", "args": {}, "id": "fc-1"}}]), Some("STOP")),
    ];
    let reply = reply(&Gemini, &sse(&events));
    assert_eq!(
        reply.blocks,
        [
            block("Let me look."),
            signed("call", "sig"),
            call("lh_call_1", "a", r#"{"x":[1,"ü"]}"#),
            call("lh_call_2", "a", "{}"),
            call("fc-1", "b", "{}"),
            call("lh_call_3", "b", "{}"),
        ]
    );
    assert_eq!(reply.stop, StopReason::Calls);
}

#[test]
fn thoughts_and_signatures_stay_with_their_parts() {
    let events = [
        event(json!([{"text": "Hm", "thought": true}]), None),
        event(json!([{"text": "m.", "thought": true}]), None),
        event(
            json!([{"text": "More.", "thought": true, "thoughtSignature": "t"}, {"text": "New.", "thought": true}]),
            None,
        ),
        event(json!([{"text": "A", "thought": false}, {"text": "b"}]), None),
        event(json!([{"text": "c", "thoughtSignature": "c"}, {"text": "d"}, {"text": ""}]), None),
        event(json!([{"text": "", "thoughtSignature": "last"}, {"inlineData": {"data": "…"}}]), Some("STOP")),
    ];
    let reply = reply(&Gemini, &sse(&events));
    let thought = |text: &str, opaque: Option<Value>| Block::Reasoning { text: text.into(), opaque };
    assert_eq!(
        reply.blocks,
        [
            thought("Hmm.More.", Some(json!({"thoughtSignature": "t", "on": "thought"}))),
            thought("New.", None),
            block("Ab"),
            signed("text", "c"),
            block("c"),
            block("d"),
            signed("nothing", "last"),
        ]
    );
}

#[test]
fn errors_in_the_middle_as_object_and_as_array() {
    for (error, expected) in [
        (json!({"code": 503, "message": "busy", "status": "UNAVAILABLE"}), server(503, "UNAVAILABLE: busy")),
        (
            json!({"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}),
            limited("RESOURCE_EXHAUSTED: quota"),
        ),
        (json!({"message": "quota", "status": "RESOURCE_EXHAUSTED"}), limited("RESOURCE_EXHAUSTED: quota")),
        (
            json!({"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}),
            rejected("INVALID_ARGUMENT: no"),
        ),
        (json!({"code": 499, "status": "CANCELLED"}), server(500, "CANCELLED")),
        (json!("odd"), server(500, "odd")),
    ] {
        let error = json!({ "error": error });
        let stream = sse(&[event(said("Hi"), None), error.clone()]);
        assert_eq!(failure(&Gemini, &stream), expected);
        assert_eq!(outcome(&Gemini, [stream.as_bytes()]).1.0, "Hi");
        assert_eq!(failure(&Gemini, &serde_json::to_string_pretty(&error).unwrap()), expected);
        assert_eq!(failure(&Gemini, &serde_json::to_string_pretty(&json!([error])).unwrap()), expected);
    }
    // The same stream without `alt=sse`.
    let events = [event(said("Hi "), None), event(said("there"), Some("STOP"))];
    let array = serde_json::to_string_pretty(&events).unwrap();
    assert_eq!(read(&Gemini, &array).unwrap().0, read(&Gemini, &sse(&events)).unwrap().0);
}

#[test]
fn error_answers() {
    let body = br#"{"error":{"code":429,"message":"Quota.","status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.Help"},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
    assert_eq!(Gemini.error_from_response(429, body), limited("RESOURCE_EXHAUSTED: Quota."));
    assert_eq!(Gemini.retry_after(body), Some(Duration::from_millis(34_500)));
    assert_eq!(Gemini.retry_after(b"{}"), None);
    let array = br#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#;
    assert_eq!(Gemini.error_from_response(400, array), rejected("INVALID_ARGUMENT: API key not valid."));
    assert_eq!(Gemini.error_from_response(500, b""), server(500, ""));
}

#[test]
fn only_the_first_candidate_counts() {
    let mut event = event(said("one"), Some("STOP"));
    event["candidates"]
        .as_array_mut()
        .unwrap()
        .push(json!({"index": 1, "content": {"parts": [{"text": "two"}]}, "finishReason": "MAX_TOKENS"}));
    let reply = reply(&Gemini, &sse(&[event]));
    assert_eq!((reply.text().as_str(), reply.stop), ("one", StopReason::End));
}

#[test]
fn any_bytes_are_survived() {
    let parts = json!([{"text": "é", "thought": true}, {"functionCall": {"name": "a", "args": {"é": 1}}}]);
    survives(&Gemini, &[sse(&[event(said("Hi"), None), event(parts, Some("STOP"))])]);
}

/// Parses a recorded stream in another way, to compare.
fn oracle(case: &RecordedCase) -> (String, String, Vec<(String, Value)>, [u64; 4], StopReason) {
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    let (mut finish, mut counts) = (String::new(), Value::Null);
    for data in data_lines(&case.body) {
        let candidate = &data["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            let words = part["text"].as_str().unwrap_or("");
            if part["thought"] == true {
                thought += words
            } else {
                text += words
            }
            if part["functionCall"].is_object() {
                let call = &part["functionCall"];
                calls.push((call["name"].as_str().unwrap().to_owned(), call["args"].clone()));
            }
        }
        finish = candidate["finishReason"].as_str().map_or(finish, str::to_owned);
        counts = data["usageMetadata"].clone();
    }
    let count = |key: &str| counts[key].as_u64().unwrap_or(0);
    let thinking = count("thoughtsTokenCount");
    let output = count("candidatesTokenCount") + thinking;
    // Everything that is not output is input.
    let used = [count("totalTokenCount") - output, count("cachedContentTokenCount"), output, thinking];
    let stop = match finish.as_str() {
        "STOP" if calls.is_empty() => StopReason::End,
        "STOP" => StopReason::Calls,
        "MAX_TOKENS" => StopReason::Length,
        other => panic!("{other}"),
    };
    (text, thought, calls, used, stop)
}

#[test]
fn recorded_traffic() {
    for (case, reply) in recorded(&Gemini, "gemini") {
        let calls =
            reply.calls().map(|c| (c.tool.clone(), serde_json::from_str(&c.arguments).unwrap())).collect();
        let used = [reply.usage.input, reply.usage.cached, reply.usage.output, reply.usage.reasoning];
        assert_eq!(
            (reply.text(), reply.reasoning(), calls, used, reply.stop),
            oracle(&case),
            "{}",
            case.case
        );
        let all = serde_json::to_string(&reply).unwrap().matches("signature_REDACTED").count();
        assert_eq!(all, case.body.matches("signature_REDACTED").count(), "{}", case.case);
    }
}
