use serde_json::{Value, json};

use super::stream_tests::{delta, finish, pairs, piece, reply};
use crate::message::StopReason;
use crate::model::wire::testing::{calls, ids};

/// The calls that result from these deltas.
fn made(frames: &[Value]) -> Vec<(String, String)> {
    let mut frames: Vec<Value> = frames.iter().cloned().map(piece).collect();
    frames.push(finish("tool_calls"));
    let reply = reply(&frames);
    assert_eq!(reply.stop, StopReason::Calls);
    calls(&reply)
}

#[test]
fn calls_come_in_fragments_side_by_side_and_interleaved() {
    let made = made(&[
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}),
        json!({"index": 1, "id": "b", "type": "function", "function": {"name": "read", "arguments": "{\"p"}}),
        json!({"index": 0, "function": {"arguments": "{\"at\""}}),
        json!({"index": 1, "function": {"arguments": "\":\"ü\"}"}}),
        json!({"index": 0, "id": null, "function": {"name": null, "arguments": ": 1}"}}),
    ]);
    assert_eq!(made, pairs(&[("look", "{\"at\": 1}"), ("read", "{\"p\":\"ü\"}")]));
}

#[test]
fn calls_are_told_apart_however_they_are_numbered() {
    // A delta without an index, and one with the index 0; an empty id is none.
    let bare = |id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        if id.is_empty() { json!({ "function": function }) } else { json!({"id": id, "function": function}) }
    };
    let zero = |id: &str, name: &str, arguments: &str| {
        let mut delta = bare(id, name, arguments);
        delta["index"] = json!(0);
        delta
    };
    let more = |arguments: &str| json!({"function": {"arguments": arguments}});
    let (one, two) = ("{\"a\":1}", "{\"b\":2}");
    let mut second = zero("b", "look", two);
    second["index"] = json!(1);
    for (how, deltas) in [
        ("without an index, with ids", vec![bare("a", "look", one), bare("b", "look", two)]),
        ("without an index or ids", vec![bare("", "look", one), bare("", "look", two)]),
        ("the same index, with ids (Ollama)", vec![zero("a", "look", one), zero("b", "look", two)]),
        ("the same index, no ids (Gemini)", vec![zero("", "look", one), zero("", "look", two)]),
        ("without an index, the same id twice", vec![bare("a", "look", one), bare("a", "look", two)]),
        (
            "in fragments, without an index",
            vec![bare("a", "look", "{\"a\""), more(":1}"), bare("b", "look", ""), more(two)],
        ),
        (
            "the name and a new id in every delta",
            vec![
                zero("a", "look", ""),
                zero("b", "look", "{\"a\""),
                zero("c", "look", ":1}"),
                zero("d", "look", two),
            ],
        ),
        (
            "the name in every delta, and an empty delta at the end",
            vec![zero("a", "look", "{\"a\""), zero("", "look", ":1}"), zero("", "look", ""), second],
        ),
    ] {
        assert_eq!(made(&deltas), pairs(&[("look", one), ("look", two)]), "{how}");
    }
    // Calls without arguments, all with the same index.
    let empty = made(&[zero("a", "look", ""), zero("b", "read", "")]);
    assert_eq!(empty, pairs(&[("look", "{}"), ("read", "{}")]));
    // A name in pieces, and one that grows.
    for rest in ["ok", "look"] {
        assert_eq!(made(&[zero("a", "lo", ""), zero("", rest, "{}")]), pairs(&[("look", "{}")]), "{rest}");
    }
}

#[test]
fn arguments_are_what_was_written_and_no_arguments_are_none() {
    for arguments in [json!(""), json!(null), json!("{}"), json!("null"), json!({})] {
        let look = json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": arguments}});
        assert_eq!(made(&[look]), pairs(&[("look", "{}")]), "{arguments}");
    }
    for (delta, arguments) in [
        (json!({"index": 0, "id": "a", "function": {"name": "look"}}), "{}"),
        (json!({"index": 0, "function": {"name": "look", "arguments": "at 7"}}), "at 7"),
        (json!({"index": 0, "function": {"name": "look", "arguments": {"at":1}}}), "{\"at\":1}"),
    ] {
        assert_eq!(made(&[delta]), pairs(&[("look", arguments)]));
    }
    let cut = piece(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}));
    assert_eq!(calls(&reply(&[cut, finish("length")])), pairs(&[("look", "")]));
}

#[test]
fn every_call_has_an_id_of_its_own() {
    let f = json!({"name": "look", "arguments": "{}"});
    let numbered = |id: Value| {
        let frames = [0, 1, 2].map(|n| piece(json!({"index": n, "id": id, "function": f})));
        reply(&[frames.as_slice(), &[finish("tool_calls")]].concat())
    };
    assert_eq!(ids(&numbered(json!("a"))), ["a", "a_1", "a_2"]);
    assert_eq!(ids(&numbered(json!(""))), ["call_0", "call_1", "call_2"]);
    assert_eq!(ids(&numbered(json!(null))), ["call_0", "call_1", "call_2"]);
}

#[test]
fn the_old_function_call_is_a_call() {
    let reply = reply(&[
        delta(json!({"content": null, "function_call": {"name": "look", "arguments": "{\"at"}})),
        delta(json!({"function_call": {"arguments": "\":1}"}})),
        finish("function_call"),
    ]);
    assert_eq!((calls(&reply), reply.stop), (pairs(&[("look", "{\"at\":1}")]), StopReason::Calls));
}

#[test]
fn text_before_and_after_calls_stays_where_it_was() {
    let look = piece(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}));
    let reply =
        reply(&[delta(json!({"content": "a"})), look, delta(json!({"content": "b"})), finish("tool_calls")]);
    assert_eq!(reply.blocks.len(), 3);
    assert_eq!(reply.text(), "ab");
}

/// Found by the fuzzer: a reply stopped for calls, but had none.
#[test]
fn a_call_of_which_nothing_came_is_none() {
    let reply =
        reply(&[delta(json!({"content": "Well."})), piece(json!({"index": 0, "id": "a"})), finish("stop")]);
    assert_eq!((reply.stop, reply.calls().count(), reply.text().as_str()), (StopReason::End, 0, "Well."));
}
