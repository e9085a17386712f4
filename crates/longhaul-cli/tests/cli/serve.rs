//! `longhaul serve` as a process: it starts, refuses, drains, is killed and goes on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use longhaul::entry::{Entry, TeamRef};
use longhaul::teamfile::TeamBundle;
use longhaul::{Order, Status, TaskId};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kit::{Kit, Ran, Running, TIMEOUT};

const TEAM: &str = "agents:\n  root:\n    model: play\n    instruction: Answer.\n";

/// Takes two replies; the second takes its time.
pub(crate) const SLOW: &str = "agents:\n  root:\n    turns:\n      - { text: First., calls: [{ tool: think, arguments: { thought: hm } }] }\n      - { text: \"Done: {{ task }}\", delay: 1500ms }\n";
const QUICK: &str = "agents:\n  root:\n    turns:\n      - { text: \"Done: {{ task }}\" }\n";

pub(crate) fn kit(play: &str) -> Kit {
    let kit = Kit::new();
    kit.plays("team.yaml", &TEAM.replace("Answer.\n", "Answer.\n    toolsets: [{ type: think }]\n"), play);
    kit
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Server {
    #[track_caller]
    pub(crate) fn start(kit: &Kit) -> Server {
        Server::with(kit, &["--team", "team.yaml", "--listen", "127.0.0.1:0"])
    }

    #[track_caller]
    pub(crate) fn with(kit: &Kit, more: &[&str]) -> Server {
        let args: Vec<&str> = ["serve", "--json"].into_iter().chain(more.iter().copied()).collect();
        let mut process = kit.start(&args);
        let line = process.until(|line| line.starts_with('{'));
        let started: Value = serde_json::from_str(&line).unwrap();
        let url = started["url"].as_str().unwrap().to_owned();
        let file = PathBuf::from(started["token_file"].as_str().unwrap());
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        Server { process, address: url.rsplit('/').next().unwrap().parse().unwrap(), url, token }
    }

    /// Sends a request, and returns the status and the rest.
    fn ask(&self, line: &str, headers: &str, body: &str) -> (u16, String) {
        self.ask_as(&self.address.to_string(), line, headers, body)
    }

    fn ask_as(&self, host: &str, line: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}");
        write!(stream, "{request}\r\n{headers}\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn status(&self, token: &str) -> u16 {
        self.ask("GET /api/v1/session", &format!("Authorization: Bearer {token}\r\n"), "").0
    }

    #[track_caller]
    pub(crate) fn end(self, signal: Signal) -> Ran {
        self.process.signal(signal);
        self.process.end()
    }
}

/// Submits a task as an interface does: to the served team, through the store.
pub(crate) fn submit(kit: &Kit, text: &str) -> TaskId {
    let lock = std::fs::read_to_string(kit.data.path().join("longhaul.db.serve")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    let team = TeamRef::File(serde_json::from_value(lock["teams"][0].clone()).unwrap());
    let order = Order::new("root", text).working_dir(kit.ground.path());
    kit.client(async move |longhaul| longhaul.submit_to(team, order).await.unwrap())
}

pub(crate) fn answered(kit: &Kit, task: TaskId) {
    kit.until("the task is completed", |all| {
        all.iter().any(|(state, _)| state.id == task && state.status == Status::Completed).then_some(())
    });
    for (state, journal) in kit.journals() {
        let finished = journal.iter().filter(|record| matches!(record.entry, Entry::Finished(_))).count();
        assert_eq!(finished, usize::from(state.status.is_final()), "{}", state.id);
    }
}

fn first_reply(kit: &Kit, task: TaskId) {
    kit.until("the first reply", |all| {
        let (_, journal) = all.iter().find(|(state, _)| state.id == task)?;
        journal.iter().any(|record| matches!(record.entry, Entry::Returned(_))).then_some(())
    });
}

#[test]
fn it_serves_whoever_has_the_token_and_ends_on_sigterm() {
    let kit = kit(QUICK);
    let server = Server::start(&kit);
    assert_eq!(server.status(&server.token), 200);
    assert_eq!(server.status("wrong"), 401);
    assert_eq!(server.ask("GET /nothing", "", "").0, 401);
    assert_eq!(server.ask("GET /healthz", "", "").0, 204);
    let task = submit(&kit, "one");
    answered(&kit, task);
    let token = server.token.clone();
    let ran = server.end(Signal::SIGTERM).ended(0);
    assert!(!kit.data.path().join("longhaul.db.serve").exists());
    assert!(!ran.out.contains(&token) && !ran.err.contains(&token), "{ran:?}");
    for (path, bytes) in kit.left() {
        let has = bytes.windows(token.len()).any(|part| part == token.as_bytes());
        assert_eq!(has, path.ends_with("access/token"), "{}", path.display());
    }
}

// MLflow CVE-2026-2611: protected paths were listed, and one was forgotten.
#[test]
fn every_route_of_the_real_server_refuses_without_a_token_with_a_wrong_host_and_with_a_foreign_origin() {
    let kit = kit(QUICK);
    let server = Server::start(&kit);
    let token = format!("Authorization: Bearer {}\r\n", server.token);
    // Those that are not in the document, and some that are nowhere.
    let mut routes: Vec<String> = [
        "GET /api/v1/session",
        "GET /metrics",
        "POST /mcp",
        "GET /mcp",
        "DELETE /mcp",
        "GET /v1/models",
        "POST /v1/responses",
        "GET /v1/responses/x",
        "POST /v1/responses/x/cancel",
        "GET /api/v1/openapi.json",
        "GET /nothing",
    ]
    .map(str::to_owned)
    .into();
    let (status, document) = server.ask("GET /api/v1/openapi.json", &token, "");
    if status == 200 {
        let document: Value = serde_json::from_str(document.split_once("\r\n\r\n").unwrap().1).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let methods = methods.as_object().unwrap().keys();
            let path = path.replace(['{', '}'], "");
            routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
        }
    }
    // The guard itself answers it with an empty body, to everyone.
    routes.retain(|route| route != "GET /healthz");
    for route in routes {
        let refused = |headers: &str| {
            let (status, answer) = server.ask(&route, headers, "");
            assert!(
                answer.contains("application/problem+json") && !answer.contains("access-control-"),
                "{answer}"
            );
            status
        };
        assert_eq!(refused(""), 401, "{route}");
        assert!(matches!(refused("Authorization: Bearer wrong\r\n"), 401 | 429), "{route}");
        assert_eq!(refused(&format!("{token}Origin: http://evil.example\r\n")), 403, "{route}");
        assert_eq!(refused(&format!("{token}Host: evil.example\r\n")), 400, "{route}: a second Host");
        let (status, _) = server.ask_as("evil.example", &route, &token, "");
        assert_eq!(status, 403, "{route}");
    }
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn a_task_that_was_under_way_at_sigterm_goes_on_after_a_restart() {
    let kit = kit(&SLOW.replace("1500ms", "60s"));
    let server = Server::start(&kit);
    let task = submit(&kit, "one");
    first_reply(&kit, task);
    // The second reply would take too long: a second signal does not wait for it.
    server.process.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    server.end(Signal::SIGINT).ended(0);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let (state, _) = kit.journals().remove(0);
    assert!(!state.status.is_final(), "{:?}", state.status);
    // The stored team is the same, so it is its own script that goes on; a new file is another team.
    kit.plays("team.yaml", TEAM, QUICK);
    let server = Server::start(&kit);
    kit.until("the task is claimed again", |all| (all[0].0.attempt.0 == 2).then_some(()));
    server.end(Signal::SIGKILL);
}

#[test]
fn a_drain_lets_a_step_end_and_a_restart_goes_on() {
    let kit = kit(SLOW);
    let server = Server::start(&kit);
    let task = submit(&kit, "one");
    first_reply(&kit, task);
    server.end(Signal::SIGTERM).ended(0);
    let server = Server::start(&kit);
    answered(&kit, task);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn a_killed_server_is_no_obstacle_and_its_tasks_go_on() {
    let kit = kit(SLOW);
    let server = Server::start(&kit);
    let tasks: Vec<TaskId> = (0..5).map(|number| submit(&kit, &number.to_string())).collect();
    tasks.iter().for_each(|task| first_reply(&kit, *task));
    server.process.murder();
    assert!(kit.data.path().join("longhaul.db.serve").exists(), "it left its mark");
    let server = Server::start(&kit);
    tasks.iter().for_each(|task| answered(&kit, *task));
    assert_eq!(kit.journals().len(), 5, "no task is lost, and none is there twice");
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn a_second_server_on_the_same_database_is_refused_and_told_where_the_first_one_is() {
    let kit = kit(QUICK);
    let server = Server::start(&kit);
    let second = kit.run(&["serve", "--team", "team.yaml", "--listen", "127.0.0.1:0"]);
    second.complains(1, &["already served at", &server.url]);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = kit.started(
        kit.command_at(elsewhere.path(), &["serve", "--team", "team.yaml", "--listen", "127.0.0.1:0"]),
    );
    other.until(|line| line.contains("Longhaul serves"));
    other.signal(Signal::SIGINT);
    other.end().ended(0);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn tasks_of_longhaul_run_are_left_alone() {
    let kit = kit(QUICK);
    let file = kit.ground.path().join("team.yaml");
    let theirs = kit.client(async |longhaul| {
        let digest = longhaul.store().put_blob(TeamBundle::load(&file).unwrap().encode()).await.unwrap();
        longhaul.submit_to(TeamRef::File(digest), Order::new("root", "theirs")).await.unwrap()
    });
    let server = Server::start(&kit);
    let ours = submit(&kit, "ours");
    answered(&kit, ours);
    let (state, _) = kit.journals().into_iter().find(|(state, _)| state.id == theirs).unwrap();
    assert_eq!(state.status, Status::Pending);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn the_other_commands_leave_its_tasks_to_it() {
    let kit = kit(QUICK);
    let server = Server::start(&kit);
    let task = submit(&kit, "one");
    answered(&kit, task);
    let sent = kit.run(&["send", &task.to_string(), "again", "--wait"]).ended(0);
    assert!(!sent.err.contains("not running") && !sent.err.contains("in the background"), "{sent:?}");
    let next = kit.until("the continuation", |all| {
        all.iter().find(|(state, _)| state.continues == Some(task)).map(|(state, _)| state.id)
    });
    answered(&kit, next);
    assert!(!kit.data.path().join("carriers").exists(), "no other process was started");
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn tokens_are_created_listed_and_revoked_while_it_runs() {
    let kit = kit(QUICK);
    let server = Server::start(&kit);
    let created = kit.run(&["token", "create", "ci", "--scope", "read"]).ended(0);
    let token = created.out.trim();
    assert!(token.starts_with("lh_") && !created.err.contains(token), "{created:?}");
    assert_eq!(server.status(token), 200);
    let list = kit.run(&["token", "list"]).ended(0).out;
    assert!(
        list.contains("default  admin") && list.contains("ci       read") && !list.contains("lh_"),
        "{list}"
    );
    kit.run(&["token", "create", "ci"]).complains(1, &["already a token named 'ci'"]);
    kit.run(&["token", "revoke", "ci"]).ended(0);
    assert_eq!(server.status(token), 401);
    kit.run(&["token", "revoke", "ci"]).complains(4, &["no token named 'ci'", "default"]);
    kit.run(&["token", "revoke", "default"]).ended(0);
    assert_eq!(server.status(&server.token), 401);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn open_prints_a_link_that_signs_in_once() {
    let kit = kit(QUICK);
    kit.run(&["open"]).complains(1, &["no server runs with this database"]);
    let server = Server::start(&kit);
    let link = kit.run(&["open"]).ended(0).out;
    let (url, code) = link.trim().split_once("/#code=").unwrap();
    assert_eq!(url, server.url);
    let sign_in = || {
        let headers = "X-Longhaul: 1\r\nContent-Type: application/json\r\n";
        server.ask("POST /api/v1/session", headers, &format!("{{\"code\":\"{code}\"}}"))
    };
    let (status, answer) = sign_in();
    assert!(status == 200 && answer.contains("HttpOnly; SameSite=Strict"), "{answer}");
    assert_eq!(sign_in().0, 401);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    let kit = kit(QUICK);
    std::fs::create_dir(kit.ground.path().join("other")).unwrap();
    std::fs::copy(kit.ground.path().join("team.yaml"), kit.ground.path().join("other/team.yml")).unwrap();
    let serve = |args: &[&str]| kit.run(&[&["serve"], args].concat());
    serve(&["--team", "team.yaml", "other/team.yml"]).complains(2, &["both named 'team'"]);
    let open = ["--team", "team.yaml", "--listen", "0.0.0.0:0"];
    serve(&open).complains(2, &["without TLS", "--tls-cert", "--insecure-http"]);
    serve(&["--team", "team.yaml", "--listen", "nowhere"]).ended(2);
    serve(&["--team", "team.yaml", "--allow-host", "http://x"]).ended(2);
    serve(&["--team", "team.yaml", "--tls-cert", "a.pem"]).ended(2);
    serve(&["--team", "team.yaml", "--tls-cert", "a.pem", "--tls-key", "b.pem"]).complains(2, &["a.pem"]);
    kit.write(
        "hooked.yaml",
        "agents: {root: {model: auto, instruction: x, hooks: {task_end: [{type: command, command: ./a}]}}}",
    );
    serve(&["--team", "hooked.yaml"]).complains(6, &["not trusted", "--trust"]);
    serve(&["--team", "nothing.yaml"]).complains(6, &["nothing.yaml"]);
    serve(&["--team", "team.yaml", "--dir", "nowhere"]).complains(2, &["nowhere"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    serve(&["--team", "team.yaml", "--listen", &address]).complains(1, &[&address, "--listen"]);
}

#[test]
fn an_open_address_needs_the_flag_and_gets_a_warning() {
    let kit = kit(QUICK);
    let server = Server::with(&kit, &["--team", "team.yaml", "--listen", "0.0.0.0:0", "--insecure-http"]);
    assert_eq!(server.status(&server.token), 200);
    let ran = server.end(Signal::SIGTERM).ended(0);
    assert!(ran.err.contains("WITHOUT TLS"), "{}", ran.err);
}

// AutoGen Studio "AutoJack": the agent's own browser reached localhost.
#[test]
fn its_own_agents_cannot_call_it_or_read_its_token() {
    let kit = Kit::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let data = kit.data.path().display().to_string();
    let team = "agents:\n  root:\n    model: play\n    instruction: Try.\n    toolsets:\n      - { type: fetch, allow_private: true }\n      - { type: filesystem, allow_paths: [\"DATA\"] }\n      - { type: shell, sandbox: on }\n    permissions: { allow: [\"*\"] }\n";
    let play = "agents:\n  root:\n    turns:\n      - text: Trying.\n        calls:\n          - { tool: fetch, arguments: { urls: [\"http://127.1:PORT/healthz\"] } }\n          - { tool: fetch, arguments: { urls: [\"http://localhost:PORT/healthz\"] } }\n          - { tool: read_file, arguments: { path: \"DATA/access/token\" } }\n          - { tool: shell, arguments: { cmd: \"cat DATA/access/token\" } }\n      - { text: \"{{ results }}\" }\n";
    let fill = |text: &str| text.replace("PORT", &port.to_string()).replace("DATA", &data);
    kit.plays("team.yaml", &fill(team), &fill(play));
    let server =
        Server::with(&kit, &["--team", "team.yaml", "--trust", "--listen", &format!("127.0.0.1:{port}")]);
    let task = submit(&kit, "drive the server");
    answered(&kit, task);
    let (_, journal) = kit.journals().remove(0);
    let results: Vec<String> = journal
        .iter()
        .filter_map(|record| match &record.entry {
            Entry::Returned(returned) => Some(format!("{returned:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(results.len(), 4, "{results:#?}");
    assert!(results.iter().all(|result| !result.contains(&server.token)), "{results:#?}");
    assert_eq!(
        results.iter().filter(|result| result.contains("its own agents may not use")).count(),
        2,
        "{results:#?}"
    );
    assert!(results.iter().any(|result| result.contains("its agents may not use it")), "{results:#?}");
    server.end(Signal::SIGTERM).ended(0);
}
