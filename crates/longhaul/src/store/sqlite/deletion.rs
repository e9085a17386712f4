//! The writer's operations to delete tasks.
//!
//! Tasks and their indexes are deleted at once. Their journals are deleted in the same transaction if that is
//! quick, and otherwise (`garbage`) in as many short transactions as needed, so that others can write in
//! between. Blobs are deleted when nothing refers to them any more; only candidates (`loose`) are checked. So
//! a deletion costs as much as it deletes, however large the store is.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rusqlite::params;

use super::checksum::RowChecksum;
use super::errors::OrStoreError as _;
use super::rows;
use super::transaction::WriteConnection;
use crate::entry::{FORMAT, TeamRef};
use crate::id::{Seq, TaskId};
use crate::store::validate::{StoreLookup as _, TaskLinks, check_deletable};
use crate::store::{Hint, StoreError, blob_cutoff};
use crate::task::TaskState;

/// The highest number that a task ever had.
///
/// Neither task numbers nor journal row numbers are reused: a reader must not find other tasks in the place
/// of deleted ones. So a deletion leaves a journal row that belongs to no task and records both numbers.
pub(super) const LAST_TASK: &str = "SELECT max(coalesce((SELECT max(n) FROM tasks), 0), \
                                    coalesce((SELECT max(seq) FROM journal WHERE task = 0), 0))";

/// How long a transaction keeps deleting leftovers: others wait for it.
const SHORT: Duration = Duration::from_millis(15);
/// How many journal rows are deleted between two checks of the clock.
const ROWS: usize = 100;

/// The stored values of a task: `word:ID`, and `word:ID:more`. ';' comes after ':'. An index has the same
/// expression.
const DELETE_STORED_VALUES: &str = "DELETE FROM slips WHERE instr(name, ':') > 0 AND (substr(name, instr(name, ':') + 1) = ?1 \
                            OR (substr(name, instr(name, ':') + 1) >= ?1 || ':' AND substr(name, instr(name, ':') + 1) < ?1 || ';'))";
const DELETE_TASK: &str = "DELETE FROM tasks WHERE n = ?1";
const TEAM_LOOSE: &str =
    "INSERT OR IGNORE INTO loose (digest, at) SELECT digest, at FROM kept WHERE digest = ?1";
const OUTPUTS_LOOSE: &str = "INSERT OR IGNORE INTO loose (digest, at) SELECT digest, at FROM kept \
                             WHERE digest IN (SELECT digest FROM keeps WHERE task = ?1)";
const DUE: &str = "SELECT digest FROM loose WHERE at < ?1 ORDER BY at LIMIT 1";
const IS_KEPT: &str = "SELECT 1 FROM keeps WHERE digest = ?1 LIMIT 1";
const DELETE_KEPT: &str = "DELETE FROM kept WHERE digest = ?1 AND at < ?2";
const DELETE_ROWS: &str =
    "DELETE FROM journal WHERE row IN (SELECT row FROM journal WHERE task = ?1 LIMIT ?2)";
const DELETE_KEEPS: &str = "DELETE FROM keeps WHERE task = ?1";
const OF_TREE: &str = "SELECT id, root, continues FROM tasks WHERE root = ?1";
const CONTINUING: &str = "SELECT id, root, continues FROM tasks WHERE continues = ?1";
/// Whether a task uses the team that is stored under a digest. The statuses are listed for the index.
const OF_TEAM: &str = "SELECT 1 FROM tasks WHERE status IN (0,1,2,3,4) AND team = 'file:' || ?1";

/// The statements of a deletion, for a test that none of them reads a whole table.
#[cfg(test)]
pub(super) const STATEMENTS: [&str; 12] = [
    DELETE_TASK,
    DELETE_STORED_VALUES,
    TEAM_LOOSE,
    OUTPUTS_LOOSE,
    DUE,
    IS_KEPT,
    OF_TEAM,
    DELETE_KEPT,
    DELETE_ROWS,
    DELETE_KEEPS,
    OF_TREE,
    CONTINUING,
];

impl WriteConnection {
    /// Deletes tasks. Returns whether nothing of them is left.
    pub(super) fn delete(&mut self, tasks: &[(TaskId, Seq)]) -> Result<bool, StoreError> {
        self.save_states()?;
        self.counts.clear();
        let mut doomed = HashMap::new();
        let mut numbers = Vec::new();
        for (id, _) in tasks {
            if let Some(state) = self.task_state(*id)? {
                numbers.extend(self.states.get(*id).map(|known| known.n));
                doomed.insert(*id, state);
            }
        }
        check_deletable(tasks, &doomed, self.related_tasks(&doomed)?)?;
        for n in &numbers {
            self.execute(DELETE_TASK, [n])?;
        }
        let mut teams = HashSet::new();
        for (id, state) in &doomed {
            self.execute(DELETE_STORED_VALUES, [id.to_string()])?;
            self.states.remove(*id);
            self.transaction.deleted.push(*id);
            if let TeamRef::File(digest) = &state.team {
                teams.insert(digest);
            }
        }
        for digest in teams {
            self.execute(TEAM_LOOSE, [digest.as_str()])?;
        }
        for n in numbers {
            if self.is_over_time() || !self.delete_task_rows(n)? {
                self.execute("INSERT OR IGNORE INTO garbage (task) VALUES (?1)", [n])?;
            }
        }
        let now = self.clock.now();
        self.last_row += 1;
        self.execute("DELETE FROM journal WHERE task = 0", [])?;
        let sql = "INSERT INTO journal (row, task, seq, at, kind, format, letter, entry, sum) \
                   VALUES (?1, 0, ?2, ?3, 0, ?4, NULL, x'', ?5)";
        let at = now.as_millisecond();
        let sum = RowChecksum::for_entry(0, self.last_task, at, 0, FORMAT.into(), None, b"");
        self.execute(sql, params![self.last_row, self.last_task, at, FORMAT, sum])?;
        // There are no hints for a deleted task: all receivers have to check.
        self.transaction.hints.push(Hint::Lagged);
        match self.is_over_time() {
            true => Ok(false),
            false => self.delete_leftovers(),
        }
    }

    /// Deletes what deleted tasks have left, until it is time to let others write. Returns whether nothing is
    /// left.
    pub(super) fn delete_leftovers(&mut self) -> Result<bool, StoreError> {
        while let Some(n) = self.first::<i64>("SELECT task FROM garbage LIMIT 1", [])? {
            if !self.delete_task_rows(n)? {
                return Ok(false);
            }
            self.execute("DELETE FROM garbage WHERE task = ?1", [n])?;
        }
        let before = blob_cutoff(self.clock.now()).as_millisecond();
        while let Some(digest) = self.first::<String>(DUE, [before])? {
            let is_kept = self.first::<i64>(IS_KEPT, [&digest])?.is_some();
            if !is_kept && self.first::<i64>(OF_TEAM, [&digest])?.is_none() {
                self.execute(DELETE_KEPT, params![digest, before])?;
            }
            self.execute("DELETE FROM loose WHERE digest = ?1", [&digest])?;
            if self.is_over_time() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes the journal of a deleted task, or the start of it. Returns whether that was all.
    fn delete_task_rows(&self, n: i64) -> Result<bool, StoreError> {
        while self.changed(DELETE_ROWS, params![n, rows::number(ROWS as u64)])? == ROWS {
            if self.is_over_time() {
                return Ok(false);
            }
        }
        self.execute(OUTPUTS_LOOSE, [n])?;
        self.execute(DELETE_KEEPS, [n])?;
        Ok(true)
    }

    fn is_over_time(&self) -> bool {
        self.transaction.begun.is_some_and(|begun| begun.elapsed() >= SHORT)
    }

    /// The links of every task that may need one of these: those of the same trees, and those that continue
    /// one.
    fn related_tasks(&self, doomed: &HashMap<TaskId, TaskState>) -> Result<Vec<TaskLinks>, StoreError> {
        let mut bonds = Vec::new();
        let roots: HashSet<TaskId> = doomed.values().map(|state| state.root).collect();
        for (sql, ids) in
            [(OF_TREE, roots.into_iter().collect::<Vec<_>>()), (CONTINUING, doomed.keys().copied().collect())]
        {
            let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
            for id in ids {
                let mut rows = statement.query([id.to_string()]).or_store_error(&self.place)?;
                while let Some(row) = rows.next().or_store_error(&self.place)? {
                    let text = |column: usize| -> rusqlite::Result<Option<TaskId>> {
                        Ok(row.get_ref(column)?.as_str_or_null()?.and_then(|id| id.parse().ok()))
                    };
                    let (task, root) =
                        (text(0).or_store_error(&self.place)?, text(1).or_store_error(&self.place)?);
                    let (Some(task), Some(root)) = (task, root) else { continue };
                    bonds.push(TaskLinks { task, root, continues: text(2).or_store_error(&self.place)? });
                }
            }
        }
        Ok(bonds)
    }

    /// The first column of the first row, if there is one.
    fn first<T: rusqlite::types::FromSql>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Option<T>, StoreError> {
        use rusqlite::OptionalExtension as _;
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        statement.query_row(params, |row| row.get(0)).optional().or_store_error(&self.place)
    }
}
