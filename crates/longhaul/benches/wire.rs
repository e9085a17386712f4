//! What the wires cost: `cargo bench -p longhaul --bench wire`.

#![allow(clippy::expect_used, reason = "a bench that cannot go on may stop")]

use std::sync::Arc;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use longhaul::id::{AgentName, TaskKey};
use longhaul::message::{Block, Call, Message, Reply, ToolResult};
use longhaul::model::ModelRequest;
use longhaul::model::settings::ModelSettings;
use longhaul::model::wire::openai_chat::{OpenAiChat, Quirks};
use longhaul::model::wire::openai_responses::OpenAiResponses;
use longhaul::model::wire::{WireCache, WireProtocol};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

/// A chunk of a chat completion with everything around it that OpenAI sends.
fn chat(delta: Value, finish: Option<&str>) -> String {
    let frame = json!({"id": "chatcmpl-0123456789", "object": "chat.completion.chunk", "created": 1_763_000_000,
        "model": "gpt-4.1-mini-2025-04-14", "service_tier": "default", "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}], "usage": null,
        "obfuscation": "abcdefgh"});
    format!("data: {frame}\n\n")
}

fn chat_text(pieces: usize) -> String {
    let pieces = (0..pieces).map(|n| chat(json!({"content": format!(" word{n}")}), None));
    pieces.collect::<String>() + &chat(json!({}), Some("stop"))
}

/// Arguments of so many bytes, four a piece, with the name in every piece.
fn chat_arguments(bytes: usize) -> String {
    let piece = |part: &str| {
        chat(json!({"tool_calls": [{"index": 0, "function": {"name": "write", "arguments": part}}]}), None)
    };
    let pieces = (0..bytes / 4).map(|_| piece("abcd"));
    piece("{\"text\":\"") + &pieces.collect::<String>() + &piece("\"}") + &chat(json!({}), Some("tool_calls"))
}

fn read(bencher: Bencher<'_, '_>, wire: &dyn WireProtocol, stream: &str, items: usize) {
    bencher.counter(ItemsCount::new(items)).counter(BytesCount::new(stream.len())).bench(|| {
        let mut parser = wire.parser();
        let mut chunks = Vec::new();
        // As it comes from a socket.
        for piece in stream.as_bytes().chunks(4096) {
            parser.feed(black_box(piece), &mut chunks).expect("the stream is well");
            chunks.clear();
        }
        parser.finish().expect("the stream is whole")
    });
}

#[divan::bench]
fn chat_text_200_chunks(bencher: Bencher<'_, '_>) {
    read(bencher, &OpenAiChat::new(Quirks::OPENAI), &chat_text(200), 201);
}

#[divan::bench(args = [64, 256, 1024])]
fn chat_arguments_kb(bencher: Bencher<'_, '_>, kb: usize) {
    read(bencher, &OpenAiChat::new(Quirks::OPENAI), &chat_arguments(kb << 10), (kb << 10) / 4 + 3);
}

#[divan::bench]
fn responses_text_200_events(bencher: Bencher<'_, '_>) {
    let delta = |n: usize| {
        let event = json!({"type": "response.output_text.delta", "sequence_number": n, "output_index": 0,
            "item_id": "msg_0123456789", "content_index": 0, "delta": format!(" word{n}"), "logprobs": [],
            "obfuscation": "abcdefgh"});
        format!("event: response.output_text.delta\ndata: {event}\n\n")
    };
    let end = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
    let stream = (0..200).map(delta).collect::<String>() + end;
    read(bencher, &OpenAiResponses::new(), &stream, 201);
}

/// A conversation of so many turns with one call each.
fn conversation(turns: usize) -> Vec<Message> {
    let mut messages = vec![Message::User("Find out what there is to find out.".into())];
    for n in 0..turns {
        let id = format!("call_{n}");
        let call = Call { id: id.clone(), tool: "look".into(), arguments: "{\"at\":1}".into() };
        let blocks = vec![Block::Text("Let me see.".repeat(20)), Block::Call(call)];
        messages.push(Message::Assistant(Arc::new(Reply { blocks, ..Reply::default() })));
        let output = "Something was found there. ".repeat(40).into();
        let result = ToolResult { call: id.into(), tool: "look".into(), output, is_error: false };
        messages.push(Message::Tool(result));
    }
    messages
}

/// The body of the last turn: with everything before it remembered, and with nothing.
#[divan::bench(args = [true, false])]
fn body_of_turn_200(bencher: Bencher<'_, '_>, remembered: bool) {
    let wire = OpenAiChat::new(Quirks::OPENAI);
    let settings = ModelSettings::new("m");
    let agent = AgentName::from("worker");
    let task = TaskKey::named("bench").candidate_ids().next().expect("a key has candidates");
    let messages = conversation(200);
    let none = WireCache::default();
    let request = |messages| ModelRequest {
        task,
        root: task,
        depth: 0,
        agent: &agent,
        system: "Be brief.",
        messages,
        tools: &[],
        output: None,
        turn: 0,
        retry: 0,
        wire_cache: &none,
        text_delay: None,
    };
    bencher
        .with_inputs(|| {
            let memo = WireCache::default();
            if remembered {
                wire.request_body(&request(&messages[..399]), &settings, &memo).expect("a body can be made");
            }
            memo
        })
        .bench_refs(|memo| {
            wire.request_body(&request(&messages), &settings, memo).expect("a body can be made")
        });
}
