//! Limits: seats, queue, tree, depth, turns, time, budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul::dispatch::TaskLimits;
use longhaul::model::{Model, ModelRequest, ReplyStream};
use longhaul::testing::reply;
use longhaul::{Budget, Longhaul, Order, Status};
use serde_json::json;

use crate::engine::stage::*;

/// Demand 15.
#[tokio::test(start_paused = true)]
async fn at_the_seat_limit_tasks_queue_and_no_more_than_the_limit_run() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (n, m) = (now.clone(), most.clone());
    let model = slow(move |_| {
        let (now, most) = (n.clone(), m.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            reply().text("x")
        }
    });
    let limits = TaskLimits::default().running(4);
    let longhaul = Longhaul::builder(team(agent("solo", &model))).limits(limits).start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..21 {
        ids.push(longhaul.submit(Order::new("solo", "go")).await.unwrap());
    }
    let waited = within(longhaul.wait(ids)).await.unwrap();
    assert!(waited.tasks.iter().all(|task| task.state.status == Status::Completed), "the 21st too");
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_can_be_no_queue_at_all() {
    let model = slow(|_| std::future::pending());
    for (limits, taken) in [
        (TaskLimits::default().running(1).queue(Some(2)), 3),
        (TaskLimits::default().running(3).reject_when_full(true), 3),
    ] {
        let longhaul = Longhaul::builder(team(agent("solo", &model))).limits(limits).start().await.unwrap();
        let first = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        until(&longhaul, first, |state| state.status == Status::Running).await;
        for _ in 1..taken {
            longhaul.submit(Order::new("solo", "go")).await.unwrap();
        }
        let error = longhaul.submit(Order::new("solo", "go")).await.unwrap_err().to_string();
        assert!(error.contains("limit"), "{error}");
        assert_eq!(longhaul.list(Default::default()).await.unwrap().len(), taken, "no phantom");
        longhaul.stop_all().await.unwrap();
        within(longhaul.shutdown()).await;
    }
}

/// "The limit is checked, then acted on: two spawns pass. Or a rejected spawn is reported as a started one."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tree_limit_is_exact_though_all_launch_at_once() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => (0..30).fold(reply(), |reply, n| launch(reply, &n.to_string())),
        ("lead", 1) => reply().text(asked.said[2..].join("\n")),
        ("lead", _) => reply().text("x"),
        _ => reply().text("r"),
    });
    let limits = TaskLimits::default().tree(Some(11));
    let longhaul = Longhaul::builder(team(pair(&model))).limits(limits).start().await.unwrap();
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    let events = all(longhaul.follow(id)).await;
    assert_eq!(children(&longhaul, id).await.len(), 10, "eleven with the root");
    let told = text(&events, id);
    assert_eq!(told.matches("limit of 11 tasks in one tree").count(), 20, "{told}");
    longhaul.shutdown().await;
}

/// Demand 21.
#[tokio::test(start_paused = true)]
async fn agents_nest_as_deep_as_the_limit_and_no_deeper() {
    let model = model(|asked| {
        let next = match asked.agent.as_str() {
            "a" => "b",
            "b" => "c",
            "c" => "d",
            "d" => "e",
            _ => return reply().text("too deep"),
        };
        match asked.turn {
            0 => reply().call(next, json!({"task": "dig"})),
            _ => reply().text(format!("{}<{}", asked.agent, &asked.last()[2..])),
        }
    });
    let e = agent("e", &model).build().unwrap();
    let d = agent("d", &model).sub_agent(e).build().unwrap();
    let c = agent("c", &model).sub_agent(d).build().unwrap();
    let b = agent("b", &model).sub_agent(c).build().unwrap();
    let longhaul = start(agent("a", &model).sub_agent(b)).await;
    let done = ask(&longhaul, Order::new("a", "go")).await;
    assert_done(&done);
    let tree = longhaul.list(longhaul::store::TaskFilter::tree(done.state.id)).await.unwrap();
    let depths: Vec<_> = tree.iter().map(|task| (task.agent.to_string(), task.depth)).collect();
    let expected = [("a", 0), ("b", 1), ("c", 2), ("d", 3)].map(|(name, depth)| (name.to_owned(), depth));
    assert_eq!(depths, expected);
    assert!(done.output.contains("as deep as it may go"), "{}", done.output);
}

/// Demand 16.
#[tokio::test(start_paused = true)]
async fn at_the_turn_limit_a_task_ends_with_an_answer_that_is_marked() {
    let looking = tool("look_around", |_, _| async { Ok("nothing".into()) });
    let model = model(|asked| match asked.tools.is_empty() {
        true => reply().text("what I have"),
        false => reply().call("look_around", json!({"turn": asked.turn})),
    });
    let longhaul = start(agent("solo", &model).toolset(looking)).await;
    let done = ask(&longhaul, Order::new("solo", "go").max_turns(3)).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Completed, "what I have"));
    assert_eq!(done.state.turns, 4);
    assert!(done.state.cut_short.unwrap().contains("3 turns"));
}

/// Demand 16: time, with what was said by then, in all turns.
#[tokio::test(start_paused = true)]
async fn a_task_that_takes_too_long_fails_and_keeps_what_it_has_said() {
    let work = tool("work", |_, context| async move {
        context.cancel.cancelled().await;
        Ok("broken off".into())
    });
    let model = model(|asked| match asked.turn {
        0 => reply().text("first find").call("work", json!({})),
        _ => reply().text("never"),
    });
    let longhaul = start(agent("solo", &model).toolset(work)).await;
    let order = Order::new("solo", "go").timeout(Duration::from_secs(30));
    let done = ask(&longhaul, order).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Failed, "first find"));
    assert!(done.state.error.unwrap().contains("timed out"));
}

/// Demand 6: before the next call, so that the bound is overrun by one reply at most.
#[tokio::test(start_paused = true)]
async fn a_budget_is_checked_before_the_next_call() {
    let step = tool("step", |_, _| async { Ok("ok".into()) });
    let model = model(|asked| {
        reply()
            .text(format!("part {}", asked.turn))
            .call("step", json!({"n": asked.turn}))
            .usage(60, 40)
            .cost(10)
    });
    let longhaul = start(agent("solo", &model).toolset(step)).await;
    for (budget, turns) in [
        (Budget::default().tokens(250), 3),
        (Budget::default().cost(20), 2),
        (Budget::default().time(Duration::ZERO), 0),
    ] {
        let done = ask(&longhaul, Order::new("solo", "go").budget(budget)).await;
        assert_eq!((done.state.status, done.state.turns), (Status::Failed, turns), "{budget:?}");
        assert!(done.state.error.unwrap().contains("budget"));
        let said: Vec<_> = (0..turns).map(|turn| format!("part {turn}")).collect();
        assert_eq!(done.output, said.join("\n\n"), "partial output is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_a_tree_counts_all_below_and_binds_them() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(launch(launch(reply(), "a"), "b"), "c").usage(10, 0),
        ("lead", _) => reply().text("x").usage(10, 0),
        _ => reply().text("r").usage(50, 50),
    });
    let longhaul =
        Longhaul::builder(team(pair(&model))).limits(TaskLimits::default().running(1)).start().await.unwrap();
    let order = Order::new("lead", "go").tree_budget(Budget::default().tokens(150));
    let done = ask(&longhaul, order).await;
    let spent: Vec<_> =
        children(&longhaul, done.state.id).await.iter().map(|c| (c.status, c.usage.total())).collect();
    assert_eq!(done.state.status, Status::Failed, "nothing is left for the lead");
    assert_eq!(spent.iter().filter(|(_, tokens)| *tokens == 0).count(), 1, "{spent:?}");
    assert_eq!(spent.iter().filter(|(status, _)| *status == Status::Completed).count(), 2, "{spent:?}");
}

/// Demand 12: results bounded, with a mark; the rest is readable.
#[tokio::test(start_paused = true)]
async fn a_long_result_is_cut_with_a_mark_and_can_be_paged() {
    let long: String = (0..20_000).map(|n| format!("line {n:05}\n")).collect();
    let whole = long.clone();
    let model = model(move |asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "x"})),
        ("lead", 1) => reply().call("list_background_agents", json!({})),
        ("lead", 2) => reply()
            .call("view_background_agent", json!({"task_id": asked.id(), "offset": 100_001, "limit": 10})),
        ("lead", _) => reply().text(format!("{}\n{}", asked.said[2], asked.last())),
        _ => reply().text(whole.clone()),
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert!(done.output.len() < 60_000, "{}", done.output.len());
    assert!(done.output.contains("left out"), "there is a mark");
    assert!(done.output.contains(&long[100_001..100_011]), "{}", &done.output[done.output.len() - 600..]);
    let child = children(&longhaul, done.state.id).await[0].id;
    assert_eq!(longhaul.output(child).await.unwrap(), long, "nothing is lost");
}

/// What `read_tool_output` was told to be called with in a mark.
fn read_on(said: &str) -> serde_json::Value {
    let at = said.find("read_tool_output {").expect("a mark that says how to read on");
    let arguments = &said[at + "read_tool_output ".len()..];
    serde_json::from_str(&arguments[..=arguments.find('}').unwrap()]).unwrap()
}

/// Demand 12: of a tool's output too. Whoever goes on after a restart, or continues the task, can read it as well.
#[tokio::test(start_paused = true)]
async fn a_tools_long_output_is_cut_kept_whole_and_read_page_by_page() {
    let whole: String = (0..9_000).map(|n| format!("línea {n:05}\n")).collect();
    let (log, gate) = (Log::default(), Gate::new());
    let build = || {
        let (given, notes, at) = (whole.clone(), log.clone(), gate.clone());
        let big = tool("big", move |_, _| {
            let text = given.clone();
            async { Ok(text.into()) }
        });
        let model = slow(move |asked| {
            notes.note(&asked);
            let gate = at.clone();
            async move {
                match asked.last() {
                    "u:go" => reply().call("big", json!({})),
                    "u:more" => reply().call("read_tool_output", json!({"output": "0000"})),
                    last if last.contains("left out here") => {
                        gate.pass().await;
                        reply().call("read_tool_output", read_on(last))
                    }
                    last if last.contains("read_tool_output {") => {
                        let next = read_on(last);
                        // At the end the mark leads back to the beginning.
                        if next["offset"] == 0 {
                            return reply().text("read");
                        }
                        reply().call("read_tool_output", next)
                    }
                    last => reply().text(last),
                }
            }
        });
        team(agent("solo", &model).toolset(big))
    };
    let store: Arc<dyn longhaul::store::Store> = Arc::new(longhaul::store::MemoryStore::new());
    let first = Longhaul::builder(build()).shared_store(store.clone()).start().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    drop(first);
    gate.open(2);
    let longhaul = Longhaul::builder(build()).shared_store(store).start().await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!(done.output, "read", "{:?}", done.state.error);

    let asked = log.all();
    assert_eq!(asked[0].tools, ["big"], "nobody is bothered with a tool that has nothing to read");
    assert_eq!(asked[1].tools, ["big", "read_tool_output"]);
    let said = &asked.last().unwrap().said;
    assert!(said[2].len() < 50_000, "{}", said[2].len());
    let page = |text: &String| text.split_once("\n\n[… ").map(|(text, _)| text["t:".len()..].to_owned());
    let begin = page(&said[2]).unwrap();
    let rest: String = said[3..].iter().filter(|said| said.starts_with("t:")).filter_map(page).collect();
    assert!(begin + &rest == whole, "the beginning and the pages after it are the whole");

    let next = longhaul.continue_task(id, "more").await.unwrap();
    let told = end(&longhaul, next).await.output;
    assert!(told.contains("no output '0000'") && told.contains("Those that were cut are: "), "{told}");
}

/// A result that the runner had to cut has not been shown: the letter about it is read.
#[tokio::test(start_paused = true)]
async fn what_is_cut_of_a_result_is_not_collected() {
    for (size, told) in [(1_000, 0), (60_000, 1)] {
        let model = model(move |asked| match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "x"})),
            ("lead", _) => reply().text(asked.times("<task_ended").to_string()),
            _ => reply().text("x".repeat(size)),
        });
        let done = ask(&start(pair(&model)).await, Order::new("lead", "go")).await;
        assert_eq!(done.output, told.to_string(), "{size} bytes");
    }
}

/// A model whose price is not known.
struct Unpriced(Arc<dyn Model>);

impl Model for Unpriced {
    fn name(&self) -> &str {
        "mystery-1"
    }

    fn unpriced_model(&self) -> Option<String> {
        Some("mystery-1".to_owned())
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        self.0.stream(request)
    }
}

/// Each such task would fail at its first call, and a small model would launch the next.
#[tokio::test]
async fn a_launch_with_a_cost_limit_that_cannot_hold_is_refused_in_words() {
    let answer = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => {
            let order = json!({"agent": "worker", "task": "Read.", "budget": {"max_cost": 0.1}});
            reply().call("run_background_agent", order)
        }
        ("lead", 1) => reply().text(asked.last()),
        _ => panic!("{} was asked", asked.agent),
    });
    let unpriced: Arc<dyn Model> = Arc::new(Unpriced(answer));
    let longhaul = start(pair(&unpriced)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_done(&done);
    assert!(
        done.output
            .contains("the price of mystery-1 is not known. Leave max_cost out, or use another model."),
        "{}",
        done.output
    );
    assert!(children(&longhaul, done.state.id).await.is_empty());
}
