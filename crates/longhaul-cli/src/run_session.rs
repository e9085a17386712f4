//! Running tasks in this process while somebody watches, or watching those of another: until they end, or until we are
//! told to go.

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
/// How often one who only watches looks whether there is still somebody who runs the tasks.
const OWNER_POLL: Duration = Duration::from_secs(2);
/// How often it is asked whether the database is still where it was.
const DATABASE_POLL: Duration = Duration::from_millis(500);

/// How long steps that are nearly done may take when the others are handed to a process in the background.
const HANDOVER: Duration = Duration::from_millis(500);

/// What ends by itself within this time is not stopped: a run knows its own limit, and says of itself that it timed out.
const SOON: Duration = Duration::from_millis(200);

/// How long tasks may take for their step when the run is to pause.
const DRAINING: Duration = Duration::from_secs(10);

/// How long tasks may take that were told to stop; then they are dropped, and end as stopped all the same.
const STOPPING: Duration = Duration::from_secs(4);

/// Tasks to be carried on here.
pub(crate) struct RunSession<'a> {
    pub(crate) context: &'a CliContext,
    pub(crate) data_dir: &'a DataDir,
    pub(crate) longhaul: Longhaul,
    pub(crate) roots: Vec<TaskId>,
    /// Whose ends and answers are told, and decide: the roots, unless somebody asks for others in their trees.
    pub(crate) reported_tasks: Vec<TaskId>,
    /// What was before this is known, and not told again.
    pub(crate) since: Timestamp,
    pub(crate) mode: OutputMode,
    /// Whether this process runs them; otherwise it only watches, and they go on without it.
    pub(crate) runs_here: bool,
    /// What is said first.
    pub(crate) intro: Vec<String>,
    /// In a session of ours: what the root is asked next, when it has answered. It is closed after the last.
    pub(crate) next_prompts: Option<VecDeque<String>>,
    /// Whether tasks that the root leaves behind are left to a process in the background, and with what.
    pub(crate) leave_to_background: Option<&'a ProviderArgs>,
    /// Whether a question ends it: nobody is there, and nobody is waited for.
    pub(crate) stop_on_question: bool,
    /// After how long it is stopped, by the clock.
    pub(crate) timeout: Option<Duration>,
    /// Whether it is no success that a call was denied because nobody was there.
    pub(crate) fail_on_denied: bool,
    /// Who is told that it ended.
    pub(crate) notifier: Notifier,
}

/// Why watching was over.
enum SessionEnd {
    /// The tasks have ended.
    Ended,
    /// The roots have ended, and left others that go on in the background.
    LeftTasksRunning,
    /// Somebody wants us to go.
    Interrupted,
    /// A person is needed, and nobody is there.
    NeedsInput,
    /// It took longer than it may.
    TimedOut(Duration),
    /// Nobody runs the tasks any more.
    Abandoned,
    /// Another process has taken this task.
    TakenOver(TaskId),
    /// Nothing can be written down any more.
    StoreFailed(StoreError),
}

impl<'a> RunSession<'a> {
    /// Tasks that this process runs, told to people or as JSON.
    pub(crate) fn new(
        desk: &'a CliContext,
        place: &'a DataDir,
        longhaul: Longhaul,
        roots: Vec<TaskId>,
    ) -> RunSession<'a> {
        RunSession {
            context: desk,
            data_dir: place,
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

    /// Carries the tasks on until they have ended, or we are told to go; tells what happens, and in the end the
    /// answers and what they took.
    pub(crate) async fn run(self) -> Result<CliExitCode, CliError> {
        self.run_with_signals(ExitSignals::listen()?).await
    }

    /// The same, where signals have been listened to since before.
    pub(crate) async fn run_with_signals(
        mut self,
        mut signals: ExitSignals,
    ) -> Result<CliExitCode, CliError> {
        // A carrier in the background has signed already.
        let sign = |root: &TaskId| background::lock_tree(self.data_dir, *root);
        let signs: Vec<_> = self.roots.iter().filter(|_| self.runs_here).map(sign).collect();
        let mut audience = Presenter::new(self.context, self.data_dir, self.mode, self.since, self.notifier);
        if let [speaker] = self.reported_tasks[..] {
            let team = self.longhaul.state(speaker).await?.team;
            audience.stream_text_of(speaker, matches!(team, TeamRef::File(_)));
        }
        let mut last = None;
        let watched = self.watch(&mut audience, &mut signals, &mut last).await;
        let told = match &last {
            Some(event) => tokio::select! {
                told = audience.handle_event(event) => told,
                () = signals.next() => Ok(()),
            },
            None => Ok(()),
        };
        let over = match watched.and_then(|over| told.map(|()| over)) {
            Ok(over) => over,
            Err(trouble) => {
                // Nobody watches any more: what runs is given back, and can be resumed.
                self.longhaul.shutdown().await;
                return Err(trouble.into_interruption());
            }
        };
        let done = match over {
            SessionEnd::Ended => {
                self.longhaul.shutdown().await;
                self.print_summary(&mut audience).await
            }
            SessionEnd::LeftTasksRunning => {
                // The answer first: nobody waits for what is left.
                let told = self.print_summary(&mut audience).await;
                self.longhaul.shutdown_within(HANDOVER).await;
                drop(signs);
                self.hand_to_background().await?;
                return told;
            }
            SessionEnd::NeedsInput => {
                self.longhaul.shutdown().await;
                self.report_questions(&mut audience).await
            }
            SessionEnd::TimedOut(limit) => self.stop_on_timeout(&mut audience, limit).await,
            SessionEnd::Interrupted if !self.runs_here => {
                self.report_detached(&mut audience, "goes on; watch it again with", DataDir::attach_command)
            }
            SessionEnd::Abandoned => self.report_detached(
                &mut audience,
                "is run by nobody any more; carry it on with",
                DataDir::resume_command,
            ),
            SessionEnd::TakenOver(task) => self.report_taken_over(&mut audience, task).await,
            SessionEnd::Interrupted => self.drain_or_stop(&mut audience, &mut signals).await,
            SessionEnd::StoreFailed(error) => {
                audience.clear()?;
                // Nothing could be given back either: whoever resumes finds that we are gone.
                let resume = self
                    .roots
                    .iter()
                    .map(|root| self.data_dir.resume_command(*root))
                    .collect::<Vec<_>>()
                    .join("; ");
                Err(CliError::from(LonghaulError::from(error))
                    .with_hint(format!("then carry on with: {resume}")))
            }
        };
        drop(signs);
        // The answer was told; that nobody will find it is no success.
        match self.longhaul.store().file_lost() {
            Some(error) => done.and(Err(CliError::from(error))),
            None => done,
        }
    }

    /// Tells what happens until it is over; but for the `last` event, which is still to be told.
    async fn watch(
        &mut self,
        audience: &mut Presenter<'_>,
        signals: &mut ExitSignals,
        last: &mut Option<Event>,
    ) -> Result<SessionEnd, CliError> {
        let live = audience.is_live();
        audience.show_intro(&self.intro).await?;
        let mut keys = if live { Keyboard::listen() } else { None };
        audience.reads_keys = keys.is_some();
        let longhaul = self.longhaul.clone();
        let mut heard = SeenEvents::default();
        let mut events = follow_events(&longhaul, &self.roots, &heard);
        let mut beat = tokio::time::interval(FRAME);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let looker = OwnerMonitor {
            longhaul: longhaul.clone(),
            data_dir: self.data_dir,
            roots: self.roots.clone(),
            runs_here: self.runs_here,
        };
        let abandoned = looker.until_abandoned();
        tokio::pin!(abandoned);
        let time_is_up = wait_for_timeout(self.timeout);
        tokio::pin!(time_is_up);
        let mut is_late = false;
        let mut still_there = tokio::time::interval(DATABASE_POLL);
        let mut lost = false;
        loop {
            tokio::select! {
                event = events.next() => match event.transpose()? {
                    // A root may leave others running: they are followed in their turn.
                    None => match self.tasks_to_follow(&heard).await? {
                        rest if rest.is_empty() => break,
                        rest => events = follow_events(&longhaul, &rest, &heard),
                    },
                    Some(event) => {
                        heard.record(&event);
                        if self.is_last(&event) {
                            *last = Some(event);
                            continue;
                        }
                        // A reader who does not read holds up what is told, and nothing else.
                        tokio::select! {
                            told = audience.handle_event(&event) => told?,
                            () = signals.next() => return Ok(SessionEnd::Interrupted),
                        }
                        if self.stop_on_question && matches!(event.kind, EventKind::Asked { .. }) {
                            return Ok(SessionEnd::NeedsInput);
                        }
                        self.send_next_prompt(audience, &event).await?;
                    }
                },
                _ = beat.tick(), if live => audience.draw("")?,
                typed = next_keyboard_event(keys.as_mut()) => match typed {
                    KeyboardEvent::Key(key) => self.handle_key(audience, key).await?,
                    KeyboardEvent::Suspend => {
                        audience.clear()?;
                        keys.iter().for_each(Keyboard::suspend);
                    }
                },
                () = signals.next() => return Ok(SessionEnd::Interrupted),
                _ = still_there.tick(), if !lost => {
                    if let Some(error) = longhaul.store().file_lost() {
                        // In the background nobody hears its answer, and nobody could answer what it asks.
                        if self.mode == OutputMode::Silent {
                            return Ok(SessionEnd::StoreFailed(error));
                        }
                        lost = true;
                        audience.clear()?;
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

    /// Whether programs find this in the last line, though others may go on after it.
    fn is_last(&self, event: &Event) -> bool {
        self.mode == OutputMode::Json
            && self.reported_tasks == [event.task]
            && matches!(event.kind, EventKind::Finished { .. })
    }

    /// Of whom there is more to tell: all whose end was not heard of. Those that are left to others go on without us.
    async fn tasks_to_follow(&self, heard: &SeenEvents) -> Result<Vec<TaskId>, CliError> {
        let heads = self.task_states().await?;
        let missing = heard.without_end(&heads).into_iter();
        Ok(missing
            .filter(|head| self.leave_to_background.is_none() || head.status.is_final())
            .map(|head| head.id)
            .collect())
    }

    /// In a session: the next word when it is silent, and the end after the last.
    async fn send_next_prompt(
        &mut self,
        audience: &mut Presenter<'_>,
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
            let lines = audience.answer_lines(event.task, &output);
            audience.clear()?;
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

    /// What a session said last.
    async fn last_reply(&self, session: TaskId) -> Result<String, CliError> {
        let journal = self.longhaul.store().read(session, longhaul::id::Seq(0), usize::MAX).await?;
        let last = journal.iter().rev().find_map(|record| match &record.entry {
            longhaul::entry::Entry::Replied(reply) => Some(reply.text()),
            _ => None,
        });
        Ok(last.unwrap_or_default())
    }

    async fn handle_key(&self, audience: &mut Presenter<'_>, key: KeyPress) -> Result<(), CliError> {
        if key == KeyPress::Ctrl('b') {
            return self.send_to_background(audience).await;
        }
        let Some(TypedAnswer { task, question, text: words }) = audience.handle_key(key) else {
            return Ok(());
        };
        let taken = match words {
            Some(words) => self.longhaul.answer(task, Some(question), words).await,
            None => self.longhaul.decline(task, Some(question)).await,
        };
        match taken {
            // Somebody else was faster: that is told as an event.
            Ok(_) | Err(LonghaulError::AlreadyAnswered { .. } | LonghaulError::NotAsking { .. }) => Ok(()),
            Err(error @ LonghaulError::BadAnswer(_)) => {
                audience.questions.reject_answer(&error.to_string());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn send_to_background(&self, audience: &mut Presenter<'_>) -> Result<(), CliError> {
        // The root first: who is below it goes on anyway.
        let blocked: Vec<TaskId> = audience.board.blocked().collect();
        let Some(task) = blocked.iter().find(|task| self.roots.contains(task)).or(blocked.first()) else {
            return Ok(());
        };
        if self.longhaul.background(*task).await? {
            audience.note("✓ it goes on in the background");
        }
        Ok(())
    }

    /// The first signal drains: tasks finish their step, if that does not take long, and are given back. The second stops them.
    async fn drain_or_stop(
        &self,
        audience: &mut Presenter<'_>,
        signals: &mut ExitSignals,
    ) -> Result<CliExitCode, CliError> {
        let resume: Vec<String> =
            self.roots.iter().map(|root| format!("`{}`", self.data_dir.resume_command(*root))).collect();
        let pausing = format!(
            "Pausing after the current step (up to {} s). Resume with {}. Ctrl-C again cancels the run.",
            DRAINING.as_secs(),
            resume.join(", ")
        );
        if !audience.is_live() && self.mode != OutputMode::Silent {
            self.context.note(&pausing);
        }
        let began = tokio::time::Instant::now();
        // What cannot be read is not told, and keeps nobody from giving the tasks back.
        let mut steps = self.current_steps().await.unwrap_or_default();
        if let Some(steps) =
            describe_steps(&steps).filter(|_| !audience.is_live() && self.mode != OutputMode::Silent)
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
                    _ = beat.tick(), if audience.is_live() && !gone => {
                        let waited = format_duration(began.elapsed());
                        let waits = describe_steps(&steps).unwrap_or_else(|| "the tasks to be given back".to_owned());
                        // A terminal that is gone does not keep the tasks from being given back.
                        gone = audience.draw(&format!("{pausing}\nWaiting {waited} for {waits}")).is_err();
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
                return self.print_summary(audience).await;
            }
            audience.clear()?;
            if let Some(cut) = describe_steps(&steps)
                && began.elapsed() >= DRAINING
                && self.mode != OutputMode::Silent
            {
                self.context.note(&format!("cut off after {} s: {cut}", DRAINING.as_secs()));
            }
            for root in open.into_iter().filter(|_| self.mode != OutputMode::Silent) {
                self.context.note(&format!(
                    "{root} was given back; carry it on with:  {}",
                    self.data_dir.resume_command(root)
                ));
            }
            return Ok(CliExitCode::Interrupted);
        }
        let code = self.print_summary(audience).await?;
        for head in self.task_states().await?.iter().filter(|head| self.roots.contains(&head.id)) {
            if head.status == Status::Cancelled && self.mode != OutputMode::Silent {
                let retry = self.data_dir.retry_command(head.id);
                self.context.note(&format!("{} was stopped; try it again with:  {retry}", head.id));
            }
        }
        Ok(code)
    }

    /// What the tasks that run here do now: each with the tool that it calls, or that its model is asked.
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

    /// Whether all that is open here is about to end by itself: a run that was ordered with a limit of its own has reached it.
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

    /// Stops what took too long.
    async fn stop_on_timeout(
        &self,
        audience: &mut Presenter<'_>,
        limit: Duration,
    ) -> Result<CliExitCode, CliError> {
        for root in &self.roots {
            self.longhaul.stop(*root).await?;
        }
        self.longhaul.shutdown_within(STOPPING).await;
        self.print_summary(audience).await?;
        let which: Vec<String> = self.roots.iter().map(ToString::to_string).collect();
        let what = format!("--timeout: {} was stopped after {}", which.join(", "), format_duration(limit));
        let hint =
            self.roots.first().map(|root| format!("try it again: {}", self.data_dir.retry_command(*root)));
        Err(CliError::new(CliExitCode::TimedOut, what).with_hint(hint.unwrap_or_default()))
    }

    /// What is asked, how it is answered, and how it goes on then.
    async fn report_questions(&self, audience: &mut Presenter<'_>) -> Result<CliExitCode, CliError> {
        audience.clear()?;
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
            self.context.note(&format!("then carry it on with:  {}", self.data_dir.resume_command(*root)));
        }
        Ok(CliExitCode::NeedsInput)
    }

    /// Another process has a task that ran here: this one does nothing more, and says so.
    async fn report_taken_over(
        &self,
        audience: &mut Presenter<'_>,
        task: TaskId,
    ) -> Result<CliExitCode, CliError> {
        self.longhaul.shutdown().await;
        let root = self.longhaul.state(task).await?.root;
        let why = "this one was stopped, or could not reach the database, for longer than its lease";
        if self.open_roots().await?.is_empty() {
            self.context.note(&format!("{task} was taken over by another process, which ended it: {why}"));
            return self.print_summary(audience).await;
        }
        audience.clear()?;
        if tree_owner::owned_trees(&**self.longhaul.store()).await?.contains(&root) {
            let what = format!("{task} is run by another process now: {why}");
            return Err(CliError::new(CliExitCode::TakenOver, what)
                .with_hint(format!("watch it: {}", self.data_dir.attach_command(root))));
        }
        let what = format!("{task} was taken over by another process, which is gone: {why}");
        Err(CliError::new(CliExitCode::TakenOver, what)
            .with_hint(format!("carry it on: {}", self.data_dir.resume_command(root))))
    }

    /// One who only watched goes away.
    fn report_detached(
        &self,
        audience: &mut Presenter<'_>,
        how: &str,
        command: fn(&DataDir, TaskId) -> String,
    ) -> Result<CliExitCode, CliError> {
        audience.clear()?;
        for root in &self.roots {
            self.context.note(&format!("{root} {how}:  {}", command(self.data_dir, *root)));
        }
        Ok(CliExitCode::Interrupted)
    }

    /// The root's end is the end; what it left goes on without us.
    async fn hand_to_background(&self) -> Result<(), CliError> {
        for root in &self.roots {
            let left = self.longhaul.list(TaskFilter::tree(*root).live()).await?.len();
            // They may just have ended.
            if left == 0 {
                continue;
            }
            let outside = self.leave_to_background.cloned().unwrap_or_default();
            background::start(self.data_dir, *root, BackgroundOptions::new(&outside)).await?;
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

    /// The answers, and what they took.
    async fn print_summary(&self, audience: &mut Presenter<'_>) -> Result<CliExitCode, CliError> {
        audience.clear()?;
        let (term, heads) = (self.context.term, self.task_states().await?);
        let told = self.mode == OutputMode::Human;
        // The tasks have ended as they have, whether anybody is left to hear of it or not.
        let line = |term: TerminalOutput, text: &str| CliError::ignore_closed_output(term.print_line(text));
        if self.mode != OutputMode::Silent {
            for subject in &self.reported_tasks {
                // Told here, it has been heard of: `longhaul prune` may take it some day.
                let _ = self.longhaul.mark_read(*subject).await;
            }
        }
        if told || self.mode == OutputMode::Quiet {
            for (index, head) in
                heads.iter().filter(|head| self.reported_tasks.contains(&head.id)).enumerate()
            {
                let output = self.longhaul.output(head.id).await?;
                // Where the live block was, there is an empty line already; and an answer may go elsewhere.
                let here =
                    head.error.is_some() || head.cut_short.is_some() || term.stream == OutputStream::Stdout;
                if told && (index > 0 || (!term.live && here)) {
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
                // An answer goes where answers go; what is none, to where all else is told.
                if head.error.is_none() && !output.trim().is_empty() {
                    let out = TerminalOutput::for_stream(OutputStream::Stdout);
                    audience
                        .answer_lines(head.id, &output)
                        .iter()
                        .try_for_each(|told| line(out, &told.text))?;
                }
            }
        }
        if told {
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

/// What is waited for; the first few.
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

/// Waits until this time has passed on the clock, also while the machine slept; for ever, where there is none.
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
        // In steps: the runtime's clock may stand still while the machine sleeps.
        tokio::time::sleep(left.min(STEP)).await;
    }
}

/// What happens to these tasks and below them, without what was heard before.
fn follow_events(
    longhaul: &Longhaul,
    tasks: &[TaskId],
    heard: &SeenEvents,
) -> SelectAll<BoxStream<'static, Result<Event, LonghaulError>>> {
    let known = Arc::new(heard.clone());
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

/// What is typed next, where there is a keyboard.
async fn next_keyboard_event(keys: Option<&mut Keyboard>) -> KeyboardEvent {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// One who looks now and then whether there is still somebody who runs the tasks.
struct OwnerMonitor<'a> {
    longhaul: Longhaul,
    data_dir: &'a DataDir,
    roots: Vec<TaskId>,
    runs_here: bool,
}

impl OwnerMonitor<'_> {
    /// Waits until nobody runs the tasks any more, though they have not ended.
    async fn until_abandoned(&self) -> Result<(), CliError> {
        if self.runs_here {
            std::future::pending::<()>().await;
        }
        let mut alone = 0;
        // Somebody may just be taking it up.
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
