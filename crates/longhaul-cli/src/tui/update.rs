//! Updates the model: takes a message, returns effects. Does no IO.

use longhaul::TaskId;
use longhaul::entry::{Order, Record};
use longhaul::id::Seq;
use longhaul::task::TaskState;
use longhaul::transcript::Transcript;

use super::model::{
    ActionReport, Confirmation, DetailTab, Focus, INITIAL_ENTRIES, MAX_ENTRIES, MAX_TASKS, Pane,
    PromptPurpose, READ_CHUNK, TEXT_LIMITS, TuiDetail, TuiEffect, TuiMessage, TuiModel, TuiNotice,
};
use super::tree::TuiRow;
use crate::view::Ink;

/// Applies a message, and returns the effects to run.
pub(crate) fn update(model: &mut TuiModel, msg: TuiMessage) -> Vec<TuiEffect> {
    match msg {
        TuiMessage::Key(key) => model.handle_key(key),
        TuiMessage::Mouse(mouse) => model.handle_mouse(mouse),
        TuiMessage::Paste(text) => model.handle_paste(&text),
        TuiMessage::Resize(width, height) => {
            model.size = (width, height);
            (model.tree_stale, model.scroll_to_selected) = (true, true);
            model.anchor_view();
            Vec::new()
        }
        TuiMessage::Loaded(states, pinned) => model.apply_loaded(states, pinned),
        TuiMessage::TasksChanged(states) => model.apply_changed(states),
        TuiMessage::Records { task, after, limit, records, order } => {
            let mut effects = model.apply_records(task, after, limit, &records, order);
            effects.extend(model.continue_seek());
            effects
        }
        TuiMessage::Calls(calls) => {
            calls.into_iter().for_each(|(task, call, summary)| model.calls.take(task, call, summary));
            Vec::new()
        }
        TuiMessage::Questions(asked) => {
            model.reading_question = None;
            asked.into_iter().for_each(|asked| model.questions.ask(asked));
            model.forget_answered_questions()
        }
        TuiMessage::TaskGone(task) => {
            model.tasks.shift_remove(&task);
            model.tree_stale = true;
            model.prepare_frame();
            model.ensure_selection()
        }
        TuiMessage::ActionDone(ActionReport { text, select: show }) => {
            let mut effects = model.show_notice(Ink::Good, text);
            if let Some(task) = show {
                effects.extend(model.reveal_task(task));
            }
            effects
        }
        TuiMessage::ActionFailed(error) => {
            model.questions.reject_answer(&error);
            model.show_notice(Ink::Bad, error)
        }
        TuiMessage::Tick => {
            // A wait for a provider may end without a journal entry.
            model.tree_stale = true;
            Vec::new()
        }
        TuiMessage::NoticeExpired(number) => {
            if model.notice.as_ref().is_some_and(|notice| notice.number == number) {
                model.notice = None;
            }
            Vec::new()
        }
    }
}

impl TuiModel {
    /// Shows a notice for a while.
    pub(super) fn show_notice(&mut self, ink: Ink, text: impl Into<String>) -> Vec<TuiEffect> {
        self.notice_count += 1;
        let text = crate::view::one_line(&text.into());
        self.notice = Some(TuiNotice { number: self.notice_count, ink, text });
        vec![TuiEffect::ExpireNotice(self.notice_count)]
    }

    fn apply_loaded(&mut self, states: Vec<TaskState>, pinned: Vec<TaskId>) -> Vec<TuiEffect> {
        let first = !std::mem::replace(&mut self.loaded, true);
        self.tasks = states.into_iter().map(|state| (state.id, state)).collect();
        self.calls.forget_all_but(&self.tasks);
        self.tree_stale = true;
        if first {
            self.pinned = pinned.into_iter().collect();
            // Ended trees start folded.
            let open: std::collections::HashSet<TaskId> = self
                .tasks
                .values()
                .filter(|state| !state.status.is_final())
                .map(|state| state.root)
                .collect();
            let ended = |state: &&TaskState| state.parent.is_none() && !open.contains(&state.root);
            self.folded = self.tasks.values().filter(ended).map(|state| state.id).collect();
        }
        self.prepare_frame();
        let mut effects = self.ensure_selection();
        let behind = |detail: &TuiDetail| {
            self.tasks.get(&detail.task).is_some_and(|state| state.seq > detail.transcript.last)
        };
        if !first && self.detail.as_ref().is_some_and(behind) {
            effects.extend(self.read_new_entries());
        }
        effects
    }

    fn apply_changed(&mut self, states: Vec<TaskState>) -> Vec<TuiEffect> {
        let mut effects = Vec::new();
        for state in states {
            let id = state.id;
            // An older read may arrive later.
            if self.tasks.get(&id).is_some_and(|had| had.seq > state.seq) {
                continue;
            }
            let moved = self.tasks.get(&id).is_none_or(|had| had.seq != state.seq);
            self.calls.forget(&state);
            self.tasks.insert(id, state);
            if moved && self.detail.as_ref().is_some_and(|detail| detail.task == id) {
                effects.extend(self.read_new_entries());
            }
        }
        self.forget_old_trees();
        effects.extend(self.forget_answered_questions());
        self.tree_stale = true;
        if self.selected.is_none() {
            self.prepare_frame();
            effects.extend(self.ensure_selection());
        }
        effects
    }

    /// Removes questions that are no longer open, and says if someone else answered the one that is shown.
    fn forget_answered_questions(&mut self) -> Vec<TuiEffect> {
        let tasks = &self.tasks;
        let is_open = |known: &longhaul::approval::AskedQuestion| {
            let asking = tasks.get(&known.task).filter(|state| !state.status.is_final());
            asking.is_some_and(|state| state.asked.iter().any(|asked| asked.question == known.id))
        };
        match self.questions.retain(is_open) {
            true => {
                self.show_notice(Ink::Plain, "the question was answered elsewhere, or is no longer asked")
            }
            false => Vec::new(),
        }
    }

    /// Drops old ended trees if there are too many.
    fn forget_old_trees(&mut self) {
        if self.tasks.len() <= MAX_TASKS {
            return;
        }
        let open: std::collections::HashSet<TaskId> =
            self.tasks.values().filter(|state| !state.status.is_final()).map(|state| state.root).collect();
        let chosen = self.selected_task().map(|state| state.root);
        let mut over = self.tasks.len() - MAX_TASKS * 9 / 10;
        self.tasks.retain(|_, state| {
            let keep = over == 0
                || open.contains(&state.root)
                || Some(state.root) == chosen
                || self.pinned.contains(&state.root);
            over -= usize::from(!keep);
            keep
        });
        let states = &self.tasks;
        self.folded.retain(|id| states.contains_key(id));
        self.calls.forget_all_but(states);
    }

    /// Opens the selected task, and selects one if there is none.
    pub(super) fn ensure_selection(&mut self) -> Vec<TuiEffect> {
        let shown = |id: &TaskId| self.tree.line_of(*id).is_some();
        if self.tree.rows.is_empty() && self.selected_task().is_some() {
            // A search without matches does not change the selection.
            return self.open_selected();
        }
        if self.selected.is_none_or(|id| !shown(&id)) {
            // If the task is folded away, select its nearest visible ancestor.
            let mut above = self.selected_task().and_then(|state| state.parent);
            while let Some(id) = above.filter(|id| !shown(id)) {
                above = self.tasks.get(&id).and_then(|state| state.parent);
            }
            let first = || self.tree.rows.iter().find_map(TuiRow::task);
            self.selected = match (above, &self.team) {
                (Some(above), _) => Some(above),
                (None, Some(_)) if self.selected.is_none() => None,
                (None, _) => first(),
            };
            self.scroll_to_selected = true;
        }
        self.open_selected()
    }

    /// Selects a task and scrolls it into view.
    pub(super) fn reveal_task(&mut self, task: TaskId) -> Vec<TuiEffect> {
        let mut above = self.tasks.get(&task).and_then(|state| state.parent);
        while let Some(id) = above {
            self.folded.remove(&id);
            above = self.tasks.get(&id).and_then(|state| state.parent);
        }
        self.select(Some(task))
    }

    pub(super) fn select(&mut self, task: Option<TaskId>) -> Vec<TuiEffect> {
        self.selected = task;
        (self.tree_stale, self.scroll_to_selected) = (true, true);
        self.open_selected()
    }

    /// Opens the selected task, unless it is open.
    fn open_selected(&mut self) -> Vec<TuiEffect> {
        let Some(task) = self.selected else {
            self.detail = None;
            return Vec::new();
        };
        if self.detail.as_ref().is_some_and(|detail| detail.task == task) {
            return Vec::new();
        }
        let detail = TuiDetail::new(task, self.tasks.get(&task));
        let after = detail.transcript.after;
        self.detail = Some(detail);
        vec![TuiEffect::ReadJournal { task, after, limit: INITIAL_ENTRIES + READ_CHUNK, order: true }]
    }

    /// Reads new entries of the open journal.
    fn read_new_entries(&mut self) -> Vec<TuiEffect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        if detail.reading {
            detail.read_again = true;
            return Vec::new();
        }
        // Do not move the view of a user who reads further up; new entries are read when they scroll down.
        if !detail.follow && detail.transcript.entries >= MAX_ENTRIES {
            detail.has_newer = true;
            return Vec::new();
        }
        if detail.has_newer {
            return Vec::new();
        }
        vec![detail.start_read(detail.transcript.last, READ_CHUNK)]
    }

    fn apply_records(
        &mut self,
        task: TaskId,
        after: Seq,
        limit: usize,
        records: &[Record],
        order: Option<(Box<Order>, String)>,
    ) -> Vec<TuiEffect> {
        let tab = self.tab;
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.task == task) else {
            return Vec::new();
        };
        detail.reading = false;
        detail.loading = false;
        if let Some((order, team)) = order {
            (detail.order, detail.team) = (Some(*order), Some(team));
        }
        let whole = records.len() < limit;
        if after == detail.transcript.last {
            records.iter().for_each(|record| detail.transcript.apply_record(record));
            detail.has_newer = !whole && !detail.follow;
            if detail.follow && detail.transcript.entries > MAX_ENTRIES {
                // Drop half of it, so that this is rare.
                detail.transcript.truncate_to(detail.transcript.items.len() / 2);
            }
        } else {
            // Another part was read: keep the visible lines in place.
            let in_sight = detail.page.block_at(detail.top).filter(|_| tab == DetailTab::Transcript);
            detail.anchor = detail.back_to.take().or(in_sight);
            detail.transcript = Transcript::starting_after(task, after, TEXT_LIMITS).with_records(records);
            detail.has_newer = !whole;
        }
        let again = std::mem::take(&mut detail.read_again) || (detail.follow && !whole);
        if again {
            detail.has_newer &= !detail.follow;
            return self.read_new_entries();
        }
        Vec::new()
    }

    /// Reads more if the user scrolls beyond what was read.
    pub(super) fn read_further(&mut self, height: usize) -> Vec<TuiEffect> {
        if !matches!(self.tab, DetailTab::Transcript | DetailTab::Timeline | DetailTab::Letters) {
            return Vec::new();
        }
        let Some(detail) = self.detail.as_mut().filter(|detail| !detail.reading && !detail.loading) else {
            return Vec::new();
        };
        let transcript = &detail.transcript;
        let ahead = detail.top + height >= detail.page.total();
        let after = if detail.top == 0 && transcript.after.0 > 0 {
            Seq(transcript.after.0.saturating_sub(READ_CHUNK as u64))
        } else if ahead && detail.has_newer {
            Seq(transcript.after.0 + READ_CHUNK as u64)
        } else {
            return Vec::new();
        };
        // Overlap with entries that were read before, to keep the position.
        vec![detail.start_read(after, MAX_ENTRIES - READ_CHUNK)]
    }

    /// Scrolls to the end, and follows it.
    pub(super) fn follow_end(&mut self) -> Vec<TuiEffect> {
        let end = self.selected_task().map_or(Seq(0), |state| state.seq);
        let Some(detail) = &mut self.detail else { return Vec::new() };
        detail.follow = true;
        if detail.has_newer && !detail.reading {
            detail.has_newer = false;
            let after = Seq(end.0.saturating_sub(INITIAL_ENTRIES as u64));
            return vec![detail.start_read(after, INITIAL_ENTRIES + READ_CHUNK)];
        }
        Vec::new()
    }

    pub(super) fn scroll_to_start(&mut self) -> Vec<TuiEffect> {
        let Some(detail) = &mut self.detail else { return Vec::new() };
        detail.follow = false;
        (detail.top, detail.cursor) = (0, 0);
        if detail.transcript.after.0 > 0 && !detail.reading {
            return vec![detail.start_read(Seq(0), MAX_ENTRIES - READ_CHUNK)];
        }
        Vec::new()
    }

    /// Keeps the visible lines in place when the page is laid out again.
    fn anchor_view(&mut self) {
        if let Some(detail) = &mut self.detail
            && !detail.follow
        {
            detail.anchor = detail.page.block_at(detail.top).map(|(seq, _)| (seq, 0));
        }
    }

    /// Returns the purpose of the prompt in the current state.
    pub(crate) fn current_purpose(&self) -> Option<PromptPurpose> {
        if let Some(purpose) = self.purpose.filter(|_| self.focus == Focus::Prompt) {
            return Some(purpose);
        }
        let Some(selected) = self.selected else { return self.team.as_ref().map(|_| PromptPurpose::Run) };
        Some(match self.open_question() {
            Some((state, question)) if question.tool.is_none() => {
                PromptPurpose::Answer(state.id, question.question)
            }
            _ => PromptPurpose::Write(selected),
        })
    }

    /// Sends the typed text.
    pub(super) fn submit(&mut self) -> Vec<TuiEffect> {
        let Some(purpose) = self.current_purpose() else { return Vec::new() };
        let text = self.draft().text().trim().to_owned();
        if text.is_empty() {
            return Vec::new();
        }
        let effects = match purpose {
            PromptPurpose::Write(to) => vec![TuiEffect::Send { to, text: text.clone() }],
            PromptPurpose::Answer(task, question) => {
                let (given, effects) = self.answer_typed(task, question, &text);
                if !given {
                    return effects;
                }
                effects
            }
            PromptPurpose::Run => vec![TuiEffect::Run(text.clone())],
        };
        self.drafts.remove(&purpose);
        self.purpose = None;
        self.history_index = None;
        self.history.retain(|written| *written != text);
        self.history.push(text);
        if self.history.len() > 50 {
            self.history.remove(0);
        }
        self.leave_prompt();
        effects
    }

    /// Returns the focus from the prompt to where it was.
    pub(super) fn leave_prompt(&mut self) {
        self.focus = match self.pane {
            Pane::List => Focus::List,
            Pane::Detail => Focus::Detail,
        };
    }

    /// Runs the confirmed action.
    pub(super) fn apply_confirmation(&mut self, confirm: Confirmation) -> Vec<TuiEffect> {
        match confirm {
            Confirmation::Stop(task) => vec![TuiEffect::Stop(task)],
            Confirmation::StopAll => vec![TuiEffect::StopAll],
            Confirmation::Quit => self.exit(false),
        }
    }

    pub(super) fn exit(&mut self, drain: bool) -> Vec<TuiEffect> {
        self.quitting = true;
        vec![TuiEffect::Quit { drain }]
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
