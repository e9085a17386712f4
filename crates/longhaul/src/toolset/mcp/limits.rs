//! Limits on what a server can do. `docs/mcp.md` lists these figures; a test keeps the two in step.

use std::time::Duration;

/// The longest message of a server: a line on a pipe, an HTTP body, or an event of a stream.
pub(super) const MESSAGE: usize = 16 << 20;
/// The same as text.
pub(super) const MESSAGE_WORDS: &str = "16 MB";
/// How much of an overlong line is scanned for the request that it answers. Then the connection is closed.
pub(super) const LINE: usize = 64 << 20;
/// How long reading the rest of such a line may take.
pub(super) const LINE_TIME: Duration = Duration::from_secs(10);
/// How deep the JSON of a message may be nested. The parser's own limit is 128.
pub(super) const DEPTH: usize = 100;
/// How many values and keys a message may have. In memory each takes far more than the two bytes that it may
/// take in the message.
pub(super) const VALUES: usize = 1_000_000;
/// The longest id of a server's request, in bytes.
pub(super) const ID: usize = 256;
/// How many of a server's requests may be unanswered, or have an answer that it has not read. All but the
/// questions below are answered at once, so a server with this many does not read its answers.
pub(super) const REQUESTS: usize = 1_000;
/// How many questions to people and to the model a server may have open at once.
pub(super) const QUESTIONS_AT_ONCE: usize = 32;
/// How many times one call may ask a person, over all its round trips.
pub(super) const QUESTIONS: u32 = 20;
/// How many times one call may ask the model, over all its round trips.
pub(super) const SAMPLINGS: u32 = 10;
/// The longest prompt that a server may send to the model.
pub(super) const SAMPLING: usize = 256 << 10;
/// The longest question to a person, and the largest form.
pub(super) const QUESTION: usize = 4_000;
pub(super) const FORM: usize = 64 << 10;
/// The longest URL that a person is asked to open.
pub(super) const LINK: usize = 4_096;
/// How much of a result is kept.
pub(super) const RESULT: usize = 4 << 20;
/// The longest progress message.
pub(super) const PROGRESS: usize = 1_000;
/// The size limit of a list of tools: names, descriptions and schemas together.
pub(super) const TOOLS_BYTES: usize = 8 << 20;
/// How much of an HTTP error body is read.
pub(super) const ERROR_BODY: usize = 64 << 10;
/// The longest response during a login.
pub(super) const LOGIN_BODY: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolset::text::group_digits;

    #[test]
    fn the_documents_have_these_figures() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp.md");
        let text = std::fs::read_to_string(path).unwrap();
        let section = text.split_once("## What a server can do at worst").unwrap().1;
        assert_eq!(MESSAGE_WORDS, format!("{} MB", MESSAGE >> 20));
        for words in [
            format!(
                "| {MESSAGE_WORDS}, {} JSON values, {DEPTH} levels, UTF-8 |",
                group_digits(VALUES as u64)
            ),
            format!("| {} MB; the model sees", RESULT >> 20),
            format!("and {} MB in all", TOOLS_BYTES >> 20),
            format!("| {SAMPLINGS} times a call, over all its round trips, {} KB each", SAMPLING >> 10),
            format!(
                "| {QUESTIONS} times a call, {} characters, a form of {} KB |",
                group_digits(QUESTION as u64),
                FORM >> 10
            ),
            format!("| {QUESTIONS_AT_ONCE} |"),
            format!(
                "| {} requests without an answer that it has read; ids of {ID} bytes |",
                group_digits(REQUESTS as u64)
            ),
            format!("{} characters a message", group_digits(PROGRESS as u64)),
            format!("answers of {} MB", LOGIN_BODY >> 20),
        ] {
            assert!(section.contains(&words), "docs/mcp.md does not say: {words}");
        }
    }
}
