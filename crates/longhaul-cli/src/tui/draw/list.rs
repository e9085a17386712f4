//! Draws the list of tasks, one or two lines each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{cost_label, focused, task_activity};
use crate::tui::graphemes::{grapheme_width, truncate_graphemes};
use crate::tui::model::{Pane, TuiModel};
use crate::tui::tree::{TreePosition, TuiGroup, TuiRow};
use crate::view::text_format::format_short_count;
use crate::view::{Ink, one_line, status_label};

pub(super) fn draw_list(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let chosen = focused(model, Pane::List);
    for (row, line) in (area.y..).zip(visible_lines(model, area)) {
        buffer.set_line(area.x, row, &line.line, area.width);
        if line.selected && chosen {
            buffer.set_style(Rect::new(area.x, row, area.width, 1), model.theme.selected());
        }
    }
    if model.tree.rows.is_empty() {
        let text = format!("nothing is called \"{}\"; Esc shows all", model.list_search.text());
        let room = usize::from(area.width.saturating_sub(2));
        buffer.set_stringn(
            area.x + 1,
            area.y,
            truncate_graphemes(&text, room),
            room,
            model.theme.ink(Ink::Faint),
        );
    }
    draw_scroll_marks(model, area, buffer);
}

/// Draws marks if there is more above or below.
fn draw_scroll_marks(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let x = area.right() - 1;
    if model.list_top > 0 {
        buffer.set_string(x, area.y, "↑", model.theme.ink(Ink::Faint));
    }
    if model.list_top + usize::from(area.height) < model.tree.rows.len() {
        buffer.set_string(x, area.bottom() - 1, "↓", model.theme.ink(Ink::Faint));
    }
}

/// A line to be drawn.
pub(super) struct ListLine {
    line: Line<'static>,
    selected: bool,
}

/// Builds the visible lines only.
pub(super) fn visible_lines(model: &TuiModel, area: Rect) -> Vec<ListLine> {
    let columns = usize::from(area.width);
    let rows = model.tree.rows.iter().skip(model.list_top).take(usize::from(area.height));
    let line = |row: &TuiRow| {
        let line = match row {
            TuiRow::Gap => Line::default(),
            TuiRow::GroupTitle(group, many) => title(model, *group, *many),
            TuiRow::Task(position) => task(model, position, columns),
            TuiRow::Activity(position) => activity_line(model, position, columns),
        };
        ListLine {
            line,
            selected: matches!(row, TuiRow::Task(position) if Some(position.id) == model.selected),
        }
    };
    rows.map(line).collect()
}

fn title(model: &TuiModel, group: TuiGroup, many: usize) -> Line<'static> {
    let ink = match group {
        TuiGroup::NeedsYou => Ink::Attention,
        TuiGroup::Working => Ink::Busy,
        _ => Ink::Plain,
    };
    Line::from(vec![
        Span::styled(format!(" {}", group.title()), model.theme.ink(ink).add_modifier(Modifier::BOLD)),
        Span::styled(format!("  {many}"), model.theme.ink(Ink::Faint)),
    ])
}

/// Returns the tree branch before a task or its activity.
fn branch(position: &TreePosition, first: bool) -> String {
    let mut branch = String::new();
    for level in 0..position.depth {
        let more = level < 32 && position.open_levels & (1 << level) != 0;
        branch.push_str(match (level + 1 == position.depth, more) {
            (true, true) if first => "├─",
            (true, false) if first => "└─",
            (_, true) => "│ ",
            (_, false) => "  ",
        });
    }
    branch
}

fn task(model: &TuiModel, position: &TreePosition, columns: usize) -> Line<'static> {
    let theme = model.theme;
    let Some(state) = model.tasks.get(&position.id) else { return Line::default() };
    let sum = model.tree.totals.get(&position.id).copied().unwrap_or_default();
    let selected = model.selected == Some(position.id);
    let (mut sign, _, mut ink) = status_label(state);
    if position.folded && sum.asking_task.is_some() {
        (sign, ink) = ("?", Ink::Attention);
    }
    let fold = match (position.has_children, position.folded) {
        (false, _) if position.depth > 0 => "─ ",
        (false, _) => "  ",
        (true, true) => "▸ ",
        (true, false) => "▾ ",
    };
    // Usage on the right, as much as fits.
    let (tokens, cost) = match position.folded {
        true => (sum.tokens, cost_label(sum.cost, sum.unpriced)),
        false => (state.usage.total(), cost_label(state.cost, state.unpriced.into())),
    };
    let mut numbers = String::new();
    if columns >= 66 {
        numbers = format!("{cost:>8}");
    }
    if columns >= 50 {
        numbers =
            format!("{:>6}{numbers}", if tokens > 0 { format_short_count(tokens) } else { String::new() });
    }
    let time = crate::view::time_of(state, model.now);
    numbers = format!("{time:>6}{numbers} ");

    let stem = format!("{}{}", branch(position, true), fold);
    // Show the id: other tasks and commands refer to it.
    let name = format!("{} ", state.id);
    let room = columns
        .saturating_sub(1 + grapheme_width(&stem) + 2 + grapheme_width(&name) + grapheme_width(&numbers) + 1);
    let below = match position.folded {
        true => format!(" +{}", sum.descendants),
        false => String::new(),
    };
    let agent = truncate_graphemes(&one_line(state.agent.as_str()), (room / 2).clamp(4, 16));
    let pin = if model.pinned.contains(&position.id) { "★ " } else { "" };
    let rest = room.saturating_sub(grapheme_width(&agent) + 1 + grapheme_width(&below));
    let text = truncate_graphemes(&format!("{pin}{}", one_line(&state.headline)), rest);
    let gap =
        room.saturating_sub(grapheme_width(&agent) + 1 + grapheme_width(&text) + grapheme_width(&below));
    let strong = theme.ink(Ink::Strong);
    let plain = if state.status.is_final() && !selected { theme.ink(Ink::Faint) } else { Style::new() };
    Line::from(vec![
        Span::styled(if selected { "▌" } else { " " }, theme.ink(Ink::Id)),
        Span::styled(stem, theme.ink(Ink::Faint)),
        Span::styled(format!("{sign} "), theme.ink(ink)),
        Span::styled(name, theme.ink(Ink::Id)),
        Span::styled(agent, if state.status.is_final() && !selected { Style::new() } else { strong }),
        Span::styled(format!(" {text}"), plain),
        Span::styled(below, theme.ink(Ink::Id)),
        Span::raw(" ".repeat(gap + 1)),
        Span::styled(numbers, theme.ink(Ink::Faint)),
    ])
}

fn activity_line(model: &TuiModel, position: &TreePosition, columns: usize) -> Line<'static> {
    let Some(state) = model.tasks.get(&position.id) else { return Line::default() };
    let mut stem = branch(position, false);
    stem.push_str(if position.has_children && !position.folded { "│ " } else { "  " });
    let room = columns.saturating_sub(1 + grapheme_width(&stem) + 3);
    let (mut ink, mut text) = task_activity(state, model, room);
    let sum = model.tree.totals.get(&position.id);
    // A question below a folded task is shown here.
    if let Some(asking) = sum.and_then(|sum| sum.asking_task).filter(|id| position.folded && *id != state.id)
        && let Some(below) = model.tasks.get(&asking)
    {
        let agent = one_line(below.agent.as_str());
        (ink, text) = task_activity(below, model, room.saturating_sub(grapheme_width(&agent) + 1));
        text = format!("{agent} {text}");
    }
    Line::from(vec![
        Span::raw(" "),
        Span::styled(stem, model.theme.ink(Ink::Faint)),
        Span::styled(format!("  {}", truncate_graphemes(&text, room)), model.theme.ink(ink)),
    ])
}
