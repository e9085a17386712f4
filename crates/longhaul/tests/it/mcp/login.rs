//! A server that asks for a login, and a person with a browser: OAuth from the 401 to the stored tokens.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::toolset::{FileTokenStore, Mcp, McpServer, Toolset as _, ToolsetContext};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::mcp::stage::{Stage, call, open, options};

/// An MCP server behind a login, and the login.
struct Guarded {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Guarded {
    async fn start() -> Guarded {
        Guarded::leading(|_| None).await
    }

    /// One whose answers have something else in the place of a text.
    async fn leading(swap: impl FnOnce(&str) -> Option<(String, String)>) -> Guarded {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (kept, at, swap) = (seen.clone(), base.clone(), swap(&base));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, at.clone(), kept.clone(), swap.clone()));
            }
        });
        Guarded { url: format!("{base}/mcp"), seen, _tasks: tasks }
    }

    fn times(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|line| line.starts_with(what)).count()
    }
}

async fn serve(
    mut stream: TcpStream,
    base: String,
    seen: Arc<Mutex<Vec<String>>>,
    swap: Option<(String, String)>,
) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let (headers, body) = loop {
        let Ok(n @ 1..) = stream.read(&mut buffer).await else { return };
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((headers, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = headers
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break (headers.to_owned(), body.to_owned());
        }
    };
    let line = headers.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(line.clone());
    let authorized = headers.contains("Bearer token-1") || headers.contains("bearer token-1");
    let (status, mut extra, mut answer) = answer(&line, &body, authorized, &base);
    if let Some((from, to)) = swap {
        (extra, answer) = (extra.replace(&from, &to), answer.replace(&from, &to));
    }
    let reply = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{extra}\r\n{answer}",
        answer.len()
    );
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn answer(line: &str, body: &str, authorized: bool, base: &str) -> (u16, String, String) {
    let ok = |value: Value| (200, String::new(), value.to_string());
    let path = line.split(' ').nth(1).unwrap_or_default();
    match (line.split(' ').next().unwrap_or_default(), path) {
        ("POST", "/mcp") if !authorized => {
            let challenge = format!(
                "www-authenticate: Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource\"\r\n"
            );
            (401, challenge, String::new())
        }
        ("POST", "/mcp") => {
            let asked: Value = serde_json::from_str(body).unwrap();
            let result = match asked["method"].as_str().unwrap() {
                "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                       "serverInfo": {"name": "guarded", "version": "1"}}),
                "tools/list" => json!({"tools": [{"name": "secret", "inputSchema": {"type": "object"}}]}),
                "tools/call" => json!({"content": [{"type": "text", "text": "42"}]}),
                method if method.starts_with("notifications/") => return (202, String::new(), String::new()),
                _ => {
                    let error = json!({"code": -32601, "message": "no such method"});
                    return ok(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
                }
            };
            ok(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        }
        ("GET", "/.well-known/oauth-protected-resource") => {
            ok(json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}))
        }
        ("GET", "/.well-known/oauth-authorization-server") => ok(json!({
            "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
            "registration_endpoint": format!("{base}/register"), "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
        })),
        ("POST", "/register") => {
            let asked: Value = serde_json::from_str(body).unwrap();
            ok(json!({"client_id": "client-1", "redirect_uris": asked["redirect_uris"]}))
        }
        ("POST", "/token") if body.contains("code=right") && body.contains("code_verifier=") => ok(
            json!({"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh-1"}),
        ),
        ("POST", "/token") => (400, String::new(), json!({"error": "invalid_grant"}).to_string()),
        ("GET", "/mcp") => (405, String::new(), String::new()),
        _ => (404, String::new(), String::new()),
    }
}

/// A person who opens the page and says yes, after some have knocked with the wrong words.
fn person() -> (longhaul::toolset::ShowLogin, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (tell, pages) = tokio::sync::mpsc::unbounded_channel();
    (Arc::new(move |server: &str, page: &str| tell.send(format!("{server} {page}")).unwrap()), pages)
}

async fn knock(at: &str) -> String {
    let url = Url::parse(at).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
    let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    stream.write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn context() -> ToolsetContext {
    ToolsetContext::new("tester")
}

async fn why_not(toolset: &Mcp) -> String {
    toolset.open(&context()).await.err().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_asked_for_once_and_kept_where_only_its_owner_can_read_it() {
    let guarded = Guarded::start().await;
    let tokens = tempfile::tempdir().unwrap();
    let kept = Arc::new(FileTokenStore::new(tokens.path().join("tokens")));
    let (login, mut pages) = person();
    let stage = Stage::with(options().show_login(Some(login)).token_store(kept.clone()));
    let toolset = stage.pool.toolset(McpServer::remote(&guarded.url));
    let logs_in = async {
        let page = pages.recv().await.unwrap();
        let (server, page) = page.split_once(' ').unwrap();
        assert_eq!(server, guarded.url);
        let page = Url::parse(page).unwrap();
        let said = |name: &str| page.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        assert_eq!(
            (said("client_id").as_str(), said("code_challenge_method").as_str()),
            ("client-1", "S256")
        );
        let back = said("redirect_uri");
        assert!(back.starts_with("http://127.0.0.1:"), "{back}");
        assert!(knock(&format!("{back}?code=right&state=forged")).await.starts_with("HTTP/1.1 400"));
        assert!(knock(&back.replace("callback", "else")).await.starts_with("HTTP/1.1 404"));
        let done = knock(&format!("{back}?code=right&state={}", said("state"))).await;
        assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    };
    let (tools, ()) = tokio::join!(open(&toolset), logs_in);
    assert_eq!(call(&stage, &tools, "secret", json!({})).await.unwrap(), "42");
    let files: Vec<_> =
        std::fs::read_dir(tokens.path().join("tokens")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    stage.end().await;

    // Another process finds the tokens; there is nobody to ask, and no need to.
    let stage = Stage::with(options().token_store(kept));
    let toolset = stage.pool.toolset(McpServer::remote(&guarded.url));
    assert_eq!(open(&toolset).await.len(), 1);
    assert_eq!(guarded.times("POST /token"), 1);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_takes_longer_than_a_start_goes_on_and_brings_the_tools() {
    let guarded = Guarded::start().await;
    let (login, mut pages) = person();
    let stage = Stage::with(options().show_login(Some(login)).connect_timeout(Duration::from_secs(2)));
    let toolset = stage.pool.toolset(McpServer::remote(&guarded.url));
    let why = why_not(&toolset).await;
    assert!(why.contains("asks for a login") && !why.contains("code_challenge"), "{why}");
    let before = toolset.generation();
    let page = pages.recv().await.unwrap();
    let page = Url::parse(page.split_once(' ').unwrap().1).unwrap();
    let said = |name: &str| page.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    knock(&format!("{}?code=right&state={}", said("redirect_uri"), said("state"))).await;
    let begun = std::time::Instant::now();
    while toolset.generation() == before {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(open(&toolset).await.len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn without_anybody_to_log_in_it_is_said_so_and_a_key_of_ones_own_is_not_mended() {
    let guarded = Guarded::start().await;
    let stage = Stage::new();
    let why = why_not(&stage.pool.toolset(McpServer::remote(&guarded.url))).await;
    assert!(why.contains("asks for a login (OAuth)"), "{why}");
    let wrong = McpServer::remote(&guarded.url).header("Authorization", "Bearer wrong-wrong-wrong");
    let why = why_not(&stage.pool.toolset(wrong)).await;
    assert!(
        why.contains("does not accept the header `Authorization`") && !why.contains("wrong-wrong"),
        "{why}"
    );
    let right = McpServer::remote(&guarded.url).header("Authorization", "Bearer token-1");
    assert_eq!(open(&stage.pool.toolset(right)).await.len(), 1);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_is_shown_that_is_not_of_the_web() {
    for page in ["javascript:alert(1)", "file:///etc/passwd", "http://login.example/authorize"] {
        let guarded = Guarded::leading(|base| Some((format!("{base}/authorize"), page.to_owned()))).await;
        let (login, mut pages) = person();
        let stage = Stage::with(options().show_login(Some(login)));
        let why = why_not(&stage.pool.toolset(McpServer::remote(&guarded.url))).await;
        assert!(pages.try_recv().is_err(), "{page} is shown");
        assert!(why.contains("is not shown") || why.contains("the login failed"), "{page}: {why}");
        assert!(!why.contains("::"), "{why}");
        stage.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_does_not_lead_into_a_network_that_the_server_is_not_in() {
    let begun = std::time::Instant::now();
    let metadata = |base: &str| format!("resource_metadata=\"{base}/.well-known/oauth-protected-resource\"");
    let servers = |base: &str| json!({"authorization_servers": [base]}).to_string().replace(['{', '}'], "");
    for elsewhere in ["http://169.254.169.254", "https://10.1.2.3", "https://192.168.1.1:8443"] {
        for place in [&metadata as &dyn Fn(&str) -> String, &servers] {
            let guarded = Guarded::leading(|base| Some((place(base), place(elsewhere)))).await;
            let (login, mut pages) = person();
            let stage =
                Stage::with(options().show_login(Some(login)).connect_timeout(Duration::from_secs(6)));
            let why = why_not(&stage.pool.toolset(McpServer::remote(&guarded.url))).await;
            // Without the metadata it goes on with what the server itself says of the login, which is where the server is.
            let fine = ["asks for a login", "the server is not there", "none published usable metadata"];
            assert!(fine.iter().any(|words| why.contains(words)), "{elsewhere}: {why}");
            while let Ok(page) = pages.try_recv() {
                assert!(page.contains("http://127.0.0.1:"), "{page}");
            }
            stage.end().await;
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody was waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_the_other_requests_of_a_login() {
    let swap = |base: &str| Some((format!("{base}/register"), "https://10.1.2.3/register".to_owned()));
    let guarded = Guarded::leading(swap).await;
    let (login, mut pages) = person();
    let stage = Stage::with(options().show_login(Some(login)));
    let why = why_not(&stage.pool.toolset(McpServer::remote(&guarded.url))).await;
    assert!(
        why.contains("leads to 10.1.2.3, which is a private address, and the server is not there"),
        "{why}"
    );
    assert!(pages.try_recv().is_err());
    stage.end().await;
}
