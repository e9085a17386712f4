//! What is wished for the chosen task: an answer, a stop, somebody who carries it on, a pin.

use longhaul::task::Head;
use longhaul::{Status, TaskId};

use super::forest::is_interrupted;
use super::model::{Confirm, Effect, Model, Purpose};
use crate::view::Ink;

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
        vec![Effect::Answer { task, question: name, words: words.to_owned() }]
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
