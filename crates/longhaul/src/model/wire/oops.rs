//! Errors that providers answer with, by their number.

use crate::model::ModelErrorKind;

/// No more of what a provider says is kept than this.
const LONGEST: usize = 600;

/// What an error status means.
pub(super) fn by_status(status: u16, said: &str) -> ModelErrorKind {
    let message = bounded(said);
    match status {
        429 => ModelErrorKind::RateLimited(message),
        408 | 409 | 500.. => ModelErrorKind::Server { status, message },
        _ if message.is_empty() => ModelErrorKind::Rejected(status.to_string()),
        _ => ModelErrorKind::Rejected(message),
    }
}

/// The beginning of what somebody says, on one line.
pub(super) fn bounded(said: &str) -> String {
    let mut words = String::new();
    for word in said.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        let room = LONGEST.saturating_sub(words.len());
        if word.len() > room {
            words.push_str(&word[..word.floor_char_boundary(room)]);
            words.push('…');
            break;
        }
        words.push_str(word);
    }
    words
}
