//! Handles the mouse.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::draw::tab_at;
use super::model::{Focus, Pane, TuiEffect, TuiModel};
use super::tree::TuiRow;

/// How many lines the wheel scrolls.
const WHEEL: isize = 3;

impl TuiModel {
    pub(super) fn handle_mouse(&mut self, mouse: MouseEvent) -> Vec<TuiEffect> {
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
                    Some(tab) => self.select_tab(tab),
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
                self.focus_prompt(None);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn click(&mut self, area: Rect, at: Position) -> Vec<TuiEffect> {
        let line = self.list_top + usize::from(at.y - area.y);
        let Some((TuiRow::Task(position) | TuiRow::Activity(position), is_task)) =
            self.tree.rows.get(line).map(|row| (*row, matches!(row, TuiRow::Task(_))))
        else {
            (self.focus, self.pane) = (Focus::List, Pane::List);
            return Vec::new();
        };
        let fold = 1 + 2 * position.depth;
        if position.has_children && is_task && (fold..fold + 2).contains(&(at.x - area.x)) {
            if !self.folded.remove(&position.id) {
                self.folded.insert(position.id);
            }
            self.tree_stale = true;
            return self.select(Some(position.id));
        }
        if self.selected == Some(position.id) && self.focus == Focus::List {
            // A second click opens it.
            (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
            return Vec::new();
        }
        (self.focus, self.pane) = (Focus::List, Pane::List);
        self.select(Some(position.id))
    }

    pub(super) fn wheel(&mut self, at: Position, by: isize) -> Vec<TuiEffect> {
        let Some(areas) = self.areas() else { return Vec::new() };
        if areas.list.contains(at) {
            let most = self.tree.rows.len().saturating_sub(usize::from(areas.list.height));
            self.list_top = self.list_top.saturating_add_signed(by).min(most);
            return Vec::new();
        }
        let height = usize::from(areas.text.height);
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let most = detail.page.total().saturating_sub(height);
        detail.top = detail.top.saturating_add_signed(by).min(most);
        detail.cursor = detail.cursor.clamp(detail.top, detail.top + height.saturating_sub(1));
        detail.follow = detail.top == most && by > 0 && !detail.has_newer;
        self.read_further(height)
    }
}
