//! The guardian ends child processes when Longhaul is killed with SIGKILL and can do nothing itself.
//!
//! A [`ProcessGuardian`] starts a guardian process: a small `/bin/sh` in its own process group, whose stdin
//! is a pipe that only this process holds. The kernel closes the pipe when this process dies, and the
//! guardian then ends the groups that were registered. On Linux it also ends every process whose environment
//! carries the guardian's mark, and so finds a child that was not registered yet, and one that left its
//! group; and every process that has the guardian's number as a resource limit, which it inherits from a
//! supervisor and keeps even with an empty environment. A live supervisor has ended those by then.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use uuid::Uuid;

const SCRIPT: &str = include_str!("guardian.sh");
/// The environment variable that marks our children.
const MARK: &str = "LONGHAUL_GUARD";
/// How many commands of a guardian get their own number.
const MOST: u64 = 1_000_000;
/// Where the guardian finds `grep` and `sleep`.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin";
/// How long to wait for a guardian that was told to exit. It takes some milliseconds, and a second longer if
/// a process that ignores SIGTERM was left.
const LEAVING: Duration = Duration::from_secs(3);

/// A handle to a guardian for child processes. Clones share it. When the last handle and the last
/// [`GuardedGroup`] are dropped, the remaining marked processes are ended, and the guardian too.
///
/// ```
/// # use std::process::Command;
/// use std::os::unix::process::CommandExt as _;
/// use longhaul::process::ProcessGuardian;
///
/// let guardian = ProcessGuardian::new();
/// let (name, value) = guardian.marker_env()?;
/// let mut child = Command::new("sleep").arg("0").env(name, value).process_group(0).spawn()?;
/// let guarded = guardian.guard(child.id() as i32)?;
/// child.wait()?;
/// drop(guarded); // when the group is gone
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProcessGuardian(pub(super) Arc<GuardianShared>, Option<Arc<Path>>);

impl ProcessGuardian {
    /// A new guardian. Its process is started when there is something to guard.
    pub fn new() -> Self {
        ProcessGuardian::default()
    }

    /// Sets the program that supervises commands, so that no process that a command starts outlives it, in
    /// whatever group or session and with whatever environment. Its `main` must call
    /// [`run_supervisor`](super::run_supervisor) if its first argument is
    /// [`SUPERVISE_COMMAND`](super::SUPERVISE_COMMAND), as the command `longhaul` does. Without it, and on
    /// systems other than Linux, a process that leaves its group may outlive its command: see
    /// [`LeftoverProcesses`](super::LeftoverProcesses).
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.1 = Some(program.into().into());
        self
    }

    /// The helper, and a number that identifies the processes of one command.
    #[cfg(target_os = "linux")]
    pub(super) fn next_supervised_command(&self) -> Option<(Arc<Path>, u64)> {
        let helper = self.1.clone()?;
        let n = self.0.commands.fetch_add(1, Ordering::Relaxed) % MOST;
        Some((helper, self.0.number * MOST + n))
    }

    /// The environment variable, name and value, that every child must be started with. The guardian is
    /// running when this returns, so that it also finds a child that is never registered.
    ///
    /// # Errors
    /// Fails if the guardian cannot be started.
    pub fn marker_env(&self) -> io::Result<(&'static str, String)> {
        self.0.lock().running_guardian(&self.0.mark)?;
        Ok((MARK, self.0.mark.to_string()))
    }

    /// Guards a process group until the returned value is dropped. Drop it when the group is gone: later its
    /// id may belong to another group.
    ///
    /// # Errors
    /// Fails if the guardian cannot be started or reached.
    pub fn guard(&self, group: i32) -> io::Result<GuardedGroup> {
        if group <= 1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{group} is no process group of ours"),
            ));
        }
        let mut duty = self.0.lock();
        *duty.groups.entry(group).or_default() += 1;
        let watched = GuardedGroup { post: self.0.clone(), group };
        let sent = duty.send(&self.0.mark, &format!("+{group}\n"));
        // Dropping it takes the lock.
        drop(duty);
        sent.map(|()| watched)
    }
}

/// A guarded process group, until this is dropped.
#[derive(Debug)]
pub struct GuardedGroup {
    post: Arc<GuardianShared>,
    group: i32,
}

impl GuardedGroup {
    /// The group.
    pub fn group(&self) -> i32 {
        self.group
    }
}

impl Drop for GuardedGroup {
    fn drop(&mut self) {
        let mut duty = self.post.lock();
        let Some(times) = duty.groups.get_mut(&self.group) else { return };
        *times -= 1;
        if *times == 0 {
            duty.groups.remove(&self.group);
            // A guardian that cannot be reached is replaced by one that knows only the remaining groups.
            if let Err(error) = duty.send(&self.post.mark, &format!("-{}\n", self.group)) {
                tracing::warn!(%error, "the guardian of child processes cannot be notified that one has ended");
            }
        }
    }
}

/// What all handles of a guardian share.
#[derive(Debug)]
pub(super) struct GuardianShared {
    mark: GuardianMark,
    /// The first part of the numbers that our processes carry.
    number: u64,
    #[cfg(target_os = "linux")]
    commands: AtomicU64,
    state: Mutex<GuardianState>,
}

impl Default for GuardianShared {
    fn default() -> Self {
        let id = Uuid::now_v7();
        let (_, random) = id.as_u64_pair();
        // Twelve digits.
        let number = 100_000_000_000 + random % 900_000_000_000;
        GuardianShared {
            mark: GuardianMark(id.simple().to_string(), number),
            number,
            #[cfg(target_os = "linux")]
            commands: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

impl GuardianShared {
    fn lock(&self) -> MutexGuard<'_, GuardianState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As when this process dies: the pipe closes without a message.
    #[cfg(test)]
    pub(super) fn hang_up(&self) {
        if let Some(GuardianProcess { mut child, line }) = self.lock().guardian.take() {
            drop(line);
            let _ = child.wait();
        }
    }

    #[cfg(test)]
    pub(super) fn guardian(&self) -> nix::unistd::Pid {
        let duty = self.lock();
        let id = duty.guardian.as_ref().map_or(0, |guardian| guardian.child.id());
        nix::unistd::Pid::from_raw(id.try_into().unwrap_or(0))
    }
}

/// Distinguishes our children from all other processes.
#[derive(Debug)]
struct GuardianMark(String, u64);

impl fmt::Display for GuardianMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The guardian process, and all groups that it has to know, with how often each was registered.
#[derive(Debug, Default)]
struct GuardianState {
    guardian: Option<GuardianProcess>,
    groups: BTreeMap<i32, u32>,
}

impl GuardianState {
    /// The guardian process; starts it if there is none, or none any more.
    fn running_guardian(&mut self, mark: &GuardianMark) -> io::Result<&mut GuardianProcess> {
        let guardian = match self.guardian.take().and_then(GuardianProcess::if_there) {
            Some(guardian) => guardian,
            None => {
                let mut guardian = GuardianProcess::start(mark)?;
                let known: String = self.groups.keys().map(|group| format!("+{group}\n")).collect();
                guardian.send(&known)?;
                guardian
            }
        };
        Ok(self.guardian.insert(guardian))
    }

    fn send(&mut self, mark: &GuardianMark, line: &str) -> io::Result<()> {
        if self.running_guardian(mark)?.send(line).is_ok() {
            return Ok(());
        }
        // It has just died, or does not read. The next one gets all groups when it starts.
        self.guardian.take().into_iter().for_each(GuardianProcess::kill);
        self.running_guardian(mark).map(drop)
    }
}

impl Drop for GuardianState {
    fn drop(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.finish();
        }
    }
}

#[derive(Debug)]
struct GuardianProcess {
    child: Child,
    line: ChildStdin,
}

impl GuardianProcess {
    fn start(mark: &GuardianMark) -> io::Result<GuardianProcess> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "longhaul-guard", &format!("{MARK}={mark}"), &mark.1.to_string()])
            .current_dir("/")
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let why = format!("the guardian of child processes (/bin/sh) cannot be started: {error}");
                io::Error::new(error.kind(), why)
            })?;
        let line = child.stdin.take().ok_or_else(|| io::Error::other("the guardian has no input"))?;
        // A suspended guardian must not block us.
        fcntl(&line, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(GuardianProcess { child, line })
    }

    /// Itself, unless it was killed.
    fn if_there(mut self) -> Option<GuardianProcess> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    fn send(&mut self, lines: &str) -> io::Result<()> {
        self.line.write_all(lines.as_bytes())
    }

    /// Kills it at once, without it ending other processes.
    fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets it end the remaining processes, and then exit.
    fn finish(mut self) {
        let _ = self.send(".\n");
        drop(self.line);
        let until = Instant::now() + LEAVING;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > until {
                tracing::warn!(
                    "the guardian of child processes is still running; not waiting for it any longer"
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
