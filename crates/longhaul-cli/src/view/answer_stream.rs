//! Streams an answer: complete lines are printed for good, the rest is redrawn until it is complete.

use super::live_region::StyledLine;
use super::markdown::{self, SyntaxHighlighter};
use super::sanitize;
use super::text_format::{display_width, wrap_text};

/// How far from the end an incomplete escape sequence may begin.
const ESCAPE: usize = 64;

/// The text of one task, reply after reply.
pub(crate) struct AnswerStream {
    /// Whether to render Markdown. Otherwise the source is shown.
    rendered: bool,
    colors: SyntaxHighlighter,
    /// The text of the current reply that is not printed yet.
    pending: String,
    /// The whole text of the current reply.
    reply: String,
    /// The last complete reply.
    last: String,
    /// Whether part of the current reply was printed.
    begun: bool,
    /// Whether anything was printed at all.
    any: bool,
}

impl AnswerStream {
    /// Creates a stream, with or without Markdown rendering.
    pub(crate) fn new(rendered: bool) -> AnswerStream {
        let colors = SyntaxHighlighter::default();
        AnswerStream {
            rendered,
            colors,
            pending: String::new(),
            reply: String::new(),
            last: String::new(),
            begun: false,
            any: false,
        }
    }

    /// Adds text to the current reply.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.pending.push_str(text);
        self.reply.push_str(text);
    }

    /// Discards the current reply, because the model is asked again. Returns whether part of it was printed
    /// already.
    pub(crate) fn discard_reply(&mut self) -> bool {
        self.pending.clear();
        self.reply.clear();
        std::mem::take(&mut self.begun)
    }

    /// Returns the last complete reply.
    pub(crate) fn last_reply(&self) -> &str {
        &self.last
    }

    /// Returns the lines that can be printed for good by now.
    pub(crate) fn take_complete_lines(&mut self, columns: usize) -> Vec<StyledLine> {
        let open = self.pending.rfind(['\x1b', '\u{9b}']).filter(|at| self.pending.len() - at < ESCAPE);
        let rest = self.pending.split_off(open.unwrap_or(self.pending.len()));
        let cleaned = sanitize(&self.pending);
        let at = match self.rendered {
            true => markdown::stable_prefix_len(&cleaned),
            // Up to the last complete line that is not empty: empty lines belong to what follows.
            false => {
                let whole = cleaned[..cleaned.rfind('\n').map_or(0, |at| at + 1)].trim_end().len();
                cleaned[whole..].find('\n').filter(|_| whole > 0).map_or(0, |end| whole + end + 1)
            }
        };
        let lines = self.format_lines(&cleaned[..at], columns);
        self.pending = format!("{}{rest}", &cleaned[at..]);
        self.with_gap(lines)
    }

    /// Completes the reply, and returns the rest of its lines.
    pub(crate) fn finish_reply(&mut self, columns: usize) -> Vec<StyledLine> {
        let rest = std::mem::take(&mut self.pending);
        let lines = self.format_lines(&sanitize(&rest), columns);
        let lines = self.with_gap(lines);
        if !self.reply.trim().is_empty() {
            self.last = std::mem::take(&mut self.reply);
        }
        self.reply.clear();
        self.begun = false;
        lines
    }

    /// Returns the pending text as it would look now.
    pub(crate) fn pending_lines(&self, columns: usize) -> Vec<StyledLine> {
        let mut lines = self.format_lines(&sanitize(&self.pending), columns);
        if self.any && !lines.is_empty() && (self.rendered || !self.begun) {
            lines.insert(0, StyledLine { text: String::new(), width: 0 });
        }
        lines
    }

    /// Formats a whole text at once.
    pub(crate) fn format_whole(&mut self, text: &str, columns: usize) -> Vec<StyledLine> {
        let lines = self.format_lines(&sanitize(text), columns);
        self.with_gap(lines)
    }

    /// Adds an empty line between blocks and between replies.
    fn with_gap(&mut self, mut lines: Vec<StyledLine>) -> Vec<StyledLine> {
        if lines.is_empty() {
            return lines;
        }
        if self.any && (self.rendered || !self.begun) {
            lines.insert(0, StyledLine { text: String::new(), width: 0 });
        }
        self.any = true;
        self.begun = true;
        lines
    }

    fn format_lines(&self, text: &str, columns: usize) -> Vec<StyledLine> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        if self.rendered {
            return markdown::render(text, columns, &self.colors);
        }
        let text = if self.begun { text } else { text.trim_start_matches('\n') };
        let wrapped = wrap_text(text.trim_end(), columns);
        wrapped.lines().map(|line| StyledLine { width: display_width(line), text: line.to_owned() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: Vec<StyledLine>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn blocks_are_told_when_they_are_complete() {
        let mut flow = AnswerStream::new(true);
        flow.push_text("# On");
        assert!(flow.take_complete_lines(80).is_empty());
        assert_eq!(text(flow.pending_lines(80)), ["\x1b[1m\x1b[4mOn\x1b[0m"]);
        flow.push_text("e\n\nSome\nwo");
        assert_eq!(text(flow.take_complete_lines(80)), ["\x1b[1m\x1b[4mOne\x1b[0m"]);
        assert_eq!(text(flow.pending_lines(80)), ["", "Some wo"]);
        flow.push_text("rds.");
        assert!(flow.take_complete_lines(80).is_empty());
        assert_eq!(text(flow.finish_reply(80)), ["", "Some words."]);
        assert_eq!(flow.last_reply(), "# One\n\nSome\nwords.");
        assert!(flow.pending_lines(80).is_empty() && flow.finish_reply(80).is_empty());
    }

    #[test]
    fn the_source_is_told_line_by_line() {
        let mut flow = AnswerStream::new(false);
        flow.push_text("# One\n\ntwo **th");
        assert_eq!(text(flow.take_complete_lines(80)), ["# One"]);
        assert_eq!(text(flow.pending_lines(80)), ["", "two **th"]);
        flow.push_text("ree**\n");
        assert_eq!(text(flow.take_complete_lines(80)), ["", "two **three**"]);
        assert!(flow.finish_reply(80).is_empty());
        flow.push_text("\n\nNext.");
        assert_eq!(text(flow.pending_lines(80)), ["", "Next."]);
    }

    #[test]
    fn a_void_reply_leaves_nothing_to_be_told() {
        let mut flow = AnswerStream::new(true);
        flow.push_text("half a sen");
        assert!(!flow.discard_reply());
        flow.push_text("a\n\nb\n");
        assert_eq!(flow.take_complete_lines(80).len(), 1);
        assert!(flow.discard_reply(), "some of it was told");
        assert!(flow.pending_lines(80).is_empty());
    }

    #[test]
    fn an_escape_that_comes_in_pieces_is_none() {
        let mut flow = AnswerStream::new(true);
        for piece in ["red: \x1b", "[3", "1mX\n\n", "next \u{9b}", "2J."] {
            flow.push_text(piece);
            assert!(
                flow.take_complete_lines(80)
                    .iter()
                    .chain(&flow.pending_lines(80))
                    .all(|line| !line.text.contains(char::is_control))
            );
        }
        assert_eq!(text(flow.finish_reply(80)), ["red: X", "", "next ⟨U+009B⟩2J."]);
    }
}
