//! The store exam, four times: with one lane, with three, with two stores on one schema, and behind a pooler.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::pooler::Pooler;
use super::*;

fn with_lanes(lanes: usize, clock: Clock) -> Arc<dyn Store> {
    // Where there is no server, the exam is sat by the store in memory, and `TestPostgres::shared` reports it.
    let Some(server) = TestPostgres::shared() else {
        return Arc::new(crate::store::MemoryStore::with_clock(clock));
    };
    now(async {
        let options = fresh(server).await.lanes(lanes).clock(clock);
        Arc::new(PostgresStore::open(options).await.unwrap())
    })
}

fn two_stores(clock: Clock) -> Arc<dyn Store> {
    let Some(server) = TestPostgres::shared() else {
        return Arc::new(crate::store::MemoryStore::with_clock(clock));
    };
    now(async {
        let options = fresh(server).await.clock(clock);
        let stores = [
            PostgresStore::open(options.clone()).await.unwrap(),
            PostgresStore::open(options).await.unwrap(),
        ];
        Arc::new(InTurns { stores, next: AtomicUsize::new(0) })
    })
}

fn behind_a_pooler(clock: Clock) -> Arc<dyn Store> {
    let (Some(server), Some(pooler)) = (TestPostgres::shared(), Pooler::shared()) else {
        return Arc::new(crate::store::MemoryStore::with_clock(clock));
    };
    now(async {
        // The tables, too, are made through it.
        let options = pooler.options(server, &server.fresh_schema());
        PostgresStore::migrate(&options).await.unwrap();
        Arc::new(PostgresStore::open(options.clock(clock)).await.unwrap())
    })
}

/// Two stores on one schema, as two processes would have them: each operation is done by the other one than the last.
struct InTurns {
    stores: [PostgresStore; 2],
    next: AtomicUsize,
}

impl InTurns {
    fn store(&self) -> &PostgresStore {
        &self.stores[self.next.fetch_add(1, Ordering::SeqCst) % 2]
    }
}

impl Store for InTurns {
    fn append(&self, batch: Batch) -> StoreFuture<'_, Vec<Seq>> {
        self.store().append(batch)
    }
    fn read(&self, task: TaskId, after: Seq, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.store().read(task, after, limit)
    }
    fn task_state(&self, task: TaskId) -> StoreFuture<'_, Option<TaskState>> {
        self.store().task_state(task)
    }
    fn list(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskState>> {
        self.store().list(filter)
    }
    fn ids(&self, filter: TaskFilter) -> StoreFuture<'_, Vec<TaskId>> {
        self.store().ids(filter)
    }
    fn count(&self, filter: TaskFilter) -> StoreFuture<'_, usize> {
        self.store().count(filter)
    }
    fn find(&self, typed: &str) -> StoreFuture<'_, TaskId> {
        self.store().find(typed)
    }
    fn claim(&self, claim: ClaimRequest) -> StoreFuture<'_, Vec<ClaimedTask>> {
        self.store().claim(claim)
    }
    fn renew_lease(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, ()> {
        self.store().renew_lease(worker, lease)
    }
    fn retire_worker(&self, worker: WorkerId) -> StoreFuture<'_, ()> {
        self.store().retire_worker(worker)
    }
    fn abandoned_tasks(&self) -> StoreFuture<'_, Vec<TaskState>> {
        self.store().abandoned_tasks()
    }
    fn lease(&self, worker: WorkerId) -> StoreFuture<'_, Option<Lease>> {
        self.store().lease(worker)
    }
    fn put_blob(&self, bytes: Vec<u8>) -> StoreFuture<'_, Digest> {
        self.store().put_blob(bytes)
    }
    fn blob(&self, digest: Digest) -> StoreFuture<'_, Option<Vec<u8>>> {
        self.store().blob(digest)
    }
    fn stored_value(&self, name: &str) -> StoreFuture<'_, StoredValue> {
        self.store().stored_value(name)
    }
    fn put_stored_value(&self, name: &str, after: u64, bytes: Vec<u8>) -> StoreFuture<'_, bool> {
        self.store().put_stored_value(name, after, bytes)
    }
    fn stored_value_names(&self) -> StoreFuture<'_, Vec<String>> {
        self.store().stored_value_names()
    }
    fn import_journals(&self, journals: Vec<(TaskId, Vec<Record>)>) -> StoreFuture<'_, ()> {
        self.store().import_journals(journals)
    }
    fn delete(&self, tasks: Vec<(TaskId, Seq)>) -> StoreFuture<'_, ()> {
        self.store().delete(tasks)
    }
    /// Of one of them, which hears of the other.
    fn hints(&self) -> HintStream {
        let hints = self.stores[0].hints();
        // Until it listens: what others write before that is looked for.
        let heard = || self.stores[0].shared.signals.hears_others();
        while !heard() {
            now(tokio::time::sleep(Duration::from_millis(5)));
        }
        hints
    }
    fn read_feed(&self, scope: FeedScope, after: FeedPosition, limit: usize) -> StoreFuture<'_, FeedPage> {
        self.store().read_feed(scope, after, limit)
    }
    fn feed_end(&self) -> StoreFuture<'_, FeedPosition> {
        self.store().feed_end()
    }
    fn now(&self) -> Timestamp {
        self.store().now()
    }
}

mod one_lane {
    crate::store_exam!(|clock| super::with_lanes(1, clock));
}

mod three_lanes {
    crate::store_exam!(|clock| super::with_lanes(3, clock));
}

mod two_stores_on_one_schema {
    crate::store_exam!(|clock| super::two_stores(clock));
}

mod behind_a_pooler_in_transaction_mode {
    crate::store_exam!(|clock| super::behind_a_pooler(clock));
}
