//! The server is away for longer than a lease, while real workers run tasks on it.

use jiff::SignedDuration;

use super::crew::{Crew, checked_journal};
use super::*;
use crate::Order;
use crate::entry::ReleaseReason;

const TASKS: usize = 200;

/// Nothing fails, nothing is taken from the living, nothing is there twice, and everything goes on within five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn long_a_server_that_is_away_for_20_seconds_fails_and_doubles_nothing() {
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let options = fresh(&server).await;
    let crew = Crew::new(Duration::from_millis(700), |_| tokio::time::sleep(Duration::from_millis(300)));
    let mut workers = Vec::new();
    for _ in 0..3 {
        let store = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
        workers.push(crew.start(store, TASKS / 3 + 1).await);
    }
    let mut tasks = Vec::new();
    for nth in 0..TASKS {
        tasks.push(workers[nth % 3].submit(Order::new("worker", format!("task {nth}"))).await.unwrap());
    }
    let acts = crew.clone();
    wait_until("every task has called twice", || acts.calls().0 >= 2 * TASKS).await;
    tokio::task::block_in_place(|| server.stop());
    tokio::time::sleep(Duration::from_secs(20)).await;
    tokio::task::block_in_place(|| server.start_again());
    let back = Timestamp::now();
    // Long enough for those who were late to be late.
    tokio::time::sleep(Duration::from_secs(8)).await;
    crew.end();
    let ended = tokio::time::timeout(Duration::from_secs(120), workers[0].wait(tasks.clone())).await;
    ended.expect("all end").unwrap();
    let (calls, twice) = crew.calls();
    assert!(twice.is_empty(), "these calls were made twice: {twice:?}");
    let store = PostgresStore::open(options).await.unwrap();
    let (mut attempts, mut slowest) = (0, SignedDuration::ZERO);
    for task in tasks {
        let journal = checked_journal(&store, task).await;
        for record in &journal {
            let taken = matches!(record.entry, Entry::Released { why: ReleaseReason::Lost, .. });
            assert!(!taken, "{task} was taken from the living: {journal:#?}");
        }
        // Something that a run has written, not the release.
        let works = |record: &&Record| {
            record.at > back
                && matches!(record.entry, Entry::Replied(_) | Entry::Returned(_) | Entry::Called { .. })
        };
        let first =
            journal.iter().find(works).unwrap_or_else(|| panic!("{task} did not go on: {journal:#?}"));
        slowest = slowest.max(first.at.duration_since(back));
        attempts += store.task_state(task).await.unwrap().unwrap().attempt.0;
    }
    println!(
        "{TASKS} tasks, {attempts} attempts, {calls} calls, the last went on {slowest:?} after the server was back"
    );
    assert!(slowest < SignedDuration::from_secs(5), "the last went on after {slowest:?}");
    for worker in workers {
        worker.shutdown().await;
    }
}
