//! Unusual responses from real traffic, the same for all families.

use serde_json::json;

use super::openai_chat::{OpenAiChat, Quirks};
use super::openai_responses::OpenAiResponses;
use super::parsing;
use super::testing::{calls, reply, settings};
use super::{Anthropic, Gemini, WireProtocol};
use crate::model::ModelErrorKind;
use crate::model::settings::{ModelSettings, Thinking};

/// The two halves of 😀, each in its own event, and one half that is never completed.
#[test]
fn a_surrogate_pair_that_is_split_over_two_events_is_one_character() {
    let chat = OpenAiChat::new(Quirks::PLAIN);
    let piece = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let think = |text: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"reasoning_content\":\"{text}\"}}}}]}}\n\n")
    };
    let argue = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"t\",\
             \"arguments\":\"{text}\"}}}}]}}}}]}}\n\n"
        )
    };
    let end =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let stream = [
        think("a"),
        think("b\\ud83d"),
        think("\\ude00c"),
        piece("Hi "),
        piece("x"),
        piece("\\ud83d"),
        piece("\\ude00!"),
    ]
    .concat();
    let got = reply(&chat, &format!("{stream}{end}"));
    assert_eq!((got.text().as_str(), got.reasoning().as_str()), ("Hi x😀!", "ab😀c"));
    let alone = [piece("a\\ud83d"), piece("b\\ude00"), piece("c")].concat();
    assert_eq!(reply(&chat, &format!("{alone}{end}")).text(), "a\u{fffd}b\u{fffd}c");
    let argued = [argue("{\\\"a\\\":\\\"\\ud83d"), argue("\\ude00\\\"}")].concat();
    assert_eq!(calls(&reply(&chat, &format!("{argued}{end}")))[0].1, "{\"a\":\"😀\"}");

    let delta = |text: &str| {
        format!(
            "data: {{\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"{text}\"}}\n\n"
        )
    };
    let done = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
    let stream = [delta("x\\ud83d"), delta("\\ude00!"), done.to_owned()].concat();
    assert_eq!(reply(&OpenAiResponses::new(), &stream).text(), "x😀!");
}

/// A retry does not help if the server was not started with what the request needs.
#[test]
fn a_server_error_that_stays_is_no_outage() {
    let said =
        br#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#;
    let chat = OpenAiChat::new(Quirks::LOCAL);
    for wire in [&chat as &dyn WireProtocol, &OpenAiResponses::new(), &Anthropic] {
        let kind = wire.error_from_response(500, said);
        assert!(matches!(&kind, ModelErrorKind::Rejected(why) if why.contains("--jinja")), "{kind:?}");
        assert!(!kind.is_transient() && !kind.is_outage());
        assert!(wire.error_from_response(500, br#"{"error":{"message":"oops"}}"#).is_outage());
    }
    let kind = parsing::error_from_stream(&serde_json::from_slice(said).unwrap());
    assert!(!kind.is_transient(), "{kind:?}");
}

#[test]
fn responses_ask_for_thinking_of_models_that_think() {
    let body = |model: &str, thinking: Option<Thinking>| {
        let settings = ModelSettings { model: model.into(), thinking, ..settings() };
        let memo = super::WireCache::default();
        super::testing::body(&OpenAiResponses::new(), &[super::testing::user("Hi")], &[], &settings, &memo).1
    };
    let sealed = json!(["reasoning.encrypted_content"]);
    for (model, thinks) in [
        ("gpt-5.4", true),
        ("o4-mini", true),
        ("ft:o4-mini:me::x", true),
        ("gpt-4o", false),
        ("ft:gpt-4o-mini-2024-07-18:me::x", false),
        ("ft:gpt-4.1-mini:me::x", false),
    ] {
        let asked = body(model, None);
        assert_eq!(asked.get("include").cloned(), thinks.then(|| sealed.clone()), "{model}");
        assert_eq!(asked.get("reasoning"), None, "{model}");
    }
    let low = body("gpt-5.4", Some(Thinking::Effort("low".into())));
    assert_eq!(low["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(body("gpt-5.4", Some(Thinking::Adaptive))["reasoning"], json!({"summary": "auto"}));
    assert_eq!(body("gpt-5.4", Some(Thinking::Off))["reasoning"], json!({"effort": "none"}));
    // Models without thinking refuse a request to turn it off.
    assert_eq!(body("gpt-4o", Some(Thinking::Off)).get("reasoning"), None);
    let chat = |model: &str| {
        let settings = ModelSettings { model: model.into(), thinking: Some(Thinking::Off), ..settings() };
        let (wire, memo) = (OpenAiChat::new(Quirks::OPENAI), super::WireCache::default());
        let body = super::testing::body(&wire, &[super::testing::user("Hi")], &[], &settings, &memo).1;
        body.get("reasoning_effort").cloned()
    };
    assert_eq!((chat("gpt-4.1-mini"), chat("gpt-5.2")), (None, Some(json!("none"))));
    // The published minimum of `max_output_tokens`.
    let few = ModelSettings { model: "gpt-5.4".into(), max_tokens: Some(8), ..settings() };
    assert!(
        OpenAiResponses::new()
            .check_settings(&few)
            .is_err_and(|why| why.to_string().starts_with("max_tokens: "))
    );
}

/// An event that is too large is refused before it is buffered, wherever it is split.
#[test]
fn an_event_of_many_megabytes_is_refused() {
    let chat = OpenAiChat::new(Quirks::PLAIN);
    for wire in [&chat as &dyn WireProtocol, &OpenAiResponses::new(), &Anthropic, &Gemini] {
        let mut parser = wire.parser();
        let mut chunks = Vec::new();
        let piece = vec![b'x'; 1 << 20];
        let mut fed = parser.feed(b"data: {\"a\":\"", &mut chunks);
        let mut sent = 0;
        while fed.is_ok() && sent < 16 {
            fed = parser.feed(&piece, &mut chunks);
            sent += 1;
        }
        assert!(sent <= 5 && matches!(fed, Err(ModelErrorKind::TooLarge(_))), "{sent} MiB: {fed:?}");
    }
}
