//! Finding words in the open task, as in a pager: `/`, `n`, `N`. What is folded is searched, too, and so is what has not
//! been read yet.

use longhaul::id::Seq;
use ratatui::text::Line;
use unicode_width::UnicodeWidthChar as _;

use super::input::Input;
use super::model::{Effect, Focus, KEPT, Model, STRIDE, Tab};
use super::talk::What;
use crate::view::Ink;

/// What is searched for in the open task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Find {
    pub(crate) words: Input,
    /// What was searched for before.
    before: String,
    /// The search goes on when more has been read: where to, and where it began.
    going: Option<(Way, Origin)>,
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
pub(crate) enum Way {
    /// At the cursor or below it; otherwise above it.
    Near,
    Down,
    Up,
}

/// Words as they are compared: in any case, unless one is large; and whatever is between them.
pub(crate) struct Needle {
    chars: Vec<char>,
    exact: bool,
}

impl Needle {
    pub(crate) fn of(words: &str) -> Option<Needle> {
        let exact = words.chars().any(char::is_uppercase);
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let chars: Vec<char> = words.chars().map(|c| folded(c, exact)).collect();
        (!chars.is_empty()).then_some(Needle { chars, exact })
    }

    fn is_in(&self, text: &str) -> bool {
        let mut hay: Vec<char> = Vec::with_capacity(text.len());
        for word in text.split_whitespace() {
            hay.extend(word.chars().map(|c| folded(c, self.exact)));
            hay.push(' ');
        }
        hay.windows(self.chars.len()).any(|part| part == self.chars)
    }

    /// Where in these lines it is: line, first column, columns. What goes on in the next line is in both.
    pub(crate) fn marks(&self, lines: &[Line<'_>]) -> Vec<(usize, u16, u16)> {
        let mut hay: Vec<char> = Vec::new();
        let mut places: Vec<(usize, u16, u16)> = Vec::new();
        for (row, line) in lines.iter().enumerate() {
            let mut column = 0;
            let mut blank = true;
            for c in line.spans.iter().flat_map(|span| span.content.chars()) {
                let wide = c.width().unwrap_or(0) as u16;
                // Of what is between words one space is left, and between lines, too.
                if !(c.is_whitespace() && blank) {
                    hay.push(if c.is_whitespace() { ' ' } else { folded(c, self.exact) });
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

fn folded(c: char, exact: bool) -> char {
    if exact { c } else { c.to_lowercase().next().unwrap_or(c) }
}

impl What {
    /// Whether these words are in it, folded or not.
    fn has(&self, needle: &Needle) -> bool {
        match self {
            What::Call { told, arguments, result, .. } => {
                let result = result.as_ref().is_some_and(|got| needle.is_in(&got.text));
                result || needle.is_in(told) || needle.is_in(arguments)
            }
            What::Thought { text, .. } | What::Letter { text, .. } => needle.is_in(text),
            _ => false,
        }
    }
}

impl Model {
    /// Whether words of the open task are marked.
    pub(crate) fn finds(&self) -> bool {
        !self.find.words.text().trim().is_empty()
    }

    /// Keys go to the words to be found.
    pub(super) fn begin_find(&mut self) -> Vec<Effect> {
        let before = self.find.words.take();
        if !before.trim().is_empty() {
            self.find.before = before;
        }
        self.focus = Focus::Find;
        Vec::new()
    }

    /// They are complete.
    pub(super) fn found(&mut self) -> Vec<Effect> {
        self.focus = Focus::Detail;
        if !self.finds() {
            let before = self.find.before.clone();
            self.find.words.set(before);
        }
        self.seek(Way::Near)
    }

    /// Nothing is searched for any more.
    pub(super) fn end_find(&mut self) -> Vec<Effect> {
        let before = self.find.words.take();
        self.find = Find { before, ..Find::default() };
        Vec::new()
    }

    /// What is begun is not gone on with.
    pub(super) fn stop_seeking(&mut self) {
        self.find.going = None;
    }

    /// More was read: a search that waits for it goes on.
    pub(super) fn seek_on(&mut self) -> Vec<Effect> {
        let Some((way, origin)) = self.find.going.take() else { return Vec::new() };
        self.prepare();
        self.seek_from(way, origin)
    }

    /// Goes to where the words are next.
    pub(super) fn seek(&mut self, way: Way) -> Vec<Effect> {
        let Some(detail) = &self.detail else { return Vec::new() };
        let origin = Origin {
            followed: detail.follow,
            after: detail.talk.after,
            top: detail.page.block(detail.top),
            below: detail.cursor.saturating_sub(detail.top),
        };
        self.seek_from(way, origin)
    }

    fn seek_from(&mut self, way: Way, origin: Origin) -> Vec<Effect> {
        let Some(needle) = Needle::of(self.find.words.text()) else { return Vec::new() };
        let ways = if way == Way::Near { &[Way::Near, Way::Up][..] } else { &[way][..] };
        for way in ways {
            if let Some(line) = self.next_match(&needle, *way) {
                return self.go_to(line);
            }
        }
        let runs = matches!(self.tab, Tab::Transcript | Tab::Timeline | Tab::Letters);
        let up = way != Way::Down;
        if let Some(detail) = self.detail.as_mut().filter(|detail| runs && !detail.reading) {
            let after = detail.talk.after.0;
            let further = match up {
                true if after > 0 => Some(after.saturating_sub(STRIDE as u64)),
                false if detail.behind => Some(after + STRIDE as u64),
                _ => None,
            };
            if let Some(after) = further {
                // From the edge of what was searched; the stretch that is read holds some of it.
                let edge = if up { 0 } else { detail.page.total().saturating_sub(1) };
                (detail.top, detail.cursor, detail.follow, detail.reading) = (edge, edge, false, true);
                let task = detail.task;
                self.find.going = Some((way, origin));
                return vec![Effect::Read { task, after: Seq(after), limit: KEPT - STRIDE, order: false }];
            }
        }
        let words = self.find.words.text().trim();
        let where_to = match way {
            Way::Near => format!("\"{words}\" is not in it"),
            Way::Down => format!("\"{words}\" is not further down; N goes up"),
            Way::Up => format!("\"{words}\" is not further up; n goes down"),
        };
        let mut effects = self.say(Ink::Plain, where_to);
        effects.extend(self.go_back(origin));
        effects
    }

    /// Goes back to where the search began, if it has led away from there.
    fn go_back(&mut self, origin: Origin) -> Vec<Effect> {
        if origin.followed {
            return self.follow();
        }
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.talk.after != origin.after) else {
            return Vec::new();
        };
        (detail.top, detail.cursor, detail.reading) = (0, origin.below, true);
        detail.back_to = origin.top;
        vec![Effect::Read { task: detail.task, after: origin.after, limit: KEPT - STRIDE, order: false }]
    }

    /// The line with the next match; what it is folded in is unfolded.
    fn next_match(&mut self, needle: &Needle, way: Way) -> Option<usize> {
        let cursor = self.detail.as_ref()?.cursor;
        let first = self.detail.as_ref()?.page.part_at(cursor)?;
        let mut part = first;
        loop {
            // (What is above the cursor in its own part is not folded.)
            if way != Way::Up || part != first {
                self.unfold(part, needle);
            }
            let detail = self.detail.as_ref()?;
            let (_, start, lines) = detail.page.part(part)?;
            let mut rows = needle.marks(lines).into_iter().map(|(row, ..)| start + row);
            let found = match way {
                Way::Near => rows.find(|row| *row >= cursor),
                Way::Down => rows.find(|row| *row > cursor),
                Way::Up => rows.rfind(|row| *row < cursor || part != first),
            };
            if found.is_some() {
                return found;
            }
            part = if way == Way::Up { part.checked_sub(1)? } else { part + 1 };
        }
    }

    fn unfold(&mut self, part: usize, needle: &Needle) {
        let Some(detail) = self.detail.as_mut().filter(|_| self.tab == Tab::Transcript) else { return };
        let Some((seq, ..)) = detail.page.part(part) else { return };
        let hides = |what: &What| what.folds() && what.has(needle);
        let blocks = &detail.talk.blocks;
        let at = blocks.partition_point(|block| block.seq < seq);
        let folded = blocks.range(at..).take_while(|block| block.seq == seq).any(|block| hides(&block.what));
        if folded && detail.opened.insert(seq) {
            detail.follow = false;
            self.prepare();
        }
    }

    /// Points at a line, with some of what is around it in sight.
    fn go_to(&mut self, line: usize) -> Vec<Effect> {
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
#[path = "find_tests.rs"]
mod tests;
