use serde_json::{Value, json};

use super::*;
use crate::message::{Block, Reply, StopReason, Usage};
use crate::model::ModelErrorKind;
use crate::model::wire::testing::{
    self, call, calls, failure, ids, limited, rejected, server, text, thought,
};

const WIRE: OpenAiResponses = OpenAiResponses;

/// Events with their names.
fn stream(events: &[Value]) -> String {
    events.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap())).collect()
}

fn reply(events: &[Value]) -> Reply {
    testing::reply(&WIRE, &stream(events))
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "item_id": "i", "delta": delta})
}

fn completed() -> Value {
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 16});
    let response = json!({"object": "response", "status": "completed", "model": "m-1", "error": null, "usage": usage, "output": [],
        "incomplete_details": null});
    json!({"type": "response.completed", "response": response})
}

fn message() -> Value {
    json!({"type": "message", "id": "msg", "role": "assistant", "content": []})
}

fn function(n: u64, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "look", "arguments": arguments})
}

#[test]
fn text_comes_in_pieces_and_usage_at_the_end() {
    let reply = reply(&[
        json!({"type": "response.created", "response": {"model": "m", "error": null, "output": []}}),
        added(0, message()),
        json!({"type": "response.content_part.added", "output_index": 0, "part": {"type": "output_text", "text": ""}}),
        delta("output_text", 0, "Grüß"),
        delta("output_text", 0, " dich 🦀"),
        json!({"type": "response.output_text.done", "output_index": 0, "text": "Grüß dich 🦀"}),
        done(0, json!({"type": "message", "content": [{"type": "output_text", "text": "Grüß dich 🦀"}]})),
        completed(),
    ]);
    assert_eq!(reply.blocks, [text("Grüß dich 🦀")]);
    assert_eq!((reply.stop, reply.model.as_str()), (StopReason::End, "m-1"));
    assert_eq!(reply.usage, Usage { input: 10, cached: 4, cache_written: 1, output: 6, reasoning: 2 });
}

#[test]
fn calls_come_in_fragments_side_by_side() {
    let reply = reply(&[
        added(0, function(1, "")),
        delta("function_call_arguments", 0, "{\"at\""),
        added(1, function(2, "")),
        delta("function_call_arguments", 1, "{}"),
        delta("function_call_arguments", 0, ":1}"),
        json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{\"at\":1}"}),
        done(0, function(1, "{\"at\":1}")),
        done(1, function(2, "{}")),
        completed(),
    ]);
    assert_eq!(reply.blocks, [call("call_1", "look", "{\"at\":1}"), call("call_2", "look", "{}")]);
    assert_eq!(reply.stop, StopReason::Calls);
}

#[test]
fn items_are_told_apart_by_id_where_they_have_no_place() {
    let no_place = |mut event: Value, id: &str| {
        event.as_object_mut().unwrap().remove("output_index");
        event["item_id"] = json!(id);
        event
    };
    // As llama.cpp sends it: the deltas name the call, not the item.
    let item = |n: u64, arguments: &str| {
        let mut item = function(n, arguments);
        item.as_object_mut().unwrap().remove("id");
        item
    };
    let reply = reply(&[
        no_place(added(0, item(1, "")), ""),
        no_place(delta("function_call_arguments", 0, "{\"at\":1}"), "call_1"),
        no_place(added(0, item(2, "")), ""),
        no_place(delta("function_call_arguments", 0, "{}"), "call_2"),
        no_place(done(0, item(2, "{}")), ""),
        no_place(done(0, item(1, "{\"at\":1}")), ""),
        completed(),
    ]);
    assert_eq!(calls(&reply), [("look".into(), "{\"at\":1}".into()), ("look".into(), "{}".into())]);
    assert_eq!(ids(&reply), ["call_1", "call_2"]);
}

#[test]
fn arguments_may_come_whole_empty_or_not_at_all() {
    for (began, ended, expected) in
        [("", "{\"a\":1}", "{\"a\":1}"), ("", "", "{}"), ("{}", "", "{}"), ("", "at 7", "at 7")]
    {
        let reply = reply(&[added(0, function(1, began)), done(0, function(1, ended)), completed()]);
        assert_eq!(reply.blocks, [call("call_1", "look", expected)]);
    }
    let mut bare = function(1, "{}");
    bare["call_id"] = json!("");
    let reply = reply(&[added(0, bare.clone()), added(1, bare), completed()]);
    assert_eq!(ids(&reply), ["call_0", "call_1"]);
}

#[test]
fn thinking_is_kept_with_its_seal() {
    let item = json!({"type": "reasoning", "id": "rs", "status": "completed", "encrypted_content": "xyz",
        "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]});
    let reply = reply(&[
        added(0, json!({"type": "reasoning", "id": "rs", "encrypted_content": "half", "summary": []})),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}),
        delta("reasoning_summary_text", 0, "one"),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1}),
        delta("reasoning_summary_text", 0, "two"),
        done(0, item.clone()),
        added(1, message()),
        delta("output_text", 1, "a"),
        completed(),
    ]);
    let seal = json!({"type": "reasoning", "encrypted_content": "xyz", "summary": item["summary"]});
    assert_eq!(reply.blocks, [thought("one\n\ntwo", Some(seal)), text("a")]);
    // Unencrypted, and only at the end.
    let open =
        self::reply(&[added(0, json!({"type": "reasoning"})), delta("reasoning_text", 0, "hm"), completed()]);
    assert_eq!(open.blocks, [thought("hm", None)]);
    let late =
        self::reply(&[done(0, json!({"type": "reasoning", "summary": [{"text": "hm"}]})), completed()]);
    assert_eq!(late.blocks, [thought("hm", None)]);
}

#[test]
fn a_refusal_is_said_and_is_the_reason() {
    let streamed =
        reply(&[added(0, message()), delta("refusal", 0, "I can"), delta("refusal", 0, "not."), completed()]);
    assert_eq!((streamed.text().as_str(), streamed.stop), ("I cannot.", StopReason::Refused));
    let whole = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]});
    let whole = reply(&[done(0, whole), completed()]);
    assert_eq!((whole.text(), whole.stop), (streamed.text(), StopReason::Refused));
}

#[test]
fn an_incomplete_response_says_why() {
    let incomplete = |reason: &str| {
        json!({"type": "response.incomplete", "response": {"status": "incomplete",
        "incomplete_details": {"reason": reason}, "usage": {"input_tokens": 1, "output_tokens": 2}}})
    };
    for (reason, stop) in [
        ("max_output_tokens", StopReason::Length),
        ("content_filter", StopReason::Refused),
        ("new", StopReason::Length),
    ] {
        let reply = reply(&[added(0, message()), delta("output_text", 0, "a"), incomplete(reason)]);
        assert_eq!((reply.stop, reply.usage.total()), (stop, 3), "{reason}");
    }
}

#[test]
fn errors_end_it() {
    let begun = stream(&[added(0, message()), delta("output_text", 0, "a")]);
    let data = |event: Value| format!("data: {event}\n\n");
    let ended = |kind: &str, code: &str, message: &str| {
        let error = json!({"code": code, "message": message});
        data(json!({"type": kind, "response": {"status": "failed", "error": error}}))
    };
    let error = json!({"type": "error", "code": "server_error", "message": "down"});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "down"}});
    for (end, expected) in [
        (format!("event: error\n{}", data(error)), server(500, "down")),
        (data(overloaded), server(503, "down")),
        (ended("response.failed", "server_error", "down"), server(500, "down")),
        (ended("response.completed", "502", "down"), server(502, "down")),
        (json!({"error": {"message": "down"}}).to_string(), server(500, "down")),
        ("event: error\ndata: down\n\n".to_owned(), server(500, "down")),
        (ended("response.failed", "rate_limit_exceeded", "slow"), limited("slow")),
        (ended("response.failed", "invalid_prompt", "no"), rejected("no (400)")),
    ] {
        assert_eq!(failure(&WIRE, &format!("{begun}{end}")), expected, "{end}");
        assert_eq!(failure(&WIRE, &end), expected, "{end}");
    }
    assert!(failure(&WIRE, "data: {\"type\":\"response.failed\"}\n\n").is_transient());
}

#[test]
fn a_stream_without_an_end_was_cut() {
    let begun = stream(&[added(0, message()), delta("output_text", 0, "a")]);
    for cut in ["", "data: [DONE]\n\n", &begun, "data: {\"type\":\"respon", "<html>"] {
        assert!(matches!(failure(&WIRE, cut), ModelErrorKind::Truncated(_)), "{cut}");
    }
}

#[test]
fn an_answer_that_is_not_streamed_is_an_answer() {
    let mut response = completed()["response"].clone();
    response["output"] = json!([
        {"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": "x"},
        {"type": "web_search_call"},
        {"type": "message", "content": [{"type": "output_text", "text": "a"}]},
        function(1, "{}"),
    ]);
    let (whole, _) = testing::read(&WIRE, &serde_json::to_string_pretty(&response).unwrap()).unwrap();
    assert_eq!((whole.blocks.len(), whole.text().as_str(), whole.stop), (3, "a", StopReason::Calls));
    let only_the_end = reply(&[json!({"type": "response.completed", "response": response})]);
    assert_eq!(only_the_end, whole);
    assert!(matches!(&only_the_end.blocks[0], Block::Reasoning { opaque: Some(_), .. }));
}

#[test]
fn names_of_events_and_strange_items_do_not_matter() {
    let events = [
        added(0, json!({"type": "web_search_call", "id": "ws"})),
        added(1, message()),
        delta("output_text", 1, "a"),
        json!({"type": "response.something.new", "output_index": 7}),
        completed(),
    ];
    assert_eq!(reply(&events).text(), "a");
    assert_eq!(testing::reply(&WIRE, &testing::stream(&events)).text(), "a");
    let named: String = events
        .iter()
        .map(|e| {
            let mut bare = e.clone();
            let name = bare.as_object_mut().unwrap().remove("type").unwrap();
            format!("event: {}\r\ndata: {bare}\r\n\r\n", name.as_str().unwrap())
        })
        .collect();
    assert_eq!(testing::reply(&WIRE, &(named + "data: [DONE]\r\n\r\n")).text(), "a");
}

#[test]
fn recorded_traffic_is_read_as_it_was() {
    for (case, reply) in testing::recorded(&WIRE, "openai_responses") {
        // The last event repeats everything.
        let last = testing::data_lines(&case.body).pop().unwrap();
        let response = &last["response"];
        let (mut said, mut thought, mut made) = (String::new(), String::new(), Vec::new());
        for item in response["output"].as_array().unwrap() {
            let parts = |key: &str| -> String {
                item[key].as_array().into_iter().flatten().filter_map(|p| p["text"].as_str()).collect()
            };
            match item["type"].as_str().unwrap() {
                "message" => said += &parts("content"),
                "reasoning" => thought += &parts("summary"),
                "function_call" => made.push((
                    item["name"].as_str().unwrap().to_owned(),
                    item["arguments"].as_str().unwrap().to_owned(),
                )),
                other => panic!("{other}"),
            }
        }
        assert_eq!(
            (reply.text(), reply.reasoning(), calls(&reply)),
            (said, thought, made.clone()),
            "{}",
            case.case
        );
        let stop = match response["status"].as_str().unwrap() {
            "incomplete" => StopReason::Length,
            _ if !made.is_empty() => StopReason::Calls,
            _ => StopReason::End,
        };
        assert_eq!(reply.stop, stop, "{}", case.case);
        let usage = &response["usage"];
        assert_eq!(usage["input_tokens"], reply.usage.input);
        assert_eq!(usage["input_tokens_details"]["cached_tokens"], reply.usage.cached);
        assert_eq!(usage["output_tokens"], reply.usage.output);
        assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], reply.usage.reasoning);
        assert_eq!(response["model"], reply.model);
        let encrypted =
            reply.blocks.iter().filter(|b| matches!(b, Block::Reasoning { opaque: Some(_), .. })).count();
        let there = response["output"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|i| i["encrypted_content"].is_string())
            .count();
        assert_eq!(encrypted, there, "{}", case.case);
    }
}

#[test]
fn a_call_of_which_nothing_came_is_none() {
    let reply = reply(&[added(0, json!({"type": "function_call"})), completed()]);
    assert_eq!((reply.stop, reply.calls().count()), (StopReason::End, 0));
}

/// A response that is still in progress is not a reply, whoever sends it.
#[test]
fn a_response_that_is_not_over_is_cut() {
    for status in ["queued", "in_progress"] {
        let whole =
            json!({"object": "response", "status": status, "model": "m", "error": null, "output": []});
        assert!(matches!(failure(&WIRE, &whole.to_string()), ModelErrorKind::Truncated(_)), "{status}");
    }
    let whole = json!({"object": "response", "model": "m", "output": [message()]});
    assert!(matches!(failure(&WIRE, &whole.to_string()), ModelErrorKind::Truncated(_)), "no status at all");
}

#[test]
fn any_bytes_are_survived() {
    let events = [
        added(0, json!({"type": "reasoning"})),
        delta("reasoning_text", 0, "ü"),
        added(1, message()),
        delta("output_text", 1, "a"),
        delta("refusal", 1, "r"),
        added(2, function(1, "")),
        delta("function_call_arguments", 2, "{}"),
        done(2, function(1, "{}")),
        completed(),
    ];
    testing::exam::survives(&WIRE, &[stream(&events)]);
}

#[test]
fn frames_in_any_order_make_a_reply_whose_calls_have_ids_of_their_own() {
    let frames = [
        added(0, json!({"type": "reasoning"})),
        delta("reasoning_summary_text", 0, "b"),
        done(0, json!({"type": "reasoning", "encrypted_content": "x"})),
        added(1, message()),
        delta("output_text", 1, "a"),
        delta("output_text", 2, "a"),
        added(2, function(1, "")),
        delta("function_call_arguments", 2, "{}"),
        delta("function_call_arguments", 1, "{}"),
        done(2, function(1, "{}")),
        json!({"type": "response.output_text.delta", "delta": "c"}),
        completed(),
    ];
    // Overlapping items are streamed as they come, and stored one after the other.
    testing::exam::takes_any_order(&WIRE, &frames.map(|frame| stream(&[frame])), |reply, (said, thought)| {
        assert_eq!((said.len(), thought.len()), (reply.text().len(), reply.reasoning().len()));
    });
}
