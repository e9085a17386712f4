//! Waits: joins, seats of those who wait, parents at their end.

use std::time::Duration;

use longhaul::dispatch::TaskLimits;
use longhaul::entry::WaitReason;
use longhaul::testing::reply;
use longhaul::{Longhaul, OnFinish, Order, Status};
use serde_json::json;

use crate::engine::stage::*;

fn one_seat() -> TaskLimits {
    TaskLimits::default().running(1)
}

/// Demand 27.
#[tokio::test(start_paused = true)]
async fn a_join_is_over_at_any_or_all_and_a_timeout_harms_nothing() {
    let (gate, model) = gated(move |gate, asked| async move {
        if asked.order == "slow" {
            gate.pass().await;
        }
        reply().text(asked.order)
    });
    let longhaul = start(agent("solo", &model)).await;
    let slow = longhaul.submit(Order::new("solo", "slow")).await.unwrap();
    let quick = longhaul.submit(Order::new("solo", "quick")).await.unwrap();
    let any = within(longhaul.wait([slow, quick]).any()).await.unwrap();
    assert!(!any.timed_out);
    assert_eq!(any.tasks[1].output, "quick", "in the order in which they were asked for");
    let minute = Duration::from_secs(60);
    let all = within(longhaul.wait([slow, quick]).all().timeout(minute)).await.unwrap();
    assert!(all.timed_out);
    assert_eq!(all.tasks[0].state.status, Status::Running, "nothing was stopped");
    drop(longhaul.wait([slow]).into_future());
    gate.open(1);
    let all = within(longhaul.wait([slow, quick])).await.unwrap();
    assert!(!all.timed_out && all.tasks.iter().all(|task| task.state.status == Status::Completed));
    assert!(within(longhaul.wait([])).await.unwrap().tasks.is_empty());
}

/// "A waiter removes the task it waits for."
#[tokio::test(start_paused = true)]
async fn a_task_that_is_waited_for_can_be_listed_and_stopped() {
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("x")
    });
    let longhaul = start(agent("solo", &model)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let waiter = tokio::spawn(longhaul.wait([id]).into_future());
    gate.came(1).await;
    assert_eq!(longhaul.count_running().await.unwrap(), 1);
    longhaul.stop(id).await.unwrap();
    let waited = within(waiter).await.unwrap().unwrap();
    assert_eq!(waited.tasks[0].state.status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_parent_gives_its_only_seat_to_its_child() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "x"})),
        ("lead", _) => reply().text(asked.last()),
        _ => reply().text("from below"),
    });
    let longhaul = Longhaul::builder(team(pair(&model))).limits(one_seat()).start().await.unwrap();
    assert_eq!(without_note(&ask(&longhaul, Order::new("lead", "go")).await.output), "t:from below");
}

/// Counted, so that two parallel waits are safe.
#[tokio::test(start_paused = true)]
async fn two_parallel_waits_and_one_seat_are_no_deadlock() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(launch(reply(), "a"), "b"),
        ("lead", 1) => {
            let ids: Vec<&str> = asked.said[2..].iter().map(|said| &said[2..9]).collect();
            reply()
                .call("wait_background_agents", json!({"task_ids": [ids[0]]}))
                .call("wait_background_agents", json!({"task_ids": [ids[1]]}))
        }
        ("lead", _) => reply().text("both"),
        _ => reply().text("r"),
    });
    let longhaul = Longhaul::builder(team(pair(&model))).limits(one_seat()).start().await.unwrap();
    let began = tokio::time::Instant::now();
    assert_done(&ask(&longhaul, Order::new("lead", "go")).await);
    assert!(began.elapsed() < Duration::from_secs(60), "no timeout was needed: {:?}", began.elapsed());
}

/// A small model waits for `[]`, again and again: that means all of its tasks.
#[tokio::test(start_paused = true)]
async fn a_wait_that_names_no_task_is_for_all_of_them() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("wait_background_agents", json!({"task_ids": []})),
        ("lead", 1) => {
            assert!(asked.last().contains("you have no tasks to wait for"), "{}", asked.last());
            launch(launch(reply(), "a"), "b")
        }
        ("lead", 2) => reply().call("wait_background_agents", json!({"task_ids": []})),
        ("lead", _) => reply().text(asked.last()),
        _ => reply().text(format!("did {}", asked.order)),
    });
    let longhaul = start(pair(&model)).await;
    let answer = ask(&longhaul, Order::new("lead", "go")).await.output;
    let (first, second) = (answer.find("did a").unwrap(), answer.find("did b").unwrap());
    assert!(first < second && answer.contains("\"all_done\":true"), "{answer}");
}

/// "One boolean says that a tool is running while two run in parallel."
#[tokio::test(start_paused = true)]
async fn a_wait_gives_the_seat_back_also_when_the_tool_beside_it_ends_later() {
    let gate = Gate::new();
    let tools = gate.tool("work", move |gate, _, _| async move {
        gate.pass().await;
        Ok("worked".into())
    });
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => {
            reply().call("work", json!({})).call("transfer_task", json!({"agent": "worker", "task": "x"}))
        }
        ("lead", _) => reply().text(asked.said[2..].join("|")),
        _ => reply().text("below"),
    });
    let longhaul =
        Longhaul::builder(team(pair(&model).toolset(tools))).limits(one_seat()).start().await.unwrap();
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    let child = loop {
        match children(&longhaul, id).await.first() {
            Some(child) => break child.id,
            None => tokio::task::yield_now().await,
        }
    };
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(longhaul.snapshot(child).await.unwrap().state.status, Status::Pending, "a tool still runs");
    gate.open(1);
    assert_eq!(without_note(&end(&longhaul, id).await.output), "t:worked|t:below");
}

/// Demand 7, in text: a waiting task says what it waits for, also when one of two waits is over.
#[tokio::test(start_paused = true)]
async fn what_a_task_waits_for_is_shown_as_long_as_it_waits() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply()
                .call("transfer_task", json!({"agent": "worker", "task": "quick"}))
                .call("transfer_task", json!({"agent": "worker", "task": "slow"})),
            ("lead", _) => reply().text("ok"),
            _ => {
                if asked.order == "slow" {
                    gate.pass().await;
                }
                reply().text("r")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    let slow = children(&longhaul, id).await[1].id;
    until(&longhaul, id, |state| {
        state.waiting.as_ref().is_some_and(|waiting| waiting.on == WaitReason::Tasks(vec![slow]))
    })
    .await;
    gate.open(1);
    assert_done(&end(&longhaul, id).await);
}

/// Demand 11: a run is not over while its tasks are.
#[tokio::test(start_paused = true)]
async fn a_parent_waits_for_its_children_at_its_end_or_lets_them_go_or_stops_them() {
    for policy in [OnFinish::Wait, OnFinish::Detach, OnFinish::Stop] {
        let (gate, log) = (Gate::new(), Log::default());
        let (at, notes) = (gate.clone(), log.clone());
        let model = slow(move |asked| {
            let (gate, log) = (at.clone(), notes.clone());
            async move {
                log.note(&asked);
                match (asked.agent.as_str(), asked.turn) {
                    ("lead", 0) => launch(launch(reply(), "x"), "y"),
                    ("lead", 1) => {
                        gate.came(2).await;
                        reply().text("my answer")
                    }
                    ("lead", _) => reply().text("with theirs"),
                    _ => {
                        gate.pass().await;
                        reply().text("r")
                    }
                }
            }
        });
        let longhaul = start(pair(&model)).await;
        let id = longhaul.submit(Order::new("lead", "go").on_finish(policy)).await.unwrap();
        match policy {
            OnFinish::Wait => {
                until(&longhaul, id, |state| state.waiting.is_some()).await;
                gate.open(2);
                assert_eq!(end(&longhaul, id).await.output, "with theirs");
            }
            OnFinish::Detach => {
                assert_eq!(end(&longhaul, id).await.output, "my answer");
                assert!(children(&longhaul, id).await.iter().all(|child| child.status == Status::Running));
                gate.open(2);
            }
            OnFinish::Stop => {
                assert_eq!(end(&longhaul, id).await.output, "my answer");
                assert_eq!(log.of("lead").len(), 2, "nobody is asked about those who were stopped");
            }
        }
        let ids: Vec<_> = children(&longhaul, id).await.iter().map(|child| child.id).collect();
        let ended = if policy == OnFinish::Stop { Status::Cancelled } else { Status::Completed };
        for task in within(longhaul.wait(ids)).await.unwrap().tasks {
            assert_eq!(task.state.status, ended, "{policy:?}");
        }
        within(longhaul.shutdown()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_task_that_is_not_there_are_an_error_and_not_a_hang() {
    use futures::StreamExt as _;
    let longhaul = start(agent("solo", &model(|_| reply().text("x")))).await;
    let nobody = longhaul::id::TaskKey::random().candidate_ids().next().unwrap();
    assert!(within(longhaul.events(nobody, longhaul::id::Seq(0)).next()).await.unwrap().is_err());
    assert!(within(longhaul.follow(nobody).next()).await.unwrap().is_err());
    assert!(within(longhaul.wait([nobody])).await.is_err());
}

/// However long somebody is ready to wait.
#[tokio::test(start_paused = true)]
async fn for_ever_is_no_overflow() {
    let longhaul = start(
        agent("solo", &model(|_| reply().text("done")))
            .policy(policy(|h| (h.inactivity_timeout, h.timeout) = (Duration::MAX, Some(Duration::MAX)))),
    )
    .await;
    let id = longhaul.submit(Order::new("solo", "go").timeout(Duration::MAX)).await.unwrap();
    let waited = longhaul.wait([id]).timeout(Duration::MAX).await.unwrap();
    assert_done(&waited.tasks[0]);
}

/// A small model polls. Each look costs it a turn and shows it nothing new: it is made to wait until there is something
/// to see, and told then that there is nothing more to look at.
#[tokio::test(start_paused = true)]
async fn the_same_look_again_and_again_waits_until_something_has_happened() {
    let model = slow(move |asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("run_background_agent", json!({"agent": "worker", "task": "x"})),
            ("lead", 1..8) => reply().call("list_background_agents", json!({})),
            ("lead", _) => reply().text(asked.said.join("\n")),
            _ => {
                tokio::time::sleep(Duration::from_secs(100)).await;
                reply().text("from below")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let began = tokio::time::Instant::now();
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!(done.state.status, Status::Completed, "{:?}", done.state.error);
    // Two looks, one held for 15 s and one for 30 s, and one that was held until the child had ended.
    let out = &done.output;
    assert_eq!(out.matches("not ended yet").count(), 4, "{out}");
    // The reminder after the third look at what has ended shows both once more.
    assert_eq!(out.matches("Your task has ended;").count(), 4, "{out}");
    assert_eq!(out.matches("from below").count(), 2, "{out}");
    assert!((100..130).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// Who looks is stopped as quickly as anybody.
#[tokio::test(start_paused = true)]
async fn a_look_that_is_held_does_not_hold_up_a_stop_or_a_letter() {
    let (_gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("run_background_agent", json!({"agent": "worker", "task": "x"})),
            ("lead", _) if asked.last().contains("enough") => reply().text("I see."),
            ("lead", _) => reply().call("list_background_agents", json!({})),
            _ => {
                gate.pass().await;
                reply().text("never")
            }
        }
    });
    for stop in [true, false] {
        let longhaul = start(pair(&model)).await;
        let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
        let held = async {
            while longhaul.snapshot(id).await.unwrap().state.waiting.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(held).await;
        let began = tokio::time::Instant::now();
        if stop {
            longhaul.stop(id).await.unwrap();
            let done = within(longhaul.wait([id])).await.unwrap();
            assert_eq!(done.tasks[0].state.status, Status::Cancelled);
        } else {
            longhaul.send(id, "That is enough.").await.unwrap();
            let heard = async {
                while longhaul.snapshot(id).await.unwrap().output != "I see." {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            within(heard).await;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
