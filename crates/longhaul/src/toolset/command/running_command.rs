//! A running command and its output. None of its known processes outlives its [`RunningCommand`] or this
//! process.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::CommandSpec;
use super::output_capture::OutputSink;
use crate::process::{self, LeftoverProcesses, ProcessGuardian};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// How long to read what is left in the pipe after the shell has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// A running command. When dropped, it kills everything in its process group.
pub(in crate::toolset) struct RunningCommand {
    group: process::ProcessGroup,
    /// Whether none of its processes can outlive it.
    contained: bool,
}

impl RunningCommand {
    /// Starts the command. The pipe carries stdout and stderr in the order in which they are written.
    pub(in crate::toolset) fn spawn(
        spec: &CommandSpec,
        guardian: &ProcessGuardian,
    ) -> io::Result<(RunningCommand, ChildStdout)> {
        let (reader, writer) = io::pipe()?;
        let pipe = ChildStdout::from_std(OwnedFd::from(reader).into())?;
        let for_stderr = writer.try_clone()?;
        let group = process::ProcessGroup::start(&spec.program, guardian, |command| {
            command.args(&spec.args).current_dir(&spec.dir).env_clear().envs(&spec.env);
            // The command holds the write ends of the pipe; drop it, or the pipe never reaches its end.
            command.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(for_stderr));
        })?;
        Ok((RunningCommand { group, contained: spec.contained }, pipe))
    }

    /// Returns what is known about leftover processes, once the command was killed.
    pub(in crate::toolset) fn leftover(&self) -> LeftoverProcesses {
        match self.group.leftover() {
            LeftoverProcesses::Unknown if self.contained => LeftoverProcesses::None,
            left => left,
        }
    }

    /// Reads the pipe until the shell has exited. Does not wait for a background process that keeps the pipe
    /// open.
    pub(in crate::toolset) async fn read_until_exit(
        &mut self,
        pipe: &mut ChildStdout,
        sink: &mut impl OutputSink,
    ) -> io::Result<ExitStatus> {
        let mut drained = pin!(drain(pipe, sink));
        tokio::select! {
            status = self.group.wait_for_exit() => {
                let status = status?;
                let _ = timeout(DRAIN_TIMEOUT, drained).await;
                return Ok(status);
            }
            () = &mut drained => {}
        }
        self.group.wait_for_exit().await
    }

    /// Sends SIGTERM to the group, then SIGKILL to processes that are still running.
    pub(in crate::toolset) async fn terminate(&mut self, pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
        // Keep reading: a process that blocks on a full pipe cannot clean up.
        let reading = async {
            drain(pipe, sink).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.group.terminate(GRACE) => {}
            () = reading => {}
        }
    }

    /// Sends SIGKILL to the group and waits until it is gone. Returns whether there were any processes.
    pub(in crate::toolset) async fn kill(&mut self) -> bool {
        self.group.kill().await
    }
}

/// Reads until the pipe ends. A read error counts as the end.
async fn drain(pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        sink.write(&buffer[..n]);
    }
}

/// Reads what an ended group left in the pipe. A process that left the group may still hold it open.
pub(in crate::toolset) async fn read_rest(pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
    let _ = timeout(DRAIN_TIMEOUT, drain(pipe, sink)).await;
}
