//! A process that dies is noticed by the others of its machine without waiting for its lease.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_shares_a_directory_with_a_dead_worker_knows_it_at_once() {
    let server = server_or_skip!();
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = fresh(server).await;
    let open = |directory: Option<&tempfile::TempDir>| {
        let locks = directory.map(|directory| directory.path().join("workers"));
        PostgresStore::open(options.clone().worker_locks(locks))
    };
    let owner = open(Some(&here)).await.unwrap();
    let (beside, other, without) =
        (open(Some(&here)).await.unwrap(), open(Some(&elsewhere)).await.unwrap(), open(None).await.unwrap());
    // Its lease is ten minutes long.
    let task = running(&owner, "a").await;
    assert!(beside.abandoned_tasks().await.unwrap().is_empty(), "it lives");
    assert!(owner.abandoned_tasks().await.unwrap().is_empty(), "it does not take itself for dead");
    let mut death = beside.next_dead_worker();
    assert!(futures::poll!(&mut death).is_pending());

    // The kernel closes its files when a process dies.
    drop(owner);
    death.await;
    for blind in [&other, &without] {
        assert!(blind.abandoned_tasks().await.unwrap().is_empty(), "it can only see the lease");
    }
    let found = beside.abandoned_tasks().await.unwrap();
    assert_eq!(found.iter().map(|state| state.id).collect::<Vec<_>>(), [task]);
    let release = Entry::Released { attempt: Attempt(1), why: crate::entry::ReleaseReason::Lost };
    beside.append(Batch::one(task, Fence::Abandoned(Attempt(1)), vec![release])).await.unwrap();
    let left = std::fs::read_dir(here.path().join("workers")).unwrap().count();
    assert_eq!(left, 0, "its file is gone with its lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_retires_leaves_no_file_and_can_come_back() {
    let server = server_or_skip!();
    let directory = tempfile::tempdir().unwrap();
    let options = fresh(server).await.worker_locks(Some(directory.path().to_owned()));
    let (one, two) =
        (PostgresStore::open(options.clone()).await.unwrap(), PostgresStore::open(options).await.unwrap());
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    let task = running(&one, "a").await;
    assert_eq!(files(), 1);
    one.retire_worker(WorkerId::from("w")).await.unwrap();
    assert_eq!(files(), 0);
    assert_eq!(two.abandoned_tasks().await.unwrap().len(), 1, "it has no lease");
    one.renew_lease(WorkerId::from("w"), Duration::from_secs(600)).await.unwrap();
    assert_eq!(files(), 1);
    assert!(two.abandoned_tasks().await.unwrap().is_empty());
    one.append(owned(task, "back")).await.unwrap();
}
