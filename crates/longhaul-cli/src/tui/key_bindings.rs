//! Maps keys to actions, depending on the focus.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use longhaul::approval::QuestionKey;

use super::help;
use super::model::{Confirmation, DetailTab, Focus, Pane, TuiEffect, TuiModel};
use super::text_search::TextSearchDirection;
use crate::view::Ink;

impl TuiModel {
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Vec<TuiEffect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        // A terminal sends Esc followed quickly by a key as that key with Alt. Only the prompt uses Alt.
        if key.modifiers.contains(KeyModifiers::ALT) && self.focus != Focus::Prompt {
            let mut effects = self.handle_key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
            effects.extend(self.handle_key(KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key }));
            return effects;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('l') {
            return vec![TuiEffect::Redraw];
        }
        if control && key.code == KeyCode::Char('z') {
            return vec![TuiEffect::Suspend];
        }
        if let Some(confirm) = self.confirm {
            return self.confirm_key(confirm, key);
        }
        if self.help.is_some() {
            return self.help_key(key);
        }
        if control && key.code == KeyCode::Char('c') {
            // Clear the prompt first; only then leave the TUI.
            if self.focus == Focus::Prompt && !self.draft().text().is_empty() {
                self.drafts.retain(|purpose, _| Some(*purpose) != self.purpose);
                return Vec::new();
            }
            return self.quit();
        }
        self.notice = None;
        self.cancel_seek();
        match self.focus {
            Focus::Prompt => self.prompt_key(key),
            Focus::Search | Focus::Find => self.search_key(key),
            Focus::List | Focus::Detail => self.handle_command_key(key),
        }
    }

    pub(super) fn handle_paste(&mut self, text: &str) -> Vec<TuiEffect> {
        if self.confirm.is_some() || self.help.is_some() {
            return Vec::new();
        }
        match self.focus {
            Focus::Search => {
                self.list_search.insert(&crate::view::one_line(text));
                self.apply_list_search()
            }
            Focus::Find => {
                self.text_search.words.insert(&crate::view::one_line(text));
                Vec::new()
            }
            _ => {
                self.focus_prompt(None);
                if let Some(purpose) = self.current_purpose().filter(|_| self.focus == Focus::Prompt) {
                    self.drafts.entry(purpose).or_default().insert(text);
                }
                Vec::new()
            }
        }
    }

    fn confirm_key(&mut self, confirm: Confirmation, key: KeyEvent) -> Vec<TuiEffect> {
        let enter = confirm == Confirmation::Quit && matches!(key.code, KeyCode::Enter | KeyCode::Char('q'));
        match key.code {
            KeyCode::Char('y' | 'Y') => {}
            _ if enter => {}
            KeyCode::Char('d') if confirm == Confirmation::Quit => {
                self.confirm = None;
                return self.exit(true);
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.confirm = None;
                return Vec::new();
            }
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.confirm = None;
                return if confirm == Confirmation::Quit { self.exit(false) } else { Vec::new() };
            }
            _ => return Vec::new(),
        }
        self.confirm = None;
        self.apply_confirmation(confirm)
    }

    fn help_key(&mut self, key: KeyEvent) -> Vec<TuiEffect> {
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

    fn handle_command_key(&mut self, key: KeyEvent) -> Vec<TuiEffect> {
        let detail = self.focus == Focus::Detail;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('d') => self.scroll(10),
                KeyCode::Char('u') => self.scroll(-10),
                _ => Vec::new(),
            };
        }
        // While the user chooses what to allow, the keys of the choices come first.
        if self.questions.is_choosing() && self.open_question().is_some() {
            match key.code {
                KeyCode::Esc => return self.answer_question(QuestionKey::Escape),
                KeyCode::Char(c @ ('e' | 'p' | 't')) => return self.answer_question(QuestionKey::Char(c)),
                _ => {}
            }
        }
        match key.code {
            KeyCode::Char('q') => self.quit(),
            KeyCode::Char('?') => {
                self.help = Some(0);
                Vec::new()
            }
            KeyCode::Tab => self.cycle_pane(1),
            KeyCode::BackTab => self.cycle_pane(-1),
            KeyCode::Esc => self.go_back(),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.scroll(-isize::from(self.page_height())),
            KeyCode::PageDown => self.scroll(isize::from(self.page_height())),
            KeyCode::Home if detail => self.scroll_to_start(),
            KeyCode::End if detail => self.follow_end(),
            KeyCode::Home => self.select_first_or_last(false),
            KeyCode::End => self.select_first_or_last(true),
            KeyCode::Left | KeyCode::Char('h') => self.set_folded(true),
            KeyCode::Right | KeyCode::Char('l') => self.set_folded(false),
            KeyCode::Enter | KeyCode::Char(' ') if detail => self.toggle_block(),
            KeyCode::Enter => {
                if self.selected.is_none() && self.team.is_some() {
                    self.focus_prompt(None);
                } else if self.selected.is_some() {
                    (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
                }
                Vec::new()
            }
            KeyCode::Char('/') if detail => self.begin_text_search(),
            KeyCode::Char('n') if detail && self.has_text_search() => self.seek(TextSearchDirection::Down),
            KeyCode::Char('N') if detail && self.has_text_search() => self.seek(TextSearchDirection::Up),
            KeyCode::Char('/') => {
                (self.focus, self.pane) = (Focus::Search, Pane::List);
                self.sought_from = self.selected;
                Vec::new()
            }
            KeyCode::Char('m' | 'i') => {
                self.focus_prompt(None);
                Vec::new()
            }
            KeyCode::Char('s') => self.confirm_stop(),
            KeyCode::Char('S') => {
                if self.tasks.values().all(|state| state.status.is_final()) {
                    return self.show_notice(Ink::Plain, "there is nothing to stop: every task has ended");
                }
                self.confirm = Some(Confirmation::StopAll);
                Vec::new()
            }
            KeyCode::Char(c @ ('y' | 'n' | 'a')) => self.answer_question(QuestionKey::Char(c)),
            KeyCode::Char('A') => self.answer_in_words(),
            KeyCode::Char('r') => self.resume_selected(),
            KeyCode::Char('R') => self.retry(),
            KeyCode::Char('p') => self.toggle_pin(),
            KeyCode::Char('g') => {
                self.grouped = !self.grouped;
                (self.tree_stale, self.scroll_to_selected) = (true, true);
                Vec::new()
            }
            KeyCode::Char('f') => match &mut self.detail {
                Some(detail) if detail.follow => {
                    detail.follow = false;
                    Vec::new()
                }
                Some(_) => self.follow_end(),
                None => Vec::new(),
            },
            KeyCode::Char('N') if self.team.is_some() => {
                let effects = self.select(None);
                self.focus_prompt(None);
                effects
            }
            KeyCode::Char('[') => self.cycle_tab(-1),
            KeyCode::Char(']') => self.cycle_tab(1),
            KeyCode::Char(c @ '1'..='6') => self.select_tab(DetailTab::ALL[c as usize - '1' as usize]),
            _ => Vec::new(),
        }
    }

    fn quit(&mut self) -> Vec<TuiEffect> {
        if self.open_task_count() > 0 {
            self.confirm = Some(Confirmation::Quit);
            return Vec::new();
        }
        self.exit(false)
    }

    fn go_back(&mut self) -> Vec<TuiEffect> {
        if self.focus == Focus::Detail && self.has_text_search() {
            return self.end_text_search();
        }
        if self.focus == Focus::Detail {
            (self.focus, self.pane) = (Focus::List, Pane::List);
            return Vec::new();
        }
        if !self.list_search.text().is_empty() {
            self.list_search.take();
            return self.apply_list_search();
        }
        Vec::new()
    }

    /// Moves the focus to the next or previous pane.
    pub(super) fn cycle_pane(&mut self, by: isize) -> Vec<TuiEffect> {
        const ROUND: [Focus; 3] = [Focus::List, Focus::Detail, Focus::Prompt];
        let at = ROUND.iter().position(|focus| *focus == self.focus).unwrap_or(0);
        let next = (at as isize + by).rem_euclid(3) as usize;
        match ROUND[next] {
            Focus::Prompt => self.focus_prompt(None),
            focus => {
                self.focus = focus;
                self.pane = if focus == Focus::Detail { Pane::Detail } else { Pane::List };
            }
        }
        Vec::new()
    }
}
