//! Answers what a server requests during a call: elicitation (asks a person), sampling (asks the model), and
//! roots (where the task works).
#![expect(
    deprecated,
    reason = "sampling and roots are on their way out of the protocol; servers still ask for them"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorCode, ListRootsResult, Role, Root, SamplingMessage, SamplingMessageContentBlock,
};
use serde_json::Value;

use super::running_calls::McpRunningCall;
use super::{limits, link_check};
use crate::entry::{ExpectedAnswer, Question, QuestionAnswer};
use crate::message::{Message, Reply, StopReason};
use crate::tool::AskModelError;
use crate::toolset::text::truncate;
use crate::toolset::user_prompt::AnswerSchema;

/// How long the model may take to answer.
const SAMPLING_TIME: Duration = Duration::from_secs(300);
/// How often a person is asked: once more after an answer that does not match.
const ROUNDS: usize = 2;

/// Asks a person, through the call. If no one can be asked, the result is `cancel`, not `decline`.
///
/// # Errors
/// If this call has used up its questions, or the form is too large.
pub(super) async fn elicit(
    running: &Arc<McpRunningCall>,
    server: &str,
    asked: ElicitRequestParams,
) -> Result<ElicitResult, ErrorData> {
    if !running.quota.take_question() {
        let most = limits::QUESTIONS;
        return Err(refuse(&format!("this call has asked a person {most} times, which is the limit")));
    }
    let _asking = running.begin_question();
    let said = |message: &str| truncate(message, limits::QUESTION);
    Ok(match asked {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).unwrap_or(Value::Null);
            if schema.to_string().len() > limits::FORM {
                return Err(refuse(&format!("a form may have {} bytes", limits::FORM)));
            }
            let text = format!("The MCP server '{server}' asks: {}", said(&message));
            drop(message);
            form(running, &text, schema).await
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            match link_check::check_link(&url) {
                Ok(page) => {
                    let text = said(&message);
                    drop((message, url));
                    open_page(running, server, &page, &text).await
                }
                Err(why) => {
                    let text = format!(
                        "the MCP server '{server}' asked to have a page opened, which is not shown: {why}"
                    );
                    tracing::warn!("{text}");
                    running.context.progress(text);
                    ElicitResult::new(ElicitationAction::Decline)
                }
            }
        }
        _ => ElicitResult::new(ElicitationAction::Decline),
    })
}

async fn open_page(
    running: &Arc<McpRunningCall>,
    server: &str,
    page: &link_check::CheckedLink,
    message: &str,
) -> ElicitResult {
    let link_check::CheckedLink { url, host } = page;
    let text = format!(
        "The MCP server '{server}' asks you to open a page on {host} in a browser: {message}\n{url}\nAnswer when you \
         have done so."
    );
    match running.context.ask(Question { text, wants: ExpectedAnswer::Words { schema: None } }).await {
        QuestionAnswer::Given(_) => ElicitResult::new(ElicitationAction::Accept),
        other => refused(&other),
    }
}

async fn form(running: &Arc<McpRunningCall>, asked: &str, schema: Value) -> ElicitResult {
    let Ok(form) = AnswerSchema::new(&schema) else { return ElicitResult::new(ElicitationAction::Decline) };
    let mut text = asked.to_owned();
    for _ in 0..ROUNDS {
        let wants = ExpectedAnswer::Words { schema: Some(schema.clone()) };
        let words = match running.context.ask(Question { text, wants }).await {
            QuestionAnswer::Given(words) => words,
            other => return refused(&other),
        };
        match form.parse_answer(&words) {
            Ok(content) => return ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Err(why) => {
                text = format!("{asked}\n\n(The answer '{}' does not fit: {why}.)", truncate(&words, 200))
            }
        }
    }
    ElicitResult::new(ElicitationAction::Cancel)
}

fn refused(answer: &QuestionAnswer) -> ElicitResult {
    ElicitResult::new(match answer {
        QuestionAnswer::Declined => ElicitationAction::Decline,
        _ => ElicitationAction::Cancel,
    })
}

/// Asks the calling agent's model, without tools.
pub(super) async fn sample(
    running: &Arc<McpRunningCall>,
    asked: CreateMessageRequestParams,
) -> Result<CreateMessageResult, ErrorData> {
    if !running.quota.take_sampling() {
        let most = limits::SAMPLINGS;
        return Err(refuse(&format!("this call has asked the model {most} times, which is the limit")));
    }
    let messages = asked.messages.into_iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let system = asked.system_prompt.unwrap_or_default();
    let size = system.len() + messages.iter().map(text_len).sum::<usize>();
    if size > limits::SAMPLING {
        return Err(refuse(&format!(
            "{size} bytes are too much to ask the model; {} are the most",
            limits::SAMPLING
        )));
    }
    let _asking = running.begin_question();
    let context = &running.context;
    context.progress("the MCP server asks the model");
    let asking = tokio::time::timeout(SAMPLING_TIME, context.ask_model(&system, &messages));
    let reply = asking.await.unwrap_or(Err(AskModelError::TimedOut));
    let reply = reply.map_err(|why| refuse(&why.to_string()))?;
    // The model takes no token limit here, so cut the answer to what was requested (about four characters per
    // token).
    let most = usize::try_from(asked.max_tokens).unwrap_or(usize::MAX).saturating_mul(4).max(64);
    let text = reply.text();
    let is_cut = text.len() > most || reply.stop == StopReason::Length;
    let text = text[..text.floor_char_boundary(most)].to_owned();
    let reason = match is_cut {
        true => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        false => CreateMessageResult::STOP_REASON_END_TURN,
    };
    let model = if reply.model.is_empty() { context.model.name().to_owned() } else { reply.model };
    let mut result = CreateMessageResult::new(SamplingMessage::assistant_text(text), model);
    result.stop_reason = Some(reason.to_owned());
    Ok(result)
}

fn message(said: SamplingMessage) -> Result<Message, ErrorData> {
    let mut text = String::new();
    for block in said.content.into_vec() {
        let SamplingMessageContentBlock::Text(part) = block else {
            return Err(refuse("only text can be asked of the model"));
        };
        text.push_str(&part.text);
    }
    Ok(match said.role {
        Role::Assistant => Message::Assistant(Arc::new(Reply::text_only(text))),
        _ => Message::User(text.into()),
    })
}

fn text_len(message: &Message) -> usize {
    match message {
        Message::User(text) => text.len(),
        Message::Assistant(reply) => reply.text().len(),
        Message::Tool(result) => result.output.len(),
    }
}

fn refuse(why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_REQUEST, truncate(why, 300), None)
}

/// Returns the working directory of a call's task, as the only root.
pub(super) fn roots(running: Option<&McpRunningCall>) -> ListRootsResult {
    let dir = running.and_then(|running| running.context.working_dir.as_deref());
    ListRootsResult::new(dir.and_then(file_url).map(Root::new).into_iter().collect())
}

fn file_url(dir: &Path) -> Option<String> {
    reqwest::Url::from_file_path(dir).ok().map(String::from)
}

#[cfg(test)]
#[path = "server_requests_tests.rs"]
mod tests;
