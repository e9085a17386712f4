//! The layout of the screen.

use ratatui::layout::Rect;

use super::model::Pane;

/// The minimum screen size.
pub(crate) const MIN_SIZE: (u16, u16) = (40, 12);
/// The minimum width for two panes.
const TWO_PANES: u16 = 72;

/// The areas of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenAreas {
    /// Whether both panes are shown.
    pub(crate) two_panes: bool,
    /// The list of tasks.
    pub(crate) list: Rect,
    /// The selected task: its tabs, status, text and question.
    pub(crate) tabs: Rect,
    pub(crate) status: Rect,
    pub(crate) text: Rect,
    pub(crate) question: Rect,
    /// The rows of the prompt.
    pub(crate) prompt: Rect,
    /// The last line.
    pub(crate) footer: Rect,
}

/// Returns how many rows the prompt may have on a screen of this height.
pub(crate) fn most_typed(height: u16) -> u16 {
    (height / 4).clamp(1, 6)
}

/// Computes the areas for a screen of this size, with this many rows for the question and the prompt. Returns
/// `None` if the screen is too small.
pub(crate) fn screen_areas(size: (u16, u16), pane: Pane, asks: u16, typed: u16) -> Option<ScreenAreas> {
    let (width, height) = size;
    if width < MIN_SIZE.0 || height < MIN_SIZE.1 {
        return None;
    }
    let typed = typed.clamp(1, most_typed(height));
    // One rule above, one below, the prompt and the footer.
    let body = height - 3 - typed;
    let two_panes = width >= TWO_PANES;
    let none = Rect::new(0, 1, 0, 0);
    let (list, detail) = match (two_panes, pane) {
        (true, _) => {
            let left = (width * 45 / 100).clamp(32, 76);
            (Rect::new(0, 1, left, body), Rect::new(left + 1, 1, width - left - 1, body))
        }
        (false, Pane::List) => (Rect::new(0, 1, width, body), none),
        (false, Pane::Detail) => (none, Rect::new(0, 1, width, body)),
    };
    // The question may take at most half of it.
    let asks = asks.min(detail.height / 2);
    let row = |from: u16, rows: u16| {
        Rect::new(detail.x, (detail.y + from).min(detail.bottom()), detail.width, rows.min(detail.height))
    };
    Some(ScreenAreas {
        two_panes,
        list,
        tabs: row(0, 1),
        status: row(1, 1),
        text: row(2, detail.height.saturating_sub(2 + asks)),
        question: row(detail.height.saturating_sub(asks), asks),
        prompt: Rect::new(0, height - 1 - typed, width, typed),
        footer: Rect::new(0, height - 1, width, 1),
    })
}
