//! Suggests a known model for a name that is unknown.
//!
//! New models come out all the time, so a new name must not be treated as a typo: `gpt-5.9` beside `gpt-5.6`,
//! or a new version of a known model. A name counts as misspelt if its words are close to those of a known
//! name, or if it differs from one only in dots and dashes.

/// The closest known name. `None` if the name is known, if it may be a new model, or if nothing is close.
pub(crate) fn nearest_model<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    // Fine-tuned models, cloud deployments and names with a maker prefix are custom names: never correct
    // them.
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

/// The words of a name, without its version numbers.
fn words(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect()
}

/// Whether both have the same number of words, and each pair is nearly equal. Short words are too similar to
/// compare.
fn are_near(typed: &[&str], known: &[&str]) -> bool {
    let is_typo = |(typed, known): (&&str, &&str)| {
        let away = strsim::damerau_levenshtein(typed, known);
        let most = match known.len() {
            0..=2 => 0,
            3..=5 => 1,
            _ => 2,
        };
        away <= most
    };
    typed.len() == known.len() && typed.iter().zip(known).all(is_typo)
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
            // Known, or another version of a known model.
            ("claude-sonnet-4-5", None),
            ("claude-opus-5-2", None),
            ("gpt-5.9", None),
            ("gpt-6-mini", None),
            ("o5-mini", None),
            ("gemini-4-pro-preview", None),
            // A different model.
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
