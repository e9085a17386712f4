//! For tests of tools that need no other tasks: a call with nobody at the desk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::dispatch::{Caller, Desk, DeskError, DeskFuture, Join, Note, Sent, Waited};
use crate::entry::Order;
use crate::id::{CallId, TaskId};
use crate::snapshot::Snapshot;
use crate::task::Head;
use crate::tool::{CallContext, DynTool, Line, Scratch, Signal, ToolError, ToolOutput};
use crate::toolset::{Patron, Toolset};

/// A desk that refuses everything.
pub(crate) struct NoDesk;

fn refused<'a, T: Send + 'a>() -> DeskFuture<'a, T> {
    Box::pin(async { Err(DeskError::Stopping) })
}

impl Desk for NoDesk {
    fn submit<'a>(&'a self, _: &'a Caller, _: CallId, _: Order) -> DeskFuture<'a, TaskId> {
        refused()
    }

    fn list<'a>(&'a self, _: &'a Caller) -> DeskFuture<'a, Vec<Head>> {
        refused()
    }

    fn view<'a>(&'a self, _: &'a Caller, _: &'a str) -> DeskFuture<'a, Snapshot> {
        refused()
    }

    fn wait<'a>(
        &'a self,
        _: &'a Caller,
        _: &'a [String],
        _: Join,
        _: Option<Duration>,
    ) -> DeskFuture<'a, Waited> {
        refused()
    }

    fn stop<'a>(&'a self, _: &'a Caller, _: &'a str) -> DeskFuture<'a, Head> {
        refused()
    }

    fn send<'a>(&'a self, _: &'a Caller, _: CallId, _: &'a str, _: Note) -> DeskFuture<'a, Sent> {
        refused()
    }

    fn broadcast<'a>(&'a self, _: &'a Caller, _: CallId, _: Note) -> DeskFuture<'a, Vec<TaskId>> {
        refused()
    }
}

/// A call of a task that works in `dir`, and the end where its progress is heard.
pub(crate) fn call_in(dir: &Path) -> (CallContext, UnboundedReceiver<Signal>) {
    let task: TaskId = "t-7f3k2".parse().unwrap();
    let (line, heard) = Line::new();
    let caller = Caller { task, root: task, agent: "tester".into(), depth: 0 };
    let context = CallContext {
        scratch: Scratch::new(Arc::new(crate::store::Memory::new()), &caller),
        caller,
        call: CallId { turn: 1, index: 0 },
        desk: Arc::new(NoDesk),
        cancel: CancellationToken::new(),
        hurry: CancellationToken::new(),
        working_dir: Some(dir.to_owned()),
        model: Arc::new(crate::testing::FnModel::new(|_| crate::testing::reply().text("Fine."))),
        processes: Default::default(),
        line,
    };
    (context, heard)
}

/// An agent that nobody else works with, and the tools of a toolset.
pub(crate) struct Alone {
    pub(crate) context: CallContext,
    pub(crate) heard: UnboundedReceiver<Signal>,
    pub(crate) tools: Vec<Arc<dyn DynTool>>,
}

impl Alone {
    /// Nowhere in particular.
    pub(crate) async fn with(toolset: &dyn Toolset) -> Alone {
        Alone::in_dir(toolset, Path::new("/nowhere")).await
    }

    /// In a working directory.
    pub(crate) async fn in_dir(toolset: &dyn Toolset, dir: &Path) -> Alone {
        let patron = Patron { agent: "tester".into(), sub_agents: vec![], handoffs: vec![] };
        let (context, heard) = call_in(dir);
        Alone { context, heard, tools: toolset.open(&patron).await.unwrap() }
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn DynTool> {
        let tool = self.tools.iter().find(|tool| tool.spec().name == name);
        tool.unwrap_or_else(|| panic!("no tool {name}")).clone()
    }

    /// Makes the next call of the conversation.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.context.call.turn += 1;
        self.again(tool, arguments).await
    }

    /// Makes the last call again, as after a crash.
    pub(crate) async fn again(&mut self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.tool(tool).call(&arguments.to_string(), &self.context).await
    }

    /// What a call says that does not fail.
    pub(crate) async fn says(&mut self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await.unwrap();
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    /// What a call says that fails.
    pub(crate) async fn error(&mut self, tool: &str, arguments: Value) -> String {
        match self.call(tool, arguments).await {
            Ok(output) if output.is_error => output.text,
            Ok(output) => panic!("that should not work: {}", output.text),
            Err(error) => error.to_string(),
        }
    }
}
