//! What the writer does for workers: claims and leases.

use jiff::Timestamp;
use rusqlite::params;

use super::apply::Desk;
use super::errors::OrTrouble as _;
use super::rows;
use crate::entry::{Entry, Kind, Record};
use crate::id::{Seq, TaskId, WorkerId};
use crate::store::judge::Archive as _;
use crate::store::{Claim, Claimed, Hint, Kinds, StoreError};

impl Desk {
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        self.save_heads()?;
        let at = self.clock.now();
        let mut waiting = self.pending(claim)?;
        waiting.sort_unstable();
        waiting.dedup();
        waiting.truncate(claim.max);
        let mut claimed = Vec::with_capacity(waiting.len());
        for (_, id) in waiting {
            // Read before anything is written: one that cannot be read must not keep others from being claimed.
            match self.claimable(id) {
                Ok(Some((n, task))) => claimed.extend(self.take(n, task, &claim.worker, at)?),
                Ok(None) => {}
                Err(error @ StoreError::Database { .. }) => return Err(error),
                Err(error) => tracing::warn!(task = %id, %error, "a task that cannot be read is not claimed"),
            }
        }
        Ok(claimed)
    }

    fn claimable(&mut self, id: TaskId) -> Result<Option<(i64, Claimed)>, StoreError> {
        let Some(head) = self.head(id)? else { return Ok(None) };
        let Some(n) = self.heads.get(id).map(|known| known.n) else { return Ok(None) };
        let first = rows::journal(&self.connection, &self.place, id, n, Seq(0), 1)?.pop();
        Ok(first.map(|first| (n, Claimed { head, first })))
    }

    fn take(
        &mut self,
        n: i64,
        mut task: Claimed,
        worker: &WorkerId,
        at: Timestamp,
    ) -> Result<Option<Claimed>, StoreError> {
        let id = task.head.id;
        let entry = Entry::Claimed { attempt: task.head.attempt.next(), worker: worker.clone() };
        let record = Record { seq: Seq(task.head.seq.0 + 1), at, entry };
        let (Ok(()), Ok(bytes)) = (task.head.step(&record), record.entry.encode()) else { return Ok(None) };
        self.write(n, &record, &bytes)?;
        self.place(task.head.clone())?;
        let kinds = Kinds::of([Kind::Claimed]);
        self.transaction.hints.push(Hint::Task { task: id, root: task.head.root, kinds });
        Ok(Some(task))
    }

    /// The oldest pending tasks that a claim may take, of each team and tree.
    fn pending(&self, claim: &Claim) -> Result<Vec<(i64, TaskId)>, StoreError> {
        let fresh = if claim.fresh { "AND attempt = 0" } else { "" };
        let max = i64::try_from(claim.max).unwrap_or(i64::MAX);
        let mut found = Vec::new();
        let mut search = |sql: String, values: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(values)?;
            while let Some(row) = rows.next()? {
                if let Ok(id) = row.get_ref(1)?.as_str()?.parse() {
                    found.push((row.get(0)?, id));
                }
            }
            Ok(())
        };
        for team in &claim.teams {
            let team = rows::team(team);
            let Some(roots) = &claim.roots else {
                let sql = format!(
                    "SELECT n, id FROM tasks INDEXED BY tasks_by_status \
                     WHERE status = 0 AND team = ?1 {fresh} ORDER BY n LIMIT ?2"
                );
                search(sql, params![team, max]).or_trouble(&self.place)?;
                continue;
            };
            for root in roots {
                let sql = format!(
                    "SELECT n, id FROM tasks INDEXED BY tasks_by_root \
                     WHERE root = ?1 AND status = 0 AND team = ?2 {fresh} ORDER BY n LIMIT ?3"
                );
                search(sql, params![root.to_string(), team, max]).or_trouble(&self.place)?;
            }
        }
        Ok(found)
    }

    pub(super) fn renew(&mut self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError> {
        if !self.held.contains_key(worker) {
            // Locked before the row can be seen, so that nobody takes the worker for dead.
            if let Some(file) = self.roll.sign(worker) {
                self.held.insert(worker.clone(), file);
            }
            self.sweep(self.clock.now())?;
        }
        let sql = "INSERT INTO workers (id, lease_until) VALUES (?1, ?2) \
                   ON CONFLICT DO UPDATE SET lease_until = excluded.lease_until";
        self.execute(sql, params![worker.as_str(), until.as_millisecond()])
    }

    /// Forgets workers that are gone and have nothing left.
    pub(super) fn sweep(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.save_heads()?;
        let sql = "SELECT id, lease_until FROM workers \
                   WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.worker = workers.id)";
        let idle: Vec<(String, i64)> = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
            .or_trouble(&self.place)?;
        for (name, lease) in idle {
            let worker = WorkerId::from(name);
            let is_gone = lease <= now.as_millisecond() || self.roll.is_dead(&worker);
            if is_gone && !self.held.contains_key(&worker) && self.roll.clear(&worker) {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
            }
        }
        Ok(())
    }
}
