//! The conversation as Gemini's contents: parts, signatures on the parts they came with.

use std::collections::HashSet;

use serde_json::{Value, json as value};

use super::super::names::wire_name;
use super::super::reply::MADE_UP;
use super::super::turns::{Asked, Form, Pieces, json, object};
use super::Family;
use crate::message::{Block, Call, Reply};

/// What a call of another model is signed with: the provider's own word for "there is none".
const UNSIGNED: &str = "skip_thought_signature_validator";

/// What a signature stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// The call that follows.
    Call,
    /// The text that follows.
    Text,
    /// The thinking of the block itself.
    Thought,
    /// A part with nothing in it.
    Nothing,
}

impl On {
    const ALL: [(On, &str); 4] =
        [(On::Call, "call"), (On::Text, "text"), (On::Thought, "thought"), (On::Nothing, "nothing")];

    /// The block that keeps a signature.
    pub(super) fn signed(self, signature: &str) -> Value {
        let on = On::ALL.iter().find(|(on, _)| *on == self).map(|(_, word)| *word);
        value!({"thoughtSignature": signature, "on": on})
    }

    fn of(opaque: &Value) -> Option<(On, &str)> {
        let word = opaque["on"].as_str()?;
        let on = On::ALL.iter().find(|(_, on)| *on == word)?.0;
        Some((on, opaque["thoughtSignature"].as_str()?))
    }
}

/// Parts.
#[derive(Debug)]
pub(super) struct Parts;

impl Form for Parts {
    const USER: &'static str = r#"{"role":"user","parts":["#;
    const MODEL: &'static str = r#"{"role":"model","parts":["#;
    const END: &'static str = "]}";

    fn text(out: &mut Vec<u8>, text: &str) {
        part(out, text, false, None);
    }

    fn result(out: &mut Vec<u8>, asked: &Asked, output: &str, is_error: bool) {
        out.extend_from_slice(br#"{"functionResponse":{"#);
        name(out, asked);
        out.extend_from_slice(br#","response":{"#);
        json(out, if is_error { "error" } else { "output" });
        out.push(b':');
        json(out, output);
        out.extend_from_slice(b"}}}");
    }

    fn reply(pieces: &mut Pieces, reply: &Reply, model: &str, _: &mut HashSet<Box<str>>) -> Vec<Asked> {
        let mut asked: Vec<Asked> = Vec::new();
        let mut said = false;
        let mut signature = None;
        for block in &reply.blocks {
            match block {
                Block::Reasoning { text, opaque: Some(opaque) } => match On::of(opaque) {
                    Some((On::Call | On::Text, signed)) => signature = Some(signed),
                    Some((On::Thought, signed)) => pieces.add(|out| part(out, text, true, Some(signed))),
                    Some((On::Nothing, signed)) => pieces.add(|out| part(out, "", false, Some(signed))),
                    // What the provider ran itself.
                    None if opaque["part"].is_object() => pieces.add(|out| json(out, &opaque["part"])),
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
                    let first = asked.is_empty() && Family::of(model).is_third();
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
    json(out, text);
    if thought {
        out.extend_from_slice(br#","thought":true"#);
    }
    sign(out, signature);
    out.push(b'}');
}

fn function_call(out: &mut Vec<u8>, call: &Call, asked: &Asked, signature: Option<&str>) {
    out.extend_from_slice(br#"{"functionCall":{"#);
    name(out, asked);
    out.extend_from_slice(br#","args":"#);
    out.extend_from_slice(object(&call.arguments).as_bytes());
    out.push(b'}');
    sign(out, signature);
    out.push(b'}');
}

fn sign(out: &mut Vec<u8>, signature: Option<&str>) {
    if let Some(signature) = signature {
        out.extend_from_slice(br#","thoughtSignature":"#);
        json(out, signature);
    }
}

/// The name of a call or a result, and its id unless we made that up.
fn name(out: &mut Vec<u8>, asked: &Asked) {
    out.extend_from_slice(br#""name":"#);
    json(out, &asked.tool);
    if !asked.wire.is_empty() {
        out.extend_from_slice(br#","id":"#);
        json(out, &asked.wire);
    }
}

fn ask(call: &Call) -> Asked {
    let wire = if call.id.starts_with(MADE_UP) { "" } else { &call.id };
    Asked { id: call.id.as_str().into(), wire: wire.into(), tool: wire_name(&call.tool).into() }
}
