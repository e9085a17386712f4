//! Running tasks in this process while somebody watches, or watching those of another: until they end, or until we are
//! told to go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use jiff::Timestamp;
use longhaul::entry::{TeamRef, Wait};
use longhaul::snapshot::{Event, Happening};
use longhaul::store::{Filter, StoreError};
use longhaul::task::Head;
use longhaul::{Longhaul, LonghaulError, Status, TaskId};

use crate::args::Outside;
use crate::audience::Audience;
pub(crate) use crate::audience::Manner;
use crate::carrier::{self, CarryOptions};
use crate::cmd::Desk;
use crate::exit::{Code, Trouble};
use crate::heard::Heard;
use crate::holder;
use crate::keys::{Key, Keys, Typed};
use crate::notify::Bell;
use crate::place::Place;
use crate::signals::Signals;
use crate::verdict::verdict;
use crate::view::words::elapsed;
use crate::view::{Ink, Out, Reply, Term, clean, many, one_line, summary};

/// How often the live block is drawn.
const FRAME: Duration = Duration::from_millis(80);
/// How often one who only watches looks whether there is still somebody who runs the tasks.
const LOOK: Duration = Duration::from_secs(2);
/// How often it is asked whether the database is still where it was.
const STILL_THERE: Duration = Duration::from_millis(500);

/// How long steps that are nearly done may take when the others are handed to a process in the background.
const HANDOVER: Duration = Duration::from_millis(500);

/// How long tasks may take for their step when the run is to pause.
const DRAINING: Duration = Duration::from_secs(10);

/// How long tasks may take that were told to stop; then they are dropped, and end as stopped all the same.
const STOPPING: Duration = Duration::from_secs(4);

/// Tasks to be carried on here.
pub(crate) struct Carry<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) place: &'a Place,
    pub(crate) longhaul: Longhaul,
    pub(crate) roots: Vec<TaskId>,
    /// Whose ends and answers are told, and decide: the roots, unless somebody asks for others in their trees.
    pub(crate) subjects: Vec<TaskId>,
    /// What was before this is known, and not told again.
    pub(crate) since: Timestamp,
    pub(crate) manner: Manner,
    /// Whether this process runs them; otherwise it only watches, and they go on without it.
    pub(crate) ours: bool,
    /// What is said first.
    pub(crate) intro: Vec<String>,
    /// In a session of ours: what the root is asked next, when it has answered. It is closed after the last.
    pub(crate) next: Option<VecDeque<String>>,
    /// Whether tasks that the root leaves behind are left to a process in the background, and with what.
    pub(crate) leaves: Option<&'a Outside>,
    /// Whether a question ends it: nobody is there, and nobody is waited for.
    pub(crate) needs_nobody: bool,
    /// After how long it is stopped, by the clock.
    pub(crate) timeout: Option<Duration>,
    /// Whether it is no success that a call was denied because nobody was there.
    pub(crate) fail_on_denied: bool,
    /// Who is told that it ended.
    pub(crate) bell: Bell,
}

/// Why watching was over.
enum Over {
    /// The tasks have ended.
    Ended,
    /// The roots have ended, and left others that go on in the background.
    Leaves,
    /// Somebody wants us to go.
    Interrupted,
    /// A person is needed, and nobody is there.
    Needed,
    /// It took longer than it may.
    TooLong(Duration),
    /// Nobody runs the tasks any more.
    Left,
    /// Another process has taken this task.
    Lost(TaskId),
    /// Nothing can be written down any more.
    Trouble(StoreError),
}

impl<'a> Carry<'a> {
    /// Tasks that this process runs, told to people or as JSON.
    pub(crate) fn new(desk: &'a Desk, place: &'a Place, longhaul: Longhaul, roots: Vec<TaskId>) -> Carry<'a> {
        Carry {
            desk,
            place,
            longhaul,
            subjects: roots.clone(),
            roots,
            since: Timestamp::UNIX_EPOCH,
            manner: Manner::Told,
            ours: true,
            intro: Vec::new(),
            next: None,
            leaves: None,
            needs_nobody: false,
            timeout: None,
            fail_on_denied: false,
            bell: Bell::none(),
        }
    }

    /// Carries the tasks on until they have ended, or we are told to go; tells what happens, and in the end the
    /// answers and what they took.
    pub(crate) async fn on(self) -> Result<Code, Trouble> {
        self.heeding(Signals::listen()?).await
    }

    /// The same, where signals have been listened to since before.
    pub(crate) async fn heeding(mut self, mut signals: Signals) -> Result<Code, Trouble> {
        // A carrier in the background has signed already.
        let sign = |root: &TaskId| carrier::sign(self.place, *root);
        let signs: Vec<_> = self.roots.iter().filter(|_| self.ours).map(sign).collect();
        let mut audience = Audience::new(self.desk, self.place, self.manner, self.since, self.bell);
        if let [speaker] = self.subjects[..] {
            let team = self.longhaul.head(speaker).await?.team;
            audience.listens_to(speaker, matches!(team, TeamRef::File(_)));
        }
        let mut last = None;
        let watched = self.watch(&mut audience, &mut signals, &mut last).await;
        let told = match &last {
            Some(event) => tokio::select! {
                told = audience.hear(event) => told,
                () = signals.next() => Ok(()),
            },
            None => Ok(()),
        };
        let over = match watched.and_then(|over| told.map(|()| over)) {
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
                self.sum_up(&mut audience).await
            }
            Over::Leaves => {
                // The answer first: nobody waits for what is left.
                let told = self.sum_up(&mut audience).await;
                self.longhaul.shutdown_within(HANDOVER).await;
                drop(signs);
                self.leave_behind().await?;
                return told;
            }
            Over::Needed => {
                self.longhaul.shutdown().await;
                self.needed(&mut audience).await
            }
            Over::TooLong(limit) => self.stop_late(&mut audience, limit).await,
            Over::Interrupted if !self.ours => {
                self.left(&mut audience, "goes on; watch it again with", Place::attach)
            }
            Over::Left => {
                self.left(&mut audience, "is run by nobody any more; carry it on with", Place::resume)
            }
            Over::Lost(task) => self.lost(&mut audience, task).await,
            Over::Interrupted => self.leave(&mut audience, &mut signals).await,
            Over::Trouble(error) => {
                audience.clear()?;
                // Nothing could be given back either: whoever resumes finds that we are gone.
                let resume =
                    self.roots.iter().map(|root| self.place.resume(*root)).collect::<Vec<_>>().join("; ");
                Err(Trouble::from(LonghaulError::from(error)).hint(format!("then carry on with: {resume}")))
            }
        };
        drop(signs);
        // The answer was told; that nobody will find it is no success.
        match self.longhaul.store().lost() {
            Some(error) => done.and(Err(Trouble::from(error))),
            None => done,
        }
    }

    /// Tells what happens until it is over; but for the `last` event, which is still to be told.
    async fn watch(
        &mut self,
        audience: &mut Audience<'_>,
        signals: &mut Signals,
        last: &mut Option<Event>,
    ) -> Result<Over, Trouble> {
        let live = audience.is_live();
        audience.begin(&self.intro).await?;
        let mut keys = if live { Keys::listen() } else { None };
        audience.hears_keys = keys.is_some();
        let longhaul = self.longhaul.clone();
        let mut heard = Heard::default();
        let mut events = follow(&longhaul, &self.roots, &heard);
        let mut beat = tokio::time::interval(FRAME);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let looker = Looker {
            longhaul: longhaul.clone(),
            place: self.place,
            roots: self.roots.clone(),
            ours: self.ours,
        };
        let abandoned = looker.abandoned();
        tokio::pin!(abandoned);
        let time_is_up = passed(self.timeout);
        tokio::pin!(time_is_up);
        let mut still_there = tokio::time::interval(STILL_THERE);
        let mut lost = false;
        loop {
            tokio::select! {
                event = events.next() => match event.transpose()? {
                    // A root may leave others running: they are followed in their turn.
                    None => match self.rest(&heard).await? {
                        rest if rest.is_empty() => break,
                        rest => events = follow(&longhaul, &rest, &heard),
                    },
                    Some(event) => {
                        heard.take(&event);
                        if self.is_last(&event) {
                            *last = Some(event);
                            continue;
                        }
                        // A reader who does not read holds up what is told, and nothing else.
                        tokio::select! {
                            told = audience.hear(&event) => told?,
                            () = signals.next() => return Ok(Over::Interrupted),
                        }
                        if self.needs_nobody && matches!(event.what, Happening::Asked { .. }) {
                            return Ok(Over::Needed);
                        }
                        self.go_on(audience, &event).await?;
                    }
                },
                _ = beat.tick(), if live => audience.draw("")?,
                typed = typed(keys.as_mut()) => match typed {
                    Typed::Key(key) => self.key(audience, key).await?,
                    Typed::Suspend => {
                        audience.clear()?;
                        keys.iter().for_each(Keys::suspend);
                    }
                },
                () = signals.next() => return Ok(Over::Interrupted),
                _ = still_there.tick(), if !lost => {
                    if let Some(error) = longhaul.store().lost() {
                        // In the background nobody hears its answer, and nobody could answer what it asks.
                        if self.manner == Manner::Silent {
                            return Ok(Over::Trouble(error));
                        }
                        lost = true;
                        audience.clear()?;
                        self.desk.note(&format!("warning: {error}"));
                    }
                }
                limit = &mut time_is_up => return Ok(Over::TooLong(limit)),
                left = &mut abandoned => return left.map(|()| Over::Left),
                task = longhaul.lost() => return Ok(Over::Lost(task)),
                error = longhaul.trouble() => return Ok(Over::Trouble(error)),
            }
        }
        match self.leaves.is_some() && !self.open().await?.is_empty() {
            true => Ok(Over::Leaves),
            false => Ok(Over::Ended),
        }
    }

    /// Whether programs find this in the last line, though others may go on after it.
    fn is_last(&self, event: &Event) -> bool {
        self.manner == Manner::Json
            && self.subjects == [event.task]
            && matches!(event.what, Happening::Finished { .. })
    }

    /// Of whom there is more to tell: all whose end was not heard of. Those that are left to others go on without us.
    async fn rest(&self, heard: &Heard) -> Result<Vec<TaskId>, Trouble> {
        let heads = self.heads().await?;
        let missing = heard.missing(&heads).into_iter();
        Ok(missing
            .filter(|head| self.leaves.is_none() || head.status.is_final())
            .map(|head| head.id)
            .collect())
    }

    /// In a session: the next word when it is silent, and the end after the last.
    async fn go_on(&mut self, audience: &mut Audience<'_>, event: &Event) -> Result<(), Trouble> {
        let silent = matches!(event.what, Happening::Waiting { on: Wait::Letter, .. });
        let Some(next) = &mut self.next else { return Ok(()) };
        if !silent || event.at < self.since || !self.roots.contains(&event.task) {
            return Ok(());
        }
        let Some(next) = next.pop_front() else {
            return Ok(self.longhaul.close(event.task).await?);
        };
        if matches!(self.manner, Manner::Told | Manner::Quiet) {
            let output = self.last_reply(event.task).await?;
            let lines = audience.answer(event.task, &output);
            audience.clear()?;
            lines.iter().try_for_each(|line| Term::of(Out::Stdout).line(&line.text))?;
            if !Term::of(Out::Stdout).live {
                Term::of(Out::Stdout).line("")?;
            }
        }
        self.longhaul.send(event.task, next).await?;
        Ok(())
    }

    /// What a session said last.
    async fn last_reply(&self, session: TaskId) -> Result<String, Trouble> {
        let journal = self.longhaul.store().read(session, longhaul::id::Seq(0), usize::MAX).await?;
        let last = journal.iter().rev().find_map(|record| match &record.entry {
            longhaul::entry::Entry::Replied(reply) => Some(reply.text()),
            _ => None,
        });
        Ok(last.unwrap_or_default())
    }

    async fn key(&self, audience: &mut Audience<'_>, key: Key) -> Result<(), Trouble> {
        if key == Key::Ctrl('b') {
            return self.send_to_background(audience).await;
        }
        let Some(Reply { task, question, words }) = audience.key(key) else { return Ok(()) };
        let taken = match words {
            Some(words) => self.longhaul.answer(task, Some(question), words).await,
            None => self.longhaul.decline(task, Some(question)).await,
        };
        match taken {
            // Somebody else was faster: that is told as an event.
            Ok(_) | Err(LonghaulError::Answered { .. } | LonghaulError::NotAsking { .. }) => Ok(()),
            Err(error @ LonghaulError::BadAnswer(_)) => {
                audience.asked.refused(&error.to_string());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn send_to_background(&self, audience: &mut Audience<'_>) -> Result<(), Trouble> {
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
    async fn leave(&self, audience: &mut Audience<'_>, signals: &mut Signals) -> Result<Code, Trouble> {
        let resume: Vec<String> =
            self.roots.iter().map(|root| format!("`{}`", self.place.resume(*root))).collect();
        let pausing = format!(
            "Pausing after the current step (up to {} s). Resume with {}. Ctrl-C again cancels the run.",
            DRAINING.as_secs(),
            resume.join(", ")
        );
        if !audience.is_live() && self.manner != Manner::Silent {
            self.desk.note(&pausing);
        }
        let began = tokio::time::Instant::now();
        // What cannot be read is not told, and keeps nobody from giving the tasks back.
        let mut steps = self.steps().await.unwrap_or_default();
        if let Some(steps) =
            steps_in_words(&steps).filter(|_| !audience.is_live() && self.manner != Manner::Silent)
        {
            self.desk.note(&format!("waiting for {steps}"));
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
                    _ = look.tick() => steps = self.steps().await.unwrap_or(steps),
                    _ = beat.tick(), if audience.is_live() && !gone => {
                        let waited = elapsed(began.elapsed());
                        let waits = steps_in_words(&steps).unwrap_or_else(|| "the tasks to be given back".to_owned());
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
                return self.sum_up(audience).await;
            }
            audience.clear()?;
            if let Some(cut) = steps_in_words(&steps)
                && began.elapsed() >= DRAINING
                && self.manner != Manner::Silent
            {
                self.desk.note(&format!("cut off after {} s: {cut}", DRAINING.as_secs()));
            }
            for root in open.into_iter().filter(|_| self.manner != Manner::Silent) {
                self.desk
                    .note(&format!("{root} was given back; carry it on with:  {}", self.place.resume(root)));
            }
            return Ok(Code::Interrupted);
        }
        let code = self.sum_up(audience).await?;
        for head in self.heads().await?.iter().filter(|head| self.roots.contains(&head.id)) {
            if head.status == Status::Cancelled && self.manner != Manner::Silent {
                let retry = self.place.retry(head.id);
                self.desk.note(&format!("{} was stopped; try it again with:  {retry}", head.id));
            }
        }
        Ok(code)
    }

    /// What the tasks that run here do now: each with the tool that it calls, or that its model is asked.
    async fn steps(&self) -> Result<Vec<String>, Trouble> {
        let heads = self.heads().await?;
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

    /// Stops what took too long.
    async fn stop_late(&self, audience: &mut Audience<'_>, limit: Duration) -> Result<Code, Trouble> {
        for root in &self.roots {
            self.longhaul.stop(*root).await?;
        }
        self.longhaul.shutdown_within(STOPPING).await;
        self.sum_up(audience).await?;
        let which: Vec<String> = self.roots.iter().map(ToString::to_string).collect();
        let what = format!("--timeout: {} was stopped after {}", which.join(", "), elapsed(limit));
        let hint = self.roots.first().map(|root| format!("try it again: {}", self.place.retry(*root)));
        Err(Trouble::new(Code::TimedOut, what).hint(hint.unwrap_or_default()))
    }

    /// What is asked, how it is answered, and how it goes on then.
    async fn needed(&self, audience: &mut Audience<'_>) -> Result<Code, Trouble> {
        audience.clear()?;
        for head in self.heads().await?.iter().filter(|head| !head.asked.is_empty()) {
            for (question, asks) in self.longhaul.snapshot(head.id).await?.questions {
                self.desk.note(&format!(
                    "{} of {} needs a person: {}",
                    head.agent,
                    head.id,
                    one_line(&asks.text)
                ));
                let named = (head.asked.len() > 1).then_some(question);
                self.desk
                    .note(&format!("answer it with:  {}", self.place.answer(head.id, named, &asks.wants)));
            }
        }
        for root in &self.roots {
            self.desk.note(&format!("then carry it on with:  {}", self.place.resume(*root)));
        }
        Ok(Code::Needed)
    }

    /// Another process has a task that ran here: this one does nothing more, and says so.
    async fn lost(&self, audience: &mut Audience<'_>, task: TaskId) -> Result<Code, Trouble> {
        self.longhaul.shutdown().await;
        let root = self.longhaul.head(task).await?.root;
        let why = "this one was stopped, or could not reach the database, for longer than its lease";
        if self.open_roots().await?.is_empty() {
            self.desk.note(&format!("{task} was taken over by another process, which ended it: {why}"));
            return self.sum_up(audience).await;
        }
        audience.clear()?;
        if holder::owned(&**self.longhaul.store()).await?.contains(&root) {
            let what = format!("{task} is run by another process now: {why}");
            return Err(Trouble::new(Code::Lost, what).hint(format!("watch it: {}", self.place.attach(root))));
        }
        let what = format!("{task} was taken over by another process, which is gone: {why}");
        Err(Trouble::new(Code::Lost, what).hint(format!("carry it on: {}", self.place.resume(root))))
    }

    /// One who only watched goes away.
    fn left(
        &self,
        audience: &mut Audience<'_>,
        how: &str,
        command: fn(&Place, TaskId) -> String,
    ) -> Result<Code, Trouble> {
        audience.clear()?;
        for root in &self.roots {
            self.desk.note(&format!("{root} {how}:  {}", command(self.place, *root)));
        }
        Ok(Code::Interrupted)
    }

    /// The root's end is the end; what it left goes on without us.
    async fn leave_behind(&self) -> Result<(), Trouble> {
        for root in &self.roots {
            let left = self.longhaul.snapshots(Filter::tree(*root).live()).await?.len();
            // They may just have ended.
            if left == 0 {
                continue;
            }
            let outside = self.leaves.cloned().unwrap_or_default();
            carrier::start(self.place, *root, CarryOptions::new(&outside)).await?;
            if self.manner != Manner::Silent {
                let (tasks, watch) = (many(left, "task"), self.place.attach(*root));
                let go = if left == 1 { "goes" } else { "go" };
                self.desk.note(&format!(
                    "{tasks} of {root} {go} on in the background, where a reply that was on its way is asked for \
                     again; watch with:  {watch}"
                ));
            }
        }
        Ok(())
    }

    async fn heads(&self) -> Result<Vec<Head>, Trouble> {
        trees(&self.longhaul, &self.roots).await
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
    async fn sum_up(&self, audience: &mut Audience<'_>) -> Result<Code, Trouble> {
        audience.clear()?;
        let (term, heads) = (self.desk.term, self.heads().await?);
        let told = self.manner == Manner::Told;
        // The tasks have ended as they have, whether anybody is left to hear of it or not.
        let line = |term: Term, text: &str| Trouble::heard_or_not(term.line(text));
        if self.manner != Manner::Silent {
            for subject in &self.subjects {
                // Told here, it has been heard of: `longhaul prune` may take it some day.
                let _ = self.longhaul.look_at(*subject).await;
            }
        }
        if told || self.manner == Manner::Quiet {
            for (index, head) in heads.iter().filter(|head| self.subjects.contains(&head.id)).enumerate() {
                let output = self.longhaul.output(head.id).await?;
                // Where the live block was, there is an empty line already; and an answer may go elsewhere.
                let here = head.error.is_some() || head.cut_short.is_some() || term.out == Out::Stdout;
                if told && (index > 0 || (!term.live && here)) {
                    line(term, "")?;
                }
                if let Some(error) = &head.error {
                    let word = term.paint(Ink::of(head.status), head.status.as_str());
                    line(term, &term.wrapped(&format!("{} {word}: {}", head.id, clean(error))))?;
                    if !output.trim().is_empty() {
                        line(term, "What it had said by then:")?;
                        line(term, &term.wrapped(clean(&output).trim_end()))?;
                    }
                }
                if let Some(limit) = &head.cut_short {
                    let word = term.paint(Ink::Waits, "cut short");
                    line(term, &term.wrapped(&format!("{} {word} by {}", head.id, clean(limit))))?;
                }
                // An answer goes where answers go; what is none, to where all else is told.
                if head.error.is_none() && !output.trim().is_empty() {
                    let out = Term::of(Out::Stdout);
                    audience.answer(head.id, &output).iter().try_for_each(|told| line(out, &told.text))?;
                }
            }
        }
        if told {
            line(term, "")?;
            for row in summary(&heads, term, Timestamp::now()) {
                line(term, &row)?;
            }
        }
        let (mut code, why) = verdict(&self.longhaul, &heads, &self.subjects).await?;
        if self.manner != Manner::Silent {
            for why in why {
                self.desk.note(&why);
            }
        }
        let denied: u32 = heads.iter().map(|head| head.denied).sum();
        if denied > 0 && self.manner != Manner::Silent {
            let (calls, was) = (many(denied as usize, "call"), if denied == 1 { "was" } else { "were" });
            self.desk.note(&format!(
                "{calls} {was} denied because no one was there to approve: allow them in `permissions`, or use --unattended \
                 wait or --yolo"
            ));
        }
        if denied > 0 && self.fail_on_denied && code == Code::Fine {
            code = Code::Needed;
        }
        let ended = heads.iter().find(|head| self.subjects.contains(&head.id));
        if let Some(head) = ended {
            self.bell.ring(&format!("{} {}: {}", head.agent, head.status, head.headline));
        }
        Ok(code)
    }
}

/// What is waited for; the first few.
fn steps_in_words(steps: &[String]) -> Option<String> {
    const NAMED: usize = 3;
    let more = steps.len().saturating_sub(NAMED);
    let named = steps.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match (steps.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named}; and {more} more")),
    }
}

/// Waits until this time has passed on the clock, also while the machine slept; for ever, where there is none. A task that is
/// bounded by the same time ends by itself before that.
async fn passed(limit: Option<Duration>) -> Duration {
    const MARGIN: Duration = Duration::from_secs(1);
    let Some(limit) = limit else { return std::future::pending().await };
    let clock = longhaul::store::Clock::wall();
    let began = clock.elapsed();
    loop {
        let left = (limit + MARGIN).saturating_sub(clock.elapsed().saturating_sub(began));
        if left.is_zero() {
            return limit;
        }
        // In steps: the runtime's clock may stand still while the machine sleeps.
        tokio::time::sleep(left.min(MARGIN)).await;
    }
}

/// What happens to these tasks and below them, without what was heard before.
fn follow(
    longhaul: &Longhaul,
    tasks: &[TaskId],
    heard: &Heard,
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

async fn trees(longhaul: &Longhaul, roots: &[TaskId]) -> Result<Vec<Head>, Trouble> {
    let mut heads = Vec::new();
    for root in roots {
        heads.extend(longhaul.snapshots(Filter::tree(*root)).await?);
    }
    Ok(heads)
}

/// What is typed next, where there is a keyboard.
async fn typed(keys: Option<&mut Keys>) -> Typed {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

/// One who looks now and then whether there is still somebody who runs the tasks.
struct Looker<'a> {
    longhaul: Longhaul,
    place: &'a Place,
    roots: Vec<TaskId>,
    ours: bool,
}

impl Looker<'_> {
    /// Waits until nobody runs the tasks any more, though they have not ended.
    async fn abandoned(&self) -> Result<(), Trouble> {
        if self.ours {
            std::future::pending::<()>().await;
        }
        let mut alone = 0;
        // Somebody may just be taking it up.
        while alone < 3 {
            tokio::time::sleep(LOOK).await;
            let heads = trees(&self.longhaul, &self.roots).await?;
            let open = heads.iter().any(|head| !head.status.is_final());
            let runs = heads.iter().any(|head| head.status == Status::Running);
            let signed = self.roots.iter().any(|root| carrier::of(self.place, *root).is_some());
            alone = if open && !runs && !signed { alone + 1 } else { 0 };
        }
        Ok(())
    }
}
