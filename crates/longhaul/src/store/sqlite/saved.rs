//! The form in which a head is stored beside its journal.
//!
//! It is written with every append, so it is kept small: what is at its default is left out, and a time is a number.
//! A head in a form that cannot be read is made again from its journal.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::entry::{Stop, TeamRef};
use crate::id::{AgentName, Attempt, CallId, Seq, TaskId, WorkerId};
use crate::message::Usage;
use crate::permission::Pattern;
use crate::task::{Head, OpenQuestion, Status, Waiting};

/// A [`Head`] as it is stored: the same fields, times in milliseconds since 1970.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
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
    continued_by: Option<TaskId>,
    status: Status,
    #[serde(default, skip_serializing_if = "is_default")]
    attempt: Attempt,
    #[serde(default, skip_serializing_if = "is_default")]
    worker: Option<WorkerId>,
    #[serde(default, skip_serializing_if = "is_default")]
    stop: Option<Stop>,
    #[serde(default, skip_serializing_if = "is_default")]
    settled: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    cut_short: Option<String>,
    seq: Seq,
    created: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    started: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    ended: Option<i64>,
    active: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    waiting: Option<Waiting>,
    #[serde(default, skip_serializing_if = "is_default")]
    asked: Vec<OpenQuestion>,
    #[serde(default, skip_serializing_if = "is_default")]
    granted: Vec<Pattern>,
    #[serde(default, skip_serializing_if = "is_default")]
    calling: Vec<(CallId, Arc<str>)>,
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
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<Head> for Saved {
    fn from(head: Head) -> Saved {
        // Taken apart in full, so that a new field of a head cannot be forgotten here.
        let Head {
            id,
            team,
            agent,
            headline,
            parent,
            root,
            depth,
            interactive,
            continues,
            continued_by,
            status,
            attempt,
            worker,
            stop,
            settled,
            error,
            cut_short,
            seq,
            created,
            started,
            ended,
            active,
            waiting,
            asked,
            granted,
            calling,
            progress,
            unread,
            turns,
            calls,
            usage,
            cost,
            unpriced,
        } = head;
        Saved {
            id,
            team,
            agent,
            headline,
            parent,
            root,
            depth,
            interactive,
            continues,
            continued_by,
            status,
            attempt,
            worker,
            stop,
            settled,
            error,
            cut_short,
            seq,
            created: created.as_millisecond(),
            started: started.map(Timestamp::as_millisecond),
            ended: ended.map(Timestamp::as_millisecond),
            active: active.as_millisecond(),
            waiting,
            asked,
            granted,
            calling,
            progress,
            unread,
            turns,
            calls,
            usage,
            cost,
            unpriced,
        }
    }
}

impl Saved {
    /// The head that was stored; `None` if its times are none.
    pub(super) fn head(self) -> Option<Head> {
        let Saved {
            id,
            team,
            agent,
            headline,
            parent,
            root,
            depth,
            interactive,
            continues,
            continued_by,
            status,
            attempt,
            worker,
            stop,
            settled,
            error,
            cut_short,
            seq,
            created,
            started,
            ended,
            active,
            waiting,
            asked,
            granted,
            calling,
            progress,
            unread,
            turns,
            calls,
            usage,
            cost,
            unpriced,
        } = self;
        let time = |ms| Timestamp::from_millisecond(ms).ok();
        Some(Head {
            id,
            team,
            agent,
            headline,
            parent,
            root,
            depth,
            interactive,
            continues,
            continued_by,
            status,
            attempt,
            worker,
            stop,
            settled,
            error,
            cut_short,
            seq,
            created: time(created)?,
            started: started.and_then(time),
            ended: ended.and_then(time),
            active: time(active)?,
            waiting,
            asked,
            granted,
            calling,
            progress,
            unread,
            turns,
            calls,
            usage,
            cost,
            unpriced,
        })
    }
}
