use std::path::Path;
use std::time::Duration;

use super::*;
use crate::entry::Outcome;
use crate::id::TaskId;

async fn fixture() -> DispatcherFixture {
    DispatcherFixture::new(Arc::new(ManagedAgents), &test_context()).await
}

#[tokio::test]
async fn spawn_gives_the_order_with_all_that_was_said() {
    let mut fixture = fixture().await;
    let arguments = json!({
        "task": "Compare Go and Rust", "description": "Go/Rust", "tools": ["read", "grep"], "context": "for a talk",
        "model": "small", "subagent_type": "writer", "working_dir": "src",
    });
    let said = value(&fixture.call("spawn_agent", arguments).await.unwrap());
    assert_eq!((&said["agent"], &said["status"]), (&json!("writer"), &json!("pending")));
    let id: TaskId = said["agent_id"].as_str().unwrap().parse().unwrap();
    let order = fixture.dispatcher.snapshot(id).order;
    assert_eq!(order.title.as_deref(), Some("Go/Rust"));
    assert_eq!(order.context.as_deref(), Some("for a talk"));
    assert_eq!(order.model.as_deref(), Some("small"));
    assert_eq!(order.tools, Some(vec!["read".to_owned(), "grep".to_owned()]));
    assert_eq!(order.working_dir.as_deref(), Some(Path::new("/home/lead/src")));
    assert_eq!(order.headline(), "Go/Rust");
}

#[tokio::test]
async fn the_only_agent_need_not_be_named_and_what_is_left_empty_is_left_out() {
    let mut only = test_context();
    only.sub_agents.truncate(1);
    let mut fixture = DispatcherFixture::new(Arc::new(ManagedAgents), &only).await;
    let arguments = json!({
        "task": "x", "description": "", "tools": [], "context": "", "model": "", "subagent_type": "", "working_dir": "",
    });
    let said = value(&fixture.call("spawn_agent", arguments).await.unwrap());
    let id: TaskId = said["agent_id"].as_str().unwrap().parse().unwrap();
    let plain = crate::entry::Order::new("researcher", "x");
    // The child works in its parent's working directory.
    let order = crate::entry::Order { working_dir: Some("/home/lead".into()), ..plain };
    assert_eq!(fixture.dispatcher.snapshot(id).order, order);
}

#[tokio::test]
async fn wait_agent_gives_the_result_or_says_that_it_will_come() {
    let mut fixture = fixture().await;
    let id = fixture.launch("writer", "x").await;
    let output = fixture.call("wait_agent", json!({"agent_id": id, "wait_seconds": 10_000})).await.unwrap();
    let said = value(&output);
    assert_eq!(
        (&said["agent_id"], &said["status"], &said["timed_out"]),
        (&json!(id), &json!("pending"), &json!(true))
    );
    let note = said["note"].as_str().unwrap();
    assert!(note.contains("3600 seconds is the most. It waits for its turn to start."), "{note}");
    assert_eq!((output.collected.len(), fixture.gave_seat_back()), (0, Some(vec![id])));
    assert_eq!(fixture.dispatcher.waits()[0].timeout, Some(Duration::from_secs(3600)));

    fixture.dispatcher.finish_when_waited_for(
        "writer",
        Outcome::Completed { output: "42".into(), cut_short: Some("8 turns".into()) },
    );
    let output = fixture.call("wait_agent", json!({"agent_id": id})).await.unwrap();
    let said = value(&output);
    assert_eq!(said["status"], "completed");
    assert!(said["output"].as_str().unwrap().starts_with("42\n\n[it was cut short (8 turns)"));
    assert_eq!((output.collected, output.is_error), (vec![id], false));
}

#[tokio::test]
async fn agents_are_listed_and_cancelled() {
    let mut fixture = fixture().await;
    let id = fixture.launch("writer", "x").await;
    fixture.dispatcher.append_text(id, "…");
    let said = value(&fixture.call("cancel_agent", json!({"agent_id": id})).await.unwrap());
    assert_eq!((&said["agent_id"], &said["status"]), (&json!(id), &json!("running")));
    assert!(said["note"].as_str().unwrap().contains("was told to stop"));
    let said = value(&fixture.call("list_agents", json!(null)).await.unwrap());
    assert_eq!((&said["agents"][0]["agent_id"], &said["agents"][0]["task"]), (&json!(id), &json!("x")));
}

#[tokio::test]
async fn a_message_goes_to_one_or_to_all_that_have_not_ended() {
    let mut fixture = fixture().await;
    let all = json!({"to": "*", "message": "Wrap up.", "summary": "wrap up"});
    let said = value(&fixture.call("send_message", all.clone()).await.unwrap());
    assert_eq!(said["sent_to"], json!([]));
    assert!(said["note"].as_str().unwrap().contains("No agent of yours is at work"));

    let (one, two, ended) = (
        fixture.launch("writer", "a").await,
        fixture.launch("writer", "b").await,
        fixture.launch("writer", "c").await,
    );
    fixture.dispatcher.finish(ended, completed("42"));
    let said = value(&fixture.call("send_message", all).await.unwrap());
    assert_eq!(said["sent_to"], json!([one, two]));
    let said = value(&fixture.call("send_message", json!({"to": one, "message": "Hurry."})).await.unwrap());
    assert_eq!(said["sent_to"], json!([one]));
    assert_eq!(fixture.dispatcher.snapshot(one).state.unread, 2);
    let said = value(&fixture.call("send_message", json!({"to": ended, "message": "More."})).await.unwrap());
    assert_ne!(said["sent_to"], json!([ended]), "what has ended goes on under a new id");
}

#[tokio::test]
async fn task_output_shows_both_ends_or_the_last_lines() {
    let mut fixture = fixture().await;
    let id = fixture.launch("writer", "x").await;
    fixture.dispatcher.append_text(id, "one\ntwo\nthree");
    let output = fixture.call("task_output", json!({"task_id": id, "tail_lines": 2})).await.unwrap();
    assert!(
        output.text.contains("Output so far:\ntwo\nthree\n\n[… these are characters 4 to 13 of 13."),
        "{}",
        output.text
    );
    assert!(output.text.contains("Call no tool for it now") && output.collected.is_empty());

    fixture.dispatcher.finish(id, completed(&format!("begin{}\nend", "→".repeat(20_000))));
    let output = fixture.call("task_output", json!({"task_id": id, "tail_lines": 1})).await.unwrap();
    assert!(output.text.contains("Output:\nend\n"), "{}", output.text);
    assert_eq!(output.collected, []);
    let output = fixture.call("task_output", json!({"task_id": id})).await.unwrap();
    assert!(output.text.contains("Output:\nbegin→") && output.text.ends_with("→\nend"));
    assert!(output.text.contains("are left out here") && output.text.len() < 17 * 1024);
    assert_eq!(output.collected, []);
}

#[tokio::test]
async fn a_cut_result_says_how_to_read_on_and_its_pages_are_the_whole() {
    let mut fixture = fixture().await;
    let long = format!("begin{}end", "→".repeat(20_000));
    fixture.dispatcher.finish_when_waited_for("writer", completed(&long));
    let id = fixture.launch("writer", "x").await;
    let output = fixture.call("wait_agent", json!({"agent_id": id})).await.unwrap();
    let mark = format!(r#"To read on: task_output {{"task_id": "{id}", "offset": 4099}}. …]"#);
    let said = value(&output);
    assert!(said["output"].as_str().unwrap().contains(&mark), "{said}");
    assert_eq!((&said["truncated"], output.collected.len()), (&json!(true), 0));

    let (mut whole, mut at) = (String::new(), 0);
    while at < long.chars().count() {
        let page =
            fixture.call("task_output", json!({"task_id": id, "offset": at, "limit": 3000})).await.unwrap();
        let text = page.text.split_once("Output:\n").unwrap().1;
        let (text, mark) = text.split_once("\n\n[… these are characters ").unwrap();
        assert!(mark.starts_with(&format!("{at} to ")) && mark.contains("task_output {"), "{mark}");
        whole.push_str(text);
        at += text.chars().count();
        assert_eq!(page.collected, []);
    }
    assert_eq!(whole, long);
    assert_eq!(
        fixture.call("task_output", json!({"task_id": id, "offset": 0, "limit": 0})).await.unwrap().collected,
        []
    );
}
