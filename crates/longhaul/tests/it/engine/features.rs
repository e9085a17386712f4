//! What an agent can have besides: summaries of long conversations, answers in a form, a choice of models.

use std::sync::{Arc, Mutex};

use longhaul::agent::{OutputSchema, Preamble};
use longhaul::message::{Message, Reply};
use longhaul::model::settings::StructuredOutput;
use longhaul::model::{Model, ModelError, ModelErrorKind, ModelRequest};
use longhaul::testing::{FnModel, reply};
use longhaul::toolset::{ModelPicker, Tools};
use longhaul::{Agent, Longhaul, Order, Policy, Status, SubAgentDialect, Team};
use serde_json::json;

use crate::engine::stage::*;

fn is_summary(request: &ModelRequest<'_>) -> bool {
    request.tools.is_empty() && request.system.contains("summaries")
}

fn texts(request: &ModelRequest<'_>) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(text) => text.to_string(),
        Message::Assistant(reply) => reply.text(),
        Message::Tool(result) => result.output.to_string(),
    };
    request.messages.iter().map(text).collect()
}

/// A tool that returns a lot.
fn talker() -> Tools {
    tool("look", |_, _| async { Ok("x".repeat(4_000).into()) })
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_grows_too_long_becomes_a_summary_and_the_order_stays() {
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let told = seen.clone();
    let model = FnModel::new(move |request| {
        if is_summary(request) {
            assert!(texts(request)[0].contains("look RETURNED"));
            return reply().text("Seven looks, all x.").usage(900, 10).cost(7);
        }
        told.lock().unwrap().push(texts(request));
        match request.turn {
            0..8 => reply().text(format!("look {}", request.turn)).call("look", json!({ "n": request.turn })),
            _ => reply().text("done"),
        }
    });
    let model: Arc<dyn Model> = Arc::new(model);
    let solo = Agent::builder("solo").model(model).toolset(talker());
    let solo = solo.policy(Policy::default().compact_at(Some(5_000))).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(solo).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "Count the xs.")).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    assert_eq!(done.tasks[0].output, "done");
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|texts| texts[0] == "Count the xs."), "the order is never compacted away");
    let last = seen.last().unwrap();
    assert!(last[1].contains("Seven looks, all x."), "{last:?}");
    assert!(last.iter().map(String::len).sum::<usize>() < 24_000);
    let state = &done.tasks[0].state;
    assert!(state.usage.input >= 900 && state.cost >= 7, "a summary is paid for: {state:?}");
    assert_eq!(state.turns, 9, "and is no turn");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_finds_the_conversation_too_long_is_asked_with_a_shorter_one() {
    let model = FnModel::try_new(move |request| {
        let size: usize = texts(request).iter().map(String::len).sum();
        let answer: Result<Reply, ModelError> = if is_summary(request) {
            Ok(reply().text("in short").into())
        } else if size > 10_000 {
            Err(ModelError {
                model: "small".to_owned(),
                kind: ModelErrorKind::Rejected(
                    "This model's maximum context length is 4096 tokens".to_owned(),
                ),
                retry_after: None,
            })
        } else if request.turn < 4 {
            Ok(reply().call("look", json!({ "n": request.turn })).into())
        } else {
            Ok(reply().text(format!("{size}")).into())
        };
        async move { answer }
    });
    let solo = Agent::builder("solo").model(Arc::new(model)).toolset(talker()).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(solo).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    assert_eq!(done.tasks[0].state.status, Status::Completed, "{:?}", done.tasks[0].state.error);
}

#[tokio::test(start_paused = true)]
async fn a_summary_names_the_tasks_that_still_run() {
    let child = slow(|_| std::future::pending());
    let seen: Arc<Mutex<String>> = Arc::default();
    let told = seen.clone();
    let model = FnModel::new(move |request| {
        if is_summary(request) {
            return reply().text("in short");
        }
        *told.lock().unwrap() = texts(request).join("\n");
        match request.turn {
            0 => reply().call("run_background_agent", json!({ "agent": "slow", "task": "Sleep well" })),
            1..6 => reply().call("look", json!({ "n": request.turn })),
            _ => reply().text("done"),
        }
    });
    let slow = Agent::builder("slow").model(child).build().unwrap();
    let lead = Agent::builder("lead").model(Arc::new(model)).toolset(talker()).sub_agent(slow);
    let policy = Policy::default().compact_at(Some(3_000)).on_finish(longhaul::OnFinish::Stop);
    let lead = lead.dialect(SubAgentDialect::Background).policy(policy).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(lead).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    within(longhaul.wait([id])).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.contains("have not ended yet") && seen.contains("(slow): Sleep well"), "{seen}");
}

fn place() -> OutputSchema {
    let schema =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    OutputSchema::new(StructuredOutput { name: "place".into(), description: None, schema, strict: true })
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_the_wrong_form_is_mended_once_and_then_a_failure() {
    for (second, status, output) in [
        ("```json\n{\"city\": \"Ulm\"}\n```", Status::Completed, "{\"city\": \"Ulm\"}"),
        ("{\"town\": \"Ulm\"}", Status::Failed, "Ulm"),
    ] {
        let model = FnModel::new(move |request| match request.turn {
            0 => reply().text("Ulm"),
            1 => {
                assert!(texts(request).last().unwrap().contains("not JSON"));
                reply().text(second)
            }
            _ => panic!("one repair"),
        });
        let solo = Agent::builder("solo").model(Arc::new(model)).output_schema(place()).build().unwrap();
        let longhaul = Longhaul::builder(Team::new(solo).unwrap()).start().await.unwrap();
        let id = longhaul.submit(Order::new("solo", "Where?")).await.unwrap();
        let done = within(longhaul.wait([id])).await.unwrap();
        let task = &done.tasks[0];
        assert_eq!(task.state.status, status);
        assert!(task.output.contains(output), "{}", task.output);
        if status == Status::Failed {
            assert!(
                task.state.error.as_deref().unwrap().contains("misshapen answer"),
                "{:?}",
                task.state.error
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_changes_its_model_and_goes_back() {
    let large: Arc<dyn Model> =
        Arc::new(FnModel::new(|_| reply().text("large").call("revert_model", json!({}))).named("large"));
    let small = FnModel::new(|request| match request.turn {
        0 => reply().call("change_model", json!({ "model": "huge" })),
        1 => {
            assert!(texts(request).last().unwrap().contains("there are: large"));
            reply().call("change_model", json!({ "model": "large" }))
        }
        _ => reply().text(format!("small again after {}", texts(request).contains(&"large".to_owned()))),
    });
    let solo =
        Agent::builder("solo").model(Arc::new(small.named("small"))).toolset(ModelPicker::new(["large"]));
    let team = Team::new(solo.build().unwrap()).unwrap().with_model("large", large);
    let longhaul = Longhaul::builder(team).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    assert_eq!(done.tasks[0].output, "small again after true");
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_as_much_of_its_conversation_as_it_is_to_see() {
    let model = FnModel::new(|request| {
        let texts = texts(request);
        assert_eq!(texts[0], "go");
        assert!(texts.len() <= 5, "{texts:?}");
        assert!(!matches!(request.messages.get(1), Some(Message::Tool(_))), "no result without its call");
        assert!(texts.iter().filter(|text| text.starts_with("xx")).count() <= 1, "{texts:?}");
        match request.turn {
            0..6 => reply().call("look", json!({ "n": request.turn })),
            _ => reply().text("done"),
        }
    });
    let policy = Policy::default().history_items(Some(4)).old_output_tokens(Some(1_500));
    let solo =
        Agent::builder("solo").model(Arc::new(model)).toolset(talker()).policy(policy).build().unwrap();
    let longhaul = Longhaul::builder(Team::new(solo).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let done = within(longhaul.wait([id])).await.unwrap();
    assert_eq!(done.tasks[0].output, "done", "{:?}", done.tasks[0].state.error);
}

#[tokio::test]
async fn an_agent_is_told_the_day_and_the_place_and_a_read_only_one_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("AGENTS.md"), "Be kind.").unwrap();
    let model = FnModel::new(|request| {
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        reply().text(format!("{}|{}", tools.join(","), request.system))
    });
    let preamble = Preamble::default().date(true).environment(true).prompt_files(vec!["AGENTS.md".into()]);
    let solo = Agent::builder("solo")
        .instruction("You are exact.")
        .model(Arc::new(model))
        .preamble(preamble)
        .toolset(talker())
        .toolset(ModelPicker::new(["large"]))
        .policy(Policy::default().read_only(true))
        .build()
        .unwrap();
    let longhaul = Longhaul::builder(Team::new(solo).unwrap()).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go").working_dir(dir.path())).await.unwrap();
    let output = within(longhaul.wait([id])).await.unwrap().tasks[0].output.clone();
    assert!(output.starts_with("change_model,revert_model|You are exact."), "{output}");
    assert!(
        output.contains(" (UTC).") && output.contains("Be kind.") && output.contains("Git repository: no")
    );
}
