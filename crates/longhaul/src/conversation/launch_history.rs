//! What a task has launched and which results it has read: a fold of its journal, and the decisions that
//! follow from it. A model that is stuck launches the same task again and again, although it has the result.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::dispatch::EarlierLaunch;
use crate::entry::{Letter, TaskEnding};
use crate::id::{CallId, TaskId, TaskKey};
use crate::message::{Call, Reply};
use crate::task::Status;

/// Stands for the agent if a call sends a message. One to an ended task continues it with a new task.
const MESSAGE: &str = "(message)";
/// With how many earlier launches a new one is compared word by word; the same words are always noticed.
const LOOKED_AT: usize = 64;
/// A reply that launches more than this is not compared word by word: it is a fan-out.
const FAN_OUT: usize = 16;
/// How much of a result a reminder shows, in bytes.
const SHOWN: usize = 400;

/// What a task has launched.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LaunchHistory {
    asked: Vec<LaunchedOrder>,
    /// The results in the conversation, oldest first.
    results: Vec<KnownResult>,
    /// Whether a task that this one continues has launched any.
    #[serde(default)]
    earlier_tasks_launched: bool,
}

/// Whether a launch is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// Nothing like it was launched before, or the call says that it is to be done once more.
    New,
    /// The same, or something similar, was launched before.
    Old,
    /// Launched several times in one reply, or something new said to a task: intended.
    Meant,
}

/// A call that launches a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LaunchedOrder {
    call: CallId,
    whom: String,
    words: Arc<str>,
    /// Whether its reply launched the same several times: that is intended and never counts.
    several: bool,
    launched: Timestamp,
    /// Whether something has happened since that may be the reason to launch the same again.
    old: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownResult {
    task: TaskId,
    read: Timestamp,
    /// Whether something has happened since that may have made it out of date.
    old: bool,
    /// Whether the task ended without an answer.
    #[serde(default)]
    failed: bool,
    text: Arc<str>,
}

impl LaunchHistory {
    /// Applies reply number `turn`. Returns for each call whether it launches something new; `None` for calls
    /// that launch nothing.
    pub(super) fn replied(&mut self, turn: u32, reply: &Reply, launched: Timestamp) -> Vec<Option<Novelty>> {
        let mut asks: Vec<Option<(LaunchedOrder, bool)>> = Vec::new();
        for (call, index) in reply.calls().zip(0..) {
            asks.push(NormalizedText::of(call).map(|words| {
                let (call, again, whom) = (CallId { turn, index }, words.again, words.whom);
                let words = words.task.into();
                (LaunchedOrder { call, whom, words, several: false, launched, old: false }, again)
            }));
        }
        // How often the reply launches each: several times is intended.
        let mut times: HashMap<(&str, &str), u32> = HashMap::new();
        for (asked, _) in asks.iter().flatten() {
            *times.entry((&asked.whom, &asked.words)).or_default() += 1;
        }
        let is_several = |asked: &LaunchedOrder| times.get(&(&*asked.whom, &*asked.words)) > Some(&1);
        let had: HashSet<(&str, &str)> = self.asked.iter().map(|had| (&*had.whom, &*had.words)).collect();
        let is_fan_out = asks.iter().flatten().count() > FAN_OUT;
        let (mut new, mut asked_now) = (Vec::with_capacity(asks.len()), Vec::new());
        for asks in &asks {
            let Some((asked, again)) = asks else {
                new.push(None);
                continue;
            };
            let is_alike = || {
                let mut last = self.asked.iter().rev().take(LOOKED_AT);
                !is_fan_out && last.any(|had| had.is_alike(asked))
            };
            let several = is_several(asked);
            new.push(Some(match had.contains(&(&*asked.whom, &*asked.words)) || is_alike() {
                _ if several => Novelty::Meant,
                true if *again => Novelty::New,
                true => Novelty::Old,
                // Something new said to a task is a conversation.
                false if asked.whom == MESSAGE => Novelty::Meant,
                false => Novelty::New,
            }));
            asked_now.push(LaunchedOrder { several, ..asked.clone() });
        }
        self.asked.extend(asked_now);
        new
    }

    /// Applies letters that were read.
    pub(super) fn read(&mut self, letters: &[Letter], at: Timestamp) {
        for letter in letters {
            if let Some(task) = letter.ending {
                let failed = letter.task_ending().is_some_and(|ending| ending.status != Status::Completed);
                self.know(task, at, failed, TaskEnding::body(&letter.text));
            }
        }
        // A message may be the reason to launch the same again, also if it arrived together with a result.
        if letters.iter().any(|letter| letter.ending.is_none()) {
            self.something_happened();
        }
    }

    /// Applies results that a call returned, as far as they were not read before.
    pub(super) fn collected(&mut self, tasks: &[TaskId], at: Timestamp, output: &str, failed: bool) {
        for task in tasks {
            if !self.results.iter().any(|known| known.task == *task) {
                self.know(*task, at, failed, output);
            }
        }
    }

    /// The task did something that may make the results it has read out of date.
    pub(super) fn something_happened(&mut self) {
        self.results.iter_mut().for_each(|known| known.old = true);
        self.asked.iter_mut().rev().take_while(|asked| !asked.old).for_each(|asked| asked.old = true);
    }

    /// The history of a task that continues the one with this history: a new start.
    pub(super) fn continued(&self) -> LaunchHistory {
        LaunchHistory { earlier_tasks_launched: !self.is_empty(), ..LaunchHistory::default() }
    }

    /// Whether nothing was launched, neither by it nor by the tasks that it continues.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty() && !self.earlier_tasks_launched
    }

    /// Whether it has read the result of any task.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty()
    }

    fn know(&mut self, task: TaskId, read: Timestamp, failed: bool, text: &str) {
        self.results.retain(|known| known.task != task);
        self.results.push(KnownResult { task, read, old: false, failed, text: shortened(text).into() });
    }

    /// Whether a letter reports that a task failed just as one before it, whatever both have changed until then.
    pub(super) fn is_failure_again(&self, letter: &Letter) -> bool {
        letter.task_ending().is_some_and(|ending| {
            let text = shortened(TaskEnding::body(&letter.text));
            let is_before = |known: &KnownResult| known.task != ending.task && *known.text == *text;
            ending.status == Status::Failed && self.results.iter().any(is_before)
        })
    }

    /// Earlier launches with the same arguments as this call, or with similar ones if their results were read;
    /// the latest first. `me` is the task itself.
    pub(super) fn earlier(&self, me: TaskId, call: CallId) -> Vec<EarlierLaunch> {
        // In the order of their calls, so a call among thousands is found without looking at all of them.
        let found = self.asked.binary_search_by_key(&call, |asked| asked.call);
        let Some(asked) = found.ok().map(|at| &self.asked[at]).filter(|asked| !asked.several) else {
            return Vec::new();
        };
        let before = &self.asked[..self.asked.partition_point(|had| had.call.turn < call.turn)];
        let now = self.asked.partition_point(|had| had.call.turn <= call.turn) - before.len();
        let is_fan_out = now > FAN_OUT;
        let before = before.iter().rev().filter(|had| !had.several);
        let found = before.enumerate().filter_map(|(nth, had)| {
            let same = had.is_same(asked);
            let is_alike = || !is_fan_out && nth < LOOKED_AT && had.is_alike(asked);
            if !(same || is_alike()) {
                return None;
            }
            let ids: Vec<TaskId> = TaskKey::for_child(me, had.call).candidate_ids().collect();
            let known = self.results.iter().find(|known| ids.contains(&known.task));
            // A task that failed has no result that could answer a new one.
            let result = known.filter(|known| !known.failed).map(|known| (known.task, known.read));
            let same = same && !known.map_or(had.old, |known| known.old);
            (same || result.is_some()).then_some(EarlierLaunch {
                call: had.call,
                launched: had.launched,
                result,
                same,
            })
        });
        found.collect()
    }

    /// The results, one line each.
    pub(super) fn shown(&self) -> String {
        let line = |known: &KnownResult| format!("- {}: {}\n", known.task, known.text.replace('\n', "\n  "));
        self.results.iter().map(line).collect()
    }
}

/// As much of a result as a reminder shows.
fn shortened(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(SHOWN)];
    format!("{}{}", cut.trim(), if cut.len() < text.len() { "…" } else { "" })
}

/// The agent and order of a call that looks like a launch, or the message of one that sends it. Only the tool knows whether it is one.
struct NormalizedText {
    whom: String,
    task: String,
    again: bool,
}

impl NormalizedText {
    fn of(call: &Call) -> Option<NormalizedText> {
        if !["\"task\"", "\"message\""].iter().any(|key| call.arguments.contains(key)) {
            return None;
        }
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).ok()?;
        let text = |key: &str| arguments.get(key).and_then(serde_json::Value::as_str);
        let one_spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let (None, Some(message)) = (text("task"), text("message")) {
            return Some(NormalizedText {
                whom: MESSAGE.to_owned(),
                task: one_spaced(message),
                again: false,
            });
        }
        let whom = text("agent").or_else(|| text("subagent_type")).unwrap_or(&call.tool);
        let again = match arguments.get("again") {
            Some(serde_json::Value::Bool(again)) => *again,
            Some(serde_json::Value::String(again)) => again.trim().eq_ignore_ascii_case("true"),
            _ => false,
        };
        Some(NormalizedText { whom: whom.trim().to_lowercase(), task: one_spaced(text("task")?), again })
    }
}

impl LaunchedOrder {
    fn is_same(&self, other: &LaunchedOrder) -> bool {
        self.whom == other.whom && self.words == other.words
    }

    fn is_alike(&self, other: &LaunchedOrder) -> bool {
        self.whom == other.whom && is_alike(&self.words, &other.words)
    }
}

/// Whether two texts ask for nearly the same: they name the same things (files, numbers) and share many
/// words.
fn is_alike(one: &str, two: &str) -> bool {
    const OFTEN: [&str; 24] = [
        "the", "a", "an", "of", "in", "to", "and", "for", "is", "are", "with", "from", "on", "at", "it",
        "its", "that", "this", "be", "you", "your", "please", "what", "which",
    ];
    let words = |text: &str| -> HashSet<String> {
        let inside = |c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '_' | '-');
        let all =
            text.split(|c: char| !inside(c)).map(|word| word.trim_matches(['.', '-', '/']).to_lowercase());
        all.filter(|word| !word.is_empty() && !OFTEN.contains(&word.as_str())).collect()
    };
    let is_name = |word: &&String| word.contains(|c: char| c.is_numeric() || matches!(c, '.' | '/' | '_'));
    let (one, two) = (words(one), words(two));
    let names: HashSet<&String> = one.iter().filter(is_name).collect();
    if names != two.iter().filter(is_name).collect() {
        return false;
    }
    let (shared, all) = (one.intersection(&two).count(), one.union(&two).count());
    let least = if names.is_empty() { 60 } else { 30 };
    all > 0 && shared * 100 >= all * least
}
