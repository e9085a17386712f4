//! Clients that watch a server while it is killed: each connects again and misses nothing.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul::entry::Entry;
use longhaul::{Status, TaskId};
use nix::sys::signal::Signal;

use crate::kit::TIMEOUT;
use crate::serve::{SLOW, Server, kit, submit};

const TASKS: usize = 50;
const CLIENTS: usize = 20;

/// Where the server listens now.
type Place = Arc<Mutex<SocketAddr>>;

/// What a client has seen: the ids of all events, and the tasks that have ended.
#[derive(Default)]
struct Seen {
    ids: Vec<String>,
    ended: HashSet<String>,
    connections: usize,
}

/// Watches all tasks from the start until they have ended, and connects again as often as it has to.
fn watch(place: &Place, token: &str) -> Seen {
    let (mut seen, begun) = (Seen::default(), Instant::now());
    while seen.ended.len() < TASKS {
        assert!(begun.elapsed() < TIMEOUT, "only {} tasks have ended", seen.ended.len());
        let address = *place.lock().unwrap();
        // While no server listens, a client tries again a little later.
        if read_stream(address, token, &mut seen).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    seen
}

/// Reads one connection until it ends, or all tasks have.
fn read_stream(address: SocketAddr, token: &str, seen: &mut Seen) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let last = seen.ids.last().map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    // In HTTP/1.0 the body is not cut into chunks.
    write!(
        stream,
        "GET /api/v1/events?after=start HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{last}\r\n"
    )?;
    seen.connections += 1;
    let (mut id, mut name) = (None, String::new());
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if let Some(value) = line.strip_prefix("id: ") {
            id = Some(value.to_owned());
        } else if let Some(value) = line.strip_prefix("event: ") {
            value.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            assert!(!["reset", "lagging"].contains(&name.as_str()), "{name}: {data}");
            let Some(id) = id.take() else { continue };
            if name == "finished" {
                let data: serde_json::Value = serde_json::from_str(data).unwrap();
                seen.ended.insert(data["task"].as_str().unwrap().to_owned());
            }
            seen.ids.push(id);
            if seen.ended.len() == TASKS {
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn twenty_clients_watch_fifty_tasks_over_a_kill_and_miss_nothing() {
    let kit = kit(SLOW);
    let server = Server::start(&kit);
    let tasks: Vec<TaskId> = (0..TASKS).map(|number| submit(&kit, &number.to_string())).collect();
    let (place, token) = (Arc::new(Mutex::new(server.address)), server.token.clone());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (place, token) = (place.clone(), token.clone());
            std::thread::spawn(move || watch(&place, &token))
        })
        .collect();
    kit.until("tasks are under way", |all| {
        let running = all.iter().filter(|(state, _)| state.status == Status::Running && state.turns > 0);
        (running.count() >= 20).then_some(())
    });
    server.process.murder();
    let server = Server::start(&kit);
    *place.lock().unwrap() = server.address;
    let seen: Vec<Seen> = clients.into_iter().map(|client| client.join().unwrap()).collect();

    // The whole history, by a client that was never disturbed.
    let all = watch(&place, &token);
    assert_eq!(all.connections, 1);
    for client in &seen {
        assert!(client.connections > 1, "it was there before the kill");
        assert_eq!(client.ids, all.ids, "nothing is missed, and nothing comes twice");
    }
    let journals = kit.journals();
    assert_eq!(journals.len(), TASKS, "no task is lost, and none is there twice");
    for (state, journal) in journals {
        assert!(
            tasks.contains(&state.id) && state.status == Status::Completed,
            "{} is {}",
            state.id,
            state.status
        );
        let ends = journal.iter().filter(|record| matches!(record.entry, Entry::Finished(_))).count();
        assert_eq!(ends, 1, "{} ends once", state.id);
    }
    server.end(Signal::SIGTERM).ended(0);
}
