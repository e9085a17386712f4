//! A database that is removed while in use: this is reported, and nothing breaks.

use std::fs;
use std::time::Instant;

use super::*;

/// Waits until the store reports that it is lost.
async fn lost(store: &SqliteStore) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Store::file_lost(store) {
            Some(error) => return error.to_string(),
            None => assert!(Instant::now() < deadline, "nobody noticed"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Merges the log into the database.
async fn checkpoint(store: &SqliteStore) {
    let act = Box::new(|connection: &Connection| {
        connection.execute_batch("COMMIT").unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Ok(())
    });
    store.writer.request(WriterRequest::Test { durable: false, act }).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_taken_away_is_noticed_and_what_runs_goes_on() {
    type Act = fn(&Path);
    let ways: [(&str, Act); 6] = [
        ("was deleted or moved away", |path| fs::remove_file(path).unwrap()),
        ("was deleted or moved away", |path| fs::rename(path, path.with_extension("moved")).unwrap()),
        ("was deleted or moved away", |path| fs::remove_dir_all(path.parent().unwrap()).unwrap()),
        ("was replaced by another file", |path| {
            let other = path.with_extension("other");
            fs::copy(path, &other).unwrap();
            fs::rename(other, path).unwrap();
        }),
        ("has lost its log", |path| fs::remove_file(with_suffix(path, "-wal")).unwrap()),
        ("has lost the index of its log", |path| fs::remove_file(with_suffix(path, "-shm")).unwrap()),
    ];
    for (says, act) in ways {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/tasks.db");
        let store = SqliteStore::open(&path).unwrap();
        let _hints = store.hints();
        store.append(submission(id(0), "")).await.unwrap();
        assert!(Store::file_lost(&store).is_none());
        act(&path);
        let told = lost(&store).await;
        assert!(told.contains(says) && told.contains("tasks.db"), "{told}");
        store.append(submission(id(1), "")).await.unwrap();
        assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), 2, "{says}");
    }
}

#[tokio::test]
async fn connections_that_are_opened_later_do_not_read_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (file(&directory), directory.path().join("away.db"));
    written(&away, 3).await;
    for replaced in [false, true] {
        let store = SqliteStore::open(&path).unwrap();
        store.append(submission(id(0), "")).await.unwrap();
        if replaced {
            fs::rename(&away, &path).unwrap();
        }
        let reads = (0..50).map(|_| store.list(TaskFilter::default()));
        for found in futures::future::try_join_all(reads).await.unwrap() {
            assert_eq!(found.iter().map(|task| task.id).collect::<Vec<_>>(), [id(0)]);
        }
        for n in 0..9 {
            assert_eq!(store.task_state(id(n)).await.unwrap().is_some(), n == 0);
        }
        let (threads, glances) = store.readers.connections();
        assert_eq!((threads > 1, glances), (!replaced, !replaced));
        drop(store);
        for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
            let _ = fs::remove_file(directory.path().join(name));
        }
    }
}

#[tokio::test]
async fn a_file_that_is_written_over_in_place_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (file(&directory), directory.path().join("backup"));
    written(&path, 1).await;
    fs::copy(&path, &backup).unwrap();
    written(&directory.path().join("other"), 3).await;
    for over in ["backup", "other"] {
        let store = SqliteStore::open(&path).unwrap();
        let _hints = store.hints();
        for n in 10..20 {
            let _ = store.append(submission(id(n), "")).await;
        }
        // The content of the log would hide it.
        checkpoint(&store).await;
        fs::copy(directory.path().join(over), &path).unwrap();
        let told = lost(&store).await;
        assert!(told.contains("overwritten"), "{over}: {told}");
        drop(store);
        for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
            let _ = fs::remove_file(directory.path().join(name));
        }
        fs::copy(&backup, &path).unwrap();
    }
}

#[tokio::test]
async fn what_two_processes_do_to_a_file_is_not_taken_for_its_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let one = SqliteStore::open(&path).unwrap();
    let _hints = one.hints();
    for n in 0..40 {
        let other = SqliteStore::open(&path).unwrap();
        other.append(submission(id(n), &"text ".repeat(2000))).await.unwrap();
        checkpoint(&other).await;
        drop(other);
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(Store::file_lost(&one).is_none(), "{:?}", Store::file_lost(&one));
    }
}
