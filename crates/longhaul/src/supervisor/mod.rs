//! The cloneable handle that every door holds.

mod answer;
mod build;
mod desk;
mod follow;
mod grove;
mod office;
mod sequence;

use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answer::Taken;
pub use build::LonghaulBuilder;
pub use follow::Events;
use follow::Until;
pub use grove::Grove;
use office::{Office, Plan, Posted};

use crate::agent::Team;
use crate::dispatch::{Join, Limits, Sent, Waited};
use crate::entry::{Deliver, Letter, Order, Sender, Stop, StopCause, TeamRef};
use crate::id::{LetterId, QuestionId, Seq, TaskId, TaskKey, WorkerId};
use crate::snapshot::{Narrator, Snapshot};
use crate::store::{Filter, Store, StoreError};
use crate::task::{Head, Status};

/// A running Longhaul: submit tasks, watch them, write to them, stop them. Clones are the same Longhaul.
///
/// Dropping all clones without [`shutdown`](Longhaul::shutdown) is like a crash: nothing that was acknowledged is
/// lost, and whoever opens the store next carries on.
#[derive(Clone)]
pub struct Longhaul(Arc<Inner>);

struct Inner {
    office: Arc<Office>,
    team: Option<TeamRef>,
    worker: Option<WorkerId>,
    background: TaskTracker,
    runs: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
    trouble: Arc<watch::Sender<Option<StoreError>>>,
    grace: Duration,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.drain.cancel();
        self.abort.cancel();
    }
}

/// Why Longhaul did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LonghaulError {
    /// The store did not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The order names an agent that the team does not have.
    #[error("there is no agent '{asked}' in {team}; it has: {}", .have.join(", "))]
    NoAgent {
        /// Who was asked for.
        asked: String,
        /// In which team.
        team: TeamRef,
        /// Who there is.
        have: Vec<String>,
    },
    /// The order names a model that the team does not have.
    #[error("there is no model '{asked}' in {team}; it has: {}", .have.join(", "))]
    NoModel {
        /// What was asked for.
        asked: String,
        /// In which team.
        team: TeamRef,
        /// What there is.
        have: Vec<String>,
    },
    /// A client has no team of its own: say which one.
    #[error("this Longhaul has no team: name one with `submit_to`")]
    NoTeam,
    /// A task that is to be tried again, though it did not fail.
    #[error("task {task} is {status}: only one that failed or was cancelled can be tried again")]
    NotFailed {
        /// Which.
        task: TaskId,
        /// How it stands.
        status: Status,
    },
    /// A task that asks nobody anything.
    #[error("task {task} asks nothing: it is {status}")]
    NotAsking {
        /// Which.
        task: TaskId,
        /// How it stands.
        status: Status,
    },
    /// A task that asks several things.
    #[error("task {task} asks several things; say which you answer: {}", names(.open))]
    WhichQuestion {
        /// Which task.
        task: TaskId,
        /// What it asks.
        open: Vec<QuestionId>,
    },
    /// A question that is not open any more.
    #[error("the question {question} of task {task} has been settled already: {said}")]
    Answered {
        /// Which task.
        task: TaskId,
        /// Which question.
        question: QuestionId,
        /// What came of it.
        said: String,
    },
    /// A question that was never asked.
    #[error("task {task} has never asked a question {question}")]
    NoQuestion {
        /// Which task.
        task: TaskId,
        /// Which question.
        question: QuestionId,
    },
    /// Words that do not answer the question.
    #[error("{0}")]
    BadAnswer(String),
    /// Nothing to do.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// Too much at once.
    #[error(
        "the {what} is {size} bytes long; at most {most} are taken. Put it in a file and name the file instead"
    )]
    TooLong {
        /// What.
        what: &'static str,
        /// How long it is.
        size: usize,
        /// How long it may be.
        most: usize,
    },
}

/// How long a task or a letter may be, in bytes.
pub const LONGEST_TEXT: usize = 1024 * 1024;

impl Longhaul {
    /// A Longhaul that runs the tasks of a team.
    pub fn builder(team: Team) -> LonghaulBuilder {
        LonghaulBuilder::new(Some(team))
    }

    /// A Longhaul that submits, watches, writes to and stops tasks, but runs none.
    pub async fn client(store: Arc<dyn Store>) -> Result<Longhaul, LonghaulError> {
        LonghaulBuilder::new(None).store_arc(store).start().await
    }

    /// Submits an order of the team's. When the id comes back, the task is on disk.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let id = longhaul.submit(Order::new("worker", "Look around.").max_turns(8)).await?;
    /// assert_eq!(longhaul.wait([id]).await?.tasks[0].head.status, Status::Completed);
    /// # Ok(()) }
    /// ```
    pub async fn submit(&self, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_with(TaskKey::fresh(), order).await
    }

    /// The same, once: an order submitted again under the same key is the task that is already there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let first = longhaul.submit_once("nightly 2026-11-15", Order::new("worker", "Look around.")).await?;
    /// let again = longhaul.submit_once("nightly 2026-11-15", Order::new("worker", "Look around.")).await?;
    /// assert_eq!(first, again);
    /// # Ok(()) }
    /// ```
    pub async fn submit_once(&self, key: &str, order: Order) -> Result<TaskId, LonghaulError> {
        self.submit_with(TaskKey::chosen(key), order).await
    }

    async fn submit_with(&self, key: TaskKey, mut order: Order) -> Result<TaskId, LonghaulError> {
        let reference = self.0.team.clone().ok_or(LonghaulError::NoTeam)?;
        if let Some(team) = self.0.office.team(&reference) {
            let agent = order.agent.get_or_insert_with(|| team.root().clone());
            if team.agent(agent).is_none() {
                let have = team.agents().map(|agent| agent.name.to_string()).collect();
                return Err(LonghaulError::NoAgent { asked: agent.to_string(), team: reference, have });
            }
            if let Some(model) = order.model.as_ref().filter(|model| team.model(model).is_none()) {
                let have = team.model_names();
                return Err(LonghaulError::NoModel { asked: model.clone(), team: reference, have });
            }
        }
        self.plan(key, reference, order).await
    }

    /// Submits an order to a team that some other process runs.
    pub async fn submit_to(&self, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        self.plan(TaskKey::fresh(), team, order).await
    }

    async fn plan(&self, key: TaskKey, team: TeamRef, order: Order) -> Result<TaskId, LonghaulError> {
        check_text("task", &order.task)?;
        let plan = Plan {
            key,
            order,
            team,
            parent: None,
            continues: None,
            letter: None,
            retries: None,
            above: Vec::new(),
        };
        Ok(self.0.office.submit(plan).await?.0)
    }

    /// Asks the team's root, and follows what happens in its tree until it has ended.
    ///
    /// ```
    /// use futures::StreamExt as _;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let mut events = longhaul.chat("How are you?").await?;
    /// let mut said = String::new();
    /// while let Some(event) = events.next().await {
    ///     if let Happening::Text { text } = event?.what {
    ///         said.push_str(&text);
    ///     }
    /// }
    /// assert_eq!(said, "Fine.");
    /// # Ok(()) }
    /// ```
    pub async fn chat(&self, prompt: impl Into<Arc<str>>) -> Result<Events, LonghaulError> {
        let root = self.submit(Order { task: prompt.into(), ..Order::default() }).await?;
        Ok(self.follow(root))
    }

    /// Opens a session: a root that stays for the next word. Its id, and what happens until it is silent.
    ///
    /// ```
    /// use futures::TryStreamExt as _;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, events) = longhaul.open("How are you?").await?;
    /// let events: Vec<Event> = events.try_collect().await?;
    /// let told = longhaul.snapshot(session).await?;
    /// assert_eq!((told.head.status, told.output.as_str()), (Status::Running, "Fine."));
    /// longhaul.close(session).await?;
    /// assert_eq!(longhaul.wait([session]).await?.tasks[0].output, "Fine.");
    /// # Ok(()) }
    /// ```
    pub async fn open(&self, prompt: impl Into<Arc<str>>) -> Result<(TaskId, Events), LonghaulError> {
        let root = self.submit(Order { task: prompt.into(), ..Order::default() }.interactive()).await?;
        Ok((root, follow::tree(self.0.office.clone(), root, HashMap::new(), Until::Silence(None))))
    }

    /// The next word in a session, and what happens until it is silent again.
    ///
    /// ```
    /// use futures::TryStreamExt as _;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text(format!("{} messages", request.messages.len()))));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, events) = longhaul.open("One.").await?;
    /// events.try_for_each(|_| async { Ok(()) }).await?;
    /// let events: Vec<Event> = longhaul.say(session, "Two.").await?.try_collect().await?;
    /// assert!(events.iter().any(|event| event.what == Happening::Text { text: "3 messages".to_owned() }));
    /// # Ok(()) }
    /// ```
    pub async fn say(&self, session: TaskId, text: impl Into<Arc<str>>) -> Result<Events, LonghaulError> {
        let letter = self.letter(text.into(), Deliver::Asap)?;
        let office = &self.0.office;
        let letter_id = letter.id.clone();
        let last = office.last(session).await?;
        let seen = office.store.list(Filter::tree(last.root)).await?;
        let sent = office.send(last.id, letter).await?;
        let begins_with_it = office.submission(sent.to).await?.letter.as_ref() == Some(&letter_id);
        let seen = seen.into_iter().filter(|_| sent.to == last.id).map(|task| (task.id, task.seq)).collect();
        let until = Until::Silence((!begins_with_it).then_some(letter_id));
        Ok(follow::tree(office.clone(), sent.to, seen, until))
    }

    /// Closes a session, or the one that continues it: it ends with its last answer. One that is in the middle of
    /// something, or that nobody runs, is cancelled.
    pub async fn close(&self, session: TaskId) -> Result<(), LonghaulError> {
        let last = self.0.office.last(session).await?.id;
        Ok(self.0.office.stop(last, &Stop { cause: StopCause::Closed, note: None }).await?)
    }

    /// What happens in a tree, from its beginning, until its root has ended.
    pub fn follow(&self, root: TaskId) -> Events {
        follow::tree(self.0.office.clone(), root, HashMap::new(), Until::End)
    }

    /// What happens to a task, from after an entry on, until it has ended.
    pub fn events(&self, id: TaskId, after: Seq) -> Events {
        follow::task(self.0.office.clone(), id, after)
    }

    /// The same, for whoever has read the journal up to that entry: its narrator goes on from there, and nothing is read
    /// again.
    pub fn events_with(&self, narrator: Narrator, after: Seq) -> Events {
        follow::told(self.0.office.clone(), narrator, after)
    }

    /// A task as [`snapshot`](Self::snapshot) shows it, for whoever wants to see its last events and its output: of one that has
    /// ended the long middle of its journal is not read, and `dropped` counts entries there.
    pub async fn glance(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.office.glance(id).await?;
        if let Some(head) = self.0.office.seen(vec![snapshot.head.clone()]).await?.pop() {
            snapshot.head = head;
        }
        Ok(snapshot)
    }

    /// Where a task stands.
    pub async fn head(&self, id: TaskId) -> Result<Head, LonghaulError> {
        let office = &self.0.office;
        let head = office.head(id).await?;
        Ok(office.seen(vec![head.clone()]).await?.pop().unwrap_or(head))
    }

    /// Writes to a task. One that has ended is continued by a new task, whose id is in the answer.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text(format!("{} messages", request.messages.len()))));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let id = longhaul.submit(Order::new("worker", "Write about Rust.")).await?;
    /// longhaul.wait([id]).await?;
    /// let sent = longhaul.send(id, "Only the last two years.").await?;
    /// assert!(sent.continued);
    /// let next = longhaul.wait([sent.to]).await?;
    /// assert_eq!(next.tasks[0].output, "3 messages"); // the order, the first answer, the letter
    /// # Ok(()) }
    /// ```
    pub async fn send(&self, id: TaskId, text: impl Into<Arc<str>>) -> Result<Sent, LonghaulError> {
        let letter = self.letter(text.into(), Deliver::Asap)?;
        Ok(self.0.office.send(id, letter).await?)
    }

    /// Writes to a task, to be read when it has nothing more to say of its own.
    pub async fn send_when_idle(&self, id: TaskId, text: impl Into<Arc<str>>) -> Result<Sent, LonghaulError> {
        let letter = self.letter(text.into(), Deliver::WhenIdle)?;
        Ok(self.0.office.send(id, letter).await?)
    }

    /// Continues a task that has ended, with the same agent and conversation. The id of the new task.
    pub async fn continue_task(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
    ) -> Result<TaskId, LonghaulError> {
        Ok(self.send(id, text).await?.to)
    }

    /// Submits the order of a task that failed or was cancelled again, as a new task that names the old one. The id of
    /// the new task.
    ///
    /// It has the place that the old one had: the same team, parent, tree, rights and tree budget; a parent that is
    /// still at work, or goes on as another task, hears of its end. One that continued a conversation continues the same.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, _) = longhaul.open("Stay.").await?;
    /// longhaul.stop(session).await?;
    /// longhaul.wait([session]).await?;
    /// let again = longhaul.retry(session).await?;
    /// assert_eq!(longhaul.snapshot(again).await?.head.retries, Some(session));
    /// # Ok(()) }
    /// ```
    pub async fn retry(&self, id: TaskId) -> Result<TaskId, LonghaulError> {
        let head = self.0.office.head(id).await?;
        if !matches!(head.status, Status::Failed | Status::Cancelled) {
            return Err(LonghaulError::NotFailed { task: id, status: head.status });
        }
        Ok(self.0.office.retry(&head).await?)
    }

    fn letter(&self, text: Arc<str>, deliver: Deliver) -> Result<Letter, LonghaulError> {
        check_text("message", &text)?;
        Ok(Letter { id: LetterId::fresh(), from: Sender::Person, text, summary: None, deliver, ending: None })
    }

    /// Writes to every task that has not ended. Which those are.
    pub async fn broadcast(&self, text: impl Into<Arc<str>>) -> Result<Vec<TaskId>, LonghaulError> {
        self.broadcast_to(Filter::default(), text).await
    }

    /// Writes to every task of a filter that has not ended. Which those are, without any whose mailbox is full.
    pub async fn broadcast_to(
        &self,
        filter: Filter,
        text: impl Into<Arc<str>>,
    ) -> Result<Vec<TaskId>, LonghaulError> {
        let letter = self.letter(text.into(), Deliver::Asap)?;
        let mut reached = Vec::new();
        for task in self.0.office.store.list(filter.live()).await? {
            if self.0.office.post(task.id, &letter).await? == Posted::Taken {
                reached.push(task.id);
            }
        }
        Ok(reached)
    }

    /// Waits for tasks: for all of them and without end, unless told otherwise.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let one = longhaul.submit(Order::new("worker", "One.")).await?;
    /// let two = longhaul.submit(Order::new("worker", "Two.")).await?;
    /// let first = longhaul.wait([one, two]).any().timeout(Duration::from_secs(30)).await?;
    /// assert!(!first.timed_out && first.tasks.iter().any(|task| task.head.status.is_final()));
    /// let both = longhaul.wait([one, two]).await?;
    /// assert_eq!(both.tasks[1].head.id, two); // in the order in which they were asked for
    /// # Ok(()) }
    /// ```
    pub fn wait(&self, ids: impl IntoIterator<Item = TaskId>) -> Waiter {
        Waiter {
            office: self.0.office.clone(),
            ids: ids.into_iter().collect(),
            join: Join::All,
            timeout: None,
        }
    }

    /// One task at this moment. One whose process is gone is shown as what it is: pending, and not running.
    pub async fn snapshot(&self, id: TaskId) -> Result<Snapshot, LonghaulError> {
        let mut snapshot = self.0.office.snapshot(id).await?;
        if let Some(head) = self.0.office.seen(vec![snapshot.head.clone()]).await?.pop() {
            snapshot.head = head;
        }
        Ok(snapshot)
    }

    /// Where the tasks stand that match, in the order of their submission.
    pub async fn snapshots(&self, filter: Filter) -> Result<Vec<Head>, LonghaulError> {
        let office = &self.0.office;
        Ok(office.seen(office.store.list(filter).await?).await?)
    }

    /// The answer of a task; before there is one, all it has said so far.
    pub async fn output(&self, id: TaskId) -> Result<String, LonghaulError> {
        Ok(self.snapshot(id).await?.output)
    }

    /// The task with this id, or the only one whose id begins like this.
    pub async fn find(&self, typed: &str) -> Result<TaskId, LonghaulError> {
        Ok(self.0.office.store.find(typed).await?)
    }

    /// How many tasks run.
    pub async fn running(&self) -> Result<usize, LonghaulError> {
        let filter = Filter { status: vec![Status::Running], ..Filter::default() };
        Ok(self.snapshots(filter).await?.len())
    }

    /// Stops a task and everything below it. When this returns the wish is on disk; a running task settles it soon.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, _) = longhaul.open("Stay.").await?;
    /// longhaul.stop(session).await?;
    /// let stopped = longhaul.wait([session]).await?;
    /// assert_eq!(stopped.tasks[0].head.status, Status::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn stop(&self, id: TaskId) -> Result<(), LonghaulError> {
        Ok(self.0.office.stop(id, &Stop { cause: StopCause::Person, note: None }).await?)
    }

    /// Tells a task not to wait for others any longer: the calls of it that do return at once, with the ids of the tasks that
    /// they waited for. Those go on, and their results are sent to it as letters. Whether it was in the middle of any
    /// call; one that does not wait for tasks goes on.
    pub async fn background(&self, id: TaskId) -> Result<bool, LonghaulError> {
        Ok(self.0.office.background(id).await?)
    }

    /// Stops every task that has not ended. Which those are.
    pub async fn stop_all(&self) -> Result<Vec<TaskId>, LonghaulError> {
        let open = self.snapshots(Filter::default().live()).await?;
        for task in &open {
            self.stop(task.id).await?;
        }
        Ok(open.into_iter().map(|task| task.id).collect())
    }

    /// Takes tasks of a tree that some other process submitted; only for one that runs its own trees alone.
    pub fn adopt(&self, root: TaskId) {
        self.0.office.adopt(root);
        self.0.office.bells.wake(root);
    }

    /// The bounds on how many tasks there may be.
    pub fn limits(&self) -> &Limits {
        &self.0.office.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.office.store
    }

    /// Waits until the store takes nothing any more, and says why (a full disk, say). Tasks that were interrupted by
    /// it are given back as soon as it is well again; whoever does not want to wait for that may simply leave.
    pub async fn trouble(&self) -> StoreError {
        let mut trouble = self.0.trouble.subscribe();
        let found = trouble.wait_for(Option::is_some).await.ok().and_then(|trouble| trouble.clone());
        match found {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Begins to drain: no new task is taken, those that run finish their step and are given back.
    pub fn drain(&self) {
        self.0.drain.cancel();
    }

    /// Ends this Longhaul in bounded time. Tasks that have not ended can be resumed.
    pub async fn shutdown(&self) {
        // 1. No task is taken any more, and those that run finish their step and are given back.
        self.0.drain.cancel();
        self.0.runs.close();
        // 2. They have some time for that.
        if tokio::time::timeout(self.0.grace, self.0.runs.wait()).await.is_err() {
            // 3. Whoever has not ended by then is dropped, and given back all the same.
            self.0.abort.cancel();
            let _ = tokio::time::timeout(self.0.grace, self.0.runs.wait()).await;
        }
        // 4. Nothing of ours runs any more.
        self.0.abort.cancel();
        self.0.background.close();
        self.0.background.wait().await;
        // 5. The lease ends, so that others need not wait for it to run out.
        if let Some(worker) = &self.0.worker
            && let Err(error) = self.0.office.store.retire(worker.clone()).await
        {
            tracing::warn!(%error, "the lease could not be given up");
        }
        // 6. Toolsets end what they have started.
        for team in self.0.office.teams.all() {
            for toolset in team.agents().flat_map(|agent| &agent.toolsets) {
                if tokio::time::timeout(self.0.grace, toolset.close()).await.is_err() {
                    tracing::warn!(toolset = toolset.name(), "the toolset did not end in time");
                }
            }
        }
    }
}

fn names(questions: &[QuestionId]) -> String {
    questions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn check_text(what: &'static str, text: &str) -> Result<(), LonghaulError> {
    if text.trim().is_empty() {
        return Err(LonghaulError::Empty(what));
    }
    if text.len() > LONGEST_TEXT {
        return Err(LonghaulError::TooLong { what, size: text.len(), most: LONGEST_TEXT });
    }
    Ok(())
}

/// A wait to be awaited. A wait that times out harms nothing.
pub struct Waiter {
    office: Arc<Office>,
    ids: Vec<TaskId>,
    join: Join,
    timeout: Option<Duration>,
}

impl Waiter {
    /// Until one of them has ended.
    pub fn any(mut self) -> Self {
        self.join = Join::Any;
        self
    }

    /// Until all of them have ended.
    pub fn all(mut self) -> Self {
        self.join = Join::All;
        self
    }

    /// No longer than this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for Waiter {
    type Output = Result<Waited, LonghaulError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.office.wait(&self.ids, self.join, self.timeout).await?) })
    }
}
