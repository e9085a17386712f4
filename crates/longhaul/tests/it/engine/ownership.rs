//! Whose a task is: a run that has lost its task, or cannot be sure of it, does nothing more. With real processes and real signals
//! in the crash harness.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use longhaul::entry::{Entry, ReleaseReason};
use longhaul::id::{Attempt, Seq, WorkerId};
use longhaul::store::{Batch, ClaimRequest, Clock, Fence, MemoryStore, Store};
use longhaul::testing::reply;
use longhaul::worker::RecoveryPolicy;
use longhaul::{Longhaul, Order, Status, TaskId};
use serde_json::json;
use tokio::time::Instant;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

fn clock() -> Clock {
    let (began, zero) = (Instant::now(), Timestamp::now());
    Clock::from_fn(move || zero + began.elapsed())
}

/// A task in the middle of a call, whose next call would be counted; and how often the call was dropped.
struct Scene {
    longhaul: Longhaul,
    store: Arc<dyn Store>,
    id: TaskId,
    gate: Arc<Gate>,
    later: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn scene(store: Arc<dyn Store>) -> Scene {
    let gate = Arc::new(Gate::new());
    let (later, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at, counts) = (gate.clone(), (later.clone(), dropped.clone()));
    let long = tool("long", move |_, _| {
        let (gate, guard) = (at.clone(), Dropped(counts.1.clone()));
        async move {
            gate.pass().await;
            drop(guard);
            Ok("done".into())
        }
    });
    let count = counts.0;
    let later_tool = tool("later", move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Ok("done".into()) }
    });
    let model = model(|asked| match asked.turn {
        0 => reply().call("long", json!({})),
        1 => reply().call("later", json!({})),
        _ => reply().text("over"),
    });
    let team = team(agent("solo", &model).toolset(long).toolset(later_tool));
    let builder = Longhaul::builder(team).shared_store(store.clone()).recovery(RecoveryPolicy::Ask);
    let longhaul = builder.start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    Scene { longhaul, store, id, gate, later, dropped }
}

/// Another process takes the task.
async fn taken(scene: &Scene) {
    let released = Entry::Released { attempt: Attempt(1), why: ReleaseReason::Lost };
    scene.store.append(Batch::one(scene.id, Fence::Attempt(Attempt(1)), vec![released])).await.unwrap();
    let worker = WorkerId::random();
    scene.store.renew_lease(worker.clone(), Duration::from_secs(3600)).await.unwrap();
    let teams = vec![scene.longhaul.state(scene.id).await.unwrap().team];
    let claim = ClaimRequest { worker, teams, roots: None, fresh_only: false, except: vec![], max: 1 };
    assert_eq!(scene.store.claim(claim).await.unwrap()[0].state.attempt, Attempt(2));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_task_was_taken_ends_its_tools_and_writes_nothing_for_the_new_owner() {
    let scene = scene(Arc::new(MemoryStore::with_clock(clock()))).await;
    taken(&scene).await;
    let written = scene.store.task_state(scene.id).await.unwrap().unwrap().seq;
    assert_eq!(within(scene.longhaul.lost_task()).await, scene.id);
    assert_eq!(scene.dropped.load(Ordering::SeqCst), 1, "the call was ended");
    scene.gate.open(9);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let journal = scene.store.read(scene.id, Seq(0), 99).await.unwrap();
    assert_eq!(journal.last().unwrap().seq, written, "{journal:#?}");
    assert_eq!(scene.later.load(Ordering::SeqCst), 0);
    let state = scene.longhaul.state(scene.id).await.unwrap();
    assert_eq!((state.status, state.attempt), (Status::Running, Attempt(2)));
    within(scene.longhaul.shutdown()).await;
    let state = scene.longhaul.state(scene.id).await.unwrap();
    assert_eq!((state.status, state.attempt), (Status::Running, Attempt(2)), "it is not given back either");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_renew_its_lease_ends_its_runs_before_they_may_be_taken() {
    let mood = Arc::new(Mood::default());
    let store = Arc::new(Moody { inner: MemoryStore::with_clock(clock()), mood: mood.clone(), hints: true });
    let scene = scene(store).await;
    let begun = Instant::now();
    mood.away.store(true, Ordering::SeqCst);
    mood.is_full(true);
    while scene.dropped.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "others may take it now");
    }
    assert!(begun.elapsed() > Duration::from_secs(5), "a store that is slow is waited for");
    within(scene.longhaul.store_failure()).await;
    mood.away.store(false, Ordering::SeqCst);
    mood.is_full(false);
    // It is given back when the store is well again.
    until(&scene.longhaul, scene.id, |state| state.status == Status::Pending).await;
    assert_eq!(scene.later.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_slept_goes_on_if_nobody_took_its_task_and_only_then() {
    let first = scene(Arc::new(MemoryStore::with_clock(clock()))).await;
    tokio::time::advance(Duration::from_secs(100)).await;
    first.gate.open(9);
    assert_eq!(end(&first.longhaul, first.id).await.state.attempt, Attempt(1));
    assert_eq!((first.later.load(Ordering::SeqCst), first.dropped.load(Ordering::SeqCst)), (1, 1));

    let second = scene(Arc::new(MemoryStore::with_clock(clock()))).await;
    taken(&second).await;
    tokio::time::advance(Duration::from_secs(100)).await;
    second.gate.open(9);
    assert_eq!(within(second.longhaul.lost_task()).await, second.id);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(second.later.load(Ordering::SeqCst), 0);
}
