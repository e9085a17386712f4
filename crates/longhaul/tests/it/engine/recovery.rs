//! Going on after an end: of a process, of a lease, of a store that fails. Real kills are in the crash harness.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::{Entry, EntryCodecError, FailureKind, Outcome, StopCause, StopRequest};
use longhaul::id::{Seq, TaskId, WorkerId};
use longhaul::store::{Batch, ClaimRequest, Clock, MemoryStore, SqliteStore, Store, TaskFilter};
use longhaul::testing::reply;
use longhaul::tool::ToolEffects;
use longhaul::worker::RecoveryPolicy;
use longhaul::{Longhaul, Order, Status};
use serde_json::json;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

/// A clock that goes with tokio's, so that leases end when a test says so.
fn clock() -> Clock {
    let (began, zero) = (tokio::time::Instant::now(), Timestamp::now());
    Clock::from_fn(move || zero + began.elapsed())
}

/// Demand 1 and 24: what is done is not done again.
#[tokio::test]
async fn dropped_without_a_shutdown_and_opened_again_all_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.db");
    let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let build = || {
        let (at, count) = (gate.clone(), ran.clone());
        let once = tool("once", move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok("written".into()) }
        });
        let model = slow(move |asked| {
            let gate = at.clone();
            async move {
                match (asked.agent.as_str(), asked.turn) {
                    ("lead", 0) => launch(reply().call("once", json!({})), "x"),
                    ("lead", _) => reply().text(asked.said[2..].join("|")),
                    _ => {
                        gate.pass().await;
                        reply().text("child's result")
                    }
                }
            }
        });
        team(pair(&model).toolset(once))
    };
    let first = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    let id = first.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&first, id, |state| state.waiting.is_some()).await;
    drop(first);
    let second = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    gate.came(1).await;
    gate.open(2);
    let done = end(&second, id).await;
    assert_done(&done);
    assert!(done.output.contains("child's result"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 1, "a finished step is not run again");
    assert!(done.state.attempt.0 >= 2, "it was taken up again");
    assert_eq!(letters(&second, id).await.len(), 1);
    second.shutdown().await;
}

/// Promise 3: a call that was begun is not made again, unless the tool says that it may be.
#[tokio::test(start_paused = true)]
async fn an_interrupted_call_is_told_as_interrupted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let build = || {
        let (at, count) = (gate.clone(), ran.clone());
        let risky = tool("risky", move |_, _| {
            let gate = at.clone();
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                gate.pass().await;
                Ok("done".into())
            }
        });
        let model = model(|asked| match asked.turn {
            0 => reply().call("risky", json!({})),
            _ => reply().text(asked.last()),
        });
        team(agent("solo", &model).toolset(risky))
    };
    let first = Longhaul::builder(build()).shared_store(store.clone()).start().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    drop(first);
    let second = Longhaul::builder(build()).shared_store(store).start().await.unwrap();
    let done = end(&second, id).await;
    assert!(done.output.contains("interrupted") && done.output.contains("unknown"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_the_step_end_and_a_wait_is_waited_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let gate = Gate::new();
    let build = || {
        let model = gate.model(move |gate, asked| async move {
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "x"})),
                ("lead", _) => reply().text(asked.last()),
                _ => {
                    gate.pass().await;
                    reply().text("from below")
                }
            }
        });
        team(pair(&model))
    };
    let first = Longhaul::builder(build()).shared_store(store.clone()).start().await.unwrap();
    let id = first.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&first, id, |state| state.waiting.is_some()).await;
    within(first.shutdown()).await;
    assert_eq!(first.count_running().await.unwrap(), 0);
    let second = Longhaul::builder(build()).shared_store(store).start().await.unwrap();
    gate.came(1).await;
    gate.open(2);
    assert_eq!(without_note(&end(&second, id).await.output), "t:from below");
    assert_eq!(children(&second, id).await.len(), 1, "the same child");
}

/// A process is gone for good: nobody gave anything back.
async fn abandoned(policy: RecoveryPolicy) -> (Longhaul, TaskId) {
    let store = Arc::new(MemoryStore::with_clock(clock()));
    let model = model(|asked| reply().text(format!("after {}", asked.said.len())));
    let home = team(agent("solo", &model));
    let client = Longhaul::client(store.clone()).await.unwrap();
    let id = client.submit_to(home.reference().clone(), Order::new("solo", "go")).await.unwrap();
    let dead = WorkerId::random();
    store.renew_lease(dead.clone(), Duration::from_secs(15)).await.unwrap();
    let claim = ClaimRequest {
        worker: dead,
        teams: vec![home.reference().clone()],
        roots: None,
        fresh_only: false,
        except: vec![],
        max: 1,
    };
    let claimed = store.claim(claim).await.unwrap().remove(0);
    let said = Entry::Said { voice: longhaul::entry::LiveTextKind::Text, text: "half".into() };
    store
        .append(Batch::one(id, longhaul::store::Fence::Attempt(claimed.state.attempt), vec![said]))
        .await
        .unwrap();
    let longhaul = Longhaul::builder(home).shared_store(store).recovery(policy).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Running, "its owner may be alive");
    tokio::time::sleep(Duration::from_secs(20)).await;
    (longhaul, id)
}

#[tokio::test(start_paused = true)]
async fn what_is_found_unfinished_is_resumed_or_left_or_failed() {
    let (longhaul, id) = abandoned(RecoveryPolicy::Resume).await;
    assert_eq!(end(&longhaul, id).await.output, "after 1");
    let (longhaul, id) = abandoned(RecoveryPolicy::Ask).await;
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Pending);
    let (longhaul, id) = abandoned(RecoveryPolicy::Fail).await;
    let failed = end(&longhaul, id).await;
    let Some(Outcome::Failed { failure, partial }) = failed.outcome else { panic!("{:?}", failed.state) };
    assert_eq!((failure.kind, &*partial), (FailureKind::LostWorker, "half"), "partial output is kept");
}

/// The machine slept: our own lease is over, but we are not gone.
#[tokio::test(start_paused = true)]
async fn after_a_sleep_of_the_machine_a_worker_does_not_take_its_own_tasks_away() {
    for _ in 0..20 {
        let (gate, model) = gated(move |gate, _| async move {
            gate.pass().await;
            reply().text("x")
        });
        let store = MemoryStore::with_clock(clock());
        let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        tokio::time::advance(Duration::from_secs(100)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        gate.open(9);
        let done = end(&longhaul, id).await;
        assert_eq!(done.state.attempt.0, 1, "nobody took it away");
        within(longhaul.shutdown()).await;
    }
}

/// Draining may take as long as a tool does; as long as it does, the tasks are not abandoned.
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_while_draining() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock()));
    let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let build = || {
        let (at, count) = (gate.clone(), ran.clone());
        let long = tool("long", move |_, _| {
            let gate = at.clone();
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                gate.pass().await;
                Ok("done".into())
            }
        });
        let model = model(|asked| match asked.turn {
            0 => reply().call("long", json!({})),
            _ => reply().text(asked.last()),
        });
        team(agent("solo", &model).toolset(long))
    };
    let first = Longhaul::builder(build()).shared_store(store.clone()).start().await.unwrap();
    let id = first.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    first.drain();
    let second = Longhaul::builder(build()).shared_store(store).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(first.snapshot(id).await.unwrap().state.attempt.0, 1, "its owner is alive");
    gate.open(1);
    assert_eq!(end(&second, id).await.output, "t:done", "the other goes on with the result");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    within(first.shutdown()).await;
}

/// Promise 7: our own lease covers a task that the store did not let us end; it must not lie there for ever.
#[tokio::test(start_paused = true)]
async fn a_task_that_a_failing_store_left_behind_is_taken_up_when_the_store_works_again() {
    let (mood, gate) = (Arc::<Mood>::default(), Gate::new());
    let model = gate.model(move |gate, _| async move {
        gate.pass().await;
        reply().text("in the end")
    });
    let store = Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true };
    let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    mood.is_full(true);
    gate.open(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Running);
    mood.is_full(false);
    gate.open(1);
    assert_eq!(end(&longhaul, id).await.output, "in the end");
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_is_adopted_is_taken_up_at_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let home = team(agent("solo", &model(|_| reply().text("x"))));
    let client = Longhaul::client(store.clone()).await.unwrap();
    let id = client.submit_to(home.reference().clone(), Order::new("solo", "go")).await.unwrap();
    let longhaul = Longhaul::builder(home).shared_store(store).own_trees_only().start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Pending, "it is another's");
    let began = tokio::time::Instant::now();
    longhaul.adopt_tree(id);
    assert_done(&end(&longhaul, id).await);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Promise 6: a journal that cannot be read has its own word, and the task ends with it instead of hanging.
#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_read_any_more_fails_the_task_with_its_own_word() {
    {
        let why = EntryCodecError::Unreadable("half a line".to_owned());
        let (mood, gate) = (Arc::<Mood>::default(), Gate::new());
        let model = gate.model(move |gate, asked| async move {
            if asked.turn == 0 {
                return reply().text("so far").call("nothing", json!({}));
            }
            gate.pass().await;
            reply().text("never said")
        });
        let store = Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true };
        let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        let said = why.to_string();
        *mood.garbled.lock().unwrap() = Some(why);
        let letter = Entry::Letter(Box::new(longhaul::entry::Letter::new(
            longhaul::id::LetterId::random(),
            longhaul::entry::Sender::Person,
            "what makes it look",
        )));
        let fence = longhaul::store::Fence::Anyone;
        longhaul.store().append(Batch::one(id, fence, vec![letter])).await.unwrap();
        within(async {
            while longhaul.store().task_state(id).await.unwrap().unwrap().status == Status::Running {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
        *mood.garbled.lock().unwrap() = None;
        let failed = longhaul.snapshot(id).await.unwrap();
        let Some(Outcome::Failed { failure, partial }) = failed.outcome else { panic!("{:?}", failed.state) };
        assert_eq!((failure.kind, &*partial), (FailureKind::Journal, "so far"));
        assert!(failure.message.contains(&said), "{}", failure.message);
    }
}

/// Promise 5: a stop whose way to the children is barred is not forgotten half way.
#[tokio::test(start_paused = true)]
async fn a_stop_that_cannot_reach_the_children_waits_until_it_can() {
    let (mood, gate) = (Arc::<Mood>::default(), Gate::new());
    let model = gate.model(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply(), "x"),
            ("lead", _) => reply().text("they work"),
            _ => {
                gate.pass().await;
                reply().text("x")
            }
        }
    });
    let store = Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true };
    let longhaul = Longhaul::builder(team(pair(&model))).store(store).start().await.unwrap();
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    let child = children(&longhaul, id).await[0].id;
    mood.is_blind(true);
    // The wish alone, as another process writes it down that dies before it has told the children.
    let stop = Entry::StopRequested(StopRequest { cause: StopCause::Person, note: None });
    let fence = longhaul::store::Fence::Anyone;
    longhaul.store().append(Batch::one(id, fence, vec![stop])).await.unwrap();
    assert!(within(longhaul.store_failure()).await.to_string().contains("worn out"));
    let store = longhaul.store();
    assert_eq!(
        store.task_state(id).await.unwrap().unwrap().status,
        Status::Running,
        "it has not ended before them"
    );
    mood.is_blind(false);
    assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    assert_eq!(end(&longhaul, child).await.state.status, Status::Cancelled, "nobody is left running");
}

/// Demand 18: a run that is over holds nothing of its conversation.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_over_frees_what_it_held() {
    let held = Arc::new(());
    let keep = held.clone();
    let heavy = tool("heavy", move |_, _| {
        let mine = keep.clone();
        async move {
            tokio::task::yield_now().await;
            drop(mine);
            Ok("x".repeat(40_000).into())
        }
    });
    let model = model(|asked| match asked.turn {
        0..5 => reply().call("heavy", json!({"n": asked.turn})),
        _ => reply().text("x"),
    });
    let longhaul = start(agent("solo", &model).toolset(heavy)).await;
    for _ in 0..20 {
        assert_done(&ask(&longhaul, Order::new("solo", "go")).await);
    }
    within(longhaul.shutdown()).await;
    assert_eq!(Arc::strong_count(&held), 2, "the test's and the tool's own: no call is left");
}

/// "A hint may be lost": then all takes longer, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn without_any_hint_tasks_are_run_told_and_stopped_all_the_same() {
    let deaf = tool("deaf", |_, context| async move {
        context.cancel.cancelled().await;
        Ok("ok".into())
    });
    let model = slow(|asked| async move {
        match (asked.agent.as_str(), asked.order.as_str(), asked.turn) {
            ("lead", "team", 0) => launch(reply(), "x"),
            ("lead", "model", _) => std::future::pending().await,
            ("lead", "tool", 0) => reply().call("deaf", json!({})),
            _ => reply().text(asked.last()),
        }
    });
    let store = Moody { inner: MemoryStore::with_clock(clock()), mood: Arc::default(), hints: false };
    let longhaul = Longhaul::builder(team(pair(&model).toolset(deaf))).store(store).start().await.unwrap();
    assert!(ask(&longhaul, Order::new("lead", "team")).await.output.contains("u:x"));
    for busy in ["model", "tool"] {
        let id = longhaul.submit(Order::new("lead", busy)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        longhaul.stop(id).await.unwrap();
        assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled, "{busy}");
    }
    within(longhaul.shutdown()).await;
}

/// Many trees at once on a real file, with letters, waits and stops: each task ends once, each end is told once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_on_disk_every_task_ends_once_and_every_end_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => (0..4).fold(reply(), |reply, n| launch(reply, &n.to_string())),
        ("lead", 1) if asked.order.ends_with('1') => wait_for(&asked.id()),
        _ => reply().text("x"),
    });
    let store = SqliteStore::open(dir.path().join("longhaul.db")).unwrap();
    let limits = longhaul::dispatch::TaskLimits::default().running(3);
    let longhaul = Longhaul::builder(team(pair(&model))).store(store).limits(limits).start().await.unwrap();
    let mut roots = Vec::new();
    for n in 0..12 {
        let id = longhaul.submit(Order::new("lead", format!("tree {n}"))).await.unwrap();
        roots.push(id);
        match n % 4 {
            2 => drop(longhaul.send(id, "hear").await.unwrap()),
            3 => longhaul.stop(id).await.unwrap(),
            _ => {}
        }
    }
    within(longhaul.wait(roots)).await.unwrap();
    let all = longhaul.list(TaskFilter::default()).await.unwrap();
    within(longhaul.wait(all.iter().map(|task| task.id))).await.unwrap();
    for task in all {
        let ends = journal(&longhaul, task.id).await;
        assert_eq!(ends.iter().filter(|r| matches!(r.entry, Entry::Finished(_))).count(), 1, "{}", task.id);
        if let Some(parent) = task.parent {
            let told = letters(&longhaul, parent).await;
            assert_eq!(told.iter().filter(|letter| letter.ending == Some(task.id)).count(), 1);
        }
    }
    longhaul.shutdown().await;
}

/// Decision 0006: what is owed to the journal is in it soon although the model thinks on, and before the task is given
/// back; so whoever goes on does not call again.
#[tokio::test(start_paused = true)]
async fn a_result_that_may_be_got_again_is_written_down_soon_and_at_the_latest_with_a_drain() {
    for wait in [Duration::from_secs(2), Duration::ZERO] {
        let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let build = |held: bool| {
            let (gate, ran) = (gate.clone(), ran.clone());
            let model = slow(move |asked| {
                let gate = gate.clone();
                async move {
                    match asked.turn {
                        0 => reply().call("look", json!({})),
                        _ if held => {
                            gate.pass().await;
                            reply().text("too late")
                        }
                        _ => reply().text("seen"),
                    }
                }
            });
            let look = tool_of(ToolEffects::READ_ONLY, "look", move |_, _| {
                ran.fetch_add(1, Ordering::SeqCst);
                async { Ok("a tree".into()) }
            });
            Longhaul::builder(team(agent("solo", &model).toolset(look))).shared_store(store.clone())
        };
        let first = build(true).start().await.unwrap();
        let id = first.submit(Order::new("solo", "go")).await.unwrap();
        gate.came(1).await;
        let returned = async || {
            let journal = store.read(id, Seq(0), 100).await.unwrap();
            journal.iter().filter(|r| matches!(r.entry, Entry::Returned(_))).count()
        };
        tokio::time::sleep(wait).await;
        if !wait.is_zero() {
            assert_eq!(returned().await, 1, "the model has thought for long enough");
        }
        first.shutdown().await;
        assert_eq!(returned().await, 1);
        let second = build(false).start().await.unwrap();
        let done = end(&second, id).await;
        assert_eq!(done.output, "seen");
        assert_eq!(ran.load(Ordering::SeqCst), 1, "a finished step is not run again");
        second.shutdown().await;
    }
}
