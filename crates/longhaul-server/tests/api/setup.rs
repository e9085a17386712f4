//! A server on loopback with a team whose models are functions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul::message::Message;
use longhaul::model::{Model, ModelError, ModelErrorKind, ModelRequest, ReplyChunk};
use longhaul::permission::Permissions;
use longhaul::store::{SqliteStore, Store};
use longhaul::testing::{FnModel, ReplyBuilder, reply};
use longhaul::toolset::{Shell, UserPrompt};
use longhaul::{Agent, Budget, Longhaul, SubAgentDialect, Team};
use longhaul_server::api;
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use longhaul_server::events::{EventHub, HubOptions, StreamEnd};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Fails instead of hanging.
pub(crate) async fn within<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what.into_future()).await.expect("it hangs")
}

/// A server in this process. Dropping it is like a kill.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) longhaul: Longhaul,
    pub(crate) hub: EventHub,
    pub(crate) drain: CancellationToken,
    /// Ends the streams of this server's clients, as if their token was revoked.
    pub(crate) revoked: CancellationToken,
    /// Tasks that hold wait here.
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) client: reqwest::Client,
    /// What it serves.
    pub(crate) router: axum::Router,
    listener: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What the model does depends on the words of the order.
fn answer(order: &str, turn: u32, results: &[String]) -> ReplyBuilder {
    let word = |word: &str| order.contains(word);
    match turn {
        0 if word("run a program") => reply().call("shell", json!({ "cmd": "echo hello" })),
        0 if word("ask me") => reply().call("user_prompt", json!({ "message": "Which colour?" })),
        0 if word("team up") => {
            let launch = |text: &str| json!({ "agent": "worker", "task": text });
            reply().call("run_background_agent", launch("one")).call("run_background_agent", launch("two"))
        }
        _ if word("steps") && turn < 20 => reply()
            .reasoning("hm")
            .text(format!("step {turn}. "))
            .call("todo", json!({ "nth": turn }))
            .usage(10, 5),
        _ => reply().text(format!("done: {order} {}", results.join(" "))).usage(100, 20),
    }
}

fn model(gate: &Arc<Semaphore>) -> Arc<dyn Model> {
    let gate = gate.clone();
    Arc::new(
        FnModel::try_new(move |request: &ModelRequest<'_>| {
            let order = match request.messages.first() {
                Some(Message::User(text)) => text.to_string(),
                _ => String::new(),
            };
            let result = |message: &Message| match message {
                Message::Tool(result) => Some(result.output.to_string()),
                _ => None,
            };
            let results: Vec<String> = request.messages.iter().filter_map(result).collect();
            let (turn, gate) = (request.turn, gate.clone());
            async move {
                if order.contains("hold") {
                    gate.acquire().await.unwrap().forget();
                }
                if order.contains("fail") {
                    let kind = ModelErrorKind::Rejected("no".to_owned());
                    return Err(ModelError { model: "function".to_owned(), kind, retry_after: None });
                }
                Ok(answer(&order, turn, &results))
            }
        })
        .named("function"),
    )
}

/// A model whose price is not known.
struct Unpriced(Arc<dyn Model>);

impl Model for Unpriced {
    fn name(&self) -> &str {
        "mystery-1"
    }

    fn unpriced_model(&self) -> Option<String> {
        Some("mystery-1".to_owned())
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> longhaul::model::ReplyStream<'a> {
        self.0.stream(request)
    }
}

/// A model that says something, waits, and goes on.
struct Talker(Arc<Semaphore>);

impl Model for Talker {
    fn name(&self) -> &str {
        "talker"
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> longhaul::model::ReplyStream<'a> {
        use futures::StreamExt as _;
        let first = futures::stream::iter([Ok(ReplyChunk::Text("first ".to_owned()))]);
        let second = futures::stream::once(async {
            self.0.acquire().await.unwrap().forget();
            Ok(ReplyChunk::Done(Box::new(reply().text("first and last").build())))
        });
        Box::pin(first.chain(second))
    }
}

/// A model that streams as many chunks as its order says, with pauses.
struct Pacer;

impl Model for Pacer {
    fn name(&self) -> &str {
        "pacer"
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> longhaul::model::ReplyStream<'a> {
        use futures::StreamExt as _;
        let order = match request.messages.first() {
            Some(Message::User(text)) => text.to_string(),
            _ => String::new(),
        };
        let numbers: Vec<u64> = order.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let (count, pause) = (numbers[0], Duration::from_millis(numbers[1]));
        let chunk = |nth: u64| format!("{nth} ");
        let whole: String = (0..count).map(chunk).collect();
        let chunks = futures::stream::iter(0..count).then(move |nth| async move {
            tokio::time::sleep(pause).await;
            Ok(ReplyChunk::Text(chunk(nth)))
        });
        let done = ReplyChunk::Done(Box::new(reply().text(whole).usage(count, count).build()));
        Box::pin(chunks.chain(futures::stream::iter([Ok(done)])))
    }
}

fn team(gate: &Arc<Semaphore>) -> Team {
    let model = model(gate);
    let worker = Agent::builder("worker").description("Works.").model(model.clone()).build().unwrap();
    let asker = Agent::builder("asker")
        .model(model.clone())
        .toolset(Shell::new())
        .toolset(UserPrompt::new())
        .permissions(Permissions::default())
        .build()
        .unwrap();
    let lead = Agent::builder("lead")
        .description("Leads.")
        .model(model.clone())
        .sub_agent(worker)
        .dialect(SubAgentDialect::Background)
        .build()
        .unwrap();
    let mystic = Agent::builder("mystic").model(Arc::new(Unpriced(model))).build().unwrap();
    let talker = Agent::builder("talker").model(Arc::new(Talker(gate.clone()))).build().unwrap();
    let pacer = Agent::builder("pacer").model(Arc::new(Pacer)).build().unwrap();
    Team::with_agents(lead, [asker, mystic, talker, pacer]).unwrap().with_name("crew")
}

impl Server {
    /// A server with an SQLite store in this directory.
    pub(crate) async fn start(directory: &Path) -> Server {
        Server::with(Arc::new(SqliteStore::open(directory.join("tasks.db")).unwrap()), HubOptions::default())
            .await
    }

    pub(crate) async fn with(store: Arc<dyn Store>, options: HubOptions) -> Server {
        // The client needs one, though it speaks no TLS here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let gate = Arc::new(Semaphore::new(0));
        let team = team(&gate);
        let limits = longhaul::dispatch::TaskLimits::default().running(200).queue(None);
        let longhaul =
            Longhaul::builder(team.clone()).shared_store(store.clone()).limits(limits).start().await.unwrap();
        let served = ServedTeam {
            name: "crew".to_owned(),
            team,
            working_dir: std::env::temp_dir(),
            budget: Budget::default(),
        };
        let backend = Backend::new(longhaul.clone(), vec![served], Arc::new(RunsHere));
        let drain = CancellationToken::new();
        let hub = EventHub::start(store, options, drain.clone());
        let revoked = CancellationToken::new();
        let router = api::router(backend, hub.clone()).layer(axum::Extension(StreamEnd(revoked.clone())));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = router.clone();
        let listener = tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
        let client = reqwest::Client::new();
        Server { url, longhaul, hub, drain, revoked, gate, client, router, listener }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        match path.starts_with("/api") || path.starts_with("/healthz") || path.starts_with("/readyz") {
            true => format!("{}{path}", self.url),
            false => format!("{}/api/v1{path}", self.url),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        json_of(self.client.get(self.at(path)).send()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        json_of(self.client.post(self.at(path)).json(&body).send()).await
    }

    pub(crate) async fn ok(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    /// Starts a task, and answers with its id.
    pub(crate) async fn submit(&self, body: Value) -> String {
        let (status, task) = self.post("/tasks", body).await;
        assert_eq!(status, StatusCode::CREATED, "{task}");
        task["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a task has ended.
    pub(crate) async fn wait(&self, id: &str) -> Value {
        let waited = self.ok(&format!("/wait?tasks={id}&timeout=60")).await;
        assert_eq!(waited["timed_out"], false, "{waited}");
        waited["tasks"][0].clone()
    }

    /// The problem that a request is answered with.
    pub(crate) async fn problem(&self, request: reqwest::RequestBuilder, status: u16, says: &str) -> Value {
        let answer = within(request.send()).await.unwrap();
        let (got, kind) = (answer.status(), answer.headers()["content-type"].to_str().unwrap().to_owned());
        let text = answer.text().await.unwrap();
        assert_eq!((got.as_u16(), kind.as_str()), (status, "application/problem+json"), "{text}");
        assert!(text.contains(says), "'{says}' in {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(problem["status"], status);
        problem
    }
}

async fn json_of(answer: impl Future<Output = reqwest::Result<reqwest::Response>>) -> (StatusCode, Value) {
    let answer = within(answer).await.unwrap();
    (answer.status(), within(answer.json()).await.unwrap())
}
