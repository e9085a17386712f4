use serde_json::{Value, json};

use super::stream_tests::{delta, finish, piece, wire};
use crate::message::StopReason;
use crate::model::wire::testing::{self, calls, stream};

/// The content of a recorded body.
#[derive(Default)]
struct ReplaySummary {
    text: String,
    reasoning: String,
    made: Vec<(String, String)>,
    finish: Option<String>,
    usage: Option<Value>,
}

/// A simple parser of a recorded body, to compare with.
fn oracle(body: &str) -> ReplaySummary {
    let ReplaySummary { mut text, mut reasoning, mut made, mut finish, mut usage } = ReplaySummary::default();
    for frame in testing::data_lines(body) {
        if frame["usage"].is_object() {
            usage = Some(frame["usage"].clone());
        }
        for choice in frame["choices"].as_array().unwrap().iter().filter(|c| c["index"] == 0) {
            let delta = &choice["delta"];
            text += delta["content"].as_str().unwrap_or_default();
            text += delta["refusal"].as_str().unwrap_or_default();
            reasoning +=
                delta["reasoning_content"].as_str().or(delta["reasoning"].as_str()).unwrap_or_default();
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let n = call["index"].as_u64().unwrap() as usize;
                made.resize(made.len().max(n + 1), Default::default());
                made[n].0 += call["function"]["name"].as_str().unwrap_or_default();
                made[n].1 += call["function"]["arguments"].as_str().unwrap_or_default();
            }
            finish = choice["finish_reason"].as_str().map(str::to_owned).or(finish);
        }
    }
    ReplaySummary { text, reasoning, made, finish, usage }
}

#[test]
fn recorded_traffic_is_read_as_it_was() {
    for (case, reply) in testing::recorded(&wire(), "openai_chat") {
        let ReplaySummary { text, reasoning, mut made, finish, usage } = oracle(&case.body);
        let finish = finish.unwrap();
        if finish != "length" {
            made.iter_mut().filter(|(_, arguments)| arguments.is_empty()).for_each(|(_, a)| *a = "{}".into());
        }
        assert_eq!(
            (reply.text(), reply.reasoning(), calls(&reply)),
            (text, reasoning, made),
            "{}",
            case.case
        );
        let refused = case.body.contains("\"refusal\":\"");
        let stop = match finish.as_str() {
            "stop" if refused => StopReason::Refused,
            "stop" => StopReason::End,
            "length" => StopReason::Length,
            "tool_calls" => StopReason::Calls,
            other => panic!("{other}"),
        };
        assert_eq!(reply.stop, stop, "{}", case.case);
        if let Some(usage) = usage {
            assert_eq!(usage["prompt_tokens"], reply.usage.input, "{}", case.case);
            assert_eq!(usage["completion_tokens"], reply.usage.output, "{}", case.case);
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
            assert_eq!(cached, reply.usage.cached, "{}", case.case);
            let thinking =
                [&usage["completion_tokens_details"]["reasoning_tokens"], &usage["reasoning_tokens"]];
            let thinking = thinking.iter().find_map(|n| n.as_u64()).unwrap_or(0);
            assert_eq!(thinking.min(reply.usage.output), reply.usage.reasoning, "{}", case.case);
        }
    }
}

#[test]
fn any_bytes_are_survived() {
    let frames = stream(&[
        delta(
            json!({"content": "a", "reasoning_content": "ü", "refusal": "r", "reasoning_details": [{"index": 0, "text": "x"}]}),
        ),
        piece(
            json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{\"a\": [1, \"}\"]"}}),
        ),
        piece(json!({"function": {"name": "look", "arguments": "}"}})),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ]);
    testing::exam::survives(&wire(), &[frames]);
}

#[test]
fn frames_in_any_order_make_a_reply_whose_calls_have_ids_of_their_own() {
    let frames = [
        json!({"choices": [{"index": 1, "delta": {"content": "no"}}], "usage": {"prompt_tokens": 1}}),
        delta(json!({"content": "a"})),
        delta(json!({"reasoning": "b", "reasoning_details": [{"index": 0, "text": "b", "type": "t"}]})),
        piece(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{\"a\""}})),
        piece(json!({"index": 0, "function": {"name": "look", "arguments": ": 1}"}})),
        piece(json!({"index": 1, "id": "a", "function": {"name": "read", "arguments": ""}})),
        piece(json!({"function": {"arguments": "{}"}})),
        piece(json!({"id": "c", "function": {"name": "look"}})),
        finish("stop"),
        finish("length"),
    ];
    testing::exam::takes_any_order(&wire(), &frames.map(|frame| stream(&[frame])), |reply, streamed| {
        assert_eq!(streamed, (reply.text(), reply.reasoning()));
    });
}
