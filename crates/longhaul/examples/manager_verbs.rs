//! For those who come from a manager of sub-agents in memory: each of its verbs, and where it lives here.
//!
//! Some have no place because nothing is left to do: the engine takes and gives back slots (`AcquireSemaphore`,
//! `ReleaseSemaphore`), a task is bound to no context (`RootContext`, `SetCancel`), and its end, its counters and its
//! events are entries of its journal (`Complete`, `IncrementToolCalls`, `RecordEvent`, `Notify`).
//!
//!     cargo run -p longhaul --example manager_verbs

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::dispatch::TaskLimits;
use longhaul::id::Seq;
use longhaul::store::TaskFilter;
use longhaul::testing::{FnModel, reply};
use longhaul::tool::{CallContext, Tool, ToolError, ToolOutput};
use longhaul::toolset::ReadOnlyFiles;
use longhaul::{Agent, EventKind, Longhaul, Order, Status, Team};
use tokio::sync::Semaphore;

struct Dig(Arc<Semaphore>);

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Nothing {}

impl Tool for Dig {
    type Args = Nothing;

    fn name(&self) -> &str {
        "dig"
    }

    fn description(&self) -> String {
        "Digs 300 holes, and waits to be let go.".to_owned()
    }

    async fn call(&self, _: Nothing, context: &CallContext) -> Result<ToolOutput, ToolError> {
        for hole in 1..=300 {
            context.progress(format!("hole {hole}")); // UpdateProgress
            tokio::task::yield_now().await;
        }
        tokio::select! {
            Ok(go) = self.0.acquire() => go.forget(),
            () = context.cancel.cancelled() => return Err(ToolError::Failed("stopped".to_owned())),
        }
        Ok(format!("300 holes in {:?}", context.working_dir).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let gate = Arc::new(Semaphore::new(0));
    let model = |name| {
        Arc::new(FnModel::new(move |r| match r.turn {
            0 => reply().text(format!("Tools: {}.", r.tools.len())).call("dig", serde_json::json!({})),
            _ => reply().text(format!("Done by {name}, told {:?}.", r.messages.last())),
        }))
    };
    let agent =
        |name: &str| Agent::builder(name).model(model("slow")).tool(Dig(gate.clone())).toolset(ReadOnlyFiles);
    let (explorer, planner) = (agent("explorer").build()?, agent("planner").build()?);
    let lead = agent("lead").sub_agent(explorer).sub_agent(planner).build()?;

    // NewManager, the semaphore's size: at most two tasks run at once, the others are queued and can be seen.
    let team = Team::new(lead)?.with_model("fast", model("fast"));
    let longhaul = Longhaul::builder(team).limits(TaskLimits::default().running(2)).start().await?;
    assert_eq!(longhaul.limits().running, 2);

    // Spawn, with name, agent type, tool subset, model override, working directory, timeout and turn limit.
    let order = Order::new("explorer", "Dig.").title("digging").tools(["dig"]).model("fast");
    let order = order.working_dir("/field").timeout(Duration::from_secs(60)).max_turns(5);
    let id = longhaul.submit(order).await?;

    // SetOnUpdate, SetOnComplete, ShowOutput: the stream of events, one task or (`follow`) a whole tree.
    let mut updates = longhaul.events(id, Seq(0));
    let last = EventKind::Progress { text: "hole 300".to_owned() };
    while updates.next().await.ok_or("it goes on")??.kind != last {}
    // Get and Snapshot: activity, progress, counters, the last events and how many came before those.
    let now = longhaul.snapshot(longhaul.find(&id.to_string()[..5]).await?).await?;
    assert_eq!((now.state.status, now.state.headline.as_str()), (Status::Running, "digging"));
    let state = &now.state;
    assert_eq!((&*state.calling[0].1, state.progress.as_deref(), state.calls), ("dig", Some("hole 300"), 1));
    // Of 300 words of progress only the last of each moment is an event; a snapshot has the last 200 events.
    assert!(now.events.len() < 200 && now.dropped == 0, "{} events", now.events.len());
    println!("{id} at work for {:?}, {} events dropped", state.elapsed(state.active), now.dropped);

    // GetTaskOutput, also before the end. Wait with a deadline (WaitForSnapshot), which harms nothing.
    assert_eq!(longhaul.output(id).await?, "Tools: 1.");
    let waited = longhaul.wait([id]).timeout(Duration::from_millis(5)).await?;
    assert!(waited.timed_out && waited.tasks[0].state.status == Status::Running);

    // List and RunningCount. The third task waits for its turn.
    let second = longhaul.submit(Order::new("planner", "Plan.")).await?;
    let third = longhaul.submit(Order::new("planner", "Plan again.")).await?;
    let mut started = longhaul.events(second, Seq(0));
    while !matches!(started.next().await.ok_or("it started")??.kind, EventKind::Call { .. }) {}
    let stands: Vec<_> = longhaul.list(TaskFilter::default()).await?.iter().map(|task| task.status).collect();
    assert_eq!(stands, [Status::Running, Status::Running, Status::Pending]);
    assert_eq!(longhaul.count_running().await?, 2);

    // SendToAgent, Broadcast; then Cancel, which reaches a running task at its tool and a queued one at once.
    longhaul.send(id, "Be quick.").await?;
    assert_eq!(longhaul.broadcast("Wrap up.").await?, [id, second, third]);
    longhaul.stop(third).await?;
    assert_eq!(longhaul.snapshot(third).await?.state.status, Status::Cancelled);

    // Wait, for the first of some or (`all`) for all.
    gate.add_permits(1);
    let done = longhaul.wait([id, second]).any().await?.tasks.remove(0);
    assert_eq!(done.output, r#"Done by fast, told Some(User("Be quick.\n\nWrap up."))."#);

    // CancelAll. Shutdown stops nothing: what still ran then could be resumed by whoever opens the store next.
    assert_eq!(longhaul.stop_all().await?, [second]);
    let stopped = longhaul.wait([second, third]).all().timeout(Duration::from_secs(5)).await?;
    assert!(stopped.tasks.iter().all(|task| task.state.status == Status::Cancelled));
    longhaul.shutdown().await;
    Ok(())
}
