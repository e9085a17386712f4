//! The state of a task as a pure fold: entries in, state out. Illegal transitions are rejected.
//!
//! [`TaskState::begin`] creates the state from the first entry, and [`TaskState::apply`] updates it with each
//! following one. Nothing else in Longhaul decides a task's status. Stores keep the state beside the journal
//! so that lists are fast; it can always be rebuilt from the journal.
//!
//! `docs/lifecycle.md` shows the table that the tests below check.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::entry::{
    Budget, Entry, EntryKind, ExpectedAnswer, LiveTextKind, Outcome, Question, Record, ReleaseReason, Sender,
    StopRequest, Submission, TeamRef, WaitReason,
};
use crate::id::{AgentName, Attempt, CallId, QuestionId, Seq, TaskId, WorkerId};
use crate::message::Usage;
use crate::permission::Consent;

pub use crate::entry::Status;

/// How many unread letters a task's mailbox holds. Letters about ended children are always accepted.
pub const MAILBOX: u32 = 256;

/// The state of a task: the fold of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskState {
    /// Its id.
    pub id: TaskId,
    /// Its team.
    pub team: TeamRef,
    /// The agent that runs it.
    pub agent: AgentName,
    /// Its order in one line.
    pub headline: String,
    /// The task that launched it.
    pub parent: Option<TaskId>,
    /// The first task of its tree.
    pub root: TaskId,
    /// Its distance from the root.
    pub depth: u32,
    /// Whether it waits for the next letter instead of ending.
    pub interactive: bool,
    /// The ended task that it continues.
    pub continues: Option<TaskId>,
    /// The failed or cancelled task that it retries.
    pub retries: Option<TaskId>,
    /// The task that continues it.
    pub continued_by: Option<TaskId>,

    /// Its status.
    pub status: Status,
    /// How often it has been claimed.
    pub attempt: Attempt,
    /// The worker that runs it.
    pub worker: Option<WorkerId>,
    /// The stop request, if it was asked to stop.
    pub stop: Option<StopRequest>,
    /// Whether its end is in the journal. A stop can end a task before [`Entry::Finished`] is written.
    pub settled: bool,
    /// Why it ended without an answer.
    pub error: Option<String>,
    /// What made it answer early: a limit, or a loop.
    pub cut_short: Option<String>,

    /// The position of the last entry.
    pub seq: Seq,
    /// When it was submitted.
    pub created: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// When anything last happened in it.
    pub active: Timestamp,
    /// Its working time, as far as its owner has written.
    #[serde(default, rename = "worked_ms", with = "milliseconds")]
    pub worked: Duration,
    /// The start of the working time that is not in [`worked`](Self::worked) yet; `None` while no time
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counting: Option<Timestamp>,

    /// What it waits for, and since when.
    pub waiting: Option<WaitState>,
    /// Its questions that nobody has answered yet.
    pub asked: Vec<OpenQuestion>,
    /// Calls that a person has approved for its whole tree; only a root has any.
    pub granted: Vec<Consent>,
    /// The tool calls that are running. Shared, because there may be thousands, and few entries change it.
    pub calling: Arc<Vec<(CallId, Arc<str>)>>,
    /// Calls that a person moved to the background: each returns as soon as it only waits for other tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backgrounded: Vec<CallId>,
    /// The last progress message of a tool.
    pub progress: Option<String>,
    /// Letters that it has not read.
    pub unread: u32,
    /// Replies from its model.
    pub turns: u32,
    /// Tool calls that it started.
    pub calls: u32,
    /// The tokens it used.
    pub usage: Usage,
    /// Their cost in millionths of a dollar, as far as prices are known.
    pub cost: u64,
    /// Replies whose price is not known.
    pub unpriced: u32,
    /// Calls that were denied because nobody was there to approve them.
    #[serde(default)]
    pub denied: u32,
    /// Limits on it and everything below it that were changed after it was ordered. They replace those of the
    /// order.
    #[serde(default, skip_serializing_if = "Budget::is_open")]
    pub budget_set: Budget,
    /// When something last happened that may make earlier results out of date: a call that may have changed
    /// something (its own, or one of an ended child), or a message from a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
    /// The running calls that may change something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changing: Vec<CallId>,
}

/// Serializes a duration as a whole number of milliseconds.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// What a running task waits for, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitState {
    /// What it waits for.
    pub on: WaitReason,
    /// The start of the wait.
    pub since: Timestamp,
    /// The latest end of the wait, if known.
    pub until: Option<Timestamp>,
}

/// A question that waits for a person's answer, in short. The journal has all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// Its id.
    pub question: QuestionId,
    /// The question in one line.
    pub text: String,
    /// The tool, if the question asks for approval of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// When it was asked.
    pub since: Timestamp,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl OpenQuestion {
    fn new(question: QuestionId, asks: &Question, since: Timestamp, until: Option<Timestamp>) -> Self {
        let tool = match &asks.wants {
            ExpectedAnswer::Leave { tool, .. } => Some(tool.clone()),
            ExpectedAnswer::Words { .. } => None,
        };
        OpenQuestion { question, text: asks.headline(), tool, since, until }
    }
}

/// A transition that the lifecycle of a task does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IllegalTransition {
    /// The journal does not begin with [`Entry::Submitted`].
    #[error("a journal starts with its submission, not with '{0:?}'")]
    NotASubmission(EntryKind),
    /// A task with this status does not accept this entry.
    #[error("a task that is {status} does not accept '{entry:?}'")]
    NotNow {
        /// The task's status.
        status: Status,
        /// The rejected entry.
        entry: EntryKind,
    },
    /// The entry belongs to another attempt than the current one.
    #[error("attempt {got} is not the one expected ({expected})")]
    WrongAttempt {
        /// The attempt in the entry.
        got: Attempt,
        /// The current attempt.
        expected: Attempt,
    },
    /// The answer is to a question that is not open.
    #[error("question {0} is not open: it was answered, cancelled or never asked")]
    NotAsked(QuestionId),
    /// Too many letters are unread.
    #[error(
        "the mailbox is full: {MAILBOX} letters wait to be read; write again when the task has read some"
    )]
    MailboxFull,
}

impl TaskState {
    /// The state after the first entry. Fails if that is not [`Entry::Submitted`].
    pub fn begin(id: TaskId, record: &Record) -> Result<TaskState, IllegalTransition> {
        let Entry::Submitted(submitted) = &record.entry else {
            return Err(IllegalTransition::NotASubmission(record.entry.kind()));
        };
        let Submission { order, team, parent, root, depth, continues, retries, key: _, letter: _, above: _ } =
            &**submitted;
        Ok(TaskState {
            id,
            team: team.clone(),
            agent: order.agent.clone().unwrap_or_else(|| AgentName::from("root")),
            headline: order.headline(),
            parent: *parent,
            root: *root,
            depth: *depth,
            interactive: order.interactive,
            continues: *continues,
            retries: *retries,
            continued_by: None,
            status: Status::Pending,
            attempt: Attempt(0),
            worker: None,
            stop: None,
            settled: false,
            error: None,
            cut_short: None,
            seq: record.seq,
            created: record.at,
            started: None,
            ended: None,
            active: record.at,
            worked: Duration::ZERO,
            counting: None,
            waiting: None,
            asked: Vec::new(),
            granted: Vec::new(),
            calling: Arc::default(),
            backgrounded: Vec::new(),
            progress: None,
            unread: 0,
            turns: 0,
            calls: 0,
            usage: Usage::default(),
            cost: 0,
            unpriced: 0,
            denied: 0,
            budget_set: Budget::default(),
            changed: None,
            changing: Vec::new(),
        })
    }

    /// What it waits for at `now`. A wait for a provider ends at its `until`, even if the journal has no
    /// entry since: the task has sent the request again.
    pub fn waiting_at(&self, now: Timestamp) -> Option<&WaitState> {
        let over = |w: &WaitState| {
            matches!(w.on, WaitReason::Provider(_)) && w.until.is_some_and(|until| until <= now)
        };
        self.waiting.as_ref().filter(|waiting| !over(waiting))
    }

    /// The state after a whole journal; `None` if the journal is empty. Fails at the first illegal
    /// transition.
    pub fn from_journal(id: TaskId, journal: &[Record]) -> Result<Option<TaskState>, IllegalTransition> {
        let Some((first, rest)) = journal.split_first() else { return Ok(None) };
        let mut state = TaskState::begin(id, first)?;
        for record in rest {
            state.apply(record)?;
        }
        Ok(Some(state))
    }

    /// Applies the next entry. Fails, and leaves the state unchanged, if the transition is illegal.
    pub fn apply(&mut self, record: &Record) -> Result<(), IllegalTransition> {
        let not_now = IllegalTransition::NotNow { status: self.status, entry: record.entry.kind() };
        match (&record.entry, self.status) {
            (Entry::Claimed { attempt, worker }, Status::Pending) => {
                if *attempt != self.attempt.next() {
                    return Err(IllegalTransition::WrongAttempt {
                        got: *attempt,
                        expected: self.attempt.next(),
                    });
                }
                self.status = Status::Running;
                self.attempt = *attempt;
                self.worker = Some(worker.clone());
                self.started = self.started.or(Some(record.at));
                self.counting = Some(record.at);
            }

            (Entry::Letter(letter), status) => {
                if letter.ending.is_none() {
                    if status.is_final() {
                        return Err(not_now);
                    }
                    if self.unread >= MAILBOX {
                        return Err(IllegalTransition::MailboxFull);
                    }
                }
                self.unread = self.unread.saturating_add(1);
                if letter.effects || letter.from == Sender::Person {
                    self.changed = Some(record.at);
                }
            }

            (Entry::StopRequested(stop), Status::Pending) => {
                self.stop = Some(stop.clone());
                self.cancelled_by_stop(record.at);
            }
            (Entry::StopRequested(stop), Status::Running) => {
                if self.stop.as_ref().is_none_or(|had| had.cause < stop.cause) {
                    self.stop = Some(stop.clone());
                }
            }
            (Entry::StopRequested(_), _) => {}

            (Entry::Released { attempt, why }, Status::Running) => {
                if *attempt != self.attempt {
                    return Err(IllegalTransition::WrongAttempt { got: *attempt, expected: self.attempt });
                }
                // A worker that is gone has worked no longer than it has written.
                if *why == ReleaseReason::Drained {
                    self.count_until(record.at);
                }
                self.status = Status::Pending;
                self.clear_running();
                if self.stop.is_some() {
                    self.cancelled_by_stop(record.at);
                }
            }

            (Entry::Finished(outcome), Status::Running) => {
                self.count_until(record.at);
                self.finish(outcome, record.at);
            }
            (Entry::Finished(outcome), Status::Cancelled)
                if !self.settled && matches!(**outcome, Outcome::Cancelled { .. }) =>
            {
                self.finish(outcome, record.at);
            }

            (Entry::Continued { by }, status) if status.is_final() && self.continued_by.is_none() => {
                self.continued_by = Some(*by);
            }

            (Entry::Answered { question, .. }, Status::Pending | Status::Running) => {
                let at = self.asked.iter().position(|asked| asked.question == *question);
                self.asked.remove(at.ok_or(IllegalTransition::NotAsked(*question))?);
                self.changed = Some(record.at);
            }

            // An approval for the tree stays valid after its root has ended.
            (Entry::Granted { pattern, tool }, _) => {
                let consent = Consent { pattern: pattern.clone(), tool: tool.as_deref().cloned() };
                if !self.granted.contains(&consent) {
                    self.granted.push(consent);
                }
            }

            // Also written for hooks that run after the task has ended. Changes nothing.
            (Entry::HookFailed(_), _) => {}

            // A tree budget can also change after the root has ended.
            (Entry::BudgetSet { budget }, _) => {
                self.budget_set = budget.or(self.budget_set);
            }

            // The list of these calls survives a crash: the calls are made again and must not wait then.
            (Entry::Backgrounded, Status::Running) => {
                let calls = self.calling.iter().map(|(call, _)| *call);
                let new: Vec<CallId> = calls.filter(|call| !self.backgrounded.contains(call)).collect();
                self.backgrounded.extend(new);
            }

            (entry, Status::Running) => self.apply_owner_entry(entry, record.at, not_now)?,

            _ => return Err(not_now),
        }
        self.seq = record.seq;
        self.active = record.at;
        Ok(())
    }

    /// Applies an entry that the owner of a running task writes.
    fn apply_owner_entry(
        &mut self,
        entry: &Entry,
        at: Timestamp,
        not_now: IllegalTransition,
    ) -> Result<(), IllegalTransition> {
        match entry {
            Entry::Submitted(_) | Entry::Claimed { .. } | Entry::Continued { .. } => return Err(not_now),
            Entry::Said { voice: LiveTextKind::Progress, .. } | Entry::Worked { .. } => {}
            _ => self.waiting = None,
        }
        self.count_until(at);
        match entry {
            Entry::Read { letters, known, .. } => {
                let read = u32::try_from(letters.len() + known.len()).unwrap_or(u32::MAX);
                self.unread = self.unread.saturating_sub(read);
            }
            Entry::Asked { question, asks, until } => {
                self.asked.retain(|asked| asked.question != *question);
                self.asked.push(OpenQuestion::new(*question, asks, at, *until));
                self.asked.sort_by_key(|asked| asked.question);
            }
            Entry::Replied(reply) => {
                self.asked.clear();
                self.backgrounded.clear();
                self.turns = self.turns.saturating_add(1);
                self.spend(reply.usage, reply.cost);
            }
            Entry::Denied { .. } => self.denied = self.denied.saturating_add(1),
            Entry::Sampled(sampled) => self.spend(sampled.usage, sampled.cost),
            // If the model wrote no summary, nothing was used.
            Entry::Compacted { usage, cost: None, .. } if *usage == Usage::default() => {}
            Entry::Compacted { usage, cost, .. } => self.spend(*usage, *cost),
            Entry::Called { call, tool, effects, .. } => {
                self.calls = self.calls.saturating_add(1);
                Arc::make_mut(&mut self.calling).push((*call, tool.clone()));
                if *effects {
                    self.changed = Some(at);
                    self.changing.push(*call);
                }
            }
            Entry::Returned(returned) => {
                // Calls return roughly in their order, so this looks at few of them.
                if let Some(at) = self.calling.iter().position(|(call, _)| *call == returned.call) {
                    Arc::make_mut(&mut self.calling).remove(at);
                }
                if self.changing.contains(&returned.call) {
                    self.changing.retain(|call| *call != returned.call);
                    self.changed = Some(at);
                }
                self.backgrounded.retain(|call| *call != returned.call);
                self.asked.retain(|asked| asked.question.call != returned.call);
                self.progress = None;
            }
            Entry::Said { voice: LiveTextKind::Progress, text } => self.progress = Some(text.clone()),
            Entry::Waiting { on, until } => {
                if matches!(on, WaitReason::Person(_) | WaitReason::Letter) {
                    self.counting = None;
                }
                self.waiting = Some(WaitState { on: on.clone(), since: at, until: *until });
            }
            Entry::Worked { ms, paused } => {
                self.worked = Duration::from_millis(*ms);
                if *paused {
                    self.counting = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn spend(&mut self, usage: Usage, cost: Option<u64>) {
        self.usage += usage;
        match cost {
            Some(cost) => self.cost = self.cost.saturating_add(cost),
            None => self.unpriced = self.unpriced.saturating_add(1),
        }
    }

    fn finish(&mut self, outcome: &Outcome, at: Timestamp) {
        self.status = outcome.status();
        if let Outcome::Completed { cut_short, .. } = outcome {
            self.cut_short = cut_short.clone();
        }
        self.error = outcome.error();
        self.settled = true;
        self.ended = self.ended.or(Some(at));
        self.asked.clear();
        self.clear_running();
    }

    fn cancelled_by_stop(&mut self, at: Timestamp) {
        self.status = Status::Cancelled;
        self.ended = Some(at);
        self.asked.clear();
    }

    /// Adds the working time up to `at`, if time counts, and keeps counting.
    fn count_until(&mut self, at: Timestamp) {
        if let Some(since) = self.counting.replace(at) {
            self.worked += Duration::try_from(at.duration_since(since)).unwrap_or_default();
        }
    }

    /// Clears what only a running task has: waits and running calls.
    fn clear_running(&mut self) {
        self.counting = None;
        self.worker = None;
        self.waiting = None;
        self.progress = None;
        self.calling = Arc::default();
        self.changing.clear();
    }

    /// Whether something has happened since `then`, or is happening now, that may make earlier results out of
    /// date.
    pub fn has_changed_since(&self, then: Timestamp) -> bool {
        !self.changing.is_empty() || self.changed.is_some_and(|changed| changed >= then)
    }

    /// The state to show if its worker is gone: no longer running, although the journal does not say so yet.
    #[must_use]
    pub fn into_interrupted(mut self) -> TaskState {
        // A task with a stop request does not run again: the process that finds it settles the stop.
        if self.status == Status::Running && self.stop.is_none() {
            self.status = Status::Pending;
            self.clear_running();
        }
        self
    }

    /// Its working time until `now`. Since the owner's last entry at most `most` is added, because the owner
    /// may be gone or asleep.
    pub fn worked_at(&self, now: Timestamp, most: Duration) -> Duration {
        let since = self.counting.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        self.worked + since.unwrap_or_default().min(most)
    }

    /// Whether it is queued or working, and waits neither for people nor for other tasks.
    pub(crate) fn is_at_work(&self) -> bool {
        let waits =
            self.waiting.as_ref().is_some_and(|waiting| !matches!(waiting.on, WaitReason::Provider(_)));
        !(self.status.is_final() || self.status == Status::Running && waits)
    }

    /// Whether it only waits for people, or for tasks in `tree` that do.
    pub fn waits_for_people(&self, tree: &[TaskState]) -> bool {
        if self.status != Status::Running {
            return false;
        }
        match self.waiting.as_ref().map(|waiting| &waiting.on) {
            Some(WaitReason::Person(_)) => !self.asked.is_empty(),
            Some(WaitReason::Letter) => true,
            Some(WaitReason::Tasks(tasks)) => all_wait_for_people(tasks, tree),
            Some(WaitReason::Provider(_)) | None => false,
        }
    }

    /// Time since its first claim until its end, or until `now`. If no worker runs it, until its last entry.
    pub fn elapsed(&self, now: Timestamp) -> Duration {
        let Some(started) = self.started else { return Duration::ZERO };
        let end = self.ended.unwrap_or(if self.status == Status::Pending { self.active } else { now });
        Duration::try_from(end.duration_since(started)).unwrap_or_default()
    }
}

/// Whether all unfinished tasks of `tasks` only wait for people. `tree` must hold, in listing order, at least
/// every unfinished task of the tree.
pub fn all_wait_for_people(tasks: &[TaskId], tree: &[TaskState]) -> bool {
    // Parents come first in a listing, and no task waits for one above it, so each step looks at a shorter
    // rest.
    let mut open = tasks.iter().filter_map(|id| {
        let at = tree.iter().position(|state| state.id == *id && !state.status.is_final())?;
        Some((&tree[at], &tree[at + 1..]))
    });
    let Some((first, below)) = open.next() else { return false };
    first.waits_for_people(below) && open.all(|(state, below)| state.waits_for_people(below))
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
