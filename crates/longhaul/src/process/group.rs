//! A child process and everything it starts: one process group, which never outlives its [`ProcessGroup`].

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::sys::signal::kill;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

#[cfg(target_os = "linux")]
use super::supervisor_client::{CleanupResult, ENDING, SupervisorClient, SupervisorPipes};
use super::{GuardedGroup, ProcessGuardian};

/// How long the dying of a killed group is watched. Longer than that takes only who is stuck in the kernel, or dead
/// with nobody to bury it.
const DYING: Duration = Duration::from_millis(500);
/// How often a dying group is looked at; the kernel tells nobody that a group is gone.
const LOOK: Duration = Duration::from_millis(5);

/// A running command in a process group of its own, guarded by a [`ProcessGuardian`]. When it is dropped, everything in the
/// group is killed; with a supervisor ([`ProcessGuardian::helper`]), everything that came of the command.
#[derive(Debug)]
pub struct ProcessGroup {
    /// The command itself, or its supervisor; the pipes are the command's, and can be taken.
    pub child: Child,
    id: Pid,
    /// Whether the group is known to be gone. From then on its id may be somebody else's.
    gone: bool,
    /// What is known of those who left the group.
    leftover: LeftoverProcesses,
    #[cfg(target_os = "linux")]
    supervisor: Option<SupervisorClient>,
    // After the kill of `drop`: fields are dropped after it.
    _watched: GuardedGroup,
}

/// What is known, when a command has been ended, of the processes that it had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftoverProcesses {
    /// None is left.
    None,
    /// So many could not be ended.
    Some(usize),
    /// None is left in its group. Whether one has left the group, and runs on, is not known.
    Unknown,
}

impl ProcessGroup {
    /// Starts a program in a group of its own. `configure` adds its arguments, its environment, its directory and its
    /// pipes. With a supervisor, if the watchman has a helper for that.
    ///
    /// # Errors
    /// When it cannot be started, or not be guarded: then it does not run either.
    pub fn start(
        program: impl AsRef<OsStr>,
        watchman: &ProcessGuardian,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<ProcessGroup> {
        #[cfg(target_os = "linux")]
        if let Some((helper, limit)) = watchman.next_supervised_command() {
            let (name, value) = watchman.marker_env()?;
            let pipes = SupervisorPipes::new(limit)?;
            let mut command = pipes.command(&helper, (name, &value), program.as_ref());
            configure(&mut command);
            // Its pipe ends it, and it then ends the others: it must not be killed before that.
            command.process_group(0).kill_on_drop(false);
            let (child, mut supervisor, id) = pipes.start(command)?;
            let watched = watchman.guard(id).inspect_err(|_| supervisor.kill())?;
            let (id, left) = (Pid::from_raw(id), LeftoverProcesses::Unknown);
            return Ok(ProcessGroup {
                child,
                id,
                gone: false,
                leftover: left,
                supervisor: Some(supervisor),
                _watched: watched,
            });
        }
        let mut command = Command::new(program);
        configure(&mut command);
        ProcessGroup::spawn(command, watchman)
    }

    /// Starts a command in a group of its own, with the watchman's mark in its environment, and without a supervisor.
    ///
    /// # Errors
    /// When it cannot be started, or not be guarded: then it does not run either.
    pub fn spawn(mut command: Command, watchman: &ProcessGuardian) -> io::Result<ProcessGroup> {
        let (name, value) = watchman.marker_env()?;
        let mut child = command.env(name, value).process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
        let watched = watchman.guard(id).inspect_err(|_| drop(child.start_kill()))?;
        Ok(ProcessGroup {
            child,
            id: Pid::from_raw(id),
            gone: false,
            leftover: LeftoverProcesses::Unknown,
            #[cfg(target_os = "linux")]
            supervisor: None,
            _watched: watched,
        })
    }

    /// The process group's id, which is the command's process id.
    pub fn id(&self) -> i32 {
        self.id.as_raw()
    }

    /// What is known of the processes that it had started, once it was ended ([`ProcessGroup::kill`], [`ProcessGroup::terminate`]).
    pub fn leftover(&self) -> LeftoverProcesses {
        self.leftover
    }

    /// Waits until the command itself has exited; what it has started may still run.
    ///
    /// # Errors
    /// When the operating system has lost it.
    pub async fn wait_for_exit(&mut self) -> io::Result<ExitStatus> {
        #[cfg(target_os = "linux")]
        if let Some(supervisor) = &mut self.supervisor
            && let Some(status) = supervisor.wait_for_exit().await
        {
            return Ok(status);
        }
        self.child.wait().await
    }

    /// SIGTERM to all; SIGKILL to whoever is still there after `grace`. [`ProcessGroup::leftover`] says whether anybody is left.
    pub async fn terminate(&mut self, grace: Duration) {
        #[cfg(target_os = "linux")]
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.terminate();
            let _ = timeout(grace, supervisor.wait_for_cleanup()).await;
            self.kill().await;
            return;
        }
        let _ = killpg(self.id, Signal::SIGTERM);
        // Whoever is stopped hears nothing else.
        let _ = killpg(self.id, Signal::SIGCONT);
        let _ = timeout(grace, async {
            let _ = self.child.wait().await;
            self.all_gone().await;
        })
        .await;
        self.kill().await;
    }

    /// SIGKILL to all, and waits until they are dead. Answers whether there was anybody.
    pub async fn kill(&mut self) -> bool {
        if self.gone {
            return false;
        }
        #[cfg(target_os = "linux")]
        if self.supervisor.is_some() {
            return self.kill_supervised().await;
        }
        let anybody = killpg(self.id, Signal::SIGKILL).is_ok();
        let _ = timeout(DYING, async {
            let _ = self.child.wait().await;
            self.all_gone().await;
        })
        .await;
        self.gone = true;
        anybody
    }

    #[cfg(target_os = "linux")]
    async fn kill_supervised(&mut self) -> bool {
        let Some(supervisor) = &mut self.supervisor else { return false };
        supervisor.kill();
        // Somebody may have stopped it.
        let helper = self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        if let Some(helper) = helper {
            let _ = kill(helper, Signal::SIGCONT);
        }
        let end = timeout(ENDING, supervisor.wait_for_cleanup()).await.unwrap_or(CleanupResult::Unknown);
        let anybody = match end {
            CleanupResult::None { killed } => {
                self.leftover = LeftoverProcesses::None;
                killed > 0
            }
            CleanupResult::Left(left) => {
                self.leftover = LeftoverProcesses::Some(left);
                true
            }
            CleanupResult::Unknown => {
                // It was killed, or does not answer: those who are in the group, and those who bear its number.
                let _ = self.child.start_kill();
                let anybody = killpg(self.id, Signal::SIGKILL).is_ok();
                supervisor.kill_marked_processes().await;
                anybody
            }
        };
        let _ = timeout(DYING, self.child.wait()).await;
        self.gone = true;
        anybody
    }

    async fn all_gone(&self) {
        while killpg(self.id, None).is_ok() {
            sleep(LOOK).await;
        }
    }
}

/// Runs a command to its end in a process group of its own, without a guardian, and gives back all that it wrote. When
/// this is dropped, everything in the group is killed.
///
/// # Errors
/// When it cannot be started, or its output not be read.
pub(crate) async fn run_to_output(mut command: Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let child = command.spawn()?;
    let mut group = KillGroupOnDrop(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let output = child.wait_with_output().await;
    // Its leader is gone, and its id may be somebody else's.
    group.0 = None;
    output
}

/// Kills a process group when it is dropped.
struct KillGroupOnDrop(Option<Pid>);

impl Drop for KillGroupOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            let _ = killpg(id, Signal::SIGKILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        #[cfg(target_os = "linux")]
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.kill();
            return;
        }
        let _ = killpg(self.id, Signal::SIGKILL);
    }
}
