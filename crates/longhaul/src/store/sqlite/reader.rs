//! The connections that read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};
use tokio::sync::oneshot;

use super::errors::{OrTrouble as _, Place};
use super::workers::{self, Roll};
use super::{rows, schema};
use crate::entry::Record;
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::store::leases::{LeaseWatch, Renewal};
use crate::store::{Clock, Filter, Lease, MATCHES_NAMED, Slip, StoreError, StoreFuture, only_one};
use crate::task::Head;

/// How many threads read at once.
const THREADS: usize = 3;

/// A few threads that read, each with a connection of its own.
///
/// Threads, and no permits to be awaited: what is asked is under way from that moment on. Whoever asked may stop
/// polling for a while (a tool call does, while its runner writes), and would keep others waiting for its permit.
#[derive(Clone)]
pub(super) struct Readers(Arc<Room>);

struct Room {
    place: Place,
    queue: Option<Sender<Look>>,
    threads: Vec<JoinHandle<()>>,
    /// The connection for what is read on the spot.
    glances: Mutex<Reader>,
}

type Look = Box<dyn FnOnce(&mut Desk) + Send>;

impl Readers {
    pub(super) fn start(place: Place, patience: Duration) -> Result<Readers, StoreError> {
        let (queue, looks) = channel::<Look>();
        let looks = Arc::new(Mutex::new(looks));
        let mut threads = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            // Opened now: what has the file's name later may be another file.
            let reader = Some(Reader::open(&place, patience)?);
            let (looks, mut desk) = (looks.clone(), Desk { place: place.clone(), patience, reader });
            let work = move || {
                while let Ok(look) = next(&looks) {
                    // A fault in one look must not take the thread from the others.
                    let _ = catch_unwind(AssertUnwindSafe(|| look(&mut desk)));
                }
            };
            let thread = std::thread::Builder::new().name("longhaul-read".into()).spawn(work);
            threads.push(thread.map_err(|e| {
                place.wrong(format_args!("cannot be read: no thread could be started ({e})"))
            })?);
        }
        let glances = Reader::open(&place, Duration::ZERO)?;
        let room = Room { place, queue: Some(queue), threads, glances: Mutex::new(glances) };
        Ok(Readers(Arc::new(room)))
    }

    /// Where a task stands.
    pub(super) fn head(&self, task: TaskId) -> StoreFuture<'_, Option<Head>> {
        Box::pin(async move {
            match self.0.glance(task) {
                Some(seen) => seen,
                None => self.with(move |reader| reader.head(task)).await,
            }
        })
    }

    /// Has something read on a thread that may block.
    pub(super) fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (answer, answered) = oneshot::channel();
        let look = move |desk: &mut Desk| {
            // Whoever asked may no longer want to know.
            let _ = answer.send(desk.reader().and_then(look));
        };
        let asked = self.0.queue.as_ref().is_some_and(|queue| queue.send(Box::new(look)).is_ok());
        let place = self.0.place.clone();
        Box::pin(async move {
            if !asked {
                return Err(StoreError::Closed);
            }
            let lost = |_| Err(place.wrong(format_args!("could not be read, for a fault in Longhaul")));
            answered.await.unwrap_or_else(lost)
        })
    }
}

fn next(looks: &Mutex<Receiver<Look>>) -> Result<Look, RecvError> {
    looks.lock().unwrap_or_else(PoisonError::into_inner).recv()
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Room {
    /// Reads a head on the spot, which takes less time than handing it to another thread. `None` if the connection
    /// for that is not free, or if somebody would have to be waited for.
    fn glance(&self, task: TaskId) -> Option<Result<Option<Head>, StoreError>> {
        let seen = self.glances.try_lock().ok()?.head(task);
        Some(seen).filter(|seen| !matches!(seen, Err(StoreError::Database { passing: true, .. })))
    }
}

/// Where a thread reads.
struct Desk {
    place: Place,
    patience: Duration,
    reader: Option<Reader>,
}

impl Desk {
    fn reader(&mut self) -> Result<&Reader, StoreError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::open(&self.place, self.patience)?,
        };
        Ok(self.reader.insert(reader))
    }
}

/// One connection that reads.
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) place: Place,
}

impl Reader {
    fn open(place: &Place, patience: Duration) -> Result<Reader, StoreError> {
        let connection = schema::open_reader(place, patience)?;
        // The log is opened by the first read.
        connection.query_row("SELECT count(*) FROM store", [], |_| Ok(())).or_trouble(place)?;
        Ok(Reader { connection, place: place.clone() })
    }

    pub(super) fn read(&self, task: TaskId, after: Seq, limit: usize) -> Result<Vec<Record>, StoreError> {
        let sql = "SELECT n FROM tasks WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let n =
            statement.query_row([task.to_string()], |row| row.get(0)).optional().or_trouble(&self.place)?;
        n.map_or(Ok(Vec::new()), |n| rows::journal(&self.connection, &self.place, task, n, after, limit))
    }

    pub(super) fn head(&self, task: TaskId) -> Result<Option<Head>, StoreError> {
        let mut statement = self.connection.prepare_cached(rows::ONE_TASK).or_trouble(&self.place)?;
        let mut found = statement.query([task.to_string()]).or_trouble(&self.place)?;
        let Some(row) = found.next().or_trouble(&self.place)? else { return Ok(None) };
        Ok(Some(rows::head(&self.connection, &self.place, row, Some(task))?.head))
    }

    pub(super) fn list(&self, filter: &Filter) -> Result<Vec<Head>, StoreError> {
        // In one moment: between two looks a task may be deleted.
        let moment = self.connection.unchecked_transaction().or_trouble(&self.place)?;
        let numbers = self.numbers(filter)?;
        let mut heads = Vec::with_capacity(numbers.len());
        let mut statement = self.connection.prepare_cached(rows::NTH_TASK).or_trouble(&self.place)?;
        for n in numbers {
            let mut found = statement.query([n]).or_trouble(&self.place)?;
            if let Some(row) = found.next().or_trouble(&self.place)? {
                heads.extend(self.loaded(row)?);
            }
        }
        drop(statement);
        drop(moment);
        Ok(heads)
    }

    pub(super) fn ids(&self, filter: &Filter) -> Result<Vec<TaskId>, StoreError> {
        let moment = self.connection.unchecked_transaction().or_trouble(&self.place)?;
        let numbers = self.numbers(filter)?;
        let mut ids = Vec::with_capacity(numbers.len());
        let sql = "SELECT id FROM tasks WHERE n = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        for n in numbers {
            let id = statement.query_row([n], |row| Ok(row.get_ref(0)?.as_str()?.parse::<TaskId>().ok()));
            ids.extend(id.optional().or_trouble(&self.place)?.flatten());
        }
        drop(statement);
        drop(moment);
        Ok(ids)
    }

    pub(super) fn count(&self, filter: &Filter) -> Result<usize, StoreError> {
        let (condition, mut values) = rows::condition(filter);
        values.push(rows::limit(filter));
        // Never counts further than it must.
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {condition} LIMIT ?)");
        let mut statement = self.connection.prepare_cached(&sql).or_trouble(&self.place)?;
        let count: i64 =
            statement.query_row(params_from_iter(values), |row| row.get(0)).or_trouble(&self.place)?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// The numbers of the tasks that match, in order. Sorted here: SQLite would sort rows, or read all of them because they
    /// are in order.
    pub(super) fn numbers(&self, filter: &Filter) -> Result<Vec<i64>, StoreError> {
        let (condition, mut values) = rows::condition(filter);
        let all = condition == "1";
        let newest = if all { "ORDER BY n DESC LIMIT ?" } else { "" };
        if all {
            values.push(rows::limit(filter));
        }
        let sql = format!("SELECT n FROM tasks WHERE {condition} {newest}");
        let mut statement = self.connection.prepare_cached(&sql).or_trouble(&self.place)?;
        let found =
            statement.query_map(params_from_iter(values), |row| row.get(0)).or_trouble(&self.place)?;
        let mut numbers: Vec<i64> = found.collect::<Result<_, _>>().or_trouble(&self.place)?;
        numbers.sort_unstable();
        numbers.dedup();
        let most = filter.limit.unwrap_or(usize::MAX);
        Ok(numbers.split_off(numbers.len().saturating_sub(most)))
    }

    fn heads(&self, sql: &str, values: Vec<Value>) -> Result<Vec<Head>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let mut found = statement.query(params_from_iter(values)).or_trouble(&self.place)?;
        let mut heads = Vec::new();
        while let Some(row) = found.next().or_trouble(&self.place)? {
            heads.extend(self.loaded(row)?);
        }
        Ok(heads)
    }

    /// The head in a row. One that cannot be loaded must not hide the others; `check` names it.
    fn loaded(&self, row: &rusqlite::Row<'_>) -> Result<Option<Head>, StoreError> {
        match rows::head(&self.connection, &self.place, row, None) {
            Ok(found) => Ok(Some(found.head)),
            Err(error @ StoreError::Database { .. }) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a task that cannot be loaded is left out");
                Ok(None)
            }
        }
    }

    pub(super) fn find(&self, typed: &str) -> Result<TaskId, StoreError> {
        if let Ok(id) = typed.parse::<TaskId>()
            && self.head(id)?.is_some()
        {
            return Ok(id);
        }
        let Some(begins) = TaskId::prefix(typed) else { return only_one(typed, Vec::new()) };
        let sql = "SELECT id FROM tasks WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        // '~' comes after every letter of an id.
        let range =
            params![format!("t-{begins}"), format!("t-{begins}~"), rows::number(MATCHES_NAMED as u64)];
        let ids = statement.query_map(range, |row| row.get::<_, String>(0)).or_trouble(&self.place)?;
        let ids: Vec<String> = ids.collect::<Result<_, _>>().or_trouble(&self.place)?;
        only_one(typed, ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    pub(super) fn abandoned(
        &self,
        roll: &Roll,
        leases: &LeaseWatch,
        clock: &Clock,
    ) -> Result<Vec<Head>, StoreError> {
        let sql = "SELECT DISTINCT worker FROM tasks WHERE worker IS NOT NULL";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let owners = statement
            .query_map([], |row| Ok(row.get::<_, Option<String>>(0).ok().flatten()))
            .or_trouble(&self.place)?
            .collect::<Result<Vec<Option<String>>, _>>()
            .or_trouble(&self.place)?;
        let mut heads = Vec::new();
        let sql = format!("SELECT {} FROM tasks WHERE worker = ?1", rows::TASK);
        for name in owners.into_iter().flatten() {
            let worker = WorkerId::from(name.as_str());
            let before = clock.elapsed();
            let lease = workers::lease(&self.connection, &worker).or_trouble(&self.place)?;
            let has_run_out = |lease| leases.has_run_out(&worker, lease, before, clock.elapsed());
            if lease.is_none_or(has_run_out) || roll.is_dead(&worker) {
                heads.extend(self.heads(&sql, vec![Value::Text(name)])?);
            }
        }
        Ok(heads)
    }

    pub(super) fn lease(&self, worker: &WorkerId) -> Result<Option<Lease>, StoreError> {
        let lease = workers::lease(&self.connection, worker).or_trouble(&self.place)?;
        Ok(lease.map(|Renewal { count, until, length }| Lease {
            renewals: u64::try_from(count).unwrap_or_default(),
            length,
            until: Timestamp::from_millisecond(until).unwrap_or(Timestamp::MAX),
        }))
    }

    pub(super) fn kept(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT bytes FROM kept WHERE digest = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let bytes = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_blob().map(<[u8]>::to_vec).ok());
        let kept = statement.query_row([digest.as_str()], bytes).optional().or_trouble(&self.place)?;
        match kept {
            None => Ok(None),
            Some(Some(bytes)) if Digest::of(&bytes) == *digest => Ok(Some(bytes)),
            Some(_) => Err(self.place.damaged(format_args!("what is kept under the digest {digest}"))),
        }
    }

    pub(super) fn slip(&self, name: &str) -> Result<Slip, StoreError> {
        let sql = "SELECT name, written, bytes, sum FROM slips WHERE name = ?1";
        let mut statement = self.connection.prepare_cached(sql).or_trouble(&self.place)?;
        let slip = |row: &rusqlite::Row<'_>| Ok(rows::slip(row).filter(|(found, _)| found == name));
        match statement.query_row([name], slip).optional().or_trouble(&self.place)? {
            None => Ok(Slip::default()),
            Some(Some((_, slip))) => Ok(slip),
            Some(None) => Err(self.place.damaged(format_args!("the note '{name}'"))),
        }
    }
}
