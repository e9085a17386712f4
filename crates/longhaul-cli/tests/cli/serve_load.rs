//! Many clients of `longhaul serve` as it is, guard and tokens included. The `long_…` tests print what they measure; run them
//! with `cargo test --release -p longhaul-cli --test cli long_serve -- --ignored --nocapture --test-threads 1`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::kit::{Kit, TIMEOUT};
use crate::serve::Server;
use crate::stored_tasks::fill;

/// A client with a connection of its own, which it keeps.
struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    token: Arc<str>,
}

impl Client {
    async fn connect(address: SocketAddr, token: &Arc<str>) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream), address, token: token.clone() }
    }

    async fn send(&mut self, line: &str, headers: &str, body: &str) {
        let (address, token, length) = (self.address, &self.token, body.len());
        let request = format!(
            "{line}\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: \
             {length}\r\n{headers}\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(TIMEOUT, self.stream.read_line(&mut line)).await.unwrap();
        (read.unwrap_or(0) > 0).then(|| line.trim_end().to_owned())
    }

    /// The status, and the length of the body if it is known.
    async fn status_and_length(&mut self) -> (u16, Option<usize>) {
        let status = self.line().await.unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = None;
        while let Some(line) = self.line().await.filter(|line| !line.is_empty()) {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.parse().ok();
            }
        }
        (status, length)
    }

    async fn ask(&mut self, method_and_path: &str, body: &str) -> Value {
        self.send(&format!("{method_and_path} HTTP/1.1"), "", body).await;
        let (status, length) = self.status_and_length().await;
        let mut bytes = vec![0; length.unwrap()];
        self.stream.read_exact(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!((200..300).contains(&status), "{method_and_path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn submit(&mut self, task: &str) -> String {
        let made = self.ask("POST /api/v1/tasks", &json!({ "task": task }).to_string()).await;
        made["id"].as_str().unwrap().to_owned()
    }
}

/// An event: its id, its name and its text.
type Seen = (String, String, String);

/// Watches a task to its end, and comes back once after so many events.
async fn watch(
    address: SocketAddr,
    token: Arc<str>,
    path: String,
    comes_back_after: Option<usize>,
) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut comes_back_after = comes_back_after;
    'connection: loop {
        let mut client = Client::connect(address, &token).await;
        let last = seen.last().map(|(id, ..)| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // In HTTP/1.0 the body is not cut into chunks.
        client.send(&format!("GET /api/v1/tasks/{path}?until=ended HTTP/1.0"), &last, "").await;
        assert_eq!(client.status_and_length().await.0, 200);
        let (mut id, mut name) = (String::new(), String::new());
        while let Some(line) = client.line().await {
            match line.split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("data", _)) if name == "bye" => return seen,
                Some(("data", data)) => {
                    assert!(!["reset", "lagging"].contains(&name.as_str()), "{name}: {data}");
                    let data: Value = serde_json::from_str(data).unwrap();
                    let text = data["text"].as_str().unwrap_or_default().to_owned();
                    let is_end = name == "finished";
                    seen.push((id.clone(), name.clone(), text));
                    if comes_back_after == Some(seen.len()) && !is_end {
                        comes_back_after = None;
                        continue 'connection;
                    }
                }
                _ => {}
            }
        }
        panic!("the stream ended without a word after {:?}", seen.last());
    }
}

/// The memory of a process, in MiB.
fn resident(server: &Server) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.process.pid())).unwrap();
    (statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096) >> 20
}

fn many_files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(16_384), hard).unwrap();
}

fn on_threads<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

/// A server whose tasks say `chunks` numbers, one each `pace`.
fn paced(chunks: usize, pace: Duration) -> (Kit, Server, String) {
    let kit = Kit::new();
    let text: String = (0..chunks).map(|number| format!("{number:04} ")).collect();
    let team = "agents: { root: { model: play, limits: { running: 128 } } }\n";
    let play = format!(
        "agents:\n  root:\n    cases:\n      - when: hold\n        turns: [{{ delay: 30m, text: Never. }}]\n      - turns: [{{ chunk: 5, \
         pace: {}ms, text: \"{text}\" }}]\n",
        pace.as_millis()
    );
    kit.plays("team.yaml", team, &play);
    let server = Server::start(&kit);
    (kit, server, text)
}

/// Every watcher gets every event of its task once and in order; every other one comes back on the way.
fn watch_all(tasks: usize, watchers: usize, chunks: usize, pace: Duration) {
    many_files();
    let (_kit, server, text) = paced(chunks, pace);
    let (address, token) = (server.address, Arc::<str>::from(server.token.as_str()));
    let (count, seconds) = on_threads(async {
        let mut client = Client::connect(address, &token).await;
        let mut ids = Vec::new();
        for number in 0..tasks {
            ids.push(client.submit(&format!("task {number}")).await);
        }
        let begun = Instant::now();
        let watchers: Vec<_> = (0..watchers)
            .map(|nth| {
                let kind = if nth % 3 == 0 { "tree/events" } else { "events" };
                let path = format!("{}/{kind}", ids[nth % tasks]);
                let comes_back_after = (nth % 2 == 0).then_some(1 + nth / 2 % 40);
                tokio::spawn(watch(address, token.clone(), path, comes_back_after))
            })
            .collect();
        let (mut count, mut first) = (0, vec![None; tasks]);
        for (nth, watcher) in watchers.into_iter().enumerate() {
            let seen = watcher.await.unwrap();
            count += seen.len();
            let streamed: String =
                seen.iter().filter(|(_, name, _)| name == "text").map(|seen| &*seen.2).collect();
            assert_eq!(streamed, text, "watcher {nth}");
            let mut ids: Vec<&str> =
                seen.iter().map(|(id, ..)| id.as_str()).filter(|id| !id.is_empty()).collect();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), all, "watcher {nth}: an event came twice");
            assert_eq!(first[nth % tasks].get_or_insert_with(|| seen.clone()), &seen, "watcher {nth}");
        }
        (count, begun.elapsed().as_secs_f64())
    });
    println!(
        "{watchers} watchers of {tasks} tasks: {count} events in {seconds:.1} s, {:.0} a second; the server has {} MiB",
        count as f64 / seconds,
        resident(&server)
    );
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn watchers_of_the_real_server_miss_nothing() {
    watch_all(20, 60, 30, Duration::from_millis(80));
}

#[test]
#[ignore = "takes a minute"]
fn long_serve_a_thousand_watchers_of_a_hundred_tasks_miss_nothing() {
    watch_all(100, 1000, 240, Duration::from_millis(250));
}

/// Watchers that never read cost little memory, and are cut off in the end.
#[test]
#[ignore = "takes two minutes"]
fn long_serve_fifty_watchers_that_never_read_are_not_buffered() {
    const WATCHERS: usize = 50;
    const LETTERS: usize = 250;
    const LETTER: usize = 200 << 10;
    many_files();
    let (_kit, server, _) = paced(1, Duration::ZERO);
    let (address, token) = (server.address, Arc::<str>::from(server.token.as_str()));
    on_threads(async {
        let mut client = Client::connect(address, &token).await;
        let id = client.submit("hold").await;
        let mut idle = Vec::new();
        for _ in 0..WATCHERS {
            let mut watcher = Client::connect(address, &token).await;
            watcher.send(&format!("GET /api/v1/tasks/{id}/events HTTP/1.0"), "", "").await;
            assert_eq!(watcher.status_and_length().await.0, 200, "it is there, and reads no more");
            idle.push(watcher);
        }
        let mut reader = Client::connect(address, &token).await;
        reader.send(&format!("GET /api/v1/tasks/{id}/events HTTP/1.0"), "", "").await;
        let reads = tokio::spawn(async move {
            let mut letters = 0;
            while letters < LETTERS {
                letters += usize::from(reader.line().await.unwrap() == "event: letter");
            }
        });
        let (before, text) = (resident(&server), "x".repeat(LETTER));
        let mut most = before;
        for number in 0..LETTERS {
            let letter = json!({ "text": format!("{number} {text}") }).to_string();
            client.ask(&format!("POST /api/v1/tasks/{id}/letters"), &letter).await;
            most = most.max(resident(&server));
        }
        reads.await.unwrap();
        let (grown, told) = (most - before, (LETTERS * LETTER) >> 20);
        println!(
            "{WATCHERS} watchers that never read, {told} MiB of events: {before} MiB before, at most {grown} MiB more"
        );
        assert!(grown < 160, "{grown} MiB; all that they did not read would be {} MiB", told * WATCHERS);
        // They find what their sockets hold, and that the server has left them.
        let begun = Instant::now();
        let mut most_read = 0;
        for mut watcher in idle {
            let mut read = 0;
            let mut buffer = vec![0; 1 << 16];
            tokio::time::sleep_until((begun + Duration::from_secs(90)).into()).await;
            while let Ok(more @ 1..) = watcher.stream.read(&mut buffer).await {
                read += more;
            }
            most_read = most_read.max(read);
        }
        println!("cut off after 90 s; the most that one of them had got is {} KiB", most_read >> 10);
        assert!(most_read < (LETTERS * LETTER) / 2, "{most_read}");
    });
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
#[ignore = "takes a while"]
fn long_serve_a_page_of_ten_thousand_tasks_is_quick() {
    const REQUESTS: usize = 500;
    let (kit, server, _) = paced(1, Duration::ZERO);
    server.end(Signal::SIGTERM).ended(0);
    crate::kit::block_on(async { fill(&*kit.store(), 10_000).await });
    let server = Server::start(&kit);
    let (address, token) = (server.address, Arc::<str>::from(server.token.as_str()));
    on_threads(async {
        let mut client = Client::connect(address, &token).await;
        let (mut cursors, mut cursor) = (vec![String::new()], String::new());
        while let Some(next) =
            client.ask(&format!("GET /api/v1/tasks?limit=200{cursor}"), "").await["next_cursor"].as_str()
        {
            cursor = format!("&cursor={next}");
            cursors.push(cursor.clone());
        }
        assert_eq!(cursors.len(), 50);
        let mut worst = Vec::new();
        for query in
            ["", "roots=true", "roots=true&status=cancelled", "agent=worker", "status=open", "needs_you=true"]
        {
            let mut times = Vec::new();
            for nth in 0..REQUESTS {
                let path = format!("GET /api/v1/tasks?{query}&limit=50{}", cursors[nth * 7 % cursors.len()]);
                let begun = Instant::now();
                client.ask(&path, "").await;
                times.push(begun.elapsed());
            }
            times.sort();
            let (p50, p99) = (times[REQUESTS / 2], times[REQUESTS * 99 / 100]);
            println!("GET /tasks?{query} with 10,000 tasks: p50 {p50:?}, p99 {p99:?}");
            worst.push((query, p99));
        }
        let begun = Instant::now();
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let token = token.clone();
                tokio::spawn(async move {
                    let mut client = Client::connect(address, &token).await;
                    for _ in 0..REQUESTS / 4 {
                        client.ask("GET /api/v1/tasks?roots=true&limit=50", "").await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let rate = (16 * (REQUESTS / 4)) as f64 / begun.elapsed().as_secs_f64();
        println!("{rate:.0} lists of 50 a second, 16 at once");
        for (query, p99) in worst {
            assert!(p99 < Duration::from_millis(20), "{query}: {p99:?}");
        }
    });
    server.end(Signal::SIGTERM).ended(0);
}
