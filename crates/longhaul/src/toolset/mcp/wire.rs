//! Parses the messages of a server. An unreadable message is never dropped silently: the request that waits
//! for it receives an error.

use rmcp::ErrorData;
use rmcp::model::{CustomRequest, ErrorCode, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerRequest};
use serde_json::{Value, json};

use super::json_scan::JsonScan;
use super::limits;
use crate::toolset::text::{group_digits, truncate};

/// The method of a request that replaces an unreadable one.
pub(super) const UNREADABLE: &str = "longhaul/unreadable";

/// What a server has sent.
pub(super) enum Incoming {
    /// A message, or the replacement of an unreadable one.
    Message(Box<ServerJsonRpcMessage>),
    /// Nothing that any request waits for.
    Nothing,
    /// An unreadable message that cannot be attributed to a request, and the reason.
    Unattributed(String),
}

pub(super) fn parse_message(bytes: &[u8]) -> Incoming {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return Incoming::Nothing;
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let scan = JsonScan::from_bytes(bytes);
    match readable(bytes, &scan) {
        Ok(message) => Incoming::Message(Box::new(message)),
        Err(UnreadableMessage(why)) => substitute(&scan, why),
    }
}

/// Why a message cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct UnreadableMessage(String);

fn readable(bytes: &[u8], scan: &JsonScan) -> Result<ServerJsonRpcMessage, UnreadableMessage> {
    if bytes.len() > limits::MESSAGE {
        return Err(UnreadableMessage(too_long()));
    }
    if scan.deepest > limits::DEPTH {
        return Err(UnreadableMessage(format!("its JSON is nested more than {} levels deep", limits::DEPTH)));
    }
    if scan.values > limits::VALUES {
        let most = group_digits(limits::VALUES as u64);
        return Err(UnreadableMessage(format!("its JSON has more than {most} values")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = group_digits(error.valid_up_to() as u64);
        UnreadableMessage(format!("it is not UTF-8 (from byte {at} on)"))
    })?;
    serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => UnreadableMessage("it is not a JSON-RPC message".to_owned()),
        false => UnreadableMessage(format!("it is not JSON ({})", truncate(&error.to_string(), 120))),
    })
}

/// The error for a message that is too long.
pub(super) fn too_long() -> String {
    format!("it is longer than {}, which is the limit", limits::MESSAGE_WORDS)
}

/// Replaces an unreadable message with an error for the request that waits for it.
pub(super) fn substitute(scan: &JsonScan, why: String) -> Incoming {
    if !scan.is_message() {
        // Some servers print other output where only messages belong.
        tracing::debug!(why, "ignored output that is not a JSON-RPC message");
        return Incoming::Nothing;
    }
    let message = match (scan.id(), scan.has_method) {
        (Some(id), false) => unreadable_answer(id, &why),
        (Some(id), true) => {
            let asks = CustomRequest::new(UNREADABLE, Some(Value::String(why)));
            JsonRpcMessage::request(ServerRequest::CustomRequest(asks), id)
        }
        (None, true) => {
            tracing::debug!(why, "ignored an unreadable notification");
            return Incoming::Nothing;
        }
        (None, false) => return Incoming::Unattributed(why),
    };
    Incoming::Message(Box::new(message))
}

/// The error response for a request whose response is unreadable.
pub(super) fn unreadable_answer(id: RequestId, why: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::PARSE_ERROR, why.to_owned(), Some(mark()));
    JsonRpcMessage::error(error, Some(id))
}

/// Marks our own errors. A server that sends the same mark gains nothing.
fn mark() -> Value {
    json!({UNREADABLE: true})
}

/// Whether this error replaces an unreadable response; its message says why.
pub(super) fn is_unreadable(error: &ErrorData) -> bool {
    error.data.as_ref() == Some(&mark())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> String {
        match parse_message(text) {
            Incoming::Nothing => "nothing".to_owned(),
            Incoming::Unattributed(why) => format!("lost: {why}"),
            Incoming::Message(message) => match *message {
                JsonRpcMessage::Error(error) if is_unreadable(&error.error) => {
                    format!("{}: {}", error.id.unwrap(), error.error.message)
                }
                other => serde_json::to_string(&other).unwrap(),
            },
        }
    }

    #[test]
    fn who_waits_for_what_cannot_be_read_is_told() {
        assert_eq!(
            parsed(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"a\":\"\xff\"}}"),
            "3: it is not UTF-8 (from byte 39 on)"
        );
        assert!(parsed(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{").starts_with("3: it is not JSON ("));
        assert_eq!(
            parsed(b"{\"jsonrpc\":\"1.0\",\"id\":3,\"result\":{}}"),
            "3: it is not a JSON-RPC message"
        );
        let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}", "[".repeat(10_000));
        assert_eq!(parsed(deep.as_bytes()), "3: its JSON is nested more than 100 levels deep");
        assert!(parsed(b"{\"jsonrpc\":\"2.0\",\"result\":{").starts_with("lost: it is not JSON ("));
        assert_eq!(parsed(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{"), "nothing");
        assert!(parsed(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{").contains(UNREADABLE));
        assert_eq!(parsed(b"hello"), "nothing");
        assert!(
            parsed("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}".as_bytes()).contains("\"id\":3")
        );
    }

    #[test]
    fn what_is_nested_as_deep_as_it_may_be_is_read() {
        let inner = limits::DEPTH - 1;
        let deep =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}{}}}", "[".repeat(inner), "]".repeat(inner));
        assert!(parsed(deep.as_bytes()).starts_with("{\"jsonrpc\""), "{}", parsed(deep.as_bytes()));
    }
}
