//! An answer while it comes: what is complete of it is told for good, the rest is shown until it is.

use super::clean::clean;
use super::markdown::{self, Colors};
use super::screen::Line;
use super::words::{width, wrap};

/// How far from the end an escape may begin that is not complete yet.
const ESCAPE: usize = 64;

/// The words of one task, reply after reply.
pub(crate) struct Flow {
    /// Whether Markdown is rendered; otherwise its source is told.
    rendered: bool,
    colors: Colors,
    /// What was said of the reply that is on its way, and is not told for good.
    pending: String,
    /// All that was said of it.
    reply: String,
    /// The last reply that was complete.
    last: String,
    /// Whether anything of the reply was told for good.
    begun: bool,
    /// Whether anything was told at all.
    any: bool,
}

impl Flow {
    /// Words for a terminal that takes colours, or not.
    pub(crate) fn new(rendered: bool) -> Flow {
        let colors = Colors::default();
        Flow {
            rendered,
            colors,
            pending: String::new(),
            reply: String::new(),
            last: String::new(),
            begun: false,
            any: false,
        }
    }

    /// More of the reply.
    pub(crate) fn say(&mut self, text: &str) {
        self.pending.push_str(text);
        self.reply.push_str(text);
    }

    /// The reply is void: the model is asked for it again. Whether some of it has been told already.
    pub(crate) fn void(&mut self) -> bool {
        self.pending.clear();
        self.reply.clear();
        std::mem::take(&mut self.begun)
    }

    /// The last complete reply.
    pub(crate) fn last(&self) -> &str {
        &self.last
    }

    /// What can be told for good by now.
    pub(crate) fn told(&mut self, columns: usize) -> Vec<Line> {
        let open = self.pending.rfind(['\x1b', '\u{9b}']).filter(|at| self.pending.len() - at < ESCAPE);
        let rest = self.pending.split_off(open.unwrap_or(self.pending.len()));
        let cleaned = clean(&self.pending);
        let at = match self.rendered {
            true => markdown::settled(&cleaned),
            // Up to the last line that is complete and not empty: what is empty belongs to the next.
            false => {
                let whole = cleaned[..cleaned.rfind('\n').map_or(0, |at| at + 1)].trim_end().len();
                cleaned[whole..].find('\n').filter(|_| whole > 0).map_or(0, |end| whole + end + 1)
            }
        };
        let lines = self.lines(&cleaned[..at], columns);
        self.pending = format!("{}{rest}", &cleaned[at..]);
        self.put(lines)
    }

    /// The reply is complete: what is left of it.
    pub(crate) fn end(&mut self, columns: usize) -> Vec<Line> {
        let rest = std::mem::take(&mut self.pending);
        let lines = self.lines(&clean(&rest), columns);
        let lines = self.put(lines);
        if !self.reply.trim().is_empty() {
            self.last = std::mem::take(&mut self.reply);
        }
        self.reply.clear();
        self.begun = false;
        lines
    }

    /// What is not told for good yet, as it would look now.
    pub(crate) fn rest(&self, columns: usize) -> Vec<Line> {
        let mut lines = self.lines(&clean(&self.pending), columns);
        if self.any && !lines.is_empty() && (self.rendered || !self.begun) {
            lines.insert(0, Line { text: String::new(), width: 0 });
        }
        lines
    }

    /// A text of its own, told whole.
    pub(crate) fn whole(&mut self, text: &str, columns: usize) -> Vec<Line> {
        let lines = self.lines(&clean(text), columns);
        self.put(lines)
    }

    /// An empty line is between blocks, and between replies.
    fn put(&mut self, mut lines: Vec<Line>) -> Vec<Line> {
        if lines.is_empty() {
            return lines;
        }
        if self.any && (self.rendered || !self.begun) {
            lines.insert(0, Line { text: String::new(), width: 0 });
        }
        self.any = true;
        self.begun = true;
        lines
    }

    fn lines(&self, text: &str, columns: usize) -> Vec<Line> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        if self.rendered {
            return markdown::render(text, columns, &self.colors);
        }
        let text = if self.begun { text } else { text.trim_start_matches('\n') };
        let wrapped = wrap(text.trim_end(), columns);
        wrapped.lines().map(|line| Line { width: width(line), text: line.to_owned() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn blocks_are_told_when_they_are_complete() {
        let mut flow = Flow::new(true);
        flow.say("# On");
        assert!(flow.told(80).is_empty());
        assert_eq!(text(flow.rest(80)), ["\x1b[1m\x1b[4mOn\x1b[0m"]);
        flow.say("e\n\nSome\nwo");
        assert_eq!(text(flow.told(80)), ["\x1b[1m\x1b[4mOne\x1b[0m"]);
        assert_eq!(text(flow.rest(80)), ["", "Some wo"]);
        flow.say("rds.");
        assert!(flow.told(80).is_empty());
        assert_eq!(text(flow.end(80)), ["", "Some words."]);
        assert_eq!(flow.last(), "# One\n\nSome\nwords.");
        assert!(flow.rest(80).is_empty() && flow.end(80).is_empty());
    }

    #[test]
    fn the_source_is_told_line_by_line() {
        let mut flow = Flow::new(false);
        flow.say("# One\n\ntwo **th");
        assert_eq!(text(flow.told(80)), ["# One"]);
        assert_eq!(text(flow.rest(80)), ["", "two **th"]);
        flow.say("ree**\n");
        assert_eq!(text(flow.told(80)), ["", "two **three**"]);
        assert!(flow.end(80).is_empty());
        flow.say("\n\nNext.");
        assert_eq!(text(flow.rest(80)), ["", "Next."]);
    }

    #[test]
    fn a_void_reply_leaves_nothing_to_be_told() {
        let mut flow = Flow::new(true);
        flow.say("half a sen");
        assert!(!flow.void());
        flow.say("a\n\nb\n");
        assert_eq!(flow.told(80).len(), 1);
        assert!(flow.void(), "some of it was told");
        assert!(flow.rest(80).is_empty());
    }

    #[test]
    fn an_escape_that_comes_in_pieces_is_none() {
        let mut flow = Flow::new(true);
        for piece in ["red: \x1b", "[3", "1mX\n\n", "next \u{9b}", "2J."] {
            flow.say(piece);
            assert!(
                flow.told(80).iter().chain(&flow.rest(80)).all(|line| !line.text.contains(char::is_control))
            );
        }
        assert_eq!(text(flow.end(80)), ["red: X", "", "next ⟨U+009B⟩2J."]);
    }
}
