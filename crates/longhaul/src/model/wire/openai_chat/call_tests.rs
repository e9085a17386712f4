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
    let f = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let two = pairs(&[("look", "{\"a\":1}"), ("look", "{\"b\":2}")]);
    // Without an index, with ids and without.
    assert_eq!(
        made(&[
            json!({"id": "a", "function": f("look", "{\"a\":1}")}),
            json!({"id": "b", "function": f("look", "{\"b\":2}")})
        ]),
        two
    );
    assert_eq!(
        made(&[json!({"function": f("look", "{\"a\":1}")}), json!({"function": f("look", "{\"b\":2}")})]),
        two
    );
    // All with the same index, with ids (Ollama) and without (Gemini's compatible API).
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("look", "{\"a\":1}")}),
            json!({"index": 0, "id": "b", "function": f("look", "{\"b\":2}")})
        ]),
        two
    );
    assert_eq!(
        made(&[
            json!({"index": 0, "function": f("look", "{\"a\":1}")}),
            json!({"index": 0, "function": f("look", "{\"b\":2}")})
        ]),
        two
    );
    // Without an index, the same id twice.
    assert_eq!(
        made(&[
            json!({"id": "a", "function": f("look", "{\"a\":1}")}),
            json!({"id": "a", "function": f("look", "{\"b\":2}")})
        ]),
        two
    );
    // In fragments, without an index.
    assert_eq!(
        made(&[
            json!({"id": "a", "function": f("look", "{\"a\"")}),
            json!({"function": {"arguments": ":1}"}}),
            json!({"id": "b", "function": f("look", "")}),
            json!({"function": {"arguments": "{\"b\":2}"}}),
        ]),
        two
    );
    // The name and a new id in every delta.
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("look", "")}),
            json!({"index": 0, "id": "b", "function": f("look", "{\"a\"")}),
            json!({"index": 0, "id": "c", "function": f("look", ":1}")}),
            json!({"index": 0, "id": "d", "function": f("look", "{\"b\":2}")}),
        ]),
        two
    );
    // The name in every delta, and an empty delta at the end.
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("look", "{\"a\"")}),
            json!({"index": 0, "function": f("look", ":1}")}),
            json!({"index": 0, "function": f("look", "")}),
            json!({"index": 1, "id": "b", "function": f("look", "{\"b\":2}")}),
        ]),
        two
    );
    // Calls without arguments, all with the same index.
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("look", "")}),
            json!({"index": 0, "id": "b", "function": f("read", "")})
        ]),
        pairs(&[("look", "{}"), ("read", "{}")])
    );
    // A name in pieces, and one that grows.
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("lo", "")}),
            json!({"index": 0, "function": f("ok", "{}")})
        ]),
        pairs(&[("look", "{}")])
    );
    assert_eq!(
        made(&[
            json!({"index": 0, "id": "a", "function": f("lo", "")}),
            json!({"index": 0, "function": f("look", "{}")})
        ]),
        pairs(&[("look", "{}")])
    );
}

#[test]
fn arguments_are_what_was_written_and_no_arguments_are_none() {
    for arguments in [json!(""), json!(null), json!("{}"), json!("null"), json!({})] {
        let look = json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": arguments}});
        assert_eq!(made(&[look]), pairs(&[("look", "{}")]), "{arguments}");
    }
    assert_eq!(
        made(&[json!({"index": 0, "id": "a", "function": {"name": "look"}})]),
        pairs(&[("look", "{}")])
    );
    assert_eq!(
        made(&[json!({"index": 0, "function": {"name": "look", "arguments": "at 7"}})]),
        pairs(&[("look", "at 7")])
    );
    assert_eq!(
        made(&[json!({"index": 0, "function": {"name": "look", "arguments": {"at":1}}})]),
        pairs(&[("look", "{\"at\":1}")])
    );
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
