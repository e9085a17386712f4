//! Draws the first open question of a run.

use jiff::Timestamp;
use longhaul::approval::{QuestionQueue, Visibility, fit_question};
use longhaul::transcript::{LineKind, format_time_left, question_lines, sanitize};

use super::graphemes::wrap_graphemes;
use super::live_region::StyledLine;
use super::text_format::{display_width, truncate};
use super::{Ink, TerminalOutput};
use crate::data_dir::DataDir;

impl From<LineKind> for Ink {
    fn from(kind: LineKind) -> Ink {
        match kind {
            LineKind::Text => Ink::Strong,
            LineKind::Note => Ink::Attention,
            LineKind::Added => Ink::Good,
            LineKind::Removed => Ink::Bad,
            LineKind::Same => Ink::Faint,
        }
    }
}

/// Wraps the lines of a question to this many columns. Continued lines keep their indent.
pub(crate) fn wrap_question(asks: &longhaul::entry::Question, columns: usize) -> Vec<(Ink, String)> {
    let wrap = |(kind, line): (LineKind, String)| {
        let indent = (line.len() - line.trim_start().len()).min(columns / 3);
        let wrapped = wrap_graphemes(line.trim_start(), columns.saturating_sub(indent));
        wrapped.into_iter().map(move |line| (kind.into(), format!("{}{line}", " ".repeat(indent))))
    };
    question_lines(asks).into_iter().flat_map(wrap).collect()
}

/// Returns the first question as at most this many rows, and tells the queue how much of it is shown. The keys
/// are shown only once they count, so that the user can see when that is.
pub(crate) fn format_question(
    queue: &mut QuestionQueue,
    data_dir: Option<&DataDir>,
    term: TerminalOutput,
    (columns, rows): (usize, usize),
    now: Timestamp,
) -> Vec<StyledLine> {
    let Some(open) = queue.first().cloned() else { return Vec::new() };
    let room = columns.saturating_sub(4);
    let ink = |ink: Ink, text: &str| {
        let text = truncate(text, columns);
        StyledLine { width: display_width(&text), text: term.paint(ink, &text) }
    };
    let mut choices = Vec::new();
    for choice in queue.choices() {
        let line = format!("[{}] {}", choice.key, choice.text);
        // The first choice is the call that is shown above, and long.
        choices.extend(if choice.key == 'e' {
            vec![truncate(&line, room)]
        } else {
            wrap_graphemes(&line, room)
        });
    }
    if !choices.is_empty() {
        choices.splice(0..0, wrap_graphemes("always allow, in this run and all its tasks:", room));
    }
    let others =
        2 + choices.len() + usize::from(!queue.rejected().is_empty()) + usize::from(!open.is_approval());
    let show = format!("show {}", open.task);
    let show = data_dir.map_or_else(|| format!("longhaul {show}"), |data_dir| data_dir.shell_command(&show));
    let hint = |left: usize, whole: bool| -> Vec<(Ink, String)> {
        let hint = match whole {
            true => wrap_graphemes(&format!("… {left} more lines: {show}"), room),
            false => vec![format!("… {left} more lines …")],
        };
        hint.into_iter().map(|line| (Ink::Faint, line)).collect()
    };
    let (body, visibility) =
        fit_question(&wrap_question(&open.asks, room), rows.saturating_sub(others).max(1), hint);
    queue.mark_shown(if open.is_approval() { visibility } else { Visibility::Whole }, now);
    let more = if queue.len() > 1 { format!(" (1 of {})", queue.len()) } else { String::new() };
    let left = open.until.map(|until| format!(" · {}", format_time_left(until, now))).unwrap_or_default();
    let verb = if open.is_approval() { "may it call this?" } else { "asks" };
    let title = format!("? {} {}: {verb}{more}{left}", queue.agent_of(open.task), open.task);
    let mut lines = vec![ink(Ink::Attention, &title)];
    lines.extend(body.into_iter().map(|(shade, line)| ink(shade, &format!("    {line}"))));
    lines.extend(choices.iter().map(|line| ink(Ink::Attention, &format!("    {line}"))));
    if !queue.rejected().is_empty() {
        lines.push(ink(Ink::Bad, &format!("    {}", queue.rejected())));
    }
    if !open.is_approval() {
        let typed = sanitize(queue.typed()).replace('\n', " ");
        let from = typed.char_indices().rev().take(columns.saturating_sub(5)).last().map_or(0, |(at, _)| at);
        let cursor = if queue.accepts_keys(now) { "▏" } else { "" };
        lines.push(ink(Ink::Plain, &format!("  > {}{cursor}", &typed[from..])));
    }
    let [long, short] = queue.key_help(now);
    lines.push(ink(
        Ink::Faint,
        &format!("  {}", if display_width(long) + 2 <= columns { long } else { short }),
    ));
    lines
}

#[cfg(test)]
#[path = "questions_tests.rs"]
pub(crate) mod tests;
