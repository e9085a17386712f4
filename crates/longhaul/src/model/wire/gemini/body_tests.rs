//! Request bodies: settings and conversation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::testing::exam::{TestConversation, assistant, call, failed, refused, result, settings};
use super::super::testing::{text, user};
use super::*;
use crate::message::{Block, Message};
use crate::model::ToolSpec;
use crate::model::settings::{StructuredOutput, Thinking};

const MODEL: &str = "gemini-2.5-flash";

fn contents(model: &str, messages: impl IntoIterator<Item = Message>) -> Value {
    TestConversation::new(messages).body(&Gemini, &settings(model))["contents"].clone()
}

#[test]
fn a_plain_body() {
    let conversation = TestConversation::new([user("Hi")]);
    let asked = ModelSettings {
        max_tokens: Some(100),
        temperature: Some(0.5),
        top_p: Some(0.25),
        frequency_penalty: Some(1.0),
        presence_penalty: Some(-1.0),
        ..settings(MODEL)
    };
    assert_eq!(
        conversation.body(&Gemini, &asked),
        json!({
            "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5, "topP": 0.25,
                "frequencyPenalty": 1.0, "presencePenalty": -1.0},
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [{"functionDeclarations": [{"name": "weather", "description": "The weather.",
                "parametersJsonSchema": conversation.tools[0].parameters}]}],
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        })
    );
    assert_eq!(Gemini.request_path(&asked), "/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert_eq!(
        Gemini.request_path(&settings("tunedModels/x")),
        "/tunedModels/x:streamGenerateContent?alt=sse"
    );
}

#[test]
fn turns_and_their_parts() {
    let contents = contents(
        MODEL,
        [
            user("Go"),
            user(""),
            user("on"),
            assistant(
                "m",
                [text("Yes."), call("toolu_1", r#"{"city":"Oslo"}"#), call("lh_call_1", ""), call("x", "no")],
            ),
            user("A letter."),
            result("lh_call_1", "rain"),
            failed("toolu_1", "broken"),
            assistant("m", [text(" ")]),
            assistant("m", [text("Rain.")]),
            result("unknown", "what"),
        ],
    );
    let called = |args: Value| json!({"name": "weather", "args": args});
    assert_eq!(
        contents,
        json!([
            {"role": "user", "parts": [{"text": "Go"}, {"text": "on"}]},
            {"role": "model", "parts": [
                {"text": "Yes."},
                {"functionCall": {"name": "weather", "id": "toolu_1", "args": {"city": "Oslo"}}},
                {"functionCall": called(json!({}))},
                {"functionCall": {"name": "weather", "id": "x", "args": {"arguments": "no"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "weather", "response": {"output": "rain"}}},
                {"functionResponse": {"name": "weather", "id": "toolu_1", "response": {"error": "broken"}}},
                {"functionResponse": {"name": "weather", "id": "x", "response":
                    {"error": "There is no result: the call was not carried out."}}},
                {"text": "A letter."},
            ]},
            {"role": "model", "parts": [{"text": "Rain."}]},
            {"role": "user", "parts": [{"text": "Result of 'weather':\nwhat"}]},
        ])
    );
}

#[test]
fn signatures_go_back_on_their_parts() {
    let signed = |text: &str, on: &str| Block::Reasoning {
        text: text.into(),
        opaque: Some(json!({"thoughtSignature": format!("sig-{on}"), "on": on})),
    };
    let code = json!({"executableCode": {"code": "1", "language": "PYTHON"}});
    let reply = assistant(
        "gemini-3-pro",
        [
            signed("Hm.", "thought"),
            Block::Reasoning { text: "A summary.".into(), opaque: None },
            Block::Reasoning {
                text: "Claude's.".into(),
                opaque: Some(json!({"type": "thinking", "signature": "s"})),
            },
            Block::Reasoning { text: String::new(), opaque: Some(json!({ "part": code })) },
            signed("", "text"),
            text("So."),
            text("More."),
            signed("", "call"),
            call("a", "{}"),
            call("b", "{}"),
            signed("", "nothing"),
        ],
    );
    let answers = [result("a", "1"), result("b", "2")];
    let foreign = assistant("claude-opus-5", [call("c", "{}"), call("d", "{}")]);
    let messages = || [user("Go"), reply.clone()].into_iter().chain(answers.clone()).chain([foreign.clone()]);
    let contents = contents("gemini-3-pro", messages());
    assert_eq!(
        contents[1]["parts"],
        json!([
            {"text": "Hm.", "thought": true, "thoughtSignature": "sig-thought"},
            code,
            {"text": "So.", "thoughtSignature": "sig-text"},
            {"text": "More."},
            {"functionCall": {"name": "weather", "id": "a", "args": {}}, "thoughtSignature": "sig-call"},
            {"functionCall": {"name": "weather", "id": "b", "args": {}}},
            {"text": "", "thoughtSignature": "sig-nothing"},
        ])
    );
    // The first call of another model's turn is marked as unsigned, because the API would refuse it
    // otherwise.
    assert_eq!(contents[3]["parts"][0]["thoughtSignature"], "skip_thought_signature_validator");
    assert!(contents[3]["parts"][1].get("thoughtSignature").is_none());
    let older = super::body_tests::contents(MODEL, messages());
    assert!(older[3]["parts"][0].get("thoughtSignature").is_none());
    // A turn with only a signature is left out.
    let empty =
        super::body_tests::contents(MODEL, [user("Go"), assistant("m", [signed("", "nothing")]), user("on")]);
    assert_eq!(empty.as_array().unwrap().len(), 1);
}

#[test]
fn thinking_settings() {
    let with = |model: &str, thinking: Thinking| {
        let asked = ModelSettings { thinking: Some(thinking), ..settings(model) };
        TestConversation::new([user("Hi")])
            .try_body(&Gemini, &asked)
            .map_err(|why| why.to_string())
            .map(|body| body["generationConfig"].get("thinkingConfig").cloned().unwrap_or_default())
    };
    let effort = |word: &str| Thinking::Effort(word.into());
    let budget = |tokens: i64| json!({"includeThoughts": true, "thinkingBudget": tokens});
    let level = |level: &str| json!({"includeThoughts": true, "thinkingLevel": level});
    for (model, thinking, expected) in [
        (MODEL, Thinking::Tokens(512), budget(512)),
        (MODEL, Thinking::Adaptive, budget(-1)),
        (MODEL, Thinking::Off, json!({"thinkingBudget": 0})),
        (MODEL, effort("low"), budget(1024)),
        (MODEL, effort("none"), json!({"thinkingBudget": 0})),
        ("gemini-3-pro-preview", effort("low"), level("low")),
        ("gemini-3.1-flash", effort("max"), level("high")),
        ("gemini-flash-latest", effort("medium"), level("medium")),
        ("gemini-3-pro-preview", Thinking::Adaptive, json!({"includeThoughts": true})),
        ("gemini-3-pro-preview", Thinking::Tokens(9), budget(9)),
        ("gemini-2.0-flash", Thinking::Off, Value::Null),
    ] {
        assert_eq!(with(model, thinking.clone()).unwrap(), expected, "{model} {thinking:?}");
    }
    for (model, thinking, word) in [
        ("gemini-2.5-pro", Thinking::Off, "always thinks"),
        ("gemini-3-pro-preview", Thinking::Off, "always thinks"),
        ("gemini-2.0-flash", Thinking::Tokens(9), "does not think"),
        (MODEL, effort("very"), "'very'"),
    ] {
        let error = with(model, thinking).unwrap_err();
        assert!(error.starts_with("thinking: ") && error.contains(word), "{error}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let opts = json!({"contents": []}).as_object().unwrap().clone();
    for (asked, word) in [
        (ModelSettings { parallel_tool_calls: Some(false), ..settings(MODEL) }, "parallel_tool_calls: "),
        (ModelSettings { max_tokens: Some(0), ..settings(MODEL) }, "max_tokens: "),
        (ModelSettings { provider_opts: opts, ..settings(MODEL) }, "provider_opts: 'contents'"),
        (settings("gemini?key=x"), "model: "),
    ] {
        let error = refused(&Gemini, &asked);
        assert!(error.starts_with(word), "{error}");
    }
    assert_eq!(
        Gemini.check_settings(&ModelSettings { parallel_tool_calls: Some(true), ..settings(MODEL) }),
        Ok(())
    );
    assert!(TestConversation::new([]).try_body(&Gemini, &settings(MODEL)).is_err());
}

#[test]
fn the_shape_of_the_answer() {
    let schema = json!({"type": "object"});
    let shape =
        StructuredOutput { name: "s".into(), description: None, schema: schema.clone(), strict: true };
    let mut conversation = TestConversation::new([user("Hi")]);
    let with = |conversation: &TestConversation, model: &str| {
        let asked = ModelSettings { structured_output: Some(shape.clone()), ..settings(model) };
        let body = conversation.body(&Gemini, &asked);
        let words = body["systemInstruction"].to_string().contains("JSON schema");
        (body["generationConfig"].clone(), words)
    };
    let held = json!({"responseMimeType": "application/json", "responseJsonSchema": schema});
    assert_eq!(with(&conversation, "gemini-3-pro"), (held.clone(), false));
    assert_eq!(with(&conversation, MODEL), (json!({}), true));
    conversation.tools.clear();
    assert_eq!(with(&conversation, MODEL), (held, false));
}

#[test]
fn tools_without_parameters_and_options_of_the_provider() {
    let mut conversation = TestConversation::new([user("Hi")]);
    let bare = json!({"type": "object", "properties": {}});
    conversation.tools = vec![Arc::new(ToolSpec { parameters: bare, ..(*conversation.tools[0]).clone() })];
    conversation.system = "";
    let opts =
        json!({"safetySettings": [1], "generationConfig": {"topK": 5}, "tools": [{"codeExecution": {}}]});
    let asked = ModelSettings {
        provider_opts: opts.as_object().unwrap().clone(),
        max_tokens: Some(9),
        ..settings(MODEL)
    };
    let declared = json!({"functionDeclarations": [{"name": "weather", "description": "The weather."}]});
    let body = conversation.body(&Gemini, &asked);
    assert_eq!(body["tools"], json!([declared, {"codeExecution": {}}]));
    assert_eq!(body["generationConfig"], json!({"maxOutputTokens": 9, "topK": 5}));
    assert_eq!((&body["safetySettings"], body.get("systemInstruction")), (&json!([1]), None));
    conversation.tools.clear();
    assert_eq!(conversation.body(&Gemini, &asked)["tools"], json!([{"codeExecution": {}}]));
    assert!(conversation.body(&Gemini, &settings(MODEL)).get("tools").is_none());
}

/// "Combine built-in tools and function calling": only Gemini 3 supports it, and only if it returns what its
/// tools did.
#[test]
fn tools_of_its_own_beside_functions_are_shown() {
    let mut conversation = TestConversation::new([user("Hi")]);
    let opts = json!({"tools": [{"googleSearch": {}}]});
    let asked =
        |model: &str| ModelSettings { provider_opts: opts.as_object().unwrap().clone(), ..settings(model) };
    let shown = json!({"includeServerSideToolInvocations": true});
    assert_eq!(conversation.body(&Gemini, &asked("gemini-3-pro"))["toolConfig"], shown);
    assert!(conversation.body(&Gemini, &asked(MODEL)).get("toolConfig").is_none());
    assert!(conversation.body(&Gemini, &settings("gemini-3-pro")).get("toolConfig").is_none());
    conversation.tools.clear();
    assert!(conversation.body(&Gemini, &asked("gemini-3-pro")).get("toolConfig").is_none());
}

#[test]
fn only_what_is_new_is_serialised() {
    let mut conversation =
        TestConversation::new([user("first"), assistant("m", [call("a", "{}")]), result("a", "1")]);
    let before = conversation.body(&Gemini, &settings(MODEL));
    conversation.messages[0] = user("changed behind the back");
    assert_eq!(conversation.body(&Gemini, &settings(MODEL)), before);
    conversation.messages.extend([assistant("m", [text("Well.")]), user("second")]);
    let after = conversation.body(&Gemini, &settings(MODEL));
    assert_eq!(after["contents"].as_array().unwrap()[..3], before["contents"].as_array().unwrap()[..3]);
    conversation.messages[0] = user("first");
    assert_eq!(TestConversation::new(conversation.messages.clone()).body(&Gemini, &settings(MODEL)), after);
    // A cache of another protocol is ignored.
    let other = conversation.body(&super::super::Anthropic, &settings("claude-opus-5"));
    assert_eq!(other["messages"].as_array().unwrap().len(), 5);
    assert_eq!(conversation.body(&Gemini, &settings(MODEL)), after);
}
