//! Actions on the selected task: answer, stop, resume, retry, pin.

use jiff::Timestamp;
use longhaul::approval::{Ignored, QuestionKey, QuestionQueue, Reaction};
use longhaul::id::QuestionId;
use longhaul::task::TaskState;
use longhaul::{Status, TaskId};

use super::model::{Confirmation, DetailTab, Focus, Pane, PromptPurpose, TuiEffect, TuiModel};
use super::tree::is_interrupted;
use crate::view::Ink;

pub(crate) fn can_be_retried(state: &TaskState) -> bool {
    matches!(state.status, Status::Failed | Status::Cancelled)
}

impl TuiModel {
    pub(super) fn confirm_stop(&mut self) -> Vec<TuiEffect> {
        let Some(state) = self.selected_task() else { return Vec::new() };
        let sum = self.tree.totals.get(&state.id);
        let open = |id: &TaskId| self.tasks.get(id).is_some_and(|state| !state.status.is_final());
        if !open(&state.id) && sum.is_none_or(|sum| sum.descendants == 0) {
            let (id, status) = (state.id, state.status);
            return self.show_notice(Ink::Plain, format!("{id} has ended already ({status})"));
        }
        self.confirm = Some(Confirmation::Stop(state.id));
        Vec::new()
    }

    /// Passes a key to the open question: `y`, `n`, `a`, or the key of a choice.
    pub(super) fn answer_question(&mut self, key: QuestionKey) -> Vec<TuiEffect> {
        let Some((state, question)) = self.open_question() else {
            return self.show_notice(Ink::Plain, "nothing is asked here");
        };
        let (task, name) = (state.id, question.question);
        if question.tool.is_none() {
            self.focus_prompt(Some(PromptPurpose::Answer(task, name)));
            return self.show_notice(Ink::Attention, "this question needs a typed answer");
        }
        // Anything can be denied, also what was not read yet.
        if key == QuestionKey::Char('n') && !self.questions.contains(task, name) {
            return vec![TuiEffect::Answer { task, question: name, words: "no".to_owned() }];
        }
        self.pass_to_question(task, |questions, now| questions.handle_key(key, now)).1
    }

    /// Sends the typed answer to a question. Returns whether it counts: if not, it can be sent again.
    pub(super) fn answer_typed(
        &mut self,
        task: TaskId,
        question: QuestionId,
        text: &str,
    ) -> (bool, Vec<TuiEffect>) {
        let shown = |model: &TuiModel| {
            model.open_question().map(|(state, open)| (state.id, open.question)) == Some((task, question))
        };
        let mut effects = if shown(self) { Vec::new() } else { self.reveal_task(task) };
        if !shown(self) {
            let notice = "the question was answered elsewhere, or is no longer asked";
            effects.extend(self.show_notice(Ink::Attention, notice));
            return (false, effects);
        }
        let (given, more) =
            self.pass_to_question(task, |questions, now| questions.answer_in_words(text, now));
        effects.extend(more);
        (given, effects)
    }

    /// Lets the state machine of the questions decide what an input for the open question does. Returns whether it
    /// is an answer.
    fn pass_to_question(
        &mut self,
        task: TaskId,
        pass: impl FnOnce(&mut QuestionQueue, Timestamp) -> Reaction,
    ) -> (bool, Vec<TuiEffect>) {
        let mut effects: Vec<TuiEffect> = self.show_question().into_iter().collect();
        let notice = match pass(&mut self.questions, self.now) {
            Reaction::Answer(given) => {
                let words = given.text.unwrap_or_default();
                effects.push(TuiEffect::Answer { task: given.task, question: given.question, words });
                return (true, effects);
            }
            Reaction::Changed | Reaction::Ignored(Ignored::NoMeaning) => return (false, effects),
            Reaction::Ignored(Ignored::TooSoon) => "the question has just appeared: press the key again",
            Reaction::Ignored(Ignored::Sent) => "the answer is on its way",
            Reaction::Ignored(Ignored::Expired) => "it is too late to answer this",
            Reaction::Ignored(Ignored::NotVisible | Ignored::NothingAsked) => {
                // Do not approve what the user has not seen: open the task first, whose transcript shows all of
                // it.
                effects.extend(self.reveal_task(task));
                effects.extend(self.select_tab(DetailTab::Transcript));
                (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
                effects.extend(self.follow_end());
                "read it, then press the key again"
            }
        };
        effects.extend(self.show_notice(Ink::Attention, notice));
        (false, effects)
    }

    /// Opens the prompt for a pattern, to allow more than one call permanently.
    pub(super) fn answer_in_words(&mut self) -> Vec<TuiEffect> {
        let Some((state, question)) = self.open_question() else {
            return self.show_notice(Ink::Plain, "nothing is asked here");
        };
        let (task, name) = (state.id, question.question);
        self.focus_prompt(Some(PromptPurpose::Answer(task, name)));
        self.show_notice(
            Ink::Attention,
            "type: always program (with any arguments), always tool (every call), or always PATTERN",
        )
    }

    /// Returns whether the whole question is on the screen, or its task is open.
    pub(super) fn is_question_visible(&self) -> bool {
        let (Some((state, _)), Some(areas)) = (self.open_question(), self.areas()) else {
            return false;
        };
        let columns = usize::from(areas.question.width.saturating_sub(2));
        let rows = self.question_lines(columns).len();
        let room = usize::from(areas.question.height).saturating_sub(1 + usize::from(areas.two_panes));
        let open = match self.focus {
            Focus::Detail => true,
            Focus::Prompt => self.pane == Pane::Detail,
            _ => false,
        };
        if open && self.tab == DetailTab::Transcript && self.selected == Some(state.id) {
            // The transcript has the whole call. The choices, with a title of up to two lines, are only here.
            let choices = self.choice_lines(columns).len();
            return choices == 0 || choices + 2 <= room;
        }
        areas.question.height >= 3 && rows <= room
    }

    pub(super) fn resume_selected(&mut self) -> Vec<TuiEffect> {
        let Some(state) = self.selected_task() else { return Vec::new() };
        let (id, root) = (state.id, state.root);
        let waits = |state: &TaskState| state.root == root && is_interrupted(state);
        let pending = state.status == Status::Pending;
        let running = |state: &TaskState| state.root == root && state.status == Status::Running;
        if (pending || self.tasks.values().any(waits)) && !self.tasks.values().any(running) {
            return vec![TuiEffect::Resume(root)];
        }
        if state.status.is_final() {
            self.focus_prompt(Some(PromptPurpose::Write(id)));
            return Vec::new();
        }
        self.show_notice(Ink::Plain, format!("{id} is being worked on: `m` writes to it"))
    }

    /// Retries the selected task, if it failed or was cancelled.
    pub(super) fn retry(&mut self) -> Vec<TuiEffect> {
        let Some(state) = self.selected_task() else { return Vec::new() };
        let id = state.id;
        if can_be_retried(state) {
            return vec![TuiEffect::Retry(id)];
        }
        let instead = match state.status {
            Status::Completed => format!("{id} completed: r continues it"),
            _ if is_interrupted(state) => format!("{id} has not failed, it is interrupted: r resumes it"),
            _ => format!("{id} is being worked on: only what failed or was cancelled can be retried"),
        };
        self.show_notice(Ink::Plain, instead)
    }

    pub(super) fn toggle_pin(&mut self) -> Vec<TuiEffect> {
        let Some(root) = self
            .selected_task()
            .map(|state| if self.tasks.contains_key(&state.root) { state.root } else { state.id })
        else {
            return Vec::new();
        };
        if !self.pinned.shift_remove(&root) {
            self.pinned.insert(root);
        }
        (self.tree_stale, self.scroll_to_selected) = (true, true);
        vec![TuiEffect::SavePins(self.pinned.iter().copied().collect())]
    }
}
