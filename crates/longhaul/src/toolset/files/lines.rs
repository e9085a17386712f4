//! Reads files line by line, for lines of any length.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};

/// How many bytes at the start of a file decide whether it is binary, and how many are read at once.
const BLOCK: usize = 16 * 1024;

/// Reads the lines of a text file.
pub(super) struct LineReader {
    reader: BufReader<File>,
    /// How many bytes of a line are kept.
    keep: usize,
}

/// One line, without its line end.
pub(super) struct TextLine {
    /// The text, truncated if the line is too long.
    pub(super) text: String,
    /// How many bytes of the line are left out.
    pub(super) missing: u64,
}

impl LineReader {
    /// Returns `None` for a binary file: one with a zero byte near its beginning.
    pub(super) fn open(file: File, keep: usize) -> io::Result<Option<Self>> {
        let mut reader = BufReader::with_capacity(BLOCK, file);
        let binary = reader.fill_buf()?.contains(&0);
        Ok((!binary).then_some(LineReader { reader, keep }))
    }

    pub(super) fn next(&mut self) -> io::Result<Option<TextLine>> {
        let (mut kept, mut length, mut ended) = (Vec::new(), 0_u64, false);
        let mut any = false;
        while !ended {
            let block = self.reader.fill_buf()?;
            if block.is_empty() {
                break;
            }
            any = true;
            let end = block.iter().position(|byte| *byte == b'\n');
            ended = end.is_some();
            let part = &block[..end.unwrap_or(block.len())];
            length += part.len() as u64;
            kept.extend_from_slice(&part[..part.len().min(self.keep - kept.len())]);
            let used = part.len() + usize::from(ended);
            self.reader.consume(used);
        }
        let missing = length - kept.len() as u64;
        if missing == 0 && kept.last() == Some(&b'\r') {
            kept.pop();
        }
        Ok(any.then(|| TextLine { text: String::from_utf8_lossy(&kept).into_owned(), missing }))
    }

    /// Counts the remaining lines. A last line without a line end counts. Calls `go_on` for each block.
    pub(super) fn count<E: From<io::Error>>(mut self, go_on: impl Fn() -> Result<(), E>) -> Result<u64, E> {
        let (mut lines, mut last) = (0, b'\n');
        loop {
            go_on()?;
            let block = self.reader.fill_buf()?;
            let Some(end) = block.last() else { break };
            last = *end;
            lines += block.iter().filter(|byte| **byte == b'\n').count() as u64;
            let used = block.len();
            self.reader.consume(used);
        }
        Ok(lines + u64::from(last != b'\n'))
    }
}
