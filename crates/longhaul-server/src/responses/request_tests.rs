use serde_json::{Value, json};

use super::*;

fn parse(body: Value) -> Result<CreateRequest, ApiError> {
    CreateRequest::parse(body.to_string().as_bytes())
}

fn param(body: Value) -> String {
    let error = parse(body).unwrap_err();
    assert!(error.status.is_client_error());
    error.param.unwrap_or_default()
}

#[test]
fn a_string_is_the_task_and_instructions_are_context() {
    let request = parse(json!({
        "model": "m", "input": "Hi.", "instructions": "Be brief.", "background": true, "stream": null,
        "metadata": { "a": "b" }, "temperature": 0.5, "unknown_field": [1],
    }))
    .unwrap();
    assert_eq!(request.prompt.task, "Hi.");
    assert_eq!(request.prompt.context.as_deref(), Some("Be brief."));
    assert!(request.background && !request.stream);
    assert_eq!(request.metadata["a"], "b");
    assert_eq!(request.shown, Shown::default());
}

#[test]
fn the_last_messages_of_the_user_are_the_task_and_the_rest_is_context() {
    let request = parse(json!({ "model": "m", "input": [
        { "role": "developer", "content": "Rules." },
        { "role": "user", "content": [{ "type": "input_text", "text": "One" }] },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "1" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [] },
        { "role": "user", "content": "Two" },
        { "role": "user", "content": "Three" },
    ]}))
    .unwrap();
    assert_eq!(request.prompt.task, "Two\n\nThree");
    let context = "Rules.\n\nThe conversation so far:\n\nUser: One\n\nAssistant: 1";
    assert_eq!(request.prompt.context.as_deref(), Some(context));
    assert_eq!(request.prompt.into_letter(), format!("{context}\n\nTwo\n\nThree"));
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let image = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "x" }, { "type": "input_image", "image_url": "u" }] }]);
    for (body, wrong) in [
        (json!({}), "input"),
        (json!({ "input": 5 }), "input"),
        (json!({ "input": "  " }), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": [{ "role": "assistant", "content": "x" }] }), "input"),
        (json!({ "input": ["x"] }), "input[0]"),
        (json!({ "input": [{ "role": "robot", "content": "x" }] }), "input[0].role"),
        (json!({ "input": [{ "role": "user" }] }), "input[0].content"),
        (json!({ "input": image }), "input[0].content[1].type"),
        (json!({ "input": [{ "type": "function_call_output", "output": "x" }] }), "input[0].type"),
        (json!({ "input": "x", "tools": [{ "type": "function" }] }), "tools"),
        (json!({ "input": "x", "tool_choice": "required" }), "tool_choice"),
        (json!({ "input": "x", "conversation": "c" }), "conversation"),
        (json!({ "input": "x", "prompt": { "id": "p" } }), "prompt"),
        (json!({ "input": "x", "text": { "format": { "type": "json_schema" } } }), "text.format"),
        (json!({ "input": "x", "background": true, "store": false }), "store"),
        (json!({ "input": "x", "background": "yes" }), "background"),
        (json!({ "input": "x", "stream": 1 }), "stream"),
        (json!({ "input": "x", "model": 1 }), "model"),
        (json!({ "input": "x", "max_output_tokens": -1 }), "max_output_tokens"),
        (json!({ "input": "x", "metadata": { "longhaul.needs": "x" } }), "metadata"),
        (json!({ "input": "x", "metadata": { "a": 1 } }), "metadata"),
        (json!({ "input": "x", "metadata": { "a": "x".repeat(513) } }), "metadata"),
        (json!({ "input": "x", "metadata": [] }), "metadata"),
        (json!({ "input": "x", "include": ["nothing.like.it"] }), "include[0]"),
        (json!({ "input": "x", "include": "x" }), "include"),
        (json!({ "input": "x", "reasoning": "high" }), "reasoning"),
        (json!({ "input": "x", "previous_response_id": "../etc" }), "previous_response_id"),
    ] {
        assert_eq!(param(body.clone()), wrong, "{body}");
    }
    for body in ["", "[]", "{", "\u{0}", "null"] {
        assert_eq!(CreateRequest::parse(body.as_bytes()).unwrap_err().code.as_deref(), Some("invalid_json"));
    }
}

#[test]
fn what_is_shown_is_chosen_by_include_and_by_the_summary_of_reasoning() {
    let request =
        parse(json!({ "input": "x", "tools": [], "tool_choice": "auto", "reasoning": { "summary": "auto" },
        "include": ["longhaul.tool_calls", "reasoning.encrypted_content"] }))
        .unwrap();
    assert_eq!(request.shown, Shown { reasoning: true, tool_calls: true, commentary: false });
    let query = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        RetrieveQuery::parse(&pairs)
    };
    let read = query(&[
        ("stream", "true"),
        ("starting_after", "7"),
        ("include[]", "longhaul.commentary"),
        ("include[1]", "longhaul.reasoning"),
    ])
    .unwrap();
    assert!(read.stream && read.shown.commentary && read.shown.reasoning);
    assert_eq!(read.starting_after, Some(7));
    for (name, value) in
        [("stream", "perhaps"), ("starting_after", "-1"), ("starting_after", "7"), ("include", "x")]
    {
        assert_eq!(query(&[(name, value)]).unwrap_err().param.as_deref(), Some(name));
    }
}

#[test]
fn a_response_id_is_a_task_id() {
    assert_eq!(response_task("resp_7f3k2").unwrap().to_string(), "t-7f3k2");
    assert_eq!(response_task("t-7f3k2").unwrap().to_string(), "t-7f3k2");
    for wrong in ["", "resp_", "7f3k2", "resp_7f", "resp_7F3K2", "resp_../..", "resp_7f3k2 ", "resp_t-7f3k2"]
    {
        assert_eq!(response_task(wrong), None, "{wrong}");
    }
}
