//! Checks that every store makes before it writes, so that all stores behave the same.

use std::collections::HashMap;

use jiff::Timestamp;

use super::{Batch, EntryKinds, Fence, Hint, StoreError};
use crate::entry::{Entry, Outcome, Record};
use crate::id::{LetterId, Seq, TaskId};
use crate::task::{IllegalTransition, Status, TaskState};

/// A [`JournalWrite`](super::JournalWrite) before it is written.
#[derive(Debug)]
pub(super) struct WriteDraft {
    pub(super) task: TaskId,
    pub(super) fence: Fence,
    pub(super) after: Option<Seq>,
    pub(super) entries: Vec<DraftEntry>,
}

/// An entry before it is written. Its position and time are set during validation.
#[derive(Debug)]
pub(super) struct DraftEntry {
    pub(super) record: Record,
    /// Whether it is a letter that the task already has.
    pub(super) known: bool,
}

impl WriteDraft {
    /// The drafts of a batch.
    pub(super) fn from_batch(batch: Batch) -> Vec<WriteDraft> {
        let line = |entry| DraftEntry {
            record: Record { seq: Seq(0), at: Timestamp::UNIX_EPOCH, entry },
            known: false,
        };
        let draft = |w: super::JournalWrite| WriteDraft {
            task: w.task,
            fence: w.fence,
            after: w.after,
            entries: w.entries.into_iter().map(line).collect(),
        };
        batch.writes.into_iter().map(draft).collect()
    }

    /// The entries that are new to the journal.
    pub(super) fn new_records(&self) -> impl Iterator<Item = &Record> {
        self.entries.iter().filter(|l| !l.known).map(|l| &l.record)
    }

    /// The hint for this write, if there is anything new.
    pub(super) fn hint(&self, root: TaskId) -> Option<Hint> {
        let kinds = EntryKinds::from_kinds(self.new_records().map(|r| r.entry.kind()));
        (kinds != EntryKinds::default()).then_some(Hint::Task { task: self.task, root, kinds })
    }
}

/// The links of a task, which deletion has to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskLinks {
    pub(super) task: TaskId,
    pub(super) root: TaskId,
    pub(super) continues: Option<TaskId>,
}

/// Checks that these tasks may be deleted: they have ended, nothing was written to them since they were read,
/// and no remaining task needs them.
pub(super) fn check_deletable(
    tasks: &[(TaskId, Seq)],
    states: &HashMap<TaskId, TaskState>,
    all: impl IntoIterator<Item = TaskLinks>,
) -> Result<(), StoreError> {
    let mut roots = HashMap::new();
    for (task, seq) in tasks {
        let state = states.get(task).ok_or(StoreError::NoTask(*task))?;
        if state.seq != *seq {
            return Err(StoreError::JournalMoved { task: *task, seq: state.seq });
        }
        if !state.status.is_final() {
            return Err(StoreError::NotEnded(*task));
        }
        for by in state.continues.into_iter().chain(state.continued_by) {
            if !states.contains_key(&by) {
                return Err(StoreError::StillNeeded { task: *task, by });
            }
        }
        roots.insert(state.root, *task);
    }
    for TaskLinks { task: by, root, continues } in all {
        let needs = continues.filter(|old| states.contains_key(old)).or(roots.get(&root).copied());
        if let Some(task) = needs.filter(|_| !states.contains_key(&by)) {
            return Err(StoreError::StillNeeded { task, by });
        }
    }
    Ok(())
}

/// What validation has to ask the store.
pub(super) trait StoreLookup {
    /// The current state of a task.
    fn task_state(&mut self, task: TaskId) -> Result<Option<TaskState>, StoreError>;
    /// Whether a task has this letter.
    fn has_letter(&mut self, task: TaskId, letter: &LetterId) -> Result<bool, StoreError>;
    /// Whether the worker of this running task is gone.
    fn is_abandoned(&mut self, state: &TaskState) -> Result<bool, StoreError>;
}

/// Validates a batch without writing anything: sets the position and time of each entry, and returns the
/// state of each task afterwards, in the order in which tasks first occur.
pub(super) fn validate_batch(
    drafts: &mut [WriteDraft],
    at: Timestamp,
    archive: &mut impl StoreLookup,
) -> Result<ValidatedBatch, StoreError> {
    let mut verdict =
        ValidatedBatch { states: Vec::with_capacity(drafts.len()), ends: Vec::with_capacity(drafts.len()) };
    for which in 0..drafts.len() {
        let (before, rest) = drafts.split_at_mut(which);
        let Some(draft) = rest.first_mut() else { break };
        let place = match verdict.states.iter().position(|(task, _)| *task == draft.task) {
            Some(place) => place,
            None => {
                verdict.states.push((draft.task, archive.task_state(draft.task)?));
                verdict.states.len() - 1
            }
        };
        let Some((_, state)) = verdict.states.get_mut(place) else { break };
        check_fence(draft, state.as_ref(), archive)?;
        apply_draft(draft, before, state, at, archive)?;
        verdict.ends.push(state.as_ref().map_or(Seq(0), |h| h.seq));
    }
    Ok(verdict)
}

/// The result of a valid batch.
pub(super) struct ValidatedBatch {
    /// The state of each task after the batch.
    pub(super) states: Vec<(TaskId, Option<TaskState>)>,
    /// The end of the journal after each write.
    pub(super) ends: Vec<Seq>,
}

impl ValidatedBatch {
    /// The root of a task's tree.
    pub(super) fn root(&self, task: TaskId) -> TaskId {
        let state = self.states.iter().find(|(t, _)| *t == task).and_then(|(_, h)| h.as_ref());
        state.map_or(task, |h| h.root)
    }
}

/// Checks the fence of a write.
fn check_fence(
    draft: &WriteDraft,
    state: Option<&TaskState>,
    archive: &mut impl StoreLookup,
) -> Result<(), StoreError> {
    let task = draft.task;
    match (draft.fence, state) {
        (Fence::New, None) => {}
        (Fence::New, Some(_)) => return Err(StoreError::Exists(task)),
        (_, None) => return Err(StoreError::NoTask(task)),
        (Fence::Anyone, Some(_)) => {}
        (Fence::Attempt(attempt), Some(state)) => {
            if state.status != Status::Running || state.attempt != attempt {
                return Err(StoreError::Superseded { task, attempt });
            }
        }
        (Fence::Abandoned(attempt), Some(state)) => {
            if state.status != Status::Running || state.attempt != attempt || !archive.is_abandoned(state)? {
                return Err(StoreError::Superseded { task, attempt });
            }
        }
    }
    let seq = state.map_or(Seq(0), |h| h.seq);
    if draft.after.is_some_and(|after| after != seq) {
        return Err(StoreError::JournalMoved { task, seq });
    }
    Ok(())
}

/// Applies the entries of a write to the state.
fn apply_draft(
    draft: &mut WriteDraft,
    before: &[WriteDraft],
    state: &mut Option<TaskState>,
    at: Timestamp,
    archive: &mut impl StoreLookup,
) -> Result<(), StoreError> {
    let (task, fence) = (draft.task, draft.fence);
    let illegal = |why| StoreError::Illegal { task, why };
    for index in 0..draft.entries.len() {
        let (earlier, rest) = draft.entries.split_at_mut(index);
        let Some(line) = rest.first_mut() else { break };
        line.record.at = at;
        line.known = false;
        let Some(state) = state.as_mut() else {
            line.record.seq = Seq(1);
            *state = Some(TaskState::begin(task, &line.record).map_err(illegal)?);
            continue;
        };
        if let Entry::Letter(letter) = &line.record.entry {
            let same =
                before.iter().filter(|d| d.task == task).flat_map(|d| &d.entries).chain(earlier.iter());
            line.known = same.into_iter().any(|l| is_letter(&l.record.entry, &letter.id))
                || archive.has_letter(task, &letter.id)?;
            if line.known {
                line.record.seq = Seq(0);
                continue;
            }
        }
        if matches!(fence, Fence::New | Fence::Anyone) && !anyone_may_write(state, &line.record.entry) {
            let not_now = IllegalTransition::NotNow { status: state.status, entry: line.record.entry.kind() };
            return Err(illegal(not_now));
        }
        line.record.seq = Seq(state.seq.0 + 1);
        state.apply(&line.record).map_err(illegal)?;
    }
    Ok(())
}

fn is_letter(entry: &Entry, id: &LetterId) -> bool {
    matches!(entry, Entry::Letter(letter) if letter.id == *id)
}

fn anyone_may_write(state: &TaskState, entry: &Entry) -> bool {
    match entry {
        // Letters about ended children go to the continuation once there is one.
        Entry::Letter(letter) => letter.ending.is_none() || state.continued_by.is_none(),
        Entry::StopRequested(_)
        | Entry::Answered { .. }
        | Entry::Granted { .. }
        | Entry::Backgrounded
        | Entry::HookFailed(_)
        | Entry::BudgetSet { .. }
        | Entry::Continued { .. } => true,
        Entry::Finished(outcome) => {
            matches!(**outcome, Outcome::Cancelled { .. })
                && state.status == Status::Cancelled
                && !state.settled
        }
        _ => false,
    }
}
