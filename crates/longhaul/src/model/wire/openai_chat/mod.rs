//! OpenAI's chat completions, and every other provider with the same protocol.

mod tool_calls;
mod messages;
mod event_template;
mod parser;
mod quirks;
mod usage;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use quirks::{Quirks, ReasoningReplay, SchemaSupport, ThinkingKey};

use super::message_list::{self, MessageList};
use super::openai_responses::is_reasoning_model;
use super::schema::SchemaDialect;
use super::schema_dialect::{LOCAL, OPENAI, openai_strict};
use super::sse_reply::SseReplyParser;
use super::structured_output::{self, SchemaDelivery};
use super::tool_names::wire_name;
use super::tools::WireTool;
use super::{ReplyParser, WireCache, WireProtocol};
use crate::model::ModelRequest;
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::wire::WireRequestError;
use messages::ChatMessageWriter;

/// The keys of the body that only Longhaul sets.
const RESERVED_KEYS: [&str; 3] = ["messages", "tools", "stream"];

/// The chat completions protocol, with the quirks of a provider.
#[derive(Debug, Clone, Copy)]
pub struct OpenAiChat {
    quirks: Quirks,
}

impl OpenAiChat {
    /// The protocol for a provider with these quirks.
    pub fn new(quirks: Quirks) -> Self {
        OpenAiChat { quirks }
    }

    /// All fields of the body except the conversation and the tools.
    fn request_fields(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        delivery: &SchemaDelivery<'_>,
    ) -> Map<String, Value> {
        let mut body = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
            }
        };
        put("model", Some(json!(settings.model)));
        put("stream", Some(json!(true)));
        put("stream_options", self.quirks.request_usage.then(|| json!({"include_usage": true})));
        put(self.quirks.max_tokens_key, settings.max_tokens.map(Value::from));
        put("temperature", settings.temperature.map(Value::from));
        put("top_p", settings.top_p.map(Value::from));
        put("frequency_penalty", settings.frequency_penalty.map(Value::from));
        put("presence_penalty", settings.presence_penalty.map(Value::from));
        if !request.tools.is_empty() {
            put("parallel_tool_calls", settings.parallel_tool_calls.map(Value::from));
        }
        if let SchemaDelivery::Schema(requested, schema, strict) = delivery {
            let mut schema = json!({"name": wire_name(&requested.name), "schema": schema, "strict": strict});
            if let Some(description) = &requested.description {
                schema["description"] = json!(description);
            }
            put("response_format", Some(json!({"type": "json_schema", "json_schema": schema})));
        }
        // OpenAI's models without thinking refuse a request to turn it off.
        let is_off = settings.thinking == Some(Thinking::Off) && !is_reasoning_model(&settings.model);
        if let Some(thinking) = settings.thinking.as_ref().filter(|_| !is_off) {
            self.quirks.write_thinking(thinking, &mut body);
        }
        message_list::merge_options(&mut body, &settings.provider_opts);
        body
    }

    /// The schema dialect of the server.
    fn dialect(&self) -> &'static SchemaDialect {
        match self.quirks.thinking == ThinkingKey::Template || self.quirks == Quirks::OLLAMA {
            true => &LOCAL,
            false => &OPENAI,
        }
    }

    /// How the provider learns the schema of the answer.
    fn schema_delivery<'a>(
        &self,
        request: &ModelRequest<'a>,
        settings: &'a ModelSettings,
    ) -> SchemaDelivery<'a> {
        let requested = structured_output::requested_output(request, settings);
        let holds = match self.quirks.schema_support {
            SchemaSupport::Always => true,
            SchemaSupport::WithoutTools => request.tools.is_empty(),
            SchemaSupport::Never => false,
        };
        let dialects: &[&SchemaDialect] = match (holds, requested.is_some_and(|requested| requested.strict)) {
            (false, _) => &[],
            (true, true) => &[openai_strict(&settings.model), self.dialect()],
            (true, false) => &[self.dialect()],
        };
        SchemaDelivery::choose(requested, dialects)
    }
}

/// The cached conversation; `None` until there is one.
#[derive(Default)]
struct ChatCache(Option<MessageList<ChatMessageWriter>>);

#[derive(Serialize)]
struct ChatTool {
    r#type: &'static str,
    function: ChatFunction,
}

#[derive(Serialize)]
struct ChatFunction {
    name: String,
    description: String,
    parameters: Value,
}

fn tool(WireTool { name, description, parameters }: WireTool) -> ChatTool {
    ChatTool { r#type: "function", function: ChatFunction { name, description, parameters } }
}

impl WireProtocol for OpenAiChat {
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError> {
        message_list::reject_reserved_keys(settings, &RESERVED_KEYS)?;
        self.quirks.check_settings(settings)
    }

    fn request_path(&self, _: &ModelSettings) -> String {
        "/chat/completions".to_owned()
    }

    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, WireRequestError> {
        self.check_settings(settings)?;
        let delivery = self.schema_delivery(request, settings);
        let frame = self.request_fields(request, settings, &delivery);
        memo.with(|ChatCache(remembered)| {
            let fresh = || ChatMessageWriter::new(self.quirks);
            let transcript = match remembered {
                Some(transcript) if transcript.form.quirks == self.quirks => transcript,
                _ => remembered.insert(MessageList::new(fresh())),
            };
            let mut system = Vec::new();
            let prompt = delivery.system_prompt(request.system);
            if !prompt.is_empty() {
                message_list::push_json(&mut system, &json!({"role": "system", "content": prompt}));
            }
            transcript.update(request.messages, fresh);
            Ok(transcript.build_body(
                &frame,
                "messages",
                &system,
                request.tools,
                (self.dialect(), memo),
                tool,
            ))
        })
    }

    fn parser(&self) -> Box<dyn ReplyParser> {
        Box::<SseReplyParser<parser::ChatReplyBuilder>>::default()
    }
}

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod stream_tests;
