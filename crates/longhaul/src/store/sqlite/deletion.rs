//! What the writer does to delete tasks.

use std::collections::HashMap;

use rusqlite::params;

use super::apply::Desk;
use super::checksum::Sum;
use super::errors::OrTrouble as _;
use crate::entry::FORMAT;
use crate::id::{Seq, TaskId};
use crate::store::judge::{Archive as _, Bond, may_go};
use crate::store::{Hint, StoreError, kept_since, slip_of};

/// The highest number that a task ever had.
///
/// Neither these nor the rows of the journal are given twice: whoever is reading while tasks are deleted must not find
/// others in their place. So a deletion leaves a row in the journal that is no task's and remembers both numbers.
pub(super) const LAST_TASK: &str = "SELECT max(coalesce((SELECT max(n) FROM tasks), 0), \
                                    coalesce((SELECT max(seq) FROM journal WHERE task = 0), 0))";

impl Desk {
    pub(super) fn delete(&mut self, tasks: &[(TaskId, Seq)]) -> Result<(), StoreError> {
        self.save_heads()?;
        let mut doomed = HashMap::new();
        let mut numbers = Vec::new();
        for (id, _) in tasks {
            if let Some(head) = self.head(*id)? {
                numbers.extend(self.heads.get(*id).map(|known| known.n));
                doomed.insert(*id, head);
            }
        }
        may_go(tasks, &doomed, self.bonds()?)?;
        for n in numbers {
            self.execute("DELETE FROM journal WHERE task = ?1", [n])?;
            self.execute("DELETE FROM keeps WHERE task = ?1", [n])?;
            self.execute("DELETE FROM tasks WHERE n = ?1", [n])?;
        }
        for slip in self.texts("SELECT name FROM slips")? {
            if slip_of(&slip).is_some_and(|task| doomed.contains_key(&task)) {
                self.execute("DELETE FROM slips WHERE name = ?1", [slip])?;
            }
        }
        let now = self.clock.now();
        let sql = "DELETE FROM kept WHERE at < ?1 \
                   AND NOT EXISTS (SELECT 1 FROM keeps WHERE keeps.digest = kept.digest) \
                   AND NOT EXISTS (SELECT 1 FROM tasks WHERE team = 'file:' || kept.digest)";
        self.execute(sql, [kept_since(now).as_millisecond()])?;
        self.last_row += 1;
        self.execute("DELETE FROM journal WHERE task = 0", [])?;
        let sql = "INSERT INTO journal (row, task, seq, at, kind, format, letter, entry, sum) \
                   VALUES (?1, 0, ?2, ?3, 0, ?4, NULL, x'', ?5)";
        let at = now.as_millisecond();
        let sum = Sum::of_entry(0, self.last_task, at, 0, FORMAT.into(), None, b"");
        self.execute(sql, params![self.last_row, self.last_task, at, FORMAT, sum])?;
        self.heads.forget();
        // There is no hint of a task that is not there: all have to look.
        self.transaction.hints.push(Hint::Lagged);
        Ok(())
    }

    /// Where every task belongs. What it continues is in its head, and never changes.
    fn bonds(&self) -> Result<Vec<Bond>, StoreError> {
        let sql = "SELECT id, root, CASE WHEN json_valid(CAST(head AS TEXT)) \
                   THEN json_extract(CAST(head AS TEXT), '$.continues') END FROM tasks";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let mut rows = statement.query([]).or_trouble(&self.place)?;
        let mut bonds = Vec::new();
        while let Some(row) = rows.next().or_trouble(&self.place)? {
            let text = |column: usize| -> rusqlite::Result<Option<TaskId>> {
                Ok(row.get_ref(column)?.as_str_or_null()?.and_then(|id| id.parse().ok()))
            };
            let (task, root) = (text(0).or_trouble(&self.place)?, text(1).or_trouble(&self.place)?);
            let (Some(task), Some(root)) = (task, root) else { continue };
            bonds.push(Bond { task, root, continues: text(2).or_trouble(&self.place)? });
        }
        Ok(bonds)
    }

    fn texts(&self, sql: &str) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let texts = statement.query_map([], |row| row.get(0)).or_trouble(&self.place)?;
        texts.collect::<Result<_, _>>().or_trouble(&self.place)
    }
}
