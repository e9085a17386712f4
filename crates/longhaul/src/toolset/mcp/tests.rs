//! Tests the client against a small shell script that plays well-behaved and broken servers. `tests/it/mcp`
//! tests it against real servers.

use std::path::Path;
use std::time::Instant;

use futures::future::join_all;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::entry::{ExpectedAnswer, QuestionAnswer};
use crate::tool::{CallContext, CallSignal, ToolEffects, ToolError, ToolOutput};
use crate::toolset::tool_fixture::{call_context_in, until};

struct Stage {
    dir: TempDir,
    pool: McpPool,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(McpOptions::default())
    }

    fn with(options: McpOptions) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("fake.sh"), include_str!("fake.sh")).unwrap();
        Stage { dir, pool: McpPool::new(options) }
    }

    fn server(&self, mode: &str) -> McpServer {
        let log = self.dir.path().join("log");
        McpServer::command("/bin/sh", ["fake.sh", mode])
            .cwd(self.dir.path())
            .env("LOG", log.to_string_lossy())
    }

    fn toolset(&self, mode: &str) -> Mcp {
        self.pool.toolset(self.server(mode))
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Returns the process ids of all servers that were started.
    fn started(&self) -> Vec<String> {
        self.log().iter().filter_map(|line| line.strip_prefix("started ").map(str::to_owned)).collect()
    }

    fn call(&self) -> (CallContext, UnboundedReceiver<CallSignal>) {
        call_context_in(self.dir.path())
    }
}

async fn open(toolset: &Mcp) -> Vec<Arc<dyn DynTool>> {
    toolset.open(&ToolsetContext::new("tester")).await.unwrap()
}

async fn why_not(toolset: &Mcp) -> String {
    toolset.open(&ToolsetContext::new("tester")).await.err().expect("it starts").to_string()
}

async fn call(tools: &[Arc<dyn DynTool>], name: &str, fixture: &Stage) -> Result<ToolOutput, ToolError> {
    let (context, _heard) = fixture.call();
    find(tools, name).call("{}", &context).await
}

fn find<'a>(tools: &'a [Arc<dyn DynTool>], name: &str) -> &'a Arc<dyn DynTool> {
    tools.iter().find(|tool| tool.spec().name == name).unwrap_or_else(|| panic!("no tool {name}"))
}

fn is_alive(pid: &str) -> bool {
    let stat = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
    let stat = String::from_utf8(stat.stdout).unwrap();
    !stat.trim().is_empty() && !stat.starts_with('Z')
}

#[tokio::test]
async fn tools_are_listed_page_by_page_and_called() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let names: Vec<_> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, ["say_it", "hang", "write", "die"]);
    assert_eq!(find(&tools, "say_it").effects(), ToolEffects::READ_ONLY);
    assert_eq!(find(&tools, "write").effects(), ToolEffects::REPEATABLE);
    assert_eq!(find(&tools, "die").effects(), ToolEffects::default());
    assert_eq!(find(&tools, "say_it").spec().parameters, serde_json::json!({"type": "object"}));
    assert!(call(&tools, "say_it", &fixture).await.unwrap().text.starts_with("said by "));
    assert!(toolset.instruction(&ToolsetContext::new("tester")).unwrap().ends_with("Be kind."));
    toolset.close().await;
    assert!(!is_alive(&fixture.started()[0]));
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_to_whoever_can_mend_it() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let (context, _heard) = fixture.call();
    let write = find(&tools, "write");
    assert!(matches!(write.call("not json", &context).await, Err(ToolError::Retry(_))));
    assert!(matches!(write.call("[1]", &context).await, Err(ToolError::Retry(_))));
    let bad = write.call(r#"{"text":"bad"}"#, &context).await;
    assert_eq!(bad, Err(ToolError::Retry("not bad, please".to_owned())));
    let full = write.call("", &context).await.unwrap_err().to_string();
    assert!(full.contains("the disk is full") && full.contains("'fake.sh'"), "{full}");
    toolset.close().await;
}

#[tokio::test]
async fn the_protocol_of_2026_is_spoken_with_who_speaks_it_and_its_questions_are_answered() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("modern");
    let tools = open(&toolset).await;
    assert!(toolset.instruction(&ToolsetContext::new("tester")).unwrap().ends_with("Be modern."));
    let (context, mut signals) = fixture.call();
    let asked = async {
        loop {
            if let Some(CallSignal::AsksPerson { question, reply, .. }) = signals.recv().await {
                reply.send(QuestionAnswer::Given("green".to_owned())).unwrap();
                return question;
            }
        }
    };
    let (result, question) = tokio::join!(find(&tools, "write").call("{}", &context), asked);
    assert!(result.unwrap().text.starts_with("told "));
    assert_eq!(question.text, "The MCP server 'fake.sh' asks: Which colour?");
    assert!(matches!(question.wants, ExpectedAnswer::Words { schema: Some(_) }));
    // It notifies subscribers that its tools have changed.
    call(&tools, "say_it", &fixture).await.unwrap();
    until("another generation", || toolset.generation() > 0).await;
    assert!(open(&toolset).await.iter().any(|tool| tool.spec().name == "grow"));
    toolset.close().await;
}

#[tokio::test]
async fn a_changed_list_is_listed_again() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("grows");
    let tools = open(&toolset).await;
    assert_eq!((tools.len(), toolset.generation()), (4, 0));
    call(&tools, "say_it", &fixture).await.unwrap();
    until("another generation", || toolset.generation() > 0).await;
    let tools = open(&toolset).await;
    assert_eq!(call(&tools, "grow", &fixture).await.unwrap().text, "as big as it gets");
    toolset.close().await;
}

#[tokio::test]
async fn who_ends_when_asked_in_the_new_way_is_asked_in_the_old() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("touchy");
    assert_eq!(open(&toolset).await.len(), 4);
    assert_eq!(fixture.started().len(), 2);
    toolset.close().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_named() {
    let fixture = Stage::new();
    let why = why_not(&fixture.pool.toolset(McpServer::command("no-such-command", ["x"]))).await;
    assert!(why.contains("the command 'no-such-command' was not found"), "{why}");
    let why = why_not(&fixture.pool.toolset(fixture.server("plain").cwd("/no/such/dir"))).await;
    assert!(why.contains("no directory /no/such/dir"), "{why}");
}

#[tokio::test]
async fn without_docker_a_server_of_its_catalogue_says_so() {
    let env = SecretEnv::from_iter([("PATH", "/nowhere")]);
    let fixture = Stage::with(McpOptions { env, ..McpOptions::default() });
    let why = why_not(&fixture.pool.toolset(McpServer::docker("duckduckgo"))).await;
    assert!(why.contains("'docker:duckduckgo'") && why.contains("Docker is not installed"), "{why}");
}

#[tokio::test]
async fn who_dies_at_once_is_quoted_without_secrets() {
    let fixture = Stage::new();
    let server = fixture.server("dies").env("TOKEN", "hunter2-hunter2");
    let why = why_not(&fixture.pool.toolset(server)).await;
    assert!(why.contains("exited with code 3") && why.contains("no licence: [secret]"), "{why}");
}

#[tokio::test]
async fn who_never_answers_is_given_up_and_leaves_nothing() {
    let fixture =
        Stage::with(McpOptions { connect_timeout: Duration::from_millis(1500), ..McpOptions::default() });
    let toolset = fixture.toolset("silent");
    let begun = Instant::now();
    let why = why_not(&toolset).await;
    assert!(
        why.contains("did not answer `initialize` within 1.5s") && why.contains("the fake is up"),
        "{why}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    let pid = fixture.started().remove(0);
    until("its end", || !is_alive(&pid)).await;
    // A second caller receives the same error at once, without another attempt.
    assert_eq!(why_not(&toolset).await, why);
    assert_eq!(fixture.started().len(), 1);
}

#[tokio::test]
async fn who_floods_its_stderr_is_read_on() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("flood");
    let tools = open(&toolset).await;
    for _ in 0..20 {
        call(&tools, "say_it", &fixture).await.unwrap();
    }
    toolset.close().await;
    assert!(!is_alive(&fixture.started()[0]));
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_dropped_returns_at_once_and_the_server_is_told() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let (context, mut signals) = fixture.call();
    let cancel = async {
        assert!(matches!(signals.recv().await, Some(CallSignal::Progress(text)) if text == "hanging (1)"));
        context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(find(&tools, "hang").call("{}", &context), cancel);
    assert!(result.unwrap_err().to_string().contains("being stopped"));
    until("the notice", || fixture.log().iter().filter(|line| *line == "cancelled").count() == 1).await;

    let (context, mut signals) = fixture.call();
    {
        let mut calling = find(&tools, "hang").call("{}", &context);
        tokio::select! {
            _ = &mut calling => panic!("it hangs"),
            _ = signals.recv() => {}
        }
    }
    until("the notice", || fixture.log().iter().filter(|line| *line == "cancelled").count() == 2).await;
    call(&tools, "say_it", &fixture).await.unwrap();
    assert_eq!(fixture.started().len(), 1, "it is still the same server");
    toolset.close().await;
}

#[tokio::test]
async fn a_call_without_a_sign_of_life_is_given_up() {
    let fixture =
        Stage::with(McpOptions { inactivity_timeout: Duration::from_millis(300), ..McpOptions::default() });
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let why = call(&tools, "hang", &fixture).await.unwrap_err().to_string();
    assert!(why.contains("no sign of life for 300ms"), "{why}");
    until("the notice", || fixture.log().contains(&"cancelled".to_owned())).await;
    toolset.close().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_says_so_and_is_started_again() {
    let fixture = Stage::new();
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let (hanging, mut signals) = fixture.call();
    let dies = async {
        signals.recv().await;
        call(&tools, "die", &fixture).await.unwrap_err().to_string()
    };
    let (other, why) = tokio::join!(find(&tools, "hang").call("{}", &hanging), dies);
    assert!(why.contains("died during the call: it exited with code 7; its last words were:"), "{why}");
    assert!(why.contains("ouch") && why.contains("effect is unknown"), "{why}");
    assert!(other.unwrap_err().to_string().contains("exited with code 7"), "all calls under way fail");
    for deaths in 1..4 {
        call(&tools, "say_it", &fixture).await.unwrap();
        assert_eq!(fixture.started().len(), deaths + 1);
        call(&tools, "die", &fixture).await.unwrap_err();
    }
    toolset.close().await;
}

#[tokio::test]
async fn an_idle_server_is_stopped_and_started_again_by_the_next_call() {
    let fixture =
        Stage::with(McpOptions { idle_timeout: Some(Duration::from_millis(300)), ..McpOptions::default() });
    let toolset = fixture.toolset("plain");
    let tools = open(&toolset).await;
    let first = fixture.started().remove(0);
    // A longer call keeps the server running.
    let (context, _heard) = fixture.call();
    let _ = tokio::time::timeout(Duration::from_millis(900), find(&tools, "hang").call("{}", &context)).await;
    assert!(is_alive(&first));
    until("its end", || !is_alive(&first)).await;
    assert_eq!(open(&toolset).await.len(), 4, "its tools are still listed");
    assert_eq!(fixture.started().len(), 1, "and it is not started for that");
    call(&tools, "say_it", &fixture).await.unwrap();
    assert_eq!(fixture.started().len(), 2);
    toolset.close().await;
}

#[tokio::test]
async fn who_names_the_same_server_shares_it_until_the_last_one_closes() {
    let fixture = Stage::new();
    let toolsets: Vec<_> =
        (0..20).map(|n| fixture.pool.toolset(fixture.server("plain").named(format!("n{n}")))).collect();
    let opened = join_all(toolsets.iter().map(open)).await;
    let pids = fixture.started();
    assert_eq!(pids.len(), 1);
    assert!(opened[7].iter().any(|tool| tool.spec().name == "n7_say_it"));
    for toolset in &toolsets[1..] {
        toolset.close().await;
        toolset.close().await;
    }
    call(&opened[0], "n0_say_it", &fixture).await.unwrap();
    toolsets[0].close().await;
    assert!(!is_alive(&pids[0]));
    let after = call(&opened[0], "n0_say_it", &fixture).await.unwrap_err().to_string();
    assert!(after.contains("has been shut down"), "{after}");
    // Another toolset with the same settings starts the server anew.
    let again = fixture.toolset("plain");
    assert_eq!(open(&again).await.len(), 4);
    assert_eq!(fixture.started().len(), 2);
    fixture.pool.close().await;
    assert!(!is_alive(&fixture.started()[1]));
}

#[tokio::test]
async fn a_pool_that_is_dropped_ends_its_servers() {
    let fixture = Stage::new();
    open(&fixture.toolset("plain")).await;
    let pid = fixture.started().remove(0);
    let Stage { dir, pool } = fixture;
    drop(pool);
    until("its end", || !is_alive(&pid)).await;
    assert!(Path::exists(dir.path()));
}

#[tokio::test]
async fn the_own_server_is_no_mcp_server_of_its_own_agents() {
    use crate::toolset::loopback::{LoopbackServer, http_response};
    let own =
        LoopbackServer::start(|_| http_response(200, &[("content-type", "application/json")], "{}")).await;
    let port = own.at.port();
    let stage = Stage::with(McpOptions::default().own_server(OwnServer::new([own.at], [])));
    for host in ["127.0.0.1", "127.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"] {
        for transport in [McpTransport::Streamable, McpTransport::Sse] {
            let server = McpServer::remote(format!("http://{host}:{port}/mcp")).transport(transport);
            let why = why_not(&stage.pool.toolset(server)).await;
            assert!(why.contains("its own agents may not use"), "{host}: {why}");
        }
    }
    assert_eq!(own.requests().len(), 0, "it was not even asked");
}
