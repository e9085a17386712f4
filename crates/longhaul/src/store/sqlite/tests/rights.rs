//! Only the owner can read the data, and files that are not Longhaul's are not changed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// Everything below a directory that others have permissions for.
fn open_to_others(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut open = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if mode(&path) & 0o077 != 0 {
            open.push((path.clone(), mode(&path)));
        }
        if path.is_dir() {
            open.extend(open_to_others(&path));
        }
    }
    open
}

#[tokio::test]
async fn all_that_is_made_is_the_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/for/tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    store.append(submission(id(0), "")).await.unwrap();
    assert!(with_suffix(&path, "-wal").exists() && with_suffix(&path, "-shm").exists());
    assert!(with_suffix(&path, "-workers").join("w.lock").exists());
    assert_eq!(open_to_others(directory.path()), []);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[tokio::test]
async fn what_an_earlier_longhaul_made_for_all_to_read_is_mended() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let path = data.join("tasks.db");
    {
        let store = SqliteStore::open(&path).unwrap();
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
    }
    let store = SqliteStore::open(&path).unwrap();
    fs::create_dir(data.join("carriers")).unwrap();
    for (name, mode) in [
        ("", 0o755),
        ("tasks.db", 0o644),
        ("tasks.db-wal", 0o644),
        ("tasks.db-shm", 0o644),
        ("tasks.db-workers", 0o755),
    ] {
        fs::set_permissions(data.join(name), Permissions::from_mode(mode)).unwrap();
    }
    let second = SqliteStore::open(&path).unwrap();
    assert_eq!(mode(&data), 0o700);
    for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&data.join("tasks.db-workers")), 0o700);
    drop((store, second));
}

#[tokio::test]
async fn a_directory_that_is_not_ours_alone_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("letter.txt"), "of somebody else").unwrap();
    fs::set_permissions(shared.join("letter.txt"), Permissions::from_mode(0o644)).unwrap();
    for is in [0o755, 0o1777] {
        fs::set_permissions(&shared, Permissions::from_mode(is)).unwrap();
        let store = SqliteStore::open(shared.join("tasks.db")).unwrap();
        store.renew_lease(WorkerId::from("w"), Duration::from_secs(60)).await.unwrap();
        store.append(submission(id(is as usize), "")).await.unwrap();
        assert_eq!(mode(&shared), is);
        assert_eq!(mode(&shared.join("letter.txt")), 0o644);
        let open: Vec<_> = open_to_others(&shared).into_iter().map(|(path, _)| path).collect();
        assert_eq!(open, [shared.join("letter.txt")], "and ours are ours");
    }
}
