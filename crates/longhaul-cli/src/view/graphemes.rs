//! Measures, truncates and wraps text by grapheme cluster, in terminal columns.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Returns the width of a text in columns.
pub(crate) fn grapheme_width(text: &str) -> usize {
    text.graphemes(true).map(|piece| piece.width()).sum()
}

/// Truncates a text to this many columns, with a mark if it goes on.
pub(crate) fn truncate_graphemes(text: &str, columns: usize) -> String {
    if grapheme_width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let mut fits = String::new();
    let mut used = 0;
    for piece in text.graphemes(true) {
        used += piece.width();
        if used > columns - 1 {
            break;
        }
        fits.push_str(piece);
    }
    fits.truncate(fits.trim_end().len());
    fits.push('…');
    fits
}

/// Wraps a text to this many columns. Continued lines keep their indent; a word that is too long is broken.
pub(crate) fn wrap_graphemes(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        wrap_line(line, columns.max(2), &mut lines);
    }
    lines
}

fn wrap_line(line: &str, columns: usize, lines: &mut Vec<String>) {
    if line.len() <= columns || grapheme_width(line) <= columns {
        lines.push(line.trim_end().to_owned());
        return;
    }
    let indent = (line.len() - line.trim_start_matches(' ').len()).min(columns / 3);
    let hang = " ".repeat(indent);
    let (mut row, mut used, mut gap) = (String::new(), 0, None);
    for piece in line.graphemes(true) {
        let (wide, blank) = (piece.width(), piece.chars().all(char::is_whitespace));
        if blank && used + wide > columns {
            // The line is full: what follows the space goes to the next line.
            lines.push(row.trim_end().to_owned());
            row.clone_from(&hang);
            (used, gap) = (indent, None);
            continue;
        }
        while used + wide > columns {
            let cut = gap.take().filter(|at: &usize| !row[..*at].trim().is_empty()).unwrap_or(row.len());
            let rest = row.split_off(cut);
            lines.push(row.trim_end().to_owned());
            row = format!("{hang}{}", rest.trim_start());
            used = grapheme_width(&row);
            if used + wide > columns && rest.is_empty() {
                // Not even one character fits beside the indent.
                row.clear();
                used = 0;
                break;
            }
        }
        if blank && row.len() == indent && !lines.is_empty() {
            continue;
        }
        row.push_str(piece);
        used += wide;
        // In scripts without spaces between words, a line may break after any character.
        if blank || wide == 2 {
            gap = Some(row.len());
        }
    }
    lines.push(row.trim_end().to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_what_people_see_as_characters() {
        assert_eq!(truncate_graphemes("short", 5), "short");
        assert_eq!(truncate_graphemes("too long", 5), "too…");
        assert_eq!(truncate_graphemes("世界世界", 5), "世界…");
        assert_eq!(truncate_graphemes("👩‍👩‍👧 family", 4), "👩‍👩‍👧…");
        assert_eq!(truncate_graphemes("x", 0), "");
    }

    #[test]
    fn lines_are_never_wider_than_the_screen() {
        let texts = [
            "a plain sentence that is longer than the line",
            "    indented text that keeps its indent when it goes on",
            "averyveryverylongwordwithoutanyspaceinit and more",
            "世界世界世界世界世界世界世界",
            "mixed 世界 and 👩‍👩‍👧‍👦 families e\u{301}\u{301} with marks",
            "                                       far right",
        ];
        for text in texts {
            for columns in [2, 3, 7, 12, 30] {
                for line in wrap_graphemes(text, columns) {
                    assert!(grapheme_width(&line) <= columns, "{line:?} is wider than {columns}");
                }
                let squeezed = |text: &str| text.split_whitespace().collect::<String>();
                assert_eq!(squeezed(&wrap_graphemes(text, columns).join("")), squeezed(text), "{columns}");
            }
        }
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(wrap_graphemes("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_graphemes("  - one two", 9), ["  - one", "  two"]);
        assert_eq!(wrap_graphemes("a\n\nb", 9), ["a", "", "b"]);
        // A line exactly as wide as the limit.
        assert_eq!(wrap_graphemes("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_graphemes("  one two   three", 9), ["  one two", "  three"]);
        assert_eq!(wrap_graphemes("abcdefg hij", 7), ["abcdefg", "hij"]);
    }
}
