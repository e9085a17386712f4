//! Gives free space back to the file system: deleted data leaves room in the file, which is reused but not
//! returned.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::errors::{DatabasePath, OrStoreError as _};
use super::{SqliteStore, health, schema, with_suffix};
use crate::store::StoreError;

/// How long to wait for others to unlock the file.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take while other processes run tasks, which cannot write meanwhile: as long as they wait
/// for the lock, and much shorter than their leases.
const LONGEST_BESIDE_OTHERS: Duration = Duration::from_secs(4);

/// The result of a vacuum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacuumed {
    /// The size of the database and its log before, in bytes.
    pub before: u64,
    /// Their size now.
    pub after: u64,
}

impl Vacuumed {
    /// How many bytes were given back to the file system.
    pub fn freed(&self) -> u64 {
        self.before.saturating_sub(self.after)
    }
}

impl SqliteStore {
    /// Shrinks the file of a store to its content, and gives the rest back to the file system. Returns `None`
    /// if there is no file.
    ///
    /// Others may have the store open and keep reading; writers wait. While other processes run tasks it
    /// gives up after a few seconds, and then has changed nothing. It rewrites the whole content, so there
    /// must be enough space for a copy.
    ///
    /// This blocks: in asynchronous code, run it on its own thread.
    pub fn vacuum(path: impl AsRef<Path>) -> Result<Option<Vacuumed>, StoreError> {
        if !path.as_ref().exists() {
            return Ok(None);
        }
        let place = DatabasePath::prepare(path.as_ref())?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(place.path(), flags).or_store_error(&place)?;
        if connection.is_readonly("main").or_store_error(&place)? {
            return Err(place.read_only_error());
        }
        connection.busy_timeout(TIMEOUT).or_store_error(&place)?;
        schema::check(&connection, &place)?;
        let others = match schema::version(&connection).or_store_error(&place)? {
            0 => 0,
            _ => health::alive(&connection, &super::worker_locks_of(place.path())).or_store_error(&place)?,
        };
        let before = size(place.path());
        let made = rewrite(&connection, (others > 0).then_some(LONGEST_BESIDE_OTHERS));
        match made.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) {
            Some(ErrorCode::OperationInterrupted) => return Err(place.too_busy()),
            Some(ErrorCode::DiskFull) => return Err(place.no_room_to_vacuum(before)),
            _ => made.or_store_error(&place)?,
        }
        // The new content is in the log until a checkpoint merges it into the file; if a reader prevents
        // that, the next checkpoint does it.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).or_store_error(&place)?;
        Ok(Some(Vacuumed { before, after: size(place.path()) }))
    }
}

/// Rewrites the file, within this time if there is a limit.
fn rewrite(connection: &Connection, longest: Option<Duration>) -> rusqlite::Result<()> {
    // On disk: it may not fit into memory.
    let run = || connection.execute_batch("PRAGMA temp_store = FILE; VACUUM;");
    let Some(longest) = longest else { return run() };
    let handle = connection.get_interrupt_handle();
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        });
        let made = run();
        drop(done);
        made
    })
}

/// The size of a database on disk, with its log, in bytes.
fn size(path: &Path) -> u64 {
    [path.to_owned(), with_suffix(path, "-wal")]
        .iter()
        .filter_map(|file| file.metadata().ok())
        .map(|is| is.len())
        .sum()
}
