//! A line that is typed into.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::view::typed;

/// How much may be typed or pasted.
const LONGEST: usize = 256 * 1024;

/// The text and where the cursor is in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    text: String,
    cursor: usize,
}

impl Input {
    /// What was typed.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Puts another text in its place.
    pub(crate) fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Takes what was typed away.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Puts something in at the cursor. What is pasted may hold anything: only its words are taken.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = typed(&text.replace("\r\n", "\n").replace('\r', "\n"));
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

    /// As much of the text as fits into so many columns, with the cursor in it, and in which column that is. Lines are
    /// shown behind each other.
    pub(crate) fn window(&self, columns: usize) -> (String, usize) {
        let mut shown = String::new();
        let (mut used, mut at) = (0, 0);
        // From the cursor backwards, so that it is always in sight.
        let room = columns.saturating_sub(1).max(1);
        let mut pieces: Vec<&str> = Vec::new();
        for piece in self.text[..self.cursor].graphemes(true).rev() {
            let wide = visible(piece).width();
            if used + wide > room {
                break;
            }
            used += wide;
            pieces.push(visible(piece));
        }
        at += used;
        pieces.reverse();
        shown.extend(pieces);
        for piece in self.text[self.cursor..].graphemes(true) {
            let wide = visible(piece).width();
            if used + wide > room {
                break;
            }
            used += wide;
            shown.push_str(visible(piece));
        }
        (shown, at)
    }
}

fn visible(piece: &str) -> &str {
    if piece == "\n" { "⏎" } else { piece }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_by_what_people_see_as_characters() {
        let mut input = Input::default();
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
        assert_eq!((input.text(), input.window(10)), ("", (String::new(), 0)));
    }

    #[test]
    fn what_is_pasted_commands_no_terminal_and_no_line() {
        let mut input = Input::default();
        input.insert("two\r\nlines\x1b[2J\x07");
        assert_eq!(input.text(), "two\nlines[2J");
        assert_eq!(input.window(40).0, "two⏎lines[2J");
    }

    #[test]
    fn the_cursor_is_always_in_sight() {
        let mut input = Input::default();
        input.insert(&"世".repeat(40));
        let (shown, at) = input.window(11);
        assert_eq!((shown.width(), at), (10, 10));
        input.home();
        assert_eq!(input.window(11).1, 0);
    }
}
