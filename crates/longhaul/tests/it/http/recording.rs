use std::sync::Arc;

use longhaul::Longhaul;
use longhaul::model::Model;
use longhaul::model::http::{Cassette, HttpClient};
use serde_json::json;

use crate::http::server::{Act, Asked, Server, calls, says};
use crate::http::stage::{agent, assert_said, end, model, options, solo, start, submit};

/// A lead that sends a helper out, whose id is another in each run.
async fn team(model: &Arc<dyn Model>) -> Longhaul {
    let helper = agent("helper", model).build().unwrap();
    start(solo(model).sub_agent(helper)).await
}

fn answer(asked: &Asked) -> Act {
    let messages = asked.body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    match (asked.number, asked.order().contains("lead it"), last["role"] == "user") {
        (0, ..) => Act::Refuse(500, Vec::new(), "not yet".into()),
        (_, true, true) => Act::Stream(calls("helper", &json!({"task": "help", "background": false}))),
        _ => Act::Slowly(says("Größe ist nicht alles."), std::time::Duration::from_millis(2)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_is_answered_again_without_a_network() {
    let place = tempfile::tempdir().unwrap();
    let tape = place.path().join("tape.jsonl");
    let url = {
        let server = Server::start(answer).await;
        let http = HttpClient::recording(options(), Cassette::create(&tape).unwrap()).unwrap();
        let longhaul = team(&model(&http, &server.url())).await;
        let id = submit(&longhaul, "lead it").await;
        assert_said(&end(&longhaul, id).await, "Größe ist nicht alles.");
        longhaul.shutdown().await;
        assert_eq!(server.asked().len(), 4);
        server.url()
    };
    let lines = std::fs::read_to_string(&tape).unwrap();
    assert_eq!(lines.lines().count(), 4);
    assert!(!lines.to_lowercase().contains("bearer") && !lines.contains("MARKED"));
    // The server is gone.
    let http = HttpClient::replaying(options(), Cassette::load(&tape).unwrap());
    let longhaul = team(&model(&http, &url)).await;
    let id = submit(&longhaul, "lead it").await;
    let done = end(&longhaul, id).await;
    assert_said(&done, "Größe ist nicht alles.");
    assert_eq!(done.state.cost, 360);
    // Each answer is given once; what was never asked has none.
    let id = submit(&longhaul, "something else").await;
    let error = end(&longhaul, id).await.state.error.unwrap();
    assert!(error.contains("the recording has no (more) answer"), "{error}");
}

#[test]
fn what_is_no_recording_is_refused_with_its_line() {
    let error = Cassette::parse("\n{\"url\":\"a\",\"body\":{}}\nnonsense\n").unwrap_err().to_string();
    assert!(error.contains("line 3"), "{error}");
    assert!(
        Cassette::load(std::path::Path::new("/nowhere/tape")).unwrap_err().to_string().contains("/nowhere")
    );
}
