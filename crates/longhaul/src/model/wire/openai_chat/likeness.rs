//! Events that differ from one before them in a single string: most of a stream is such, and need not be parsed again.

use std::borrow::Cow;

/// What the string of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Text,
    Reasoning,
    /// A piece of the arguments of the call of this number.
    Arguments(Option<u64>),
}

/// An event that was parsed, cut in two where its string was.
///
/// JSON that begins and ends with the same bytes as JSON before it, and has a string between them as that had, says the
/// same but for the string.
#[derive(Debug, Default)]
pub(super) struct Likeness {
    said: Option<Said>,
    /// All before the string, and its opening quote.
    before: String,
    /// The closing quote, and all after it.
    after: String,
}

impl Likeness {
    /// Remembers an event that said nothing but this string, given as it stands in the data.
    pub(super) fn learn(&mut self, data: &str, literal: &str, said: Said) {
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

    /// What an event says, if it is like the one that was remembered.
    pub(super) fn read<'a>(&self, data: &'a str) -> Option<(Said, Cow<'a, str>)> {
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

    fn learned(data: &str, literal: &str) -> Likeness {
        let at = data.find(literal).unwrap();
        let mut likeness = Likeness::default();
        likeness.learn(data, &data[at..at + literal.len()], Said::Text);
        likeness
    }

    #[test]
    fn only_the_string_may_differ() {
        let likeness = learned(r#"{"a":1,"text":"one","b":2}"#, r#""one""#);
        let read = |data| likeness.read(data).map(|(_, text)| text.into_owned());
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
            assert_eq!(likeness.read(data), None, "{data}");
        }
    }

    #[test]
    fn a_literal_from_elsewhere_is_not_learned() {
        let mut likeness = Likeness::default();
        likeness.learn(r#"{"text":"one"}"#, &String::from(r#""one""#), Said::Text);
        assert_eq!(likeness.read(r#"{"text":"two"}"#), None);
    }
}
