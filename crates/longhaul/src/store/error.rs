//! Why a store operation failed.

use super::FeedPosition;
use crate::entry::EntryCodecError;
use crate::id::{Attempt, Seq, TaskId};
use crate::task::IllegalTransition;

/// Why a store operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The task already exists.
    #[error("task {0} exists already")]
    Exists(TaskId),
    /// There is no such task.
    #[error("no task {0}")]
    NoTask(TaskId),
    /// No task has this id or prefix.
    #[error("no task '{typed}'")]
    NotFound {
        /// The requested id.
        typed: String,
    },
    /// Several tasks match the prefix.
    #[error("'{typed}' matches several tasks ({}): type more of the id", join(.matches))]
    Ambiguous {
        /// The requested prefix.
        typed: String,
        /// Some of the tasks that match.
        matches: Vec<TaskId>,
    },
    /// The writer is not the owner, or no longer.
    #[error("task {task} is not owned by attempt {attempt} (any more)")]
    Superseded {
        /// The task.
        task: TaskId,
        /// The writer's attempt.
        attempt: Attempt,
    },
    /// The journal has grown since the writer last read it.
    #[error("task {task} has new entries up to {seq}")]
    JournalMoved {
        /// The task.
        task: TaskId,
        /// The end of the journal now.
        seq: Seq,
    },
    /// The lifecycle of a task does not allow this transition.
    #[error("task {task}: {why}")]
    Illegal {
        /// The task.
        task: TaskId,
        /// The reason.
        why: IllegalTransition,
    },
    /// The task to be deleted has not ended.
    #[error("task {0} has not ended")]
    NotEnded(TaskId),
    /// A task that would stay needs the task to be deleted.
    #[error("task {task} cannot be deleted alone: {by} belongs to the same tree or conversation")]
    StillNeeded {
        /// The task to be deleted.
        task: TaskId,
        /// The task that needs it.
        by: TaskId,
    },
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// The limit.
        limit: u32,
        /// What it limits.
        what: &'static str,
    },
    /// An entry could not be read or written.
    #[error("entry {seq} of task {task} cannot be read: {why}")]
    BadEntry {
        /// The task.
        task: TaskId,
        /// The entry.
        seq: Seq,
        /// The reason.
        why: EntryCodecError,
    },
    /// The database itself failed: `what` names the file, the problem and the fix.
    #[error("{what}")]
    Database {
        /// The problem, the file, and how to fix it.
        what: String,
        /// Whether a retry may help.
        fault: DatabaseFault,
    },
    /// Stored data is damaged: `what` names the data, the place and the fix. Everything else remains usable.
    #[error("{what}")]
    Damaged {
        /// The damaged data, the place, and how to fix it.
        what: String,
    },
    /// The position in the feed is not one of this store: it was made by another one, or this one has lost
    /// its latest entries.
    #[error("the position {0} is not in the feed of this store")]
    UnknownPosition(FeedPosition),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

pub(super) fn no_feed() -> StoreError {
    unsupported("it has no feed of all its entries")
}

pub(super) fn unsupported(what: &str) -> StoreError {
    let what = format!("this store cannot do that: {what}");
    StoreError::Database { what, fault: DatabaseFault::Permanent }
}

/// Whether a database that failed may work again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseFault {
    /// A retry may help: it is locked, or busy otherwise. Nothing was written.
    Busy,
    /// A retry may help once there is room on the disk. Nothing was written.
    DiskFull,
    /// A retry does not help.
    Permanent,
    /// The answer was lost: it is not known whether it was written. A retry could write it twice.
    Uncertain,
}

fn join(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
