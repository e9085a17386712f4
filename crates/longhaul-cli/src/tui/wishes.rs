//! What is wished for the chosen task: an answer, a stop, somebody who carries it on, a pin.

use longhaul::task::Head;
use longhaul::{Status, TaskId};

use super::forest::is_interrupted;
use super::model::{Confirm, Effect, Focus, Model, Pane, Purpose, Tab};
use crate::view::Ink;

/// Whether its order can be submitted again.
pub(crate) fn can_be_retried(head: &Head) -> bool {
    matches!(head.status, Status::Failed | Status::Cancelled)
}

impl Model {
    pub(super) fn ask_stop(&mut self) -> Vec<Effect> {
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

    pub(super) fn answer(&mut self, words: &str) -> Vec<Effect> {
        let Some((head, question)) = self.asks() else {
            return self.say(Ink::Plain, "nothing is asked here");
        };
        let (task, name) = (head.id, question.question);
        if question.tool.is_none() {
            self.write(Some(Purpose::Answer(task, name)));
            return self.say(Ink::Waits, "this wants an answer in words");
        }
        if words != "no" && !self.sees_question() {
            // Nobody allows what they have not seen: first it is opened, where the transcript has all of it.
            let mut effects = self.show(task);
            effects.extend(self.tab(Tab::Transcript));
            (self.focus, self.pane) = (Focus::Detail, Pane::Detail);
            effects.extend(self.follow());
            let key = if words == "yes" { "y" } else { "a" };
            effects.extend(self.say(Ink::Waits, format!("read it first; {key} again answers")));
            return effects;
        }
        vec![Effect::Answer { task, question: name, words: words.to_owned() }]
    }

    /// Has a person say what is to be allowed for good, where that is more than one call.
    pub(super) fn answer_in_words(&mut self) -> Vec<Effect> {
        let Some((head, question)) = self.asks() else {
            return self.say(Ink::Plain, "nothing is asked here");
        };
        let (task, name) = (head.id, question.question);
        self.write(Some(Purpose::Answer(task, name)));
        self.say(
            Ink::Waits,
            "type: always program (with any arguments), always tool (every call), or always PATTERN",
        )
    }

    /// Whether all that is asked is on the screen, or the task that asks it is open.
    fn sees_question(&self) -> bool {
        let (Some((head, question)), Some(areas)) = (self.asks(), self.areas()) else { return false };
        let open = self.focus == Focus::Detail && self.tab == Tab::Transcript;
        if open && self.selected == Some(head.id) {
            return true;
        }
        let rows = self.question(usize::from(areas.asks.width.saturating_sub(2))).len();
        let room = usize::from(areas.asks.height).saturating_sub(1 + usize::from(areas.both));
        // What a list has of a long question ends with a sign that it goes on.
        areas.asks.height >= 3 && rows <= room && !question.text.ends_with('…')
    }

    pub(super) fn resume(&mut self) -> Vec<Effect> {
        let Some(head) = self.head() else { return Vec::new() };
        let (id, root) = (head.id, head.root);
        let waits = |head: &Head| head.root == root && is_interrupted(head);
        let pending = head.status == Status::Pending;
        let running = |head: &Head| head.root == root && head.status == Status::Running;
        if (pending || self.heads.values().any(waits)) && !self.heads.values().any(running) {
            return vec![Effect::Resume(root)];
        }
        if head.status.is_final() {
            self.write(Some(Purpose::Write(id)));
            return Vec::new();
        }
        self.say(Ink::Plain, format!("{id} is being worked on: `m` writes to it"))
    }

    /// Has the order of a task that failed or was cancelled submitted again.
    pub(super) fn retry(&mut self) -> Vec<Effect> {
        let Some(head) = self.head() else { return Vec::new() };
        let id = head.id;
        if can_be_retried(head) {
            return vec![Effect::Retry(id)];
        }
        let instead = match head.status {
            Status::Completed => format!("{id} completed: r continues it"),
            _ if is_interrupted(head) => format!("{id} has not failed, but nobody runs it: r carries it on"),
            _ => format!("{id} is being worked on: only what failed or was cancelled can be retried"),
        };
        self.say(Ink::Plain, instead)
    }

    pub(super) fn pin(&mut self) -> Vec<Effect> {
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
}
