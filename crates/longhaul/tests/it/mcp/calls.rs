//! Tools of real servers, called.

use std::time::Instant;

use longhaul::entry::QuestionAnswer;
use longhaul::testing::CallRequest;
use longhaul::tool::{ToolEffects, ToolError};
use longhaul::toolset::Toolset as _;
use nix::sys::signal::{Signal as Kill, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mcp::servers::server;
use crate::mcp::stage::{Stage, call, find, open, write};

#[tokio::test]
async fn everything_is_listed_and_called() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    assert!(tools.len() >= 12, "{}", tools.len());
    let sum = find(&tools, "everything_get-sum");
    assert_eq!(sum.spec().parameters["properties"]["a"]["type"], "number");
    assert_eq!(sum.effects(), ToolEffects::READ_ONLY);

    let done = |name: &'static str, arguments: Value| call(&stage, &tools, name, arguments);
    assert_eq!(done("everything_echo", json!({"message": "héllo"})).await.unwrap(), "Echo: héllo");
    assert!(done("everything_get-sum", json!({"a": 2, "b": 40})).await.unwrap().contains("42"));
    let image = done("everything_get-tiny-image", json!({})).await.unwrap();
    assert!(image.contains("[image, image/png, ") && image.contains("bytes, not shown]"), "{image}");
    let weather = done("everything_get-structured-content", json!({"location": "Chicago"})).await.unwrap();
    assert_eq!(weather.matches("temperature").count(), 1, "once, not twice: {weather}");
    let links = done("everything_get-resource-links", json!({"count": 2})).await.unwrap();
    assert!(links.matches("[link to resource ").count() == 2, "{links}");
    let wrong = done("everything_get-sum", json!({"a": "two"})).await.unwrap_err();
    assert!(wrong.to_string().contains("Invalid arguments"), "{wrong}");
    stage.end().await;
}

#[tokio::test]
async fn a_server_inherits_nothing_but_what_is_named() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []).env("NAMED", "yes"));
    let tools = open(&toolset).await;
    let env = call(&stage, &tools, "everything_get-env", json!({})).await.unwrap();
    let env: Value = serde_json::from_str(&env).unwrap();
    let mut names: Vec<_> = env.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["LONGHAUL_GUARD", "NAMED", "PATH"]);
    stage.end().await;
}

#[tokio::test]
async fn the_filesystem_server_reads_and_writes_where_it_may() {
    let stage = Stage::new();
    write(stage.dir.path(), "a.txt", "Hello, file.\n");
    let dir = stage.dir.path().canonicalize().unwrap();
    let toolset = stage.pool.toolset(server("filesystem", [dir.to_str().unwrap()]));
    let tools = open(&toolset).await;
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let read =
        call(&stage, &tools, "filesystem_read_text_file", json!({"path": path("a.txt")})).await.unwrap();
    assert!(read.contains("Hello, file."), "{read}");
    let written = json!({"path": path("b.txt"), "content": "by a server"});
    call(&stage, &tools, "filesystem_write_file", written).await.unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("b.txt")).unwrap(), "by a server");
    let outside = call(&stage, &tools, "filesystem_read_text_file", json!({"path": "/etc/passwd"})).await;
    assert!(matches!(&outside, Err(ToolError::Failed(why)) if why.contains("Access denied")), "{outside:?}");
    stage.end().await;
}

#[tokio::test]
async fn the_memory_server_remembers() {
    let stage = Stage::new();
    let file = stage.dir.path().join("memory.json");
    let toolset = stage.pool.toolset(server("memory", []).env("MEMORY_FILE_PATH", file.to_str().unwrap()));
    let tools = open(&toolset).await;
    let entity =
        json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}]});
    call(&stage, &tools, "memory_create_entities", entity).await.unwrap();
    let graph = call(&stage, &tools, "memory_read_graph", json!({})).await.unwrap();
    assert!(graph.contains("Ada") && graph.contains("wrote programs"), "{graph}");
    stage.end().await;
}

#[tokio::test]
async fn progress_is_told_while_it_is_made() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    let (context, mut heard) = stage.call();
    let long = find(&tools, "everything_trigger-long-running-operation");
    let result = long.call(r#"{"duration": 1, "steps": 4}"#, &context).await.unwrap();
    assert!(result.text.contains("completed"), "{}", result.text);
    let mut told = Vec::new();
    while let Some(CallRequest::Progress(text)) = heard.try_recv() {
        told.push(text);
    }
    assert_eq!(told.first().map(String::as_str), Some("1 of 4"), "{told:?}");
    assert!(told.len() >= 3, "{told:?}");
    stage.end().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_over_at_once() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    let (context, mut heard) = stage.call();
    let long = find(&tools, "everything_trigger-long-running-operation");
    let cancel = async {
        heard.recv().await.unwrap();
        context.cancel.cancel();
        Instant::now()
    };
    let (result, at) = tokio::join!(long.call(r#"{"duration": 600, "steps": 3000}"#, &context), cancel);
    assert!(result.unwrap_err().to_string().contains("being stopped"));
    assert!(at.elapsed().as_secs() < 2);
    let before = stage.processes();
    assert_eq!(
        call(&stage, &tools, "everything_echo", json!({"message": "still"})).await.unwrap(),
        "Echo: still"
    );
    assert_eq!(stage.processes(), before, "by the same server");
    stage.end().await;
}

#[tokio::test]
async fn a_server_that_is_killed_in_the_middle_is_started_again() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    let (context, mut heard) = stage.call();
    let first = stage.processes();
    let killing = async {
        heard.recv().await.unwrap();
        kill(Pid::from_raw(first[0]), Kill::SIGKILL).unwrap();
    };
    let long = find(&tools, "everything_trigger-long-running-operation");
    let (result, ()) = tokio::join!(long.call(r#"{"duration": 600, "steps": 3000}"#, &context), killing);
    let why = result.unwrap_err().to_string();
    assert!(why.contains("'everything' died during the call: it was killed by signal 9"), "{why}");
    assert!(why.contains("may be called again"), "it says of itself that it is read-only: {why}");
    assert_eq!(
        call(&stage, &tools, "everything_echo", json!({"message": "again"})).await.unwrap(),
        "Echo: again"
    );
    let second = stage.processes();
    assert!(second.len() == 1 && second != first);
    stage.end().await;
}

#[tokio::test]
async fn a_person_is_asked_what_the_server_wants_to_know() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    for (answer, says) in [
        (QuestionAnswer::Given(r#"{"name": "Ada", "check": true}"#.to_owned()), "Ada"),
        (QuestionAnswer::Declined, "decline"),
        (QuestionAnswer::Nobody("they are out".to_owned()), "cancel"),
    ] {
        let (context, mut heard) = stage.call();
        let answering = async {
            loop {
                if let Some(CallRequest::AsksPerson { question, reply, .. }) = heard.recv().await {
                    assert!(
                        question.text.contains("'everything' asks: Please provide inputs"),
                        "{question:?}"
                    );
                    reply.send(answer).unwrap();
                    return;
                }
            }
        };
        let elicits = find(&tools, "everything_trigger-elicitation-request");
        let (result, ()) = tokio::join!(elicits.call("{}", &context), answering);
        let text = result.unwrap().text;
        assert!(text.contains(says), "{text}");
    }
    stage.end().await;
}

#[tokio::test]
async fn the_model_is_asked_what_the_server_wants_to_know_unless_it_may_not() {
    let stage = Stage::new();
    let toolset = stage.pool.toolset(server("everything", []));
    let tools = open(&toolset).await;
    let said =
        call(&stage, &tools, "everything_trigger-sampling-request", json!({"prompt": "Hi", "maxTokens": 50}));
    let said = said.await.unwrap();
    assert!(said.contains("The model says hello."), "{said}");
    let toolset = stage.pool.toolset(server("everything", []).without_sampling());
    let tools = open(&toolset).await;
    assert!(
        !tools.iter().any(|tool| tool.spec().name.contains("sampling")),
        "then it does not even offer to"
    );
    toolset.close().await;
    stage.end().await;
}
