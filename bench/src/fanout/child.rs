//! What a process used, measured by a parent that has no other child.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::store_counts::StoreCounts;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProcessUsage {
    pub(super) seconds: f64,
    /// CPU time of all its threads, in user and system mode.
    pub(super) cpu_us: f64,
    pub(super) peak_kib: i64,
    /// What its store did, if it says so.
    #[serde(default)]
    pub(super) store: Option<StoreCounts>,
}

/// Runs a program in `dir`, and returns what it used. It must succeed.
pub(super) fn measure_child(
    program: &Path,
    args: &[&str],
    dir: &Path,
) -> Result<ProcessUsage, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    command.arg("--spawn").arg(program).args(args).current_dir(dir).stdin(Stdio::null());
    let output = command.output()?;
    if !output.status.success() {
        return Err(
            format!("{} {args:?}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    let store =
        String::from_utf8_lossy(&output.stderr).lines().find_map(|line| serde_json::from_str(line).ok());
    Ok(ProcessUsage { store, ..serde_json::from_slice(&output.stdout)? })
}

/// The process between: its only child is the measured one.
pub(crate) fn spawn_and_measure(program: &str, args: &[&str]) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    // A pipe, as programs read it; not a file, which would cost less.
    let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn()?;
    if let Some(mut out) = child.stdout.take() {
        std::io::copy(&mut out, &mut std::io::sink())?;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("it ended with {status}").into());
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    let usage = ProcessUsage {
        seconds,
        cpu_us: micros(used.user_time()) + micros(used.system_time()),
        peak_kib: used.max_rss(),
        store: None,
    };
    println!("{}", serde_json::to_string(&usage)?);
    Ok(())
}
