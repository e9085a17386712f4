//! A running command and what it writes. Nothing of it that is known of outlives its [`RunningCommand`], nor this process.

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

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// How long what is still on its way through the pipe is waited for when the shell has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// A running command. When it is dropped, everything in its process group is killed.
pub(in crate::toolset) struct RunningCommand {
    group: process::ProcessGroup,
    /// Whether nothing that it starts can outlive it.
    contained: bool,
}

impl RunningCommand {
    /// Starts it. What it writes, to stdout or stderr, comes out of the pipe in the order of writing.
    pub(in crate::toolset) fn spawn(
        launch: &CommandSpec,
        watchman: &ProcessGuardian,
    ) -> io::Result<(RunningCommand, ChildStdout)> {
        let (reader, writer) = io::pipe()?;
        let pipe = ChildStdout::from_std(OwnedFd::from(reader).into())?;
        let for_stderr = writer.try_clone()?;
        let group = process::ProcessGroup::start(&launch.program, watchman, |command| {
            command.args(&launch.args).current_dir(&launch.dir).env_clear().envs(&launch.env);
            // The command holds the pipe's writing ends; the pipe ends only if it is gone after this.
            command.stdin(Stdio::null()).stdout(Stdio::from(writer)).stderr(Stdio::from(for_stderr));
        })?;
        Ok((RunningCommand { group, contained: launch.contained }, pipe))
    }

    /// What is known of the processes that it started, when it was ended.
    pub(in crate::toolset) fn leftover(&self) -> LeftoverProcesses {
        match self.group.leftover() {
            LeftoverProcesses::Unknown if self.contained => LeftoverProcesses::None,
            left => left,
        }
    }

    /// Waits until the shell has exited, and reads the pipe meanwhile. A background process that keeps the pipe
    /// open is not waited for.
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

    /// SIGTERM to all, SIGKILL to whoever has not heard it.
    pub(in crate::toolset) async fn terminate(&mut self, pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
        // Read on meanwhile: who blocks on a full pipe cannot clean up.
        let reading = async {
            drain(pipe, sink).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.group.terminate(GRACE) => {}
            () = reading => {}
        }
    }

    /// SIGKILL to all, and waits until they are dead. Answers whether there was anybody.
    pub(in crate::toolset) async fn kill(&mut self) -> bool {
        self.group.kill().await
    }
}

/// Reads until nobody can write any more. A pipe that cannot be read has nothing more to say.
async fn drain(pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        sink.write(&buffer[..n]);
    }
}

/// Reads what a group that has ended left in the pipe. Somebody who left the group may still hold it open.
pub(in crate::toolset) async fn read_rest(pipe: &mut ChildStdout, sink: &mut impl OutputSink) {
    let _ = timeout(DRAIN_TIMEOUT, drain(pipe, sink)).await;
}
