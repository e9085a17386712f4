//! Runs a command of the model's in the task's working directory, and leaves nothing running.
//!
//! A command has a process group of its own, and the group ends with the call: when the shell has exited, when the
//! time is up, when the task is stopped, and when the call is dropped. Only a process that leaves the group
//! (`setsid`) survives; keeping those in is the sandbox's business.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use indexmap::IndexMap;
use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Patron, Toolset, ToolsetError};
use crate::tool::{CallContext, DynTool, Manner, Tool, ToolError, ToolOutput};
use capture::Capture;
use group::Group;

mod capture;
mod group;

/// How much of a command's output the model sees.
const OUTPUT_CAP: usize = 64 * 1024;
/// How long a command may take when the model does not say, and at most; in seconds.
const DEFAULT_TIMEOUT: f64 = 30.0;
const MAX_TIMEOUT: f64 = 600.0;
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The toolset `shell`: one tool, `shell`, that runs a command.
///
/// Commands inherit nothing of this process's environment, so that no secret leaks into one. They have a plain
/// `PATH`, and what the builder was given.
#[derive(Debug, Clone)]
pub struct Shell {
    env: Arc<IndexMap<OsString, OsString>>,
}

impl Shell {
    /// A shell whose commands have a `PATH` and no other variable.
    pub fn new() -> Self {
        Shell::builder().build()
    }

    /// A shell whose commands have more.
    pub fn builder() -> ShellBuilder {
        ShellBuilder { env: IndexMap::from([("PATH".into(), DEFAULT_PATH.into())]) }
    }
}

impl Default for Shell {
    fn default() -> Self {
        Shell::new()
    }
}

/// What a [`Shell`] gives its commands.
#[derive(Debug, Clone)]
pub struct ShellBuilder {
    env: IndexMap<OsString, OsString>,
}

impl ShellBuilder {
    /// One more environment variable, or another value for one.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The toolset.
    pub fn build(self) -> Shell {
        Shell { env: Arc::new(self.env) }
    }
}

impl Toolset for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    fn open<'a>(&'a self, _patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        let tool: Arc<dyn DynTool> = Arc::new(RunCommand { env: self.env.clone() });
        Box::pin(async { Ok(vec![tool]) })
    }
}

struct RunCommand {
    env: Arc<IndexMap<OsString, OsString>>,
}

#[derive(Deserialize, JsonSchema)]
struct RunCommandArgs {
    /// The command line, as for `sh -c`.
    cmd: String,
    /// The directory to run it in, relative to the working directory; the working directory itself if left out.
    cwd: Option<String>,
    /// After how many seconds the command is ended: 30 if left out, at most 600.
    timeout: Option<f64>,
}

/// How a command came to its end.
enum End {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

impl Tool for RunCommand {
    type Args = RunCommandArgs;

    fn name(&self) -> &str {
        "shell"
    }

    fn description(&self) -> String {
        "Runs a shell command (sh -c) in the working directory, without input, and returns what it wrote to stdout \
         and stderr and its exit code. Everything the command starts is ended with it: nothing stays running in the \
         background."
            .to_owned()
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    async fn call(&self, args: RunCommandArgs, context: &CallContext) -> Result<ToolOutput, ToolError> {
        if args.cmd.trim().is_empty() {
            return Err(ToolError::Retry("the command is empty: say in `cmd` what to run".to_owned()));
        }
        let timeout = bounded(args.timeout)?;
        let dir = directory(context, args.cwd.as_deref()).await?;
        if context.cancel.is_cancelled() {
            return Err(ToolError::Failed("[the task is being stopped: the command was not run]".to_owned()));
        }

        let (mut group, mut pipe) = Group::spawn(&args.cmd, &dir, &self.env)
            .map_err(|error| ToolError::Failed(format!("the command could not be started: {error}")))?;
        let mut capture = Capture::new(OUTPUT_CAP);

        let end = tokio::select! {
            biased;
            () = context.cancel.cancelled() => End::Stopped,
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

        report(end, capture.into_text(), left_behind, timeout)
    }
}

/// What the model is told: the output, and below it how the command ended.
fn report(end: End, mut text: String, left_behind: bool, timeout: Duration) -> Result<ToolOutput, ToolError> {
    if text.is_empty() {
        text.push_str("(no output)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if left_behind {
        text.push_str("[what the command left running in the background was ended]\n");
    }
    match end {
        End::Exited(status) if status.success() => Ok(format!("{text}[exit code 0]").into()),
        End::Exited(status) => Err(ToolError::Failed(text + &ending(status))),
        End::TimedOut => Err(ToolError::Failed(format!(
            "{text}[the command took longer than {} s, and was ended with everything it had started; `timeout` may \
             be up to {MAX_TIMEOUT} s]",
            timeout.as_secs_f64()
        ))),
        End::Stopped => Err(ToolError::Failed(format!(
            "{text}[the task is being stopped: the command was ended with everything it had started]"
        ))),
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("[exit code {code}]"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("[killed by {signal}]"),
            Err(_) => format!("[killed by signal {number}]"),
        },
        (None, None) => format!("[{status}]"),
    }
}

fn bounded(seconds: Option<f64>) -> Result<Duration, ToolError> {
    let seconds = seconds.unwrap_or(DEFAULT_TIMEOUT);
    if seconds > 0.0 {
        Ok(Duration::from_secs_f64(seconds.min(MAX_TIMEOUT)))
    } else {
        Err(ToolError::Retry(format!("`timeout` is in seconds, more than 0 and up to {MAX_TIMEOUT}")))
    }
}

async fn directory(context: &CallContext, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
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

#[cfg(test)]
mod tests;
