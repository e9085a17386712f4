//! Another server takes over.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::crew::{Crew, checked_journal};
use super::restarts::write_through;
use super::*;
use crate::{Longhaul, Order};

/// The address of whichever of two servers takes writes.
fn both(primary: &TestPostgres, replica: &TestPostgres) -> PostgresOptions {
    let (user, password) = (TestPostgres::USER, TestPostgres::PASSWORD);
    let (one, other) = (primary.port(), replica.port());
    let schema = primary.fresh_schema();
    let url =
        format!("postgres://{user}:{password}@127.0.0.1:{one},127.0.0.1:{other}/postgres?schema={schema}");
    PostgresOptions::new(&url).unwrap()
}

/// Asks a server until it answers this.
async fn until_it_says(server: &TestPostgres, sql: &str, wanted: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while server.sql(sql) != wanted {
        assert!(std::time::Instant::now() < deadline, "not {wanted}: {sql}\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The primary is killed, and its synchronous replica takes over: all that was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_replica_that_takes_over_has_everything() {
    let Some(primary) = TestPostgres::start(&["wal_level=replica"]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let replica = primary.start_replica(&[]);
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
    until_it_says(&primary, synchronous, "1").await;
    let options = both(&primary, &replica);
    PostgresStore::migrate(&options).await.unwrap();
    write_through(&primary, &options, 200, |primary| {
        primary.kill();
        replica.promote();
    })
    .await;
}

/// The last entries never reached the replica that takes over, and their writers live on: each of them notices, ends, and
/// the task is claimed anew from what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_last_entries_a_failover_lost_ends_and_its_task_is_claimed_anew() {
    const TASKS: u32 = 20;
    let Some(primary) = TestPostgres::start(&["wal_level=replica"]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let replica = primary.start_replica(&[]);
    let options = both(&primary, &replica);
    PostgresStore::migrate(&options).await.unwrap();
    let gates: Arc<[Semaphore; 2]> = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
    let came = Arc::new(AtomicUsize::new(0));
    let (open, count) = (gates.clone(), came.clone());
    let crew = Crew::new(Duration::ZERO, move |context| {
        let (open, count) = (open.clone(), count.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            open[0].acquire().await.unwrap().forget();
            // A live entry, which does not wait for the disk.
            context.progress("halfway");
            open[1].acquire().await.unwrap().forget();
        }
    });
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
    let longhaul = crew.start(store.clone(), TASKS as usize).await;
    let mut tasks = Vec::new();
    for nth in 0..TASKS {
        tasks.push(longhaul.submit(Order::new("worker", format!("task {nth}"))).await.unwrap());
    }
    wait_until("all tools run", || came.load(Ordering::SeqCst) == TASKS as usize).await;
    // All of that reaches the replica, and nothing after it.
    let end = primary.sql("SELECT pg_current_wal_flush_lsn()");
    until_it_says(&replica, &format!("SELECT pg_last_wal_replay_lsn() >= '{end}'"), "t").await;
    replica.sql("ALTER SYSTEM SET primary_conninfo = ''");
    replica.sql("SELECT pg_reload_conf()");
    until_it_says(&primary, "SELECT count(*) FROM pg_stat_replication", "0").await;
    gates[0].add_permits(TASKS as usize);
    let before = until_all_progressed(&longhaul, &tasks).await;
    primary.kill();
    tokio::task::block_in_place(|| replica.promote());
    crew.end();
    gates[1].add_permits(TASKS as usize);
    let ended = tokio::time::timeout(Duration::from_secs(60), longhaul.wait(tasks.clone())).await;
    ended.expect("all go on").unwrap();
    let (calls, twice) = crew.calls();
    assert!(calls == TASKS as usize && twice.is_empty(), "{calls} calls, twice: {twice:?}");
    for (task, before) in tasks.into_iter().zip(before) {
        let journal = checked_journal(&*store, task).await;
        let live = journal.iter().filter(|record| record.entry.is_live()).count();
        assert_eq!(live, 0, "{task}: the failover has lost what was live: {before} entries");
        let state = store.task_state(task).await.unwrap().unwrap();
        assert_eq!(state.attempt, Attempt(2), "{journal:#?}");
    }
    longhaul.shutdown().await;
}

/// Until each task has told how far it is. Returns how long the journals are.
async fn until_all_progressed(longhaul: &Longhaul, tasks: &[TaskId]) -> Vec<u64> {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let states = longhaul.list(TaskFilter::default()).await.unwrap();
        if states.len() == tasks.len() && states.iter().all(|state| state.progress.is_some()) {
            return states.iter().map(|state| state.seq.0).collect();
        }
        assert!(std::time::Instant::now() < deadline, "{states:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
