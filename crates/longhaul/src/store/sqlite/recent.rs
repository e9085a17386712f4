//! What this process has written last, so that it need not be read back from disk.
//!
//! The writer adds what it has committed before it replies. Other processes may write too, and each of their
//! writes adds a row to the journal: so a reader looks up the number of the last row, and takes what it finds
//! here only if nothing is missing up to that row. The writer removes the tasks that others have written to.
//!
//! At most about [`MOST`] bytes are kept; what was not used for longest is dropped.

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::{Arc, Mutex, PoisonError};

use crate::entry::Record;
use crate::id::{Seq, TaskId};
use crate::task::TaskState;

/// How many bytes are kept in all, roughly.
const MOST: usize = 4 << 20;
/// How many bytes of one journal are kept, roughly: the letters about a thousand children.
const MOST_OF_ONE: usize = 1 << 20;
/// What a state counts for, beside its records.
const STATE: usize = 1 << 10;
/// What a record counts for, beside its size on disk.
const RECORD: usize = size_of::<(Record, usize)>();
/// Up to so many records, no room is kept for more: most tasks have few, and there are many tasks.
const FEW_RECORDS: usize = 16;

/// What was written last.
#[derive(Default)]
pub(super) struct RecentTasks(Mutex<Tasks>);

/// Two generations, of which the older is dropped when the younger is full.
#[derive(Default)]
struct Tasks {
    /// Whatever is in the journal up to this row is here, if its task is.
    row: i64,
    young: HashMap<TaskId, RecentTask>,
    old: HashMap<TaskId, RecentTask>,
    /// The size of the younger generation.
    bytes: usize,
}

struct RecentTask {
    state: Arc<TaskState>,
    /// The end of its journal, with what each record counts for.
    records: VecDeque<(Record, usize)>,
    bytes: usize,
}

/// What a transaction has written to each task: the records, with their sizes, and the state after them.
#[derive(Default)]
pub(super) struct RecentWrites(HashMap<TaskId, RecentWrite>);

struct RecentWrite {
    state: Arc<TaskState>,
    records: Vec<(Record, usize)>,
}

impl RecentWrites {
    pub(super) fn add(&mut self, state: Arc<TaskState>, records: Vec<(Record, usize)>) {
        match self.0.entry(state.id) {
            hash_map::Entry::Occupied(mut had) => {
                had.get_mut().state = state;
                had.get_mut().records.extend(records);
            }
            hash_map::Entry::Vacant(new) => drop(new.insert(RecentWrite { state, records })),
        }
    }
}

impl RecentTasks {
    /// Adds what was committed with the journal's rows up to `row`, and removes what was deleted.
    pub(super) fn add(&self, row: i64, writes: RecentWrites, deleted: &[TaskId]) {
        let mut tasks = self.lock();
        tasks.row = row;
        for write in writes.0.into_values() {
            tasks.add(write);
        }
        deleted.iter().for_each(|task| drop(tasks.take(*task)));
        if tasks.bytes > MOST / 2 {
            tasks.bytes = 0;
            let young = std::mem::take(&mut tasks.young);
            let dropped = std::mem::replace(&mut tasks.old, young);
            // Not while readers wait for the lock.
            drop(tasks);
            drop(dropped);
        }
    }

    /// Removes tasks that other processes have written to, up to the journal's row `row`; all, if it is not
    /// known which.
    pub(super) fn remove(&self, row: i64, changed: Option<&[TaskId]>) {
        let mut tasks = self.lock();
        match changed {
            Some(changed) => changed.iter().for_each(|task| drop(tasks.take(*task))),
            None => *tasks = Tasks::default(),
        }
        tasks.row = row;
    }

    /// The state of a task, unless it is not here or something up to `row` is missing.
    pub(super) fn state(&self, task: TaskId, row: i64) -> Option<Arc<TaskState>> {
        let mut tasks = self.lock();
        tasks.get(task, row).map(|found| found.state.clone())
    }

    /// The records after `after`, unless some of them are not here or something up to `row` is missing.
    pub(super) fn read(&self, task: TaskId, after: Seq, limit: usize, row: i64) -> Option<Vec<Record>> {
        let mut tasks = self.lock();
        let found = tasks.get(task, row)?;
        let before = found.state.seq.0.checked_sub(found.records.len() as u64)?;
        let skip = usize::try_from(after.0.checked_sub(before)?).ok()?;
        Some(found.records.iter().skip(skip).take(limit).map(|(record, _)| record.clone()).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        // Nothing is left half-done under the lock that a reader could see: what is missing is read from disk.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    fn get(&mut self, task: TaskId, row: i64) -> Option<&RecentTask> {
        if self.row < row {
            return None;
        }
        if let Some(found) = self.old.remove(&task) {
            self.bytes += found.bytes;
            self.young.insert(task, found);
        }
        self.young.get(&task)
    }

    fn take(&mut self, task: TaskId) -> Option<RecentTask> {
        if let Some(found) = self.young.remove(&task) {
            self.bytes = self.bytes.saturating_sub(found.bytes);
            return Some(found);
        }
        self.old.remove(&task)
    }

    fn add(&mut self, RecentWrite { state, records }: RecentWrite) {
        let (id, seq) = (state.id, state.seq);
        let mut task = match self.take(id) {
            // Without a gap before the new records.
            Some(had) if had.state.seq.0 + records.len() as u64 == seq.0 => RecentTask { state, ..had },
            _ => RecentTask { state, records: VecDeque::new(), bytes: STATE },
        };
        if task.records.len() + records.len() <= FEW_RECORDS {
            task.records.reserve_exact(records.len());
        }
        for (record, size) in records {
            let size = size + RECORD;
            task.bytes += size;
            task.records.push_back((record, size));
        }
        while task.bytes > MOST_OF_ONE
            && let Some((_, size)) = task.records.pop_front()
        {
            task.bytes -= size;
        }
        self.bytes += task.bytes;
        self.young.insert(id, task);
    }
}
