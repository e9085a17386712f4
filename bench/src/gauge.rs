//! Reading what a process used.

use std::error::Error;
use std::sync::Arc;

use longhaul::store::{Durability, MemoryStore, SqliteOptions, SqliteStore, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) tasks: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_us: f64,
    pub(crate) peak_kib: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) kib_per_task: f64,
}

impl Measurement {
    pub(crate) fn tasks_per_second(&self) -> f64 {
        self.tasks as f64 / self.seconds
    }
}

/// CPU time of this process so far, in microseconds.
pub(crate) fn cpu_us() -> Result<f64, Box<dyn Error>> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e6 + time.tv_nsec() as f64 / 1e3)
}

/// A value in KiB from /proc/self/status.
pub(crate) fn proc_status_kib(key: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with(key)).ok_or("no such line in /proc/self/status")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

/// The store of a name, and the directory that it is in.
pub(crate) fn open_store(name: &str) -> Result<(Arc<dyn Store>, tempfile::TempDir), Box<dyn Error>> {
    // Not in /tmp, which may be memory: durability costs what the disk costs.
    let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
    let path = dir.path().join("longhaul.db");
    let store: Arc<dyn Store> = match name {
        "memory" => Arc::new(MemoryStore::new()),
        "sqlite" => Arc::new(SqliteStore::open(path)?),
        "sqlite-normal" => {
            Arc::new(SqliteStore::open_with(path, SqliteOptions::default().durability(Durability::Normal))?)
        }
        _ => return Err(format!("no store '{name}'").into()),
    };
    Ok((store, dir))
}

pub(crate) fn disk_bytes(dir: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|f| f.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}
