//! A block of lines at the bottom of the terminal that is redrawn in place. Other output goes above it.
//!
//! The cursor stays visible, because a killed process could not show it again.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use super::OutputStream;

/// Synchronized output: the terminal shows a frame at once, without flicker. Terminals that do not support it
/// ignore it.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The block. Clones share one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveRegion {
    out: OutputStream,
    drawn: Arc<Mutex<DrawnLines>>,
}

/// The width of each line on the terminal, without colour codes.
#[derive(Debug, Default)]
struct DrawnLines {
    lines: Vec<usize>,
}

/// A line with its colour codes, and its width in columns.
pub(crate) struct StyledLine {
    pub(crate) text: String,
    pub(crate) width: usize,
}

impl LiveRegion {
    /// Creates a block on this stream.
    pub(crate) fn on_stream(out: OutputStream) -> LiveRegion {
        LiveRegion { out, drawn: Arc::default() }
    }

    fn drawn(&self) -> std::sync::MutexGuard<'_, DrawnLines> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the block in place of the last one.
    pub(crate) fn draw(&self, lines: &[StyledLine], columns: usize) -> std::io::Result<()> {
        self.draw_below(&[], lines, columns)
    }

    /// Draws the block in place of the last one, and prints lines to stdout above it.
    pub(crate) fn draw_below(
        &self,
        above: &[StyledLine],
        lines: &[StyledLine],
        columns: usize,
    ) -> std::io::Result<()> {
        let mut drawn = self.drawn();
        let mut frame = String::from(BEGIN);
        frame.push_str(&drawn.cursor_to_top(columns));
        if !above.is_empty() {
            frame.push_str(CLEAR_BELOW);
            let text: String = above.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect();
            if self.out == OutputStream::Stdout {
                frame.push_str(&text);
            } else {
                self.out.write(&frame)?;
                drawn.lines.clear();
                OutputStream::Stdout.write(&text)?;
                frame.clear();
            }
        }
        for line in lines {
            frame.push_str(&line.text);
            frame.push_str(CLEAR_LINE);
            frame.push('\n');
        }
        frame.push_str(CLEAR_BELOW);
        frame.push_str(END);
        drawn.lines = lines.iter().map(|line| line.width).collect();
        self.out.write(&frame)
    }

    /// Removes the block.
    pub(crate) fn clear(&self, columns: usize) -> std::io::Result<()> {
        let mut drawn = self.drawn();
        if drawn.lines.is_empty() {
            return Ok(());
        }
        let frame = format!("{}{CLEAR_BELOW}", drawn.cursor_to_top(columns));
        drawn.lines.clear();
        self.out.write(&frame)
    }
}

impl DrawnLines {
    /// Returns the sequence that moves the cursor to the start of the block. A terminal that became narrower
    /// has wrapped its lines.
    fn cursor_to_top(&self, columns: usize) -> String {
        let rows: usize = self.lines.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        match rows {
            0 => String::new(),
            rows => format!("\r\x1b[{rows}A"),
        }
    }
}

/// Logs go to stderr, above the block if there is one.
impl Write for LiveRegion {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let columns = super::TerminalOutput::for_stream(self.out).size().0;
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            // The next frame draws the block again, below.
            self.clear(columns)?;
        }
        std::io::stderr().lock().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_counts_the_rows_that_lines_take_now() {
        let drawn = DrawnLines { lines: vec![10, 40, 0] };
        assert_eq!(drawn.cursor_to_top(40), "\r\x1b[3A");
        assert_eq!(drawn.cursor_to_top(20), "\r\x1b[4A");
        assert_eq!(DrawnLines::default().cursor_to_top(80), "");
    }
}
