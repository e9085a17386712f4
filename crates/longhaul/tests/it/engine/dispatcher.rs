//! What agents may do to tasks, in three dialects.

use std::path::PathBuf;

use longhaul::testing::reply;
use longhaul::{Order, Status, SubAgentDialect, Team};
use serde_json::json;

use crate::engine::stage::*;

/// "A child's rights": other people's tasks do not exist for it.
#[tokio::test(start_paused = true)]
async fn the_ids_of_others_are_refused_and_the_error_says_what_there_is() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) if asked.order.starts_with("t-") => launch(reply(), "mine"),
        ("lead", 1) if asked.order.starts_with("t-") => {
            ["view", "stop", "send"].iter().fold(reply(), |reply, verb| {
                let arguments = json!({"task_id": asked.order, "message": "hi"});
                reply.call(format!("{verb}_background_agent"), arguments)
            })
        }
        ("lead", _) => {
            reply().text(asked.said.iter().filter(|s| s.starts_with("t:you")).cloned().collect::<String>())
        }
        _ => reply().text("r"),
    });
    let longhaul = start(pair(&model)).await;
    let foreign = longhaul.submit(Order::new("worker", "secret").interactive()).await.unwrap();
    let id = longhaul.submit(Order::new("lead", foreign.to_string())).await.unwrap();
    let told = end(&longhaul, id).await.output;
    let mine = children(&longhaul, id).await[0].id;
    assert_eq!(told.matches(&format!("you have no task '{foreign}'")).count(), 3, "{told}");
    assert!(told.contains(&mine.to_string()), "it says what there is: {told}");
    assert!(!longhaul.snapshot(foreign).await.unwrap().state.status.is_final());
    longhaul.stop_all().await.unwrap();
}

/// Demand 24: the same call of the same task launches the same child.
#[tokio::test(start_paused = true)]
async fn launching_again_with_the_same_call_is_the_same_task() {
    let twice = tool("twice", |_, context| async move {
        let order = Order::new("worker", "x");
        let first = context.dispatcher.submit(&context.caller, context.call, order.clone()).await?;
        let again = context.dispatcher.submit(&context.caller, context.call, order).await?;
        Ok(format!("{}", first == again).into())
    });
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("twice", json!({})),
        ("lead", 1) => reply().text(asked.last()),
        ("lead", _) => reply().text("t:true"),
        _ => reply().text("r"),
    });
    let longhaul = start(pair(&model).toolset(twice)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!(done.output, "t:true");
    assert_eq!(children(&longhaul, done.state.id).await.len(), 1);
}

/// Demand 24.
#[tokio::test(start_paused = true)]
async fn submitting_once_is_once() {
    let longhaul = start(agent("solo", &model(|_| reply().text("x")))).await;
    let first = longhaul.submit_once("nightly", Order::new("solo", "a")).await.unwrap();
    assert_done(&end(&longhaul, first).await);
    assert_eq!(longhaul.submit_once("nightly", Order::new("solo", "b")).await.unwrap(), first);
    assert_ne!(longhaul.submit_once("weekly", Order::new("solo", "b")).await.unwrap(), first);
}

/// Demand 22, in part: the model of the order is the one that is asked, and one that is not there is refused.
#[tokio::test(start_paused = true)]
async fn the_orders_model_and_tools_are_honoured_and_unknown_ones_refused() {
    let plain = model(|asked| reply().text(format!("plain with {:?}", asked.tools)));
    let strong = model(|asked| reply().text(format!("strong with {:?}", asked.tools)));
    let tools = || tool("a", |_, _| async { Ok("".into()) });
    let other = || tool("b", |_, _| async { Ok("".into()) });
    let team: Team =
        team(agent("solo", &plain).toolset(tools()).toolset(other())).with_model("strong", strong);
    let longhaul = longhaul::Longhaul::builder(team).start().await.unwrap();
    let done = ask(&longhaul, Order::new("solo", "go").model("strong").tools(["b"])).await;
    assert_eq!(done.output, r#"strong with ["b"]"#);
    let error = longhaul.submit(Order::new("solo", "go").model("no such")).await.unwrap_err().to_string();
    assert!(error.contains("no such") && error.contains("strong"), "{error}");
    let error = longhaul.submit(Order::new("nobody", "go")).await.unwrap_err().to_string();
    assert!(error.contains("nobody") && error.contains("solo"), "{error}");
}

/// A tool that is not in the order cannot be called either, whatever the model writes.
#[tokio::test(start_paused = true)]
async fn a_tool_that_the_order_leaves_out_cannot_be_called() {
    let a = tool("a", |_, _| async { panic!("not allowed") });
    let b = tool("b", |_, _| async { Ok("".into()) });
    let model = model(|asked| match asked.turn {
        0 => reply().call("a", json!({})),
        _ => reply().text(asked.last()),
    });
    let longhaul = start(agent("solo", &model).toolset(a).toolset(b)).await;
    let done = ask(&longhaul, Order::new("solo", "go").tools(["b"])).await;
    assert!(done.output.contains("There is no tool 'a'. Your tools are: b"), "{}", done.output);
}

/// "Shared tool instances write into another agent's directory; a shared current agent gives a child the root's
/// tools": who calls, and where, travels with each call.
#[tokio::test(start_paused = true)]
async fn each_call_knows_its_own_task_agent_and_directory() {
    let who = || {
        tool("who", |_, context| async move {
            let dir = context.working_dir.unwrap_or_default();
            Ok(format!("{} {} {}", context.caller.agent, context.caller.depth, dir.display()).into())
        })
    };
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => ["a", "b"].iter().fold(reply().call("who", json!({})), |reply, task| {
            reply.call("transfer_task", json!({"agent": "worker", "task": task}))
        }),
        ("worker", 0) => reply().call("who", json!({})),
        ("worker", _) => reply().text(&asked.last()[2..]),
        _ => reply().text(asked.said[2..].join("|")),
    });
    let worker = agent("worker", &model).toolset(who()).build().unwrap();
    let lead = agent("lead", &model).toolset(who()).sub_agent(worker).dialect(SubAgentDialect::Background);
    let longhaul = start(lead).await;
    let mut order = Order::new("lead", "go");
    order.working_dir = Some(PathBuf::from("/somewhere"));
    let done = ask(&longhaul, order).await;
    let all = "t:lead 0 /somewhere|t:worker 1 /somewhere|t:worker 1 /somewhere";
    assert_eq!(without_note(&done.output), all, "inherited");
}

#[tokio::test(start_paused = true)]
async fn a_handoff_gives_the_conversation_and_other_tools_to_another() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("desk", 0) => reply().call("handoff", json!({"agent": "expert"})),
        ("desk", _) => reply().text("not mine any more"),
        _ => reply().text(format!("{:?} after {}", asked.tools, asked.said[0])),
    });
    let special = tool("special", |_, _| async { Ok("".into()) });
    let expert = agent("expert", &model).toolset(special).build().unwrap();
    let longhaul = start(agent("desk", &model).handoff(expert)).await;
    assert_eq!(ask(&longhaul, Order::new("desk", "go")).await.output, r#"["special"] after u:go"#);
}

#[tokio::test(start_paused = true)]
async fn sub_agents_as_tools_wait_or_work_in_the_background() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("worker", json!({"task": "now"})),
        ("lead", 1) => reply().call("worker", json!({"task": "later", "background": true})),
        ("lead", 2) => {
            let id =
                serde_json::from_str::<serde_json::Value>(&asked.last()[2..]).unwrap()["task_id"].clone();
            reply().call("get_task_result", json!({"task_id": id, "wait": true}))
        }
        ("lead", _) => reply().text(asked.said[2..].join("\n")),
        _ => reply().text(format!("did {}", asked.order)),
    });
    let worker = agent("worker", &model).build().unwrap();
    let longhaul = start(agent("lead", &model).sub_agent(worker)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert!(done.output.contains("did now") && done.output.contains("did later"), "{}", done.output);
    assert_eq!(done.state.turns, 4, "the collected result is not told again");
}

#[tokio::test(start_paused = true)]
async fn managed_agents_are_spawned_written_to_and_cancelled() {
    let (gate, model) = gated(move |gate, asked| async move {
        let spawn = |task: &str| json!({"task": task, "description": task});
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("spawn_agent", spawn("a")).call("spawn_agent", spawn("b")),
            ("lead", 1) => {
                gate.came(2).await;
                reply().call("send_message", json!({"to": "*", "message": "hurry"}))
            }
            ("lead", 2) => {
                gate.open(1);
                let id = asked.said[2].split('"').find(|part| part.starts_with("t-")).unwrap().to_owned();
                reply().call("cancel_agent", json!({"agent_id": id}))
            }
            ("lead", _) => reply().text(asked.said.join("\n")),
            _ => {
                gate.pass().await;
                reply().text(format!("done after {}", asked.last()))
            }
        }
    });
    let worker = agent("worker", &model).build().unwrap();
    let longhaul = start(agent("lead", &model).sub_agent(worker).dialect(SubAgentDialect::Managed)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    until(&longhaul, id, |state| state.turns >= 3).await;
    gate.open(8);
    let done = end(&longhaul, id).await;
    assert_done(&done);
    assert!(done.output.contains("Your message is with 2 agents"), "{}", done.output);
    let ended = children(&longhaul, id).await;
    assert!(ended.iter().all(|child| child.status.is_final()));
    for child in ended.iter().filter(|child| child.status == Status::Completed) {
        let told = letters(&longhaul, child.id).await;
        assert_eq!(told.len(), 1, "the broadcast came once");
    }
}

/// What the model gets wrong is answered with what it can do instead.
#[tokio::test(start_paused = true)]
async fn mistakes_are_answered_with_a_way_on() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply()
            .call("run_background_agent", json!({"agent": "nobody", "task": "x"}))
            .call("run_background_agent", json!({"agent": "worker", "task": " "}))
            .raw_call("run_background_agent", "{not json")
            .call("run_background_agent", json!({"agent": "worker", "task": "x", "model": "gpt-99"}))
            .call("view_background_agent", json!({"task_id": "t-zzzzz"}))
            .call("no_such_tool", json!({})),
        _ => reply().text(asked.said[2..].join("\n")),
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    for part in [
        "You can call: worker",
        "task is empty",
        "valid JSON",
        "gpt-99",
        "you have no task 't-zzzzz'",
        "Your tools are",
    ] {
        assert!(done.output.contains(part), "{part} is not in {}", done.output);
    }
    assert!(children(&longhaul, done.state.id).await.is_empty());
}
