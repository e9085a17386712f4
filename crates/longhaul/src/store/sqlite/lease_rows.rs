//! The rows of leases.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::id::WorkerId;
use crate::store::leases::{ASSUMED_LENGTH, LeaseRenewal};

/// The lease of a worker, if it has one.
pub(super) fn lease(connection: &Connection, worker: &WorkerId) -> rusqlite::Result<Option<LeaseRenewal>> {
    let sql = "SELECT renewals, lease_until, length FROM workers WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([worker.as_str()], |row| renewal(row, 0)).optional()
}

/// Reads a lease from three columns.
pub(super) fn renewal(row: &Row<'_>, first: usize) -> rusqlite::Result<LeaseRenewal> {
    let length = u64::try_from(row.get::<_, i64>(first + 2)?).unwrap_or_default();
    let length = if length == 0 { ASSUMED_LENGTH } else { Duration::from_millis(length) };
    Ok(LeaseRenewal { count: row.get(first)?, until: row.get(first + 1)?, length })
}
