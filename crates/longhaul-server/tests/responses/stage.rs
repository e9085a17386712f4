//! A server to test with: its teams, its model, and how to talk to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::agent::Unattended;
use longhaul::message::{Message, Reply};
use longhaul::model::{Model, ModelRequest, ReplyChunk, ReplyStream};
use longhaul::permission::Permissions;
use longhaul::store::SqliteStore;
use longhaul::testing::reply;
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::{Agent, Budget, Longhaul, Team};
use longhaul_server::backend::{Backend, RunsHere, ServedTeam};
use reqwest::Method;
use serde_json::{Value, json};

use crate::event_checks::parse_events;

/// A model that does what the last message says, and streams its text word by word.
pub(crate) struct Obedient {
    /// How long a word takes.
    pub(crate) pause: Duration,
    /// The first word of its texts.
    pub(crate) prefix: String,
}

impl Obedient {
    fn reply(&self, request: &ModelRequest<'_>) -> Reply {
        let texts: Vec<String> = request
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::User(text) => Some(text.to_string()),
                _ => None,
            })
            .collect();
        let last = texts.last().cloned().unwrap_or_default();
        let after_call = matches!(request.messages.last(), Some(Message::Tool(_)));
        let built = match () {
            () if texts.iter().any(|text| text.contains("fail")) => reply().text(""),
            () if last.contains("look") && !after_call => {
                reply().reasoning("I should look.").text("Let me look.").call("look", json!({ "at": "it" }))
            }
            () if last.contains("write") && !after_call => reply().call("write", json!({ "what": "x" })),
            () if last.contains("count") => {
                let words: Vec<String> =
                    (0..if last.contains("count far") { 240 } else { 60 }).map(|n| format!("ä{n}")).collect();
                reply().text(format!("{} {}", self.prefix, words.join(" ")))
            }
            () => {
                let count = texts.len();
                reply()
                    .reasoning("Easy.")
                    .text(format!("{} answer {count} to {last}", self.prefix).trim().to_owned())
            }
        };
        Reply { model: "obedient".to_owned(), ..built.usage(10, 5).build() }
    }
}

impl Model for Obedient {
    fn name(&self) -> &str {
        "obedient"
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let reply = self.reply(&request);
        let text = reply.text();
        let words: Vec<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        let pause = self.pause;
        let pieces = futures::stream::iter(words).then(move |word| async move {
            tokio::time::sleep(pause).await;
            Ok(ReplyChunk::Text(word))
        });
        let end = futures::stream::once(async move { Ok(ReplyChunk::Done(Box::new(reply))) });
        pieces.chain(end).boxed()
    }
}

/// A tool that only looks, or one that writes.
struct Act(&'static str, ToolEffects);

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Anything {
    #[serde(default)]
    at: String,
    #[serde(default)]
    what: String,
}

impl Tool for Act {
    type Args = Anything;

    fn name(&self) -> &str {
        self.0
    }

    fn description(&self) -> String {
        "Does it.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        self.1
    }

    async fn call(&self, _: Anything, _: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok("done".into())
    }
}

fn team(name: &str, helper: &str, model: &Arc<Obedient>) -> Team {
    let helper = Agent::builder(helper).model(model.clone()).description("Helps.").build().unwrap();
    let lead = Agent::builder("lead")
        .model(model.clone())
        .description("Leads.")
        .tool(Act("look", ToolEffects::READ_ONLY))
        .tool(Act("write", ToolEffects::default()))
        .permissions(Permissions::default())
        .sub_agent(helper)
        .build()
        .unwrap();
    Team::new(lead).unwrap().with_name(name)
}

/// Two teams, `alpha` and `beta`, on the database in this directory.
pub(crate) async fn backend(dir: &Path, model: Obedient) -> Backend {
    let model = Arc::new(model);
    let (alpha, beta) = (team("alpha", "scout", &model), team("beta", "clerk", &model));
    let longhaul = Longhaul::builder(alpha.clone())
        .add_team(beta.clone())
        .store(SqliteStore::open(dir.join("tasks.db")).unwrap())
        .unattended(Unattended::Wait)
        .start()
        .await
        .unwrap();
    let served = |name: &str, team: Team| ServedTeam {
        name: name.to_owned(),
        team,
        working_dir: dir.to_owned(),
        budget: Budget::default(),
    };
    Backend::new(longhaul, vec![served("alpha", alpha), served("beta", beta)], Arc::new(RunsHere))
}

/// Serves the routes on a free port, until the runtime ends.
pub(crate) async fn listen(backend: Backend) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = longhaul_server::responses::router(backend);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A server in this process, and a client of it.
pub(crate) struct Stage {
    pub(crate) backend: Backend,
    base: String,
    client: reqwest::Client,
    _dir: tempfile::TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Stage {
        Stage::with_pause(Duration::from_millis(1)).await
    }

    pub(crate) async fn with_pause(pause: Duration) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let backend = backend(dir.path(), Obedient { pause, prefix: String::new() }).await;
        let base = format!("http://{}", listen(backend.clone()).await);
        Stage { backend, base, client: http_client(), _dir: dir }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<String>) -> (u16, Value) {
        self.send_with(method, path, body, &[]).await
    }

    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}")))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub(crate) async fn create(&self, body: Value) -> Value {
        let (status, body) = self.send(Method::POST, "/v1/responses", Some(body.to_string())).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The error of a request that is refused.
    pub(crate) async fn refused(&self, method: Method, path: &str, body: Option<String>) -> (u16, Value) {
        let (status, body) = self.send(method, path, body).await;
        assert!((400..500).contains(&status), "{status} {body}");
        let error = body["error"].clone();
        assert!(error["message"].is_string() && error["type"] == "invalid_request_error", "{body}");
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{body}");
        (status, error)
    }

    /// All events of a stream.
    pub(crate) async fn events(&self, method: Method, path: &str, body: Option<Value>) -> Vec<Value> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        parse_events(&response.text().await.unwrap())
    }

    pub(crate) fn url(&self) -> &str {
        &self.base
    }
}

pub(crate) fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}
