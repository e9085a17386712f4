//! Loads a task from its journal: its state and its conversation, including those of the tasks that it
//! continues.

use std::sync::Arc;

use super::Halt;
use crate::agent::Team;
use crate::conversation::Conversation;
use crate::entry::{Entry, Record, Submission};
use crate::id::{Seq, TaskId};
use crate::journal::{read_all, read_submission, submission_in};
use crate::store::{ClaimedTask, Store, StoreError};
use crate::task::TaskState;

/// The state, conversation and order of a task. The conversation includes those of the tasks that it
/// continues.
pub(super) async fn load_task(
    store: &dyn Store,
    team: &Team,
    id: TaskId,
    journal: &[Record],
) -> Result<(TaskState, Conversation, Submission), Halt> {
    let submitted = submission_in(id, journal)?;
    let mut turn: Option<Conversation> = None;
    // Oldest first, one journal at a time.
    for old in continued_tasks(store, submitted.continues).await?.into_iter().rev() {
        let journal = read_all(store, old, Seq(0)).await?;
        let extended = extend_conversation(turn.take(), team, &submission_in(old, &journal)?, &journal);
        turn = Some(extended);
    }
    let turn = extend_conversation(turn, team, &submitted, journal);
    let illegal = |why| StoreError::Illegal { task: id, why };
    let state = TaskState::from_journal(id, journal).map_err(illegal)?.ok_or(StoreError::NoTask(id))?;
    Ok((state, turn, submitted))
}

/// The conversation of a task that continues another, or of a new one.
fn extend_conversation(
    before: Option<Conversation>,
    team: &Team,
    submitted: &Submission,
    journal: &[Record],
) -> Conversation {
    let mut turn = match before {
        Some(turn) => turn.continue_with(submitted),
        None => Conversation::begin(submitted, team.root()),
    };
    journal.iter().for_each(|record| turn.apply(record));
    turn
}

/// The tasks that a task continues, the latest first.
pub(super) async fn continued_tasks(
    store: &dyn Store,
    mut continues: Option<TaskId>,
) -> Result<Vec<TaskId>, StoreError> {
    let mut chain = Vec::new();
    while let Some(old) = continues {
        chain.push(old);
        continues = read_submission(store, old).await?.continues;
    }
    Ok(chain)
}

/// A claimed task whose run has not begun. Small, because thousands may wait. The worker shares its state.
pub(crate) struct ClaimedRun {
    pub(crate) state: Arc<TaskState>,
    /// The first entry of its journal.
    pub(super) first: Box<Record>,
}

impl ClaimedRun {
    pub(crate) fn new(task: ClaimedTask) -> ClaimedRun {
        ClaimedRun { state: task.state, first: Box::new(task.first) }
    }

    /// Whether it never ran before: its journal has only its submission and its claim.
    pub(super) fn is_fresh(&self) -> bool {
        self.state.seq == Seq(2)
    }

    /// Its state, and its journal if it never ran before.
    pub(super) fn into_parts(self) -> (Arc<TaskState>, Option<Vec<Record>>) {
        let TaskState { attempt, worker, seq, active, .. } = &*self.state;
        let claimed = worker.clone().filter(|_| self.is_fresh()).map(|worker| {
            let entry = Entry::Claimed { attempt: *attempt, worker };
            Record { seq: *seq, at: *active, entry }
        });
        let journal = claimed.map(|claimed| vec![*self.first, claimed]);
        (self.state, journal)
    }
}

#[cfg(test)]
#[path = "load_task_tests.rs"]
mod tests;
