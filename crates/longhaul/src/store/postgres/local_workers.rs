//! The workers of this machine: whoever shares a kernel with a process that died knows it at once, and need not wait
//! for its lease to run out.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::id::WorkerId;
use crate::store::worker_locks::WorkerLocks;

/// A lock file that nobody has held for this long is of a worker that nobody remembers.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The lock files of the workers on this machine, if a directory for them is known.
#[derive(Default)]
pub(super) struct LocalWorkers {
    locks: Option<WorkerLocks>,
    /// The workers of this store, with their files where the file system has locks.
    held: Mutex<HashMap<WorkerId, Option<File>>>,
}

impl LocalWorkers {
    pub(super) fn new(dir: Option<PathBuf>) -> LocalWorkers {
        LocalWorkers { locks: dir.map(WorkerLocks::in_dir), held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<WorkerId, Option<File>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file of a worker of this process.
    pub(super) async fn lock(&self, worker: &WorkerId) -> io::Result<()> {
        let Some(locks) = self.locks.clone() else { return Ok(()) };
        if self.held().contains_key(worker) {
            return Ok(());
        }
        let name = worker.clone();
        let lock = move || {
            let is_recent = |path: &PathBuf| {
                let written = path.metadata().and_then(|meta| meta.modified());
                written.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < OLD))
            };
            locks.remove_stale(is_recent);
            locks.lock(&name)
        };
        let file = tokio::task::spawn_blocking(lock).await.map_err(io::Error::other)??;
        self.held().insert(worker.clone(), file);
        Ok(())
    }

    /// Removes the file of a worker of this process that has no lease any more.
    pub(super) fn unlock(&self, worker: &WorkerId) {
        let file = self.held().remove(worker).flatten();
        if let (Some(locks), Some(file)) = (&self.locks, file) {
            locks.unlock(worker, file);
        }
    }

    /// Those of these workers that are known to be dead.
    pub(super) async fn dead_among(&self, workers: impl Iterator<Item = WorkerId>) -> Vec<WorkerId> {
        let Some(locks) = self.locks.clone() else { return Vec::new() };
        let mut others: Vec<WorkerId> = workers.collect();
        others.retain(|worker| !self.held().contains_key(worker));
        let check = move || {
            others.retain(|worker| locks.is_dead(worker));
            others
        };
        tokio::task::spawn_blocking(check).await.unwrap_or_default()
    }

    /// Removes the files of dead workers that have no lease any more.
    pub(super) fn forget(&self, dead: &[WorkerId]) {
        if let Some(locks) = &self.locks {
            dead.iter().for_each(|worker| locks.remove_if_unlocked(worker));
        }
    }

    /// Waits until another worker of this machine is known to have died.
    pub(super) async fn next_death(&self) {
        match &self.locks {
            Some(locks) => locks.next_death().await,
            None => std::future::pending().await,
        }
    }
}
