use std::sync::Arc;

use longhaul::model::Model;
use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Longhaul, Order, Status, SubAgentDialect, Team};
use serde_json::json;

#[tokio::test]
async fn a_lead_launches_two_and_is_told_by_letter() {
    let model: Arc<dyn Model> = Arc::new(FnModel::new(|r| match (r.agent.as_str(), r.turn) {
        ("lead", 0) => reply()
            .call("run_background_agent", json!({"agent": "worker", "task": "one"}))
            .call("run_background_agent", json!({"agent": "worker", "task": "two"})),
        ("lead", _) => reply().text(format!("{:?}", r.messages.last())),
        _ => reply().text("done"),
    }));
    let worker = Agent::builder("worker").model(model.clone()).build().unwrap();
    let lead = Agent::builder("lead")
        .model(model)
        .sub_agent(worker)
        .dialect(SubAgentDialect::Background)
        .build()
        .unwrap();
    let longhaul = Longhaul::builder(Team::new(lead).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    let done = longhaul.wait([id]).await.unwrap();
    assert_eq!(done.tasks[0].state.status, Status::Completed, "{:?}", done.tasks[0].state.error);
    println!("{}", done.tasks[0].output);
    for e in &done.tasks[0].events {
        println!("{e:?}");
    }
    longhaul.shutdown().await;
}
