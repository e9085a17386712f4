//! Draws the selected task: tabs, status, text and question.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::{cost_label, focused, task_activity};
use crate::tui::graphemes::{grapheme_width, truncate_graphemes, wrap_graphemes};
use crate::tui::layout::ScreenAreas;
use crate::tui::model::{DetailTab, Pane, TuiModel};
use crate::tui::text_search::TextSearchPattern;
use crate::view::text_format::format_short_count;
use crate::view::{Ink, status_label};

/// Returns the name of a tab for this width.
fn name(tab: DetailTab, columns: u16) -> &'static str {
    if columns >= 56 {
        return tab.title();
    }
    match tab {
        DetailTab::Transcript => "Chat",
        DetailTab::Output => "Out",
        DetailTab::Timeline => "Time",
        DetailTab::Usage => "Use",
        tab => tab.title(),
    }
}

/// Returns the tabs with their first and last columns.
fn tabs(area: Rect) -> impl Iterator<Item = (DetailTab, u16, u16)> {
    let mut x = area.x + 1;
    DetailTab::ALL.into_iter().map(move |tab| {
        let from = x;
        x += name(tab, area.width).len() as u16 + 2;
        (tab, from, x - 1)
    })
}

/// Returns the tab in a column.
pub(crate) fn tab_at(area: Rect, x: u16) -> Option<DetailTab> {
    tabs(area).find(|(_, from, to)| (*from..*to).contains(&x)).map(|(tab, ..)| tab)
}

pub(super) fn draw_detail(model: &TuiModel, areas: &ScreenAreas, buffer: &mut Buffer) {
    let theme = model.theme;
    let Some(state) = model.selected_task() else {
        return draw_new_run(model, areas, buffer);
    };
    for (tab, from, to) in tabs(areas.tabs) {
        let style = match tab == model.tab {
            true => {
                theme.title(focused(model, Pane::Detail)).add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
            }
            false => theme.ink(Ink::Faint),
        };
        if to <= areas.tabs.right() {
            buffer.set_string(from, areas.tabs.y, name(tab, areas.tabs.width), style);
        }
    }
    let (sign, word, ink) = status_label(state);
    let mut facts = vec![
        Span::styled(format!("{sign} {word}"), theme.ink(ink)),
        Span::raw(format!(" · {}", crate::view::time_of(state, model.now))),
        Span::styled(format!(" · {} tok", format_short_count(state.usage.total())), theme.ink(Ink::Faint)),
    ];
    let cost = cost_label(state.cost, state.unpriced.into());
    if !cost.is_empty() {
        let cost = if cost == "?" { "cost unknown".to_owned() } else { cost };
        facts.push(Span::styled(format!(" · {cost}"), theme.ink(Ink::Faint)));
    }
    if state.unread > 0 {
        facts.push(Span::styled(format!(" · {} unread", state.unread), theme.ink(Ink::Attention)));
    }
    let used: usize = facts.iter().map(|span| grapheme_width(&span.content)).sum();
    let room = usize::from(areas.status.width.saturating_sub(2)).saturating_sub(used + 3);
    if !state.status.is_final() && state.asked.is_empty() && room > 8 {
        let (_, does) = task_activity(state, model, room);
        facts.push(Span::styled(format!(" · {does}"), theme.ink(Ink::Faint)));
    }
    buffer.set_line(
        areas.status.x + 1,
        areas.status.y,
        &Line::from(facts),
        areas.status.width.saturating_sub(2),
    );
    text(model, areas.text, buffer);
    draw_question(model, areas, buffer);
}

fn text(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let Some(detail) = &model.detail else { return };
    let height = usize::from(area.height);
    let room = area.width.saturating_sub(2);
    for (index, line) in detail.page.lines(detail.top, height).enumerate() {
        let row = area.y + index as u16;
        buffer.set_line(area.x + 1, row, line, room);
        let pointed = detail.top + index == detail.cursor && focused(model, Pane::Detail);
        if pointed && !detail.follow {
            buffer.set_style(Rect::new(area.x, row, area.width, 1), model.theme.selected());
        }
    }
    draw_search_matches(model, area, buffer);
    let (faint, x) = (model.theme.ink(Ink::Faint), area.right().saturating_sub(1));
    if area.height > 0 && (detail.top > 0 || detail.transcript.after.0 > 0) {
        buffer.set_string(x, area.y, "↑", faint);
    }
    if area.height > 0 && (detail.top + height < detail.page.total() || detail.has_newer) {
        buffer.set_string(x, area.bottom() - 1, "↓", faint);
    }
}

/// Highlights the visible search matches.
fn draw_search_matches(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let Some((detail, needle)) =
        model.detail.as_ref().zip(TextSearchPattern::parse(model.text_search.words.text()))
    else {
        return;
    };
    let (top, bottom) = (detail.top, detail.top + usize::from(area.height));
    let parts = (detail.page.part_at(top).unwrap_or(0)..).map_while(|at| detail.page.part_lines(at));
    for (_, start, lines) in parts.take_while(|(_, start, _)| *start < bottom) {
        for (row, column, columns) in needle.find_in_lines(lines) {
            let line = start + row;
            if (top..bottom).contains(&line) {
                let matched = Rect::new(area.x + 1 + column, area.y + (line - top) as u16, columns, 1);
                buffer.set_style(matched.intersection(area), model.theme.search_match());
            }
        }
    }
}

/// Draws the open question, where the user sees it first.
fn draw_question(model: &TuiModel, areas: &ScreenAreas, buffer: &mut Buffer) {
    let area = areas.question;
    let Some((_, question)) = model.open_question().filter(|_| area.height >= 3) else { return };
    let theme = model.theme;
    let room = usize::from(area.width.saturating_sub(2));
    buffer.set_string(area.x, area.y, "─".repeat(usize::from(area.width)), theme.ink(Ink::Faint));
    let mut lines = model.question_lines(room);
    let most = usize::from(area.height - 1 - u16::from(areas.two_panes));
    if lines.len() > most {
        // The transcript shows all of it.
        lines.truncate(most);
        if let Some((_, last)) = lines.last_mut() {
            *last = format!("{} …", truncate_graphemes(last, room.saturating_sub(2)).trim_end_matches('…'));
        }
    }
    for (row, (ink, line)) in (area.y + 1..area.bottom()).zip(lines) {
        buffer.set_stringn(area.x + 1, row, line, room, theme.ink(ink));
    }
    if !areas.two_panes {
        return;
    }
    let keys = match question.tool.is_some() {
        true if model.has_text_search() && focused(model, Pane::Detail) => {
            "y yes · a always … · Esc, then n no"
        }
        // Until the question was there to be read, no key counts.
        true if !model.questions.accepts_keys(model.now) => "…",
        true if model.questions.is_choosing() => "y only this time · n no · Esc back",
        true => "y yes · n no · a always … · A pattern",
        false => "m answers",
    };
    buffer.set_stringn(
        area.x + 1,
        area.bottom() - 1,
        truncate_graphemes(keys, room),
        room,
        theme.ink(Ink::Strong),
    );
}

fn draw_new_run(model: &TuiModel, areas: &ScreenAreas, buffer: &mut Buffer) {
    let Some(team) = &model.team else { return };
    let area = areas.text;
    let room = usize::from(area.width.saturating_sub(2));
    let text = format!(
        "The next run of {team}.\n\nEnter, and type what the team is to do. ↓ goes to the tasks that there are, N comes back here."
    );
    for (row, line) in (area.y..area.bottom()).zip(wrap_graphemes(&text, room)) {
        buffer.set_stringn(area.x + 1, row, line, room, model.theme.ink(Ink::Plain));
    }
}
