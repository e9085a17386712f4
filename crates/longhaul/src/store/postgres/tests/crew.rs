//! Real workers on a store: their agent calls a tool that must not be repeated, again and again, until it is told to end.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::dispatch::TaskLimits;
use crate::id::CallId;
use crate::model::ToolSpec;
use crate::testing::{FnModel, reply};
use crate::tool::{CallContext, CallFuture, DynTool, ToolEffects};
use crate::toolset::Tools;
use crate::{Agent, Longhaul, Team};

type Act = dyn Fn(CallContext) -> BoxFuture<'static, ()> + Send + Sync;

/// What the workers have in common.
#[derive(Clone)]
pub(super) struct Crew(Arc<CrewState>);

struct CrewState {
    done: AtomicBool,
    /// How often each call was made.
    calls: Mutex<HashMap<(TaskId, CallId), usize>>,
    /// How long the model takes.
    thinks: Duration,
    act: Box<Act>,
}

impl Crew {
    /// Workers whose model takes this long, and whose tool does this.
    pub(super) fn new<F>(thinks: Duration, act: impl Fn(CallContext) -> F + Send + Sync + 'static) -> Crew
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let act = Box::new(move |context| -> BoxFuture<'static, ()> { Box::pin(act(context)) });
        Crew(Arc::new(CrewState { done: AtomicBool::new(false), calls: Mutex::default(), thinks, act }))
    }

    /// Starts a worker with so many seats.
    pub(super) async fn start(&self, store: Arc<dyn Store>, seats: usize) -> Longhaul {
        let crew = self.clone();
        let model = FnModel::try_new(move |request| {
            // Another call each time: the same one again and again would be a loop.
            let (crew, turn) = (crew.clone(), request.turn);
            async move {
                tokio::time::sleep(crew.0.thinks).await;
                Ok(match crew.0.done.load(Ordering::SeqCst) {
                    true => reply().text("over"),
                    false => reply().call("act", json!({ "turn": turn })),
                })
            }
        });
        let tools = Tools::new().with_dyn(Arc::new(self.clone()));
        let agent = Agent::builder("worker").model(Arc::new(model)).toolset(tools).build().unwrap();
        let limits = TaskLimits::default().running(seats);
        Longhaul::builder(Team::new(agent).unwrap()).shared_store(store).limits(limits).start().await.unwrap()
    }

    /// From now on every task ends with its next reply.
    pub(super) fn end(&self) {
        self.0.done.store(true, Ordering::SeqCst);
    }

    /// How many calls were made, and which of them more than once.
    pub(super) fn calls(&self) -> (usize, Vec<(TaskId, CallId)>) {
        let calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let twice = calls.iter().filter(|(_, times)| **times > 1).map(|(call, _)| *call).collect();
        (calls.len(), twice)
    }
}

impl DynTool for Crew {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        ToolSpec { name: "act".to_owned(), description: String::new(), parameters }
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::default()
    }

    fn call<'a>(&'a self, _: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async {
            let call = (context.caller.task, context.call);
            *self.0.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_default() += 1;
            (self.0.act)(context.clone()).await;
            Ok(format!("did {}", context.call).into())
        })
    }
}

/// The journal of a task that has ended well: one end, no gap, no call that was recorded twice, nothing taken from the living.
pub(super) async fn checked_journal(store: &dyn Store, task: TaskId) -> Vec<Record> {
    let journal = store.read(task, Seq(0), usize::MAX).await.unwrap();
    assert!(journal.iter().zip(1..).all(|(record, nth)| record.seq == Seq(nth)), "{task} has gaps");
    let ends = journal.iter().filter_map(|record| match &record.entry {
        Entry::Finished(outcome) => Some(outcome),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    assert!(matches!(&ends[..], [end] if matches!(***end, Outcome::Completed { .. })), "{task}: {ends:?}");
    // An attempt that finds a call interrupted records it again.
    let (mut called, mut returned) = (HashSet::new(), HashSet::new());
    for record in &journal {
        let is_new = match &record.entry {
            Entry::Claimed { .. } => {
                called.clear();
                true
            }
            Entry::Called { call, .. } => called.insert(*call),
            Entry::Returned(result) => returned.insert(result.call),
            _ => true,
        };
        assert!(is_new, "{task}: twice: {record:?} in {journal:#?}");
    }
    journal
}
