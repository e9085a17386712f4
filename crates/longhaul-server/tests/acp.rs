//! Longhaul as an ACP agent, with a bare client on the other end of a pipe.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul::model::Model;
use longhaul::permission::Permissions;
use longhaul::store::{MemoryStore, Store};
use longhaul::testing::{FnModel, reply};
use longhaul::toolset::{Shell, UserPrompt};
use longhaul::{Agent, Budget, Longhaul, SubAgentDialect, Team};
use longhaul_server::acp::AcpServer;
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};

/// A client: sends requests, and keeps what else it hears.
struct Client {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    next: u64,
    /// The updates and requests that came meanwhile.
    heard: Vec<Value>,
    /// The option that it selects when it is asked for permission.
    permits: &'static str,
    cancels_at: Option<&'static str>,
}

impl Client {
    async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line =
            tokio::time::timeout(Duration::from_secs(30), self.lines.next_line()).await.expect("it hangs");
        serde_json::from_str(&line.unwrap().expect("the server has left")).expect("only JSON")
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params.clone() })).await;
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            if self.cancels_at.is_some_and(|text| message.to_string().contains(text)) {
                self.cancels_at = None;
                let session = params["sessionId"].clone();
                let params = json!({ "sessionId": session });
                self.send(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params })).await;
            }
            if message["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": self.permits } });
                self.send(json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome })).await;
            }
            self.heard.push(message);
        }
    }

    async fn open(&mut self, dir: &Path) -> String {
        let hello = self.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
        assert_eq!(hello["result"]["protocolVersion"], 1);
        assert_eq!(hello["result"]["agentCapabilities"]["loadSession"], true);
        let new = self.call("session/new", json!({ "cwd": dir, "mcpServers": [] })).await;
        new["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    async fn prompt(&mut self, session: &str, text: &str) -> Value {
        self.heard.clear();
        let prompt = json!([{ "type": "text", "text": text }]);
        self.call("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }

    /// What was heard of one kind, as text.
    fn text(&self, kind: &str) -> String {
        let texts = self.heard.iter().map(|message| &message["params"]["update"]);
        let texts = texts.filter(|update| update["sessionUpdate"] == kind);
        texts.map(|update| update["content"]["text"].as_str().unwrap_or_default()).collect()
    }
}

/// Starts an engine with a team, and a server for one client.
async fn connect(team: Team, store: Arc<dyn Store>, dir: &Path) -> (Client, Longhaul) {
    let longhaul = Longhaul::builder(team.clone()).shared_store(store).attended(true).start().await.unwrap();
    let served =
        ServedTeam { name: "team".to_owned(), team, working_dir: dir.to_owned(), budget: Budget::default() };
    let server = AcpServer::new(Backend::new(longhaul.clone(), vec![served], Arc::new(RunsHere)));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(theirs);
    tokio::task::spawn(async move { server.serve(reader, writer).await.unwrap() });
    let (reader, input) = tokio::io::split(ours);
    let lines = BufReader::new(reader).lines();
    (Client { lines, input, next: 0, heard: Vec::new(), permits: "yes", cancels_at: None }, longhaul)
}

fn model(
    answer: impl Fn(&str, usize) -> longhaul::testing::ReplyBuilder + Send + Sync + 'static,
) -> Arc<dyn Model> {
    Arc::new(FnModel::new(move |request| {
        let users: Vec<String> = request
            .messages
            .iter()
            .filter_map(|message| match message {
                longhaul::message::Message::User(text) => Some(text.to_string()),
                _ => None,
            })
            .collect();
        let results = request
            .messages
            .iter()
            .filter(|message| matches!(message, longhaul::message::Message::Tool(_)))
            .count();
        answer(users.last().map(String::as_str).unwrap_or_default(), results)
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_a_task_and_is_loaded_from_its_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let team = || {
        let model = model(|last, _| reply().text(format!("You said: {last}")));
        Team::new(Agent::builder("root").model(model).build().unwrap()).unwrap()
    };
    let (mut client, longhaul) = connect(team(), store.clone(), dir.path()).await;
    let session = client.open(dir.path()).await;
    let first = client.prompt(&session, "one").await;
    assert_eq!(first["result"]["stopReason"], "end_turn", "{first}");
    assert_eq!(client.text("agent_message_chunk"), "You said: one");
    client.prompt(&session, "two").await;
    assert_eq!(client.text("agent_message_chunk"), "You said: two", "only what is new");
    drop(client);
    longhaul.shutdown().await;
    // Another process, another editor.
    let (mut client, longhaul) = connect(team(), store, dir.path()).await;
    client.open(dir.path()).await;
    let list = client.call("session/list", json!({})).await;
    assert_eq!(list["result"]["sessions"][0]["sessionId"], session.as_str(), "{list}");
    let load = json!({ "sessionId": session, "cwd": dir.path(), "mcpServers": [] });
    client.heard.clear();
    let loaded = client.call("session/load", load).await;
    assert!(loaded.get("error").is_none(), "{loaded}");
    assert_eq!(client.text("user_message_chunk"), "onetwo");
    assert_eq!(client.text("agent_message_chunk"), "You said: oneYou said: two");
    client.prompt(&session, "three").await;
    assert_eq!(client.text("agent_message_chunk"), "You said: three");
    let missing = json!({ "sessionId": "nothing", "cwd": dir.path(), "mcpServers": [] });
    assert!(
        client.call("session/load", missing).await["error"]["message"].to_string().contains("no session")
    );
    assert_eq!(client.call("_strange/method", json!({})).await["error"]["code"], -32601);
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_at_once_gets_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|_, _| reply().text("Done."));
    let team = Team::new(Agent::builder("root").model(model).build().unwrap()).unwrap();
    let (mut client, longhaul) = connect(team, Arc::new(MemoryStore::new()), dir.path()).await;
    client
        .send(
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } }),
        )
        .await;
    client.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "no/such" })).await;
    client.input.shutdown().await.unwrap();
    assert_eq!((client.next().await["id"].clone(), client.next().await["id"].clone()), (json!(1), json!(2)));
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_and_questions_go_to_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|last, results| match (last, results) {
        ("run", 0) => reply().call("shell", json!({ "cmd": "echo hello" })),
        ("ask", 0) => reply().call("user_prompt", json!({ "message": "Which colour?" })),
        _ => reply().text("Done."),
    });
    let shell = Shell::builder().env("PATH", "/usr/bin:/bin").build();
    let root = Agent::builder("root").model(model).toolset(shell).toolset(UserPrompt).build().unwrap();
    let team = Team::new(root).unwrap().with_permissions(Permissions::default());
    let (mut client, longhaul) = connect(team, Arc::new(MemoryStore::new()), dir.path()).await;
    let session = client.open(dir.path()).await;
    client.prompt(&session, "run").await;
    let asked = client.heard.iter().find(|message| message["method"] == "session/request_permission");
    let asked = asked.expect("it was asked");
    assert_eq!(asked["params"]["toolCall"]["rawInput"]["cmd"], "echo hello");
    let told = client.heard.iter().any(|message| message.to_string().contains("hello\\n"));
    assert!(told && client.text("agent_message_chunk") == "Done.", "{:#?}", client.heard);
    // A client without elicitation answers with its next prompt.
    let session = client.open(dir.path()).await;
    let asked = client.prompt(&session, "ask").await;
    assert_eq!(asked["result"]["stopReason"], "end_turn");
    assert!(client.text("agent_message_chunk").contains("Which colour?"), "{:#?}", client.heard);
    client.prompt(&session, "blue").await;
    assert!(client.text("agent_message_chunk").contains("Done."), "{:#?}", client.heard);
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_spares_background_tasks_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let slow: Arc<dyn Model> = Arc::new(FnModel::try_new(|_| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<longhaul::message::Reply, longhaul::model::ModelError>(reply().text("found").into())
    }));
    let lead = model(|last, results| match (last, results) {
        ("go", 0) => reply().call("run_background_agent", json!({ "agent": "scout", "task": "look" })),
        ("go", _) => reply().text("Sent."),
        (other, _) if other.contains("found") => reply().text("It was found."),
        _ => reply().text("Here again."),
    });
    let scout = Agent::builder("scout").model(slow).build().unwrap();
    let root = Agent::builder("root").model(lead).sub_agent(scout).dialect(SubAgentDialect::Background);
    let team = Team::new(root.build().unwrap()).unwrap();
    let (mut client, longhaul) = connect(team, Arc::new(MemoryStore::new()), dir.path()).await;
    let session = client.open(dir.path()).await;
    client.cancels_at = Some("Sent.");
    let cancelled = client.prompt(&session, "go").await;
    assert_eq!(cancelled["result"]["stopReason"], "cancelled", "{cancelled}");
    let said = client.text("agent_message_chunk");
    assert!(said.contains("These background tasks go on") && said.contains("scout · look"), "{said}");
    let card = client.heard.iter().any(|message| message.to_string().contains("\"title\":\"scout · look\""));
    assert!(card, "each task is a card: {:#?}", client.heard);
    // Its result reaches the session that goes on.
    let next = client.prompt(&session, "hello").await;
    assert_eq!(next["result"]["stopReason"], "end_turn");
    let said = client.text("agent_message_chunk");
    assert!(said.contains("Here again.") || said.contains("It was found."), "{said}");
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_model_and_approvals_are_chosen_before_the_first_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let speak = |name: &'static str| {
        model(move |last, results| match (last, results) {
            ("run", 0) => reply().call("shell", json!({ "cmd": "echo hello" })),
            _ => reply().text(format!("{name} is here.")),
        })
    };
    let shell = Shell::builder().env("PATH", "/usr/bin:/bin").build();
    let scout = Agent::builder("scout").model(speak("scout")).toolset(shell).build().unwrap();
    let root =
        Agent::builder("root").model(speak("root")).sub_agent(scout).dialect(SubAgentDialect::Background);
    let team = Team::new(root.build().unwrap()).unwrap().with_permissions(Permissions::default());
    let (mut client, longhaul) = connect(team, Arc::new(MemoryStore::new()), dir.path()).await;
    client.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
    let new =
        client.call("session/new", json!({ "cwd": dir.path(), "mcpServers": [] })).await["result"].clone();
    let current = |options: &Value| -> Vec<String> {
        let options = options.as_array().unwrap().iter();
        options.map(|option| option["currentValue"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(current(&new["configOptions"]), ["root", "default", "ask"]);
    assert_eq!(new["modes"]["currentModeId"], "ask");
    let session = new["sessionId"].as_str().unwrap().to_owned();
    let set = json!({ "sessionId": session, "configId": "agent", "value": "scout" });
    let set = client.call("session/set_config_option", set).await;
    assert_eq!(current(&set["result"]["configOptions"]), ["scout", "default", "ask"], "{set}");
    let wrong = json!({ "sessionId": session, "configId": "agent", "value": "nobody" });
    assert!(
        client.call("session/set_config_option", wrong).await["error"]["message"]
            .to_string()
            .contains("nobody")
    );
    let mode = client.call("session/set_mode", json!({ "sessionId": session, "modeId": "yolo" })).await;
    assert_eq!(current(&mode["result"]["configOptions"])[2], "yolo", "{mode}");
    client.prompt(&session, "run").await;
    assert_eq!(client.text("agent_message_chunk"), "scout is here.");
    let asked = client.heard.iter().any(|message| message["method"] == "session/request_permission");
    assert!(!asked, "everything was allowed: {:#?}", client.heard);
    let late = json!({ "sessionId": session, "modeId": "ask" });
    assert!(
        client.call("session/set_mode", late).await["error"]["message"].to_string().contains("has begun")
    );
    let load = json!({ "sessionId": session, "cwd": dir.path(), "mcpServers": [] });
    let loaded = client.call("session/load", load).await;
    assert_eq!(current(&loaded["result"]["configOptions"]), ["scout", "default", "yolo"], "{loaded}");
    longhaul.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_knows_sub_agents_gets_a_session_for_each_task() {
    let dir = tempfile::tempdir().unwrap();
    let lead = model(|last, results| match (last, results) {
        ("go", 0) => reply().call("run_background_agent", json!({ "agent": "scout", "task": "look" })),
        ("go", _) => reply().text("Sent."),
        _ => reply().text("It was found."),
    });
    let scout = Agent::builder("scout").model(model(|_, _| reply().text("found"))).build().unwrap();
    let root = Agent::builder("root").model(lead).sub_agent(scout).dialect(SubAgentDialect::Background);
    let team = Team::new(root.build().unwrap()).unwrap();
    let (mut client, longhaul) = connect(team, Arc::new(MemoryStore::new()), dir.path()).await;
    let about = json!({ "protocolVersion": 1, "clientCapabilities": { "subagents": {} } });
    client.call("initialize", about).await;
    let new = client.call("session/new", json!({ "cwd": dir.path(), "mcpServers": [] })).await;
    let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "go").await;
    let updates: Vec<&Value> = client.heard.iter().map(|message| &message["params"]).collect();
    let of = |kind: &str| -> Vec<&&Value> {
        updates.iter().filter(|params| params["update"]["sessionUpdate"] == kind).collect()
    };
    let announced = of("subagent_update");
    let child = announced[0]["update"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        (&announced[0]["sessionId"], &announced[0]["update"]["title"]),
        (&json!(session), &json!("scout · look"))
    );
    assert_eq!(announced.last().unwrap()["update"]["state"]["state"], "idle");
    let between: Vec<_> = of("session_message");
    assert_eq!(
        (&between[0]["sessionId"], &between[0]["update"]["senderSessionId"]),
        (&json!(child), &json!(session))
    );
    assert!(
        between.iter().any(|params| params["update"]["senderSessionId"] == child),
        "its result: {between:#?}"
    );
    let said = of("agent_message_chunk");
    assert!(
        said.iter()
            .any(|params| params["sessionId"] == child && params["update"]["content"]["text"] == "found")
    );
    let cards = of("tool_call").iter().filter(|params| params["update"]["toolCallId"] == child).count();
    assert_eq!(cards, 0, "and no card besides");
    longhaul.shutdown().await;
}
