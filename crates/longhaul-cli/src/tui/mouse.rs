//! What the mouse does.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::draw::tab_at;
use super::forest::Row;
use super::model::{Effect, Focus, Model, Pane};

/// How far the wheel goes.
const WHEEL: isize = 3;

impl Model {
    pub(super) fn mouse(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        let Some(areas) = self.areas() else { return Vec::new() };
        if self.confirm.is_some() {
            return Vec::new();
        }
        if self.help.is_some() {
            if matches!(mouse.kind, MouseEventKind::Down(_)) {
                self.help = None;
            }
            return Vec::new();
        }
        let at = Position::new(mouse.column, mouse.row);
        match mouse.kind {
            MouseEventKind::ScrollUp => self.wheel(at, -WHEEL),
            MouseEventKind::ScrollDown => self.wheel(at, WHEEL),
            MouseEventKind::Down(MouseButton::Left) if areas.list.contains(at) => self.click(areas.list, at),
            MouseEventKind::Down(MouseButton::Left) if areas.tabs.contains(at) => {
                match tab_at(areas.tabs, at.x) {
                    Some(tab) => self.tab(tab),
                    None => Vec::new(),
                }
            }
            MouseEventKind::Down(MouseButton::Left) if areas.text.contains(at) => {
                (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
                if let Some(detail) = &mut self.detail {
                    detail.cursor = detail.top + usize::from(at.y - areas.text.y);
                    detail.follow = false;
                    if detail.cursor >= detail.page.total() {
                        detail.cursor = detail.page.total().saturating_sub(1);
                        return Vec::new();
                    }
                    return self.toggle_block();
                }
                Vec::new()
            }
            MouseEventKind::Down(MouseButton::Left) if areas.prompt.contains(at) => {
                self.write(None);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn click(&mut self, area: Rect, at: Position) -> Vec<Effect> {
        let line = self.top + usize::from(at.y - area.y);
        let Some((Row::Task(place) | Row::Doing(place), is_task)) =
            self.forest.rows.get(line).map(|row| (*row, matches!(row, Row::Task(_))))
        else {
            (self.focus, self.pane) = (Focus::List, Pane::List);
            return Vec::new();
        };
        let fold = 1 + 2 * place.depth;
        if place.parent && is_task && (fold..fold + 2).contains(&(at.x - area.x)) {
            if !self.folded.remove(&place.id) {
                self.folded.insert(place.id);
            }
            self.stale = true;
            return self.select(Some(place.id));
        }
        if self.selected == Some(place.id) && self.focus == Focus::List {
            // A second click opens it.
            (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
            return Vec::new();
        }
        (self.focus, self.pane) = (Focus::List, Pane::List);
        self.select(Some(place.id))
    }

    pub(super) fn wheel(&mut self, at: Position, by: isize) -> Vec<Effect> {
        let Some(areas) = self.areas() else { return Vec::new() };
        if areas.list.contains(at) {
            let most = self.forest.rows.len().saturating_sub(usize::from(areas.list.height));
            self.top = self.top.saturating_add_signed(by).min(most);
            return Vec::new();
        }
        let height = usize::from(areas.text.height);
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let most = detail.page.total().saturating_sub(height);
        detail.top = detail.top.saturating_add_signed(by).min(most);
        detail.cursor = detail.cursor.clamp(detail.top, detail.top + height.saturating_sub(1));
        detail.follow = detail.top == most && by > 0 && !detail.behind;
        self.further(height)
    }
}
