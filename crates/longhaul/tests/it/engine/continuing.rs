//! A letter to a finished task continues it: a new task, the same conversation, linked both ways.

use std::sync::Arc;

use longhaul::dispatch::TaskLimits;
use longhaul::entry::WaitReason;
use longhaul::testing::reply;
use longhaul::{Longhaul, OnFinish, Order, Status, SubAgentDialect};
use serde_json::json;

use crate::engine::stage::*;

/// Demand 14.
#[tokio::test(start_paused = true)]
async fn a_letter_to_a_finished_task_continues_it_and_both_are_linked() {
    let model = model(|asked| reply().text(format!("{} messages", asked.said.len())));
    let longhaul = start(agent("solo", &model)).await;
    let old = ask(&longhaul, Order::new("solo", "go")).await;
    let sent = longhaul.send(old.state.id, "and then?").await.unwrap();
    assert!(sent.continued && sent.to != old.state.id);
    let new = end(&longhaul, sent.to).await;
    assert_eq!(new.output, "3 messages", "the conversation is the same");
    assert_eq!(new.state.continues, Some(old.state.id));
    let old_now = longhaul.snapshot(old.state.id).await.unwrap();
    assert_eq!(old_now.state.continued_by, Some(sent.to));
    assert_eq!((old_now.state.status, old_now.output), (Status::Completed, old.output), "final is final");
    let third = longhaul.send(old.state.id, "and now?").await.unwrap();
    assert_eq!(end(&longhaul, third.to).await.output, "5 messages", "the chain is followed to its end");
}

/// What a tool has noted belongs to the conversation, and goes on with it.
#[tokio::test(start_paused = true)]
async fn a_todo_list_goes_on_with_the_conversation() {
    let model = model(|asked| match asked.last() {
        "u:go" => reply().call("create_todo", json!({"description": "the first step"})),
        "u:and then?" => reply().call("list_todos", json!({})),
        last => reply().text(last),
    });
    let longhaul = start(agent("solo", &model).toolset(longhaul::toolset::Todo::new())).await;
    let old = ask(&longhaul, Order::new("solo", "go")).await;
    let next = longhaul.continue_task(old.state.id, "and then?").await.unwrap();
    let listed = end(&longhaul, next).await.output;
    assert!(listed.contains("todo_1") && listed.contains("the first step"), "{listed}");
    let other = ask(&longhaul, Order::new("solo", "and then?")).await.output;
    assert!(other.contains(r#""todos":[]"#), "another conversation has its own: {other}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_and_a_cancelled_task_can_be_continued() {
    let model = slow(|asked| async move {
        match (asked.order.as_str(), asked.said.len()) {
            ("hang", 1) => std::future::pending().await,
            ("empty", n) if n < 4 => reply(),
            _ => reply().text(format!("back: {}", asked.last())),
        }
    });
    let longhaul = start(agent("solo", &model)).await;
    let failed = ask(&longhaul, Order::new("solo", "empty")).await;
    assert_eq!(failed.state.status, Status::Failed);
    let hangs = longhaul.submit(Order::new("solo", "hang")).await.unwrap();
    until(&longhaul, hangs, |state| state.status == Status::Running).await;
    longhaul.stop(hangs).await.unwrap();
    assert_eq!(end(&longhaul, hangs).await.state.status, Status::Cancelled);
    for id in [failed.state.id, hangs] {
        let next = longhaul.continue_task(id, "try again").await.unwrap();
        assert_eq!(end(&longhaul, next).await.output, "back: u:try again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_write_to_a_finished_task_at_once_make_one_continuation_and_both_are_read() {
    let model = model(|asked| reply().text(asked.said.join("|")));
    let longhaul = start(agent("solo", &model)).await;
    for _ in 0..50 {
        let old = ask(&longhaul, Order::new("solo", "go")).await.state.id;
        let both = [("first", longhaul.clone()), ("second", longhaul.clone())]
            .map(|(text, longhaul)| tokio::spawn(async move { longhaul.send(old, text).await.unwrap().to }));
        let [a, b] = both;
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let mut last = old;
        while let Some(next) = longhaul.snapshot(last).await.unwrap().state.continued_by {
            last = next;
            end(&longhaul, last).await;
        }
        assert!([a, b].contains(&last));
        let output = longhaul.output(last).await.unwrap();
        assert!(output.contains("first") && output.contains("second"), "{output}");
    }
    longhaul.shutdown().await;
}

/// Promise 3: a letter written again, because its writer did not see that it was written, is written once.
#[tokio::test(start_paused = true)]
async fn a_letter_written_again_is_one_letter_though_its_reader_has_ended_meanwhile() {
    use longhaul::dispatch::{Caller, Dispatcher, LetterContent};
    use longhaul::id::CallId;
    let dispatcher: Arc<std::sync::OnceLock<(Arc<dyn Dispatcher>, Caller)>> = Arc::default();
    let held = dispatcher.clone();
    let peek = tool("peek", move |_, context| {
        let _ = held.set((context.dispatcher.clone(), context.caller.clone()));
        async { Ok("ok".into()) }
    });
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply().call("peek", json!({})), "x"),
            ("lead", _) => reply().text("ok"),
            _ => {
                if asked.said.len() == 1 {
                    gate.pass().await;
                }
                reply().text(asked.said.join("|"))
            }
        }
    });
    let longhaul = start(pair(&model).toolset(peek)).await;
    let id = longhaul.submit(Order::new("lead", "go").interactive()).await.unwrap();
    gate.came(1).await;
    let child = children(&longhaul, id).await[0].id;
    let (dispatcher, caller) = dispatcher.get().unwrap();
    let call = CallId { turn: 9, index: 0 };
    let write = |to: longhaul::TaskId, call: CallId| async move {
        let note = LetterContent { text: "news".into(), summary: None };
        dispatcher.send(caller, call, &to.to_string(), note).await.unwrap()
    };
    let first = write(child, call).await;
    gate.open(1);
    assert_eq!(end(&longhaul, child).await.output.matches("news").count(), 1);
    assert_eq!(write(child, call).await, first, "the same call again, after the end");
    assert_eq!(longhaul.snapshot(child).await.unwrap().state.continued_by, None);

    let other = CallId { turn: 10, index: 0 };
    let second = write(child, other).await;
    assert!(second.continued);
    end(&longhaul, second.to).await;
    assert_eq!(write(child, other).await, second, "the same call again, after the continuation");
    assert_eq!(letters(&longhaul, second.to).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_continuation_goes_on_with_the_agent_that_had_the_conversation_last() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("desk", 0) if asked.said.len() == 1 => reply().call("handoff", json!({"agent": "expert"})),
        (name, _) => reply().text(format!("{name} speaking")),
    });
    let expert = agent("expert", &model).build().unwrap();
    let longhaul = start(agent("desk", &model).handoff(expert)).await;
    let done = ask(&longhaul, Order::new("desk", "go")).await;
    assert_eq!(done.output, "expert speaking");
    let next = longhaul.continue_task(done.state.id, "more").await.unwrap();
    assert_eq!(end(&longhaul, next).await.output, "expert speaking");
}

/// What the conversation tells of, its continuation can reach: the children of the task it continues.
#[tokio::test(start_paused = true)]
async fn a_continuation_reaches_the_children_of_the_task_that_it_continues() {
    let model = model(|asked| match (asked.agent.as_str(), asked.last()) {
        ("lead", "u:go") => launch(reply(), "x"),
        ("lead", "u:ask it again") => {
            reply().call("send_background_agent", json!({"task_id": asked.id(), "message": "again"}))
        }
        ("lead", last) => reply().text(format!("heard {last}")),
        (_, last) => reply().text(format!("child heard {last}")),
    });
    let longhaul = start(pair(&model)).await;
    let old = ask(&longhaul, Order::new("lead", "go")).await;
    let next = longhaul.continue_task(old.state.id, "ask it again").await.unwrap();
    let done = end(&longhaul, next).await;
    assert!(done.output.contains("child heard u:again"), "{}", done.output);
    assert_eq!(children(&longhaul, next).await.len(), 1, "the child's continuation is the new lead's");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_child_is_told_to_whoever_goes_on_in_its_parents_place() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.last()) {
            ("lead", "u:go") => launch(reply(), "x"),
            ("lead", last) => reply().text(format!("heard {last}")),
            _ => {
                gate.pass().await;
                reply().text("late news")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let order = Order::new("lead", "go").on_finish(OnFinish::Detach).interactive();
    let old = longhaul.submit(order).await.unwrap();
    gate.came(1).await;
    until(&longhaul, old, |state| state.waiting.is_some()).await;
    // It ends, but its child is not told to: as if it had been detached.
    let child = children(&longhaul, old).await[0].id;
    let non_interactive =
        longhaul.submit(Order::new("lead", "go").on_finish(OnFinish::Detach)).await.unwrap();
    gate.came(1).await;
    end(&longhaul, non_interactive).await;
    let detached = children(&longhaul, non_interactive).await[0].id;
    let next = longhaul.send(non_interactive, "still there?").await.unwrap().to;
    end(&longhaul, next).await;
    let next = longhaul.send(next, "wait").await.unwrap().to;
    gate.open(2);
    end(&longhaul, detached).await;
    end(&longhaul, child).await;
    end(&longhaul, next).await;
    let told = letters(&longhaul, next).await.iter().filter(|letter| letter.ending == Some(detached)).count();
    assert_eq!(told, 1, "one letter, to the last of the chain");
    longhaul.stop_all().await.unwrap();
}

/// A continued grandchild, whose own parent has ended, tells whoever wrote to it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_continued_grandchild_is_told_to_who_wrote_to_it_if_its_parent_has_ended() {
    let model = model(|asked| match (asked.agent.as_str(), asked.last()) {
        ("lead", "u:go") => {
            reply().call("run_background_agent", json!({"agent": "middle", "task": "pass it on"}))
        }
        ("lead", "u:ask the deepest") => {
            reply().call("list_background_agents", json!({})).call("nothing", json!({}))
        }
        ("lead", last) if last.contains("There is no tool 'nothing'") => {
            let list = asked.said.iter().rev().find(|said| said.contains("· worker ·")).unwrap();
            let line = list.lines().find(|line| line.contains("· worker ·")).unwrap();
            let id = line.trim_start_matches("t:").split(' ').next().unwrap();
            reply().call("send_background_agent", json!({"task_id": id, "message": "again"}))
        }
        ("middle", "u:pass it on") => launch(reply(), "x"),
        ("worker", last) => reply().text(format!("deep {last}")),
        (_, last) => reply().text(format!("heard {last}")),
    });
    let worker = agent("worker", &model).build().unwrap();
    let middle =
        agent("middle", &model).sub_agent(worker).dialect(SubAgentDialect::Background).build().unwrap();
    let lead = agent("lead", &model).sub_agent(middle).dialect(SubAgentDialect::Background);
    let longhaul = start(lead).await;
    let (session, events) = longhaul.open_session("go").await.unwrap();
    all(events).await;
    until(&longhaul, session, |state| state.waiting.as_ref().is_some_and(|w| w.on == WaitReason::Letter))
        .await;
    let middle = children(&longhaul, session).await[0].id;
    assert_done(&end(&longhaul, middle).await);
    let before = letters(&longhaul, middle).await.len();

    all(longhaul.send_to_session(session, "ask the deepest").await.unwrap()).await;
    until(&longhaul, session, |state| {
        state.unread == 0 && state.waiting.as_ref().is_some_and(|w| w.on == WaitReason::Letter)
    })
    .await;
    let told = longhaul.snapshot(session).await.unwrap().output;
    assert!(told.contains("deep u:again"), "{told}");
    assert_eq!(letters(&longhaul, middle).await.len(), before, "nothing goes to who cannot read it any more");
}

#[tokio::test(start_paused = true)]
async fn a_longhaul_that_runs_only_its_own_trees_runs_their_continuations_too() {
    let model = model(|asked| reply().text(asked.last()));
    let longhaul = Longhaul::builder(team(agent("solo", &model)))
        .own_trees_only()
        .limits(TaskLimits::default())
        .start()
        .await
        .unwrap();
    let old = ask(&longhaul, Order::new("solo", "go")).await;
    let next = longhaul.send(old.state.id, "more").await.unwrap().to;
    assert_eq!(end(&longhaul, next).await.output, "u:more");
}
