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

/// How long to wait for a killed group to die. Only processes that are stuck in the kernel, or zombies that
/// no parent reaps, take longer.
const DYING: Duration = Duration::from_millis(500);
/// How often to check a dying group; the kernel does not notify anyone that a group is gone.
const LOOK: Duration = Duration::from_millis(5);

/// A running command in its own process group, guarded by a [`ProcessGuardian`]. When it is dropped,
/// everything in the group is killed; with a supervisor ([`ProcessGuardian::helper`]), every descendant of
/// the command.
#[derive(Debug)]
pub struct ProcessGroup {
    /// The command itself, or its supervisor. The pipes are the command's, and can be taken.
    pub child: Child,
    id: Pid,
    /// Whether the group is known to be gone. From then on its id may belong to another group.
    gone: bool,
    /// What is known about processes that left the group.
    leftover: LeftoverProcesses,
    #[cfg(target_os = "linux")]
    supervisor: Option<SupervisorClient>,
    // Dropped after the kill in `drop`: fields are dropped after it.
    _watched: GuardedGroup,
}

/// What is known, after a command was ended, about the processes that it had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftoverProcesses {
    /// None is left.
    None,
    /// This many could not be killed.
    Some(usize),
    /// None is left in its group. Whether one has left the group and still runs is unknown.
    Unknown,
}

impl ProcessGroup {
    /// Starts a program in its own group. `configure` adds its arguments, environment, directory and pipes.
    /// It runs under a supervisor if the guardian has a helper.
    ///
    /// # Errors
    /// Fails if it cannot be started or guarded: then it does not run either.
    pub fn start(
        program: impl AsRef<OsStr>,
        guardian: &ProcessGuardian,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<ProcessGroup> {
        #[cfg(target_os = "linux")]
        if let Some((helper, limit)) = guardian.next_supervised_command() {
            let (name, value) = guardian.marker_env()?;
            let pipes = SupervisorPipes::new(limit)?;
            let mut command = pipes.command(&helper, (name, &value), program.as_ref());
            configure(&mut command);
            // Closing its pipe ends it, and it then ends the others: it must not be killed before that.
            command.process_group(0).kill_on_drop(false);
            let (child, mut supervisor, id) = pipes.start(command)?;
            let watched = guardian.guard(id).inspect_err(|_| supervisor.kill())?;
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
        ProcessGroup::spawn(command, guardian)
    }

    /// Starts a command in its own group, with the guardian's mark in its environment, and without a
    /// supervisor.
    ///
    /// # Errors
    /// Fails if it cannot be started or guarded: then it does not run either.
    pub fn spawn(mut command: Command, guardian: &ProcessGuardian) -> io::Result<ProcessGroup> {
        let (name, value) = guardian.marker_env()?;
        let mut child = command.env(name, value).process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
        let watched = guardian.guard(id).inspect_err(|_| drop(child.start_kill()))?;
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

    /// What is known about the processes that it had started, after it was ended ([`ProcessGroup::kill`],
    /// [`ProcessGroup::terminate`]).
    pub fn leftover(&self) -> LeftoverProcesses {
        self.leftover
    }

    /// Waits until the command itself has exited; processes that it started may still run.
    ///
    /// # Errors
    /// Fails if the operating system cannot report on it.
    pub async fn wait_for_exit(&mut self) -> io::Result<ExitStatus> {
        #[cfg(target_os = "linux")]
        if let Some(supervisor) = &mut self.supervisor
            && let Some(status) = supervisor.wait_for_exit().await
        {
            return Ok(status);
        }
        self.child.wait().await
    }

    /// Sends SIGTERM to all, and SIGKILL to those that still run after `grace`. [`ProcessGroup::leftover`]
    /// says whether any are left.
    pub async fn terminate(&mut self, grace: Duration) {
        #[cfg(target_os = "linux")]
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.terminate();
            let _ = timeout(grace, supervisor.wait_for_cleanup()).await;
            self.kill().await;
            return;
        }
        let _ = killpg(self.id, Signal::SIGTERM);
        // A suspended process handles no other signal.
        let _ = killpg(self.id, Signal::SIGCONT);
        let _ = timeout(grace, async {
            let _ = self.child.wait().await;
            self.all_gone().await;
        })
        .await;
        self.kill().await;
    }

    /// Sends SIGKILL to all, and waits until they are dead. Returns whether there were any.
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
        // It may be suspended.
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
                // It was killed or does not reply: kill the processes in the group, and those that carry its
                // number.
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

/// Runs a command to its end in its own process group, without a guardian, and returns its output. If this is
/// dropped, everything in the group is killed.
///
/// # Errors
/// Fails if it cannot be started, or its output cannot be read.
pub(crate) async fn run_to_output(mut command: Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let child = command.spawn()?;
    let mut group = KillGroupOnDrop(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let output = child.wait_with_output().await;
    // Its leader is gone, and its id may belong to another group.
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
