//! What it costs to look at one task among many: the same, however many there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::dispatch::{LetterContent, WaitMode};
use longhaul::store::{MemoryStore, TaskFilter};
use longhaul::testing::reply;
use longhaul::{Longhaul, Order};
use serde_json::json;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

const MANY: usize = 40;

fn listed(mood: &Mood) -> usize {
    mood.tasks_listed.load(Ordering::SeqCst)
}

fn store(mood: &Arc<Mood>) -> Moody {
    Moody { inner: MemoryStore::new(), mood: mood.clone(), hints: true }
}

/// Who looks at, waits for, writes to and stops each of its tasks lists none of the others for it.
#[tokio::test(start_paused = true)]
async fn what_names_one_task_does_not_list_the_others() {
    let mood = Arc::new(Mood::default());
    let of = mood.clone();
    let look = tool("look", move |_, context| {
        let mood = of.clone();
        async move {
            let (dispatcher, caller) = (&context.dispatcher, &context.caller);
            let tasks: Vec<String> =
                dispatcher.list(caller).await?.iter().map(|task| task.id.to_string()).collect();
            assert_eq!(tasks.len(), MANY);
            let before = listed(&mood);
            for id in &tasks {
                assert_eq!(dispatcher.view(caller, id).await?.state.id.to_string(), *id);
                let one = std::slice::from_ref(id);
                let zero = Some(Duration::ZERO);
                assert!(dispatcher.wait(caller, one, WaitMode::All, zero).await?.timed_out);
                let note = LetterContent { text: "Hurry.".to_owned(), summary: None };
                assert!(!dispatcher.send(caller, context.call, id, note).await?.continued);
                dispatcher.stop(caller, id).await?;
            }
            Ok(format!("listed {}", listed(&mood) - before).into())
        }
    });
    let stay = Gate::new();
    let gate = stay.clone();
    let model = slow(move |asked| {
        let gate = gate.clone();
        async move {
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => (0..MANY).fold(reply(), |reply, n| launch(reply, &n.to_string())),
                ("lead", 1) => {
                    gate.came(MANY as u32).await;
                    reply().call("look", json!({}))
                }
                ("lead", 2) => reply().text(&asked.last()[2..]),
                ("lead", _) => reply().text("over"),
                _ => {
                    gate.pass().await;
                    reply().text("r")
                }
            }
        }
    });
    let limits = longhaul::dispatch::TaskLimits::default().running(MANY + 1);
    let longhaul = Longhaul::builder(team(pair(&model).toolset(look)))
        .store(store(&mood))
        .limits(limits)
        .start()
        .await
        .unwrap();
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    let told = journal(&longhaul, done.state.id).await;
    let told = format!("{told:?}");
    assert!(told.contains("listed 0\""), "{}", told.split("listed ").nth(1).unwrap_or(&told));
}

/// The note that all tasks have ended comes with each look at the last ones, and counts them without listing.
#[tokio::test(start_paused = true)]
async fn a_look_at_each_of_many_that_have_ended_lists_few() {
    let per_look = async |many: usize| {
        let mood = Arc::new(Mood::default());
        let of = mood.clone();
        let mark = tool("mark", move |_, _| {
            let listed = listed(&of);
            async move { Ok(format!("at {listed}").into()) }
        });
        let model = model(move |asked| match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => (0..many).fold(reply(), |reply, n| launch(reply, &n.to_string())),
            ("lead", 1) => reply().text("I wait."),
            ("lead", 2) => reply().call("mark", json!({})),
            ("lead", 3) => {
                let said = asked.said.join(" ");
                let ids = said
                    .split("task_ended id=\"")
                    .skip(1)
                    .map(|rest| rest[..rest.find('"').unwrap()].to_owned());
                ids.fold(reply(), |reply, id| reply.call("view_background_agent", json!({ "task_id": id })))
            }
            ("lead", 4) => {
                assert!(asked.last().contains(&format!("All {many} tasks have ended")), "{}", asked.last());
                reply().call("mark", json!({}))
            }
            ("lead", _) => reply().text(
                asked.said.iter().filter(|said| said.starts_with("t:at ")).cloned().collect::<String>(),
            ),
            _ => reply().text("r"),
        });
        let longhaul =
            Longhaul::builder(team(pair(&model).toolset(mark))).store(store(&mood)).start().await.unwrap();
        let done = ask(&longhaul, Order::new("lead", "go")).await;
        assert_done(&done);
        let marks: Vec<usize> = done.output.split("t:at ").filter_map(|n| n.parse().ok()).collect();
        assert_eq!(marks.len(), 2, "{}", done.output);
        (marks[1] - marks[0]).div_ceil(many)
    };
    let (few, more) = (per_look(5).await, per_look(MANY).await);
    assert!(more <= few.max(2), "a look lists {few} of 5 and {more} of {MANY}");
}

/// Who follows a task below does not list the tree each time that a task beside it says something.
#[tokio::test(start_paused = true)]
async fn following_one_below_does_not_list_those_beside_it() {
    let listed_in_all = async |follows: bool| {
        let mood = Arc::new(Mood::default());
        let (stay, conversation) = (Gate::new(), Gate::new());
        let (wait, start) = (stay.clone(), conversation.clone());
        let model = slow(move |asked| {
            let (wait, start) = (wait.clone(), start.clone());
            async move {
                match (asked.agent.as_str(), asked.turn) {
                    ("lead", 0) => (0..MANY).fold(reply(), |reply, n| launch(reply, &n.to_string())),
                    ("lead", _) => reply().text("Fine."),
                    ("worker", _) if asked.order == "0" => {
                        wait.pass().await;
                        reply().text("the first")
                    }
                    _ => {
                        start.pass().await;
                        reply().text("another")
                    }
                }
            }
        });
        let limits = longhaul::dispatch::TaskLimits::default().running(MANY + 1);
        let longhaul =
            Longhaul::builder(team(pair(&model))).store(store(&mood)).limits(limits).start().await.unwrap();
        let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
        stay.came(1).await;
        conversation.came(MANY as u32 - 1).await;
        let tasks = longhaul.list(TaskFilter::children(root)).await.unwrap();
        let first = tasks.iter().find(|task| task.headline == "0").unwrap().id;
        let mut events = longhaul.follow(first);
        if follows {
            within(events.next()).await.unwrap().unwrap();
        }
        let reading = async {
            if !follows {
                return;
            }
            let rest = all(events).await;
            assert!(rest.iter().all(|event| event.task == first), "{rest:?}");
        };
        let beside = async {
            for _ in 1..MANY {
                conversation.open(1);
                // One after the other, so that each is news of its own to who follows.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stay.open(1);
        };
        futures::join!(reading, beside);
        end(&longhaul, root).await;
        listed(&mood)
    };
    let (without, with) = (listed_in_all(false).await, listed_in_all(true).await);
    let more = with.saturating_sub(without);
    assert!(more < 2 * MANY, "{more} tasks were listed to follow one, {without} without that");
}
