//! Background jobs: commands that run beside a task and end with it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::output_buffer::OutputBuffer;
use crate::id::TaskId;
use crate::process::{LeftoverProcesses, ProcessGuardian};
use crate::tool::ToolError;
use crate::toolset::command::output_capture::OutputSink;
use crate::toolset::command::running_command::{self, RunningCommand};
use crate::toolset::command::{CommandSpec, exit_text, leftover_text, remove_paths, spawn_error};
use crate::toolset::text::{pluralize, truncate};

/// How many jobs of a task run at a time, and how many are remembered.
const MAX_RUNNING: usize = 20;
const MAX_KEPT: usize = 100;

/// The jobs of all tasks.
#[derive(Default)]
pub(super) struct BackgroundJobs {
    tasks: Mutex<HashMap<TaskId, TaskJobs>>,
    /// The tasks that follow running jobs.
    followers: TaskTracker,
}

#[derive(Default)]
struct TaskJobs {
    /// How many jobs were ever started.
    count: u64,
    jobs: Vec<Arc<BackgroundJob>>,
}

/// One background job.
pub(super) struct BackgroundJob {
    pub(super) id: String,
    cmd: String,
    begun: Instant,
    /// Cancelled to stop the job.
    stop: CancellationToken,
    /// Cancelled when the job has ended.
    ended: CancellationToken,
    state: Mutex<JobState>,
}

#[derive(Default)]
struct JobState {
    output: OutputBuffer,
    ended: Option<(JobEnd, Instant)>,
    leftover: Option<LeftoverProcesses>,
}

#[derive(Clone)]
enum JobEnd {
    Exited(ExitStatus),
    Stopped,
    Lost(String),
}

impl BackgroundJobs {
    pub(super) fn start(
        &self,
        task: TaskId,
        cmd: &str,
        spec: &CommandSpec,
        guardian: &ProcessGuardian,
    ) -> Result<Arc<BackgroundJob>, ToolError> {
        let mut tasks = self.tasks();
        let roll = tasks.entry(task).or_default();
        if roll.jobs.iter().filter(|job| job.is_running()).count() >= MAX_RUNNING {
            return Err(ToolError::Failed(format!(
                "{MAX_RUNNING} jobs are running already: stop one with stop_background_job first"
            )));
        }
        let (group, pipe) = RunningCommand::spawn(spec, guardian).map_err(|error| spawn_error(&error))?;
        roll.count += 1;
        let job = Arc::new(BackgroundJob {
            id: format!("job-{}", roll.count),
            cmd: cmd.to_owned(),
            begun: Instant::now(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            state: Mutex::default(),
        });
        roll.jobs.push(job.clone());
        if roll.jobs.len() > MAX_KEPT
            && let Some(oldest) = roll.jobs.iter().position(|job| !job.is_running())
        {
            roll.jobs.remove(oldest);
        }
        self.followers.spawn(follow(job.clone(), group, pipe, spec.remove_afterwards.clone()));
        Ok(job)
    }

    /// Returns the jobs of a task, oldest first.
    pub(super) fn of_task(&self, task: TaskId) -> Vec<Arc<BackgroundJob>> {
        self.tasks().get(&task).map(|roll| roll.jobs.clone()).unwrap_or_default()
    }

    /// Returns the job of a task with this name.
    pub(super) fn find(&self, task: TaskId, id: &str) -> Result<Arc<BackgroundJob>, ToolError> {
        let jobs = self.of_task(task);
        if let Some(job) = jobs.iter().find(|job| job.id == id.trim()) {
            return Ok(job.clone());
        }
        let known: Vec<_> = jobs.iter().map(|job| job.id.as_str()).collect();
        Err(ToolError::Retry(match known.is_empty() {
            true => format!(
                "there is no job '{id}': no job was started in this task since Longhaul was; jobs do not outlive it"
            ),
            false => format!("there is no job '{id}'; there are {}", known.join(", ")),
        }))
    }

    /// Stops all jobs of a task and forgets them.
    pub(super) async fn stop_task_jobs(&self, task: TaskId) {
        let roll = self.tasks().remove(&task);
        end_all(roll.into_iter().flat_map(|roll| roll.jobs).collect()).await;
    }

    /// Stops all jobs.
    pub(super) async fn stop_all(&self) {
        let rolls: Vec<_> = self.tasks().drain().collect();
        end_all(rolls.into_iter().flat_map(|(_, roll)| roll.jobs).collect()).await;
        self.followers.close();
        self.followers.wait().await;
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskId, TaskJobs>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BackgroundJobs {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.values().flat_map(|roll| &roll.jobs).for_each(|job| job.stop.cancel());
    }
}

async fn end_all(jobs: Vec<Arc<BackgroundJob>>) {
    jobs.iter().for_each(|job| job.stop.cancel());
    for job in jobs {
        job.ended.cancelled().await;
    }
}

/// Reads the output of a job until it has ended or is stopped.
async fn follow(
    job: Arc<BackgroundJob>,
    mut group: RunningCommand,
    mut pipe: ChildStdout,
    removed: Vec<PathBuf>,
) {
    // Runs also when this future is dropped: then the group is killed, and no one may keep waiting.
    let _over = job.ended.clone().drop_guard();
    let mut sink = &*job;
    let exited = tokio::select! {
        biased;
        () = job.stop.cancelled() => None,
        status = group.read_until_exit(&mut pipe, &mut sink) => Some(status),
    };
    let end = match exited {
        None => {
            group.terminate(&mut pipe, &mut sink).await;
            JobEnd::Stopped
        }
        Some(status) => {
            group.kill().await;
            status.map_or_else(|error| JobEnd::Lost(error.to_string()), JobEnd::Exited)
        }
    };
    running_command::read_rest(&mut pipe, &mut sink).await;
    remove_paths(&removed).await;
    let mut state = job.state();
    state.ended = Some((end, Instant::now()));
    state.leftover = Some(group.leftover());
}

impl OutputSink for &BackgroundJob {
    fn write(&mut self, bytes: &[u8]) {
        self.state().output.push(bytes);
    }
}

impl BackgroundJob {
    fn state(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_running(&self) -> bool {
        self.state().ended.is_none()
    }

    /// Stops the job. Returns whether it was running.
    pub(super) async fn stop(&self) -> bool {
        let was_running = self.is_running();
        self.stop.cancel();
        self.ended.cancelled().await;
        was_running
    }

    /// Describes what was killed together with the job, as far as that is known.
    pub(super) fn leftover_text(&self) -> &'static str {
        self.state().leftover.map_or("", leftover_text)
    }

    /// Waits until it has ended, or until the timeout.
    pub(super) async fn wait(&self, longest: Duration, cancel: &CancellationToken) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = tokio::time::sleep(longest) => {}
            () = cancel.cancelled() => {}
        }
    }

    /// Describes the job in one line.
    pub(super) fn summary_line(&self) -> String {
        let state = self.state();
        let (status, until) = match &state.ended {
            None => ("running".to_owned(), Instant::now()),
            Some((JobEnd::Exited(status), at)) => (exit_text(*status), *at),
            Some((JobEnd::Stopped, at)) => ("stopped".to_owned(), *at),
            Some((JobEnd::Lost(why), at)) => (format!("lost: {why}"), *at),
        };
        let took = until.duration_since(self.begun).as_secs();
        let output = pluralize(state.output.total(), "byte");
        format!("{}  {status}  {took} s  {output} of output  {}", self.id, truncate(self.cmd.trim(), 120))
    }

    /// Returns a part of its output.
    pub(super) fn output_page(&self, offset: Option<u64>, limit: usize) -> String {
        self.state().output.page(offset, limit)
    }
}
