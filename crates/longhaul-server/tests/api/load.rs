//! Many watchers, watchers that never read, and long lists. `longhaul serve` is measured in `serve_load.rs` of the command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use longhaul::store::SqliteStore;
use longhaul_server::events::HubOptions;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::setup::Server;
use crate::sse::Received;
use crate::stored_tasks::fill;

/// How large a load is.
struct Load {
    tasks: usize,
    watchers: usize,
    chunks: usize,
    pause: Duration,
}

/// Every watcher gets every event of its task once and in order; every other one loses its connection on the way.
async fn watch_all(load: Load) {
    let directory = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::start(directory.path()).await);
    let mut ids = Vec::new();
    for _ in 0..load.tasks {
        let task = format!("pace {} {}", load.chunks, load.pause.as_millis());
        ids.push(server.submit(json!({ "task": task, "agent": "pacer" })).await);
    }
    let begun = Instant::now();
    let watchers = (0..load.watchers).map(|nth| {
        let (server, id) = (server.clone(), ids[nth % ids.len()].clone());
        let kind = if nth % 3 == 0 { "tree/events" } else { "events" };
        let path = format!("/tasks/{id}/{kind}?until=ended");
        tokio::spawn(async move {
            let mut stream = server.follow(&path, None).await;
            let mut events: Vec<Received> = Vec::new();
            let cut = 1 + nth / 2 % 40;
            while let Some(event) = stream.next().await {
                let (is_last, is_end) = (event.name == "bye", event.name == "finished");
                events.push(event);
                if is_last {
                    break;
                }
                // Whoever has seen the end has nothing to come back for.
                if nth % 2 == 0 && events.len() == cut && !is_end {
                    stream = server.follow(&path, stream.last_id.as_deref()).await;
                }
            }
            (nth, events)
        })
    });
    let watchers: Vec<_> = watchers.collect();
    let (mut count, mut whole) = (0, vec![None; ids.len()]);
    for watcher in watchers {
        let (nth, events) = watcher.await.unwrap();
        count += events.len();
        let same = |events: &[Received]| -> Vec<(Option<String>, String)> {
            events.iter().map(|event| (event.id.clone(), event.name.clone())).collect()
        };
        let got = same(&events);
        let text: String = events
            .iter()
            .filter(|event| event.name == "text")
            .map(|event| event.data["text"].as_str().unwrap())
            .collect();
        let expected: String = (0..load.chunks).map(|chunk| format!("{chunk} ")).collect();
        assert_eq!(text, expected, "watcher {nth}");
        // All watchers of a task got the same.
        let first = whole[nth % ids.len()].get_or_insert_with(|| got.clone());
        assert_eq!(&got, first, "watcher {nth}");
    }
    assert_eq!(server.hub.stats().lagged, 0);
    let seconds = begun.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!(
        "{} watchers of {} tasks: {count} events in {seconds:.1} s, {rate:.0} a second",
        load.watchers, load.tasks
    );
    println!("{:?}", server.hub.stats());
    server.longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watchers_miss_nothing() {
    watch_all(Load { tasks: 6, watchers: 60, chunks: 20, pause: Duration::from_millis(20) }).await;
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Watchers that never read keep nothing but their sockets.
async fn never_read(watchers: usize, letters: usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    let server = Server::with(store, HubOptions { ring_bytes: 2 << 20, ..HubOptions::default() }).await;
    let id = server.submit(json!({ "task": "hold", "agent": "worker" })).await;
    let mut reader = server.follow(&format!("/tasks/{id}/events"), None).await;
    reader.until("started").await;
    let mut sockets = Vec::new();
    for _ in 0..watchers {
        let mut socket =
            tokio::net::TcpStream::connect(server.url.trim_start_matches("http://")).await.unwrap();
        let request = format!("GET /api/v1/tasks/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    while server.hub.stats().watchers < watchers + 1 {
        tokio::task::yield_now().await;
    }
    let before = resident();
    let text = "x".repeat(200 << 10);
    for nth in 0..letters {
        server.longhaul.send(id.parse().unwrap(), format!("{nth} {text}")).await.unwrap();
        let got = reader.until("letter").await;
        assert_eq!(got.len(), 1, "who reads gets everything");
    }
    let grown = resident().saturating_sub(before) >> 20;
    let told = (letters * text.len()) >> 20;
    println!("{watchers} watchers that never read, {told} MiB of events: {grown} MiB more memory");
    println!("{:?}", server.hub.stats());
    assert!(server.hub.stats().ring_bytes <= (2 << 20) + (300 << 10));
    // All of them together would be `told` times `watchers`.
    assert!(grown < 64 + told * watchers / 5, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_never_read_are_not_buffered() {
    never_read(8, 60).await;
}

async fn list_pages(tasks: usize, requests: usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    fill(&*store, tasks).await;
    let server = Server::with(store, HubOptions::default()).await;
    // Cursors all over the list.
    let (mut cursors, mut cursor) = (vec![String::new()], String::new());
    loop {
        let page = server.ok(&format!("/tasks?limit=200{cursor}")).await;
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
        cursors.push(cursor.clone());
    }
    assert_eq!(cursors.len(), tasks.div_ceil(200));
    for query in [
        "",
        "roots=true",
        "roots=true&status=cancelled",
        "status=cancelled",
        "agent=worker",
        "status=open",
        "needs_you=true",
    ] {
        let mut times = Vec::new();
        for nth in 0..requests {
            let path = format!("/tasks?{query}&limit=50{}", cursors[nth * 7 % cursors.len()]);
            let begun = Instant::now();
            server.ok(&path).await;
            times.push(begun.elapsed());
        }
        times.sort();
        let p99 = times[times.len() * 99 / 100];
        println!("GET /tasks?{query} with {tasks} tasks: p50 {:?}, p99 {p99:?}", times[times.len() / 2]);
    }
    let begun = Instant::now();
    let all = futures::stream::iter(0..requests * 4).map(|_| server.ok("/tasks?roots=true&limit=50"));
    all.buffer_unordered(16).for_each(|_| async {}).await;
    let rate = (requests * 4) as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} lists of 50 a second, 16 at once, with the client in the same process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_has_every_page() {
    list_pages(600, 4).await;
}
