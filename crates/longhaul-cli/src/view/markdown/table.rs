//! Renders tables: aligned columns with wrapped cells, or one paragraph per row if even those do not fit.

use pulldown_cmark::{Alignment, Event, Tag};

use super::span::{FAINT, MarkdownSpan, Style};
use super::span_wrap::wrap_spans;
use super::{MarkdownParser, inlines};
use crate::view::text_format::display_width;

/// The minimum width of a column.
const LEAST: usize = 5;

type MarkdownCell = Vec<MarkdownSpan>;

pub(super) struct MarkdownTable {
    alignments: Vec<Alignment>,
    head: Vec<MarkdownCell>,
    rows: Vec<Vec<MarkdownCell>>,
}

impl MarkdownTable {
    /// Parses the table whose start was just read.
    pub(super) fn parse(events: &mut MarkdownParser<'_>, alignments: Vec<Alignment>) -> MarkdownTable {
        let mut table = MarkdownTable { alignments, head: Vec::new(), rows: Vec::new() };
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::TableHead) => table.head = cells(events, Style::new().bold()),
                Event::Start(Tag::TableRow) => table.rows.push(cells(events, Style::new())),
                _ => break,
            }
        }
        table
    }

    /// Returns its lines in this many columns.
    pub(super) fn lines(&self, room: usize) -> Vec<Vec<MarkdownSpan>> {
        let natural: Vec<usize> = (0..self.head.len())
            .map(|column| {
                self.all()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell_width(cell))
                    .max()
                    .unwrap_or(0)
                    .max(1)
            })
            .collect();
        match widths(&natural, room) {
            Some(widths) => self.grid(&widths),
            None => self.paragraphs(room),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Vec<MarkdownCell>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    fn grid(&self, widths: &[usize]) -> Vec<Vec<MarkdownSpan>> {
        let mut lines = self.row(&self.head, widths);
        let rule: Vec<String> = widths.iter().map(|wide| "─".repeat(*wide)).collect();
        lines.push(vec![MarkdownSpan::new(FAINT, rule.join("─┼─"))]);
        for row in &self.rows {
            lines.extend(self.row(row, widths));
        }
        lines
    }

    fn row(&self, row: &[MarkdownCell], widths: &[usize]) -> Vec<Vec<MarkdownSpan>> {
        let empty = Vec::new();
        let cells: Vec<Vec<Vec<MarkdownSpan>>> = widths
            .iter()
            .enumerate()
            .map(|(column, wide)| wrap_spans(row.get(column).unwrap_or(&empty), *wide))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        let mut lines = Vec::with_capacity(height);
        for at in 0..height {
            let mut line = Vec::new();
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    line.push(MarkdownSpan::new(FAINT, " │ "));
                }
                let piece = cell.get(at).cloned().unwrap_or_default();
                let gap = widths[column].saturating_sub(cell_width(&piece));
                let left = match self.alignments.get(column) {
                    Some(Alignment::Right) => gap,
                    Some(Alignment::Center) => gap / 2,
                    _ => 0,
                };
                line.push(MarkdownSpan::new(Style::new(), " ".repeat(left)));
                line.extend(piece);
                line.push(MarkdownSpan::new(Style::new(), " ".repeat(gap - left)));
            }
            lines.push(line);
        }
        lines
    }

    /// Renders each cell as a line with the name of its column.
    fn paragraphs(&self, room: usize) -> Vec<Vec<MarkdownSpan>> {
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                lines.push(Vec::new());
            }
            for (column, cell) in row.iter().enumerate() {
                let mut spans: Vec<MarkdownSpan> = self.head.get(column).cloned().unwrap_or_default();
                spans.push(MarkdownSpan::new(FAINT, ": "));
                spans.extend(cell.iter().cloned());
                lines.extend(wrap_spans(&spans, room));
            }
        }
        lines
    }
}

fn cells(events: &mut MarkdownParser<'_>, style: Style) -> Vec<MarkdownCell> {
    let mut cells = Vec::new();
    while let Some(Event::Start(Tag::TableCell)) = events.next() {
        let mut cell = Vec::new();
        inlines(events, style, &mut cell);
        cells.push(cell);
    }
    cells
}

fn cell_width(cell: &[MarkdownSpan]) -> usize {
    cell.iter().map(|span| display_width(&span.text)).sum()
}

/// Returns the width of each column, if all fit: narrow columns get what they need, wide ones share the rest.
fn widths(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let between = 3 * natural.len().saturating_sub(1);
    let room = room.checked_sub(between)?;
    if natural.iter().sum::<usize>() <= room {
        return Some(natural.to_vec());
    }
    // Find the largest limit with which all columns fit.
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
