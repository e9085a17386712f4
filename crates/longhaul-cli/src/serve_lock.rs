//! The mark of a running `longhaul serve`: which process serves a database, where it listens, and which teams it
//! serves.
//!
//! The process holds a lock on the file. The kernel releases the lock when the process dies, so a mark that was
//! left behind is never mistaken for a running server.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::entry::TeamRef;
use longhaul::id::Digest;
use longhaul::task::TaskState;
use serde::{Deserialize, Serialize};

use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};

/// How often, and for how long, to try again: whoever looks whether a server runs holds the lock for a moment.
const RETRY: Duration = Duration::from_millis(20);
const RETRIES: usize = 10;

/// A running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerInfo {
    /// Its process.
    pub(crate) pid: u32,
    /// The URL with which a client on this machine reaches it; `None` while it starts.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// The digests of the teams that it serves.
    #[serde(default)]
    pub(crate) teams: Vec<Digest>,
}

/// Marks the database as served by this process, until it is dropped.
pub(crate) struct ServeLock {
    path: PathBuf,
    file: File,
}

impl ServeLock {
    /// Marks the database as served by this process. Fails if another process serves it.
    pub(crate) async fn acquire(data_dir: &DataDir) -> Result<ServeLock, CliError> {
        let path = lock_path(data_dir);
        let cannot = |why: std::io::Error| {
            CliError::new(CliExitCode::Store, format!("cannot lock {}: {why}", path.display()))
        };
        for _ in 0..RETRIES {
            match try_lock(&path) {
                Ok(Some(file)) => {
                    let mut lock = ServeLock { path, file };
                    lock.describe(&ServerInfo { pid: std::process::id(), url: None, teams: Vec::new() })?;
                    return Ok(lock);
                }
                // The previous owner has removed the file in between.
                Ok(None) => continue,
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(RETRY).await,
            }
        }
        let running = read(&path);
        let place = running.as_ref().and_then(|info| info.url.clone());
        let which = running.map(|info| format!(" (process {})", info.pid)).unwrap_or_default();
        let what = match &place {
            Some(url) => format!("this database is already served at {url}{which}"),
            None => format!("another `longhaul serve` is starting with this database{which}"),
        };
        Err(CliError::new(CliExitCode::Failed, what).with_hint(
            "use that server, stop it first, or give this one a database of its own: `--data DIR`",
        ))
    }

    /// Says what this process serves.
    pub(crate) fn describe(&mut self, info: &ServerInfo) -> Result<(), CliError> {
        let text = serde_json::to_string(info).unwrap_or_default();
        let written = self.file.set_len(0).and_then(|()| self.file.rewind());
        written.and_then(|()| self.file.write_all(text.as_bytes())).map_err(|error| {
            CliError::new(CliExitCode::Store, format!("cannot write {}: {error}", self.path.display()))
        })
    }
}

impl Drop for ServeLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the server that runs with this database, if there is one.
pub(crate) fn running_server(data_dir: &DataDir) -> Option<ServerInfo> {
    let path = lock_path(data_dir);
    match File::open(&path).ok()?.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read(&path),
        _ => None,
    }
}

/// Returns whether a running server runs the tasks of this task's team.
pub(crate) fn is_served(data_dir: &DataDir, task: &TaskState) -> bool {
    let TeamRef::File(digest) = &task.team else { return false };
    running_server(data_dir).is_some_and(|server| server.teams.contains(digest))
}

fn lock_path(data_dir: &DataDir) -> PathBuf {
    let mut name = data_dir.file_stem();
    name.push(".serve");
    data_dir.path().join(name)
}

/// Locks the file. Returns `None` if it is no longer at its path.
fn try_lock(path: &Path) -> Result<Option<File>, TryLockError> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let mut options = File::options();
    options.create(true).read(true).write(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(TryLockError::Error)?;
    file.try_lock()?;
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let is_there = file.metadata().ok().map(identity) == path.metadata().ok().map(identity);
    Ok(is_there.then_some(file))
}

fn read(path: &Path) -> Option<ServerInfo> {
    let mut text = String::new();
    File::open(path).ok()?.take(1 << 20).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_process_serves_a_database_and_others_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::resolve(Some(dir.path())).unwrap();
        assert_eq!(running_server(&data_dir), None);
        let mut lock = ServeLock::acquire(&data_dir).await.unwrap();
        let info = ServerInfo {
            pid: 7,
            url: Some("http://127.0.0.1:9".to_owned()),
            teams: vec![Digest::of_bytes(b"team")],
        };
        lock.describe(&info).unwrap();
        assert_eq!(running_server(&data_dir), Some(info));
        let error = ServeLock::acquire(&data_dir).await.err().unwrap();
        assert!(error.message().contains("http://127.0.0.1:9"), "{error}");
        drop(lock);
        assert_eq!(running_server(&data_dir), None);
        // What a killed process leaves behind does not count.
        std::fs::write(lock_path(&data_dir), r#"{"pid":7,"url":"http://127.0.0.1:9"}"#).unwrap();
        assert_eq!(running_server(&data_dir), None);
        assert!(ServeLock::acquire(&data_dir).await.is_ok());
    }
}
