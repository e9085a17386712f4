//! Problems with a file are reported, and nothing is lost.

use std::process::Command;

use super::*;
use crate::entry::{EntryCodecError, FORMAT};

#[test]
fn a_file_that_is_not_a_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let text = "Dear diary, today I learned to write.\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert!(!failure(SqliteStore::open(&path), &path, &["is not a database", "give another path"]));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert!(!failure(SqliteStore::open(directory.path()), directory.path(), &["is a directory"]));
    assert!(!failure(SqliteStore::open(path.join("below.db")), &path, &["is a file", "a directory"]));
    assert!(!failure(
        SqliteStore::open(path.join("a/below.db")),
        &path,
        &["cannot be created", "another path"]
    ));
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(!failure(SqliteStore::open(&path), &path, &["of another program"]));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_a_newer_longhaul_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 1).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", schema::VERSION as i64 + 1).unwrap();
    assert!(!failure(SqliteStore::open(&path), &path, &["newer Longhaul", "upgrade"]));
}

#[tokio::test]
async fn a_database_that_was_cut_short_is_not_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 40).await;
    let whole = std::fs::metadata(&path).unwrap().len();
    for left in [whole - 4096, whole / 2, 5000, 700] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        failure(SqliteStore::open(&path), &path, &["damaged"]);
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
    // Where the damage is noticed depends on what is read first.
    let Ok(store) = SqliteStore::open(&path) else { return };
    failure(store.list(TaskFilter::default()).await, &path, &["damaged", "backup"]);
    failure(store.append(submission(id(99), "")).await, &path, &["damaged"]);
}

/// Makes the second task's journal one of a later version of Longhaul, whose checksums this one does not
/// know.
fn from_the_future(path: &Path) {
    let database = Connection::open(path).unwrap();
    database.execute("UPDATE store SET since = 99", []).unwrap();
    let sql = "UPDATE journal SET format = ?1, sum = NULL WHERE task = 2";
    database.execute(sql, [FORMAT + 1]).unwrap();
}

#[tokio::test]
async fn an_entry_of_the_future_says_so_and_hides_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 2).await;
    from_the_future(&path);
    let store = SqliteStore::open(&path).unwrap();
    let read = store.read(id(1), Seq(0), 9).await;
    let Err(StoreError::BadEntry { task, seq: Seq(1), why }) = read else { panic!("{read:?}") };
    assert_eq!((task, why), (id(1), EntryCodecError::NewerFormat { format: FORMAT + 1 }));
    assert_eq!(store.read(id(0), Seq(0), 9).await.unwrap().len(), 1);
    assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_task_that_cannot_be_read_keeps_no_other_from_being_claimed() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 3).await;
    from_the_future(&path);
    let store = SqliteStore::open(&path).unwrap();
    let claimed: Vec<_> =
        store.claim(claim("w", 9)).await.unwrap().iter().map(|task| task.state.id).collect();
    assert_eq!(claimed, [id(0), id(2)]);
    assert_eq!(
        store.task_state(id(1)).await.unwrap().unwrap().status,
        crate::task::Status::Pending,
        "it waits for who can read it"
    );
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_made_again_from_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    written(&path, 2).await;
    let before = SqliteStore::open(&path).unwrap().list(TaskFilter::default()).await.unwrap();
    Connection::open(&path).unwrap().execute("UPDATE tasks SET head = '{}'", []).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.list(TaskFilter::default()).await.unwrap(), before);
    let state = &store.claim(claim("w", 1)).await.unwrap()[0].state;
    assert_eq!(store.task_state(id(0)).await.unwrap().as_ref(), Some(&**state));
}

#[tokio::test]
async fn a_locked_file_is_waited_for_and_then_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let store = SqliteStore::open_with(&path, hasty()).unwrap();
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(failure(store.append(submission(id(0), "")).await, &path, &["locked by another program"]));
    assert_eq!(store.task_state(id(0)).await.unwrap(), None, "reading goes on");
    holder.execute_batch("ROLLBACK").unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    drop(store);
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    assert!(failure(SqliteStore::open_with(&path, hasty()), &path, &["locked by another program"]));
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
        crate::testing::report_skipped("it mounts a file system, which is not permitted here");
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
    let store = SqliteStore::open(&path).unwrap();
    let mut stored = 0;
    let refused = loop {
        match store.append(submission(id(stored), &"text ".repeat(5000))).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 500, "the disk is never full");
    };
    assert!(failure(Err::<(), _>(refused), &path, &["is full", "Free some space"]), "it may pass");
    assert!(store.append(submission(id(stored), &"text ".repeat(5000))).await.is_err(), "it is still full");
    assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), stored);
    std::fs::remove_file(&filler).unwrap();
    store.append(submission(id(stored), &"text ".repeat(5000))).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), stored + 1);
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
    assert!(!failure(SqliteStore::open(&path), &path, &["read-only"]));
    let absent = disk.0.path().join("absent.db");
    failure(SqliteStore::open(&absent), &absent, &["cannot be opened", "write"]);
    disk.remount("rw");
    SqliteStore::open(&path).unwrap();
}
