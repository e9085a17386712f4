//! Writes a conversation as the list of items of OpenAI's Responses API.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::message::{Block, Reply};
use crate::model::wire::message_list::{MessageWriter, has_content, json_arguments, push_json};
use crate::model::wire::tool_names::wire_name;

/// The longest call id.
const LONGEST_ID: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponsesItemWriter;

#[derive(Serialize)]
struct ResponsesMessage<'a> {
    r#type: &'static str,
    role: &'static str,
    content: [ResponsesContent<'a>; 1],
}

#[derive(Serialize)]
struct ResponsesContent<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ResponsesFunctionCall<'a> {
    r#type: &'static str,
    call_id: &'a str,
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Serialize)]
struct ResponsesFunctionOutput<'a> {
    r#type: &'static str,
    call_id: &'a str,
    output: &'a str,
}

impl MessageWriter for ResponsesItemWriter {
    fn write_user(&mut self, out: &mut Vec<u8>, text: &str) {
        push_json(
            out,
            &ResponsesMessage {
                r#type: "message",
                role: "user",
                content: [ResponsesContent { r#type: "input_text", text }],
            },
        );
    }

    fn write_reply(&mut self, out: &mut Vec<u8>, reply: &Reply, ids: &[String]) {
        // The API refuses thinking without any output after it.
        if !has_content(reply) {
            return;
        }
        let mut ids = ids.iter();
        let last = reply.blocks.iter().rposition(|block| !matches!(block, Block::Reasoning { .. }));
        for block in reply.blocks.iter().take(last.map_or(0, |last| last + 1)) {
            match block {
                Block::Text(text) if text.trim().is_empty() => {}
                Block::Text(text) => {
                    let content = [ResponsesContent { r#type: "output_text", text }];
                    push_json(out, &ResponsesMessage { r#type: "message", role: "assistant", content });
                }
                Block::Reasoning { opaque, .. } => {
                    if let Some(item) = opaque.as_ref().and_then(encrypted_reasoning) {
                        push_json(out, &item);
                    }
                }
                Block::Call(call) => {
                    let Some(call_id) = ids.next() else { continue };
                    let arguments = json_arguments(&call.arguments);
                    let name = wire_name(&call.tool);
                    push_json(
                        out,
                        &ResponsesFunctionCall { r#type: "function_call", call_id, name, arguments },
                    );
                }
            }
        }
    }

    fn write_result(&mut self, out: &mut Vec<u8>, id: &str, _: &str, output: &str) {
        push_json(out, &ResponsesFunctionOutput { r#type: "function_call_output", call_id: id, output });
    }

    fn accepts_id(&self, id: &str) -> bool {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)
    }

    fn make_id(&self, n: usize) -> String {
        format!("call_{n}")
    }
}

/// The part of a thinking item that is sent back: without its id, because nothing is stored on the server.
/// `None` if it is from another family or has no encrypted content.
pub(super) fn encrypted_reasoning(item: &Value) -> Option<Map<String, Value>> {
    let encrypted = item.get("encrypted_content")?.as_str().filter(|text| !text.is_empty())?;
    if item.get("type")? != "reasoning" {
        return None;
    }
    let mut kept = Map::new();
    kept.insert("type".into(), json!("reasoning"));
    kept.insert("summary".into(), item.get("summary").filter(|s| s.is_array()).cloned().unwrap_or(json!([])));
    kept.insert("encrypted_content".into(), json!(encrypted));
    Some(kept)
}
