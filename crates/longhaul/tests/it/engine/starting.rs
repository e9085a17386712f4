//! A stop and a drain hold before the first step too: while tools are opened.

use std::time::Duration;

use longhaul::testing::reply;
use longhaul::toolset::{OpenFuture, Toolset, ToolsetContext};
use longhaul::{Order, Status};
use tokio::time::Instant;

use crate::engine::stage::*;

/// A toolset that takes its time to open, and says when somebody waits for it.
struct Slow(Gate);

impl Toolset for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn open<'a>(&'a self, _: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            self.0.pass().await;
            Ok(Vec::new())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_toolset_that_opens() {
    let gate = Gate::new();
    let model = model(|_| panic!("nothing is asked of a task that was stopped before its first step"));
    let longhaul = start(agent("solo", &model).toolset(Slow(gate.clone()))).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let began = Instant::now();
    longhaul.stop(id).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    within(longhaul.shutdown()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_toolset_that_opens() {
    let gate = Gate::new();
    let model = model(|_| reply().text("fine"));
    let longhaul = start(agent("solo", &model).toolset(Slow(gate.clone()))).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let began = Instant::now();
    within(longhaul.shutdown()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Pending);
}

/// The hint of a letter that comes meanwhile must not be lost: the task would read it ten seconds late.
#[tokio::test(start_paused = true)]
async fn a_letter_that_comes_while_a_toolset_opens_is_read_at_once() {
    let gate = Gate::new();
    let model = model(|asked| reply().text(asked.said.join(" ")));
    let longhaul = start(agent("solo", &model).toolset(Slow(gate.clone()))).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    longhaul.send(id, "and hurry").await.unwrap();
    // The hint is on its way by now, and taken while the toolset still opens.
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.open(1);
    let done = end(&longhaul, id).await;
    assert!(done.output.contains("and hurry"), "{}", done.output);
    within(longhaul.shutdown()).await;
}

/// One that stops waiting leaves the others their toolset.
#[tokio::test(start_paused = true)]
async fn a_stop_of_one_task_lets_others_open_the_toolset() {
    let gate = Gate::new();
    let model = model(|_| reply().text("fine"));
    let longhaul = start(agent("solo", &model).toolset(Slow(gate.clone()))).await;
    let first = longhaul.submit(Order::new("solo", "one")).await.unwrap();
    gate.came(1).await;
    let second = longhaul.submit(Order::new("solo", "two")).await.unwrap();
    until(&longhaul, second, |state| state.status == Status::Running).await;
    longhaul.stop(first).await.unwrap();
    assert_eq!(end(&longhaul, first).await.state.status, Status::Cancelled);
    gate.came(1).await;
    gate.open(1);
    assert_done(&end(&longhaul, second).await);
    within(longhaul.shutdown()).await;
}
