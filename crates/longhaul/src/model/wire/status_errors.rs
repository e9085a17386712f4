//! Errors by their HTTP status.

use super::parsing::sanitized_line;
use crate::model::ModelErrorKind;

/// Whether a retry cannot help, whatever the status says: the server was not started with what the request
/// needs.
pub(super) fn is_permanent(said: &str) -> bool {
    said.contains("--jinja") || said.contains("does not support tools")
}

/// Converts an error status.
pub(super) fn error_from_status(status: u16, said: &str) -> ModelErrorKind {
    let message = sanitized_line(said);
    match status {
        429 => ModelErrorKind::RateLimited(message),
        408 | 409 | 500.. if !is_permanent(&message) => ModelErrorKind::Server { status, message },
        _ if message.is_empty() => ModelErrorKind::Rejected(status.to_string()),
        _ => ModelErrorKind::Rejected(message),
    }
}
