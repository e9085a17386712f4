//! Runs one command until it exits, and leaves none of its processes running.
//!
//! A command has its own process group. The group is killed when the command exits, times out, is stopped, or
//! is dropped. With a supervisor, or in bubblewrap, processes that left the group (`setsid`) are killed too;
//! without one, the result says that some may be left.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use indexmap::IndexMap;
use nix::sys::signal::Signal;

use crate::process::{LeftoverProcesses, ProcessGuardian};
use crate::tool::{CallContext, ToolError, ToolOutput};
use output_capture::OutputCapture;
use running_command::RunningCommand;

pub(super) mod output_capture;
pub(super) mod running_command;

/// How many bytes of a command's output the model sees.
pub(super) const OUTPUT_CAP: usize = 64 * 1024;
/// The default `PATH`.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Environment variables.
pub(super) type CommandEnv = IndexMap<OsString, OsString>;

/// Returns the environment that every command has.
pub(super) fn default_env() -> CommandEnv {
    IndexMap::from([("PATH".into(), DEFAULT_PATH.into())])
}

/// What to start, in which directory, and with which environment. Nothing is inherited from this process's
/// own environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandSpec {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) dir: PathBuf,
    pub(super) env: CommandEnv,
    /// Whether none of its processes can outlive it, because it has its own process namespace.
    pub(super) contained: bool,
    /// Paths to remove when it has ended, if it created them.
    pub(super) remove_afterwards: Vec<PathBuf>,
}

impl CommandSpec {
    /// Runs a command line in a shell.
    pub(super) fn shell(cmd: impl Into<OsString>, dir: PathBuf, env: CommandEnv) -> Self {
        let args = vec!["-c".into(), cmd.into()];
        CommandSpec {
            program: "/bin/sh".into(),
            args,
            dir,
            env,
            contained: false,
            remove_afterwards: Vec::new(),
        }
    }
}

/// Removes files that a command must not create.
pub(crate) async fn remove_paths(paths: &[PathBuf]) {
    if paths.is_empty() {
        return;
    }
    let paths = paths.to_vec();
    let removal = tokio::task::spawn_blocking(move || {
        for path in paths {
            let Ok(meta) = path.symlink_metadata() else { continue };
            // Under Landlock, the command may have replaced the directory with a link that leads elsewhere.
            if path.parent().is_none_or(|dir| dir.canonicalize().ok().as_deref() != Some(dir)) {
                continue;
            }
            let gone =
                if meta.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            tracing::warn!(path = %path.display(), ?gone, "removed a file of a command that would have made git use another directory");
        }
    });
    let _ = removal.await;
}

/// How a command ended.
pub(super) enum CommandEnd {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

/// A command that has ended.
pub(super) struct CommandResult {
    pub(super) end: CommandEnd,
    /// Its output, or the beginning and the end of it.
    pub(super) output: String,
    /// Whether it left processes running, which were then killed.
    pub(super) had_leftovers: bool,
    /// What is known about processes that may be left.
    leftover: LeftoverProcesses,
    timeout: Duration,
}

/// Runs a command until it exits, times out or is stopped. Waits for a free process slot first.
pub(super) async fn run_command(
    spec: &CommandSpec,
    timeout: Duration,
    context: &CallContext,
    guardian: &ProcessGuardian,
) -> Result<CommandResult, ToolError> {
    let _slot = context.process_slot().await?;
    let (mut group, mut pipe) = RunningCommand::spawn(spec, guardian).map_err(|error| spawn_error(&error))?;
    let mut capture = OutputCapture::new(OUTPUT_CAP);
    let end = tokio::select! {
        biased;
        () = context.cancel.cancelled() => CommandEnd::Stopped,
        status = group.read_until_exit(&mut pipe, &mut capture) => CommandEnd::Exited(
            status.map_err(|error| ToolError::Failed(format!("the command was lost: {error}")))?,
        ),
        () = tokio::time::sleep(timeout) => CommandEnd::TimedOut,
    };
    let left_behind = match end {
        CommandEnd::Exited(_) => group.kill().await,
        CommandEnd::TimedOut | CommandEnd::Stopped => {
            group.terminate(&mut pipe, &mut capture).await;
            false
        }
    };
    running_command::read_rest(&mut pipe, &mut capture).await;
    remove_paths(&spec.remove_afterwards).await;
    let left = group.leftover();
    Ok(CommandResult {
        end,
        output: capture.into_text(),
        had_leftovers: left_behind,
        leftover: left,
        timeout,
    })
}

pub(super) fn spawn_error(error: &io::Error) -> ToolError {
    ToolError::Failed(format!("the command could not be started: {error}"))
}

impl CommandResult {
    /// Formats the result for the model: the output, then how the command ended. `longer` says how to get a
    /// longer timeout.
    pub(super) fn into_tool_output(self, longer: &str) -> Result<ToolOutput, ToolError> {
        let mut text = self.output;
        if text.is_empty() {
            text.push_str("(no output)");
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if self.had_leftovers {
            text.push_str("[what the command left running in the background was ended]\n");
        }
        if let LeftoverProcesses::Some(n) = self.leftover {
            let them = if n == 1 { "1 process".to_owned() } else { format!("{n} processes") };
            text.push_str(&format!("[{them} that the command started could not be ended]\n"));
        }
        let with = leftover_text(self.leftover);
        match self.end {
            CommandEnd::Exited(status) if status.success() => Ok(format!("{text}[exit code 0]").into()),
            CommandEnd::Exited(status) => Err(ToolError::Failed(format!("{text}[{}]", exit_text(status)))),
            CommandEnd::TimedOut => Err(ToolError::Failed(format!(
                "{text}[the command took longer than {} s, and was ended{with}{longer}]",
                self.timeout.as_secs_f64()
            ))),
            CommandEnd::Stopped => Err(ToolError::Failed(format!(
                "{text}[the task is being stopped: the command was ended{with}]"
            ))),
        }
    }
}

/// Describes what was killed together with a command, as far as that is known.
pub(super) fn leftover_text(left: LeftoverProcesses) -> &'static str {
    match left {
        LeftoverProcesses::None => " with everything it had started",
        LeftoverProcesses::Some(_) => "",
        LeftoverProcesses::Unknown => {
            " with its process group; whether a process that left the group is still running is not known"
        }
    }
}

/// Describes an exit status in a few words.
pub(super) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}

/// Returns the directory for a command: the task's working directory, or one relative to it.
pub(super) async fn command_dir(context: &CallContext, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
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
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_only_what_is_known_of_what_a_command_started() {
        for (left, expected) in [
            (LeftoverProcesses::None, "was ended with everything it had started]"),
            (LeftoverProcesses::Some(1), "[1 process that the command started could not be ended]\n"),
            (LeftoverProcesses::Some(2), "[2 processes that the command started could not be ended]\n"),
            (
                LeftoverProcesses::Unknown,
                "was ended with its process group; whether a process that left the group",
            ),
        ] {
            for end in [CommandEnd::TimedOut, CommandEnd::Stopped] {
                let result = CommandResult {
                    end,
                    output: String::new(),
                    had_leftovers: false,
                    leftover: left,
                    timeout: Duration::from_secs(1),
                };
                let text = result.into_tool_output("").unwrap_err().to_string();
                assert!(text.contains(expected), "{text}");
                assert_eq!(
                    text.contains("everything it had started"),
                    left == LeftoverProcesses::None,
                    "{text}"
                );
            }
        }
    }
}
