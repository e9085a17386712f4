//! How a process tells at once that a worker of another was killed.
//!
//! Whoever renews a worker's lease holds an exclusive lock on a file with the worker's name. The kernel frees the
//! lock when the process dies, however it dies, so that anybody who gets the lock knows the worker to be dead.
//! Where there is no file nothing is known, and only the lease counts.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Digest, WorkerId};

/// The directory of the lock files.
#[derive(Debug, Clone)]
pub(super) struct Roll(Arc<Path>);

impl Roll {
    /// The roll of the store in this file.
    pub(super) fn beside(database: &Path) -> Roll {
        Roll(super::beside(database, "-workers").into())
    }

    fn file(&self, worker: &WorkerId) -> PathBuf {
        let name = worker.as_str();
        let is_plain = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if is_plain {
            self.0.join(format!("{name}.lock"))
        } else {
            self.0.join(format!("{}.lock", Digest::of(name.as_bytes())))
        }
    }

    /// Says that this process has the worker, for as long as the file is held. To be called before others can
    /// know of the worker. `None` where the file system has no locks: then there must be no file either.
    pub(super) fn sign(&self, worker: &WorkerId) -> Option<File> {
        let path = self.file(worker);
        super::private::make_dir(&self.0).ok()?;
        super::private::create(&path).ok()?;
        let file = File::options().append(true).open(&path).ok()?;
        for _ in 0..5 {
            match file.try_lock() {
                Ok(()) => return Some(file),
                // Somebody just looks whether an earlier worker of this name is dead.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::Error(_)) => {
                    let _ = std::fs::remove_file(&path);
                    return None;
                }
            }
        }
        None
    }

    /// Whether the worker is known to be dead.
    pub(super) fn is_dead(&self, worker: &WorkerId) -> bool {
        // Shared, so that two who look at once do not take each other for the worker.
        File::open(self.file(worker)).is_ok_and(|file| file.try_lock_shared().is_ok())
    }

    /// Takes a worker off the roll that this process has signed.
    pub(super) fn strike(&self, worker: &WorkerId, held: File) {
        let _ = std::fs::remove_file(self.file(worker));
        drop(held);
    }

    /// Takes a worker off the roll whose lease has ended, unless its process still lives. Says whether it is off.
    pub(super) fn clear(&self, worker: &WorkerId) -> bool {
        let path = self.file(worker);
        let Ok(file) = File::open(&path) else { return !path.exists() };
        file.try_lock().is_ok() && std::fs::remove_file(&path).is_ok()
    }
}
