//! Draws the screen: a function of the visible part of the model.

mod detail;
mod list;
mod prompt;

use std::time::Duration;

use longhaul::task::TaskState;
use longhaul::transcript::Activity;
use longhaul::{Status, TaskId};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget as _};

use super::graphemes::{grapheme_width, truncate_graphemes, wrap_graphemes};
use super::help;
use super::layout::{MIN_SIZE, ScreenAreas};
use super::model::{Focus, Pane, TuiModel};
use super::tree::TuiGroup;
use crate::view::text_format::{format_duration, format_short_count, format_time_left};
use crate::view::{Ink, one_line, status_label};

pub(crate) use detail::tab_at;

/// Returns how many lines of the list are built.
#[cfg(test)]
pub(crate) fn list_lines(model: &TuiModel, area: Rect) -> usize {
    list::visible_lines(model, area).len()
}

/// Draws the whole screen.
pub(crate) fn draw(model: &TuiModel, frame: &mut Frame<'_>) {
    let area = frame.area();
    let Some(areas) = model.areas().filter(|_| (area.width, area.height) == model.size) else {
        return too_small(model, frame);
    };
    let buffer = frame.buffer_mut();
    draw_borders(model, &areas, buffer);
    if areas.list.width > 0 {
        if model.tasks.is_empty() {
            // Without a team there is nothing beside it, either.
            let whole = Rect { width: buffer.area.width, ..areas.list };
            draw_empty_list(model, if model.team.is_none() { whole } else { areas.list }, buffer);
        } else {
            list::draw_list(model, areas.list, buffer);
        }
    }
    if areas.text.width > 0 {
        detail::draw_detail(model, &areas, buffer);
    }
    draw_footer(model, areas.footer, buffer);
    let cursor = prompt::draw(model, &areas, buffer);
    if model.help.is_some() {
        help_page(model, area, buffer);
    } else if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

fn too_small(model: &TuiModel, frame: &mut Frame<'_>) {
    let area = frame.area();
    let text = format!(
        "This terminal is too small: {}×{}. The screen needs {}×{}; q leaves.",
        area.width, area.height, MIN_SIZE.0, MIN_SIZE.1
    );
    for (row, line) in (0..area.height).zip(wrap_graphemes(&text, usize::from(area.width.max(1)))) {
        frame.buffer_mut().set_stringn(
            0,
            row,
            line,
            usize::from(area.width),
            model.theme.ink(Ink::Attention),
        );
    }
}

/// Draws the lines between the panes, with their titles.
fn draw_borders(model: &TuiModel, areas: &ScreenAreas, buffer: &mut Buffer) {
    let faint = model.theme.ink(Ink::Faint);
    let (whole, bottom) = (buffer.area.width, areas.prompt.y - 1);
    for row in [0, bottom] {
        buffer.set_stringn(0, row, "─".repeat(usize::from(whole)), usize::from(whole), faint);
    }
    if areas.two_panes && !(model.tasks.is_empty() && model.team.is_none()) {
        let x = areas.list.right();
        buffer.set_string(x, 0, "┬", faint);
        buffer.set_string(x, bottom, "┴", faint);
        for y in 1..bottom {
            buffer.set_string(x, y, "│", faint);
        }
    }
    if areas.list.width > 0 {
        let mut title = vec![Span::styled(" Tasks ", model.theme.title(model.focus == Focus::List))];
        let search = model.list_search.text();
        if model.focus == Focus::Search || !search.is_empty() {
            let room = usize::from(areas.list.width).saturating_sub(14);
            title.push(Span::styled(
                format!("/{} ", truncate_graphemes(search, room)),
                model.theme.ink(Ink::Attention),
            ));
        }
        buffer.set_line(2, 0, &Line::from(title), areas.list.width.saturating_sub(3));
    }
    if areas.text.width > 0 {
        let style = model.theme.title(matches!(model.focus, Focus::Detail | Focus::Find));
        let room = areas.text.width.saturating_sub(3);
        let title = match model.selected_task() {
            Some(state) => vec![
                Span::styled(format!(" {} ", one_line(state.agent.as_str())), style),
                Span::styled(format!("{} ", state.id), model.theme.ink(Ink::Id)),
            ],
            None if model.team.is_some() => vec![Span::styled(" New run ", style)],
            None => vec![],
        };
        buffer.set_line(areas.text.x + 1, 0, &Line::from(title), room);
    }
}

/// Draws how to begin, if there are no tasks.
fn draw_empty_list(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    if !model.loaded {
        return;
    }
    let strong = |text: &'static str| (Ink::Id, text);
    let plain = |text: &'static str| (Ink::Plain, text);
    let mut lines = vec![plain("There are no tasks yet."), plain("")];
    if model.team.is_some() {
        lines.push(plain("Type what the team is to do, and Enter."));
    } else {
        lines.extend([
            plain("In another terminal, try:"),
            strong("  longhaul demo"),
            plain("a scripted team, without any key; or"),
            strong("  longhaul run team.yaml \"…\""),
            plain("a team of your own:"),
            strong("  longhaul init"),
            plain("writes a starter team file."),
        ]);
    }
    for (row, (ink, line)) in (0..area.height).zip(lines) {
        let room = usize::from(area.width.saturating_sub(2));
        buffer.set_stringn(
            area.x + 1,
            area.y + row,
            truncate_graphemes(line, room),
            room,
            model.theme.ink(ink),
        );
    }
}

/// Returns a short label for a task.
fn task_label(model: &TuiModel, id: TaskId) -> String {
    match model.tasks.get(&id) {
        Some(state) => format!("{} {id}", one_line(state.agent.as_str())),
        None => id.to_string(),
    }
}

/// Draws the footer: the totals, or a notice.
fn draw_footer(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let theme = model.theme;
    let room = usize::from(area.width.saturating_sub(2));
    if let Some(notice) = &model.notice {
        buffer.set_stringn(
            area.x + 1,
            area.y,
            truncate_graphemes(&notice.text, room),
            room,
            theme.ink(notice.ink),
        );
        return;
    }
    let mut counts = [0; 4];
    let (mut tokens, mut cost, mut unpriced) = (0u64, 0u64, 0u64);
    for state in model.tasks.values() {
        counts[match TuiGroup::for_task(state, model.now) {
            TuiGroup::NeedsYou | TuiGroup::Pinned => 0,
            TuiGroup::Working => 1,
            TuiGroup::Waiting => 2,
            TuiGroup::Finished => 3,
        }] += 1;
        tokens = tokens.saturating_add(state.usage.total());
        cost = cost.saturating_add(state.cost);
        unpriced += u64::from(state.unpriced);
    }
    let words = [
        (counts[0], "needs you", if counts[0] > 0 { Ink::Attention } else { Ink::Faint }),
        (counts[1], "working", if counts[1] > 0 { Ink::Busy } else { Ink::Faint }),
        (counts[2], "waiting", Ink::Faint),
        (counts[3], "finished", Ink::Faint),
    ];
    // On a narrow screen, glyphs replace words.
    let tight = area.width < 70;
    let mut spans = Vec::new();
    let mut used = 0;
    for ((many, word, ink), sign) in words.into_iter().zip(["?", "●", "◌", "✓"]) {
        let text = if tight { format!("{sign} {many}") } else { format!("{many} {word}") };
        let text = format!("{}{text}", if spans.is_empty() { "" } else { " · " });
        used += grapheme_width(&text);
        spans.push(Span::styled(text, theme.ink(ink)));
    }
    // The longest list of keys that fits, and then the usage totals.
    let keys = KEYS.into_iter().find(|keys| used + grapheme_width(keys) + 2 <= room).unwrap_or_default();
    let cost = match cost_label(cost, unpriced).as_str() {
        "?" => "cost unknown".to_owned(),
        cost => cost.to_owned(),
    };
    let took = [format!("{} tokens", format_short_count(tokens)), cost];
    for text in took.iter().filter(|text| !text.is_empty()) {
        let text = format!(" · {text}");
        if used + grapheme_width(&text) + grapheme_width(keys) + 2 <= room {
            used += grapheme_width(&text);
            spans.push(Span::styled(text, theme.ink(Ink::Faint)));
        }
    }
    buffer.set_line(area.x + 1, area.y, &Line::from(spans), area.width - 2);
    let x = area.right() - 1 - grapheme_width(keys) as u16;
    buffer.set_stringn(x, area.y, keys, grapheme_width(keys), theme.ink(Ink::Faint));
}

/// The keys in the footer, from the longest form to the shortest.
const KEYS: [&str; 4] = [
    "Enter open · m write · s stop · / search · ? help · q leave",
    "m write · s stop · / search · ? help",
    "/ search · ? help",
    "? help",
];

fn help_page(model: &TuiModel, area: Rect, buffer: &mut Buffer) {
    let lines = help::lines(model.theme);
    let columns = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let rows = (lines.len() as u16 + 2).min(area.height);
    let columns = columns.min(area.width);
    let page = Rect::new((area.width - columns) / 2, (area.height - rows) / 2, columns, rows);
    Clear.render(page, buffer);
    let faint = model.theme.ink(Ink::Faint);
    let rule = "─".repeat(usize::from(columns - 2));
    let top = model.help.unwrap_or(0).min(lines.len().saturating_sub(usize::from(rows - 2)));
    let last = top + usize::from(rows - 2) >= lines.len();
    buffer.set_string(page.x, page.y, format!("╭{rule}╮"), faint);
    buffer.set_string(page.x, page.bottom() - 1, format!("╰{rule}╯"), faint);
    buffer.set_string(page.x + 2, page.y, " Keys ", model.theme.title(true));
    let end = if last { " any key closes " } else { " ↓ more " };
    buffer.set_stringn(page.x + 2, page.bottom() - 1, end, usize::from(columns.saturating_sub(4)), faint);
    for (row, line) in (page.y + 1..page.bottom() - 1).zip(lines.iter().skip(top)) {
        buffer.set_string(page.x, row, "│", faint);
        buffer.set_string(page.right() - 1, row, "│", faint);
        buffer.set_line(page.x + 2, row, line, columns - 4);
    }
    for row in page.y + 1..page.bottom() - 1 {
        buffer.set_string(page.x, row, "│", faint);
        buffer.set_string(page.right() - 1, row, "│", faint);
    }
}

/// Formats the known cost: empty if nothing was paid, `?` if unknown, with `+` if part of it is unknown.
fn cost_label(cost: u64, unpriced: u64) -> String {
    match (cost, unpriced) {
        (0, 1..) => "?".to_owned(),
        (cost, 0) => dollars(cost),
        (cost, _) => format!("{}+", dollars(cost)),
    }
}

/// Formats millionths of a dollar.
fn dollars(cost: u64) -> String {
    match cost {
        0 => String::new(),
        cost if cost < 10_000 => format!("${:.4}", cost as f64 / 1e6),
        cost => format!("${:.2}", cost as f64 / 1e6),
    }
}

/// Describes what a task does now, within this many columns, and its ink. The silence is always shown,
/// however long the command is.
fn task_activity(state: &TaskState, model: &TuiModel, columns: usize) -> (Ink, String) {
    let (ink, what, mut silent) = does(state, model);
    if grapheme_width(&what) + grapheme_width(&silent) > columns {
        silent = silent.replace("silent for", "silent");
    }
    let what = truncate_graphemes(&what, columns.saturating_sub(grapheme_width(&silent)));
    (ink, truncate_graphemes(&format!("{what}{silent}"), columns))
}

/// Describes what a task does now, and how long it has been silent.
fn does(state: &TaskState, model: &TuiModel) -> (Ink, String, String) {
    let activity = Activity::from_state(state, &model.calls.summaries(state).join(", "), model.now);
    let (mut words, tone) = activity.words(state.status);
    let mut ink = Ink::from(tone);
    // The list has a sign of its own for calls.
    if let Activity::Calling(what) = &activity {
        words.clone_from(what);
    }
    match &activity {
        Activity::Asking(what) => {
            let until = state.asked.first().and_then(|asked| asked.until);
            if let Some(left) = until.map(|until| format_time_left(until, model.now)) {
                words = format!("asks: {left}: {what}");
            }
        }
        Activity::Interrupted => words.push_str(": r resumes it"),
        Activity::Waiting(_) => ink = Ink::Faint,
        Activity::Idle if state.status.is_final() => words = status_label(state).1.to_owned(),
        Activity::Idle | Activity::Calling(_) | Activity::Stopping(_) if state.status == Status::Running => {
            let silent = Duration::try_from(model.now.duration_since(state.active)).unwrap_or_default();
            if silent.as_secs() >= 30 {
                return (Ink::Attention, words, format!(" · silent for {}", format_duration(silent)));
            }
            if !matches!(activity, Activity::Stopping(_)) {
                ink = Ink::Busy;
            }
        }
        _ => {}
    }
    (ink, words, String::new())
}

fn focused(model: &TuiModel, pane: Pane) -> bool {
    matches!(
        (model.focus, pane),
        (Focus::List | Focus::Search, Pane::List) | (Focus::Detail | Focus::Find, Pane::Detail)
    )
}
