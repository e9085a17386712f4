//! Tests on a real server, which each test binary starts for itself.

use std::sync::Arc;

use super::*;
use crate::entry::{Entry, Letter, Order, Outcome, Sender, StopCause, StopRequest, Submission};
use crate::id::{Attempt, LetterId, TaskKey};
use crate::message::Reply;
use crate::store::{Clock, DatabaseFault, Fence, Hint};
use crate::testing::TestPostgres;

mod addresses;
mod crew;
mod encryption;
mod exam;
mod failover;
mod full_disk;
mod hints;
mod limits;
mod local_workers;
mod mutants;
mod old_beside_new;
mod order;
mod outage;
mod pooled;
mod pooler;
mod proxy;
mod restarts;
mod wire;

/// A server, or the end of the test.
macro_rules! server_or_skip {
    () => {
        match crate::testing::TestPostgres::shared() {
            Some(server) => server,
            None => return,
        }
    };
}
use server_or_skip;

/// A second server, for tests that keep transactions open, which would hold up the feeds of the first.
fn beside() -> Option<&'static TestPostgres> {
    static BESIDE: std::sync::OnceLock<Option<TestPostgres>> = std::sync::OnceLock::new();
    let beside = BESIDE.get_or_init(|| TestPostgres::start(&[])).as_ref();
    if beside.is_none() {
        crate::testing::report_skipped("there is no PostgreSQL server below /usr/lib/postgresql");
    }
    beside
}

/// The second server, or the end of the test.
macro_rules! beside_or_skip {
    () => {
        match super::beside() {
            Some(server) => server,
            None => return,
        }
    };
}
use beside_or_skip;

/// Runs something asynchronous in a function that is not, inside of a runtime with several threads.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// Waits for something that happens elsewhere.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The options of a store in a new schema, with its tables.
async fn fresh(server: &TestPostgres) -> PostgresOptions {
    let options = PostgresOptions::new(&server.url(&server.fresh_schema())).unwrap();
    PostgresStore::migrate(&options).await.unwrap();
    options
}

/// The same store, over a port of loopback.
fn over(server: &TestPostgres, port: u16, options: &PostgresOptions) -> PostgresOptions {
    PostgresOptions::new(&server.url_over(port, &options.schema)).unwrap()
}

/// A connection that belongs to no store, to do what another process would do.
async fn bystander(options: &PostgresOptions) -> connect::ServerConnection {
    Arc::new(Server::new(options.clone()).unwrap()).connect().await.unwrap()
}

fn id(words: &str) -> TaskId {
    TaskKey::named(words).candidate_ids().nth(5).unwrap()
}

fn submission(id: TaskId) -> Batch {
    let (key, team) = (TaskKey::named(id.letters()), TeamRef::Named("team".into()));
    let entry = Entry::Submitted(Box::new(Submission::root(id, key, Order::new("worker", "do it"), team)));
    Batch::one(id, Fence::New, vec![entry])
}

fn claim(worker: &str, max: usize) -> ClaimRequest {
    let teams = vec![TeamRef::Named("team".into())];
    ClaimRequest {
        worker: WorkerId::from(worker),
        teams,
        roots: None,
        fresh_only: false,
        except: vec![],
        max,
    }
}

fn replied(text: &str) -> Entry {
    Entry::Replied(Arc::new(Reply::text_only(text)))
}

fn letter(name: &str) -> Entry {
    Entry::Letter(Box::new(Letter::new(LetterId::from(name), Sender::Person, name.to_owned())))
}

fn stop() -> Vec<Entry> {
    let stop = StopRequest { cause: StopCause::Person, note: None };
    let end = Outcome::Cancelled { stop: stop.clone(), partial: "".into() };
    vec![Entry::StopRequested(stop), Entry::Finished(Box::new(end))]
}

fn owned(task: TaskId, text: &str) -> Batch {
    Batch::one(task, Fence::Attempt(Attempt(1)), vec![replied(text)])
}

/// A new task that a worker runs.
async fn running(store: &PostgresStore, words: &str) -> TaskId {
    let task = id(words);
    store.append(submission(task)).await.unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(600)).await.unwrap();
    let only = ClaimRequest { roots: Some(vec![task]), ..claim("w", 1) };
    assert_eq!(store.claim(only).await.unwrap().len(), 1);
    task
}

/// The texts of the replies in a journal, in order. Checks that its numbers have no gap.
async fn texts(store: &dyn Store, task: TaskId) -> Vec<String> {
    let journal = store.read(task, Seq(0), usize::MAX).await.unwrap();
    assert!(journal.iter().zip(1..).all(|(record, nth)| record.seq == Seq(nth)));
    let text = |record: &Record| match &record.entry {
        Entry::Replied(reply) => Some(reply.text()),
        _ => None,
    };
    journal.iter().filter_map(text).map(|text| text.to_string()).collect()
}
