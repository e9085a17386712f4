//! The format in which a task's state is stored beside its journal.
//!
//! It is written often, so it is small: default values are left out, and a time is a number. It may be some
//! entries behind its journal; readers apply those. A state in an unreadable format is rebuilt from the
//! journal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::serde::timestamp::millisecond;
use serde::{Deserialize, Serialize};

use crate::entry::{Budget, StopRequest, TeamRef};
use crate::id::{AgentName, Attempt, CallId, Seq, TaskId, WorkerId};
use crate::message::Usage;
use crate::permission::Consent;
use crate::task::{OpenQuestion, Status, TaskState, WaitState, milliseconds};

/// Writes a state.
pub(super) fn write(state: &TaskState, to: &mut Vec<u8>) -> serde_json::Result<()> {
    SavedTaskState::serialize(state, &mut serde_json::Serializer::new(to))
}

/// Reads a state; `None` if it is in another format.
pub(super) fn read(bytes: &[u8]) -> Option<TaskState> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let state = SavedTaskState::deserialize(&mut json).ok()?;
    json.end().is_ok().then_some(state)
}

/// The fields of a [`TaskState`], with times in milliseconds since 1970. A forgotten field does not compile.
#[derive(Serialize, Deserialize)]
#[serde(remote = "TaskState")]
struct SavedTaskState {
    id: TaskId,
    team: TeamRef,
    agent: AgentName,
    #[serde(default, skip_serializing_if = "is_default")]
    headline: String,
    #[serde(default, skip_serializing_if = "is_default")]
    parent: Option<TaskId>,
    root: TaskId,
    #[serde(default, skip_serializing_if = "is_default")]
    depth: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    interactive: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    continues: Option<TaskId>,
    #[serde(default, skip_serializing_if = "is_default")]
    retries: Option<TaskId>,
    #[serde(default, skip_serializing_if = "is_default")]
    continued_by: Option<TaskId>,
    status: Status,
    #[serde(default, skip_serializing_if = "is_default")]
    attempt: Attempt,
    #[serde(default, skip_serializing_if = "is_default")]
    worker: Option<WorkerId>,
    #[serde(default, skip_serializing_if = "is_default")]
    stop: Option<StopRequest>,
    #[serde(default, skip_serializing_if = "is_default")]
    settled: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    cut_short: Option<String>,
    seq: Seq,
    #[serde(with = "millisecond::required")]
    created: Timestamp,
    #[serde(default, skip_serializing_if = "is_default", with = "millisecond::optional")]
    started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default", with = "millisecond::optional")]
    ended: Option<Timestamp>,
    #[serde(with = "millisecond::required")]
    active: Timestamp,
    #[serde(default, skip_serializing_if = "is_default", with = "milliseconds")]
    worked: Duration,
    #[serde(default, skip_serializing_if = "is_default", with = "millisecond::optional")]
    counting: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    waiting: Option<WaitState>,
    #[serde(default, skip_serializing_if = "is_default")]
    asked: Vec<OpenQuestion>,
    #[serde(default, skip_serializing_if = "is_default")]
    granted: Vec<Consent>,
    #[serde(default, skip_serializing_if = "is_default")]
    calling: Arc<Vec<(CallId, Arc<str>)>>,
    #[serde(default, skip_serializing_if = "is_default")]
    backgrounded: Vec<CallId>,
    #[serde(default, skip_serializing_if = "is_default")]
    progress: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    unread: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    turns: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    calls: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    usage: Usage,
    #[serde(default, skip_serializing_if = "is_default")]
    cost: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    unpriced: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    denied: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    budget_set: Budget,
    #[serde(default, skip_serializing_if = "is_default", with = "millisecond::optional")]
    changed: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    changing: Vec<CallId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
