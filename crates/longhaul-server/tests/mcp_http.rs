//! The MCP server over HTTP: many clients at once, and requests that must not come through.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul::testing::{FnModel, reply};
use longhaul::{Agent, Budget, Longhaul, Team};
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use longhaul_server::mcp::{McpHttpOptions, router};
use serde_json::{Value, json};

const NEWEST: &str = "2026-07-28";

/// A team whose only agent repeats what it is told.
fn team(agent: &str) -> Team {
    let model = Arc::new(FnModel::new(|request| {
        let said = serde_json::to_string(&request.messages).unwrap();
        let from = said.find("word-").unwrap_or_default();
        let word: String = said[from..].chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        reply().text(format!("echo {word}"))
    }));
    let team = Team::new(Agent::builder(agent).model(model).build().unwrap()).unwrap();
    team.with_reference(longhaul::entry::TeamRef::Named(agent.into()))
}

/// Serves two teams, and returns where.
async fn serve() -> SocketAddr {
    let dir = tempfile::tempdir().unwrap();
    let store = longhaul::store::SqliteStore::open(dir.path().join("longhaul.db")).unwrap();
    let (one, two) = (team("worker"), team("other"));
    let longhaul = Longhaul::builder(one.clone()).add_team(two.clone()).store(store).start().await.unwrap();
    let served = |name: &str, team: Team| ServedTeam {
        name: name.to_owned(),
        team,
        working_dir: dir.path().to_owned(),
        budget: Budget::default(),
    };
    let backend =
        Backend::new(longhaul, vec![served("first", one), served("second", two)], Arc::new(RunsHere));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = McpHttpOptions { max_body: 64 * 1024, ..McpHttpOptions::for_address(address) };
    let app = router(&backend, &options).unwrap();
    tokio::spawn(async move {
        axum::serve(listener, app).await.unwrap();
        drop(dir);
    });
    address
}

/// A request of the newest protocol.
fn post(
    address: SocketAddr,
    path: &str,
    id: u64,
    method: &str,
    mut params: Value,
) -> reqwest::RequestBuilder {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
    let request = client()
        .post(format!("http://{address}{path}"))
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", NEWEST)
        .header("mcp-method", method)
        .json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    match name {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// The answer to a request, from JSON or from a stream of events.
async fn answer(response: reqwest::Response, id: u64) -> Value {
    let status = response.status();
    let text = response.text().await.unwrap();
    let messages = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    let mut messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.find(|message| message["id"] == json!(id) && message.get("method").is_none());
    found.unwrap_or_else(|| panic!("{status}: no answer to {id} in: {text}"))
}

async fn ask(address: SocketAddr, path: &str, tool: &str, id: u64, word: &str) -> Value {
    let params = json!({"name": tool, "arguments": {"task": format!("Repeat {word}.")}});
    let response = post(address, path, id, "tools/call", params).send().await.unwrap();
    answer(response, id).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_clients_with_the_same_request_ids_get_their_own_answers() {
    let address = serve().await;
    let clients = (0..50).map(|n| async move {
        for round in 0..4_u64 {
            let word = format!("word-{n}-{round}");
            let answer = ask(address, "/mcp", "ask_worker", round, &word).await;
            assert_eq!(answer["result"]["content"][0]["text"], json!(format!("echo {word}")), "{answer}");
        }
    });
    futures::future::join_all(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_sessions_of_the_older_protocol_with_the_same_request_ids_do_not_mix() {
    let address = serve().await;
    let sessions = (0..50).map(|n| async move {
        let url = format!("http://{address}/mcp");
        let client = client();
        let request = |session: Option<String>, message: Value| {
            let request = client
                .post(&url)
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", "2025-11-25")
                .json(&message);
            match session {
                Some(session) => request.header("mcp-session-id", session),
                None => request,
            }
        };
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        let response = request(None, hello).send().await.unwrap();
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(answer(response, 1).await["result"]["protocolVersion"], "2025-11-25");
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        request(Some(session.clone()), ready).send().await.unwrap();
        let word = format!("word-{n}");
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "ask_worker", "arguments": {"task": format!("Repeat {word}.")}}});
        let answer = answer(request(Some(session), call).send().await.unwrap(), 2).await;
        assert_eq!(answer["result"]["content"][0]["text"], json!(format!("echo {word}")), "{answer}");
    });
    futures::future::join_all(sessions).await;
}

#[tokio::test]
async fn foreign_origins_and_hosts_and_huge_bodies_are_refused() {
    let address = serve().await;
    let list = || post(address, "/mcp", 1, "tools/list", json!({}));
    assert_eq!(list().send().await.unwrap().status(), 200);
    let own = format!("http://127.0.0.1:{}", address.port());
    assert_eq!(list().header("origin", own).send().await.unwrap().status(), 200);
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"] {
        assert_eq!(list().header("origin", origin).send().await.unwrap().status(), 403, "{origin}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        assert_eq!(list().header("host", host).send().await.unwrap().status(), 403, "{host}");
    }
    let huge = json!({"name": "ask_worker", "arguments": {"task": "x".repeat(100_000)}});
    assert_eq!(post(address, "/mcp", 1, "tools/call", huge).send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn each_team_has_a_path_and_tasks_of_one_are_not_seen_in_another() {
    let address = serve().await;
    let mine = ask(address, "/mcp/first", "ask_worker", 1, "word-a").await;
    let theirs = ask(address, "/mcp/second", "ask_other", 1, "word-b").await;
    assert_eq!(theirs["result"]["content"][0]["text"], "echo word-b", "{theirs}");
    let id = mine["result"]["_meta"]["longhaul/taskId"].as_str().unwrap().to_owned();
    let read = |path: &'static str| {
        let params = json!({"uri": format!("longhaul://task/{id}/result")});
        async move { answer(post(address, path, 7, "resources/read", params).send().await.unwrap(), 7).await }
    };
    assert_eq!(read("/mcp").await["result"]["contents"][0]["text"], "echo word-a");
    assert_eq!(read("/mcp/second").await["error"]["code"], json!(-32602));
    let unknown = post(address, "/mcp/third", 1, "tools/list", json!({})).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
}
