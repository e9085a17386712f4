//! Lock files that tell other processes whose streamed text is shown here.
//!
//! A process that shows a tree holds a lock on a file with the root's id in its name. The kernel releases the
//! lock when the process dies. A process that runs the tree looks into the directory a few times a second.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::TaskId;
use crate::store::private_files;

/// The directory of the lock files.
#[derive(Clone)]
pub(super) struct ReaderLocks {
    dir: Arc<Path>,
    /// The files of this process.
    own: Arc<Mutex<HashSet<PathBuf>>>,
}

/// A lock file, removed when this is dropped.
struct ReaderLock {
    path: PathBuf,
    own: Arc<Mutex<HashSet<PathBuf>>>,
    _file: File,
}

impl ReaderLocks {
    /// The lock files for the store in this file.
    pub(super) fn for_database(database: &Path) -> ReaderLocks {
        ReaderLocks { dir: super::with_suffix(database, "-readers").into(), own: Arc::default() }
    }

    /// Tells other processes that the tree is shown here, until the result is dropped. If that cannot be told,
    /// the text comes once a second, and nothing else is lost.
    pub(super) fn announce(&self, root: TaskId) -> Option<Box<dyn Send + Sync>> {
        private_files::create_private_dir(&self.dir).ok()?;
        let name = uuid::Uuid::now_v7().simple();
        let (new, path) = (self.dir.join(format!("{name}.new")), self.dir.join(format!("{root}.{name}")));
        private_files::create_private_file(&new).ok()?;
        self.lock_own().insert(path.clone());
        // Locked before it has its name: an unlocked one is removed.
        let file = File::options().append(true).open(&new).ok().filter(|file| file.try_lock().is_ok());
        let lock = file.map(|file| ReaderLock { path: path.clone(), own: self.own.clone(), _file: file });
        match lock.filter(|_| std::fs::rename(&new, &path).is_ok()) {
            Some(lock) => Some(Box::new(lock)),
            None => {
                let _ = std::fs::remove_file(&new);
                None
            }
        }
    }

    /// The trees that other processes show. Removes the files of processes that have died.
    pub(super) fn announced_elsewhere(&self) -> HashSet<TaskId> {
        let Ok(files) = std::fs::read_dir(&self.dir) else { return HashSet::new() };
        let mut roots = HashSet::new();
        for path in files.flatten().map(|file| file.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(root) = name.split('.').next().and_then(|id| id.parse::<TaskId>().ok()) else {
                continue;
            };
            if self.lock_own().contains(&path) {
                continue;
            }
            match File::open(&path) {
                Ok(file) if file.try_lock_shared().is_ok() => drop(std::fs::remove_file(&path)),
                Ok(_) => drop(roots.insert(root)),
                Err(_) => {}
            }
        }
        roots
    }

    fn lock_own(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReaderLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.own.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}
