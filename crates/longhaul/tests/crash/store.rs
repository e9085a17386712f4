//! A store that kills its process at a chosen append, and notes how often its worker looked for the dead.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::TaskId;
use longhaul::entry::Record;
use longhaul::id::{Digest, Seq, WorkerId};
use longhaul::store::{Batch, Claim, Filter, Hints, Sqlite, Store, StoreFuture};
use longhaul::task::Head;

use crate::process::write_line;

/// Where in its life the process dies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    /// At which append or claim, from 1 on.
    pub(crate) at: u64,
    /// Whether that append is acknowledged by then.
    pub(crate) after: bool,
}

pub(crate) struct KillAt {
    inner: Sqlite,
    death: Option<Death>,
    count: AtomicU64,
    /// A line is written here whenever abandoned tasks are looked for.
    looks: PathBuf,
}

impl KillAt {
    pub(crate) fn open(dir: &Path, name: &str, death: Option<Death>) -> Arc<dyn Store> {
        let inner = Sqlite::open(dir.join("db")).unwrap();
        Arc::new(KillAt { inner, death, count: AtomicU64::new(0), looks: dir.join(format!("{name}.looks")) })
    }

    /// Does something that counts, unless the process dies of it.
    async fn mortal<T>(&self, act: StoreFuture<'_, T>) -> Result<T, longhaul::store::StoreError> {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let now = self.death.filter(|death| death.at == number);
        if now.is_some_and(|death| !death.after) {
            die();
        }
        let done = act.await;
        if now.is_some() {
            die();
        }
        done
    }
}

fn die() -> ! {
    use nix::sys::signal::{Signal, kill};
    let _ = kill(nix::unistd::Pid::this(), Signal::SIGKILL);
    unreachable!("nobody survives SIGKILL")
}

impl Store for KillAt {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        Box::pin(self.mortal(self.inner.append(batch)))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<longhaul::store::Claimed>> {
        Box::pin(self.mortal(self.inner.claim(claim)))
    }

    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.inner.read(task, after, limit)
    }

    fn head(&self, task: TaskId) -> StoreFuture<'_, Option<Head>> {
        self.inner.head(task)
    }

    fn list(&self, filter: Filter) -> StoreFuture<'_, Vec<Head>> {
        self.inner.list(filter)
    }

    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.inner.find(typed)
    }

    fn renew(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        self.inner.renew(worker, lease)
    }

    fn retire(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.inner.retire(worker)
    }

    fn abandoned(&self) -> StoreFuture<'_, Vec<Head>> {
        write_line(&self.looks, "looked");
        self.inner.abandoned()
    }

    fn keep(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.inner.keep(bytes)
    }

    fn kept(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.inner.kept(digest)
    }

    fn hints(&self) -> Hints {
        self.inner.hints()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
