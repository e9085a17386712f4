//! The writer's operations for workers: claims and leases.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use super::errors::OrStoreError as _;
use super::transaction::WriteConnection;
use super::{lease_rows, rows};
use crate::entry::{Entry, EntryKind, Record};
use crate::id::{Seq, TaskId, WorkerId};
use crate::store::leases::LeaseRenewal;
use crate::store::validate::StoreLookup as _;
use crate::store::{ClaimRequest, ClaimedTask, EntryKinds, Hint, StoreError, lease_end};
use crate::task::TaskState;

/// After this time, in milliseconds, a worker without tasks is removed even if nothing else is known about
/// it.
const LONG_PAST: i64 = 24 * 60 * 60 * 1000;

impl WriteConnection {
    pub(super) fn claim(&mut self, claim: &ClaimRequest) -> Result<Vec<ClaimedTask>, StoreError> {
        self.save_states()?;
        let at = self.clock.now();
        let mut waiting = self.pending(claim)?;
        waiting.sort_unstable();
        waiting.dedup();
        waiting.retain(|(_, id)| !claim.except.contains(id));
        waiting.truncate(claim.max);
        let mut claimed = Vec::with_capacity(waiting.len());
        for (_, id) in waiting {
            // Read before anything is written: an unreadable task must not keep others from being claimed.
            match self.claimable(id) {
                Ok(Some(task)) => claimed.extend(self.claim_one(task, &claim.worker, at)?),
                Ok(None) => {}
                Err(error @ StoreError::Database { .. }) => return Err(error),
                Err(error) => tracing::warn!(task = %id, %error, "a task that cannot be read is not claimed"),
            }
        }
        Ok(claimed)
    }

    /// A task with its number and its first entry.
    fn claimable(&mut self, id: TaskId) -> Result<Option<(i64, TaskState, Record)>, StoreError> {
        let Some(state) = self.task_state(id)? else { return Ok(None) };
        let Some(n) = self.states.get(id).map(|known| known.n) else { return Ok(None) };
        let first = rows::read_journal(&self.connection, &self.place, id, n, Seq(0), 1)?.pop();
        Ok(first.map(|first| (n, state, first)))
    }

    fn claim_one(
        &mut self,
        (n, mut state, first): (i64, TaskState, Record),
        worker: &WorkerId,
        at: Timestamp,
    ) -> Result<Option<ClaimedTask>, StoreError> {
        let entry = Entry::Claimed { attempt: state.attempt.next(), worker: worker.clone() };
        let record = Record { seq: Seq(state.seq.0 + 1), at, entry };
        let (Ok(()), Ok(bytes)) = (state.apply(&record), record.entry.encode()) else { return Ok(None) };
        self.write(n, &record, &bytes)?;
        let state = Arc::new(state);
        self.put_state(state.clone())?;
        self.transaction.recent.add(state.clone(), vec![(record, bytes.len())]);
        let kinds = EntryKinds::from_kinds([EntryKind::Claimed]);
        self.transaction.hints.push(Hint::Task { task: state.id, root: state.root, kinds });
        Ok(Some(ClaimedTask { state, first }))
    }

    /// The oldest pending tasks that a claim may take, of each team and tree.
    fn pending(&self, claim: &ClaimRequest) -> Result<Vec<(i64, TaskId)>, StoreError> {
        let fresh = if claim.fresh_only { "AND attempt = 0" } else { "" };
        let max = i64::try_from(claim.max.saturating_add(claim.except.len())).unwrap_or(i64::MAX);
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
            let team = rows::team_text(team);
            let Some(roots) = &claim.roots else {
                let sql = format!(
                    "SELECT n, id FROM tasks INDEXED BY tasks_by_status \
                     WHERE status = 0 AND team = ?1 {fresh} ORDER BY n LIMIT ?2"
                );
                search(sql, params![team, max]).or_store_error(&self.place)?;
                continue;
            };
            for root in roots {
                let sql = format!(
                    "SELECT n, id FROM tasks INDEXED BY tasks_by_root \
                     WHERE root = ?1 AND status = 0 AND team = ?2 {fresh} ORDER BY n LIMIT ?3"
                );
                search(sql, params![root.to_string(), team, max]).or_store_error(&self.place)?;
            }
        }
        Ok(found)
    }

    pub(super) fn renew(&mut self, worker: &WorkerId, lease: Duration) -> Result<(), StoreError> {
        if !self.held.contains_key(worker) {
            // Locked before the row is visible, so that no process considers the worker dead.
            if let Some(file) =
                self.worker_locks.lock(worker).map_err(|why| self.place.lock_file_error(&why))?
            {
                self.held.insert(worker.clone(), file);
            }
            self.forget_dead_workers()?;
            self.remove_stale_locks(worker)?;
        }
        let until = lease_end(self.clock.now(), lease).as_millisecond();
        let length = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let sql = "INSERT INTO workers (id, lease_until, renewals, length) VALUES (?1, ?2, 1, ?3) \
                   ON CONFLICT DO UPDATE SET lease_until = excluded.lease_until, renewals = renewals + 1, \
                   length = excluded.length";
        self.execute(sql, params![worker.as_str(), until, length])
    }

    /// Removes lock files of workers that have no row: their processes died before they could do so themselves.
    fn remove_stale_locks(&self, own: &WorkerId) -> Result<(), StoreError> {
        let sql = "SELECT id FROM workers UNION SELECT worker FROM tasks WHERE worker IS NOT NULL";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let names = statement.query_map([], |row| row.get::<_, String>(0)).or_store_error(&self.place)?;
        let mut known = HashSet::from([self.worker_locks.lock_path(own)]);
        for name in names {
            known.insert(self.worker_locks.lock_path(&WorkerId::from(name.or_store_error(&self.place)?)));
        }
        // Workers removed in this transaction count as known until it is on disk.
        known.extend(self.transaction.forgotten.iter().map(|worker| self.worker_locks.lock_path(worker)));
        self.worker_locks.remove_stale(|path| known.contains(path));
        Ok(())
    }

    /// Removes workers that are gone and have no tasks. Their lock files are removed after that is on disk:
    /// without the file, only the lease could tell that the worker is dead.
    pub(super) fn forget_dead_workers(&mut self) -> Result<(), StoreError> {
        self.save_states()?;
        let before = self.clock.elapsed();
        let sql = "SELECT id, renewals, lease_until, length FROM workers \
                   WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.worker = workers.id)";
        let idle: Vec<(String, LeaseRenewal)> = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| {
                s.query_map([], |row| Ok((row.get(0)?, lease_rows::renewal(row, 1)?)))?.collect()
            })
            .or_store_error(&self.place)?;
        let (now, wall) = (self.clock.elapsed(), self.clock.now().as_millisecond());
        for (name, renewal) in idle {
            let worker = WorkerId::from(name);
            if self.held.contains_key(&worker) {
                continue;
            }
            // A worker without tasks that wakes up after so long only has to register again.
            let is_old = renewal.until.saturating_add(LONG_PAST) < wall;
            if self.worker_locks.is_dead(&worker)
                || self.leases.has_run_out(&worker, renewal, before, now)
                || is_old
            {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
                self.transaction.forgotten.push(worker);
            }
        }
        Ok(())
    }
}
