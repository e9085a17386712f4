//! Keeps the beginning and the end of an output of any length.

use std::collections::VecDeque;

use crate::toolset::text::group_digits;

/// Receives output.
pub(in crate::toolset) trait OutputSink: Send {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]);
}

impl OutputSink for OutputCapture {
    fn write(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// The start and the end of an output, each up to half of the cap.
pub(in crate::toolset) struct OutputCapture {
    half: usize,
    start: Vec<u8>,
    end: VecDeque<u8>,
    left_out: u64,
}

impl OutputCapture {
    pub(in crate::toolset) fn new(cap: usize) -> Self {
        OutputCapture { half: cap / 2, start: Vec::new(), end: VecDeque::new(), left_out: 0 }
    }

    pub(in crate::toolset) fn push(&mut self, bytes: &[u8]) {
        let room = self.half - self.start.len();
        let (start, end) = bytes.split_at(room.min(bytes.len()));
        self.start.extend_from_slice(start);
        self.end.extend(end);
        let surplus = self.end.len().saturating_sub(self.half);
        self.end.drain(..surplus);
        self.left_out += surplus as u64;
    }

    /// Returns the output as text, with a marker where something is left out.
    pub(in crate::toolset) fn into_text(self) -> String {
        let mut start = self.start;
        let mut end = Vec::from(self.end);
        if self.left_out == 0 {
            start.append(&mut end);
            return String::from_utf8_lossy(&start).into_owned();
        }
        // Drop a character that the cut splits.
        let whole_start = start.len() - incomplete_char_len(&start);
        let in_end = end.iter().take(3).take_while(|byte| is_utf8_continuation(**byte)).count();
        let left_out = self.left_out + (start.len() - whole_start + in_end) as u64;
        format!(
            "{}\n[… {} bytes left out …]\n{}",
            String::from_utf8_lossy(&start[..whole_start]),
            group_digits(left_out),
            String::from_utf8_lossy(&end[in_end..])
        )
    }
}

pub(in crate::toolset) fn is_utf8_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Returns how many bytes at the end are the beginning of an incomplete character.
pub(in crate::toolset) fn incomplete_char_len(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map(|chunk| chunk.invalid());
    match last {
        Some(invalid @ [first, ..]) if *first >= 0b1100_0000 && bytes.ends_with(invalid) => invalid.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let mut capture = OutputCapture::new(8);
        capture.push(b"abc");
        capture.push(b"defgh");
        assert_eq!(capture.into_text(), "abcdefgh");
    }

    #[test]
    fn start_and_end_are_kept_and_the_marker_says_how_much_is_not() {
        let mut capture = OutputCapture::new(8);
        capture.push(b"abcdef");
        for _ in 0..500 {
            capture.push(b"xyz");
        }
        assert_eq!(capture.into_text(), "abcd\n[… 1,498 bytes left out …]\nzxyz");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let mut capture = OutputCapture::new(8);
        capture.push("abcé----éxyz".as_bytes());
        assert_eq!(capture.into_text(), "abc\n[… 8 bytes left out …]\nxyz");
    }
}
