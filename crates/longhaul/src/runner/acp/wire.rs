//! The Agent Client Protocol, version 1, as far as it is used here: JSON-RPC messages, one per line.
//!
//! Agents send more than the protocol's schema knows, and some print other things to stdout. So this reads what
//! it needs and ignores the rest; nothing that an agent sends is an error by itself. (The published types are
//! not used: their crate turns on `serde_json/preserve_order`, which would change the JSON of the whole program.)

use serde_json::{Map, Value, json};

/// The protocol version that is spoken here.
pub(super) const VERSION: u64 = 1;
/// The code of an agent that needs a login.
const AUTH_REQUIRED: i64 = -32000;
const METHOD_NOT_FOUND: i64 = -32601;

/// A message from the agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AgentMessage {
    Response {
        id: u64,
        result: Result<Value, RpcError>,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// A line that is no message.
    Noise,
}

/// An error that the agent answered with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
}

impl RpcError {
    /// Whether the agent needs a login. Some use another code and only say so.
    pub(super) fn needs_login(&self) -> bool {
        let text = self.message.to_lowercase();
        let says = ["authentication required", "not logged in", "please run /login", "login required"];
        self.code == AUTH_REQUIRED || says.iter().any(|words| text.contains(words))
    }
}

/// Reads one line.
pub(super) fn parse_line(line: &[u8]) -> AgentMessage {
    let Ok(Value::Object(mut message)) = serde_json::from_slice::<Value>(line) else {
        return AgentMessage::Noise;
    };
    let (id, params) = (message.remove("id"), message.remove("params").unwrap_or_default());
    match (message.remove("method"), id) {
        (Some(Value::String(method)), None | Some(Value::Null)) => {
            AgentMessage::Notification { method, params }
        }
        (Some(Value::String(method)), Some(id)) => AgentMessage::Request { id, method, params },
        (None, Some(id)) => {
            let Some(id) = id.as_u64() else { return AgentMessage::Noise };
            let result = match message.remove("error").filter(|error| !error.is_null()) {
                None => Ok(message.remove("result").unwrap_or_default()),
                Some(error) => Err(rpc_error(&error)),
            };
            AgentMessage::Response { id, result }
        }
        _ => AgentMessage::Noise,
    }
}

fn rpc_error(error: &Value) -> RpcError {
    let mut message = text_at(error, "message").unwrap_or("no message").to_owned();
    // Most agents put what happened into the data.
    let detail = error.get("data").and_then(|data| {
        data.as_str().or_else(|| text_at(data, "details")).or_else(|| text_at(data, "message"))
    });
    if let Some(detail) = detail.filter(|detail| !message.contains(*detail)) {
        message = format!("{message}: {detail}");
    }
    RpcError { code: error.get("code").and_then(Value::as_i64).unwrap_or_default(), message }
}

pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(super) fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

pub(super) fn response(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// An answer with an error.
pub(super) fn rpc_failure(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// The answer to a request for something that was not offered.
pub(super) fn not_offered(id: &Value, method: &str) -> Value {
    rpc_failure(id, METHOD_NOT_FOUND, &format!("{method} is not offered by this client"))
}

/// No files, no terminals: the agent works on disk itself, within its own confinement.
pub(super) fn initialize() -> Value {
    json!({
        "protocolVersion": VERSION,
        "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
        "clientInfo": { "name": "longhaul", "title": "Longhaul", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// What an agent says about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AgentAbout {
    pub(super) version: u64,
    pub(super) loads: bool,
    pub(super) resumes: bool,
    /// Whether it can use MCP servers at a URL.
    pub(super) mcp_http: bool,
    /// Its name and version.
    pub(super) program: Option<String>,
    /// How one can log in, as it says.
    pub(super) logins: Vec<String>,
    pub(super) steering: Steering,
}

/// How a message reaches an agent in the middle of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Steering {
    /// Not at all: it waits until the turn ends.
    #[default]
    None,
    /// By a request of its own (`_session/steering`), which says whether the turn took it.
    Request,
    /// By a prompt that the agent queues.
    Queue,
}

pub(super) fn parse_about(result: &Value) -> AgentAbout {
    let capabilities = result.get("agentCapabilities").cloned().unwrap_or_default();
    let info = result.get("agentInfo");
    let named = info.and_then(|info| text_at(info, "title").or_else(|| text_at(info, "name")));
    let version = info.and_then(|info| text_at(info, "version"));
    let logins = result.get("authMethods").and_then(Value::as_array).into_iter().flatten();
    AgentAbout {
        version: result.get("protocolVersion").and_then(Value::as_u64).unwrap_or_default(),
        loads: capabilities.get("loadSession").and_then(Value::as_bool).unwrap_or(false),
        mcp_http: capabilities.pointer("/mcpCapabilities/http").and_then(Value::as_bool).unwrap_or(false),
        resumes: capabilities.pointer("/sessionCapabilities/resume").is_some_and(|value| !value.is_null()),
        program: named.map(|name| match version {
            Some(version) => format!("{name} {version}"),
            None => name.to_owned(),
        }),
        steering: match capabilities.pointer("/_meta/claudeCode/promptQueueing") {
            _ if result.pointer("/_meta/steering/supported") == Some(&Value::Bool(true)) => Steering::Request,
            Some(Value::Bool(true)) => Steering::Queue,
            _ => Steering::None,
        },
        logins: logins.filter_map(|login| text_at(login, "name")).map(str::to_owned).collect(),
    }
}

/// The modes of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Modes {
    pub(super) current: Option<String>,
    pub(super) available: Vec<String>,
    /// The configuration option that sets the mode, if there is no method for it.
    pub(super) option: Option<String>,
}

pub(super) fn parse_modes(result: &Value) -> Modes {
    let ids = |list: Option<&Value>, key: &str| -> Vec<String> {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|item| text_at(item, key)).map(str::to_owned).collect()
    };
    if let Some(modes) = result.get("modes").filter(|modes| modes.is_object()) {
        let current = text_at(modes, "currentModeId").map(str::to_owned);
        return Modes { current, available: ids(modes.get("availableModes"), "id"), option: None };
    }
    let options = result.get("configOptions").and_then(Value::as_array).into_iter().flatten();
    let mut modes = options.filter(|option| {
        text_at(option, "category") == Some("mode") || text_at(option, "id") == Some("mode")
    });
    let Some(option) = modes.next() else { return Modes::default() };
    Modes {
        current: text_at(option, "currentValue").map(str::to_owned),
        available: ids(option.get("options"), "value"),
        option: text_at(option, "id").map(str::to_owned),
    }
}

/// News about a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    /// What we sent, told again when a session is loaded.
    UserText(String),
    /// Text, and the message that it is part of.
    Text(String, Option<String>),
    Thought(String),
    Call(CallUpdate),
    /// The current step of the agent's plan.
    Plan(String),
    /// The cost of the session so far, in millionths of a dollar.
    Cost(u64),
    Mode(String),
    Other,
}

/// News about a call of the agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CallUpdate {
    pub(super) id: String,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<CallStatus>,
    pub(super) input: Option<Value>,
    pub(super) output: Option<String>,
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStatus {
    Pending,
    Running,
    Done,
    Failed,
}

pub(super) fn parse_update(params: &Value) -> Update {
    let Some(update) = params.get("update") else { return Update::Other };
    let content = || update.get("content").and_then(block_text).unwrap_or_default();
    match text_at(update, "sessionUpdate").unwrap_or_default() {
        "user_message_chunk" => Update::UserText(content()),
        "agent_message_chunk" => Update::Text(content(), text_at(update, "messageId").map(str::to_owned)),
        "agent_thought_chunk" => Update::Thought(content()),
        "tool_call" | "tool_call_update" => parse_call(update).map_or(Update::Other, Update::Call),
        "plan" => {
            let entries = update.get("entries").and_then(Value::as_array);
            entries.and_then(|entries| plan_text(entries)).map_or(Update::Other, Update::Plan)
        }
        "usage_update" => cost(update.get("cost")).map_or(Update::Other, Update::Cost),
        "current_mode_update" => {
            let mode = text_at(update, "currentModeId").or_else(|| text_at(update, "modeId"));
            mode.map_or(Update::Other, |mode| Update::Mode(mode.to_owned()))
        }
        _ => Update::Other,
    }
}

/// A call, as `tool_call`, `tool_call_update` and a request for permission describe it.
pub(super) fn parse_call(call: &Value) -> Option<CallUpdate> {
    let status = match text_at(call, "status") {
        Some("pending") => Some(CallStatus::Pending),
        Some("in_progress") => Some(CallStatus::Running),
        Some("completed") => Some(CallStatus::Done),
        Some("failed" | "cancelled") => Some(CallStatus::Failed),
        _ => None,
    };
    let locations = call.get("locations").and_then(Value::as_array).into_iter().flatten();
    Some(CallUpdate {
        id: text_at(call, "toolCallId")?.to_owned(),
        title: text_at(call, "title").map(str::to_owned),
        kind: text_at(call, "kind").map(str::to_owned),
        status,
        input: call.get("rawInput").filter(|input| !is_empty(input)).cloned(),
        output: call_output(call),
        paths: locations.filter_map(|at| text_at(at, "path")).map(str::to_owned).collect(),
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn call_output(call: &Value) -> Option<String> {
    let parts = call.get("content").and_then(Value::as_array).into_iter().flatten();
    let parts: Vec<String> = parts
        .filter_map(|part| match text_at(part, "type") {
            Some("content") => part.get("content").and_then(block_text),
            Some("diff") => Some(format!("changed {}", text_at(part, "path").unwrap_or("a file"))),
            _ => None,
        })
        .collect();
    if !parts.is_empty() {
        return Some(parts.join("\n"));
    }
    match call.get("rawOutput").filter(|output| !is_empty(output))? {
        Value::String(text) => Some(text.clone()),
        output => text_at(output, "output").map(str::to_owned).or_else(|| Some(output.to_string())),
    }
}

fn block_text(block: &Value) -> Option<String> {
    match text_at(block, "type") {
        Some("text") => text_at(block, "text").map(str::to_owned),
        Some("resource_link") => text_at(block, "uri").map(str::to_owned),
        Some("resource") => {
            block.get("resource").and_then(|resource| text_at(resource, "text")).map(str::to_owned)
        }
        Some(other) => Some(format!("[{other}]")),
        None => None,
    }
}

fn plan_text(entries: &[Value]) -> Option<String> {
    let is = |entry: &&Value, status: &str| text_at(entry, "status") == Some(status);
    let now = entries.iter().find(|entry| is(entry, "in_progress"))?;
    let done = entries.iter().filter(|entry| is(entry, "completed")).count();
    Some(format!("{} ({} of {})", text_at(now, "content")?, done + 1, entries.len()))
}

fn cost(cost: Option<&Value>) -> Option<u64> {
    let cost = cost?;
    let dollars = text_at(cost, "currency").is_none_or(|currency| currency.eq_ignore_ascii_case("USD"));
    let amount = cost.get("amount").and_then(Value::as_f64).filter(|amount| dollars && *amount >= 0.0)?;
    // A float is exact up to billions of dollars.
    Some((amount * 1e6).round() as u64)
}

/// A request for permission.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PermissionAsked {
    pub(super) call: CallUpdate,
    options: Vec<(String, String)>,
}

pub(super) fn parse_permission(params: &Value) -> Option<PermissionAsked> {
    let options = params.get("options").and_then(Value::as_array).into_iter().flatten();
    let option =
        |option: &Value| Some((text_at(option, "kind")?.to_owned(), text_at(option, "optionId")?.to_owned()));
    Some(PermissionAsked {
        call: parse_call(params.get("toolCall")?)?,
        options: options.filter_map(option).collect(),
    })
}

impl PermissionAsked {
    /// The answer. Whatever was decided counts once: what is allowed from now on is in our journal, and never in
    /// the agent's settings. An agent that offers no such option is refused.
    pub(super) fn outcome(&self, allow: bool) -> Value {
        let kinds: &[&str] = if allow { &["allow_once"] } else { &["reject_once", "reject_always"] };
        let find = |kind: &&str| self.options.iter().find(|(option, _)| option == kind);
        match kinds.iter().find_map(find) {
            Some((_, id)) => json!({ "outcome": { "outcome": "selected", "optionId": id } }),
            None if allow => self.outcome(false),
            None => cancelled(),
        }
    }
}

/// The answer to a request for permission of a turn that was cancelled.
pub(super) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

/// The arguments of a call for rules and people: what the agent passes on, and under `title` what it says about
/// it. A command line is always a text, under `command`.
pub(super) fn arguments(kind: &str, title: &str, input: Option<&Value>, paths: &[String]) -> Value {
    let mut fields = match input {
        Some(Value::Object(fields)) => fields.clone(),
        Some(other) => Map::from_iter([("input".to_owned(), other.clone())]),
        None => Map::new(),
    };
    if kind == "execute" {
        let line = match fields.get("command").or_else(|| fields.get("cmd")) {
            Some(Value::Array(words)) => command_line(words),
            Some(Value::String(line)) => line.clone(),
            _ => title.trim().trim_matches('`').to_owned(),
        };
        fields.insert("command".to_owned(), line.into());
    }
    if !paths.is_empty() && !fields.contains_key("path") {
        let path = if let [path] = paths { path.clone().into() } else { paths.into() };
        fields.insert("path".to_owned(), path);
    }
    if !title.is_empty() {
        fields.entry("title").or_insert_with(|| title.into());
    }
    Value::Object(fields)
}

/// The command line that a list of words runs: of `bash -lc LINE` that line.
fn command_line(words: &[Value]) -> String {
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    match words[..] {
        [shell, flag, line] if flag.starts_with('-') && flag.ends_with('c') && shell.ends_with("sh") => {
            line.to_owned()
        }
        _ => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

/// A word as a shell would have to be given it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

pub(super) fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}
