//! Parses server-sent events as providers really send them, from chunks of any size.

use std::borrow::Cow;

use crate::model::ModelErrorKind;

/// The longest event of a reply. Parsing one takes many times its size in memory.
pub(crate) const MAX_EVENT_BYTES: usize = 4 << 20;
/// The longest reply, to bound memory.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// The name; empty if there is none.
    pub(crate) name: &'a str,
    /// The data lines, joined with newlines. Never empty.
    pub(crate) data: &'a str,
}

/// Splits a stream into events. Every byte is read once and copied at most twice.
///
/// It accepts more than the standard: an event without a blank line at the end of the stream counts; a field
/// `error:` is an event named `error` (old llama.cpp); and JSON without any field, as the whole response or
/// in the middle of it, is an event without a name.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    /// A line that is still incomplete.
    line: Vec<u8>,
    event: String,
    data: String,
    /// Whether an event is pending, and of which kind.
    pending: PendingEvent,
    /// The last byte was a CR: a LF right after it belongs to it.
    after_cr: bool,
    /// Whether the stream is past the place of a byte order mark.
    begun: bool,
    /// How many bytes have been read as lines.
    taken: usize,
    /// The longest line and the longest event; 0 means [`MAX_EVENT_BYTES`].
    longest: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PendingEvent {
    #[default]
    Nothing,
    Data,
    Stray,
}

impl SseParser {
    /// A parser with another limit for events.
    pub(crate) fn with_max_event(longest: usize) -> Self {
        SseParser { longest, ..SseParser::default() }
    }

    fn longest(&self) -> usize {
        if self.longest == 0 { MAX_EVENT_BYTES } else { self.longest }
    }

    /// Takes more bytes and passes on each event that they complete.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&SseEvent<'_>) -> Result<(), ModelErrorKind>,
    ) -> Result<(), ModelErrorKind> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            if self.is_between_events()
                && let Some((data, length)) = whole_event(rest, self.longest())
            {
                self.begun = true;
                self.count(length)?;
                each(&SseEvent { name: "", data })?;
                rest = &rest[length..];
                continue;
            }
            let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.room(rest.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            self.after_cr = rest[at] == b'\r';
            self.room(at)?;
            if self.line.is_empty() {
                self.line(&rest[..at], &mut each)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&rest[..at]);
                self.line(&line, &mut each)?;
                line.clear();
                self.line = line;
            }
            rest = &rest[at + 1..];
        }
        Ok(())
    }

    /// Resets the count of bytes, for a stream that is not a single reply.
    #[cfg(feature = "mcp")]
    pub(crate) fn reset_total(&mut self) {
        self.taken = 0;
    }

    /// Ends the stream and passes on the incomplete event, if there is one.
    pub(crate) fn finish(
        &mut self,
        mut each: impl FnMut(&SseEvent<'_>) -> Result<(), ModelErrorKind>,
    ) -> Result<(), ModelErrorKind> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line, &mut each)?;
        }
        self.give(&mut each)
    }

    fn is_between_events(&self) -> bool {
        self.line.is_empty() && self.event.is_empty() && self.pending == PendingEvent::Nothing
    }

    fn room(&self, more: usize) -> Result<(), ModelErrorKind> {
        let longest = self.longest();
        if self.line.len() + self.data.len() + more > longest {
            return Err(ModelErrorKind::TooLarge(format!("an event of more than {} MiB", longest >> 20)));
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelErrorKind> {
        self.taken += bytes;
        if self.taken > MAX_ANSWER_BYTES {
            return Err(ModelErrorKind::TooLarge(format!(
                "more than {} MiB came; not retrying",
                MAX_ANSWER_BYTES >> 20
            )));
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&SseEvent<'_>) -> Result<(), ModelErrorKind>,
    ) -> Result<(), ModelErrorKind> {
        self.count(line.len() + 1)?;
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if !self.begun => rest,
            _ => line,
        };
        self.begun = true;
        if line.is_empty() {
            return self.give(each);
        }
        if let Some(data) = field(line, b"data") {
            self.no_stray(each)?;
            self.add(data);
        } else if let Some(name) = field(line, b"event") {
            self.no_stray(each)?;
            self.event.clear();
            self.event.push_str(&lossy(name));
        } else if let Some(data) = field(line, b"error") {
            self.no_stray(each)?;
            self.event.clear();
            self.event.push_str("error");
            self.add(data);
        } else if self.pending == PendingEvent::Stray || self.is_stray(line) {
            self.add(line);
            self.pending = PendingEvent::Stray;
        }
        Ok(())
    }

    /// Whether JSON begins here outside of any field.
    fn is_stray(&self, line: &[u8]) -> bool {
        self.pending == PendingEvent::Nothing && matches!(line.trim_ascii_start().first(), Some(b'{' | b'['))
    }

    fn add(&mut self, data: &[u8]) {
        if self.pending != PendingEvent::Nothing {
            self.data.push('\n');
        }
        self.pending = PendingEvent::Data;
        self.data.push_str(&lossy(data));
    }

    fn no_stray(
        &mut self,
        each: &mut impl FnMut(&SseEvent<'_>) -> Result<(), ModelErrorKind>,
    ) -> Result<(), ModelErrorKind> {
        if self.pending == PendingEvent::Stray { self.give(each) } else { Ok(()) }
    }

    fn give(
        &mut self,
        each: &mut impl FnMut(&SseEvent<'_>) -> Result<(), ModelErrorKind>,
    ) -> Result<(), ModelErrorKind> {
        self.pending = PendingEvent::Nothing;
        let given = match self.data.is_empty() {
            true => Ok(()),
            false => each(&SseEvent { name: &self.event, data: &self.data }),
        };
        self.event.clear();
        self.data.clear();
        given
    }
}

/// The data of the event that begins here and the length of the event, if it is complete and has one data
/// line and nothing else. Most events are like this, and need not be copied.
fn whole_event(bytes: &[u8], longest: usize) -> Option<(&str, usize)> {
    let value = bytes.strip_prefix(b"data:")?;
    let value = value.strip_prefix(b" ").unwrap_or(value);
    let length = memchr::memchr2(b'\n', b'\r', value)?;
    if length == 0 || length > longest || !value[length..].starts_with(b"\n\n") {
        return None;
    }
    let data = std::str::from_utf8(&value[..length]).ok()?;
    Some((data, bytes.len() - value.len() + length + 2))
}

/// The value of a field, if the line holds that field.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None if rest.is_empty() => Some(rest),
        None => None,
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
