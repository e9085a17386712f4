use std::time::Duration;

use super::*;
use crate::dispatch::WaitMode;
use crate::entry::{Budget, Entry, Outcome, WaitReason};
use crate::id::{CallId, TaskId};

async fn fixture() -> DispatcherFixture {
    DispatcherFixture::new(Arc::new(BackgroundAgents), &test_context()).await
}

#[tokio::test]
async fn run_answers_with_the_id_and_gives_the_order_with_all_its_bounds() {
    let mut fixture = fixture().await;
    let arguments = json!({
        "agent": " Researcher", "task": "Compare Go and Rust", "expected_output": "a table", "model": "",
        "max_turns": "8", "timeout": 90, "budget": {"max_tokens": 5000, "max_cost": 0.25, "max_time": 60},
    });
    let output = fixture.call("run_background_agent", arguments).await.unwrap();
    let id: TaskId = output.text.lines().next().unwrap().parse().unwrap();
    assert!(output.text.contains("sent to you as a message") && output.collected.is_empty());

    let order = fixture.dispatcher.snapshot(id).order;
    assert_eq!(order.agent, Some("researcher".into()));
    assert_eq!(&*order.task, "Compare Go and Rust");
    assert_eq!(order.expected_output.as_deref(), Some("a table"));
    assert_eq!((order.model, order.max_turns), (None, Some(8)));
    assert_eq!(order.timeout, Some(Duration::from_secs(90)));
    let time = Some(Duration::from_secs(60));
    assert_eq!(order.budget, Budget { tokens: Some(5000), cost: Some(250_000), time });
}

#[tokio::test]
async fn a_list_has_all_tasks_in_order_and_collects_nothing() {
    let mut fixture = fixture().await;
    assert_eq!(
        fixture.call("list_background_agents", json!({})).await.unwrap().text,
        "You have started no tasks yet: call the tool that starts one."
    );
    let one = fixture.launch("researcher", "Compare Go and Rust\nin detail").await;
    let two = fixture.launch("writer", "Write").await;
    let three = fixture.launch("writer", "Wait").await;
    fixture.dispatcher.append_reply(one, "Let me search.", 1234);
    fixture.dispatcher.append(
        one,
        Entry::Called {
            call: CallId { turn: 1, index: 0 },
            tool: "web_search".into(),
            arguments: None,
            effects: false,
            foreign: false,
        },
    );
    fixture.dispatcher.advance_clock(65);
    fixture.dispatcher.finish(two, completed("done"));
    let output = fixture.call("list_background_agents", json!({})).await.unwrap();
    assert_eq!(
        output.text,
        format!(
            "{one} · researcher · running · 1m05s · 1234 tokens · in web_search · Compare Go and Rust\n\
             {two} · writer · completed · 0s · 0 tokens · Write\n\
             {three} · writer · pending · 0s · 0 tokens · Wait\n\
             2 of 3 tasks have not ended yet. The result of each is sent to you as a message when it ends: no need to look \
             again. {}",
            task_text::END_YOUR_TURN
        )
    );
    assert_eq!(output.collected, []);
    for id in [one, three] {
        fixture.dispatcher.finish(id, completed("done"));
    }
    let text = fixture.call("list_background_agents", json!({})).await.unwrap().text;
    assert_eq!(
        text.lines().last(),
        Some(format!("All 3 tasks have ended; what came of them is {ANSWER}").as_str())
    );
}

/// The note that every tool for viewing tasks shows when all tasks have ended.
const ANSWER: &str = "here or in the messages that you have got: nothing more will come. If there is nothing else to \
                      start, answer now.";

#[tokio::test]
async fn a_list_of_very_many_leaves_out_the_oldest_that_have_ended() {
    let mut fixture = fixture().await;
    let first = fixture.launch("writer", "the first").await;
    for n in 0..104 {
        let id = fixture.launch("writer", &format!("number {n}")).await;
        fixture.dispatcher.finish(id, completed("done"));
    }
    let text = fixture.call("list_background_agents", json!({})).await.unwrap().text;
    assert!(text.starts_with(&first.to_string()), "what runs is always listed");
    assert_eq!(text.lines().count(), 101);
    assert!(!text.contains("number 4\n") && text.contains("number 5\n"));
    assert!(text.contains("5 older tasks that have ended are not shown."));
}

#[tokio::test]
async fn a_running_task_is_shown_live_and_nobody_is_invited_to_poll() {
    let mut fixture = fixture().await;
    let id = fixture.launch("researcher", "Compare").await;
    fixture.dispatcher.append_text(id, "Go was made");
    fixture.dispatcher.advance_clock(10);
    fixture.dispatcher.append(id, Entry::Waiting { on: WaitReason::Provider("429".into()), until: None });
    fixture.dispatcher.advance_clock(55);
    fixture.dispatcher.append_text(id, "Go was made in 2009");
    fixture.dispatcher.append(id, Entry::Waiting { on: WaitReason::Tasks(vec![id]), until: None });
    let output = fixture.call("view_background_agent", json!({"task_id": id})).await.unwrap();
    assert_eq!(
        output.text,
        format!(
            "{id} · researcher · running · 1m05s · 0 tokens · 0 turns · 0 tools used\nTask: Compare\nWaits for: {id}, for 0s\n\n\
             Output so far:\nGo was made in 2009\n\n\
             It is still running. Call no tool for it now: its result will be sent to you as a message when it ends. \
             If you must, look again in 60 seconds."
        )
    );
    assert_eq!(output.collected, []);
    let pending = fixture.launch("writer", "Write").await;
    let output = fixture.call("view_background_agent", json!({"task_id": pending})).await.unwrap();
    assert!(
        output.text.contains("Output so far: none\n\nIt waits for its turn to start."),
        "{}",
        output.text
    );
}

#[tokio::test]
async fn an_ended_task_is_shown_with_how_it_ended_and_is_collected() {
    let cut_short = Outcome::Completed { output: "42".into(), cut_short: Some("50 turns".into()) };
    for (outcome, shown) in [
        (completed("42"), "· completed · 0s · 0 tokens · 0 turns · 0 tools used\nTask: x\n\nOutput:\n42"),
        (
            cut_short,
            "Task: x\nNote: it was cut short (50 turns), so this may not be all of the answer\n\nOutput:\n42",
        ),
        (failed("half"), "Task: x\nError: timed out: 10 minutes\n\nOutput before it ended:\nhalf"),
        (failed(""), "Task: x\nError: timed out: 10 minutes\n\nOutput before it ended: none"),
    ] {
        let mut fixture = fixture().await;
        let id = fixture.launch("researcher", "x").await;
        fixture.dispatcher.finish(id, outcome);
        let output = fixture.call("view_background_agent", json!({"task_id": id})).await.unwrap();
        let lead = format!("\n\nYour task has ended; what came of it is {ANSWER}");
        assert!(output.text.ends_with(&format!("{shown}{lead}")), "{}", output.text);
        assert_eq!(output.collected, [id]);
        fixture.launch("researcher", "y").await;
        let output = fixture.call("view_background_agent", json!({"task_id": id})).await.unwrap();
        assert!(output.text.ends_with(shown), "not while another runs: {}", output.text);
    }
}

#[tokio::test]
async fn a_long_output_is_read_page_by_page() {
    let mut fixture = fixture().await;
    let id = fixture.launch("researcher", "x").await;
    fixture.dispatcher.finish(id, completed(&format!("{}{}", "é".repeat(20_000), "→".repeat(10_000))));
    let on =
        |from| format!(r#"To read on: view_background_agent {{"task_id": "{id}", "offset": {from}}}. …]"#);
    for (arguments, shown, mark) in [
        (
            json!({}),
            "→→",
            format!("[… 22491 of 30000 characters are left out here: 6144 to 28635. {}", on(6144)),
        ),
        (
            json!({"offset": 19_999, "limit": 2}),
            "Output:\né→\n",
            format!("characters 19999 to 20001 of 30000. {}", on(20_001)),
        ),
        (json!({"offset": 0}), "éé\n", format!("characters 0 to 8192 of 30000. {}", on(8192))),
        (json!({"tail": 3}), "Output:\n→→→\n", format!("characters 29997 to 30000 of 30000. {}", on(0))),
        (json!({"tail": 1, "offset": 5, "limit": 1}), "Output:\né\n", "characters 5 to 6 of".to_owned()),
        (json!({"offset": 99_999}), "", format!("nothing: the output ends at character 30000. {}", on(0))),
    ] {
        let mut arguments = arguments;
        arguments["task_id"] = json!(id);
        let output = fixture.call("view_background_agent", arguments.clone()).await.unwrap();
        assert!(
            output.text.contains(shown) && output.text.contains(&mark),
            "{arguments}: …{}",
            &output.text[output.text.ceil_char_boundary(output.text.len() - 300)..]
        );
        assert!(output.text.len() < 17 * 1024, "{arguments}");
        assert_eq!(output.collected, [], "{arguments}: a part is not the result");
    }
}

#[tokio::test]
async fn wait_answers_in_the_shape_and_order_that_users_of_this_dialect_know() {
    let mut fixture = fixture().await;
    let one = fixture.launch("researcher", "x").await;
    let two = fixture.launch("writer", "y").await;
    fixture.dispatcher.finish_when_waited_for("researcher", completed("42"));
    fixture.dispatcher.finish_when_waited_for("writer", failed("half"));
    let output = fixture.call("wait_background_agents", json!({"task_ids": [two, one, two]})).await.unwrap();
    assert_eq!(
        output.text,
        format!(
            "{{\"all_done\":true,\"timed_out\":false,\"error\":null,\"tasks\":[\
             {{\"task_id\":\"{two}\",\"status\":\"failed\",\"done\":true,\"output\":\"half\",\"error\":\"timed out: 10 minutes\",\"truncated\":false,\"tools_used\":0}},\
             {{\"task_id\":\"{one}\",\"status\":\"completed\",\"done\":true,\"output\":\"42\",\"error\":null,\"truncated\":false,\"tools_used\":0}}],\
             \"note\":\"{}\"}}",
            task_text::all_ended_note(2).unwrap()
        )
    );
    assert!(output.all_ended);
    assert_eq!((output.collected, output.is_error), (vec![two, one], false));
    assert_eq!(fixture.gave_seat_back(), Some(vec![two, one]));
    let asked = fixture.dispatcher.waits().remove(0);
    assert_eq!(asked.tasks, [two.to_string(), one.to_string()]);
    assert_eq!((asked.join, asked.timeout), (WaitMode::All, Some(Duration::from_secs(300))));

    fixture.call("wait_background_agents", json!({"task_ids": [two, one]})).await.unwrap();
    assert_eq!(fixture.gave_seat_back(), None, "a wait that is over before it begins keeps its seat");
}

#[tokio::test]
async fn a_wait_for_any_is_over_with_the_first_and_collects_only_that() {
    let mut fixture = fixture().await;
    let one = fixture.launch("researcher", "x").await;
    let two = fixture.launch("writer", "y").await;
    fixture.dispatcher.append_text(one, "so far");
    fixture.dispatcher.finish_when_waited_for("writer", completed("42"));
    let arguments = json!({"task_ids": [one, two], "mode": "Any", "timeout": "20"});
    let output = fixture.call("wait_background_agents", arguments).await.unwrap();
    let said = value(&output);
    assert_eq!(
        (&said["all_done"], &said["timed_out"], &said["error"]),
        (&json!(false), &json!(false), &json!(null))
    );
    assert_eq!(
        (&said["tasks"][0]["status"], &said["tasks"][0]["output"]),
        (&json!("running"), &json!("so far"))
    );
    assert_eq!((&said["note"], output.all_ended), (&json!(null), false), "one still runs");
    assert_eq!(output.collected, [two]);
    let asked = fixture.dispatcher.waits().remove(0);
    assert_eq!((asked.join, asked.timeout), (WaitMode::Any, Some(Duration::from_secs(20))));
}

#[tokio::test]
async fn a_wait_that_times_out_harms_nothing_and_says_so() {
    for (timeout, waited, said) in [
        (json!(5), 5, "The time (5 seconds) is up"),
        (json!(-5), 300, "`timeout` cannot be -5"),
        (json!(99_999), 3600, "3600 seconds is the most"),
    ] {
        let mut fixture = fixture().await;
        let id = fixture.launch("researcher", "x").await;
        let arguments = json!({"task_ids": [id], "timeout": timeout});
        let output = fixture.call("wait_background_agents", arguments).await.unwrap();
        let answer = value(&output);
        assert_eq!((&answer["all_done"], &answer["timed_out"]), (&json!(false), &json!(true)));
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(said) && error.contains("no need to wait again"), "{error}");
        assert_eq!(answer["tasks"][0]["status"], "pending");
        assert_eq!((output.collected.len(), output.is_error), (0, false));
        assert_eq!(fixture.dispatcher.waits()[0].timeout, Some(Duration::from_secs(waited)));
    }
}

#[tokio::test]
async fn ids_that_are_not_known_do_not_keep_the_others_from_being_waited_for() {
    let mut fixture = fixture().await;
    let id = fixture.launch("researcher", "x").await;
    fixture.dispatcher.finish_when_waited_for("researcher", completed("42"));
    let short = &id.to_string()[..4];
    let arguments = json!({"task_ids": ["t-zzzzz", short]});
    let output = fixture.call("wait_background_agents", arguments).await.unwrap();
    let said = value(&output);
    assert_eq!(said["all_done"], false);
    assert!(said["error"].as_str().unwrap().contains("1 of the ids you named are not tasks of yours"));
    let lost = &said["tasks"][0];
    assert_eq!(
        (&lost["task_id"], &lost["status"], &lost["done"]),
        (&json!("t-zzzzz"), &json!("not_found"), &json!(false))
    );
    assert!(lost["error"].as_str().unwrap().contains(&format!("Your tasks are: {id}.")));
    assert_eq!((&said["tasks"][1]["task_id"], &said["tasks"][1]["output"]), (&json!(id), &json!("42")));
    assert_eq!((output.collected, output.is_error), (vec![id], true));
}

#[tokio::test]
async fn a_wait_for_many_long_results_is_bounded_and_says_what_is_missing() {
    let mut fixture = fixture().await;
    let mut ids = Vec::new();
    for _ in 0..16 {
        ids.push(fixture.launch("researcher", "x").await);
    }
    fixture.dispatcher.finish_when_waited_for("researcher", completed(&"→".repeat(20_000)));
    let output = fixture.call("wait_background_agents", json!({"task_ids": ids})).await.unwrap();
    assert!(output.text.len() < 48 * 1024, "{}", output.text.len());
    assert_eq!(output.collected, [], "what is cut is sent as a message too");
    for (task, id) in value(&output)["tasks"].as_array().unwrap().iter().zip(&ids) {
        assert_eq!(task["truncated"], true);
        let mark = format!(
            r#"19147 of 20000 characters are left out here: 640 to 19787. To read on: view_background_agent {{"task_id": "{id}", "offset": 640}}."#
        );
        assert!(task["output"].as_str().unwrap().contains(&mark), "{task}");
    }
}

#[tokio::test]
async fn stop_says_what_it_did() {
    let mut fixture = fixture().await;
    let (pending, running, ended) = (
        fixture.launch("writer", "a").await,
        fixture.launch("writer", "b").await,
        fixture.launch("writer", "c").await,
    );
    fixture.dispatcher.append_text(running, "…");
    fixture.dispatcher.finish(ended, completed("42"));
    for (id, said) in [
        (pending, "had not started: it is cancelled."),
        (running, "was told to stop, with everything below it."),
        (ended, "had already ended (completed): there was nothing to stop."),
    ] {
        let output = fixture.call("stop_background_agent", json!({"task_id": id})).await.unwrap();
        assert!(output.text.starts_with(&format!("{id} {said}")), "{}", output.text);
        assert_eq!(output.collected, []);
    }
    let text = fixture.call("view_background_agent", json!({"task_id": running})).await.unwrap().text;
    assert!(text.contains("It is being stopped."), "{text}");
    let text = fixture.call("view_background_agent", json!({"task_id": pending})).await.unwrap().text;
    assert!(text.contains("Error: stopped by its parent agent"), "{text}");
}

#[tokio::test]
async fn a_message_reaches_a_running_task_and_continues_an_ended_one() {
    let mut fixture = fixture().await;
    let id = fixture.launch("writer", "a").await;
    let arguments = json!({"task_id": id, "message": "Only the last two years."});
    let output = fixture.call("send_background_agent", arguments.clone()).await.unwrap();
    assert!(
        output.text.starts_with(&format!("Your message is with {id}, which reads it")),
        "{}",
        output.text
    );
    assert_eq!(fixture.dispatcher.snapshot(id).state.unread, 1);

    fixture.dispatcher.finish(id, completed("42"));
    let output = fixture.call("send_background_agent", arguments).await.unwrap();
    assert!(output.text.starts_with(&format!("{id} had ended: a new task, t-")), "{}", output.text);
}

#[tokio::test]
async fn of_long_live_output_the_last_is_shown() {
    let mut fixture = fixture().await;
    let id = fixture.launch("researcher", "x").await;
    fixture.dispatcher.append_text(id, &format!("begin{}end", "→".repeat(20_000)));
    let mark = format!(
        r#"[… the first 14545 of 20008 characters are left out. To read on: view_background_agent {{"task_id": "{id}", "offset": 0}}. …]"#
    );
    let text = fixture.call("view_background_agent", json!({"task_id": id})).await.unwrap().text;
    assert!(
        text.contains(&format!("Output so far:\n{mark}\n→")) && text.contains("→end\n\nIt is still running.")
    );
    let output =
        fixture.call("wait_background_agents", json!({"task_ids": [id], "timeout": 1})).await.unwrap();
    let task = &value(&output)["tasks"][0];
    assert_eq!((&task["truncated"], &task["done"]), (&json!(true), &json!(false)));
    assert!(task["output"].as_str().unwrap().starts_with(&mark));
    assert_eq!(output.collected, []);
}

#[tokio::test]
async fn a_beginning_that_several_ids_share_is_answered_with_those() {
    let mut fixture = fixture().await;
    let mut ids = Vec::new();
    for _ in 0..33 {
        ids.push(fixture.launch("writer", "x").await);
    }
    let same = |one: &TaskId, two: &TaskId| one != two && one.letters()[..1] == two.letters()[..1];
    let id = ids.iter().find(|one| ids.iter().any(|two| same(one, two))).unwrap();
    let error = fixture.call_error("stop_background_agent", json!({"task_id": id.letters()[..1]})).await;
    assert!(error.contains("the beginning of several of your tasks. Say which: "), "{error}");
    assert!(error.contains(&id.to_string()), "{error}");
}

#[tokio::test]
async fn nobody_is_promised_a_message_that_goes_to_another() {
    let mut fixture = fixture().await;
    let (other, child) = (fixture.launch("writer", "a").await, fixture.launch("writer", "b").await);
    fixture.dispatcher.append_text(child, "…");
    fixture.context.caller.task = other;
    let arguments = json!({"task_id": child, "message": "Hurry."});
    let text = fixture.call("send_background_agent", arguments).await.unwrap().text;
    assert!(text.ends_with("Its result is sent to the task that it works for."), "{text}");
    let text = fixture.call("stop_background_agent", json!({"task_id": child})).await.unwrap().text;
    assert!(text.ends_with("look at it then to see what it had."), "{text}");
}
