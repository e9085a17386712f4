//! Streams and waits, fuzzed from the API's own description with schemathesis while the server drains: then they end at once.
//! The command's `serve_fuzz.rs` does it with all the others.

use longhaul::testing::report_skipped;
use serde_json::json;

use crate::fuzzer::Fuzzer;
use crate::setup::Server;

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
    let url = server.url.clone();
    let run = move || {
        for task in [Some(tree.as_str()), None] {
            let phases = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10"];
            fuzzer.run(&url, None, task, &[&phases[..], &["--include-path-regex", "events$|wait$"]].concat());
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}
