use std::time::Duration;

use super::*;
use crate::id::TaskId;

async fn fixture() -> DispatcherFixture {
    DispatcherFixture::new(Arc::new(SubAgentTools), &test_context()).await
}

fn id_in(said: &Value) -> TaskId {
    said["task_id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn in_the_background_the_id_comes_at_once_and_otherwise_the_result() {
    let mut fixture = fixture().await;
    let arguments = json!({"task": "x", "background": "true", "max_turns": 0});
    let output = fixture.call("researcher", arguments).await.unwrap();
    let said = value(&output);
    assert_eq!((&said["agent"], &said["status"]), (&json!("researcher"), &json!("pending")));
    assert!(said["note"].as_str().unwrap().contains("sent to you as a message"));
    assert_eq!(fixture.dispatcher.snapshot(id_in(&said)).order.max_turns, None);
    assert_eq!((output.collected.len(), fixture.gave_seat_back()), (0, None));

    fixture.dispatcher.finish_when_waited_for("researcher", completed("42"));
    let output = fixture.call("researcher", json!({"task": "x", "max_turns": 3})).await.unwrap();
    let id = id_in(&value(&output));
    assert_eq!(
        output.text,
        format!(
            "{{\"task_id\":\"{id}\",\"agent\":\"researcher\",\"status\":\"completed\",\"output\":\"42\",\"truncated\":false,\"elapsed\":\"0s\",\"tokens\":0,\"tools_used\":0}}"
        )
    );
    assert_eq!(fixture.dispatcher.snapshot(id).order.max_turns, Some(3));
    assert_eq!(
        (output.collected, output.is_error, fixture.gave_seat_back()),
        (vec![id], false, Some(vec![id]))
    );
}

#[tokio::test]
async fn get_task_result_looks_or_waits() {
    let mut fixture = fixture().await;
    let id = fixture.launch("writer", "x").await;
    fixture.dispatcher.append_text(id, "so far");
    fixture.dispatcher.advance_clock(65);
    let output = fixture.call("get_task_result", json!({"task_id": id})).await.unwrap();
    let said = value(&output);
    assert_eq!(
        (&said["status"], &said["output"], &said["elapsed"]),
        (&json!("running"), &json!("so far"), &json!("1m05s"))
    );
    assert!(said["note"].as_str().unwrap().contains("look again in 60 seconds"));
    assert_eq!((output.collected.len(), fixture.gave_seat_back()), (0, None));

    let arguments = json!({"task_id": id, "wait": true, "timeout": 1500});
    let output = fixture.call("get_task_result", arguments).await.unwrap();
    assert_eq!((&value(&output)["timed_out"], &value(&output)["status"]), (&json!(true), &json!("running")));
    assert_eq!(
        (output.collected.len(), output.is_error, fixture.gave_seat_back()),
        (0, false, Some(vec![id]))
    );
    assert_eq!(fixture.dispatcher.waits()[0].timeout, Some(Duration::from_millis(1500)));

    fixture.dispatcher.finish_when_waited_for("writer", failed("half"));
    let arguments = json!({"task_id": id, "wait": true, "timeout": -1});
    let output = fixture.call("get_task_result", arguments).await.unwrap();
    let said = value(&output);
    assert_eq!(
        (&said["status"], &said["output"], &said["error"]),
        (&json!("failed"), &json!("half"), &json!("timed out: 10 minutes"))
    );
    assert!(said["note"].as_str().unwrap().contains("`timeout` cannot be -1"));
    assert_eq!((output.collected, output.is_error), (vec![id], true));
    assert_eq!(fixture.dispatcher.waits()[1].timeout, None);
}

#[tokio::test]
async fn a_long_result_is_cut_says_so_and_is_read_page_by_page() {
    let mut fixture = fixture().await;
    fixture.dispatcher.finish_when_waited_for("writer", completed(&"🦀".repeat(20_000)));
    let output = fixture.call("writer", json!({"task": "x"})).await.unwrap();
    let said = value(&output);
    assert_eq!(said["truncated"], true);
    let id = id_in(&said);
    let mark = format!(
        r#"15904 of 20000 characters are left out here: 3072 to 18976. To read on: get_task_result {{"task_id": "{id}", "offset": 3072}}. …]"#
    );
    assert!(said["output"].as_str().unwrap().contains(&mark), "{said}");
    assert_eq!(output.collected, [], "what is cut is sent as a message too");

    let page = json!({"task_id": id, "offset": 3072, "limit": 2});
    let output = fixture.call("get_task_result", page).await.unwrap();
    let said = value(&output);
    assert_eq!(
        said["output"],
        format!(
            "🦀🦀\n\n[… these are characters 3072 to 3074 of 20000. To read on: get_task_result {{\"task_id\": \"{id}\", \"offset\": 3074}}. …]"
        )
    );
    assert_eq!((&said["truncated"], output.collected.len()), (&json!(true), 0));

    fixture.dispatcher.finish_when_waited_for("writer", completed("short"));
    let id = fixture.launch("writer", "x").await;
    let whole = json!({"task_id": id, "wait": true, "offset": 0, "limit": 0});
    let output = fixture.call("get_task_result", whole).await.unwrap();
    assert_eq!((&value(&output)["output"], output.collected), (&json!("short"), vec![id]));
}

#[tokio::test]
async fn tasks_are_listed_and_stopped() {
    let mut fixture = fixture().await;
    assert_eq!(
        fixture.call("list_tasks", json!({})).await.unwrap().text,
        r#"{"tasks":[],"note":"You have started no tasks yet: call the tool that starts one."}"#
    );
    let id = fixture.launch("writer", "x").await;
    let said = value(&fixture.call("stop_task", json!({"task_id": id})).await.unwrap());
    assert_eq!((id_in(&said), &said["status"]), (id, &json!("cancelled")));
    let listed = fixture.call("list_tasks", json!({})).await.unwrap().text;
    let row = format!(
        r#"{{"tasks":[{{"task_id":"{id}","agent":"writer","status":"cancelled","elapsed":"0s","tokens":0,"task":"x"}}],"note":"Your task has ended;"#
    );
    assert!(listed.starts_with(&row), "{listed}");
}

#[tokio::test]
async fn an_agent_whose_name_will_not_do_for_a_tool_is_refused() {
    for (name, why) in
        [("a b", "'a b' cannot be a tool: its name"), ("", "1 to 64"), ("stop_task", "another tool of that")]
    {
        let mut toolset_context = test_context();
        toolset_context.sub_agents[1].name = name.into();
        let Err(error) = SubAgentTools.open(&toolset_context).await else { panic!("{name} was taken") };
        assert!(error.to_string().contains(why), "{error}");
    }
}
