//! The writer's operations inside a transaction.
//!
//! A request is validated completely before any of it is written, so that a rejected one leaves nothing to
//! undo.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, params, params_from_iter};

use super::SqliteOptions;
use super::checksum::RowChecksum;
use super::count_cache::CountCache;
use super::deletion;
use super::errors::{DatabasePath, OrStoreError as _};
use super::lease_rows;
use super::recent::{RecentTasks, RecentWrites};
use super::rows;
use super::state_cache::{StateCache, UnsavedPart};
use super::watch::HintSender;
use super::writer::{ImportedJournal, WriterReply, WriterRequest};
use crate::entry::{Entry, FORMAT, Record};
use crate::id::{LetterId, Seq, TaskId, WorkerId};
use crate::store::leases::LeaseWatch;
use crate::store::saved_state;
use crate::store::validate::{StoreLookup, WriteDraft, validate_batch};
use crate::store::worker_locks::WorkerLocks;
use crate::store::{Clock, CountCondition, EntryKinds, Fence, Hint, StoreError, TaskFilter};
use crate::task::TaskState;

/// From this many rows of others on, everything cached is dropped: that costs less than finding out what is
/// still valid.
const MANY_ROWS: i64 = 4096;

/// The writer's connection and its cached data.
pub(super) struct WriteConnection {
    pub(super) connection: Connection,
    pub(super) place: DatabasePath,
    pub(super) clock: Clock,
    busy_timeout: Duration,
    pub(super) worker_locks: WorkerLocks,
    pub(super) leases: Arc<LeaseWatch>,
    hints: Arc<HintSender>,
    /// The lock files of this process's workers.
    pub(super) held: HashMap<WorkerId, File>,
    pub(super) states: StateCache,
    pub(super) counts: CountCache,
    /// What was written last, for readers.
    recent: Arc<RecentTasks>,
    /// The value of `PRAGMA data_version` when the cached states were known to be correct.
    version: Option<i64>,
    pub(super) last_row: i64,
    pub(super) last_task: i64,
    pub(super) transaction: OpenTransaction,
    buffer: Vec<u8>,
}

/// What has to happen when the transaction is committed.
#[derive(Default)]
pub(super) struct OpenTransaction {
    first_row: i64,
    /// When it began.
    pub(super) begun: Option<Instant>,
    pub(super) hints: Vec<Hint>,
    pub(super) recent: RecentWrites,
    pub(super) deleted: Vec<TaskId>,
    retired: Vec<WorkerId>,
    /// Workers that are removed with it.
    pub(super) forgotten: Vec<WorkerId>,
}

impl WriteConnection {
    pub(super) fn new(
        connection: Connection,
        place: DatabasePath,
        options: SqliteOptions,
        (worker_locks, leases): (WorkerLocks, Arc<LeaseWatch>),
        hints: Arc<HintSender>,
        recent: Arc<RecentTasks>,
    ) -> Result<WriteConnection, StoreError> {
        connection.busy_timeout(Duration::ZERO).or_store_error(&place)?;
        Ok(WriteConnection {
            connection,
            place,
            clock: options.clock,
            busy_timeout: options.busy_timeout,
            worker_locks,
            leases,
            hints,
            held: HashMap::new(),
            states: StateCache::default(),
            counts: CountCache::default(),
            recent,
            version: None,
            last_row: 0,
            last_task: 0,
            transaction: OpenTransaction::default(),
            buffer: Vec::new(),
        })
    }

    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.begin_immediate().or_store_error(&self.place)?;
        // It changes when another connection has written: then the cached data may be out of date.
        let version = Some(self.number("PRAGMA data_version")?);
        if self.version != version {
            let known = self.last_row;
            self.last_row = self.number("SELECT coalesce(max(row), 0) FROM journal")?;
            self.forget_changed(known)?;
            self.last_task = self.number(deletion::LAST_TASK)?;
            self.version = version;
        }
        let begun = Some(Instant::now());
        self.transaction =
            OpenTransaction { first_row: self.last_row + 1, begun, ..OpenTransaction::default() };
        Ok(())
    }

    /// Removes what others have written to since the row `known` from what is cached.
    fn forget_changed(&mut self, known: i64) -> Result<(), StoreError> {
        let changed = match self.version {
            Some(_) => changed_tasks(&self.connection, known, self.last_row).or_store_error(&self.place)?,
            // The cached data was never valid.
            None => None,
        };
        match &changed {
            Some(changed) => changed.iter().for_each(|task| self.states.remove(*task)),
            None => self.states.clear(),
        }
        self.counts.clear();
        self.recent.remove(self.last_row, changed.as_deref());
        Ok(())
    }

    /// Waits for the write lock. SQLite's own busy handler sleeps for longer and longer, and never gets the
    /// lock beside a process that writes all the time.
    fn begin_immediate(&self) -> rusqlite::Result<()> {
        let deadline = Instant::now() + self.busy_timeout;
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
        self.save_states()?;
        self.execute("COMMIT", [])?;
        self.states.evict_old();
        let done = std::mem::take(&mut self.transaction);
        self.recent.add(self.last_row, done.recent, &done.deleted);
        if done.first_row <= self.last_row {
            self.hints.send_written(&self.connection, done.first_row, self.last_row, &done.hints);
        }
        for worker in done.retired {
            if let Some(file) = self.held.remove(&worker) {
                self.worker_locks.unlock(&worker, file);
            }
        }
        done.forgotten.iter().for_each(|worker| self.worker_locks.remove_if_unlocked(worker));
        Ok(())
    }

    pub(super) fn roll_back(&mut self) {
        self.transaction = OpenTransaction::default();
        self.states.clear();
        self.counts.clear();
        self.version = None;
        // After some errors SQLite has already rolled back.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    pub(super) fn run(&mut self, ask: &mut WriterRequest) -> Result<WriterReply, StoreError> {
        match ask {
            WriterRequest::Append { drafts, encoded, only_if } => {
                self.append(drafts, encoded, only_if).map(WriterReply::EndSeqs)
            }
            WriterRequest::Claim(claim) => self.claim(claim).map(WriterReply::Claimed),
            WriterRequest::Renew { worker, lease } => self.renew(worker, *lease).map(|()| WriterReply::Done),
            WriterRequest::Retire(worker) => {
                self.execute("DELETE FROM workers WHERE id = ?1", [worker.as_str()])?;
                self.transaction.retired.push(worker.clone());
                Ok(WriterReply::Done)
            }
            WriterRequest::PutBlob { digest, bytes } => {
                let sql = "INSERT INTO kept (digest, bytes, at) VALUES (?1, ?2, ?3) \
                           ON CONFLICT DO UPDATE SET at = excluded.at, bytes = excluded.bytes";
                let at = self.clock.now().as_millisecond();
                self.execute(sql, params![digest.as_str(), &*bytes, at])?;
                // Nothing refers to it yet.
                let sql = "INSERT INTO loose (digest, at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET at = excluded.at";
                self.execute(sql, params![digest.as_str(), at])?;
                Ok(WriterReply::Done)
            }
            WriterRequest::PutStoredValue { name, after, bytes } => {
                self.put_stored_value(name, *after, bytes).map(WriterReply::Flag)
            }
            WriterRequest::Import(journals) => self.import(journals).map(|()| WriterReply::Done),
            WriterRequest::Delete(tasks) => self.delete(tasks).map(WriterReply::Flag),
            WriterRequest::DeleteLeftovers => self.delete_leftovers().map(WriterReply::Flag),
            WriterRequest::RebuildRows(tasks) => self.rebuild_rows(tasks).map(|()| WriterReply::Done),
            #[cfg(test)]
            WriterRequest::Test { act, .. } => act(&self.connection).map(|()| WriterReply::Done),
        }
    }

    fn append(
        &mut self,
        drafts: &mut [WriteDraft],
        encoded: &[Vec<Vec<u8>>],
        only_if: &[CountCondition],
    ) -> Result<Vec<Seq>, StoreError> {
        let Some(first) = drafts.first() else { return Ok(Vec::new()) };
        let is_there = first.fence == Fence::New && self.task_state(first.task)?.is_some();
        if !is_there {
            only_if.iter().try_for_each(|limit| self.check_limit(limit))?;
        }
        let at = self.clock.now();
        let verdict = validate_batch(drafts, at, self)?;
        let hints: Vec<Hint> = drafts.iter().filter_map(|d| d.hint(verdict.root(d.task))).collect();
        for (_, state) in verdict.states {
            let Some(state) = state.map(Arc::new) else { continue };
            let mut records = Vec::new();
            let n = self.put_state(state.clone())?;
            for (draft, encoded) in drafts.iter().zip(encoded).filter(|(draft, _)| draft.task == state.id) {
                for (line, bytes) in draft.entries.iter().zip(encoded).filter(|(line, _)| !line.known) {
                    self.write(n, &line.record, bytes)?;
                    records.push((line.record.clone(), bytes.len()));
                }
            }
            self.transaction.recent.add(state, records);
        }
        self.transaction.hints.extend(hints);
        if drafts.iter().any(|d| matches!(d.fence, Fence::Abandoned(_))) {
            self.forget_dead_workers()?;
        }
        Ok(verdict.ends)
    }

    fn import(&mut self, journals: &[ImportedJournal]) -> Result<(), StoreError> {
        for journal in journals {
            if self.task_state(journal.state.id)?.is_some() {
                return Err(StoreError::Exists(journal.state.id));
            }
        }
        for ImportedJournal { state, records } in journals {
            let n = self.put_state(state.clone())?;
            for (record, bytes) in records {
                self.write(n, record, bytes)?;
            }
            let kinds = EntryKinds::from_kinds(records.iter().map(|(record, _)| record.entry.kind()));
            self.transaction.hints.push(Hint::Task { task: state.id, root: state.root, kinds });
        }
        Ok(())
    }

    fn check_limit(&mut self, limit: &CountCondition) -> Result<(), StoreError> {
        for (filter, most) in limit.alternatives() {
            let most = i64::from(most);
            let count = match self.counts.get(filter) {
                Some(count) => count,
                None => {
                    let count = self.count(filter, most)?;
                    if count < most {
                        self.counts.insert(filter.clone(), count);
                    }
                    count
                }
            };
            if count < most {
                return Ok(());
            }
        }
        Err(StoreError::Limit { limit: limit.limit, what: limit.what })
    }

    /// How many tasks match. Never counts further than to `most`.
    fn count(&mut self, filter: &TaskFilter, most: i64) -> Result<i64, StoreError> {
        self.save_states()?;
        let (condition, mut values) = rows::filter_condition(filter);
        values.push(most.into());
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {condition} LIMIT ?)");
        let mut statement = self.connection.prepare_cached(&sql).or_store_error(&self.place)?;
        statement.query_row(params_from_iter(values), |row| row.get(0)).or_store_error(&self.place)
    }

    /// Caches a state; a new task is also inserted into the database, for the rows that refer to it. Returns
    /// its number.
    pub(super) fn put_state(&mut self, state: Arc<TaskState>) -> Result<i64, StoreError> {
        let known = self.states.get(state.id);
        self.counts.update(known.map(|known| &*known.state), &state);
        if let Some(n) = known.map(|known| known.n) {
            self.states.update(state);
            return Ok(n);
        }
        self.last_task += 1;
        let n = self.last_task;
        self.buffer.clear();
        encode_state(&mut self.buffer, &state);
        let sql = "INSERT INTO tasks (n, id, status, team, agent, parent, root, attempt, worker, created, head, sum, \
                   continues, retries, quiet) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let columns = params![
            n,
            state.id.to_string(),
            state.status as u8,
            rows::team_text(&state.team),
            state.agent.as_str(),
            state.parent.map(|p| p.to_string()),
            state.root.to_string(),
            state.attempt.0,
            state.worker.as_ref().map(WorkerId::as_str),
            state.created.as_millisecond(),
            self.buffer,
            RowChecksum::for_task(n, &state, &self.buffer),
            state.continues.map(|old| old.to_string()),
            state.retries.map(|old| old.to_string()),
            rows::quiet_column(&state),
        ];
        self.connection
            .prepare_cached(sql)
            .and_then(|mut s| s.execute(columns))
            .or_store_error(&self.place)?;
        let saved = state.seq;
        self.states.insert_saved(n, state, saved);
        Ok(n)
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
        let sum = RowChecksum::for_entry(
            task,
            seq,
            at,
            kind.into(),
            FORMAT.into(),
            letter.map(str::as_bytes),
            bytes,
        );
        self.execute(sql, params![self.last_row, task, seq, at, kind, FORMAT, letter, bytes, sum])?;
        if let Entry::Returned(returned) = &record.entry
            && let Some(whole) = &returned.whole
        {
            let sql = "INSERT OR IGNORE INTO keeps (digest, task) VALUES (?1, ?2)";
            self.execute(sql, params![whole.as_str(), task])?;
        }
        Ok(())
    }

    /// Saves the cached states where a column has changed, or where they are too far behind their journals:
    /// once per transaction, however often they changed, and before their columns are queried.
    pub(super) fn save_states(&mut self) -> Result<(), StoreError> {
        let (connection, buffer) = (&self.connection, &mut self.buffer);
        let saved = self.states.save(|known| -> rusqlite::Result<usize> {
            buffer.clear();
            encode_state(buffer, &known.state);
            let sum = RowChecksum::for_task(known.n, &known.state, buffer);
            if known.unsaved == UnsavedPart::State {
                let sql = "UPDATE tasks SET head = ?2, sum = ?3 WHERE n = ?1";
                connection.prepare_cached(sql)?.execute(params![known.n, &*buffer, sum])?;
                return Ok(buffer.len());
            }
            let worker = known.state.worker.as_ref().map(WorkerId::as_str);
            let (n, status, attempt) = (known.n, known.state.status as u8, known.state.attempt.0);
            // An unfinished task stays NULL: setting a column updates its index, whether it changes or not.
            if let Some(quiet) = rows::quiet_column(&known.state) {
                let sql = "UPDATE tasks SET status = ?2, attempt = ?3, worker = ?4, head = ?5, sum = ?6, quiet = ?7 \
                           WHERE n = ?1";
                let columns = params![n, status, attempt, worker, &*buffer, sum, quiet];
                connection.prepare_cached(sql)?.execute(columns)?;
                return Ok(buffer.len());
            }
            let sql =
                "UPDATE tasks SET status = ?2, attempt = ?3, worker = ?4, head = ?5, sum = ?6 WHERE n = ?1";
            connection.prepare_cached(sql)?.execute(params![n, status, attempt, worker, &*buffer, sum])?;
            Ok(buffer.len())
        });
        saved.or_store_error(&self.place)
    }

    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        self.changed(sql, params).map(drop)
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) fn changed(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        statement.execute(params).or_store_error(&self.place)
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        let changed = match i64::try_from(after).unwrap_or(i64::MAX) {
            0 => self.changed(
                "INSERT INTO slips (name, written, bytes, sum) VALUES (?1, 1, ?2, ?3) ON CONFLICT DO NOTHING",
                params![name, bytes, RowChecksum::for_stored_value(name, 1, bytes)],
            )?,
            after => self.changed(
                "UPDATE slips SET written = ?2 + 1, bytes = ?3, sum = ?4 WHERE name = ?1 AND written = ?2",
                params![
                    name,
                    after,
                    bytes,
                    RowChecksum::for_stored_value(name, after.saturating_add(1), bytes)
                ],
            )?,
        };
        Ok(changed == 1)
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        statement.query_row([], |row| row.get(0)).or_store_error(&self.place)
    }
}

/// The tasks that the journal's rows after `after`, up to `last`, belong to; `None` if there are too many, or
/// if tasks were deleted.
fn changed_tasks(connection: &Connection, after: i64, last: i64) -> rusqlite::Result<Option<Vec<TaskId>>> {
    if last - after > MANY_ROWS {
        return Ok(None);
    }
    let sql = "SELECT DISTINCT tasks.id FROM journal LEFT JOIN tasks ON tasks.n = journal.task \
               WHERE row > ?1 AND row <= ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![after, last])?;
    let mut changed = Vec::new();
    while let Some(row) = rows.next()? {
        match row.get_ref(0)?.as_str_or_null()?.and_then(|id| id.parse().ok()) {
            Some(task) => changed.push(task),
            None => return Ok(None),
        }
    }
    Ok(Some(changed))
}

/// JSON can represent every state; if not, the empty column would make readers fold the journal.
fn encode_state(buffer: &mut Vec<u8>, state: &TaskState) {
    if saved_state::write(state, buffer).is_err() {
        buffer.clear();
    }
}

impl StoreLookup for WriteConnection {
    fn task_state(&mut self, task: TaskId) -> Result<Option<TaskState>, StoreError> {
        if let Some(known) = self.states.get(task) {
            return Ok(Some(TaskState::clone(&known.state)));
        }
        let mut statement = self.connection.prepare_cached(rows::ONE_TASK).or_store_error(&self.place)?;
        let mut found = statement.query([task.to_string()]).or_store_error(&self.place)?;
        let Some(row) = found.next().or_store_error(&self.place)? else { return Ok(None) };
        let rows::LoadedState { n, state, saved, .. } =
            rows::load_state(&self.connection, &self.place, row, Some(task))?;
        self.states.insert_saved(n, Arc::new(state.clone()), saved);
        Ok(Some(state))
    }

    fn has_letter(&mut self, task: TaskId, letter: &LetterId) -> Result<bool, StoreError> {
        let Some(known) = self.states.get(task) else { return Ok(false) };
        let n = known.n;
        let sql = "SELECT 1 FROM journal WHERE task = ?1 AND letter = ?2";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        statement.exists(params![n, letter.as_str()]).or_store_error(&self.place)
    }

    fn is_abandoned(&mut self, state: &TaskState) -> Result<bool, StoreError> {
        let Some(worker) = &state.worker else { return Ok(true) };
        let before = self.clock.elapsed();
        let lease = lease_rows::lease(&self.connection, worker).or_store_error(&self.place)?;
        let Some(lease) = lease else { return Ok(true) };
        let is_dead = !self.held.contains_key(worker) && self.worker_locks.is_dead(worker);
        Ok(is_dead || self.leases.has_run_out(worker, lease, before, self.clock.elapsed()))
    }
}
