//! OpenAI's Responses API, used without storing anything on the server.

mod items;
mod parser;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::message_list::{self, MessageList};
use super::schema_dialect::{OPENAI, openai_strict};
use super::sse_reply::SseReplyParser;
use super::structured_output::{self, SchemaDelivery};
use super::tool_names::wire_name;
use super::tools::WireTool;
use super::{ReplyParser, WireCache, WireProtocol};
use crate::model::ModelRequest;
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::WireRequestError;
use items::ResponsesItemWriter;

/// The keys of the body that only Longhaul sets.
const RESERVED_KEYS: [&str; 5] = ["input", "tools", "stream", "previous_response_id", "background"];

/// The smallest `max_output_tokens` that OpenAI's specification allows.
const LEAST_TOKENS: u64 = 16;

/// The protocol of OpenAI's Responses API.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenAiResponses;

impl OpenAiResponses {
    /// The protocol as OpenAI defines it; xAI, Azure, llama.cpp and others follow it.
    pub fn new() -> Self {
        OpenAiResponses
    }

    /// All fields of the body except the conversation and the tools.
    fn request_fields(request: &ModelRequest<'_>, settings: &ModelSettings) -> Map<String, Value> {
        let requested = structured_output::requested_output(request, settings);
        let delivery = match requested.is_some_and(|requested| requested.strict) {
            true => SchemaDelivery::choose(requested, &[openai_strict(&settings.model), &OPENAI]),
            false => SchemaDelivery::choose(requested, &[&OPENAI]),
        };
        let system = delivery.system_prompt(request.system);
        let mut body = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
            }
        };
        put("model", Some(json!(settings.model)));
        put("stream", Some(json!(true)));
        put("store", Some(json!(false)));
        put("include", is_reasoning_model(&settings.model).then(|| json!(["reasoning.encrypted_content"])));
        put("instructions", (!system.is_empty()).then(|| json!(system)));
        put("max_output_tokens", settings.max_tokens.map(Value::from));
        put("temperature", settings.temperature.map(Value::from));
        put("top_p", settings.top_p.map(Value::from));
        if !request.tools.is_empty() {
            put("parallel_tool_calls", settings.parallel_tool_calls.map(Value::from));
        }
        if let SchemaDelivery::Schema(requested, schema, strict) = &delivery {
            let name = wire_name(&requested.name);
            let mut format = json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict});
            if let Some(description) = &requested.description {
                format["description"] = json!(description);
            }
            put("text", Some(json!({ "format": format })));
        }
        match &settings.thinking {
            Some(Thinking::Off) if is_reasoning_model(&settings.model) => {
                put("reasoning", Some(json!({"effort": "none"})));
            }
            // Without a summary, the thinking is never shown.
            Some(Thinking::Effort(effort)) if is_reasoning_model(&settings.model) => {
                put("reasoning", Some(json!({"effort": effort, "summary": "auto"})));
            }
            Some(Thinking::Effort(effort)) => put("reasoning", Some(json!({ "effort": effort }))),
            Some(Thinking::Adaptive) if is_reasoning_model(&settings.model) => {
                put("reasoning", Some(json!({"summary": "auto"})));
            }
            Some(Thinking::Off | Thinking::Adaptive | Thinking::Tokens(_)) | None => {}
        }
        message_list::merge_options(&mut body, &settings.provider_opts);
        body
    }
}

/// Whether a model thinks. OpenAI's other models refuse a request for encrypted thinking, and any `reasoning`
/// ("gpt-5 and o-series models only").
pub(super) fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !["gpt-4", "gpt-3", "chatgpt-", "gpt-5-chat"].iter().any(|older| name.starts_with(older))
}

/// The cached conversation.
struct ResponsesCache(MessageList<ResponsesItemWriter>);

impl Default for ResponsesCache {
    fn default() -> Self {
        ResponsesCache(MessageList::new(ResponsesItemWriter))
    }
}

#[derive(Serialize)]
struct ResponsesTool {
    r#type: &'static str,
    name: String,
    description: String,
    parameters: Value,
    /// The default is true, which makes every argument required.
    strict: bool,
}

fn tool(WireTool { name, description, parameters }: WireTool) -> ResponsesTool {
    ResponsesTool { r#type: "function", name, description, parameters, strict: false }
}

impl WireProtocol for OpenAiResponses {
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError> {
        message_list::reject_reserved_keys(settings, &RESERVED_KEYS)?;
        let lacking = [
            ("frequency_penalty", settings.frequency_penalty.is_some()),
            ("presence_penalty", settings.presence_penalty.is_some()),
        ];
        if let Some((key, _)) = lacking.iter().find(|(_, set)| *set) {
            return Err(WireRequestError(format!(
                "{key}: the Responses API does not support it; chat completions do"
            )));
        }
        if settings.max_tokens.is_some_and(|most| most < LEAST_TOKENS) {
            return Err(WireRequestError(format!(
                "max_tokens: the Responses API needs at least {LEAST_TOKENS}"
            )));
        }
        match settings.thinking {
            Some(Thinking::Tokens(_)) => {
                Err(WireRequestError("thinking: the Responses API takes an effort (such as `low` or `high`), not a number of tokens"
                    .to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn request_path(&self, _: &ModelSettings) -> String {
        "/responses".to_owned()
    }

    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, WireRequestError> {
        self.check_settings(settings)?;
        let frame = Self::request_fields(request, settings);
        memo.with(|ResponsesCache(transcript)| {
            transcript.update(request.messages, || ResponsesItemWriter);
            Ok(transcript.build_body(&frame, "input", &[], request.tools, (&OPENAI, memo), tool))
        })
    }

    fn parser(&self) -> Box<dyn ReplyParser> {
        Box::<SseReplyParser<parser::ResponsesReplyBuilder>>::default()
    }
}

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod stream_tests;
