//! The [`Dispatcher`] for agents: the [`TaskService`], limited to what each caller may do.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::task_service::{ParentTask, PostResult, TaskPlan, TaskService};
use crate::dispatch::{
    Caller, DispatchError, DispatchFuture, Dispatcher, EarlierLaunch, LetterContent, SendReceipt, WaitMode,
    WaitResult, check_order, find_task, is_answered_by,
};
use crate::entry::{Letter, Order, Sender, StopCause, StopRequest};
use crate::id::{AgentName, CallId, LetterId, TaskId, TaskKey};
use crate::journal::{is_below, tasks_below};
use crate::snapshot::Snapshot;
use crate::store::{StoreError, TaskFilter};
use crate::task::{IllegalTransition, TaskState};

impl TaskService {
    /// The tasks below the caller, and below the tasks whose conversation it continues: it knows those too.
    async fn tasks_of(&self, caller: &Caller) -> Result<Vec<TaskState>, StoreError> {
        let (mut tasks, mut top) = (Vec::new(), Some(caller.task));
        while let Some(id) = top {
            let state = self.state(id).await?;
            tasks.splice(0..0, tasks_below(&*self.store, &state).await?);
            top = state.continues;
        }
        Ok(tasks)
    }

    /// Whether a task is one of the [caller's](Self::tasks_of).
    async fn is_task_of(&self, caller: &Caller, task: &TaskState) -> Result<bool, StoreError> {
        let mut top = Some(caller.task);
        while let Some(id) = top {
            if is_below(&*self.store, task, id).await? {
                return Ok(true);
            }
            top = self.state(id).await?.continues;
        }
        Ok(false)
    }

    /// The task with this id, or the only one in the store whose id starts with it.
    async fn find_in_store(&self, typed: &str) -> Result<Option<TaskState>, StoreError> {
        if let Ok(id) = typed.parse::<TaskId>()
            && let Some(state) = self.store.task_state(id).await?
        {
            return Ok(Some(state));
        }
        match self.store.find(typed).await {
            Ok(id) => self.store.task_state(id).await,
            Err(StoreError::NotFound { .. } | StoreError::Ambiguous { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn find_one(&self, caller: &Caller, typed: &str) -> Result<TaskState, DispatchError> {
        if let Some(state) = self.find_in_store(typed).await?
            && self.is_task_of(caller, &state).await?
        {
            return Ok(state);
        }
        // A prefix may be ambiguous in the store and still name one of the caller's tasks. If not, the error
        // lists them.
        find_task(&self.tasks_of(caller).await?, typed).cloned()
    }

    async fn find_each(
        &self,
        caller: &Caller,
        typed: &[String],
    ) -> Result<Vec<Result<TaskState, DispatchError>>, DispatchError> {
        let mut found = Vec::with_capacity(typed.len());
        for typed in typed {
            match self.find_one(caller, typed).await {
                Err(DispatchError::Store(error)) => return Err(error.into()),
                other => found.push(other),
            }
        }
        Ok(found)
    }

    /// The plan for a task of the caller.
    async fn plan(
        &self,
        caller: &Caller,
        call: CallId,
        mut order: Order,
    ) -> Result<Box<TaskPlan>, DispatchError> {
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
        if let Some(model) = team.unpriced_model(&order) {
            return Err(DispatchError::UnknownPrice { model });
        }
        if state.stop.is_some() {
            return Err(DispatchError::Stopping);
        }
        let (me, team) = (ParentTask::from(&state), state.team.clone());
        // Not kept while it waits: thousands may be launched at once.
        drop(state);
        let parent = self.submissions.get(&*self.store, caller.task).await?;
        order.working_dir = order.working_dir.or_else(|| parent.order.working_dir.clone());
        // A child never gets more approval than its parent, whatever its order says.
        order.approved = parent.order.approved;
        let mut above = parent.above.clone();
        if !above.contains(&caller.agent) {
            above.push(caller.agent.clone());
        }
        let (key, parent) = (TaskKey::for_child(caller.task, call), Some(me));
        Ok(Box::new(TaskPlan {
            key,
            order,
            team,
            parent,
            continues: None,
            letter: None,
            retries: None,
            above,
        }))
    }

    async fn launch(&self, caller: &Caller, call: CallId, order: Order) -> Result<TaskId, DispatchError> {
        let plan = Box::pin(self.plan(caller, call, order)).await?;
        self.submit(plan).await.map(|(id, _)| id).map_err(dispatch_error)
    }

    async fn answered_before(
        &self,
        caller: &Caller,
        earlier: &[EarlierLaunch],
        order: &Order,
    ) -> Result<Option<Snapshot>, DispatchError> {
        let Some(same) = earlier.iter().find(|earlier| earlier.same) else { return Ok(None) };
        let order = Box::pin(self.plan(caller, same.call, order.clone())).await?.order;
        // Read only when the same order was given twice; no other launch needs it.
        let tree = self.store.list(TaskFilter::tree(caller.root)).await?;
        for earlier in earlier {
            let key = TaskKey::for_child(caller.task, earlier.call);
            let ids: Vec<TaskId> = key.candidate_ids().collect();
            for state in tree.iter().filter(|task| ids.contains(&task.id)) {
                let had = self.submissions.get(&*self.store, state.id).await?;
                if had.key == key && is_answered_by(&order, earlier, &had.order, state, &tree) {
                    return Ok(Some(self.snapshot(state.id).await?));
                }
            }
        }
        Ok(None)
    }

    fn letter(&self, caller: &Caller, call: CallId, note: LetterContent) -> Result<Letter, DispatchError> {
        if note.text.trim().is_empty() {
            return Err(DispatchError::EmptyMessage);
        }
        Ok(Letter::new(
            LetterId::from(format!("{}:{call}", caller.task)),
            Sender::Task(caller.task),
            note.text,
        )
        .summary(note.summary))
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
        earlier: &'a [EarlierLaunch],
        order: &'a Order,
    ) -> DispatchFuture<'a, Option<Snapshot>> {
        Box::pin(self.answered_before(caller, earlier, order))
    }

    fn list<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>> {
        Box::pin(async move { Ok(self.tasks_of(caller).await?) })
    }

    fn find<'a>(
        &'a self,
        caller: &'a Caller,
        typed: &'a [String],
    ) -> DispatchFuture<'a, Vec<Result<TaskState, DispatchError>>> {
        Box::pin(self.find_each(caller, typed))
    }

    fn count_if_ended<'a>(&'a self, caller: &'a Caller) -> DispatchFuture<'a, Option<usize>> {
        Box::pin(async move {
            let tree = TaskFilter::tree(caller.root);
            if caller.task == caller.root && self.state(caller.task).await?.continues.is_none() {
                // The newest two: the caller itself is the oldest.
                let open = TaskFilter { limit: Some(2), ..tree.clone().live() };
                let open = self.store.ids(open).await?.into_iter().any(|id| id != caller.task);
                return Ok(if open { None } else { Some(self.store.count(tree).await?.saturating_sub(1)) });
            }
            let tasks = self.tasks_of(caller).await?;
            Ok(tasks.iter().all(|task| task.status.is_final()).then_some(tasks.len()))
        })
    }

    fn view<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, Snapshot> {
        Box::pin(async move {
            let id = self.find_one(caller, typed).await?.id;
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
            let found = self.find_each(caller, typed).await?.into_iter();
            let ids = found.map(|found| found.map(|task| task.id)).collect::<Result<Vec<_>, _>>()?;
            Ok(TaskService::wait(self, &ids, join, timeout).await?)
        })
    }

    fn stop<'a>(&'a self, caller: &'a Caller, typed: &'a str) -> DispatchFuture<'a, TaskState> {
        Box::pin(async move {
            let before = self.find_one(caller, typed).await?;
            TaskService::stop(self, before.id, &StopRequest { cause: StopCause::Agent, note: None }).await?;
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
            let to = self.find_one(caller, typed).await?.id;
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
            for task in self.tasks_of(caller).await?.into_iter().filter(|task| !task.status.is_final()) {
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
