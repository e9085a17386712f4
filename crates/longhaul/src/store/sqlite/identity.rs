//! Whether the file at the path is still the one that was opened.
//!
//! SQLite goes on writing to a file that was deleted, moved away or replaced, and so do we: what runs is not harmed by it, but
//! nobody else will ever find what is written. So it has to be said.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::errors::{OrTrouble as _, Place};
use super::{beside, schema};
use crate::store::StoreError;

/// What tells a file from another of the same name.
type Inode = (u64, u64);

/// What a database was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    place: Place,
    /// The random name in it.
    name: String,
    file: Option<Inode>,
    written: Option<SystemTime>,
    /// The log and its index, which are there for as long as anybody has the file open.
    log: [Option<Inode>; 2],
}

impl Identity {
    pub(super) fn of(connection: &Connection, place: &Place) -> Result<Identity, StoreError> {
        let name = name(connection).or_trouble(place)?;
        let path = place.path();
        Ok(Identity {
            place: place.clone(),
            name,
            file: inode(path),
            written: written(path),
            log: [inode(&beside(path, "-wal")), inode(&beside(path, "-shm"))],
        })
    }

    /// Why it is not the same any more; the journal has at least the row `last`.
    pub(super) fn differs(&mut self, last: i64) -> Option<StoreError> {
        let path = self.place.path().to_owned();
        let now = inode(&path);
        if self.file.is_some() && now != self.file {
            return Some(self.place.lost(match now {
                None => "was deleted or moved away",
                Some(_) => "was replaced by another file",
            }));
        }
        for (known, suffix) in self.log.iter_mut().zip(["-wal", "-shm"]) {
            let now = inode(&beside(&path, suffix));
            if known.is_some() && now != *known {
                return Some(self.place.lost(match suffix {
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

    /// Whether somebody wrote another database over this one, which leaves the file the same. Only a connection of its own
    /// sees that: the others believe what they have read before.
    fn overwritten(&self, last: i64) -> Option<StoreError> {
        let look = || -> Result<(String, i64), StoreError> {
            let connection = schema::open_reader(&self.place, Duration::from_secs(1))?;
            let last =
                connection.query_row("SELECT coalesce(max(row), 0) FROM journal", [], |row| row.get(0));
            Ok((name(&connection).or_trouble(&self.place)?, last.or_trouble(&self.place)?))
        };
        match look() {
            Ok((name, row)) if name == self.name && row >= last => None,
            Err(StoreError::Database { passing: true, .. }) => None,
            _ => Some(self.place.lost("was overwritten with something else")),
        }
    }
}

fn name(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT id FROM store", [], |row| row.get(0))
}

#[cfg(unix)]
fn inode(path: &Path) -> Option<Inode> {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<Inode> {
    None
}

fn written(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}
