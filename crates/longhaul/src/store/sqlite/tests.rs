use std::sync::Arc;

use super::*;

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
