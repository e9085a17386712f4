//! Streams end when they must: the token is revoked, or the server drains.

use std::time::{Duration, Instant};

use longhaul_server::access::Scope;

use crate::kit::{SOON, Server, problem};

/// Reads the first event of a stream.
async fn first_event(response: &mut reqwest::Response) {
    let chunk = tokio::time::timeout(SOON, response.chunk()).await.unwrap().unwrap().unwrap();
    assert!(chunk.starts_with(b"data: one"), "{chunk:?}");
}

async fn rest(response: reqwest::Response) -> Result<String, reqwest::Error> {
    tokio::time::timeout(SOON, response.text()).await.expect("the stream goes on")
}

// OpenClaw GHSA-m8wm-r5vq-qjpg: a revoked token stayed valid.
#[tokio::test]
async fn a_revoked_token_ends_its_requests_and_open_streams_within_a_second() {
    let server = Server::start().await;
    let (gone, stays) = (server.token("gone", Scope::Run), server.token("stays", Scope::Run));
    let mut streams = Vec::new();
    for token in [&gone, &stays] {
        let mut stream = server.get("/api/v1/events", token).send().await.unwrap();
        first_event(&mut stream).await;
        streams.push(stream);
    }
    let endless = server.get("/api/v1/endless", &gone).send().await.unwrap();
    let waiting = tokio::spawn(server.get("/api/v1/slow", &gone).send());
    let began = Instant::now();
    server.access.revoke("gone").unwrap();
    assert_eq!(server.get("/api/v1/tasks", &gone).send().await.unwrap().status(), 401, "the next request");
    assert_eq!(rest(streams.remove(0)).await.unwrap(), ": the token was revoked\n\n");
    assert!(rest(endless).await.is_err(), "it is cut off, not ended");
    let waited = problem(waiting.await.unwrap().unwrap(), "a request that was waiting").await;
    assert_eq!(waited["status"], 401);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let mut other = streams.remove(0);
    assert!(tokio::time::timeout(Duration::from_millis(50), other.chunk()).await.is_err(), "others go on");
}

#[tokio::test]
async fn a_drain_ends_streams_with_a_word_and_frees_the_port() {
    let mut server = Server::start().await;
    let mut stream = server.get("/api/v1/events", &server.admin).send().await.unwrap();
    first_event(&mut stream).await;
    let waiting = tokio::spawn(server.get("/api/v1/slow", &server.admin).send());
    // The waiting request has to be there before the drain.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let idle = server.connect().await;
    server.stop.cancel();
    assert_eq!(rest(stream).await.unwrap(), ": the server is stopping; connect again later\n\n");
    let waited = problem(waiting.await.unwrap().unwrap(), "a request that was waiting").await;
    assert_eq!((&waited["status"], &waited["code"]), (&503.into(), &"stopping".into()));
    tokio::time::timeout(SOON, &mut server.serving).await.expect("it did not end").unwrap();
    drop(idle);
    tokio::net::TcpListener::bind(server.address).await.expect("the port is free");
}
