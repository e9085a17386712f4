use serde_json::{Value, json};

use super::*;
use crate::message::{Block, Reply, StopReason, Usage};
use crate::model::ModelErrorKind;
use crate::model::wire::testing::{self, calls, failure, stream};

pub(super) fn wire() -> OpenAiChat {
    OpenAiChat::new(Quirks::PLAIN)
}

pub(super) fn reply(frames: &[Value]) -> Reply {
    testing::reply(&wire(), &(stream(frames) + "data: [DONE]\n\n"))
}

pub(super) fn delta(delta: Value) -> Value {
    json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

pub(super) fn piece(piece: Value) -> Value {
    delta(json!({"tool_calls": [piece]}))
}

pub(super) fn pairs(calls: &[(&str, &str)]) -> Vec<(String, String)> {
    calls.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn text_comes_in_pieces_and_usage_after_the_end() {
    let reply = reply(&[
        json!({"model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": null}),
        delta(json!({"content": "Grüß"})),
        delta(json!({"content": " dich 🦀"})),
        delta(Value::Null),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 1}}}),
    ]);
    assert_eq!(reply.blocks, [Block::Text("Grüß dich 🦀".into())]);
    assert_eq!((reply.stop, reply.model.as_str()), (StopReason::End, "m-1"));
    assert_eq!(reply.usage, Usage { input: 9, cached: 5, cache_written: 0, output: 4, reasoning: 1 });
}

#[test]
fn comments_crlf_and_a_missing_done_do_not_matter() {
    let frames = stream(&[delta(json!({"content": "a"})), finish("stop")]);
    let crlf = format!(": OPENROUTER PROCESSING\n\n{frames}: ping\n\n").replace('\n', "\r\n");
    assert_eq!(testing::reply(&wire(), &crlf).text(), "a");
    assert_eq!(testing::reply(&wire(), &frames).text(), "a");
    assert_eq!(testing::pieces(&wire(), [frames.trim_end().as_bytes()]).unwrap().0.text(), "a");
}

#[test]
fn a_stream_without_a_reason_was_cut() {
    let cut = stream(&[delta(json!({"content": "a"}))]);
    let done = format!("{cut}data: [DONE]\n\n");
    let broken = "data: {\"choices\": 7}\n\n".to_owned() + &stream(&[finish("stop")]);
    for stream in [&cut, &done, "", "data: {\"choices\":[{\"del", "<html>Bad gateway</html>", &broken] {
        assert!(matches!(failure(&wire(), stream), ModelErrorKind::Truncated(_)), "{stream}");
    }
}

#[test]
fn every_reason_to_stop_is_understood() {
    for (reason, stop) in [
        ("stop", StopReason::End),
        ("eos", StopReason::End),
        ("tool_calls", StopReason::End),
        ("something new", StopReason::End),
        ("length", StopReason::Length),
        ("model_length", StopReason::Length),
        ("content_filter", StopReason::Refused),
    ] {
        assert_eq!(reply(&[delta(json!({"content": "a"})), finish(reason)]).stop, stop, "{reason}");
    }
    let look = piece(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}));
    for reason in ["stop", "tool_calls", "function_call", "something new"] {
        assert_eq!(reply(&[look.clone(), finish(reason)]).stop, StopReason::Calls, "{reason}");
    }
    assert_eq!(reply(&[look, finish("length")]).stop, StopReason::Length);
    for reason in ["error", "insufficient_system_resource", "abort"] {
        assert!(failure(&wire(), &stream(&[finish(reason)])).is_transient(), "{reason}");
    }
}

#[test]
fn a_refusal_is_said_and_is_the_reason() {
    let reply = reply(&[
        delta(json!({"content": null, "refusal": "I can"})),
        delta(json!({"refusal": "not."})),
        finish("stop"),
    ]);
    assert_eq!((reply.text().as_str(), reply.stop), ("I cannot.", StopReason::Refused));
}

#[test]
fn errors_in_the_middle_end_it() {
    let begun = stream(&[delta(json!({"content": "a"}))]);
    let server = |status| ModelErrorKind::Server { status, message: "down".into() };
    for (end, expected) in [
        (
            "data: {\"error\":{\"code\":502,\"message\":\"down\"},\"choices\":[{\"finish_reason\":\"error\"}]}\n\n",
            server(502),
        ),
        ("event: error\ndata: {\"message\":\"down\"}\n\n", server(500)),
        ("event: error\ndata: down\n\n", server(500)),
        ("error: {\"code\":503,\"message\":\"down\"}\n\n", server(503)),
        ("{\"error\": {\n\"message\": \"down\"}}\n", server(500)),
        ("data: {\"object\":\"error\",\"message\":\"down\",\"code\":500}\n\n", server(500)),
        (
            "data: {\"choices\":[{\"index\":0,\"error\":{\"code\":502,\"message\":\"down\"}}]}\n\n",
            server(502),
        ),
        ("data: {\"error\":\"down\"}\n\n", server(500)),
        ("data: {\"choices\":\"\",\"error\":{\"message\":\"down\"}}\n\n", server(500)),
    ] {
        assert_eq!(failure(&wire(), &format!("{begun}{end}")), expected, "{end}");
        assert_eq!(failure(&wire(), end), expected, "{end}");
    }
    let late = "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n";
    assert_eq!(failure(&wire(), &(begun + late)), ModelErrorKind::RateLimited("slow down".into()));
}

#[test]
fn an_answer_that_is_not_streamed_is_an_answer() {
    let whole = json!({"object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "a",
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}}]});
    let pretty = serde_json::to_string_pretty(&whole).unwrap();
    let (reply, _) = testing::read(&wire(), &pretty).unwrap();
    assert_eq!((reply.text().as_str(), calls(&reply)), ("a", pairs(&[("look", "{}")])));
    assert_eq!(reply.usage.total(), 3);
}

#[test]
fn only_the_first_choice_counts() {
    let other = json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]});
    let reply = reply(&[delta(json!({"content": "yes"})), other.clone(), finish("stop"), other]);
    assert_eq!((reply.text().as_str(), reply.stop), ("yes", StopReason::End));
    let both = json!({"choices": [{"index": 0, "delta": {"content": "b"}, "message": {"content": "ab"}}]});
    let reply = self::reply(&[delta(json!({"content": "a"})), both, finish("stop")]);
    assert_eq!(reply.text(), "ab");
}

#[test]
fn thinking_has_many_names() {
    for frames in [
        vec![
            delta(json!({"reasoning_content": "hm", "content": null})),
            delta(json!({"reasoning_content": null, "content": "a"})),
        ],
        vec![delta(json!({"reasoning": "hm", "content": ""})), delta(json!({"content": "a"}))],
        vec![delta(json!({"reasoning": "hm", "reasoning_content": "hm"})), delta(json!({"content": "a"}))],
        vec![
            delta(
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}]}),
            ),
            delta(json!({"content": [{"type": "text", "text": "a"}]})),
        ],
        vec![delta(
            json!({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "reference"}]}),
        )],
    ] {
        let frames = [frames, vec![finish("stop")]].concat();
        let reply = reply(&frames);
        assert_eq!(
            reply.blocks,
            [Block::Reasoning { text: "hm".into(), opaque: None }, Block::Text("a".into())]
        );
    }
}

#[test]
fn details_of_the_thinking_are_put_together_and_kept() {
    let reply = reply(&[
        delta(
            json!({"reasoning": "h", "reasoning_details": [{"type": "reasoning.text", "text": "h", "index": 0, "format": "f"}]}),
        ),
        delta(
            json!({"reasoning": "m", "reasoning_details": [{"type": "reasoning.text", "text": "m", "index": 0}]}),
        ),
        delta(
            json!({"reasoning_details": [{"type": "reasoning.text", "signature": "s", "text": null, "index": 0}]}),
        ),
        delta(
            json!({"content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 1}]}),
        ),
        finish("stop"),
    ]);
    let details = json!([{"type": "reasoning.text", "text": "hm", "index": 0, "format": "f", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1}]);
    let opaque = Some(json!({"reasoning_details": details}));
    assert_eq!(reply.blocks, [Block::Reasoning { text: "hm".into(), opaque }, Block::Text("a".into())]);
    // Without any text, and only after the call that it belongs to.
    let sealed = self::reply(&[
        piece(json!({"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}})),
        delta(json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]})),
        finish("tool_calls"),
    ]);
    assert!(matches!(&sealed.blocks[0], Block::Reasoning { text, opaque: Some(_) } if text.is_empty()));
}

#[test]
fn usage_is_the_same_whoever_tells_it() {
    let used = |usage: Value| reply(&[finish("stop"), json!({"choices": [], "usage": usage})]).usage;
    let expected = Usage { input: 10, cached: 4, cache_written: 0, output: 6, reasoning: 2 };
    for usage in [
        json!({"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16, "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2}}),
        json!({"prompt_tokens": 10, "completion_tokens": 6, "prompt_cache_hit_tokens": 4, "reasoning_tokens": 2}),
        json!({"prompt_tokens": 10.0, "completion_tokens": 4, "total_tokens": 16, "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2}}),
    ] {
        assert_eq!(used(usage.clone()), expected, "{usage}");
    }
    let written = json!({"prompt_tokens": 1, "completion_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3});
    assert_eq!(used(written), Usage { input: 7, cached: 4, cache_written: 3, output: 1, reasoning: 0 });
}

#[test]
fn usage_may_come_in_every_chunk_or_under_another_name() {
    let with = |content: &str, n: u64| json!({"choices": [{"delta": {"content": content}}], "usage": {"prompt_tokens": 3, "completion_tokens": n}});
    let each = reply(&[
        with("a", 1),
        with("b", 2),
        finish("stop"),
        json!({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}),
    ]);
    assert_eq!((each.usage.input, each.usage.output), (3, 2));
    let groq = json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}});
    assert_eq!(reply(&[groq]).usage, each.usage);
}
