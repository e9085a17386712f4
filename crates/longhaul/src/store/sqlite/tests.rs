use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::entry::{CodecError, Entry, FORMAT, Kind, Order, Release, Submitted, TeamRef, Voice};
use crate::id::{Attempt, TaskKey};
use crate::message::Reply;
use crate::store::{Fence, Hint, Kinds};
use crate::task::Status;

/// A store in a directory that goes away with the store's clock, and so with the store.
fn in_a_directory(clock: Clock) -> Arc<dyn Store> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let clock = Clock::of(move || {
        let _ = &directory;
        clock.now()
    });
    Arc::new(Sqlite::open_with(path, SqliteOptions { clock, ..SqliteOptions::default() }).unwrap())
}

mod exam {
    crate::store_exam!(super::in_a_directory);
}

fn id(n: usize) -> TaskId {
    TaskKey::chosen(&n.to_string()).candidates().nth(5).unwrap()
}

fn submission(id: TaskId, text: &str) -> Batch {
    let entry = Entry::Submitted(Box::new(Submitted {
        key: TaskKey::chosen(id.letters()),
        order: Order::new("worker", text),
        team: TeamRef::Named("team".into()),
        parent: None,
        root: id,
        depth: 0,
        continues: None,
    }));
    Batch::one(id, Fence::New, vec![entry])
}

fn claim(worker: &str, max: usize) -> Claim {
    let teams = vec![TeamRef::Named("team".into())];
    Claim { worker: WorkerId::from(worker), teams, roots: None, fresh: false, max }
}

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("tasks.db")
}

fn hasty() -> SqliteOptions {
    SqliteOptions { patience: Duration::from_millis(20), ..SqliteOptions::default() }
}

/// The trouble with a database; checked to name the file and to say what can be done.
fn trouble<T: std::fmt::Debug>(answer: Result<T, StoreError>, path: &Path, says: &[&str]) -> bool {
    let Err(StoreError::Database { what, passing }) = answer else { panic!("{answer:?}") };
    assert!(what.contains(&path.display().to_string()), "names the file: {what}");
    for words in says {
        assert!(what.contains(words), "'{words}' in: {what}");
    }
    passing
}

/// A file with some tasks in it, closed again.
async fn written(path: &Path, tasks: usize) {
    let store = Sqlite::open(path).unwrap();
    for n in 0..tasks {
        store.append(submission(id(n), &"text ".repeat(400))).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_written_is_there_when_the_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not/there/yet/tasks.db");
    written(&path, 3).await;
    let (heads, digest) = {
        let store = Sqlite::open(&path).unwrap();
        store.renew(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        store.claim(claim("w", 2)).await.unwrap();
        let digest = store.keep(b"a team".to_vec()).await.unwrap();
        (store.list(Filter::default()).await.unwrap(), digest)
    };
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.list(Filter::default()).await.unwrap(), heads);
    assert_eq!(store.read(id(0), Seq(0), 9).await.unwrap().len(), 2);
    assert_eq!(store.kept(digest).await.unwrap().unwrap(), b"a team");
    assert_eq!(store.claim(claim("v", 9)).await.unwrap().len(), 1);
}

#[test]
fn a_file_that_is_not_a_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let text = "Dear diary, today I learned to write.\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert!(!trouble(Sqlite::open(&path), &path, &["is not a database", "give another path"]));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert!(!trouble(Sqlite::open(directory.path()), directory.path(), &["is a directory"]));
    assert!(!trouble(Sqlite::open(path.join("below.db")), &path, &["cannot be made", "another path"]));
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(!trouble(Sqlite::open(&path), &path, &["of another program"]));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_a_newer_longhaul_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 1).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", schema::VERSION as i64 + 1).unwrap();
    assert!(!trouble(Sqlite::open(&path), &path, &["newer Longhaul", "upgrade"]));
}

#[tokio::test]
async fn a_database_that_was_cut_short_is_not_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 40).await;
    let whole = std::fs::metadata(&path).unwrap().len();
    for left in [whole - 4096, whole / 2, 5000, 700] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        trouble(Sqlite::open(&path), &path, &["damaged"]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), left);
    }
}

#[tokio::test]
async fn a_damaged_page_is_an_error_and_not_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 40).await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8192..].fill(0xA5);
    std::fs::write(&path, &bytes).unwrap();
    // Where the damage is noticed depends on what is looked at first.
    let Ok(store) = Sqlite::open(&path) else { return };
    trouble(store.list(Filter::default()).await, &path, &["damaged", "backup"]);
    trouble(store.append(submission(id(99), "")).await, &path, &["damaged"]);
}

#[tokio::test]
async fn an_entry_of_the_future_says_so_and_hides_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 2).await;
    let sql = "UPDATE journal SET format = ?1 WHERE task = 2";
    Connection::open(&path).unwrap().execute(sql, [FORMAT + 1]).unwrap();
    let store = Sqlite::open(&path).unwrap();
    let read = store.read(id(1), Seq(0), 9).await;
    let Err(StoreError::Entry { task, seq: Seq(1), why }) = read else { panic!("{read:?}") };
    assert_eq!((task, why), (id(1), CodecError::Future { format: FORMAT + 1 }));
    assert_eq!(store.read(id(0), Seq(0), 9).await.unwrap().len(), 1);
    assert_eq!(store.list(Filter::default()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_made_again_from_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 2).await;
    let before = Sqlite::open(&path).unwrap().list(Filter::default()).await.unwrap();
    Connection::open(&path).unwrap().execute("UPDATE tasks SET head = '{}'", []).unwrap();
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.list(Filter::default()).await.unwrap(), before);
    let head = &store.claim(claim("w", 1)).await.unwrap()[0];
    assert_eq!(store.head(id(0)).await.unwrap().as_ref(), Some(head));
}

#[tokio::test]
async fn a_locked_file_is_waited_for_and_then_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = Sqlite::open_with(&path, hasty()).unwrap();
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(trouble(store.append(submission(id(0), "")).await, &path, &["locked by another program"]));
    assert_eq!(store.head(id(0)).await.unwrap(), None, "reading goes on");
    holder.execute_batch("ROLLBACK").unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    drop(store);
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    assert!(trouble(Sqlite::open_with(&path, hasty()), &path, &["locked by another program"]));
}

#[tokio::test]
async fn an_acknowledged_append_has_been_on_disk_and_live_words_have_not_waited_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let synchronous = |store: Sqlite, durable| async move {
        let (told, level) = std::sync::mpsc::channel();
        let act = Box::new(move |connection: &Connection| {
            told.send(connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0)).unwrap())
                .unwrap();
            Ok(())
        });
        store.writer.ask(Ask::Test { durable, act }).await.unwrap();
        (store, level.recv().unwrap())
    };
    let (full, normal) = (2, 1);
    let store = Sqlite::open(file(&directory)).unwrap();
    for (durable, expected) in [(true, full), (false, normal), (true, full)] {
        let (_, level) = synchronous(Sqlite::open(file(&directory)).unwrap(), durable).await;
        assert_eq!(level, expected);
    }
    let (store, _) = synchronous(store, false).await;
    let (_, level) = synchronous(store, true).await;
    assert_eq!(level, full, "and back again on the same connection");
    let options = SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() };
    let store = Sqlite::open_with(file(&directory), options).unwrap();
    assert_eq!(synchronous(store, true).await.1, normal);

    let ask = |entry| {
        let drafts = Draft::of(Batch::one(id(0), Fence::Anyone, vec![entry]));
        Ask::Append { encoded: vec![], drafts, only_if: vec![] }.is_durable()
    };
    assert!(ask(Entry::Replied(Arc::new(Reply::default()))));
    assert!(!ask(Entry::Said { voice: Voice::Text, text: String::new() }));
    assert!(Ask::Keep { digest: Digest::of(b""), bytes: vec![] }.is_durable());
    assert!(Ask::Claim(claim("w", 1)).is_durable());
}

#[tokio::test]
async fn a_writer_that_fails_leaves_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = Sqlite::open(&path).unwrap();
    let act = Box::new(|_: &Connection| panic!("as a fault in Longhaul would"));
    let fault = store.writer.ask(Ask::Test { durable: true, act });
    let (fault, beside) = tokio::join!(fault, store.append(submission(id(0), "")));
    trouble(fault.map(drop), &path, &["a fault in Longhaul", "start the program again"]);
    trouble(beside, &path, &["a fault in Longhaul"]);
    trouble(store.append(submission(id(1), "")).await, &path, &["a fault in Longhaul"]);
    assert!(store.list(Filter::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_errand_that_breaks_the_transaction_does_not_harm_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = Sqlite::open(&path).unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let hold = Box::new(move |_: &Connection| {
        // The second time, when it is run alone, there is nobody to wait for.
        let _ = wait.recv();
        Ok(())
    });
    let place = store.place.clone();
    let fail = Box::new(move |_: &Connection| Err(place.wrong(format_args!("is no good"))));
    let (_, held, good, bad, refused, after) = tokio::join!(
        biased;
        async {
            // Polled last the first time round, when all the others are in the queue.
            tokio::task::yield_now().await;
            drop(go);
        },
        store.writer.ask(Ask::Test { durable: false, act: hold }),
        store.append(submission(id(0), "")),
        store.writer.ask(Ask::Test { durable: false, act: fail }),
        store.append(Batch::one(id(7), Fence::Anyone, vec![])),
        store.append(submission(id(1), "")),
    );
    assert!(held.is_ok() && good.is_ok() && after.is_ok());
    trouble(bad.map(drop), &path, &["is no good"]);
    assert!(matches!(refused, Err(StoreError::NoTask(_))), "{refused:?}");
    assert_eq!(store.list(Filter::default()).await.unwrap().len(), 2);
}

/// Waits for a hint about a task. Five seconds are far more than any hint takes.
async fn hint_of(hints: &mut Hints, wanted: TaskId, of: Kind) {
    let search = async {
        loop {
            match hints.next().await {
                Some(Hint::Task { task, kinds, .. }) if task == wanted && kinds.has(Kinds::of([of])) => {
                    return;
                }
                Some(_) => {}
                None => panic!("the store is gone"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), search).await.unwrap();
}

#[tokio::test]
async fn two_handles_on_one_file_see_and_hear_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (Sqlite::open(file(&directory)).unwrap(), Sqlite::open(file(&directory)).unwrap());
    let (mut of_a, mut of_b) = (a.hints(), b.hints());
    for n in 0..3 {
        let (one, other) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        one.append(submission(id(n), "")).await.unwrap();
        assert_eq!(other.read(id(n), Seq(0), 9).await.unwrap().len(), 1);
        hint_of(&mut of_a, id(n), Kind::Submitted).await;
        hint_of(&mut of_b, id(n), Kind::Submitted).await;
        // The other's remembered heads are out of date now.
        let exists = other.append(submission(id(n), "")).await;
        assert!(matches!(exists, Err(StoreError::Exists(_))), "{exists:?}");
    }
    a.claim(claim("a", 3)).await.unwrap();
    let reply =
        |n| Batch::one(id(n), Fence::Attempt(Attempt(1)), vec![Entry::Replied(Arc::new(Reply::default()))]);
    for n in 0..20 {
        let store = if n % 2 == 0 { &a } else { &b };
        assert_eq!(store.append(reply(0)).await.unwrap(), [Seq(n + 3)]);
    }
    // What one writes in between, the other's own hints do not hide.
    a.append(reply(1)).await.unwrap();
    b.append(reply(2)).await.unwrap();
    hint_of(&mut of_b, id(1), Kind::Replied).await;
    hint_of(&mut of_a, id(2), Kind::Replied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_race_for_a_thousand_tasks_and_share_them() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [0, 1].map(|_| Arc::new(Sqlite::open(file(&directory)).unwrap()));
    let submitted = (0..1000).map(|n| stores[0].append(submission(id(n), "")));
    futures::future::try_join_all(submitted).await.unwrap();
    let claimers: Vec<_> = (0..8)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let heads = store.claim(claim(&format!("w{n}"), 7)).await.unwrap();
                    if heads.is_empty() {
                        return mine;
                    }
                    mine.extend(heads.into_iter().map(|h| h.id));
                }
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for claimer in claimers {
        claimed.extend(claimer.await.unwrap());
    }
    assert_eq!(claimed.len(), 1000);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 1000);
    let running = Filter { status: vec![Status::Running], ..Filter::default() };
    assert_eq!(stores[1].list(running).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_worker_whose_process_ends_is_known_to_be_dead_before_its_lease_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let (w, v) = (WorkerId::from("w"), WorkerId::from("v"));
    let lock = beside(&file(&directory), "-workers").join("w.lock");
    let released = || Entry::Released { attempt: Attempt(1), why: Release::Lost };
    let release = || Batch::one(id(0), Fence::Abandoned(Attempt(1)), vec![released()]);

    let mine = Sqlite::open(file(&directory)).unwrap();
    let other = Sqlite::open(file(&directory)).unwrap();
    other.append(submission(id(0), "")).await.unwrap();
    mine.renew(w.clone(), hour).await.unwrap();
    other.renew(v, hour).await.unwrap();
    mine.claim(claim("w", 1)).await.unwrap();
    assert!(lock.exists());
    for store in [&mine, &other] {
        assert!(store.abandoned().await.unwrap().is_empty());
        let refused = store.append(release()).await;
        assert!(matches!(refused, Err(StoreError::Superseded { .. })), "{refused:?}");
    }
    // What the kernel does for a process that is killed: its files are closed.
    drop(mine);
    assert_eq!(other.abandoned().await.unwrap().len(), 1);
    other.append(release()).await.unwrap();
    assert!(!lock.exists(), "nothing is left of it");
    let workers = Connection::open(file(&directory)).unwrap();
    let left: String =
        workers.query_row("SELECT group_concat(id) FROM workers", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "v");
    other.renew(w.clone(), hour).await.unwrap();
    assert!(lock.exists());
    other.retire(w).await.unwrap();
    assert!(!lock.exists());
}

#[tokio::test]
async fn without_a_lock_file_only_the_lease_counts() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(file(&directory)).unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    store.renew(WorkerId::from("w"), Duration::from_secs(3600)).await.unwrap();
    store.claim(claim("w", 1)).await.unwrap();
    drop(store);
    std::fs::remove_dir_all(beside(&file(&directory), "-workers")).unwrap();
    let store = Sqlite::open(file(&directory)).unwrap();
    assert!(store.abandoned().await.unwrap().is_empty());
}

/// A small file system of its own, where this is allowed.
struct Disk(TempDir);

impl Disk {
    fn mount(size: &str) -> Option<Disk> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "longhaul"])
            .arg(directory.path())
            .output();
        if mounted.is_ok_and(|o| o.status.success()) {
            return Some(Disk(directory));
        }
        eprintln!("skipped: this test mounts a file system, which is not permitted here");
        None
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.0.path()).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn on_a_full_disk_appends_are_refused_until_there_is_room_and_nothing_is_lost() {
    let Some(disk) = Disk::mount("2m") else { return };
    let path = file(&disk.0);
    let filler = disk.0.path().join("filler");
    std::fs::write(&filler, vec![1; 700_000]).unwrap();
    let store = Sqlite::open(&path).unwrap();
    let mut stored = 0;
    let refused = loop {
        match store.append(submission(id(stored), &"text ".repeat(5000))).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 500, "the disk is never full");
    };
    assert!(trouble(Err::<(), _>(refused), &path, &["is full", "Free some space"]), "it may pass");
    assert!(store.append(submission(id(stored), &"text ".repeat(5000))).await.is_err(), "it is still full");
    assert_eq!(store.list(Filter::default()).await.unwrap().len(), stored);
    std::fs::remove_file(&filler).unwrap();
    store.append(submission(id(stored), &"text ".repeat(5000))).await.unwrap();
    drop(store);
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.list(Filter::default()).await.unwrap().len(), stored + 1);
    for n in 0..=stored {
        assert_eq!(store.read(id(n), Seq(0), 9).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_read_only_place_is_named() {
    let Some(disk) = Disk::mount("2m") else { return };
    let path = file(&disk.0);
    written(&path, 1).await;
    disk.remount("ro");
    assert!(!trouble(Sqlite::open(&path), &path, &["read-only"]));
    let absent = disk.0.path().join("absent.db");
    trouble(Sqlite::open(&absent), &absent, &["cannot be opened", "write"]);
    disk.remount("rw");
    Sqlite::open(&path).unwrap();
}
