//! Formats numbers and texts for models.

/// Formats a number with thousands separators: `1,234,567`.
pub(super) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count: `1 file`, `1,200 files`.
pub(super) fn pluralize(number: u64, what: &str) -> String {
    format!("{} {what}{}", group_digits(number), if number == 1 { "" } else { "s" })
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
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(group_digits(number), text);
        }
        assert_eq!(pluralize(1, "file"), "1 file");
        assert_eq!(pluralize(1_200, "file"), "1,200 files");
    }

    #[test]
    fn a_clipped_text_shows_that_it_is() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöü!", 3), "äöü…");
    }
}
