//! Google's Gemini: `streamGenerateContent`.
//!
//! A signature belongs to the part it came with. It is stored as a block without text before that part, and
//! sent back with it. `provider_opts` is merged into the body last (`safetySettings`, `generationConfig:
//! {topK: …}`); its `tools` are added to the tools.

use std::time::Duration;

use serde_json::{Value, json};

use super::alternating_turns::{AlternatingTurns, merge_value, write_json as write};
use super::schema_dialect::GEMINI;
use super::sse_reply::SseReplyParser;
use super::tools::{ToolBytes, WireTool};
use super::{ReplyParser, WireCache, WireProtocol, status_errors};
use crate::model::settings::ModelSettings;
use crate::model::wire::WireRequestError;
use crate::model::{ModelErrorKind, ModelRequest};

mod content_parts;
mod params;
mod parser;

use content_parts::GeminiPartWriter;
use params::GeminiVersion;

/// The protocol of Google's Gemini API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gemini;

/// The cached conversation of a task.
#[derive(Default)]
struct GeminiCache {
    turns: AlternatingTurns<GeminiPartWriter>,
    tools: ToolBytes,
}

impl WireProtocol for Gemini {
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError> {
        params::check_settings(settings)
    }

    fn request_path(&self, settings: &ModelSettings) -> String {
        let model = &settings.model;
        let folder = if model.contains('/') { "" } else { "models/" };
        format!("/{folder}{model}:streamGenerateContent?alt=sse")
    }

    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, WireRequestError> {
        params::check_settings(settings)?;
        memo.with(|kept: &mut GeminiCache| {
            kept.turns.update(request.messages, &settings.model);
            if kept.turns.is_empty() {
                return Err(WireRequestError("the conversation is empty".to_owned()));
            }
            kept.tools.write(request.tools, &GEMINI, memo, write_tool);
            Ok(body(request, settings, kept))
        })
    }

    fn parser(&self) -> Box<dyn ReplyParser> {
        Box::<SseReplyParser<parser::GeminiReplyBuilder>>::default()
    }

    fn error_from_response(&self, status: u16, body: &[u8]) -> ModelErrorKind {
        let said = error(body).and_then(|error| error.words());
        status_errors::error_from_status(
            status,
            &said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned()),
        )
    }

    fn retry_after(&self, body: &[u8]) -> Option<Duration> {
        error(body)?.retry
    }
}

fn body(request: &ModelRequest<'_>, settings: &ModelSettings, kept: &GeminiCache) -> Vec<u8> {
    let delivery = params::schema_delivery(request, settings);
    let mut fields = json!({"generationConfig": params::generation_config(settings, &delivery)});
    if shows_own_tools(settings, kept) {
        fields["toolConfig"] = json!({"includeServerSideToolInvocations": true});
    }
    for (key, more) in settings.provider_opts.iter().filter(|(key, _)| *key != "tools") {
        merge_value(&mut fields[key.as_str()], more);
    }
    let mut out = Vec::with_capacity(kept.turns.estimated_len() + request.system.len() + 4096);
    write(&mut out, &fields);
    out.pop();
    let system = delivery.system_prompt(request.system);
    if !system.trim().is_empty() {
        out.extend_from_slice(br#","systemInstruction":{"parts":[{"text":"#);
        write(&mut out, &system);
        out.extend_from_slice(b"}]}");
    }
    write_tools(&mut out, kept.tools.bytes(), settings);
    out.extend_from_slice(br#","contents":["#);
    kept.turns.write(&mut out, "");
    out.extend_from_slice(b"]}");
    out
}

/// Whether functions are used together with the provider's own tools. The API refuses that unless it returns
/// what its tools did, so that it can be sent back ("Combine built-in tools and function calling"). Before
/// Gemini 3 it always refuses.
fn shows_own_tools(settings: &ModelSettings, kept: &GeminiCache) -> bool {
    GeminiVersion::from_name(&settings.model).is_gemini_3()
        && !kept.tools.bytes().is_empty()
        && !own_tools(settings).is_empty()
}

/// Tools that the provider runs itself.
fn own_tools(settings: &ModelSettings) -> &[Value] {
    settings.provider_opts.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn write_tools(out: &mut Vec<u8>, declared: &[u8], settings: &ModelSettings) {
    let more = own_tools(settings);
    if declared.is_empty() && more.is_empty() {
        return;
    }
    out.extend_from_slice(br#","tools":["#);
    if !declared.is_empty() {
        out.extend_from_slice(br#"{"functionDeclarations":["#);
        out.extend_from_slice(declared);
        out.extend_from_slice(b"]}");
    }
    for tool in more {
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        write(out, tool);
    }
    out.push(b']');
}

fn write_tool(out: &mut Vec<u8>, tool: WireTool) {
    out.extend_from_slice(br#"{"name":"#);
    write(out, &tool.name);
    out.extend_from_slice(br#","description":"#);
    write(out, &tool.description);
    // The API refuses an object without properties, but not a function without parameters.
    let has =
        |key: &str| tool.parameters.get(key).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if has("properties") || has("additionalProperties") {
        out.extend_from_slice(br#","parametersJsonSchema":"#);
        write(out, &tool.parameters);
    }
    out.push(b'}');
}

/// The parts of an error.
#[derive(Debug, Default)]
struct GeminiError {
    code: Option<u16>,
    message: Option<String>,
    status: Option<String>,
    retry: Option<Duration>,
}

impl GeminiError {
    fn from_json(error: &Value) -> Self {
        let word = |key: &str| error[key].as_str().map(str::to_owned);
        let delay = |detail: &Value| detail["retryDelay"].as_str()?.strip_suffix('s')?.parse().ok();
        let details = error["details"].as_array().map_or(&[][..], Vec::as_slice);
        GeminiError {
            code: error["code"].as_u64().and_then(|code| u16::try_from(code).ok()),
            message: word("message").or_else(|| error.as_str().map(str::to_owned)),
            status: word("status"),
            retry: details.iter().find_map(delay).and_then(|s| Duration::try_from_secs_f64(s).ok()),
        }
    }

    fn words(&self) -> Option<String> {
        match (&self.status, &self.message) {
            (Some(status), Some(message)) => Some(format!("{status}: {message}")),
            (None, Some(said)) | (Some(said), None) => Some(said.clone()),
            (None, None) => None,
        }
    }

    fn kind(&self) -> ModelErrorKind {
        let status = self.code.filter(|code| *code >= 400).unwrap_or(match self.status.as_deref() {
            Some("RESOURCE_EXHAUSTED") => 429,
            Some("INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE") => 400,
            Some("UNAUTHENTICATED") => 401,
            Some("PERMISSION_DENIED") => 403,
            Some("NOT_FOUND") => 404,
            Some("ABORTED" | "ALREADY_EXISTS") => 409,
            Some("UNAVAILABLE") => 503,
            Some("DEADLINE_EXCEEDED") => 504,
            _ => 500,
        });
        // The provider itself cancelled the request.
        let status = if status == 499 { 500 } else { status };
        status_errors::error_from_status(status, &self.words().unwrap_or_default())
    }
}

/// The error in a body: in an object, or in the first object of an array.
fn error(body: &[u8]) -> Option<GeminiError> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let object = body.get(0).unwrap_or(&body);
    object.get("error").map(GeminiError::from_json)
}

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod stream_tests;
