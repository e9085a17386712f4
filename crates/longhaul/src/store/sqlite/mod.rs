//! Journals in one SQLite file: the default store.
//!
//! One thread writes. It takes whatever waits in its queue into one transaction, commits it with one fsync, and
//! only then answers, so that many tasks share the price of being durable. Readers are a few read-only
//! connections. Several processes may share the file: SQLite keeps their writers apart, [`watch`] notices what
//! the others wrote, and lock files that the kernel frees ([`workers`]) tell at once when one of them was killed.

mod apply;
mod check;
mod checksum;
mod claims;
mod deletion;
mod errors;
mod heads;
mod health;
mod identity;
mod peek;
pub(crate) mod private;
mod reader;
mod rows;
mod saved;
mod schema;
#[cfg(test)]
mod tests;
mod vacuum;
mod watch;
mod workers;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use self::errors::Place;
pub use self::health::Health;
use self::identity::Identity;
use self::reader::Readers;
pub use self::vacuum::Vacuumed;
use self::watch::{Bell, Watch};
use self::workers::Roll;
use self::writer::{Answer, Ask, Writer};
use super::judge::Draft;
use super::leases::LeaseWatch;
use super::{
    Batch, Claim, Claimed, Clock, Damage, Filter, Hints, Lease, Slip, Store, StoreError, StoreFuture,
};
use crate::entry::Record;
use crate::id::{Digest, Seq, TaskId, WorkerId};
use crate::task::Head;

/// What an acknowledged append has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power cut loses nothing that was acknowledged.
    #[default]
    Full,
    /// A killed process loses nothing; a power cut may lose the last moments.
    Normal,
}

/// How a [`Sqlite`] store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// What an acknowledged append has survived.
    pub durability: Durability,
    /// Where the time comes from.
    pub clock: Clock,
    /// How long to wait for another program that holds the file.
    pub patience: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions { durability: Durability::Full, clock: Clock::wall(), patience: Duration::from_secs(5) }
    }
}

/// A store in an SQLite file.
pub struct Sqlite {
    // Closed in this order: only a connection that may write, and that is the last, takes the log into the database.
    watch: Mutex<Option<Watch>>,
    readers: Readers,
    bell: Arc<Bell>,
    writer: Writer,
    roll: Roll,
    leases: Arc<LeaseWatch>,
    clock: Clock,
    place: Place,
    identity: Identity,
}

impl Sqlite {
    /// Opens the store in this file, or begins one there; directories above it are made.
    pub fn open(path: impl AsRef<Path>) -> Result<Sqlite, StoreError> {
        Sqlite::open_with(path, SqliteOptions::default())
    }

    /// Opens the store in this file, or begins one there, in this way.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Sqlite, StoreError> {
        let place = Place::of(path.as_ref())?;
        private::create(place.path()).map_err(|error| place.cannot_make(&error))?;
        private::mend(place.path());
        let connection = schema::open(&place, options.patience)?;
        let identity = Identity::of(&connection, &place)?;
        let bell = Arc::new(Bell::new(&connection, &place)?);
        let roll = Roll::beside(place.path());
        let readers = Readers::start(place.clone(), options.patience)?;
        let clock = options.clock.clone();
        let leases = Arc::new(LeaseWatch::default());
        let others = (roll.clone(), leases.clone());
        let writer = Writer::start(connection, place.clone(), options, others, bell.clone())?;
        Ok(Sqlite { writer, readers, watch: Mutex::default(), bell, roll, leases, clock, place, identity })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Store for Sqlite {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        Box::pin(async move {
            let only_if = batch.only_if.clone();
            let drafts = Draft::of(batch);
            // Encoded here and not by the writer, which everybody waits for.
            let encoded = rows::encode(&drafts)?;
            match self.writer.ask(Ask::Append { drafts, encoded, only_if }).await? {
                Answer::Ends(ends) => Ok(ends),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.readers.with(move |reader| reader.read(task, after, limit))
    }

    fn head(&self, task: TaskId) -> StoreFuture<'_, Option<Head>> {
        self.readers.head(task)
    }

    fn list(&self, filter: Filter) -> StoreFuture<'_, Vec<Head>> {
        self.readers.with(move |reader| reader.list(&filter))
    }

    fn ids(&self, filter: Filter) -> StoreFuture<'_, Vec<TaskId>> {
        self.readers.with(move |reader| reader.ids(&filter))
    }

    fn count(&self, filter: Filter) -> StoreFuture<'_, usize> {
        self.readers.with(move |reader| reader.count(&filter))
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        let typed = typed.to_owned();
        self.readers.with(move |reader| reader.find(&typed))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(async move {
            match self.writer.ask(Ask::Claim(claim)).await? {
                Answer::Claimed(claimed) => Ok(claimed),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer.ask(Ask::Renew { worker, lease }).await.map(drop) })
    }

    fn retire(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer.ask(Ask::Retire(worker)).await.map(drop) })
    }

    fn abandoned(&self) -> StoreFuture<'_, Vec<Head>> {
        let (roll, leases, clock) = (self.roll.clone(), self.leases.clone(), self.clock.clone());
        self.readers.with(move |reader| reader.abandoned(&roll, &leases, &clock))
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        self.readers.with(move |reader| reader.lease(&worker))
    }

    fn keep(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        Box::pin(async move {
            let digest = Digest::of(&bytes);
            self.writer.ask(Ask::Keep { digest: digest.clone(), bytes }).await?;
            Ok(digest)
        })
    }

    fn kept(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.readers.with(move |reader| reader.kept(&digest))
    }

    fn slip(&self, name: &str) -> StoreFuture<'_, Slip> {
        let name = name.to_owned();
        self.readers.with(move |reader| reader.slip(&name))
    }

    fn write_slip(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        let name = name.to_owned();
        Box::pin(async move {
            match self.writer.ask(Ask::Slip { name, after, bytes }).await? {
                Answer::Fits(fits) => Ok(fits),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut answer = self.writer.ask(Ask::Delete(tasks)).await?;
            // They are gone; what they leave goes in steps that let others through. Who does not wait for that leaves the rest to
            // the next deletion.
            while matches!(answer, Answer::Fits(false)) {
                answer = self.writer.ask(Ask::Clear).await?;
            }
            Ok(())
        })
    }

    fn check(&self, which: Filter, journals: bool) -> StoreFuture<'_, Vec<Damage>> {
        Box::pin(async move {
            let found = self.readers.with(move |reader| reader.check(&which, journals)).await?;
            if !found.mend.is_empty() {
                tracing::warn!(
                    tasks = found.mend.len(),
                    "rows that were damaged are made again from journals"
                );
                self.writer.ask(Ask::Mend(found.mend)).await?;
            }
            Ok(found.damage)
        })
    }

    fn lost(&self) -> Option<StoreError> {
        self.bell.lost()
    }

    fn hints(&self) -> Hints {
        let hints = self.bell.listen();
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            match Watch::start(&self.place, self.bell.clone(), self.identity.clone()) {
                Ok(started) => *watch = Some(started),
                // The hints of this process still come, and a hint may be lost.
                Err(error) => tracing::warn!(%error, "what other processes write will not be noticed"),
            }
        }
        hints
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The path with something put at its end, as SQLite itself does for `-wal`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
