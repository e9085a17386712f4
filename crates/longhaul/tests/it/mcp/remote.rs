//! Servers on the network: the same server behind streamable HTTP, and behind the older event streams.

use std::process::Stdio;
use std::time::Duration;

use longhaul::entry::QuestionAnswer;
use longhaul::process::{ProcessGroup, ProcessGuardian};
use longhaul::testing::CallRequest;
use longhaul::toolset::{McpServer, McpTransport, Toolset as _};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::mcp::servers::script;
use crate::mcp::stage::{Stage, call, find, open};

/// A server that listens; killed when it is dropped.
pub(crate) struct Listening {
    group: ProcessGroup,
    pub(crate) port: u16,
}

impl Listening {
    async fn start(way: &str, guardian: &ProcessGuardian) -> Listening {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Listening::start_at(port, way, guardian).await
    }

    async fn start_at(port: u16, way: &str, guardian: &ProcessGuardian) -> Listening {
        let mut command = Command::new("node");
        command.args([script("everything").as_str(), way]).env("PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut group = ProcessGroup::spawn(command, guardian).unwrap();
        let mut lines = BufReader::new(group.child.stderr.take().unwrap()).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(&port.to_string()) {
                    return;
                }
            }
            panic!("it ended");
        };
        tokio::time::timeout(Duration::from_secs(60), ready).await.expect("it listens");
        // What it writes later must not stop it.
        tokio::task::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Listening { group, port }
    }
}

/// All that a call can be: a result, progress, a question, cancelled.
async fn exam(stage: &Stage, server: McpServer) {
    let toolset = stage.pool.toolset(server);
    let tools = open(&toolset).await;
    assert_eq!(call(stage, &tools, "net_echo", json!({"message": "far"})).await.unwrap(), "Echo: far");

    let (context, mut heard) = stage.call();
    let long = find(&tools, "net_trigger-long-running-operation");
    long.call(r#"{"duration": 0.5, "steps": 3}"#, &context).await.unwrap();
    assert!(matches!(heard.try_recv(), Some(CallRequest::Progress(text)) if text.ends_with(" of 3")));

    let (context, mut heard) = stage.call();
    let answering = async {
        loop {
            if let Some(CallRequest::AsksPerson { reply, .. }) = heard.recv().await {
                reply.send(QuestionAnswer::Given(r#"{"name": "Ada", "check": true}"#.to_owned())).unwrap();
                return;
            }
        }
    };
    let elicits = find(&tools, "net_trigger-elicitation-request");
    let (result, ()) = tokio::join!(elicits.call("{}", &context), answering);
    assert!(result.unwrap().text.contains("Ada"));

    let (context, mut heard) = stage.call();
    let cancel = async {
        heard.recv().await.unwrap();
        context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(long.call(r#"{"duration": 600, "steps": 3000}"#, &context), cancel);
    assert!(result.unwrap_err().to_string().contains("being stopped"));
    assert_eq!(call(stage, &tools, "net_echo", json!({"message": "on"})).await.unwrap(), "Echo: on");
    toolset.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamable_http_works() {
    let (stage, guardian) = (Stage::new(), ProcessGuardian::new());
    let listening = Listening::start("streamableHttp", &guardian).await;
    let url = format!("http://127.0.0.1:{}/mcp", listening.port);
    exam(&stage, McpServer::remote(url).named("net").header("X-Test", "1")).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_event_streams_work() {
    let (stage, guardian) = (Stage::new(), ProcessGuardian::new());
    let listening = Listening::start("sse", &guardian).await;
    let url = format!("http://127.0.0.1:{}/sse", listening.port);
    exam(&stage, McpServer::remote(url).named("net").transport(McpTransport::Sse)).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_and_comes_back_is_connected_to_again() {
    let (stage, guardian) = (Stage::new(), ProcessGuardian::new());
    let mut listening = Listening::start("streamableHttp", &guardian).await;
    let url = format!("http://127.0.0.1:{}/mcp", listening.port);
    let toolset = stage.pool.toolset(McpServer::remote(url).named("net"));
    let tools = open(&toolset).await;
    // Once somebody notices that it is gone, and once nobody does.
    for notices in [true, false] {
        let port = listening.port;
        listening.group.kill().await;
        if notices {
            let why =
                call(&stage, &tools, "net_echo", json!({"message": "far"})).await.unwrap_err().to_string();
            assert!(why.contains("the MCP server 'net'"), "{why}");
        }
        listening = Listening::start_at(port, "streamableHttp", &guardian).await;
        // The first call may find out that the server knows nothing of the last session.
        let _ = call(&stage, &tools, "net_echo", json!({"message": "well?"})).await;
        assert_eq!(call(&stage, &tools, "net_echo", json!({"message": "back"})).await.unwrap(), "Echo: back");
    }
    toolset.close().await;
    stage.end().await;
}

#[tokio::test]
async fn who_is_not_there_is_named() {
    let stage = Stage::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for server in [
        McpServer::remote(format!("http://127.0.0.1:{port}/mcp")),
        McpServer::remote(format!("http://127.0.0.1:{port}/sse")).transport(McpTransport::Sse),
    ] {
        let context = longhaul::toolset::ToolsetContext::new("tester");
        let toolset = stage.pool.toolset(server);
        let why = toolset.open(&context).await.err().unwrap().to_string();
        assert!(why.contains(&format!("http://127.0.0.1:{port}/")), "{why}");
    }
    stage.end().await;
}

/// Refuses everything with a 500; the headers of the requests that came.
async fn refuses(listener: tokio::net::TcpListener, requests: std::sync::mpsc::Sender<String>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut buffer).await {
                Ok(n @ 1..) => request.extend_from_slice(&buffer[..n]),
                _ => break,
            }
        }
        requests.send(String::from_utf8_lossy(&request).to_lowercase()).unwrap();
        let _ =
            stream.write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    }
}

#[tokio::test]
async fn headers_go_along_and_nothing_tells_what_is_secret_in_them_or_in_the_url() {
    let stage = Stage::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, requests) = std::sync::mpsc::channel();
    let serving = tokio::task::spawn(refuses(listener, tell));
    // Nobody listens at the second: what it says of that is of another kind.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let context = longhaul::toolset::ToolsetContext::new("tester");
    for transport in [McpTransport::Streamable, McpTransport::Sse] {
        for port in [port, closed] {
            let server = McpServer::remote(format!("http://127.0.0.1:{port}/mcp?key=hunter2-hunter2"))
                .transport(transport)
                .named("net")
                .header("X-Test", "hunter3-hunter3");
            let toolset = stage.pool.toolset(server);
            let why = toolset.open(&context).await.err().unwrap().to_string();
            assert!(why.contains(&format!("http://127.0.0.1:{port}/mcp")), "{why}");
            let all = format!("{why} {toolset:?}");
            assert!(!all.contains("hunter"), "{all}");
            toolset.close().await;
        }
        let requests: Vec<String> = requests.try_iter().collect();
        assert!(!requests.is_empty());
        for request in requests {
            assert!(
                request.contains("x-test: hunter3-hunter3") && request.contains("/mcp?key=hunter2"),
                "{request}"
            );
        }
    }
    serving.abort();
    stage.end().await;
}
