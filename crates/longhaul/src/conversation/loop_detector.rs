//! Detects a model that is in a loop, and decides how to get it out.
//!
//! There are three signs: replies that only launch what was launched before, calls that return what they returned
//! before, and reads that fail one after the other. Anything that may lead to something new (a call with effects, a
//! message, a person's answer) resets the detector, and a call that took time is never a sign: it may have waited for
//! something.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::fold::without_repeated_note;
use super::launch_history::{LaunchHistory, Novelty};
use crate::agent::Policy;
use crate::message::{Call, Message, Reply};
use crate::tool::ToolEffects;

/// How many replies are remembered.
const ROUNDS: usize = 32;
/// For how many replies a result is remembered. Later the model may no longer see it.
const REMEMBERED: u32 = 16;
/// A call that took longer may have waited for something to happen.
const WAITED: SignedDuration = SignedDuration::from_secs(10);
/// So many replies in a row whose reads all fail lead nowhere.
const FAILED_READS: usize = 5;
/// After so many replies that may change something and return only what they returned before, the model is told, and then
/// must answer. A policy that allows more repeats of one call allows more of these, too.
const TOLD_UNCHANGED: u32 = 5;
const OFF_UNCHANGED: u32 = 8;
/// Weight of a reply that only launched tasks, at least one of them new.
const NEW: u32 = 1;
/// Weight of a reply that only launched what was launched before.
const STALE: u32 = 2;
/// How many replies without anything new a reply counts for whose calls return the same errors again.
const FAILED: u32 = 2;
/// The same for a reply that looks again at tasks that have all ended.
const ENDED: u32 = 2;
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
    #[serde(default)]
    returned: KnownResults,
    /// How many replies there were, and when the last one ended.
    #[serde(default)]
    replies: u32,
    #[serde(default)]
    replied_at: Option<Timestamp>,
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
    #[serde(default)]
    returned: KnownResults,
    /// Whether a call of the last reply may have changed something.
    may_change: bool,
    /// How many replies in a row have returned nothing new.
    unchanged: u32,
    /// Whether the model was told so.
    told: bool,
}

/// What the calls of the last replies returned: hashes, by tool and arguments, with the number of the reply.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct KnownResults(HashMap<u64, (u64, u32)>);

impl KnownResults {
    /// Records what a call returned; returns whether that is new.
    fn insert(&mut self, call: u64, output: u64, reply: u32) -> bool {
        self.0.insert(call, (output, reply)).is_none_or(|(before, _)| before != output)
    }

    fn has(&self, call: u64, output: u64) -> bool {
        self.0.get(&call).is_some_and(|(before, _)| *before == output)
    }

    fn forget_old(&mut self, reply: u32) {
        self.0.retain(|_, (_, at)| *at + REMEMBERED >= reply);
    }
}

/// The calls of a reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ModelRound {
    tools: Vec<String>,
    /// Whether it launched something that was not launched before.
    launched_new: bool,
    /// Whether it launched the same several times, or sent something new to a task: that is intended.
    meant: bool,
    /// Whether a call returned something new.
    returned_new: bool,
    /// Whether its calls took time.
    #[serde(default)]
    waited: bool,
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
    /// Whether a person was asked something for it.
    pub(super) asked_person: bool,
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

impl ModelRound {
    /// Whether it got further, in a way that starting tasks and looking at them does not.
    fn is_progress(&self, effects: impl Fn(&str) -> ToolEffects) -> bool {
        let is_about_tasks = |tool: &String| {
            let effects = effects(tool);
            effects.polls_tasks || effects.stops_tasks || effects.launches
        };
        self.returned_new && !self.failed && !self.tools.iter().all(is_about_tasks)
    }
}

impl LoopDetector {
    /// Applies a reply. `launches` says for each of its calls whether it launches something new; `None` for
    /// calls that launch nothing.
    pub(super) fn replied(&mut self, reply: &Reply, launches: &[Option<Novelty>], at: Timestamp) {
        let any = |novelty| launches.iter().flatten().any(|launch| *launch == novelty);
        let mut round = ModelRound {
            tools: Vec::new(),
            launched_new: any(Novelty::New),
            meant: any(Novelty::Meant),
            returned_new: false,
            waited: false,
            failed: true,
            all_ended: true,
        };
        for call in reply.calls() {
            if !round.tools.contains(&call.tool) {
                round.tools.push(call.tool.clone());
            }
        }
        (self.replies, self.replied_at) = (self.replies + 1, Some(at));
        self.returned.forget_old(self.replies);
        self.effects.returned.forget_old(self.replies);
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
        self.returned.has(hash(&(&call.tool, &call.arguments)), hash(&output)) && !is_about_tasks(call)
    }

    /// Applies what the calls of the last reply returned, the last of them at this time.
    pub(super) fn returned<'a>(
        &mut self,
        calls: impl Iterator<Item = (&'a Call, ReturnedResult)>,
        at: Option<Timestamp>,
    ) {
        let waited = at.zip(self.replied_at).is_some_and(|(end, start)| end.duration_since(start) >= WAITED);
        let mut is_new = waited;
        for (call, result) in calls {
            let (call, output) = (hash(&(&call.tool, &call.arguments)), hash(&&*result.output));
            let new = self.returned.insert(call, output, self.replies) || result.asked_person;
            is_new |= self.effects.returned.insert(call, output, self.replies) || result.asked_person;
            if let Some(round) = self.rounds.last_mut() {
                // The same results are nothing new, whichever of them were asked for.
                round.returned_new |= new && !(result.shown_before && result.all_ended);
                round.failed &= result.is_error;
                round.all_ended &= result.all_ended;
                round.waited = waited;
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
        self.effects.told = self.effects.unchanged >= TOLD_UNCHANGED;
    }

    /// A call began that may change something.
    pub(super) fn may_change(&mut self) {
        let effects = EffectRounds { may_change: true, ..std::mem::take(&mut self.effects) };
        self.begin_anew();
        self.effects = effects;
    }

    /// The model's tools were turned off for one reply.
    pub(super) fn turned_off(&mut self, has_results: bool) {
        let times_off = self.times_off + u32::from(has_results);
        self.begin_anew();
        (self.told, self.times_off) = (has_results, times_off);
    }

    /// Resets the detector: something happened that may lead to something new.
    pub(super) fn begin_anew(&mut self) {
        let LoopDetector { replies, replied_at, .. } = *self;
        *self = LoopDetector { replies, replied_at, ..LoopDetector::default() };
    }

    /// Whether, and how, to intervene. `repeats` is how many replies without anything new are enough. `delegates` says whether
    /// the model has a tool that launches tasks.
    pub(super) fn lead(
        &self,
        repeats: u32,
        policy: &Policy,
        launches: &LaunchHistory,
        effects: impl Fn(&str) -> ToolEffects,
        delegates: bool,
    ) -> Option<LoopResponse> {
        // It had its tools back, and went on with the loop. Only something new gives them back again; the
        // end of a task that it has launched in the loop does not.
        if self.times_off >= OFF_FOR_GOOD {
            return Some(LoopResponse::TurnOff);
        }
        if self.effects.unchanged >= policy.fail_after_repeats.max(OFF_UNCHANGED) {
            return Some(LoopResponse::TurnOff);
        }
        if self.effects.unchanged >= policy.warn_after_repeats.max(TOLD_UNCHANGED) && !self.effects.told {
            return Some(LoopResponse::TellUnchanged);
        }
        // Stopping what was launched leads to nothing new either.
        let has_results = launches.has_results();
        let looks = |tool: &String| effects(tool).polls_tasks || effects(tool).stops_tasks;
        let is_launch = |tool: &String| effects(tool).launches;
        let (mut score, mut launched_old, mut stale) = (0, false, 0);
        let (mut only_launches, mut only_looks) = (true, true);
        for round in self.rounds.iter().rev() {
            if round.tools.iter().all(looks) {
                // Looking again is not a loop, unless there is nothing to see or all has been seen. The same
                // error again says more than the same result again. What the model has started itself, such as a
                // command in the background, is no task.
                let is_internal = round.tools.iter().all(|tool| effects(tool).internal);
                stale += match round.failed {
                    _ if round.returned_new || !is_internal => 0,
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
            // A call that may have changed something counts as progress, whatever it returned; so does one that took time.
            let harmless = round.tools.iter().all(|tool| effects(tool).is_harmless());
            let may_be_new = round.returned_new || round.waited || !harmless;
            let new = round.launched_new || (!launching && may_be_new);
            only_launches &= launching;
            if only_launches {
                score += if new { NEW } else { STALE };
                launched_old |= !new;
            }
            if new && !only_launches {
                break;
            }
            stale += u32::from(!new);
        }
        // Reads that fail one after the other lead nowhere, however different they are.
        let is_failed_read = |round: &&ModelRound| {
            let only_reads = round.tools.iter().all(|tool| effects(tool).read_only && !looks(tool));
            round.failed && !round.waited && only_reads
        };
        let failed = self.rounds.iter().rev().take_while(is_failed_read).count();
        let all_fail = failed >= FAILED_READS.max(policy.warn_after_repeats as usize);
        let told = self.told && !self.rounds.iter().any(|round| round.is_progress(&effects));
        match told {
            true if all_fail => Some(LoopResponse::TurnOff),
            true if launched_old && has_results => Some(LoopResponse::TurnOff),
            true if launched_old => Some(LoopResponse::WaitWithoutTools),
            true if stale >= repeats.div_ceil(2) => Some(LoopResponse::TurnOff),
            _ if score >= TOLD_AT && has_results => Some(LoopResponse::Tell),
            _ if score >= TOLD_AT && launched_old => Some(LoopResponse::Wait),
            _ if stale >= repeats && only_looks && launches.is_empty() && delegates => {
                Some(LoopResponse::NothingStarted)
            }
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
                    if calls.get(&*result.call).is_some_and(|call| is_about_tasks(call)) {
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

/// Whether a call looks like one that launches a task or names one.
fn is_about_tasks(call: &Call) -> bool {
    const KEYS: [&str; 4] = ["task", "task_id", "task_ids", "agent_id"];
    let arguments: Result<HashMap<&str, IgnoredAny>, _> = serde_json::from_str(&call.arguments);
    arguments.is_ok_and(|arguments| KEYS.iter().any(|key| arguments.contains_key(key)))
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
