//! Checks the health of a database file without changing it.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;

use super::errors::{DatabasePath, OrStoreError as _};
use super::{SqliteStore, check, schema};
use crate::id::WorkerId;
use crate::store::StoreError;
use crate::store::worker_locks::WorkerLocks;

/// The health of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseHealth {
    /// The version of its schema.
    pub version: usize,
    /// The schema version that this Longhaul writes. An older file is migrated when it is opened.
    pub current_version: usize,
    /// How large it is, in bytes.
    pub size: u64,
    /// How many bytes of that are free for reuse.
    pub free: u64,
    /// How many tasks it has; one more than [`COUNTED`](DatabaseHealth::COUNTED) if there are more than that.
    pub tasks: u64,
    /// What is damaged: pages, indexes, journals, data derived from them, blobs. Only the first problems, if
    /// there are many.
    pub problems: Vec<String>,
    /// Whether everything was checked, or only the unfinished tasks and the [newest](DatabaseHealth::NEWEST).
    pub checked_all: bool,
    /// How many live processes run its tasks.
    pub workers: usize,
}

impl DatabaseHealth {
    /// How many tasks are counted, at most.
    pub const COUNTED: u64 = 10_000;
    /// How many tasks are checked, besides the unfinished ones, in a partial check.
    pub const NEWEST: usize = 200;
    /// Up to this size, in bytes, everything is checked anyway: it is quick.
    pub const SMALL: u64 = 4 << 20;
}

impl SqliteStore {
    /// Checks everything in the file of a store, and changes nothing. Returns `None` if there is no file.
    /// Fails if the file cannot be read or is not a Longhaul database.
    pub fn examine(path: impl AsRef<Path>) -> Result<Option<DatabaseHealth>, StoreError> {
        examine(path.as_ref(), true)
    }

    /// Like [`examine`](Self::examine), but for a file that is not [small](DatabaseHealth::SMALL) it checks
    /// only what matters most, so that it is quick for any size.
    pub fn examine_newest(path: impl AsRef<Path>) -> Result<Option<DatabaseHealth>, StoreError> {
        examine(path.as_ref(), false)
    }
}

fn examine(path: &Path, all: bool) -> Result<Option<DatabaseHealth>, StoreError> {
    if !path.exists() {
        return Ok(None);
    }
    let place = DatabasePath::prepare(path)?;
    let connection = schema::open_reader(&place, Duration::from_secs(5))?;
    schema::check(&connection, &place)?;
    let number = |sql: &str| -> Result<u64, StoreError> {
        let number: i64 = connection.query_row(sql, [], |row| row.get(0)).or_store_error(&place)?;
        Ok(u64::try_from(number).unwrap_or_default())
    };
    let version = schema::version(&connection).or_store_error(&place)?;
    let page = number("PRAGMA page_size")?;
    let size = page * number("PRAGMA page_count")?;
    let current = version == schema::VERSION;
    // An older file lacks the indexes for a partial check.
    let all = all || size <= DatabaseHealth::SMALL || !current;
    let wrong = match all {
        true => check::find_damage(&connection, &place, current),
        false => check::find_damage_in_newest(&connection, &place, DatabaseHealth::NEWEST),
    };
    let tasks = format!("SELECT count(*) FROM (SELECT 1 FROM tasks LIMIT {})", DatabaseHealth::COUNTED + 1);
    Ok(Some(DatabaseHealth {
        version,
        current_version: schema::VERSION,
        size,
        free: page * number("PRAGMA freelist_count")?,
        tasks: if version == 0 { 0 } else { number(&tasks)? },
        problems: wrong.or_store_error(&place)?,
        checked_all: all,
        workers: if version == 0 {
            0
        } else {
            alive(&connection, &super::worker_locks_of(place.path())).or_store_error(&place)?
        },
    }))
}

pub(super) fn alive(connection: &Connection, roll: &WorkerLocks) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare("SELECT id FROM workers WHERE lease_until > ?1")?;
    let workers = statement.query_map([Timestamp::now().as_millisecond()], |row| row.get::<_, String>(0))?;
    let workers = workers.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(workers.into_iter().filter(|worker| !roll.is_dead(&WorkerId::from(worker.as_str()))).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store as _;

    #[tokio::test]
    async fn a_file_is_looked_at_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.db");
        assert_eq!(SqliteStore::examine(&path).unwrap(), None);
        assert!(!path.exists(), "nothing was begun");
        let store = SqliteStore::open(&path).unwrap();
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        let health = SqliteStore::examine(&path).unwrap().unwrap();
        assert_eq!(
            (health.version, health.current_version, health.tasks),
            (schema::VERSION, schema::VERSION, 0)
        );
        assert_eq!((health.workers, health.problems), (1, Vec::new()));
        store.retire_worker(WorkerId::from("w")).await.unwrap();
        assert_eq!(SqliteStore::examine(&path).unwrap().unwrap().workers, 0);
        drop(store);
        std::fs::write(
            &path,
            "no database at all, but long enough to be read as the header of one ".repeat(9),
        )
        .unwrap();
        let error = SqliteStore::examine(&path).unwrap_err().to_string();
        assert!(error.contains("is not a database of Longhaul"), "{error}");
    }
}
