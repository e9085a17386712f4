//! Draws the bottom of the screen: the prompt, wrapped into as many rows as fit; or a confirmation; or what
//! could be typed.

use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::task_label;
use crate::tui::actions::can_be_retried;
use crate::tui::graphemes::{grapheme_width, truncate_graphemes};
use crate::tui::layout::{ScreenAreas, most_typed};
use crate::tui::model::{Confirmation, Focus, PromptPurpose, TuiModel};
use crate::tui::text_input::{Rows, TextInput};
use crate::view::text_format::pluralize;
use crate::view::{Ink, one_line};

/// The indent of the rows below the first.
const INDENT: usize = 2;

impl TuiModel {
    /// Returns how many rows the prompt has now.
    pub(crate) fn typed_rows(&self) -> u16 {
        let rows = self.typed().map_or(1, |(before, input)| self.rows_of(&before, input).ranges.len());
        u16::try_from(rows).unwrap_or(u16::MAX).clamp(1, most_typed(self.size.1))
    }

    /// Returns the label and the input that has the focus, if any.
    fn typed(&self) -> Option<(String, &TextInput)> {
        static NOTHING: std::sync::LazyLock<TextInput> = std::sync::LazyLock::new(TextInput::default);
        if self.confirm.is_some() {
            return None;
        }
        match self.focus {
            Focus::Search => Some(("/".to_owned(), &self.list_search)),
            Focus::Find => Some(("/".to_owned(), &self.text_search.words)),
            Focus::Prompt => {
                let purpose = self.current_purpose()?;
                let label = truncate_graphemes(&label(self, purpose), self.prompt_columns() / 2);
                Some((format!("{label}› "), self.drafts.get(&purpose).unwrap_or(&NOTHING)))
            }
            Focus::List | Focus::Detail => None,
        }
    }

    /// Returns the rows of the prompt.
    pub(crate) fn rows_typed(&self) -> Option<Rows> {
        self.typed().map(|(before, input)| self.rows_of(&before, input))
    }

    fn rows_of(&self, before: &str, input: &TextInput) -> Rows {
        let columns = self.prompt_columns();
        input.rows(columns.saturating_sub(grapheme_width(before)), columns.saturating_sub(INDENT))
    }

    fn prompt_columns(&self) -> usize {
        usize::from(self.size.0.saturating_sub(2))
    }
}

fn label(model: &TuiModel, purpose: PromptPurpose) -> String {
    match purpose {
        PromptPurpose::Write(id) => match model.tasks.get(&id) {
            Some(state) if state.status.is_final() => format!("continue {}", task_label(model, id)),
            _ => format!("to {}", task_label(model, id)),
        },
        PromptPurpose::Answer(id, _) => format!("answer {}", task_label(model, id)),
        PromptPurpose::Run => format!("run {}", model.team.as_deref().unwrap_or_default()),
    }
}

/// Draws the prompt, and returns the cursor position.
pub(super) fn draw(model: &TuiModel, areas: &ScreenAreas, buffer: &mut Buffer) -> Option<Position> {
    if let Some((before, input)) = model.typed() {
        return Some(typed(model, areas, buffer, before, input));
    }
    let (words, ink, keys, keys_first) = offer(model, model.prompt_columns())?;
    let (words, keys) =
        (Span::styled(words, model.theme.ink(ink)), Span::styled(keys, model.theme.ink(Ink::Strong)));
    let line = if keys_first { [keys, Span::raw("  "), words] } else { [words, Span::raw("  "), keys] };
    buffer.set_line(areas.prompt.x + 1, areas.prompt.y, &Line::from(line.to_vec()), areas.prompt.width - 2);
    None
}

fn typed(
    model: &TuiModel,
    areas: &ScreenAreas,
    buffer: &mut Buffer,
    before: String,
    input: &TextInput,
) -> Position {
    let (area, rows) = (areas.prompt, model.rows_of(&before, input));
    let style = match model.focus {
        Focus::Prompt => model.theme.title(true),
        _ => model.theme.ink(Ink::Attention),
    };
    let indent = |row: usize| if row == 0 { grapheme_width(&before) } else { INDENT };
    let shown = rows.in_sight(usize::from(area.height));
    for (y, row) in (area.y..area.bottom()).zip(shown.clone()) {
        let first =
            if row == 0 { Span::styled(before.clone(), style) } else { Span::raw(" ".repeat(INDENT)) };
        let text = Span::raw(input.row(rows.ranges[row].clone()));
        buffer.set_line(area.x + 1, y, &Line::from(vec![first, text]), area.width - 2);
    }
    // Mark at the edge that there is more above or below.
    let faint = model.theme.ink(Ink::Faint);
    if shown.start > 0 {
        buffer.set_string(area.right() - 1, area.y, "↑", faint);
    }
    if shown.end < rows.ranges.len() {
        buffer.set_string(area.right() - 1, area.bottom() - 1, "↓", faint);
    }
    let x = area.x + 1 + u16::try_from(indent(rows.row) + rows.column).unwrap_or(u16::MAX);
    Position::new(x.min(area.right() - 1), area.y + (rows.row - shown.start) as u16)
}

/// Returns the confirmation or suggestion with its ink, its keys, and whether the keys come first.
fn offer(model: &TuiModel, room: usize) -> Option<(String, Ink, String, bool)> {
    if let Some(confirm) = model.confirm {
        let (question, short, keys) = confirmation(model, confirm);
        let room = room.saturating_sub(grapheme_width(keys) + 2);
        let question =
            truncate_graphemes(if grapheme_width(&question) <= room { &question } else { &short }, room);
        return Some((question, Ink::Attention, keys.to_owned(), false));
    }
    if model.focus == Focus::Detail && model.has_text_search() {
        let keys = "n down · N up · Esc ends";
        let words = truncate_graphemes(
            &format!("/{}", model.text_search.words.text()),
            room.saturating_sub(grapheme_width(keys) + 2),
        );
        return Some((words, Ink::Attention, keys.to_owned(), false));
    }
    let purpose = model.current_purpose()?;
    let (label, draft) = (label(model, purpose), model.draft());
    let (key, what) = match (model.open_question(), purpose) {
        (Some((state, question)), _) if question.tool.is_some() => {
            let keys = "y yes · n no · a always";
            let agent = one_line(state.agent.as_str());
            let whole = format!("{} asks", task_label(model, state.id));
            let fits = grapheme_width(keys) + 2 + grapheme_width(&whole) <= room;
            (keys, if fits { whole } else { format!("{agent} asks") })
        }
        // An unsent draft and its purpose.
        _ if !draft.text().is_empty() => ("m", format!("goes on: {label}› {}", one_line(draft.text()))),
        (_, PromptPurpose::Run) => ("Enter", format!("types a prompt for {label}")),
        (_, PromptPurpose::Write(id)) => match label.strip_prefix("continue ") {
            Some(whom) if model.tasks.get(&id).is_some_and(can_be_retried) => {
                ("R", format!("retries {whom} · m continues it"))
            }
            Some(whom) => ("m", format!("continues {whom}")),
            None => ("m", format!("writes {label}")),
        },
        (_, PromptPurpose::Answer(..)) => ("m", format!("writes {label}")),
    };
    let what = truncate_graphemes(&what, room.saturating_sub(grapheme_width(key) + 2));
    Some((what, Ink::Faint, key.to_owned(), true))
}

/// Returns the confirmation text, its short form, and its keys.
fn confirmation(model: &TuiModel, confirm: Confirmation) -> (String, String, &'static str) {
    match confirm {
        Confirmation::Stop(id) => {
            let below = model.tree.totals.get(&id).map_or(0, |sum| sum.descendants);
            let below =
                if below == 0 { String::new() } else { format!(" and {} below", pluralize(below, "task")) };
            (format!("Stop {}{below}?", task_label(model, id)), format!("Stop {id}?"), "y stop · n no")
        }
        Confirmation::StopAll => {
            let open = model.tasks.values().filter(|state| !state.status.is_final()).count();
            let question = format!("Stop all {} that have not ended?", pluralize(open, "task"));
            (question, format!("Stop {open}?"), "y stop all · n no")
        }
        Confirmation::Quit => {
            let open = model.open_task_count();
            let go = if open == 1 { "goes" } else { "go" };
            let question = format!("{} {go} on without this screen.", pluralize(open, "task"));
            (question, format!("{open} {go} on"), "q leave · d drain · Esc stay")
        }
    }
}
