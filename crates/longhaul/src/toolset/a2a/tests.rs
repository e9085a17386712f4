use serde_json::{Value, json};

use super::A2a;
use crate::toolset::http_client::SecretHeaders;
use crate::toolset::loopback::{LoopbackAction, LoopbackServer, RecordedRequest, http_response};
use crate::toolset::tool_fixture::ToolFixture;
use crate::toolset::{Toolset as _, ToolsetContext};

fn headers() -> SecretHeaders {
    [("Authorization", "Bearer tok-0123456789")].into_iter().collect()
}

fn result(value: Value) -> LoopbackAction {
    http_response(
        200,
        &[("content-type", "application/json")],
        json!({"jsonrpc": "2.0", "id": 1, "result": value}).to_string(),
    )
}

fn events(results: &[Value]) -> Vec<u8> {
    let event =
        |result: &Value| format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    let headers = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    (headers + &results.iter().map(event).collect::<String>()).into_bytes()
}

fn card(streaming: bool) -> Value {
    json!({"name": "Translator", "description": "Translates texts.", "url": "/rpc", "protocolVersion": "0.3.0",
        "capabilities": {"streaming": streaming},
        "skills": [{"id": "to-german", "name": "German", "description": "Into German."}, {"id": "to german", "name": "G2"}]})
}

/// Starts an agent with a card; the test decides how it answers requests.
async fn agent(
    card: Value,
    act: impl Fn(&str, &RecordedRequest, usize) -> LoopbackAction + Send + Sync + 'static,
) -> LoopbackServer {
    let asked_before = std::sync::atomic::AtomicUsize::new(0);
    LoopbackServer::start(move |asked| match asked.line.as_str() {
        "GET /agent/.well-known/agent-card.json" => http_response(200, &[], card.to_string()),
        line if line.starts_with("GET") => http_response(404, &[], "nothing here"),
        _ => {
            let number = asked_before.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            act(asked.json()["method"].as_str().unwrap(), asked, number)
        }
    })
    .await
}

async fn meet(server: &LoopbackServer) -> ToolFixture {
    ToolFixture::new(&A2a::new(server.url("/agent"), headers()).name("helper")).await
}

fn status(state: &str, said: &str) -> Value {
    json!({"state": state, "message": {"role": "agent", "parts": [{"kind": "text", "text": said}]}})
}

#[tokio::test]
async fn each_skill_is_a_tool_and_a_message_is_answered() {
    let server = agent(card(false), |_, _, _| {
        result(json!({"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "Hallo"}]}))
    })
    .await;
    let mut fixture = meet(&server).await;
    let names: Vec<String> = fixture.tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, ["helper_to_german", "helper_to_german_2"]);
    let spec = fixture.tool("helper_to_german").spec();
    assert_eq!(spec.description, "Asks the agent Translator for its skill 'German'. Into German.");
    assert_eq!(spec.parameters["required"], json!(["message"]));
    assert_eq!(fixture.call_text("helper_to_german", json!({"message": "Hello"})).await, "Hallo");
    let asked = server.requests().last().unwrap().clone();
    assert_eq!(asked.line, "POST /rpc");
    assert_eq!(asked.header("authorization"), Some("Bearer tok-0123456789"));
    let body = asked.json();
    assert_eq!((body["method"].as_str(), body["jsonrpc"].as_str()), (Some("message/send"), Some("2.0")));
    assert_eq!(body["params"]["message"]["parts"], json!([{"kind": "text", "text": "Hello"}]));
    fixture.repeat_call("helper_to_german", json!({"message": "Hello"})).await.unwrap();
    let again = server.requests().last().unwrap().json();
    assert_eq!(again["params"]["message"]["messageId"], body["params"]["message"]["messageId"]);
    assert!(fixture.call_error("helper_to_german", json!({"message": ""})).await.contains("`message`"));
}

#[tokio::test]
async fn a_task_is_looked_at_until_it_has_ended() {
    let server = agent(card(false), |method, asked, number| match (method, number) {
        ("message/send", _) => {
            result(json!({"kind": "task", "id": "t-9", "contextId": "c-9", "status": {"state": "submitted"}}))
        }
        ("tasks/get", 1) => {
            result(json!({"kind": "task", "id": "t-9", "status": status("working", "half way")}))
        }
        // A failed poll is not the end.
        ("tasks/get", 2) => http_response(503, &[], "busy"),
        ("tasks/get", _) => {
            assert_eq!(asked.json()["params"]["id"], "t-9");
            result(json!({"kind": "task", "id": "t-9", "status": {"state": "completed"},
                "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "Done."}]}]}))
        }
        _ => http_response(500, &[], "what?"),
    })
    .await;
    let mut fixture = meet(&server).await;
    assert_eq!(fixture.call_text("helper_to_german", json!({"message": "x"})).await, "Done.");
    let mut progress = Vec::new();
    while let Ok(signal) = fixture.signals.try_recv() {
        progress.push(format!("{signal:?}"));
    }
    assert!(progress.iter().any(|said| said.contains("half way")), "{progress:?}");
}

#[tokio::test]
async fn a_stream_is_heard_out_and_one_that_breaks_is_looked_after() {
    let task = json!({"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "working"}});
    let piece = |text: &str, append: bool| json!({"kind": "artifact-update", "taskId": "t-1", "append": append, "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}});
    let whole = [
        task.clone(),
        piece("Guten ", false),
        piece("Tag", true),
        json!({"kind": "status-update", "taskId": "t-1", "status": {"state": "completed"}, "final": true}),
    ];
    let broken = [task, piece("Gut", false)];
    let server = agent(card(true), move |method, asked, _| match method {
        "message/stream" if asked.body.contains("whole") => LoopbackAction::Bytes(events(&whole)),
        "message/stream" if asked.body.contains("broken") => LoopbackAction::Bytes(events(&broken)),
        "message/stream" => LoopbackAction::Bytes(events(&[])),
        "tasks/get" => result(json!({"kind": "task", "id": "t-1", "status": {"state": "completed"},
            "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "Gute Nacht"}]}]})),
        _ => http_response(500, &[], "what?"),
    })
    .await;
    let mut fixture = meet(&server).await;
    assert_eq!(fixture.call_text("helper_to_german", json!({"message": "whole"})).await, "Guten Tag");
    assert!(
        !server.requests().iter().any(|asked| asked.body.contains("tasks/get")),
        "nothing was left to ask"
    );
    assert_eq!(fixture.call_text("helper_to_german", json!({"message": "broken"})).await, "Gute Nacht");
    let error = fixture.call_error("helper_to_german", json!({"message": "silent"})).await;
    assert!(error.contains("Translator: it answered with neither a message nor a task"), "{error}");
}

#[tokio::test]
async fn the_newer_protocol_is_spoken_where_the_card_says_so() {
    let card = json!({"name": "New", "supportedInterfaces": [{"url": "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]});
    let server = agent(card, |method, asked, _| match method {
        "SendMessage" => {
            assert_eq!(asked.header("a2a-version"), Some("1.0"));
            assert_eq!(asked.json()["params"]["message"]["role"], "ROLE_USER");
            result(json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}}}))
        }
        "GetTask" => result(json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"parts": [{"text": "new"}]}]})),
        _ => http_response(500, &[], "what?"),
    })
    .await;
    let mut fixture = meet(&server).await;
    assert_eq!(fixture.call_text("helper_new", json!({"message": "x"})).await, "new");
}

#[tokio::test]
async fn a_question_comes_back_with_what_is_needed_to_answer_it() {
    let server = agent(card(false), |_, asked, _| match asked.json()["params"]["message"]["taskId"].as_str() {
        None => result(json!({"kind": "task", "id": "t-5", "contextId": "c-5", "status": status("input-required", "Formal?")})),
        Some("t-5") => result(json!({"kind": "task", "id": "t-5", "contextId": "c-5", "status": status("completed", "Sie")})),
        Some(_) => http_response(500, &[], "what?"),
    })
    .await;
    let mut fixture = meet(&server).await;
    let asks = fixture.call_text("helper_to_german", json!({"message": "you"})).await;
    assert_eq!(
        asks,
        "Formal?\n\n[The agent waits for an answer: call it again with task_id \"t-5\" and context_id \"c-5\".]"
    );
    let arguments = json!({"message": "yes", "task_id": "t-5", "context_id": "c-5"});
    assert_eq!(fixture.call_text("helper_to_german", arguments).await, "Sie");
}

#[tokio::test]
async fn failures_are_told_as_such_and_without_secrets() {
    let server = agent(card(false), |_, asked, _| {
        let text = asked.json()["params"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned();
        match text.as_str() {
            "fail" => result(json!({"kind": "task", "id": "t", "status": status("failed", "no dictionary")})),
            "reject" => result(json!({"kind": "task", "id": "t", "status": {"state": "rejected"}})),
            "rpc" => http_response(
                200,
                &[],
                json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no tok-0123456789"}})
                    .to_string(),
            ),
            "http" => http_response(403, &[], "forbidden for tok-0123456789"),
            "html" => http_response(200, &[], "<html>"),
            _ => LoopbackAction::Bytes(Vec::new()),
        }
    })
    .await;
    let mut fixture = meet(&server).await;
    for (message, says) in [
        ("fail", "no dictionary\n\n[The agent has failed.]"),
        ("reject", "The agent would not do it."),
        ("rpc", "Translator: it answered with the error -32001: no [secret]"),
        ("http", "Translator: status 403: forbidden for [secret]"),
        ("html", "Translator: its answer is not JSON: <html>"),
        ("hangup", "Translator: the request failed"),
    ] {
        let error = fixture.call_error("helper_to_german", json!({"message": message})).await;
        assert!(error.contains(says) && !error.contains("tok-0123456789"), "{message}: {error}");
    }
    assert!(!format!("{:?}", A2a::new("http://x/?key=tok-0123456789", headers())).contains("tok-0123456789"));
}

#[tokio::test]
async fn a_stop_calls_the_remote_task_off() {
    for streaming in [false, true] {
        let task =
            json!({"kind": "task", "id": "t-3", "contextId": "c", "status": status("working", "on it")});
        let server = agent(card(streaming), move |method, _, _| match method {
            "message/stream" => LoopbackAction::Stall(events(std::slice::from_ref(&task))),
            "tasks/cancel" => result(json!({"kind": "task", "id": "t-3", "status": {"state": "canceled"}})),
            _ => result(task.clone()),
        })
        .await;
        let mut fixture = meet(&server).await;
        let cancel = fixture.context.cancel.clone();
        let (_, nobody) = tokio::sync::mpsc::unbounded_channel();
        let mut signals = std::mem::replace(&mut fixture.signals, nobody);
        // A progress message shows that the id of the task is known.
        let stop = async {
            signals.recv().await.unwrap();
            cancel.cancel();
        };
        let (error, ()) = tokio::join!(fixture.call_error("helper_to_german", json!({"message": "x"})), stop);
        assert!(error.contains("being stopped"), "{error}");
        let last = server.requests().last().unwrap().json();
        assert_eq!(
            (last["method"].as_str(), last["params"]["id"].as_str()),
            (Some("tasks/cancel"), Some("t-3"))
        );
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_met_is_named() {
    let toolset_context = ToolsetContext::new("a");
    let elsewhere = json!({"name": "E", "url": "http://other.example/rpc"});
    let server = agent(elsewhere, |_, _, _| http_response(500, &[], "")).await;
    let old = LoopbackServer::start(|asked| match asked.line.as_str() {
        "GET /.well-known/agent.json" => http_response(200, &[], json!({"name": "Old"}).to_string()),
        _ => http_response(404, &[], ""),
    })
    .await;
    for (url, says) in [
        ("not a url".to_owned(), "url: "),
        (
            server.url("/agent?key=hidden"),
            "/agent: its agent card says that it is spoken to at http://other.example/rpc",
        ),
        (
            server.url("/nobody"),
            "/nobody: it has no agent card: status 404 at /nobody/.well-known/agent-card.json",
        ),
        ("http://127.0.0.1:1".to_owned(), "it cannot be connected to"),
    ] {
        let error = A2a::new(url, headers()).open(&toolset_context).await.err().unwrap().to_string();
        assert!(
            error.contains("toolset 'a2a'") && error.contains(says) && !error.contains("hidden"),
            "{error}"
        );
    }
    assert!(
        A2a::new(server.url("/agent"), SecretHeaders::default()).open(&toolset_context).await.is_ok(),
        "no headers to protect"
    );
    let tools = A2a::new(old.url(""), headers()).open(&toolset_context).await.unwrap();
    assert_eq!(tools[0].spec().name, "old");
}
