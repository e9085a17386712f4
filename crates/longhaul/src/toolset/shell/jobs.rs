//! Commands that run beside a task, and end with it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::tape::Tape;
use crate::id::TaskId;
use crate::process::{Left, Watchman};
use crate::tool::ToolError;
use crate::toolset::command::capture::Sink;
use crate::toolset::command::group::{self, Group};
use crate::toolset::command::{Launch, ended_with, ending, not_started, remove};
use crate::toolset::text::{clipped, counted};

/// How many jobs of a task run at a time, and how many are remembered.
const MAX_RUNNING: usize = 20;
const MAX_KEPT: usize = 100;

/// The jobs of all tasks.
#[derive(Default)]
pub(super) struct Jobs {
    tasks: Mutex<HashMap<TaskId, Roll>>,
    /// Those that follow a job.
    followers: TaskTracker,
}

#[derive(Default)]
struct Roll {
    /// How many there have ever been.
    count: u64,
    jobs: Vec<Arc<Job>>,
}

/// One command.
pub(super) struct Job {
    pub(super) id: String,
    cmd: String,
    begun: Instant,
    /// Fires when it is to end.
    stop: CancellationToken,
    /// Fires when it has ended.
    over: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tape: Tape,
    ended: Option<(End, Instant)>,
    left: Option<Left>,
}

#[derive(Clone)]
enum End {
    Exited(ExitStatus),
    Stopped,
    Lost(String),
}

impl Jobs {
    /// Starts a job of a task.
    pub(super) fn start(
        &self,
        task: TaskId,
        cmd: &str,
        launch: &Launch,
        watchman: &Watchman,
    ) -> Result<Arc<Job>, ToolError> {
        let mut tasks = self.tasks();
        let roll = tasks.entry(task).or_default();
        if roll.jobs.iter().filter(|job| job.runs()).count() >= MAX_RUNNING {
            return Err(ToolError::Failed(format!(
                "{MAX_RUNNING} jobs are running already: stop one with stop_background_job first"
            )));
        }
        let (group, pipe) = Group::spawn(launch, watchman).map_err(|error| not_started(&error))?;
        roll.count += 1;
        let job = Arc::new(Job {
            id: format!("job-{}", roll.count),
            cmd: cmd.to_owned(),
            begun: Instant::now(),
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
            state: Mutex::default(),
        });
        roll.jobs.push(job.clone());
        if roll.jobs.len() > MAX_KEPT
            && let Some(oldest) = roll.jobs.iter().position(|job| !job.runs())
        {
            roll.jobs.remove(oldest);
        }
        self.followers.spawn(follow(job.clone(), group, pipe, launch.removed.clone()));
        Ok(job)
    }

    /// The jobs of a task, oldest first.
    pub(super) fn of(&self, task: TaskId) -> Vec<Arc<Job>> {
        self.tasks().get(&task).map(|roll| roll.jobs.clone()).unwrap_or_default()
    }

    /// The job of a task that is called so.
    pub(super) fn find(&self, task: TaskId, id: &str) -> Result<Arc<Job>, ToolError> {
        let jobs = self.of(task);
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

    /// Ends all jobs of a task, and forgets them.
    pub(super) async fn end(&self, task: TaskId) {
        let roll = self.tasks().remove(&task);
        end_all(roll.into_iter().flat_map(|roll| roll.jobs).collect()).await;
    }

    /// Ends all jobs.
    pub(super) async fn close(&self) {
        let rolls: Vec<_> = self.tasks().drain().collect();
        end_all(rolls.into_iter().flat_map(|(_, roll)| roll.jobs).collect()).await;
        self.followers.close();
        self.followers.wait().await;
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskId, Roll>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.values().flat_map(|roll| &roll.jobs).for_each(|job| job.stop.cancel());
    }
}

async fn end_all(jobs: Vec<Arc<Job>>) {
    jobs.iter().for_each(|job| job.stop.cancel());
    for job in jobs {
        job.over.cancelled().await;
    }
}

/// Reads what a job writes until it has ended, or ends it.
async fn follow(job: Arc<Job>, mut group: Group, mut pipe: ChildStdout, removed: Vec<PathBuf>) {
    // Also if this is dropped in the middle: then the group is killed, and nobody should wait.
    let _over = job.over.clone().drop_guard();
    let mut sink = &*job;
    let exited = tokio::select! {
        biased;
        () = job.stop.cancelled() => None,
        status = group.follow(&mut pipe, &mut sink) => Some(status),
    };
    let end = match exited {
        None => {
            group.terminate(&mut pipe, &mut sink).await;
            End::Stopped
        }
        Some(status) => {
            group.kill().await;
            status.map_or_else(|error| End::Lost(error.to_string()), End::Exited)
        }
    };
    group::drain_rest(&mut pipe, &mut sink).await;
    remove(&removed).await;
    let mut state = job.state();
    state.ended = Some((end, Instant::now()));
    state.left = Some(group.left());
}

impl Sink for &Job {
    fn take(&mut self, bytes: &[u8]) {
        self.state().tape.push(bytes);
    }
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn runs(&self) -> bool {
        self.state().ended.is_none()
    }

    /// Ends it. Answers whether it ran.
    pub(super) async fn stop(&self) -> bool {
        let ran = self.runs();
        self.stop.cancel();
        self.over.cancelled().await;
        ran
    }

    /// With what it was ended, as far as that is known.
    pub(super) fn ended_with(&self) -> &'static str {
        self.state().left.map_or("", ended_with)
    }

    /// Waits until it has ended, but not for ever.
    pub(super) async fn wait(&self, longest: Duration, cancel: &CancellationToken) {
        tokio::select! {
            () = self.over.cancelled() => {}
            () = tokio::time::sleep(longest) => {}
            () = cancel.cancelled() => {}
        }
    }

    /// One line about it.
    pub(super) fn line(&self) -> String {
        let state = self.state();
        let (status, until) = match &state.ended {
            None => ("running".to_owned(), Instant::now()),
            Some((End::Exited(status), at)) => (ending(*status), *at),
            Some((End::Stopped, at)) => ("stopped".to_owned(), *at),
            Some((End::Lost(why), at)) => (format!("lost: {why}"), *at),
        };
        let took = until.duration_since(self.begun).as_secs();
        let output = counted(state.tape.total(), "byte");
        format!("{}  {status}  {took} s  {output} of output  {}", self.id, clipped(self.cmd.trim(), 120))
    }

    /// What it has written.
    pub(super) fn page(&self, offset: Option<u64>, limit: usize) -> String {
        self.state().tape.page(offset, limit)
    }
}
