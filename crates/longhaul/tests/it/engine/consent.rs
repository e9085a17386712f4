//! *Always* is for the tool that was asked about: the same name in the hands of another agent may be another tool.

use longhaul::agent::AgentBuilder;
use longhaul::permission::Permissions;
use longhaul::testing::reply;
use longhaul::toolset::{Filesystem, Sandbox, ScriptTool, ScriptTools, Shell, Toolset};
use longhaul::{Longhaul, Order, Status, SubAgentDialect, TaskId};
use serde_json::{Value, json};

use crate::engine::stage::*;

/// A lead and a worker that each call one tool once: the lead's is allowed for good, then it sends the worker. Answers
/// with what the worker asks, if it does.
async fn worker_asks(
    lead: impl Toolset,
    worker: impl Toolset,
    tool: &'static str,
    args: Value,
) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let model = model(move |asked| match (asked.agent.as_str(), asked.turn) {
        (_, 0) => reply().call(tool, args.clone()),
        ("lead", 1) => launch(reply(), "go on"),
        ("lead", 2) => wait_for(&asked.id()),
        _ => reply().text("done"),
    });
    let ask = |agent: AgentBuilder| agent.permissions(Permissions::default());
    let worker = ask(agent("worker", &model)).toolset(worker).build().unwrap();
    let lead =
        ask(agent("lead", &model)).toolset(lead).sub_agent(worker).dialect(SubAgentDialect::Background);
    let longhaul = start(lead).await;
    let id = longhaul.submit(Order::new("lead", "go").working_dir(dir.path())).await.unwrap();
    until(&longhaul, id, |state| !state.asked.is_empty()).await;
    longhaul.answer(id, None, "always tool").await.unwrap();
    let asked = child_asks(&longhaul, id).await;
    if let Some((child, _)) = &asked {
        longhaul.answer(*child, None, "no").await.unwrap();
    }
    assert_done(&end(&longhaul, id).await);
    longhaul.shutdown().await;
    asked.map(|(_, text)| text)
}

async fn child_asks(longhaul: &Longhaul, id: TaskId) -> Option<(TaskId, String)> {
    loop {
        if let [child, ..] = &children(longhaul, id).await[..] {
            until(longhaul, child.id, |state| !state.asked.is_empty() || state.status.is_final()).await;
            let snapshot = longhaul.snapshot(child.id).await.unwrap();
            return snapshot.questions.first().map(|(_, question)| (child.id, question.text.clone()));
        }
        let status = longhaul.snapshot(id).await.unwrap().state.status;
        assert_ne!(status, Status::Completed, "it launched nobody");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn always_for_a_sandboxed_shell_is_none_for_one_without_a_sandbox() {
    let args = json!({"cmd": "true"});
    let confined = || Shell::builder().sandbox(Sandbox::new()).build();
    let asked = worker_asks(confined(), Shell::new(), "shell", args.clone()).await;
    let asked = asked.expect("the worker's shell ran unasked");
    assert!(asked.contains("in a sandbox") && asked.contains("without a sandbox"), "{asked}");
    let network = Shell::builder().sandbox(Sandbox::new().network(true)).build();
    assert!(worker_asks(confined(), network, "shell", args.clone()).await.is_some());
    assert_eq!(worker_asks(confined(), confined(), "shell", args.clone()).await, None);
    assert_eq!(worker_asks(Shell::new(), Shell::new(), "shell", args).await, None);
}

#[tokio::test]
async fn always_for_a_script_is_none_for_another_command_of_that_name() {
    let script = |cmd: &str| {
        let tool = ScriptTool {
            cmd: cmd.to_owned(),
            description: Some("Deploys.".to_owned()),
            ..ScriptTool::default()
        };
        ScriptTools::builder().tool("deploy", tool).build().unwrap()
    };
    assert!(worker_asks(script("true"), script("true; true"), "deploy", json!({})).await.is_some());
    assert_eq!(worker_asks(script("true"), script("true"), "deploy", json!({})).await, None);
}

#[tokio::test]
async fn always_for_files_is_none_where_more_can_be_reached() {
    let args = json!({"path": "a.txt", "content": "a"});
    let wider = Filesystem::builder().allow_path("/").build();
    let asked = worker_asks(Filesystem::new(), wider, "write_file", args.clone()).await;
    assert!(asked.is_some_and(|asked| asked.contains("below /")));
    assert_eq!(worker_asks(Filesystem::new(), Filesystem::new(), "write_file", args).await, None);
}
