//! Recognizes events that differ from an earlier one in a single string. Most of a stream is like this, and
//! need not be parsed.

use std::borrow::Cow;

/// What the string of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatDeltaKind {
    Text,
    Reasoning,
    /// A delta of the arguments of the call with this index.
    Arguments(Option<u64>),
}

/// A parsed event, split where its string was.
///
/// JSON that begins and ends with the same bytes as earlier JSON, with a string in between, has the same
/// meaning except for the string.
#[derive(Debug, Default)]
pub(super) struct EventTemplate {
    said: Option<ChatDeltaKind>,
    /// Everything before the string, including its opening quote.
    before: String,
    /// The closing quote and everything after it.
    after: String,
}

impl EventTemplate {
    /// Remembers an event that holds only this string, given as it is written in the data.
    pub(super) fn learn(&mut self, data: &str, literal: &str, said: ChatDeltaKind) {
        self.said = None;
        let Some(at) = (literal.as_ptr() as usize).checked_sub(data.as_ptr() as usize) else { return };
        let (Some(before), Some(after)) =
            (data.get(..at + 1), data.get((at + literal.len()).wrapping_sub(1)..))
        else {
            return;
        };
        if literal.len() < 2 || !before.ends_with('"') || !after.starts_with('"') {
            return;
        }
        self.before.clear();
        self.before.push_str(before);
        self.after.clear();
        self.after.push_str(after);
        self.said = Some(said);
    }

    /// Parses an event that matches the remembered one.
    pub(super) fn match_event<'a>(&self, data: &'a str) -> Option<(ChatDeltaKind, Cow<'a, str>)> {
        let said = self.said?;
        let body = data.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        if body.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            return Some((said, Cow::Borrowed(body)));
        }
        let literal = data.get(self.before.len() - 1..data.len() - self.after.len() + 1)?;
        serde_json::from_str::<String>(literal).ok().map(|text| (said, Cow::Owned(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(data: &str, literal: &str) -> EventTemplate {
        let at = data.find(literal).unwrap();
        let mut likeness = EventTemplate::default();
        likeness.learn(data, &data[at..at + literal.len()], ChatDeltaKind::Text);
        likeness
    }

    #[test]
    fn only_the_string_may_differ() {
        let likeness = learned(r#"{"a":1,"text":"one","b":2}"#, r#""one""#);
        let read = |data| likeness.match_event(data).map(|(_, text)| text.into_owned());
        assert_eq!(read(r#"{"a":1,"text":"two","b":2}"#).as_deref(), Some("two"));
        assert_eq!(read(r#"{"a":1,"text":"","b":2}"#).as_deref(), Some(""));
        assert_eq!(read(r#"{"a":1,"text":"ä \"q\" \u00e4\n","b":2}"#).as_deref(), Some("ä \"q\" ä\n"));
        assert_eq!(read(r#"{"a":2,"text":"two","b":2}"#), None);
        assert_eq!(read(r#"{"a":1,"text":"two","b":3}"#), None);
        assert_eq!(read(r#"{"a":1,"text":null,"b":2}"#), None);
    }

    #[test]
    fn what_is_no_string_is_not_taken_for_one() {
        let likeness = learned(r#"{"text":"one","b":2}"#, r#""one""#);
        for data in [
            r#"{"text":"one","b":3,"text":"two","b":2}"#,
            "{\"text\":\"a\nb\",\"b\":2}",
            r#"{"text":"a\","b":2}"#,
            r#"{"text":"a\x","b":2}"#,
            r#"{"text":","b":2}"#,
            r#"{"text":"#,
            "",
        ] {
            assert_eq!(likeness.match_event(data), None, "{data}");
        }
    }

    #[test]
    fn a_literal_from_elsewhere_is_not_learned() {
        let mut likeness = EventTemplate::default();
        likeness.learn(r#"{"text":"one"}"#, &String::from(r#""one""#), ChatDeltaKind::Text);
        assert_eq!(likeness.match_event(r#"{"text":"two"}"#), None);
    }
}
