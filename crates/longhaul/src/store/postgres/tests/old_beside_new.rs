//! An upgrade, one machine after the other: workers of an older and of a newer Longhaul on one store, both claiming.

use std::collections::HashSet;

use super::crew::{Crew, checked_journal};
use super::*;
use crate::{Longhaul, Order, Status};

async fn start(crew: &Crew, options: &PostgresOptions, newer: bool) -> Longhaul {
    let mut options = options.clone();
    options.mutant = newer.then_some(Mutant::Newer);
    crew.start(Arc::new(PostgresStore::open(options).await.unwrap()), 20).await
}

/// The tasks with entries of the newer format.
async fn newer_tasks(connection: &connect::ServerConnection) -> HashSet<TaskId> {
    let newer = connection.query("SELECT id FROM @.tasks WHERE format > 1", &[]).await.unwrap();
    newer.iter().map(|row| rows::task_id(row, 0).unwrap().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_and_new_workers_share_a_store_and_nothing_fails_for_its_format() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let look = bystander(&options).await;
    let crew = Crew::new(Duration::from_millis(100), |_| tokio::time::sleep(Duration::from_millis(50)));
    let (old, new) = (start(&crew, &options, false).await, start(&crew, &options, true).await);
    let mut tasks = Vec::new();
    for nth in 0..30 {
        let by = if nth % 2 == 0 { &old } else { &new };
        tasks.push(by.submit(Order::new("worker", format!("task {nth}"))).await.unwrap());
    }
    let acts = crew.clone();
    wait_until("all are at work", || acts.calls().0 >= 100).await;
    // The newer one writes to tasks that the older one runs, which gives them back.
    for task in &tasks {
        new.send(*task, "from a newer one").await.unwrap();
    }
    let all = new.list(TaskFilter::default()).await.unwrap();
    let ended: Vec<_> = all.iter().filter(|state| state.status.is_final()).collect();
    assert!(ended.is_empty(), "{ended:#?}");
    assert_eq!(newer_tasks(&look).await.len(), 30);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let claimed = crate::entry::EntryKind::Claimed as i16;
    let by_old = look
        .query("SELECT DISTINCT task FROM @.journal WHERE kind = $1 AND format = 1", &[&claimed])
        .await
        .unwrap();
    assert!(!by_old.is_empty() && by_old.len() < 30, "both have claimed: {}", by_old.len());
    // The newer one drains: its tasks wait for another of its kind, and the older one takes none of them.
    new.shutdown().await;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let waiting = || TaskFilter { status: vec![Status::Pending], ..TaskFilter::default() };
    while store.count(waiting()).await.unwrap() < 30 {
        assert!(std::time::Instant::now() < deadline, "the older one does not give everything back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let another = old.submit(Order::new("worker", "what the older one can do")).await.unwrap();
    let before = crew.calls().0;
    let acts = crew.clone();
    wait_until("the older one works on", || acts.calls().0 >= before + 5).await;
    assert_eq!(store.count(waiting()).await.unwrap(), 30);
    let new = start(&crew, &options, true).await;
    crew.end();
    let all: Vec<TaskId> = tasks.iter().copied().chain([another]).collect();
    tokio::time::timeout(Duration::from_secs(60), new.wait(all)).await.expect("all end").unwrap();
    let (_, twice) = crew.calls();
    assert!(twice.is_empty(), "{twice:?}");
    let mut options = options.clone();
    options.mutant = Some(Mutant::Newer);
    let reader = PostgresStore::open(options).await.unwrap();
    for task in tasks {
        checked_journal(&reader, task).await;
        let state = reader.task_state(task).await.unwrap().unwrap();
        assert!(state.attempt.0 <= 3, "{task} was claimed {} times", state.attempt.0);
    }
    checked_journal(&reader, another).await;
    old.shutdown().await;
    new.shutdown().await;
}
