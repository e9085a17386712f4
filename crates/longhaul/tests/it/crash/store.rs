//! A store that kills its process at a chosen append, and notes how often its worker looked for the dead; or that
//! dithers, or fails once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::{Entry, Record};
use longhaul::id::{Digest, Seq, WorkerId};
use longhaul::store::{
    Batch, ClaimRequest, Clock, DatabaseFault, HintStream, MemoryStore, SqliteOptions, SqliteStore, Store,
    StoreError, StoreFuture, StoredValue, TaskFilter,
};
use longhaul::task::TaskState;

use nix::sys::signal::Signal;

use crate::crash::process::write_line;
use crate::crash::seeded::Seeded;

/// Where in its life the process dies, or is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    /// At which append or claim, from 1 on.
    pub(crate) at: u64,
    /// Whether that append is acknowledged by then.
    pub(crate) after: bool,
    /// SIGKILL, or SIGSTOP: then somebody else has to wake it up.
    pub(crate) signal: Signal,
}

impl Death {
    fn strike(self) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), self.signal);
    }
}

/// The clock on the wall, so many seconds fast (or slow).
pub(crate) fn clock(offset: i64) -> Clock {
    Clock::from_fn(move || Timestamp::now() + jiff::SignedDuration::from_secs(offset))
}

/// The file with the address of a test's store, if that is not the SQLite file beside it.
pub(crate) fn address_file(dir: &Path) -> PathBuf {
    dir.join("address")
}

/// Opens the store of a test: the one whose address is in its directory, or else a SQLite file there.
pub(crate) async fn open(dir: &Path, options: SqliteOptions) -> Arc<dyn Store> {
    match std::fs::read_to_string(address_file(dir)) {
        Ok(address) => crate::crash::postgres::open(&address).await,
        Err(_) => Arc::new(SqliteStore::open_with(dir.join("db"), options).unwrap()),
    }
}

/// A store that goes wrong on purpose.
pub(crate) struct KillAt {
    inner: Arc<dyn Store>,
    death: Option<Death>,
    count: AtomicU64,
    /// A line is written here whenever abandoned tasks are looked for.
    looks: Option<PathBuf>,
    /// Whether everything takes a moment, another each time, so that others come in between.
    dithers: bool,
    /// Fails once, when a tool returns this.
    fails_at: Mutex<Option<&'static str>>,
}

impl KillAt {
    pub(crate) async fn open(dir: &Path, name: &str, death: Option<Death>) -> Arc<dyn Store> {
        KillAt::open_with(dir, name, death, SqliteOptions::default()).await
    }

    pub(crate) async fn open_with(
        dir: &Path,
        name: &str,
        death: Option<Death>,
        options: SqliteOptions,
    ) -> Arc<dyn Store> {
        let inner = open(dir, options).await;
        Arc::new(KillAt { death, looks: Some(dir.join(format!("{name}.looks"))), ..KillAt::around(inner) })
    }

    fn around(inner: Arc<dyn Store>) -> KillAt {
        let (count, fails_at) = (AtomicU64::new(0), Mutex::new(None));
        KillAt { inner, death: None, count, looks: None, dithers: false, fails_at }
    }

    pub(crate) fn dithering() -> Arc<dyn Store> {
        Arc::new(KillAt { dithers: true, ..KillAt::around(Arc::new(MemoryStore::new())) })
    }

    pub(crate) fn failing_at(output: &'static str) -> Arc<dyn Store> {
        let fails_at = Mutex::new(Some(output));
        Arc::new(KillAt { fails_at, ..KillAt::around(Arc::new(MemoryStore::new())) })
    }

    /// Does something that counts, unless the process dies of it.
    async fn mortal<'a, T>(&'a self, act: impl FnOnce() -> StoreFuture<'a, T>) -> Result<T, StoreError> {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let now = self.death.filter(|death| death.at == number);
        now.filter(|death| !death.after).into_iter().for_each(Death::strike);
        self.dither().await;
        let done = act().await;
        now.filter(|death| death.after).into_iter().for_each(Death::strike);
        done
    }

    async fn dither(&self) {
        if self.dithers {
            let moment = Seeded::new(self.count.fetch_add(1, Ordering::SeqCst)).up_to(5) - 1;
            tokio::time::sleep(Duration::from_millis(moment)).await;
        }
    }

    fn fails(&self, batch: &Batch) -> bool {
        let mut at = self.fails_at.lock().unwrap();
        let is_it = |entry: &Entry| match (entry, *at) {
            (Entry::Returned(returned), Some(at)) => returned.output.contains(at),
            _ => false,
        };
        let fails = batch.writes.iter().flat_map(|write| &write.entries).any(is_it);
        if fails {
            *at = None;
        }
        fails
    }
}

impl Store for KillAt {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        if self.fails(&batch) {
            let failed = StoreError::Database {
                what: "as a full disk would".to_owned(),
                fault: DatabaseFault::Permanent,
            };
            return Box::pin(std::future::ready(Err(failed)));
        }
        Box::pin(self.mortal(|| self.inner.append(batch)))
    }

    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<longhaul::store::ClaimedTask>> {
        Box::pin(self.mortal(|| self.inner.claim(claim)))
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.inner.read(task, after, limit)
    }

    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        Box::pin(async move {
            let state = self.inner.task_state(task).await;
            // Afterwards: what is known may be old by the time it is used.
            self.dither().await;
            state
        })
    }

    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        self.inner.list(filter)
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.inner.find(typed)
    }

    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        self.inner.renew_lease(worker, lease)
    }

    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.inner.retire_worker(worker)
    }

    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        if let Some(looks) = &self.looks {
            write_line(looks, "looked");
        }
        self.inner.abandoned_tasks()
    }

    fn next_dead_worker(&self) -> futures::future::BoxFuture<'_, ()> {
        self.inner.next_dead_worker()
    }

    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<longhaul::store::Lease>> {
        self.inner.lease(worker)
    }

    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.inner.put_blob(bytes)
    }

    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.inner.blob(digest)
    }

    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        self.inner.stored_value(name)
    }

    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        self.inner.put_stored_value(name, after, bytes)
    }
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        self.inner.delete(tasks)
    }

    fn hints(&self) -> HintStream {
        self.inner.hints()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
