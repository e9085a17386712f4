//! Deletes tasks with everything that is theirs, in one transaction; blobs that nobody needs any more follow.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Error;

use super::Shared;
use super::appends::NOW_AND_PLACE;
use super::connect::ServerConnection;
use super::errors::{Meaning, is_refusal};
use super::lane::LaneOperation;
use super::rows::{self, state_columns};
use super::sql_value::Values;
use super::write_set::{TransactionFailure, in_time};
use crate::id::{Seq, TaskId};
use crate::store::validate::{TaskLinks, check_deletable};
use crate::store::{Hint, StoreError, blob_cutoff};

const LOCK: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM @.tasks t WHERE t.id = ANY($1) ORDER BY t.id FOR UPDATE OF t"
);
/// Every task that may need one of these: those of the same trees, and those that continue one. The trees are an array and no
/// join: where most tasks were just deleted, the server thinks that there are few, and a join would read all that are gone for each.
const RELATED: &str = "SELECT id, root, continues FROM @.tasks WHERE root = ANY(ARRAY(\
                       SELECT DISTINCT root FROM @.tasks WHERE id = ANY($1))) \
                       UNION ALL SELECT id, root, continues FROM @.tasks WHERE continues = ANY($1)";
/// Deletions take turns for their place in the feed.
const LOCK_PLACE: &str = "SELECT 1 FROM @.deletion FOR UPDATE";
const MARK: &str = "UPDATE @.deletion SET k = $1, pos = nextval('@.feed_positions') RETURNING k, pos";
const LOOSEN: &str = "INSERT INTO @.loose_blobs (digest, at) SELECT DISTINCT b.digest, b.at FROM @.blob_uses u \
                      JOIN @.blobs b ON b.digest = u.digest WHERE u.task = ANY($1) ON CONFLICT DO NOTHING";
const DELETE_USES: &str = "DELETE FROM @.blob_uses WHERE task = ANY($1)";
const DELETE_VALUES: &str = "DELETE FROM @.stored_values WHERE task = ANY($1)";
const DELETE_JOURNAL: &str = "DELETE FROM @.journal WHERE task = ANY($1)";
const DELETE_TASKS: &str = "DELETE FROM @.tasks WHERE id = ANY($1)";
/// Old blobs that nothing refers to. One that was stored again meanwhile is young.
const SWEEP: &str = "WITH due AS (SELECT digest FROM @.loose_blobs WHERE at < $1 ORDER BY at LIMIT 1000 FOR UPDATE SKIP LOCKED), \
                     seen AS (DELETE FROM @.loose_blobs l USING due WHERE l.digest = due.digest AND l.at < $1 RETURNING l.digest), \
                     gone AS (DELETE FROM @.blobs b USING seen WHERE b.digest = seen.digest AND b.at < $1 AND NOT EXISTS \
                     (SELECT 1 FROM @.blob_uses u WHERE u.digest = b.digest) RETURNING b.digest) \
                     SELECT count(*) FROM seen";

const STATEMENTS: [&str; 10] = [
    LOCK,
    RELATED,
    LOCK_PLACE,
    MARK,
    LOOSEN,
    DELETE_USES,
    DELETE_VALUES,
    DELETE_JOURNAL,
    DELETE_TASKS,
    NOW_AND_PLACE,
];

/// Tasks to delete, each with the end of its journal.
pub(super) struct Deletion {
    tasks: Vec<(TaskId, Seq)>,
    /// Whether an earlier try may have been committed.
    unsure: bool,
}

impl Deletion {
    pub(super) fn new(tasks: Vec<(TaskId, Seq)>) -> Deletion {
        Deletion { tasks, unsure: false }
    }

    /// Locks the tasks and checks them. Returns the place in the feed, or nothing if an earlier try has deleted them.
    async fn check(
        &mut self,
        connection: &ServerConnection,
        ids: &Vec<String>,
    ) -> Result<Option<i64>, TransactionFailure> {
        let gathered = async {
            connection.prepare_all(&STATEMENTS).await?;
            let values: Values<'_> = &[ids];
            // Polled in this order, so sent in this order.
            let (begun, locked, related, place, now) = futures::join!(
                connection.begin(true),
                connection.query(LOCK, values),
                connection.query(RELATED, values),
                connection.query(LOCK_PLACE, &[]),
                connection.query(NOW_AND_PLACE, &[])
            );
            begun?;
            let mut states = HashMap::new();
            for row in &locked? {
                let (Some(id), state) = rows::saved(row, 0)? else { continue };
                let state = match state {
                    Some(state) => Ok(state),
                    None => rows::rebuild(connection, id).await?,
                };
                states.insert(id, state);
            }
            let mut links = Vec::new();
            for row in &related? {
                let (task, root) = (rows::task_id(row, 0)?, rows::task_id(row, 1)?);
                let (Some(task), Some(root)) = (task, root) else { continue };
                links.push(TaskLinks { task, root, continues: rows::task_id(row, 2)? });
            }
            place?;
            let place = now?.first().map_or(Ok(0), |row| row.try_get::<_, i64>(1))?;
            Ok((states, links, place))
        };
        let (states, links, place) = in_time(connection, gathered).await?;
        if self.unsure && states.is_empty() {
            return Ok(None);
        }
        // They are locked and there: no earlier try has deleted them.
        self.unsure = false;
        let refused = |error: StoreError| TransactionFailure::Failed(Meaning::Permanent, error);
        let mut loaded = HashMap::with_capacity(states.len());
        for (id, state) in states {
            loaded.insert(id, state.map_err(refused)?);
        }
        check_deletable(&self.tasks, &loaded, links).map_err(refused)?;
        Ok(Some(place))
    }
}

impl LaneOperation for Deletion {
    type Answer = ();

    fn is_unsure(&self) -> bool {
        self.unsure
    }

    async fn attempt(
        &mut self,
        connection: &ServerConnection,
        shared: &Shared,
    ) -> Result<(), TransactionFailure> {
        let ids: HashSet<TaskId> = self.tasks.iter().map(|(id, _)| *id).collect();
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let Some(place) = self.check(connection, &ids).await? else {
            in_time(connection, connection.batch("ROLLBACK")).await?;
            shared.signals.written(vec![Hint::Lagged]);
            return Ok(());
        };
        let these: Values<'_> = &[&ids];
        let placed: Values<'_> = &[&place];
        let deleted = async {
            let (loose, uses, values, journal, tasks, mark) = futures::join!(
                connection.execute(LOOSEN, these),
                connection.execute(DELETE_USES, these),
                connection.execute(DELETE_VALUES, these),
                connection.execute(DELETE_JOURNAL, these),
                connection.execute(DELETE_TASKS, these),
                connection.row(MARK, placed)
            );
            let mark = loose.and(uses).and(values).and(journal).and(tasks).and(mark)?;
            mark.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
        };
        if let Some(place) = in_time(connection, deleted).await? {
            shared.signals.deletes(place);
        }
        let commit = tokio::time::timeout(super::connect::ANSWER, connection.batch("COMMIT")).await;
        match commit {
            Ok(Ok(())) => {}
            Ok(Err(error)) if is_refusal(&error) => {
                return Err(TransactionFailure::of(connection, &error));
            }
            _ => {
                self.unsure = true;
                return Err(TransactionFailure::Unknown);
            }
        }
        // There are no hints for a deleted task: all receivers have to check.
        shared.signals.written(vec![Hint::Lagged]);
        if let Err(error) = sweep(connection, shared).await {
            tracing::warn!(%error, "blobs that nothing refers to are deleted another time");
        }
        Ok(())
    }
}

async fn sweep(connection: &ServerConnection, shared: &Shared) -> Result<(), Error> {
    let before = blob_cutoff(shared.clock.now()).as_millisecond();
    for _ in 0..100 {
        let row = connection.row(SWEEP, &[&before]).await?;
        if row.map_or(Ok(0), |row| row.try_get::<_, i64>(0))? == 0 {
            break;
        }
    }
    Ok(())
}
