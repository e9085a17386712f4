//! How many processes tool calls run at once.

use std::time::{Duration, Instant};

use longhaul::agent::AgentBuilder;
use longhaul::dispatch::TaskLimits;
use longhaul::entry::{Entry, LiveTextKind};
use longhaul::testing::reply;
use longhaul::toolset::{Filesystem, PostEdit, Shell};
use longhaul::{Longhaul, Order, Status, SubAgentDialect};
use serde_json::json;

use crate::engine::stage::*;

async fn start_with(processes: usize, lead: AgentBuilder) -> Longhaul {
    let limits = TaskLimits::default().processes(processes);
    Longhaul::builder(team(lead)).limits(limits).start().await.unwrap()
}

#[test]
fn there_are_some_by_default() {
    assert!(TaskLimits::default().processes >= 8);
}

#[tokio::test]
async fn many_calls_of_one_reply_do_not_start_as_many_commands() {
    let dir = tempfile::tempdir().unwrap();
    let cmd = "mkdir at.$$; ls -d at.* | wc -l >> counts; sleep 0.02; rmdir at.$$";
    let model = model(move |asked| match asked.turn {
        0 => (0..400).fold(reply(), |reply, n| reply.call("shell", json!({ "cmd": format!("{cmd} # {n}") }))),
        _ => reply().text("done"),
    });
    let longhaul = start_with(5, agent("lead", &model).toolset(Shell::new())).await;
    let id = longhaul.submit(Order::new("lead", "go").working_dir(dir.path())).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Completed);
    let counts = std::fs::read_to_string(dir.path().join("counts")).unwrap();
    let counts: Vec<usize> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 400, "all were run");
    let most = counts.iter().max().copied().unwrap();
    assert!((2..=5).contains(&most), "{most} at once");
    longhaul.shutdown().await;
}

#[tokio::test]
async fn a_call_that_waits_says_so_and_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(move |asked| match asked.turn {
        // Which of the two comes first is left open.
        0 => (0..2).fold(reply(), |reply, n| {
            reply.call("shell", json!({ "cmd": format!("echo {n} >> ran; sleep 100") }))
        }),
        _ => reply().text("done"),
    });
    let longhaul = start_with(1, agent("lead", &model).toolset(Shell::new())).await;
    let id = longhaul.submit(Order::new("lead", "go").working_dir(dir.path())).await.unwrap();
    let begun = Instant::now();
    loop {
        let says = |entry: &Entry| matches!(entry, Entry::Said { voice: LiveTextKind::Progress, text } if text.contains("waiting to start a process: 1 are running"));
        if journal(&longhaul, id).await.iter().any(|record| says(&record.entry)) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody says that it waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    longhaul.stop(id).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(5));
    let ran = std::fs::read_to_string(dir.path().join("ran")).unwrap_or_default();
    assert!(ran.lines().count() <= 1, "what waited was run: {ran}");
    longhaul.shutdown().await;
}

#[tokio::test]
async fn calls_that_concern_tasks_need_no_slot_and_nobody_holds_one_while_it_waits_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        // The one slot is taken while the task is launched, which lets it free.
        ("lead", 0) => reply()
            .call("shell", json!({ "cmd": "until [ -e launched ]; do sleep 0.01; done" }))
            .call("run_background_agent", json!({ "agent": "worker", "task": "launch" }))
            .call("transfer_task", json!({ "agent": "worker", "task": "wait" })),
        ("worker", 0) if asked.order.contains("launch") => {
            reply().call("write_file", json!({ "path": "launched", "content": "" }))
        }
        // Two levels deep, both with commands of their own.
        ("worker", 0) => reply().call("write_file", json!({ "path": "edited.txt", "content": "" })),
        _ => reply().text("done"),
    });
    let touched = PostEdit { path: "edited.txt".to_owned(), cmd: "touch touched".to_owned() };
    let files = Filesystem::builder().post_edit(touched).build();
    let worker = agent("worker", &model).toolset(files).build().unwrap();
    let lead =
        agent("lead", &model).toolset(Shell::new()).sub_agent(worker).dialect(SubAgentDialect::Background);
    let longhaul = start_with(1, lead).await;
    let id = longhaul.submit(Order::new("lead", "go").working_dir(dir.path())).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Completed);
    assert!(dir.path().join("touched").exists());
    longhaul.shutdown().await;
}
