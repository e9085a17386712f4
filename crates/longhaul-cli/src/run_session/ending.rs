//! The ends of a session: drained, stopped, timed out, handed over, or left to others.

use std::time::Duration;

use longhaul::store::TaskFilter;
use longhaul::{Status, TaskId};

use super::{FRAME, RunSession, SOON};
use crate::background::{self, BackgroundOptions};
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::presenter::{OutputMode, Presenter};
use crate::signals::ExitSignals;
use crate::tree_owner;
use crate::view::text_format::format_duration;
use crate::view::{one_line, pluralize};

/// How long tasks may take to finish their step when the run is paused.
const DRAINING: Duration = Duration::from_secs(10);

/// How long stopped tasks may take to end. After that they are dropped, and still count as stopped.
const STOPPING: Duration = Duration::from_secs(4);

impl RunSession<'_> {
    /// Drains at the first signal: tasks finish their step, if that does not take long, and are given back.
    /// Stops them at the second.
    pub(super) async fn drain_or_stop(
        &self,
        presenter: &mut Presenter<'_>,
        signals: &mut ExitSignals,
    ) -> Result<CliExitCode, CliError> {
        let resume: Vec<String> =
            self.roots.iter().map(|root| format!("`{}`", self.data_dir.resume_command(*root))).collect();
        let pausing = format!(
            "Pausing after the current step (up to {} s). Resume with {}. Ctrl-C again cancels the run.",
            DRAINING.as_secs(),
            resume.join(", ")
        );
        if !presenter.is_live() && self.mode != OutputMode::Silent {
            self.context.note(&pausing);
        }
        let began = tokio::time::Instant::now();
        // If the steps cannot be read, still give the tasks back.
        let mut steps = self.current_steps().await.unwrap_or_default();
        if let Some(steps) =
            describe_steps(&steps).filter(|_| !presenter.is_live() && self.mode != OutputMode::Silent)
        {
            self.context.note(&format!("waiting for {steps}"));
        }
        let stopped = {
            let drained = self.longhaul.shutdown_within(DRAINING);
            tokio::pin!(drained);
            let mut gone = false;
            let mut beat = tokio::time::interval(FRAME);
            beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut look = tokio::time::interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    () = &mut drained => break false,
                    () = signals.next() => break true,
                    _ = look.tick() => steps = self.current_steps().await.unwrap_or(steps),
                    _ = beat.tick(), if presenter.is_live() && !gone => {
                        let waited = format_duration(began.elapsed());
                        let waits = describe_steps(&steps).unwrap_or_else(|| "the tasks to be released".to_owned());
                        // If the terminal is gone, still give the tasks back.
                        gone = presenter.draw(&format!("{pausing}\nWaiting {waited} for {waits}")).is_err();
                    }
                }
            }
        };
        if stopped {
            for root in &self.roots {
                self.longhaul.stop(*root).await?;
            }
            self.longhaul.shutdown_within(STOPPING).await;
        }
        if !stopped {
            let open = self.open_roots().await?;
            if open.is_empty() {
                return self.print_summary(presenter).await;
            }
            presenter.clear()?;
            if let Some(cut) = describe_steps(&steps)
                && began.elapsed() >= DRAINING
                && self.mode != OutputMode::Silent
            {
                self.context.note(&format!("cut off after {} s: {cut}", DRAINING.as_secs()));
            }
            for root in open.into_iter().filter(|_| self.mode != OutputMode::Silent) {
                self.context.note(&format!(
                    "{root} was released; resume it with:  {}",
                    self.data_dir.resume_command(root)
                ));
            }
            return Ok(CliExitCode::Interrupted);
        }
        let code = self.print_summary(presenter).await?;
        for state in self.task_states().await?.iter().filter(|state| self.roots.contains(&state.id)) {
            if state.status == Status::Cancelled && self.mode != OutputMode::Silent {
                let retry = self.data_dir.retry_command(state.id);
                self.context.note(&format!("{} was stopped; try it again with:  {retry}", state.id));
            }
        }
        Ok(code)
    }

    /// Returns what each running task does now: the tool that it calls, or that it waits for its model.
    pub(super) async fn current_steps(&self) -> Result<Vec<String>, CliError> {
        let states = self.task_states().await?;
        let running =
            states.iter().filter(|state| state.status == Status::Running && state.waiting.is_none());
        Ok(running
            .map(|state| {
                let tools: Vec<String> = state.calling.iter().map(|(_, tool)| one_line(tool)).collect();
                match tools.is_empty() {
                    true => format!("the model of {} ({})", state.id, one_line(state.agent.as_str())),
                    false => {
                        format!("{} of {} ({})", tools.join(", "), state.id, one_line(state.agent.as_str()))
                    }
                }
            })
            .collect())
    }

    /// Returns whether all open runs are about to end by themselves because their own time limit is reached.
    pub(super) async fn end_by_themselves(&self) -> Result<bool, CliError> {
        for root in self.open_roots().await? {
            let task = self.longhaul.snapshot(root).await?;
            if task.state.status.is_final() {
                // It ended by its time limit a moment ago, and the tasks below it are being stopped.
                let open = self.longhaul.list(TaskFilter::tree(root).live()).await?;
                if open.iter().all(|state| state.stop.is_some()) {
                    continue;
                }
            }
            let worked = task.state.worked_at(self.longhaul.store().now(), Duration::MAX);
            let left = task.order.timeout.map(|limit| limit.saturating_sub(worked));
            if task.state.status != Status::Running || left.is_none_or(|left| left > SOON) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stops the tasks because `--timeout` is reached.
    pub(super) async fn stop_on_timeout(
        &self,
        presenter: &mut Presenter<'_>,
        limit: Duration,
    ) -> Result<CliExitCode, CliError> {
        for root in &self.roots {
            self.longhaul.stop(*root).await?;
        }
        self.longhaul.shutdown_within(STOPPING).await;
        self.print_summary(presenter).await?;
        let which: Vec<String> = self.roots.iter().map(ToString::to_string).collect();
        let what = format!("--timeout: {} was stopped after {}", which.join(", "), format_duration(limit));
        let hint =
            self.roots.first().map(|root| format!("try it again: {}", self.data_dir.retry_command(*root)));
        Err(CliError::new(CliExitCode::TimedOut, what).with_hint(hint.unwrap_or_default()))
    }

    /// Prints the open questions, with the commands that answer them and resume the run.
    pub(super) async fn report_questions(
        &self,
        presenter: &mut Presenter<'_>,
    ) -> Result<CliExitCode, CliError> {
        presenter.clear()?;
        for state in self.task_states().await?.iter().filter(|state| !state.asked.is_empty()) {
            for (question, asks) in self.longhaul.snapshot(state.id).await?.questions {
                self.context.note(&format!(
                    "{} of {} needs a person: {}",
                    state.agent,
                    state.id,
                    one_line(&asks.text)
                ));
                let named = (state.asked.len() > 1).then_some(question);
                self.context.note(&format!(
                    "answer it with:  {}",
                    self.data_dir.answer_command(state.id, named, &asks.wants)
                ));
            }
        }
        for root in &self.roots {
            self.context.note(&format!("then resume it with:  {}", self.data_dir.resume_command(*root)));
        }
        Ok(CliExitCode::NeedsInput)
    }

    /// Reports that another process has taken over a task that ran here.
    pub(super) async fn report_taken_over(
        &self,
        presenter: &mut Presenter<'_>,
        task: TaskId,
    ) -> Result<CliExitCode, CliError> {
        self.longhaul.shutdown().await;
        let root = self.longhaul.state(task).await?.root;
        let why = "this one was stopped, or could not reach the database, for longer than its lease";
        if self.open_roots().await?.is_empty() {
            self.context.note(&format!("{task} was taken over by another process, which ended it: {why}"));
            return self.print_summary(presenter).await;
        }
        presenter.clear()?;
        if tree_owner::owned_trees(&**self.longhaul.store()).await?.contains(&root) {
            let what = format!("{task} is run by another process now: {why}");
            return Err(CliError::new(CliExitCode::TakenOver, what)
                .with_hint(format!("watch it: {}", self.data_dir.attach_command(root))));
        }
        let what = format!("{task} was taken over by another process, which is gone: {why}");
        Err(CliError::new(CliExitCode::TakenOver, what)
            .with_hint(format!("resume it: {}", self.data_dir.resume_command(root))))
    }

    /// Prints how to go on after this process stops watching.
    pub(super) fn report_detached(
        &self,
        presenter: &mut Presenter<'_>,
        how: &str,
        command: fn(&DataDir, TaskId) -> String,
    ) -> Result<CliExitCode, CliError> {
        presenter.clear()?;
        for root in &self.roots {
            self.context.note(&format!("{root} {how}:  {}", command(self.data_dir, *root)));
        }
        Ok(CliExitCode::Interrupted)
    }

    /// Hands the tasks that the root left to a background process.
    pub(super) async fn hand_to_background(&self) -> Result<(), CliError> {
        for root in &self.roots {
            let left = self.longhaul.list(TaskFilter::tree(*root).live()).await?.len();
            // They may have ended just now.
            if left == 0 {
                continue;
            }
            let providers = self.leave_to_background.cloned().unwrap_or_default();
            background::start(self.data_dir, *root, BackgroundOptions::new(&providers)).await?;
            if self.mode != OutputMode::Silent {
                let (tasks, watch) = (pluralize(left, "task"), self.data_dir.attach_command(*root));
                let go = if left == 1 { "goes" } else { "go" };
                self.context.note(&format!(
                    "{tasks} of {root} {go} on in the background, where a reply that was on its way is asked for \
                     again; watch with:  {watch}"
                ));
            }
        }
        Ok(())
    }
}

/// Lists the first few steps.
fn describe_steps(steps: &[String]) -> Option<String> {
    const NAMED: usize = 3;
    let more = steps.len().saturating_sub(NAMED);
    let named = steps.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match (steps.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named}; and {more} more")),
    }
}
