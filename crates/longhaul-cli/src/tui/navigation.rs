//! Navigation: in the list, in the text, between tabs, and folding.

use longhaul::TaskId;

use super::model::{DetailTab, Focus, Pane, TuiEffect, TuiModel};
use super::tree::TuiRow;

impl TuiModel {
    pub(super) fn move_selection(&mut self, by: isize) -> Vec<TuiEffect> {
        if self.focus == Focus::Detail {
            return self.move_cursor(by);
        }
        let tasks: Vec<TaskId> = self
            .tree
            .rows
            .iter()
            .filter_map(|row| match row {
                TuiRow::Task(position) => Some(position.id),
                _ => None,
            })
            .collect();
        let at = self.selected.and_then(|id| tasks.iter().position(|task| *task == id));
        let next = match at {
            // Above the first task is the new run of the team.
            Some(0) if by < 0 && self.team.is_some() => return self.select(None),
            Some(at) => at.saturating_add_signed(by).min(tasks.len().saturating_sub(1)),
            None if by < 0 => return Vec::new(),
            None => 0,
        };
        match tasks.get(next) {
            Some(task) => self.select(Some(*task)),
            None => Vec::new(),
        }
    }

    pub(super) fn select_first_or_last(&mut self, last: bool) -> Vec<TuiEffect> {
        let mut tasks = self.tree.rows.iter().filter_map(TuiRow::task);
        let found = if last { tasks.next_back() } else { tasks.next() };
        found.map(|task| self.select(Some(task))).unwrap_or_default()
    }

    pub(super) fn page_height(&self) -> i16 {
        self.areas().map_or(10, |areas| areas.text.height.max(areas.list.height).saturating_sub(2) as i16)
    }

    pub(super) fn text_height(&self) -> usize {
        self.areas().map_or(10, |areas| usize::from(areas.text.height))
    }

    /// Moves the cursor in the text.
    pub(super) fn move_cursor(&mut self, by: isize) -> Vec<TuiEffect> {
        let height = self.text_height();
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let last = detail.page.total().saturating_sub(1);
        detail.cursor = detail.cursor.saturating_add_signed(by).min(last);
        detail.top = detail.top.clamp((detail.cursor + 1).saturating_sub(height), detail.cursor);
        detail.follow = detail.cursor == last && !detail.has_newer && by > 0;
        self.read_further(height)
    }

    pub(super) fn scroll(&mut self, by: isize) -> Vec<TuiEffect> {
        match self.focus {
            Focus::Detail => self.move_cursor(by),
            _ => {
                let mut effects = Vec::new();
                for _ in 0..by.unsigned_abs() {
                    let had = self.selected;
                    effects = self.move_selection(by.signum());
                    if self.selected == had {
                        break;
                    }
                }
                effects
            }
        }
    }

    pub(super) fn set_folded(&mut self, fold: bool) -> Vec<TuiEffect> {
        if self.focus == Focus::Detail {
            let Some(detail) = &mut self.detail else { return Vec::new() };
            if let Some((seq, _)) = detail.page.block_at(detail.cursor) {
                if fold {
                    detail.unfolded.remove(&seq)
                } else {
                    detail.unfolded.insert(seq)
                };
                detail.follow = false;
            }
            return Vec::new();
        }
        let Some(id) = self.selected else { return Vec::new() };
        let position = self.tree.rows.iter().find_map(|row| match row {
            TuiRow::Task(position) if position.id == id => Some(*position),
            _ => None,
        });
        let Some(position) = position else { return Vec::new() };
        self.tree_stale = true;
        match (fold, position.has_children, position.folded) {
            (true, true, false) => {
                self.folded.insert(id);
                Vec::new()
            }
            (true, ..) => match self.tasks.get(&id).and_then(|state| state.parent) {
                Some(parent) if self.tasks.contains_key(&parent) => self.select(Some(parent)),
                _ => Vec::new(),
            },
            (false, true, true) => {
                self.folded.remove(&id);
                Vec::new()
            }
            (false, true, false) => self.move_selection(1),
            (false, false, _) => Vec::new(),
        }
    }

    pub(super) fn toggle_block(&mut self) -> Vec<TuiEffect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let Some((seq, _)) = detail.page.block_at(detail.cursor) else { return Vec::new() };
        let block = detail.transcript.items.iter().find(|block| block.seq == seq);
        if block.is_some_and(|block| block.kind.is_foldable()) {
            if !detail.unfolded.remove(&seq) {
                detail.unfolded.insert(seq);
            }
            detail.follow = false;
        }
        Vec::new()
    }

    pub(super) fn cycle_tab(&mut self, by: isize) -> Vec<TuiEffect> {
        let at = DetailTab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.select_tab(DetailTab::ALL[(at as isize + by).rem_euclid(DetailTab::ALL.len() as isize) as usize])
    }

    pub(super) fn select_tab(&mut self, tab: DetailTab) -> Vec<TuiEffect> {
        self.tab = tab;
        if self.pane == Pane::List && self.areas().is_some_and(|areas| !areas.two_panes) {
            (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
        }
        if let Some(detail) = &mut self.detail {
            let runs = matches!(tab, DetailTab::Transcript | DetailTab::Timeline | DetailTab::Letters);
            (detail.top, detail.cursor, detail.follow) = (0, 0, runs);
        }
        Vec::new()
    }
}
