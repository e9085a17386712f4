//! What the writer does inside a transaction.
//!
//! An errand is judged whole before any of it is written, so that a refused one leaves nothing to take back.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use super::errors::{OrTrouble as _, Place};
use super::heads::{Heads, Unsaved};
use super::watch::Bell;
use super::workers::Roll;
use super::writer::{Answer, Ask};
use super::{rows, schema};
use crate::entry::{Entry, FORMAT, Kind, Record};
use crate::id::{LetterId, Seq, TaskId, WorkerId};
use crate::store::judge::{Archive, Draft, judge};
use crate::store::{AtMost, Claim, Clock, Fence, Hint, Kinds, StoreError, lease_end};
use crate::task::Head;

/// The writer's connection, and what it knows.
pub(super) struct Desk {
    pub(super) connection: Connection,
    pub(super) place: Place,
    clock: Clock,
    roll: Roll,
    bell: Arc<Bell>,
    /// The lock files of the workers of this process.
    held: HashMap<WorkerId, File>,
    heads: Heads,
    /// What `PRAGMA data_version` said when the heads were known to be right.
    version: Option<i64>,
    last_row: i64,
    last_task: i64,
    transaction: Transaction,
    buffer: Vec<u8>,
}

/// What is to happen when the transaction is committed.
#[derive(Default)]
struct Transaction {
    first_row: i64,
    hints: Vec<Hint>,
    retired: Vec<WorkerId>,
}

impl Desk {
    pub(super) fn new(
        connection: Connection,
        place: Place,
        clock: Clock,
        roll: Roll,
        bell: Arc<Bell>,
    ) -> Desk {
        Desk {
            connection,
            place,
            clock,
            roll,
            bell,
            held: HashMap::new(),
            heads: Heads::default(),
            version: None,
            last_row: 0,
            last_task: 0,
            transaction: Transaction::default(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, patience: Duration) -> Result<(), StoreError> {
        let begin = || self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
        schema::patiently(patience, begin).or_trouble(&self.place)?;
        // It changes when another connection has written: then nothing that is remembered is sure.
        let version = Some(self.number("PRAGMA data_version")?);
        if self.version != version {
            self.heads.forget();
            self.last_row = self.number("SELECT coalesce(max(row), 0) FROM journal")?;
            self.last_task = self.number("SELECT coalesce(max(n), 0) FROM tasks")?;
            self.version = version;
        }
        self.transaction = Transaction { first_row: self.last_row + 1, ..Transaction::default() };
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        self.save_heads()?;
        self.execute("COMMIT", [])?;
        self.heads.age();
        let done = std::mem::take(&mut self.transaction);
        if done.first_row <= self.last_row {
            self.bell.ring(&self.connection, done.first_row, self.last_row, &done.hints);
        }
        for worker in done.retired {
            if let Some(file) = self.held.remove(&worker) {
                self.roll.strike(&worker, file);
            }
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self) {
        self.transaction = Transaction::default();
        self.heads.forget();
        self.version = None;
        // After some errors SQLite has already done so itself.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    pub(super) fn run(&mut self, ask: &mut Ask) -> Result<Answer, StoreError> {
        match ask {
            Ask::Append { drafts, encoded, only_if } => {
                self.append(drafts, encoded, only_if).map(Answer::Ends)
            }
            Ask::Claim(claim) => self.claim(claim).map(Answer::Heads),
            Ask::Renew { worker, lease } => {
                let until = lease_end(self.clock.now(), *lease);
                self.renew(worker, until).map(|()| Answer::Done)
            }
            Ask::Retire(worker) => {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
                self.transaction.retired.push(worker.clone());
                Ok(Answer::Done)
            }
            Ask::Keep { digest, bytes } => {
                let sql = "INSERT INTO kept (digest, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
                self.execute(sql, params![digest.as_str(), &*bytes])?;
                Ok(Answer::Done)
            }
            #[cfg(test)]
            Ask::Panic => panic!("as a fault in Longhaul would"),
        }
    }

    fn append(
        &mut self,
        drafts: &mut [Draft],
        encoded: &[Vec<Vec<u8>>],
        only_if: &[AtMost],
    ) -> Result<Vec<Seq>, StoreError> {
        let Some(first) = drafts.first() else { return Ok(Vec::new()) };
        let is_there = first.fence == Fence::New && self.head(first.task)?.is_some();
        if !is_there {
            only_if.iter().try_for_each(|limit| self.allow(limit))?;
        }
        let at = self.clock.now();
        let verdict = judge(drafts, at, self)?;
        let hints: Vec<Hint> = drafts.iter().filter_map(|d| d.hint(verdict.root(d.task))).collect();
        for (_, head) in verdict.heads {
            if let Some(head) = head {
                self.place(head)?;
            }
        }
        for (draft, encoded) in drafts.iter().zip(encoded) {
            let Some(n) = self.heads.get(draft.task).map(|known| known.n) else { continue };
            for (line, bytes) in draft.lines.iter().zip(encoded).filter(|(line, _)| !line.known) {
                self.write(n, &line.record, bytes)?;
            }
        }
        self.transaction.hints.extend(hints);
        if drafts.iter().any(|d| matches!(d.fence, Fence::Abandoned(_))) {
            self.sweep(at)?;
        }
        Ok(verdict.ends)
    }

    fn claim(&mut self, claim: &Claim) -> Result<Vec<Head>, StoreError> {
        self.save_heads()?;
        let at = self.clock.now();
        let mut waiting = self.pending(claim)?;
        waiting.sort_unstable();
        waiting.dedup();
        waiting.truncate(claim.max);
        let mut claimed = Vec::with_capacity(waiting.len());
        for (_, id) in waiting {
            let Some(mut head) = self.head(id)? else { continue };
            let entry = Entry::Claimed { attempt: head.attempt.next(), worker: claim.worker.clone() };
            let record = Record { seq: Seq(head.seq.0 + 1), at, entry };
            head.step(&record).map_err(|why| StoreError::Illegal { task: id, why })?;
            let seq = record.seq;
            let bytes = record.entry.encode().map_err(|why| StoreError::Entry { task: id, seq, why })?;
            let Some(n) = self.heads.get(id).map(|known| known.n) else { continue };
            self.write(n, &record, &bytes)?;
            self.place(head.clone())?;
            let kinds = Kinds::of([Kind::Claimed]);
            self.transaction.hints.push(Hint::Task { task: id, root: head.root, kinds });
            claimed.push(head);
        }
        Ok(claimed)
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

    fn allow(&mut self, limit: &AtMost) -> Result<(), StoreError> {
        self.save_heads()?;
        let (condition, mut values) = rows::condition(&limit.filter);
        values.push(i64::from(limit.limit).into());
        // Never counts further than it must.
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {condition} LIMIT ?)");
        let mut statement = self.connection.prepare_cached(&sql).or_trouble(&self.place)?;
        let count: i64 =
            statement.query_row(params_from_iter(values), |row| row.get(0)).or_trouble(&self.place)?;
        if count < i64::from(limit.limit) {
            return Ok(());
        }
        Err(StoreError::Limit { limit: limit.limit, what: limit.what })
    }

    fn renew(&mut self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError> {
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
    fn sweep(&mut self, now: Timestamp) -> Result<(), StoreError> {
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

    /// Puts a head in its place, in memory; a new task also into the database, for what follows it there.
    fn place(&mut self, head: Head) -> Result<(), StoreError> {
        if self.heads.get(head.id).is_some() {
            self.heads.change(head);
            return Ok(());
        }
        self.last_task += 1;
        let n = self.last_task;
        self.buffer.clear();
        write_head(&mut self.buffer, &head);
        let sql = "INSERT INTO tasks (n, id, status, team, agent, parent, root, attempt, worker, created, head) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let columns = params![
            n,
            head.id.to_string(),
            head.status as u8,
            rows::team(&head.team),
            head.agent.as_str(),
            head.parent.map(|p| p.to_string()),
            head.root.to_string(),
            head.attempt.0,
            head.worker.as_ref().map(WorkerId::as_str),
            head.created.as_millisecond(),
            self.buffer,
        ];
        self.connection.prepare_cached(sql).and_then(|mut s| s.execute(columns)).or_trouble(&self.place)?;
        self.heads.learn(n, head);
        Ok(())
    }

    fn write(&mut self, task: i64, record: &Record, bytes: &[u8]) -> Result<(), StoreError> {
        self.last_row += 1;
        let letter = match &record.entry {
            Entry::Letter(letter) => Some(letter.id.as_str()),
            _ => None,
        };
        let sql = "INSERT INTO journal (row, task, seq, at, kind, format, letter, entry) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let (kind, seq) = (record.entry.kind() as u8, rows::number(record.seq.0));
        let columns =
            params![self.last_row, task, seq, record.at.as_millisecond(), kind, FORMAT, letter, bytes];
        self.execute(sql, columns)
    }

    /// Brings the heads in the database up to date: once a transaction, however often they changed in it, and
    /// before their columns are asked.
    fn save_heads(&mut self) -> Result<(), StoreError> {
        let (connection, buffer) = (&self.connection, &mut self.buffer);
        let saved = self.heads.save(|known| -> rusqlite::Result<()> {
            buffer.clear();
            write_head(buffer, &known.head);
            if known.unsaved == Unsaved::Head {
                let sql = "UPDATE tasks SET head = ?2 WHERE n = ?1";
                connection.prepare_cached(sql)?.execute(params![known.n, &*buffer])?;
                return Ok(());
            }
            let worker = known.head.worker.as_ref().map(WorkerId::as_str);
            let sql = "UPDATE tasks SET status = ?2, attempt = ?3, worker = ?4, head = ?5 WHERE n = ?1";
            let columns = params![known.n, known.head.status as u8, known.head.attempt.0, worker, &*buffer];
            connection.prepare_cached(sql)?.execute(columns)?;
            Ok(())
        });
        saved.or_trouble(&self.place)
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        statement.execute(params).map(drop).or_trouble(&self.place)
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        statement.query_row([], |row| row.get(0)).or_trouble(&self.place)
    }
}

/// A head has nothing that JSON cannot say; if it had, an empty column would make readers fold the journal.
fn write_head(buffer: &mut Vec<u8>, head: &Head) {
    if serde_json::to_writer(&mut *buffer, head).is_err() {
        buffer.clear();
    }
}

impl Archive for Desk {
    fn head(&mut self, task: TaskId) -> Result<Option<Head>, StoreError> {
        if let Some(known) = self.heads.get(task) {
            return Ok(Some(known.head.clone()));
        }
        let sql = "SELECT n, id, head FROM tasks WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let mut found = statement.query([task.to_string()]).or_trouble(&self.place)?;
        let Some(row) = found.next().or_trouble(&self.place)? else { return Ok(None) };
        let (n, head) = rows::head(&self.connection, &self.place, row)?;
        self.heads.learn(n, head.clone());
        Ok(Some(head))
    }

    fn has_letter(&mut self, task: TaskId, letter: &LetterId) -> Result<bool, StoreError> {
        let Some(known) = self.heads.get(task) else { return Ok(false) };
        let n = known.n;
        let sql = "SELECT 1 FROM journal WHERE task = ?1 AND letter = ?2";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        statement.exists(params![n, letter.as_str()]).or_trouble(&self.place)
    }

    fn is_abandoned(&mut self, head: &Head) -> Result<bool, StoreError> {
        let Some(worker) = &head.worker else { return Ok(true) };
        let sql = "SELECT lease_until FROM workers WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let lease: Option<i64> =
            statement.query_row([worker.as_str()], |row| row.get(0)).optional().or_trouble(&self.place)?;
        let has_ended = lease.is_none_or(|until| until <= self.clock.now().as_millisecond());
        Ok(has_ended || (!self.held.contains_key(worker) && self.roll.is_dead(worker)))
    }
}
