//! What interrupts a run, and how its attempt ends.

use crate::entry::{EntryCodecError, Failure, FailureKind};
use crate::store::StoreError;

/// What interrupts a run.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The task was asked to stop.
    Stop,
    /// The worker is draining.
    Drain,
    /// The task has failed.
    Fail(Failure),
    /// Another worker owns the task now.
    Lost,
    /// The journal is not the one that this run has read and written: the store has lost its end.
    Stale,
    /// A newer version of Longhaul has written to the journal: this one cannot continue it.
    Newer(StoreError),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Superseded { .. } | StoreError::NoTask(_) => Halt::Lost,
            error @ StoreError::BadEntry { why: EntryCodecError::NewerFormat { .. }, .. } => {
                Halt::Newer(error)
            }
            // No worker can continue a journal that is unreadable or inconsistent.
            error @ (StoreError::BadEntry { .. }
            | StoreError::Illegal { .. }
            | StoreError::Damaged { .. }) => {
                Halt::Fail(Failure::new(FailureKind::Journal, error.to_string()))
            }
            error => Halt::Store(error),
        }
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptEnd {
    /// With an outcome.
    Finished,
    /// Without one: the task can be claimed again.
    Released,
    /// Without one, and this process cannot run it: a newer version of Longhaul has to claim it.
    LeftToNewer,
    /// Another worker owns the task.
    Lost,
    /// The store failed: a process that finds the lease expired will continue.
    StoreFailed(StoreError),
}
