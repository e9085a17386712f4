//! The key help, shown by `?`.

use ratatui::text::{Line, Span};

use super::theme::Theme;
use crate::view::Ink;

const KEYS: [(&str, &str); 28] = [
    ("↑ ↓", "move"),
    ("← →", "fold, unfold"),
    ("Enter", "open; unfold a call"),
    ("Esc", "back"),
    ("Tab", "next pane"),
    ("1 … 6", "tab"),
    ("/", "search tasks, or the text"),
    ("n N", "next, previous in the text"),
    ("g", "groups on, off"),
    ("p", "pin a tree"),
    ("f", "follow the end"),
    ("", ""),
    ("m", "write to the task"),
    ("y n a", "yes, no, always …"),
    ("r", "resume, or continue"),
    ("R", "retry what failed"),
    ("s", "stop the task (asks)"),
    ("S", "stop all (asks)"),
    ("N", "new run (tui TEAM)"),
    ("q", "leave; tasks go on"),
    ("Ctrl-Z", "to the shell; fg: back"),
    ("", ""),
    ("● ◌ ○", "runs, waits, queued"),
    ("? ◇", "asks, interrupted"),
    ("✓ ✗ ⊘", "done, failed, stopped"),
    ("▸ +3", "3 tasks folded below"),
    ("› » ~", "asked, letter, thought"),
    ("mouse", "click, wheel"),
];

/// Returns the lines of the help.
pub(crate) fn lines(theme: Theme) -> Vec<Line<'static>> {
    let line = |(keys, what): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{keys:<9}"), theme.ink(Ink::Id)), Span::raw(*what)])
    };
    KEYS.iter().map(line).collect()
}
