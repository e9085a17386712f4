//! Lock files that show at once that a worker of another process was killed.
//!
//! The process that renews a worker's lease holds an exclusive lock on a file with the worker's name. The
//! kernel releases the lock when the process dies, however it dies, so a process that gets the lock knows
//! that the worker is dead. Without a file nothing is known, and only the lease counts.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::id::{Digest, WorkerId};
use crate::store::leases::{ASSUMED_LENGTH, LeaseRenewal};

/// The directory of the lock files.
#[derive(Debug, Clone)]
pub(super) struct WorkerLocks(Arc<Path>);

impl WorkerLocks {
    /// The lock files for the store in this file.
    pub(super) fn for_database(database: &Path) -> WorkerLocks {
        WorkerLocks(super::with_suffix(database, "-workers").into())
    }

    pub(super) fn lock_path(&self, worker: &WorkerId) -> PathBuf {
        let name = worker.as_str();
        let is_plain = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if is_plain {
            self.0.join(format!("{name}.lock"))
        } else {
            self.0.join(format!("{}.lock", Digest::of_bytes(name.as_bytes())))
        }
    }

    /// Locks the worker's file for as long as the returned file is open. Call it before others can see the
    /// worker. Returns `None` if the file system has no locks: then there must be no file either.
    pub(super) fn lock(&self, worker: &WorkerId) -> io::Result<Option<File>> {
        let path = self.lock_path(worker);
        if super::private_files::create_private_dir(&self.0).is_err() {
            return Ok(None);
        }
        for _ in 0..200 {
            if super::private_files::create_private_file(&path).is_err() {
                return Ok(None);
            }
            let file = match File::options().append(true).open(&path) {
                Ok(file) => file,
                // Removed at this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return Ok(None),
            };
            match file.try_lock() {
                // A process that removed an earlier worker of this name may have deleted the file between the
                // two steps.
                Ok(()) if is_at(&file, &path) => return Ok(Some(file)),
                Ok(()) => {}
                // Another process is checking whether an earlier worker of this name is dead.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::Error(_)) => {
                    let _ = std::fs::remove_file(&path);
                    return Ok(None);
                }
            }
        }
        // Without the lock, this worker would look dead.
        Err(io::Error::new(io::ErrorKind::WouldBlock, format!("{} is in use", path.display())))
    }

    /// Whether the worker is known to be dead.
    pub(super) fn is_dead(&self, worker: &WorkerId) -> bool {
        // Shared, so that two processes that check at once do not take each other for the worker.
        File::open(self.lock_path(worker)).is_ok_and(|file| file.try_lock_shared().is_ok())
    }

    /// Removes the lock file of a worker of this process, when no process can see the worker any more.
    pub(super) fn unlock(&self, worker: &WorkerId, held: File) {
        let _ = std::fs::remove_file(self.lock_path(worker));
        drop(held);
    }

    /// Removes the lock file of a worker that has no row any more, unless its process is still alive.
    pub(super) fn remove_if_unlocked(&self, worker: &WorkerId) {
        clear(&self.lock_path(worker));
    }

    /// Removes the files of processes that died between two steps, when they have no row any more. Processes
    /// that are about to register hold their locks, or create the files again.
    pub(super) fn remove_stale(&self, known: &HashSet<PathBuf>) {
        let Ok(files) = std::fs::read_dir(&self.0) else { return };
        for path in files.flatten().map(|file| file.path()) {
            let is_lock = path.extension().is_some_and(|extension| extension == "lock");
            if is_lock && !known.contains(&path) {
                clear(&path);
            }
        }
    }
}

/// Removes a lock file that no process holds.
fn clear(path: &Path) {
    if let Ok(file) = File::open(path)
        && file.try_lock().is_ok()
        && is_at(&file, path)
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether the open file is the one at this path now.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let which = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().zip(path.metadata().ok()).is_some_and(|(one, two)| which(one) == which(two))
}

/// The lease of a worker, if it has one.
pub(super) fn lease(connection: &Connection, worker: &WorkerId) -> rusqlite::Result<Option<LeaseRenewal>> {
    let sql = "SELECT renewals, lease_until, length FROM workers WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([worker.as_str()], |row| renewal(row, 0)).optional()
}

/// Reads a lease from three columns.
pub(super) fn renewal(row: &Row<'_>, first: usize) -> rusqlite::Result<LeaseRenewal> {
    let length = u64::try_from(row.get::<_, i64>(first + 2)?).unwrap_or_default();
    let length = if length == 0 { ASSUMED_LENGTH } else { Duration::from_millis(length) };
    Ok(LeaseRenewal { count: row.get(first)?, until: row.get(first + 1)?, length })
}
