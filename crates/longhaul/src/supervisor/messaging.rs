//! Messaging tasks: prompts, sessions, letters, budgets, retries.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::check_text;
use super::follow::{self, FollowUntil, TaskEvents};
use super::task_service::{PostResult, RetryResult};
use super::{Longhaul, LonghaulError};
use crate::dispatch::SendReceipt;
use crate::entry::{Budget, Delivery, Letter, Order, Sender, StopCause, StopRequest, WaitReason};
use crate::id::{LetterId, Seq, TaskId};
use crate::journal::latest_continuation;
use crate::store::TaskFilter;
use crate::task::{Status, TaskState, WaitState};

impl Longhaul {
    /// Sends a prompt to the team's root agent, and follows the task and its tree until it has ended.
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
    ///     if let EventKind::Text { text } = event?.kind {
    ///         said.push_str(&text);
    ///     }
    /// }
    /// assert_eq!(said, "Fine.");
    /// # Ok(()) }
    /// ```
    pub async fn chat(&self, prompt: impl Into<Arc<str>>) -> Result<TaskEvents, LonghaulError> {
        let root = self.submit(Order { task: prompt.into(), ..Order::default() }).await?;
        Ok(self.follow(root))
    }

    /// Opens a session: a root task that waits for the next message instead of ending. Returns its id, and
    /// its events until it is idle.
    ///
    /// ```
    /// use futures::TryStreamExt as _;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, events) = longhaul.open_session("How are you?").await?;
    /// let events: Vec<Event> = events.try_collect().await?;
    /// let told = longhaul.snapshot(session).await?;
    /// assert_eq!((told.state.status, told.output.as_str()), (Status::Running, "Fine."));
    /// longhaul.close_session(session).await?;
    /// assert_eq!(longhaul.wait([session]).await?.tasks[0].output, "Fine.");
    /// # Ok(()) }
    /// ```
    pub async fn open_session(
        &self,
        prompt: impl Into<Arc<str>>,
    ) -> Result<(TaskId, TaskEvents), LonghaulError> {
        let root = self.submit(Order { task: prompt.into(), ..Order::default() }.interactive()).await?;
        Ok((
            root,
            follow::follow_tree(self.0.service.clone(), root, HashMap::new(), FollowUntil::Idle(None), true),
        ))
    }

    /// Sends the next message to a session. Returns the events until the session is idle again.
    ///
    /// ```
    /// use futures::TryStreamExt as _;
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text(format!("{} messages", request.messages.len()))));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, events) = longhaul.open_session("One.").await?;
    /// events.try_for_each(|_| async { Ok(()) }).await?;
    /// let events: Vec<Event> = longhaul.send_to_session(session, "Two.").await?.try_collect().await?;
    /// assert!(events.iter().any(|event| event.kind == EventKind::Text { text: "3 messages".to_owned() }));
    /// # Ok(()) }
    /// ```
    pub async fn send_to_session(
        &self,
        session: TaskId,
        text: impl Into<Arc<str>>,
    ) -> Result<TaskEvents, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        let service = &self.0.service;
        let letter_id = letter.id.clone();
        let last = latest_continuation(&*service.store, session).await?;
        let seen = service.store.list(TaskFilter::tree(last.root)).await?;
        let sent = service.send(last.id, letter).await?;
        let begins_with_it = service.submission(sent.to).await?.letter.as_ref() == Some(&letter_id);
        let seen = seen.into_iter().filter(|_| sent.to == last.id).map(|task| (task.id, task.seq)).collect();
        let until = FollowUntil::Idle((!begins_with_it).then_some(letter_id));
        Ok(follow::follow_tree(service.clone(), sent.to, seen, until, true))
    }

    /// The events of a session after the entry `after` until it is idle, or has ended. Dropping them stops
    /// nothing.
    pub fn follow_session(&self, session: TaskId, after: Seq) -> TaskEvents {
        let seen = HashMap::from([(session, after)]);
        follow::follow_tree(self.0.service.clone(), session, seen, FollowUntil::Idle(None), true)
    }

    /// The task that holds a session's conversation now: the session itself, or the last task that continues
    /// it.
    pub async fn session_task(&self, session: TaskId) -> Result<TaskState, LonghaulError> {
        Ok(latest_continuation(&*self.0.service.store, session).await?)
    }

    /// Interrupts what a session is doing now. The tasks that it has launched go on; their results reach the
    /// task that continues it. The next letter continues it. An idle session is left alone.
    pub async fn interrupt_session(&self, session: TaskId) -> Result<(), LonghaulError> {
        let last = latest_continuation(&*self.0.service.store, session).await?;
        let waits = |wait: &WaitState| wait.on == WaitReason::Letter;
        if last.status.is_final() || last.waiting.as_ref().is_some_and(waits) {
            return Ok(());
        }
        let stop = StopRequest { cause: StopCause::Interrupted, note: None };
        Ok(self.0.service.stop(last.id, &stop).await?)
    }

    /// Closes a session, or the task that continues it: it ends with its last answer. If it is busy, or no
    /// process runs it, it is cancelled.
    pub async fn close_session(&self, session: TaskId) -> Result<(), LonghaulError> {
        let last = latest_continuation(&*self.0.service.store, session).await?.id;
        Ok(self.0.service.stop(last, &StopRequest { cause: StopCause::Closed, note: None }).await?)
    }

    /// Sends a letter to a task. If the task has ended, a new task continues it, and the receipt holds the
    /// new id.
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
    pub async fn send(&self, id: TaskId, text: impl Into<Arc<str>>) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        Ok(self.0.service.send(id, letter).await?)
    }

    /// Sends a letter to a task and changes the budget of it and everything below it: each limit set here
    /// replaces the task's earlier one. If the task has ended, a new task with this budget continues it.
    pub async fn send_with_budget(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
        budget: Budget,
    ) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        Ok(self.0.service.send_with_budget(id, letter, budget).await?)
    }

    /// Like [`send`](Self::send), but only once per key: sending again under the same
    /// key to the same task writes nothing and returns the receipt of the first letter, whatever its text was.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let id = longhaul.submit(Order::new("worker", "Write about Rust.")).await?;
    /// longhaul.wait([id]).await?;
    /// let first = longhaul.send_once(id, "request 7", "And about Go.").await?;
    /// let again = longhaul.send_once(id, "request 7", "And about Go.").await?;
    /// assert_eq!(first.to, again.to);
    /// # Ok(()) }
    /// ```
    pub async fn send_once(
        &self,
        id: TaskId,
        key: &str,
        text: impl Into<Arc<str>>,
    ) -> Result<SendReceipt, LonghaulError> {
        let mut letter = self.letter(text.into(), Delivery::Asap)?;
        letter.id = LetterId::named(key);
        Ok(self.0.service.send(id, letter).await?)
    }

    /// Gives a task and everything below it this much budget from now on, on top of what they have used: each
    /// limit set here replaces the task's earlier one. Running tasks apply it before their next model call,
    /// others when they are next claimed.
    ///
    /// This does not continue a task that has ended; use [`send_with_budget`](Self::send_with_budget) for
    /// that.
    pub async fn add_budget(&self, id: TaskId, budget: Budget) -> Result<(), LonghaulError> {
        Ok(self.0.service.add_budget(id, budget).await?)
    }

    /// Sends a letter that the task reads when it has nothing left to do.
    pub async fn send_when_idle(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
    ) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::WhenIdle)?;
        Ok(self.0.service.send(id, letter).await?)
    }

    /// Continues an ended task with the same agent and conversation. Returns the id of the new task.
    pub async fn continue_task(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
    ) -> Result<TaskId, LonghaulError> {
        Ok(self.send(id, text).await?.to)
    }

    /// Re-runs a failed or cancelled task as a new task that refers to the old one. Returns the id of the new
    /// task.
    ///
    /// The new task takes the place of the old one: the same team, parent, tree, permissions and tree budget.
    /// A parent that is still working, or its continuation, is notified when it ends. A task that continued a
    /// conversation continues the same one.
    ///
    /// Fails with [`AlreadyRetried`](LonghaulError::AlreadyRetried) while an earlier retry of the same task
    /// has not ended.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use longhaul::{*, testing::*};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Arc::new(FnModel::new(|request| reply().text("Fine.")));
    /// # let agent = Agent::builder("worker").model(model).build()?;
    /// # let longhaul = Longhaul::builder(Team::new(agent)?).start().await?;
    /// let (session, _) = longhaul.open_session("Stay.").await?;
    /// longhaul.stop(session).await?;
    /// longhaul.wait([session]).await?;
    /// let again = longhaul.retry(session).await?;
    /// assert_eq!(longhaul.snapshot(again).await?.state.retries, Some(session));
    /// # Ok(()) }
    /// ```
    pub async fn retry(&self, id: TaskId) -> Result<TaskId, LonghaulError> {
        let state = self.0.service.state(id).await?;
        if !matches!(state.status, Status::Failed | Status::Cancelled) {
            return Err(LonghaulError::NotFailed { task: id, status: state.status });
        }
        match self.0.service.retry(&state).await? {
            RetryResult::New(again) => Ok(again),
            RetryResult::Open(by) => Err(LonghaulError::AlreadyRetried { task: id, by }),
        }
    }

    fn letter(&self, text: Arc<str>, deliver: Delivery) -> Result<Letter, LonghaulError> {
        check_text("message", &text)?;
        Ok(Letter::new(LetterId::random(), Sender::Person, text).deliver(deliver))
    }

    /// Sends a letter to every task that has not ended. Returns those tasks.
    pub async fn broadcast(&self, text: impl Into<Arc<str>>) -> Result<Vec<TaskId>, LonghaulError> {
        self.broadcast_to(TaskFilter::default(), text).await
    }

    /// Sends a letter to every unfinished task that matches. Returns those tasks, without any whose mailbox
    /// is full.
    pub async fn broadcast_to(
        &self,
        filter: TaskFilter,
        text: impl Into<Arc<str>>,
    ) -> Result<Vec<TaskId>, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        let mut reached = Vec::new();
        for task in self.0.service.store.list(filter.live()).await? {
            if self.0.service.deliver_letter(task.id, &letter).await? == PostResult::Delivered {
                reached.push(task.id);
            }
        }
        Ok(reached)
    }
}
