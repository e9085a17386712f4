//! OpenAI's own SDKs as clients.

use crate::event_checks::check_whole;
use crate::restart::Server;
use crate::sdk::{Sdk, ServerAt, node, python};

impl Server {
    fn at(&self) -> ServerAt<'_> {
        ServerAt { url: &self.url, token: "none" }
    }
}

impl Sdk {
    /// Creates a response in the background, kills the server, and streams on from another one.
    fn survives(&self) {
        let dir = tempfile::tempdir().unwrap();
        let first = Server::start(dir.path(), "first");
        let mut events = self.run("begin", &first.at(), &[]);
        first.kill();
        let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
        let last = events.last().unwrap()["sequence_number"].to_string();
        let second = Server::start(dir.path(), "second");
        events.extend(self.run("continue", &second.at(), &[id, last]));
        check_whole(&events);
    }

    fn tours(&self) {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path(), "");
        self.run("tour", &server.at(), &[]);
    }
}

/// Runs the first code block of this language in the documentation; returns what it prints.
fn run_example(sdk: &Sdk, language: &str) -> String {
    let page = include_str!("../../../../docs/responses.md");
    let code = page.split_once(&format!("```{language}\n")).unwrap().1.split_once("```").unwrap().0;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), "");
    let code = code.replace("\"research\"", "\"alpha\"");
    sdk.run_script(&format!("example-{}", sdk.script), &code, &server.at(), &[])
}

#[test]
fn the_examples_of_the_documentation_run() {
    if let Some(sdk) = python() {
        let told = run_example(&sdk, "python");
        assert!(told.starts_with("answer 1 to"), "{told}");
        assert!(told.contains("completed answer 1 to"), "{told}");
        assert!(told.contains("answer 2 to"), "{told}");
    }
    let told = run_example(&node(), "js");
    assert_eq!(told.matches("answer 1 to").count(), 2, "once whole, once streamed: {told}");
}

#[test]
fn the_python_sdk_streams_on_after_the_server_was_killed() {
    if let Some(sdk) = python() {
        sdk.survives();
    }
}

#[test]
fn the_python_sdk_finds_what_it_expects() {
    if let Some(sdk) = python() {
        sdk.tours();
    }
}

#[test]
fn the_node_sdk_streams_on_after_the_server_was_killed() {
    node().survives();
}

#[test]
fn the_node_sdk_finds_what_it_expects() {
    node().tours();
}
