//! The desk for agents: the office, with the question who may do what to whom.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::office::{Office, Plan, Posted};
use crate::dispatch::{Caller, Desk, DeskError, DeskFuture, Join, Note, Sent, Waited, check, find};
use crate::entry::{Deliver, Letter, Order, Sender, Stop, StopCause};
use crate::id::{AgentName, CallId, LetterId, TaskId, TaskKey};
use crate::runner::below;
use crate::snapshot::Snapshot;
use crate::store::{Filter, StoreError};
use crate::task::{Head, IllegalMove};

impl Office {
    /// The tasks below the caller, and below those whose conversation it goes on with: it knows them too.
    async fn below(&self, caller: &Caller) -> Result<Vec<Head>, StoreError> {
        let mut tasks: Vec<Head> = Vec::new();
        let (mut top, mut root) = (caller.task, caller.root);
        loop {
            let tree = self.store.list(Filter::tree(root)).await?;
            let found = below(&tree, top).into_iter().filter(|task| task.id != top);
            tasks.splice(0..0, found.cloned());
            let continues = tree.iter().find(|task| task.id == top).and_then(|task| task.continues);
            let Some(old) = continues else { return Ok(tasks) };
            (top, root) = (old, self.head(old).await?.root);
        }
    }

    async fn find(&self, caller: &Caller, typed: &str) -> Result<TaskId, DeskError> {
        find(&self.below(caller).await?, typed)
    }

    async fn find_all(&self, caller: &Caller, typed: &[String]) -> Result<Vec<TaskId>, DeskError> {
        let tasks = self.below(caller).await?;
        typed.iter().map(|typed| find(&tasks, typed)).collect()
    }

    async fn launch(&self, caller: &Caller, call: CallId, mut order: Order) -> Result<TaskId, DeskError> {
        let head = self.head(caller.task).await?;
        let team = self.team(&head.team).ok_or(StoreError::NoTask(caller.task))?;
        let agent = team.agent(&caller.agent);
        if let Some(agent) = agent {
            order = agent.habits.launches.bound(order);
        }
        let may: &[AgentName] = agent.map_or(&[], |agent| &agent.sub_agents);
        check(caller, may, &order, &self.limits)?;
        if let Some(model) = order.model.as_ref().filter(|model| team.model(model).is_none()) {
            return Err(DeskError::UnknownModel { asked: model.clone(), may: team.model_names() });
        }
        if head.stop.is_some() {
            return Err(DeskError::Stopping);
        }
        let parent = self.orders.of(&*self.store, caller.task).await?;
        order.working_dir = order.working_dir.or_else(|| parent.order.working_dir.clone());
        // A child never has more than its parent, whatever its order says.
        order.approved = parent.order.approved;
        let mut above = parent.above.clone();
        if !above.contains(&caller.agent) {
            above.push(caller.agent.clone());
        }
        let plan = Plan {
            key: TaskKey::child(caller.task, call),
            order,
            team: head.team.clone(),
            parent: Some(head),
            continues: None,
            letter: None,
            retries: None,
            above,
        };
        self.submit(plan).await.map(|(id, _)| id).map_err(desk_error)
    }

    fn letter(&self, caller: &Caller, call: CallId, note: Note) -> Result<Letter, DeskError> {
        if note.text.trim().is_empty() {
            return Err(DeskError::EmptyMessage);
        }
        Ok(Letter {
            id: LetterId::from(format!("{}:{call}", caller.task)),
            from: Sender::Task(caller.task),
            text: note.text.into(),
            summary: note.summary,
            deliver: Deliver::Asap,
            ending: None,
        })
    }
}

fn desk_error(error: StoreError) -> DeskError {
    match error {
        StoreError::Limit { limit, what } => DeskError::Limit { limit, what },
        StoreError::Illegal { task, why: IllegalMove::MailboxFull } => DeskError::MailboxFull(task),
        error => DeskError::Store(error),
    }
}

impl Desk for Office {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn submit<'a>(&'a self, caller: &'a Caller, call: CallId, order: Order) -> DeskFuture<'a, TaskId> {
        Box::pin(self.launch(caller, call, order))
    }

    fn list<'a>(&'a self, caller: &'a Caller) -> DeskFuture<'a, Vec<Head>> {
        Box::pin(async move { Ok(self.below(caller).await?) })
    }

    fn view<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DeskFuture<'a, Snapshot> {
        Box::pin(async move {
            let id = self.find(caller, typed).await?;
            Ok(self.snapshot(id).await?)
        })
    }

    fn wait<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
        join: Join,
        timeout: Option<Duration>,
    ) -> DeskFuture<'a, Waited> {
        Box::pin(async move {
            let ids = self.find_all(caller, typed).await?;
            Ok(Office::wait(self, &ids, join, timeout).await?)
        })
    }

    fn stop<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DeskFuture<'a, Head> {
        Box::pin(async move {
            let id = self.find(caller, typed).await?;
            let before = self.head(id).await?;
            Office::stop(self, id, &Stop { cause: StopCause::Agent, note: None }).await?;
            Ok(before)
        })
    }

    fn send<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        typed: &'a str,
        note: Note,
    ) -> DeskFuture<'a, Sent> {
        Box::pin(async move {
            let to = self.find(caller, typed).await?;
            let letter = self.letter(caller, call, note)?;
            Office::send(self, to, letter).await.map_err(desk_error)
        })
    }

    fn broadcast<'a>(&'a self, caller: &'a Caller, call: CallId, note: Note) -> DeskFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let letter = self.letter(caller, call, note)?;
            let mut reached = Vec::new();
            for task in self.below(caller).await?.into_iter().filter(|task| !task.status.is_final()) {
                if self.post(task.id, &letter).await? == Posted::Taken {
                    reached.push(task.id);
                }
            }
            Ok(reached)
        })
    }
}

/// The desk, as tools see it.
pub(crate) fn desk(office: &Arc<Office>) -> Arc<dyn Desk> {
    office.clone()
}
