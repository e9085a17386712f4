//! Real processes, in regular operation; `tests/it/crash/guard.rs` covers what happens after a SIGKILL.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::*;

/// Waits until a condition holds that depends on another process.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn command(script: &str) -> std::process::Command {
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).process_group(0);
    command
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// The processes whose environment or command line contains this.
#[cfg(target_os = "linux")]
fn with(what: &str, file: &str) -> Vec<i32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let has = |pid: &i32| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(what)
    };
    pids.filter_map(|name| name.parse().ok()).filter(has).collect()
}

#[cfg(target_os = "linux")]
fn ignores(pid: nix::unistd::Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

#[test]
fn a_guardian_that_guards_nobody_has_no_guardian() {
    assert!(!format!("{:?}", ProcessGuardian::new()).contains("Child"));
}

#[test]
fn a_group_that_is_not_ours_is_refused() {
    let guardian = ProcessGuardian::new();
    for group in [1, 0, -1, -77] {
        assert!(guardian.guard(group).unwrap_err().to_string().contains("no process group of ours"));
    }
}

#[test]
fn whoever_is_left_ends_with_the_last_handle_and_the_guardian_too() {
    let guardian = ProcessGuardian::new();
    let (name, value) = guardian.marker_env().unwrap();
    let mut child = command("trap '' TERM; while :; do sleep 0.05; done").env(name, &value).spawn().unwrap();
    let watched = guardian.guard(id(&child)).unwrap();
    drop(guardian);
    #[cfg(target_os = "linux")]
    until("the guardian", || !with(&value, "cmdline").is_empty());
    assert_eq!(child.try_wait().unwrap(), None);
    drop(watched);
    until("the child's end", || child.try_wait().unwrap().is_some());
    #[cfg(target_os = "linux")]
    assert_eq!((with(&value, "cmdline"), with(&value, "environ")), (vec![], vec![]));
}

#[test]
fn who_is_not_watched_any_more_is_left_alone() {
    let guardian = ProcessGuardian::new();
    // Without the mark, so that only the registration counts.
    let mut let_go = command("exec sleep 1000").spawn().unwrap();
    let mut kept = command("exec sleep 1000").spawn().unwrap();
    drop(guardian.guard(id(&let_go)).unwrap());
    let twice = (guardian.guard(id(&kept)).unwrap(), guardian.guard(id(&kept)).unwrap());
    drop(twice.0);
    std::mem::forget(twice.1);
    // As when this process dies: the pipe closes, and nothing was unregistered.
    let post = &guardian.0;
    post.hang_up();
    until("the end of the one", || kept.try_wait().unwrap().is_some());
    assert_eq!(let_go.try_wait().unwrap(), None, "the other goes on");
    let_go.kill().unwrap();
    let_go.wait().unwrap();
}

#[test]
fn a_guardian_is_deaf_and_one_that_was_killed_is_replaced() {
    let guardian = ProcessGuardian::new();
    let mut child = command("exec sleep 1000").spawn().unwrap();
    let watched = guardian.guard(id(&child)).unwrap();
    let post = &guardian.0;
    let first = post.guardian();
    #[cfg(target_os = "linux")]
    {
        until("it has got to its trap", || ignores(first, Signal::SIGTERM));
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            assert!(ignores(first, signal));
        }
    }
    kill(first, Signal::SIGKILL).unwrap();
    until("another guardian", || {
        let _ = guardian.marker_env().unwrap();
        post.guardian() != first
    });
    std::mem::forget(watched);
    post.hang_up();
    until("the child's end: the second was told of it", || child.try_wait().unwrap().is_some());
}

#[test]
fn a_guardian_that_is_stopped_stops_nobody() {
    let guardian = ProcessGuardian::new();
    let mut child = command("exec sleep 1000").spawn().unwrap();
    let watched = guardian.guard(id(&child)).unwrap();
    let post = &guardian.0;
    let first = post.guardian();
    kill(first, Signal::SIGSTOP).unwrap();
    // More than a pipe holds.
    for _ in 0..20_000 {
        drop(guardian.guard(2_000_000_000).unwrap());
    }
    assert_ne!(post.guardian(), first);
    std::mem::forget(watched);
    post.hang_up();
    until("the child's end", || child.try_wait().unwrap().is_some());
}

fn shell(script: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// The first output of the command; it is then up and running.
async fn says(group: &mut ProcessGroup) -> String {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let mut line = String::new();
    BufReader::new(group.child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    line.trim().to_owned()
}

/// Whether no process of a group is alive. Zombies do not count as alive.
fn is_gone(group: i32) -> bool {
    let members = std::process::Command::new("ps").args(["-A", "-o", "pgid=,stat="]).output().unwrap();
    let members = String::from_utf8(members.stdout).unwrap();
    !members.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(&group.to_string()) && !words.next().unwrap().starts_with('Z')
    })
}

#[tokio::test]
async fn a_group_ends_with_all_it_started_deaf_or_not() {
    let guardian = ProcessGuardian::new();
    for script in [
        "sleep 1000 & echo up; wait",
        "trap '' TERM; (trap '' TERM; sleep 1000) & echo up; sleep 1000",
        "sleep 1000 & echo up; exit 0",
    ] {
        let mut group = ProcessGroup::spawn(shell(script), &guardian).unwrap();
        assert_eq!(says(&mut group).await, "up");
        group.terminate(Duration::from_millis(200)).await;
        assert!(is_gone(group.id()), "{script}");
        assert!(!group.kill().await);
    }
}

#[tokio::test]
async fn a_group_that_is_dropped_is_killed() {
    let guardian = ProcessGuardian::new();
    let mut group =
        ProcessGroup::spawn(shell("trap '' TERM; sleep 1000 & echo up; sleep 1000"), &guardian).unwrap();
    assert_eq!(says(&mut group).await, "up");
    let id = group.id();
    drop(group);
    let begun = Instant::now();
    while !is_gone(id) {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_command_that_is_not_there_is_an_error() {
    let error =
        ProcessGroup::spawn(tokio::process::Command::new("/no/such/command"), &ProcessGuardian::new())
            .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
