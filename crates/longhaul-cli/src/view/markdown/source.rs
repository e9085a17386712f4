//! The Markdown parser's events, with their positions in the text.

use std::iter::Peekable;
use std::ops::Range;

use pulldown_cmark::{Event, OffsetIter, Tag};

use super::aligned::is_aligned;
use super::parser;

/// Deeper nesting is flattened, so that a text cannot overflow the stack.
const DEEPEST: usize = 48;

/// Iterates over the events of a text.
pub(super) struct MarkdownParser<'a> {
    text: &'a str,
    events: Peekable<OffsetIter<'a>>,
    /// The position of the last event in the text.
    at: Range<usize>,
    /// In a paragraph that keeps its lines: the column of its first line.
    column: Option<usize>,
    /// The nesting depth of the last event, and how much of it is flattened.
    depth: usize,
    hidden: usize,
}

impl<'a> MarkdownParser<'a> {
    pub(super) fn new(text: &'a str) -> MarkdownParser<'a> {
        MarkdownParser {
            text,
            events: parser(text).into_offset_iter().peekable(),
            at: 0..0,
            column: None,
            depth: 0,
            hidden: 0,
        }
    }

    pub(super) fn peek(&mut self) -> Option<&Event<'a>> {
        self.events.peek().map(|(event, _)| event)
    }

    /// Starts a paragraph, and returns whether it keeps its lines.
    pub(super) fn begin_paragraph(&mut self) -> bool {
        self.begin(self.at.clone())
    }

    /// Does the same for text outside a paragraph: an item of a tight list, up to the next block.
    pub(super) fn begin_words(&mut self) -> bool {
        let from = self.at.start;
        let rest = self.text.get(from..).unwrap_or_default();
        let mut end = 0;
        for (index, line) in rest.split_inclusive('\n').enumerate() {
            if index > 0 && begins_block(line.trim()) {
                break;
            }
            end += line.len();
        }
        self.begin(from..from + end)
    }

    pub(super) fn end_words(&mut self) {
        self.column = None;
    }

    fn begin(&mut self, lines: Range<usize>) -> bool {
        let from = lines.start;
        let aligned = self.text.get(lines).is_some_and(is_aligned);
        self.column = aligned.then(|| self.column_of(from));
        aligned
    }

    /// Returns the replacement for a line end in a paragraph: a space, or a line break with indent if the
    /// paragraph keeps its lines.
    pub(super) fn soft_break(&mut self) -> String {
        let Some(first) = self.column else { return " ".to_owned() };
        let next = self.events.peek().map(|(_, at)| at.start);
        let indent = next.map_or(0, |next| self.column_of(next)).saturating_sub(first);
        format!("\n{}", " ".repeat(indent))
    }

    fn column_of(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.chars().rev().take_while(|c| *c != '\n').count()
    }
}

impl<'a> Iterator for MarkdownParser<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let (event, at) = self.events.next()?;
            match &event {
                Event::Start(tag) if self.hidden > 0 || self.depth + levels(tag) > DEEPEST => {
                    self.hidden += 1
                }
                Event::End(_) if self.hidden > 0 => self.hidden -= 1,
                _ => {
                    match event {
                        Event::Start(_) => self.depth += 1,
                        Event::End(_) => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    self.at = at;
                    return Some(event);
                }
            }
        }
    }
}

/// Returns how many levels form one unit, which is kept or flattened as a whole.
fn levels(tag: &Tag<'_>) -> usize {
    match tag {
        Tag::Table(_) => 4,
        Tag::List(_) => 2,
        _ => 1,
    }
}

fn begins_block(line: &str) -> bool {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = line.starts_with(['-', '*', '+']) && line[1..].starts_with(' ');
    line.is_empty()
        || item
        || numbered.len() < line.len() && numbered.starts_with(['.', ')'])
        || line.starts_with(['#', '>', '`', '~'])
}
