//! Keeps the last part of an output of any length, with stable byte offsets.

use std::collections::VecDeque;

use crate::toolset::command::output_capture::{incomplete_char_len, is_utf8_continuation};
use crate::toolset::text::group_digits;

/// How many bytes are kept.
const KEPT: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct OutputBuffer {
    kept: VecDeque<u8>,
    /// How many bytes before the kept part were dropped.
    dropped: u64,
}

impl OutputBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
        self.dropped += surplus as u64;
    }

    /// The length of the whole output.
    pub(super) fn total(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// Returns at most `limit` bytes from `offset` on, or the last ones if there is no offset. Markers say
    /// what comes before and after.
    pub(super) fn page(&self, offset: Option<u64>, limit: usize) -> String {
        let total = self.total();
        let from = offset.unwrap_or(total.saturating_sub(limit as u64)).clamp(self.dropped, total);
        let skip = (from - self.dropped) as usize;
        let bytes: Vec<u8> = self.kept.iter().skip(skip).take(limit).copied().collect();
        let lead = match from {
            0 => 0,
            // The page before shows a character that the cut splits.
            _ => bytes.iter().take(3).take_while(|byte| is_utf8_continuation(**byte)).count(),
        };
        let cut = if from + (bytes.len() as u64) < total { incomplete_char_len(&bytes) } else { 0 };
        let whole = &bytes[lead..bytes.len().saturating_sub(cut).max(lead)];
        let next = from + (bytes.len() - cut) as u64;

        let mut text = String::new();
        match (offset, from) {
            (_, 0) => {}
            (Some(asked), from) if asked < from => {
                text +=
                    &format!("[… the first {} bytes are not kept any more …]\n", group_digits(self.dropped));
            }
            (Some(_), _) => {}
            (None, from) => {
                let before = from - self.dropped;
                text +=
                    &format!("[… {} bytes before this: offset {} …]\n", group_digits(before), self.dropped);
            }
        }
        text += &String::from_utf8_lossy(whole);
        if next < total {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text += &format!("[… {} more bytes: go on with offset {next} …]", group_digits(total - next));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_what_is_before_and_after() {
        let mut buffer = OutputBuffer::default();
        buffer.push("0123456789é--".as_bytes());
        assert_eq!(buffer.total(), 14);
        assert_eq!(buffer.page(None, 100), "0123456789é--");
        assert_eq!(buffer.page(None, 3), "[… 11 bytes before this: offset 0 …]\n--");
        assert_eq!(buffer.page(Some(0), 4), "0123\n[… 10 more bytes: go on with offset 4 …]");
        assert_eq!(buffer.page(Some(4), 7), "456789\n[… 4 more bytes: go on with offset 10 …]");
        assert_eq!(buffer.page(Some(10), 7), "é--");
        assert_eq!(buffer.page(Some(99), 7), "");
    }

    #[test]
    fn what_is_too_long_loses_its_beginning_and_keeps_its_places() {
        let mut buffer = OutputBuffer::default();
        for _ in 0..3 * KEPT / 10 {
            buffer.push(b"123456789\n");
        }
        let total = (3 * KEPT / 10 * 10) as u64;
        assert_eq!(buffer.total(), total);
        let page = buffer.page(Some(total - 10), 100);
        assert_eq!(page, "123456789\n");
        let page = buffer.page(Some(0), 5);
        assert!(page.starts_with("[… the first 2,09") && page.contains("are not kept any more"), "{page}");
    }
}
