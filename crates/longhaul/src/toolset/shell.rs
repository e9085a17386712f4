//! Runs a command of the model's in the task's working directory, and leaves nothing running.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::command::{Env, Launch, directory, plain_env, run};
use super::{Patron, Toolset, ToolsetError};
use crate::tool::{CallContext, DynTool, Manner, Tool, ToolError, ToolOutput};

/// How long a command may take when the model does not say, and at most; in seconds.
const DEFAULT_TIMEOUT: f64 = 30.0;
const MAX_TIMEOUT: f64 = 600.0;

/// The toolset `shell`: one tool, `shell`, that runs a command.
///
/// Commands inherit nothing of this process's environment, so that no secret leaks into one. They have a plain
/// `PATH`, and what the builder was given.
#[derive(Debug, Clone)]
pub struct Shell {
    env: Arc<Env>,
}

impl Shell {
    /// A shell whose commands have a `PATH` and no other variable.
    pub fn new() -> Self {
        Shell::builder().build()
    }

    /// A shell whose commands have more.
    pub fn builder() -> ShellBuilder {
        ShellBuilder { env: plain_env() }
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
    env: Env,
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
    env: Arc<Env>,
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
        let launch = Launch::shell(args.cmd, dir, (*self.env).clone());
        let ran = run(&launch, timeout, &context.cancel).await?;
        ran.report(&format!("; `timeout` may be up to {MAX_TIMEOUT} s"))
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

#[cfg(test)]
mod tests;
