//! What a server wrote before it ended is told, however it ended.

use std::time::{Duration, Instant};

use longhaul::toolset::{Mcp, McpServer, Toolset as _, ToolsetContext};
use serde_json::json;

use crate::mcp::stage::{Stage, call, open};

/// Speaks MCP far enough to offer one tool, `die`.
const SPEAKS: &str = r#"
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
    *'"tools/list"'*) LISTING; answer='"result":{"tools":[{"name":"die","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) CALLING ;;
    *'"id"'*) answer='"error":{"code":-32601,"message":"no such method"}' ;;
    *) continue ;;
  esac
  echo "{\"jsonrpc\":\"2.0\",\"id\":$id,$answer}"
done
"#;

/// Ends with last words that come from a child, after it has exited itself.
const DIES: &str = "(sleep 0.2; echo 'KEY is not set' >&2) & exit 3";

fn server(stage: &Stage, script: &str) -> Mcp {
    stage.pool.toolset(McpServer::command("sh", ["-c", script]))
}

fn speaks(listing: &str, calling: &str) -> String {
    SPEAKS.replace("LISTING", listing).replace("CALLING", calling)
}

async fn refused(toolset: &Mcp) -> String {
    let context = ToolsetContext::new("tester");
    toolset.open(&context).await.err().expect("it does not start").to_string()
}

#[tokio::test]
async fn a_server_that_exits_at_once_has_its_last_words_told() {
    let stage = Stage::new();
    let why = refused(&server(&stage, DIES)).await;
    assert!(
        why.ends_with("it exited with code 3 before it was ready; its last words were: KEY is not set"),
        "{why}"
    );
    stage.end().await;
}

#[tokio::test]
async fn a_server_that_exits_while_it_lists_its_tools_has_its_last_words_told() {
    let stage = Stage::new();
    let why = refused(&server(&stage, &speaks(DIES, ":"))).await;
    assert!(
        why.contains(
            "it exited with code 3 before its tools were listed; its last words were: KEY is not set"
        ),
        "{why}"
    );
    stage.end().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_has_its_last_words_told() {
    let stage = Stage::new();
    let toolset = server(&stage, &speaks(":", DIES));
    let tools = open(&toolset).await;
    let why = call(&stage, &tools, "die", json!({})).await.unwrap_err().to_string();
    assert!(why.contains("it exited with code 3; its last words were: KEY is not set"), "{why}");
    stage.end().await;
}

/// Somebody who left the server's group and holds its stderr open is not waited for.
#[tokio::test]
async fn a_stderr_that_never_ends_is_not_waited_for() {
    let stage = Stage::new();
    let begun = Instant::now();
    let why = refused(&server(&stage, "echo 'KEY is not set' >&2; setsid sleep 30 & exit 3")).await;
    assert!(why.contains("KEY is not set"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    stage.pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_last_words_are_lost() {
    lose_no_words(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./test --all"]
async fn long_no_last_words_of_200_servers_are_lost_under_load() {
    lose_no_words(10).await;
}

/// Twenty servers at once, some rounds of them, and the machine busy: the reader of a pipe comes late.
async fn lose_no_words(rounds: usize) {
    let stage = Stage::new();
    let busy = tokio_util::sync::CancellationToken::new();
    for _ in 0..2 {
        let busy = busy.clone();
        std::thread::spawn(move || while !busy.is_cancelled() {});
    }
    let _busy = busy.drop_guard();
    for round in 0..rounds {
        let start = |n| {
            let script = format!(
                "head -c 40000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo 'word {round}-{n}' >&2; exit 3"
            );
            let toolset = server(&stage, &script);
            async move { (n, refused(&toolset).await) }
        };
        for (n, why) in futures::future::join_all((0..20).map(start)).await {
            assert!(why.ends_with(&format!("word {round}-{n}")), "{why}");
        }
    }
    stage.end().await;
}
