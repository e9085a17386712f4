//! The conversation as Anthropic's content blocks, with signed thinking and unique ids.

use std::collections::HashSet;

use serde_json::Value;

use super::super::alternating_turns::{
    JsonPieces, TurnWriter, UnansweredCall, arguments_object, clean_id, write_json,
};
use super::super::tool_names::wire_name;
use super::claude_version::same_model;
use crate::message::{Block, Call, Reply};

/// Writes content blocks.
#[derive(Debug, Default)]
pub(super) struct AnthropicBlockWriter;

impl TurnWriter for AnthropicBlockWriter {
    const USER: &'static str = r#"{"role":"user","content":["#;
    const MODEL: &'static str = r#"{"role":"assistant","content":["#;
    const END: &'static str = "]}";

    fn write_text(out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(br#"{"type":"text","text":"#);
        write_json(out, text);
        out.push(b'}');
    }

    fn write_result(out: &mut Vec<u8>, asked: &UnansweredCall, output: &str, is_error: bool) {
        out.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
        write_json(out, &asked.wire_id);
        // The API refuses an empty error and text that is all white space.
        let output = match output.trim().is_empty() {
            true if is_error => "The tool failed.",
            true => "",
            false => output,
        };
        if !output.is_empty() {
            out.extend_from_slice(br#","content":"#);
            write_json(out, output);
        }
        if is_error {
            out.extend_from_slice(br#","is_error":true"#);
        }
        out.push(b'}');
    }

    fn write_reply(
        pieces: &mut JsonPieces,
        reply: &Reply,
        model: &str,
        used: &mut HashSet<Box<str>>,
    ) -> Vec<UnansweredCall> {
        let mut asked = Vec::new();
        let mut end = 0;
        for block in &reply.blocks {
            match block {
                Block::Text(text) if text.trim().is_empty() => continue,
                Block::Text(text) => pieces.add(|out| Self::write_text(out, text)),
                Block::Reasoning { text, opaque: Some(opaque) } if is_thinking(block, reply, model) => {
                    pieces.add(|out| thinking(out, text, opaque));
                    // The API refuses a turn that ends with thinking.
                    continue;
                }
                Block::Reasoning { opaque: Some(opaque), .. } if is_server_block(opaque) => {
                    pieces.add(|out| write_json(out, opaque));
                }
                Block::Reasoning { .. } => continue,
                Block::Call(call) => {
                    let made = ask(call, used);
                    pieces.add(|out| tool_use(out, call, &made));
                    asked.push(made);
                }
            }
            end = pieces.len();
        }
        pieces.truncate(end);
        asked
    }
}

/// Whether a block is thinking that this model signed. It is bound to the model: others refuse it.
pub(super) fn is_thinking(block: &Block, reply: &Reply, model: &str) -> bool {
    let Block::Reasoning { opaque: Some(opaque), .. } = block else { return false };
    matches!(kind(opaque), "thinking" | "redacted_thinking") && same_model(&reply.model, model)
}

/// Whether the block comes from one of the provider's own tools. It is sent back unchanged.
pub(super) fn is_server_block(block: &Value) -> bool {
    let kind = kind(block);
    matches!(kind, "server_tool_use" | "mcp_tool_use" | "compaction")
        || (kind.ends_with("_tool_result") && kind != "tool_result")
}

fn kind(opaque: &Value) -> &str {
    opaque["type"].as_str().unwrap_or_default()
}

fn thinking(out: &mut Vec<u8>, text: &str, opaque: &Value) {
    if kind(opaque) == "redacted_thinking" {
        return write_json(out, opaque);
    }
    out.extend_from_slice(br#"{"type":"thinking","thinking":"#);
    write_json(out, text);
    out.extend_from_slice(br#","signature":"#);
    write_json(out, &opaque["signature"]);
    out.push(b'}');
}

fn tool_use(out: &mut Vec<u8>, call: &Call, asked: &UnansweredCall) {
    out.extend_from_slice(br#"{"type":"tool_use","id":"#);
    write_json(out, &asked.wire_id);
    out.extend_from_slice(br#","name":"#);
    write_json(out, &asked.tool);
    out.extend_from_slice(br#","input":"#);
    out.extend_from_slice(arguments_object(&call.arguments).as_bytes());
    out.push(b'}');
}

/// An id is unique only within its reply, and may contain characters that this API refuses.
fn ask(call: &Call, used: &mut HashSet<Box<str>>) -> UnansweredCall {
    let id = clean_id(&call.id, 56);
    let mut wire: Box<str> = id.as_ref().into();
    let mut n = 1;
    while !used.insert(wire.clone()) {
        n += 1;
        wire = format!("{id}_{n}").into();
    }
    UnansweredCall { id: call.id.as_str().into(), wire_id: wire, tool: wire_name(&call.tool).into() }
}
