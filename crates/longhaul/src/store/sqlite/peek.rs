//! A quick look at a database that creates, migrates and waits for nothing.

use std::path::Path;
use std::time::Duration;

use super::errors::{DatabasePath, OrStoreError as _};
use super::reader::ReadConnection;
use super::{SqliteStore, schema};
use crate::store::{StoreError, TaskFilter};
use crate::task::TaskState;

/// How long to wait for another program that locks the file.
const TIMEOUT: Duration = Duration::from_millis(50);

impl SqliteStore {
    /// The tasks that match, from a file that is only read. Returns none if there is no file, or if it has
    /// another version.
    ///
    /// This blocks briefly.
    pub fn peek(path: impl AsRef<Path>, filter: TaskFilter) -> Result<Vec<TaskState>, StoreError> {
        if !path.as_ref().is_file() {
            return Ok(Vec::new());
        }
        let place = DatabasePath::prepare(path.as_ref())?;
        let connection = schema::open_reader(&place, TIMEOUT)?;
        schema::check(&connection, &place)?;
        if schema::version(&connection).or_store_error(&place)? != schema::VERSION {
            return Ok(Vec::new());
        }
        ReadConnection { connection, place }.list(&filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_begins_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/tasks.db");
        assert_eq!(SqliteStore::peek(&path, TaskFilter::default()).unwrap(), []);
        assert!(!path.parent().unwrap().exists());
        let empty = dir.path().join("empty.db");
        std::fs::write(&empty, "").unwrap();
        assert_eq!(SqliteStore::peek(&empty, TaskFilter::default()).unwrap(), []);
        assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
    }
}
