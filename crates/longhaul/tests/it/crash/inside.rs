//! What needs no second process: bad moments that can be made on purpose.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use longhaul::dispatch::TaskLimits;
use longhaul::entry::TeamRef;
use longhaul::model::Model;
use longhaul::store::{SqliteStore, Store as _, TaskFilter};
use longhaul::testing::{FnModel, reply};
use longhaul::tool::{CallContext, Tool, ToolError, ToolOutput};
use longhaul::{Agent, Longhaul, Order, Status, SubAgentDialect, Team};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::crash::Options;
use crate::crash::audit::Audit;
use crate::crash::process::HUNG;
use crate::crash::roles::block_on;
use crate::crash::seeded::Seeded;
use crate::crash::store::KillAt;

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HUNG, future).await.expect("it hangs")
}

pub(crate) fn unpolled_reads(_: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path().join("db")).unwrap());
    block_on(async {
        let client = Longhaul::client(store.clone()).await.unwrap();
        let id = client.submit_to(TeamRef::Named("t".into()), Order::new("a", "go")).await.unwrap();
        // As many as there could be tool calls whose runners are busy writing.
        let mut begun: Vec<_> = (0..64).map(|_| store.task_state(id)).collect();
        for read in &mut begun {
            // Polled once, and then no more.
            let _ = read.now_or_never();
        }
        assert!(in_time(store.task_state(id)).await.unwrap().is_some());
        drop(begun);
        client.shutdown().await;
    });
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Nothing {}

/// Takes a moment, so that the call beside it waits before this one returns.
struct Moment;

impl Tool for Moment {
    type Args = Nothing;

    fn name(&self) -> &str {
        "moment"
    }

    fn description(&self) -> String {
        "Takes a moment.".to_owned()
    }

    async fn call(&self, _: Nothing, _: &CallContext) -> Result<ToolOutput, ToolError> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok("a moment later".into())
    }
}

/// A lead with two below it, each with two below that.
fn team() -> Team {
    let model: Arc<dyn Model> = Arc::new(FnModel::new(|r| match (r.agent.as_str(), r.turn) {
        ("lead", 0) => reply()
            .call("run_background_agent", json!({"agent": "mid", "task": "one"}))
            .call("run_background_agent", json!({"agent": "mid", "task": "two"})),
        ("mid", 0) => reply()
            .call("transfer_task", json!({"agent": "leaf", "task": "left"}))
            .call("moment", json!({}))
            .call("run_background_agent", json!({"agent": "leaf", "task": "right"})),
        ("leaf", 0) => reply().text("so").call("moment", json!({})),
        _ => reply().text("done"),
    }));
    let agent = |name: &str| {
        Agent::builder(name).model(model.clone()).dialect(SubAgentDialect::Background).tool(Moment)
    };
    let mid = agent("mid").sub_agent(agent("leaf").build().unwrap()).build().unwrap();
    Team::new(agent("lead").sub_agent(mid).build().unwrap()).unwrap()
}

pub(crate) fn one_seat(_: &Options) {
    block_on(async {
        let limits = TaskLimits::default().running(1);
        let longhaul = Longhaul::builder(team()).limits(limits).start().await.unwrap();
        let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
        let done = in_time(longhaul.wait([root]).into_future()).await.unwrap();
        assert_eq!(done.tasks[0].state.status, Status::Completed);
        longhaul.shutdown().await;
    });
}

/// The store fails when it is to take the result of a letter that made a task go on: the task is given back when
/// the store is well again, and the letter, sent again, goes to where it went.
pub(crate) fn failed_once(_: &Options) {
    // The leaf ends after the lead has begun to wait: else there would be nothing to wait for.
    let waits = Arc::new(tokio::sync::Semaphore::new(0));
    let model: Arc<dyn Model> = Arc::new(FnModel::try_new(move |r| {
        let (agent, turn, told, waits) =
            (r.agent.as_str().to_owned(), r.turn, format!("{:?}", r.messages), waits.clone());
        async move {
            Ok(match (agent.as_str(), turn) {
                ("lead", 0) => reply().call("run_background_agent", json!({"agent": "leaf", "task": "one"})),
                ("lead", 1) => {
                    waits.add_permits(9);
                    reply().text("waiting")
                }
                ("lead", 2) => {
                    let id = &told[told.find("leaf has task ").unwrap() + 14..][..7];
                    reply().call("send_background_agent", json!({"task_id": id, "message": "once more"}))
                }
                ("leaf", _) => {
                    waits.acquire().await.unwrap().forget();
                    reply().text("done")
                }
                _ => reply().text("done"),
            })
        }
    }));
    let agent = |name: &str| Agent::builder(name).model(model.clone()).dialect(SubAgentDialect::Background);
    let lead = agent("lead").sub_agent(agent("leaf").build().unwrap()).build().unwrap();
    block_on(async {
        let store = KillAt::failing_at("a new task");
        let longhaul =
            Longhaul::builder(Team::new(lead).unwrap()).shared_store(store.clone()).start().await.unwrap();
        let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
        let done = in_time(longhaul.wait([root]).into_future()).await.unwrap();
        assert_eq!(done.tasks[0].state.status, Status::Completed, "{:?}", done.tasks[0].state.error);
        assert_eq!(done.tasks[0].state.attempt.0, 2, "it was given back");
        longhaul.shutdown().await;
        let audit = Audit::taken(&*store).await;
        assert_eq!(audit.tasks.len(), 3);
        audit.all_ended_once();
        audit.letters_went_once();
    });
}

pub(crate) fn any_order(options: &Options) {
    let seeds = options.only.map_or(0..options.seeds * 2, |seed| seed..seed + 1);
    block_on(async {
        // Many at a time: they mostly wait.
        let runs: Vec<_> = seeds.map(|seed| tokio::spawn(a_run(seed))).collect();
        for (seed, run) in runs.into_iter().enumerate() {
            in_time(run).await.unwrap_or_else(|_| panic!("it was seed {seed}"));
        }
    });
}

/// Two workers on one store; stops, letters, and drains of a worker, at seeded moments.
async fn a_run(seed: u64) {
    let mut seeded = Seeded::new(seed);
    let store = KillAt::dithering();
    let start = || Longhaul::builder(team()).shared_store(store.clone()).start();
    let steady = start().await.unwrap();
    let mut other = start().await.unwrap();
    let mut roots = Vec::new();
    for _ in 0..3 {
        roots.push(steady.submit(Order::new("lead", "go")).await.unwrap());
    }
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(seeded.up_to(20))).await;
        let tasks = steady.list(TaskFilter::default()).await.unwrap();
        let task = tasks[usize::try_from(seeded.up_to(tasks.len() as u64)).unwrap() - 1].id;
        match seeded.up_to(4) {
            // Both at once: what stops a task may meet it while it is given back.
            1 | 2 => {
                let (stopped, ()) = tokio::join!(steady.stop(task), other.shutdown());
                stopped.unwrap();
                other = start().await.unwrap();
            }
            3 => drop(steady.send(task, "how is it?").await.unwrap()),
            _ => steady.stop(task).await.unwrap(),
        }
    }
    let all = steady.list(TaskFilter::default()).await.unwrap();
    steady.wait(all.iter().map(|task| task.id)).await.unwrap();
    steady.stop_all().await.unwrap();
    let all = steady.list(TaskFilter::default()).await.unwrap();
    steady.wait(all.iter().map(|task| task.id)).await.unwrap();
    other.shutdown().await;
    steady.shutdown().await;
    let audit = Audit::taken(&*store).await;
    audit.all_ended_once();
    audit.letters_went_once();
}
