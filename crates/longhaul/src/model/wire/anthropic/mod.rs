//! Anthropic's Messages API, also used by llama.cpp (`/v1/messages`) and gateways.
//!
//! Prompt caching is on: cache marks follow the tools and the system instruction, and the last two user
//! turns, so that each request reads what the one before it wrote. One more mark is free for `provider_opts`.
//! `provider_opts: {cache: false}` turns caching off, `cache: 1h` makes it last longer. The rest of
//! `provider_opts` is merged into the body last; its `tools` are added to the tools.

use serde_json::{Map, Value, json};

use super::alternating_turns::{AlternatingTurns, merge_value, write_json as write};
use super::schema_dialect::{ANTHROPIC, ANTHROPIC_OUTPUT};
use super::sse_reply::SseReplyParser;
use super::structured_output::{self, SchemaDelivery};
use super::tools::{ToolBytes, WireTool};
use super::{ReplyParser, WireCache, WireProtocol};
use crate::message::{Block, Message};
use crate::model::settings::ModelSettings;
use crate::model::wire::WireRequestError;
use crate::model::{ModelErrorKind, ModelRequest};

mod error;
mod claude_version;
mod content_blocks;
mod params;
mod parser;

use claude_version::ClaudeVersion;
use content_blocks::{AnthropicBlockWriter, is_thinking};
use params::AnthropicParams;

/// Whether a model checks that nothing before its thinking has changed.
pub(crate) fn binds_thinking(model: &str) -> bool {
    ClaudeVersion::from_name(model).binds_thinking()
}

/// The protocol of Anthropic's Messages API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anthropic;

/// The cached conversation of a task.
#[derive(Default)]
struct AnthropicCache {
    turns: AlternatingTurns<AnthropicBlockWriter>,
    /// The tools of the last request that had any, with which the calls of the conversation were made.
    tools: ToolBytes,
}

impl WireProtocol for Anthropic {
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), WireRequestError> {
        AnthropicParams::from_settings(settings).map(drop)
    }

    fn request_path(&self, _settings: &ModelSettings) -> String {
        "/messages".to_owned()
    }

    fn request_body(
        &self,
        request: &ModelRequest<'_>,
        settings: &ModelSettings,
        memo: &WireCache,
    ) -> Result<Vec<u8>, WireRequestError> {
        let plan = AnthropicParams::from_settings(settings)?;
        memo.with(|kept: &mut AnthropicCache| {
            kept.turns.update(request.messages, &settings.model);
            if kept.turns.is_empty() {
                return Err(WireRequestError("the conversation is empty".to_owned()));
            }
            if !request.tools.is_empty() {
                kept.tools.write(request.tools, &ANTHROPIC, memo, write_tool);
            }
            Ok(body(request, settings, &plan, kept))
        })
    }

    fn parser(&self) -> Box<dyn ReplyParser> {
        Box::<SseReplyParser<parser::AnthropicReplyBuilder>>::default()
    }

    fn error_from_response(&self, status: u16, body: &[u8]) -> ModelErrorKind {
        error::error_from_response(status, body)
    }
}

fn body(
    request: &ModelRequest<'_>,
    settings: &ModelSettings,
    plan: &AnthropicParams,
    kept: &AnthropicCache,
) -> Vec<u8> {
    let mark = plan.cache.as_ref().map_or(String::new(), |cache| format!(r#","cache_control":{cache}"#));
    let mut tools = Vec::new();
    let choice = write_tools(&mut tools, request, settings, kept);

    let requested = structured_output::requested_output(request, settings);
    let enforced = ClaudeVersion::from_name(&settings.model).enforces_schema();
    let delivery = SchemaDelivery::choose(requested, if enforced { &[&ANTHROPIC_OUTPUT] } else { &[] });
    let instruction = delivery.system_prompt(request.system);
    let mut fields = request_fields(settings, plan, &delivery);
    if plan.needs_thinking_first && !begins_with_thinking(request.messages, &settings.model) {
        fields.remove("thinking");
    }
    if let Some(choice) = choice {
        fields.insert("tool_choice".to_owned(), choice);
    }
    let mut fields = Value::Object(fields);
    for (key, more) in
        settings.provider_opts.iter().filter(|(key, _)| !matches!(key.as_str(), "cache" | "tools"))
    {
        // Some fields, such as `display`, are refused without thinking.
        if key == "thinking" && fields.get(key).is_none() && more.get("type").is_none() {
            continue;
        }
        merge_value(&mut fields[key.as_str()], more);
    }

    let mut out = Vec::with_capacity(kept.turns.estimated_len() + tools.len() + instruction.len() + 1024);
    write(&mut out, &fields);
    out.pop();
    let system = !instruction.trim().is_empty();
    if !tools.is_empty() {
        if !system {
            tools.pop();
            tools.extend_from_slice(mark.as_bytes());
            tools.push(b'}');
        }
        out.extend_from_slice(br#","tools":["#);
        out.extend_from_slice(&tools);
        out.push(b']');
    }
    if system {
        out.extend_from_slice(br#","system":[{"type":"text","text":"#);
        write(&mut out, &instruction);
        out.extend_from_slice(mark.as_bytes());
        out.extend_from_slice(b"}]");
    }
    out.extend_from_slice(br#","messages":["#);
    kept.turns.write(&mut out, &mark);
    out.extend_from_slice(b"]}");
    out
}

fn request_fields(
    settings: &ModelSettings,
    plan: &AnthropicParams,
    delivery: &SchemaDelivery<'_>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    put("model", Some(json!(settings.model)));
    put("max_tokens", Some(json!(plan.max_tokens)));
    put("stream", Some(json!(true)));
    put("temperature", settings.temperature.map(|t| json!(t)));
    put("top_p", settings.top_p.map(|p| json!(p)));
    put("thinking", plan.thinking.clone());
    let mut output = Map::new();
    if let Some(effort) = &plan.effort {
        output.insert("effort".to_owned(), json!(effort));
    }
    if let SchemaDelivery::Schema(_, schema, _) = delivery {
        output.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }
    put("output_config", (!output.is_empty()).then_some(Value::Object(output)));
    fields
}

/// Writes the tools and how the model may choose them.
///
/// A conversation with calls needs its tools even if none may be called. It keeps the ones it had, so that
/// the cache, and thinking that is bound to what came before it, stay valid.
fn write_tools(
    out: &mut Vec<u8>,
    request: &ModelRequest<'_>,
    settings: &ModelSettings,
    kept: &AnthropicCache,
) -> Option<Value> {
    let off = request.tools.is_empty()
        && kept.turns.has_calls()
        && ClaudeVersion::from_name(&settings.model).is_claude();
    if off || !request.tools.is_empty() {
        out.extend_from_slice(kept.tools.bytes());
    }
    if off && out.is_empty() {
        write(
            out,
            &json!({"name": "none", "description": "Does nothing.", "input_schema": {"type": "object"}}),
        );
    }
    for tool in settings.provider_opts.get("tools").and_then(Value::as_array).into_iter().flatten() {
        comma(out);
        write(out, tool);
    }
    if off {
        return Some(json!({"type": "none"}));
    }
    let one = settings.parallel_tool_calls == Some(false) && !request.tools.is_empty();
    one.then(|| json!({"type": "auto", "disable_parallel_tool_use": true}))
}

fn write_tool(out: &mut Vec<u8>, tool: WireTool) {
    out.extend_from_slice(br#"{"name":"#);
    write(out, &tool.name);
    if !tool.description.is_empty() {
        out.extend_from_slice(br#","description":"#);
        write(out, &tool.description);
    }
    out.extend_from_slice(br#","input_schema":"#);
    write(out, &tool.parameters);
    out.push(b'}');
}

fn comma(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

/// Whether the model turn that the results belong to begins with the model's own thinking, or there is no
/// such turn.
fn begins_with_thinking(messages: &[Message], model: &str) -> bool {
    let last = messages.iter().rev().find_map(|message| match message {
        Message::Assistant(reply) => Some(reply),
        _ => None,
    });
    let Some(reply) = last.filter(|reply| reply.calls().next().is_some()) else { return true };
    let first = reply.blocks.iter().find(|block| match block {
        Block::Text(text) => !text.trim().is_empty(),
        Block::Reasoning { .. } => is_thinking(block, reply, model),
        Block::Call(_) => true,
    });
    matches!(first, Some(Block::Reasoning { .. }))
}

#[cfg(test)]
mod body_tests;
#[cfg(test)]
mod stream_tests;
