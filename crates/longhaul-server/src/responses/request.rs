//! Reads requests: what OpenAI's clients send, as what Longhaul can do with it.

use std::collections::BTreeMap;

use longhaul::TaskId;
use serde_json::{Map, Value};

use super::error::ApiError;

/// Labels and metadata of our own start with this; clients cannot set such metadata.
pub(super) const OWN_PREFIX: &str = "longhaul.";

/// Values of `include` that OpenAI defines. They ask for output that a task never has, so nothing is added.
const OPENAI_INCLUDES: [&str; 8] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

/// What is shown of a task besides its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shown {
    /// The messages before the answer. A stream always has them.
    pub(super) commentary: bool,
    pub(super) reasoning: bool,
    pub(super) tool_calls: bool,
}

impl Shown {
    fn include(&mut self, value: &str, param: &str) -> Result<(), ApiError> {
        match value {
            "longhaul.commentary" => self.commentary = true,
            "longhaul.reasoning" => self.reasoning = true,
            "longhaul.tool_calls" => self.tool_calls = true,
            known if OPENAI_INCLUDES.contains(&known) => {}
            _ => {
                let message = format!(
                    "'{}' cannot be included; there are: longhaul.commentary, longhaul.reasoning, longhaul.tool_calls",
                    shorten(value)
                );
                return Err(ApiError::invalid(param, message));
            }
        }
        Ok(())
    }
}

/// The text for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Prompt {
    /// The last messages of the user.
    pub(super) task: String,
    /// Instructions, and the conversation before.
    pub(super) context: Option<String>,
}

impl Prompt {
    /// The prompt as one letter to a task.
    pub(super) fn into_letter(self) -> String {
        match self.context {
            Some(context) => format!("{context}\n\n{}", self.task),
            None => self.task,
        }
    }
}

/// The body of `POST /v1/responses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CreateRequest {
    pub(super) model: Option<String>,
    pub(super) prompt: Prompt,
    pub(super) background: bool,
    pub(super) stream: bool,
    pub(super) previous: Option<TaskId>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) shown: Shown,
}

impl CreateRequest {
    /// Reads a body. Fails with the name of the first field that is wrong or cannot be honoured.
    pub(super) fn parse(body: &[u8]) -> Result<CreateRequest, ApiError> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            ApiError::new(http::StatusCode::BAD_REQUEST, format!("The body is not valid JSON: {error}"))
                .code("invalid_json")
        })?;
        let Value::Object(body) = body else {
            return Err(ApiError::new(http::StatusCode::BAD_REQUEST, "The body is not a JSON object.")
                .code("invalid_json"));
        };
        refuse_unsupported(&body)?;
        let background = flag(&body, "background")?.unwrap_or(false);
        if background && flag(&body, "store")? == Some(false) {
            let message = "A background response is stored: leave out 'store', or set it to true.";
            return Err(ApiError::invalid("store", message));
        }
        flag(&body, "store")?;
        for limit in ["max_output_tokens", "max_tool_calls"] {
            if let Some(value) = present(&body, limit)
                && !value.as_u64().is_some_and(|value| value > 0)
            {
                return Err(ApiError::invalid(limit, format!("'{limit}' must be a whole number above 0.")));
            }
        }
        let previous = text(&body, "previous_response_id")?;
        let previous =
            previous.map(|id| response_task(id).ok_or_else(|| previous_not_found(id))).transpose()?;
        let mut shown = Shown::default();
        if let Some(include) = present(&body, "include") {
            let Value::Array(include) = include else {
                return Err(ApiError::invalid("include", "'include' must be a list of strings."));
            };
            for (at, value) in include.iter().enumerate() {
                let param = format!("include[{at}]");
                let value = value
                    .as_str()
                    .ok_or_else(|| ApiError::invalid(&*param, "'include' must be a list of strings."))?;
                shown.include(value, &param)?;
            }
        }
        shown.reasoning |= asks_for_reasoning(&body)?;
        Ok(CreateRequest {
            model: text(&body, "model")?.map(str::to_owned),
            prompt: prompt(present(&body, "input"), text(&body, "instructions")?)?,
            background,
            stream: flag(&body, "stream")?.unwrap_or(false),
            previous,
            metadata: metadata(present(&body, "metadata"))?,
            shown,
        })
    }
}

/// What `GET /v1/responses/{id}` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RetrieveQuery {
    pub(super) stream: bool,
    pub(super) starting_after: Option<u64>,
    pub(super) shown: Shown,
}

impl RetrieveQuery {
    /// Reads the pairs of a query.
    pub(super) fn parse(pairs: &[(String, String)]) -> Result<RetrieveQuery, ApiError> {
        let mut query = RetrieveQuery::default();
        for (name, value) in pairs {
            match name.split('[').next().unwrap_or_default() {
                "stream" => {
                    query.stream = match &**value {
                        "true" | "True" | "1" => true,
                        "false" | "False" | "0" | "" => false,
                        _ => return Err(ApiError::invalid("stream", "'stream' must be true or false.")),
                    }
                }
                "starting_after" => {
                    let message = "'starting_after' must be the sequence_number of an event.";
                    let number = value.parse().map_err(|_| ApiError::invalid("starting_after", message))?;
                    query.starting_after = Some(number);
                }
                "include" => {
                    for value in value.split(',') {
                        query.shown.include(value, "include")?;
                    }
                }
                _ => {}
            }
        }
        if query.starting_after.is_some() && !query.stream {
            let message = "'starting_after' is for streams: add stream=true.";
            return Err(ApiError::invalid("starting_after", message));
        }
        Ok(query)
    }
}

/// The task of a response id: `resp_7f3k2` is task `t-7f3k2`. The task's own id is accepted too.
pub(super) fn response_task(id: &str) -> Option<TaskId> {
    let letters = id.strip_prefix("resp_").or_else(|| id.strip_prefix("t-"))?;
    letters.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()).then_some(())?;
    letters.parse().ok()
}

pub(super) fn previous_not_found(id: &str) -> ApiError {
    let message = format!("Previous response with id '{}' not found.", shorten(id));
    ApiError::invalid("previous_response_id", message).code("previous_response_not_found")
}

/// A field, unless it is missing or null.
fn present<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    body.get(name).filter(|value| !value.is_null())
}

fn flag(body: &Map<String, Value>, name: &str) -> Result<Option<bool>, ApiError> {
    match present(body, name) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(ApiError::invalid(name, format!("'{name}' must be true or false."))),
    }
}

fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, ApiError> {
    match present(body, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiError::invalid(name, format!("'{name}' must be a string."))),
    }
}

/// Refuses what would change the result if it were ignored.
fn refuse_unsupported(body: &Map<String, Value>) -> Result<(), ApiError> {
    let is_set = |name: &str| match present(body, name) {
        None => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    for (name, why) in [
        ("tools", "the agent has the tools of its team file; a client cannot add any."),
        ("conversation", "continue a response with 'previous_response_id' instead."),
        ("prompt", "there are no stored prompts; send 'input' and 'instructions'."),
    ] {
        if is_set(name) {
            return Err(ApiError::unsupported(name, format!("'{name}' is not supported: {why}")));
        }
    }
    match present(body, "tool_choice") {
        None => {}
        Some(Value::String(choice)) if choice != "required" => {}
        Some(_) => {
            let message = "'tool_choice' is not supported: the agent decides about its tools.";
            return Err(ApiError::unsupported("tool_choice", message));
        }
    }
    let format =
        present(body, "text").and_then(|text| text.get("format")).and_then(|format| format.get("type"));
    if format.is_some_and(|kind| kind != "text") {
        let message = "Only the text format 'text' is supported: set a schema on the agent in its team file.";
        return Err(ApiError::unsupported("text.format", message));
    }
    Ok(())
}

/// Whether `reasoning.summary` is set.
fn asks_for_reasoning(body: &Map<String, Value>) -> Result<bool, ApiError> {
    match present(body, "reasoning") {
        None => Ok(false),
        Some(Value::Object(reasoning)) => {
            let asks = |name| reasoning.get(name).is_some_and(|value| !value.is_null());
            Ok(asks("summary") || asks("generate_summary"))
        }
        Some(_) => Err(ApiError::invalid("reasoning", "'reasoning' must be an object.")),
    }
}

fn metadata(value: Option<&Value>) -> Result<BTreeMap<String, String>, ApiError> {
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let invalid = |message: String| ApiError::invalid("metadata", message);
    let Value::Object(pairs) = value else {
        return Err(invalid("'metadata' must be an object of strings.".to_owned()));
    };
    if pairs.len() > 16 {
        return Err(invalid(format!("'metadata' has {} keys; at most 16 are taken.", pairs.len())));
    }
    let mut metadata = BTreeMap::new();
    for (key, value) in pairs {
        let name = shorten(key);
        let Value::String(value) = value else {
            return Err(invalid(format!("The value of '{name}' in 'metadata' must be a string.")));
        };
        if key.chars().count() > 64 || value.chars().count() > 512 {
            return Err(invalid(format!(
                "'{name}' in 'metadata' is too long: a key has at most 64 characters, a value 512."
            )));
        }
        if key.starts_with(OWN_PREFIX) {
            return Err(invalid(format!(
                "'{name}' in 'metadata' is reserved: it starts with '{OWN_PREFIX}'."
            )));
        }
        metadata.insert(key.clone(), value.clone());
    }
    Ok(metadata)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
    Instructions,
}

fn prompt(input: Option<&Value>, instructions: Option<&str>) -> Result<Prompt, ApiError> {
    let messages = match input {
        None => return Err(ApiError::missing("input")),
        Some(Value::String(text)) => vec![(Role::User, text.clone())],
        Some(Value::Array(items)) => {
            let read = items.iter().enumerate().map(|(at, item)| message(item, &format!("input[{at}]")));
            read.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err(ApiError::invalid("input", "'input' must be a string or a list of items.")),
    };
    let (rules, talk): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|(role, _)| *role == Role::Instructions);
    let rules: Vec<String> =
        instructions.map(str::to_owned).into_iter().chain(rules.into_iter().map(|(_, text)| text)).collect();
    let answered = talk.iter().rposition(|(role, _)| *role == Role::Assistant).map_or(0, |at| at + 1);
    let (before, last) = talk.split_at(answered);
    let task: Vec<&str> =
        last.iter().map(|(_, text)| text.as_str()).filter(|text| !text.trim().is_empty()).collect();
    if task.is_empty() {
        let message = "'input' must end with a message of the user that has text.";
        return Err(ApiError::invalid("input", message));
    }
    let mut context = rules.into_iter().filter(|rule| !rule.trim().is_empty()).collect::<Vec<_>>();
    if !before.is_empty() {
        let said = before.iter().map(|(role, text)| match role {
            Role::Assistant => format!("Assistant: {text}"),
            _ => format!("User: {text}"),
        });
        context.push(format!("The conversation so far:\n\n{}", said.collect::<Vec<_>>().join("\n\n")));
    }
    let context = Some(context.join("\n\n")).filter(|context| !context.is_empty());
    Ok(Prompt { task: task.join("\n\n"), context })
}

/// An input item; `None` for reasoning, which is not needed again.
fn message(item: &Value, param: &str) -> Result<Option<(Role, String)>, ApiError> {
    let Value::Object(item) = item else {
        return Err(ApiError::invalid(param, format!("'{param}' must be an object.")));
    };
    match text(item, "type").map_err(|error| error.param(format!("{param}.type")))? {
        None | Some("message") => {}
        Some("reasoning") => return Ok(None),
        Some(other) => {
            let message =
                format!("Items of the type '{}' are not supported; only messages are.", shorten(other));
            return Err(ApiError::unsupported(format!("{param}.type"), message));
        }
    }
    let role = match item.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system" | "developer") => Role::Instructions,
        _ => {
            let message = format!("'{param}.role' must be user, assistant, system or developer.");
            return Err(ApiError::invalid(format!("{param}.role"), message));
        }
    };
    let text = match item.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let read = parts
                .iter()
                .enumerate()
                .map(|(at, part)| content_part(part, &format!("{param}.content[{at}]")));
            read.collect::<Result<Vec<_>, _>>()?.concat()
        }
        _ => {
            let message = format!("'{param}.content' must be a string or a list of parts.");
            return Err(ApiError::invalid(format!("{param}.content"), message));
        }
    };
    Ok(Some((role, text)))
}

fn content_part(part: &Value, param: &str) -> Result<String, ApiError> {
    let field = |name: &str| part.get(name).and_then(Value::as_str);
    match field("type") {
        Some("input_text" | "output_text" | "text") => field("text").map(str::to_owned).ok_or_else(|| {
            ApiError::invalid(format!("{param}.text"), format!("'{param}.text' must be a string."))
        }),
        Some("refusal") => Ok(field("refusal").unwrap_or_default().to_owned()),
        Some(other) => {
            let message = format!("Content of the type '{}' is not supported; only text is.", shorten(other));
            Err(ApiError::unsupported(format!("{param}.type"), message))
        }
        None => Err(ApiError::invalid(format!("{param}.type"), format!("'{param}.type' must be a string."))),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
