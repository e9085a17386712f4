//! A real server on loopback with stub routes behind the guard.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Json};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post, put};
use futures::StreamExt as _;
use http::Method;
use longhaul_server::access::{Access, AccessControl, AccessDir, Scope};
use longhaul_server::app::app;
use longhaul_server::guard::{AllowedHosts, Guard, GuardLimits};
use longhaul_server::listen::{ConnectionLimits, ListenOptions, Listener, TlsFiles};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take that should happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The routes of the stubs, as the real interfaces have them.
pub(crate) const ROUTES: [(Method, &str); 12] = [
    (Method::GET, "/api/v1/tasks"),
    (Method::POST, "/api/v1/tasks"),
    (Method::GET, "/api/v1/events"),
    (Method::GET, "/api/v1/endless"),
    (Method::GET, "/api/v1/slow"),
    (Method::GET, "/api/v1/who"),
    (Method::PUT, "/api/v1/teams/dev"),
    (Method::GET, "/v1/models"),
    (Method::POST, "/v1/responses"),
    (Method::POST, "/mcp"),
    (Method::GET, "/metrics"),
    (Method::GET, "/app.js"),
];

fn stubs() -> Vec<Router> {
    let events = || async {
        let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(Event::default().data("one"))]);
        Sse::new(first.chain(futures::stream::pending()))
    };
    let endless = || async {
        let chunk = bytes::Bytes::from(vec![b'x'; 1 << 16]);
        let chunks = futures::stream::repeat(chunk).map(Ok::<_, std::convert::Infallible>);
        axum::body::Body::from_stream(chunks)
    };
    let who = |Extension(access): Extension<Access>| async move {
        Json(json!({"token": access.token, "scope": access.scope}))
    };
    let api = Router::new()
        .route(
            "/api/v1/tasks",
            get(|| async { Json(json!([])) }).post(|Json(body): Json<Value>| async { Json(body) }),
        )
        .route("/api/v1/events", get(events))
        .route("/api/v1/endless", get(endless))
        .route("/api/v1/slow", get(std::future::pending::<()>))
        .route("/api/v1/who", get(who))
        .route("/api/v1/teams/{team}", put(|| async { "ok" }))
        .route("/metrics", get(|| async { "x 1" }))
        .route("/app.js", get(|| async { ([("access-control-allow-origin", "*")], "1") }));
    let responses = Router::new()
        .route("/v1/models", get(|| async { Json(json!({"data": []})) }))
        .route("/v1/responses", post(|body: String| async move { body.len().to_string() }));
    let mcp = Router::new().route("/mcp", post(|| async { Json(json!({})) }));
    vec![api, responses, mcp]
}

pub(crate) struct Options {
    pub(crate) limits: GuardLimits,
    pub(crate) connections: ConnectionLimits,
    pub(crate) tls: Option<TlsFiles>,
}

impl Default for Options {
    fn default() -> Options {
        Options { limits: GuardLimits::default(), connections: ConnectionLimits::default(), tls: None }
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) access: AccessDir,
    /// The first token.
    pub(crate) admin: String,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    watching: JoinHandle<()>,
    pub(crate) http: reqwest::Client,
    _temp: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        self.serving.abort();
        self.watching.abort();
    }
}

/// A client that accepts no redirects, and keeps no connections.
pub(crate) fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(SOON)
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Server {
        let temp = tempfile::tempdir().unwrap();
        let access = AccessDir::in_data_dir(temp.path());
        let file = access.ensure_first_token().unwrap().unwrap();
        let admin = std::fs::read_to_string(file).unwrap().trim().to_owned();
        let mut listen = ListenOptions::new(([127, 0, 0, 1], 0).into());
        listen.limits = options.connections;
        listen.tls = options.tls;
        let listener = Listener::bind(listen).await.unwrap();
        let address = listener.address();
        let control = AccessControl::open(access.clone()).unwrap();
        let stop = CancellationToken::new();
        let hosts = AllowedHosts::loopback(listener.is_tls(), address.port());
        let guard = Guard::new(control.clone(), hosts, options.limits, stop.clone());
        let serving = tokio::spawn(listener.serve(app(stubs(), guard), stop.clone()));
        let watching = tokio::spawn(async move { control.watch().await });
        let http = client().build().unwrap();
        Server { address, access, admin, stop, serving, watching, http, _temp: temp }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn token(&self, name: &str, scope: Scope) -> String {
        self.access.create(name, scope).unwrap().secret
    }

    /// A request without a credential.
    pub(crate) fn request(&self, method: &Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method.clone(), self.url(path));
        match method == Method::POST || method == Method::PUT {
            true => request.header("content-type", "application/json").body("{}"),
            false => request,
        }
    }

    pub(crate) fn get(&self, path: &str, token: &str) -> reqwest::RequestBuilder {
        self.request(&Method::GET, path).bearer_auth(token)
    }

    pub(crate) fn post(&self, path: &str, token: &str) -> reqwest::RequestBuilder {
        self.request(&Method::POST, path).bearer_auth(token)
    }

    /// Sends bytes as they are, and returns everything that comes back until the server closes.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        read_to_end(&mut stream).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset is an end too: the server may not have read everything.
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut all)).await;
    let _ = read.expect("the server did not close the connection");
    String::from_utf8_lossy(&all).into_owned()
}

/// Checks that a response is a problem document that lets no other origin read it, and returns it.
pub(crate) async fn problem(response: reqwest::Response, what: &str) -> Value {
    check_headers(&response, what);
    let status = response.status().as_u16();
    assert!(status >= 400, "{what}: {status}");
    assert_eq!(response.headers()["content-type"], "application/problem+json", "{what}");
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["status"], status, "{what}: {body}");
    assert!(body["code"].is_string() && body["detail"].is_string(), "{what}: {body}");
    body
}

/// Checks the headers that every response has.
pub(crate) fn check_headers(response: &reqwest::Response, what: &str) {
    let headers = response.headers();
    let csp = headers["content-security-policy"].to_str().unwrap();
    assert!(
        csp.contains("require-trusted-types-for 'script'") && csp.contains("frame-ancestors 'none'"),
        "{what}"
    );
    assert_eq!(headers["x-content-type-options"], "nosniff", "{what}");
    assert_eq!(headers["referrer-policy"], "no-referrer", "{what}");
    assert_eq!(headers["cross-origin-opener-policy"], "same-origin", "{what}");
    let cors: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("access-control")).collect();
    assert!(cors.is_empty(), "{what}: {cors:?}");
    assert!(headers.get("server").is_none(), "{what}");
}
