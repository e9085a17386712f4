//! What is to be done now: the decisions of a turn.

use std::sync::Arc;

use super::{Act, Ball, Step, Turn};
use crate::agent::{AtTurnLimit, Habits, Notices, Shape};
use crate::entry::{Deliver, Failure, FailureKind, Letter, Nudge, Outcome};
use crate::id::CallId;
use crate::message::{Message, StopReason};

/// How much of its order a task is reminded of.
const REMINDER: usize = 1000;
impl Turn {
    /// All letters that it has not read, unless it has said its last word.
    pub fn unread(&self) -> Option<Step> {
        if self.last_word.is_some() { None } else { self.due(|_| true) }
    }

    /// What is to be done before a task at rest may end, if its answer has not the shape that it must have.
    pub fn misshapen(&self, shape: Option<&Shape>) -> Option<Step> {
        let shape = shape?;
        let wrong = shape.of(&self.said).err()?;
        if self.reshaped {
            return Some(
                self.fail(FailureKind::Shape, format!("the answer does not fit its schema: {wrong}")),
            );
        }
        let text = format!(
            "Your answer does not have the form that is asked for: {wrong}. Answer again, with nothing but JSON that \
             fits the schema {}",
            shape.named()
        );
        Some(Step::Nudge { why: Nudge::Shape, text: text.into() })
    }

    /// The answer of a task that is at rest.
    pub fn answer(&self, shape: Option<&Shape>) -> Outcome {
        // What is around JSON that was asked for is not part of it.
        let shaped = shape.and_then(|shape| shape.of(&self.said).ok()).map(Arc::from);
        let length =
            || (self.ball == Ball::Silent(StopReason::Length)).then(|| "the model's output limit".to_owned());
        Outcome::Completed {
            output: shaped.unwrap_or_else(|| self.said.clone()),
            cut_short: self.last_word.clone().or_else(length),
        }
    }

    /// What is to be done now. `looks` says of a tool whether it only looks at tasks.
    pub fn next(&self, habits: &Habits, looks: impl Fn(&str) -> bool) -> Step {
        let acts = self.acts();
        if !acts.is_empty() {
            return Step::Act(acts);
        }
        match self.ball {
            Ball::Model => self.next_reply(habits, looks),
            Ball::Silent(stop) => self.next_silence(habits, stop),
        }
    }

    fn next_reply(&self, habits: &Habits, looks: impl Fn(&str) -> bool) -> Step {
        if let Some(run) = self.run.as_ref().filter(|run| !looks(&run.tool)) {
            if run.times >= habits.repeats_failed {
                let what =
                    format!("'{}' was called {} times in a row with the same arguments", run.tool, run.times);
                return self.fail(FailureKind::Repeating, what);
            }
            if run.times >= habits.repeats_told && !run.told {
                let text = format!(
                    "You have called '{}' {} times in a row with the same arguments. Calling it again will not \
                     help: do something else, or answer with what you have.",
                    run.tool, run.times
                );
                return Step::Nudge { why: Nudge::Repeating, text: text.into() };
            }
        }
        if let Some(read) = self.due(|l| l.deliver == Deliver::Asap && habits.letters == Deliver::Asap) {
            return read;
        }
        if self.last_word.is_some() {
            return Step::Think { tools: false };
        }
        let over = |limit: String| {
            match habits.at_turn_limit {
            AtTurnLimit::Fail => self.fail(FailureKind::TurnLimit, limit),
            AtTurnLimit::LastWord => Step::Nudge {
                text: format!(
                    "You have reached {limit}. Tools are off now.{} Answer with all the results that you have: this is \
                     your last word.",
                    self.reminder()
                )
                .into(),
                why: Nudge::LastWord(limit),
            },
        }
        };
        if habits.max_turns > 0 && self.turns >= habits.max_turns {
            return over(format!("the limit of {} turns", habits.max_turns));
        }
        if self.wakes > habits.max_wakes && !self.interactive {
            return over(format!("the limit of {} wake-ups by ending tasks", habits.max_wakes));
        }
        Step::Think { tools: true }
    }

    /// What the task was, for a model that may have lost sight of it. A session has moved on since.
    fn reminder(&self) -> String {
        match self.conversation.get(self.order_at) {
            Some(Message::User(order)) if !self.interactive => {
                let cut = &order[..order.floor_char_boundary(REMINDER)];
                format!(" Your task was:\n\n{cut}{}\n\n", if cut.len() < order.len() { "…" } else { "" })
            }
            _ => String::new(),
        }
    }

    fn next_silence(&self, habits: &Habits, stop: StopReason) -> Step {
        if self.last_word.is_none() || self.interactive {
            // An ending may wake a resting task only so often; words of others always do.
            let tired = self.wakes >= habits.max_wakes && self.interactive;
            let wakes = |l: &Letter| l.ending.is_none() || (habits.notices == Notices::Wake && !tired);
            if self.mailbox.iter().any(|l| !self.is_known(l) && wakes(l))
                && let Some(read) = self.due(|_| true)
            {
                return read;
            }
        }
        if stop == StopReason::Refused {
            return self.fail(FailureKind::Refused, "the model refused to answer");
        }
        if !self.said.trim().is_empty() {
            return Step::Rest;
        }
        if self.reminded || (self.last_word.is_some() && !self.called_last) {
            return self
                .fail(FailureKind::NoAnswer, "the model ended without saying anything, also when reminded");
        }
        if self.called_last {
            return Step::Nudge {
                why: Nudge::Empty,
                text: format!(
                    "Tools are off: nothing was called.{} Say now, in words and without a call, what the result is.",
                    self.reminder()
                )
                .into(),
            };
        }
        Step::Nudge {
            why: Nudge::Empty,
            text: "You ended without an answer. Say now, in words, what the result of your task is.".into(),
        }
    }

    fn fail(&self, kind: FailureKind, message: impl Into<String>) -> Step {
        Step::Fail(Failure::new(kind, message))
    }

    pub(super) fn is_known(&self, letter: &Letter) -> bool {
        letter.ending.is_some_and(|task| self.collected.contains(&task))
    }

    fn due(&self, which: impl Fn(&Letter) -> bool) -> Option<Step> {
        let letters: Vec<_> =
            self.mailbox.iter().filter(|l| !self.is_known(l) && which(l)).map(|l| l.id.clone()).collect();
        (!letters.is_empty()).then(|| Step::Read { letters, known: self.known_letters() })
    }

    /// How often in a row the model has made the very call that is to be made now.
    pub fn times_called(&self, tool: &str) -> u32 {
        self.run.as_ref().filter(|run| run.tool == tool).map_or(0, |run| run.times)
    }

    fn acts(&self) -> Vec<Act> {
        let turn = self.replies;
        let unfinished = self.open.iter().enumerate().filter(|(_, open)| open.result.is_none());
        unfinished
            .map(|(index, open)| Act {
                id: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
                call: open.call.clone(),
                cut: open.cut,
                begun: open.begun == Some(self.attempt),
                interrupted: open.begun.is_some_and(|attempt| attempt < self.attempt),
            })
            .collect()
    }
}
