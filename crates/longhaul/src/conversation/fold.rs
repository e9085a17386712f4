//! Applies journal entries to a conversation.

use std::sync::Arc;

use jiff::Timestamp;

use super::loop_detector::ReturnedResult;
use super::{CallQuestion, Conversation, NextSpeaker, OpenCall, RepeatedCall};
use crate::entry::{
    Entry, Letter, LiveTextKind, ModelChoice, NudgeReason, QuestionAnswer, Record, Sender, WaitReason,
};
use crate::id::{CallId, LetterId};
use crate::message::prompt_tags::escape;
use crate::message::{Call, Message, Reply, StopReason, ToolResult};
use crate::model::wire::is_only_calls;

/// Added after letters about ended children, around the order, to move the model on. Without the order, small models start
/// the same tasks again, or repeat the note.
const ALL_ENDED: &str = "All the tasks that you have started have ended.";
const ANSWER_NOW: &str = "If these results answer it, write the answer now, in words. If a part is missing, start a task for that part \
                          only: do not guess it.";
const SOME_RUN: &str = "\n\n<note>Other tasks that you have started are still running. Their results will come to you in the same \
                        way: do not look for them, and do not start them again. If there is nothing else to do, reply with one \
                        short sentence, for example \"I am waiting for the other results.\"</note>";

/// Added to a result that the same call has returned before. Small models repeat calls until they are led on. With other words, a
/// model of 1.5 B made the same call again; with these, it went on in 5 of 5 tries where something was missing.
const SAME_RESULT: &str = "Note: you have this result already. Do not make this call again unless something has changed. Next step: make a \
                           different call for what is missing, or write your answer to the task now, in words.";
const SAME_ERROR: &str =
    "Note: this call has failed in the same way before. Do something else first, or say what does not work.";

/// The result of a call that was repeated within one reply.
const MADE_ONCE: &str =
    "This call was not made: the same call is already in this reply, which ran into its length limit.";

impl Conversation {
    /// Applies an entry.
    pub(crate) fn apply(&mut self, record: &Record) {
        match &record.entry {
            Entry::Claimed { attempt, .. } => {
                self.attempt = *attempt;
                self.live.clear();
            }
            Entry::Letter(letter) => self.mailbox.push((**letter).clone()),
            Entry::Read { letters, known, all_ended } => self.read(letters, known, *all_ended, record.at),
            Entry::Replied(reply) => self.replied(reply, record.at),
            Entry::SessionOpened(session) => self.session.opened(session),
            Entry::Prompted { text, held: true, .. } => self.session.hold(text),
            Entry::Prompted { text, again, .. } => {
                self.session.prompted(text, *again, self.conversation.len());
            }
            Entry::Called { call, tool, arguments, effects, foreign: true } => {
                if *effects {
                    self.launches.something_happened();
                }
                self.session.called(*call, tool, arguments.as_deref());
            }
            Entry::Returned(returned) if returned.foreign.is_some() => {
                self.session.returned(returned.call);
                self.collected.extend(&returned.collected);
                self.asked_questions.retain(|asked| asked.question.call != returned.call);
            }
            Entry::Called { call, arguments, effects, .. } => {
                if *effects {
                    self.launches.something_happened();
                    self.loop_detector.may_change();
                }
                let attempt = self.attempt;
                if let Some(open) = self.open_call(*call) {
                    open.begun = Some(attempt);
                    if let Some(arguments) = arguments {
                        open.call.arguments.clone_from(arguments);
                    }
                }
            }
            Entry::Asked { question, asks, .. } => {
                self.asked_questions.retain(|asked| asked.question != *question);
                self.asked_questions.push(CallQuestion {
                    question: *question,
                    asks: (**asks).clone(),
                    answer: None,
                });
            }
            Entry::Answered { question, answer } => {
                let asked = self.asked_questions.iter_mut().find(|asked| asked.question == *question);
                asked.into_iter().for_each(|asked| asked.answer = Some(answer.clone()));
            }
            Entry::Returned(returned) => {
                let collected = &returned.collected;
                let shown_before =
                    !collected.is_empty() && collected.iter().all(|task| self.collected.contains(task));
                if let Some(open) = self.open_call(returned.call) {
                    open.result = Some((returned.output.clone(), returned.is_error));
                    (open.shown_before, open.all_ended) = (shown_before, returned.all_ended);
                }
                self.collected.extend(&returned.collected);
                self.launches.collected(&returned.collected, record.at, &returned.output, returned.is_error);
                let cut = returned.whole.iter().filter(|whole| !self.cut_outputs.contains(whole));
                self.cut_outputs.extend(cut.cloned().collect::<Vec<_>>());
                if let Some(agent) = &returned.handoff {
                    self.agent = agent.clone();
                    self.model = None;
                }
                match &returned.model {
                    Some(ModelChoice::Other(name)) => self.model = Some(name.clone()),
                    Some(ModelChoice::Own) => self.model = None,
                    None => {}
                }
                if self.open.iter().all(|open| open.result.is_some()) {
                    self.flush_results(Some(record.at));
                }
            }
            Entry::Said { voice: LiveTextKind::Text, text } => self.live.push_str(text),
            Entry::Waiting { on: WaitReason::Provider(_), .. } => self.live.clear(),
            Entry::Nudged { why, text } => {
                match why {
                    NudgeReason::Empty => {
                        self.reminded = true;
                        // A reply that had no tools has none when it is requested again.
                        if self.called_last && self.last_word.is_none() {
                            let before = self.off_text.take().unwrap_or_default();
                            self.off_text = Some(format!("{before}\n\n{text}").into());
                            self.tools_off = true;
                        }
                    }
                    NudgeReason::Shape => self.reshaped = true,
                    NudgeReason::Begun => self.begun = true,
                    NudgeReason::Repeating => self.run.iter_mut().for_each(|run| run.told = true),
                    NudgeReason::Launching | NudgeReason::Unchanged => self.loop_detector.told(),
                    NudgeReason::ToolsOff => {
                        self.loop_detector.turned_off(self.launches.has_results());
                        self.run.iter_mut().for_each(|run| run.tools_off = true);
                        self.off_text = Some(text.clone());
                        self.tools_off = true;
                    }
                    NudgeReason::LastWord(limit) => self.last_word = Some(limit.clone()),
                }
                if !text.is_empty() {
                    self.push_user_message(text.clone());
                }
            }
            Entry::Warned { text } => self.warned.push(text.clone()),
            Entry::Compacted { summary, replaces, .. } => self.compact(summary, *replaces),
            _ => {}
        }
    }

    fn read(&mut self, letters: &[LetterId], known: &[LetterId], all_ended: Option<bool>, at: Timestamp) {
        let mut taken = Vec::new();
        self.mailbox.retain(|letter| {
            if letters.contains(&letter.id) {
                taken.push(letter.clone());
            }
            !letters.contains(&letter.id) && !known.contains(&letter.id)
        });
        taken.sort_by_key(|letter| letters.iter().position(|id| *id == letter.id));
        if taken.is_empty() {
            return;
        }
        let is_progress = |letter: &Letter| letter.effects && !self.launches.is_failure_again(letter);
        if taken.iter().any(|letter| letter.ending.is_none() || is_progress(letter)) {
            self.loop_detector.begin_anew();
        }
        self.launches.read(&taken, at);
        if taken.iter().all(|l| l.ending.is_some()) {
            if matches!(self.next_speaker, NextSpeaker::Silent(_)) {
                self.wakes += 1;
            }
        } else {
            self.wakes = 0;
        }
        if self.interactive && taken.iter().any(|l| l.from == Sender::Person) {
            self.turns = 0;
            self.last_word = None;
        }
        self.reminded = false;
        self.reshaped = false;
        let lead = match all_ended {
            Some(true) => {
                let order = self.reminder();
                let before = if order.is_empty() { " " } else { "" };
                format!("\n\n{ALL_ENDED}{order}{before}{ANSWER_NOW}")
            }
            Some(false) => SOME_RUN.to_owned(),
            None => String::new(),
        };
        self.push_user_message(format!("{}{lead}", letters_text(&taken)).into());
    }

    fn replied(&mut self, reply: &Arc<Reply>, at: Timestamp) {
        self.live.clear();
        self.replies += 1;
        self.turns += 1;
        let held = self.session.replied();
        let new = self.launches.replied(self.replies, reply, at);
        let had_tools = !std::mem::take(&mut self.tools_off);
        if had_tools {
            self.loop_detector.replied(reply, &new, at);
        }
        self.push(Message::Assistant(reply.clone()));
        if reply.usage.input > 0 {
            self.measured = Some((self.conversation.len(), reply.usage.total()));
        }
        let mut text = reply.text();
        let was_cut = |call: &Call| {
            let whole = serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok();
            reply.stop == StopReason::Length && !whole
        };
        let open = |call: &Call| OpenCall {
            cut: was_cut(call),
            call: call.clone(),
            begun: None,
            result: None,
            shown_before: false,
            all_ended: false,
        };
        self.open = reply.calls().map(open).collect();
        for (open, repeated) in self.open.iter_mut().zip(repeated_calls(reply)) {
            if repeated {
                open.result = Some((MADE_ONCE.into(), true));
            }
        }
        self.called_last = false;
        if self.last_word.is_some() || !had_tools {
            // This reply is final. But no call may stay without a result: providers reject that.
            self.close_calls("Tools are off: this call was not made.");
            // A call written as text is not an answer either.
            let written = is_only_calls(&text, &|tool| !had_tools || self.has_called(tool));
            self.called_last = written || (text.trim().is_empty() && reply.calls().next().is_some());
            if written {
                text = String::new();
            }
        }
        if self.open.is_empty() {
            self.next_speaker = NextSpeaker::Silent(reply.stop);
            self.said = text.into();
            self.said_without_tools = !had_tools;
            self.run = None;
        } else {
            self.next_speaker = NextSpeaker::Model;
            self.reminded = false;
            if !text.trim().is_empty() {
                self.said = text.into();
            }
            for call in reply.calls() {
                self.count_repeats(call);
            }
        }
        for text in held {
            self.push_user_message(text);
        }
    }

    /// Whether the conversation has a call of this tool.
    fn has_called(&self, tool: &str) -> bool {
        let calls = |message: &Message| match message {
            Message::Assistant(reply) => reply.calls().any(|call| call.tool == tool),
            _ => false,
        };
        self.conversation.iter().any(calls)
    }

    fn count_repeats(&mut self, call: &Call) {
        match &mut self.run {
            Some(run) if run.tool == call.tool && run.arguments == call.arguments => run.times += 1,
            run => {
                *run = Some(RepeatedCall {
                    tool: call.tool.clone(),
                    arguments: call.arguments.clone(),
                    times: 1,
                    told: false,
                    output: Arc::from(""),
                    unchanged: 0,
                    tools_off: false,
                });
            }
        }
    }

    fn open_call(&mut self, id: CallId) -> Option<&mut OpenCall> {
        if id.turn != self.replies {
            return None;
        }
        self.open.get_mut(id.index as usize)
    }

    /// Gives this result to the calls that have none and will not get one.
    pub(super) fn close_calls(&mut self, why: &str) {
        for open in &mut self.open {
            open.result.get_or_insert_with(|| (why.into(), true));
        }
        self.flush_results(None);
    }

    /// Adds the results to the conversation, in the order of the calls. The last one came at this time.
    fn flush_results(&mut self, at: Option<Timestamp>) {
        let asked = std::mem::take(&mut self.asked_questions);
        let person_said = |asked: &CallQuestion| matches!(asked.answer, Some(QuestionAnswer::Given(_)));
        // Who denies a call says nothing new.
        let asked_person = |index: usize, is_error: bool| {
            !is_error
                && asked.iter().any(|asked| asked.question.call.index as usize == index && person_said(asked))
        };
        let same = |(index, open): (usize, &OpenCall)| match &open.result {
            Some((output, is_error)) => {
                !asked_person(index, *is_error) && self.loop_detector.has_returned(&open.call, output)
            }
            None => false,
        };
        let same: Vec<bool> = self.open.iter().enumerate().map(same).collect();
        let results = self.open.iter().enumerate().map(|(index, open)| {
            let (output, is_error) = open.result.clone().unwrap_or_default();
            let (shown_before, all_ended) = (open.shown_before, open.all_ended);
            let asked_person = asked_person(index, is_error);
            (&open.call, ReturnedResult { output, is_error, asked_person, shown_before, all_ended })
        });
        self.loop_detector.returned(results, at);
        for (open, same) in std::mem::take(&mut self.open).into_iter().zip(same) {
            let (output, is_error) = open.result.unwrap_or_default();
            if let Some(run) = &mut self.run
                && (&run.tool, &run.arguments) == (&open.call.tool, &open.call.arguments)
            {
                run.unchanged = if run.output == output { run.unchanged + 1 } else { 1 };
                run.output = output.clone();
            }
            let output = if same { with_repeated_note(&output, is_error) } else { output };
            let result =
                ToolResult { call: open.call.id.into(), tool: open.call.tool.into(), output, is_error };
            self.push(Message::Tool(result));
        }
    }

    pub(super) fn push_user_message(&mut self, text: Arc<str>) {
        self.push(Message::User(text));
        self.next_speaker = NextSpeaker::Model;
    }

    pub(super) fn push(&mut self, message: Message) {
        Arc::make_mut(&mut self.conversation).push(message);
    }
}

fn with_repeated_note(output: &str, is_error: bool) -> Arc<str> {
    let note = if is_error { SAME_ERROR } else { SAME_RESULT };
    format!("{output}\n\n{note}").into()
}

/// The output of a call, without the note that it is the same as before.
pub(super) fn without_repeated_note(output: &str) -> &str {
    [SAME_RESULT, SAME_ERROR].iter().find_map(|note| output.strip_suffix(note)).map_or(output, str::trim_end)
}

/// Which calls of a reply repeat an earlier one of it, if the reply was cut at the output limit: the model
/// could not stop. In other replies, repeated calls are intended.
pub(crate) fn repeated_calls(reply: &Reply) -> Vec<bool> {
    let calls: Vec<&Call> = reply.calls().collect();
    let same = |one: &Call, two: &Call| one.tool == two.tool && one.arguments == two.arguments;
    let repeated = |at: usize| calls[..at].iter().any(|before| same(before, calls[at]));
    (0..calls.len()).map(|at| reply.stop == StopReason::Length && repeated(at)).collect()
}

/// Letters as the model reads them. Letters that arrive together are one message.
pub(super) fn letters_text(letters: &[Letter]) -> Arc<str> {
    let one = |letter: &Letter| match &letter.from {
        Sender::Task(task) if letter.ending.is_none() => {
            format!("<message from=\"{task}\">\n{}\n</message>", escape(&letter.text))
        }
        _ => letter.text.to_string(),
    };
    letters.iter().map(one).collect::<Vec<_>>().join("\n\n").into()
}
