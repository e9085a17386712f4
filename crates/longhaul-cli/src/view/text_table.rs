//! A table that fits the terminal: drops the least important columns first, and truncates one column.

use super::text_format::{align_left, align_right, display_width, truncate};
use super::{Ink, TerminalOutput};

/// A column.
pub(crate) struct TableColumn {
    title: &'static str,
    right: bool,
    /// Columns with a higher rank are dropped sooner; 0 is never dropped.
    rank: u8,
    /// If set, the column is truncated to this minimum before others are dropped.
    least: Option<usize>,
    /// The width worth dropping less important columns for.
    wish: usize,
}

impl TableColumn {
    /// Creates a text column.
    pub(crate) const fn text(title: &'static str, rank: u8) -> TableColumn {
        TableColumn { title, right: false, rank, least: None, wish: 0 }
    }

    /// Creates a number column.
    pub(crate) const fn number(title: &'static str, rank: u8) -> TableColumn {
        TableColumn { title, right: true, rank, least: None, wish: 0 }
    }

    /// Creates the column that is truncated.
    pub(crate) const fn elastic(title: &'static str, least: usize) -> TableColumn {
        TableColumn { title, right: false, rank: 0, least: Some(least), wish: least }
    }

    /// Sets a width that is worth dropping columns of a rank above 1.
    pub(crate) const fn prefer_width(mut self, wish: usize) -> TableColumn {
        self.wish = wish;
        self
    }
}

/// A cell: its text, its ink, and a prefix in another ink.
pub(crate) struct TableCell {
    branch: String,
    text: String,
    ink: Ink,
}

impl TableCell {
    pub(crate) fn new(ink: Ink, text: impl Into<String>) -> TableCell {
        TableCell { branch: String::new(), text: text.into(), ink }
    }

    /// Creates a cell with a tree branch before it.
    pub(crate) fn with_branch(branch: String, ink: Ink, text: impl Into<String>) -> TableCell {
        TableCell { branch, text: text.into(), ink }
    }

    fn width(&self) -> usize {
        display_width(&self.branch) + display_width(&self.text)
    }
}

/// Returns the lines of the table.
pub(crate) fn format_table(
    columns: &[TableColumn],
    rows: &[Vec<TableCell>],
    term: TerminalOutput,
    room: usize,
) -> Vec<String> {
    let natural: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            rows.iter().map(|row| row[i].width()).max().unwrap_or(0).max(display_width(column.title))
        })
        .collect();
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let needed = |kept: &[usize], least: fn(&TableColumn) -> usize| {
        let least = |i: &usize| match columns[*i].least {
            Some(_) => least(&columns[*i]).min(natural[*i]),
            None => natural[*i],
        };
        kept.iter().map(least).sum::<usize>() + 2 * kept.len().saturating_sub(1)
    };
    let mut go = |above: u8, least: fn(&TableColumn) -> usize| {
        while needed(&kept, least) > room {
            let goes = kept.iter().copied().filter(|i| columns[*i].rank > above);
            let Some(goes) = goes.max_by_key(|i| columns[*i].rank) else { break };
            kept.retain(|i| *i != goes);
        }
    };
    go(1, |column| column.wish);
    go(0, |column| column.least.unwrap_or(0));
    let mut wide = natural.clone();
    if let Some(elastic) = kept.iter().copied().find(|i| columns[*i].least.is_some()) {
        let others: usize = kept.iter().filter(|i| **i != elastic).map(|i| natural[*i]).sum();
        let left_over = room.saturating_sub(others + 2 * kept.len().saturating_sub(1));
        wide[elastic] = natural[elastic].min(left_over.max(1));
    }
    let last = kept.last().copied();
    let title = |i: &usize| {
        let column = &columns[*i];
        let text = if column.right {
            align_right(column.title, wide[*i])
        } else {
            align_left(column.title, wide[*i])
        };
        term.paint(Ink::Faint, if Some(*i) == last { text.trim_end() } else { &text })
    };
    let mut lines = vec![kept.iter().map(title).collect::<Vec<_>>().join("  ")];
    for row in rows {
        let cells = kept.iter().map(|i| {
            let (cell, wide) = (&row[*i], wide[*i]);
            let room = wide.saturating_sub(display_width(&cell.branch));
            let text = truncate(&cell.text, room);
            let gap = " ".repeat(room.saturating_sub(display_width(&text)));
            let painted = term.paint(cell.ink, &text);
            let branch = term.paint(Ink::Faint, &cell.branch);
            match columns[*i].right {
                true => format!("{gap}{branch}{painted}"),
                false if Some(*i) == last => format!("{branch}{painted}"),
                false => format!("{branch}{painted}{gap}"),
            }
        });
        lines.push(cells.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 4] = [
        TableColumn::text("task", 0),
        TableColumn::elastic("what", 6),
        TableColumn::number("tokens", 1),
        TableColumn::text("age", 2),
    ];

    fn drawn(room: usize) -> Vec<String> {
        let cell = |text: &str| TableCell::new(Ink::Plain, text);
        let row = vec![cell("t-1"), cell("a long story of many words"), cell("1,234"), cell("3 min ago")];
        format_table(
            &COLUMNS,
            &[row],
            TerminalOutput { stream: Default::default(), color: false, live: false },
            room,
        )
    }

    #[test]
    fn a_table_that_fits_shows_all() {
        assert_eq!(drawn(80)[1], "t-1   a long story of many words   1,234  3 min ago");
    }

    #[test]
    fn where_there_is_no_room_the_least_goes_first() {
        assert_eq!(drawn(40)[1], "t-1   a long story o…   1,234  3 min ago");
        assert_eq!(drawn(25)[1], "t-1   a long sto…   1,234");
        assert_eq!(drawn(15)[1], "t-1   a long s…");
        for room in 14..90 {
            assert!(drawn(room).iter().all(|line| display_width(line) <= room), "{room}");
        }
    }
}
