//! The [`Dispatcher`] for agents: the [`TaskService`], limited to what each caller may do.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::task_service::{NewTask, PostResult, TaskService};
use crate::dispatch::{
    Caller, DispatchError, DispatchFuture, Dispatcher, EarlierResult, LetterContent, SendReceipt, WaitMode,
    WaitResult, check_order, find_task, is_answered_by,
};
use crate::entry::{Delivery, Letter, Order, Sender, StopCause, StopRequest};
use crate::id::{AgentName, CallId, LetterId, TaskId, TaskKey};
use crate::runner::subtree;
use crate::snapshot::Snapshot;
use crate::store::{StoreError, TaskFilter};
use crate::task::{IllegalTransition, TaskState};

impl TaskService {
    /// The tasks below the caller, and below the tasks whose conversation it continues: it knows those too.
    async fn tasks_below(&self, caller: &Caller) -> Result<Vec<TaskState>, StoreError> {
        let mut tasks: Vec<TaskState> = Vec::new();
        let (mut top, mut root) = (caller.task, caller.root);
        loop {
            let tree = self.store.list(TaskFilter::tree(root)).await?;
            let found = subtree(&tree, top).into_iter().filter(|task| task.id != top);
            tasks.splice(0..0, found.cloned());
            let continues = tree.iter().find(|task| task.id == top).and_then(|task| task.continues);
            let Some(old) = continues else { return Ok(tasks) };
            (top, root) = (old, self.state(old).await?.root);
        }
    }

    async fn find_below(&self, caller: &Caller, typed: &str) -> Result<TaskId, DispatchError> {
        find_task(&self.tasks_below(caller).await?, typed)
    }

    async fn find_all_below(&self, caller: &Caller, typed: &[String]) -> Result<Vec<TaskId>, DispatchError> {
        let tasks = self.tasks_below(caller).await?;
        typed.iter().map(|typed| find_task(&tasks, typed)).collect()
    }

    /// The order as it will be submitted, the caller's state, and the agents above.
    async fn prepare(
        &self,
        caller: &Caller,
        mut order: Order,
    ) -> Result<(Order, TaskState, Vec<AgentName>), DispatchError> {
        let state = self.state(caller.task).await?;
        let team = self.team(&state.team).ok_or(StoreError::NoTask(caller.task))?;
        let agent = team.agent(&caller.agent);
        if let Some(agent) = agent {
            order = agent.policy.launch_limits.apply_to(order);
        }
        let may: &[AgentName] = agent.map_or(&[], |agent| &agent.sub_agents);
        check_order(caller, may, &order, &self.limits)?;
        if let Some(model) = order.model.as_ref().filter(|model| team.model(model).is_none()) {
            return Err(DispatchError::UnknownModel { asked: model.clone(), may: team.model_names() });
        }
        if state.stop.is_some() {
            return Err(DispatchError::Stopping);
        }
        let parent = self.submissions.get(&*self.store, caller.task).await?;
        order.working_dir = order.working_dir.or_else(|| parent.order.working_dir.clone());
        // A child never gets more approval than its parent, whatever its order says.
        order.approved = parent.order.approved;
        let mut above = parent.above.clone();
        if !above.contains(&caller.agent) {
            above.push(caller.agent.clone());
        }
        Ok((order, state, above))
    }

    async fn launch(&self, caller: &Caller, call: CallId, order: Order) -> Result<TaskId, DispatchError> {
        let (order, state, above) = self.prepare(caller, order).await?;
        let plan = NewTask {
            key: TaskKey::for_child(caller.task, call),
            order,
            team: state.team.clone(),
            parent: Some(state),
            continues: None,
            letter: None,
            retries: None,
            above,
        };
        self.submit(plan).await.map(|(id, _)| id).map_err(dispatch_error)
    }

    async fn answered_before(
        &self,
        caller: &Caller,
        earlier: &[EarlierResult],
        order: &Order,
    ) -> Result<Option<Snapshot>, DispatchError> {
        if !earlier.iter().any(|earlier| earlier.same) {
            return Ok(None);
        }
        let (order, ..) = self.prepare(caller, order.clone()).await?;
        // Read only when the same order was given twice; no other launch needs it.
        let tree = self.store.list(TaskFilter::tree(caller.root)).await?;
        for earlier in earlier {
            let Some(state) = tree.iter().find(|task| task.id == earlier.task) else { continue };
            let had = self.submissions.get(&*self.store, earlier.task).await?;
            if had.key == TaskKey::for_child(caller.task, earlier.call)
                && is_answered_by(&order, earlier, &had.order, state, &tree)
            {
                return Ok(Some(self.snapshot(earlier.task).await?));
            }
        }
        Ok(None)
    }

    fn letter(&self, caller: &Caller, call: CallId, note: LetterContent) -> Result<Letter, DispatchError> {
        if note.text.trim().is_empty() {
            return Err(DispatchError::EmptyMessage);
        }
        Ok(Letter {
            id: LetterId::from(format!("{}:{call}", caller.task)),
            from: Sender::Task(caller.task),
            text: note.text.into(),
            summary: note.summary,
            deliver: Delivery::Asap,
            ending: None,
            ended: None,
            effects: false,
        })
    }
}

fn dispatch_error(error: StoreError) -> DispatchError {
    match error {
        StoreError::Limit { limit, what } => DispatchError::Limit { limit, what },
        StoreError::Illegal { task, why: IllegalTransition::MailboxFull } => DispatchError::MailboxFull(task),
        error => DispatchError::Store(error),
    }
}

impl Dispatcher for TaskService {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn submit<'a>(&'a self, caller: &'a Caller, call: CallId, order: Order) -> DispatchFuture<'a, TaskId> {
        Box::pin(self.launch(caller, call, order))
    }

    fn answered<'a>(
        &'a self,
        caller: &'a Caller,
        earlier: &'a [EarlierResult],
        order: &'a Order,
    ) -> DispatchFuture<'a, Option<Snapshot>> {
        Box::pin(self.answered_before(caller, earlier, order))
    }

    fn list<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>> {
        Box::pin(async move { Ok(self.tasks_below(caller).await?) })
    }

    fn view<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, Snapshot> {
        Box::pin(async move {
            let id = self.find_below(caller, typed).await?;
            Ok(self.snapshot(id).await?)
        })
    }

    fn wait<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
        join: WaitMode,
        timeout: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult> {
        Box::pin(async move {
            let ids = self.find_all_below(caller, typed).await?;
            Ok(TaskService::wait(self, &ids, join, timeout).await?)
        })
    }

    fn stop<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, TaskState> {
        Box::pin(async move {
            let id = self.find_below(caller, typed).await?;
            let before = self.state(id).await?;
            TaskService::stop(self, id, &StopRequest { cause: StopCause::Agent, note: None }).await?;
            Ok(before)
        })
    }

    fn send<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        typed: &'a str,
        note: LetterContent,
    ) -> DispatchFuture<'a, SendReceipt> {
        Box::pin(async move {
            let to = self.find_below(caller, typed).await?;
            let letter = self.letter(caller, call, note)?;
            TaskService::send(self, to, letter).await.map_err(dispatch_error)
        })
    }

    fn broadcast<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        note: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let letter = self.letter(caller, call, note)?;
            let mut reached = Vec::new();
            for task in self.tasks_below(caller).await?.into_iter().filter(|task| !task.status.is_final()) {
                if self.deliver_letter(task.id, &letter).await? == PostResult::Delivered {
                    reached.push(task.id);
                }
            }
            Ok(reached)
        })
    }
}

/// The dispatcher that tools get.
pub(crate) fn dispatcher(service: &Arc<TaskService>) -> Arc<dyn Dispatcher> {
    service.clone()
}
