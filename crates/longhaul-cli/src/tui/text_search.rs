//! Finding words in the open task, as in a pager: `/`, `n`, `N`. What is folded is searched, too, and so is what has not
//! been read yet.

use longhaul::id::Seq;
use ratatui::text::Line;
use unicode_width::UnicodeWidthChar as _;

use super::model::{DetailTab, Focus, MAX_ENTRIES, READ_CHUNK, TuiEffect, TuiModel};
use super::text_input::TextInput;
use super::transcript::TranscriptBlockKind;
use crate::view::Ink;

/// What is searched for in the open task.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextSearch {
    pub(crate) words: TextInput,
    /// What was searched for before.
    before: String,
    /// The search goes on when more has been read: where to, and where it began.
    pending: Option<(TextSearchDirection, Origin)>,
}

/// Where a search began. Where it finds nothing, that is in sight again.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// The end was followed.
    followed: bool,
    /// The entry before the stretch that was read.
    after: Seq,
    /// The first line in sight, and how far below it the cursor was.
    top: Option<(Seq, usize)>,
    below: usize,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSearchDirection {
    /// At the cursor or below it; otherwise above it.
    Nearest,
    Down,
    Up,
}

/// Words as they are compared: in any case, unless one is large; and whatever is between them.
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

    /// Where in these lines it is: line, first column, columns. What goes on in the next line is in both.
    pub(crate) fn find_in_lines(&self, lines: &[Line<'_>]) -> Vec<(usize, u16, u16)> {
        let mut hay: Vec<char> = Vec::new();
        let mut places: Vec<(usize, u16, u16)> = Vec::new();
        for (row, line) in lines.iter().enumerate() {
            let mut column = 0;
            let mut blank = true;
            for c in line.spans.iter().flat_map(|span| span.content.chars()) {
                let wide = c.width().unwrap_or(0) as u16;
                // Of what is between words one space is left, and between lines, too.
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

impl TranscriptBlockKind {
    /// Whether these words are in it, folded or not.
    fn contains(&self, needle: &TextSearchPattern) -> bool {
        match self {
            TranscriptBlockKind::Call { told, arguments, result, .. } => {
                let result = result.as_ref().is_some_and(|got| needle.occurs_in(&got.text));
                result || needle.occurs_in(told) || needle.occurs_in(arguments)
            }
            TranscriptBlockKind::Thought { text, .. } | TranscriptBlockKind::Letter { text, .. } => {
                needle.occurs_in(text)
            }
            _ => false,
        }
    }
}

impl TuiModel {
    /// Whether words of the open task are marked.
    pub(crate) fn has_text_search(&self) -> bool {
        !self.text_search.words.text().trim().is_empty()
    }

    /// Keys go to the words to be found.
    pub(super) fn begin_text_search(&mut self) -> Vec<TuiEffect> {
        let before = self.text_search.words.take();
        if !before.trim().is_empty() {
            self.text_search.before = before;
        }
        self.focus = Focus::Find;
        Vec::new()
    }

    /// They are complete.
    pub(super) fn submit_text_search(&mut self) -> Vec<TuiEffect> {
        self.focus = Focus::Detail;
        if !self.has_text_search() {
            let before = self.text_search.before.clone();
            self.text_search.words.set(before);
        }
        self.seek(TextSearchDirection::Nearest)
    }

    /// Nothing is searched for any more.
    pub(super) fn end_text_search(&mut self) -> Vec<TuiEffect> {
        let before = self.text_search.words.take();
        self.text_search = TextSearch { before, ..TextSearch::default() };
        Vec::new()
    }

    /// What is begun is not gone on with.
    pub(super) fn cancel_seek(&mut self) {
        self.text_search.pending = None;
    }

    /// More was read: a search that waits for it goes on.
    pub(super) fn continue_seek(&mut self) -> Vec<TuiEffect> {
        let Some((way, origin)) = self.text_search.pending.take() else { return Vec::new() };
        self.prepare_frame();
        self.seek_from(way, origin)
    }

    /// Goes to where the words are next.
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
                // From the edge of what was searched; the stretch that is read holds some of it.
                let edge = if up { 0 } else { detail.page.total().saturating_sub(1) };
                (detail.top, detail.cursor, detail.follow, detail.reading) = (edge, edge, false, true);
                let task = detail.task;
                self.text_search.pending = Some((way, origin));
                return vec![TuiEffect::ReadJournal {
                    task,
                    after: Seq(after),
                    limit: MAX_ENTRIES - READ_CHUNK,
                    order: false,
                }];
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

    /// Goes back to where the search began, if it has led away from there.
    fn return_to_origin(&mut self, origin: Origin) -> Vec<TuiEffect> {
        if origin.followed {
            return self.follow_end();
        }
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.transcript.after != origin.after)
        else {
            return Vec::new();
        };
        (detail.top, detail.cursor, detail.reading) = (0, origin.below, true);
        detail.back_to = origin.top;
        vec![TuiEffect::ReadJournal {
            task: detail.task,
            after: origin.after,
            limit: MAX_ENTRIES - READ_CHUNK,
            order: false,
        }]
    }

    /// The line with the next match; what it is folded in is unfolded.
    fn next_match(&mut self, needle: &TextSearchPattern, way: TextSearchDirection) -> Option<usize> {
        let cursor = self.detail.as_ref()?.cursor;
        let first = self.detail.as_ref()?.page.part_at(cursor)?;
        let mut part = first;
        loop {
            // (What is above the cursor in its own part is not folded.)
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
        let hides = |what: &TranscriptBlockKind| what.is_foldable() && what.contains(needle);
        let blocks = &detail.transcript.blocks;
        let at = blocks.partition_point(|block| block.seq < seq);
        let folded = blocks.range(at..).take_while(|block| block.seq == seq).any(|block| hides(&block.kind));
        if folded && detail.unfolded.insert(seq) {
            detail.follow = false;
            self.prepare_frame();
        }
    }

    /// Points at a line, with some of what is around it in sight.
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
