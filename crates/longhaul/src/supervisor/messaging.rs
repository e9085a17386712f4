//! Talking with tasks: a question, a session, letters.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::check_text;
use super::follow::{self, FollowUntil, TaskEvents};
use super::task_service::{PostResult, RetryResult};
use super::{Longhaul, LonghaulError};
use crate::dispatch::SendReceipt;
use crate::entry::{Budget, Delivery, Letter, Order, Sender, StopCause, StopRequest};
use crate::id::{LetterId, TaskId};
use crate::store::TaskFilter;
use crate::task::Status;

impl Longhaul {
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
        Ok((root, follow::follow_tree(self.0.service.clone(), root, HashMap::new(), FollowUntil::Idle(None))))
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
        let office = &self.0.service;
        let letter_id = letter.id.clone();
        let last = office.latest_continuation(session).await?;
        let seen = office.store.list(TaskFilter::tree(last.root)).await?;
        let sent = office.send(last.id, letter).await?;
        let begins_with_it = office.submission(sent.to).await?.letter.as_ref() == Some(&letter_id);
        let seen = seen.into_iter().filter(|_| sent.to == last.id).map(|task| (task.id, task.seq)).collect();
        let until = FollowUntil::Idle((!begins_with_it).then_some(letter_id));
        Ok(follow::follow_tree(office.clone(), sent.to, seen, until))
    }

    /// Closes a session, or the one that continues it: it ends with its last answer. One that is in the middle of
    /// something, or that nobody runs, is cancelled.
    pub async fn close_session(&self, session: TaskId) -> Result<(), LonghaulError> {
        let last = self.0.service.latest_continuation(session).await?.id;
        Ok(self.0.service.stop(last, &StopRequest { cause: StopCause::Closed, note: None }).await?)
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
    pub async fn send(&self, id: TaskId, text: impl Into<Arc<str>>) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        Ok(self.0.service.send(id, letter).await?)
    }

    /// Writes to a task that may use this budget from now on, with all below it: of each bound that is said here, this one counts
    /// instead of what the task had. One that has ended is continued by a new task, which has the budget.
    pub async fn send_with_budget(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
        budget: Budget,
    ) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::Asap)?;
        Ok(self.0.service.send_with_budget(id, letter, budget).await?)
    }

    /// Lets a task use so much from now on, with all below it: of each bound that is said here, this one counts instead of what the
    /// task had. Those that run under a bound heed it when they next ask their model, others when they are next taken up.
    ///
    /// A task that has ended is not continued by it: [`send_with_budget`](Self::send_with_budget) does that.
    pub async fn add_budget(&self, id: TaskId, budget: Budget) -> Result<(), LonghaulError> {
        Ok(self.0.service.add_budget(id, budget).await?)
    }

    /// Writes to a task, to be read when it has nothing more to say of its own.
    pub async fn send_when_idle(
        &self,
        id: TaskId,
        text: impl Into<Arc<str>>,
    ) -> Result<SendReceipt, LonghaulError> {
        let letter = self.letter(text.into(), Delivery::WhenIdle)?;
        Ok(self.0.service.send(id, letter).await?)
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
    /// While an earlier retry of the same task has not ended there is no second one:
    /// [`Retried`](LonghaulError::AlreadyRetried) names it.
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
        let head = self.0.service.state(id).await?;
        if !matches!(head.status, Status::Failed | Status::Cancelled) {
            return Err(LonghaulError::NotFailed { task: id, status: head.status });
        }
        match self.0.service.retry(&head).await? {
            RetryResult::New(again) => Ok(again),
            RetryResult::Open(by) => Err(LonghaulError::AlreadyRetried { task: id, by }),
        }
    }

    fn letter(&self, text: Arc<str>, deliver: Delivery) -> Result<Letter, LonghaulError> {
        check_text("message", &text)?;
        Ok(Letter {
            id: LetterId::random(),
            from: Sender::Person,
            text,
            summary: None,
            deliver,
            ending: None,
            effects: false,
        })
    }

    /// Writes to every task that has not ended. Which those are.
    pub async fn broadcast(&self, text: impl Into<Arc<str>>) -> Result<Vec<TaskId>, LonghaulError> {
        self.broadcast_to(TaskFilter::default(), text).await
    }

    /// Writes to every task of a filter that has not ended. Which those are, without any whose mailbox is full.
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
