//! The event loop: reads keys, signals and store hints, runs effects, and draws frames.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::{Stream, StreamExt as _};
use indexmap::IndexSet;
use longhaul::store::Hint;
use longhaul::teamfile::TeamBundle;
use longhaul::{Longhaul, TaskId};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::model::{TuiEffect, TuiMessage, TuiModel};
use super::side_effects::EffectRunner;
use super::signals::{self, TuiSignal, TuiSignals};
use super::terminal::{TerminalScreen, TuiScreen};
use super::theme::Theme;
use super::update::update;
use crate::args::TuiArgs;
use crate::cmd::CliContext;
use crate::exit::{CliError, CliExitCode};
use crate::trust::TeamFileTrust;
use crate::view::{Ink, pluralize, sanitize};

/// The minimum time between two frames or two reads of the store.
const FRAME: Duration = Duration::from_millis(34);
/// How often elapsed times are redrawn while something runs.
const TICK: Duration = Duration::from_secs(1);
/// How often open tasks are read without a hint.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Shows the TUI until the user leaves it.
pub(crate) async fn run(context: &CliContext, args: TuiArgs) -> Result<CliExitCode, CliError> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(CliError::new(CliExitCode::Usage, "the TUI needs a terminal on stdin and stdout")
            .with_hint("`longhaul tasks` lists tasks anywhere; `longhaul --help` lists all commands"));
    }
    if std::env::var_os("TERM").is_none_or(|kind| kind == "dumb") {
        return Err(CliError::new(CliExitCode::Usage, "this terminal cannot show the TUI: TERM is not set, or dumb")
            .with_hint("`longhaul tasks` lists tasks anywhere; `export TERM=xterm-256color` if the terminal is better than that"));
    }
    if let Some(team) = args.team.as_ref().filter(|team| !team.is_file()) {
        return Err(CliError::new(CliExitCode::Team, format!("there is no team file {}", team.display()))
            .with_hint("`longhaul init FILE` writes a starter file"));
    }
    let data_dir = context.data_dir()?;
    // Ask for trust before the TUI starts: its runs are started unattended.
    if let Some(team) = &args.team
        && let Ok(bundle) = TeamBundle::load(team)
    {
        TeamFileTrust::new(&data_dir, team, &bundle).ask_for_trust(context, args.trust)?;
    }
    let store = data_dir.open_store().await?;
    let effects = EffectRunner { longhaul: Longhaul::client(store).await?, data_dir, args: Arc::new(args) };
    let team = effects.args.team.as_ref().and_then(|team| team.file_name());
    let team = team.map(|name| sanitize(&name.to_string_lossy()));
    let model = TuiModel::new(Theme { color: context.term.color }, team, effects.store().now());
    let left = match (TuiSignals::listen(), TerminalScreen::enter()) {
        (Ok(calls), Ok(taken)) => {
            TuiEventLoop::new(model, effects.clone(), taken).run(EventStream::new(), calls).await
        }
        (Err(error), _) => Err(error),
        (_, Err(error)) => Err(error.into()),
    };
    effects.longhaul.shutdown().await;
    let (open, drained) = left?;
    if let Some(asked) = drained {
        context.note(&match asked {
            0 => "no process to drain".to_owned(),
            asked => format!(
                "{} asked to drain; `longhaul resume` continues the tasks",
                pluralize(asked, "process")
            ),
        });
    } else if open > 0 {
        context.note(&format!("{} on; `longhaul` shows this screen again", goes(open)));
    }
    Ok(CliExitCode::Success)
}

fn goes(open: usize) -> String {
    format!("{} {}", pluralize(open, "task"), if open == 1 { "goes" } else { "go" })
}

struct TuiEventLoop<S> {
    model: TuiModel,
    effects: EffectRunner,
    screen: S,
    work: JoinSet<Result<TuiMessage, CliError>>,
    /// The read for the selected task. It is aborted when another task is selected.
    reading: Option<AbortHandle>,
    /// Tasks that have changed, and whether any task may have.
    changed: IndexSet<TaskId>,
    lagged: bool,
    refreshing: bool,
    dirty: bool,
    clear: bool,
    drain: bool,
}

impl<S: TuiScreen> TuiEventLoop<S> {
    fn new(model: TuiModel, effects: EffectRunner, screen: S) -> TuiEventLoop<S> {
        TuiEventLoop {
            model,
            effects,
            screen,
            work: JoinSet::new(),
            reading: None,
            changed: IndexSet::new(),
            lagged: false,
            refreshing: false,
            dirty: true,
            clear: false,
            drain: false,
        }
    }

    /// Runs until the user leaves. Returns how many tasks go on, and how many processes were asked to drain.
    async fn run(
        mut self,
        mut events: impl Stream<Item = std::io::Result<Event>> + Unpin,
        mut calls: TuiSignals,
    ) -> Result<(usize, Option<usize>), CliError> {
        // Subscribe before the first read, so that no change is missed.
        let mut hints = self.effects.store().hints();
        let fault = self.screen.panic_notify();
        self.lagged = true;
        let (mut frame, mut tick, mut anyway) =
            (Instant::now(), Instant::now() + TICK, Instant::now() + POLL_INTERVAL);
        let mut look = Instant::now();
        while !self.model.quitting {
            let news = (self.lagged || !self.changed.is_empty()) && !self.refreshing;
            tokio::select! {
                biased;
                call = calls.next() => match call {
                    TuiSignal::Exit => break,
                    TuiSignal::Suspend if signals::is_job() => {
                        self.screen.suspend();
                        signals::stop_process();
                    }
                    TuiSignal::Suspend => self.refuse_suspend(),
                    TuiSignal::Resume => {
                        self.screen.resume()?;
                        (self.clear, self.dirty) = (true, true);
                    }
                },
                () = fault.notified() => {
                    return Err(CliError::new(CliExitCode::Failed, "a bug in Longhaul: see the message above")
                        .with_hint("the tasks go on: `longhaul` shows them again"));
                }
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle_input(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => break,
                },
                // Results of effects come first, then hints, then the frame; but a due frame is not delayed
                // forever.
                () = sleep_until(frame), if self.dirty => {
                    self.render()?;
                    frame = Instant::now() + FRAME;
                }
                Some(done) = self.work.join_next() => match done {
                    Ok(msg) => self.dispatch(msg?),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => {
                        return Err(CliError::new(CliExitCode::Failed, format!("a bug in Longhaul: {error}")));
                    }
                },
                () = sleep_until(look), if news => {
                    self.refresh();
                    look = Instant::now() + FRAME;
                }
                hint = hints.next() => match hint {
                    Some(Hint::Task { task, .. }) => {
                        self.changed.insert(task);
                    }
                    Some(Hint::Lagged) => self.lagged = true,
                    None => break,
                },
                () = sleep_until(tick), if self.model.has_running_tasks() => {
                    tick = Instant::now() + TICK;
                    self.dispatch(TuiMessage::Tick);
                }
                () = sleep_until(anyway), if self.model.open_task_count() > 0 && !self.refreshing => {
                    anyway = Instant::now() + POLL_INTERVAL;
                    self.refreshing = true;
                    self.work.spawn(self.effects.clone().read_open_tasks());
                }
            }
        }
        drop(self.screen);
        let drained = if self.drain { Some(self.effects.drain(self.model.tasks.values())?) } else { None };
        Ok((self.model.open_task_count(), drained))
    }

    fn handle_input(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.dispatch(TuiMessage::Key(key)),
            Event::Mouse(mouse) => {
                // Ignore pointer movement.
                if !matches!(mouse.kind, crossterm::event::MouseEventKind::Moved) {
                    self.dispatch(TuiMessage::Mouse(mouse));
                }
            }
            Event::Paste(text) => self.dispatch(TuiMessage::Paste(text)),
            Event::Resize(width, height) => self.dispatch(TuiMessage::Resize(width, height)),
            Event::FocusGained | Event::FocusLost => {}
        }
    }

    fn dispatch(&mut self, msg: TuiMessage) {
        if matches!(msg, TuiMessage::Loaded(..) | TuiMessage::TasksChanged(_)) {
            self.refreshing = false;
        }
        self.dirty = true;
        self.model.now = self.effects.store().now();
        for effect in update(&mut self.model, msg) {
            match effect {
                TuiEffect::Redraw => self.clear = true,
                TuiEffect::Suspend if signals::is_job() => signals::suspend_job(),
                TuiEffect::Suspend => self.refuse_suspend(),
                TuiEffect::Quit { drain } => self.drain = drain,
                TuiEffect::ReadJournal { order, .. } => {
                    let handle = self.work.spawn(self.effects.clone().run_effect(effect));
                    let before = self.reading.replace(handle);
                    // Another task was selected.
                    if let Some(before) = before.filter(|_| order) {
                        before.abort();
                    }
                }
                effect => {
                    self.work.spawn(self.effects.clone().run_effect(effect));
                }
            }
        }
    }

    /// Reads all changes at once.
    fn refresh(&mut self) {
        self.refreshing = true;
        if std::mem::take(&mut self.lagged) {
            self.changed.clear();
            self.work.spawn(self.effects.clone().load_all());
        } else {
            let ids = std::mem::take(&mut self.changed).into_iter().collect();
            self.work.spawn(self.effects.clone().read_tasks(ids));
        }
    }

    /// Shows why the TUI cannot be suspended.
    fn refuse_suspend(&mut self) {
        self.dirty = true;
        for effect in self.model.show_notice(Ink::Plain, "there is no shell to go back to: q leaves") {
            self.work.spawn(self.effects.clone().run_effect(effect));
        }
    }

    fn render(&mut self) -> Result<(), CliError> {
        self.dirty = false;
        let anew = std::mem::take(&mut self.clear);
        if anew {
            inject_fault("draw");
        }
        let size = self.screen.size()?;
        if size != self.model.size {
            update(&mut self.model, TuiMessage::Resize(size.0, size.1));
        }
        self.model.prepare_frame();
        let reads = [self.model.unknown_calls(), self.model.show_question()];
        for effect in reads.into_iter().flatten() {
            self.work.spawn(self.effects.clone().run_effect(effect));
        }
        self.screen.draw(&self.model, anew)?;
        Ok(())
    }
}

/// Panics at a point that a test selects, to check how the terminal is restored. Does nothing in release
/// builds.
pub(super) fn inject_fault(at: &str) {
    let requested = || std::env::var("LONGHAUL_TUI_FAULT").is_ok_and(|fault| fault == at);
    assert!(!cfg!(debug_assertions) || !requested(), "a fault, as a test wished for");
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
