//! The tools that the suite calls.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::content::{AUDIO, IMAGE};
use crate::fixture::Fixture;
use crate::fixture_tasks::REQUIRED;
use crate::input_required::{ask, elicit, form};

/// The schemas of tools with arguments; the others take none.
fn schema(tool: &str) -> Value {
    let one = |name: &str, kind: &str| json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    match tool {
        "test_sampling" => one("prompt", "string"),
        "test_elicitation" => one("message", "string"),
        "greet" => one("name", "string"),
        "test_custom_header" => json!({"type": "object", "required": ["value"],
            "properties": {"value": {"type": "string", "x-mcp-header": "Value"}}}),
        "slow_compute" => json!({"type": "object",
            "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}),
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "$defs": {"address": {"$anchor": "address", "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
            "if": {"required": ["address"]}, "then": {"properties": {"address": {"required": ["street"]}}},
            "else": {"required": ["name"]}, "additionalProperties": false}),
        _ => json!({"type": "object", "properties": {}}),
    }
}

pub(crate) const TOOLS: [&str; 34] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_error_handling",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "json_schema_2020_12_tool",
    "test_reconnection",
    "test_custom_header",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
];

pub(crate) fn tool(name: &str) -> Tool {
    let Value::Object(schema) = schema(name) else { panic!("{name}") };
    Tool::new(name.to_owned(), format!("The fixture {name}"), Arc::new(schema))
}

/// A result whose content never changes.
fn constant(tool: &str) -> Option<Value> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    Some(match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#)
        ]),
        _ => return None,
    })
}

pub(crate) fn said(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

impl Fixture {
    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        if let Some(content) = constant(&name) {
            let content = serde_json::from_value(content)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            return Ok(CallToolResult::success(content).into());
        }
        if name.starts_with("test_input_required_result_") {
            return self.input_required(&request, &context);
        }
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let with_tasks = context.client_capabilities().is_some_and(|has| has.supports_tasks());
        if REQUIRED.contains(&name.as_str()) && !with_tasks {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let word = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        Ok(match name.as_str() {
            "test_error_handling" => CallToolResult::error(vec![ContentBlock::text(
                "This tool intentionally returns an error for testing",
            )])
            .into(),
            "test_tool_with_logging" | "test_logging_tool" => {
                let level = if name == "test_logging_tool" {
                    context.meta.log_level()
                } else {
                    Some(LoggingLevel::Info)
                };
                for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    if let Some(level) = level {
                        let note =
                            LoggingMessageNotificationParam::new(level, json!(text)).with_logger("fixture");
                        let _ = context.peer.notify_logging_message(note).await;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                said("Logged")
            }
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let note = ProgressNotificationParam::new(token, progress).with_total(100.0);
                        let _ = context.peer.notify_progress(note).await;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                said("Progress test completed")
            }
            "test_sampling" => {
                let params =
                    CreateMessageRequestParams::new(vec![SamplingMessage::user_text(word("prompt"))], 100);
                match context.peer.create_message(params).await {
                    Ok(reply) => {
                        said(format!("LLM response: {}", serde_json::to_value(reply).unwrap_or_default()))
                    }
                    Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into(),
                }
            }
            "test_elicitation" => {
                let schema = json!({"type": "object", "required": ["username", "email"], "properties": {
                    "username": {"type": "string", "description": "User's response"},
                    "email": {"type": "string", "description": "User's email address"}}});
                self.elicit(&word("message"), schema, &context).await
            }
            "test_elicitation_sep1034_defaults" => {
                let schema = json!({"type": "object", "properties": {
                    "name": {"type": "string", "default": "John Doe"}, "age": {"type": "integer", "default": 30},
                    "score": {"type": "number", "default": 95.5},
                    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                    "verified": {"type": "boolean", "default": true}}});
                self.elicit("All have defaults", schema, &context).await
            }
            "test_elicitation_sep1330_enums" => {
                let titled = |n: &[&str]| {
                    n.iter()
                        .map(|n| json!({"const": n, "title": format!("Title of {n}")}))
                        .collect::<Vec<_>>()
                };
                let options = json!(["option1", "option2", "option3"]);
                let values = titled(&["value1", "value2", "value3"]);
                let schema = json!({"type": "object", "properties": {
                    "untitledSingle": {"type": "string", "enum": options},
                    "titledSingle": {"type": "string", "oneOf": values},
                    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"]},
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                    "titledMulti": {"type": "array", "items": {"anyOf": values}}}});
                self.elicit("Enums", schema, &context).await
            }
            "test_trigger_tool_change" => {
                self.tell(|sink| {
                    Box::pin(async move {
                        let _ = sink.notify_tool_list_changed().await;
                    })
                })
                .await;
                said("Told")
            }
            "test_trigger_prompt_change" => {
                self.tell(|sink| {
                    Box::pin(async move {
                        let _ = sink.notify_prompt_list_changed().await;
                    })
                })
                .await;
                said("Told")
            }
            "test_missing_capability" => {
                if context.meta.client_capabilities().unwrap_or_default().sampling.is_none() {
                    let needed = ClientCapabilities::builder().enable_sampling().build();
                    return Err(ErrorData::missing_required_client_capability(needed));
                }
                said("It is declared")
            }
            "test_streaming_elicitation" => ask([("value", elicit("A value?", "value", "string"))], None),
            "test_reconnection" | "json_schema_2020_12_tool" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                said("Done")
            }
            "test_custom_header" => said(word("value")),
            "greet" => said(format!("Hello, {}!", word("name"))),
            "test_tool_with_task" => {
                match request.input_responses.as_ref().and_then(|replies| replies.get("user_name")) {
                    None => ask([("user_name", elicit("What is your name?", "name", "string"))], None),
                    Some(reply) => {
                        let task = self.tasks.start(&name, json!({"name": reply["content"]["name"]}));
                        CreateTaskResult::new(task).into()
                    }
                }
            }
            "slow_compute" | "failing_job" | "protocol_error_job" | "confirm_delete" | "multi_input"
                if with_tasks =>
            {
                CreateTaskResult::new(self.tasks.start(&name, arguments)).into()
            }
            "slow_compute" => {
                tokio::time::sleep(Duration::from_secs_f64(arguments["seconds"].as_f64().unwrap_or(1.0)))
                    .await;
                said("slow_compute is done")
            }
            "protocol_error_job" => return Err(ErrorData::internal_error("as intended", None)),
            _ => return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
        })
    }

    async fn elicit(
        &self,
        message: &str,
        schema: Value,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        match context.peer.create_elicitation(form(message, schema)).await {
            Ok(reply) => said(format!("User response: {}", serde_json::to_value(reply).unwrap_or_default())),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into(),
        }
    }
}
