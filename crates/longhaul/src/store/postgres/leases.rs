//! Leases, by the server's clock alone: what it wrote is compared with what it reads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::Shared;
use super::clock::server_ms;
use super::connect::ServerConnection;
use super::reader::{self, ReadConnections};
use super::rows::state_columns;
use crate::id::WorkerId;
use crate::store::{Lease, StoreError};
use crate::task::TaskState;

/// Whether the lease of the worker `w` holds, by the time in a parameter, or by the server's if that is NULL. A server
/// that was away for longer than a lease has kept everybody from renewing: after a start, each lease gets its length anew.
macro_rules! lease_holds {
    ($given:literal) => {
        concat!(
            "(w.until > coalesce(",
            $given,
            "::bigint, ",
            super::clock::server_ms!(),
            ") OR (",
            $given,
            "::bigint IS NULL AND ",
            super::clock::server_ms!(),
            " - (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint < w.length))"
        )
    };
}
pub(super) use lease_holds;

const RENEW: &str = concat!(
    "INSERT INTO @.workers (id, until, renewals, length) VALUES ($1, coalesce($3::bigint, ",
    server_ms!(),
    ") + $2, 1, $2) ON CONFLICT (id) DO UPDATE SET until = excluded.until, renewals = workers.renewals + 1, \
     length = excluded.length RETURNING ",
    server_ms!()
);
const RETIRE: &str = "DELETE FROM @.workers WHERE id = ANY($1)";
const LEASE: &str = concat!(
    "SELECT renewals, length, until - coalesce($2::bigint, ",
    server_ms!(),
    ") FROM @.workers WHERE id = $1"
);
const ABANDONED: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM @.tasks t LEFT JOIN @.workers w ON w.id = t.worker WHERE t.worker IS NOT NULL AND (w.id IS NULL OR NOT ",
    lease_holds!("$1"),
    " AND w.length <= $2) ORDER BY t.n"
);
/// The workers that run tasks, with the length of their leases; and a row without a name if any task is run.
const OWNERS: &str = "SELECT w.id, w.length FROM @.workers w WHERE EXISTS (SELECT 1 FROM @.tasks t WHERE t.worker = w.id) \
     UNION ALL SELECT NULL, 0 WHERE EXISTS (SELECT 1 FROM @.tasks t WHERE t.worker IS NOT NULL)";
/// Workers without tasks that were gone for a day.
const FORGET: &str = concat!(
    "DELETE FROM @.workers w WHERE w.until < coalesce($1::bigint, ",
    server_ms!(),
    ") - 86400000 AND NOT EXISTS (SELECT 1 FROM @.tasks t WHERE t.worker = w.id)"
);
/// The longest lease, in milliseconds: a hundred years.
const LONGEST: i64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// Renews a lease. It waits for the disk: a server that crashes must not forget it.
pub(super) async fn renew(
    pool: &ReadConnections,
    shared: &Shared,
    worker: &WorkerId,
    lease: Duration,
) -> Result<(), StoreError> {
    let length = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).min(LONGEST);
    // Locked before others can see the worker, so that none considers it dead.
    shared.local_workers.lock(worker).await.map_err(|why| {
        pool.server_name()
            .busy(format_args!("is not used: the lock file of this process cannot be locked: {why}"))
    })?;
    let write = |connection: Arc<ServerConnection>| async move {
        let row = connection.row(RENEW, &[&worker.as_str(), &length, &shared.lease_time()]).await?;
        row.map_or(Ok(0), |row| row.try_get::<_, i64>(0))
    };
    let time = pool.run(write).await?;
    if time > 0 {
        shared.clock.learn(time);
    }
    Ok(())
}

/// Ends a lease.
pub(super) async fn retire(
    pool: &ReadConnections,
    shared: &Shared,
    worker: &WorkerId,
) -> Result<(), StoreError> {
    let write = |connection: Arc<ServerConnection>| async move {
        connection.execute(RETIRE, &[&vec![worker.to_string()]]).await?;
        connection.execute(FORGET, &[&shared.lease_time()]).await.map(drop)
    };
    pool.run(write).await?;
    shared.local_workers.unlock(worker);
    Ok(())
}

/// A worker's lease, to show it.
pub(super) async fn lease(
    pool: &ReadConnections,
    shared: &Shared,
    worker: &WorkerId,
) -> Result<Option<Lease>, StoreError> {
    let read = |connection: Arc<ServerConnection>| async move {
        let row = connection.row(LEASE, &[&worker.as_str(), &shared.lease_time()]).await?;
        let Some(row) = row else { return Ok(None) };
        let (renewals, length, left): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let until = shared.clock.now_ms().saturating_add(left);
        Ok(Some(Lease {
            renewals: u64::try_from(renewals).unwrap_or_default(),
            length: Duration::from_millis(u64::try_from(length).unwrap_or_default()),
            until: Timestamp::from_millisecond(until).unwrap_or(Timestamp::MAX),
        }))
    };
    pool.run(read).await
}

/// Since when this process has been in touch with the server without a break.
///
/// After a time in which nobody could reach the server, all leases have run out, and everyone looks gone to the first
/// that is back. So a lease that has run out is only believed by who was in touch for as long as it lasts.
#[derive(Default)]
pub(super) struct Contact(Mutex<Option<(Duration, Duration)>>);

impl Contact {
    /// Notes that the server answers now, and returns for how long it has. It has to be asked several times per lease.
    fn unbroken(&self, now: Duration, lease: Duration) -> Duration {
        let mut contact = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, last) = contact.unwrap_or((now, now));
        let since = if now.saturating_sub(last) > lease / 2 { now } else { since };
        *contact = Some((since, now));
        now.saturating_sub(since)
    }
}

/// Running tasks whose worker has no lease. Workers of this machine that are known to be dead lose theirs.
pub(super) async fn abandoned_tasks(
    pool: &ReadConnections,
    shared: &Shared,
) -> Result<Vec<TaskState>, StoreError> {
    let owners = |connection: Arc<ServerConnection>| async move {
        let owners = connection.query(OWNERS, &[]).await?;
        let owner = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        owners.iter().map(owner).collect::<Result<Vec<(Option<String>, i64)>, _>>()
    };
    let owners = pool.run(owners).await?;
    let longest = owners.iter().map(|(_, length)| *length).max().unwrap_or_default();
    if owners.is_empty() {
        // Nothing runs anywhere, as on most looks of a worker with nothing to do.
        shared.contact.unbroken(shared.clock.elapsed(), Duration::ZERO);
        return Ok(Vec::new());
    }
    let names = owners.into_iter().filter_map(|(worker, _)| worker.map(WorkerId::from));
    let dead = shared.local_workers.dead_among(names).await;
    let names = &dead.iter().map(ToString::to_string).collect::<Vec<String>>();
    let read = |connection: Arc<ServerConnection>| async move {
        if !names.is_empty() {
            connection.execute(RETIRE, &[names]).await?;
        }
        // Whoever looks for the gone does it several times per lease.
        let longest = Duration::from_millis(u64::try_from(longest).unwrap_or_default());
        let unbroken = shared.contact.unbroken(shared.clock.elapsed(), longest);
        let unbroken = i64::try_from(unbroken.as_millis()).unwrap_or(i64::MAX);
        let found = connection.query(ABANDONED, &[&shared.lease_time(), &unbroken]).await?;
        reader::load_all(&connection, &found).await
    };
    let abandoned = pool.run(read).await?;
    shared.local_workers.forget(&dead);
    Ok(abandoned)
}
