//! Cuts long texts to fit a context: one page, or the beginning and the end. Never splits a character.

use super::fn_tool;

/// How many bytes of a task's output one result shows.
pub(super) const OUTPUT_LIMIT: usize = 16 * 1024;
/// How many bytes of output a result about several tasks shows: the runner's limit for a result, minus room
/// for everything else in it.
const TOGETHER: usize = 40 * 1024;
/// No task's output is cut shorter than this to make room for the others.
const AT_LEAST: usize = 1024;

/// Returns how many bytes each of `n` outputs may have in one result.
pub(super) fn bytes_per_output(n: usize) -> usize {
    (TOGETHER / n.max(1)).clamp(AT_LEAST, OUTPUT_LIMIT)
}

/// The requested part of a text. Offsets count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextRange {
    /// At most this many characters from an offset on.
    From(usize, usize),
    /// The last characters.
    Tail(usize),
    /// The last lines.
    TailLines(usize),
}

impl TextRange {
    /// Returns the requested part. An offset takes precedence over the last characters or lines. Zeros mean
    /// no value, because models fill them in.
    pub(super) fn from_args(
        offset: Option<f64>,
        limit: Option<f64>,
        last: Option<TextRange>,
    ) -> Option<TextRange> {
        match (above_0(offset), above_0(limit), last) {
            (None, None, None) => offset.map(|_| TextRange::From(0, usize::MAX)),
            (None, _, Some(last)) => Some(last),
            (offset, limit, _) => Some(TextRange::From(offset.unwrap_or(0), limit.unwrap_or(usize::MAX))),
        }
    }

    /// Returns the last characters, if requested.
    pub(super) fn tail(asked: Option<f64>) -> Option<TextRange> {
        above_0(asked).map(TextRange::Tail)
    }

    /// Returns the last lines, if requested.
    pub(super) fn tail_lines(asked: Option<f64>) -> Option<TextRange> {
        above_0(asked).map(TextRange::TailLines)
    }
}

fn above_0(n: Option<f64>) -> Option<usize> {
    n.filter(|n| *n > 0.0).map(fn_tool::to_index)
}

/// A part of a text, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextPage<'a> {
    /// The part itself.
    pub(super) text: &'a str,
    /// How many characters come before it.
    pub(super) from: usize,
    /// Where it ends, in characters.
    pub(super) to: usize,
    /// The length of the whole text, in characters.
    pub(super) total: usize,
}

impl TextPage<'_> {
    /// Whether it shows any text, or there is none to show.
    pub(super) fn has_text(&self) -> bool {
        self.total == 0 || self.from < self.to
    }

    /// Whether it is the whole text.
    pub(super) fn is_whole(&self) -> bool {
        self.from == 0 && self.to == self.total
    }

    /// Returns its text with a marker that says which part it is; `how` says how to read on from an offset.
    pub(super) fn with_marker(&self, how: impl FnOnce(usize) -> String) -> String {
        let TextPage { text, from, to, total } = *self;
        if self.is_whole() {
            return text.to_owned();
        }
        if !self.has_text() {
            return format!("[… nothing: the output ends at character {total}.{} …]", how(0));
        }
        let how = how(if to < total { to } else { 0 });
        format!("{text}\n\n[… these are characters {from} to {to} of {total}.{how} …]")
    }
}

/// Returns a part of a text, of at most `most` bytes.
pub(super) fn text_page(text: &str, part: TextRange, most: usize) -> TextPage<'_> {
    let total = text.chars().count();
    let (start, end) = match part {
        TextRange::From(offset, limit) => {
            let start = byte(text, offset);
            let end = text.floor_char_boundary(start.saturating_add(most));
            (start, (start + byte(&text[start..], limit)).min(end))
        }
        TextRange::Tail(count) => (byte(text, total.saturating_sub(count)), text.len()),
        TextRange::TailLines(count) => (last_lines(text, count), text.len()),
    };
    let start = match part {
        TextRange::From(..) => start,
        _ => start.max(text.ceil_char_boundary(text.len().saturating_sub(most))),
    };
    let from = text[..start].chars().count();
    let shown = &text[start..end];
    TextPage { text: shown, from, to: from + shown.chars().count(), total }
}

/// Returns where the `n`th character begins, or the end of the text.
fn byte(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// Returns where the last `count` lines begin. A line feed at the very end begins no line.
fn last_lines(text: &str, count: usize) -> usize {
    let Some(before) = count.checked_sub(1) else { return text.len() };
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.rmatch_indices('\n').nth(before).map_or(0, |(at, _)| at + 1)
}

/// Returns the beginning and the end of a text that has more than `limit` bytes, with a marker between them
/// that says what is left out and how to read it: `how` receives the offset where the gap begins. Returns
/// `None` if the text is short enough.
pub(crate) fn start_and_end(text: &str, limit: usize, how: impl FnOnce(usize) -> String) -> Option<String> {
    if text.len() <= limit {
        return None;
    }
    let start = &text[..text.floor_char_boundary(limit / 4 * 3)];
    let end = &text[text.ceil_char_boundary(text.len() - limit / 4)..];
    let from = start.chars().count();
    let total = text.chars().count();
    let to = total - end.chars().count();
    let (left_out, how) = (to - from, how(from));
    Some(format!(
        "{start}\n\n[… {left_out} of {total} characters are left out here: {from} to {to}.{how} …]\n\n{end}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_where_it_is() {
        let text = "añb→c\nsecond\nthird\n";
        for (part, shown, from, to) in [
            (TextRange::From(0, 3), "añb", 0, 3),
            (TextRange::From(1, 3), "ñb→", 1, 4),
            (TextRange::From(3, usize::MAX), "→c\nsecond\nthird\n", 3, 19),
            (TextRange::From(99, 5), "", 19, 19),
            (TextRange::Tail(4), "ird\n", 15, 19),
            (TextRange::Tail(usize::MAX), text, 0, 19),
            (TextRange::TailLines(1), "third\n", 13, 19),
            (TextRange::TailLines(2), "second\nthird\n", 6, 19),
            (TextRange::TailLines(9), text, 0, 19),
            (TextRange::TailLines(0), "", 19, 19),
        ] {
            assert_eq!(
                text_page(text, part, OUTPUT_LIMIT),
                TextPage { text: shown, from, to, total: 19 },
                "{part:?}"
            );
        }
    }

    #[test]
    fn pages_put_together_are_the_text() {
        for unit in ["x", "é", "→", "🦀"] {
            for shift in 0..4 {
                let text = format!("{}{}", "x".repeat(shift), unit.repeat(40_000 / unit.len()));
                let (mut whole, mut at) = (String::new(), 0);
                while at < text.chars().count() {
                    let page = text_page(&text, TextRange::From(at, usize::MAX), OUTPUT_LIMIT);
                    assert!(page.text.len() <= OUTPUT_LIMIT && page.has_text());
                    whole.push_str(page.text);
                    at = page.to;
                }
                assert_eq!(whole, text);
                let tail = text_page(&text, TextRange::Tail(usize::MAX), OUTPUT_LIMIT);
                assert!(tail.text.len() <= OUTPUT_LIMIT && tail.to == tail.total && tail.from > 0);
            }
        }
    }

    #[test]
    fn two_ends_are_whole_characters_and_the_mark_tells_the_gap() {
        for unit in ["x", "é", "→", "🦀"] {
            for shift in 0..4 {
                let text = format!("{}{}", "x".repeat(shift), unit.repeat(100));
                let Some(cut) = start_and_end(&text, 64, |from| format!(" Go to {from}.")) else {
                    panic!("{} bytes are more than 64", text.len());
                };
                let (start, rest) = cut.split_once("\n\n[… ").unwrap();
                let (mark, end) = rest.split_once(" …]\n\n").unwrap();
                assert!(start.len() <= 48 && end.len() <= 16);
                let (from, total) = (start.chars().count(), text.chars().count());
                let to = total - end.chars().count();
                assert_eq!(
                    mark,
                    format!(
                        "{} of {total} characters are left out here: {from} to {to}. Go to {from}.",
                        to - from
                    )
                );
            }
        }
        assert_eq!(start_and_end("short", 5, |_| String::new()), None);
    }

    #[test]
    fn many_outputs_share_the_room() {
        assert_eq!([bytes_per_output(0), bytes_per_output(1), bytes_per_output(2)], [OUTPUT_LIMIT; 3]);
        assert_eq!(bytes_per_output(8), 5 * 1024);
        assert_eq!(bytes_per_output(10_000), AT_LEAST);
    }
}
