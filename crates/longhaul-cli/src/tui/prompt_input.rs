//! Handles typed text: letters, answers, prompts and searches.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Focus, PromptPurpose, TuiEffect, TuiModel};
use super::text_input::TextInput;
use crate::view::Ink;

impl TuiModel {
    pub(super) fn prompt_key(&mut self, key: KeyEvent) -> Vec<TuiEffect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let Some(purpose) = self.current_purpose() else { return Vec::new() };
        let prompt = self.drafts.entry(purpose).or_default();
        match key.code {
            // The draft stays with its purpose.
            KeyCode::Esc => self.leave_prompt(),
            KeyCode::Tab => return self.cycle_pane(1),
            KeyCode::BackTab => return self.cycle_pane(-1),
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => prompt.insert("\n"),
            KeyCode::Enter => return self.submit(),
            KeyCode::Up => self.row_or_recall(-1),
            KeyCode::Down => self.row_or_recall(1),
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

    /// Moves the cursor a row up or down; beyond the first and last row, recalls history.
    fn row_or_recall(&mut self, by: isize) {
        let rows = self.rows_typed();
        let draft = self.current_purpose().and_then(|purpose| self.drafts.get_mut(&purpose));
        if !draft.zip(rows).is_some_and(|(draft, rows)| draft.move_row(&rows, by)) {
            self.recall_history(by);
        }
    }

    pub(super) fn recall_history(&mut self, by: isize) {
        let last = self.history.len();
        let at = self.history_index.unwrap_or(last).saturating_add_signed(by).min(last);
        self.history_index = (at < last).then_some(at);
        let text = self.history.get(at).cloned().unwrap_or_default();
        if let Some(purpose) = self.current_purpose() {
            self.drafts.entry(purpose).or_default().set(text);
        }
    }

    /// Returns the draft for the purpose of the prompt.
    pub(crate) fn draft(&self) -> Cow<'_, TextInput> {
        match self.current_purpose().and_then(|purpose| self.drafts.get(&purpose)) {
            Some(draft) => Cow::Borrowed(draft),
            None => Cow::Owned(TextInput::default()),
        }
    }

    /// Handles keys of a search, in the list or in the text.
    pub(super) fn search_key(&mut self, key: KeyEvent) -> Vec<TuiEffect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let list = self.focus == Focus::Search;
        let words = if list { &mut self.list_search } else { &mut self.text_search.words };
        match key.code {
            KeyCode::Esc if list => {
                words.take();
                self.focus = Focus::List;
            }
            KeyCode::Esc => {
                self.focus = Focus::Detail;
                return self.end_text_search();
            }
            KeyCode::Enter if list && self.tree.rows.is_empty() && !words.text().is_empty() => {
                // Do not keep an empty list.
                let words = crate::view::one_line(&words.take());
                self.focus = Focus::List;
                let mut effects = self.apply_list_search();
                effects.extend(self.show_notice(Ink::Plain, format!("nothing is called \"{words}\"")));
                return effects;
            }
            KeyCode::Enter if list => self.focus = Focus::List,
            KeyCode::Enter => return self.submit_text_search(),
            KeyCode::Up if list => return self.move_selection(-1),
            KeyCode::Down if list => return self.move_selection(1),
            KeyCode::Left => words.left(),
            KeyCode::Right => words.right(),
            KeyCode::Home => words.home(),
            KeyCode::End => words.end(),
            KeyCode::Backspace => words.backspace(),
            KeyCode::Delete => words.delete(),
            KeyCode::Char('w') if control => words.cut_word(),
            KeyCode::Char('u') if control => words.cut_before(),
            KeyCode::Char(c) if !control => words.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        if list { self.apply_list_search() } else { Vec::new() }
    }

    pub(super) fn apply_list_search(&mut self) -> Vec<TuiEffect> {
        (self.tree_stale, self.scroll_to_selected) = (true, true);
        self.prepare_frame();
        if self.tree.rows.is_empty() {
            // Nothing matches: restore the selection from before the search.
            self.selected = self.sought_from.filter(|id| self.tasks.contains_key(id));
        }
        self.ensure_selection()
    }

    pub(super) fn focus_prompt(&mut self, purpose: Option<PromptPurpose>) {
        if self.selected.is_none() && self.team.is_none() {
            self.show_notice(Ink::Plain, "there is no task to write to yet");
            return;
        }
        // The purpose stays, whatever is selected meanwhile.
        if purpose.is_some() || self.focus != Focus::Prompt {
            self.purpose = purpose.or_else(|| self.current_purpose());
            self.history_index = None;
        }
        self.focus = Focus::Prompt;
    }
}
