//! Searches the open task, as in a pager: `/`, `n`, `N`. Includes folded text, and entries that have not been
//! read yet.

use longhaul::id::Seq;
use longhaul::transcript::ItemKind;
use ratatui::text::Line;
use unicode_width::UnicodeWidthChar as _;

use super::model::{DetailTab, Focus, MAX_ENTRIES, READ_CHUNK, TuiEffect, TuiModel};
use super::text_input::TextInput;
use super::transcript_view::item_text;
use crate::view::Ink;

/// The search in the open task.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextSearch {
    pub(crate) words: TextInput,
    /// The previous search.
    before: String,
    /// The direction and the origin of a search that waits for more entries.
    pending: Option<(TextSearchDirection, Origin)>,
}

/// Where a search began. If nothing is found, the view returns there.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Whether the view followed the end.
    followed: bool,
    /// The entry before the part of the journal that was loaded.
    after: Seq,
    /// The first visible line, and how far below it the cursor was.
    top: Option<(Seq, usize)>,
    below: usize,
}

/// The direction of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSearchDirection {
    /// At the cursor or below it; otherwise above it.
    Nearest,
    Down,
    Up,
}

/// A normalized search text: case-sensitive if it contains a capital letter, with whitespace collapsed.
pub(crate) struct TextSearchPattern {
    chars: Vec<char>,
    exact: bool,
}

impl TextSearchPattern {
    pub(crate) fn parse(words: &str) -> Option<TextSearchPattern> {
        let exact = words.chars().any(char::is_uppercase);
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let chars: Vec<char> = words.chars().map(|c| fold_case(c, exact)).collect();
        (!chars.is_empty()).then_some(TextSearchPattern { chars, exact })
    }

    fn occurs_in(&self, text: &str) -> bool {
        let mut hay: Vec<char> = Vec::with_capacity(text.len());
        for word in text.split_whitespace() {
            hay.extend(word.chars().map(|c| fold_case(c, self.exact)));
            hay.push(' ');
        }
        hay.windows(self.chars.len()).any(|part| part == self.chars)
    }

    /// Returns the matches in these lines: line, first column, columns. A match that spans lines is returned
    /// for each.
    pub(crate) fn find_in_lines(&self, lines: &[Line<'_>]) -> Vec<(usize, u16, u16)> {
        let mut hay: Vec<char> = Vec::new();
        let mut places: Vec<(usize, u16, u16)> = Vec::new();
        for (row, line) in lines.iter().enumerate() {
            let mut column = 0;
            let mut blank = true;
            for c in line.spans.iter().flat_map(|span| span.content.chars()) {
                let wide = c.width().unwrap_or(0) as u16;
                // Collapse whitespace to one space, also across lines.
                if !(c.is_whitespace() && blank) {
                    hay.push(if c.is_whitespace() { ' ' } else { fold_case(c, self.exact) });
                    places.push((row, column, wide));
                }
                blank = c.is_whitespace();
                column += wide;
            }
            if !blank {
                hay.push(' ');
                places.push((row, column, 0));
            }
        }
        let mut marks: Vec<(usize, u16, u16)> = Vec::new();
        let mut at = 0;
        while at + self.chars.len() <= hay.len() {
            if hay[at..at + self.chars.len()] != self.chars {
                at += 1;
                continue;
            }
            for (index, (row, column, wide)) in places[at..at + self.chars.len()].iter().enumerate() {
                match marks.last_mut().filter(|mark| index > 0 && mark.0 == *row) {
                    Some(mark) => mark.2 = column + wide - mark.1,
                    None => marks.push((*row, *column, *wide)),
                }
            }
            at += self.chars.len();
        }
        marks
    }
}

fn fold_case(c: char, exact: bool) -> char {
    if exact { c } else { c.to_lowercase().next().unwrap_or(c) }
}

impl TuiModel {
    /// Returns whether matches are highlighted in the open task.
    pub(crate) fn has_text_search(&self) -> bool {
        !self.text_search.words.text().trim().is_empty()
    }

    /// Gives the focus to the search input.
    pub(super) fn begin_text_search(&mut self) -> Vec<TuiEffect> {
        let before = self.text_search.words.take();
        if !before.trim().is_empty() {
            self.text_search.before = before;
        }
        self.focus = Focus::Find;
        Vec::new()
    }

    /// Starts the search for the typed text.
    pub(super) fn submit_text_search(&mut self) -> Vec<TuiEffect> {
        self.focus = Focus::Detail;
        if !self.has_text_search() {
            let before = self.text_search.before.clone();
            self.text_search.words.set(before);
        }
        self.seek(TextSearchDirection::Nearest)
    }

    pub(super) fn end_text_search(&mut self) -> Vec<TuiEffect> {
        let before = self.text_search.words.take();
        self.text_search = TextSearch { before, ..TextSearch::default() };
        Vec::new()
    }

    /// Cancels a pending search.
    pub(super) fn cancel_seek(&mut self) {
        self.text_search.pending = None;
    }

    /// Continues a pending search after more entries were read.
    pub(super) fn continue_seek(&mut self) -> Vec<TuiEffect> {
        let Some((way, origin)) = self.text_search.pending.take() else { return Vec::new() };
        self.prepare_frame();
        self.seek_from(way, origin)
    }

    /// Goes to the next match.
    pub(super) fn seek(&mut self, way: TextSearchDirection) -> Vec<TuiEffect> {
        let Some(detail) = &self.detail else { return Vec::new() };
        let origin = Origin {
            followed: detail.follow,
            after: detail.transcript.after,
            top: detail.page.block_at(detail.top),
            below: detail.cursor.saturating_sub(detail.top),
        };
        self.seek_from(way, origin)
    }

    fn seek_from(&mut self, way: TextSearchDirection, origin: Origin) -> Vec<TuiEffect> {
        let Some(needle) = TextSearchPattern::parse(self.text_search.words.text()) else { return Vec::new() };
        let ways = if way == TextSearchDirection::Nearest {
            &[TextSearchDirection::Nearest, TextSearchDirection::Up][..]
        } else {
            &[way][..]
        };
        for way in ways {
            if let Some(line) = self.next_match(&needle, *way) {
                return self.go_to(line);
            }
        }
        let runs = matches!(self.tab, DetailTab::Transcript | DetailTab::Timeline | DetailTab::Letters);
        let up = way != TextSearchDirection::Down;
        if let Some(detail) = self.detail.as_mut().filter(|detail| runs && !detail.reading) {
            let after = detail.transcript.after.0;
            let further = match up {
                true if after > 0 => Some(after.saturating_sub(READ_CHUNK as u64)),
                false if detail.has_newer => Some(after + READ_CHUNK as u64),
                _ => None,
            };
            if let Some(after) = further {
                // Continue from the edge of the searched part; the part to read overlaps it.
                let edge = if up { 0 } else { detail.page.total().saturating_sub(1) };
                (detail.top, detail.cursor, detail.follow) = (edge, edge, false);
                self.text_search.pending = Some((way, origin));
                return vec![detail.start_read(Seq(after), MAX_ENTRIES - READ_CHUNK)];
            }
        }
        let words = self.text_search.words.text().trim();
        let where_to = match way {
            TextSearchDirection::Nearest => format!("\"{words}\" is not in it"),
            TextSearchDirection::Down => format!("\"{words}\" is not further down; N goes up"),
            TextSearchDirection::Up => format!("\"{words}\" is not further up; n goes down"),
        };
        let mut effects = self.show_notice(Ink::Plain, where_to);
        effects.extend(self.return_to_origin(origin));
        effects
    }

    /// Returns to where the search began, if it has moved away.
    fn return_to_origin(&mut self, origin: Origin) -> Vec<TuiEffect> {
        if origin.followed {
            return self.follow_end();
        }
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.transcript.after != origin.after)
        else {
            return Vec::new();
        };
        (detail.top, detail.cursor, detail.back_to) = (0, origin.below, origin.top);
        vec![detail.start_read(origin.after, MAX_ENTRIES - READ_CHUNK)]
    }

    /// Returns the line of the next match, and unfolds its block.
    fn next_match(&mut self, needle: &TextSearchPattern, way: TextSearchDirection) -> Option<usize> {
        let cursor = self.detail.as_ref()?.cursor;
        let first = self.detail.as_ref()?.page.part_at(cursor)?;
        let mut part = first;
        loop {
            // The part of the cursor's own block above it is not folded.
            if way != TextSearchDirection::Up || part != first {
                self.unfold(part, needle);
            }
            let detail = self.detail.as_ref()?;
            let (_, start, lines) = detail.page.part_lines(part)?;
            let mut rows = needle.find_in_lines(lines).into_iter().map(|(row, ..)| start + row);
            let found = match way {
                TextSearchDirection::Nearest => rows.find(|row| *row >= cursor),
                TextSearchDirection::Down => rows.find(|row| *row > cursor),
                TextSearchDirection::Up => rows.rfind(|row| *row < cursor || part != first),
            };
            if found.is_some() {
                return found;
            }
            part = if way == TextSearchDirection::Up { part.checked_sub(1)? } else { part + 1 };
        }
    }

    fn unfold(&mut self, part: usize, needle: &TextSearchPattern) {
        let Some(detail) = self.detail.as_mut().filter(|_| self.tab == DetailTab::Transcript) else { return };
        let Some((seq, ..)) = detail.page.part_lines(part) else { return };
        let hides = |kind: &ItemKind| kind.is_foldable() && needle.occurs_in(&item_text(kind));
        let blocks = &detail.transcript.items;
        let at = blocks.partition_point(|block| block.seq < seq);
        let folded = blocks.range(at..).take_while(|block| block.seq == seq).any(|block| hides(&block.kind));
        if folded && detail.unfolded.insert(seq) {
            detail.follow = false;
            self.prepare_frame();
        }
    }

    /// Moves the cursor to a line, with some context visible.
    fn go_to(&mut self, line: usize) -> Vec<TuiEffect> {
        let height = self.text_height();
        if let Some(detail) = &mut self.detail {
            (detail.cursor, detail.follow) = (line, false);
            if !(detail.top..detail.top + height).contains(&line) {
                detail.top = line.saturating_sub(height / 3);
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
#[path = "text_search_tests.rs"]
mod tests;
