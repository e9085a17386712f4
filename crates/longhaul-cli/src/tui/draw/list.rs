//! The tasks, one or two lines each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{doing, focused, money};
use crate::tui::forest::{Group, Place, Row};
use crate::tui::model::{Model, Pane};
use crate::tui::wrap::{fit, width};
use crate::view::words::short;
use crate::view::{Ink, one_line, standing};

pub(super) fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let chosen = focused(model, Pane::List);
    for (row, line) in (area.y..).zip(lines(model, area)) {
        buffer.set_line(area.x, row, &line.line, area.width);
        if line.selected && chosen {
            buffer.set_style(Rect::new(area.x, row, area.width, 1), model.theme.chosen());
        }
    }
    if model.forest.rows.is_empty() {
        let text = format!("nothing is called \"{}\"; Esc shows all", model.search.text());
        let room = usize::from(area.width.saturating_sub(2));
        buffer.set_stringn(area.x + 1, area.y, fit(&text, room), room, model.theme.ink(Ink::Faint));
    }
    marks(model, area, buffer);
}

/// Signs that there is more above or below.
fn marks(model: &Model, area: Rect, buffer: &mut Buffer) {
    let x = area.right() - 1;
    if model.top > 0 {
        buffer.set_string(x, area.y, "↑", model.theme.ink(Ink::Faint));
    }
    if model.top + usize::from(area.height) < model.forest.rows.len() {
        buffer.set_string(x, area.bottom() - 1, "↓", model.theme.ink(Ink::Faint));
    }
}

/// A line to be drawn.
pub(super) struct Drawn {
    line: Line<'static>,
    selected: bool,
}

/// The lines in sight, and no others.
pub(super) fn lines(model: &Model, area: Rect) -> Vec<Drawn> {
    let columns = usize::from(area.width);
    let rows = model.forest.rows.iter().skip(model.top).take(usize::from(area.height));
    let line = |row: &Row| {
        let line = match row {
            Row::Gap => Line::default(),
            Row::Title(group, many) => title(model, *group, *many),
            Row::Task(place) => task(model, place, columns),
            Row::Doing(place) => does(model, place, columns),
        };
        Drawn { line, selected: matches!(row, Row::Task(place) if Some(place.id) == model.selected) }
    };
    rows.map(line).collect()
}

fn title(model: &Model, group: Group, many: usize) -> Line<'static> {
    let ink = match group {
        Group::NeedsYou => Ink::Waits,
        Group::Working => Ink::Busy,
        _ => Ink::Plain,
    };
    Line::from(vec![
        Span::styled(format!(" {}", group.title()), model.theme.ink(ink).add_modifier(Modifier::BOLD)),
        Span::styled(format!("  {many}"), model.theme.ink(Ink::Faint)),
    ])
}

/// The branch before a task, or before what it does.
fn branch(place: &Place, first: bool) -> String {
    let mut branch = String::new();
    for level in 0..place.depth {
        let more = level < 32 && place.more & (1 << level) != 0;
        branch.push_str(match (level + 1 == place.depth, more) {
            (true, true) if first => "├─",
            (true, false) if first => "└─",
            (_, true) => "│ ",
            (_, false) => "  ",
        });
    }
    branch
}

fn task(model: &Model, place: &Place, columns: usize) -> Line<'static> {
    let theme = model.theme;
    let Some(head) = model.heads.get(&place.id) else { return Line::default() };
    let sum = model.forest.sums.get(&place.id).copied().unwrap_or_default();
    let selected = model.selected == Some(place.id);
    let (mut sign, _, mut ink) = standing(head);
    if place.folded && sum.asks.is_some() {
        (sign, ink) = ("?", Ink::Waits);
    }
    let fold = match (place.parent, place.folded) {
        (false, _) if place.depth > 0 => "─ ",
        (false, _) => "  ",
        (true, true) => "▸ ",
        (true, false) => "▾ ",
    };
    // On the right what it took: as much of that as there is room for.
    let (tokens, cost) = match place.folded {
        true => (sum.tokens, money(sum.cost, sum.unpriced)),
        false => (head.usage.total(), money(head.cost, head.unpriced.into())),
    };
    let mut numbers = String::new();
    if columns >= 66 {
        numbers = format!("{cost:>8}");
    }
    if columns >= 50 {
        numbers = format!("{:>6}{numbers}", if tokens > 0 { short(tokens) } else { String::new() });
    }
    let time = crate::view::time_of(head, model.now);
    numbers = format!("{time:>6}{numbers} ");

    let stem = format!("{}{}", branch(place, true), fold);
    // Others say of it by its name that they wait for it, and so do commands.
    let name = format!("{} ", head.id);
    let room = columns.saturating_sub(1 + width(&stem) + 2 + width(&name) + width(&numbers) + 1);
    let below = match place.folded {
        true => format!(" +{}", sum.below),
        false => String::new(),
    };
    let agent = fit(&one_line(head.agent.as_str()), (room / 2).clamp(4, 16));
    let pin = if model.pinned.contains(&place.id) { "★ " } else { "" };
    let rest = room.saturating_sub(width(&agent) + 1 + width(&below));
    let text = fit(&format!("{pin}{}", one_line(&head.headline)), rest);
    let gap = room.saturating_sub(width(&agent) + 1 + width(&text) + width(&below));
    let strong = theme.ink(Ink::Strong);
    let plain = if head.status.is_final() && !selected { theme.ink(Ink::Faint) } else { Style::new() };
    Line::from(vec![
        Span::styled(if selected { "▌" } else { " " }, theme.ink(Ink::Id)),
        Span::styled(stem, theme.ink(Ink::Faint)),
        Span::styled(format!("{sign} "), theme.ink(ink)),
        Span::styled(name, theme.ink(Ink::Id)),
        Span::styled(agent, if head.status.is_final() && !selected { Style::new() } else { strong }),
        Span::styled(format!(" {text}"), plain),
        Span::styled(below, theme.ink(Ink::Id)),
        Span::raw(" ".repeat(gap + 1)),
        Span::styled(numbers, theme.ink(Ink::Faint)),
    ])
}

fn does(model: &Model, place: &Place, columns: usize) -> Line<'static> {
    let Some(head) = model.heads.get(&place.id) else { return Line::default() };
    let mut stem = branch(place, false);
    stem.push_str(if place.parent && !place.folded { "│ " } else { "  " });
    let room = columns.saturating_sub(1 + width(&stem) + 3);
    let (mut ink, mut text) = doing(head, model, room);
    let sum = model.forest.sums.get(&place.id);
    // What asks below something that is folded is seen here.
    if let Some(asking) = sum.and_then(|sum| sum.asks).filter(|id| place.folded && *id != head.id)
        && let Some(below) = model.heads.get(&asking)
    {
        let agent = one_line(below.agent.as_str());
        (ink, text) = doing(below, model, room.saturating_sub(width(&agent) + 1));
        text = format!("{agent} {text}");
    }
    Line::from(vec![
        Span::raw(" "),
        Span::styled(stem, model.theme.ink(Ink::Faint)),
        Span::styled(format!("  {}", fit(&text, room)), model.theme.ink(ink)),
    ])
}
