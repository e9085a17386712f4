//! The tags in which models are told things, and how the words of others are kept from looking like them.
//!
//! A model reads `<task_ended …>…</task_ended>` as the engine's own word. Whoever could write such a tag could close
//! its envelope and speak as somebody else. So the `<` of our tags becomes `&lt;` in everything that is not ours. All
//! other text stays as it is, byte by byte.

use std::borrow::Cow;

/// Every tag that models are told something in, and `letter`, which they might take for one.
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

/// Somebody's words, in which none of our tags is opened or closed.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    escape_tags(text, &TAGS)
}

/// The same, of these tags only.
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

/// Somebody's word as the value of an attribute.
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

/// Whether what follows a `<` makes it one of these tags, however it is spaced and in whatever case.
fn is_tag(rest: &str, tags: &[&str]) -> bool {
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix('/').unwrap_or(rest).trim_start_matches(is_blank);
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
    tags.iter().any(|tag| tag.eq_ignore_ascii_case(&rest[..end]))
}

/// What nobody sees between the parts of a tag.
fn is_blank(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many tags a reader would find, counted in another way than they are escaped.
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

    /// Texts that are made to look like tags.
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
