//! What is read of a journal that is looked at, who has heard of an end, and what may be deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::agent::SubAgentDialect;
use longhaul::entry::{Entry, LiveTextKind, TeamRef};
use longhaul::id::{Attempt, Seq, WorkerId};
use longhaul::store::{Batch, ClaimRequest, Fence, MemoryStore, Store, StoreError};
use longhaul::supervisor::TreeGroup;
use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Longhaul, LonghaulError, Order, Status, TaskId, Team};

use crate::engine::moody::{Mood, Moody};

const NOBODY: &str = "nobody";

async fn submitted(longhaul: &Longhaul) -> TaskId {
    longhaul.submit_to(TeamRef::Named(NOBODY.into()), Order::new("worker", "Do it.")).await.unwrap()
}

/// Claims a task as a worker of its own.
async fn claimed(store: &dyn Store, lease: Duration) {
    let worker = WorkerId::from("w");
    store.renew_lease(worker.clone(), lease).await.unwrap();
    let teams = vec![TeamRef::Named(NOBODY.into())];
    let claim = ClaimRequest { worker, teams, roots: None, fresh_only: true, except: vec![], max: 1 };
    assert_eq!(store.claim(claim).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_long_journal_is_read_once_to_be_shown_and_once_to_be_followed() {
    let mood = Arc::new(Mood::default());
    let store = Arc::new(Moody { inner: MemoryStore::new(), mood: mood.clone(), hints: true });
    let longhaul = Longhaul::client(store.clone()).await.unwrap();
    let id = submitted(&longhaul).await;
    claimed(&*store, Duration::from_secs(60)).await;
    let said = || Entry::Said { voice: LiveTextKind::Text, text: "word ".to_owned() };
    for _ in 0..50 {
        let entries = (0..1000).map(|_| said()).collect();
        store.append(Batch::one(id, Fence::Attempt(Attempt(1)), entries)).await.unwrap();
    }
    let all = 50_002;
    let read = || mood.entries_read.swap(0, Ordering::SeqCst);
    read();
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.seq, Seq(all));
    assert_eq!(read() as u64, all);
    let told = longhaul.events(id, Seq(0)).take(50_002).count().await;
    assert_eq!((told, read() as u64), (50_002, all));
}

#[tokio::test]
async fn an_end_is_read_when_somebody_has_looked_gone_on_or_been_told() {
    let launch = || serde_json::json!({ "agent": "scout", "task": "Look." });
    let model = Arc::new(FnModel::new(move |request| match request.messages.len() {
        1 if request.tools.is_empty() => reply().text("Seen."),
        1 => reply().call("run_background_agent", launch()),
        _ => reply().text("Done."),
    }));
    let scout = Agent::builder("scout").model(model.clone()).build().unwrap();
    let lead = Agent::builder("lead").model(model).sub_agent(scout).dialect(SubAgentDialect::Background);
    let lead = lead.build().unwrap();
    let longhaul = Longhaul::builder(Team::new(lead).unwrap()).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "Go.")).await.unwrap();
    longhaul.wait([root]).await.unwrap();

    let unread = async || {
        let groups = longhaul.tree_groups().await.unwrap();
        assert_eq!(groups.len(), 1, "{groups:?}");
        assert!(groups[0].tasks.len() >= 2 && groups[0].open_tasks().next().is_none());
        (longhaul.unread_tasks(&groups[0]).await.unwrap(), groups.into_iter().next().unwrap())
    };
    assert_eq!(unread().await.0, [root], "the parent has heard of its child's end, and nobody of its own");
    longhaul.mark_read(root).await.unwrap();
    longhaul.mark_read(root).await.unwrap();
    let (nothing, old) = unread().await;
    assert_eq!(nothing, []);
    // Whoever goes on from it has read it; what goes on belongs to it.
    let next = longhaul.send(root, "And now?").await.unwrap().to;
    longhaul.wait([next]).await.unwrap();
    let (last, group) = unread().await;
    assert_eq!(last, [next]);

    let refused = longhaul.delete_group(&old).await;
    let Err(LonghaulError::Store(StoreError::JournalMoved { .. } | StoreError::StillNeeded { .. })) = refused
    else {
        panic!("{refused:?}")
    };
    longhaul.delete_group(&group).await.unwrap();
    assert!(longhaul.tree_groups().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_has_not_ended_is_ended_first_also_where_its_process_is_gone() {
    let store = Arc::new(MemoryStore::new());
    let longhaul = Longhaul::client(store.clone()).await.unwrap();
    let abandoned = submitted(&longhaul).await;
    // A lease that is over at once.
    claimed(&*store, Duration::ZERO).await;
    let pending = submitted(&longhaul).await;
    for group in longhaul.tree_groups().await.unwrap() {
        let refused = longhaul.delete_group(&group).await;
        assert!(matches!(refused, Err(LonghaulError::Store(StoreError::NotEnded(_)))), "{refused:?}");
        let ended: TreeGroup = longhaul.stop_group(&group, Duration::from_secs(5)).await.unwrap();
        assert_eq!(ended.tasks[0].status, Status::Cancelled);
        assert!([abandoned, pending].contains(&ended.tasks[0].id));
        longhaul.delete_group(&ended).await.unwrap();
    }
    assert!(longhaul.tree_groups().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_failed_is_tried_again_in_its_place() {
    let model = Arc::new(FnModel::new(|request| match request.messages.len() {
        3.. => reply().text(format!("{} messages", request.messages.len())),
        _ => reply().text("One."),
    }));
    let agent = Agent::builder("worker").model(model).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(agent).unwrap()).start().await.unwrap();
    let first = longhaul.submit(Order::new("worker", "One?")).await.unwrap();
    longhaul.wait([first]).await.unwrap();
    let refused = longhaul.retry(first).await;
    assert!(
        matches!(refused, Err(LonghaulError::NotFailed { status: Status::Completed, .. })),
        "{refused:?}"
    );

    // One that goes on from another, and is stopped before it can say anything.
    let other = Longhaul::client(longhaul.store().clone()).await.unwrap();
    let (session, _) = longhaul.open_session("Stay.").await.unwrap();
    other.stop(session).await.unwrap();
    longhaul.wait([session]).await.unwrap();
    let again = other.retry(session).await.unwrap();
    let state = other.snapshot(again).await.unwrap().state;
    assert_eq!(
        (state.retries, state.parent, state.root, state.interactive),
        (Some(session), None, again, true)
    );
    longhaul.stop(again).await.unwrap();
    longhaul.wait([again]).await.unwrap();

    let next = longhaul.send(session, "Two?").await.unwrap().to;
    longhaul.stop(next).await.unwrap();
    longhaul.wait([next]).await.unwrap();
    let third = longhaul.retry(next).await.unwrap();
    let state = longhaul.snapshot(third).await.unwrap().state;
    assert_eq!((state.continues, state.retries), (Some(session), Some(next)), "it has the same conversation");
}
