//! The resources and prompts that the suite reads.

use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::{Value, json};

use crate::input_required::elicit;

/// A red pixel, and a moment of silence.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
pub(crate) const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

pub(crate) fn resources() -> ListResourcesResult {
    let resources = vec![
        Resource::new("test://static-text", "text").with_mime_type("text/plain").with_description("A text"),
        Resource::new("test://static-binary", "binary")
            .with_mime_type("image/png")
            .with_description("An image"),
    ];
    ListResourcesResult::with_all_items(resources).with_ttl_ms(1000).with_cache_scope(CacheScope::Public)
}

pub(crate) fn resource_templates() -> ListResourceTemplatesResult {
    let template =
        ResourceTemplate::new("test://template/{id}/data", "data").with_mime_type("application/json");
    let all = ListResourceTemplatesResult::with_all_items(vec![template]);
    all.with_ttl_ms(1000).with_cache_scope(CacheScope::Public)
}

pub(crate) fn read_resource(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
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
    let read = ReadResourceResult::new(vec![contents]).with_ttl_ms(1000).with_cache_scope(CacheScope::Public);
    Ok(read.into())
}

pub(crate) fn prompts() -> ListPromptsResult {
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
    ListPromptsResult::with_all_items(prompts).with_ttl_ms(1000).with_cache_scope(CacheScope::Public)
}

pub(crate) fn get_prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let arguments = request.arguments.clone().unwrap_or_default();
    let word = |key: &str| arguments.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
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
                    let asks = [("user_context".to_owned(), elicit("Which context?", "context", "string"))];
                    return Ok(InputRequiredResult::from_input_requests(asks.into()).into());
                }
            }
        }
        name => return Err(ErrorData::invalid_params(format!("there is no prompt {name}"), None)),
    };
    let messages = content.as_array().cloned().unwrap_or_default().into_iter();
    let messages: Vec<Value> = messages.map(|content| json!({"role": "user", "content": content})).collect();
    let messages = serde_json::from_value(messages.into())
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(GetPromptResult::new(messages).into())
}
