//! The same work launched again and again: it is answered with the result that is there, and a model that only launches is led on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul::entry::{Entry, NudgeReason};
use longhaul::store::SqliteStore;
use longhaul::testing::{ReplyBuilder, reply};
use longhaul::tool::ToolEffects;
use longhaul::{Longhaul, Order, Snapshot, SubAgentDialect, Team};
use serde_json::{Value, json};

use crate::engine::stage::*;

const WORDS: &str = "Read alpha.txt.";

/// A lead that does these things one after the other, and then says all that it was told; its worker counts how often it ran.
fn lead(steps: Vec<fn() -> ReplyBuilder>, ran: &Arc<AtomicUsize>) -> Team {
    let count = ran.clone();
    let model = model(move |asked| match asked.agent.as_str() {
        "lead" => match steps.get(asked.turn as usize) {
            Some(step) => step(),
            None => reply().text(asked.said.join("\n")),
        },
        _ if asked.order.contains("touch") && asked.turn == 0 => reply().call("touch", json!({})),
        _ => {
            count.fetch_add(1, Ordering::SeqCst);
            reply().text("BADGER")
        }
    });
    let touch = || tool("touch", |_, _| async { Ok("touched".into()) });
    let worker = agent("worker", &model).toolset(touch()).build().unwrap();
    let look = tool_of(ToolEffects::READ_ONLY, "read", |_, _| async { Ok("read".into()) });
    team(
        agent("lead", &model)
            .sub_agent(worker)
            .dialect(SubAgentDialect::Background)
            .toolset(touch())
            .toolset(look),
    )
}

fn read() -> ReplyBuilder {
    launch(reply(), WORDS)
}

fn says() -> ReplyBuilder {
    reply().text("Started.")
}

async fn run(steps: Vec<fn() -> ReplyBuilder>) -> (Snapshot, usize, Longhaul) {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul = Longhaul::builder(lead(steps, &ran)).start().await.unwrap();
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_done(&done);
    (done, ran.load(Ordering::SeqCst), longhaul)
}

#[tokio::test]
async fn the_same_words_are_answered_with_the_result_that_is_there() {
    let (done, ran, longhaul) = run(vec![read, says, read]).await;
    assert_eq!(ran, 1);
    let child = children(&longhaul, done.state.id).await.remove(0);
    let answer = format!(
        "t:{} has done this task already, so it was not started again. Its result:\n\nBADGER",
        child.id
    );
    assert!(done.output.contains(&answer), "{}", done.output);
}

#[tokio::test]
async fn it_is_done_again_where_that_is_wanted_or_something_has_happened() {
    fn again() -> ReplyBuilder {
        reply().call("run_background_agent", json!({"agent": "worker", "task": WORDS, "again": true}))
    }
    fn otherwise() -> ReplyBuilder {
        let task = json!({"agent": "worker", "task": WORDS, "expected_output": "One word."});
        reply().call("run_background_agent", task)
    }
    fn touches() -> ReplyBuilder {
        reply().call("touch", json!({}))
    }
    fn child_touches() -> ReplyBuilder {
        launch(reply(), "touch it")
    }
    fn reads() -> ReplyBuilder {
        reply().call("read", json!({}))
    }
    fn both() -> ReplyBuilder {
        launch(launch(reply(), WORDS), WORDS)
    }
    type Steps = Vec<fn() -> ReplyBuilder>;
    let table: [(Steps, usize, &str); 9] = [
        (vec![read, says, again], 2, "it is wanted again"),
        (vec![read, says, otherwise], 2, "something else is wanted of it"),
        (vec![read, says, touches, read], 2, "the lead has changed something"),
        (vec![read, says, child_touches, says, read], 3, "a worker has changed something"),
        (vec![read, says, reads, read], 1, "it has only read"),
        (vec![both, says, both], 4, "several are meant"),
        (vec![read, read, says], 1, "it runs, or has just ended"),
        (vec![read, touches, read, says], 2, "it runs, and the lead has changed something"),
        (vec![again, again, again, says], 3, "it is wanted again while it runs"),
    ];
    for (steps, ran, why) in table {
        assert_eq!(run(steps).await.1, ran, "{why}");
    }
}

#[tokio::test]
async fn a_word_from_a_person_makes_it_new() {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul =
        Longhaul::builder(lead(vec![read, says, says, read, says, says, read], &ran)).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "go").interactive()).await.unwrap();
    until(&longhaul, root, |state| state.turns == 3 && state.waiting.is_some()).await;
    longhaul.send(root, "Look once more.").await.unwrap();
    until(&longhaul, root, |state| state.turns == 6 && state.waiting.is_some()).await;
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn every_dialect_answers_so() {
    type Arguments = fn(&str) -> Value;
    let table: [(SubAgentDialect, &str, Arguments); 4] = [
        (
            SubAgentDialect::Background,
            "run_background_agent",
            |task| json!({"agent": "worker", "task": task}),
        ),
        (SubAgentDialect::Transfer, "transfer_task", |task| json!({"agent": "worker", "task": task})),
        (SubAgentDialect::SubAgents, "worker", |task| json!({"task": task, "background": true})),
        (SubAgentDialect::Managed, "spawn_agent", |task| json!({"task": task, "description": "x"})),
    ];
    for (dialect, tool, arguments) in table {
        let model = model(move |asked| match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call(tool, arguments(WORDS)),
            ("lead", _) if asked.said.join("").contains("already") => reply().text(asked.last()),
            ("lead", 1) if dialect != SubAgentDialect::Transfer => reply().text("Started."),
            ("lead", _) => reply().call(tool, arguments(WORDS)),
            _ => reply().text("BADGER"),
        });
        let worker = agent("worker", &model).build().unwrap();
        let longhaul = start(agent("lead", &model).sub_agent(worker).dialect(dialect)).await;
        let done = ask(&longhaul, Order::new("lead", "go")).await;
        assert_eq!(children(&longhaul, done.state.id).await.len(), 1, "{dialect:?}");
        assert!(
            done.output.contains("BADGER") && done.output.contains("`task`"),
            "{dialect:?}: {}",
            done.output
        );
    }
}

#[tokio::test]
async fn it_is_known_after_the_process_has_died() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.db");
    let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let build = || {
        let (at, count) = (gate.clone(), ran.clone());
        let model = slow(move |asked| {
            let (gate, count) = (at.clone(), count.clone());
            async move {
                match (asked.agent.as_str(), asked.turn) {
                    ("lead", 0) => read(),
                    ("lead", 1) => says(),
                    // The result has been read. Here the first process dies.
                    ("lead", 2) => {
                        gate.pass().await;
                        read()
                    }
                    ("lead", _) => reply().text(asked.last()),
                    _ => {
                        count.fetch_add(1, Ordering::SeqCst);
                        reply().text("BADGER")
                    }
                }
            }
        });
        team(pair(&model))
    };
    let first = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    let id = first.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(1).await;
    drop(first);
    let second = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    gate.came(1).await;
    gate.open(2);
    let done = end(&second, id).await;
    assert_done(&done);
    assert!(done.output.contains("has done this task already"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    second.shutdown().await;
}

#[tokio::test]
async fn a_lead_that_only_launches_ends_with_an_answer() {
    let model = model(|asked| match asked.agent.as_str() {
        "lead" if !asked.tools.is_empty() => {
            launch(reply(), ["Read alpha.txt.", "Read the file alpha.txt."][asked.turn as usize % 2])
        }
        _ => reply().text("The word is BADGER."),
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "Which word is in alpha.txt?")).await;
    assert_done(&done);
    assert_eq!(done.output, "The word is BADGER.");
    assert!(done.state.cut_short.is_some(), "it did not choose to answer");
    let nudges: Vec<NudgeReason> = journal(&longhaul, done.state.id)
        .await
        .into_iter()
        .filter_map(|record| match record.entry {
            Entry::Nudged { why, .. } => Some(why),
            _ => None,
        })
        .collect();
    assert_eq!(nudges.last(), Some(&NudgeReason::ToolsOff), "{nudges:?}");
    assert!(children(&longhaul, done.state.id).await.len() <= 4);
}

#[tokio::test]
async fn a_result_says_how_many_tools_were_used_to_get_it() {
    fn touch_it() -> ReplyBuilder {
        launch(reply(), "touch it")
    }
    let (done, ..) = run(vec![touch_it, says]).await;
    assert!(done.output.contains("status=\"completed\" tools_used=\"1\">\nBADGER"), "{}", done.output);
    fn transfer(task: &str) -> ReplyBuilder {
        reply().call("transfer_task", json!({"agent": "worker", "task": task}))
    }
    for (step, note) in [
        ((|| transfer("touch it")) as fn() -> ReplyBuilder, "BADGER\n\nNote: this task is done"),
        (|| transfer(WORDS), "BADGER\n\nNote: this task is done, without any tool call"),
    ] {
        let (done, ..) = run(vec![step]).await;
        assert!(done.output.contains(note), "{}", done.output);
    }
}
