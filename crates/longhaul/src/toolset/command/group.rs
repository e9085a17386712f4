//! A command and everything it starts: one process group, which never outlives its [`Group`].

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::time::{sleep, timeout};

use super::Launch;
use super::capture::Sink;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// How long what is still on its way through the pipe is waited for when the shell has exited.
const MOMENT: Duration = Duration::from_millis(250);
/// How long the dying of a killed group is watched. Longer than that takes only who is stuck in the kernel, or
/// dead with nobody to bury it.
const DYING: Duration = Duration::from_millis(500);
/// How often a dying group is looked at; the kernel tells nobody that a group is gone.
const LOOK: Duration = Duration::from_millis(5);

/// A running command. When it is dropped, everything in its process group is killed.
pub(in crate::toolset) struct Group {
    child: Box<dyn ChildWrapper>,
    id: Pid,
    /// Whether the group is known to be gone. From then on its id may be somebody else's.
    gone: bool,
}

impl Group {
    /// Starts it. What it writes, to stdout or stderr, comes out of the pipe in the order of writing.
    pub(in crate::toolset) fn spawn(launch: &Launch) -> io::Result<(Group, ChildStdout)> {
        let (reader, writer) = io::pipe()?;
        let pipe = ChildStdout::from_std(OwnedFd::from(reader).into())?;
        let for_stderr = writer.try_clone()?;
        // The command holds the pipe's writing ends; the pipe ends only if it is gone after this.
        let child = CommandWrap::with_new(&launch.program, |command| {
            command.args(&launch.args).current_dir(&launch.dir).env_clear().envs(&launch.env);
            command.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(for_stderr));
        })
        .wrap(ProcessGroup::leader())
        .wrap(KillOnDrop)
        .spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok((Group { child, id, gone: false }, pipe))
    }

    /// Waits until the shell has exited, and reads the pipe meanwhile. A background process that keeps the pipe
    /// open is not waited for.
    pub(in crate::toolset) async fn follow(
        &mut self,
        pipe: &mut ChildStdout,
        sink: &mut impl Sink,
    ) -> io::Result<ExitStatus> {
        let mut drained = pin!(drain(pipe, sink));
        tokio::select! {
            status = self.shell_exits() => {
                let status = status?;
                let _ = timeout(MOMENT, drained).await;
                return Ok(status);
            }
            () = &mut drained => {}
        }
        self.shell_exits().await
    }

    /// SIGTERM to all, SIGKILL to whoever has not heard it.
    pub(in crate::toolset) async fn terminate(&mut self, pipe: &mut ChildStdout, sink: &mut impl Sink) {
        let _ = killpg(self.id, Signal::SIGTERM);
        // Whoever is stopped hears nothing else.
        let _ = killpg(self.id, Signal::SIGCONT);
        let ended = async {
            let _ = self.shell_exits().await;
            self.all_gone().await;
        };
        // Read on meanwhile: who blocks on a full pipe cannot clean up.
        let reading = async {
            drain(pipe, sink).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = ended => {}
            () = reading => {}
            () = sleep(GRACE) => {}
        }
        self.kill().await;
    }

    /// SIGKILL to all, and waits until they are dead. Answers whether there was anybody.
    pub(in crate::toolset) async fn kill(&mut self) -> bool {
        if killpg(self.id, Signal::SIGKILL).is_err() {
            self.gone = true;
            return false;
        }
        let _ = timeout(DYING, async {
            // Reaps the shell, and orphans of the group where they became our children: in a container whose first
            // process we are.
            let _ = self.child.wait().await;
            self.all_gone().await;
        })
        .await;
        self.gone = true;
        true
    }

    /// The shell alone: the wrapper would also wait for every orphan that has become our child.
    fn shell_exits(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send {
        self.child.inner_mut().wait()
    }

    async fn all_gone(&self) {
        while killpg(self.id, None).is_ok() {
            sleep(LOOK).await;
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

/// Reads until nobody can write any more. A pipe that cannot be read has nothing more to say.
async fn drain(pipe: &mut ChildStdout, sink: &mut impl Sink) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        sink.take(&buffer[..n]);
    }
}

/// Reads what a group that has ended left in the pipe. Somebody who left the group may still hold it open.
pub(in crate::toolset) async fn drain_rest(pipe: &mut ChildStdout, sink: &mut impl Sink) {
    let _ = timeout(MOMENT, drain(pipe, sink)).await;
}
