//! An in-memory dispatcher for the tests of the sub-agent toolsets. The test decides what its tasks do, and
//! when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::tool_fixture::fine_model;
use super::{Toolset, ToolsetContext};
use crate::dispatch::{
    AgentInfo, Caller, DispatchError, DispatchFuture, Dispatcher, LetterContent, SendReceipt, TaskLimits,
    WaitMode, WaitResult, check_order, find_task,
};
use crate::entry::{
    Entry, Failure, FailureKind, Letter, LiveTextKind, Order, Outcome, Record, Sender, StopCause,
    StopRequest, Submission, TeamRef,
};
use crate::id::{AgentName, Attempt, CallId, LetterId, Seq, TaskId, TaskKey, WorkerId};
use crate::message::{Reply, Usage};
use crate::snapshot::Snapshot;
use crate::task::TaskState;
use crate::testing::call_with_signals;
use crate::tool::{CallContext, CallSignal, DynTool, ToolError, ToolOutput};

pub(super) fn completed(output: &str) -> Outcome {
    Outcome::Completed { output: output.into(), cut_short: None }
}

pub(super) fn failed(partial: &str) -> Outcome {
    Outcome::Failed { failure: Failure::new(FailureKind::Timeout, "10 minutes"), partial: partial.into() }
}

/// The arguments of a call to `wait`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedWait {
    pub(super) tasks: Vec<String>,
    pub(super) join: WaitMode,
    pub(super) timeout: Option<Duration>,
}

#[derive(Default)]
struct FakeDispatcherState {
    tasks: Vec<(TaskId, Vec<Record>)>,
    clock: i64,
    waits: Vec<RecordedWait>,
    answers: HashMap<String, Outcome>,
}

impl FakeDispatcherState {
    fn append(&mut self, id: TaskId, entry: Entry) {
        let at = Timestamp::from_second(self.clock).unwrap();
        let (_, journal) = self.tasks.iter_mut().find(|(task, _)| *task == id).unwrap();
        let seq = Seq(journal.len() as u64 + 1);
        journal.push(Record { seq, at, entry });
        TaskState::from_journal(id, journal).unwrap();
    }

    fn claim(&mut self, id: TaskId) {
        if self.snapshot(id).state.status == crate::task::Status::Pending {
            self.append(id, Entry::Claimed { attempt: Attempt(1), worker: WorkerId::from("w") });
        }
    }

    fn snapshot(&self, id: TaskId) -> Snapshot {
        let (_, journal) = self.tasks.iter().find(|(task, _)| *task == id).unwrap();
        Snapshot::from_journal(id, journal).unwrap().unwrap()
    }

    fn states(&self) -> Vec<TaskState> {
        self.tasks.iter().map(|(id, _)| self.snapshot(*id).state).collect()
    }

    fn add(&mut self, key: TaskKey, caller: &Caller, order: Order, continues: Option<TaskId>) -> TaskId {
        let id = key.candidate_ids().next().unwrap();
        if self.tasks.iter().all(|(task, _)| *task != id) {
            self.tasks.push((id, Vec::new()));
            let team = TeamRef::Named("team".into());
            let submitted = Submission {
                parent: Some(caller.task),
                depth: caller.depth + 1,
                continues,
                ..Submission::root(caller.root, key, order, team)
            };
            self.append(id, Entry::Submitted(Box::new(submitted)));
        }
        id
    }
}

#[derive(Default)]
pub(super) struct FakeDispatcher(Mutex<FakeDispatcherState>);

impl FakeDispatcher {
    pub(super) fn advance_clock(&self, seconds: i64) {
        self.0.lock().unwrap().clock += seconds;
    }

    /// Lets a worker claim the task, and appends this entry to it.
    pub(super) fn append(&self, id: TaskId, entry: Entry) {
        let mut inner = self.0.lock().unwrap();
        inner.claim(id);
        inner.append(id, entry);
    }

    pub(super) fn append_text(&self, id: TaskId, text: &str) {
        self.append(id, Entry::Said { voice: LiveTextKind::Text, text: text.to_owned() });
    }

    pub(super) fn append_reply(&self, id: TaskId, text: &str, tokens: u64) {
        let usage = Usage { input: tokens, ..Usage::default() };
        self.append(id, Entry::Replied(Arc::new(Reply { usage, ..Reply::text_only(text) })));
    }

    pub(super) fn finish(&self, id: TaskId, outcome: Outcome) {
        self.append(id, Entry::Finished(Box::new(outcome)));
    }

    /// Sets how tasks of this agent end when someone waits for them.
    pub(super) fn finish_when_waited_for(&self, agent: &str, outcome: Outcome) {
        self.0.lock().unwrap().answers.insert(agent.to_owned(), outcome);
    }

    pub(super) fn snapshot(&self, id: TaskId) -> Snapshot {
        self.0.lock().unwrap().snapshot(id)
    }

    pub(super) fn waits(&self) -> Vec<RecordedWait> {
        self.0.lock().unwrap().waits.clone()
    }
}

const MAY: [&str; 2] = ["researcher", "writer"];

impl Dispatcher for FakeDispatcher {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.lock().unwrap().clock).unwrap()
    }

    fn submit<'a>(&'a self, caller: &'a Caller, call: CallId, order: Order) -> DispatchFuture<'a, TaskId> {
        Box::pin(async move {
            check_order(caller, &MAY.map(AgentName::from), &order, &TaskLimits::default())?;
            Ok(self.0.lock().unwrap().add(TaskKey::for_child(caller.task, call), caller, order, None))
        })
    }

    fn list<'a>(&'a self, _: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>> {
        Box::pin(async { Ok(self.0.lock().unwrap().states()) })
    }

    fn view<'a>(&'a self, _: &'a Caller, typed: &'a str) -> DispatchFuture<'a, Snapshot> {
        Box::pin(async move {
            let inner = self.0.lock().unwrap();
            Ok(inner.snapshot(find_task(&inner.states(), typed)?.id))
        })
    }

    fn wait<'a>(
        &'a self,
        _: &'a Caller,
        typed: &'a [String],
        join: WaitMode,
        timeout: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult> {
        let waited = || -> Result<Option<WaitResult>, DispatchError> {
            let mut inner = self.0.lock().unwrap();
            inner.waits.push(RecordedWait { tasks: typed.to_vec(), join, timeout });
            let mut tasks = Vec::new();
            for typed in typed {
                let id = find_task(&inner.states(), typed)?.id;
                let state = inner.snapshot(id).state;
                let answer = inner.answers.get(state.agent.as_str()).cloned();
                if let Some(outcome) = answer.filter(|_| !state.status.is_final()) {
                    inner.claim(id);
                    inner.append(id, Entry::Finished(Box::new(outcome)));
                }
                tasks.push(inner.snapshot(id));
            }
            let ended = |task: &Snapshot| task.state.status.is_final();
            let over = if join == WaitMode::All { tasks.iter().all(ended) } else { tasks.iter().any(ended) };
            Ok((over || timeout.is_some()).then_some(WaitResult { tasks, timed_out: !over }))
        };
        let waited = waited();
        Box::pin(async {
            match waited? {
                Some(waited) => Ok(waited),
                None => std::future::pending().await,
            }
        })
    }

    fn stop<'a>(&'a self, _: &'a Caller, typed: &'a str) -> DispatchFuture<'a, TaskState> {
        Box::pin(async move {
            let mut inner = self.0.lock().unwrap();
            let id = find_task(&inner.states(), typed)?.id;
            let before = inner.snapshot(id).state;
            inner.append(id, Entry::StopRequested(StopRequest { cause: StopCause::Agent, note: None }));
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
            if note.text.trim().is_empty() {
                return Err(DispatchError::EmptyMessage);
            }
            let mut inner = self.0.lock().unwrap();
            let id = find_task(&inner.states(), typed)?.id;
            let snapshot = inner.snapshot(id);
            let continued = snapshot.state.status.is_final();
            let to = if continued {
                inner.add(TaskKey::for_continuation(id), caller, snapshot.order, Some(id))
            } else {
                id
            };
            let letter = Letter::new(LetterId::from(call.to_string()), Sender::Task(caller.task), note.text)
                .summary(note.summary);
            inner.append(to, Entry::Letter(Box::new(letter)));
            Ok(SendReceipt { to, continued })
        })
    }

    fn broadcast<'a>(
        &'a self,
        caller: &'a Caller,
        call: CallId,
        note: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let states = self.0.lock().unwrap().states();
            let ids: Vec<_> = states.iter().filter(|h| !h.status.is_final()).map(|h| h.id).collect();
            for id in &ids {
                self.send(caller, call, &id.to_string(), note.clone()).await?;
            }
            Ok(ids)
        })
    }
}

pub(super) fn test_context() -> ToolsetContext {
    let info =
        |name: &str, description: &str| AgentInfo { name: name.into(), description: description.to_owned() };
    ToolsetContext {
        agent: "lead".into(),
        sub_agents: vec![info("researcher", "Finds things out."), info("writer", "")],
        handoffs: vec![info("support", "Talks to customers.")],
    }
}

/// An agent with an open toolset and a fake dispatcher.
pub(super) struct DispatcherFixture {
    pub(super) dispatcher: Arc<FakeDispatcher>,
    pub(super) context: CallContext,
    pub(super) signals: UnboundedReceiver<CallSignal>,
    pub(super) tools: Vec<Arc<dyn DynTool>>,
}

impl DispatcherFixture {
    pub(super) async fn new(
        toolset: Arc<dyn Toolset>,
        toolset_context: &ToolsetContext,
    ) -> DispatcherFixture {
        let dispatcher = Arc::new(FakeDispatcher::default());
        let task = TaskKey::named("the caller").candidate_ids().next().unwrap();
        let caller = Caller { task, root: task, agent: "lead".into(), depth: 0 };
        let (context, signals) =
            call_with_signals(caller, dispatcher.clone(), Arc::new(fine_model()), Some("/home/lead".into()));
        let tools = toolset.open(toolset_context).await.unwrap();
        DispatcherFixture { dispatcher, context, signals, tools }
    }

    /// Calls a tool as the next call of the conversation.
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.context.call.index += 1;
        self.repeat_call(tool, arguments).await
    }

    /// Repeats the last call, as after a crash.
    pub(super) async fn repeat_call(
        &mut self,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, ToolError> {
        let tool = self.tools.iter().find(|t| t.spec().name == tool).unwrap().clone();
        tool.call(&arguments.to_string(), &self.context).await
    }

    pub(super) async fn call_error(&mut self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.unwrap_err().to_string()
    }

    /// Returns the task that was launched last.
    pub(super) async fn launch(&mut self, agent: &str, task: &str) -> TaskId {
        self.context.call.index += 1;
        let (caller, call) = (&self.context.caller, self.context.call);
        self.dispatcher.submit(caller, call, Order::new(agent, task)).await.unwrap()
    }

    /// Returns for which tasks the caller has given its seat back since this was last called.
    pub(super) fn gave_seat_back(&mut self) -> Option<Vec<TaskId>> {
        let call = self.context.call;
        match self.signals.try_recv() {
            Ok(CallSignal::WaitsForTasks { call: which, tasks }) if which == call => {
                assert!(
                    matches!(self.signals.try_recv(), Ok(CallSignal::WorksAgain { call: which }) if which == call)
                );
                Some(tasks)
            }
            _ => None,
        }
    }
}
