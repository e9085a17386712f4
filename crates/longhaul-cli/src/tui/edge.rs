//! Where the screen meets the world: keys in, pictures out, wishes done, and hints of the store heard.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::{Stream, StreamExt as _};
use indexmap::IndexSet;
use longhaul::store::Hint;
use longhaul::teamfile::Bundle;
use longhaul::{Longhaul, TaskId};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::calls::{self, Call, Calls};
use super::deeds::Hands;
use super::model::{Effect, Model, Msg};
use super::terminal::{Stage, Taken};
use super::theme::Theme;
use super::update::update;
use crate::args::TuiArgs;
use crate::cmd::Desk;
use crate::exit::{Code, Trouble};
use crate::trust::Trust;
use crate::view::{Ink, clean, many};

/// No more often than this is anything drawn, or looked at.
const FRAME: Duration = Duration::from_millis(34);
/// How often elapsed times are drawn anew, while something runs.
const TICK: Duration = Duration::from_secs(1);
/// How often tasks that have not ended are looked at, though no hint came.
const LOOK_ANYWAY: Duration = Duration::from_secs(3);

/// Shows the screen until somebody leaves it.
pub(crate) async fn run(desk: &Desk, args: TuiArgs) -> Result<Code, Trouble> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Trouble::new(Code::Usage, "the screen needs a terminal, on standard input and output")
            .hint("`longhaul tasks` lists tasks anywhere; `longhaul --help` tells what else there is"));
    }
    if std::env::var_os("TERM").is_none_or(|kind| kind == "dumb") {
        return Err(Trouble::new(Code::Usage, "this terminal cannot show the screen: TERM is not set, or dumb")
            .hint("`longhaul tasks` lists tasks anywhere; `export TERM=xterm-256color` if the terminal is better than that"));
    }
    if let Some(team) = args.team.as_ref().filter(|team| !team.is_file()) {
        return Err(Trouble::new(Code::Team, format!("there is no team file {}", team.display()))
            .hint("`longhaul init FILE` writes one to begin with"));
    }
    let place = desk.place()?;
    // Before the screen: its runs are started where nobody can be asked.
    if let Some(team) = &args.team
        && let Ok(bundle) = Bundle::gather(team)
    {
        Trust::of(&place, team, &bundle).ask(desk, args.trust)?;
    }
    let store = place.open()?;
    let hands = Hands { longhaul: Longhaul::client(store).await?, place, args: Arc::new(args) };
    let team = hands.args.team.as_ref().and_then(|team| team.file_name());
    let team = team.map(|name| clean(&name.to_string_lossy()));
    let model = Model::new(Theme { color: desk.term.color }, team, hands.store().now());
    let left = match (Calls::listen(), Taken::take()) {
        (Ok(calls), Ok(taken)) => {
            Edge::new(model, hands.clone(), taken).show(EventStream::new(), calls).await
        }
        (Err(trouble), _) => Err(trouble),
        (_, Err(error)) => Err(error.into()),
    };
    hands.longhaul.shutdown().await;
    let (open, drained) = left?;
    if let Some(asked) = drained {
        desk.note(&match asked {
            0 => "nobody could be asked to drain".to_owned(),
            asked => format!("{} asked to drain; `longhaul resume` carries on", many(asked, "process")),
        });
    } else if open > 0 {
        desk.note(&format!("{} on; `longhaul` shows this screen again", goes(open)));
    }
    Ok(Code::Fine)
}

fn goes(open: usize) -> String {
    format!("{} {}", many(open, "task"), if open == 1 { "goes" } else { "go" })
}

struct Edge<S> {
    model: Model,
    hands: Hands,
    stage: S,
    work: JoinSet<Result<Msg, Trouble>>,
    /// What is read for the chosen task: nobody waits for what was chosen before.
    reading: Option<AbortHandle>,
    /// Tasks with something new, and whether any may have.
    changed: IndexSet<TaskId>,
    lagged: bool,
    looking: bool,
    dirty: bool,
    clear: bool,
    drain: bool,
}

impl<S: Stage> Edge<S> {
    fn new(model: Model, hands: Hands, stage: S) -> Edge<S> {
        Edge {
            model,
            hands,
            stage,
            work: JoinSet::new(),
            reading: None,
            changed: IndexSet::new(),
            lagged: false,
            looking: false,
            dirty: true,
            clear: false,
            drain: false,
        }
    }

    /// Until somebody leaves: how many tasks go on, and how many processes were asked to drain.
    async fn show(
        mut self,
        mut events: impl Stream<Item = std::io::Result<Event>> + Unpin,
        mut calls: Calls,
    ) -> Result<(usize, Option<usize>), Trouble> {
        // Before the first look, so that nothing falls between.
        let mut hints = self.hands.store().hints();
        let fault = self.stage.fault();
        self.lagged = true;
        let (mut frame, mut tick, mut anyway) =
            (Instant::now(), Instant::now() + TICK, Instant::now() + LOOK_ANYWAY);
        let mut look = Instant::now();
        while !self.model.leaving {
            let news = (self.lagged || !self.changed.is_empty()) && !self.looking;
            tokio::select! {
                biased;
                call = calls.next() => match call {
                    Call::End => break,
                    Call::Aside if calls::is_job() => {
                        self.stage.leave();
                        calls::stop();
                    }
                    Call::Aside => self.stays(),
                    Call::Back => {
                        self.stage.come_back()?;
                        (self.clear, self.dirty) = (true, true);
                    }
                },
                () = fault.notified() => {
                    return Err(Trouble::new(Code::Failed, "a fault in Longhaul: what it was is above")
                        .hint("the tasks go on: `longhaul` shows them again"));
                }
                event = events.next() => match event {
                    Some(Ok(event)) => self.event(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => break,
                },
                // What has been done comes before what has been heard, and both before a picture of them; a picture
                // that is due is not put off for ever.
                () = sleep_until(frame), if self.dirty => {
                    self.picture()?;
                    frame = Instant::now() + FRAME;
                }
                Some(done) = self.work.join_next() => match done {
                    Ok(msg) => self.happens(msg?),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => {
                        return Err(Trouble::new(Code::Failed, format!("a fault in Longhaul: {error}")));
                    }
                },
                () = sleep_until(look), if news => {
                    self.look();
                    look = Instant::now() + FRAME;
                }
                hint = hints.next() => match hint {
                    Some(Hint::Task { task, .. }) => {
                        self.changed.insert(task);
                    }
                    Some(Hint::Lagged) => self.lagged = true,
                    None => break,
                },
                () = sleep_until(tick), if self.model.ticks() => {
                    tick = Instant::now() + TICK;
                    self.happens(Msg::Tick);
                }
                () = sleep_until(anyway), if self.model.open() > 0 && !self.looking => {
                    anyway = Instant::now() + LOOK_ANYWAY;
                    self.looking = true;
                    self.work.spawn(self.hands.clone().live());
                }
            }
        }
        drop(self.stage);
        let drained = match self.drain {
            true => Some(self.hands.drain(self.model.heads.values())?),
            false => None,
        };
        Ok((self.model.open(), drained))
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.happens(Msg::Key(key)),
            Event::Mouse(mouse) => {
                // That the pointer moves is of no interest.
                if !matches!(mouse.kind, crossterm::event::MouseEventKind::Moved) {
                    self.happens(Msg::Mouse(mouse));
                }
            }
            Event::Paste(text) => self.happens(Msg::Paste(text)),
            Event::Resize(width, height) => self.happens(Msg::Resize(width, height)),
            Event::FocusGained | Event::FocusLost => {}
        }
    }

    fn happens(&mut self, msg: Msg) {
        if matches!(msg, Msg::Loaded(..) | Msg::Heads(_)) {
            self.looking = false;
        }
        self.dirty = true;
        self.model.now = self.hands.store().now();
        for effect in update(&mut self.model, msg) {
            match effect {
                Effect::Redraw => self.clear = true,
                Effect::Aside if calls::is_job() => calls::call_aside(),
                Effect::Aside => self.stays(),
                Effect::Leave { drain } => self.drain = drain,
                Effect::Read { order, .. } => {
                    let handle = self.work.spawn(self.hands.clone().act(effect));
                    let before = self.reading.replace(handle);
                    // Another task was chosen.
                    if let Some(before) = before.filter(|_| order) {
                        before.abort();
                    }
                }
                effect => {
                    self.work.spawn(self.hands.clone().act(effect));
                }
            }
        }
    }

    /// Reads what has changed, in one go.
    fn look(&mut self) {
        self.looking = true;
        if std::mem::take(&mut self.lagged) {
            self.changed.clear();
            self.work.spawn(self.hands.clone().load());
        } else {
            let ids = std::mem::take(&mut self.changed).into_iter().collect();
            self.work.spawn(self.hands.clone().heads(ids));
        }
    }

    /// Says why it does not step aside.
    fn stays(&mut self) {
        self.dirty = true;
        for effect in self.model.say(Ink::Plain, "there is no shell to go back to: q leaves") {
            self.work.spawn(self.hands.clone().act(effect));
        }
    }

    fn picture(&mut self) -> Result<(), Trouble> {
        self.dirty = false;
        let anew = std::mem::take(&mut self.clear);
        if anew {
            fault("draw");
        }
        let size = self.stage.size()?;
        if size != self.model.size {
            update(&mut self.model, Msg::Resize(size.0, size.1));
        }
        self.model.prepare();
        if let Some(effect) = self.model.unknown_calls() {
            self.work.spawn(self.hands.clone().act(effect));
        }
        self.stage.show(&self.model, anew)?;
        Ok(())
    }
}

/// Panics where a test wants to see what becomes of the terminal then. What people use knows nothing of this.
pub(super) fn fault(at: &str) {
    let wished = || std::env::var("LONGHAUL_TUI_FAULT").is_ok_and(|wished| wished == at);
    assert!(!cfg!(debug_assertions) || !wished(), "a fault, as a test wished for");
}

#[cfg(test)]
#[path = "edge_tests.rs"]
mod tests;
