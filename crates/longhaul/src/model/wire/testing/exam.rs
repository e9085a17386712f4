//! Checks of what any bytes do to a parser, and a conversation to build bodies from.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{WireCache, WireProtocol, WireRequestError};
use super::{outcome, request};
use crate::message::{Block, Message, Reply, StopReason, ToolResult};
use crate::model::settings::ModelSettings;
use crate::model::{ModelRequest, ToolSpec};

/// Feeds random bytes, and responses with some bytes changed, split anywhere: no panic, and always the same
/// result.
pub(in crate::model::wire) fn survives(wire: &dyn WireProtocol, answers: &[String]) {
    let answers = answers.to_vec();
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..400),
        (proptest::sample::select(answers), proptest::collection::vec((any::<usize>(), any::<u8>()), 0..16))
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
    runner()
        .run(&(bytes, cuts), |(bytes, cuts)| {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces = starts.zip(ends).map(|(start, end)| &bytes[start..end]);
            prop_assert_eq!(outcome(wire, pieces), outcome(wire, [&*bytes]));
            Ok(())
        })
        .unwrap();
}

/// Feeds these events in any order, each any number of times: the reply is the same however it is split, its calls
/// have ids of their own, and `check` compares it with the text and thinking that were streamed.
pub(in crate::model::wire) fn takes_any_order(
    wire: &dyn WireProtocol,
    events: &[String],
    check: impl Fn(&Reply, (String, String)),
) {
    let events = proptest::collection::vec(proptest::sample::select(events.to_vec()), 0..20);
    runner()
        .run(&(events, 1_usize..50), |(events, size)| {
            let bytes = events.concat().into_bytes();
            let whole = outcome(wire, [&*bytes]);
            prop_assert_eq!(&outcome(wire, bytes.chunks(size)), &whole);
            if let (Ok(reply), streamed) = whole {
                let unique: std::collections::HashSet<&str> = super::ids(&reply).into_iter().collect();
                prop_assert_eq!(unique.len(), reply.calls().count());
                prop_assert!(!unique.contains(""));
                check(&reply, streamed);
            }
            Ok(())
        })
        .unwrap();
}

fn runner() -> proptest::test_runner::TestRunner {
    let cases = std::env::var("LONGHAUL_WIRE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
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
        let request =
            ModelRequest { system: self.system, ..request(&self.messages, &self.tools, &self.memo) };
        let body = wire.request_body(&request, settings, &self.memo)?;
        Ok(serde_json::from_slice(&body).expect("JSON"))
    }

    pub(in crate::model::wire) fn body(&self, wire: &dyn WireProtocol, settings: &ModelSettings) -> Value {
        self.try_body(wire, settings).unwrap()
    }
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

pub(in crate::model::wire) fn call(id: &str, arguments: &str) -> Block {
    super::call(id, "weather", arguments)
}

pub(in crate::model::wire) fn result(id: &str, output: &str) -> Message {
    returned(id, output, false)
}

pub(in crate::model::wire) fn failed(id: &str, output: &str) -> Message {
    returned(id, output, true)
}

fn returned(call: &str, output: &str, is_error: bool) -> Message {
    let (call, output) = (call.into(), output.into());
    Message::Tool(ToolResult { call, tool: "weather".into(), output, is_error })
}

pub(in crate::model::wire) fn settings(model: &str) -> ModelSettings {
    ModelSettings::new(model)
}

/// The error with which a protocol refuses settings.
pub(in crate::model::wire) fn refused(wire: &dyn WireProtocol, settings: &ModelSettings) -> String {
    wire.check_settings(settings).expect_err("refused").to_string()
}
