//! Streams and waits, fuzzed from the API's own description with schemathesis while the server drains: then they end at once.
//! The command's `serve_fuzz.rs` does it with all the others.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use longhaul::testing::report_skipped;
use longhaul_server::problem::ProblemDocument;
use serde_json::json;

use crate::fuzzer::Fuzzer;
use crate::setup::Server;

/// Lets nobody in without the token `t`.
async fn want_token(request: Request, next: Next) -> Response {
    match request.headers().get("authorization").is_some_and(|sent| sent == "Bearer t") {
        true => next.run(request).await,
        false => {
            let (status, title) = (http::StatusCode::UNAUTHORIZED, "The request is not authorized");
            ProblemDocument::new(status, "unauthorized", title, "send a token").into_response()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_waits_are_as_they_are_described() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let fuzzer = match tokio::task::spawn_blocking(move || Fuzzer::install(&path)).await.unwrap() {
        Ok(fuzzer) => fuzzer,
        Err(why) => return report_skipped(&format!("schemathesis cannot be installed: {why}")),
    };
    let server = Server::start(directory.path()).await;
    let tree = server.submit(json!({ "task": "team up" })).await;
    server.wait(&tree).await;
    server.drain.cancel();
    let router = server.router.clone().layer(axum::middleware::from_fn(want_token));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let run = move || {
        for task in [Some(tree.as_str()), None] {
            let phases = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10"];
            fuzzer.run(&url, "t", task, &[&phases[..], &["--include-path-regex", "events$|wait$"]].concat());
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}
