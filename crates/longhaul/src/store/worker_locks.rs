//! Lock files that show at once that a worker of another process on this machine was killed.
//!
//! The process that renews a worker's lease holds an exclusive lock on a file with the worker's name. The
//! kernel releases the lock when the process dies, however it dies, so a process that gets the lock knows
//! that the worker is dead. Without a file nothing is known, and only the lease counts.
//!
//! The kernel tells nobody that it released a lock, so the files are checked once a second: a few
//! microseconds each.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::private_files::{create_private_dir, create_private_file};
use crate::id::{Digest, WorkerId};

/// How often the files are checked.
const EVERY: Duration = Duration::from_secs(1);

/// The directory of the lock files.
#[derive(Debug, Clone)]
pub(super) struct WorkerLocks {
    dir: Arc<Path>,
    /// The files of dead workers that were reported.
    reported: Arc<Mutex<HashSet<PathBuf>>>,
}

impl WorkerLocks {
    /// The lock files in this directory, which is created when it is needed.
    pub(super) fn in_dir(dir: PathBuf) -> WorkerLocks {
        WorkerLocks { dir: dir.into(), reported: Arc::default() }
    }

    pub(super) fn lock_path(&self, worker: &WorkerId) -> PathBuf {
        let name = worker.as_str();
        let is_plain = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if is_plain {
            self.dir.join(format!("{name}.lock"))
        } else {
            self.dir.join(format!("{}.lock", Digest::of_bytes(name.as_bytes())))
        }
    }

    /// Locks the worker's file for as long as the returned file is open. Call it before others can see the
    /// worker. Returns `None` if the file system has no locks: then there must be no file either.
    pub(super) fn lock(&self, worker: &WorkerId) -> io::Result<Option<File>> {
        let path = self.lock_path(worker);
        if create_private_dir(&self.dir).is_err() {
            return Ok(None);
        }
        for _ in 0..200 {
            if create_private_file(&path).is_err() {
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
        is_unlocked(&self.lock_path(worker))
    }

    /// Waits until another worker is known to have died that was not reported before.
    pub(super) async fn next_death(&self) {
        loop {
            let locks = self.clone();
            // The files may be on a slow disk.
            if tokio::task::spawn_blocking(move || locks.report_dead()).await.unwrap_or(false) {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Whether there is a dead worker that was not reported before.
    fn report_dead(&self) -> bool {
        let dead: HashSet<PathBuf> = self.files().into_iter().filter(|path| is_unlocked(path)).collect();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !dead.is_subset(&reported);
        *reported = dead;
        is_new
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(files) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let files = files.flatten().map(|file| file.path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "lock")).collect()
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
    pub(super) fn remove_stale(&self, is_known: impl Fn(&PathBuf) -> bool) {
        self.files().iter().filter(|path| !is_known(path)).for_each(|path| clear(path));
    }
}

/// Whether there is a lock file that no process holds. The check takes a shared lock, so that two processes
/// that check at once do not take each other for the worker.
fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
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
