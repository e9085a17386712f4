//! `--record` and `--replay`: the same answer without the server, and a clear word where there is none.

use crate::kit::{Kit, Provider};
use crate::server::{Act, Asked, calls, says};

fn team(kit: &Kit, url: &str) {
    kit.write(
        "team.yaml",
        &format!(
            "agents:\n  root:\n    model: m\n    sub_agents: [helper]\n    toolsets: [{{type: background_agents}}]\n\
             \x20 helper: {{model: m}}\nmodels:\n  m: {{provider: openai, model: gpt-5, base_url: \"{url}\"}}\n"
        ),
    );
}

fn answer(asked: &Asked) -> Act {
    let all = asked.body["messages"].to_string();
    match () {
        () if asked.order().contains("Count to three") => Act::Stream(says("One, two, three.")),
        () if all.contains("task_ended") => Act::Stream(says("The helper can count.")),
        () if all.contains("\"role\":\"tool\"") => Act::Stream(says("I wait.")),
        () => Act::Stream(calls(
            "run_background_agent",
            &serde_json::json!({"agent": "helper", "task": "Count to three"}),
        )),
    }
}

#[test]
fn a_recording_gives_the_same_answer_without_server_and_key() {
    let kit = Kit::new();
    let provider = Provider::start(answer);
    team(&kit, &provider.url());
    let args = ["run", "team.yaml", "Can it count?", "--record", "tape.jsonl"];
    let recorded = kit.command(&args).env("OPENAI_API_KEY", "sk-not-a-real-one").output().unwrap();
    let recorded = crate::kit::Ran::from(recorded).ended(0);
    assert_eq!(recorded.out, "The helper can count.\n");
    let requests = provider.asked().len();
    assert!(requests >= 3, "{requests}");
    drop(provider);

    // With nobody there it would fail.
    let replay = ["run", "team.yaml", "Can it count?", "--replay", "tape.jsonl"];
    let replayed = kit.run(&replay).ended(0);
    assert_eq!(replayed.out, recorded.out);
    // As often as one likes.
    assert_eq!(kit.run(&replay).ended(0).out, recorded.out);

    let other = kit.run(&["run", "team.yaml", "Can it read?", "--replay", "tape.jsonl"]).ended(1);
    assert_eq!(other.out, "");
    assert!(other.err.contains("the recording has no (more) answer to this request"), "{}", other.err);
    assert!(other.err.contains("record it again"), "{}", other.err);
    team(&kit, "http://127.0.0.1:9/v1");
    let elsewhere = kit.run(&replay).ended(1);
    assert!(
        elsewhere.err.contains("no answer from http://127.0.0.1:9/v1/chat/completions"),
        "{}",
        elsewhere.err
    );
}

#[test]
fn what_is_no_recording_is_refused() {
    let kit = Kit::new();
    team(&kit, "http://127.0.0.1:9/v1");
    kit.write("tape.jsonl", "{\"url\": \"x\", \"body\": {}}\nnot json\n");
    kit.run(&["run", "team.yaml", "x", "--replay", "tape.jsonl"])
        .complains(2, &["--replay", "tape.jsonl", "line 2 is not a recorded exchange"]);
    kit.run(&["run", "team.yaml", "x", "--replay", "nowhere"]).complains(2, &["--replay", "nowhere"]);
    kit.run(&["run", "team.yaml", "x", "--record", "no/such/dir/tape"])
        .complains(2, &["--record", "no/such/dir"]);
    kit.run(&["run", "team.yaml", "x", "--record", "a", "--replay", "b"]).ended(2);
}
