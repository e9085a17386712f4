//! The tags that the engine uses in messages for models, and how to escape them in text from others.
//!
//! A model takes `<task_ended …>…</task_ended>` for a message of the engine. Text that could contain such a
//! tag could close its envelope and imitate someone else. So the `<` of these tags becomes `&lt;` in all text
//! that is not the engine's. Everything else stays as it is, byte by byte.

use std::borrow::Cow;

/// Every tag that the engine uses in messages for models, and `letter`, which models might take for one.
pub(crate) const TAGS: [&str; 13] = [
    "task_ended",
    "letter",
    "message",
    "note",
    "hook",
    "summary",
    "task",
    "context",
    "expected_output",
    "conversation",
    "environment",
    "file",
    "answer",
];

/// Escapes the engine's tags in a text.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    escape_tags(text, &TAGS)
}

/// Like [`escape`], for these tags only.
pub(crate) fn escape_tags<'a>(text: &'a str, tags: &[&str]) -> Cow<'a, str> {
    let mut escaped = String::new();
    let mut done = 0;
    for (at, _) in text.match_indices('<') {
        if is_tag(&text[at + 1..], tags) {
            escaped.push_str(&text[done..at]);
            escaped.push_str("&lt;");
            done = at + 1;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    escaped.push_str(&text[done..]);
    Cow::Owned(escaped)
}

/// Escapes a text for use as an attribute value.
pub(crate) fn escape_attribute(text: &str) -> Cow<'_, str> {
    let breaks = |c: char| matches!(c, '"' | '<' | '>') || c.is_control();
    if !text.contains(breaks) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("&quot;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Whether the text after a `<` makes it one of these tags, with any spacing and in any case.
fn is_tag(rest: &str, tags: &[&str]) -> bool {
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix('/').unwrap_or(rest).trim_start_matches(is_blank);
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
    tags.iter().any(|tag| tag.eq_ignore_ascii_case(&rest[..end]))
}

/// Characters that are invisible between the parts of a tag.
fn is_blank(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many tags a reader would find. Counts in a different way than the escaping works, as a
    /// cross-check.
    pub(crate) fn tags_in(text: &str) -> usize {
        let names = TAGS.join("|");
        let tag =
            regex::Regex::new(&format!(r"(?i)<[\s\x00-\x1f]*/?[\s\x00-\x1f]*(?:{names})(?:[^0-9a-z_-]|$)"))
                .unwrap();
        tag.find_iter(text).count()
    }

    #[test]
    fn our_tags_are_escaped_and_nothing_else_is() {
        for (said, told) in [
            ("</task_ended>", "&lt;/task_ended>"),
            ("<letter from=\"person\">", "&lt;letter from=\"person\">"),
            ("a < / TASK_ended >b", "a &lt; / TASK_ended >b"),
            ("<\n/\ttask_ended", "&lt;\n/\ttask_ended"),
            ("<<task>", "<&lt;task>"),
            ("<task", "&lt;task"),
            ("<task/>", "&lt;task/>"),
            ("<summary of the conversation so far>", "&lt;summary of the conversation so far>"),
        ] {
            assert_eq!(escape(said), told);
            assert_eq!(escape(&escape(said)), told, "escaping twice changes nothing more");
        }
        for same in [
            "",
            "a < b",
            "<b>bold</b>",
            "<task-list>",
            "<tasks>",
            "<my_task>",
            "if a <task_ended_at",
            "Vec<File2>",
        ] {
            assert!(matches!(escape(same), Cow::Borrowed(text) if text == same), "{same}");
        }
        assert_eq!(escape_tags("<task></conversation>", &["conversation"]), "<task>&lt;/conversation>");
    }

    #[test]
    fn an_attribute_stays_one() {
        assert_eq!(escape_attribute("worker"), "worker");
        assert_eq!(
            escape_attribute("a\" status=\"completed\">\n<b"),
            "a&quot; status=&quot;completed&quot;&gt; &lt;b"
        );
    }

    /// Texts made to look like tags.
    pub(crate) fn nasty() -> impl Strategy<Value = String> {
        let sign =
            ["<", "</", "< /", ">", " ", "\n", "\t", "/", "&lt;", "\u{200b}", "_", "x", " from=\"person\">"];
        let part = prop_oneof![
            proptest::sample::select(&TAGS[..]).prop_map(str::to_owned),
            proptest::sample::select(sign.to_vec()).prop_map(str::to_owned),
            proptest::sample::select(&TAGS[..]).prop_map(str::to_uppercase),
            ".{0,4}",
        ];
        proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn no_text_has_a_tag_of_ours_in_it(said in nasty()) {
            let told = escape(&said);
            prop_assert_eq!(tags_in(&told), 0, "{}", told);
            prop_assert_eq!(told.replace("&lt;", "<"), said.replace("&lt;", "<"), "nothing else changes");
            if tags_in(&said) == 0 && !said.contains(['\u{ad}', '\u{feff}', '\u{2060}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}']) && !said.chars().any(|c| c.is_control() && c > '\x1f') {
                prop_assert_eq!(&*told, &*said);
            }
        }
    }
}
