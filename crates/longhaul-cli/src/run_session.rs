//! Runs tasks in this process and shows their events, or watches tasks of another process, until they end or
//! we are asked to stop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use jiff::Timestamp;
use longhaul::entry::{TeamRef, WaitReason};
use longhaul::snapshot::{Event, EventKind};
use longhaul::store::{StoreError, TaskFilter};
use longhaul::task::TaskState;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};

use crate::args::ProviderArgs;
use crate::background::{self, BackgroundOptions};
use crate::cmd::CliContext;
use crate::data_dir::DataDir;
use crate::exit::{CliError, CliExitCode};
use crate::keyboard::{KeyPress, Keyboard, KeyboardEvent};
use crate::notify::Notifier;
pub(crate) use crate::presenter::OutputMode;
use crate::presenter::Presenter;
use crate::run_exit_code::exit_code_of_run;
use crate::seen_events::SeenEvents;
use crate::signals::ExitSignals;
use crate::tree_owner;
use crate::view::text_format::format_duration;
use crate::view::{
    Ink, OutputStream, TerminalOutput, TypedAnswer, one_line, pluralize, sanitize, summary_table,
};

/// How often the live block is drawn.
const FRAME: Duration = Duration::from_millis(80);
/// How often a watcher checks that some process still runs the tasks.
const OWNER_POLL: Duration = Duration::from_secs(2);
/// How often to check that the database file still exists.
const DATABASE_POLL: Duration = Duration::from_millis(500);

/// How long steps may take to finish before tasks are handed to a background process.
const HANDOVER: Duration = Duration::from_millis(500);

/// Tasks that end by themselves within this time are not stopped: a run with its own time limit reports the
/// timeout itself.
const SOON: Duration = Duration::from_millis(200);

/// How long tasks may take to finish their step when the run is paused.
const DRAINING: Duration = Duration::from_secs(10);

/// How long stopped tasks may take to end. After that they are dropped, and still count as stopped.
const STOPPING: Duration = Duration::from_secs(4);

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
        let mut events = follow_events(&longhaul, &self.roots, &seen);
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
                event = events.next() => match event.transpose()? {
                    // A root may leave other tasks running: follow those next.
                    None => match self.tasks_to_follow(&seen).await? {
                        rest if rest.is_empty() => break,
                        rest => events = follow_events(&longhaul, &rest, &seen),
                    },
                    Some(event) => {
                        seen.record(&event);
                        if self.is_last(&event) {
                            *last = Some(event);
                            continue;
                        }
                        // A slow reader delays the output and nothing else.
                        tokio::select! {
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
                error = longhaul.store_failure() => return Ok(SessionEnd::StoreFailed(error)),
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
        let heads = self.task_states().await?;
        let missing = seen.without_end(&heads).into_iter();
        Ok(missing
            .filter(|head| self.leave_to_background.is_none() || head.status.is_final())
            .map(|head| head.id)
            .collect())
    }

    /// In a session: sends the next prompt when the root waits for one, and closes the session after the
    /// last.
    async fn send_next_prompt(
        &mut self,
        presenter: &mut Presenter<'_>,
        event: &Event,
    ) -> Result<(), CliError> {
        let silent = matches!(event.kind, EventKind::Waiting { on: WaitReason::Letter, .. });
        let Some(next) = &mut self.next_prompts else { return Ok(()) };
        if !silent || event.at < self.since || !self.roots.contains(&event.task) {
            return Ok(());
        }
        let Some(next) = next.pop_front() else {
            return Ok(self.longhaul.close_session(event.task).await?);
        };
        if matches!(self.mode, OutputMode::Human | OutputMode::Quiet) {
            let output = self.last_reply(event.task).await?;
            let lines = presenter.answer_lines(event.task, &output);
            presenter.clear()?;
            lines.iter().try_for_each(|line| {
                TerminalOutput::for_stream(OutputStream::Stdout).print_line(&line.text)
            })?;
            if !TerminalOutput::for_stream(OutputStream::Stdout).live {
                TerminalOutput::for_stream(OutputStream::Stdout).print_line("")?;
            }
        }
        self.longhaul.send(event.task, next).await?;
        Ok(())
    }

    /// Returns the last reply of a session.
    async fn last_reply(&self, session: TaskId) -> Result<String, CliError> {
        let journal = self.longhaul.store().read(session, longhaul::id::Seq(0), usize::MAX).await?;
        let last = journal.iter().rev().find_map(|record| match &record.entry {
            longhaul::entry::Entry::Replied(reply) => Some(reply.text()),
            _ => None,
        });
        Ok(last.unwrap_or_default())
    }

    async fn handle_key(&self, presenter: &mut Presenter<'_>, key: KeyPress) -> Result<(), CliError> {
        if key == KeyPress::Ctrl('b') {
            return self.send_to_background(presenter).await;
        }
        let Some(TypedAnswer { task, question, text: words }) = presenter.handle_key(key) else {
            return Ok(());
        };
        let taken = match words {
            Some(words) => self.longhaul.answer(task, Some(question), words).await,
            None => self.longhaul.decline(task, Some(question)).await,
        };
        match taken {
            // Someone else answered first: an event reports that.
            Ok(_) | Err(LonghaulError::AlreadyAnswered { .. } | LonghaulError::NotAsking { .. }) => Ok(()),
            Err(error @ LonghaulError::BadAnswer(_)) => {
                presenter.questions.reject_answer(&error.to_string());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn send_to_background(&self, presenter: &mut Presenter<'_>) -> Result<(), CliError> {
        // The root first: the tasks below it go on anyway.
        let blocked: Vec<TaskId> = presenter.board.blocked().collect();
        let Some(task) = blocked.iter().find(|task| self.roots.contains(task)).or(blocked.first()) else {
            return Ok(());
        };
        if self.longhaul.background(*task).await? {
            presenter.note("✓ it goes on in the background");
        }
        Ok(())
    }

    /// Drains at the first signal: tasks finish their step, if that does not take long, and are given back.
    /// Stops them at the second.
    async fn drain_or_stop(
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
        for head in self.task_states().await?.iter().filter(|head| self.roots.contains(&head.id)) {
            if head.status == Status::Cancelled && self.mode != OutputMode::Silent {
                let retry = self.data_dir.retry_command(head.id);
                self.context.note(&format!("{} was stopped; try it again with:  {retry}", head.id));
            }
        }
        Ok(code)
    }

    /// Returns what each running task does now: the tool that it calls, or that it waits for its model.
    async fn current_steps(&self) -> Result<Vec<String>, CliError> {
        let heads = self.task_states().await?;
        let running = heads.iter().filter(|head| head.status == Status::Running && head.waiting.is_none());
        Ok(running
            .map(|head| {
                let tools: Vec<String> = head.calling.iter().map(|(_, tool)| one_line(tool)).collect();
                match tools.is_empty() {
                    true => format!("the model of {} ({})", head.id, one_line(head.agent.as_str())),
                    false => {
                        format!("{} of {} ({})", tools.join(", "), head.id, one_line(head.agent.as_str()))
                    }
                }
            })
            .collect())
    }

    /// Returns whether all open runs are about to end by themselves because their own time limit is reached.
    async fn end_by_themselves(&self) -> Result<bool, CliError> {
        for root in self.open_roots().await? {
            let task = self.longhaul.snapshot(root).await?;
            let worked = task.state.worked_at(self.longhaul.store().now(), Duration::MAX);
            let left = task.order.timeout.map(|limit| limit.saturating_sub(worked));
            if task.state.status != Status::Running || left.is_none_or(|left| left > SOON) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stops the tasks because `--timeout` is reached.
    async fn stop_on_timeout(
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
    async fn report_questions(&self, presenter: &mut Presenter<'_>) -> Result<CliExitCode, CliError> {
        presenter.clear()?;
        for head in self.task_states().await?.iter().filter(|head| !head.asked.is_empty()) {
            for (question, asks) in self.longhaul.snapshot(head.id).await?.questions {
                self.context.note(&format!(
                    "{} of {} needs a person: {}",
                    head.agent,
                    head.id,
                    one_line(&asks.text)
                ));
                let named = (head.asked.len() > 1).then_some(question);
                self.context.note(&format!(
                    "answer it with:  {}",
                    self.data_dir.answer_command(head.id, named, &asks.wants)
                ));
            }
        }
        for root in &self.roots {
            self.context.note(&format!("then resume it with:  {}", self.data_dir.resume_command(*root)));
        }
        Ok(CliExitCode::NeedsInput)
    }

    /// Reports that another process has taken over a task that ran here.
    async fn report_taken_over(
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
    fn report_detached(
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
    async fn hand_to_background(&self) -> Result<(), CliError> {
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

    async fn task_states(&self) -> Result<Vec<TaskState>, CliError> {
        list_trees(&self.longhaul, &self.roots).await
    }

    async fn open_tasks(&self) -> Result<Vec<TaskId>, CliError> {
        let heads = self.task_states().await?;
        Ok(heads.into_iter().filter(|head| !head.status.is_final()).map(|head| head.id).collect())
    }

    async fn open_roots(&self) -> Result<Vec<TaskId>, CliError> {
        let mut roots: Vec<TaskId> = Vec::new();
        for head in self.task_states().await?.into_iter().filter(|head| !head.status.is_final()) {
            if !roots.contains(&head.root) {
                roots.push(head.root);
            }
        }
        Ok(roots)
    }

    /// Prints the answers and a summary, and returns the exit code.
    async fn print_summary(&self, presenter: &mut Presenter<'_>) -> Result<CliExitCode, CliError> {
        presenter.clear()?;
        let (term, heads) = (self.context.term, self.task_states().await?);
        let for_people = self.mode == OutputMode::Human;
        // A closed output does not change how the tasks ended.
        let line = |term: TerminalOutput, text: &str| CliError::ignore_closed_output(term.print_line(text));
        if self.mode != OutputMode::Silent {
            for subject in &self.reported_tasks {
                // Mark it as read, so that `longhaul prune` may delete it later.
                let _ = self.longhaul.mark_read(*subject).await;
            }
        }
        if for_people || self.mode == OutputMode::Quiet {
            for (index, head) in
                heads.iter().filter(|head| self.reported_tasks.contains(&head.id)).enumerate()
            {
                let output = self.longhaul.output(head.id).await?;
                // The live block leaves an empty line behind, and the answer may go to another stream.
                let here =
                    head.error.is_some() || head.cut_short.is_some() || term.stream == OutputStream::Stdout;
                if for_people && (index > 0 || (!term.live && here)) {
                    line(term, "")?;
                }
                if let Some(error) = &head.error {
                    let word = term.paint(Ink::for_status(head.status), head.status.as_str());
                    line(term, &term.wrap(&format!("{} {word}: {}", head.id, sanitize(error))))?;
                    if !output.trim().is_empty() {
                        line(term, "What it had said by then:")?;
                        line(term, &term.wrap(sanitize(&output).trim_end()))?;
                    }
                }
                if let Some(limit) = &head.cut_short {
                    let word = term.paint(Ink::Attention, "cut short");
                    line(term, &term.wrap(&format!("{} {word} by {}", head.id, sanitize(limit))))?;
                }
                // Answers go to stdout; everything else goes to the progress stream.
                if head.error.is_none() && !output.trim().is_empty() {
                    let out = TerminalOutput::for_stream(OutputStream::Stdout);
                    presenter
                        .answer_lines(head.id, &output)
                        .iter()
                        .try_for_each(|styled| line(out, &styled.text))?;
                }
            }
        }
        if for_people {
            line(term, "")?;
            for row in summary_table(&heads, term, Timestamp::now()) {
                line(term, &row)?;
            }
        }
        let (mut code, why) = exit_code_of_run(&self.longhaul, &heads, &self.reported_tasks).await?;
        if self.mode != OutputMode::Silent {
            for why in why {
                self.context.note(&why);
            }
        }
        let denied: u32 = heads.iter().map(|head| head.denied).sum();
        if denied > 0 && self.mode != OutputMode::Silent {
            let (calls, was) = (pluralize(denied as usize, "call"), if denied == 1 { "was" } else { "were" });
            self.context.note(&format!(
                "{calls} {was} denied because no one was there to approve: allow them in `permissions`, or use --unattended \
                 wait or --yolo"
            ));
        }
        if denied > 0 && self.fail_on_denied && code == CliExitCode::Success {
            code = CliExitCode::NeedsInput;
        }
        let ended = heads.iter().find(|head| self.reported_tasks.contains(&head.id));
        if let Some(head) = ended {
            self.notifier.notify(&format!("{} {}: {}", head.agent, head.status, head.headline));
        }
        Ok(code)
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

/// Waits until this much wall-clock time has passed, including time the machine slept. Waits forever if there
/// is no limit.
async fn wait_for_timeout(limit: Option<Duration>) {
    const STEP: Duration = Duration::from_secs(1);
    let Some(limit) = limit else { return std::future::pending().await };
    let clock = longhaul::store::Clock::system();
    let began = clock.elapsed();
    loop {
        let left = limit.saturating_sub(clock.elapsed().saturating_sub(began));
        if left.is_zero() {
            return;
        }
        // Sleep in steps: the runtime's clock may stop while the machine sleeps.
        tokio::time::sleep(left.min(STEP)).await;
    }
}

/// Follows the events of these tasks and everything below them, without those that were shown before.
fn follow_events(
    longhaul: &Longhaul,
    tasks: &[TaskId],
    seen: &SeenEvents,
) -> SelectAll<BoxStream<'static, Result<Event, LonghaulError>>> {
    let known = Arc::new(seen.clone());
    let news = |task: &TaskId| {
        let known = known.clone();
        let new = move |event: &Result<Event, LonghaulError>| {
            std::future::ready(event.as_ref().map_or(true, |event| known.is_new(event)))
        };
        longhaul.follow(*task).filter(new).boxed()
    };
    tasks.iter().map(news).collect()
}

async fn list_trees(longhaul: &Longhaul, roots: &[TaskId]) -> Result<Vec<TaskState>, CliError> {
    let mut heads = Vec::new();
    for root in roots {
        heads.extend(longhaul.list(TaskFilter::tree(*root)).await?);
    }
    Ok(heads)
}

/// Waits for the next keyboard event; forever if there is no keyboard.
async fn next_keyboard_event(keys: Option<&mut Keyboard>) -> KeyboardEvent {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// Checks regularly that some process still runs the tasks.
struct OwnerMonitor<'a> {
    longhaul: Longhaul,
    data_dir: &'a DataDir,
    roots: Vec<TaskId>,
    runs_here: bool,
}

impl OwnerMonitor<'_> {
    /// Waits until no process runs the tasks although they have not ended.
    async fn until_abandoned(&self) -> Result<(), CliError> {
        if self.runs_here {
            std::future::pending::<()>().await;
        }
        let mut alone = 0;
        // Another process may be about to take them over.
        while alone < 3 {
            tokio::time::sleep(OWNER_POLL).await;
            let heads = list_trees(&self.longhaul, &self.roots).await?;
            let open = heads.iter().any(|head| !head.status.is_final());
            let runs = heads.iter().any(|head| head.status == Status::Running);
            let signed =
                self.roots.iter().any(|root| background::running_pid(self.data_dir, *root).is_some());
            alone = if open && !runs && !signed { alone + 1 } else { 0 };
        }
        Ok(())
    }
}
