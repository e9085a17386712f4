//! What keys do: which of them means what, where.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::find::Way;
use super::help;
use super::model::{Confirm, Effect, Focus, Model, Pane, Tab};
use crate::view::Ink;

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
            if self.focus == Focus::Prompt && !self.draft().text().is_empty() {
                self.drafts.retain(|purpose, _| Some(*purpose) != self.purpose);
                return Vec::new();
            }
            return self.quit();
        }
        self.notice = None;
        self.stop_seeking();
        match self.focus {
            Focus::Prompt => self.prompt_key(key),
            Focus::Search | Focus::Find => self.search_key(key),
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
            Focus::Find => {
                self.find.words.insert(&crate::view::one_line(text));
                Vec::new()
            }
            _ => {
                self.write(None);
                if let Some(purpose) = self.purpose().filter(|_| self.focus == Focus::Prompt) {
                    self.drafts.entry(purpose).or_default().insert(text);
                }
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
            KeyCode::Char('/') if detail => self.begin_find(),
            KeyCode::Char('n') if detail && self.finds() => self.seek(Way::Down),
            KeyCode::Char('N') if detail && self.finds() => self.seek(Way::Up),
            KeyCode::Char('/') => {
                (self.focus, self.pane) = (Focus::Search, Pane::List);
                self.sought_from = self.selected;
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
            KeyCode::Char('a') => self.answer("always exact"),
            KeyCode::Char('A') => self.answer_in_words(),
            KeyCode::Char('r') => self.resume(),
            KeyCode::Char('R') => self.retry(),
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
        if self.focus == Focus::Detail && self.finds() {
            return self.end_find();
        }
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
    pub(super) fn pane(&mut self, by: isize) -> Vec<Effect> {
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
}
