//! What the writer does for workers: claims and leases.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use super::apply::Desk;
use super::errors::OrTrouble as _;
use super::{rows, workers};
use crate::entry::{Entry, Kind, Record};
use crate::id::{Seq, TaskId, WorkerId};
use crate::store::judge::Archive as _;
use crate::store::leases::Renewal;
use crate::store::{Claim, Claimed, Hint, Kinds, StoreError, lease_end};

/// After this time, in milliseconds, a worker that has no task is forgotten even if nothing else is known of it.
const LONG_PAST: i64 = 24 * 60 * 60 * 1000;

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

    pub(super) fn renew(&mut self, worker: &WorkerId, lease: Duration) -> Result<(), StoreError> {
        if !self.held.contains_key(worker) {
            // Locked before the row can be seen, so that nobody takes the worker for dead.
            if let Some(file) = self.roll.sign(worker).map_err(|why| self.place.unsigned(&why))? {
                self.held.insert(worker.clone(), file);
            }
            self.sweep()?;
            self.clear_strays(worker)?;
        }
        let until = lease_end(self.clock.now(), lease).as_millisecond();
        let length = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let sql = "INSERT INTO workers (id, lease_until, renewals, length) VALUES (?1, ?2, 1, ?3) \
                   ON CONFLICT DO UPDATE SET lease_until = excluded.lease_until, renewals = renewals + 1, \
                   length = excluded.length";
        self.execute(sql, params![worker.as_str(), until, length])
    }

    /// Removes lock files of workers that have no row: their processes died before they could do so themselves.
    fn clear_strays(&self, own: &WorkerId) -> Result<(), StoreError> {
        let sql = "SELECT id FROM workers UNION SELECT worker FROM tasks WHERE worker IS NOT NULL";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let names = statement.query_map([], |row| row.get::<_, String>(0)).or_trouble(&self.place)?;
        let mut known = HashSet::from([self.roll.file(own)]);
        for name in names {
            known.insert(self.roll.file(&WorkerId::from(name.or_trouble(&self.place)?)));
        }
        // Those that are forgotten in this transaction are known until it is on disk.
        known.extend(self.transaction.swept.iter().map(|worker| self.roll.file(worker)));
        self.roll.clear_strays(&known);
        Ok(())
    }

    /// Forgets workers that are gone and have nothing left. Their lock files go when that is on disk: a file that is gone
    /// before its row would leave nothing but the lease to tell that the worker is dead.
    pub(super) fn sweep(&mut self) -> Result<(), StoreError> {
        self.save_heads()?;
        let before = self.clock.elapsed();
        let sql = "SELECT id, renewals, lease_until, length FROM workers \
                   WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.worker = workers.id)";
        let idle: Vec<(String, Renewal)> = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, workers::renewal(row, 1)?)))?.collect())
            .or_trouble(&self.place)?;
        let (now, wall) = (self.clock.elapsed(), self.clock.now().as_millisecond());
        for (name, renewal) in idle {
            let worker = WorkerId::from(name);
            if self.held.contains_key(&worker) {
                continue;
            }
            // One that has nothing and wakes up after so long only has to sign again.
            let is_old = renewal.until.saturating_add(LONG_PAST) < wall;
            if self.roll.is_dead(&worker) || self.leases.has_run_out(&worker, renewal, before, now) || is_old
            {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
                self.transaction.swept.push(worker);
            }
        }
        Ok(())
    }
}
