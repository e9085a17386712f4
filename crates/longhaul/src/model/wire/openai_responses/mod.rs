//! OpenAI's Responses, asked without anything being stored there.

mod form;
mod parse;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::dialect::{OPENAI, openai_strict};
use super::history::{self, Transcript};
use super::names::wire_name;
use super::output::{self, Told};
use super::tools::Offered;
use super::{Memo, Parser, Wire, common};
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::{ModelErrorKind, Request};
use form::ItemForm;

/// The keys of a body that only we write.
const OURS: [&str; 5] = ["input", "tools", "stream", "previous_response_id", "background"];

/// The least `max_output_tokens` that OpenAI's specification allows.
const LEAST_TOKENS: u64 = 16;

/// OpenAI's Responses.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenAiResponses;

impl OpenAiResponses {
    /// Responses as OpenAI speaks them, and xAI, Azure, llama.cpp and others after it.
    pub fn new() -> Self {
        OpenAiResponses
    }

    /// Everything in a body but the conversation and the tools.
    fn frame(request: &Request<'_>, settings: &ModelSettings) -> Map<String, Value> {
        let shape = output::wanted(request, settings);
        let told = match shape.is_some_and(|shape| shape.strict) {
            true => Told::of(shape, &[openai_strict(&settings.model), &OPENAI]),
            false => Told::of(shape, &[&OPENAI]),
        };
        let system = told.system(request.system);
        let mut body = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
            }
        };
        put("model", Some(json!(settings.model)));
        put("stream", Some(json!(true)));
        put("store", Some(json!(false)));
        put("include", thinks(&settings.model).then(|| json!(["reasoning.encrypted_content"])));
        put("instructions", (!system.is_empty()).then(|| json!(system)));
        put("max_output_tokens", settings.max_tokens.map(Value::from));
        put("temperature", settings.temperature.map(Value::from));
        put("top_p", settings.top_p.map(Value::from));
        if !request.tools.is_empty() {
            put("parallel_tool_calls", settings.parallel_tool_calls.map(Value::from));
        }
        if let Told::Schema(shape, schema, strict) = &told {
            let name = wire_name(&shape.name);
            let mut format = json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict});
            if let Some(description) = &shape.description {
                format["description"] = json!(description);
            }
            put("text", Some(json!({ "format": format })));
        }
        match &settings.thinking {
            Some(Thinking::Off) if thinks(&settings.model) => {
                put("reasoning", Some(json!({"effort": "none"})));
            }
            // Without this nothing of the thinking is ever seen.
            Some(Thinking::Effort(effort)) if thinks(&settings.model) => {
                put("reasoning", Some(json!({"effort": effort, "summary": "auto"})));
            }
            Some(Thinking::Effort(effort)) => put("reasoning", Some(json!({ "effort": effort }))),
            Some(Thinking::Adaptive) if thinks(&settings.model) => {
                put("reasoning", Some(json!({"summary": "auto"})));
            }
            Some(Thinking::Off | Thinking::Adaptive | Thinking::Tokens(_)) | None => {}
        }
        history::merge(&mut body, &settings.provider_opts);
        body
    }
}

/// Whether a model thinks; OpenAI's that do not refuse to be asked for encrypted thinking, and every word on `reasoning` ("gpt-5
/// and o-series models only").
pub(super) fn thinks(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !["gpt-4", "gpt-3", "chatgpt-", "gpt-5-chat"].iter().any(|older| name.starts_with(older))
}

/// What is remembered of a conversation.
struct Remembered(Transcript<ItemForm>);

impl Default for Remembered {
    fn default() -> Self {
        Remembered(Transcript::new(ItemForm))
    }
}

#[derive(Serialize)]
struct Tool {
    r#type: &'static str,
    name: String,
    description: String,
    parameters: Value,
    /// Left out, it would be true, and every argument would be demanded.
    strict: bool,
}

fn tool(Offered { name, description, parameters }: Offered) -> Tool {
    Tool { r#type: "function", name, description, parameters, strict: false }
}

impl Wire for OpenAiResponses {
    fn check(&self, settings: &ModelSettings) -> Result<(), String> {
        history::refuse_ours(settings, &OURS)?;
        let lacking = [
            ("frequency_penalty", settings.frequency_penalty.is_some()),
            ("presence_penalty", settings.presence_penalty.is_some()),
        ];
        if let Some((key, _)) = lacking.iter().find(|(_, set)| *set) {
            return Err(format!("{key}: Responses do not have it; chat completions do"));
        }
        if settings.max_tokens.is_some_and(|most| most < LEAST_TOKENS) {
            return Err(format!("max_tokens: Responses take {LEAST_TOKENS} or more"));
        }
        match settings.thinking {
            Some(Thinking::Tokens(_)) => {
                Err("thinking: Responses take an effort (such as `low` or `high`), not a number of tokens"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    fn path(&self, _: &ModelSettings) -> String {
        "/responses".to_owned()
    }

    fn body(&self, request: &Request<'_>, settings: &ModelSettings, memo: &Memo) -> Result<Vec<u8>, String> {
        self.check(settings)?;
        let frame = Self::frame(request, settings);
        memo.with(|Remembered(transcript)| {
            transcript.write(request.messages, || ItemForm);
            Ok(transcript.body(&frame, "input", &[], request.tools, (&OPENAI, memo), tool))
        })
    }

    fn parser(&self) -> Box<dyn Parser> {
        Box::new(parse::ResponseParser::new())
    }

    fn refusal(&self, status: u16, body: &[u8]) -> ModelErrorKind {
        common::refusal(status, body)
    }
}

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod stream_tests;
