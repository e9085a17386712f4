//! Errors about a database file, worded so that its owner knows what to do.

use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::store::{DatabaseFault, StoreError};

/// The file of a store: every error names it.
#[derive(Debug, Clone)]
pub(super) struct DatabasePath(Arc<Path>);

impl DatabasePath {
    /// The path of a file; creates its directory.
    pub(super) fn prepare(path: &Path) -> Result<DatabasePath, StoreError> {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let place = DatabasePath(whole.into());
        if let Some(parent) = place.0.parent() {
            if parent.is_file() {
                let what = format!(
                    "{} is a file; the database is kept in a directory. Give the path of one, whether it is there or not.",
                    parent.display()
                );
                return Err(StoreError::Database { what, fault: DatabaseFault::Permanent });
            }
            crate::store::private_files::create_private_dir(parent).map_err(|e| {
                let what = format!(
                    "The directory {} for the database {} cannot be created: {e}. Create it yourself, or give another path.",
                    parent.display(),
                    place.name()
                );
                StoreError::Database { what, fault: DatabaseFault::Permanent }
            })?;
        }
        if place.0.is_dir() {
            return Err(place.error(format_args!("is a directory, not a database: give the path of a file")));
        }
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn name(&self) -> impl std::fmt::Display + '_ {
        self.0.display()
    }

    /// An error that a retry does not fix.
    pub(super) fn error(&self, what: std::fmt::Arguments<'_>) -> StoreError {
        StoreError::Database { what: format!("{} {what}.", self.name()), fault: DatabaseFault::Permanent }
    }

    /// Another process holds the worker's lock file, so others would not see that this process is alive.
    pub(super) fn lock_file_error(&self, why: &std::io::Error) -> StoreError {
        let what = format!("{}: the lock file of this process cannot be locked: {why}.", self.name());
        StoreError::Database { what, fault: DatabaseFault::Busy }
    }

    /// The file cannot be created.
    pub(super) fn create_error(&self, error: &std::io::Error) -> StoreError {
        if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem
            || error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return self.error(format_args!(
                "cannot be opened ({error}): check that you may write to its directory, or give another path"
            ));
        }
        self.error(format_args!(
            "cannot be opened ({error}): check that the path is right and that you may read and write the file and its \
             directory"
        ))
    }

    /// The file is no longer the one that was opened.
    pub(super) fn lost_error(&self, how: &str) -> StoreError {
        self.error(format_args!(
            "{how} while it was in use. Running tasks continue, but what they write from now on is lost: let them end, or \
             stop them and start again"
        ))
    }

    /// Data in the file is not what was written.
    pub(super) fn damaged_error(&self, what: std::fmt::Arguments<'_>) -> StoreError {
        StoreError::Damaged {
            what: format!(
                "{what} is damaged: its content does not match its digest. The database is {name}; restore a backup",
                name = self.name()
            ),
        }
    }

    pub(super) fn read_only_error(&self) -> StoreError {
        self.error(format_args!(
            "cannot be written: the file or its directory is read-only, or belongs to another user. Longhaul \
             writes to its database even when it only reads tasks, and creates files beside it; give yourself write \
             permission (chmod, chown, remount), or use another path"
        ))
    }

    /// Converts an error of SQLite to one for the owner of the file.
    pub(super) fn sqlite_error(&self, error: &rusqlite::Error) -> StoreError {
        let name = self.name();
        let passing = |what| StoreError::Database { what, fault: DatabaseFault::Busy };
        if let rusqlite::Error::SqliteFailure(failure, _) = error
            && failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        {
            return self.full();
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => self.error(format_args!(
                "is not a database of Longhaul: the file has other content, or its beginning is damaged. \
                 Nothing was changed in it; give another path, or move the file away to start with a new one"
            )),
            Some(ErrorCode::DatabaseCorrupt) => self.error(format_args!(
                "is damaged or was cut short ({error}). Nothing more is written to it; put a backup in its place, \
                 or get out what can still be read with `sqlite3 {name} .recover`"
            )),
            Some(ErrorCode::DiskFull) => self.full(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => passing(format!(
                "{name} is locked by another program, and stayed so while Longhaul waited. See who holds it with \
                 `fuser {name}` (a backup, or an sqlite3 shell with an open transaction?), end that, and try again."
            )),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => self.read_only_error(),
            Some(ErrorCode::CannotOpen) => self.error(format_args!(
                "cannot be opened ({error}): check that the path is right and that you may read and write the file \
                 and its directory"
            )),
            Some(ErrorCode::SystemIoFailure) => self.error(format_args!(
                "could not be read or written ({error}): the disk or the file system reports an error. What was \
                 acknowledged before is stored; check the disk (dmesg), and try again"
            )),
            _ => self.error(format_args!("could not be used ({error})")),
        }
    }

    fn full(&self) -> StoreError {
        let what = format!(
            "The disk that holds {} is full. This was not stored; all that was acknowledged before is. Free some \
             space and try again: the store works on as soon as there is room.",
            self.name()
        );
        StoreError::Database { what, fault: DatabaseFault::DiskFull }
    }

    /// Other processes run tasks and would have to wait too long.
    pub(super) fn too_busy(&self) -> StoreError {
        let what = format!(
            "{} is too large to be vacuumed while other processes run tasks: they could not write meanwhile. Nothing was \
             changed in it; vacuum it when they have ended.",
            self.name()
        );
        StoreError::Database { what, fault: DatabaseFault::Busy }
    }

    /// There is not enough space for a vacuum.
    pub(super) fn no_room_to_vacuum(&self, size: u64) -> StoreError {
        let what = format!(
            "{} cannot be vacuumed: the disk is full, and what stays in the file is written anew first. Nothing was changed \
             in it. Free up to {} MB, or name a directory on another disk with SQLITE_TMPDIR.",
            self.name(),
            size / 1_000_000 + 1
        );
        StoreError::Database { what, fault: DatabaseFault::Busy }
    }

    /// The writer thread is gone, which is always a bug in Longhaul.
    pub(super) fn writer_lost_error(&self) -> StoreError {
        self.error(format_args!(
            "is no longer written to: the thread that writes to it failed, which is a fault in Longhaul. All that \
             was acknowledged is stored; start the program again, and please report what it logged"
        ))
    }
}

/// Converts SQLite's errors.
pub(super) trait OrStoreError<T> {
    fn or_store_error(self, place: &DatabasePath) -> Result<T, StoreError>;
}

impl<T> OrStoreError<T> for rusqlite::Result<T> {
    fn or_store_error(self, place: &DatabasePath) -> Result<T, StoreError> {
        self.map_err(|error| place.sqlite_error(&error))
    }
}
