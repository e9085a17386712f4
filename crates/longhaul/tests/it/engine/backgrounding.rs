//! A person does not want to wait: blocking delegation goes on in the background.

use longhaul::entry::{Entry, EntryKind};
use longhaul::store::SqliteStore;
use longhaul::testing::reply;
use longhaul::{Longhaul, Order, Status, Team};
use serde_json::json;

use crate::engine::stage::*;

/// A lead that waits for a worker, which waits for the gate; then it says what it was told.
fn waits(gate: &Gate) -> Team {
    let model = gate.model(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "x"})),
            ("lead", 1) if asked.last().contains("task_ended") => reply().text("too soon"),
            ("lead", 1) => reply().text(asked.last()),
            ("lead", _) => reply().text(asked.said[2..].join("|")),
            _ => {
                gate.pass().await;
                reply().text("from below")
            }
        }
    });
    team(pair(&model))
}

#[tokio::test(start_paused = true)]
async fn a_blocking_call_returns_at_once_and_the_result_comes_as_a_letter() {
    let gate = Gate::new();
    let longhaul = Longhaul::builder(waits(&gate)).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&longhaul, root, |state| state.waiting.is_some() && !state.calling.is_empty()).await;
    assert!(longhaul.background(root).await.unwrap());
    // It has gone on while the worker still works: it has answered, and waits for the letter.
    until(&longhaul, root, |state| state.turns == 2 && state.calling.is_empty()).await;
    let said = longhaul.snapshot(root).await.unwrap().output;
    let child = longhaul.list(longhaul::store::TaskFilter::children(root)).await.unwrap().remove(0);
    assert_eq!(child.status, Status::Running, "nothing was stopped");
    assert!(said.contains(&child.id.to_string()) && said.contains("goes on in the background"), "{said}");
    gate.open(1);
    let done = end(&longhaul, root).await;
    assert_done(&done);
    assert!(done.output.contains("from below"), "{}", done.output);
    assert_eq!(letters(&longhaul, root).await.len(), 1, "the end of the child is told, once");
    let returned: Vec<_> = journal(&longhaul, root)
        .await
        .into_iter()
        .filter_map(|record| match record.entry {
            Entry::Returned(returned) => Some(returned),
            _ => None,
        })
        .collect();
    assert!(!returned[0].is_error && returned[0].collected.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_in_no_call_is_left_alone() {
    let gate = Gate::new();
    let longhaul = Longhaul::builder(waits(&gate)).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    let child = longhaul.list(longhaul::store::TaskFilter::children(root)).await.unwrap().remove(0).id;
    assert!(!longhaul.background(child).await.unwrap(), "it asks its model");
    gate.open(1);
    let done = end(&longhaul, root).await;
    assert_eq!(without_note(&done.output), "t:from below");
    assert!(!longhaul.background(root).await.unwrap(), "it has ended");
    let kinds: Vec<EntryKind> =
        journal(&longhaul, root).await.iter().map(|record| record.entry.kind()).collect();
    assert!(!kinds.contains(&EntryKind::Backgrounded));
}

/// The wish is on disk when it is acknowledged: whether the process that dies then has heard of it or not changes nothing.
#[tokio::test]
async fn it_holds_though_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.db");
    let gate = Gate::new();
    let first =
        Longhaul::builder(waits(&gate)).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    let root = first.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    until(&first, root, |state| state.waiting.is_some() && !state.calling.is_empty()).await;
    assert!(first.background(root).await.unwrap());
    drop(first);
    let second =
        Longhaul::builder(waits(&gate)).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    // The first may have got as far before it was gone.
    until(&second, root, |state| state.attempt.0 >= 2 && state.turns == 2 && state.calling.is_empty()).await;
    let told = second.snapshot(root).await.unwrap();
    assert!(told.output.contains("goes on in the background"), "{}", told.output);
    // Of both processes' workers one passes.
    gate.open(2);
    let done = end(&second, root).await;
    assert!(done.output.contains("from below"), "{}", done.output);
    second.shutdown().await;
}
