//! Agents of a team and the servers that they name: one process, however many they are, and none afterwards.

use std::sync::Arc;
use std::time::Duration;

use longhaul::model::Model;
use longhaul::testing::{FnModel, reply};
use longhaul::toolset::McpServer;
use longhaul::{Agent, Longhaul, Order, Status, Team};
use serde_json::json;

use crate::mcp::servers::server;
use crate::mcp::stage::{Stage, gone, options};

/// Calls its one tool, and repeats what that says.
fn parrot() -> Arc<dyn Model> {
    Arc::new(FnModel::new(|request| match request.turn {
        0 => reply().call("everything_echo", json!({"message": request.agent.to_string()})),
        _ => reply().text(format!("{:?}", request.messages.last().unwrap())),
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_agents_that_name_one_server_share_its_process() {
    let stage = Stage::new();
    let worker = |n: usize| {
        let toolset = stage.pool.toolset(server("everything", []));
        Agent::builder(format!("w{n}").as_str()).model(parrot()).toolset(toolset).build().unwrap()
    };
    let lead = (0..50).fold(Agent::builder("lead").model(parrot()), |lead, n| lead.sub_agent(worker(n)));
    let longhaul = Longhaul::builder(Team::new(lead.build().unwrap()).unwrap()).start().await.unwrap();
    assert_eq!(stage.processes(), [0; 0], "nothing is started before it is needed");
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(longhaul.submit(Order::new(format!("w{n}").as_str(), "go")).await.unwrap());
    }
    let done = tokio::time::timeout(Duration::from_secs(200), longhaul.wait(ids).into_future())
        .await
        .unwrap()
        .unwrap();
    for (n, task) in done.tasks.iter().enumerate() {
        assert_eq!(task.state.status, Status::Completed, "{:?}", task.state.error);
        assert!(task.output.contains(&format!("Echo: w{n}")), "{}", task.output);
    }
    assert_eq!(stage.processes().len(), 1);
    longhaul.shutdown().await;
    assert_eq!(stage.processes(), [0; 0]);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_ends_and_comes_back() {
    let stage = Stage::with(options().idle_timeout(Some(Duration::from_millis(500))));
    let toolset = stage.pool.toolset(server("everything", []));
    let agent = Agent::builder("solo").model(parrot()).toolset(toolset).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(agent).unwrap()).start().await.unwrap();
    for round in 0..2 {
        let id = longhaul.submit(Order::new("solo", format!("go {round}"))).await.unwrap();
        let done = longhaul.wait([id]).await.unwrap();
        assert!(done.tasks[0].output.contains("Echo: solo"), "{}", done.tasks[0].output);
        let begun = std::time::Instant::now();
        while !stage.processes().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    longhaul.shutdown().await;
    drop(longhaul);
    let mark = stage.mark.clone();
    stage.end().await;
    // When the last handle is gone, so is the guardian.
    gone(&mark).await;
}

/// Calls until it has another tool, and then that one.
fn patient() -> Arc<dyn Model> {
    Arc::new(FnModel::try_new(|request| {
        let grown = request.tools.iter().any(|tool| tool.name == "grow");
        let (turn, last) = (request.turn, format!("{:?}", request.messages.last().unwrap()));
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, longhaul::model::ModelError>(match grown {
                _ if last.contains("as big as it gets") => reply().text(last),
                true => reply().call("grow", json!({})),
                false => reply().call("say_it", json!({"n": turn})),
            })
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_come_later_reach_an_agent_that_is_at_work() {
    let stage = Stage::new();
    crate::mcp::stage::write(stage.dir.path(), "fake.sh", include_str!("../../../src/toolset/mcp/fake.sh"));
    let fake = McpServer::command("/bin/sh", ["fake.sh", "grows"]).cwd(stage.dir.path());
    let agent = Agent::builder("solo").model(patient()).toolset(stage.pool.toolset(fake)).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(agent).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let done = tokio::time::timeout(Duration::from_secs(60), longhaul.wait([id]).into_future())
        .await
        .unwrap()
        .unwrap();
    assert!(done.tasks[0].output.contains("as big as it gets"), "{:?}", done.tasks[0]);
    longhaul.shutdown().await;
    stage.end().await;
}
