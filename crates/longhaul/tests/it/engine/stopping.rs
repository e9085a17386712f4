//! Stop stops: subtrees, tools that do not listen, shutdown.

use std::sync::Arc;
use std::time::Duration;

use longhaul::dispatch::TaskLimits;
use longhaul::entry::{Entry, StopCause};
use longhaul::store::{MemoryStore, Store};
use longhaul::testing::reply;
use longhaul::toolset::{OpenFuture, Toolset, ToolsetContext};
use longhaul::{Longhaul, Order, Status, SubAgentDialect};
use serde_json::json;
use tokio::time::Instant;

use crate::engine::stage::*;

/// Demand 5 and 21: three levels, all of them stopped.
#[tokio::test(start_paused = true)]
async fn a_stop_reaches_the_whole_tree() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "a"),
            ("worker", 0) => {
                let leaf = |task| json!({"agent": "leaf", "task": task});
                reply().call("run_background_agent", leaf("1")).call("transfer_task", leaf("2"))
            }
            _ => {
                gate.pass().await;
                reply().text("x")
            }
        }
    });
    let leaf = agent("leaf", &model).build().unwrap();
    let worker =
        agent("worker", &model).sub_agent(leaf).dialect(SubAgentDialect::Background).build().unwrap();
    let longhaul = start(agent("lead", &model).sub_agent(worker).dialect(SubAgentDialect::Background)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(3).await;
    let began = Instant::now();
    longhaul.stop(id).await.unwrap();
    let tree = longhaul.list(longhaul::store::TaskFilter::tree(id)).await.unwrap();
    assert_eq!(tree.len(), 4);
    for task in within(longhaul.wait(tree.iter().map(|task| task.id))).await.unwrap().tasks {
        assert_eq!(task.state.status, Status::Cancelled, "{}", task.state.agent);
        let finished = journal(&longhaul, task.state.id).await;
        assert_eq!(finished.iter().filter(|r| matches!(r.entry, Entry::Finished(_))).count(), 1);
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_start_is_final_and_the_task_never_runs() {
    let (gate, model) = gated(move |gate, asked| async move {
        assert_ne!(asked.order, "second", "it was stopped before it ran");
        gate.pass().await;
        reply().text("x")
    });
    let limits = TaskLimits::default().running(1);
    let longhaul = Longhaul::builder(team(agent("solo", &model))).limits(limits).start().await.unwrap();
    let first = longhaul.submit(Order::new("solo", "first")).await.unwrap();
    gate.came(1).await;
    let second = longhaul.submit(Order::new("solo", "second")).await.unwrap();
    longhaul.stop(second).await.unwrap();
    assert_eq!(longhaul.snapshot(second).await.unwrap().state.status, Status::Cancelled);
    gate.open(1);
    assert_done(&end(&longhaul, first).await);
    within(longhaul.shutdown()).await;
    assert_eq!(longhaul.snapshot(second).await.unwrap().state.status, Status::Cancelled);
}

/// "Cancel lands between accepted and running and is overwritten by running": at every moment.
#[tokio::test(start_paused = true)]
async fn a_stop_at_any_moment_stays() {
    for steps in 0..40 {
        let model = slow(|_| std::future::pending());
        let longhaul = start(agent("solo", &model)).await;
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        longhaul.stop(id).await.unwrap();
        assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
        within(longhaul.shutdown()).await;
        assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Cancelled);
    }
}

/// "The result arrives while a cancel is in flight, and is dropped."
#[tokio::test(start_paused = true)]
async fn an_answer_that_was_there_before_the_stop_was_seen_stands() {
    let handle: Arc<std::sync::OnceLock<Longhaul>> = Arc::default();
    let held = handle.clone();
    let model = slow(move |asked| {
        let longhaul = held.get().unwrap().clone();
        async move {
            longhaul.stop(asked.task).await.unwrap();
            reply().text("the answer")
        }
    });
    let longhaul = start(agent("solo", &model)).await;
    let _ = handle.set(longhaul.clone());
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Completed, "the answer"));
    within(longhaul.shutdown()).await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_waits_is_cancelled_though_it_has_said_something() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "x"),
            ("lead", _) => reply().text("I wait for it"),
            _ => {
                gate.pass().await;
                reply().text("x")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    longhaul.stop(id).await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Cancelled, "I wait for it"));
    assert_eq!(letters(&longhaul, id).await.len(), 1, "also a stopped child has its one letter");
}

/// "A slot leaks when a child ignores its cancellation"; "shutdown waits without end for a tool".
#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_listen_holds_up_neither_stop_nor_seat_nor_shutdown() {
    let gate = Gate::new();
    let deaf = gate.tool("deaf", move |gate, _, _| async move {
        gate.pass().await;
        Ok("x".into())
    });
    let model = model(|asked| match asked.order.as_str() {
        "deaf" => reply().text("so far").call("deaf", json!({})),
        _ => reply().text("fine"),
    });
    let limits = TaskLimits::default().running(1);
    let team = team(agent("solo", &model).toolset(deaf));
    let longhaul = Longhaul::builder(team).limits(limits).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "deaf")).await.unwrap();
    gate.came(1).await;
    let began = Instant::now();
    longhaul.stop(id).await.unwrap();
    let stopped = end(&longhaul, id).await;
    assert_eq!((stopped.state.status, stopped.output.as_str()), (Status::Cancelled, "so far"));
    assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(ask(&longhaul, Order::new("solo", "next")).await.output, "fine", "its seat is free");

    let id = longhaul.submit(Order::new("solo", "deaf")).await.unwrap();
    gate.came(1).await;
    let began = Instant::now();
    within(longhaul.shutdown()).await;
    assert!(began.elapsed() <= Duration::from_secs(21), "{:?}", began.elapsed());
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Pending, "it can be resumed");
}

/// "Tasks start during shutdown."
#[tokio::test(start_paused = true)]
async fn nothing_starts_and_nothing_is_left_running_after_a_shutdown() {
    for steps in 0..20 {
        let model = model(|_| reply().text("x"));
        let longhaul = start(agent("solo", &model)).await;
        for _ in 0..3 {
            longhaul.submit(Order::new("solo", "go")).await.unwrap();
        }
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        within(longhaul.shutdown()).await;
        assert_eq!(longhaul.count_running().await.unwrap(), 0);
        let id = longhaul.submit(Order::new("solo", "late")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Pending);
    }
}

struct Stuck;

impl Toolset for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn open<'a>(&'a self, _: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn close(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_toolset_that_does_not_close_does_not_hold_up_the_shutdown() {
    let longhaul = start(agent("solo", &model(|_| reply().text("x"))).toolset(Stuck)).await;
    within(longhaul.shutdown()).await;
}

/// Demand 5: stopped is stopped, whoever starts again.
#[tokio::test(start_paused = true)]
async fn what_was_stopped_is_still_stopped_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("x")
    });
    let first =
        Longhaul::builder(team(agent("solo", &model))).shared_store(store.clone()).start().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let client = Longhaul::client(store.clone()).await.unwrap();
    // The worker is gone before it sees the stop.
    drop(first);
    client.stop(id).await.unwrap();
    let second = Longhaul::builder(team(agent("solo", &model))).shared_store(store).start().await.unwrap();
    let state = end(&second, id).await.state;
    assert_eq!(state.status, Status::Cancelled);
    assert_eq!(state.stop.unwrap().cause, StopCause::Person);
}

#[tokio::test(start_paused = true)]
async fn stopping_all_stops_all() {
    let model = slow(|_| std::future::pending());
    let longhaul = start(agent("solo", &model)).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(longhaul.submit(Order::new("solo", "go")).await.unwrap());
    }
    assert_eq!(longhaul.stop_all().await.unwrap(), ids);
    let waited = within(longhaul.wait(ids)).await.unwrap();
    assert!(waited.tasks.iter().all(|task| task.state.status == Status::Cancelled));
}

/// A tool that talks without end drowns neither the stop nor the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_chatty_tool_can_be_stopped() {
    let model = model(|_| reply().call("chat", json!({})));
    let chat = tool("chat", |_, context| async move {
        loop {
            context.progress("still here");
            tokio::task::yield_now().await;
        }
    });
    let longhaul = start(agent("solo", &model).toolset(chat)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    until(&longhaul, id, |state| state.progress.is_some()).await;
    longhaul.stop(id).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    assert!(journal(&longhaul, id).await.len() < 200, "what it said is coalesced");
}

/// A letter that is only to be read when it is idle, a last word, and children to be stopped: it ends all the same.
#[tokio::test(start_paused = true)]
async fn a_last_word_is_the_end_though_a_letter_is_unread_and_children_run() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "x"),
            ("lead", _) => {
                gate.pass().await;
                reply().text("my last word")
            }
            _ => std::future::pending().await,
        }
    });
    let longhaul = start(pair(&model)).await;
    let order = Order::new("lead", "go").max_turns(1).on_finish(longhaul::OnFinish::Stop);
    let id = longhaul.submit(order).await.unwrap();
    gate.came(1).await;
    longhaul.send_when_idle(id, "by the way").await.unwrap();
    gate.open(1);
    let done = end(&longhaul, id).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Completed, "my last word"));
}
