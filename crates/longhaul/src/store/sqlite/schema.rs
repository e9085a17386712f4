//! The tables, and the migration of files of earlier versions.

use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::errors::{DatabasePath, OrStoreError as _};
use crate::store::StoreError;

/// Marks the file, in its header, as Longhaul's: "LHUL".
const APPLICATION: i32 = 0x4C48_554C;

/// The migration from version `n` to version `n + 1`. A released step is never changed.
const STEPS: [&str; 7] = [
    "
    CREATE TABLE tasks (
        n       INTEGER PRIMARY KEY,    -- the order of submission
        id      TEXT    NOT NULL UNIQUE,
        status  INTEGER NOT NULL,
        team    TEXT    NOT NULL,
        agent   TEXT    NOT NULL,
        parent  TEXT,
        root    TEXT    NOT NULL,
        attempt INTEGER NOT NULL,
        worker  TEXT,
        created INTEGER NOT NULL,       -- milliseconds since 1970
        head    BLOB    NOT NULL        -- the fold of the journal, as JSON
    );
    CREATE INDEX tasks_by_status ON tasks(status, team);
    CREATE INDEX tasks_by_root   ON tasks(root, status);
    CREATE INDEX tasks_by_parent ON tasks(parent);
    CREATE INDEX tasks_by_worker ON tasks(worker) WHERE worker IS NOT NULL;

    CREATE TABLE journal (
        row    INTEGER PRIMARY KEY,     -- the order of all entries of all tasks
        task   INTEGER NOT NULL,        -- tasks.n
        seq    INTEGER NOT NULL,
        at     INTEGER NOT NULL,        -- milliseconds since 1970
        kind   INTEGER NOT NULL,
        format INTEGER NOT NULL,
        letter TEXT,                    -- the id of the letter, if it is one
        entry  BLOB    NOT NULL
    );
    CREATE UNIQUE INDEX journal_by_task ON journal(task, seq);
    CREATE UNIQUE INDEX letters ON journal(task, letter) WHERE letter IS NOT NULL;

    CREATE TABLE workers (
        id          TEXT PRIMARY KEY,
        lease_until INTEGER NOT NULL    -- milliseconds since 1970
    ) WITHOUT ROWID;

    CREATE TABLE kept (
        digest TEXT PRIMARY KEY,
        bytes  BLOB NOT NULL
    );
",
    "
    CREATE TABLE slips (
        name    TEXT PRIMARY KEY,
        written INTEGER NOT NULL,       -- how often
        bytes   BLOB    NOT NULL
    );
",
    "
    ALTER TABLE kept ADD COLUMN at INTEGER NOT NULL DEFAULT 0;  -- when it was last kept, milliseconds since 1970

    CREATE TABLE keeps (                -- which journals refer to what is kept
        digest TEXT    NOT NULL,
        task   INTEGER NOT NULL,        -- tasks.n
        PRIMARY KEY (task, digest)
    ) WITHOUT ROWID;
    CREATE INDEX keeps_by_digest ON keeps(digest);
    -- One that is damaged must not keep the file from being opened.
    INSERT OR IGNORE INTO keeps (digest, task)
        SELECT digest, task FROM (
            SELECT task, CASE WHEN json_valid(CAST(entry AS TEXT))
                THEN json_extract(CAST(entry AS TEXT), '$.returned.whole') END AS digest
            FROM journal WHERE kind = 8
        ) WHERE digest IS NOT NULL;
",
    "
    ALTER TABLE workers ADD COLUMN renewals INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE workers ADD COLUMN length   INTEGER NOT NULL DEFAULT 0;  -- of the lease, milliseconds; 0: not known
",
    "
    ALTER TABLE journal ADD COLUMN sum INTEGER;     -- see checksum.rs; NULL in rows from before there were any
    ALTER TABLE tasks   ADD COLUMN sum INTEGER;
    ALTER TABLE slips   ADD COLUMN sum INTEGER;

    CREATE TABLE store (
        id    TEXT    NOT NULL,         -- of this database and its copies, at random
        since INTEGER NOT NULL          -- the last row of the journal that may be without a checksum
    );
    INSERT INTO store (id, since)
        SELECT lower(hex(randomblob(16))), coalesce((SELECT max(row) FROM journal), 0);
",
    "
    -- What lists and deletions ask for, so that they cost what they list and delete. The checksum of a row does not cover these
    -- three: they are compared with the head.
    ALTER TABLE tasks ADD COLUMN continues TEXT;    -- the task whose conversation it goes on with
    ALTER TABLE tasks ADD COLUMN retries   TEXT;    -- the task whose order it has again
    ALTER TABLE tasks ADD COLUMN quiet     INTEGER; -- when anything last happened to it, milliseconds since 1970; NULL if it is open
    UPDATE tasks SET
        continues = CASE WHEN json_valid(CAST(head AS TEXT)) THEN json_extract(CAST(head AS TEXT), '$.continues') ELSE
            (SELECT json_extract(CAST(entry AS TEXT), '$.submitted.continues') FROM journal
             WHERE task = n AND seq = 1 AND json_valid(CAST(entry AS TEXT))) END,
        retries = CASE WHEN json_valid(CAST(head AS TEXT)) THEN json_extract(CAST(head AS TEXT), '$.retries') ELSE
            (SELECT json_extract(CAST(entry AS TEXT), '$.submitted.retries') FROM journal
             WHERE task = n AND seq = 1 AND json_valid(CAST(entry AS TEXT))) END,
        quiet = CASE WHEN status > 1 THEN (SELECT at FROM journal WHERE task = n ORDER BY seq DESC LIMIT 1) END;
    CREATE INDEX tasks_by_continues ON tasks(continues) WHERE continues IS NOT NULL;
    CREATE INDEX tasks_by_retries   ON tasks(retries)   WHERE retries IS NOT NULL;
    CREATE INDEX tasks_by_quiet     ON tasks(quiet);
    CREATE INDEX tasks_by_created   ON tasks(created);
    CREATE INDEX tasks_by_agent     ON tasks(agent);
    CREATE INDEX slips_by_task      ON slips(substr(name, instr(name, ':') + 1));

    CREATE TABLE loose (                -- what is kept, and perhaps not referred to: looked at when something is deleted
        digest TEXT PRIMARY KEY,
        at     INTEGER NOT NULL         -- kept.at
    ) WITHOUT ROWID;
    CREATE INDEX loose_by_at ON loose(at);
    INSERT INTO loose (digest, at) SELECT digest, at FROM kept WHERE digest IS NOT NULL;

    CREATE TABLE garbage (              -- tasks that are deleted, and whose journals are not yet
        task INTEGER PRIMARY KEY        -- tasks.n
    );
",
    "
    -- Finding the open children of a task must not cost more because it has had many.
    CREATE INDEX tasks_by_parent_status ON tasks(parent, status);
    DROP INDEX tasks_by_parent;
",
];

/// The tables of a new file: what all steps together make.
const TABLES: &str = include_str!("tables.sql");

/// The schema version that this Longhaul writes.
pub(super) const VERSION: usize = STEPS.len();

/// Opens the connection that writes, and migrates the tables.
pub(super) fn open(place: &DatabasePath, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(place.path(), flags).or_store_error(place)?;
    if connection.is_readonly("main").or_store_error(place)? {
        return Err(place.read_only_error());
    }
    connection.busy_timeout(busy_timeout).or_store_error(place)?;
    keep_plans(&connection).or_store_error(place)?;
    check(&connection, place)?;
    write_ahead(&connection, busy_timeout).or_store_error(place)?;
    // Frequent checkpoints would slow the writer down. 4000 pages are 16 MB of log.
    let settings = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; \
                    PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY;";
    connection.execute_batch(settings).or_store_error(place)?;
    migrate(&mut connection, place)?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(place: &DatabasePath, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(place.path(), flags).or_store_error(place)?;
    connection.busy_timeout(busy_timeout).or_store_error(place)?;
    keep_plans(&connection).or_store_error(place)?;
    // Small: the cache is dropped whenever anything is written, and the kernel caches the pages anyway.
    connection
        .execute_batch("PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;")
        .or_store_error(place)?;
    Ok(connection)
}

/// Prepares statements once. Otherwise SQLite would prepare one again when other values are bound to it.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Rejects a file that is not a Longhaul database, before anything in it is changed.
pub(super) fn check(connection: &Connection, place: &DatabasePath) -> Result<(), StoreError> {
    // In one transaction: another process may be creating the tables right now.
    let transaction = connection.unchecked_transaction().or_store_error(place)?;
    let version = version(&transaction).or_store_error(place)?;
    let application: i32 =
        transaction.query_row("PRAGMA application_id", [], |row| row.get(0)).or_store_error(place)?;
    let tables: i64 = transaction
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .or_store_error(place)?;
    drop(transaction);
    if application != APPLICATION && (tables > 0 || version > 0 || application != 0) {
        return Err(place.error(format_args!(
            "is an SQLite database of another program. Nothing was changed in it; give another path"
        )));
    }
    if version > VERSION {
        return Err(place.error(format_args!(
            "was written by a newer Longhaul (version {version} of the tables; this one knows up to {VERSION}). \
             Nothing was changed in it; upgrade Longhaul, or give another path"
        )));
    }
    Ok(())
}

/// Switches to the write-ahead log. SQLite does not wait by itself when two programs do this at once.
fn write_ahead(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + busy_timeout;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn migrate(connection: &mut Connection, place: &DatabasePath) -> Result<(), StoreError> {
    if version(connection).or_store_error(place)? == VERSION {
        return Ok(());
    }
    let behaviour = rusqlite::TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behaviour).or_store_error(place)?;
    // Read again: another process may have migrated it while this one waited.
    let from = version(&transaction).or_store_error(place)?;
    if from == 0 {
        transaction.execute_batch(TABLES).or_store_error(place)?;
    } else {
        for step in STEPS.iter().skip(from) {
            transaction.execute_batch(step).or_store_error(place)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION).or_store_error(place)?;
    transaction
        .pragma_update(None, "user_version", i64::try_from(VERSION.max(from)).unwrap_or(i64::MAX))
        .or_store_error(place)?;
    transaction.commit().or_store_error(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table with its columns and indexes, in the order in which SQLite considers them.
    fn described(tables: &[&str]) -> Vec<String> {
        let connection = Connection::open_in_memory().unwrap();
        for step in tables {
            connection.execute_batch(step).unwrap();
        }
        let rows = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            let columns = statement.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let value = |at| row.get::<_, rusqlite::types::Value>(at).unwrap();
                Ok((0..columns).map(|at| format!("{:?} ", value(at))).collect::<String>())
            };
            statement.query_map([], row).unwrap().map(Result::unwrap).collect()
        };
        let columns = "SELECT tables.name, tables.wr, tables.strict, columns.* FROM pragma_table_list tables, \
                       pragma_table_xinfo(tables.name) columns ORDER BY 1, columns.cid";
        let indexes = "SELECT tables.name, indexes.name, indexes.\"unique\", indexes.origin, indexes.partial, columns.*, \
                       (SELECT replace(replace(sql, ' ', ''), 'CREATE', '') FROM sqlite_schema WHERE name = indexes.name) \
                       FROM pragma_table_list tables, pragma_index_list(tables.name) indexes, \
                       pragma_index_xinfo(indexes.name) columns ORDER BY 1, indexes.seq, columns.seqno";
        [rows(columns), rows(indexes)].concat()
    }

    #[test]
    fn a_new_file_has_the_tables_that_the_migrations_make() {
        let (new, migrated) = (described(&[TABLES]), described(&STEPS));
        assert!(new.len() > 90, "{new:#?}");
        assert_eq!(new, migrated);
    }
}
