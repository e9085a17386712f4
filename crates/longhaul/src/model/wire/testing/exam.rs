//! Checks that run for every wire protocol: streams split at every position, and recorded traffic.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{WireCache, WireProtocol, WireRequestError};
use crate::id::AgentName;
use crate::message::{Block, Message, Reply, StopReason, ToolResult};
use crate::model::settings::ModelSettings;
use crate::model::{ModelErrorKind, ModelRequest, ReplyChunk, ToolSpec};

/// The result of parsing a response: the reply or the error, and the text and thinking that were streamed.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model::wire) struct ParseOutcome {
    pub(in crate::model::wire) reply: Result<Reply, ModelErrorKind>,
    pub(in crate::model::wire) said: String,
    pub(in crate::model::wire) thought: String,
}

/// Feeds a response in pieces that end at the given positions.
pub(in crate::model::wire) fn feed(
    wire: &dyn WireProtocol,
    answer: &[u8],
    cuts: impl IntoIterator<Item = usize>,
) -> ParseOutcome {
    let mut parser = wire.parser();
    let mut came = ParseOutcome { reply: Ok(Reply::default()), said: String::new(), thought: String::new() };
    let mut at = 0;
    for cut in cuts.into_iter().chain([answer.len()]) {
        let mut chunks = Vec::new();
        let fed = parser.feed(&answer[at..cut], &mut chunks);
        at = cut;
        for chunk in chunks {
            match chunk {
                ReplyChunk::Text(text) => came.said.push_str(&text),
                ReplyChunk::Reasoning(text) => came.thought.push_str(&text),
                _ => panic!("a parser is never done"),
            }
        }
        if let Err(error) = fed {
            came.reply = Err(error);
            return came;
        }
    }
    came.reply = parser.finish();
    came
}

/// Parses a response, and checks that the result is the same wherever it is split.
pub(in crate::model::wire) fn cut_everywhere(wire: &dyn WireProtocol, answer: &str) -> ParseOutcome {
    super::seed(wire, answer);
    cut(wire, answer, 1)
}

fn cut(wire: &dyn WireProtocol, answer: &str, step: usize) -> ParseOutcome {
    let answer = answer.as_bytes();
    let whole = feed(wire, answer, []);
    assert_eq!(feed(wire, answer, 1..answer.len()), whole, "byte by byte");
    for cut in (1..answer.len()).step_by(step) {
        assert_eq!(feed(wire, answer, [cut]), whole, "cut at {cut}");
    }
    whole
}

/// Parses a reply, and checks that it is the same wherever it is split and matches the streamed chunks,
/// except for an event that only the end of the stream completes.
pub(in crate::model::wire) fn reply(wire: &dyn WireProtocol, answer: &str) -> Reply {
    streamed(answer, cut_everywhere(wire, answer))
}

/// Parses a recorded reply, split byte by byte and at many positions; with `LONGHAUL_WIRE_CASES`, at all.
pub(in crate::model::wire) fn recorded(wire: &dyn WireProtocol, answer: &str) -> Reply {
    let step = if std::env::var_os("LONGHAUL_WIRE_CASES").is_some() { 1 } else { 41 };
    streamed(answer, cut(wire, answer, step))
}

fn streamed(answer: &str, came: ParseOutcome) -> Reply {
    let reply = came.reply.expect("a reply");
    assert!(reply.text().starts_with(&came.said) && reply.reasoning().starts_with(&came.thought));
    if answer.ends_with(['\n', '\r']) {
        assert_eq!((came.said, came.thought), (reply.text(), reply.reasoning()));
    }
    reply
}

/// Parses a response that ends in an error.
pub(in crate::model::wire) fn failure(wire: &dyn WireProtocol, answer: &str) -> ModelErrorKind {
    cut_everywhere(wire, answer).reply.expect_err("an error")
}

/// Feeds random bytes, and responses with some bytes changed, split anywhere: no panic, and always the same
/// result.
pub(in crate::model::wire) fn survives(wire: &dyn WireProtocol, answers: &[String]) {
    let answers = answers.to_vec();
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..400),
        (proptest::sample::select(answers), proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6))
            .prop_map(|(answer, changes)| {
                let mut bytes = answer.into_bytes();
                for (at, byte) in changes {
                    let at = at % bytes.len();
                    match byte % 3 {
                        0 => bytes[at] = byte,
                        1 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, b"{}[]\"\n:,x0"[usize::from(byte / 3) % 10]),
                    }
                }
                bytes
            }),
    ];
    let cuts = proptest::collection::vec(any::<usize>(), 0..12);
    let cases = std::env::var("LONGHAUL_WIRE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
        .run(&(bytes, cuts), |(bytes, cuts)| {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.sort_unstable();
            prop_assert_eq!(feed(wire, &bytes, cuts), feed(wire, &bytes, []));
            Ok(())
        })
        .unwrap();
}

/// A conversation to build request bodies from.
pub(in crate::model::wire) struct TestConversation {
    pub(in crate::model::wire) system: &'static str,
    pub(in crate::model::wire) messages: Vec<Message>,
    pub(in crate::model::wire) tools: Vec<Arc<ToolSpec>>,
    pub(in crate::model::wire) memo: WireCache,
}

impl TestConversation {
    pub(in crate::model::wire) fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        let schema =
            json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let tool =
            ToolSpec { name: "weather".into(), description: "The weather.".into(), parameters: schema };
        TestConversation {
            system: "Be brief.",
            messages: messages.into_iter().collect(),
            tools: vec![Arc::new(tool)],
            memo: WireCache::default(),
        }
    }

    pub(in crate::model::wire) fn try_body(
        &self,
        wire: &dyn WireProtocol,
        settings: &ModelSettings,
    ) -> Result<Value, WireRequestError> {
        let agent: AgentName = AgentName::from("agent");
        let request = ModelRequest {
            task: "t-7f3k2".parse().unwrap(),
            root: "t-7f3k2".parse().unwrap(),
            depth: 0,
            agent: &agent,
            system: self.system,
            messages: &self.messages,
            tools: &self.tools,
            output: None,
            turn: 0,
            retry: 0,
            wire_cache: &self.memo,
        };
        let body = wire.request_body(&request, settings, &self.memo)?;
        Ok(serde_json::from_slice(&body).expect("JSON"))
    }

    pub(in crate::model::wire) fn body(&self, wire: &dyn WireProtocol, settings: &ModelSettings) -> Value {
        self.try_body(wire, settings).unwrap()
    }
}

pub(in crate::model::wire) fn user(text: &str) -> Message {
    Message::User(text.into())
}

pub(in crate::model::wire) fn assistant(model: &str, blocks: impl IntoIterator<Item = Block>) -> Message {
    let blocks = blocks.into_iter().collect();
    Message::Assistant(Arc::new(Reply {
        blocks,
        model: model.into(),
        stop: StopReason::Calls,
        ..Reply::default()
    }))
}

pub(in crate::model::wire) fn text(text: &str) -> Block {
    Block::Text(text.into())
}

pub(in crate::model::wire) fn call(id: &str, arguments: &str) -> Block {
    Block::Call(crate::message::Call { id: id.into(), tool: "weather".into(), arguments: arguments.into() })
}

pub(in crate::model::wire) fn result(id: &str, output: &str) -> Message {
    Message::Tool(ToolResult {
        call: id.into(),
        tool: "weather".into(),
        output: output.into(),
        is_error: false,
    })
}

pub(in crate::model::wire) fn failed(id: &str, output: &str) -> Message {
    Message::Tool(ToolResult {
        call: id.into(),
        tool: "weather".into(),
        output: output.into(),
        is_error: true,
    })
}

pub(in crate::model::wire) fn settings(model: &str) -> ModelSettings {
    ModelSettings { model: model.into(), ..ModelSettings::default() }
}

/// The error with which a protocol refuses settings.
pub(in crate::model::wire) fn refused(wire: &dyn WireProtocol, settings: &ModelSettings) -> String {
    wire.check_settings(settings).expect_err("refused").to_string()
}
