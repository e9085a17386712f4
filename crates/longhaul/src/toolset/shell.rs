//! Runs commands that the model writes in the task's working directory: in the foreground, or as background
//! jobs that end with the task.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::{CommandEnv, CommandSpec, command_dir, default_env, run_command};
use super::fn_tool::{FnTool, NoArgs, duration_from_secs, fn_tool, number, to_index};
use super::sandbox::Sandbox;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::id::TaskId;
use crate::process::ProcessGuardian;
use crate::tool::{ArgumentAliases, CallContext, DynTool, ToolEffects, ToolError};
use jobs::BackgroundJobs;

mod jobs;
mod output_buffer;

/// The default timeout of a command, and the longest that a model can set, in seconds.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: f64 = 600.0;
/// How many bytes of a job's output are shown by default, and at most.
const DEFAULT_PAGE: usize = 16 * 1024;
const MAX_PAGE: usize = 40 * 1024;

/// Looks at jobs, or waits for them. They are not Longhaul's own data, as tasks are.
const POLLS_JOBS: ToolEffects = ToolEffects { internal: false, ..ToolEffects::POLLS_TASKS };
/// Aliases for the command line that models use.
const ALIASES: ArgumentAliases = &[("command", "cmd")];

/// The toolset `shell`: `shell` runs a command and waits for it; `run_background_job`,
/// `list_background_jobs`, `view_background_job` and `stop_background_job` handle longer ones. A job belongs
/// to its task and ends with it.
///
/// Commands do not inherit this process's environment, so that no secret leaks into them. They have a default
/// `PATH` and the variables set with the builder.
#[derive(Clone)]
pub struct Shell {
    setting: Arc<CommandSettings>,
    jobs: Arc<BackgroundJobs>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.setting.fmt(f)
    }
}

/// Settings that all commands share. The values of variables may be secrets.
pub(super) struct CommandSettings {
    pub(super) env: CommandEnv,
    pub(super) sandbox: Option<Sandbox>,
    pub(super) guardian: ProcessGuardian,
    /// The default timeout of a command.
    pub(super) timeout: Option<Duration>,
}

impl fmt::Debug for CommandSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.keys().collect();
        f.debug_struct("Shell").field("env", &names).field("sandbox", &self.sandbox).finish()
    }
}

impl Default for CommandSettings {
    fn default() -> Self {
        CommandSettings { env: default_env(), sandbox: None, guardian: ProcessGuardian::new(), timeout: None }
    }
}

impl CommandSettings {
    /// Describes how commands run.
    pub(super) fn describe(&self) -> String {
        self.sandbox.as_ref().map_or_else(|| "without a sandbox".to_owned(), Sandbox::describe)
    }

    /// Returns how to start a command line in a directory, in the sandbox if there is one.
    pub(super) async fn command_spec(
        &self,
        context: &CallContext,
        cmd: impl Into<OsString>,
        cwd: Option<&str>,
        more: CommandEnv,
    ) -> Result<CommandSpec, ToolError> {
        let dir = command_dir(context, cwd).await?;
        let mut env = self.env.clone();
        env.extend(more);
        let work = context.working_dir.clone().unwrap_or_else(|| dir.clone());
        let spec = CommandSpec::shell(cmd, dir, env);
        match &self.sandbox {
            Some(sandbox) => sandbox.confine(spec, &work).await,
            None => Ok(spec),
        }
    }
}

impl Shell {
    /// Creates a shell whose commands have only a `PATH`.
    pub fn new() -> Self {
        Shell::builder().build()
    }

    /// Starts building a shell with other settings.
    pub fn builder() -> ShellBuilder {
        ShellBuilder { setting: CommandSettings::default() }
    }
}

impl Default for Shell {
    fn default() -> Self {
        Shell::new()
    }
}

/// Builds a [`Shell`].
#[derive(Debug)]
pub struct ShellBuilder {
    setting: CommandSettings,
}

impl ShellBuilder {
    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.setting.env.insert(name.into(), value.into());
        self
    }

    /// Sets the default timeout of a command: 30 s unless changed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.setting.timeout = Some(timeout);
        self
    }

    /// Runs commands in a sandbox.
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.setting.sandbox = Some(sandbox);
        self
    }

    /// Sets the guardian that kills commands when this process is killed. Toolsets may share one; by default
    /// each has its own.
    pub fn guardian(mut self, guardian: ProcessGuardian) -> Self {
        self.setting.guardian = guardian;
        self
    }

    /// Builds the toolset.
    pub fn build(self) -> Shell {
        Shell { setting: Arc::new(self.setting), jobs: Arc::default() }
    }
}

impl Toolset for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            Ok(vec![self.run_command(), self.run_job(), self.list_jobs(), self.view_job(), self.stop_job()])
        })
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        Box::pin(self.jobs.stop_task_jobs(task))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.jobs.stop_all())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ShellArgs {
    /// The command line, as for `sh -c`.
    cmd: String,
    /// The directory to run it in, relative to the working directory; the working directory itself if left out.
    cwd: Option<String>,
    /// After how many seconds the command is ended: 30 if left out, at most 600.
    timeout: Option<f64>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct RunJobArgs {
    /// The command line, as for `sh -c`.
    cmd: String,
    /// The directory to run it in, relative to the working directory; the working directory itself if left out.
    cwd: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ViewJobArgs {
    /// Which job: `job-1`.
    job_id: String,
    /// From which byte of its output on; the last part of it if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// How many bytes to show: 16384 if left out, at most 40960.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// How many seconds to wait for the end of the job before looking; it is not waited for if left out. At most 600.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<f64>")]
    wait: Option<f64>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct StopJobArgs {
    /// Which job: `job-1`.
    job_id: String,
}

impl Shell {
    fn run_command(&self) -> Arc<dyn DynTool> {
        let setting = self.setting.clone();
        let text = "Runs a shell command (sh -c) in the working directory, without input, and returns what it wrote to stdout \
                    and stderr and its exit code. What the command leaves running in the background is ended with it. For what is \
                    to go on running, use run_background_job.";
        FnTool::new("shell", ToolEffects::default(), text, move |args: ShellArgs, context: &CallContext| {
            let setting = setting.clone();
            Box::pin(async move {
                require_command(&args.cmd)?;
                let timeout = bounded(args.timeout, setting.timeout)?;
                let cwd = args.cwd.as_deref();
                let spec = setting.command_spec(context, args.cmd, cwd, CommandEnv::new()).await?;
                let result = run_command(&spec, timeout, context, &setting.guardian).await?;
                result.into_tool_output(&format!("; `timeout` may be up to {MAX_TIMEOUT} s"))
            })
        })
        .aliases(ALIASES)
        .setting(Some(self.setting.describe()))
        .into_tool()
    }

    fn run_job(&self) -> Arc<dyn DynTool> {
        let shell = self.clone();
        let text = "Starts a shell command that goes on running beside your work, and returns at once with the job's id: \
                    for servers, watchers and long builds. Look at it with view_background_job. It is ended when your \
                    task ends.";
        FnTool::new(
            "run_background_job",
            ToolEffects::default(),
            text,
            move |args: RunJobArgs, context: &CallContext| {
                let shell = shell.clone();
                Box::pin(async move {
                    require_command(&args.cmd)?;
                    let spec = shell
                        .setting
                        .command_spec(context, &args.cmd, args.cwd.as_deref(), CommandEnv::new())
                        .await?;
                    if context.cancel.is_cancelled() {
                        return Err(ToolError::Failed("the task is being stopped".to_owned()));
                    }
                    let job =
                        shell.jobs.start(context.caller.task, &args.cmd, &spec, &shell.setting.guardian)?;
                    Ok(format!("{} started. It is ended when your task ends.", job.id).into())
                })
            },
        )
        .aliases(ALIASES)
        .covered_by("shell")
        .setting(Some(self.setting.describe()))
        .into_tool()
    }

    fn list_jobs(&self) -> Arc<dyn DynTool> {
        let jobs = self.jobs.clone();
        let text = "Lists the jobs that run_background_job has started in this task.";
        fn_tool("list_background_jobs", POLLS_JOBS, text, move |_: NoArgs, context: &CallContext| {
            let lines: Vec<_> =
                jobs.of_task(context.caller.task).iter().map(|job| job.summary_line()).collect();
            Box::pin(
                async move { Ok(if lines.is_empty() { "no jobs".into() } else { lines.join("\n").into() }) },
            )
        })
    }

    fn view_job(&self) -> Arc<dyn DynTool> {
        let jobs = self.jobs.clone();
        let text = "Shows how a job stands and the last part of what it wrote; with `offset`, the part from there on. With \
                    `wait` it waits for the job to end, which is better than looking again and again.";
        fn_tool("view_background_job", POLLS_JOBS, text, move |args: ViewJobArgs, context: &CallContext| {
            let jobs = jobs.clone();
            Box::pin(async move {
                let job = jobs.find(context.caller.task, &args.job_id)?;
                if let Some(wait) = args.wait.filter(|wait| *wait > 0.0) {
                    job.wait(duration_from_secs(wait.min(MAX_TIMEOUT)), &context.cancel).await;
                }
                let limit = args.limit.map_or(DEFAULT_PAGE, to_index).clamp(1, MAX_PAGE);
                let page = job.output_page(args.offset.map(|offset| to_index(offset) as u64), limit);
                let page = if page.is_empty() { "(no output)".to_owned() } else { page };
                Ok(format!("{}\n--- output ---\n{page}", job.summary_line()).into())
            })
        })
    }

    fn stop_job(&self) -> Arc<dyn DynTool> {
        let jobs = self.jobs.clone();
        let text = "Ends a job, with what it has started.";
        fn_tool(
            "stop_background_job",
            ToolEffects::REPEATABLE,
            text,
            move |args: StopJobArgs, context: &CallContext| {
                let jobs = jobs.clone();
                Box::pin(async move {
                    let job = jobs.find(context.caller.task, &args.job_id)?;
                    match job.stop().await {
                        true => Ok(format!("{} was ended{}", job.id, job.leftover_text()).into()),
                        false => Ok(format!("{} had ended already", job.id).into()),
                    }
                })
            },
        )
    }
}

fn require_command(cmd: &str) -> Result<(), ToolError> {
    match cmd.trim().is_empty() {
        true => Err(ToolError::Retry("the command is empty: say in `cmd` what to run".to_owned())),
        false => Ok(()),
    }
}

fn bounded(asked: Option<f64>, usual: Option<Duration>) -> Result<Duration, ToolError> {
    let Some(seconds) = asked else { return Ok(usual.unwrap_or(DEFAULT_TIMEOUT)) };
    // A configured timeout may exceed the model's limit, and then raises it.
    let most = usual.map_or(MAX_TIMEOUT, |usual| usual.as_secs_f64().max(MAX_TIMEOUT));
    if seconds > 0.0 {
        Ok(Duration::from_secs_f64(seconds.min(most)))
    } else {
        Err(ToolError::Retry(format!("`timeout` is in seconds, more than 0 and up to {MAX_TIMEOUT}")))
    }
}

#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
