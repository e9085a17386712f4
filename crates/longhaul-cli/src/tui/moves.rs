//! Moving about: in the list, in the text, between pages, and what is folded.

use longhaul::TaskId;

use super::forest::Row;
use super::model::{Effect, Focus, Model, Pane, Tab};

impl Model {
    pub(super) fn step(&mut self, by: isize) -> Vec<Effect> {
        if self.focus == Focus::Detail {
            return self.point(by);
        }
        let tasks: Vec<TaskId> = self
            .forest
            .rows
            .iter()
            .filter_map(|row| match row {
                Row::Task(place) => Some(place.id),
                _ => None,
            })
            .collect();
        let at = self.selected.and_then(|id| tasks.iter().position(|task| *task == id));
        let next = match at {
            // Above the first is the next run of the team.
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

    pub(super) fn ends(&mut self, last: bool) -> Vec<Effect> {
        let mut tasks = self.forest.rows.iter().filter_map(Row::task);
        let found = if last { tasks.next_back() } else { tasks.next() };
        found.map(|task| self.select(Some(task))).unwrap_or_default()
    }

    pub(super) fn page_height(&self) -> i16 {
        self.areas().map_or(10, |areas| areas.text.height.max(areas.list.height).saturating_sub(2) as i16)
    }

    pub(super) fn text_height(&self) -> usize {
        self.areas().map_or(10, |areas| usize::from(areas.text.height))
    }

    /// Moves what is pointed at in the text.
    pub(super) fn point(&mut self, by: isize) -> Vec<Effect> {
        let height = self.text_height();
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let last = detail.page.total().saturating_sub(1);
        detail.cursor = detail.cursor.saturating_add_signed(by).min(last);
        detail.top = detail.top.clamp((detail.cursor + 1).saturating_sub(height), detail.cursor);
        detail.follow = detail.cursor == last && !detail.behind && by > 0;
        self.further(height)
    }

    pub(super) fn scroll(&mut self, by: isize) -> Vec<Effect> {
        match self.focus {
            Focus::Detail => self.point(by),
            _ => {
                let mut effects = Vec::new();
                for _ in 0..by.unsigned_abs() {
                    let had = self.selected;
                    effects = self.step(by.signum());
                    if self.selected == had {
                        break;
                    }
                }
                effects
            }
        }
    }

    pub(super) fn fold(&mut self, fold: bool) -> Vec<Effect> {
        if self.focus == Focus::Detail {
            let Some(detail) = &mut self.detail else { return Vec::new() };
            if let Some((seq, _)) = detail.page.block(detail.cursor) {
                if fold {
                    detail.opened.remove(&seq)
                } else {
                    detail.opened.insert(seq)
                };
                detail.follow = false;
            }
            return Vec::new();
        }
        let Some(id) = self.selected else { return Vec::new() };
        let place = self.forest.rows.iter().find_map(|row| match row {
            Row::Task(place) if place.id == id => Some(*place),
            _ => None,
        });
        let Some(place) = place else { return Vec::new() };
        self.stale = true;
        match (fold, place.parent, place.folded) {
            (true, true, false) => {
                self.folded.insert(id);
                Vec::new()
            }
            (true, ..) => match self.heads.get(&id).and_then(|head| head.parent) {
                Some(parent) if self.heads.contains_key(&parent) => self.select(Some(parent)),
                _ => Vec::new(),
            },
            (false, true, true) => {
                self.folded.remove(&id);
                Vec::new()
            }
            (false, true, false) => self.step(1),
            (false, false, _) => Vec::new(),
        }
    }

    pub(super) fn toggle_block(&mut self) -> Vec<Effect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let Some((seq, _)) = detail.page.block(detail.cursor) else { return Vec::new() };
        let block = detail.talk.blocks.iter().find(|block| block.seq == seq);
        if block.is_some_and(|block| block.what.folds()) {
            if !detail.opened.remove(&seq) {
                detail.opened.insert(seq);
            }
            detail.follow = false;
        }
        Vec::new()
    }

    pub(super) fn turn(&mut self, by: isize) -> Vec<Effect> {
        let at = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.tab(Tab::ALL[(at as isize + by).rem_euclid(Tab::ALL.len() as isize) as usize])
    }

    pub(super) fn tab(&mut self, tab: Tab) -> Vec<Effect> {
        self.tab = tab;
        if self.pane == Pane::List && self.areas().is_some_and(|areas| !areas.both) {
            (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
        }
        if let Some(detail) = &mut self.detail {
            let runs = matches!(tab, Tab::Transcript | Tab::Timeline | Tab::Letters);
            (detail.top, detail.cursor, detail.follow) = (0, 0, runs);
        }
        Vec::new()
    }
}
