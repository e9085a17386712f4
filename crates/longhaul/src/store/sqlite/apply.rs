//! What the writer does inside a transaction.
//!
//! An errand is judged whole before any of it is written, so that a refused one leaves nothing to take back.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, params, params_from_iter};

use super::SqliteOptions;
use super::checksum::Sum;
use super::deletion;
use super::errors::{OrTrouble as _, Place};
use super::heads::{Heads, Unsaved};
use super::rows;
use super::saved;
use super::watch::Bell;
use super::workers::{self, Roll};
use super::writer::{Answer, Ask};
use crate::entry::{Entry, FORMAT, Record};
use crate::id::{LetterId, Seq, TaskId, WorkerId};
use crate::store::judge::{Archive, Draft, judge};
use crate::store::leases::LeaseWatch;
use crate::store::{AtMost, Clock, Fence, Hint, StoreError};
use crate::task::Head;

/// The writer's connection, and what it knows.
pub(super) struct Desk {
    pub(super) connection: Connection,
    pub(super) place: Place,
    pub(super) clock: Clock,
    patience: Duration,
    pub(super) roll: Roll,
    pub(super) leases: Arc<LeaseWatch>,
    bell: Arc<Bell>,
    /// The lock files of the workers of this process.
    pub(super) held: HashMap<WorkerId, File>,
    pub(super) heads: Heads,
    /// What `PRAGMA data_version` said when the heads were known to be right.
    version: Option<i64>,
    pub(super) last_row: i64,
    pub(super) last_task: i64,
    pub(super) transaction: Transaction,
    buffer: Vec<u8>,
}

/// What is to happen when the transaction is committed.
#[derive(Default)]
pub(super) struct Transaction {
    first_row: i64,
    /// When it began.
    pub(super) begun: Option<Instant>,
    pub(super) hints: Vec<Hint>,
    retired: Vec<WorkerId>,
    /// Workers that are forgotten with it.
    pub(super) swept: Vec<WorkerId>,
}

impl Desk {
    pub(super) fn new(
        connection: Connection,
        place: Place,
        options: SqliteOptions,
        (roll, leases): (Roll, Arc<LeaseWatch>),
        bell: Arc<Bell>,
    ) -> Result<Desk, StoreError> {
        connection.busy_timeout(Duration::ZERO).or_trouble(&place)?;
        Ok(Desk {
            connection,
            place,
            clock: options.clock,
            patience: options.patience,
            roll,
            leases,
            bell,
            held: HashMap::new(),
            heads: Heads::default(),
            version: None,
            last_row: 0,
            last_task: 0,
            transaction: Transaction::default(),
            buffer: Vec::new(),
        })
    }

    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.begin_immediate().or_trouble(&self.place)?;
        // It changes when another connection has written: then nothing that is remembered is sure.
        let version = Some(self.number("PRAGMA data_version")?);
        if self.version != version {
            self.heads.forget();
            self.last_row = self.number("SELECT coalesce(max(row), 0) FROM journal")?;
            self.last_task = self.number(deletion::LAST_TASK)?;
            self.version = version;
        }
        let begun = Some(Instant::now());
        self.transaction = Transaction { first_row: self.last_row + 1, begun, ..Transaction::default() };
        Ok(())
    }

    /// Waits for its turn to write. SQLite's own way of waiting sleeps for longer and longer, and never gets its turn
    /// beside a process that writes all the time.
    fn begin_immediate(&self) -> rusqlite::Result<()> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_micros(500));
                }
                begun => return begun.map(drop),
            }
        }
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
        done.swept.iter().for_each(|worker| self.roll.clear(worker));
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
            Ask::Claim(claim) => self.claim(claim).map(Answer::Claimed),
            Ask::Renew { worker, lease } => self.renew(worker, *lease).map(|()| Answer::Done),
            Ask::Retire(worker) => {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
                self.transaction.retired.push(worker.clone());
                Ok(Answer::Done)
            }
            Ask::Keep { digest, bytes } => {
                let sql = "INSERT INTO kept (digest, bytes, at) VALUES (?1, ?2, ?3) \
                           ON CONFLICT DO UPDATE SET at = excluded.at, bytes = excluded.bytes";
                let at = self.clock.now().as_millisecond();
                self.execute(sql, params![digest.as_str(), &*bytes, at])?;
                // Nothing refers to it yet.
                let sql = "INSERT INTO loose (digest, at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET at = excluded.at";
                self.execute(sql, params![digest.as_str(), at])?;
                Ok(Answer::Done)
            }
            Ask::Slip { name, after, bytes } => self.write_slip(name, *after, bytes).map(Answer::Fits),
            Ask::Delete(tasks) => self.delete(tasks).map(Answer::Fits),
            Ask::Clear => self.clear().map(Answer::Fits),
            Ask::Mend(tasks) => self.mend(tasks).map(|()| Answer::Done),
            #[cfg(test)]
            Ask::Test { act, .. } => act(&self.connection).map(|()| Answer::Done),
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
            self.sweep()?;
        }
        Ok(verdict.ends)
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

    /// Puts a head in its place, in memory; a new task also into the database, for what follows it there.
    pub(super) fn place(&mut self, head: Head) -> Result<(), StoreError> {
        if self.heads.get(head.id).is_some() {
            self.heads.change(head);
            return Ok(());
        }
        self.last_task += 1;
        let n = self.last_task;
        self.buffer.clear();
        write_head(&mut self.buffer, &head);
        let sql = "INSERT INTO tasks (n, id, status, team, agent, parent, root, attempt, worker, created, head, sum, \
                   continues, retries, quiet) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
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
            Sum::of_task(n, &head, &self.buffer),
            head.continues.map(|old| old.to_string()),
            head.retries.map(|old| old.to_string()),
            rows::quiet(&head),
        ];
        self.connection.prepare_cached(sql).and_then(|mut s| s.execute(columns)).or_trouble(&self.place)?;
        let saved = head.seq;
        self.heads.learn(n, head, saved);
        Ok(())
    }

    pub(super) fn write(&mut self, task: i64, record: &Record, bytes: &[u8]) -> Result<(), StoreError> {
        self.last_row += 1;
        let letter = match &record.entry {
            Entry::Letter(letter) => Some(letter.id.as_str()),
            _ => None,
        };
        let sql = "INSERT INTO journal (row, task, seq, at, kind, format, letter, entry, sum) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let (kind, seq) = (record.entry.kind() as u8, rows::number(record.seq.0));
        let at = record.at.as_millisecond();
        let sum = Sum::of_entry(task, seq, at, kind.into(), FORMAT.into(), letter.map(str::as_bytes), bytes);
        self.execute(sql, params![self.last_row, task, seq, at, kind, FORMAT, letter, bytes, sum])?;
        if let Entry::Returned(returned) = &record.entry
            && let Some(whole) = &returned.whole
        {
            let sql = "INSERT OR IGNORE INTO keeps (digest, task) VALUES (?1, ?2)";
            self.execute(sql, params![whole.as_str(), task])?;
        }
        Ok(())
    }

    /// Brings the heads in the database up to date where a column has changed, or where they are too far behind their
    /// journals: once a transaction, however often they changed in it, and before their columns are asked.
    pub(super) fn save_heads(&mut self) -> Result<(), StoreError> {
        let (connection, buffer) = (&self.connection, &mut self.buffer);
        let saved = self.heads.save(|known| -> rusqlite::Result<()> {
            buffer.clear();
            write_head(buffer, &known.head);
            let sum = Sum::of_task(known.n, &known.head, buffer);
            if known.unsaved == Unsaved::Head {
                let sql = "UPDATE tasks SET head = ?2, sum = ?3 WHERE n = ?1";
                connection.prepare_cached(sql)?.execute(params![known.n, &*buffer, sum])?;
                return Ok(());
            }
            let worker = known.head.worker.as_ref().map(WorkerId::as_str);
            let (n, status, attempt) = (known.n, known.head.status as u8, known.head.attempt.0);
            // What is open stays NULL: to set a column costs its index, whether it changes or not.
            if let Some(quiet) = rows::quiet(&known.head) {
                let sql = "UPDATE tasks SET status = ?2, attempt = ?3, worker = ?4, head = ?5, sum = ?6, quiet = ?7 \
                           WHERE n = ?1";
                let columns = params![n, status, attempt, worker, &*buffer, sum, quiet];
                connection.prepare_cached(sql)?.execute(columns)?;
                return Ok(());
            }
            let sql =
                "UPDATE tasks SET status = ?2, attempt = ?3, worker = ?4, head = ?5, sum = ?6 WHERE n = ?1";
            connection.prepare_cached(sql)?.execute(params![n, status, attempt, worker, &*buffer, sum])?;
            Ok(())
        });
        saved.or_trouble(&self.place)
    }

    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        self.changed(sql, params).map(drop)
    }

    /// The same, and how many rows it changed.
    pub(super) fn changed(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        statement.execute(params).or_trouble(&self.place)
    }

    fn write_slip(&self, name: &str, after: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        let changed = match i64::try_from(after).unwrap_or(i64::MAX) {
            0 => self.changed(
                "INSERT INTO slips (name, written, bytes, sum) VALUES (?1, 1, ?2, ?3) ON CONFLICT DO NOTHING",
                params![name, bytes, Sum::of_slip(name, 1, bytes)],
            )?,
            after => self.changed(
                "UPDATE slips SET written = ?2 + 1, bytes = ?3, sum = ?4 WHERE name = ?1 AND written = ?2",
                params![name, after, bytes, Sum::of_slip(name, after.saturating_add(1), bytes)],
            )?,
        };
        Ok(changed == 1)
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        statement.query_row([], |row| row.get(0)).or_trouble(&self.place)
    }
}

/// A head has nothing that JSON cannot say; if it had, an empty column would make readers fold the journal.
fn write_head(buffer: &mut Vec<u8>, head: &Head) {
    if saved::write(head, buffer).is_err() {
        buffer.clear();
    }
}

impl Archive for Desk {
    fn head(&mut self, task: TaskId) -> Result<Option<Head>, StoreError> {
        if let Some(known) = self.heads.get(task) {
            return Ok(Some(known.head.clone()));
        }
        let mut statement = self.connection.prepare_cached(rows::ONE_TASK).or_trouble(&self.place)?;
        let mut found = statement.query([task.to_string()]).or_trouble(&self.place)?;
        let Some(row) = found.next().or_trouble(&self.place)? else { return Ok(None) };
        let rows::Found { n, head, saved, .. } = rows::head(&self.connection, &self.place, row, Some(task))?;
        self.heads.learn(n, head.clone(), saved);
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
        let before = self.clock.elapsed();
        let lease = workers::lease(&self.connection, worker).or_trouble(&self.place)?;
        let Some(lease) = lease else { return Ok(true) };
        let is_dead = !self.held.contains_key(worker) && self.roll.is_dead(worker);
        Ok(is_dead || self.leases.has_run_out(worker, lease, before, self.clock.elapsed()))
    }
}
