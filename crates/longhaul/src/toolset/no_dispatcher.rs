//! A call context without a dispatcher, for tests of tools that need no other tasks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::dispatch::{
    Caller, DispatchError, DispatchFuture, Dispatcher, LetterContent, SendReceipt, WaitMode, WaitResult,
};
use crate::entry::Order;
use crate::id::{CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::task::TaskState;
use crate::tool::{CallContext, CallSignal, DynTool, RunnerChannel, ToolError, ToolOutput, ToolStorage};
use crate::toolset::{Toolset, ToolsetContext};

/// A dispatcher that refuses everything.
pub(crate) struct NoDispatcher;

fn refused<'a, T: Send + 'a>() -> DispatchFuture<'a, T> {
    Box::pin(async { Err(DispatchError::Stopping) })
}

impl Dispatcher for NoDispatcher {
    fn submit<'a>(&'a self, _: &'a Caller, _: CallId, _: Order) -> DispatchFuture<'a, TaskId> {
        refused()
    }

    fn list<'a>(&'a self, _: &'a Caller) -> DispatchFuture<'a, Vec<TaskState>> {
        refused()
    }

    fn view<'a>(&'a self, _: &'a Caller, _: &'a str) -> DispatchFuture<'a, Snapshot> {
        refused()
    }

    fn wait<'a>(
        &'a self,
        _: &'a Caller,
        _: &'a [String],
        _: WaitMode,
        _: Option<Duration>,
    ) -> DispatchFuture<'a, WaitResult> {
        refused()
    }

    fn stop<'a>(&'a self, _: &'a Caller, _: &'a str) -> DispatchFuture<'a, TaskState> {
        refused()
    }

    fn send<'a>(
        &'a self,
        _: &'a Caller,
        _: CallId,
        _: &'a str,
        _: LetterContent,
    ) -> DispatchFuture<'a, SendReceipt> {
        refused()
    }

    fn broadcast<'a>(
        &'a self,
        _: &'a Caller,
        _: CallId,
        _: LetterContent,
    ) -> DispatchFuture<'a, Vec<TaskId>> {
        refused()
    }
}

/// Returns the context of a call whose task works in `dir`, and the receiver of its progress.
pub(crate) fn call_context_in(dir: &Path) -> (CallContext, UnboundedReceiver<CallSignal>) {
    let task: TaskId = "t-7f3k2".parse().unwrap();
    let (line, signals) = RunnerChannel::new();
    let caller = Caller { task, root: task, agent: "tester".into(), depth: 0 };
    let context = CallContext {
        storage: ToolStorage::new(Arc::new(crate::store::MemoryStore::new()), &caller),
        caller,
        call: CallId { turn: 1, index: 0 },
        dispatcher: Arc::new(NoDispatcher),
        cancel: CancellationToken::new(),
        backgrounded: CancellationToken::new(),
        earlier: Vec::new(),
        working_dir: Some(dir.to_owned()),
        model: Arc::new(crate::testing::FnModel::new(|_| crate::testing::reply().text("Fine."))),
        processes: Default::default(),
        runner: line,
    };
    (context, signals)
}

/// An agent without other agents, and the tools of a toolset.
pub(crate) struct ToolFixture {
    pub(crate) context: CallContext,
    pub(crate) signals: UnboundedReceiver<CallSignal>,
    pub(crate) tools: Vec<Arc<dyn DynTool>>,
}

impl ToolFixture {
    /// Opens the toolset without a working directory.
    pub(crate) async fn new(toolset: &dyn Toolset) -> ToolFixture {
        ToolFixture::in_dir(toolset, Path::new("/nowhere")).await
    }

    /// Opens the toolset in a working directory.
    pub(crate) async fn in_dir(toolset: &dyn Toolset, dir: &Path) -> ToolFixture {
        let toolset_context = ToolsetContext { agent: "tester".into(), sub_agents: vec![], handoffs: vec![] };
        let (context, signals) = call_context_in(dir);
        ToolFixture { context, signals, tools: toolset.open(&toolset_context).await.unwrap() }
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn DynTool> {
        let tool = self.tools.iter().find(|tool| tool.spec().name == name);
        tool.unwrap_or_else(|| panic!("no tool {name}")).clone()
    }

    /// Makes the next call of the conversation.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.context.call.turn += 1;
        self.repeat_call(tool, arguments).await
    }

    /// Repeats the last call, as after a crash.
    pub(crate) async fn repeat_call(
        &mut self,
        tool: &str,
        arguments: Value,
    ) -> Result<ToolOutput, ToolError> {
        self.tool(tool).call(&arguments.to_string(), &self.context).await
    }

    /// Makes a call that must succeed; returns its text.
    pub(crate) async fn call_text(&mut self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await.unwrap();
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    /// Makes a call that must fail; returns its text.
    pub(crate) async fn call_error(&mut self, tool: &str, arguments: Value) -> String {
        match self.call(tool, arguments).await {
            Ok(output) if output.is_error => output.text,
            Ok(output) => panic!("that should not work: {}", output.text),
            Err(error) => error.to_string(),
        }
    }
}
