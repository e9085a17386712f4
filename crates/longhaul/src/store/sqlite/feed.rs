//! The feed of all journals: its order is the order of the journal's rows. SQLite has one writer at a time, so
//! rows become visible in that order.

use rusqlite::{OptionalExtension as _, Row, params};

use super::errors::OrStoreError as _;
use super::reader::ReadConnection;
use super::{rows, watch};
use crate::id::TaskId;
use crate::store::{FeedItem, FeedPage, FeedPosition, FeedScope, StoreError};

/// The columns of an item: those of an entry, then its row and its task.
macro_rules! feed_sql {
    ($rest:literal) => {
        concat!(
            "SELECT seq, at, format, entry, task, kind, letter, journal.sum, row > (SELECT since FROM store), row, \
             tasks.id, tasks.root FROM journal LEFT JOIN tasks ON tasks.n = journal.task WHERE ",
            $rest
        )
    };
}

const ALL: &str = feed_sql!("row > ?1 ORDER BY row LIMIT ?2");
/// The rows of a task are in the order of its entries.
const OF_TASK: &str = feed_sql!("task = ?1 AND +row > ?2 ORDER BY seq LIMIT ?3");
const ONE: &str = feed_sql!("row = ?1");
/// From the index alone, and without the rows of others.
const ROWS_OF_TREE: &str = "SELECT row FROM journal WHERE task IN (SELECT n FROM tasks WHERE root = ?1) AND +row > ?2 \
                            ORDER BY +row LIMIT ?3";

/// The statements that must not read the whole journal.
#[cfg(test)]
pub(super) const STATEMENTS: [&str; 4] = [ALL, OF_TASK, ONE, ROWS_OF_TREE];

impl ReadConnection {
    pub(super) fn feed_end(&self) -> Result<FeedPosition, StoreError> {
        let sql = "SELECT substr(id, 1, 8) FROM store";
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let id: String = statement.query_row([], |row| row.get(0)).or_store_error(&self.place)?;
        let last = watch::last_row(&self.connection).or_store_error(&self.place)?;
        let last = u64::try_from(last).unwrap_or_default();
        Ok(FeedPosition::new(u32::from_str_radix(&id, 16).unwrap_or_default(), 0, last))
    }

    pub(super) fn read_feed(
        &self,
        scope: FeedScope,
        after: FeedPosition,
        limit: usize,
    ) -> Result<FeedPage, StoreError> {
        // In one transaction: what is not found up to its last row never comes.
        let transaction = self.connection.unchecked_transaction().or_store_error(&self.place)?;
        let end = self.feed_end()?;
        if after.store() != end.store() || after > end {
            return Err(StoreError::UnknownPosition(after));
        }
        let row = rows::number(after.minor());
        let most = rows::number(u64::try_from(limit).unwrap_or(u64::MAX));
        let mut found = FoundRows { store: end.store(), items: Vec::new(), read: 0, last: after };
        match scope {
            FeedScope::All => self.collect(ALL, params![row, most], &mut found)?,
            FeedScope::Task(task) => {
                let sql = "SELECT n FROM tasks WHERE id = ?1";
                let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
                let n = statement.query_row([task.to_string()], |row| row.get::<_, i64>(0)).optional();
                if let Some(n) = n.or_store_error(&self.place)? {
                    self.collect(OF_TASK, params![n, row, most], &mut found)?;
                }
            }
            FeedScope::Tree(root) => {
                let mut statement =
                    self.connection.prepare_cached(ROWS_OF_TREE).or_store_error(&self.place)?;
                let of_tree = statement
                    .query_map(params![root.to_string(), row, most], |row| row.get::<_, i64>(0))
                    .and_then(Iterator::collect::<Result<Vec<i64>, _>>);
                for row in of_tree.or_store_error(&self.place)? {
                    self.collect(ONE, params![row], &mut found)?;
                }
            }
        }
        drop(transaction);
        let more = found.read >= limit;
        let position = if more { found.last } else { end };
        Ok(FeedPage { items: found.items, position, more })
    }

    fn collect(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        found: &mut FoundRows,
    ) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).or_store_error(&self.place)?;
        let mut rows = statement.query(params).or_store_error(&self.place)?;
        while let Some(row) = rows.next().or_store_error(&self.place)? {
            found.add(row).or_store_error(&self.place)?;
        }
        Ok(())
    }
}

struct FoundRows {
    store: u32,
    items: Vec<FeedItem>,
    /// How many rows were read, also those that are no item.
    read: usize,
    last: FeedPosition,
}

impl FoundRows {
    fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let number: i64 = row.get(9)?;
        let position = FeedPosition::new(self.store, 0, u64::try_from(number).unwrap_or_default());
        (self.read, self.last) = (self.read + 1, position);
        let id = |column: usize| -> rusqlite::Result<Option<TaskId>> {
            Ok(row.get_ref(column)?.as_str_or_null()?.and_then(|id| id.parse().ok()))
        };
        match (id(10)?, id(11)?) {
            (Some(task), Some(root)) => match rows::read_record(task, row) {
                Ok(record) => self.items.push(FeedItem::Entry { position, task, root, record }),
                // One damaged entry must not hide the others; `check` reports it.
                Err(error) => tracing::warn!(%error, "an entry that cannot be read is left out of the feed"),
            },
            // See `deletion`. Other rows without a task are left from deleted ones.
            _ if row.get::<_, i64>(4)? == 0 => self.items.push(FeedItem::Deleted { position }),
            _ => {}
        }
        Ok(())
    }
}
