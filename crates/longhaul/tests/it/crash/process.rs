//! Processes: started, waited for with an end, and known to be dead.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that tells a process its role: `["ROLE", "DIR", …]`.
pub(crate) const CHILD: &str = "LONGHAUL_CRASH_CHILD";

/// How long anything may take before the test calls it hung.
pub(crate) const HUNG: Duration = Duration::from_secs(90);

/// Waits until something holds; what, is said if it never does.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HUNG, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Adds a line to a file; it is on disk when this returns, and whole: lines of two writers do not mix.
pub(crate) fn write_line(path: &Path, line: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
    file.sync_data().unwrap();
}

/// The lines of a file; none, if it is not there.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Where each process writes that it has started.
pub(crate) fn generations(dir: &Path) -> PathBuf {
    dir.join("generations")
}

/// A process that plays a role. Killed when it is dropped.
pub(crate) struct Player {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    what: String,
}

impl Player {
    /// Starts one, and returns when it has said that it lives.
    pub(crate) fn start(role: &str, dir: &Path, args: &[&str]) -> Player {
        let log = std::fs::File::options().create(true).append(true).open(dir.join("stderr")).unwrap();
        let before = lines(&generations(dir)).len();
        let part: Vec<&str> = [role, dir.to_str().unwrap()].iter().chain(args).copied().collect();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_process", "--ignored", "--nocapture"])
            .env(CHILD, serde_json::to_string(&part).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let what = format!("{role} {args:?} in {}", dir.display());
        let mut player = Player { child, input, output: BufReader::new(output), what };
        // The harness of the tests says something first.
        while player.next_line().unwrap_or_else(|| panic!("{} did not start", player.what)) != "alive" {}
        assert!(lines(&generations(dir)).len() > before, "{} did not begin a generation", player.what);
        player
    }

    /// Waits until it says this.
    pub(crate) fn hear(&mut self, word: &str) {
        let heard = self.next_line();
        assert_eq!(heard.as_deref(), Some(word), "{}", self.what);
    }

    pub(crate) fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Says something to it.
    pub(crate) fn say(&mut self, word: &str) {
        writeln!(self.input.as_mut().unwrap(), "{word}").unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits until it is stopped by a signal, or has ended; true if it is stopped.
    pub(crate) fn stopped_or_ended(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if self.ended().is_some() {
                return false;
            }
            if state(self.child.id().try_into().unwrap()) == Some('T') {
                return true;
            }
            assert!(begun.elapsed() < HUNG, "{} neither stops nor ends", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it, and asserts that it is dead.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let status = self.end();
        assert_eq!(status.signal(), Some(9), "{} ended by itself: {status}", self.what);
    }

    /// Waits until it has ended, however.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < HUNG, "{} hangs", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended well.
    pub(crate) fn done(mut self) {
        let status = self.end();
        assert!(status.success(), "{} ended with {status}", self.what);
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process is there. One that is dead but not buried counts as dead.
pub(crate) fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok() && state(pid) != Some('Z')
}

/// What the kernel says of a process: R, S, T, Z and so on.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next())
}
