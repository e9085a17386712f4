//! Detects a model that is in a loop, and decides how to get it out.
//!
//! There are two signs: replies that only launch what was launched before, and calls that return what they
//! returned before. Anything that may lead to something new (a call with effects, a message) resets the
//! detector.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fold::without_repeated_note;
use super::launch_history::{LaunchHistory, Novelty};
use crate::agent::Policy;
use crate::message::{Call, Message, Reply};
use crate::tool::ToolEffects;

/// How many replies are remembered.
const ROUNDS: usize = 32;
/// Weight of a reply that only launched tasks, at least one of them new.
const NEW: u32 = 1;
/// Weight of a reply that only launched what was launched before.
const STALE: u32 = 2;
/// How many replies without anything new a reply counts for whose calls return the same errors again.
const FAILED: u32 = 2;
/// The same for a reply that looks again at tasks that have all ended.
const ENDED: u32 = 2;
/// So many replies in which something is started once more on request count as one that starts the same again.
const AGAIN: u32 = 2;
/// From this total on, the model is reminded of its results.
const TOLD_AT: u32 = 5;
/// After so many times, its tools stay off.
const OFF_FOR_GOOD: u32 = 2;
/// How much of one output, and of all outputs, a reminder shows.
const SHOWN: usize = 600;
const SHOWN_IN_ALL: usize = 6_000;

/// What the latest replies did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LoopDetector {
    rounds: Vec<ModelRound>,
    /// Hashes of what calls returned, by tool and arguments.
    returned: HashMap<u64, u64>,
    /// Whether the model was reminded of its results, and nothing else has happened since.
    told: bool,
    /// How often its tools were turned off although it had results, and nothing else has happened since.
    #[serde(default)]
    times_off: u32,
    /// Replies with calls that may change something, but return what they returned before.
    #[serde(default)]
    effects: EffectRounds,
}

/// Replies whose calls may change something. A call that may is progress; the same few calls with the same results, one
/// after the other, are not.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct EffectRounds {
    /// Hashes of what calls returned, by tool and arguments.
    returned: HashMap<u64, u64>,
    /// Whether a call of the last reply may have changed something.
    may_change: bool,
    /// How many replies in a row have returned nothing new.
    unchanged: u32,
    /// Whether the model was told so.
    told: bool,
}

/// The calls of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ModelRound {
    tools: Vec<String>,
    /// Whether it launched something that was not launched before.
    launched_new: bool,
    /// Whether it launched the same several times, or sent something new to a task: that is intended.
    meant: bool,
    /// Whether it asked for something to be done once more.
    #[serde(default)]
    again: bool,
    /// Whether a call that launches nothing returned something new.
    returned_new: bool,
    /// Whether all its calls returned errors.
    failed: bool,
    /// Whether all tasks had ended when its calls returned.
    #[serde(default)]
    all_ended: bool,
}

/// What a call returned.
pub(super) struct ReturnedResult {
    pub(super) output: Arc<str>,
    pub(super) is_error: bool,
    /// Whether it shows nothing but results of tasks that earlier calls have shown.
    pub(super) shown_before: bool,
    /// Whether all tasks had ended.
    pub(super) all_ended: bool,
}

/// How to get a model out of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopResponse {
    /// Remind it of its results.
    Tell,
    /// Remind it of its results: its calls return nothing new.
    TellUnchanged,
    /// Remind it of its results: its calls have all failed.
    TellFailed,
    /// Tell it that it has started no task: its calls look at tasks that do not exist.
    NothingStarted,
    /// Tell it that results will come.
    Wait,
    /// Tell it that results will come, and turn its tools off for one reply.
    WaitWithoutTools,
    /// Remind it of its results, and turn its tools off for one reply.
    TurnOff,
}

impl LoopDetector {
    /// Applies a reply. `launches` says for each of its calls whether it launches something new; `None` for
    /// calls that launch nothing.
    pub(super) fn replied(&mut self, reply: &Reply, launches: &[Option<Novelty>]) {
        let any = |novelty| launches.iter().flatten().any(|launch| *launch == novelty);
        let mut round = ModelRound {
            tools: Vec::new(),
            launched_new: any(Novelty::New),
            meant: any(Novelty::Meant),
            again: any(Novelty::Again),
            returned_new: false,
            failed: true,
            all_ended: true,
        };
        for call in reply.calls() {
            if !round.tools.contains(&call.tool) {
                round.tools.push(call.tool.clone());
            }
        }
        if !round.tools.is_empty() {
            self.rounds.push(round);
            if self.rounds.len() > ROUNDS {
                self.rounds.remove(0);
            }
        }
    }

    /// Whether this call has returned this before, and nothing has happened since that could change it. Calls about tasks
    /// do not count: their results say how to go on.
    pub(super) fn has_returned(&self, call: &Call, output: &str) -> bool {
        let is_about_tasks = ["\"task", "\"agent_id"].iter().any(|key| call.arguments.contains(key));
        let key = hash(&(&call.tool, &call.arguments));
        !is_about_tasks && self.returned.get(&key) == Some(&hash(&output))
    }

    /// Applies what the calls of the last reply returned.
    pub(super) fn returned<'a>(&mut self, calls: impl Iterator<Item = (&'a Call, ReturnedResult)>) {
        let mut is_new = false;
        for (call, result) in calls {
            let (call, output) = (hash(&(&call.tool, &call.arguments)), hash(&&*result.output));
            let new = self.returned.insert(call, output) != Some(output);
            is_new |= self.effects.returned.insert(call, output) != Some(output);
            if let Some(round) = self.rounds.last_mut() {
                // The same results are nothing new, whichever of them were asked for.
                round.returned_new |= new && !(result.shown_before && result.all_ended);
                round.failed &= result.is_error;
                round.all_ended &= result.all_ended;
            }
        }
        match std::mem::take(&mut self.effects.may_change) {
            _ if is_new => (self.effects.unchanged, self.effects.told) = (0, false),
            true => self.effects.unchanged += 1,
            // A look in between changes nothing.
            false => {}
        }
    }

    /// The model was reminded of its results.
    pub(super) fn told(&mut self) {
        self.rounds.clear();
        self.told = true;
        self.effects.told = self.effects.unchanged > 0;
    }

    /// A call began that may change something.
    pub(super) fn may_change(&mut self) {
        let effects = EffectRounds { may_change: true, ..std::mem::take(&mut self.effects) };
        *self = LoopDetector { effects, ..LoopDetector::default() };
    }

    /// The model's tools were turned off for one reply.
    pub(super) fn turned_off(&mut self, has_results: bool) {
        let times_off = self.times_off + u32::from(has_results);
        *self = LoopDetector { told: has_results, times_off, ..LoopDetector::default() };
    }

    /// Resets the detector: something happened that may lead to something new.
    pub(super) fn begin_anew(&mut self) {
        *self = LoopDetector::default();
    }

    /// Whether, and how, to intervene. `repeats` is how many replies without anything new are enough; if their calls may
    /// change something, it takes as many as `policy` allows for one call.
    pub(super) fn lead(
        &self,
        repeats: u32,
        policy: &Policy,
        launches: &LaunchHistory,
        effects: impl Fn(&str) -> ToolEffects,
    ) -> Option<LoopResponse> {
        // It had its tools back, and went on with the loop. Only something new gives them back again; the
        // end of a task that it has launched in the loop does not.
        if self.times_off >= OFF_FOR_GOOD {
            return Some(LoopResponse::TurnOff);
        }
        if self.effects.unchanged >= policy.fail_after_repeats {
            return Some(LoopResponse::TurnOff);
        }
        if self.effects.unchanged >= policy.warn_after_repeats && !self.effects.told {
            return Some(LoopResponse::TellUnchanged);
        }
        // Stopping what was launched leads to nothing new either.
        let has_results = launches.has_results();
        let looks = |tool: &String| effects(tool).polls_tasks || effects(tool).stops_tasks;
        let is_launch = |tool: &String| effects(tool).launches;
        let (mut score, mut launched_old, mut stale, mut again) = (0, false, 0, 0);
        let (mut only_launches, mut only_looks) = (true, true);
        for round in self.rounds.iter().rev() {
            if round.tools.iter().all(looks) {
                // Looking again is not a loop, unless there is nothing to see or all has been seen. The same
                // error again says more than the same result again.
                stale += match round.failed {
                    _ if round.returned_new => 0,
                    true => FAILED,
                    false if round.all_ended && !launches.is_empty() => ENDED,
                    false => u32::from(launches.is_empty()),
                };
                continue;
            }
            only_looks = false;
            if round.meant {
                break;
            }
            let launching = round.tools.iter().all(|tool| looks(tool) || is_launch(tool));
            // A call that may have changed something counts as progress, whatever it returned.
            let harmless = round.tools.iter().all(|tool| effects(tool).is_harmless());
            // A launch that was asked for once more was made if it returned something new.
            let made_again = round.again && round.returned_new;
            let new = round.launched_new || made_again || (!launching && (round.returned_new || !harmless));
            only_launches &= launching;
            if only_launches {
                score += if new { NEW } else { STALE };
                again += u32::from(made_again && !round.launched_new);
                launched_old |= !new || again >= AGAIN;
            }
            if new && !only_launches {
                break;
            }
            stale += u32::from(!new);
        }
        // Reads that fail one after the other lead nowhere, however different they are.
        let is_failed_read = |round: &&ModelRound| {
            round.failed && round.tools.iter().all(|tool| effects(tool).is_harmless() && !looks(tool))
        };
        let failed = self.rounds.iter().rev().take_while(is_failed_read).count();
        let all_fail = failed >= policy.warn_after_repeats as usize;
        match self.told {
            true if all_fail => Some(LoopResponse::TurnOff),
            true if launched_old && has_results => Some(LoopResponse::TurnOff),
            true if launched_old => Some(LoopResponse::WaitWithoutTools),
            true if stale >= repeats.div_ceil(2) => Some(LoopResponse::TurnOff),
            _ if score >= TOLD_AT && has_results => Some(LoopResponse::Tell),
            _ if score >= TOLD_AT && launched_old => Some(LoopResponse::Wait),
            _ if stale >= repeats && only_looks && launches.is_empty() => Some(LoopResponse::NothingStarted),
            _ if stale >= repeats => Some(LoopResponse::TellUnchanged),
            _ if all_fail => Some(LoopResponse::TellFailed),
            _ => None,
        }
    }

    /// What the calls of a conversation returned, each call once, as far as it is worth repeating.
    pub(super) fn shown(&self, conversation: &[Message]) -> String {
        let mut calls: HashMap<&str, &Call> = HashMap::new();
        let mut found: Vec<(String, String)> = Vec::new();
        for message in conversation {
            match message {
                Message::Assistant(reply) => calls.extend(reply.calls().map(|call| (call.id.as_str(), call))),
                Message::Tool(result) if !result.is_error => {
                    let arguments = calls.get(&*result.call).map_or("", |call| call.arguments.as_str());
                    if arguments.contains("\"task\"") || arguments.contains("\"task_id") {
                        continue;
                    }
                    let what = format!("{} {}", result.tool, short(arguments, 200));
                    found.retain(|(had, _)| *had != what);
                    found.push((what, short(without_repeated_note(&result.output), SHOWN)));
                }
                _ => {}
            }
        }
        let mut lines: Vec<String> = Vec::new();
        let mut left = SHOWN_IN_ALL;
        for (what, output) in found.iter().rev() {
            let line = format!("- {what}:\n  {}\n", output.trim().replace('\n', "\n  "));
            if line.len() > left {
                break;
            }
            left -= line.len();
            lines.push(line);
        }
        lines.reverse();
        lines.concat()
    }
}

fn short(text: &str, most: usize) -> String {
    let cut = &text[..text.floor_char_boundary(most)];
    format!("{cut}{}", if cut.len() < text.len() { "…" } else { "" })
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
