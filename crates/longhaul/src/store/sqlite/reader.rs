//! The connections that read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};
use tokio::sync::oneshot;

use super::errors::{DatabasePath, OrStoreError as _};
use super::file_identity::DatabaseIdentity;
use super::lease_rows;
use super::recent::RecentTasks;
use super::watch::JournalEnd;
use super::{rows, schema};
use crate::entry::{Record, TeamRef};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::leases::{LeaseRenewal, LeaseWatch};
use crate::store::worker_locks::WorkerLocks;
use crate::store::{
    Clock, DatabaseFault, Lease, MAX_MATCHES, StoreError, StoreFuture, StoredValue, TaskFilter, single_match,
};
use crate::task::{Status, TaskState};

/// How many threads read at once. The first is started with the pool, the others when reads have to wait.
const THREADS: usize = 3;

/// A few threads that read, each with its own connection.
///
/// Threads instead of permits that are awaited: a request makes progress from the moment it is made. A caller
/// may stop polling for a while (a tool call does, while its runner writes), and would block others while
/// holding a permit.
#[derive(Clone)]
pub(super) struct ReaderPool(Arc<ReaderPoolShared>);

struct ReaderPoolShared {
    files: ReaderFiles,
    threads: Mutex<ReaderThreads>,
    jobs: Arc<JobQueue>,
    /// The connection for quick reads on the calling thread, opened when it is first needed.
    glances: Mutex<Option<ReadConnection>>,
    journal_end: Arc<JournalEnd>,
    recent: Arc<RecentTasks>,
}

type ReadJob = Box<dyn FnOnce(&ReadConnection) + Send>;

/// The reads that no thread has begun.
struct JobQueue {
    receiver: Mutex<Receiver<ReadJob>>,
    /// Reads that are queued or in progress. Each counts itself down.
    open: AtomicUsize,
}

struct ReaderThreads {
    queue: Option<Sender<ReadJob>>,
    /// Those that were started. The first never ends by itself, the others do if they cannot open the file.
    running: Vec<JoinHandle<()>>,
}

impl ReaderPool {
    pub(super) fn start(
        place: DatabasePath,
        identity: DatabaseIdentity,
        busy_timeout: Duration,
        recent: Arc<RecentTasks>,
    ) -> Result<ReaderPool, StoreError> {
        let files = ReaderFiles { place, identity, busy_timeout };
        let (queue, receiver) = channel::<ReadJob>();
        let jobs = Arc::new(JobQueue { receiver: Mutex::new(receiver), open: AtomicUsize::new(0) });
        let reader = ReadConnection::open(&files.place, busy_timeout)?;
        let first = start_thread(jobs.clone(), || Some(reader)).map_err(|error| {
            files.place.error(format_args!("cannot be read: no thread could be started ({error})"))
        })?;
        let threads = ReaderThreads { queue: Some(queue), running: vec![first] };
        let journal_end = Arc::new(JournalEnd::open(&files.place)?);
        Ok(ReaderPool(Arc::new(ReaderPoolShared {
            files,
            threads: Mutex::new(threads),
            jobs,
            glances: Mutex::default(),
            journal_end,
            recent,
        })))
    }

    /// What looks at the end of the journal.
    pub(super) fn journal_end(&self) -> Arc<JournalEnd> {
        self.0.journal_end.clone()
    }

    /// The state of a task.
    pub(super) fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        Box::pin(async move {
            match self.0.try_read_now(task) {
                Some(seen) => seen,
                None => self.run(move |reader| reader.task_state(task)).await,
            }
        })
    }

    /// A part of a journal.
    pub(super) fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        Box::pin(async move {
            match self.0.read_recent(task, after, limit) {
                Some(records) => Ok(records),
                None => self.run(move |reader| reader.read(task, after, limit)).await,
            }
        })
    }

    /// How many threads were started, and whether quick reads have a connection.
    #[cfg(test)]
    pub(super) fn connections(&self) -> (usize, bool) {
        let threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let glances = self.0.glances.lock().unwrap_or_else(PoisonError::into_inner);
        (threads.running.len(), glances.is_some())
    }

    /// Runs a read on a thread that may block.
    pub(super) fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ReadConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.0.jobs.clone();
        let asked = self.0.queue(Box::new(move |reader| {
            let seen = catch_unwind(AssertUnwindSafe(|| look(reader)));
            // Before the answer: the caller may ask again at once, and this thread is free.
            jobs.open.fetch_sub(1, Relaxed);
            if let Ok(seen) = seen {
                // The caller may be gone.
                let _ = answer.send(seen);
            }
        }));
        let place = self.0.files.place.clone();
        Box::pin(async move {
            if !asked {
                return Err(StoreError::Closed);
            }
            let lost = |_| Err(place.error(format_args!("could not be read, for a fault in Longhaul")));
            answered.await.unwrap_or_else(lost)
        })
    }
}

/// Starts a thread that reads, if its connection can be opened.
fn start_thread(
    jobs: Arc<JobQueue>,
    open: impl FnOnce() -> Option<ReadConnection> + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let Some(reader) = open() else { return };
        while let Ok(look) = jobs.next() {
            // A panic must not end the thread.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                tracing::trace!(target: "longhaul::store::read", "from the file");
                look(&reader);
            }));
        }
    };
    std::thread::Builder::new().name("longhaul-read".into()).spawn(work)
}

impl JobQueue {
    fn next(&self) -> Result<ReadJob, RecvError> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).recv()
    }
}

impl Drop for ReaderPoolShared {
    fn drop(&mut self) {
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(threads.queue.take());
        for thread in threads.running.drain(..) {
            let _ = thread.join();
        }
    }
}

impl ReaderPoolShared {
    /// Hands a read to the threads, and starts another one if all are at work. Returns `false` if the pool is closed.
    fn queue(&self, job: ReadJob) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = &threads.queue else { return false };
        let open = self.jobs.open.fetch_add(1, Relaxed) + 1;
        if queue.send(job).is_err() {
            return false;
        }
        threads.running.retain(|thread| !thread.is_finished());
        if open > threads.running.len()
            && threads.running.len() < THREADS
            && self.files.identity.is_in_place()
        {
            let files = self.files.clone();
            match start_thread(self.jobs.clone(), move || files.reopen(files.busy_timeout)) {
                Ok(thread) => threads.running.push(thread),
                Err(error) => tracing::debug!(%error, "no further reader thread could be started"),
            }
        }
        true
    }

    /// Reads a state on the calling thread, which is faster than handing it to another one. Returns `None` if
    /// the connection for that is busy, or if the read would have to wait.
    fn try_read_now(&self, task: TaskId) -> Option<Result<Option<TaskState>, StoreError>> {
        if let Some(state) = self.journal_end.last_row().and_then(|row| self.recent.state(task, row)) {
            return Some(Ok(Some(TaskState::clone(&state))));
        }
        let mut glances = self.glances.try_lock().ok()?;
        if glances.is_none() {
            *glances = self.files.reopen(Duration::ZERO);
        }
        let seen = glances.as_ref()?.task_state(task);
        let passes = |fault| fault != DatabaseFault::Permanent;
        Some(seen).filter(|seen| !matches!(seen, Err(StoreError::Database { fault, .. }) if passes(*fault)))
    }
}

impl ReaderPoolShared {
    /// A part of a journal, if this process has written it not long ago.
    fn read_recent(&self, task: TaskId, after: Seq, limit: usize) -> Option<Vec<Record>> {
        self.recent.read(task, after, limit, self.journal_end.last_row()?)
    }
}

/// What another connection is opened with.
#[derive(Clone)]
struct ReaderFiles {
    place: DatabasePath,
    identity: DatabaseIdentity,
    busy_timeout: Duration,
}

impl ReaderFiles {
    /// Opens another connection. Returns `None` if that fails, or if the file was replaced: open connections still
    /// read the old file.
    fn reopen(&self, busy_timeout: Duration) -> Option<ReadConnection> {
        if !self.identity.is_in_place() {
            return None;
        }
        let reader = ReadConnection::open(&self.place, busy_timeout)
            .inspect_err(|error| tracing::debug!(%error, "no further read connection could be opened"))
            .ok()?;
        self.identity.is_of(&reader.connection).then_some(reader)
    }
}

/// A read-only connection.
pub(super) struct ReadConnection {
    pub(super) connection: Connection,
    pub(super) place: DatabasePath,
}

impl ReadConnection {
    fn open(place: &DatabasePath, busy_timeout: Duration) -> Result<ReadConnection, StoreError> {
        let connection = schema::open_reader(place, busy_timeout)?;
        // The first read opens the log.
        connection.query_row("SELECT count(*) FROM store", [], |_| Ok(())).or_store_error(place)?;
        Ok(ReadConnection { connection, place: place.clone() })
    }

    pub(super) fn read(&self, task: TaskId, after: Seq, limit: usize) -> Result<Vec<Record>, StoreError> {
        let sql = "SELECT n FROM tasks WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let n = statement
            .query_row([task.to_string()], |row| row.get(0))
            .optional()
            .or_store_error(&self.place)?;
        n.map_or(Ok(Vec::new()), |n| rows::read_journal(&self.connection, &self.place, task, n, after, limit))
    }

    pub(super) fn task_state(&self, task: TaskId) -> Result<Option<TaskState>, StoreError> {
        let mut statement = self.connection.prepare_cached(rows::ONE_TASK).or_store_error(&self.place)?;
        let mut found = statement.query([task.to_string()]).or_store_error(&self.place)?;
        let Some(row) = found.next().or_store_error(&self.place)? else { return Ok(None) };
        Ok(Some(rows::load_state(&self.connection, &self.place, row, Some(task))?.state))
    }

    pub(super) fn list(&self, filter: &TaskFilter) -> Result<Vec<TaskState>, StoreError> {
        // In one transaction: between two reads a task may be deleted.
        let transaction = self.connection.unchecked_transaction().or_store_error(&self.place)?;
        let numbers = self.numbers(filter)?;
        let mut states = Vec::with_capacity(numbers.len());
        let mut statement = self.connection.prepare_cached(rows::NTH_TASK).or_store_error(&self.place)?;
        for n in numbers {
            let mut found = statement.query([n]).or_store_error(&self.place)?;
            if let Some(row) = found.next().or_store_error(&self.place)? {
                states.extend(self.load_or_skip(row)?);
            }
        }
        drop(statement);
        drop(transaction);
        Ok(states)
    }

    pub(super) fn ids(&self, filter: &TaskFilter) -> Result<Vec<TaskId>, StoreError> {
        let transaction = self.connection.unchecked_transaction().or_store_error(&self.place)?;
        let numbers = self.numbers(filter)?;
        let mut ids = Vec::with_capacity(numbers.len());
        let sql = "SELECT id FROM tasks WHERE n = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        for n in numbers {
            let id = statement.query_row([n], |row| Ok(row.get_ref(0)?.as_str()?.parse::<TaskId>().ok()));
            ids.extend(id.optional().or_store_error(&self.place)?.flatten());
        }
        drop(statement);
        drop(transaction);
        Ok(ids)
    }

    pub(super) fn count(&self, filter: &TaskFilter) -> Result<usize, StoreError> {
        let (condition, mut values) = rows::filter_condition(filter);
        values.push(rows::filter_limit(filter));
        // Never counts further than needed.
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {condition} LIMIT ?)");
        let mut statement = self.connection.prepare_cached(&sql).or_store_error(&self.place)?;
        let count: i64 =
            statement.query_row(params_from_iter(values), |row| row.get(0)).or_store_error(&self.place)?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// The numbers of the tasks that match, in order. Sorted here: SQLite would sort rows, or read all of
    /// them because they are in order.
    pub(super) fn numbers(&self, filter: &TaskFilter) -> Result<Vec<i64>, StoreError> {
        let mut numbers = Vec::new();
        for part in rows::parts_in_order(filter) {
            let (condition, mut values) = rows::filter_condition(&part.filter);
            let newest = if part.in_order { "ORDER BY n DESC LIMIT ?" } else { "" };
            if part.in_order {
                values.push(rows::filter_limit(filter));
            }
            let sql = format!("SELECT n FROM tasks WHERE {condition} {newest}");
            let mut statement = self.connection.prepare_cached(&sql).or_store_error(&self.place)?;
            let found = statement.query_map(params_from_iter(values), |row| row.get(0));
            for n in found.or_store_error(&self.place)? {
                numbers.push(n.or_store_error(&self.place)?);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let most = filter.limit.unwrap_or(usize::MAX);
        Ok(numbers.split_off(numbers.len().saturating_sub(most)))
    }

    fn states(&self, sql: &str, values: Vec<Value>) -> Result<Vec<TaskState>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let mut found = statement.query(params_from_iter(values)).or_store_error(&self.place)?;
        let mut states = Vec::new();
        while let Some(row) = found.next().or_store_error(&self.place)? {
            states.extend(self.load_or_skip(row)?);
        }
        Ok(states)
    }

    /// The state in a row. A task that cannot be loaded must not hide the others; `check` reports it.
    fn load_or_skip(&self, row: &rusqlite::Row<'_>) -> Result<Option<TaskState>, StoreError> {
        match rows::load_state(&self.connection, &self.place, row, None) {
            Ok(found) => Ok(Some(found.state)),
            Err(error @ StoreError::Database { .. }) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a task that cannot be loaded is left out");
                Ok(None)
            }
        }
    }

    pub(super) fn find(&self, typed: &str) -> Result<TaskId, StoreError> {
        if let Ok(id) = typed.parse::<TaskId>()
            && self.task_state(id)?.is_some()
        {
            return Ok(id);
        }
        let Some(begins) = TaskId::parse_prefix(typed) else { return single_match(typed, Vec::new()) };
        let sql = "SELECT id FROM tasks WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        // '~' comes after every character of an id.
        let range = params![format!("t-{begins}"), format!("t-{begins}~"), rows::number(MAX_MATCHES as u64)];
        let ids = statement.query_map(range, |row| row.get::<_, String>(0)).or_store_error(&self.place)?;
        let ids: Vec<String> = ids.collect::<Result<_, _>>().or_store_error(&self.place)?;
        single_match(typed, ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    pub(super) fn abandoned_tasks(
        &self,
        roll: &WorkerLocks,
        leases: &LeaseWatch,
        clock: &Clock,
    ) -> Result<Vec<TaskState>, StoreError> {
        let owners = self.distinct("SELECT min(worker) FROM tasks WHERE worker > ?1")?;
        let mut states = Vec::new();
        let sql = format!("SELECT {} FROM tasks WHERE worker = ?1", rows::TASK);
        for name in owners {
            let worker = WorkerId::from(name.as_str());
            let before = clock.elapsed();
            let lease = lease_rows::lease(&self.connection, &worker).or_store_error(&self.place)?;
            let has_run_out = |lease| leases.has_run_out(&worker, lease, before, clock.elapsed());
            if lease.is_none_or(has_run_out) || roll.is_dead(&worker) {
                states.extend(self.states(&sql, vec![Value::Text(name)])?);
            }
        }
        Ok(states)
    }

    /// The teams of the tasks that have not ended.
    pub(super) fn teams_at_work(&self) -> Result<Vec<TeamRef>, StoreError> {
        let mut teams = Vec::new();
        for status in [Status::Pending, Status::Running] {
            let sql = format!("SELECT min(team) FROM tasks WHERE status = {} AND team > ?1", status as u8);
            teams.extend(self.distinct(&sql)?.iter().filter_map(|team| rows::team_from_text(team)));
        }
        Ok(teams)
    }

    /// The different values in an index: `sql` finds the next one after its parameter. Costs one step for
    /// each, however many rows have it.
    fn distinct(&self, sql: &str) -> Result<Vec<String>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let mut found = vec![String::new()];
        let mut next = |last: &String| statement.query_row([last], |row| row.get::<_, Option<String>>(0));
        while let Some(last) = found.last()
            && let Some(value) = next(last).or_store_error(&self.place)?
        {
            found.push(value);
        }
        Ok(found.split_off(1))
    }

    pub(super) fn lease(&self, worker: &WorkerId) -> Result<Option<Lease>, StoreError> {
        let lease = lease_rows::lease(&self.connection, worker).or_store_error(&self.place)?;
        Ok(lease.map(|LeaseRenewal { count, until, length }| Lease {
            renewals: u64::try_from(count).unwrap_or_default(),
            length,
            until: Timestamp::from_millisecond(until).unwrap_or(Timestamp::MAX),
        }))
    }

    pub(super) fn blob(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT bytes FROM kept WHERE digest = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let bytes = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_blob().map(<[u8]>::to_vec).ok());
        let kept = statement.query_row([digest.as_str()], bytes).optional().or_store_error(&self.place)?;
        match kept {
            None => Ok(None),
            Some(Some(bytes)) if Digest::of_bytes(&bytes) == *digest => Ok(Some(bytes)),
            Some(_) => Err(self.place.damaged_error(format_args!("the blob {digest}"))),
        }
    }

    pub(super) fn stored_value_names(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM slips ORDER BY name";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let names = statement.query_map([], |row| row.get(0)).or_store_error(&self.place)?;
        names.collect::<Result<_, _>>().or_store_error(&self.place)
    }

    pub(super) fn stored_value(&self, name: &str) -> Result<StoredValue, StoreError> {
        let sql = "SELECT name, written, bytes, sum FROM slips WHERE name = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let stored =
            |row: &rusqlite::Row<'_>| Ok(rows::read_stored_value(row).filter(|(found, _)| found == name));
        match statement.query_row([name], stored).optional().or_store_error(&self.place)? {
            None => Ok(StoredValue::default()),
            Some(Some((_, stored))) => Ok(stored),
            Some(None) => Err(self.place.damaged_error(format_args!("the stored value '{name}'"))),
        }
    }
}
