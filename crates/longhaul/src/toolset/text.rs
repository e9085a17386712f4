//! Formats numbers and texts for models.

#[cfg(feature = "toolsets")]
pub(super) use crate::transcript::format_count as group_digits;

/// Formats a count: `1 file`, `1,200 files`.
pub(super) fn pluralize(number: u64, what: &str) -> String {
    crate::transcript::pluralize(usize::try_from(number).unwrap_or(usize::MAX), what)
}

/// Returns the first `most` characters of a text, with `…` if there are more.
pub(super) fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clipped_text_shows_that_it_is() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöü!", 3), "äöü…");
    }
}
