//! Running tasks in this process while somebody watches: until they end, or until we are told to.

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use jiff::Timestamp;
use longhaul::snapshot::Event;
use longhaul::store::{Filter, StoreError};
use longhaul::task::Head;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};

use crate::carrier;
use crate::cmd::Desk;
use crate::exit::{Code, Trouble};
use crate::place::Place;
use crate::verdict::verdict;
use crate::view::{Board, Detail, Frame, Ink, Out, Teller, Term, clean, lines, summary};

/// How often the live block is drawn.
const FRAME: std::time::Duration = std::time::Duration::from_millis(80);

/// Tasks to be carried on here.
pub(crate) struct Carry<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) place: &'a Place,
    pub(crate) longhaul: Longhaul,
    pub(crate) roots: Vec<TaskId>,
    /// What was before this is known, and not told again.
    pub(crate) since: Timestamp,
    pub(crate) manner: Manner,
    /// Whether this process runs them; otherwise it only watches, and they go on without it.
    pub(crate) ours: bool,
    /// What is said first.
    pub(crate) intro: Vec<String>,
}

/// How it is told what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// To people: a live block, or lines.
    Told,
    /// One event a line.
    Json,
    /// Not at all.
    Silent,
}

/// How often one who only watches looks whether there is still somebody who runs the tasks.
const LOOK: std::time::Duration = std::time::Duration::from_secs(2);

/// Why watching was over.
enum Over {
    /// The tasks have ended.
    Ended,
    /// Somebody wants us to go.
    Interrupted,
    /// Nobody runs the tasks any more.
    Left,
    /// Nothing can be written down any more.
    Trouble(StoreError),
}

impl Carry<'_> {
    /// Carries the tasks on until they have ended, or we are told to go; tells what happens, and in the end the
    /// answers and what they took.
    pub(crate) async fn on(self) -> Result<Code, Trouble> {
        let mut signals = Signals::listen()?;
        // A carrier in the background has signed already.
        let signs: Vec<_> =
            self.roots.iter().filter(|_| self.ours).map(|root| carrier::sign(self.place, *root)).collect();
        let mut board = Board::default();
        let over = match self.watch(&mut board, &mut signals).await {
            Ok(over) => over,
            Err(trouble) => {
                // Nobody watches any more: what runs is given back, and can be resumed.
                self.longhaul.shutdown().await;
                return Err(trouble.while_running());
            }
        };
        let done = match over {
            Over::Ended => {
                self.longhaul.shutdown().await;
                self.sum_up().await
            }
            Over::Interrupted if !self.ours => self.left("goes on; watch it again with", Place::attach).await,
            Over::Left => self.left("is run by nobody any more; carry it on with", Place::resume).await,
            Over::Interrupted => self.leave(&board, &mut signals).await,
            Over::Trouble(error) => {
                self.desk.screen.clear(self.desk.term.size().0)?;
                // Nothing could be given back either: whoever resumes finds that we are gone.
                let resume =
                    self.roots.iter().map(|root| self.place.resume(*root)).collect::<Vec<_>>().join("; ");
                Err(Trouble::from(LonghaulError::from(error)).hint(format!("then carry on with: {resume}")))
            }
        };
        drop(signs);
        done
    }

    /// One who only watched goes away.
    async fn left(&self, how: &str, command: fn(&Place, TaskId) -> String) -> Result<Code, Trouble> {
        self.desk.screen.clear(self.desk.term.size().0)?;
        for root in &self.roots {
            self.desk.note(&format!("{root} {how}:  {}", command(self.place, *root)));
        }
        Ok(Code::Interrupted)
    }

    /// Waits until nobody runs the tasks any more, though they have not ended.
    async fn abandoned(&self) -> Result<(), Trouble> {
        if self.ours {
            std::future::pending::<()>().await;
        }
        let mut alone = 0;
        // Somebody may just be taking it up.
        while alone < 3 {
            tokio::time::sleep(LOOK).await;
            let heads = self.heads().await?;
            let open = heads.iter().any(|head| !head.status.is_final());
            let runs = heads.iter().any(|head| head.status == Status::Running);
            let signed = self.roots.iter().any(|root| carrier::of(self.place, *root).is_some());
            alone = if open && !runs && !signed { alone + 1 } else { 0 };
        }
        Ok(())
    }

    async fn watch(&self, board: &mut Board, signals: &mut Signals) -> Result<Over, Trouble> {
        let term = self.desk.term;
        let live = self.live();
        if self.manner == Manner::Told {
            self.intro.iter().try_for_each(|line| term.line(line))?;
        }
        let mut teller = Teller::new(term, Detail::Lines).at(self.place);
        let mut events: SelectAll<BoxStream<'_, Result<Event, LonghaulError>>> =
            self.roots.iter().map(|root| self.longhaul.follow(*root).boxed()).collect();
        let mut beat = tokio::time::interval(FRAME);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut beats = 0;
        let abandoned = self.abandoned();
        tokio::pin!(abandoned);
        loop {
            tokio::select! {
                event = events.next() => match event.transpose()? {
                    None => break,
                    Some(event) => {
                        board.feed(&event);
                        if event.at < self.since {
                            teller.skip(&event);
                        } else if self.manner == Manner::Json {
                            term.json(&event)?;
                        } else if self.manner == Manner::Told && !live {
                            for line in teller.tell(&event) {
                                term.line(&line)?;
                            }
                        }
                    }
                },
                _ = beat.tick(), if live => {
                    beats += 1;
                    self.draw(board, beats, "")?;
                }
                () = signals.next() => {
                    return Ok(Over::Interrupted);
                }
                left = &mut abandoned => return left.map(|()| Over::Left),
                error = self.longhaul.trouble() => return Ok(Over::Trouble(error)),
            }
        }
        // A root may leave others running.
        let open = self.open().await?;
        if !open.is_empty() {
            tokio::select! {
                waited = self.longhaul.wait(open) => drop(waited?),
                () = signals.next() => return Ok(Over::Interrupted),
                left = &mut abandoned => return left.map(|()| Over::Left),
                error = self.longhaul.trouble() => return Ok(Over::Trouble(error)),
            }
        }
        self.desk.screen.clear(term.size().0)?;
        Ok(Over::Ended)
    }

    fn live(&self) -> bool {
        self.desk.term.live && self.manner == Manner::Told
    }

    fn draw(&self, board: &Board, beat: usize, footer: &str) -> Result<(), Trouble> {
        let term = self.desk.term;
        let size = term.size();
        let frame = Frame { term, size, now: Timestamp::now(), beat, footer };
        Ok(self.desk.screen.draw(&lines(board, &frame), size.0)?)
    }

    /// The first signal drains: steps are finished, tasks given back. The second stops the tasks.
    async fn leave(&self, board: &Board, signals: &mut Signals) -> Result<Code, Trouble> {
        const DRAINING: &str =
            "draining: steps are finished, tasks given back; press Ctrl-C again to stop them";
        let term = self.desk.term;
        if self.live() {
            self.draw(board, 0, DRAINING)?;
        } else if self.manner != Manner::Silent {
            self.desk.note(DRAINING);
        }
        let stopped = tokio::select! {
            () = self.longhaul.shutdown() => false,
            () = signals.next() => {
                for root in &self.roots {
                    self.longhaul.stop(*root).await?;
                }
                self.longhaul.shutdown().await;
                true
            }
        };
        self.desk.screen.clear(term.size().0)?;
        if !stopped {
            let open = self.open_roots().await?;
            if open.is_empty() {
                return self.sum_up().await;
            }
            for root in open.into_iter().filter(|_| self.manner != Manner::Silent) {
                self.desk
                    .note(&format!("{root} was given back; carry it on with:  {}", self.place.resume(root)));
            }
            return Ok(Code::Interrupted);
        }
        self.sum_up().await
    }

    async fn heads(&self) -> Result<Vec<Head>, Trouble> {
        let mut heads = Vec::new();
        for root in &self.roots {
            heads.extend(self.longhaul.snapshots(Filter::tree(*root)).await?);
        }
        Ok(heads)
    }

    async fn open(&self) -> Result<Vec<TaskId>, Trouble> {
        let heads = self.heads().await?;
        Ok(heads.into_iter().filter(|head| !head.status.is_final()).map(|head| head.id).collect())
    }

    async fn open_roots(&self) -> Result<Vec<TaskId>, Trouble> {
        let mut roots: Vec<TaskId> = Vec::new();
        for head in self.heads().await?.into_iter().filter(|head| !head.status.is_final()) {
            if !roots.contains(&head.root) {
                roots.push(head.root);
            }
        }
        Ok(roots)
    }

    /// The answers, and what they took.
    async fn sum_up(&self) -> Result<Code, Trouble> {
        let (term, heads) = (self.desk.term, self.heads().await?);
        if self.manner == Manner::Told {
            for (index, root) in heads.iter().filter(|head| self.roots.contains(&head.id)).enumerate() {
                let output = clean(&self.longhaul.output(root.id).await?);
                // Where the live block was, there is an empty line already; and an answer may go elsewhere.
                let here = root.error.is_some() || root.cut_short.is_some() || term.out == Out::Stdout;
                if index > 0 || (!term.live && here) {
                    term.line("")?;
                }
                if let Some(error) = &root.error {
                    let word = term.paint(Ink::of(root.status), root.status.as_str());
                    term.line(&term.wrapped(&format!("{} {word}: {}", root.id, clean(error))))?;
                    if !output.trim().is_empty() {
                        term.line("What it had said by then:")?;
                    }
                }
                // Told here, it has been heard of: `longhaul prune` may take it some day.
                let _ = self.longhaul.look_at(root.id).await;
                if let Some(limit) = &root.cut_short {
                    let word = term.paint(Ink::Waits, "cut short");
                    term.line(&term.wrapped(&format!("{} {word} by {}", root.id, clean(limit))))?;
                }
                if !output.trim().is_empty() {
                    // An answer goes where answers go; what is none, to where all else is told.
                    let to = if root.error.is_none() { Term::of(Out::Stdout) } else { term };
                    to.line(&to.wrapped(output.trim_end()))?;
                }
            }
            term.line("")?;
            for line in summary(&heads, term, Timestamp::now()) {
                term.line(&line)?;
            }
        }
        verdict(&self.longhaul, &heads, &self.roots).await
    }
}

/// Ctrl-C, and whatever else asks a program to end.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Signals, Trouble> {
        use tokio::signal::unix::{SignalKind, signal};
        let deaf = |error| Trouble::new(Code::Failed, format!("signals cannot be received: {error}"));
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(deaf)?,
            terminate: signal(SignalKind::terminate()).map_err(deaf)?,
        })
    }

    #[cfg(not(unix))]
    fn listen() -> Result<Signals, Trouble> {
        Ok(Signals {})
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            Some(()) = self.interrupt.recv() => {}
            Some(()) = self.terminate.recv() => {}
            else => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
