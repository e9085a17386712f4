//! A stop and a drain hold before the first step too: while a task waits to begin, and while tools are opened.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul::model::{Model, ModelRequest, ReplyStream, RequestDelay, StartTicket};
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

/// A model that lets tasks begin when its gate says so.
struct Busy(Arc<dyn Model>, Gate);

impl Model for Busy {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        self.0.stream(request)
    }

    fn start_ticket(&self, _: longhaul::TaskId, _: u32) -> Option<Box<dyn StartTicket>> {
        Some(Box::new(BusyTicket(self.1.clone(), 0)))
    }
}

/// It says first why it waits, and again after [`BUSY`]; only then does it come to the gate.
struct BusyTicket(Gate, u32);

const BUSY: Duration = Duration::from_secs(8);

impl StartTicket for BusyTicket {
    fn next_step(&mut self) -> BoxFuture<'_, Option<RequestDelay>> {
        Box::pin(async {
            self.1 += 1;
            match self.1 {
                1 => {}
                2 => tokio::time::sleep(BUSY).await,
                _ => {
                    self.0.pass().await;
                    return None;
                }
            }
            Some(RequestDelay::new("it is busy"))
        })
    }
}

fn busy(
    answer: impl Fn(Asked) -> longhaul::testing::ReplyBuilder + Send + Sync + 'static,
) -> (Arc<dyn Model>, Gate) {
    let gate = Gate::new();
    (Arc::new(Busy(model(answer), gate.clone())), gate)
}

#[tokio::test(start_paused = true)]
async fn a_task_begins_when_its_model_has_room_and_shows_that_it_waits() {
    let (model, gate) = busy(|asked| reply().text(asked.said.join(" ")));
    let opens = Gate::new();
    let longhaul = start(agent("solo", &model).toolset(Slow(opens.clone()))).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let state = longhaul.snapshot(id).await.unwrap().state;
    let waiting = format!("{:?}", state.waiting);
    assert!(waiting.contains("it is busy"), "{waiting}");
    longhaul.send(id, "and hurry").await.unwrap();
    gate.open(1);
    opens.came(1).await;
    opens.open(1);
    let done = end(&longhaul, id).await;
    assert!(done.output.contains("and hurry"), "{}", done.output);
    within(longhaul.shutdown()).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_and_a_drain_do_not_wait_until_a_task_may_begin() {
    for stops in [true, false] {
        let (model, gate) = busy(|_| panic!("it never begins"));
        let longhaul = start(agent("solo", &model)).await;
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        let began = Instant::now();
        if stops {
            longhaul.stop(id).await.unwrap();
            assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
        }
        within(longhaul.shutdown()).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let expected = if stops { Status::Cancelled } else { Status::Pending };
        assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, expected);
    }
}

/// To wait for a provider is work.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_task_waits_to_begin_counts() {
    let (model, gate) = busy(|_| panic!("its time is up before it begins"));
    let longhaul = start(agent("solo", &model)).await;
    let order = Order::new("solo", "go").timeout(Duration::from_secs(20));
    let id = longhaul.submit(order).await.unwrap();
    gate.came(1).await;
    let began = Instant::now();
    let done = end(&longhaul, id).await;
    assert!(began.elapsed() <= Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(done.state.status, Status::Failed);
    assert!(done.state.error.as_ref().unwrap().contains("time was up"), "{:?}", done.state.error);

    for (limit, status) in [(20, Status::Failed), (30, Status::Completed)] {
        let (model, gate) = busy(|asked| match asked.turn == 0 {
            true => reply().call("sleepy", serde_json::json!({})),
            false => reply().text("done"),
        });
        let sleepy = tool("sleepy", |_, _| async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            Ok("slept".into())
        });
        let longhaul = start(agent("solo", &model).toolset(sleepy)).await;
        let id = longhaul.submit(Order::new("solo", "go").timeout(Duration::from_secs(limit))).await.unwrap();
        gate.came(1).await;
        gate.open(1);
        let done = end(&longhaul, id).await;
        assert_eq!(
            done.state.status, status,
            "8 s of waiting and 15 s of work, of {limit}: {:?}",
            done.state.error
        );
    }
}
