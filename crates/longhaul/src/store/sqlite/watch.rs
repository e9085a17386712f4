//! Hints: at once for what this process writes, and after polling the file for what others write.
//!
//! The file is polled twenty times a second, and only while there are receivers: one step down a B-tree,
//! about ten microseconds. We considered watching the `-wal` file with inotify and decided against it. It
//! also wakes up for every write of this process, which is the common case, does not work on network file
//! systems, and needs the same polling as a safety net.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::broadcast;

use super::errors::{DatabasePath, OrStoreError as _};
use super::file_identity::DatabaseIdentity;
use super::reader_locks::ReaderLocks;
use super::schema;
use crate::id::TaskId;
use crate::store::{EntryKinds, HINT_CAPACITY, Hint, HintStream, LiveReaders, StoreError};

/// How many transactions a receiver may fall behind before it gets [`Hint::Lagged`].
const BATCHES: usize = 512;
/// How often the file is polled.
const EVERY: Duration = Duration::from_millis(50);
/// After this many polls, check whether it is still the same file.
const SAME_FILE: u32 = 10;
/// After this many polls, check which trees other processes show.
const READERS: u32 = 5;

/// Sends hints when a journal grows.
pub(super) struct HintSender {
    hints: broadcast::Sender<Arc<[Hint]>>,
    /// The last journal row that a hint was sent for.
    known: Mutex<i64>,
    /// Why the file is no longer the one that was opened.
    lost: OnceLock<StoreError>,
}

impl HintSender {
    pub(super) fn new(connection: &Connection, place: &DatabasePath) -> Result<HintSender, StoreError> {
        let known = last_row(connection).or_store_error(place)?;
        let (hints, _) = broadcast::channel(BATCHES);
        Ok(HintSender { hints, known: Mutex::new(known), lost: OnceLock::new() })
    }

    /// Why the file is no longer the one that was opened, if so.
    pub(super) fn lost(&self) -> Option<StoreError> {
        self.lost.get().cloned()
    }

    /// The last known journal row.
    fn known(&self) -> i64 {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self) -> HintStream {
        HintStream::from_batches(self.hints.subscribe())
    }

    /// Sends hints for the rows from `first` to `last`, which this process wrote, and for what others wrote
    /// before.
    pub(super) fn send_written(&self, connection: &Connection, first: i64, last: i64, hints: &[Hint]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known + 1 < first {
            self.send_range(connection, *known, first - 1);
        }
        if *known < last {
            self.send(hints);
            *known = last;
        }
    }

    /// Sends hints for everything written since the last time.
    fn send_new(&self, connection: &Connection) {
        if self.hints.receiver_count() == 0 {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match last_row(connection) {
            Ok(last) if last > *known => {
                self.send_range(connection, *known, last);
                *known = last;
            }
            Ok(_) => {}
            // The next poll may succeed, and a hint may be late.
            Err(error) => tracing::debug!(%error, "the journal could not be polled"),
        }
    }

    fn send_range(&self, connection: &Connection, after: i64, last: i64) {
        if self.hints.receiver_count() == 0 {
            return;
        }
        let few = usize::try_from(last - after).is_ok_and(|n| n <= HINT_CAPACITY);
        let hints = if few { written(connection, after, last).ok() } else { None };
        self.send(&hints.unwrap_or_else(|| vec![Hint::Lagged]));
    }

    fn send(&self, hints: &[Hint]) {
        if !hints.is_empty() && self.hints.receiver_count() > 0 {
            let _ = self.hints.send(hints.into());
        }
    }
}

/// The connection that looks at the end of the journal. Everyone shares it: it is used for a few microseconds, or for a few
/// milliseconds if another process has written much.
pub(super) struct JournalEnd(Mutex<Connection>);

impl JournalEnd {
    pub(super) fn open(place: &DatabasePath) -> Result<JournalEnd, StoreError> {
        let connection = schema::open_reader(place, Duration::ZERO)?;
        // The first read opens the log.
        last_row(&connection).or_store_error(place)?;
        Ok(JournalEnd(Mutex::new(connection)))
    }

    /// The last row of the journal now.
    pub(super) fn last_row(&self) -> Option<i64> {
        self.with_connection(|connection| last_row(connection).ok())
    }

    fn with_connection<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn last_row(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT max(row) FROM journal")?
        .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)))
}

/// Hints for what was written in these rows, one per task.
fn written(connection: &Connection, after: i64, last: i64) -> rusqlite::Result<Vec<Hint>> {
    let sql = "SELECT tasks.id, tasks.root, journal.kind FROM journal LEFT JOIN tasks ON tasks.n = journal.task \
               WHERE row > ?1 AND row <= ?2 ORDER BY row";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![after, last])?;
    let mut found = indexmap::IndexMap::<TaskId, (TaskId, EntryKinds)>::new();
    while let Some(row) = rows.next()? {
        // Something was deleted: there are no hints for a deleted task.
        let Some(id) = row.get_ref(0)?.as_str_or_null()? else { return Ok(vec![Hint::Lagged]) };
        let (Ok(task), Ok(root)) = (id.parse(), row.get_ref(1)?.as_str()?.parse()) else { continue };
        let kind = 1u32.checked_shl(row.get(2)?).map_or(EntryKinds::ALL, EntryKinds);
        let (_, kinds) = found.entry(task).or_insert((root, EntryKinds::default()));
        *kinds = kinds.union(kind);
    }
    Ok(found.into_iter().map(|(task, (root, kinds))| Hint::Task { task, root, kinds }).collect())
}

/// The thread that polls. It ends when this is dropped.
pub(super) struct FileWatcher {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatcher {
    pub(super) fn start(
        place: &DatabasePath,
        journal_end: Arc<JournalEnd>,
        hints: Arc<HintSender>,
        identity: DatabaseIdentity,
        readers: (ReaderLocks, LiveReaders),
    ) -> Result<FileWatcher, StoreError> {
        let (end, ended) = channel();
        let look = move || watch(&journal_end, &hints, identity, &readers, &ended);
        let thread = std::thread::Builder::new()
            .name("longhaul-watch".into())
            .spawn(look)
            .map_err(|e| place.error(format_args!("cannot be watched: no thread could be started ({e})")))?;
        Ok(FileWatcher { end: Some(end), thread: Some(thread) })
    }
}

fn watch(
    journal_end: &JournalEnd,
    hints: &HintSender,
    mut identity: DatabaseIdentity,
    (locks, live_readers): &(ReaderLocks, LiveReaders),
    ended: &Receiver<()>,
) {
    let mut looks = 0;
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        journal_end.with_connection(|connection| hints.send_new(connection));
        if looks % READERS == 0 {
            live_readers.set_elsewhere(locks.announced_elsewhere());
        }
        looks += 1;
        if looks % SAME_FILE == 0
            && hints.lost.get().is_none()
            && let Some(why) = identity.find_change(hints.known())
        {
            let _ = hints.lost.set(why);
        }
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
