//! Which model may be meant by a name that nobody knows.
//!
//! New models come out all the time, so a name that is only new must not be taken for a mistake: `gpt-5.9` beside `gpt-5.6`, or a
//! known kind of a new version. A name is misspelt if its words are nearly those of a known one, or if it is a known one but for
//! its dots and dashes.

/// The known name that may be meant, if one is near. `None` also if the name is known, or may be a new model's.
pub(crate) fn nearest_model<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    // Fine-tuned ones, places of a cloud, names with a maker before them: those are somebody's own.
    if typed.len() > 64 || typed.contains([':', '/', '@']) {
        return None;
    }
    let known: Vec<&str> = known.into_iter().collect();
    if known.iter().any(|name| *name == typed) {
        return None;
    }
    let (plain, own) = (without_marks(&typed), words(&typed));
    if let Some(same) = known.iter().find(|name| without_marks(name) == plain) {
        return Some(same);
    }
    if known.iter().any(|name| words(name) == own) {
        return None;
    }
    let near = known.iter().filter(|name| are_near(&own, &words(name)));
    near.min_by_key(|name| strsim::damerau_levenshtein(&typed, name)).copied()
}

fn without_marks(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The letters of a name, without the numbers of its version.
fn words(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect()
}

/// Whether they are as many, and each nearly the same. Short words are too near to each other to be compared.
fn are_near(typed: &[&str], known: &[&str]) -> bool {
    let slips = |(typed, known): (&&str, &&str)| {
        let away = strsim::damerau_levenshtein(typed, known);
        let most = match known.len() {
            0..=2 => 0,
            3..=5 => 1,
            _ => 2,
        };
        away <= most
    };
    typed.len() == known.len() && typed.iter().zip(known).all(slips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_is_found_and_what_may_be_new_is_not() {
        let known = [
            "claude-sonnet-4-5",
            "claude-opus-4-8",
            "claude-haiku-4-5",
            "gpt-5",
            "gpt-5.6",
            "gpt-5-mini",
            "gpt-5-nano",
            "gpt-4o",
            "o4-mini",
            "gemini-2.5-flash",
            "gemini-3.1-pro-preview",
            "gemini-2.5-flash-lite",
        ];
        for (typed, meant) in [
            ("claude-sonet-4-5", Some("claude-sonnet-4-5")),
            ("claude-sonnet-4.5", Some("claude-sonnet-4-5")),
            ("Claude-Sonnet-45", Some("claude-sonnet-4-5")),
            ("cluade-opus-4-8", Some("claude-opus-4-8")),
            ("gtp-5", Some("gpt-5")),
            ("gpt5", Some("gpt-5")),
            ("gpt-5-mni", Some("gpt-5-mini")),
            ("gemini-2.5-flsh", Some("gemini-2.5-flash")),
            // Known, or another version of what is known.
            ("claude-sonnet-4-5", None),
            ("claude-opus-5-2", None),
            ("gpt-5.9", None),
            ("gpt-6-mini", None),
            ("o5-mini", None),
            ("gemini-4-pro-preview", None),
            // Something else altogether.
            ("claude-fable-9", None),
            ("gpt-5-image", None),
            ("gpt-5.6-luna", None),
            ("gemini-2.5-flash-image", None),
            ("ft:gpt-5-mni:acme::id", None),
            ("my-deployment", None),
            ("", None),
        ] {
            assert_eq!(nearest_model(typed, known), meant, "{typed}");
        }
    }
}
