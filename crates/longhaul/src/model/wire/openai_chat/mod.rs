//! OpenAI's chat completions, and everything else that speaks them.

mod calls;
mod form;
mod likeness;
mod parse;
mod quirks;
mod usage;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use quirks::{Quirks, ReasoningBack, ThinkingKey};

use super::history::{self, Transcript};
use super::{Memo, Parser, Wire, common};
use crate::model::settings::ModelSettings;
use crate::model::{ModelErrorKind, Request, ToolSpec};
use form::ChatForm;

/// The keys of a body that only we write.
const OURS: [&str; 3] = ["messages", "tools", "stream"];

/// Chat completions, with what is particular about the provider.
#[derive(Debug, Clone, Copy)]
pub struct OpenAiChat {
    quirks: Quirks,
}

impl OpenAiChat {
    /// Chat completions as a provider with these quirks speaks them.
    pub fn new(quirks: Quirks) -> Self {
        OpenAiChat { quirks }
    }

    /// Everything in a body but the conversation and the tools.
    fn frame(&self, request: &Request<'_>, settings: &ModelSettings) -> Map<String, Value> {
        let mut body = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
            }
        };
        put("model", Some(json!(settings.model)));
        put("stream", Some(json!(true)));
        put("stream_options", self.quirks.ask_usage.then(|| json!({"include_usage": true})));
        put(self.quirks.max_tokens_key, settings.max_tokens.map(Value::from));
        put("temperature", settings.temperature.map(Value::from));
        put("top_p", settings.top_p.map(Value::from));
        put("frequency_penalty", settings.frequency_penalty.map(Value::from));
        put("presence_penalty", settings.presence_penalty.map(Value::from));
        if !request.tools.is_empty() {
            put("parallel_tool_calls", settings.parallel_tool_calls.map(Value::from));
        }
        if let Some(shape) = &settings.structured_output {
            let mut schema = json!({"name": shape.name, "schema": shape.schema, "strict": shape.strict});
            if let Some(description) = &shape.description {
                schema["description"] = json!(description);
            }
            put("response_format", Some(json!({"type": "json_schema", "json_schema": schema})));
        }
        if let Some(thinking) = &settings.thinking {
            self.quirks.think(thinking, &mut body);
        }
        history::merge(&mut body, &settings.provider_opts);
        body
    }
}

/// What is remembered of a conversation: nothing, until there was one.
#[derive(Default)]
struct Remembered(Option<Transcript<ChatForm>>);

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

fn tool(spec: &Arc<ToolSpec>) -> Tool<'_> {
    let function =
        Function { name: &spec.name, description: &spec.description, parameters: &spec.parameters };
    Tool { r#type: "function", function }
}

impl Wire for OpenAiChat {
    fn check(&self, settings: &ModelSettings) -> Result<(), String> {
        history::refuse_ours(settings, &OURS)?;
        self.quirks.check(settings)
    }

    fn path(&self, _: &ModelSettings) -> String {
        "/chat/completions".to_owned()
    }

    fn body(&self, request: &Request<'_>, settings: &ModelSettings, memo: &Memo) -> Result<Vec<u8>, String> {
        self.check(settings)?;
        let frame = self.frame(request, settings);
        memo.with(|Remembered(remembered)| {
            let fresh = || ChatForm::new(self.quirks);
            let transcript = match remembered {
                Some(transcript) if transcript.form.quirks == self.quirks => transcript,
                _ => remembered.insert(Transcript::new(fresh())),
            };
            let mut system = Vec::new();
            if !request.system.is_empty() {
                history::push(&mut system, &json!({"role": "system", "content": request.system}));
            }
            transcript.write(request.messages, fresh);
            Ok(transcript.body(&frame, "messages", &system, request.tools, tool))
        })
    }

    fn parser(&self) -> Box<dyn Parser> {
        Box::new(parse::ChatParser::new())
    }

    fn refusal(&self, status: u16, body: &[u8]) -> ModelErrorKind {
        common::refusal(status, body)
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
