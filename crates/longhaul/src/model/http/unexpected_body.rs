//! Detects responses with a good status that are not a model's reply: pages of proxies and portals,
//! compressed bodies.

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

const PAGE: &str = "an HTML page";
const PACKED: &str = "a compressed body (gzip or similar), which was not requested";

/// What the headers say the body is, if it cannot be a model's reply.
pub(super) fn detect_by_headers(headers: &HeaderMap) -> Option<&'static str> {
    let said = |name| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase()
    };
    if said(CONTENT_TYPE).contains("text/html") {
        return Some(PAGE);
    }
    let packed = ["gzip", "br", "deflate", "zstd", "compress"];
    said(CONTENT_ENCODING).split(',').any(|one| packed.contains(&one.trim())).then_some(PACKED)
}

/// What the first bytes say the body is, if it cannot be a model's reply.
pub(super) fn detect_by_first_bytes(bytes: &[u8]) -> Option<&'static str> {
    let text = bytes.trim_ascii_start();
    let begins =
        |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    if begins("<!doctype html") || begins("<html") {
        return Some(PAGE);
    }
    bytes.starts_with(b"\x1f\x8b").then_some(PACKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_packed_bodies_are_known_by_their_beginning() {
        assert_eq!(detect_by_first_bytes(b"\r\n<!DOCTYPE HTML><title>x</title>"), Some(PAGE));
        assert_eq!(detect_by_first_bytes(b"<html>"), Some(PAGE));
        assert_eq!(detect_by_first_bytes(b"\x1f\x8b\x08\0"), Some(PACKED));
        for fine in [&b"data: <html>"[..], b"", b"{", b": ping", b"event: x"] {
            assert_eq!(detect_by_first_bytes(fine), None);
        }
    }
}
