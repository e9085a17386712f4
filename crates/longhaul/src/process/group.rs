//! A child process and everything it starts: one process group, which never outlives its [`Group`].

use std::io;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{Watched, Watchman};

/// How long the dying of a killed group is watched. Longer than that takes only who is stuck in the kernel, or dead
/// with nobody to bury it.
const DYING: Duration = Duration::from_millis(500);
/// How often a dying group is looked at; the kernel tells nobody that a group is gone.
const LOOK: Duration = Duration::from_millis(5);

/// A running command in a process group of its own, guarded by a [`Watchman`]. When it is dropped, everything in the
/// group is killed.
#[derive(Debug)]
pub struct Group {
    /// The command itself; its pipes can be taken.
    pub child: Child,
    id: Pid,
    /// Whether the group is known to be gone. From then on its id may be somebody else's.
    gone: bool,
    // After the kill of `drop`: fields are dropped after it.
    _watched: Watched,
}

impl Group {
    /// Starts a command in a group of its own, with the watchman's mark in its environment.
    ///
    /// # Errors
    /// When it cannot be started, or not be guarded: then it does not run either.
    pub fn spawn(mut command: Command, watchman: &Watchman) -> io::Result<Group> {
        let (name, value) = watchman.env()?;
        let mut child = command.env(name, value).process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
        let watched = watchman.watch(id).inspect_err(|_| drop(child.start_kill()))?;
        Ok(Group { child, id: Pid::from_raw(id), gone: false, _watched: watched })
    }

    /// The process group's id, which is the command's process id.
    pub fn id(&self) -> i32 {
        self.id.as_raw()
    }

    /// Waits until the command itself has exited; what it has started may still run.
    ///
    /// # Errors
    /// When the operating system has lost it.
    pub async fn exits(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// SIGTERM to all; SIGKILL to whoever is still there after `grace`. Nobody is left when this returns.
    pub async fn terminate(&mut self, grace: Duration) {
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
        let anybody = killpg(self.id, Signal::SIGKILL).is_ok();
        let _ = timeout(DYING, async {
            let _ = self.child.wait().await;
            self.all_gone().await;
        })
        .await;
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
pub(crate) async fn output_of(mut command: Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let child = command.spawn()?;
    let mut group = KilledOnDrop(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let output = child.wait_with_output().await;
    // Its leader is gone, and its id may be somebody else's.
    group.0 = None;
    output
}

/// Kills a process group when it is dropped.
struct KilledOnDrop(Option<Pid>);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            let _ = killpg(id, Signal::SIGKILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.gone {
            let _ = killpg(self.id, Signal::SIGKILL);
        }
    }
}
