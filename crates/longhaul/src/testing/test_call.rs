//! Calls a tool without an engine, and answers what it asks of the engine.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::dispatch::{Caller, Dispatcher};
use crate::entry::{Question, QuestionAnswer, SamplingUsage};
use crate::id::{CallId, TaskId};
use crate::model::Model;
use crate::store::MemoryStore;
use crate::tool::{BudgetDenial, CallContext, CallSignal, RunnerChannel, ToolStorage};

/// What a tool asks of the engine during a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallRequest {
    /// It reports progress.
    Progress(String),
    /// It asks a person.
    AsksPerson {
        /// The question.
        question: Question,
        /// Takes the answer.
        reply: Responder<QuestionAnswer>,
    },
    /// It wants to ask the model.
    WantsModel {
        /// The approximate size of the request, in tokens.
        tokens: u64,
        /// Takes the decision, with the reason if it is no.
        reply: Responder<Result<(), BudgetDenial>>,
    },
    /// It has asked the model.
    Sampled {
        /// The tokens and cost.
        sampled: Box<SamplingUsage>,
        /// Takes the receipt.
        noted: Responder<()>,
    },
    /// It now only waits for other tasks.
    WaitsForTasks(Vec<TaskId>),
    /// It no longer waits.
    WorksAgain,
}

/// Answers a [`CallRequest`].
#[derive(Debug)]
pub struct Responder<T>(oneshot::Sender<T>);

impl<T> Responder<T> {
    /// Answers. Returns the answer if the tool no longer waits for it.
    pub fn send(self, answer: T) -> Result<(), T> {
        self.0.send(answer)
    }
}

/// What a tool has asked during a call, in order.
pub struct CallRequests(mpsc::UnboundedReceiver<CallSignal>);

impl CallRequests {
    /// Waits for the next request; `None` when the call is over.
    pub async fn recv(&mut self) -> Option<CallRequest> {
        self.0.recv().await.map(CallRequest::from_signal)
    }

    /// The next request, if there is one already.
    pub fn try_recv(&mut self) -> Option<CallRequest> {
        self.0.try_recv().ok().map(CallRequest::from_signal)
    }
}

impl CallRequest {
    fn from_signal(signal: CallSignal) -> CallRequest {
        match signal {
            CallSignal::Progress(text) => CallRequest::Progress(text),
            CallSignal::AsksPerson { question, reply, .. } => {
                CallRequest::AsksPerson { question: *question, reply: Responder(reply) }
            }
            CallSignal::WantsModel { tokens, reply } => {
                CallRequest::WantsModel { tokens, reply: Responder(reply) }
            }
            CallSignal::Sampled { sampled, noted } => {
                CallRequest::Sampled { sampled, noted: Responder(noted) }
            }
            CallSignal::WaitsForTasks { tasks, .. } => CallRequest::WaitsForTasks(tasks),
            CallSignal::WorksAgain { .. } => CallRequest::WorksAgain,
        }
    }
}

/// The context of a first call by `caller`, with storage in memory, and what the tool asks while it runs. Change
/// the fields of the context as the test needs.
pub fn call_context(
    caller: Caller,
    dispatcher: Arc<dyn Dispatcher>,
    model: Arc<dyn Model>,
    working_dir: Option<PathBuf>,
) -> (CallContext, CallRequests) {
    let (context, signals) = call_with_signals(caller, dispatcher, model, working_dir);
    (context, CallRequests(signals))
}

pub(crate) fn call_with_signals(
    caller: Caller,
    dispatcher: Arc<dyn Dispatcher>,
    model: Arc<dyn Model>,
    working_dir: Option<PathBuf>,
) -> (CallContext, mpsc::UnboundedReceiver<CallSignal>) {
    let (runner, signals) = RunnerChannel::new();
    let context = CallContext {
        storage: ToolStorage::new(Arc::new(MemoryStore::new()), &caller),
        caller,
        call: CallId { turn: 1, index: 0 },
        dispatcher,
        cancel: CancellationToken::new(),
        backgrounded: CancellationToken::new(),
        earlier: Vec::new(),
        working_dir,
        model,
        processes: Default::default(),
        runner,
    };
    (context, signals)
}
