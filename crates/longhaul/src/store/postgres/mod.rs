//! Journals in a PostgreSQL database, which several machines share.
//!
//! Writes go through a few [lanes](lane), each a connection with a queue: what waits together shares a transaction, of two
//! round trips, whatever its size. Every decision is made under row locks, so all transactions are READ COMMITTED. Reads
//! are single statements on connections of their own. Leases are judged by the server's clock. Nothing here elects,
//! replicates or agrees on anything: that is the database's work.

mod appends;
mod check;
mod claim_floors;
mod claims;
mod clock;
mod connect;
mod deletion;
mod errors;
mod exchange;
mod feed;
mod gathered;
mod import;
mod lane;
mod leases;
mod listen;
mod local_workers;
mod options;
mod reader;
mod rows;
mod schema;
mod sql_value;
#[cfg(test)]
mod tests;
mod values;
mod write_set;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use self::appends::AppendRequest;
use self::clock::StoreClock;
use self::connect::Server;
use self::deletion::Deletion;
use self::import::Import;
use self::lane::{Lane, LaneQueue, LaneRequest};
use self::listen::Signals;
use self::local_workers::LocalWorkers;
pub use self::options::PostgresOptions;
use self::reader::ReadConnections;
use self::values::{BlobWrite, Rebuild, ValueWrite};
use super::validate::WriteDraft;
use super::{
    Batch, ClaimRequest, ClaimedTask, DamagedTask, FeedPage, FeedPosition, FeedScope, HintStream, Lease,
    LiveReader, Store, StoreError, StoreFuture, StoredValue, TaskFilter,
};
use crate::entry::{Record, TeamRef};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::task::TaskState;

/// How many connections read.
const READERS: usize = 2;

/// A store in a PostgreSQL database.
///
/// It has to be opened in a Tokio runtime, and works as long as that does.
pub struct PostgresStore {
    shared: Arc<Shared>,
    readers: Arc<ReadConnections>,
    /// For leases alone: a renewal waits behind nothing.
    leases: ReadConnections,
    /// The last one is for claims, limits, deletions and what is not in a journal.
    lanes: Vec<LaneQueue>,
}

/// What the parts of a store share.
struct Shared {
    server: Arc<Server>,
    clock: StoreClock,
    signals: Signals,
    contact: leases::Contact,
    local_workers: LocalWorkers,
    claim_floors: std::sync::Mutex<claim_floors::ClaimFloors>,
}

/// What is broken on purpose, to see that a test notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests break it"))]
enum Mutant {
    /// Tasks are not locked.
    NoRowLock,
    /// Limits are counted without a lock.
    NoLimitLock,
    /// A lost answer counts as a failure.
    NoToken,
    /// Leases are judged by this machine's clock, which is wrong by so many milliseconds.
    ClientClock(i64),
    /// Not broken, but of a newer Longhaul: reads and writes the next format.
    Newer,
}

impl Shared {
    #[cfg(test)]
    fn is_broken(&self, how: Mutant) -> bool {
        self.server.options().mutant == Some(how)
    }

    #[cfg(not(test))]
    fn is_broken(&self, _: Mutant) -> bool {
        false
    }

    fn claim_floors(&self) -> std::sync::MutexGuard<'_, claim_floors::ClaimFloors> {
        self.claim_floors.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What leases are judged by instead of the server's time, if anything.
    fn lease_time(&self) -> Option<i64> {
        #[cfg(test)]
        if let Some(Mutant::ClientClock(wrong)) = self.server.options().mutant {
            return Some(Timestamp::now().as_millisecond() + wrong);
        }
        self.clock.lease_ms()
    }
}

impl PostgresStore {
    /// Opens the store. Fails if the server cannot be reached, or if the tables are not there or are of another version;
    /// then the error says what to do. Changes nothing.
    pub async fn open(options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let clock = StoreClock::new(options.clock.clone());
        let lanes = options.lanes.max(1);
        let local_workers = LocalWorkers::new(options.worker_locks.clone());
        let server = Arc::new(Server::new(options)?);
        let first = server.connect().await.map_err(|error| server.name.server_error(&error))?;
        schema::check(&first).await?;
        schema::warn_of_losses(&first).await;
        let time = first.row(concat!("SELECT ", clock::server_ms!()), &[]).await;
        if let Ok(Some(time)) = time.map(|row| row.and_then(|row| row.try_get(0).ok())) {
            clock.learn(time);
        }
        let readers = Arc::new(ReadConnections::new(server.clone(), READERS, Some(first)));
        let leases = ReadConnections::new(server.clone(), 1, None);
        let seen = readers.horizon_now().await?;
        let signals = Signals::start(server.clone(), readers.clone(), seen);
        let claim_floors = std::sync::Mutex::new(claim_floors::ClaimFloors::new(signals.subscribe()));
        let contact = leases::Contact::default();
        let shared = Arc::new(Shared { server, clock, signals, contact, local_workers, claim_floors });
        let lanes = (0..lanes).map(|_| Lane::start(shared.clone())).collect();
        Ok(PostgresStore { shared, readers, leases, lanes })
    }

    /// Makes the tables of a store, or brings them up to date. May be called at any time, by several at once.
    pub async fn migrate(options: &PostgresOptions) -> Result<(), StoreError> {
        schema::migrate(&Arc::new(Server::new(options.clone())?)).await
    }

    /// The lane of a batch. Batches of one task keep their order.
    fn lane(&self, first: Option<TaskId>, is_limited: bool) -> &LaneQueue {
        let appending = self.lanes.len().saturating_sub(1);
        match first {
            Some(task) if !is_limited && appending > 0 => {
                let mut hasher = DefaultHasher::new();
                task.hash(&mut hasher);
                let nth = hasher.finish() % appending as u64;
                &self.lanes[usize::try_from(nth).unwrap_or_default()]
            }
            _ => &self.lanes[appending],
        }
    }

    fn last_lane(&self) -> &LaneQueue {
        self.lane(None, false)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.signals.close();
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("options", self.shared.server.options()).finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        Box::pin(async move {
            let only_if = batch.only_if.clone();
            let drafts = WriteDraft::from_batch(batch);
            let Some(first) = drafts.first().map(|draft| draft.task) else { return Ok(Vec::new()) };
            let lane = self.lane(Some(first), !only_if.is_empty());
            // Encoded here and not by the lane, which everything waits for.
            let request = AppendRequest::new(drafts, only_if)?;
            lane.ask(&self.shared, |reply| LaneRequest::Append(request, reply)).await
        })
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        Box::pin(self.readers.read(task, after, limit))
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        Box::pin(self.readers.task_state(task))
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        Box::pin(async move { self.readers.list(&filter).await })
    }

    fn ids(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskId>> {
        Box::pin(async move { self.readers.ids(&filter).await })
    }

    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        Box::pin(async move { self.readers.count(&filter).await })
    }

    fn teams_at_work(&self) -> StoreFuture<'_, Vec<TeamRef>> {
        Box::pin(self.readers.teams_at_work())
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        let typed = typed.to_owned();
        Box::pin(async move { self.readers.find(&typed).await })
    }

    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        Box::pin(
            async move { self.last_lane().ask(&self.shared, |reply| LaneRequest::Claim(claim, reply)).await },
        )
    }

    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move { leases::renew(&self.leases, &self.shared, &worker, lease).await })
    }

    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        Box::pin(async move { leases::retire(&self.leases, &self.shared, &worker).await })
    }

    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        Box::pin(leases::abandoned_tasks(&self.readers, &self.shared))
    }

    fn next_dead_worker(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.local_workers.next_death())
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        Box::pin(async move { leases::lease(&self.readers, &self.shared, &worker).await })
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        Box::pin(async move {
            let digest = Digest::of_bytes(&bytes);
            let write = BlobWrite { digest: digest.clone(), bytes };
            self.last_lane().ask(&self.shared, |reply| LaneRequest::PutBlob(write, reply)).await?;
            Ok(digest)
        })
    }

    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        Box::pin(async move { self.readers.blob(&digest).await })
    }

    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        let name = name.to_owned();
        Box::pin(async move { self.readers.stored_value(&name).await })
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        let write = ValueWrite::new(name.to_owned(), after, bytes);
        Box::pin(async move {
            self.last_lane().ask(&self.shared, |reply| LaneRequest::PutValue(write, reply)).await
        })
    }

    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.readers.stored_value_names())
    }

    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let import = Import::new(journals)?;
            self.last_lane().ask(&self.shared, |reply| LaneRequest::Import(import, reply)).await
        })
    }

    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if tasks.is_empty() {
                return Ok(());
            }
            let deletion = Deletion::new(tasks);
            self.last_lane().ask(&self.shared, |reply| LaneRequest::Delete(deletion, reply)).await
        })
    }

    fn find_damaged(&self, which: TaskFilter, journals: bool) -> StoreFuture<'_, Vec<DamagedTask>> {
        Box::pin(async move {
            let found = check::find(&self.readers, &which, journals).await?;
            if !found.to_rebuild.is_empty() {
                tracing::warn!(
                    tasks = found.to_rebuild.len(),
                    "damaged rows are rebuilt from their journals"
                );
                let rebuild = Rebuild(found.to_rebuild);
                self.last_lane().ask(&self.shared, |reply| LaneRequest::Rebuild(rebuild, reply)).await?;
            }
            Ok(found.damaged)
        })
    }

    fn hints(&self) -> HintStream {
        self.shared.signals.hints()
    }

    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        Box::pin(self.readers.read_feed(scope, after, limit))
    }

    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        Box::pin(async move { Ok(self.readers.horizon().await?.end()) })
    }

    fn read_live(&self, root: TaskId) -> LiveReader {
        self.shared.signals.read_live(root)
    }

    fn is_read_live(&self, root: TaskId) -> bool {
        self.shared.signals.is_read_live(root)
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }
}
