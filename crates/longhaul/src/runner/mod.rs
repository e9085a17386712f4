//! Runs one task: the only place that calls models and tools.
//!
//! [`Run::drive`] asks the [`Turn`] what is next and does it: `think` asks the model, `act` runs tools, `rest` waits
//! for letters. Everything that came of it is written down before it counts. Whatever interrupts a run is a
//! [`Halt`], and `settle` turns that into the one entry that ends the attempt.

mod act;
mod aside;
mod brief;
mod compact;
mod gear;
mod leave;
mod lease;
mod ledger;
mod orders;
mod owed;
mod recall;
mod rest;
mod seat;
mod seen;
mod settle;
mod starting;
mod think;
mod usher;
mod worktime;
mod worktree;
mod writing;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use act::said;
pub(crate) use aside::Aside;
pub(crate) use gear::Locker;
pub(crate) use lease::{LeaseKeeper, Tenure};
pub(crate) use ledger::below;
pub(crate) use orders::{Orders, first};
pub(crate) use recall::read_all;
pub(crate) use seat::{Seat, Seats};
pub(crate) use settle::{failed, give_back, settle_halt, stop_one};
pub(crate) use writing::append;

use crate::agent::{Agent, Habits, Nobody, Team};
use crate::dispatch::{Caller, Desk};
use crate::entry::{Entry, Failure, FailureKind, Isolation, Kind, Order, Submitted, Voice};
use crate::hook::Occasion;
use crate::id::{AgentName, Attempt, Seq, TaskId};
use crate::model::wire::Memo;
use crate::permission::{Permissions, Rights};
use crate::store::{Bell, Bells, Claimed, Kinds, Store, StoreError};
use crate::task::Head;
use crate::tool::ProcessSlots;
use crate::toolset::read_tool_output;
use crate::turn::{Act, Step, Turn};
use gear::Gear;
use ledger::Ledger;
use owed::Owed;
use recall::{chain_before, fresh_journal, recall};
use starting::Starting;
use worktime::{PeopleBell, Stopwatch};
use worktree::Worktree;

/// What a run needs from its worker.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bells: Bells,
    pub(crate) desk: Arc<dyn Desk>,
    pub(crate) locker: Arc<Locker>,
    pub(crate) orders: Arc<Orders>,
    /// How many processes run at once.
    pub(crate) processes: ProcessSlots,
    /// Held while a worktree is made or removed.
    pub(crate) worktrees: Arc<tokio::sync::Mutex<()>>,
    /// Fires when the worker wants its tasks back: finish the step, then release.
    pub(crate) drain: CancellationToken,
    /// Whether a person is there who can answer questions.
    pub(crate) attended: bool,
    /// What becomes of questions when nobody is, where that is not left to the agents.
    pub(crate) nobody: Option<Nobody>,
    /// How long a person has for an answer, where that is not left to the agents.
    pub(crate) ask_timeout: Option<Duration>,
}

/// One attempt at one task.
pub(crate) struct Run {
    around: Surroundings,
    team: Arc<Team>,
    seat: Seat,
    bell: Arc<Bell>,
    /// Whether the task is this run's, as far as that is known.
    tenure: Tenure,
    /// Which attempt this is. Everything that it writes is fenced by it, whatever the journal says by now.
    attempt: Attempt,
    head: Head,
    order: Order,
    /// Where it works, if that is a place of its own; the order names it then.
    worktree: Option<Box<Worktree>>,
    /// Whether git said in time what is in there; if not, it is kept.
    git_answers: bool,
    turn: Turn,
    agent: Arc<Agent>,
    /// Who had the conversation before, in this attempt.
    before: Vec<Arc<Agent>>,
    habits: Habits,
    gear: Arc<Gear>,
    /// What it was when the last reply came, if it is another by now: the calls that began with it were judged by that.
    judged_by: Option<Arc<Gear>>,
    /// What the agent is told before everything else.
    system: Arc<str>,
    /// How many outputs that were cut the gear can read.
    readable: usize,
    /// What it may do; `None` if it may do everything.
    rights: Option<Arc<Rights>>,
    /// The agents above it, whose permissions count too.
    above: Vec<AgentName>,
    /// For how long it has been worked on.
    watch: Stopwatch,
    /// How long that may be other than the journal says; `None` if nothing is bounded by it.
    unwritten: Option<Duration>,
    /// While others are waited for: whether those wait for people.
    people: Option<PeopleBell>,
    /// When the journal is looked at although no hint came.
    look_at: Instant,
    ledger: Ledger,
    /// The conversation as it goes over the wire, as far as it has gone.
    memo: Arc<Memo>,
    /// What is part of the conversation and not yet of the journal.
    owed: Owed,
    /// Whether it can have children: an agent without sub-agents launches none, and need not be asked about them.
    may_launch: bool,
    /// How it came to be, if it can have children: they ask for it.
    _submitted: Option<Arc<Submitted>>,
    /// What hooks are to hear when it has ended.
    farewell: Option<Box<Occasion>>,
    /// Hooks that nothing waits for.
    notices: Option<Box<JoinSet<()>>>,
    /// What people are to be told of its tools.
    told: Vec<String>,
}

/// What interrupts a run.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The task is to stop.
    Stop,
    /// The worker wants the task back.
    Drain,
    /// The task has failed.
    Fail(Failure),
    /// Somebody else has the task now.
    Lost,
    /// The store does not answer.
    Store(StoreError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Superseded { .. } | StoreError::NoTask(_) => Halt::Lost,
            // Nobody can go on with a journal that cannot be read, or that does not add up.
            error @ (StoreError::Entry { .. } | StoreError::Illegal { .. } | StoreError::Damaged { .. }) => {
                Halt::Fail(Failure::new(FailureKind::Journal, error.to_string()))
            }
            error => Halt::Store(error),
        }
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With an outcome.
    Finished,
    /// Without one: the task can be claimed again.
    Released,
    /// Somebody else has the task.
    Lost,
    /// The store does not answer: whoever finds the lease expired will go on.
    Stranded(StoreError),
}

/// How often a journal is looked at although no hint came: hints may be lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);

impl Run {
    /// Takes up a task that was claimed.
    pub(crate) async fn begin(
        around: Surroundings,
        team: Arc<Team>,
        task: Claimed,
        seat: Seat,
        tenure: Tenure,
    ) -> Result<Run, Halt> {
        let claimed = &task.head;
        let attempt = claimed.attempt;
        let foreign = Kinds::of([
            Kind::Letter,
            Kind::StopRequested,
            Kind::Answered,
            Kind::Backgrounded,
            // That somebody else has the task, or had.
            Kind::Released,
            Kind::Finished,
        ]);
        let bell = Arc::new(around.bells.for_tasks(&[claimed.id], foreign));
        // Looked up after the bell is hung, so that nothing falls between the two.
        let now = around.store.head(claimed.id).await?.ok_or(StoreError::NoTask(claimed.id))?;
        let journal = match fresh_journal(&task) {
            Some(journal) if now.seq == claimed.seq => journal,
            _ => read_all(&*around.store, claimed.id, Seq(0)).await?,
        };
        let (head, turn, submitted) = recall(&*around.store, &team, claimed.id, &journal).await?;
        if head.attempt != attempt || head.worker != claimed.worker {
            return Err(Halt::Lost);
        }
        let agent = find_agent(&team, &turn)?;
        let habits = habits_of(&agent, &submitted.order);
        // From here on something happens outside of the journal: worktrees are made, servers started.
        make_sure(&*around.store, claimed, &tenure).await?;
        let watch = Stopwatch::new(head.worked, habits.timeout);
        let mut starting = Starting::new(&around, &bell, &head, watch.deadline(), &tenure);
        let worktree = match habits.isolation {
            Isolation::None => None,
            Isolation::Worktree => match starting.wait(own_worktree(&around, &submitted)).await? {
                Some(worktree) => Some(Box::new(worktree?)),
                None => None,
            },
        };
        let handed_over = submitted.order.agent.as_ref().is_some_and(|first| *first != agent.name);
        // One that can hand its conversation over may have had it back from somebody who launched.
        let may_launch = handed_over || !(agent.sub_agents.is_empty() && agent.handoffs.is_empty());
        let kept = may_launch.then(|| around.orders.learn(head.id, submitted.clone()));
        let (mut order, above) = (submitted.order, submitted.above);
        let rights = rights_of(&team, &above, Some(&agent), &order);
        if let Some(worktree) = &worktree {
            order.working_dir = Some(worktree.dir.clone());
        }
        let prepared = starting.wait(equip(&around, &team, &agent, &order, head.root)).await?.transpose()?;
        // A task that is to stop takes no step, and needs nothing for it.
        let (gear, system, told) =
            prepared.unwrap_or_else(|| (Arc::new(Gear::none(&agent)), Arc::from(""), Vec::new()));
        let look_at = starting.look_at();
        let ledger = Ledger::open(&*around.store, &around.orders, &head, &order, habits.budget).await?;
        let limit = habits.timeout.into_iter().chain(ledger.time_of(head.id)).min();
        let unwritten = limit.map(worktime::unwritten);
        Ok(Run {
            around,
            team,
            seat,
            bell,
            tenure,
            attempt,
            head,
            order,
            worktree,
            git_answers: true,
            turn,
            agent,
            before: Vec::new(),
            habits,
            gear,
            judged_by: None,
            system,
            readable: 0,
            rights,
            above,
            watch,
            unwritten,
            people: None,
            look_at,
            ledger,
            memo: Arc::default(),
            owed: Owed::default(),
            may_launch,
            _submitted: kept,
            farewell: None,
            notices: None,
            told,
        })
    }

    /// Drives the task to its end, or to the end of this attempt.
    pub(crate) async fn drive(mut self: Box<Self>) -> Ended {
        let tenure = self.tenure.clone();
        let ended = tokio::select! {
            biased;
            // Everything is dropped where it stands, and what runs in processes is killed by that: when the lease is over
            // somebody else may begin.
            why = Aside::new(async move { tenure.lost().await }) => Ended::Stranded(why),
            ended = self.run() => ended,
        };
        Box::pin(self.put_away(&ended)).await;
        ended
    }

    /// Lets the toolsets end what they have started for the task, removes a worktree that nothing was done
    /// in, and has hooks hear that it has ended.
    async fn put_away(&mut self, ended: &Ended) {
        const LONGEST: Duration = Duration::from_secs(5);
        if !matches!(ended, Ended::Finished) {
            // They go on where the task does.
            self.notices = None;
        }
        let task = self.head.id;
        let toolsets = self.before.iter().chain([&self.agent]).flat_map(|agent| &agent.toolsets);
        let ending = toolsets.map(|toolset| async move {
            if tokio::time::timeout(LONGEST, toolset.task_ended(task)).await.is_err() {
                tracing::warn!(%task, toolset = toolset.name(), "what it started did not end in time");
            }
        });
        futures::future::join_all(ending).await;
        if !matches!(ended, Ended::Finished) {
            return;
        }
        if let Some(worktree) = &self.worktree
            && self.git_answers
            && self.is_alone().await
            && self.patiently(settle::GIT_HURRY, worktree.leave(&self.around.worktrees)).await.is_none()
        {
            tracing::warn!(%task, "git takes too long: the task's worktree is kept");
        }
        // After that: what the task says of its worktree is true, whatever they do.
        self.take_leave().await;
    }

    async fn run(&mut self) -> Ended {
        let halt = loop {
            // A panic is contained here, where what was said and launched is still known.
            match AssertUnwindSafe(self.step()).catch_unwind().await {
                Ok(Ok(Some(ended))) => return ended,
                Ok(Ok(None)) => {}
                Ok(Err(halt)) => break halt,
                Err(panic) => break Halt::Fail(Failure::new(FailureKind::Panic, said(&*panic))),
            }
        };
        self.settle(halt).await
    }

    async fn step(&mut self) -> Result<Option<Ended>, Halt> {
        if self.bell.rung().now_or_never().is_some() || self.look_at <= Instant::now() {
            self.catch_up().await?;
        }
        self.be_sure().await?;
        if self.head.stop.is_some() {
            return Err(Halt::Stop);
        }
        if self.is_to_be_greeted() {
            return Box::pin(self.greet()).await.map(|()| None);
        }
        self.change_gear().await?;
        let gear = self.gear.clone();
        let looks = |tool: &str| gear.tool(tool).is_some_and(|tool| tool.manner.looks);
        let step = self.turn.next(&self.habits, looks);
        if let Step::Act(acts) = step {
            self.act(acts).await?;
            return Ok(None);
        }
        if self.around.drain.is_cancelled() {
            return Err(Halt::Drain);
        }
        match step {
            Step::Read { .. } if self.rather_waits().await? => return self.rest().await,
            Step::Read { letters, known } => self.read(letters, known).await?,
            Step::Nudge { why, text } => self.note(vec![Entry::Nudged { why, text }]).await?,
            Step::Think { tools } => self.think(tools).await?,
            Step::Rest => match self.turn.misshapen(self.agent.shape.as_deref()) {
                Some(Step::Nudge { why, text }) => self.note(vec![Entry::Nudged { why, text }]).await?,
                Some(Step::Fail(failure)) => return Err(Halt::Fail(failure)),
                _ => return self.rest().await,
            },
            Step::Fail(failure) => return Err(Halt::Fail(failure)),
            Step::Act(_) => {}
        }
        Ok(None)
    }

    // Boxed, as all that is large and seldom: what a task that waits for its model keeps in memory stays small.

    fn act(&mut self, acts: Vec<Act>) -> BoxFuture<'_, Result<(), Halt>> {
        Box::pin(self.run_calls(acts))
    }

    fn rest(&mut self) -> BoxFuture<'_, Result<Option<Ended>, Halt>> {
        Box::pin(self.end_or_wait())
    }

    fn settle(&mut self, halt: Halt) -> BoxFuture<'_, Ended> {
        Box::pin(self.end_attempt(halt))
    }

    /// Has a seat, when this returns.
    async fn sit(&mut self) -> Result<(), Halt> {
        if self.seat.is_parked() {
            self.pay().await?;
        }
        // The time of who waits for a seat does not count.
        self.count(!self.seat.is_parked());
        while self.seat.is_parked() {
            tokio::select! {
                () = self.seat.sit() => {}
                () = heard(&self.bell, self.look_at, &self.tenure) => {
                    self.catch_up().await?;
                    if self.head.stop.is_some() {
                        return Err(Halt::Stop);
                    }
                }
                () = self.around.drain.cancelled() => return Err(Halt::Drain),
            }
        }
        self.count(true);
        Ok(())
    }

    fn too_late(&self) -> Halt {
        let limit = self.habits.timeout.unwrap_or_default();
        Halt::Fail(Failure::new(FailureKind::Timeout, format!("the task took longer than {limit:?}")))
    }

    /// After a handoff somebody else has the conversation; tools may have changed; and once an output was cut, there
    /// is a tool that reads it.
    async fn change_gear(&mut self) -> Result<(), Halt> {
        if *self.turn.agent() != self.agent.name || self.gear.is_old(&self.agent) {
            self.readable = 0;
            let agent = find_agent(&self.team, &self.turn)?;
            self.before.push(std::mem::replace(&mut self.agent, agent));
            self.may_launch |= !self.agent.sub_agents.is_empty();
            self.habits = habits_of(&self.agent, &self.order);
            self.rights = rights_of(&self.team, &self.above, Some(&self.agent), &self.order);
            let (around, team) = (self.around.clone(), self.team.clone());
            let (agent, order) = (self.agent.clone(), self.order.clone());
            let (root, had) = (self.head.root, self.gear.clone());
            let prepared = equip(&around, &team, &agent, &order, root);
            (self.gear, self.system, self.told) = Box::pin(self.unless_halted(prepared)).await??;
            self.judged_by.get_or_insert(had);
            self.readable = 0;
        }
        if !self.told.is_empty() {
            let told = std::mem::take(&mut self.told);
            let said = |text| Entry::Said { voice: Voice::Progress, text };
            self.note(told.into_iter().map(said).collect()).await?;
        }
        let kept = self.turn.cut_outputs();
        if kept.len() > self.readable {
            self.readable = kept.len();
            let tool = read_tool_output(self.around.store.clone(), kept, self.habits.output_cap);
            self.gear = Arc::new(self.gear.with(tool));
        }
        Ok(())
    }

    fn caller(&self) -> Caller {
        Caller {
            task: self.head.id,
            root: self.head.root,
            agent: self.agent.name.clone(),
            depth: self.head.depth,
        }
    }
}

/// Until the journal is to be looked at: a hint came, none has for long, or the task may be somebody else's now.
async fn heard(bell: &Bell, look_at: Instant, tenure: &Tenure) {
    tokio::select! {
        biased;
        () = tenure.doubted() => {}
        () = hinted(bell, look_at) => {}
    }
}

/// Until somebody may have written: a hint came, or none has for long.
async fn hinted(bell: &Bell, look_at: Instant) {
    tokio::select! {
        _ = bell.rung() => {}
        () = tokio::time::sleep_until(look_at) => {}
    }
}

/// Never, or when the deadline is.
async fn overdue(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Opens an agent's tools and writes its system instruction. When it is dropped, what it has started ends.
async fn equip(
    around: &Surroundings,
    team: &Team,
    agent: &Agent,
    order: &Order,
    root: TaskId,
) -> Result<(Arc<Gear>, Arc<str>, Vec<String>), StoreError> {
    let gear = around.locker.gear(team, agent).await;
    let (mut gear, told) = gear.for_tree(&*around.store, root).await?;
    told.iter().for_each(|told| tracing::error!(agent = %agent.name, "{told}"));
    if let Some(names) = &order.tools {
        gear = Arc::new(gear.narrowed(names));
    }
    let system = brief::brief(&gear, agent, around.store.now(), order.working_dir.clone()).await;
    Ok((gear, system, told))
}

fn habits_of(agent: &Agent, order: &Order) -> Habits {
    let mut habits = agent.habits.clone();
    if let Some(turns) = order.max_turns {
        habits.max_turns = turns;
    }
    habits.isolation = order.isolation.unwrap_or(habits.isolation);
    habits.timeout = order.timeout.or(habits.timeout);
    habits.on_finish = order.on_finish.unwrap_or(habits.on_finish);
    habits
}

/// The rights of an agent below others; without one, those of the others alone.
fn rights_of(team: &Team, above: &[AgentName], agent: Option<&Agent>, order: &Order) -> Option<Arc<Rights>> {
    let mut levels: Vec<Arc<Permissions>> = Vec::new();
    for level in
        above.iter().chain(agent.map(|agent| &agent.name)).filter_map(|name| team.permissions_of(name))
    {
        if !levels.iter().any(|had| Arc::ptr_eq(had, &level)) {
            levels.push(level);
        }
    }
    (!levels.is_empty()).then(|| Arc::new(Rights { levels, approved: order.approved }))
}

fn find_agent(team: &Team, turn: &Turn) -> Result<Arc<Agent>, Halt> {
    let name = turn.agent();
    team.agent(name).cloned().ok_or_else(|| {
        let message = format!("{} has no agent '{name}' (any more)", team.reference());
        Halt::Fail(Failure::new(FailureKind::Team, message))
    })
}

/// Returns when a task surely is held by the attempt that has claimed it.
async fn make_sure(store: &dyn Store, claimed: &Head, tenure: &Tenure) -> Result<(), Halt> {
    while !tenure.is_sure() {
        tenure.renewed().await;
        let term = tenure.now();
        let now = store.head(claimed.id).await?.ok_or(StoreError::NoTask(claimed.id))?;
        if now.attempt != claimed.attempt || now.worker != claimed.worker {
            return Err(Halt::Lost);
        }
        tenure.confirm(term);
    }
    Ok(())
}

/// The worktree of a task; of the first, for one that continues others.
async fn own_worktree(around: &Surroundings, submitted: &Submitted) -> Result<Worktree, Halt> {
    let failed = |why: String| Halt::Fail(Failure::new(FailureKind::Place, why));
    let Some(dir) = &submitted.order.working_dir else {
        return Err(failed("isolation: worktree needs a working directory, and none was ordered".to_owned()));
    };
    let mut key = submitted.key.clone();
    if let Some(first) = chain_before(&*around.store, submitted.continues).await?.last() {
        key = orders::first(&*around.store, *first).await?.key;
    }
    // The longest, which no task of another store has either.
    let name = key.candidates().last().map(|id| id.to_string()).unwrap_or_default();
    Worktree::settle_in(dir, &name, &around.worktrees).await.map_err(failed)
}
