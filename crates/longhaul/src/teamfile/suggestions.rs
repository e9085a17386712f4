//! Suggestions for misspelt words.

/// The maximum number of candidates to compare with.
const COMPARED: usize = 100;

/// The candidate that is closest to a word, if one is close enough.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> String {
        text.chars().take(64).filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
    };
    let word = plain(word);
    let bound = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .take(COMPARED)
        .map(|candidate| {
            let other = plain(candidate);
            let mut away = strsim::damerau_levenshtein(&word, &other);
            // `instructions` for `instruction`, `temp` for `temperature`.
            if away > bound && word.len() >= 4 && other.starts_with(&word) {
                away = bound;
            }
            (away, candidate)
        })
        .filter(|(away, _)| *away <= bound)
        .min_by_key(|(away, _)| *away)
        .map(|(_, candidate)| candidate)
}

/// The hint for an unknown word: the closest candidate, or all of them.
pub(super) fn suggest(word: &str, candidates: &[&str], what: &str) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None if candidates.is_empty() => format!("there are no {what} here"),
        None => format!("{what}: {}", join_bounded(candidates)),
    }
}

/// A hint with an alternative.
pub(super) fn suggest_also(help: String, also: &str) -> String {
    let between = if help.ends_with('?') { " " } else { "; " };
    format!("{help}{between}or {also}")
}

/// Words joined with commas; of very many, only the first.
pub(super) fn join_bounded(words: &[&str]) -> String {
    const MOST: usize = 40;
    match words.len() {
        0..=MOST => words.join(", "),
        more => format!("{} and {} more", words[..MOST].join(", "), more - MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found_and_what_is_far_is_not() {
        let keys = ["instruction", "description", "sub_agents", "toolsets", "model", "temperature"];
        for (typed, meant) in [
            ("instructon", Some("instruction")),
            ("instructions", Some("instruction")),
            ("subagents", Some("sub_agents")),
            ("Sub-Agents", Some("sub_agents")),
            ("toolset", Some("toolsets")),
            ("modle", Some("model")),
            ("temp", Some("temperature")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, keys), meant, "{typed}");
        }
    }
}
