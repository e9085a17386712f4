//! The live block: one line per task, as many as fit.

use std::time::Duration;

use jiff::Timestamp;
use longhaul::Status;
use longhaul::transcript::{Activity, BoardRow, TaskBoard};

use super::live_region::StyledLine;
use super::text_format::{
    align_left, align_right, display_width, format_duration, format_price, format_short_count, pluralize,
    truncate, wrap_text,
};
use super::{Ink, TerminalOutput, status_glyph};

/// The parameters of one frame.
pub(crate) struct LiveBlockFrame<'a> {
    /// The terminal to draw on.
    pub(crate) term: TerminalOutput,
    /// Columns and rows.
    pub(crate) size: (usize, usize),
    /// The current time.
    pub(crate) now: Timestamp,
    /// The frame number, for the spinner.
    pub(crate) tick: usize,
    /// The text below the tasks.
    pub(crate) footer: &'a str,
}

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(crate) fn live_block_lines(board: &TaskBoard, frame: &LiveBlockFrame<'_>) -> Vec<StyledLine> {
    let (columns, rows) = frame.size;
    // One row is for the cursor, and some text above the block stays visible.
    let footer = wrap_text(frame.footer, columns);
    let room = rows.saturating_sub(2 + footer.lines().count()).clamp(1, 30);
    let tree = board.tree();
    let shape = LiveBlockWidths::fit_to(&tree, columns);
    let mut shown: Vec<&(Vec<bool>, &BoardRow)> = tree.iter().collect();
    let mut hidden = 0;
    if tree.len() > room {
        // Drop ended tasks first and roots last.
        let mut by_interest: Vec<usize> = (0..tree.len()).collect();
        by_interest.sort_by_key(|index| {
            let (path, row) = &tree[*index];
            (!path.is_empty(), row.status.is_final(), row.status == Status::Pending)
        });
        by_interest.truncate(room - 1);
        by_interest.sort_unstable();
        hidden = tree.len() - by_interest.len();
        shown = by_interest.into_iter().map(|index| &tree[index]).collect();
    }
    let mut lines: Vec<StyledLine> =
        shown.into_iter().map(|(path, row)| shape.format_row(path, row, frame)).collect();
    if hidden > 0 {
        let ended = tree.iter().filter(|(_, row)| row.status.is_final()).count();
        let text = truncate(
            &format!("  … and {}; {ended} of {} have ended", pluralize(hidden, "more task"), tree.len()),
            columns,
        );
        lines.push(StyledLine { width: display_width(&text), text: frame.term.paint(Ink::Faint, &text) });
    }
    lines.extend(
        footer.lines().map(|text| StyledLine {
            width: display_width(text),
            text: frame.term.paint(Ink::Attention, text),
        }),
    );
    lines
}

/// The width of each part of a line.
struct LiveBlockWidths {
    /// The tree branch, the status glyph and the id.
    stem: usize,
    agent: usize,
    headline: usize,
    doing: usize,
    elapsed: usize,
    tokens: usize,
    cost: usize,
}

impl LiveBlockWidths {
    fn fit_to(tree: &[(Vec<bool>, &BoardRow)], columns: usize) -> LiveBlockWidths {
        let stem =
            tree.iter().map(|(path, row)| 3 * path.len() + 2 + row.id.to_string().len()).max().unwrap_or(9);
        let agents = tree.iter().map(|(_, row)| display_width(&row.agent)).max().unwrap_or(0);
        let headlines = tree.iter().map(|(_, row)| display_width(&row.headline)).max().unwrap_or(0);
        let agent = agents.min(if columns < 60 { 8 } else { 16 });
        let tokens = if columns < 60 { 0 } else { 6 };
        let costs = tree.iter().any(|(_, row)| row.cost > 0 || row.unpriced > 0);
        let unknown = tree.iter().any(|(_, row)| row.unpriced > 0);
        let cost = if columns >= 60 && costs { 7 + usize::from(unknown) } else { 0 };
        let elapsed = 6;
        let gaps = 3 + usize::from(tokens > 0) + usize::from(cost > 0);
        let rest = columns.saturating_sub(stem + agent + elapsed + tokens + cost + gaps);
        let headline = match rest {
            50.. => headlines.min(rest / 2),
            30.. => headlines.min(rest * 2 / 5),
            _ => 0,
        };
        let doing = rest.saturating_sub(headline + usize::from(headline > 0));
        LiveBlockWidths { stem, agent, headline, doing, elapsed, tokens, cost }
    }

    fn format_row(&self, path: &[bool], row: &BoardRow, frame: &LiveBlockFrame<'_>) -> StyledLine {
        let term = frame.term;
        let mut branch = String::new();
        for (level, last) in path.iter().enumerate() {
            branch.push_str(match (level + 1 == path.len(), last) {
                (true, true) => "└─ ",
                (true, false) => "├─ ",
                (false, true) => "   ",
                (false, false) => "│  ",
            });
        }
        let (sign, ink) = match (row.status, &row.activity) {
            (Status::Running, Activity::Waiting(_) | Activity::WaitingForTasks(_)) => ("◌", Ink::Attention),
            (Status::Running, Activity::Asking(_)) => ("?", Ink::Attention),
            (Status::Running, _) => (SPINNER[frame.tick % SPINNER.len()], Ink::Busy),
            (status, _) => (status_glyph(status), Ink::for_status(status)),
        };
        let id = row.id.to_string();
        let gap = self.stem.saturating_sub(display_width(&branch) + 2 + id.len());
        let mut text = format!(
            "{}{} {}{} {}",
            term.paint(Ink::Faint, &branch),
            term.paint(ink, sign),
            term.paint(Ink::Id, &id),
            " ".repeat(gap),
            term.paint(Ink::Strong, &align_left(&row.agent, self.agent)),
        );
        let (doing, ink) = describe_activity(row, self.headline == 0);
        if self.headline > 0 {
            text += &format!(" {}", align_left(&row.headline, self.headline));
        }
        text += &format!(
            " {}",
            term.paint(ink, &align_left(&truncate_activity(row, &doing, self.doing), self.doing))
        );
        let time = row.started.map_or(Duration::ZERO, |started| {
            let end = row.ended.unwrap_or(frame.now);
            Duration::try_from(end.duration_since(started)).unwrap_or_default()
        });
        let time = if row.started.is_some() { format_duration(time) } else { String::new() };
        text += &format!(" {}", term.paint(Ink::Faint, &align_right(&time, self.elapsed)));
        let mut columns = self.stem + 1 + self.agent + 1 + self.doing + 1 + self.elapsed;
        if self.headline > 0 {
            columns += self.headline + 1;
        }
        if self.tokens > 0 {
            text += &format!(
                " {}",
                term.paint(Ink::Faint, &align_right(&format_short_count(row.tokens), self.tokens))
            );
            columns += self.tokens + 1;
        }
        if self.cost > 0 {
            let known = row.cost > 0 || row.unpriced > 0;
            let cost = if known { format_price(row.cost, row.unpriced) } else { String::new() };
            text += &format!(" {}", term.paint(Ink::Faint, &align_right(&cost, self.cost)));
            columns += self.cost + 1;
        }
        StyledLine { text, width: columns }
    }
}

/// Describes what a task does, and in which colour; a task without a column for its order shows that instead
/// of nothing.
fn describe_activity(row: &BoardRow, alone: bool) -> (String, Ink) {
    match row.activity {
        Activity::Idle if alone => (row.headline.clone(), Ink::Plain),
        _ => {
            let (words, tone) = row.activity.words(row.status);
            (words, tone.into())
        }
    }
}

/// Truncates the activity: streamed text keeps its end, everything else its beginning.
fn truncate_activity(row: &BoardRow, text: &str, columns: usize) -> String {
    // The status glyph already shows that it waits or asks.
    let plain = match row.activity {
        Activity::WaitingForTasks(_) | Activity::Waiting(_) => text.strip_prefix("waits "),
        Activity::Asking(_) => text.strip_prefix("asks: "),
        _ => None,
    };
    let text = plain.filter(|_| display_width(text) > columns).unwrap_or(text);
    if !matches!(row.activity, Activity::Saying(_)) || display_width(text) <= columns || columns == 0 {
        return truncate(text, columns);
    }
    let mut tail: Vec<char> = Vec::new();
    let mut used = 1;
    for c in text.chars().rev() {
        used += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if used > columns {
            break;
        }
        tail.push(c);
    }
    tail.push('…');
    tail.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::id::{Attempt, Seq};
    use longhaul::snapshot::{Event, EventKind};

    fn board(children: usize) -> TaskBoard {
        let mut board = TaskBoard::default();
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let root = "t-aaaaa".parse().unwrap();
        let mut feed = |task, ms, what| board.apply_event(&Event::new(task, Seq(1), at(ms), what));
        let submitted = |agent: &str, parent| EventKind::Submitted {
            agent: agent.into(),
            headline: "Do what has to be done".to_owned(),
            parent,
            continues: None,
        };
        for index in 0..children {
            let id = format!("t-bb{index:03}").parse().unwrap();
            feed(id, 10 + index as i64, submitted("cartographer", Some(root)));
            feed(id, 1000, EventKind::Started { attempt: Attempt(1) });
            feed(id, 2000, EventKind::Text { text: "words and words ".repeat(20) });
        }
        feed(root, 0, submitted("lead", None));
        feed(root, 500, EventKind::Started { attempt: Attempt(1) });
        board
    }

    fn drawn(children: usize, columns: usize, rows: usize) -> Vec<StyledLine> {
        let term = TerminalOutput { stream: Default::default(), color: false, live: true };
        let now = Timestamp::from_second(66).unwrap();
        live_block_lines(
            &board(children),
            &LiveBlockFrame { term, size: (columns, rows), now, tick: 0, footer: "draining" },
        )
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_its_width_is_known() {
        for columns in [40, 50, 60, 80, 120, 200] {
            for line in drawn(3, columns, 24) {
                assert_eq!(display_width(&line.text), line.width, "{}", line.text);
                assert!(line.width <= columns, "{columns}: {}", line.text);
            }
        }
    }

    #[test]
    fn the_block_is_bounded_and_says_what_it_leaves_out() {
        let lines = drawn(50, 80, 12);
        assert!(lines.len() <= 11);
        assert!(lines[0].text.contains("t-aaaaa"), "the root stays");
        assert!(lines.iter().any(|line| line.text.contains("more tasks; 0 of 51 have ended")));
    }

    #[test]
    fn an_answer_that_came_early_says_why() {
        let mut board = board(1);
        let ended = EventKind::Finished {
            status: Status::Completed,
            output: "As far as I came.".into(),
            error: None,
            cut_short: Some("the limit of 8 turns".to_owned()),
        };
        let at = Timestamp::from_millisecond(9000).unwrap();
        board.apply_event(&Event::new("t-bb000".parse().unwrap(), Seq(2), at, ended));
        let term = TerminalOutput { stream: Default::default(), color: false, live: true };
        let frame = LiveBlockFrame { term, size: (100, 24), now: at, tick: 0, footer: "" };
        let lines = live_block_lines(&board, &frame);
        assert!(lines[1].text.contains("cut short by the limit of 8 turns"), "{}", lines[1].text);
    }

    #[test]
    fn a_tree_looks_like_one() {
        let text: Vec<String> = drawn(2, 80, 24).into_iter().map(|line| line.text).collect();
        assert!(text[0].starts_with("⠋ t-aaaaa    lead"), "{}", text[0]);
        assert!(text[1].starts_with("├─ ⠋ t-bb000 cartographer"), "{}", text[1]);
        assert!(text[2].starts_with("└─ ⠋ t-bb001 cartographer"), "{}", text[2]);
    }
}
