//! Servers that break the protocol, or ask for more than is theirs: each is told what is wrong, at once, and takes
//! no more memory, tokens or patience than the documents say.

use std::process::Stdio;
use std::time::{Duration, Instant};

use longhaul::entry::QuestionAnswer;
use longhaul::process::{ProcessGroup, ProcessGuardian};
use longhaul::testing::CallRequest;
use longhaul::tool::ToolError;
use longhaul::toolset::{Mcp, McpServer, Toolset as _, ToolsetContext};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::mcp::stage::{Stage, find, open, options};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/strange.mjs");
const GENERATIONS: [&str; 2] = ["2025", "2026"];

/// Long enough for a slow machine, and far from the ten minutes that a silent call may take.
const AT_ONCE: Duration = Duration::from_secs(30);

pub(crate) fn stage() -> Stage {
    Stage::with(options().inactivity_timeout(Duration::from_secs(120)))
}

/// The server as a program.
fn piped(generation: &str, flags: &[&str]) -> McpServer {
    let args = [&[SCRIPT, "stdio", generation], flags].concat();
    McpServer::command("node", args).named("strange")
}

/// The server behind HTTP; killed when it is dropped.
struct Listens {
    _group: ProcessGroup,
    url: String,
}

async fn listens(generation: &str, flags: &[&str]) -> Listens {
    let mut command = Command::new("node");
    command.args([SCRIPT, "http", generation]).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut group = ProcessGroup::spawn(command, &ProcessGuardian::new()).unwrap();
    let mut lines = BufReader::new(group.child.stderr.take().unwrap()).lines();
    let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.expect("it listens");
    let line = line.unwrap().expect("it ended");
    let port = line.strip_prefix("listening ").unwrap();
    Listens { _group: group, url: format!("http://127.0.0.1:{port}/mcp") }
}

/// A call that is over soon; questions are answered, and how many there were is counted.
async fn call(stage: &Stage, toolset: &Mcp, name: &str, arguments: Value) -> Called {
    let tools = open(toolset).await;
    let (context, mut heard) = stage.call();
    let begun = Instant::now();
    let (mut questions, mut samplings, mut progress) = (Vec::new(), 0, Vec::new());
    let tool = find(&tools, &format!("strange_{name}"));
    let arguments = arguments.to_string();
    let mut calling = tool.call(&arguments, &context);
    let result = loop {
        tokio::select! {
            result = &mut calling => break result,
            Some(signal) = heard.recv() => match signal {
                CallRequest::AsksPerson { question, reply, .. } => {
                    questions.push(question.text);
                    let _ = reply.send(QuestionAnswer::Given("x".to_owned()));
                }
                CallRequest::WantsModel { reply, .. } => drop(reply.send(Ok(()))),
                CallRequest::Sampled { noted, .. } => {
                    samplings += 1;
                    let _ = noted.send(());
                }
                CallRequest::Progress(text) => progress.push(text),
                _ => {}
            },
            () = tokio::time::sleep_until((begun + AT_ONCE).into()) => panic!("{name} {arguments}: not at once"),
        }
    };
    Called { result: result.map(|output| output.text), questions, samplings, progress }
}

struct Called {
    result: Result<String, ToolError>,
    questions: Vec<String>,
    samplings: usize,
    progress: Vec<String>,
}

impl Called {
    fn error(self) -> String {
        self.result.expect_err("it failed").to_string()
    }
}

/// How answers are broken, and what is said about it.
const BROKEN: [(&str, &str); 7] = [
    ("huge", "longer than 16 MB"),
    ("huge-id-last", "longer than 16 MB"),
    ("deep", "nested more than"),
    ("values", "more than 1,000,000 values"),
    ("utf8", "not UTF-8"),
    ("cut", "not JSON"),
    ("shape", "not a JSON-RPC message"),
];

async fn unreadable_answers(stage: &Stage, toolset: Mcp, streams: &[bool]) {
    for stream in streams {
        for (how, why) in BROKEN {
            let error = call(stage, &toolset, "broken", json!({"how": how, "stream": stream})).await.error();
            assert!(error.contains(why) && error.contains("cannot be read"), "{how}: {error}");
        }
        // It was nothing but that answer: the server is there, and the same.
        assert_eq!(call(stage, &toolset, "say", json!({})).await.result.unwrap(), "hello");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_call_at_once() {
    for generation in GENERATIONS {
        let stage = stage();
        let toolset = stage.pool.toolset(piped(generation, &[]));
        open(&toolset).await;
        let before = stage.processes();
        unreadable_answers(&stage, toolset, &[false]).await;
        assert_eq!(stage.processes(), before, "it was not started again");
        let toolset = stage.pool.toolset(piped(generation, &[]));
        // Whose answer it is nobody can say: the connection is of no use any more.
        let error = call(&stage, &toolset, "broken", json!({"how": "no-id"})).await.error();
        assert!(error.contains("not JSON") && !error.contains("died"), "{error}");
        assert_eq!(call(&stage, &toolset, "say", json!({})).await.result.unwrap(), "hello");
        stage.end().await;
    }
}

#[tokio::test]
async fn nor_does_one_over_http() {
    for generation in GENERATIONS {
        let (stage, server) = (stage(), listens(generation, &[]).await);
        let toolset = stage.pool.toolset(McpServer::remote(&server.url).named("strange"));
        unreadable_answers(&stage, toolset, &[false, true]).await;
        stage.end().await;
    }
}

async fn refused(stage: &Stage, server: McpServer) -> String {
    let context = ToolsetContext::new("tester");
    let toolset = stage.pool.toolset(server);
    let opening = tokio::time::timeout(AT_ONCE, toolset.open(&context)).await;
    let why = opening.expect("it is refused at once").err().expect("it is refused").to_string();
    toolset.close().await;
    why
}

#[tokio::test]
async fn a_server_whose_first_words_cannot_be_read_is_blamed_for_that() {
    for (generation, method) in
        [("2025", "initialize"), ("2025", "tools/list"), ("2026", "server/discover"), ("2026", "tools/list")]
    {
        for (how, why) in [("huge", "longer than 16 MB"), ("deep", "nested more than"), ("utf8", "not UTF-8")]
        {
            let stage = stage();
            let flag = format!("{method}={how}");
            // One that cannot be understood in the new way is asked in the old one, and breaks that as well.
            let flags = [&*flag, &format!("initialize={how}")];
            let flags = if method == "tools/list" { &flags[..1] } else { &flags[..] };
            let error = refused(&stage, piped(generation, flags)).await;
            assert!(error.contains(why) && !error.contains("did not answer"), "{generation} {flag}: {error}");
            let server = listens(generation, flags).await;
            let error = refused(&stage, McpServer::remote(&server.url).named("strange")).await;
            assert!(error.contains(why) && !error.contains("did not answer"), "{generation} {flag}: {error}");
            stage.end().await;
        }
    }
}

#[tokio::test]
async fn a_call_samples_ten_times_in_all_and_asks_a_person_twenty_times() {
    for generation in GENERATIONS {
        let (stage, server) = (stage(), listens(generation, &[]).await);
        for server in [piped(generation, &[]), McpServer::remote(&server.url).named("strange")] {
            let toolset = stage.pool.toolset(server);
            let called = call(&stage, &toolset, "sample", json!({"times": 90, "round": 9})).await;
            assert_eq!(called.samplings, 10, "{generation}: {:?}", called.result);
            let told = called.result.unwrap_or_else(|error| error.to_string());
            assert!(told.contains("asked the model 10 times"), "{told}");
            let called = call(&stage, &toolset, "elicit", json!({"times": 60, "round": 6})).await;
            assert_eq!(called.questions.len(), 20, "{generation}: {:?}", called.result);
            toolset.close().await;
        }
        stage.end().await;
    }
}

/// How much memory this process has, at most so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn a_body_without_end_is_not_read_to_its_end() {
    for generation in GENERATIONS {
        let (stage, server) = (stage(), listens(generation, &[]).await);
        let toolset = stage.pool.toolset(McpServer::remote(&server.url).named("strange"));
        let before = peak();
        let error = call(&stage, &toolset, "many", json!({"endless": true, "bytes": 1})).await.error();
        assert!(error.contains("longer than 16 MB"), "{error}");
        assert!(peak() - before < 200, "{} MB", peak() - before);
        assert_eq!(call(&stage, &toolset, "say", json!({})).await.result.unwrap(), "hello");
        stage.end().await;
    }
}

#[tokio::test]
async fn a_result_is_kept_up_to_four_megabytes() {
    for generation in GENERATIONS {
        let (stage, server) = (stage(), listens(generation, &[]).await);
        for server in [piped(generation, &[]), McpServer::remote(&server.url).named("strange")] {
            let toolset = stage.pool.toolset(server);
            let text = call(&stage, &toolset, "many", json!({"bytes": 6_000_000})).await.result.unwrap();
            assert!(text.len() < (4 << 20) + 200, "{}", text.len());
            assert!(
                text.ends_with("of 6,000,000 bytes only the first 4,194,304 are kept …]"),
                "{}",
                &text[text.len() - 200..]
            );
            let called = call(&stage, &toolset, "progress", json!({})).await;
            assert!(called.progress.iter().all(|text| text.len() < 1100), "a megabyte of progress");
            toolset.close().await;
        }
        stage.end().await;
    }
}

#[tokio::test]
async fn a_server_that_never_reads_the_answers_is_cut_off() {
    for generation in GENERATIONS {
        for (bytes, why) in [(1 << 20, "an id of more than 256 bytes"), (100, "does not read the answers")] {
            let stage = stage();
            let toolset = stage.pool.toolset(piped(generation, &[]));
            let before = peak();
            let error =
                call(&stage, &toolset, "pings", json!({"bytes": bytes, "times": 1_000_000})).await.error();
            assert!(error.contains(why), "{generation}: {error}");
            assert!(peak() - before < 200, "{} MB", peak() - before);
            assert_eq!(call(&stage, &toolset, "say", json!({})).await.result.unwrap(), "hello");
            stage.end().await;
        }
    }
}

#[tokio::test]
async fn only_pages_of_the_web_are_shown_to_people() {
    for generation in GENERATIONS {
        let (stage, server) = (stage(), listens(generation, &[]).await);
        for server in [piped(generation, &[]), McpServer::remote(&server.url).named("strange")] {
            let toolset = stage.pool.toolset(server);
            for url in [
                "javascript:alert(1)",
                "file:///etc/passwd",
                "data:text/html,x",
                "http://example.com/login",
                "https://bank.example@evil.example/",
                "ssh://example.com/",
                "no url",
            ] {
                let called = call(&stage, &toolset, "url", json!({"url": url})).await;
                assert_eq!(called.questions, [""; 0], "{url}");
                assert!(called.result.unwrap().contains("decline"), "{url}");
                assert!(
                    called.progress.iter().any(|text| text.contains("not shown")),
                    "{:?}",
                    called.progress
                );
            }
            for (url, host) in [
                ("https://example.com/login?a=b", "example.com"),
                ("http://127.0.0.1:8080/x", "127.0.0.1"),
                ("http://localhost/x", "localhost"),
            ] {
                let called = call(&stage, &toolset, "url", json!({"url": url})).await;
                let [question] = &called.questions[..] else { panic!("{:?}", called.questions) };
                assert!(question.contains(&format!("on {host}")) && question.contains(url), "{question}");
                assert!(called.result.unwrap().contains("accept"), "{url}");
            }
            toolset.close().await;
        }
        stage.end().await;
    }
}

#[tokio::test]
async fn what_http_servers_do_wrong_is_said_in_plain_words() {
    let stage = stage();
    for (flag, why) in [("status=500", "HTTP 500"), ("type=html", "text/html")] {
        let server = listens("2026", &[flag]).await;
        let error = refused(&stage, McpServer::remote(&server.url).named("strange")).await;
        assert!(error.contains(why), "{error}");
        assert_plain(&error);
    }
    let server = listens("2026", &[]).await;
    let toolset = stage.pool.toolset(McpServer::remote(&server.url).named("strange"));
    open(&toolset).await;
    let error = call(&stage, &toolset, "broken", json!({"how": "cut"})).await.error();
    assert_plain(&error);
    let tools = open(&toolset).await;
    drop(server);
    let (context, _heard) = stage.call();
    let error = find(&tools, "strange_say").call("{}", &context).await.unwrap_err().to_string();
    assert_plain(&error);
    // Refused, or reset if the connection was still open.
    assert!(error.to_lowercase().contains("connect"), "{error}");
    stage.end().await;
}

/// Nothing in it is of Rust.
fn assert_plain(error: &str) {
    for word in
        ["::", "rmcp", "Transport", "reqwest", "Some(", "Error {", "ServerJsonRpcMessage", "Client error"]
    {
        assert!(!error.contains(word), "'{word}' in: {error}");
    }
}
