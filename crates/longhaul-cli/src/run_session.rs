//! Runs tasks in this process and shows their events, or watches tasks of another process, until they end or
//! we are asked to stop.

mod ending;
mod input;
mod summary;
mod watching;

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use longhaul::entry::TeamRef;
use longhaul::snapshot::{Event, EventKind};
use longhaul::store::StoreError;
use longhaul::task::TaskState;
use longhaul::{Longhaul, LonghaulError, TaskId};

use self::watching::{OwnerMonitor, follow_events, list_trees, next_keyboard_event, wait_for_timeout};
use crate::args::ProviderArgs;
use crate::background;
use crate::cmd::{self, CliContext};
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::keyboard::{Keyboard, KeyboardEvent};
use crate::notify::Notifier;
pub(crate) use crate::presenter::OutputMode;
use crate::presenter::Presenter;
use crate::seen_events::SeenEvents;
use crate::signals::ExitSignals;

/// How often the live block is drawn.
const FRAME: Duration = Duration::from_millis(80);
/// How often to check that the database file still exists.
const DATABASE_POLL: Duration = Duration::from_millis(500);

/// How long steps may take to finish before tasks are handed to a background process.
const HANDOVER: Duration = Duration::from_millis(500);

/// Tasks that end by themselves within this time are not stopped: a run with its own time limit reports the
/// timeout itself.
const SOON: Duration = Duration::from_millis(200);
/// How many events are handled in one go.
const BATCH: usize = 64;

/// Tasks to run or watch here.
pub(crate) struct RunSession<'a> {
    pub(crate) context: &'a CliContext,
    pub(crate) data_dir: &'a DataDir,
    pub(crate) longhaul: Longhaul,
    pub(crate) roots: Vec<TaskId>,
    /// The tasks whose ends and answers are printed and decide the exit code: the roots, unless the user
    /// named other tasks.
    pub(crate) reported_tasks: Vec<TaskId>,
    /// Events before this time are not printed again.
    pub(crate) since: Timestamp,
    pub(crate) mode: OutputMode,
    /// Whether this process runs the tasks. Otherwise it only watches, and they go on without it.
    pub(crate) runs_here: bool,
    /// Lines to print first.
    pub(crate) intro: Vec<String>,
    /// In a session that this process started: the prompts to send next, each after the previous answer. The
    /// session is closed after the last.
    pub(crate) next_prompts: Option<VecDeque<String>>,
    /// Whether to hand tasks that outlive the root to a background process, and with which provider options.
    pub(crate) leave_to_background: Option<&'a ProviderArgs>,
    /// Whether to end the run at the first question, because no one is there to answer.
    pub(crate) stop_on_question: bool,
    /// Stop the run after this much wall-clock time.
    pub(crate) timeout: Option<Duration>,
    /// Whether a call that was denied because no one was there makes the exit code `NeedsInput`.
    pub(crate) fail_on_denied: bool,
    /// Notifies the user when the run ends.
    pub(crate) notifier: Notifier,
}

/// Why watching ended.
enum SessionEnd {
    /// The tasks have ended.
    Ended,
    /// The roots have ended, and the tasks that they left go on in the background.
    LeftTasksRunning,
    /// A signal asked us to stop.
    Interrupted,
    /// A person has to answer, and no one is there.
    NeedsInput,
    /// The time limit was reached.
    TimedOut(Duration),
    /// No process runs the tasks any more.
    Abandoned,
    /// Another process has taken over this task.
    TakenOver(TaskId),
    /// The store can no longer be written.
    StoreFailed(StoreError),
}

impl<'a> RunSession<'a> {
    /// Creates a session that runs these tasks in this process and shows them to a person.
    pub(crate) fn new(
        context: &'a CliContext,
        data_dir: &'a DataDir,
        longhaul: Longhaul,
        roots: Vec<TaskId>,
    ) -> RunSession<'a> {
        RunSession {
            context,
            data_dir,
            longhaul,
            reported_tasks: roots.clone(),
            roots,
            since: Timestamp::UNIX_EPOCH,
            mode: OutputMode::Human,
            runs_here: true,
            intro: Vec::new(),
            next_prompts: None,
            leave_to_background: None,
            stop_on_question: false,
            timeout: None,
            fail_on_denied: false,
            notifier: Notifier::disabled(),
        }
    }

    /// Runs the tasks until they have ended or a signal arrives. Prints events on the way, and the answers
    /// and a summary at the end. Returns the exit code.
    pub(crate) async fn run(self) -> Result<CliExitCode, CliError> {
        self.run_with_signals(ExitSignals::listen()?).await
    }

    /// Does the same as `run`, with signals that are already being listened to.
    pub(crate) async fn run_with_signals(
        mut self,
        mut signals: ExitSignals,
    ) -> Result<CliExitCode, CliError> {
        // For a background process this returns `None`: it holds the lock already.
        let lock = |root: &TaskId| background::lock_tree(self.data_dir, *root);
        let locks: Vec<_> = self.roots.iter().filter(|_| self.runs_here).map(lock).collect();
        let mut presenter = Presenter::new(self.context, self.data_dir, self.mode, self.since, self.notifier);
        if let [task] = self.reported_tasks[..] {
            let team = self.longhaul.state(task).await?.team;
            presenter.stream_text_of(task, matches!(team, TeamRef::File(_)));
        }
        let mut last = None;
        let watched = self.watch(&mut presenter, &mut signals, &mut last).await;
        let shown = match &last {
            Some(event) => tokio::select! {
                shown = presenter.handle_event(event) => shown,
                () = signals.next() => Ok(()),
            },
            None => Ok(()),
        };
        let over = match watched.and_then(|over| shown.map(|()| over)) {
            Ok(over) => over,
            Err(error) => {
                // The output has failed: give the tasks back, so that they can be resumed.
                self.longhaul.shutdown().await;
                return Err(error.into_interruption());
            }
        };
        let done = match over {
            SessionEnd::Ended => {
                self.longhaul.shutdown().await;
                self.print_summary(&mut presenter).await
            }
            SessionEnd::LeftTasksRunning => {
                // Print the answer first, so that no one waits for the handover.
                let printed = self.print_summary(&mut presenter).await;
                self.longhaul.shutdown_within(HANDOVER).await;
                drop(locks);
                self.hand_to_background().await?;
                return printed;
            }
            SessionEnd::NeedsInput => {
                self.longhaul.shutdown().await;
                self.report_questions(&mut presenter).await
            }
            SessionEnd::TimedOut(limit) => self.stop_on_timeout(&mut presenter, limit).await,
            SessionEnd::Interrupted if !self.runs_here => {
                self.report_detached(&mut presenter, "goes on; watch it again with", DataDir::attach_command)
            }
            SessionEnd::Abandoned => self.report_detached(
                &mut presenter,
                "is no longer running; resume it with",
                DataDir::resume_command,
            ),
            SessionEnd::TakenOver(task) => self.report_taken_over(&mut presenter, task).await,
            SessionEnd::Interrupted => self.drain_or_stop(&mut presenter, &mut signals).await,
            SessionEnd::StoreFailed(error) => {
                presenter.clear()?;
                // Nothing could be given back either: a later `resume` finds that this process is gone.
                let resume = self
                    .roots
                    .iter()
                    .map(|root| self.data_dir.resume_command(*root))
                    .collect::<Vec<_>>()
                    .join("; ");
                Err(CliError::from(LonghaulError::from(error))
                    .with_hint(format!("then resume with: {resume}")))
            }
        };
        drop(locks);
        // The answer was printed, but a lost database is not a success.
        match self.longhaul.store().file_lost() {
            Some(error) => done.and(Err(CliError::from(error))),
            None => done,
        }
    }

    /// Shows events until the session is over. Leaves the `last` event to the caller.
    async fn watch(
        &mut self,
        presenter: &mut Presenter<'_>,
        signals: &mut ExitSignals,
        last: &mut Option<Event>,
    ) -> Result<SessionEnd, CliError> {
        let live = presenter.is_live();
        presenter.show_intro(&self.intro).await?;
        let mut keys = if live { Keyboard::listen() } else { None };
        presenter.reads_keys = keys.is_some();
        let longhaul = self.longhaul.clone();
        let mut seen = SeenEvents::default();
        // Events that are there together are handled together: there may be thousands of tasks.
        let follow = |tasks: &[TaskId], seen: &SeenEvents, presenter: &Presenter<'_>| {
            follow_events(&longhaul, tasks, seen, presenter.shows_live_text()).ready_chunks(BATCH)
        };
        let mut events = follow(&self.roots, &seen, presenter);
        let mut beat = tokio::time::interval(FRAME);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let monitor = OwnerMonitor {
            longhaul: longhaul.clone(),
            data_dir: self.data_dir,
            roots: self.roots.clone(),
            runs_here: self.runs_here,
        };
        let abandoned = monitor.until_abandoned();
        tokio::pin!(abandoned);
        let time_is_up = wait_for_timeout(self.timeout);
        tokio::pin!(time_is_up);
        let mut is_late = false;
        let mut still_there = tokio::time::interval(DATABASE_POLL);
        let mut lost = false;
        loop {
            tokio::select! {
                batch = events.next() => match batch {
                    // A root may leave other tasks running: follow those next.
                    None => match self.tasks_to_follow(&seen).await? {
                        rest if rest.is_empty() => break,
                        rest => events = follow(&rest, &seen, presenter),
                    },
                    Some(batch) => for event in batch {
                        let event = event?;
                        seen.record(&event);
                        if self.is_last(&event) {
                            *last = Some(event);
                            continue;
                        }
                        // A slow reader delays the output and nothing else.
                        tokio::select! {
                            biased;
                            shown = presenter.handle_event(&event) => shown?,
                            () = signals.next() => return Ok(SessionEnd::Interrupted),
                        }
                        if self.stop_on_question && matches!(event.kind, EventKind::Asked { .. }) {
                            return Ok(SessionEnd::NeedsInput);
                        }
                        self.send_next_prompt(presenter, &event).await?;
                    }
                },
                _ = beat.tick(), if live => presenter.draw("")?,
                typed = next_keyboard_event(keys.as_mut()) => match typed {
                    KeyboardEvent::Key(key) => self.handle_key(presenter, key).await?,
                    KeyboardEvent::Suspend => {
                        presenter.clear()?;
                        keys.iter().for_each(Keyboard::suspend);
                    }
                },
                () = signals.next() => return Ok(SessionEnd::Interrupted),
                _ = still_there.tick(), if !lost => {
                    if let Some(error) = longhaul.store().file_lost() {
                        // In the background no one sees the answer, and no one could answer a question.
                        if self.mode == OutputMode::Silent {
                            return Ok(SessionEnd::StoreFailed(error));
                        }
                        lost = true;
                        presenter.clear()?;
                        self.context.note(&format!("warning: {error}"));
                    }
                }
                () = &mut time_is_up => {
                    let limit = self.timeout.unwrap_or_default();
                    if is_late || !self.end_by_themselves().await? {
                        return Ok(SessionEnd::TimedOut(limit));
                    }
                    is_late = true;
                    time_is_up.set(wait_for_timeout(Some(SOON * 5)));
                }
                left = &mut abandoned => return left.map(|()| SessionEnd::Abandoned),
                task = longhaul.lost_task() => return Ok(SessionEnd::TakenOver(task)),
                error = cmd::final_store_failure(&longhaul, self.data_dir) => return Ok(SessionEnd::StoreFailed(error)),
            }
        }
        match self.leave_to_background.is_some() && !self.open_tasks().await?.is_empty() {
            true => Ok(SessionEnd::LeftTasksRunning),
            false => Ok(SessionEnd::Ended),
        }
    }

    /// Returns whether this event must be the last line of the JSON output, even if other tasks go on after
    /// it.
    fn is_last(&self, event: &Event) -> bool {
        self.mode == OutputMode::Json
            && self.reported_tasks == [event.task]
            && matches!(event.kind, EventKind::Finished { .. })
    }

    /// Returns the tasks whose end has not been shown, without those that are left to a background process.
    async fn tasks_to_follow(&self, seen: &SeenEvents) -> Result<Vec<TaskId>, CliError> {
        let states = self.task_states().await?;
        let missing = seen.without_end(&states).into_iter();
        Ok(missing
            .filter(|state| self.leave_to_background.is_none() || state.status.is_final())
            .map(|state| state.id)
            .collect())
    }

    async fn task_states(&self) -> Result<Vec<TaskState>, CliError> {
        list_trees(&self.longhaul, &self.roots).await
    }

    async fn open_tasks(&self) -> Result<Vec<TaskId>, CliError> {
        let states = self.task_states().await?;
        Ok(states.into_iter().filter(|state| !state.status.is_final()).map(|state| state.id).collect())
    }

    async fn open_roots(&self) -> Result<Vec<TaskId>, CliError> {
        let mut roots: Vec<TaskId> = Vec::new();
        for state in self.task_states().await?.into_iter().filter(|state| !state.status.is_final()) {
            if !roots.contains(&state.root) {
                roots.push(state.root);
            }
        }
        Ok(roots)
    }
}
