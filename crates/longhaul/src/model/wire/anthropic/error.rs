//! Parses Anthropic's errors.

use serde::Deserialize;
use serde_json::Value;

use super::super::status_errors;
use crate::model::ModelErrorKind;

#[derive(Deserialize)]
struct AnthropicErrorBody {
    #[serde(default)]
    error: Value,
}

/// Parses a response with an error status.
pub(super) fn error_from_response(status: u16, body: &[u8]) -> ModelErrorKind {
    let said =
        serde_json::from_slice::<AnthropicErrorBody>(body).ok().and_then(|envelope| words(&envelope.error));
    status_errors::error_from_status(
        status,
        &said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned()),
    )
}

/// Parses an error in the middle of a stream.
pub(super) fn error_from_stream(data: &str) -> ModelErrorKind {
    let error =
        serde_json::from_str::<AnthropicErrorBody>(data).map(|envelope| envelope.error).unwrap_or_default();
    let status = match error["type"].as_str().unwrap_or_default() {
        "overloaded_error" => 529,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "api_error" => 500,
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        // Other servers send the status as a number.
        _ => error["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .filter(|c| *c >= 400)
            .unwrap_or(500),
    };
    status_errors::error_from_status(status, &words(&error).unwrap_or_else(|| data.to_owned()))
}

fn words(error: &Value) -> Option<String> {
    let message = error["message"].as_str().or_else(|| error.as_str())?;
    match error["type"].as_str() {
        Some(kind) => Some(format!("{kind}: {message}")),
        None => Some(message.to_owned()),
    }
}
