//! Where the screen meets the world: keys in, pictures out, wishes done, and hints of the store heard.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::StreamExt as _;
use indexmap::IndexSet;
use longhaul::store::Hint;
use longhaul::{Longhaul, TaskId};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::deeds::Hands;
use super::draw::draw;
use super::model::{Effect, Model, Msg};
use super::terminal::Taken;
use super::theme::Theme;
use super::update::update;
use crate::args::TuiArgs;
use crate::cmd::Desk;
use crate::exit::{Code, Trouble};
use crate::view::{clean, many};

/// No more often than this is anything drawn, or looked at.
const FRAME: Duration = Duration::from_millis(33);
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
    if let Some(team) = args.team.as_ref().filter(|team| !team.is_file()) {
        return Err(Trouble::new(Code::Team, format!("there is no team file {}", team.display()))
            .hint("`longhaul init FILE` writes one to begin with"));
    }
    let place = desk.place()?;
    let store = place.open()?;
    let hands = Hands { longhaul: Longhaul::client(store).await?, place, args: Arc::new(args) };
    let team = hands.args.team.as_ref().and_then(|team| team.file_name());
    let team = team.map(|name| clean(&name.to_string_lossy()));
    let model = Model::new(Theme { color: desk.term.color }, team, hands.store().now());
    let left = Edge::new(model, hands.clone()).show().await;
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

struct Edge {
    model: Model,
    hands: Hands,
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

impl Edge {
    fn new(model: Model, hands: Hands) -> Edge {
        Edge {
            model,
            hands,
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
    async fn show(mut self) -> Result<(usize, Option<usize>), Trouble> {
        // Before the first look, so that nothing falls between.
        let mut hints = self.hands.store().hints();
        let mut signals = Signals::listen()?;
        let mut taken = Taken::take()?;
        let mut events = EventStream::new();
        self.lagged = true;
        let (mut frame, mut tick, mut anyway) =
            (Instant::now(), Instant::now() + TICK, Instant::now() + LOOK_ANYWAY);
        let mut look = Instant::now();
        while !self.model.leaving {
            let news = (self.lagged || !self.changed.is_empty()) && !self.looking;
            tokio::select! {
                biased;
                () = signals.next() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.event(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => break,
                },
                // What has been done comes before what has been heard, and both before a picture of them; a picture
                // that is due is not put off for ever.
                () = sleep_until(frame), if self.dirty => {
                    self.picture(&mut taken)?;
                    frame = Instant::now() + FRAME;
                }
                Some(done) = self.work.join_next() => match done {
                    Ok(msg) => self.happens(msg?),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => {
                        drop(taken);
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
        drop(taken);
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

    fn picture(&mut self, taken: &mut Taken) -> Result<(), Trouble> {
        self.dirty = false;
        let size = taken.terminal.size()?;
        if (size.width, size.height) != self.model.size {
            update(&mut self.model, Msg::Resize(size.width, size.height));
        }
        if std::mem::take(&mut self.clear) {
            taken.terminal.clear()?;
        }
        self.model.prepare();
        let model = &self.model;
        taken.terminal.draw(|frame| draw(model, frame))?;
        Ok(())
    }
}

/// What asks a program to end.
struct Signals {
    #[cfg(unix)]
    all: [tokio::signal::unix::Signal; 3],
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Signals, Trouble> {
        use tokio::signal::unix::{SignalKind, signal};
        let deaf = |error| Trouble::new(Code::Failed, format!("signals cannot be received: {error}"));
        let listen = |kind| signal(kind).map_err(deaf);
        let all = [
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
            listen(SignalKind::interrupt())?,
        ];
        Ok(Signals { all })
    }

    #[cfg(not(unix))]
    fn listen() -> Result<Signals, Trouble> {
        Ok(Signals {})
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        let [terminate, hangup, interrupt] = &mut self.all;
        tokio::select! {
            Some(()) = terminate.recv() => {}
            Some(()) = hangup.recv() => {}
            Some(()) = interrupt.recv() => {}
            else => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}
