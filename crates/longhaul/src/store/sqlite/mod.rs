//! Journals in one SQLite file: the default store.
//!
//! One thread writes. It takes everything in its queue into one transaction, commits it with one fsync, and
//! only then replies, so that many tasks share the cost of durability. Readers are a few read-only
//! connections. Several processes may share the file: SQLite serializes their writers, [`watch`] notices what
//! the others wrote, and lock files that the kernel releases (`worker_locks`) tell at once when one of them
//! was killed.

mod transaction;
mod check;
mod checksum;
mod claims;
mod count_cache;
mod deletion;
mod errors;
mod feed;
mod state_cache;
mod health;
mod file_identity;
mod peek;
mod reader;
mod reader_locks;
mod lease_rows;
mod recent;
mod restrict;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod vacuum;
mod watch;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use self::errors::DatabasePath;
use self::file_identity::DatabaseIdentity;
pub use self::health::DatabaseHealth;
use self::reader::ReaderPool;
use self::reader_locks::ReaderLocks;
use self::recent::RecentTasks;
pub use self::vacuum::Vacuumed;
use self::watch::{FileWatcher, HintSender};
use self::writer::{ImportedJournal, WriterHandle, WriterReply, WriterRequest};
use super::leases::LeaseWatch;
use super::validate::WriteDraft;
use super::worker_locks::WorkerLocks;
use super::{
    Batch, ClaimRequest, ClaimedTask, Clock, DamagedTask, FeedPage, FeedPosition, FeedScope, HintStream,
    Lease, LiveReader, LiveReaders, Store, StoreError, StoreFuture, StoredValue, TaskFilter,
};
use super::{copy, private_files};
use crate::entry::{Record, TeamRef};
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::task::TaskState;

/// What an acknowledged append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power failure loses nothing that was acknowledged.
    #[default]
    Full,
    /// A killed process loses nothing; a power failure may lose the last moments.
    Normal,
}

/// Options for opening a [`SqliteStore`].
#[derive(Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// The clock.
    pub clock: Clock,
    /// How long to wait for another program that locks the file.
    pub busy_timeout: Duration,
}

fluent_setters!(SqliteOptions { durability: Durability, clock: Clock, busy_timeout: Duration });

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions {
            durability: Durability::Full,
            clock: Clock::system(),
            busy_timeout: Duration::from_secs(5),
        }
    }
}

/// A store in an SQLite file.
pub struct SqliteStore {
    // Closed in this order: the log is merged into the database only by the last connection, and only if it
    // may write.
    watch: Mutex<Option<FileWatcher>>,
    readers: ReaderPool,
    hints: Arc<HintSender>,
    writer: WriterHandle,
    worker_locks: WorkerLocks,
    leases: Arc<LeaseWatch>,
    live_readers: LiveReaders,
    reader_locks: ReaderLocks,
    clock: Clock,
    place: DatabasePath,
    identity: DatabaseIdentity,
}

impl SqliteStore {
    /// Opens the store in this file. Creates the file and its parent directories if needed. Fails if the file
    /// cannot be opened or is not a Longhaul database.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with(path, SqliteOptions::default())
    }

    /// Like [`open`](Self::open), with options.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        let place = DatabasePath::prepare(path.as_ref())?;
        private_files::create_private_file(place.path()).map_err(|error| place.create_error(&error))?;
        restrict::restrict_existing(place.path());
        let connection = schema::open(&place, options.busy_timeout)?;
        let identity = DatabaseIdentity::capture(&connection, &place)?;
        let hints = Arc::new(HintSender::new(&connection, &place)?);
        let worker_locks = worker_locks_of(place.path());
        let reader_locks = ReaderLocks::for_database(place.path());
        let recent = Arc::new(RecentTasks::default());
        let readers =
            ReaderPool::start(place.clone(), identity.clone(), options.busy_timeout, recent.clone())?;
        let clock = options.clock.clone();
        let leases = Arc::new(LeaseWatch::default());
        let others = (worker_locks.clone(), leases.clone());
        let shared = (hints.clone(), recent);
        let writer = WriterHandle::start(connection, place.clone(), options, others, shared)?;
        Ok(SqliteStore {
            writer,
            readers,
            watch: Mutex::default(),
            hints,
            worker_locks,
            leases,
            live_readers: LiveReaders::default(),
            reader_locks,
            clock,
            place,
            identity,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        Box::pin(async move {
            let only_if = batch.only_if.clone();
            let drafts = WriteDraft::from_batch(batch);
            // Encoded here and not by the writer thread, which everything waits for.
            let encoded = rows::encode(&drafts)?;
            match self.writer.request(WriterRequest::Append { drafts, encoded, only_if }).await? {
                WriterReply::EndSeqs(ends) => Ok(ends),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.readers.read(task, after, limit)
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        self.readers.task_state(task)
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        self.readers.run(move |reader| reader.list(&filter))
    }

    fn ids(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskId>> {
        self.readers.run(move |reader| reader.ids(&filter))
    }

    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        self.readers.run(move |reader| reader.count(&filter))
    }

    fn teams_at_work(&self) -> StoreFuture<'_, Vec<TeamRef>> {
        self.readers.run(|reader| reader.teams_at_work())
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        let typed = typed.to_owned();
        self.readers.run(move |reader| reader.find(&typed))
    }

    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        Box::pin(async move {
            match self.writer.request(WriterRequest::Claim(claim)).await? {
                WriterReply::Claimed(claimed) => Ok(claimed),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer.request(WriterRequest::Renew { worker, lease }).await.map(drop) })
    }

    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer.request(WriterRequest::Retire(worker)).await.map(drop) })
    }

    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        let (worker_locks, leases, clock) =
            (self.worker_locks.clone(), self.leases.clone(), self.clock.clone());
        self.readers.run(move |reader| reader.abandoned_tasks(&worker_locks, &leases, &clock))
    }

    fn next_dead_worker(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.worker_locks.next_death())
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        self.readers.run(move |reader| reader.lease(&worker))
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        Box::pin(async move {
            let digest = Digest::of_bytes(&bytes);
            self.writer.request(WriterRequest::PutBlob { digest: digest.clone(), bytes }).await?;
            Ok(digest)
        })
    }

    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.readers.run(move |reader| reader.blob(&digest))
    }

    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        let name = name.to_owned();
        self.readers.run(move |reader| reader.stored_value(&name))
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        let name = name.to_owned();
        Box::pin(async move {
            match self.writer.request(WriterRequest::PutStoredValue { name, after, bytes }).await? {
                WriterReply::Flag(fits) => Ok(fits),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        self.readers.run(|reader| reader.stored_value_names())
    }

    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut imported = Vec::with_capacity(journals.len());
            for (task, records) in journals {
                let state = Arc::new(copy::folded(task, &records)?);
                let encode = |record: Record| match record.entry.encode() {
                    Ok(bytes) => Ok((record, bytes)),
                    Err(why) => Err(StoreError::BadEntry { task, seq: record.seq, why }),
                };
                let records = records.into_iter().map(encode).collect::<Result<_, _>>()?;
                imported.push(ImportedJournal { state, records });
            }
            self.writer.request(WriterRequest::Import(imported)).await.map(drop)
        })
    }

    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut answer = self.writer.request(WriterRequest::Delete(tasks)).await?;
            // The tasks are deleted; their leftovers are deleted in steps that let others write. If this is
            // dropped, the next deletion does the rest.
            while matches!(answer, WriterReply::Flag(false)) {
                answer = self.writer.request(WriterRequest::DeleteLeftovers).await?;
            }
            Ok(())
        })
    }

    fn find_damaged(&self, which: TaskFilter, journals: bool) -> StoreFuture<'_, Vec<DamagedTask>> {
        Box::pin(async move {
            let found = self.readers.run(move |reader| reader.find_damaged(&which, journals)).await?;
            if !found.rows_to_rebuild.is_empty() {
                tracing::warn!(
                    tasks = found.rows_to_rebuild.len(),
                    "damaged rows are rebuilt from their journals"
                );
                self.writer.request(WriterRequest::RebuildRows(found.rows_to_rebuild)).await?;
            }
            Ok(found.damage)
        })
    }

    fn file_lost(&self) -> Option<StoreError> {
        self.hints.lost()
    }

    fn hints(&self) -> HintStream {
        let hints = self.hints.subscribe();
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            let readers = (self.reader_locks.clone(), self.live_readers.clone());
            let journal_end = self.readers.journal_end();
            let (hints, identity) = (self.hints.clone(), self.identity.clone());
            match FileWatcher::start(&self.place, journal_end, hints, identity, readers) {
                Ok(started) => *watch = Some(started),
                // Hints of this process still arrive, and hints may be lost.
                Err(error) => tracing::warn!(%error, "changes by other processes will not be noticed"),
            }
        }
        hints
    }

    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        self.readers.run(move |reader| reader.read_feed(scope, after, limit))
    }

    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        self.readers.run(|reader| reader.feed_end())
    }

    fn read_live(&self, root: TaskId) -> LiveReader {
        self.live_readers.add(root, self.reader_locks.announce(root))
    }

    fn is_read_live(&self, root: TaskId) -> bool {
        self.live_readers.contains(root)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The path with a suffix, as SQLite itself does for `-wal`.
/// The lock files of the workers that use the store in this file.
fn worker_locks_of(database: &Path) -> WorkerLocks {
    WorkerLocks::in_dir(with_suffix(database, "-workers"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
