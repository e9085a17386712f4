//! Checks whether the file at the path is still the one that was opened.
//!
//! SQLite keeps writing to a file that was deleted, moved or replaced, and so do we: running tasks are not
//! harmed, but no other process will ever find what is written. So it has to be reported.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::errors::{DatabasePath, OrStoreError as _};
use super::{schema, with_suffix};
use crate::store::{DatabaseFault, StoreError};

/// Distinguishes a file from another with the same name.
type FileId = (u64, u64);

/// The identity of a database when it was opened.
#[derive(Debug, Clone)]
pub(super) struct DatabaseIdentity {
    place: DatabasePath,
    /// The random name stored in it.
    name: String,
    file: Option<FileId>,
    written: Option<SystemTime>,
    /// The log and its index, which exist for as long as any process has the file open.
    log: [Option<FileId>; 2],
}

impl DatabaseIdentity {
    pub(super) fn capture(
        connection: &Connection,
        place: &DatabasePath,
    ) -> Result<DatabaseIdentity, StoreError> {
        let name = name(connection).or_store_error(place)?;
        let path = place.path();
        Ok(DatabaseIdentity {
            place: place.clone(),
            name,
            file: inode(path),
            written: written(path),
            log: [inode(&with_suffix(path, "-wal")), inode(&with_suffix(path, "-shm"))],
        })
    }

    /// Whether what is at the path is the same file, with the same log.
    pub(super) fn is_in_place(&self) -> bool {
        let path = self.place.path();
        let same_log = |(known, suffix): (&Option<FileId>, &str)| {
            known.is_none() || *known == inode(&with_suffix(path, suffix))
        };
        self.file == inode(path) && self.log.iter().zip(["-wal", "-shm"]).all(same_log)
    }

    /// Whether a connection that was just opened is to this database.
    pub(super) fn is_of(&self, connection: &Connection) -> bool {
        self.is_in_place() && name(connection).is_ok_and(|name| name == self.name)
    }

    /// Why it is no longer the same file; the journal has at least the row `last`.
    pub(super) fn find_change(&mut self, last: i64) -> Option<StoreError> {
        let path = self.place.path().to_owned();
        let now = inode(&path);
        if self.file.is_some() && now != self.file {
            return Some(self.place.lost_error(match now {
                None => "was deleted or moved away",
                Some(_) => "was replaced by another file",
            }));
        }
        for (known, suffix) in self.log.iter_mut().zip(["-wal", "-shm"]) {
            let now = inode(&with_suffix(&path, suffix));
            if known.is_some() && now != *known {
                return Some(self.place.lost_error(match suffix {
                    "-wal" => "has lost its log (the file beside it that ends with -wal)",
                    _ => "has lost the index of its log (the file beside it that ends with -shm)",
                }));
            }
            *known = known.or(now);
        }
        let written = written(&path);
        if written != self.written {
            self.written = written;
            return self.overwritten(last);
        }
        None
    }

    /// Whether another database was written over this one, which keeps the file the same. Only a new
    /// connection sees that: the others trust what they have read before.
    fn overwritten(&self, last: i64) -> Option<StoreError> {
        let look = || -> Result<(String, i64), StoreError> {
            let connection = schema::open_reader(&self.place, Duration::from_secs(1))?;
            let last =
                connection.query_row("SELECT coalesce(max(row), 0) FROM journal", [], |row| row.get(0));
            Ok((name(&connection).or_store_error(&self.place)?, last.or_store_error(&self.place)?))
        };
        match look() {
            Ok((name, row)) if name == self.name && row >= last => None,
            Err(StoreError::Database { fault, .. }) if fault != DatabaseFault::Permanent => None,
            _ => Some(self.place.lost_error("was overwritten with something else")),
        }
    }
}

fn name(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT id FROM store", [], |row| row.get(0))
}

fn inode(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

fn written(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}
