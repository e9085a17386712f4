//! Scans JSON that may be incomplete, invalid or very long: how deep it is, how many values it has, and which
//! request it belongs to.
//!
//! Even for an unreadable message, this finds the id of the request that it answers. It uses a bounded amount
//! of memory for any input.

use memchr::memchr2;
use rmcp::model::RequestId;

/// How many bytes of a key or an id are kept.
const KEPT: usize = 300;

/// What the scan has found so far.
#[derive(Debug, Default)]
pub(super) struct JsonScan {
    /// The first byte.
    first: Option<u8>,
    depth: usize,
    pub(super) deepest: usize,
    pub(super) values: usize,
    in_string: bool,
    escaped: bool,
    /// The position in the outermost object.
    at: ScanPosition,
    kept: Vec<u8>,
    id: Option<Vec<u8>>,
    pub(super) has_method: bool,
    is_answer: bool,
    has_version: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ScanPosition {
    #[default]
    Key,
    Colon,
    Id,
    Value,
}

impl JsonScan {
    pub(super) fn from_bytes(bytes: &[u8]) -> JsonScan {
        let mut scan = JsonScan::default();
        scan.feed(bytes);
        scan
    }

    /// Scans more bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.in_string {
                rest = self.string(rest);
                continue;
            }
            rest = &rest[1..];
            self.outside(byte);
        }
    }

    /// Skips to the end of a string, or to the end of the bytes.
    fn string<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        if std::mem::take(&mut self.escaped) {
            self.keep(&rest[..1]);
            return &rest[1..];
        }
        let Some(end) = memchr2(b'"', b'\\', rest) else {
            self.keep(rest);
            return &[];
        };
        self.keep(&rest[..end]);
        match rest[end] {
            b'\\' => {
                self.keep(b"\\");
                self.escaped = true;
            }
            _ => {
                self.in_string = false;
                if self.depth == 1 && self.at == ScanPosition::Key {
                    self.key();
                } else {
                    self.keep(b"\"");
                }
            }
        }
        &rest[end + 1..]
    }

    fn outside(&mut self, byte: u8) {
        if byte.is_ascii_whitespace() {
            return;
        }
        self.first.get_or_insert(byte);
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 && self.at == ScanPosition::Key {
                    self.kept.clear();
                } else {
                    self.keep(b"\"");
                }
            }
            b'{' | b'[' => {
                self.values += 1;
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
                if self.at == ScanPosition::Id {
                    self.at = ScanPosition::Value;
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_of_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => {
                self.values += 1;
                if self.depth == 1 {
                    self.end_of_value();
                }
            }
            b':' if self.depth == 1 && self.at == ScanPosition::Colon => {
                self.at = if self.kept == b"id" { ScanPosition::Id } else { ScanPosition::Value };
                self.kept.clear();
            }
            _ => self.keep(&[byte]),
        }
    }

    fn key(&mut self) {
        self.at = ScanPosition::Colon;
        match self.kept.as_slice() {
            b"method" => self.has_method = true,
            b"result" | b"error" => self.is_answer = true,
            b"jsonrpc" => self.has_version = true,
            _ => {}
        }
    }

    fn end_of_value(&mut self) {
        if self.at == ScanPosition::Id {
            self.id = Some(std::mem::take(&mut self.kept));
        }
        self.at = ScanPosition::Key;
    }

    /// Keeps the bytes of keys and of the id, up to the longest length allowed.
    fn keep(&mut self, bytes: &[u8]) {
        if self.depth == 1
            && matches!(self.at, ScanPosition::Key | ScanPosition::Id)
            && self.kept.len() <= KEPT
        {
            let room = KEPT + 1 - self.kept.len();
            self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Whether it is, or was meant as, a protocol message, and not other output of a server.
    pub(super) fn is_message(&self) -> bool {
        self.first == Some(b'{') && (self.has_version || (self.id.is_some() && self.is_answer))
    }

    /// Whether it can only be a response.
    pub(super) fn is_answer(&self) -> bool {
        self.is_answer && !self.has_method
    }

    /// Returns the id of the request or response.
    pub(super) fn id(&self) -> Option<RequestId> {
        let id = self.id.as_ref().filter(|id| id.len() <= KEPT && id.as_slice() != b"null")?;
        serde_json::from_slice(id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> (bool, bool, Option<String>) {
        let scan = JsonScan::from_bytes(text.as_bytes());
        // The result must not depend on where the text is split.
        for at in 0..text.len() {
            let mut parts = JsonScan::default();
            parts.feed(&text.as_bytes()[..at]);
            parts.feed(&text.as_bytes()[at..]);
            assert_eq!(format!("{parts:?}"), format!("{scan:?}"), "cut at {at}");
        }
        (scan.is_message(), scan.is_answer(), scan.id().map(|id| id.to_string()))
    }

    #[test]
    fn whose_answer_it_is_shows_though_it_is_broken() {
        let yes = |id: &str| (true, true, Some(id.to_owned()));
        assert_eq!(seen(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"a":["id",{"id":1}]}}"#), yes("7"));
        assert_eq!(seen(r#" {"result":{"text":"\"id\":5, {"},"jsonrpc":"2.0","id" : "a\"b" }"#), yes("a\"b"));
        assert_eq!(seen(r#"{"jsonrpc":"2.0","id":7,"result":{"con"#), yes("7"));
        assert_eq!(seen(r#"{"jsonrpc":"2.0","id":7,"error":{"#), yes("7"));
        assert_eq!(seen(r#"{"jsonrpc":"2.0","result":["#), (true, true, None));
        assert_eq!(seen(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#), (true, true, None));
        let asks = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"result":1}}"#;
        assert_eq!(seen(asks), (true, false, Some("7".to_owned())));
    }

    #[test]
    fn what_a_server_prints_is_no_message() {
        for text in [
            "listening on 3000",
            "{ a: 1 }",
            "[1, 2]",
            "",
            "{\"level\":\"info\",\"id\":3}",
            "}}}}",
            "\"jsonrpc\"",
        ] {
            assert!(!seen(text).0, "{text}");
        }
    }

    #[test]
    fn depth_and_values_are_counted_outside_of_strings_only() {
        let scan = JsonScan::from_bytes(br#"{"a":[[1,2,[]]],"b":"[[[[,,,,\"[["}"#);
        assert_eq!((scan.deepest, scan.values), (4, 7));
        let long = format!("{{\"id\":\"{}\",\"result\":1}}", "x".repeat(100_000));
        let scan = JsonScan::from_bytes(long.as_bytes());
        assert!(scan.id().is_none() && scan.kept.capacity() < 10_000);
    }
}
