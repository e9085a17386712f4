//! Runs one command to its end, and leaves nothing of it running.
//!
//! A command has a process group of its own, and the group ends with the run: when the command has exited, when the
//! time is up, when the task is stopped, and when the run is dropped. Only a process that leaves the group
//! (`setsid`) survives; keeping those in is the sandbox's business.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use indexmap::IndexMap;
use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;

use crate::process::Watchman;
use crate::tool::{CallContext, ToolError, ToolOutput};
use capture::Capture;
use group::Group;

pub(super) mod capture;
pub(super) mod group;

/// How much of a command's output the model sees.
pub(super) const OUTPUT_CAP: usize = 64 * 1024;
/// The `PATH` of whoever is not given another.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Environment variables.
pub(super) type Env = IndexMap<OsString, OsString>;

/// The environment that every command has.
pub(super) fn plain_env() -> Env {
    IndexMap::from([("PATH".into(), DEFAULT_PATH.into())])
}

/// What is started, where, and with which environment; nothing of this process's own is inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) dir: PathBuf,
    pub(super) env: Env,
}

impl Launch {
    /// A shell that runs a command line.
    pub(super) fn shell(cmd: impl Into<OsString>, dir: PathBuf, env: Env) -> Self {
        Launch { program: "/bin/sh".into(), args: vec!["-c".into(), cmd.into()], dir, env }
    }
}

/// How a command came to its end.
pub(super) enum End {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

/// A command that has ended.
pub(super) struct Ran {
    pub(super) end: End,
    /// What it wrote, or the beginning and the end of it.
    pub(super) output: String,
    /// Whether it left something running, which was ended then.
    pub(super) left_behind: bool,
    timeout: Duration,
}

/// Runs a command to its end, or ends it.
pub(super) async fn run(
    launch: &Launch,
    timeout: Duration,
    cancel: &CancellationToken,
    watchman: &Watchman,
) -> Result<Ran, ToolError> {
    if cancel.is_cancelled() {
        return Err(ToolError::Failed("[the task is being stopped: the command was not run]".to_owned()));
    }
    let (mut group, mut pipe) = Group::spawn(launch, watchman).map_err(|error| not_started(&error))?;
    let mut capture = Capture::new(OUTPUT_CAP);
    let end = tokio::select! {
        biased;
        () = cancel.cancelled() => End::Stopped,
        status = group.follow(&mut pipe, &mut capture) => End::Exited(
            status.map_err(|error| ToolError::Failed(format!("the command was lost: {error}")))?,
        ),
        () = tokio::time::sleep(timeout) => End::TimedOut,
    };
    let left_behind = match end {
        End::Exited(_) => group.kill().await,
        End::TimedOut | End::Stopped => {
            group.terminate(&mut pipe, &mut capture).await;
            false
        }
    };
    group::drain_rest(&mut pipe, &mut capture).await;
    Ok(Ran { end, output: capture.into_text(), left_behind, timeout })
}

pub(super) fn not_started(error: &io::Error) -> ToolError {
    ToolError::Failed(format!("the command could not be started: {error}"))
}

impl Ran {
    /// What the model is told: the output, and below it how the command ended. `longer` says what can be done about a
    /// time that was too short.
    pub(super) fn report(self, longer: &str) -> Result<ToolOutput, ToolError> {
        let mut text = self.output;
        if text.is_empty() {
            text.push_str("(no output)");
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if self.left_behind {
            text.push_str("[what the command left running in the background was ended]\n");
        }
        match self.end {
            End::Exited(status) if status.success() => Ok(format!("{text}[exit code 0]").into()),
            End::Exited(status) => Err(ToolError::Failed(format!("{text}[{}]", ending(status)))),
            End::TimedOut => Err(ToolError::Failed(format!(
                "{text}[the command took longer than {} s, and was ended with everything it had started{longer}]",
                self.timeout.as_secs_f64()
            ))),
            End::Stopped => Err(ToolError::Failed(format!(
                "{text}[the task is being stopped: the command was ended with everything it had started]"
            ))),
        }
    }
}

/// How a process ended, in a few words.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}

/// The directory that a command runs in: the task's own, or one that is named relative to it.
pub(super) async fn directory(context: &CallContext, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
    let Some(working_dir) = &context.working_dir else {
        return Err(ToolError::Failed("this task has no working directory to run commands in".to_owned()));
    };
    let dir = working_dir.join(cwd.unwrap_or_default());
    let is_dir = {
        let dir = dir.clone();
        tokio::task::spawn_blocking(move || Path::is_dir(&dir)).await.unwrap_or(false)
    };
    match (is_dir, cwd) {
        (true, _) => Ok(dir),
        (false, Some(cwd)) => Err(ToolError::Retry(format!(
            "`cwd`: there is no directory '{cwd}' in the working directory {}",
            working_dir.display()
        ))),
        (false, None) => {
            Err(ToolError::Failed(format!("the working directory {} does not exist", working_dir.display())))
        }
    }
}
