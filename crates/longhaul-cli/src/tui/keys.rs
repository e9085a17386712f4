//! What keys and the mouse do.

use crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use longhaul::TaskId;
use ratatui::layout::{Position, Rect};

use super::draw::tab_at;
use super::forest::{Row, is_interrupted};
use super::help;
use super::model::{Confirm, Effect, Focus, Model, Pane, Purpose, Tab};
use crate::view::Ink;

/// How far the wheel goes.
const WHEEL: isize = 3;

impl Model {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        // Esc and a key that comes at once are one key with Alt to a terminal. Only the prompt knows keys with Alt.
        if key.modifiers.contains(KeyModifiers::ALT) && self.focus != Focus::Prompt {
            let mut effects = self.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
            effects.extend(self.key(KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key }));
            return effects;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('l') {
            return vec![Effect::Redraw];
        }
        if control && key.code == KeyCode::Char('z') {
            return vec![Effect::Aside];
        }
        if let Some(confirm) = self.confirm {
            return self.confirm_key(confirm, key);
        }
        if self.help.is_some() {
            return self.help_key(key);
        }
        if control && key.code == KeyCode::Char('c') {
            // Of what is typed, first; then of the screen.
            if self.focus == Focus::Prompt && !self.prompt.text().is_empty() {
                self.prompt.take();
                return Vec::new();
            }
            return self.quit();
        }
        self.notice = None;
        match self.focus {
            Focus::Prompt => self.prompt_key(key),
            Focus::Search => self.search_key(key),
            Focus::List | Focus::Detail => self.command(key),
        }
    }

    pub(super) fn paste(&mut self, text: &str) -> Vec<Effect> {
        if self.confirm.is_some() || self.help.is_some() {
            return Vec::new();
        }
        match self.focus {
            Focus::Search => {
                self.search.insert(&crate::view::one_line(text));
                self.searched()
            }
            _ => {
                self.write(None);
                self.prompt.insert(text);
                Vec::new()
            }
        }
    }

    fn confirm_key(&mut self, confirm: Confirm, key: KeyEvent) -> Vec<Effect> {
        let enter = confirm == Confirm::Leave && matches!(key.code, KeyCode::Enter | KeyCode::Char('q'));
        match key.code {
            KeyCode::Char('y' | 'Y') => {}
            _ if enter => {}
            KeyCode::Char('d') if confirm == Confirm::Leave => {
                self.confirm = None;
                return self.leave(true);
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.confirm = None;
                return Vec::new();
            }
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.confirm = None;
                return if confirm == Confirm::Leave { self.leave(false) } else { Vec::new() };
            }
            _ => return Vec::new(),
        }
        self.confirm = None;
        self.confirmed(confirm)
    }

    fn help_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let most = help::lines(self.theme).len().saturating_sub(usize::from(self.size.1).saturating_sub(4));
        let at = self.help.unwrap_or(0);
        self.help = match key.code {
            KeyCode::Up | KeyCode::Char('k') => Some(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Some((at + 1).min(most)),
            KeyCode::PageUp => Some(at.saturating_sub(10)),
            KeyCode::PageDown | KeyCode::Char(' ') => Some((at + 10).min(most)),
            _ => None,
        };
        Vec::new()
    }

    fn prompt_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let prompt = &mut self.prompt;
        match key.code {
            KeyCode::Esc => {
                self.purpose = None;
                self.leave_prompt();
            }
            KeyCode::Tab => return self.pane(1),
            KeyCode::BackTab => return self.pane(-1),
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => prompt.insert("\n"),
            KeyCode::Enter => return self.submit(),
            KeyCode::Up => self.recall(-1),
            KeyCode::Down => self.recall(1),
            KeyCode::Left if control || alt => prompt.word_left(),
            KeyCode::Right if control || alt => prompt.word_right(),
            KeyCode::Left => prompt.left(),
            KeyCode::Right => prompt.right(),
            KeyCode::Home => prompt.home(),
            KeyCode::End => prompt.end(),
            KeyCode::Backspace if control || alt => prompt.cut_word(),
            KeyCode::Backspace => prompt.backspace(),
            KeyCode::Delete => prompt.delete(),
            KeyCode::Char('a') if control => prompt.home(),
            KeyCode::Char('e') if control => prompt.end(),
            KeyCode::Char('w') if control => prompt.cut_word(),
            KeyCode::Char('u') if control => prompt.cut_before(),
            KeyCode::Char('k') if control => prompt.cut_after(),
            KeyCode::Char('j') if control => prompt.insert("\n"),
            KeyCode::Char(c) if !control && !alt => prompt.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Vec::new()
    }

    fn recall(&mut self, by: isize) {
        let last = self.written.len();
        let at = self.recalled.unwrap_or(last).saturating_add_signed(by).min(last);
        self.recalled = (at < last).then_some(at);
        self.prompt.set(self.written.get(at).cloned().unwrap_or_default());
    }

    fn search_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => {
                self.search.take();
                self.focus = Focus::List;
            }
            KeyCode::Enter => self.focus = Focus::List,
            KeyCode::Up => return self.step(-1),
            KeyCode::Down => return self.step(1),
            KeyCode::Left => self.search.left(),
            KeyCode::Right => self.search.right(),
            KeyCode::Home => self.search.home(),
            KeyCode::End => self.search.end(),
            KeyCode::Backspace => self.search.backspace(),
            KeyCode::Delete => self.search.delete(),
            KeyCode::Char('w') if control => self.search.cut_word(),
            KeyCode::Char('u') if control => self.search.cut_before(),
            KeyCode::Char(c) if !control => self.search.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        self.searched()
    }

    fn searched(&mut self) -> Vec<Effect> {
        (self.stale, self.seek) = (true, true);
        self.prepare();
        self.look()
    }

    fn command(&mut self, key: KeyEvent) -> Vec<Effect> {
        let detail = self.focus == Focus::Detail;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('d') => self.scroll(10),
                KeyCode::Char('u') => self.scroll(-10),
                _ => Vec::new(),
            };
        }
        match key.code {
            KeyCode::Char('q') => self.quit(),
            KeyCode::Char('?') => {
                self.help = Some(0);
                Vec::new()
            }
            KeyCode::Tab => self.pane(1),
            KeyCode::BackTab => self.pane(-1),
            KeyCode::Esc => self.back(),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.scroll(-isize::from(self.page_height())),
            KeyCode::PageDown => self.scroll(isize::from(self.page_height())),
            KeyCode::Home if detail => self.beginning(),
            KeyCode::End if detail => self.follow(),
            KeyCode::Home => self.ends(false),
            KeyCode::End => self.ends(true),
            KeyCode::Left | KeyCode::Char('h') => self.fold(true),
            KeyCode::Right | KeyCode::Char('l') => self.fold(false),
            KeyCode::Enter | KeyCode::Char(' ') if detail => self.toggle_block(),
            KeyCode::Enter => {
                if self.selected.is_none() && self.team.is_some() {
                    self.write(None);
                } else if self.selected.is_some() {
                    (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
                }
                Vec::new()
            }
            KeyCode::Char('/') => {
                (self.focus, self.pane) = (Focus::Search, Pane::List);
                Vec::new()
            }
            KeyCode::Char('m' | 'i') => {
                self.write(None);
                Vec::new()
            }
            KeyCode::Char('s') => self.ask_stop(),
            KeyCode::Char('S') => {
                if self.heads.values().all(|head| head.status.is_final()) {
                    return self.say(Ink::Plain, "there is nothing to stop: every task has ended");
                }
                self.confirm = Some(Confirm::StopAll);
                Vec::new()
            }
            KeyCode::Char('y') => self.answer("yes"),
            KeyCode::Char('n') => self.answer("no"),
            KeyCode::Char('a') => self.answer("always"),
            KeyCode::Char('r') => self.resume(),
            KeyCode::Char('p') => self.pin(),
            KeyCode::Char('g') => {
                self.grouped = !self.grouped;
                (self.stale, self.seek) = (true, true);
                Vec::new()
            }
            KeyCode::Char('f') => match &mut self.detail {
                Some(detail) if detail.follow => {
                    detail.follow = false;
                    Vec::new()
                }
                Some(_) => self.follow(),
                None => Vec::new(),
            },
            KeyCode::Char('N') if self.team.is_some() => {
                let effects = self.select(None);
                self.write(None);
                effects
            }
            KeyCode::Char('[') => self.turn(-1),
            KeyCode::Char(']') => self.turn(1),
            KeyCode::Char(c @ '1'..='6') => self.tab(Tab::ALL[c as usize - '1' as usize]),
            _ => Vec::new(),
        }
    }

    fn quit(&mut self) -> Vec<Effect> {
        if self.open() > 0 {
            self.confirm = Some(Confirm::Leave);
            return Vec::new();
        }
        self.leave(false)
    }

    fn back(&mut self) -> Vec<Effect> {
        if self.focus == Focus::Detail {
            (self.focus, self.pane) = (Focus::List, Pane::List);
            return Vec::new();
        }
        if !self.search.text().is_empty() {
            self.search.take();
            return self.searched();
        }
        Vec::new()
    }

    /// The next pane, or the one before.
    fn pane(&mut self, by: isize) -> Vec<Effect> {
        const ROUND: [Focus; 3] = [Focus::List, Focus::Detail, Focus::Prompt];
        let at = ROUND.iter().position(|focus| *focus == self.focus).unwrap_or(0);
        let next = (at as isize + by).rem_euclid(3) as usize;
        match ROUND[next] {
            Focus::Prompt => self.write(None),
            focus => {
                self.focus = focus;
                self.pane = if focus == Focus::Detail { Pane::Detail } else { Pane::List };
            }
        }
        Vec::new()
    }

    /// Keys go to the prompt.
    fn write(&mut self, purpose: Option<Purpose>) {
        if self.selected.is_none() && self.team.is_none() {
            self.say(Ink::Plain, "there is no task to write to yet");
            return;
        }
        // Whoever writes to something writes to that, whatever is chosen meanwhile.
        self.purpose = purpose.or_else(|| {
            self.purpose = None;
            self.purpose()
        });
        self.focus = Focus::Prompt;
    }

    fn step(&mut self, by: isize) -> Vec<Effect> {
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

    fn ends(&mut self, last: bool) -> Vec<Effect> {
        let mut tasks = self.forest.rows.iter().filter_map(Row::task);
        let found = if last { tasks.next_back() } else { tasks.next() };
        found.map(|task| self.select(Some(task))).unwrap_or_default()
    }

    fn page_height(&self) -> i16 {
        self.areas().map_or(10, |areas| areas.text.height.max(areas.list.height).saturating_sub(2) as i16)
    }

    fn text_height(&self) -> usize {
        self.areas().map_or(10, |areas| usize::from(areas.text.height))
    }

    /// Moves what is pointed at in the text.
    fn point(&mut self, by: isize) -> Vec<Effect> {
        let height = self.text_height();
        let Some(detail) = &mut self.detail else { return Vec::new() };
        let last = detail.page.total().saturating_sub(1);
        detail.cursor = detail.cursor.saturating_add_signed(by).min(last);
        detail.top = detail.top.clamp((detail.cursor + 1).saturating_sub(height), detail.cursor);
        detail.follow = detail.cursor == last && !detail.behind && by > 0;
        self.further(height)
    }

    fn scroll(&mut self, by: isize) -> Vec<Effect> {
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

    fn fold(&mut self, fold: bool) -> Vec<Effect> {
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

    fn toggle_block(&mut self) -> Vec<Effect> {
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

    fn turn(&mut self, by: isize) -> Vec<Effect> {
        let at = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.tab(Tab::ALL[(at as isize + by).rem_euclid(Tab::ALL.len() as isize) as usize])
    }

    fn tab(&mut self, tab: Tab) -> Vec<Effect> {
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

    fn ask_stop(&mut self) -> Vec<Effect> {
        let Some(head) = self.head() else { return Vec::new() };
        let sum = self.forest.sums.get(&head.id);
        let open = |id: &TaskId| self.heads.get(id).is_some_and(|head| !head.status.is_final());
        if !open(&head.id) && sum.is_none_or(|sum| sum.below == 0) {
            let (id, status) = (head.id, head.status);
            return self.say(Ink::Plain, format!("{id} has ended already ({status})"));
        }
        self.confirm = Some(Confirm::Stop(head.id));
        Vec::new()
    }

    fn answer(&mut self, words: &str) -> Vec<Effect> {
        let Some((head, question)) = self.asks() else {
            return self.say(Ink::Plain, "nothing is asked here");
        };
        let (task, name) = (head.id, question.question);
        if question.tool.is_none() {
            self.write(Some(Purpose::Answer(task, name)));
            return self.say(Ink::Waits, "this wants an answer in words");
        }
        vec![Effect::Answer { task, question: name, words: words.to_owned() }]
    }

    fn resume(&mut self) -> Vec<Effect> {
        let Some(head) = self.head() else { return Vec::new() };
        let (id, root) = (head.id, head.root);
        let waits = |head: &longhaul::task::Head| head.root == root && is_interrupted(head);
        let pending = head.status == longhaul::Status::Pending;
        let running =
            |head: &longhaul::task::Head| head.root == root && head.status == longhaul::Status::Running;
        if (pending || self.heads.values().any(waits)) && !self.heads.values().any(running) {
            return vec![Effect::Resume(root)];
        }
        if head.status.is_final() {
            self.write(Some(Purpose::Write(id)));
            return Vec::new();
        }
        self.say(Ink::Plain, format!("{id} is being worked on: `m` writes to it"))
    }

    fn pin(&mut self) -> Vec<Effect> {
        let Some(root) =
            self.head().map(|head| if self.heads.contains_key(&head.root) { head.root } else { head.id })
        else {
            return Vec::new();
        };
        if !self.pinned.shift_remove(&root) {
            self.pinned.insert(root);
        }
        (self.stale, self.seek) = (true, true);
        vec![Effect::Pin(self.pinned.iter().copied().collect())]
    }

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

    fn click(&mut self, area: Rect, at: Position) -> Vec<Effect> {
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

    fn wheel(&mut self, at: Position, by: isize) -> Vec<Effect> {
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
