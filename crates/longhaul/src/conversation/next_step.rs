//! Decides the next step of a conversation.

use std::sync::Arc;

use serde_json::Value;

use super::loop_detector::LoopResponse;
use super::{Conversation, NextSpeaker, NextStep, PendingCall};
use crate::agent::{AtTurnLimit, CompletionNotice, OutputSchema, Policy};
use crate::entry::{Delivery, Failure, FailureKind, Letter, NudgeReason, Outcome};
use crate::id::{CallId, LetterId};
use crate::message::{Message, StopReason};
use crate::model::wire::is_only_calls;
use crate::tool::ToolEffects;

/// How much of its order a reminder shows.
const REMINDER: usize = 1000;
/// A longer answer does not merely describe a call.
const DESCRIPTION: usize = 1500;

impl Conversation {
    /// All unread letters, unless the task has given its final answer.
    pub(crate) fn unread_letters(&self) -> Option<NextStep> {
        if self.last_word.is_some() { None } else { self.letters_to_read(|_| true) }
    }

    /// What to do before an idle task may end, if its answer does not match the schema.
    pub(crate) fn schema_violation(&self, schema: Option<&OutputSchema>) -> Option<NextStep> {
        let schema = schema?;
        let wrong = schema.extract_json(&self.said).err()?;
        if self.reshaped {
            return Some(self.fail(
                FailureKind::Shape,
                format!("the answer does not match the required schema: {wrong}"),
            ));
        }
        let text = format!(
            "Your answer does not match the required schema: {wrong}. Answer again, with nothing but JSON that \
             matches the schema {}",
            schema.prompt_text()
        );
        Some(NextStep::Nudge { why: NudgeReason::Shape, text: text.into() })
    }

    /// The answer of an idle task.
    pub(crate) fn answer(&self, schema: Option<&OutputSchema>) -> Outcome {
        // Text around the requested JSON is not part of the answer.
        let shaped = schema.and_then(|schema| schema.extract_json(&self.said).ok()).map(Arc::from);
        let length = || {
            (self.next_speaker == NextSpeaker::Silent(StopReason::Length))
                .then(|| "the model's output limit".to_owned())
        };
        let in_loop = || self.said_without_tools.then(|| "a loop: its tools were turned off".to_owned());
        Outcome::Completed {
            output: shaped.unwrap_or_else(|| self.said.clone()),
            cut_short: self.last_word.clone().or_else(length).or_else(in_loop),
        }
    }

    /// What to do now. `effects` has the effects of the agent's tools; `delegates` says whether one of them launches tasks.
    pub(crate) fn next_step(
        &self,
        policy: &Policy,
        effects: impl Fn(&str) -> ToolEffects,
        delegates: bool,
    ) -> NextStep {
        let pending_calls = self.pending_calls();
        if !pending_calls.is_empty() {
            return NextStep::RunCalls(pending_calls);
        }
        match self.next_speaker {
            NextSpeaker::Model => self.next_reply(policy, effects, delegates),
            NextSpeaker::Silent(stop) => {
                let unmade = if delegates { self.call_as_text(effects) } else { None };
                self.next_silence(policy, stop, unmade)
            }
        }
    }

    fn next_reply(
        &self,
        policy: &Policy,
        effects: impl Fn(&str) -> ToolEffects,
        delegates: bool,
    ) -> NextStep {
        if let Some(run) = self.run.as_ref().filter(|run| !effects(&run.tool).polls_tasks) {
            if run.times >= policy.fail_after_repeats {
                let what =
                    format!("'{}' was called {} times in a row with the same arguments", run.tool, run.times);
                return self.fail(FailureKind::Repeating, what);
            }
            if run.times >= policy.warn_after_repeats && !run.told {
                let text = format!(
                    "You have called '{}' {} times in a row with the same arguments. Calling it again will not \
                     help: do something else, or answer with what you have.",
                    run.tool, run.times
                );
                return NextStep::Nudge { why: NudgeReason::Repeating, text: text.into() };
            }
            // Whatever it does, doing it once more does nothing new.
            if run.unchanged > policy.warn_after_repeats && !run.tools_off {
                return self.lead_on(LoopResponse::TurnOff);
            }
        }
        if let Some(read) =
            self.letters_to_read(|l| l.deliver == Delivery::Asap && policy.letter_delivery == Delivery::Asap)
        {
            return read;
        }
        if self.last_word.is_some() {
            return NextStep::CallModel { tools: false };
        }
        let over = |limit: String| {
            match policy.at_turn_limit {
            AtTurnLimit::Fail => self.fail(FailureKind::TurnLimit, limit),
            AtTurnLimit::LastWord => NextStep::Nudge {
                text: format!(
                    "You have reached {limit}. Tools are off now.{} Answer with all the results that you have: this is \
                     your last word.",
                    self.reminder()
                )
                .into(),
                why: NudgeReason::LastWord(limit),
            },
        }
        };
        if policy.max_turns > 0 && self.turns >= policy.max_turns {
            return over(format!("the limit of {} turns", policy.max_turns));
        }
        if self.wakes > policy.max_wakes && !self.interactive {
            return over(format!("the limit of {} wake-ups by ending tasks", policy.max_wakes));
        }
        if self.tools_off {
            return NextStep::CallModel { tools: false };
        }
        // The same call with the same result is a stronger sign than the same call.
        let repeats = policy.warn_after_repeats.saturating_mul(3).div_ceil(5).max(1);
        match self.loop_detector.lead(repeats, policy, &self.launches, effects, delegates) {
            Some(lead) => self.lead_on(lead),
            None => NextStep::CallModel { tools: true },
        }
    }

    /// The message for a model that is in a loop.
    fn lead_on(&self, lead: LoopResponse) -> NextStep {
        let (why, first, last) = match lead {
            LoopResponse::Tell => (
                NudgeReason::Launching,
                "You have started tasks again and again. This is what you have:",
                "If it is enough, answer now, in words, and start nothing more. If something is missing, say in one \
                 sentence what it is, and start only that.",
            ),
            LoopResponse::TellUnchanged => (
                NudgeReason::Unchanged,
                "Your last calls returned what you already had. This is what you have:",
                "If it is enough, answer now, in words. If something is missing, do something that you have not done yet, or \
                 say what is missing.",
            ),
            LoopResponse::TellFailed => (
                NudgeReason::Unchanged,
                "Your last calls have all failed. This is what you have:",
                "If it is enough, answer now, in words. If something is missing, do something that you have not done yet, or \
                 say what is missing.",
            ),
            LoopResponse::NothingStarted => (
                NudgeReason::Unchanged,
                "You have started no task yet, so there is nothing to look at or to wait for.",
                "Start the task now: call the tool that starts one, and say in full sentences what has to be done.",
            ),
            LoopResponse::Wait => (
                NudgeReason::Launching,
                "You have started the same tasks again. The results of those that are running will come to you as messages.",
                "Call no tool now: reply with one short sentence, for example \"I am waiting for the results.\"",
            ),
            LoopResponse::WaitWithoutTools => (
                NudgeReason::ToolsOff,
                "You cannot start tasks in this turn. The results of those that are running will come to you as messages.",
                "Reply with one short sentence, for example \"I am waiting for the results.\"",
            ),
            LoopResponse::TurnOff => (
                NudgeReason::ToolsOff,
                "You are going round in circles. Tools are off in this turn: a call is not made. This is what you have:",
                "Answer it now in plain words: quote what answers it from what you have. No call, no JSON, no code block. If \
                 something is missing, say what.",
            ),
        };
        let text = match lead {
            LoopResponse::Wait | LoopResponse::WaitWithoutTools => format!("{first} {last}"),
            LoopResponse::NothingStarted => format!("{first}{}{last}", self.reminder()),
            LoopResponse::Tell
            | LoopResponse::TellUnchanged
            | LoopResponse::TellFailed
            | LoopResponse::TurnOff => {
                format!("{first}\n\n{}{}{last}", self.found(), self.reminder().trim_start())
            }
        };
        NextStep::Nudge { why, text: text.into() }
    }

    /// What it has found out: the results of its tasks and of its calls.
    fn found(&self) -> String {
        let found = self.loop_detector.shown(&self.conversation) + &self.launches.shown();
        match found.is_empty() {
            true => "- nothing: no call has told you anything. Say what you have tried, and that it did not work.\n\n".to_owned(),
            false => found + "\n",
        }
    }

    /// The order, for a model that may have lost sight of it. A session has moved on since, so it gets none.
    pub(super) fn reminder(&self) -> String {
        match self.conversation.get(self.order_at) {
            Some(Message::User(order)) if !self.interactive => {
                let cut = &order[..order.floor_char_boundary(REMINDER)];
                format!(" Your task was:\n\n{cut}{}\n\n", if cut.len() < order.len() { "…" } else { "" })
            }
            _ => String::new(),
        }
    }

    /// What to do when the model has nothing more to say. `unmade` says which call it has only described.
    fn next_silence(&self, policy: &Policy, stop: StopReason, unmade: Option<String>) -> NextStep {
        if self.last_word.is_none() || self.interactive {
            // Letters about ended children wake an idle task only a limited number of times; messages of
            // others always do.
            let tired = self.wakes >= policy.max_wakes && self.interactive;
            let wakes = |l: &Letter| {
                l.ending.is_none() || (policy.completion_notice == CompletionNotice::Wake && !tired)
            };
            if self.mailbox.iter().any(|l| !self.is_known(l) && wakes(l))
                && let Some(read) = self.letters_to_read(|_| true)
            {
                return read;
            }
        }
        if stop == StopReason::Refused {
            return self.fail(FailureKind::Refused, "the model refused to answer");
        }
        if let Some(what) = unmade {
            // With these words, small models make the call more often than when both ways are offered alike.
            let text = format!(
                "Nothing was called: {what}.{} Next step: make the call now, and write nothing beside it. Only if no tool is \
                 needed, give your answer again.",
                self.reminder()
            );
            return NextStep::Nudge { why: NudgeReason::Empty, text: text.into() };
        }
        if !self.said.trim().is_empty() {
            return NextStep::Idle;
        }
        if self.reminded && self.called_last && self.last_word.is_none() {
            let what = "the model was in a loop, and kept calling tools after they were turned off";
            return self.fail(FailureKind::Repeating, what);
        }
        if self.reminded || (self.last_word.is_some() && !self.called_last) {
            return self.fail(FailureKind::NoAnswer, "the model gave no answer, even after a reminder");
        }
        if self.called_last {
            return NextStep::Nudge {
                why: NudgeReason::Empty,
                text: format!(
                    "Tools are off: nothing was called.{} Say now, in words and without a call, what the result is.",
                    self.reminder()
                )
                .into(),
            };
        }
        NextStep::Nudge {
            why: NudgeReason::Empty,
            text: "You ended without an answer. Say now, in words, what the result of your task is.".into(),
        }
    }

    /// Says that the answer describes a call or writes it out instead of making it. Small models do that instead of launching
    /// a task. An answer that is long, or that follows a call, is meant: it may well speak of tools.
    fn call_as_text(&self, effects: impl Fn(&str) -> ToolEffects) -> Option<String> {
        let may_be_told =
            !(self.reminded || self.interactive || self.last_word.is_some() || self.called_last);
        let has_called = || self.conversation.iter().any(|message| matches!(message, Message::Tool(_)));
        if !may_be_told || self.said.len() > DESCRIPTION || has_called() {
            return None;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // A name without an underscore may be an ordinary word.
        let mut names = self.said.split(|c| !is_name(c)).filter(|word| word.contains('_'));
        match names.find(|name| effects(name).launches) {
            Some(tool) => Some(format!("you have only named {tool}")),
            None => {
                is_written_call(&self.said).then(|| "your reply is a call that is written as text".to_owned())
            }
        }
    }

    fn fail(&self, kind: FailureKind, message: impl Into<String>) -> NextStep {
        NextStep::Fail(Failure::new(kind, message))
    }

    pub(super) fn is_known(&self, letter: &Letter) -> bool {
        letter.ending.is_some_and(|task| self.collected.contains(&task))
    }

    fn letters_to_read(&self, which: impl Fn(&Letter) -> bool) -> Option<NextStep> {
        let letters: Vec<_> =
            self.mailbox.iter().filter(|l| !self.is_known(l) && which(l)).map(|l| l.id.clone()).collect();
        (!letters.is_empty()).then(|| NextStep::ReadLetters { letters, known: self.known_letters() })
    }

    /// The letters that a running turn of another program's agent is told, those that are known already, and the
    /// text. Results of tasks wait for the end of the turn: the agent may be collecting them.
    pub(crate) fn letters_for_turn(
        &self,
        policy: &Policy,
    ) -> Option<(Vec<LetterId>, Vec<LetterId>, Arc<str>)> {
        let is_due = |letter: &Letter| letter.ending.is_none() && letter.deliver == Delivery::Asap;
        if policy.letter_delivery != Delivery::Asap || self.last_word.is_some() {
            return None;
        }
        let NextStep::ReadLetters { letters, known } = self.letters_to_read(is_due)? else { return None };
        let read: Vec<Letter> =
            self.mailbox.iter().filter(|letter| letters.contains(&letter.id)).cloned().collect();
        Some((letters, known, super::fold::letters_text(&read)))
    }

    /// How often in a row the model has made the pending call to this tool.
    pub(crate) fn times_called(&self, tool: &str) -> u32 {
        self.run.as_ref().filter(|run| run.tool == tool).map_or(0, |run| run.times)
    }

    fn pending_calls(&self) -> Vec<PendingCall> {
        let turn = self.replies;
        let unfinished = self.open.iter().enumerate().filter(|(_, open)| open.result.is_none());
        unfinished
            .map(|(index, open)| PendingCall {
                id: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
                call: open.call.clone(),
                truncated: open.cut,
                started: open.begun == Some(self.attempt),
                interrupted: open.begun.is_some_and(|attempt| attempt < self.attempt),
            })
            .collect()
    }
}

/// Whether a text is nothing but a call of any tool, or the arguments of a launch.
fn is_written_call(text: &str) -> bool {
    const ARGUMENTS: [&str; 5] = ["agent", "task", "expected_output", "subagent_type", "description"];
    if is_only_calls(text, &|_| true) {
        return true;
    }
    let mut objects =
        serde_json::Deserializer::from_str(text).into_iter::<serde_json::Map<String, Value>>().peekable();
    let is_launch = |object: Result<serde_json::Map<String, Value>, _>| {
        object.is_ok_and(|object| {
            object.contains_key("task") && object.keys().all(|key| ARGUMENTS.contains(&key.as_str()))
        })
    };
    objects.peek().is_some() && objects.all(is_launch)
}
