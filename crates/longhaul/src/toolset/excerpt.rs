//! What fits into a context of a text that may be long: a page of it, or its two ends. Never half a character.

/// How many bytes of a task's output one result shows.
pub(super) const OUTPUT_LIMIT: usize = 16 * 1024;
/// How many bytes of outputs a result shows that tells of several tasks.
const TOGETHER: usize = 4 * OUTPUT_LIMIT;
/// No task's output is cut shorter than this for the sake of the others.
const AT_LEAST: usize = 1024;

/// How many bytes each of `n` outputs may have in one result.
pub(super) fn share(n: usize) -> usize {
    (TOGETHER / n.max(1)).clamp(AT_LEAST, OUTPUT_LIMIT)
}

/// Which part of a text is wanted. Places are counted in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// From a place on, at most so many characters.
    From(usize, usize),
    /// The last characters.
    Tail(usize),
    /// The last lines.
    Lines(usize),
}

/// A part of a text, and where in the text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page<'a> {
    /// The part.
    pub(super) text: &'a str,
    /// How many characters are before it.
    pub(super) from: usize,
    /// How many characters there are up to its end.
    pub(super) to: usize,
    /// How many characters the whole text has.
    pub(super) total: usize,
}

impl Page<'_> {
    /// Whether it shows what there is to see: something, unless there is nothing.
    pub(super) fn shows(&self) -> bool {
        self.total == 0 || self.from < self.to
    }
}

/// A part of a text, of at most [`OUTPUT_LIMIT`] bytes.
pub(super) fn page(text: &str, part: Part) -> Page<'_> {
    let total = text.chars().count();
    let (start, end) = match part {
        Part::From(offset, limit) => {
            let start = byte(text, offset);
            let most = text.floor_char_boundary(start.saturating_add(OUTPUT_LIMIT));
            (start, (start + byte(&text[start..], limit)).min(most))
        }
        Part::Tail(count) => (byte(text, total.saturating_sub(count)), text.len()),
        Part::Lines(count) => (last_lines(text, count), text.len()),
    };
    let start = match part {
        Part::From(..) => start,
        _ => start.max(text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_LIMIT))),
    };
    let from = text[..start].chars().count();
    let shown = &text[start..end];
    Page { text: shown, from, to: from + shown.chars().count(), total }
}

/// Where the `n`th character begins, or the text ends.
fn byte(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// Where the last `count` lines begin. A line feed at the very end begins no line.
fn last_lines(text: &str, count: usize) -> usize {
    let Some(before) = count.checked_sub(1) else { return text.len() };
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.rmatch_indices('\n').nth(before).map_or(0, |(at, _)| at + 1)
}

/// Both ends of a text that has more than `limit` bytes, with a mark between them that says what is missing and,
/// if there is a way to read it, how: `how` is given the place where the gap begins. `None` if the text is not too
/// long.
pub(super) fn two_ends(text: &str, limit: usize, how: impl FnOnce(usize) -> String) -> Option<String> {
    if text.len() <= limit {
        return None;
    }
    let head = &text[..text.floor_char_boundary(limit / 4 * 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - limit / 4)..];
    let from = head.chars().count();
    let total = text.chars().count();
    let to = total - tail.chars().count();
    let (left_out, how) = (to - from, how(from));
    Some(format!(
        "{head}\n\n[… {left_out} of {total} characters are left out here: {from} to {to}.{how} …]\n\n{tail}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_where_it_is() {
        let text = "añb→c\nsecond\nthird\n";
        for (part, shown, from, to) in [
            (Part::From(0, 3), "añb", 0, 3),
            (Part::From(1, 3), "ñb→", 1, 4),
            (Part::From(3, usize::MAX), "→c\nsecond\nthird\n", 3, 19),
            (Part::From(99, 5), "", 19, 19),
            (Part::Tail(4), "ird\n", 15, 19),
            (Part::Tail(usize::MAX), text, 0, 19),
            (Part::Lines(1), "third\n", 13, 19),
            (Part::Lines(2), "second\nthird\n", 6, 19),
            (Part::Lines(9), text, 0, 19),
            (Part::Lines(0), "", 19, 19),
        ] {
            assert_eq!(page(text, part), Page { text: shown, from, to, total: 19 }, "{part:?}");
        }
    }

    #[test]
    fn pages_put_together_are_the_text() {
        for unit in ["x", "é", "→", "🦀"] {
            for shift in 0..4 {
                let text = format!("{}{}", "x".repeat(shift), unit.repeat(40_000 / unit.len()));
                let (mut whole, mut at) = (String::new(), 0);
                while at < text.chars().count() {
                    let page = page(&text, Part::From(at, usize::MAX));
                    assert!(page.text.len() <= OUTPUT_LIMIT && page.shows());
                    whole.push_str(page.text);
                    at = page.to;
                }
                assert_eq!(whole, text);
                let tail = page(&text, Part::Tail(usize::MAX));
                assert!(tail.text.len() <= OUTPUT_LIMIT && tail.to == tail.total && tail.from > 0);
            }
        }
    }

    #[test]
    fn two_ends_are_whole_characters_and_the_mark_tells_the_gap() {
        for unit in ["x", "é", "→", "🦀"] {
            for shift in 0..4 {
                let text = format!("{}{}", "x".repeat(shift), unit.repeat(100));
                let Some(cut) = two_ends(&text, 64, |from| format!(" Go to {from}.")) else {
                    panic!("{} bytes are more than 64", text.len());
                };
                let (head, rest) = cut.split_once("\n\n[… ").unwrap();
                let (mark, tail) = rest.split_once(" …]\n\n").unwrap();
                assert!(head.len() <= 48 && tail.len() <= 16);
                let (from, total) = (head.chars().count(), text.chars().count());
                let to = total - tail.chars().count();
                assert_eq!(
                    mark,
                    format!(
                        "{} of {total} characters are left out here: {from} to {to}. Go to {from}.",
                        to - from
                    )
                );
            }
        }
        assert_eq!(two_ends("short", 5, |_| String::new()), None);
    }

    #[test]
    fn many_outputs_share_the_room() {
        assert_eq!([share(0), share(1), share(4)], [OUTPUT_LIMIT; 3]);
        assert_eq!(share(8), OUTPUT_LIMIT / 2);
        assert_eq!(share(10_000), AT_LEAST);
    }
}
