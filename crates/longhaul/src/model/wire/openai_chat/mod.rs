//! OpenAI's chat completions, and everything else that speaks them.

mod calls;
mod form;
mod likeness;
mod parse;
mod quirks;
mod usage;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use quirks::{HoldsSchema, Quirks, ReasoningBack, ThinkingKey};

use super::dialect::{LOCAL, OPENAI, openai_strict};
use super::history::{self, Transcript};
use super::names::wire_name;
use super::openai_responses::thinks;
use super::output::{self, Told};
use super::schema::Dialect;
use super::tools::Offered;
use super::{Memo, Parser, Wire, common};
use crate::model::settings::{ModelSettings, Thinking};
use crate::model::{ModelErrorKind, Request};
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
    fn frame(&self, request: &Request<'_>, settings: &ModelSettings, told: &Told<'_>) -> Map<String, Value> {
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
        if let Told::Schema(shape, schema, strict) = told {
            let mut schema = json!({"name": wire_name(&shape.name), "schema": schema, "strict": strict});
            if let Some(description) = &shape.description {
                schema["description"] = json!(description);
            }
            put("response_format", Some(json!({"type": "json_schema", "json_schema": schema})));
        }
        // OpenAI's models that do not think refuse to be told not to.
        let is_off = settings.thinking == Some(Thinking::Off) && !thinks(&settings.model);
        if let Some(thinking) = settings.thinking.as_ref().filter(|_| !is_off) {
            self.quirks.think(thinking, &mut body);
        }
        history::merge(&mut body, &settings.provider_opts);
        body
    }

    /// The schemas that the server understands.
    fn dialect(&self) -> &'static Dialect {
        match self.quirks.thinking == ThinkingKey::Template || self.quirks == Quirks::OLLAMA {
            true => &LOCAL,
            false => &OPENAI,
        }
    }

    /// How it is told of the shape of an answer.
    fn told<'a>(&self, request: &Request<'a>, settings: &'a ModelSettings) -> Told<'a> {
        let shape = output::wanted(request, settings);
        let holds = match self.quirks.json_schema {
            HoldsSchema::Always => true,
            HoldsSchema::WithoutTools => request.tools.is_empty(),
            HoldsSchema::Never => false,
        };
        let dialects: &[&Dialect] = match (holds, shape.is_some_and(|shape| shape.strict)) {
            (false, _) => &[],
            (true, true) => &[openai_strict(&settings.model), self.dialect()],
            (true, false) => &[self.dialect()],
        };
        Told::of(shape, dialects)
    }
}

/// What is remembered of a conversation: nothing, until there was one.
#[derive(Default)]
struct Remembered(Option<Transcript<ChatForm>>);

#[derive(Serialize)]
struct Tool {
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    description: String,
    parameters: Value,
}

fn tool(Offered { name, description, parameters }: Offered) -> Tool {
    Tool { r#type: "function", function: Function { name, description, parameters } }
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
        let told = self.told(request, settings);
        let frame = self.frame(request, settings, &told);
        memo.with(|Remembered(remembered)| {
            let fresh = || ChatForm::new(self.quirks);
            let transcript = match remembered {
                Some(transcript) if transcript.form.quirks == self.quirks => transcript,
                _ => remembered.insert(Transcript::new(fresh())),
            };
            let mut system = Vec::new();
            let told = told.system(request.system);
            if !told.is_empty() {
                history::push(&mut system, &json!({"role": "system", "content": told}));
            }
            transcript.write(request.messages, fresh);
            Ok(transcript.body(&frame, "messages", &system, request.tools, (self.dialect(), memo), tool))
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
