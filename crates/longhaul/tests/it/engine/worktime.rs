//! What counts as time at work, for `timeout` and `max_time`: each cell of the table in docs/running.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::agent::AgentBuilder;
use longhaul::dispatch::TaskLimits;
use longhaul::entry::{Entry, WaitReason};
use longhaul::model::{Model, ModelError, ModelErrorKind};
use longhaul::permission::Permissions;
use longhaul::store::{Clock, MemoryStore, Store};
use longhaul::testing::reply;
use longhaul::tool::ToolEffects;
use longhaul::toolset::Tools;
use longhaul::{Budget, Longhaul, Order, Status, TaskId};
use serde_json::json;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A machine of the test's own: its clocks go with tokio's, and it can be put to sleep, which tokio's clock does not notice.
#[derive(Clone)]
struct Machine(Arc<AtomicU64>);

impl Machine {
    fn new() -> (Machine, Arc<dyn Store>) {
        let slept = Arc::new(AtomicU64::new(0));
        let (began, zero, more) = (tokio::time::Instant::now(), Timestamp::now(), slept.clone());
        let passed = move || began.elapsed() + Duration::from_secs(more.load(Ordering::SeqCst));
        let wall = passed.clone();
        let clock = Clock::with_elapsed(move || zero + wall(), passed);
        (Machine(slept), Arc::new(MemoryStore::with_clock(clock)))
    }

    fn sleep(&self, time: Duration) {
        self.0.fetch_add(time.as_secs(), Ordering::SeqCst);
    }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A tool that works for so many seconds.
fn works() -> Tools {
    let effects = ToolEffects::REPEATABLE;
    tool_of(effects, "work", |arguments, context| async move {
        let seconds =
            serde_json::from_str::<serde_json::Value>(&arguments).unwrap()["seconds"].as_u64().unwrap();
        tokio::select! {
            () = pass(Duration::from_secs(seconds)) => Ok("worked".into()),
            () = context.cancel.cancelled() => Ok("broken off".into()),
        }
    })
}

/// A tool that a person has to allow.
fn asks() -> Tools {
    tool("write", |_, _| async { Ok("wrote".into()) })
}

fn solo(model: &Arc<dyn Model>) -> AgentBuilder {
    let may = Permissions::parse(&["work"], &[] as &[&str], &[] as &[&str]).unwrap();
    agent("solo", model).toolset(works()).toolset(asks()).permissions(may)
}

fn work(seconds: u64) -> longhaul::testing::ReplyBuilder {
    reply().call("work", json!({ "seconds": seconds }))
}

/// One that works for so many seconds and then says so.
fn worker(seconds: u64) -> Arc<dyn Model> {
    model(move |asked| if asked.turn == 0 { work(seconds) } else { reply().text("done") })
}

/// An order of a minute's work, as a time-out and as a budget.
fn minute(agent: &str) -> [Order; 2] {
    let budget = Budget::default().time(MINUTE);
    [Order::new(agent, "go").timeout(MINUTE), Order::new(agent, "go").budget(budget)]
}

async fn on(store: &Arc<dyn Store>, agent: AgentBuilder) -> Longhaul {
    Longhaul::builder(team(agent)).shared_store(store.clone()).start().await.unwrap()
}

async fn asked(longhaul: &Longhaul, id: TaskId) {
    until(longhaul, id, |state| !state.asked.is_empty() && state.waiting.is_some()).await;
}

async fn timed_out(longhaul: &Longhaul, id: TaskId) {
    let done = end(longhaul, id).await;
    let error = done.state.error.unwrap_or_default();
    assert!(error.contains("timed out") || error.contains("budget"), "{:?}: {error}", done.state.status);
}

#[tokio::test(start_paused = true)]
async fn tools_that_run_count() {
    for order in minute("solo") {
        let (_, store) = Machine::new();
        let longhaul = on(&store, solo(&worker(61))).await;
        let id = longhaul.submit(order.clone()).await.unwrap();
        timed_out(&longhaul, id).await;
        let longhaul = on(&store, solo(&worker(59))).await;
        assert_done(&ask(&longhaul, order).await);
    }
}

/// "Killed at 2.5 s, resumed 16 s later: timed out."
#[tokio::test(start_paused = true)]
async fn a_process_that_is_gone_uses_no_time_and_what_it_used_before_counts() {
    for (seconds, completes) in [(40, true), (50, false)] {
        let (_, store) = Machine::new();
        let turns = move || {
            model(move |asked| match asked.turn {
                0 => work(15),
                1 => work(seconds),
                _ => reply().text("done"),
            })
        };
        let first = on(&store, solo(&turns())).await;
        let id = first.submit(Order::new("solo", "go").timeout(MINUTE)).await.unwrap();
        until(&first, id, |state| state.turns == 2).await;
        drop(first);
        pass(60 * MINUTE).await;
        let second = on(&store, solo(&turns())).await;
        let done = end(&second, id).await;
        assert_eq!(done.state.status == Status::Completed, completes, "{:?}", done.state.error);
        assert!(done.state.attempt.0 >= 2);
    }
}

/// A crash in the middle of a long call does not give all of its time back.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_long_call_is_in_the_journal_before_it_ends() {
    let (_, store) = Machine::new();
    let first = on(&store, solo(&worker(50))).await;
    let id = first.submit(Order::new("solo", "go").timeout(MINUTE)).await.unwrap();
    until(&first, id, |state| state.turns == 1).await;
    pass(Duration::from_secs(45)).await;
    drop(first);
    let second = on(&store, solo(&worker(50))).await;
    timed_out(&second, id).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_sleeps_uses_no_time() {
    for order in minute("solo") {
        let (machine, store) = Machine::new();
        let (gate, model) = gated(move |gate, asked| async move {
            gate.pass().await;
            if asked.turn == 0 { work(10) } else { reply().text("done") }
        });
        let first = on(&store, solo(&model)).await;
        let id = first.submit(order).await.unwrap();
        gate.came(1).await;
        machine.sleep(20 * MINUTE);
        gate.open(1);
        gate.came(1).await;
        let worked = first.store().task_state(id).await.unwrap().unwrap().worked;
        assert!(worked < MINUTE, "{worked:?}");
        // Nor for who takes it up later.
        drop(first);
        let second = on(&store, solo(&model)).await;
        gate.open(9);
        assert_done(&end(&second, id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_does_not_count_and_the_work_after_it_does() {
    for (seconds, completes) in [(40, true), (61, false)] {
        for order in minute("solo") {
            let (_, store) = Machine::new();
            let model = model(move |asked| match asked.turn {
                0 => reply().call("write", json!({})),
                1 => work(seconds),
                _ => reply().text("done"),
            });
            let longhaul = on(&store, solo(&model)).await;
            let id = longhaul.submit(order).await.unwrap();
            asked(&longhaul, id).await;
            pass(60 * MINUTE).await;
            longhaul.answer(id, None, "yes").await.unwrap();
            let done = end(&longhaul, id).await;
            assert_eq!(done.state.status == Status::Completed, completes, "{:?}", done.state.error);
        }
    }
}

/// A call that runs beside the one that is asked about is work.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_counts_while_another_call_runs() {
    let (_, store) = Machine::new();
    let model = model(|asked| match asked.turn {
        0 => work(90).call("write", json!({})),
        _ => reply().text("done"),
    });
    let longhaul = on(&store, solo(&model)).await;
    let id = longhaul.submit(Order::new("solo", "go").timeout(MINUTE)).await.unwrap();
    timed_out(&longhaul, id).await;
}

/// A session that has answered waits for the person's next word.
#[tokio::test(start_paused = true)]
async fn a_session_that_waits_for_the_next_word_does_not_count() {
    let (_, store) = Machine::new();
    let longhaul = on(&store, solo(&model(|asked| reply().text(format!("{}", asked.turn))))).await;
    let id = longhaul.submit(Order::new("solo", "go").timeout(MINUTE).interactive()).await.unwrap();
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    pass(60 * MINUTE).await;
    longhaul.send(id, "and now?").await.unwrap();
    until(&longhaul, id, |state| state.turns == 2).await;
    longhaul.close_session(id).await.unwrap();
    assert_done(&end(&longhaul, id).await);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_provider_counts() {
    let (_, store) = Machine::new();
    let busy = failing(|asked| async move {
        match asked.retry {
            0 => Err(ModelError {
                model: "m".to_owned(),
                kind: ModelErrorKind::RateLimited(String::new()),
                retry_after: Some(2 * MINUTE),
            }),
            _ => Ok(reply().text("done")),
        }
    });
    let longhaul = on(&store, solo(&busy)).await;
    let id = longhaul.submit(Order::new("solo", "go").timeout(MINUTE)).await.unwrap();
    timed_out(&longhaul, id).await;
}

/// At its beginning, and when it has given its seat away and wants one again.
#[tokio::test(start_paused = true)]
async fn being_queued_does_not_count() {
    let (_, store) = Machine::new();
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.order.as_str(), asked.turn) {
            ("hold", _) => {
                gate.pass().await;
                reply().text("held")
            }
            ("go", 0) => reply().call("write", json!({})),
            _ => reply().text("done"),
        }
    });
    let limits = TaskLimits::default().running(1);
    let build = Longhaul::builder(team(solo(&model))).shared_store(store).limits(limits);
    let longhaul = build.start().await.unwrap();
    longhaul.submit(Order::new("solo", "hold")).await.unwrap();
    gate.came(1).await;
    let id = longhaul.submit(Order::new("solo", "go").timeout(MINUTE)).await.unwrap();
    pass(60 * MINUTE).await;
    gate.open(1);
    asked(&longhaul, id).await;
    longhaul.submit(Order::new("solo", "hold")).await.unwrap();
    gate.came(1).await;
    longhaul.answer(id, None, "yes").await.unwrap();
    pass(60 * MINUTE).await;
    gate.open(1);
    assert_done(&end(&longhaul, id).await);
}

/// A lead that launches a worker for each of these, and waits for them: in a call, or at rest.
fn lead(tasks: &'static [&'static str], in_a_call: bool) -> AgentBuilder {
    let model = model(move |asked| match (asked.order.as_str(), asked.turn) {
        ("go", 0) => tasks.iter().fold(reply(), |reply, task| launch(reply, task)),
        ("go", 1) if in_a_call => {
            let all = asked.said.join(" ");
            let id = |at: usize| all[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-');
            let mut ids: Vec<String> = all.match_indices("t-").map(|(at, _)| id(at).collect()).collect();
            ids.retain(|id| id.len() > 5);
            ids.sort();
            ids.dedup();
            reply().call("wait_background_agents", json!({ "task_ids": ids, "timeout": 3600 }))
        }
        ("go", _) => reply().text("done"),
        ("work", 0) => work(90),
        (seconds, 0) if seconds.parse::<u64>().is_ok() => work(seconds.parse().unwrap()),
        ("ask", 0) => reply().call("write", json!({})),
        _ => reply().text("from below"),
    });
    let may = Permissions::parse(
        &["work", "run_background_agent", "wait_background_agents"],
        &[] as &[&str],
        &[] as &[&str],
    );
    let worker = agent("worker", &model).toolset(works()).toolset(asks()).build().unwrap();
    agent("lead", &model)
        .sub_agent(worker)
        .dialect(longhaul::SubAgentDialect::Background)
        .permissions(may.unwrap())
}

#[tokio::test(start_paused = true)]
async fn waiting_for_children_that_work_counts() {
    for in_a_call in [true, false] {
        for tasks in [&["work"][..], &["work", "ask"]] {
            let (_, store) = Machine::new();
            let longhaul = on(&store, lead(tasks, in_a_call)).await;
            let id = longhaul.submit(Order::new("lead", "go").timeout(MINUTE)).await.unwrap();
            timed_out(&longhaul, id).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_children_that_all_wait_for_a_person_does_not_count() {
    for in_a_call in [true, false] {
        for order in minute("lead") {
            let (_, store) = Machine::new();
            let longhaul = on(&store, lead(&["ask", "ask"], in_a_call)).await;
            let id = longhaul.submit(order).await.unwrap();
            until(
                &longhaul,
                id,
                |state| matches!(&state.waiting, Some(on) if matches!(on.on, WaitReason::Tasks(_))),
            )
            .await;
            let below = children(&longhaul, id).await;
            for child in &below {
                asked(&longhaul, child.id).await;
            }
            pass(Duration::from_secs(3500)).await;
            // It is in the journal, for who takes the task up.
            let worked = longhaul.store().task_state(id).await.unwrap().unwrap().worked;
            assert!(worked < MINUTE, "{worked:?}");
            for child in &below {
                longhaul.answer(child.id, None, "yes").await.unwrap();
            }
            assert_done(&end(&longhaul, id).await);
        }
    }
}

/// A budget of a tree is that of the task at its top, by whoever it is asked.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_tree_is_the_time_at_work_of_its_top() {
    let (machine, store) = Machine::new();
    let longhaul = on(&store, lead(&["ask"], false)).await;
    let budget = Budget::default().time(MINUTE);
    let id = longhaul.submit(Order::new("lead", "go").tree_budget(budget)).await.unwrap();
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    let below = children(&longhaul, id).await;
    asked(&longhaul, below[0].id).await;
    pass(60 * MINUTE).await;
    machine.sleep(20 * MINUTE);
    longhaul.answer(below[0].id, None, "yes").await.unwrap();
    assert_done(&end(&longhaul, id).await);
    assert_done(&end(&longhaul, below[0].id).await);
}

/// What nothing is bounded by is not written down.
#[tokio::test(start_paused = true)]
async fn a_task_without_a_bound_writes_nothing_of_its_time() {
    let (_, store) = Machine::new();
    let longhaul = on(&store, solo(&worker(600))).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_done(&done);
    let journal = journal(&longhaul, done.state.id).await;
    assert!(journal.iter().all(|record| !matches!(record.entry, Entry::Worked { .. })));
    assert!(done.state.worked >= 10 * MINUTE, "it is known all the same");
}

/// Who waits for many with a time limit looks at one that works, not at the whole tree each time that one says something.
#[tokio::test(start_paused = true)]
async fn a_time_limit_does_not_list_the_tree_for_every_child_that_ends() {
    const MANY: usize = 40;
    let seconds: Vec<&str> = (1..=MANY).map(|n| &*n.to_string().leak()).collect();
    let children: &'static [&'static str] = seconds.leak();
    let listed = async |order: Order| {
        let mood = Arc::new(Mood::default());
        let store: Arc<dyn Store> =
            Arc::new(Moody { inner: MemoryStore::new(), mood: mood.clone(), hints: true });
        let longhaul = on(&store, lead(children, true)).await;
        assert_done(&ask(&longhaul, order).await);
        mood.tasks_listed.load(Ordering::SeqCst)
    };
    let without = listed(Order::new("lead", "go")).await;
    let with = listed(Order::new("lead", "go").timeout(60 * MINUTE)).await;
    let more = with.saturating_sub(without);
    assert!(more < 8 * MANY, "{more} tasks were listed for the limit alone, {without} without it");
}
