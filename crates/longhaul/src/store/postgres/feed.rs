//! The feed of all journals: an order of all entries in which nothing comes later before something earlier.
//!
//! Several transactions write at once and become visible in another order than they began, so a number from a sequence
//! is not enough: a reader that remembers the highest one misses those that commit late. Each entry has a number `k`:
//! the larger of its transaction's own number, and the highest number of any transaction that had ended when all rows
//! were locked. Numbers of transactions are given in order. So:
//!
//! - **Nothing comes late.** `xmin` of a snapshot is the lowest number that had not ended. Everything that becomes
//!   visible after the snapshot was written by a transaction with that number or a higher one, so its `k` is at least
//!   `xmin`. A reader takes only what has a lower `k`.
//! - **A journal is in order.** A transaction that writes after another one to the same task has waited for its end, and
//!   asks for `k` after that, so its `k` is not lower, whenever it got its own number (which is when it *began* to wait).
//!   Where `k` is the same, `pos` decides: a sequence, asked when the row is inserted.
//! - **Nothing stays behind.** When a transaction has ended, `xmin` is above its `k` unless an older one is under way.
//!   Readers wait a moment for such a one. A transaction that stays open for long, anywhere on the server, holds the feed
//!   up until it ends.
//!
//! (`xmax` of a snapshot is not the next number but the one after the last that *ended*: it may be below the number of a
//! transaction that is under way, so it cannot be `k` alone.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::{Error, Row};

use super::connect::ServerConnection;
use super::reader::ReadConnections;
use super::rows;
use crate::store::{FeedItem, FeedPage, FeedPosition, FeedScope, StoreError};

/// The place of what a transaction writes, as SQL: `k`.
macro_rules! place {
    () => {
        "greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) \
         + (SELECT base FROM @.meta)"
    };
}
pub(super) use place;

/// How long a reader waits for transactions that began before what it could read already.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The store's number, what can be read (`k` below this), the last entry and the last deletion below it, the highest `k` of
/// all, and the place of the last deletion whether it can be read or not. The two small tables are limited to their one row because
/// the server has no statistics of them: it would think that there are thousands, and compile the plan, which takes longer than
/// running it.
const HORIZON: &str = "SELECT m.store, h.horizon, \
     coalesce(e.k, 0), coalesce(e.pos, 0), d.k, d.pos, \
     greatest(d.k, coalesce((SELECT j.k FROM @.journal j ORDER BY j.k DESC, j.pos DESC LIMIT 1), 0)) \
     FROM (SELECT store, base FROM @.meta LIMIT 1) AS m CROSS JOIN (SELECT k, pos FROM @.deletion LIMIT 1) AS d \
     CROSS JOIN LATERAL (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + m.base AS horizon) AS h \
     LEFT JOIN LATERAL (SELECT j.k, j.pos FROM @.journal j WHERE j.k < h.horizon ORDER BY j.k DESC, j.pos DESC LIMIT 1) \
     AS e ON true";

macro_rules! feed_sql {
    ($rest:literal) => {
        concat!(
            "SELECT j.seq, j.at, j.format, j.entry, j.k, j.pos, t.id, t.root FROM @.journal j \
             JOIN @.tasks t ON t.id = j.task WHERE ",
            $rest
        )
    };
}

const ALL: &str = feed_sql!("(j.k, j.pos) > ($1, $2) AND j.k < $3 ORDER BY j.k, j.pos LIMIT $4");
/// The entries of a task are in the order of their numbers.
const OF_TASK: &str =
    feed_sql!("j.task = $5 AND (j.k, j.pos) > ($1, $2) AND j.k < $3 ORDER BY j.seq LIMIT $4");
/// First the places alone, which are in the index of each journal.
const OF_TREE: &str = feed_sql!(
    "(j.task, j.seq) IN (SELECT p.task, p.seq FROM @.tasks r JOIN @.journal p ON p.task = r.id \
     WHERE r.root = $5 AND (p.k, p.pos) > ($1, $2) AND p.k < $3 ORDER BY p.k, p.pos LIMIT $4) ORDER BY j.k, j.pos"
);
/// What others have written, task by task, for hints. The limit is inside, and in the order of the feed: the server would
/// otherwise go through the whole journal in the order of the tasks, in the hope to find the first of them soon. The tree of a
/// task is asked for one by one for the same reason.
pub(super) const CHANGED: &str = "SELECT c.task, (SELECT t.root FROM @.tasks t WHERE t.id = c.task), c.kinds, c.entries FROM (\
     SELECT l.task, bit_or(1 << l.kind)::bigint AS kinds, count(*) AS entries FROM (\
     SELECT j.task, j.kind FROM @.journal j WHERE (j.k, j.pos) > ($1, $2) AND j.k < $3 ORDER BY j.k, j.pos LIMIT $4) AS l \
     GROUP BY l.task) AS c";
/// Beyond so many entries, nobody is told what has changed, but that much has.
pub(super) const MOST_CHANGES: i64 = 10_000;

/// What can be read of the feed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    store: u32,
    /// Everything with a lower `k` is there.
    below: i64,
    entry: (i64, i64),
    deletion: (i64, i64),
    /// The highest `k` of what is committed.
    highest: i64,
}

impl Horizon {
    async fn look(connection: &ServerConnection) -> Result<Horizon, Error> {
        let row = connection.row(HORIZON, &[]).await?;
        let Some(row) = row else {
            return Ok(Horizon { store: 0, below: 0, entry: (0, 0), deletion: (0, 0), highest: 0 });
        };
        let number = |column: usize| row.try_get::<_, i64>(column);
        Ok(Horizon {
            store: u32::try_from(number(0)?).unwrap_or_default(),
            below: number(1)?,
            entry: (number(2)?, number(3)?),
            deletion: (number(4)?, number(5)?),
            highest: number(6)?,
        })
    }

    fn position(&self, (k, pos): (i64, i64)) -> FeedPosition {
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        FeedPosition::new(self.store, number(k), number(pos))
    }

    /// The last deletion, if it can be read.
    fn readable_deletion(&self) -> Option<(i64, i64)> {
        Some(self.deletion).filter(|(k, pos)| *k < self.below && *pos > 0)
    }

    pub(super) fn end(&self) -> FeedPosition {
        self.position(self.readable_deletion().map_or(self.entry, |deletion| deletion.max(self.entry)))
    }

    /// Whether a position may be one of this store. What was read may be deleted since.
    fn knows(&self, position: FeedPosition) -> bool {
        position.store() == self.store && position <= self.end().max(self.position(self.deletion))
    }
}

impl ReadConnections {
    /// What can be read at once.
    pub(super) async fn horizon_now(&self) -> Result<Horizon, StoreError> {
        self.run(|connection: Arc<ServerConnection>| async move { Horizon::look(&connection).await }).await
    }

    /// What can be read. Waits a moment if there is something that cannot: what was acknowledged can be read.
    pub(super) async fn horizon(&self) -> Result<Horizon, StoreError> {
        let look = |connection: Arc<ServerConnection>| async move { Horizon::look(&connection).await };
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut horizon = self.run(look).await?;
        let wanted = horizon.highest;
        let mut pause = Duration::from_millis(1);
        while horizon.below <= wanted && Instant::now() < deadline {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
            horizon = self.run(look).await?;
        }
        Ok(horizon)
    }

    pub(super) async fn read_feed(
        &self,
        scope: FeedScope,
        after: FeedPosition,
        limit: usize,
    ) -> Result<FeedPage, StoreError> {
        let horizon = self.horizon().await?;
        if !horizon.knows(after) {
            return Err(StoreError::UnknownPosition(after));
        }
        let (k, pos) = (rows::number(after.major()), rows::number(after.minor()));
        let (below, most) = (horizon.below, rows::number(limit as u64));
        let read = |connection: Arc<ServerConnection>| async move {
            match scope {
                FeedScope::All => connection.query(ALL, &[&k, &pos, &below, &most]).await,
                FeedScope::Task(task) => {
                    connection.query(OF_TASK, &[&k, &pos, &below, &most, &task.to_string()]).await
                }
                FeedScope::Tree(root) => {
                    connection.query(OF_TREE, &[&k, &pos, &below, &most, &root.to_string()]).await
                }
            }
        };
        let found = self.run(read).await?;
        let failed = |error: Error| {
            self.server_name().error(format_args!("has an entry in the feed that cannot be read ({error})"))
        };
        let (mut items, mut last) = (Vec::with_capacity(found.len()), after);
        for row in &found {
            let (position, item) = feed_item(&horizon, row).map_err(failed)?;
            last = position;
            items.extend(item);
        }
        let more = found.len() >= limit;
        let deletion = horizon.readable_deletion().filter(|_| scope == FeedScope::All);
        if let Some(place) = deletion.map(|place| horizon.position(place)).filter(|place| *place > after)
            && (!more || place < last)
        {
            let at = items.partition_point(|item| item.position() < place);
            items.insert(at, FeedItem::Deleted { position: place });
            if items.len() > limit {
                items.truncate(limit);
                let position = items.last().map_or(after, FeedItem::position);
                return Ok(FeedPage { items, position, more: true });
            }
        }
        let position = if more { last } else { horizon.end().max(after) };
        Ok(FeedPage { items, position, more })
    }

    /// The tasks that changed between two horizons, with their trees and the kinds of their entries; nothing if there are too
    /// many entries to look at.
    pub(super) async fn changed(
        &self,
        after: Horizon,
        until: Horizon,
    ) -> Result<Option<Vec<(String, String, i64)>>, StoreError> {
        let ((k, pos), below) = (after.entry, until.below);
        let read = |connection: Arc<ServerConnection>| async move {
            let found = connection.query(CHANGED, &[&k, &pos, &below, &MOST_CHANGES]).await?;
            let (mut changes, mut entries) = (Vec::with_capacity(found.len()), 0_i64);
            for row in &found {
                entries += row.try_get::<_, i64>(3)?;
                // A task that is deleted meanwhile has no tree.
                if let Some(root) = row.try_get(1)? {
                    changes.push((row.try_get(0)?, root, row.try_get(2)?));
                }
            }
            Ok(Some(changes).filter(|_| entries < MOST_CHANGES))
        };
        self.run(read).await
    }
}

impl Horizon {
    /// The place of the last deletion, if tasks were deleted since.
    pub(super) fn deletion_since(&self, before: Horizon) -> Option<(i64, i64)> {
        Some(self.deletion).filter(|deletion| *deletion != before.deletion)
    }
}

fn feed_item(horizon: &Horizon, row: &Row) -> Result<(FeedPosition, Option<FeedItem>), Error> {
    let position = horizon.position((row.try_get(4)?, row.try_get(5)?));
    let (Some(task), Some(root)) = (rows::task_id(row, 6)?, rows::task_id(row, 7)?) else {
        return Ok((position, None));
    };
    Ok(match rows::record(task, row, 0)? {
        Ok(record) => (position, Some(FeedItem::Entry { position, task, root, record })),
        // One damaged entry must not hide the others; `check` reports it.
        Err(error) => {
            tracing::warn!(%error, "an entry that cannot be read is left out of the feed");
            (position, None)
        }
    })
}
