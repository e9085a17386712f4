//! The conversation as Gemini's contents: parts, with each signature on the part it came with.

use std::collections::HashSet;

use serde_json::{Value, json as value};

use super::super::alternating_turns::{JsonPieces, TurnWriter, UnansweredCall, arguments_object, write_json};
use super::super::reply_chunks::GENERATED_ID_PREFIX;
use super::super::tool_names::wire_name;
use super::GeminiVersion;
use crate::message::{Block, Call, Reply};

/// The signature for a call of another model: the provider's own value for "none".
const UNSIGNED: &str = "skip_thought_signature_validator";

/// What a signature belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureTarget {
    /// The call that follows.
    Call,
    /// The text that follows.
    Text,
    /// The thinking of the block itself.
    Thought,
    /// An empty part.
    Nothing,
}

impl SignatureTarget {
    const ALL: [(SignatureTarget, &str); 4] = [
        (SignatureTarget::Call, "call"),
        (SignatureTarget::Text, "text"),
        (SignatureTarget::Thought, "thought"),
        (SignatureTarget::Nothing, "nothing"),
    ];

    /// The block that stores a signature.
    pub(super) fn to_block(self, signature: &str) -> Value {
        let on = SignatureTarget::ALL.iter().find(|(on, _)| *on == self).map(|(_, word)| *word);
        value!({"thoughtSignature": signature, "on": on})
    }

    fn parse(opaque: &Value) -> Option<(SignatureTarget, &str)> {
        let word = opaque["on"].as_str()?;
        let on = SignatureTarget::ALL.iter().find(|(_, on)| *on == word)?.0;
        Some((on, opaque["thoughtSignature"].as_str()?))
    }
}

/// Writes parts.
#[derive(Debug, Default)]
pub(super) struct GeminiPartWriter;

impl TurnWriter for GeminiPartWriter {
    const USER: &'static str = r#"{"role":"user","parts":["#;
    const MODEL: &'static str = r#"{"role":"model","parts":["#;
    const END: &'static str = "]}";

    fn write_text(out: &mut Vec<u8>, text: &str) {
        part(out, text, false, None);
    }

    fn write_result(out: &mut Vec<u8>, asked: &UnansweredCall, output: &str, is_error: bool) {
        out.extend_from_slice(br#"{"functionResponse":{"#);
        name(out, asked);
        out.extend_from_slice(br#","response":{"#);
        write_json(out, if is_error { "error" } else { "output" });
        out.push(b':');
        write_json(out, output);
        out.extend_from_slice(b"}}}");
    }

    fn write_reply(
        pieces: &mut JsonPieces,
        reply: &Reply,
        model: &str,
        _: &mut HashSet<Box<str>>,
    ) -> Vec<UnansweredCall> {
        let mut asked: Vec<UnansweredCall> = Vec::new();
        let mut said = false;
        let mut signature = None;
        for block in &reply.blocks {
            match block {
                Block::Reasoning { text, opaque: Some(opaque) } => match SignatureTarget::parse(opaque) {
                    Some((SignatureTarget::Call | SignatureTarget::Text, signed)) => signature = Some(signed),
                    Some((SignatureTarget::Thought, signed)) => {
                        pieces.add(|out| part(out, text, true, Some(signed)))
                    }
                    Some((SignatureTarget::Nothing, signed)) => {
                        pieces.add(|out| part(out, "", false, Some(signed)))
                    }
                    // A part of the provider's own tools.
                    None if opaque["part"].is_object() => pieces.add(|out| write_json(out, &opaque["part"])),
                    None => {}
                },
                Block::Reasoning { opaque: None, .. } => {}
                Block::Text(text) => {
                    let signed = signature.take();
                    if signed.is_some() || !text.trim().is_empty() {
                        pieces.add(|out| part(out, text, false, signed));
                        said |= !text.trim().is_empty();
                    }
                }
                Block::Call(call) => {
                    let first = asked.is_empty() && GeminiVersion::from_name(model).is_gemini_3();
                    let signed = signature.take().or(first.then_some(UNSIGNED));
                    let made = ask(call);
                    pieces.add(|out| function_call(out, call, &made, signed));
                    asked.push(made);
                }
            }
        }
        if !said && asked.is_empty() {
            pieces.truncate(0);
        }
        asked
    }
}

fn part(out: &mut Vec<u8>, text: &str, thought: bool, signature: Option<&str>) {
    out.extend_from_slice(br#"{"text":"#);
    write_json(out, text);
    if thought {
        out.extend_from_slice(br#","thought":true"#);
    }
    sign(out, signature);
    out.push(b'}');
}

fn function_call(out: &mut Vec<u8>, call: &Call, asked: &UnansweredCall, signature: Option<&str>) {
    out.extend_from_slice(br#"{"functionCall":{"#);
    name(out, asked);
    out.extend_from_slice(br#","args":"#);
    out.extend_from_slice(arguments_object(&call.arguments).as_bytes());
    out.push(b'}');
    sign(out, signature);
    out.push(b'}');
}

fn sign(out: &mut Vec<u8>, signature: Option<&str>) {
    if let Some(signature) = signature {
        out.extend_from_slice(br#","thoughtSignature":"#);
        write_json(out, signature);
    }
}

/// Writes the name of a call or a result, and its id unless Longhaul generated it.
fn name(out: &mut Vec<u8>, asked: &UnansweredCall) {
    out.extend_from_slice(br#""name":"#);
    write_json(out, &asked.tool);
    if !asked.wire_id.is_empty() {
        out.extend_from_slice(br#","id":"#);
        write_json(out, &asked.wire_id);
    }
}

fn ask(call: &Call) -> UnansweredCall {
    let wire = if call.id.starts_with(GENERATED_ID_PREFIX) { "" } else { &call.id };
    UnansweredCall { id: call.id.as_str().into(), wire_id: wire.into(), tool: wire_name(&call.tool).into() }
}
