//! A block of lines that is drawn over, again and again, at the bottom of the terminal; what is written meanwhile
//! goes above it.
//!
//! The cursor stays visible: a process that is killed could not show it again.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use super::OutputStream;

/// Draw all at once, so that nothing flickers; terminals that do not know this ignore it.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The block. Clones are the same block.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveRegion {
    out: OutputStream,
    drawn: Arc<Mutex<DrawnLines>>,
}

/// What is on the terminal: how wide each line of the block is, without its colours.
#[derive(Debug, Default)]
struct DrawnLines {
    lines: Vec<usize>,
}

/// A line to be drawn: as it is sent to the terminal, and how many columns it takes there.
pub(crate) struct StyledLine {
    pub(crate) text: String,
    pub(crate) width: usize,
}

impl LiveRegion {
    /// A block on this output.
    pub(crate) fn on_stream(out: OutputStream) -> LiveRegion {
        LiveRegion { out, drawn: Arc::default() }
    }

    fn drawn(&self) -> std::sync::MutexGuard<'_, DrawnLines> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the block where the last one was.
    pub(crate) fn draw(&self, lines: &[StyledLine], columns: usize) -> std::io::Result<()> {
        self.draw_below(&[], lines, columns)
    }

    /// Draws the block where the last one was; these lines go above it, to standard output, and stay there.
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
            let told: String = above.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect();
            if self.out == OutputStream::Stdout {
                frame.push_str(&told);
            } else {
                self.out.write(&frame)?;
                drawn.lines.clear();
                OutputStream::Stdout.write(&told)?;
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

    /// Takes the block away.
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
    /// What brings the cursor to where the block begins. A terminal that became narrower has broken its lines.
    fn cursor_to_top(&self, columns: usize) -> String {
        let rows: usize = self.lines.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        match rows {
            0 => String::new(),
            rows => format!("\r\x1b[{rows}A"),
        }
    }
}

/// Where logs go: to standard error, above the block if there is one.
impl Write for LiveRegion {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let columns = super::TerminalOutput::for_stream(self.out).size().0;
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            // The next frame draws it again, below.
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
