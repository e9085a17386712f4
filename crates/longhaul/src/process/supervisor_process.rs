//! The helper's side of supervision: runs one command, and becomes the parent of everything that the command
//! leaves behind.
//!
//! A process that leaves its group, starts its own session, clears its environment and whose parent has
//! exited is adopted by the nearest ancestor that asked for it (`PR_SET_CHILD_SUBREAPER`). That is this
//! helper: it ends when none of them is left, which the kernel reports. It is a separate process because the
//! setting applies to all children of a process: Longhaul never changes its own.
//!
//! It reads single bytes from Longhaul (`t`: SIGTERM to all, `k`: SIGKILL to all until none is left; the end
//! of the pipe means that Longhaul is gone, and ends everything), and writes lines: `pid N` or `error N` at
//! the start, `exit STATUS` when the command has exited, `none K` when no process is left and K were killed,
//! or `left N`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};

use super::process_tree::{ProcessInfo, descendants};

/// The first argument that makes a program supervise a command.
pub const SUPERVISE_COMMAND: &str = "supervise-exec";
/// The time between SIGTERM and SIGKILL when Longhaul is gone.
const GRACE: Duration = Duration::from_millis(400);
/// How long to keep trying to kill processes that survive SIGKILL.
const PERSISTENCE: Duration = Duration::from_secs(2);

/// The arguments of the helper.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct SuperviseArgs {
    control: i32,
    status: i32,
    /// A number that all descendants of the command carry as an unused resource limit.
    limit: u64,
    /// The environment variable that marks the command.
    mark: Option<(String, String)>,
    command: Vec<OsString>,
}

/// Runs a command until it and everything that it started has ended: `--control FD --status FD --limit N
/// --mark NAME=VALUE -- PROGRAM ARG…`.
///
/// For the `main` of a program that is a [`ProcessGuardian`](super::ProcessGuardian)'s helper; call it before
/// any thread is started. It returns only on failure, with the reason.
pub fn run_supervisor(args: impl IntoIterator<Item = OsString>) -> String {
    match parse(args).and_then(run) {
        Ok(never) => match never {},
        Err(why) => why.to_string(),
    }
}

/// Why the supervisor cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct SuperviseError(String);

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<SuperviseArgs, SuperviseError> {
    let mut options = SuperviseArgs { control: -1, status: -1, ..SuperviseArgs::default() };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            options.command = args.collect();
            let whole = options.control > 2 && options.status > 2 && !options.command.is_empty();
            return if whole { Ok(options) } else { Err(SuperviseError("something is missing".to_owned())) };
        }
        let value = args.next().and_then(|value| value.into_string().ok()).unwrap_or_default();
        let number =
            || value.parse::<u64>().map_err(|_| SuperviseError(format!("'{value}' is not a number")));
        let fd =
            || number().and_then(|n| i32::try_from(n).map_err(|error| SuperviseError(error.to_string())));
        match arg.to_str() {
            Some("--control") => options.control = fd()?,
            Some("--status") => options.status = fd()?,
            Some("--limit") => options.limit = number()?,
            Some("--mark") => {
                options.mark = value.split_once('=').map(|(name, value)| (name.into(), value.into()))
            }
            _ => return Err(SuperviseError(format!("unknown argument '{}'", arg.display()))),
        }
    }
    Err(SuperviseError("there is no '--' with a command after it".to_owned()))
}

enum Never {}

fn run(options: SuperviseArgs) -> Result<Never, SuperviseError> {
    let failed = |what: &'static str| move |error: std::io::Error| SuperviseError(format!("{what}: {error}"));
    let errno = |what: &'static str| move |error: Errno| SuperviseError(format!("{what}: {error}"));
    // Opened again, the pipes are not inherited by the command; the original descriptors are closed.
    let control =
        File::open(format!("/proc/self/fd/{}", options.control)).map_err(failed("the control pipe"))?;
    let status = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", options.status));
    let status = Arc::new(status.map_err(failed("the status pipe"))?);
    for fd in [options.control, options.status] {
        nix::unistd::close(fd).map_err(errno("a pipe"))?;
    }
    set_child_subreaper(true).map_err(errno("PR_SET_CHILD_SUBREAPER"))?;
    // If this process is killed, the others are found by this limit. If it cannot be set, only that is lost.
    let _ = setrlimit(Resource::RLIMIT_LOCKS, options.limit, options.limit);
    let (program, args) =
        options.command.split_first().ok_or_else(|| SuperviseError("no command was named".to_owned()))?;
    let mut command = Command::new(program);
    command.args(args).envs(options.mark).process_group(0);
    let started = command.spawn();
    let _ = setrlimit(Resource::RLIMIT_LOCKS, 0, 0);
    let main = match started {
        Ok(child) => child.id(),
        Err(error) => {
            send_status(&status, &format!("error {}", error.raw_os_error().unwrap_or(0)));
            std::process::exit(127);
        }
    };
    // Signals to this process are ignored. Only from now on: the command would inherit that.
    let _ = SigSet::all().thread_block();
    send_status(&status, &format!("pid {main}"));
    // Readers of the command's output must see its end.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = (dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null));
    }
    let _ = std::env::set_current_dir("/");
    let killed = Arc::new(AtomicUsize::new(0));
    let listening = {
        let (status, killed) = (status.clone(), killed.clone());
        std::thread::Builder::new().spawn(move || obey_control_pipe(control, &status, &killed))
    };
    listening.map_err(failed("a thread"))?;
    loop {
        match waitpid(Pid::from_raw(-1), None) {
            Ok(WaitStatus::Exited(pid, code)) if is(pid, main) => {
                send_status(&status, &format!("exit {}", code << 8))
            }
            Ok(WaitStatus::Signaled(pid, signal, core)) if is(pid, main) => {
                let raw = signal as i32 | if core { 0x80 } else { 0 };
                send_status(&status, &format!("exit {raw}"));
            }
            Err(Errno::ECHILD) => break,
            _ => {}
        }
    }
    send_status(&status, &format!("none {}", killed.load(Ordering::Relaxed)));
    std::process::exit(0);
}

fn is(pid: Pid, main: u32) -> bool {
    u32::try_from(pid.as_raw()) == Ok(main)
}

/// The reader may be gone.
fn send_status(mut status: &File, line: &str) {
    let _ = status.write_all(format!("{line}\n").as_bytes());
}

/// Follows the commands of Longhaul, and cleans up when the pipe is closed. The whole process ends when no
/// other is left.
fn obey_control_pipe(mut control: File, status: &File, killed: &AtomicUsize) {
    let mut byte = [0];
    loop {
        match control.read(&mut byte) {
            Ok(1) if byte[0] == b't' => terminate(),
            Ok(1) if byte[0] == b'k' => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(1) => {}
            _ => {
                terminate();
                std::thread::sleep(GRACE);
                break;
            }
        }
    }
    let until = Instant::now() + PERSISTENCE;
    let mut nap = Duration::from_micros(200);
    loop {
        // One after another, and again: processes that are started meanwhile are found in the next pass.
        let alive: Vec<ProcessInfo> =
            descendants(std::process::id()).into_iter().filter(|p| !p.dead).collect();
        for process in &alive {
            // Counted before: when the last one is dead, this process ends.
            killed.fetch_add(1, Ordering::Relaxed);
            let _ = kill(process.pid(), Signal::SIGKILL);
        }
        if Instant::now() > until {
            send_status(status, &format!("left {}", alive.len().max(1)));
            std::process::exit(1);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(10));
    }
}

fn terminate() {
    for process in descendants(std::process::id()) {
        let _ = kill(process.pid(), Signal::SIGTERM);
        // A suspended process handles no other signal.
        let _ = kill(process.pid(), Signal::SIGCONT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_told_in_few_words() {
        let options = |words: &str| parse(words.split(' ').map(OsString::from));
        let full = options("--control 7 --status 9 --limit 12 --mark A=b=c -- sh -c --control").unwrap();
        assert_eq!((full.control, full.status, full.limit), (7, 9, 12));
        assert_eq!(full.mark, Some(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(full.command, ["sh", "-c", "--control"]);
        for wrong in [
            "sh",
            "--control 7 -- sh",
            "--control 7 --status 9 --",
            "--control x --status 9 -- sh",
            "--status",
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }
}
