//! What the tests are made of: a pool whose processes can be counted, and calls without an engine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul::dispatch::Caller;
use longhaul::id::TaskId;
use longhaul::process::ProcessGuardian;
use longhaul::testing::{CallRequest, CallRequests, FnModel, NoDispatcher, call_context, reply};
use longhaul::tool::{CallContext, DynTool, ToolError};
use longhaul::toolset::{Mcp, McpOptions, McpPool, SecretEnv, Toolset as _, ToolsetContext};

/// A pool, and the mark of all its processes.
pub(crate) struct Stage {
    pub(crate) pool: McpPool,
    pub(crate) mark: String,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn options() -> McpOptions {
    let path = std::env::var("PATH").unwrap();
    // Node starts slowly where many tests run at once.
    McpOptions::default().connect_timeout(Duration::from_secs(60)).env(SecretEnv::from_iter([("PATH", path)]))
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::with(options())
    }

    pub(crate) fn with(options: McpOptions) -> Stage {
        let (_, mark) = options.guardian.marker_env().unwrap();
        Stage { pool: McpPool::new(options), mark, dir: tempfile::tempdir().unwrap() }
    }

    /// The servers that run: processes with the mark, the guardian not among them.
    pub(crate) fn processes(&self) -> Vec<i32> {
        marked(&self.mark, "environ")
    }

    /// Ends it all, and no server is left.
    pub(crate) async fn end(self) {
        self.pool.close().await;
        assert_eq!(self.processes(), [0; 0], "left behind");
    }

    pub(crate) fn call(&self) -> (CallContext, CallRequests) {
        let task: TaskId = "t-7f3k2".parse().unwrap();
        let caller = Caller { task, root: task, agent: "tester".into(), depth: 0 };
        let model = Arc::new(FnModel::new(|_| reply().text("The model says hello.")));
        call_context(caller, Arc::new(NoDispatcher), model, Some(self.dir.path().to_owned()))
    }
}

/// Until nothing has the mark, the guardian included.
pub(crate) async fn gone(mark: &str) {
    let begun = Instant::now();
    loop {
        let left = [marked(mark, "environ"), marked(mark, "cmdline")].concat();
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "left behind: {left:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The processes whose environment or command line says this.
pub(crate) fn marked(mark: &str, file: &str) -> Vec<i32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let says = |pid: &i32| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(mark)
    };
    pids.filter_map(|name| name.parse().ok()).filter(says).collect()
}

pub(crate) type Tools = Vec<Arc<dyn DynTool>>;

pub(crate) async fn open(toolset: &Mcp) -> Tools {
    let context = ToolsetContext::new("tester");
    toolset.open(&context).await.unwrap()
}

pub(crate) fn find<'a>(tools: &'a Tools, name: &str) -> &'a Arc<dyn DynTool> {
    let names: Vec<_> = tools.iter().map(|tool| tool.spec().name).collect();
    let at = names.iter().position(|had| had == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
    &tools[at]
}

/// Calls a tool and gives its text.
pub(crate) async fn call(
    stage: &Stage,
    tools: &Tools,
    name: &str,
    arguments: serde_json::Value,
) -> Result<String, ToolError> {
    let (context, mut heard) = stage.call();
    let arguments = arguments.to_string();
    let calling = tokio::time::timeout(Duration::from_secs(60), find(tools, name).call(&arguments, &context));
    // No budget is used up here.
    let granting = async {
        while let Some(signal) = heard.recv().await {
            match signal {
                CallRequest::WantsModel { reply, .. } => drop(reply.send(Ok(()))),
                CallRequest::Sampled { noted, .. } => drop(noted.send(())),
                _ => {}
            }
        }
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        result = calling => result,
        () = granting => unreachable!(),
    };
    result.expect("it hangs").map(|output| output.text)
}

pub(crate) fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}

/// A watchman with a mark that can be told before anything runs.
pub(crate) fn guardian() -> (ProcessGuardian, String) {
    let guardian = ProcessGuardian::new();
    let (_, mark) = guardian.marker_env().unwrap();
    (guardian, mark)
}
