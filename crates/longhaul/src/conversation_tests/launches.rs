//! What the tests of launches and loops do with a conversation.

use serde_json::json;

use super::*;
use crate::dispatch::EarlierLaunch;
use crate::id::TaskKey;

/// In which rounds a model was told something, and why.
pub(super) type NudgedAt = Vec<(u32, NudgeReason)>;

pub(super) fn me() -> TaskId {
    task("fixture")
}

pub(super) fn child(turn: u32, index: u32) -> TaskId {
    TaskKey::for_child(me(), CallId { turn, index }).candidate_ids().next().unwrap()
}

impl ConversationFixture {
    /// A reply that launches these, each `(agent, task)`, and the results of the launches.
    pub(super) fn launches(&mut self, tasks: &[(&str, &str)]) {
        let calls = tasks.iter().fold(reply(), |reply, (agent, task)| {
            reply.call("launch", json!({"agent": agent, "task": task}))
        });
        self.replies(calls);
        for index in 0..tasks.len() as u32 {
            let id = child(self.turn.replies(), index);
            self.returns(index, &format!("{id} was started"));
        }
    }

    /// The task that this call launched ends, and the letter is read.
    pub(super) fn ends(&mut self, turn: u32, index: u32) {
        let id = child(turn, index);
        self.letter(&format!("end of {id}"), Delivery::Asap, Some(id));
        self.does();
    }

    pub(super) fn calls(&mut self, tool: &str, argument: u32, output: &str) {
        self.replies(reply().call(tool, argument.into()));
        self.returns(0, output);
    }

    pub(super) fn earlier(&self) -> Vec<EarlierLaunch> {
        self.turn.earlier(me(), CallId { turn: self.turn.replies(), index: 0 })
    }

    /// The message for a model in a loop, if there is one; also applies it.
    pub(super) fn led(&mut self) -> Option<NudgeReason> {
        let NextStep::Nudge { why, text } = self.next() else { return None };
        self.note(Entry::Nudged { why: why.clone(), text });
        Some(why)
    }
}
