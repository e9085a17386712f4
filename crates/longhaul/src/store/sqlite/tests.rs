use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::entry::{CallResult, Entry, LiveTextKind, Order, Outcome, Submission, TeamRef};
use crate::id::{Attempt, CallId, TaskKey};
use crate::message::Reply;
use crate::store::{DatabaseFault, Fence};

/// A store in a temporary directory that is removed with the store.
fn in_a_directory(clock: Clock) -> Arc<dyn Store> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let clock = Clock::from_fn(move || {
        let _ = &directory;
        clock.now()
    });
    Arc::new(SqliteStore::open_with(path, SqliteOptions { clock, ..SqliteOptions::default() }).unwrap())
}

mod bad_files;
mod damage;
mod grown;
mod lost;
mod rights;
mod sharing;
mod vacuum;

mod exam {
    crate::store_exam!(super::in_a_directory);
}

fn id(n: usize) -> TaskId {
    TaskKey::named(&n.to_string()).candidate_ids().nth(5).unwrap()
}

fn submission(id: TaskId, text: &str) -> Batch {
    let (key, team) = (TaskKey::named(id.letters()), TeamRef::Named("team".into()));
    let entry = Entry::Submitted(Box::new(Submission::root(id, key, Order::new("worker", text), team)));
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

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("tasks.db")
}

fn hasty() -> SqliteOptions {
    SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() }
}

/// The error about a database; checks that it names the file and says what to do.
fn failure<T: std::fmt::Debug>(answer: Result<T, StoreError>, path: &Path, says: &[&str]) -> bool {
    let Err(StoreError::Database { what, fault }) = answer else { panic!("{answer:?}") };
    assert!(what.contains(&path.display().to_string()), "names the file: {what}");
    for words in says {
        assert!(what.contains(words), "'{words}' in: {what}");
    }
    fault != DatabaseFault::Permanent
}

/// A file with some tasks in it, closed again.
async fn written(path: &Path, tasks: usize) {
    let store = SqliteStore::open(path).unwrap();
    for n in 0..tasks {
        store.append(submission(id(n), &"text ".repeat(400))).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_written_is_there_when_the_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not/there/yet/tasks.db");
    written(&path, 3).await;
    let (states, digest) = {
        let store = SqliteStore::open(&path).unwrap();
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        store.claim(claim("w", 2)).await.unwrap();
        let digest = store.put_blob(b"a team".to_vec()).await.unwrap();
        (store.list(TaskFilter::default()).await.unwrap(), digest)
    };
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.list(TaskFilter::default()).await.unwrap(), states);
    assert_eq!(store.read(id(0), Seq(0), 9).await.unwrap().len(), 2);
    assert_eq!(store.blob(digest).await.unwrap().unwrap(), b"a team");
    assert_eq!(store.claim(claim("v", 9)).await.unwrap().len(), 1);
}

/// References in journals are found when the file is migrated, so no blob is deleted that is still used.
#[tokio::test]
async fn a_file_of_an_earlier_longhaul_loses_nothing_when_it_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 1).await;
    let (states, digest) = {
        let store = SqliteStore::open(&path).unwrap();
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        let mut again = submission(id(1), "once more");
        if let Some(Entry::Submitted(submitted)) = again.writes[0].entries.first_mut() {
            submitted.retries = Some(id(0));
        }
        store.append(again).await.unwrap();
        store.claim(claim("w", 2)).await.unwrap();
        let digest = store.put_blob(b"a long output".to_vec()).await.unwrap();
        let returned = Entry::Returned(Box::new(CallResult {
            whole: Some(digest.clone()),
            ..CallResult::new(CallId { turn: 1, index: 0 }, "a part")
        }));
        let outcome = Outcome::Completed { output: "done".into(), cut_short: None };
        let finished = Entry::Finished(Box::new(outcome));
        store.append(Batch::one(id(0), Fence::Attempt(Attempt(1)), vec![returned])).await.unwrap();
        store.append(Batch::one(id(1), Fence::Attempt(Attempt(1)), vec![finished])).await.unwrap();
        (store.list(TaskFilter::default()).await.unwrap(), digest)
    };
    let back = "DROP INDEX tasks_by_parent_status; CREATE INDEX tasks_by_parent ON tasks(parent); DROP INDEX tasks_by_continues; DROP INDEX tasks_by_retries; DROP INDEX tasks_by_quiet; \
                DROP INDEX tasks_by_created; DROP INDEX tasks_by_agent; DROP INDEX slips_by_task; \
                DROP TABLE loose; DROP TABLE garbage; ALTER TABLE tasks DROP COLUMN continues; \
                ALTER TABLE tasks DROP COLUMN retries; ALTER TABLE tasks DROP COLUMN quiet; DROP TABLE keeps; ALTER TABLE kept DROP COLUMN at; DROP TABLE store; ALTER TABLE workers DROP COLUMN renewals; \
                ALTER TABLE workers DROP COLUMN length; \
                ALTER TABLE journal DROP COLUMN sum; ALTER TABLE tasks DROP COLUMN sum; \
                ALTER TABLE slips DROP COLUMN sum; PRAGMA user_version = 2;";
    Connection::open(&path).unwrap().execute_batch(back).unwrap();

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.list(TaskFilter::default()).await.unwrap(), states);
    assert_eq!(SqliteStore::examine(&path).unwrap().unwrap().problems, Vec::<String>::new());
    let quiet =
        TaskFilter { quiet_before: Some(store.now() + Duration::from_secs(9)), ..TaskFilter::default() };
    assert_eq!(store.ids(quiet).await.unwrap(), [id(1)]);
    let again = TaskFilter { retries: Some(id(0)), ..TaskFilter::default() };
    assert_eq!(store.ids(again).await.unwrap(), [id(1)]);
    store.delete(vec![(id(1), states[1].seq)]).await.unwrap();
    assert_eq!(store.blob(digest).await.unwrap().unwrap(), b"a long output");
}

#[tokio::test]
async fn an_acknowledged_append_has_been_on_disk_and_live_words_have_not_waited_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let synchronous = |store: SqliteStore, durable| async move {
        let (told, level) = std::sync::mpsc::channel();
        let act = Box::new(move |connection: &Connection| {
            told.send(connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0)).unwrap())
                .unwrap();
            Ok(())
        });
        store.writer.request(WriterRequest::Test { durable, act }).await.unwrap();
        (store, level.recv().unwrap())
    };
    let (full, normal) = (2, 1);
    let store = SqliteStore::open(file(&directory)).unwrap();
    for (durable, expected) in [(true, full), (false, normal), (true, full)] {
        let (_, level) = synchronous(SqliteStore::open(file(&directory)).unwrap(), durable).await;
        assert_eq!(level, expected);
    }
    let (store, _) = synchronous(store, false).await;
    let (_, level) = synchronous(store, true).await;
    assert_eq!(level, full, "and back again on the same connection");
    let options = SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(file(&directory), options).unwrap();
    assert_eq!(synchronous(store, true).await.1, normal);

    let ask = |entry| {
        let drafts = WriteDraft::from_batch(Batch::one(id(0), Fence::Anyone, vec![entry]));
        WriterRequest::Append { encoded: vec![], drafts, only_if: Arc::default() }.is_durable()
    };
    assert!(ask(Entry::Replied(Arc::new(Reply::default()))));
    assert!(!ask(Entry::Said { voice: LiveTextKind::Text, text: String::new() }));
    assert!(WriterRequest::PutBlob { digest: Digest::of_bytes(b""), bytes: vec![] }.is_durable());
    assert!(WriterRequest::Claim(claim("w", 1)).is_durable());
}

#[tokio::test]
async fn a_writer_that_fails_leaves_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open(&path).unwrap();
    let act = Box::new(|_: &Connection| panic!("as a fault in Longhaul would"));
    let fault = store.writer.request(WriterRequest::Test { durable: true, act });
    let (fault, beside) = tokio::join!(fault, store.append(submission(id(0), "")));
    failure(fault.map(drop), &path, &["a fault in Longhaul", "start the program again"]);
    failure(beside, &path, &["a fault in Longhaul"]);
    failure(store.append(submission(id(1), "")).await, &path, &["a fault in Longhaul"]);
    assert!(store.list(TaskFilter::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_request_that_breaks_the_transaction_does_not_harm_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open(&path).unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let hold = Box::new(move |_: &Connection| {
        // The second time, when it runs alone, nothing sends.
        let _ = wait.recv();
        Ok(())
    });
    let place = store.place.clone();
    let fail = Box::new(move |_: &Connection| Err(place.error(format_args!("is no good"))));
    let (_, held, good, bad, refused, after) = tokio::join!(
        biased;
        async {
            // Polled last the first time round, when all the others are in the queue.
            tokio::task::yield_now().await;
            drop(go);
        },
        store.writer.request(WriterRequest::Test { durable: false, act: hold }),
        store.append(submission(id(0), "")),
        store.writer.request(WriterRequest::Test { durable: false, act: fail }),
        store.append(Batch::one(id(7), Fence::Anyone, vec![])),
        store.append(submission(id(1), "")),
    );
    assert!(held.is_ok() && good.is_ok() && after.is_ok());
    failure(bad.map(drop), &path, &["is no good"]);
    assert!(matches!(refused, Err(StoreError::NoTask(_))), "{refused:?}");
    assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), 2);
}
