//! The tools, prompts and resources that the conformance suite expects of a server under test.
#![allow(deprecated, reason = "the suite also tests what the newest protocol has dropped")]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use crate::fixture_tasks::{FixtureTasks, REQUIRED};

/// A red pixel, and a moment of silence.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

#[derive(Clone, Default)]
pub(crate) struct Fixture {
    tasks: FixtureTasks,
    sinks: Arc<Mutex<BTreeMap<u64, SubscriptionSink>>>,
    /// The states that were handed out: any other is refused.
    states: Arc<Mutex<HashSet<String>>>,
}

/// An input request with one field.
pub(crate) fn elicit(message: &str, field: &str, kind: &str) -> InputRequest {
    let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
    InputRequest::Elicitation(ElicitRequest::new(form(message, schema)))
}

fn form(message: &str, schema: Value) -> ElicitRequestParams {
    let requested_schema = serde_json::from_value(schema).unwrap();
    ElicitRequestParams::FormElicitationParams { meta: None, message: message.to_owned(), requested_schema }
}

fn sampling(prompt: &str) -> InputRequest {
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    InputRequest::CreateMessage(CreateMessageRequest::new(params))
}

fn roots() -> InputRequest {
    InputRequest::ListRoots(ListRootsRequest::default())
}

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

const TOOLS: [&str; 34] = [
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

fn tool(name: &str) -> Tool {
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

fn said(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn ask<const N: usize>(requests: [(&str, InputRequest); N], state: Option<String>) -> CallToolResponse {
    let requests = requests.into_iter().map(|(key, request)| (key.to_owned(), request)).collect();
    InputRequiredResult::new(Some(requests), state).into()
}

impl Fixture {
    /// A new state with this meaning, to be given back by the client.
    fn state(&self, meaning: &str) -> Option<String> {
        let state = format!("{meaning}:{}", uuid::Uuid::now_v7());
        self.states.lock().unwrap().insert(state.clone());
        Some(state)
    }

    /// What a state means. Fails if it is not one of ours.
    fn meaning(&self, state: &str) -> Result<String, ErrorData> {
        match self.states.lock().unwrap().contains(state) {
            true => Ok(state.split(':').next().unwrap_or_default().to_owned()),
            false => Err(ErrorData::invalid_params("`requestState` is not from this server", None)),
        }
    }

    fn input_required(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reply = |key: &str| {
            let found = request.input_responses.as_ref().and_then(|replies| replies.get(key));
            found.filter(|reply| reply.is_object())
        };
        let state = request.request_state.as_deref().map(|state| self.meaning(state)).transpose()?;
        let name = || ("user_name", elicit("What is your name?", "name", "string"));
        let short = request.name.strip_prefix("test_input_required_result_").unwrap_or_default();
        Ok(match short {
            "elicitation" => match reply("user_name") {
                Some(reply) => {
                    said(format!("Hello, {}!", reply["content"]["name"].as_str().unwrap_or("friend")))
                }
                None => ask([name()], None),
            },
            "sampling" => match reply("capital_question") {
                Some(reply) => said(format!("Sampled: {}", reply["content"])),
                None => ask([("capital_question", sampling("What is the capital of France?"))], None),
            },
            "list_roots" => match reply("client_roots") {
                Some(reply) => said(format!("Roots: {}", reply["roots"])),
                None => ask([("client_roots", roots())], None),
            },
            "request_state" | "tampered_state" => match state {
                Some(_) => said("Confirmed: state-ok"),
                None => ask([("confirm", elicit("Please confirm", "ok", "boolean"))], self.state("confirm")),
            },
            "multiple_inputs" => {
                let all = ["user_name", "greeting", "client_roots"].iter().all(|key| reply(key).is_some());
                match all && state.is_some() {
                    true => said("All inputs received"),
                    false => {
                        let rest = [name(), ("greeting", sampling("Greet.")), ("client_roots", roots())];
                        ask(rest, self.state("gather"))
                    }
                }
            }
            "multi_round" => match state.as_deref() {
                None => ask([("step1", elicit("Your name?", "name", "string"))], self.state("1")),
                Some("1") => ask([("step2", elicit("Your colour?", "color", "string"))], self.state("2")),
                Some(_) => said("Multi-round flow complete"),
            },
            "capabilities" if request.input_responses.is_some() => said("Complete"),
            "capabilities" => {
                let has = context.meta.client_capabilities().unwrap_or_default();
                let mut requests = InputRequests::new();
                if has.elicitation.is_some() {
                    requests.extend([("user_name".to_owned(), name().1)]);
                }
                if has.sampling.is_some() {
                    requests.insert("greeting".to_owned(), sampling("Greet."));
                }
                if has.roots.is_some() {
                    requests.insert("client_roots".to_owned(), roots());
                }
                match requests.is_empty() {
                    true => said("There is nothing to ask with"),
                    false => InputRequiredResult::from_input_requests(requests).into(),
                }
            }
            _ => return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None)),
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

    async fn tell(&self, what: fn(SubscriptionSink) -> futures::future::BoxFuture<'static, ()>) {
        let sinks: Vec<_> = self.sinks.lock().unwrap().values().cloned().collect();
        for sink in sinks {
            what(sink).await;
        }
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_prompts()
                .enable_prompts_list_changed()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_resources_list_changed()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_completions()
                .enable_logging()
                .enable_tasks()
                .build(),
        )
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == "test_custom_header").then(|| tool(name))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = self.sinks.lock().unwrap().last_key_value().map_or(0, |(last, _)| last + 1);
        self.sinks.lock().unwrap().insert(key, context.sink().clone());
        context.cancelled().await;
        self.sinks.lock().unwrap().remove(&key);
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel(&request.task_id)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.into_iter().chain(["test_tool_with_task"]).map(tool).collect();
        Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(1000).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
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

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = vec![
            Resource::new("test://static-text", "text")
                .with_mime_type("text/plain")
                .with_description("A text"),
            Resource::new("test://static-binary", "binary")
                .with_mime_type("image/png")
                .with_description("An image"),
        ];
        Ok(ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(1000)
            .with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template =
            ResourceTemplate::new("test://template/{id}/data", "data").with_mime_type("application/json");
        let all = ListResourceTemplatesResult::with_all_items(vec![template]);
        Ok(all.with_ttl_ms(1000).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text", _) => {
                ResourceContents::text("This is the content of the static text resource.", uri)
                    .with_mime_type("text/plain")
            }
            ("test://static-binary", _) => ResourceContents::blob(IMAGE, uri).with_mime_type("image/png"),
            (_, Some(id)) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
            }
            _ => {
                let data = Some(json!({"uri": uri}));
                return Err(ErrorData::resource_not_found(format!("there is no resource {uri}"), data));
            }
        };
        let read =
            ReadResourceResult::new(vec![contents]).with_ttl_ms(1000).with_cache_scope(CacheScope::Public);
        Ok(read.into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let arguments =
            ["arg1", "arg2"].map(|name| PromptArgument::new(name).with_description(name).with_required(true));
        let mut prompts: Vec<Prompt> = [
            "test_simple_prompt",
            "test_prompt_with_embedded_resource",
            "test_prompt_with_image",
            "test_input_required_result_prompt",
        ]
        .map(|name| Prompt::new(name, Some("A fixture"), None))
        .to_vec();
        prompts.push(Prompt::new("test_prompt_with_arguments", Some("A fixture"), Some(arguments.to_vec())));
        Ok(ListPromptsResult::with_all_items(prompts).with_ttl_ms(1000).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        let word =
            |key: &str| arguments.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let content = match request.name.as_str() {
            "test_simple_prompt" => json!([{"type": "text", "text": "This is a simple test prompt."}]),
            "test_prompt_with_arguments" => {
                let text = format!("Prompt with arguments: arg1='{}', arg2='{}'", word("arg1"), word("arg2"));
                json!([{"type": "text", "text": text}])
            }
            "test_prompt_with_embedded_resource" => json!([
                {"type": "resource", "resource": {"uri": word("resourceUri"), "mimeType": "text/plain", "text": "Embedded."}},
                {"type": "text", "text": "Please process it."}]),
            "test_prompt_with_image" => json!([
                {"type": "image", "data": IMAGE, "mimeType": "image/png"}, {"type": "text", "text": "Please look."}]),
            "test_input_required_result_prompt" => {
                match request.input_responses.as_ref().and_then(|replies| replies.get("user_context")) {
                    Some(reply) => json!([{"type": "text", "text": format!("With: {}", reply["content"])}]),
                    None => {
                        let asks =
                            [("user_context".to_owned(), elicit("Which context?", "context", "string"))];
                        return Ok(InputRequiredResult::from_input_requests(asks.into()).into());
                    }
                }
            }
            name => return Err(ErrorData::invalid_params(format!("there is no prompt {name}"), None)),
        };
        let messages = content.as_array().cloned().unwrap_or_default().into_iter();
        let messages: Vec<Value> =
            messages.map(|content| json!({"role": "user", "content": content})).collect();
        let messages = serde_json::from_value(messages.into())
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(GetPromptResult::new(messages).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = CompletionInfo::new(vec!["paris".to_owned(), "park".to_owned()]);
        Ok(CompleteResult::new(values.map_err(|error| ErrorData::internal_error(error, None))?))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
