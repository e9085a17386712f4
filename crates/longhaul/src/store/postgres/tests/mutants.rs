//! The store, broken on purpose: each break is noticed by the test that is named after what it protects.
//!
//! Each of these is a question that the store answers rightly, and that its mutant fails.

use super::wire::{Between, lose_answers, until_someone_waits};
use super::*;
use crate::store::{CountCondition, TaskFilter};

async fn broken(options: &PostgresOptions, mutant: Option<Mutant>) -> Arc<PostgresStore> {
    let mut options = options.clone();
    options.mutant = mutant;
    Arc::new(PostgresStore::open(options).await.unwrap())
}

/// Another process deletes a task while this one writes to it: nothing of it is left.
async fn delete_while_writing(server: &TestPostgres, mutant: Option<Mutant>) -> Result<(), String> {
    let options = fresh(server).await;
    let store = broken(&options, mutant).await;
    let task = id("deleted");
    store.append(submission(task)).await.unwrap();
    store.append(Batch::one(task, Fence::Anyone, stop())).await.unwrap();
    let other = bystander(&options).await;
    other
        .batch("BEGIN; SELECT 1 FROM @.tasks FOR UPDATE; DELETE FROM @.journal; DELETE FROM @.tasks")
        .await
        .unwrap();
    let writing = {
        let store = store.clone();
        let link = Batch::one(task, Fence::Anyone, vec![Entry::Continued { by: id("next") }]);
        tokio::spawn(async move { store.append(link).await })
    };
    until_someone_waits(&other).await;
    other.batch("COMMIT").await.unwrap();
    let answer = writing.await.unwrap();
    let left = other.query("SELECT 1 FROM @.journal", &[]).await.unwrap().len();
    match answer {
        Err(StoreError::NoTask(_)) if left == 0 => Ok(()),
        answer => Err(format!("{answer:?}, and {left} entries are left")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_the_row_of_its_task() {
    let server = beside_or_skip!();
    delete_while_writing(server, None).await.unwrap();
    let caught = delete_while_writing(server, Some(Mutant::NoRowLock)).await;
    assert!(caught.is_err(), "without row locks this is not noticed");
}

/// Another process submits the last task that a limit allows, and has not committed yet.
async fn submit_at_the_limit(server: &TestPostgres, mutant: Option<Mutant>) -> Result<(), String> {
    let options = fresh(server).await;
    let store = broken(&options, mutant).await;
    store.append(submission(id("template"))).await.unwrap();
    let other = bystander(&options).await;
    other
        .batch(
            "BEGIN; SELECT 1 FROM @.scopes FOR UPDATE; INSERT INTO @.tasks (id, status, team, agent, root, attempt, created, \
             seq, format, fold, state) SELECT 't-00000', status, team, agent, 't-00000', attempt, created, seq, format, fold, \
             state FROM @.tasks",
        )
        .await
        .unwrap();
    let mut batch = submission(id("one too many"));
    let filter = TaskFilter::default();
    batch.only_if = Arc::new([CountCondition { filter, limit: 2, or_fewer: None, what: "tasks" }]);
    let submitting = {
        let store = store.clone();
        tokio::spawn(async move { store.append(batch).await })
    };
    if mutant.is_none() {
        until_someone_waits(&other).await;
    } else {
        // It does not wait for anybody.
        tokio::time::timeout(Duration::from_secs(10), async {
            while !submitting.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .map_err(|_| "it waits".to_owned())?;
    }
    other.batch("COMMIT").await.unwrap();
    match submitting.await.unwrap() {
        Err(StoreError::Limit { limit: 2, .. }) => Ok(()),
        answer => Err(format!("{answer:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_across_two_processes() {
    let server = beside_or_skip!();
    submit_at_the_limit(server, None).await.unwrap();
    assert!(
        submit_at_the_limit(server, Some(Mutant::NoLimitLock)).await.is_err(),
        "without the lock this is not noticed"
    );
}

/// A machine whose clock is wrong by an hour takes nothing from the living, and gives nobody a longer lease.
async fn judge_leases(server: &TestPostgres, mutant: Option<Mutant>) -> Result<(), String> {
    let options = fresh(server).await;
    let (right, wrong) = (broken(&options, None).await, broken(&options, mutant).await);
    let task = running(&right, "leased").await;
    if !wrong.abandoned_tasks().await.unwrap().is_empty() {
        return Err("a living worker is thought to be gone".to_owned());
    }
    let released = Entry::Released { attempt: Attempt(1), why: crate::entry::ReleaseReason::Lost };
    let taken = wrong.append(Batch::one(task, Fence::Abandoned(Attempt(1)), vec![released])).await;
    match taken {
        Err(StoreError::Superseded { .. }) => Ok(()),
        taken => Err(format!("{taken:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_judged_by_the_servers_clock() {
    let server = beside_or_skip!();
    judge_leases(server, None).await.unwrap();
    let caught = judge_leases(server, Some(Mutant::ClientClock(3_600_000))).await;
    assert!(caught.is_err(), "a wrong clock of this machine is not noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_tokens_writes_a_lost_answer_twice() {
    let server = beside_or_skip!();
    assert!(
        lose_answers(server, Between::Nothing, 10, Some(Mutant::NoToken)).await.is_err(),
        "without tokens this is not noticed"
    );
}
