//! Errors that providers answer with, by their number.

use super::parsing::sanitized_line;
use crate::model::ModelErrorKind;

/// Whether an error of a server stays, whatever its number says: it was not started for what is asked of it.
pub(super) fn is_permanent(said: &str) -> bool {
    said.contains("--jinja") || said.contains("does not support tools")
}

/// What an error status means.
pub(super) fn error_from_status(status: u16, said: &str) -> ModelErrorKind {
    let message = sanitized_line(said);
    match status {
        429 => ModelErrorKind::RateLimited(message),
        408 | 409 | 500.. if !is_permanent(&message) => ModelErrorKind::Server { status, message },
        _ if message.is_empty() => ModelErrorKind::Rejected(status.to_string()),
        _ => ModelErrorKind::Rejected(message),
    }
}
