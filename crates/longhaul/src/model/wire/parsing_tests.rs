use serde_json::json;

use super::super::testing::{limited, rejected, server};
use super::*;

#[test]
fn errors_are_read_wherever_they_are() {
    for (status, body, expected) in [
        (400, r#"{"error":{"message":"no such model"}}"#, "no such model (400)"),
        (404, r#"{"error":"no such model"}"#, "no such model (404)"),
        (400, r#"{"object":"error","message":"no such model","code":"1500"}"#, "no such model (400)"),
        (422, r#"{"detail":[{"loc":["body"],"msg":"no such model"}]}"#, "no such model (422)"),
        (403, r#"{"detail":"no such model"}"#, "no such model (403)"),
        (400, r#"[{"error":{"message":"no such model"}}]"#, "no such model (400)"),
        (
            400,
            r#"{"error":{"message":"Upstream","metadata":{"raw":"no such model"}}}"#,
            "Upstream: no such model (400)",
        ),
        (404, "no such\nmodel", "no such model (404)"),
        (401, "", "401"),
        (429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, "pay"),
    ] {
        assert_eq!(error_from_response(status, body.as_bytes()), rejected(expected), "{body}");
    }
    assert_eq!(error_from_response(429, b"{\"error\":{\"message\":\"slow\"}}"), limited("slow"));
    for status in [408, 409, 500, 502, 503, 529] {
        let kind = error_from_response(status, b"{\"error\":{\"message\":\"down\"}}");
        assert_eq!(kind, ModelErrorKind::Server { status, message: "down".into() });
        assert!(kind.is_transient());
    }
}

#[test]
fn an_error_in_a_stream_says_what_it_is_or_may_pass() {
    for (error, expected) in [
        (json!({"error": {"code": 429, "message": "m"}}), limited("m")),
        (json!({"error": {"code": "429", "message": "m"}}), limited("m")),
        (json!({"error": {"type": "rate_limit_error", "message": "m"}}), limited("m")),
        (json!({"type": "error", "code": "server_error", "message": "m"}), server(500, "m")),
        (json!({"error": {"type": "overloaded_error", "message": "m"}}), server(503, "m")),
        (json!({"error": {"code": 502, "message": "m"}}), server(502, "m")),
        (json!({"error": "m"}), server(500, "m")),
        (json!({"error": {"type": "invalid_request_error", "message": "m"}}), rejected("m (400)")),
        (
            json!({"error": {"code": "tool_use_failed", "message": "m"}}),
            ModelErrorKind::Truncated("m".into()),
        ),
    ] {
        assert_eq!(error_from_stream(&error), expected, "{error}");
    }
}

#[test]
fn what_an_error_says_is_bounded_and_has_no_keys_in_it() {
    let long = "word ".repeat(1000);
    assert!(sanitized_line(&long).len() < 700);
    assert!(sanitized_line(&"ü".repeat(5000)).chars().count() < 700);
    let said = sanitized_line(
        "Incorrect API key: sk-proj-abcdefghijklmnopqrstuvwxyz, see 'gsk_0123456789012345678901'.",
    );
    assert_eq!(said, "Incorrect API key: [key] see [key]");
    assert_eq!(sanitized_line("key sk-inval**************-key."), "key sk-inval**************-key.");
}

#[test]
fn ids_are_given_once() {
    let mut ids = UniqueIds::default();
    let given: Vec<String> = ["a", "a", "", "", "call_2", "a_1", "a"]
        .iter()
        .enumerate()
        .map(|(n, id)| ids.claim((*id).into(), n))
        .collect();
    assert_eq!(given, ["a", "a_1", "call_2", "call_3", "call_2_4", "a_1_5", "a_6"]);
}

#[test]
fn json_is_whole_when_its_object_ends() {
    let mut whole = JsonCompletion::default();
    for piece in ["{\"a", "\": \"}\\\"", "}\", \"b\": [{}", "]"] {
        whole.feed(piece);
        assert!(!whole.is_complete(), "{piece}");
    }
    whole.feed("}");
    assert!(whole.is_complete());
}
