//! The same requests by sub-agents of Longhaul: launched by an orchestrator, journaled, their ends told by letter.

use std::error::Error;
use std::sync::Arc;

use longhaul::dispatch::TaskLimits;
use longhaul::model::Model;
use longhaul::model::http::{HttpClient, HttpOptions, ModelSpec};
use longhaul::store::{Store, TaskFilter};
use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Longhaul, Order, Policy, Status, SubAgentDialect, TaskId, Team};

use super::{AT_ONCE, CALLS, SYSTEM, order};
use crate::throughput::LookTool;

/// Agents that the orchestrator sends out with one reply.
const LAUNCHES_PER_REPLY: usize = 50;

/// Runs an orchestrator with so many sub-agents to its end, and answers with the orchestrator's task.
pub(crate) async fn run(
    url: &str,
    agents: usize,
    seats: usize,
    store: Arc<dyn Store>,
) -> Result<TaskId, Box<dyn Error>> {
    let http = HttpClient::new(HttpOptions::default().max_concurrent(AT_ONCE))?;
    let spec = ModelSpec { base_url: Some(url.to_owned()), ..ModelSpec::parse("openai/bench-1")? };
    let model = http.model(&spec, &|_: &str| Some("none".to_owned().into()))?;
    let worker = Agent::builder("worker").model(model).instruction(SYSTEM).tool(LookTool).build()?;
    let lead: Arc<dyn Model> = Arc::new(FnModel::new(move |request| {
        let sent_out = request.turn as usize * LAUNCHES_PER_REPLY;
        if sent_out >= agents {
            return reply().text("All that was found has been read.");
        }
        (sent_out..agents.min(sent_out + LAUNCHES_PER_REPLY)).fold(reply(), |reply, n| {
            reply.call("run_background_agent", serde_json::json!({"agent": "worker", "task": order(n)}))
        })
    }));
    let habits = Policy::default().max_turns(u32::MAX);
    let lead = Agent::builder("lead")
        .model(lead)
        .dialect(SubAgentDialect::Background)
        .sub_agent(worker)
        .policy(habits)
        .build()?;
    let limits = TaskLimits::default().running(seats).queue(None).tree(None);
    let longhaul = Longhaul::builder(Team::new(lead)?).shared_store(store).limits(limits).start().await?;
    let root = longhaul.submit(Order::new("lead", "Send out everybody.")).await?;
    longhaul.wait([root]).await?;
    longhaul.shutdown().await;
    Ok(root)
}

/// How many replies the sub-agents got. Each must have ended well, and as it was meant to.
pub(crate) async fn replies(store: &dyn Store, root: TaskId) -> Result<usize, Box<dyn Error>> {
    let done = store.list(TaskFilter::children(root)).await?;
    let whole = |task: &&longhaul::task::TaskState| {
        task.status == Status::Completed && task.calls as usize == CALLS && task.turns as usize == CALLS + 1
    };
    if let Some(wrong) = done.iter().find(|task| !whole(task)) {
        return Err(format!("task {} ended wrongly: {wrong:?}", wrong.id).into());
    }
    Ok(done.iter().map(|task| task.turns as usize).sum())
}
