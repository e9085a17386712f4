use std::time::{Duration, Instant};

use futures::StreamExt as _;
use longhaul::message::Message;
use longhaul::model::http::{HttpClient, HttpOptions, ModelSpec};
use longhaul::model::wire::WireCache;
use longhaul::model::{Model as _, ModelError, ModelErrorKind, ModelRequest, ReplyChunk, TextDelay};
use longhaul::{AgentName, Status};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::http::server::{Act, Server, calls, says};
use crate::http::stage::{
    MARK, agent, assert_said, end, http, keys, model, solo, spec, start, submit, within,
};

/// A stopped task's stream is closed within 100 ms, whether it had begun to answer or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_a_stopped_task_is_closed_at_once() {
    for silent in [false, true] {
        let server = Server::start(move |_| match silent {
            true => Act::Silence,
            false => Act::Slowly(vec![": wait\n\n".to_owned(); 1000], Duration::from_millis(20)),
        })
        .await;
        let longhaul = start(solo(&model(&http(), &server.url()))).await;
        let id = submit(&longhaul, "go").await;
        server.until(|server| server.asked().len() == 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let stopped = Instant::now();
        longhaul.stop(id).await.unwrap();
        server.until(|server| server.gone().len() == 1).await;
        let took = server.gone()[0].duration_since(stopped);
        println!("closed after {took:?}");
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_dropped_is_closed_at_once() {
    let server = Server::start(|_| Act::Stall(says("one two").drain(..1).collect())).await;
    let model = http().model(&spec(&server.url()), &keys).unwrap();
    let (agent, memo, messages) =
        (AgentName::from("solo"), WireCache::default(), [Message::User("go".into())]);
    let request = ModelRequest {
        task: "t-7f3k2".parse().unwrap(),
        root: "t-7f3k2".parse().unwrap(),
        depth: 0,
        agent: &agent,
        system: "",
        messages: &messages,
        tools: &[],
        output: None,
        turn: 0,
        retry: 0,
        wire_cache: &memo,
        text_delay: None,
    };
    let mut stream = model.stream(request);
    assert_eq!(within(stream.next()).await, Some(Ok(ReplyChunk::Text("one ".into()))));
    let dropped = Instant::now();
    drop(stream);
    server.until(|server| server.gone().len() == 1).await;
    assert!(server.gone()[0].duration_since(dropped) < Duration::from_millis(100));
}

/// Text that may be held back comes in one piece, and it also comes if the model then falls silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_may_be_held_back_comes_in_one_piece_and_in_time() {
    let server = Server::start(|asked| match asked.order().contains("stall") {
        true => Act::Stall(says("one two three").drain(..2).collect()),
        false => Act::Slowly(says("one two three"), Duration::from_millis(5)),
    })
    .await;
    let model = http().model(&spec(&server.url()), &keys).unwrap();
    let (agent, memo) = (AgentName::from("solo"), WireCache::default());
    let (go, stall) = ([Message::User("go".into())], [Message::User("stall".into())]);
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
    let (hour, moment) = (TextDelay::new(move || long), TextDelay::new(move || short));
    let request = ModelRequest {
        task: "t-7f3k2".parse().unwrap(),
        root: "t-7f3k2".parse().unwrap(),
        depth: 0,
        agent: &agent,
        system: "",
        messages: &go,
        tools: &[],
        output: None,
        turn: 0,
        retry: 0,
        wire_cache: &memo,
        text_delay: Some(&hour),
    };
    let whole: Vec<_> = within(model.stream(request).collect()).await;
    assert_eq!(whole.len(), 2, "{whole:?}");
    assert_eq!(whole[0], Ok(ReplyChunk::Text("one two three".into())));
    // Nothing more comes, and what is there is not held back for ever. It may come at once: whoever asks gets what is there.
    let mut stream = model.stream(ModelRequest { messages: &stall, text_delay: Some(&moment), ..request });
    let mut text = String::new();
    while text != "one two " {
        match within(stream.next()).await {
            Some(Ok(ReplyChunk::Text(more))) => text.push_str(&more),
            other => panic!("{other:?} after {text:?}"),
        }
    }
}

/// No cryptography has to be installed by anybody, and what fails in it is a provider that cannot be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_speak_tls_cannot_be_reached() {
    let server = Server::start(|_| Act::Hangup).await;
    let error = first_error(&server.url().replace("http:", "https:")).await;
    assert!(matches!(error.kind, ModelErrorKind::Unreachable(_)), "{error}");
    println!("{error}");
}

/// The other way round it is known what is wrong, and trying again would not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_speaks_something_else_is_not_asked_again() {
    for (says, why) in [
        (b"\x15\x03\x01\0\x02\x02\x46".as_slice(), "the server speaks TLS: use https:// in base_url"),
        (
            b"220 mail.example ESMTP\r\n\r\n",
            "does not answer in HTTP/1.1 (invalid HTTP version): check base_url",
        ),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 100]).await.unwrap();
            stream.write_all(says).await.unwrap();
            stream
        });
        let error = first_error(&url).await;
        assert!(matches!(&error.kind, ModelErrorKind::Rejected(text) if text.contains(why)), "{error}");
        serve.await.unwrap();
    }
}

/// The error of a request to this URL.
async fn first_error(url: &str) -> ModelError {
    let options = HttpOptions::default().connect_timeout(Duration::from_millis(300));
    let http = HttpClient::new(options).unwrap();
    let model = http.model(&spec(url), &keys).unwrap();
    let (agent, memo, messages) =
        (AgentName::from("solo"), WireCache::default(), [Message::User("go".into())]);
    let request = ModelRequest {
        task: "t-7f3k2".parse().unwrap(),
        root: "t-7f3k2".parse().unwrap(),
        depth: 0,
        agent: &agent,
        system: "",
        messages: &messages,
        tools: &[],
        output: None,
        turn: 0,
        retry: 0,
        wire_cache: &memo,
        text_delay: None,
    };
    within(model.stream(request).next()).await.unwrap().unwrap_err()
}

/// The request as it goes over the wire, the turns of a conversation, and what they used and cost, rolled up once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_and_cost_are_rolled_up_over_the_turns_of_a_tree() {
    let server = Server::start(|asked| {
        let last = asked.body["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        match (asked.order().contains("lead it"), last["role"] == "user") {
            (true, true) => Act::Stream(calls("helper", &json!({"task": "help"}))),
            _ => Act::Stream(says("Done.")),
        }
    })
    .await;
    let model = model(&http(), &server.url());
    let helper = agent("helper", &model).build().unwrap();
    let longhaul = start(solo(&model).sub_agent(helper)).await;
    let id = submit(&longhaul, "lead it").await;
    let done = end(&longhaul, id).await;
    assert_said(&done, "Done.");
    // 60 fresh, 40 cached and 10 written at 1.25, 0.125 and 10 dollars a million.
    let each = 75 + 5 + 100;
    assert_eq!((done.state.turns, done.state.usage.input, done.state.usage.cached), (2, 200, 80));
    assert_eq!((done.state.cost, done.state.unpriced), (2 * each, 0));
    let tree = longhaul.list(longhaul::store::TaskFilter::tree(id)).await.unwrap();
    assert_eq!(tree.iter().map(|state| state.cost).sum::<u64>(), 3 * each);
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let sent = asked[0].headers.to_ascii_lowercase();
    assert!(sent.starts_with("post /v1/chat/completions http/1.1"), "{sent}");
    assert!(asked[0].headers.contains(&format!("Bearer {MARK}")), "{sent}");
    assert_eq!((&asked[0].body["model"], &asked[0].body["stream"]), (&json!("gpt-5"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_price_is_unknown_and_not_nothing() {
    let server = Server::start(|_| {
        Act::Stream(says("Fine.").into_iter().map(|piece| piece.replace("gpt-5", "mystery-1")).collect())
    })
    .await;
    let spec = ModelSpec::parse("openai/mystery-1").unwrap().base_url(server.url());
    let model: std::sync::Arc<dyn longhaul::model::Model> = http().model(&spec, &keys).unwrap();
    let longhaul = start(solo(&model)).await;
    let id = submit(&longhaul, "go").await;
    let state = end(&longhaul, id).await.state;
    assert_eq!((state.cost, state.unpriced), (0, 1));
}

/// `auto` without a key: a server on this machine that answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_finds_a_server_on_this_machine() {
    let server = Server::start(|asked| match asked.headers.starts_with("GET /v1/models ") {
        true => Act::Refuse(200, Vec::new(), r#"{"data":[{"id":"nomic-embed"},{"id":"qwen3:4b"}]}"#.into()),
        false => Act::Stream(says("```json\n{\"name\": \"none\"}\n```")),
    })
    .await;
    let url = server.url();
    let servers = [("ollama", "http://127.0.0.1:9/v1"), ("llamacpp", url.as_str())];
    let none = longhaul::model::http::NoKeys;
    let model = http().auto_model_among(&none, &servers).await.unwrap();
    assert_eq!(model.name(), "llamacpp/qwen3:4b");
    let model: std::sync::Arc<dyn longhaul::model::Model> = model;
    let longhaul = start(solo(&model)).await;
    let id = submit(&longhaul, "go").await;
    assert_eq!(end(&longhaul, id).await.state.status, Status::Completed);
    assert!(!server.asked()[1].headers.to_ascii_lowercase().contains("authorization"));
}

/// A login page or a compressed body with status 200 is named as that, and is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_answer_of_a_model_is_named() {
    for (headers, body, word) in [
        (vec![("content-type", "text/html".to_owned())], "<p>Log in</p>", "an HTML page"),
        (vec![], "\n<!DOCTYPE html><html><title>Log in</title></html>", "an HTML page"),
        (vec![("content-encoding", "gzip".to_owned())], "data: x", "gzip"),
    ] {
        let server = Server::start(move |_| Act::Refuse(200, headers.clone(), body.to_owned())).await;
        let longhaul = start(solo(&model(&http(), &server.url()))).await;
        let id = submit(&longhaul, "go").await;
        let state = end(&longhaul, id).await.state;
        let error = state.error.clone().unwrap_or_default();
        assert_eq!(state.status, Status::Failed, "{error}");
        assert!(error.contains(word), "{error}");
        if !word.is_empty() {
            assert_eq!(server.asked().len(), 1, "asked again: {error}");
            assert!(error.contains("base_url"), "{error}");
        }
    }
}
