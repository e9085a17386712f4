use super::*;

/// A store with some large ended tasks.
async fn filled(path: &Path) -> (SqliteStore, Vec<(TaskId, Seq)>) {
    let store = SqliteStore::open(path).unwrap();
    let mut tasks = Vec::new();
    for n in 0..60 {
        let entries = submission(id(n), &"word ".repeat(20_000));
        store.append(entries).await.unwrap();
        let stop = crate::entry::StopRequest { cause: crate::entry::StopCause::Person, note: None };
        let outcome = Outcome::Cancelled { stop: stop.clone(), partial: "".into() };
        let ends = vec![Entry::StopRequested(stop), Entry::Finished(Box::new(outcome))];
        let seq = store.append(Batch::one(id(n), Fence::Anyone, ends)).await.unwrap()[0];
        tasks.push((id(n), seq));
    }
    (store, tasks)
}

#[tokio::test]
async fn a_vacuum_gives_back_what_was_deleted_while_others_have_the_file_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    assert_eq!(SqliteStore::vacuum(&path).unwrap(), None);
    assert!(!path.exists(), "nothing was begun");
    let (store, tasks) = filled(&path).await;
    let other = SqliteStore::open(&path).unwrap();
    // Another process runs tasks.
    other.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    let _hints = other.hints();
    store.delete(tasks[..50].to_vec()).await.unwrap();
    let health = SqliteStore::examine(&path).unwrap().unwrap();
    assert!(health.free > 2_000_000, "what is deleted stays with the file: {health:?}");

    let vacuumed = SqliteStore::vacuum(&path).unwrap().unwrap();
    let size = path.metadata().unwrap().len();
    assert!(vacuumed.freed() > 2_000_000 && vacuumed.after < 4_000_000, "{vacuumed:?}");
    assert!(size <= vacuumed.after, "{size} {vacuumed:?}");
    let health = SqliteStore::examine(&path).unwrap().unwrap();
    assert_eq!((health.free, health.problems, health.workers), (0, Vec::new(), 1));

    // Both continue, with all their data.
    for store in [&store, &other] {
        assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), 10);
        assert_eq!(store.read(tasks[55].0, Seq(0), 100).await.unwrap().len(), 3);
    }
    other.append(submission(id(99), "more")).await.unwrap();
    assert!(store.task_state(id(99)).await.unwrap().is_some());
    assert!(other.file_lost().is_none(), "it is the same file");
}
