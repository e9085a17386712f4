//! OpenAI's own SDKs with `longhaul serve` as it is: a response in the background outlives the server.

use nix::sys::signal::Signal;

use crate::kit::Kit;
use crate::openai_events::check_whole;
use crate::openai_sdk::{Sdk, ServerAt, node, python};
use crate::serve::Server;

impl Server {
    fn at(&self) -> ServerAt<'_> {
        ServerAt { url: &self.url, token: &self.token }
    }
}

/// Creates a response in the background, kills the server in the middle of it, and streams on from the next one.
fn streams_on_after_a_kill(sdk: &Sdk) {
    let kit = Kit::new();
    let play = "defaults: { chunk: 4, pace: 20ms }\nagents:\n  lead:\n    turns:\n      - text: \"{% for i in range(400) %}n{{ i }} {% endfor %}\"\n";
    kit.plays("alpha.yaml", "agents: { lead: { model: play, description: Leads. } }\n", play);
    let serve = ["--team", "alpha.yaml", "--listen", "127.0.0.1:0"];
    let server = Server::with(&kit, &serve);
    let mut events = sdk.run("begin", &server.at(), &[]);
    server.process.murder();
    assert!(
        kit.journals().iter().all(|(state, _)| !state.status.is_final()),
        "it was killed in the middle of the response"
    );
    let id = events[0]["response"]["id"].as_str().unwrap().to_owned();
    let last = events.last().unwrap()["sequence_number"].to_string();
    let server = Server::with(&kit, &serve);
    events.extend(sdk.run("continue", &server.at(), &[id, last]));
    check_whole(&events);
    // A reader that was never disturbed gets the same.
    let (id, first) = (&events[0]["response"]["id"], &events[0]["sequence_number"]);
    let rest = sdk.run("continue", &server.at(), &[id.as_str().unwrap().to_owned(), first.to_string()]);
    assert_eq!(rest, events[1..]);
    server.end(Signal::SIGTERM).ended(0);
}

#[test]
fn the_python_sdk_streams_on_after_a_kill() {
    if let Some(sdk) = python() {
        streams_on_after_a_kill(&sdk);
    }
}

#[test]
fn the_node_sdk_streams_on_after_a_kill() {
    streams_on_after_a_kill(&node());
}
