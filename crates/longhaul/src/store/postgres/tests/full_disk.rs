//! A disk that is full: a clear error, nothing lost, and on it goes when there is room.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use super::*;

/// A small file system of its own, where that is allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        is_done(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=24m", "longhaul-test"])
                .arg(directory.path()),
        )
        .then_some(SmallDisk(directory))
    }

    fn grow(&self) {
        assert!(is_done(Command::new("mount").args(["-o", "remount,size=200m"]).arg(self.0.path())));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        assert!(is_done(Command::new("umount").arg(self.0.path())));
    }
}

fn is_done(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Text that does not become smaller.
fn noise(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 100);
    let mut last = Digest::of_bytes(&seed.to_le_bytes());
    while text.len() < bytes {
        text.push_str(last.as_str());
        last = Digest::of_bytes(last.as_str().as_bytes());
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_is_said_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        return crate::testing::report_skipped("a file system cannot be mounted here");
    };
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let owner = std::fs::metadata(server.directory()).unwrap();
    let place: &Path = disk.0.path();
    std::os::unix::fs::chown(place, Some(owner.uid()), Some(owner.gid())).unwrap();
    // The way to it, too, has to be open to the server's user.
    server.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", place.display()));
    server.sql("ALTER DATABASE postgres SET default_tablespace = small");
    let store = PostgresStore::open(fresh(&server).await).await.unwrap();
    let task = running(&store, "grows").await;
    let mut expected = Vec::new();
    let error = loop {
        let text = noise(expected.len(), 1 << 20);
        match store.append(owned(task, &text)).await {
            Ok(_) => expected.push(text),
            Err(error) => break error,
        }
        assert!(expected.len() < 60, "it never is full");
    };
    assert!(matches!(error, StoreError::Database { fault: DatabaseFault::DiskFull, .. }), "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
    assert!(expected.len() > 3);
    assert!(texts(&store, task).await == expected, "what was acknowledged is there, and nothing else");
    disk.grow();
    store.append(owned(task, "on it goes")).await.unwrap();
    expected.push("on it goes".to_owned());
    assert!(texts(&store, task).await == expected);
    drop((store, server));
}
