//! Nothing that a command starts outlives it, its task or Longhaul, whatever it does to get away: real processes, with the
//! command as the helper that supervises them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use longhaul::process::{LeftoverProcesses, ProcessGroup, ProcessGuardian};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::kit::Kit;

/// Ways to get away. Each writes the id of the process that wants to survive to `pids`, and goes on.
const AWAY: [(&str, &str); 9] = [
    ("a session of its own and no environment", "env -i setsid sh -c 'echo $$ >>pids; exec sleep 1000' &"),
    ("a double fork", "(setsid env -i sh -c 'echo $$ >>pids; sleep 1000' &) &"),
    (
        "nohup and deaf",
        "nohup setsid env -i sh -c 'trap \"\" TERM HUP INT; echo $$ >>pids; while :; do sleep 0.1; done' >/dev/null 2>&1 &",
    ),
    ("no pipes", "env -i setsid sh -c 'exec <&- >/dev/null 2>&1; echo $$ >>pids; exec sleep 1000' &"),
    ("stopped", "env -i setsid sh -c 'echo $$ >>pids; kill -STOP $$; sleep 1000' &"),
    (
        "two sessions deep",
        "env -i setsid sh -c 'setsid sh -c \"echo \\$\\$ >>pids; exec sleep 1000\" & exit' &",
    ),
    (
        "a daemon whose parent is gone",
        "env -i sh -c 'setsid sh -c \"echo \\$\\$ >>pids; exec sleep 1000\" & exit 0'",
    ),
    (
        "forks again and again",
        "env -i setsid sh -c 'echo $$ >>pids; i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; wait' &",
    ),
    (
        "forks when it is told to end",
        "env -i setsid sh -c 'trap \"sleep 1000 & sleep 1000 &\" TERM; echo $$ >>pids; while :; do sleep 0.05; done' &",
    ),
];

/// One that waits until what wants to get away is there.
fn script(away: &str, after: &str) -> String {
    format!("{away}\nwhile ! [ -s pids ]; do sleep 0.01; done; {after}")
}

fn guardian() -> ProcessGuardian {
    ProcessGuardian::new().helper(env!("CARGO_BIN_EXE_longhaul"))
}

fn start(dir: &Path, script: &str, guardian: &ProcessGuardian) -> ProcessGroup {
    ProcessGroup::start("/bin/sh", guardian, |command| {
        command.args(["-c", script]).current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
    })
    .unwrap()
}

/// Waits for a line of the command's.
async fn says(group: &mut ProcessGroup, what: &str) {
    let mut lines = BufReader::new(group.child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line == what {
            return;
        }
    }
    panic!("it did not say '{what}'");
}

fn pids(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("pids")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Whether a process lives; one that is dead and waits for its parent does not.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Every process that works in a directory.
fn working_in(dir: &Path) -> Vec<i32> {
    let dir = dir.canonicalize().unwrap();
    let ids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|id: &i32| fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == dir) && lives(*id))
        .collect()
}

fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_end_of_its_command() {
    let guardian = guardian();
    for (way, away) in AWAY {
        let dir = TempDir::new().unwrap();
        let mut group = start(dir.path(), &script(away, "exit 3"), &guardian);
        assert_eq!(group.wait_for_exit().await.unwrap().code(), Some(3), "{way}");
        assert!(group.kill().await, "{way}: somebody was left");
        assert_eq!(group.leftover(), LeftoverProcesses::None, "{way}");
        assert_eq!(working_in(dir.path()), [0; 0], "{way}");
        assert!(!pids(dir.path()).into_iter().any(lives), "{way}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_stop() {
    let guardian = guardian();
    for (way, away) in AWAY {
        let dir = TempDir::new().unwrap();
        let mut group = start(dir.path(), &script(away, "echo up; trap '' TERM; sleep 1000"), &guardian);
        says(&mut group, "up").await;
        let begun = Instant::now();
        group.terminate(Duration::from_millis(300)).await;
        assert!(begun.elapsed() < Duration::from_secs(4), "{way}: {:?}", begun.elapsed());
        assert_eq!(group.leftover(), LeftoverProcesses::None, "{way}");
        assert_eq!(working_in(dir.path()), [0; 0], "{way}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_group_that_is_dropped() {
    let guardian = guardian();
    for (way, away) in AWAY {
        let dir = TempDir::new().unwrap();
        let mut group = start(dir.path(), &script(away, "echo up; sleep 1000"), &guardian);
        says(&mut group, "up").await;
        drop(group);
        until(way, Duration::from_secs(5), || working_in(dir.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_stopped_or_killed_leaks_nothing_and_that_is_said() {
    let guardian = guardian();
    for (way, away) in AWAY {
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            let dir = TempDir::new().unwrap();
            let mut group = start(dir.path(), &script(away, "echo up; sleep 1000"), &guardian);
            says(&mut group, "up").await;
            let supervisor = Pid::from_raw(group.child.id().unwrap().try_into().unwrap());
            kill(supervisor, signal).unwrap();
            group.terminate(Duration::from_millis(50)).await;
            assert_eq!(working_in(dir.path()), [0; 0], "{way}, {signal}");
            let known =
                if signal == Signal::SIGSTOP { LeftoverProcesses::None } else { LeftoverProcesses::Unknown };
            assert_eq!(group.leftover(), known, "{way}, {signal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervised_command_is_started_as_any_other() {
    let guardian = guardian();
    let dir = TempDir::new().unwrap();
    // Its exit code, or what killed it.
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("kill -9 $$", None, Some(9)),
        ("kill -TERM $$", None, Some(15)),
    ] {
        use std::os::unix::process::ExitStatusExt as _;
        let mut group = start(dir.path(), script, &guardian);
        let status = group.wait_for_exit().await.unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert!(!group.kill().await, "{script}: nobody was left");
        assert_eq!(group.leftover(), LeftoverProcesses::None, "{script}");
    }
    // A clean signal mask, no file but those that it would have anyway, its own group, and the environment that it was given.
    let look = "grep SigBlk /proc/self/status >seen; ls /proc/self/fd >>seen; \
                [ $(ps -o pgid= -p $$) = $$ ] && echo own >>seen; env | grep -v ^LONGHAUL_GUARD= | sort >>seen; \
                [ -n \"$LONGHAUL_GUARD\" ] && echo marked >>seen";
    let mut seen = Vec::new();
    for guardian in [&guardian, &ProcessGuardian::new()] {
        let mut group = start(dir.path(), look, guardian);
        assert!(group.wait_for_exit().await.unwrap().success());
        seen.push(fs::read_to_string(dir.path().join("seen")).unwrap());
    }
    assert_eq!(seen[0], seen[1], "as without a supervisor");
    assert!(seen[0].contains("\nown\n") && seen[0].ends_with("marked\n"), "{}", seen[0]);
    // Who is not there is not found.
    let missing = ProcessGroup::start("/no/such/command", &guardian, |_| ()).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let forbidden = ProcessGroup::start("/etc/passwd", &guardian, |_| ()).unwrap_err();
    assert_eq!(forbidden.kind(), std::io::ErrorKind::PermissionDenied);
    // The end of what it writes is seen at once.
    let mut group = start(dir.path(), "echo up", &guardian);
    let begun = Instant::now();
    let mut all = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut group.child.stdout.take().unwrap(), &mut all).await.unwrap();
    assert_eq!(all, "up\n");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_supervisor_it_is_said_what_is_not_known() {
    let dir = TempDir::new().unwrap();
    let mut group = start(dir.path(), "exit 0", &ProcessGuardian::new());
    group.wait_for_exit().await.unwrap();
    group.kill().await;
    assert_eq!(group.leftover(), LeftoverProcesses::Unknown);
}

/// As with `systemd-run`, `at` or `docker run`: whoever starts it is not the command.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_program_starts_for_a_command_belongs_to_that_program() {
    let dir = TempDir::new().unwrap();
    assert!(std::process::Command::new("mkfifo").arg(dir.path().join("orders")).status().unwrap().success());
    let mut service = std::process::Command::new("/bin/sh");
    service.args(["-c", "read order <orders; sh -c \"$order\" & wait"]).current_dir(dir.path());
    let mut service = service.spawn().unwrap();
    let order = "echo 'echo $$ >>pids; exec sleep 1000' >orders; while ! [ -s pids ]; do sleep 0.01; done";
    let mut group = start(dir.path(), order, &guardian());
    assert!(group.wait_for_exit().await.unwrap().success());
    assert!(!group.kill().await, "of its own nobody was left");
    assert_eq!(group.leftover(), LeftoverProcesses::None);
    let started = pids(dir.path());
    assert!(started.iter().copied().all(lives) && started.len() == 1);
    kill(Pid::from_raw(started[0]), Signal::SIGKILL).unwrap();
    service.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_supervisor_who_clears_its_environment_gets_away() {
    let dir = TempDir::new().unwrap();
    let mut group = start(dir.path(), &script(AWAY[0].1, "exit 0"), &ProcessGuardian::new());
    assert!(group.wait_for_exit().await.unwrap().success());
    group.kill().await;
    let away = pids(dir.path());
    assert!(away.iter().copied().all(lives) && away.len() == 1, "the page says so");
    kill(Pid::from_raw(away[0]), Signal::SIGKILL).unwrap();
}

/// A run of the whole command whose tool gets away, and the process that did.
fn run(way: &str, away: &str, tool: &str) -> (Kit, crate::kit::Running, PathBuf) {
    let kit = Kit::new();
    let cmd = script(away, "sleep 1000");
    let ground = kit.ground.path().to_owned();
    fs::write(ground.join("away.sh"), cmd).unwrap();
    let (toolset, call) = match tool {
        "shell" => ("{type: shell}", r#"{ tool: shell, arguments: { cmd: "sh away.sh", timeout: 300 } }"#),
        "job" => ("{type: shell}", r#"{ tool: run_background_job, arguments: { cmd: "sh away.sh" } }"#),
        "mcp" => ("{type: mcp, command: sh, args: [away.sh]}", "{ tool: none, arguments: {} }"),
        "hook" => ("{type: shell}", "{ tool: none, arguments: {} }"),
        _ => ("{type: script, shell: {away: {cmd: sh away.sh}}}", "{ tool: away, arguments: {} }"),
    };
    let hook =
        if tool == "hook" { "    hooks: {task_start: [{command: sh away.sh, timeout: 300}]}\n" } else { "" };
    let team = format!("agents:\n  root:\n    model: scripted/play.yaml\n{hook}    toolsets: [{toolset}]\n");
    fs::write(ground.join("team.yaml"), team).unwrap();
    let play = format!(
        "agents:\n  root:\n    turns:\n      - calls: [{call}]\n      - calls: [{{ tool: shell, arguments: {{ cmd: 'sleep 300', timeout: 300 }} }}]\n      - text: done\n"
    );
    fs::write(ground.join("play.yaml"), play).unwrap();
    let running = kit.started(kit.command(&["run", "team.yaml", "--yolo", "go"]));
    until(way, Duration::from_secs(30), || !pids(&ground).is_empty());
    (kit, running, ground)
}

#[test]
fn nothing_outlives_longhaul_killed_with_sigkill() {
    for tool in ["shell", "job", "script", "hook", "mcp"] {
        let (way, away) = AWAY[0];
        let (_kit, running, ground) = run(way, away, tool);
        running.murder();
        until(tool, Duration::from_secs(5), || working_in(&ground).is_empty());
        assert!(!pids(&ground).into_iter().any(lives), "{tool}");
    }
    for (way, away) in &AWAY[1..] {
        let (_kit, running, ground) = run(way, away, "shell");
        running.murder();
        until(way, Duration::from_secs(5), || working_in(&ground).is_empty());
    }
}

/// One command after another, with a supervisor and without: `cargo test … --release -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, for a release build"]
async fn what_supervision_costs() {
    let dir = TempDir::new().unwrap();
    for (what, guardian) in [
        ("without", ProcessGuardian::new()),
        ("with", guardian()),
        ("without", ProcessGuardian::new()),
        ("with", guardian()),
    ] {
        let begun = Instant::now();
        for _ in 0..100 {
            let mut group = start(dir.path(), "exit 0", &guardian);
            group.wait_for_exit().await.unwrap();
            group.kill().await;
        }
        println!("{what} a supervisor: {:?} a command", begun.elapsed() / 100);
    }
}
