//! Tables: columns aligned, cells wrapped where there is no room, and where there is no room for that either, a row a
//! paragraph.

use pulldown_cmark::{Alignment, Event, Tag};

use super::ink::{FAINT, Span, Style};
use super::wrap::wrapped;
use super::{Source, inlines};
use crate::view::words::width;

/// No column is narrower than this.
const LEAST: usize = 5;

type Cell = Vec<Span>;

pub(super) struct Table {
    alignments: Vec<Alignment>,
    head: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// The table whose beginning was just read.
    pub(super) fn read(events: &mut Source<'_>, alignments: Vec<Alignment>) -> Table {
        let mut table = Table { alignments, head: Vec::new(), rows: Vec::new() };
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::TableHead) => table.head = cells(events, Style::new().bold()),
                Event::Start(Tag::TableRow) => table.rows.push(cells(events, Style::new())),
                _ => break,
            }
        }
        table
    }

    /// Its lines in so many columns.
    pub(super) fn lines(&self, room: usize) -> Vec<Vec<Span>> {
        let natural: Vec<usize> = (0..self.head.len())
            .map(|column| {
                self.all().filter_map(|row| row.get(column)).map(|cell| wide(cell)).max().unwrap_or(0).max(1)
            })
            .collect();
        match widths(&natural, room) {
            Some(widths) => self.grid(&widths),
            None => self.paragraphs(room),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Vec<Cell>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    fn grid(&self, widths: &[usize]) -> Vec<Vec<Span>> {
        let mut lines = self.row(&self.head, widths);
        let rule: Vec<String> = widths.iter().map(|wide| "─".repeat(*wide)).collect();
        lines.push(vec![Span::new(FAINT, rule.join("─┼─"))]);
        for row in &self.rows {
            lines.extend(self.row(row, widths));
        }
        lines
    }

    fn row(&self, row: &[Cell], widths: &[usize]) -> Vec<Vec<Span>> {
        let empty = Vec::new();
        let cells: Vec<Vec<Vec<Span>>> = widths
            .iter()
            .enumerate()
            .map(|(column, wide)| wrapped(row.get(column).unwrap_or(&empty), *wide))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        let mut lines = Vec::with_capacity(height);
        for at in 0..height {
            let mut line = Vec::new();
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    line.push(Span::new(FAINT, " │ "));
                }
                let piece = cell.get(at).cloned().unwrap_or_default();
                let gap = widths[column].saturating_sub(wide(&piece));
                let left = match self.alignments.get(column) {
                    Some(Alignment::Right) => gap,
                    Some(Alignment::Center) => gap / 2,
                    _ => 0,
                };
                line.push(Span::new(Style::new(), " ".repeat(left)));
                line.extend(piece);
                line.push(Span::new(Style::new(), " ".repeat(gap - left)));
            }
            lines.push(line);
        }
        lines
    }

    /// Each cell in a line, with the name of its column.
    fn paragraphs(&self, room: usize) -> Vec<Vec<Span>> {
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                lines.push(Vec::new());
            }
            for (column, cell) in row.iter().enumerate() {
                let mut spans: Vec<Span> = self.head.get(column).cloned().unwrap_or_default();
                spans.push(Span::new(FAINT, ": "));
                spans.extend(cell.iter().cloned());
                lines.extend(wrapped(&spans, room));
            }
        }
        lines
    }
}

fn cells(events: &mut Source<'_>, style: Style) -> Vec<Cell> {
    let mut cells = Vec::new();
    while let Some(Event::Start(Tag::TableCell)) = events.next() {
        let mut cell = Vec::new();
        inlines(events, style, &mut cell);
        cells.push(cell);
    }
    cells
}

fn wide(cell: &[Span]) -> usize {
    cell.iter().map(|span| width(&span.text)).sum()
}

/// How wide each column is, if all can be wide enough: narrow ones have what they need, wide ones share the rest.
fn widths(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let between = 3 * natural.len().saturating_sub(1);
    let room = room.checked_sub(between)?;
    if natural.iter().sum::<usize>() <= room {
        return Some(natural.to_vec());
    }
    // The most that a column may have, so that all together fit.
    let taken = |most: usize| natural.iter().map(|wide| (*wide).min(most)).sum::<usize>();
    let most = (LEAST..room).rev().find(|most| taken(*most) <= room)?;
    let mut widths: Vec<usize> = natural.iter().map(|wide| (*wide).min(most)).collect();
    let mut left = room - widths.iter().sum::<usize>();
    for (wide, natural) in widths.iter_mut().zip(natural) {
        let more = usize::from(left > 0 && *wide < *natural);
        *wide += more;
        left -= more;
    }
    Some(widths)
}
