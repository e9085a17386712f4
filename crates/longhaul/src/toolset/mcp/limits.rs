//! What a server can do at worst. `docs/mcp.md` has these figures; a test holds them together.

use std::time::Duration;

/// How long a message of a server may be: a line of a pipe, a body of HTTP, an event of a stream.
pub(super) const MESSAGE: usize = 16 << 20;
/// The same, in words.
pub(super) const MESSAGE_WORDS: &str = "16 MB";
/// How much of a line that is too long is looked at for whose answer it is; the connection is closed after that.
pub(super) const LINE: usize = 64 << 20;
/// How long the rest of such a line may take.
pub(super) const LINE_TIME: Duration = Duration::from_secs(10);
/// How deep the JSON of a message may be nested. The parser's own limit is 128.
pub(super) const DEPTH: usize = 100;
/// How many values (and keys) it may have: each takes far more memory than the two bytes that it may have on the way.
pub(super) const VALUES: usize = 1_000_000;
/// How long the id of a server's request may be.
pub(super) const ID: usize = 256;
/// How many requests of a server may be without an answer that it has read. Those before the last are answered at once, or
/// are among the questions below: whoever has so many does not read.
pub(super) const REQUESTS: usize = 1_000;
/// How many questions to people and to the model a server may have open at once.
pub(super) const QUESTIONS_AT_ONCE: usize = 32;
/// How often a person is asked during one call, all round trips together.
pub(super) const QUESTIONS: u32 = 20;
/// How often the model is asked during one call, all round trips together.
pub(super) const SAMPLINGS: u32 = 10;
/// How much a server may say to the model at once.
pub(super) const SAMPLING: usize = 256 << 10;
/// How long a question to a person may be, and its form.
pub(super) const QUESTION: usize = 4_000;
pub(super) const FORM: usize = 64 << 10;
/// How long an address may be that a person is asked to open.
pub(super) const LINK: usize = 4_096;
/// How much of a result is kept.
pub(super) const RESULT: usize = 4 << 20;
/// How long a word of progress may be.
pub(super) const PROGRESS: usize = 1_000;
/// How much a list of tools may come to, names, texts and schemas together.
pub(super) const TOOLS_BYTES: usize = 8 << 20;
/// How much of an HTTP error is read.
pub(super) const ERROR_BODY: usize = 64 << 10;
/// How long an answer of a login may be.
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
