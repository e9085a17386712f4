//! An open toolset and the calls of its tools, for tests.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::dispatch::Caller;
use crate::id::TaskId;
use crate::testing::{FnModel, NoDispatcher, call_with_signals, reply};
use crate::tool::{CallContext, CallSignal, DynTool, ToolError, ToolOutput};
use crate::toolset::{Toolset, ToolsetContext};

/// A model that always says the same.
pub(crate) fn fine_model() -> FnModel {
    FnModel::new(|_| reply().text("Fine."))
}

/// Returns the context of a call whose task works in `dir`, and the receiver of its progress.
pub(crate) fn call_context_in(dir: &Path) -> (CallContext, UnboundedReceiver<CallSignal>) {
    let task: TaskId = "t-7f3k2".parse().unwrap();
    let caller = Caller { task, root: task, agent: "tester".into(), depth: 0 };
    call_with_signals(caller, Arc::new(NoDispatcher), Arc::new(fine_model()), Some(dir.to_owned()))
}

/// Opens a toolset and calls one of its tools.
pub(crate) async fn call_tool(
    toolset: &dyn Toolset,
    tool: &str,
    arguments: Value,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let tools = toolset.open(&ToolsetContext::new("tester")).await.unwrap();
    let tool = tools.iter().find(|had| had.spec().name == tool).unwrap_or_else(|| panic!("no tool {tool}"));
    tool.call(&arguments.to_string(), context).await
}

/// Waits until something holds that the test cannot be notified of: what other processes do.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 20, "not within 20 s: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
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
        let toolset_context = ToolsetContext::new("tester");
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
