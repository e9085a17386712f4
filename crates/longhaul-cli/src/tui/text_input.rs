//! A text input, wrapped into rows.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::view::strip_control_chars;

/// The maximum length of the text.
const LONGEST: usize = 256 * 1024;

/// The text and the cursor.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextInput {
    text: String,
    cursor: usize,
}

impl TextInput {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the text.
    pub(crate) fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Returns the text and clears the input.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts text at the cursor, without control characters.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = strip_control_chars(&text.replace("\r\n", "\n").replace('\r', "\n"));
        if self.text.len() + text.len() <= LONGEST {
            self.text.insert_str(self.cursor, &text);
            self.cursor += text.len();
        }
    }

    pub(crate) fn left(&mut self) {
        self.cursor = self.before();
    }

    pub(crate) fn right(&mut self) {
        self.cursor += self.text[self.cursor..].graphemes(true).next().map_or(0, str::len);
    }

    pub(crate) fn word_left(&mut self) {
        self.cursor = self.word_before();
    }

    pub(crate) fn word_right(&mut self) {
        let rest = &self.text[self.cursor..];
        let blank = rest.len() - rest.trim_start().len();
        let word = rest[blank..].find(char::is_whitespace).unwrap_or(rest.len() - blank);
        self.cursor += blank + word;
    }

    pub(crate) fn home(&mut self) {
        self.cursor = 0;
    }

    pub(crate) fn end(&mut self) {
        self.cursor = self.text.len();
    }

    pub(crate) fn backspace(&mut self) {
        let from = self.before();
        self.cut(from);
    }

    pub(crate) fn delete(&mut self) {
        let from = self.cursor;
        self.right();
        self.cut(from);
    }

    pub(crate) fn cut_word(&mut self) {
        let from = self.word_before();
        self.cut(from);
    }

    pub(crate) fn cut_before(&mut self) {
        self.cut(0);
    }

    pub(crate) fn cut_after(&mut self) {
        self.text.truncate(self.cursor);
    }

    fn cut(&mut self, from: usize) {
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }

    fn before(&self) -> usize {
        self.cursor - self.text[..self.cursor].graphemes(true).next_back().map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
    }

    /// Wraps the text between words: into `first` columns for the first row, `others` for the rest. The
    /// cursor may be after the last character of a row.
    pub(crate) fn rows(&self, first: usize, others: usize) -> Rows {
        let mut rows: Vec<Range<usize>> = Vec::new();
        let (mut start, mut used, mut gap) = (0, 0, None);
        for (at, piece) in self.text.grapheme_indices(true) {
            if piece == "\n" {
                rows.push(start..at);
                (start, used, gap) = (at + 1, 0, None);
                continue;
            }
            let room = |rows: &[_]| if rows.is_empty() { first } else { others }.saturating_sub(1).max(2);
            let (wide, blank) = (visible(piece).width(), piece.chars().all(char::is_whitespace));
            // A space may take the cursor's column, so that no row begins with one.
            while used + wide > room(&rows) + usize::from(blank) && at > start {
                let cut = gap.take().filter(|gap| *gap > start).unwrap_or(at);
                rows.push(start..cut);
                start = cut;
                used = self.text[cut..at].graphemes(true).map(|piece| visible(piece).width()).sum();
            }
            used += wide;
            if blank {
                gap = Some(at + piece.len());
            }
        }
        rows.push(start..self.text.len());
        let row = rows.iter().rposition(|row| row.start <= self.cursor).unwrap_or(0);
        let column = self.columns(rows[row].start..self.cursor);
        Rows { ranges: rows, row, column }
    }

    /// Returns a row as it is shown.
    pub(crate) fn row(&self, range: Range<usize>) -> String {
        self.text[range].graphemes(true).map(visible).collect()
    }

    fn columns(&self, range: Range<usize>) -> usize {
        self.text[range].graphemes(true).map(|piece| visible(piece).width()).sum()
    }

    /// Moves the cursor a row up or down, as near to its column as possible. Returns `false` if there is no
    /// such row.
    pub(crate) fn move_row(&mut self, rows: &Rows, by: isize) -> bool {
        let Some(range) = rows.row.checked_add_signed(by).and_then(|row| rows.ranges.get(row)) else {
            return false;
        };
        let last = rows.ranges.last().is_some_and(|last| last == range);
        let (mut at, mut used) = (range.start, 0);
        for (offset, piece) in self.text[range.clone()].grapheme_indices(true) {
            used += visible(piece).width();
            let end = range.start + offset + piece.len();
            // The position after a wrapped row is the start of the next.
            let beyond = end == range.end && !last && !self.text[end..].starts_with('\n');
            if used > rows.column || beyond {
                break;
            }
            at = end;
        }
        self.cursor = at;
        true
    }
}

/// The rows of a text, and the position of its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    /// The byte range of each row.
    pub(crate) ranges: Vec<Range<usize>>,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Rows {
    /// Returns the rows around the cursor that fit into `most` rows.
    pub(crate) fn in_sight(&self, most: usize) -> Range<usize> {
        let most = most.max(1);
        let first = (self.row + 1).saturating_sub(most);
        first..(first + most).min(self.ranges.len())
    }
}

fn visible(piece: &str) -> &str {
    if piece == "\t" { "    " } else { piece }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_by_what_people_see_as_characters() {
        let mut input = TextInput::default();
        input.insert("héllo 👩‍👩‍👧 wörld");
        input.word_left();
        input.left();
        input.backspace();
        assert_eq!(input.text(), "héllo  wörld");
        input.cut_word();
        assert_eq!(input.text(), " wörld");
        input.word_right();
        input.insert("!");
        assert_eq!(input.text(), " wörld!");
        input.home();
        input.delete();
        input.cut_after();
        assert_eq!((input.text(), shown(&input, 10)), ("", (vec![String::new()], (0, 0))));
    }

    #[test]
    fn what_is_pasted_commands_no_terminal_and_no_line() {
        let mut input = TextInput::default();
        input.insert("two\r\nlines\x1b[2J\x07");
        assert_eq!(input.text(), "two\nlines[2J");
        assert_eq!(shown(&input, 40).0, ["two", "lines[2J"]);
    }

    /// Returns the rows and the cursor position.
    fn shown(input: &TextInput, columns: usize) -> (Vec<String>, (usize, usize)) {
        let rows = input.rows(columns, columns);
        let texts = rows.ranges.iter().map(|range| input.row(range.clone())).collect();
        (texts, (rows.row, rows.column))
    }

    #[test]
    fn the_cursor_is_always_in_sight() {
        let mut input = TextInput::default();
        input.insert(&"世".repeat(40));
        let (rows, at) = shown(&input, 11);
        assert_eq!((rows.len(), at), (8, (7, 10)));
        assert_eq!(input.rows(11, 11).in_sight(3), 5..8);
        input.home();
        assert_eq!(shown(&input, 11).1, (0, 0));
        assert_eq!(input.rows(11, 11).in_sight(3), 0..3);
    }

    #[test]
    fn words_go_to_the_next_row_whole() {
        let mut input = TextInput::default();
        input.insert("one two three\nfour");
        assert_eq!(shown(&input, 10), (vec!["one two ".to_owned(), "three".into(), "four".into()], (2, 4)));
        // The first row may be shorter: the label precedes it.
        assert_eq!(input.rows(4, 10).ranges, [0..4, 4..13, 14..18]);
        // Up and down, but not beyond the first and last row.
        let rows = input.rows(10, 10);
        assert!(!input.move_row(&rows, 1) && input.move_row(&rows, -1));
        assert_eq!(shown(&input, 10).1, (1, 4));
        let rows = input.rows(10, 10);
        assert!(input.move_row(&rows, -1));
        assert_eq!(shown(&input, 10).1, (0, 4));
        let rows = input.rows(10, 10);
        assert!(!input.move_row(&rows, -1));
        // The position after a wrapped row is not a separate one.
        input.set("aaaaaaaa bbbbbbbbb".to_owned());
        let rows = input.rows(10, 10);
        assert!(input.move_row(&rows, -1));
        assert_eq!(shown(&input, 10).1, (0, 8));
    }

    #[test]
    fn whatever_is_typed_no_row_is_too_wide_and_nothing_is_lost() {
        for text in
            ["", "a", "\n\n", "  a  b  ", "averylongwordwithoutanyspace in it", "世界 世界 e\u{301} 👩‍👩‍👧 x\ty"]
        {
            for columns in [3, 5, 8, 20] {
                let mut input = TextInput::default();
                input.insert(text);
                let rows = input.rows(columns, columns);
                for range in &rows.ranges {
                    assert!(input.row(range.clone()).width() <= columns.max(4), "{text:?} {columns}");
                }
                let all: String = rows.ranges.iter().map(|range| &input.text()[range.clone()]).collect();
                assert_eq!(all, text.replace('\n', ""), "{columns}");
            }
        }
    }
}
