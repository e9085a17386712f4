//! Events: nothing is missing and nothing is twice, wherever a stream is cut.

use std::sync::Arc;
use std::time::Duration;

use longhaul::entry::TeamRef;
use longhaul::store::{MemoryStore, SqliteStore, Store};
use longhaul::{Longhaul, Order};
use longhaul_server::events::HubOptions;
use serde_json::json;

use crate::setup::{Server, within};
use crate::sse::{Received, names};

#[tokio::test]
async fn a_stream_can_be_cut_after_any_event() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "many steps", "agent": "worker" })).await;
    let path = format!("/tasks/{id}/events?until=ended");
    let all = server.follow(&path, None).await.rest().await;
    assert_eq!((names(&all)[0], names(&all)[1]), ("submitted", "started"));
    assert_eq!(names(&all)[all.len() - 2..], ["finished", "bye"]);
    assert!(all.len() > 60, "{:?}", names(&all));
    let durable = &all[..all.len() - 1];
    for event in durable {
        assert!(event.id.is_some() && event.data["v"] == 1 && event.data["task"] == json!(id), "{event:?}");
        assert_eq!(event.data["event"], event.name);
    }
    let called = durable.iter().find(|event| event.name == "call").unwrap();
    assert_eq!(called.data["words"]["label"], "calls");
    // The stream, again, from each of its events.
    for (nth, event) in durable.iter().enumerate().take(durable.len() - 1) {
        let rest = server.follow(&path, event.id.as_deref()).await.rest().await;
        assert_eq!(rest, all[nth + 1..], "after {:?}", event.id);
    }
    let last = durable.last().unwrap().id.clone().unwrap();
    let over = server.client.get(server.at(&path)).header("last-event-id", &last).send().await.unwrap();
    assert_eq!(over.status(), 204, "it has everything");
    let by_query = server
        .follow(&format!("{path}&after={}", durable[4].id.as_deref().unwrap()), None)
        .await
        .rest()
        .await;
    assert_eq!(by_query, all[5..]);
}

#[tokio::test]
async fn a_tree_and_a_part_of_it_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let mut everything = server.follow("/events", None).await;
    let lead = server.submit(json!({ "task": "team up, hold" })).await;
    let mut tree = server.follow(&format!("/tasks/{lead}/tree/events?until=ended"), None).await;
    server.gate.add_permits(100);
    let tree_events = tree.rest().await;
    let of = |events: &[Received], task: &str| -> Vec<u64> {
        let own = events.iter().filter(|event| event.data["task"] == json!(task));
        own.map(|event| event.data["seq"].as_u64().unwrap()).collect()
    };
    let tasks = server.ok(&format!("/tasks/{lead}/tree")).await;
    let ids: Vec<String> = tasks["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    for id in &ids {
        let alone = server.follow(&format!("/tasks/{id}/events?until=ended"), None).await.rest().await;
        assert_eq!(of(&tree_events, id), of(&alone, id), "the tree has what the task has");
        let below = server.follow(&format!("/tasks/{id}/tree/events?until=ended"), None).await.rest().await;
        assert!(
            id == &lead || below.iter().all(|event| event.name == "bye" || event.data["task"] == json!(id))
        );
        assert_eq!(of(&below, id), of(&alone, id));
        assert!(alone.iter().all(|event| event.name == "bye" || event.data["root"] == json!(lead)));
    }
    let mut seen = Vec::new();
    while seen.len() < tree_events.len() - 1 {
        seen.push(everything.next().await.unwrap());
    }
    assert_eq!(seen, tree_events[..tree_events.len() - 1], "one order for all readers");
}

/// The client comes back after the server was killed, and after another process wrote.
#[tokio::test]
async fn a_restart_of_the_server_and_writes_of_others_are_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let mut stream = server.follow("/events", None).await;
    let first = server.submit(json!({ "task": "one", "agent": "worker" })).await;
    let mut events = stream.until("finished").await;
    server.longhaul.shutdown().await;
    drop(server);
    // Nobody serves now.
    let store = Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    let other = Longhaul::client(store).await.unwrap();
    let team = TeamRef::Named("crew".into());
    let second = other.submit_to(team.clone(), Order::new("worker", "two")).await.unwrap();
    let server = Server::start(directory.path()).await;
    let mut stream = server.follow("/events", stream.last_id.as_deref()).await;
    events.extend(stream.until("finished").await);
    // Another process writes while the server runs.
    let third = other.submit_to(team, Order::new("worker", "three")).await.unwrap();
    events.extend(stream.until("finished").await);
    for id in [first.parse().unwrap(), second, third] {
        let told = events.iter().filter(|event| event.data["task"] == json!(id));
        let told: Vec<(u64, &str)> =
            told.map(|event| (event.data["seq"].as_u64().unwrap(), event.name.as_str())).collect();
        let whole = server.follow(&format!("/tasks/{id}/events?until=ended"), None).await.rest().await;
        let whole = whole.iter().filter(|event| event.name != "bye");
        let whole: Vec<(u64, &str)> =
            whole.map(|event| (event.data["seq"].as_u64().unwrap(), event.name.as_str())).collect();
        assert_eq!(told, whole);
    }
}

#[tokio::test]
async fn text_is_read_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "talk", "agent": "talker" })).await;
    let mut stream = server.follow(&format!("/tasks/{id}/events?until=ended"), None).await;
    let first = stream.until("text").await;
    assert_eq!(first.last().unwrap().data["text"], "first ");
    let live = server.ok(&format!("/tasks/{id}/transcript")).await;
    let item = live["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&item["kind"], &item["text"], &item["live"]),
        (&json!("said"), &json!("first "), &json!(true))
    );
    server.gate.add_permits(1);
    let rest = stream.rest().await;
    assert_eq!(rest[0].data["text"], "and last", "only what is new");
}

#[tokio::test]
async fn unknown_positions_and_deleted_tasks_reset_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let (gone, kept) =
        (server.submit(json!({ "task": "one" })).await, server.submit(json!({ "task": "hold" })).await);
    server.wait(&gone).await;
    for foreign in ["00000000.0.1", "ffffffff.7.9-2"] {
        let mut stream = server.follow("/events", Some(foreign)).await;
        let reset = stream.next().await.unwrap();
        assert_eq!((reset.name.as_str(), reset.id.is_some()), ("reset", true));
    }
    let mut all = server.follow("/events", None).await;
    let mut of_gone = server.follow(&format!("/tasks/{gone}/events"), None).await;
    let mut of_kept = server.follow(&format!("/tasks/{kept}/tree/events"), None).await;
    of_gone.until("finished").await;
    of_kept.until("started").await;
    let before = of_kept.last_id.clone();
    let id = gone.parse().unwrap();
    let seq = server.longhaul.state(id).await.unwrap().seq;
    server.longhaul.store().delete(vec![(id, seq)]).await.unwrap();
    assert_eq!(names(&all.until("reset").await), ["reset"]);
    assert_eq!(names(&of_gone.rest().await), ["reset"], "and it ends: the task is gone");
    server.problem(server.client.get(server.at(&format!("/tasks/{gone}/events"))), 404, &gone).await;
    server.gate.add_permits(1);
    let rest = of_kept.until("finished").await;
    assert!(!names(&rest).contains(&"reset"), "nothing of it was deleted");
    let mut late = server.follow("/events", before.as_deref()).await;
    assert_eq!(names(&late.until("finished").await)[0], "reset", "it missed what is deleted");
}

/// The last entries of a file that was restored from a copy are not those that the client has seen.
#[tokio::test]
async fn a_memory_store_that_is_new_resets_a_reader() {
    let server = Server::with(Arc::new(MemoryStore::new()), HubOptions::default()).await;
    let id = server.submit(json!({ "task": "one" })).await;
    let mut stream = server.follow(&format!("/tasks/{id}/events?until=ended"), None).await;
    stream.rest().await;
    let other = Server::with(Arc::new(MemoryStore::new()), HubOptions::default()).await;
    let mut again = other.follow("/events", stream.last_id.as_deref()).await;
    assert_eq!(again.next().await.unwrap().name, "reset");
}

/// A reader that does not read falls out of the ring, is told so, and comes back without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_cut_off_with_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    let options = HubOptions { ring_bytes: 1 << 20, ..HubOptions::default() };
    let server = Server::with(store, options).await;
    let id = server.submit(json!({ "task": "hold", "agent": "worker" })).await;
    let path = format!("/tasks/{id}/events");
    let mut slow = server.follow(&path, None).await;
    let mut quick = server.follow(&path, None).await;
    slow.until("started").await;
    let mut seen = quick.until("started").await;
    let text = "x".repeat(400 << 10);
    for nth in 0..60 {
        server.longhaul.send(id.parse().unwrap(), format!("{nth} {text}")).await.unwrap();
        seen.extend(quick.until("letter").await);
    }
    assert!(server.hub.stats().ring_bytes <= (1 << 20) + (500 << 10), "{:?}", server.hub.stats());
    let got = slow.rest().await;
    assert_eq!(got.last().unwrap().name, "lagging", "{:?}", names(&got));
    assert!(got.len() < 60);
    let mut again = server.follow(&path, slow.last_id.as_deref()).await;
    let mut letters = got[..got.len() - 1].to_vec();
    while letters.len() < 60 {
        letters.push(again.next().await.unwrap());
    }
    assert_eq!(letters, seen[seen.len() - 60..]);
    assert_eq!(server.hub.stats().lagged, 1);
}

#[tokio::test]
async fn streams_end_when_the_server_drains() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    let options = HubOptions { heartbeat: Duration::from_millis(20), ..HubOptions::default() };
    let server = Server::with(store.clone(), options).await;
    let id = server.submit(json!({ "task": "hold" })).await;
    let mut one = server.follow(&format!("/tasks/{id}/events"), None).await;
    one.until("started").await;
    let mut all = server.follow("/events", None).await;
    assert!(store.is_read_live(id.parse().unwrap()), "somebody reads its text");
    let path = format!("/wait?tasks={id}&timeout=240");
    let drains = async {
        all.comment().await;
        one.comment().await;
        server.drain.cancel();
    };
    let (waited, ()) = tokio::join!(server.ok(&path), drains);
    assert_eq!(waited["timed_out"], true, "it does not wait for the time-out");
    for stream in [&mut all, &mut one] {
        assert_eq!(names(&stream.rest().await), ["bye"]);
    }
    within(server.hub.ended()).await;
    assert_eq!(server.hub.stats().watchers, 0);
}

#[tokio::test]
async fn the_streams_of_one_client_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path()).await;
    let id = server.submit(json!({ "task": "hold" })).await;
    let mut all = server.follow("/events", None).await;
    let mut one = server.follow(&format!("/tasks/{id}/events"), None).await;
    one.until("started").await;
    server.revoked.cancel();
    for stream in [&mut all, &mut one] {
        assert_eq!(stream.rest().await.last().map(|event| event.name.as_str()), Some("bye"));
    }
    assert!(!server.drain.is_cancelled());
}
