//! Helpers for the tests of the wire protocols.

pub(super) mod conversation;
pub(super) mod exam;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::{WireCache, WireProtocol};
use crate::id::{AgentName, TaskKey};
use crate::message::{Block, Call, Message, Reply, ToolResult};
use crate::model::settings::ModelSettings;
use crate::model::{ModelErrorKind, ModelRequest, ReplyChunk, ToolSpec};

pub(super) type ParsedStream = Result<(Reply, Vec<ReplyChunk>), ModelErrorKind>;

/// Parses a stream that comes in these pieces.
pub(super) fn pieces<'a>(
    wire: &dyn WireProtocol,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> ParsedStream {
    let mut chunks = Vec::new();
    Ok((feed(wire, pieces, &mut chunks)?, chunks))
}

fn feed<'a>(
    wire: &dyn WireProtocol,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    chunks: &mut Vec<ReplyChunk>,
) -> Result<Reply, ModelErrorKind> {
    let mut parser = wire.parser();
    pieces.into_iter().try_for_each(|piece| parser.feed(piece, chunks))?;
    parser.finish()
}

/// The reply or the error of a stream, and the text and thinking that were streamed by then.
pub(super) fn outcome<'a>(
    wire: &dyn WireProtocol,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<Reply, ModelErrorKind>, (String, String)) {
    let mut chunks = Vec::new();
    (feed(wire, pieces, &mut chunks), streamed(&chunks))
}

/// The distance between split positions in a stream of this length, to bound the total number of bytes
/// parsed.
fn stride(len: usize, in_all: usize) -> usize {
    // Odd, so that many streams together cover every position in a line.
    (len * len / in_all) | 1
}

/// Parses a stream byte by byte, and split in two at every position, or at many positions if it is long.
pub(super) fn read(wire: &dyn WireProtocol, stream: &str) -> ParsedStream {
    seed(wire, stream);
    let stream = stream.as_bytes();
    let whole = outcome(wire, [stream]);
    assert_eq!(outcome(wire, stream.chunks(1)), whole, "byte by byte");
    for at in (0..=stream.len()).step_by(stride(stream.len(), 400_000)) {
        assert_eq!(outcome(wire, [&stream[..at], &stream[at..]]), whole, "cut at {at}");
    }
    pieces(wire, [stream])
}

/// Writes a stream as a seed for the fuzzer, if `LONGHAUL_FUZZ_SEEDS` names a folder.
pub(super) fn seed(wire: &dyn WireProtocol, stream: &str) {
    let Some(folder) = std::env::var_os("LONGHAUL_FUZZ_SEEDS") else { return };
    let path = wire.request_path(&settings());
    let family = match path.as_str() {
        path if path.ends_with("/chat/completions") => "openai_chat",
        path if path.ends_with("/responses") => "openai_responses",
        path if path.ends_with("/messages") => "anthropic",
        _ => "gemini",
    };
    let name = TaskKey::named(stream).candidate_ids().last().unwrap().to_string();
    for target in [family, "sse"] {
        let folder = PathBuf::from(&folder).join(target);
        std::fs::create_dir_all(&folder).unwrap();
        // Not split: the last byte is the number of splits.
        std::fs::write(folder.join(&name), [stream.as_bytes(), b"\0"].concat()).unwrap();
    }
}

/// Parses a reply, and checks that the streamed chunks match it.
pub(super) fn reply(wire: &dyn WireProtocol, stream: &str) -> Reply {
    let (reply, chunks) = read(wire, stream).unwrap_or_else(|why| panic!("{why}\n{stream}"));
    check_streamed(stream, &reply, &chunks);
    reply
}

/// Everything was streamed, except for an event that only the end of the stream completes.
fn check_streamed(stream: &str, reply: &Reply, chunks: &[ReplyChunk]) {
    let (text, reasoning) = streamed(chunks);
    assert!(reply.text().starts_with(&text) && reply.reasoning().starts_with(&reasoning), "{stream}");
    if stream.ends_with(['\n', '\r']) {
        assert_eq!((text, reasoning), (reply.text(), reply.reasoning()), "{stream}");
    }
}

/// Parses a stream that ends in an error.
pub(super) fn failure(wire: &dyn WireProtocol, stream: &str) -> ModelErrorKind {
    match read(wire, stream) {
        Err(why) => why,
        Ok((reply, _)) => panic!("{reply:?}"),
    }
}

pub(super) fn server(status: u16, message: &str) -> ModelErrorKind {
    ModelErrorKind::Server { status, message: message.to_owned() }
}

pub(super) fn limited(message: &str) -> ModelErrorKind {
    ModelErrorKind::RateLimited(message.to_owned())
}

pub(super) fn rejected(message: &str) -> ModelErrorKind {
    ModelErrorKind::Rejected(message.to_owned())
}

/// The text and the thinking of some chunks.
pub(super) fn streamed(chunks: &[ReplyChunk]) -> (String, String) {
    let (mut text, mut reasoning) = (String::new(), String::new());
    for chunk in chunks {
        match chunk {
            ReplyChunk::Text(piece) => text.push_str(piece),
            ReplyChunk::Reasoning(piece) => reasoning.push_str(piece),
            _ => panic!("a parser does not end the stream"),
        }
    }
    (text, reasoning)
}

/// Name and arguments of each call.
pub(super) fn calls(reply: &Reply) -> Vec<(String, String)> {
    reply.calls().map(|c| (c.tool.clone(), c.arguments.clone())).collect()
}

pub(super) fn ids(reply: &Reply) -> Vec<&str> {
    reply.calls().map(|c| c.id.as_str()).collect()
}

/// Events without names, one per JSON value.
pub(super) fn stream(frames: &[Value]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

pub(super) fn call(id: &str, tool: &str, arguments: &str) -> Block {
    Block::Call(Call { id: id.into(), tool: tool.into(), arguments: arguments.into() })
}

pub(super) fn user(text: &str) -> Message {
    Message::User(text.into())
}

pub(super) fn said(blocks: Vec<Block>) -> Message {
    Message::Assistant(Arc::new(Reply { blocks, ..Reply::default() }))
}

pub(super) fn text(text: &str) -> Block {
    Block::Text(text.into())
}

pub(super) fn thought(text: &str, opaque: Option<Value>) -> Block {
    Block::Reasoning { text: text.into(), opaque }
}

pub(super) fn returned(call: &str, output: &str) -> Message {
    let (call, output) = (call.into(), output.into());
    Message::Tool(ToolResult { call, tool: "look".into(), output, is_error: false })
}

pub(super) fn tools() -> Vec<Arc<ToolSpec>> {
    let parameters = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
    vec![Arc::new(ToolSpec { name: "look".into(), description: "Looks.".into(), parameters })]
}

pub(super) fn settings() -> ModelSettings {
    ModelSettings::new("m")
}

/// A request with this conversation.
pub(super) fn request<'a>(
    messages: &'a [Message],
    tools: &'a [Arc<ToolSpec>],
    wire_cache: &'a WireCache,
) -> ModelRequest<'a> {
    static AGENT: LazyLock<AgentName> = LazyLock::new(|| AgentName::from("worker"));
    let task = TaskKey::named("test").candidate_ids().next().unwrap();
    let (system, output, turn, retry) = ("Be brief.", None, 0, 0);
    let (root, depth, agent) = (task, 0, &*AGENT);
    let text_delay = None;
    ModelRequest {
        task,
        root,
        depth,
        agent,
        system,
        messages,
        tools,
        output,
        turn,
        retry,
        wire_cache,
        text_delay,
    }
}

/// The body of a request, as bytes and as JSON.
pub(super) fn body(
    wire: &dyn WireProtocol,
    messages: &[Message],
    tools: &[Arc<ToolSpec>],
    settings: &ModelSettings,
    memo: &WireCache,
) -> (Vec<u8>, Value) {
    let bytes = wire.request_body(&request(messages, tools, memo), settings, memo).unwrap();
    let value =
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&bytes)));
    (bytes, value)
}

/// One recorded exchange.
pub(super) struct RecordedCase {
    pub(super) case: String,
    status: u16,
    pub(super) body: String,
}

/// The recorded replies of a family. Errors are checked here.
pub(super) fn recorded(wire: &dyn WireProtocol, family: &str) -> Vec<(RecordedCase, Reply)> {
    let (replies, refusals): (Vec<_>, Vec<_>) = traffic(family).into_iter().partition(|c| c.status == 200);
    refusals.iter().for_each(|case| check_refusal(wire, case));
    let read = |case: RecordedCase| {
        let reply = read_recorded(wire, &case);
        (case, reply)
    };
    replies.into_iter().map(read).collect()
}

/// The recorded traffic of a family, if there is any on this machine.
fn traffic(family: &str) -> Vec<RecordedCase> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = match std::env::var_os("LONGHAUL_TRAFFIC") {
        Some(folder) => Some(PathBuf::from(folder)),
        None => here.ancestors().map(|folder| folder.join("shared/traffic")).find(|folder| folder.is_dir()),
    };
    let Some(folder) = folder else {
        println!("skipped: there is no recorded traffic here");
        return Vec::new();
    };
    let mut recorded = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with(&format!("{family}.")) {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            recorded.push(RecordedCase {
                case: format!("{name}: {}", value["case"].as_str().unwrap()),
                status: value["status"].as_u64().unwrap() as u16,
                body: value["body"].as_str().unwrap().to_owned(),
            });
        }
    }
    recorded
}

/// Parses a recorded stream in pieces of many sizes.
fn read_recorded(wire: &dyn WireProtocol, case: &RecordedCase) -> Reply {
    let stream = case.body.as_bytes();
    let whole = pieces(wire, [stream]);
    for size in [1, 7, 1009] {
        assert_eq!(pieces(wire, stream.chunks(size)), whole, "{} in pieces of {size}", case.case);
    }
    let step = match std::env::var_os("LONGHAUL_WIRE_CASES") {
        // At every position, except for the longest streams.
        Some(_) => (stream.len() * stream.len() / (64 << 20) / 64).max(1),
        None => stride(stream.len(), 20_000),
    };
    for at in (0..stream.len()).step_by(step) {
        assert_eq!(pieces(wire, [&stream[..at], &stream[at..]]), whole, "{} cut at {at}", case.case);
    }
    let (reply, chunks) = whole.unwrap_or_else(|why| panic!("{}: {why}", case.case));
    check_streamed(&case.body, &reply, &chunks);
    reply
}

/// The JSON of each data line.
pub(super) fn data_lines(body: &str) -> Vec<Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data:"));
    lines.filter(|line| line.trim() != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that an error matches its status and contains the provider's message.
fn check_refusal(wire: &dyn WireProtocol, case: &RecordedCase) {
    let kind = wire.error_from_response(case.status, case.body.as_bytes());
    let error: Value = serde_json::from_str(&case.body).unwrap();
    let said = [&error["error"]["message"], &error["error"], &error["message"]];
    let said = said.iter().find_map(|said| said.as_str()).unwrap();
    assert!(kind.to_string().contains(said), "{}: {kind}", case.case);
    match case.status {
        429 => assert!(matches!(kind, ModelErrorKind::RateLimited(_)), "{}", case.case),
        500.. => assert!(matches!(kind, ModelErrorKind::Server { .. }), "{}", case.case),
        _ => assert!(matches!(kind, ModelErrorKind::Rejected(_)), "{}", case.case),
    }
}
