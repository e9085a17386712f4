//! What people see: chats, sessions, events, live output.

use std::sync::Arc;

use futures::StreamExt as _;
use longhaul::entry::{Entry, LiveTextKind, Outcome, Submission, TeamRef};
use longhaul::id::{Attempt, Seq, TaskKey, WorkerId};
use longhaul::model::{Model, ReplyChunk};
use longhaul::store::{Batch, ClaimRequest, Fence, MemoryStore, Store};
use longhaul::testing::{FnModel, reply};
use longhaul::{Event, EventKind, Longhaul, Order, Status};
use serde_json::json;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

/// Demand 7, in text; demand 11: the stream ends when all is done.
#[tokio::test(start_paused = true)]
async fn a_chat_tells_everything_that_happens_in_its_tree_and_then_ends() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(reply().reasoning("hm").text("I ask around."), "x"),
        ("lead", _) => reply().text("Done.").usage(3, 4),
        _ => reply().text("found"),
    });
    let longhaul = start(pair(&model)).await;
    let events = all(longhaul.chat("go").await.unwrap()).await;
    let words: Vec<&str> = events
        .iter()
        .map(|event| match &event.kind {
            EventKind::Submitted { .. } => "submitted",
            EventKind::Started { .. } => "started",
            EventKind::Text { .. } => "text",
            EventKind::Reasoning { .. } => "reasoning",
            EventKind::Call { .. } => "call",
            EventKind::Result { .. } => "result",
            EventKind::Usage { .. } => "usage",
            EventKind::Finished { .. } => "finished",
            _ => "other",
        })
        .collect();
    for word in ["submitted", "started", "text", "reasoning", "call", "result", "usage", "finished"] {
        assert!(words.contains(&word), "{word} is not in {words:?}");
    }
    assert_eq!(words.iter().filter(|word| **word == "finished").count(), 2, "child and root");
    assert_eq!(words.last(), Some(&"finished"));
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_for_the_next_word_and_ends_with_its_answer_when_closed() {
    let model = model(|asked| reply().text(format!("answer {}", asked.turn)));
    let longhaul = start(agent("solo", &model)).await;
    let (id, events) = longhaul.open_session("hello").await.unwrap();
    assert_eq!(text(&all(events).await, id), "answer 0");
    assert_eq!(text(&all(longhaul.send_to_session(id, "and?").await.unwrap()).await, id), "answer 1");
    assert_eq!(longhaul.snapshot(id).await.unwrap().state.status, Status::Running);
    longhaul.close_session(id).await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!((done.state.status, done.output.as_str()), (Status::Completed, "answer 1"));
}

#[tokio::test(start_paused = true)]
async fn a_word_in_a_closed_session_continues_it_and_so_does_the_next() {
    let model = model(|asked| reply().text(format!("to {}", asked.last())));
    let longhaul = start(agent("solo", &model)).await;
    let (id, events) = longhaul.open_session("hello").await.unwrap();
    all(events).await;
    longhaul.close_session(id).await.unwrap();
    end(&longhaul, id).await;
    for word in ["one", "two", "three"] {
        let events = all(longhaul.send_to_session(id, word).await.unwrap()).await;
        let told: Vec<_> = events.iter().map(|event| event.task).collect();
        assert_eq!(text(&events, told[0]), format!("to u:{word}"));
    }
    longhaul.stop_all().await.unwrap();
}

/// What was told at the first word is not told again at the second.
#[tokio::test(start_paused = true)]
async fn each_word_of_a_session_tells_only_what_is_new_also_of_its_children() {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(reply(), "x"),
        ("lead", _) => reply().text("ok"),
        _ => reply().text("child's words"),
    });
    let longhaul = start(pair(&model)).await;
    let (id, events) = longhaul.open_session("hello").await.unwrap();
    let first = all(events).await;
    let child = children(&longhaul, id).await[0].id;
    assert_eq!(text(&first, child), "child's words");
    let second = all(longhaul.send_to_session(id, "more").await.unwrap()).await;
    assert_eq!(second.iter().filter(|event| event.task == child).count(), 0, "{second:?}");
    longhaul.stop_all().await.unwrap();
}

/// "Event indexes break when old events are evicted"; demand 28.
#[tokio::test(start_paused = true)]
async fn events_go_on_from_any_place_without_gap_or_repeat() {
    let step = tool("step", |_, _| async { Ok("ok".into()) });
    let model = model(|asked| match asked.turn {
        0..300 => reply().text(format!("part {}. ", asked.turn)).call("step", json!({"n": asked.turn})),
        _ => reply().text("end"),
    });
    let longhaul = start(agent("solo", &model).toolset(step).max_turns(0)).await;
    let id = ask(&longhaul, Order::new("solo", "go")).await.state.id;
    let whole = all(longhaul.events(id, Seq(0))).await;
    let snapshot = longhaul.snapshot(id).await.unwrap();
    assert_eq!(
        snapshot.events.len() as u64 + snapshot.dropped,
        whole.len() as u64,
        "what is left out is counted"
    );
    for at in [Seq(1), Seq(7), Seq(500), whole.last().unwrap().seq] {
        let rest = all(longhaul.events(id, at)).await;
        let expected: Vec<_> = whole.iter().filter(|event| event.seq > at).cloned().collect();
        assert_eq!(rest, expected, "after {at}");
    }
}

/// "A throttle on updates swallows the last one, and the view says running for ever."
#[tokio::test(start_paused = true)]
async fn the_last_thing_a_follower_hears_is_the_end() {
    let model = model(|_| reply().text("x"));
    let longhaul = start(agent("solo", &model)).await;
    for _ in 0..50 {
        let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
        let (one, two) = (longhaul.events(id, Seq(0)), longhaul.follow(id));
        for events in [all(one).await, all(two).await] {
            assert!(matches!(events.last().unwrap().kind, EventKind::Finished { .. }));
        }
    }
}

/// Demand 7: what a task says is seen while it says it.
#[tokio::test(start_paused = true)]
async fn the_output_of_a_running_task_is_live() {
    struct Stream(Gate);
    impl Model for Stream {
        fn name(&self) -> &str {
            "stream"
        }

        fn stream<'a>(&'a self, _: longhaul::model::ModelRequest<'a>) -> longhaul::model::ReplyStream<'a> {
            let gate = self.0.clone();
            let first = futures::stream::iter([Ok(ReplyChunk::Text("Once upon".into()))]);
            let rest = futures::stream::once(async move {
                gate.pass().await;
                Ok(ReplyChunk::Done(Box::new(reply().text("Once upon a time").build())))
            });
            first.chain(rest).boxed()
        }
    }
    let gate = Gate::new();
    let model: Arc<dyn Model> = Arc::new(Stream(gate.clone()));
    let longhaul = start(agent("solo", &model)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(1).await;
    let mut events = longhaul.events(id, Seq(0));
    loop {
        if let EventKind::Text { text } = within(events.next()).await.unwrap().unwrap().kind {
            assert_eq!(text, "Once upon");
            break;
        }
    }
    assert_eq!(longhaul.output(id).await.unwrap(), "Once upon");
    gate.open(1);
    let rest = all(events).await;
    assert_eq!(text(&rest, id), " a time", "only what is new");
    assert_eq!(longhaul.output(id).await.unwrap(), "Once upon a time");
}

/// Demand 7: what it does now, and both of two tools.
#[tokio::test(start_paused = true)]
async fn the_tools_that_run_now_are_shown_all_of_them_with_their_progress() {
    let gate = Gate::new();
    let at = gate.clone();
    let work = |name, gate: Gate| {
        tool(name, move |_, context| {
            let gate = gate.clone();
            async move {
                context.progress("half way");
                gate.pass().await;
                Ok("ok".into())
            }
        })
    };
    let model = model(|asked| match asked.turn {
        0 => reply().call("one", json!({})).call("two", json!({})),
        _ => reply().text("x"),
    });
    let tools = agent("solo", &model).toolset(work("one", at.clone())).toolset(work("two", at));
    let longhaul = start(tools).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    gate.came(2).await;
    until(&longhaul, id, |state| state.progress.as_deref() == Some("half way")).await;
    let calling = longhaul.snapshot(id).await.unwrap().state.calling;
    assert_eq!(calling.iter().map(|(_, tool)| &**tool).collect::<Vec<_>>(), ["one", "two"]);
    gate.open(1);
    until(&longhaul, id, |state| state.calling.len() == 1).await;
    gate.open(1);
    assert!(end(&longhaul, id).await.state.calling.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_submits_and_watches_but_runs_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let client = Longhaul::client(store.clone()).await.unwrap();
    let model = model(|_| reply().text("x"));
    let home = team(agent("solo", &model));
    let id = client.submit_to(home.reference().clone(), Order::new("solo", "go")).await.unwrap();
    assert!(client.submit(Order::new("solo", "go")).await.is_err(), "it has no team");
    let waited = within(client.wait([id]).timeout(std::time::Duration::from_secs(60))).await.unwrap();
    assert!(waited.timed_out);
    assert_eq!(waited.tasks[0].state.status, Status::Pending);
    let runner = Longhaul::builder(home).shared_store(store).start().await.unwrap();
    assert_done(&end(&client, id).await);
    client.shutdown().await;
    runner.shutdown().await;
}

/// "The task's context is tied to the call or the turn that started it, and dies with it."
#[tokio::test(start_paused = true)]
async fn dropping_a_chat_stops_nothing() {
    let (gate, model) = gated(move |gate, _| async move {
        gate.pass().await;
        reply().text("still here")
    });
    let longhaul = start(agent("solo", &model)).await;
    drop(longhaul.chat("go").await.unwrap());
    gate.came(1).await;
    let id = longhaul.list(Default::default()).await.unwrap()[0].id;
    gate.open(1);
    assert_eq!(end(&longhaul, id).await.output, "still here");
}

/// Demand 28: the whole transcript of a child is in its journal, also when it has long ended.
#[tokio::test(start_paused = true)]
async fn the_transcript_of_a_child_is_kept() {
    let step = || tool("step", |_, _| async { Ok("tool said this".into()) });
    let model: Arc<dyn Model> =
        Arc::new(FnModel::new(|request| match (request.agent.as_str(), request.turn) {
            ("lead", 0) => launch(reply(), "the order"),
            ("worker", 0) => {
                reply().reasoning("thought").text("words").call("step", json!({"with": "arguments"}))
            }
            _ => reply().text("end"),
        }));
    let worker = agent("worker", &model).toolset(step()).build().unwrap();
    let longhaul =
        start(agent("lead", &model).sub_agent(worker).dialect(longhaul::SubAgentDialect::Background)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    let child = children(&longhaul, done.state.id).await[0].id;
    let transcript = format!("{:?}", journal(&longhaul, child).await);
    for part in ["the order", "thought", "words", "arguments", "tool said this", "end"] {
        assert!(transcript.contains(part), "{part}");
    }
}

/// A part of a tree can be followed like a whole one, and what is not below it is not told.
#[tokio::test(start_paused = true)]
async fn a_child_can_be_followed_with_all_that_is_below_it() {
    let (gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(launch(reply(), "followed"), "other"),
            ("worker", 0) => {
                gate.pass().await;
                reply().call("leaf", json!({"task": "x"}))
            }
            _ => reply().text(asked.agent),
        }
    });
    let leaf = agent("leaf", &model).build().unwrap();
    let worker = agent("worker", &model).sub_agent(leaf).build().unwrap();
    let longhaul =
        start(agent("lead", &model).sub_agent(worker).dialect(longhaul::SubAgentDialect::Background)).await;
    let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    gate.came(2).await;
    let followed = children(&longhaul, id).await[0].id;
    let events = longhaul.follow(followed);
    gate.open(2);
    let events = all(events).await;
    let leaf = children(&longhaul, followed).await[0].id;
    assert_eq!((text(&events, followed).as_str(), text(&events, leaf).as_str()), ("worker", "leaf"));
    assert!(events.iter().all(|event| [followed, leaf].contains(&event.task)), "and nobody else");
}

/// "A throttle on updates swallows the last one": here a child speaks between the look at it and the end of the root.
#[tokio::test]
async fn what_happens_between_the_last_look_and_the_end_is_told_before_it() {
    let mood = Arc::<Mood>::default();
    let store = Moody { inner: MemoryStore::new(), mood: mood.clone(), hints: true };
    let longhaul = Longhaul::client(Arc::new(store)).await.unwrap();
    let store = longhaul.store();
    let home = TeamRef::Named("team".into());
    let root = longhaul.submit_to(home.clone(), Order::new("lead", "go")).await.unwrap();
    let key = TaskKey::random();
    let child = key.candidate_ids().last().unwrap();
    let submitted = Submission {
        parent: Some(root),
        depth: 1,
        ..Submission::root(root, key, Order::new("worker", "x"), home.clone())
    };
    store.append(Batch::one(child, Fence::New, vec![Entry::Submitted(Box::new(submitted))])).await.unwrap();
    let claim = ClaimRequest {
        worker: WorkerId::random(),
        teams: vec![home],
        roots: None,
        fresh_only: false,
        except: vec![],
        max: 9,
    };
    assert_eq!(store.claim(claim).await.unwrap().len(), 2);

    let ends = |task, words: &str| {
        let said = Entry::Said { voice: LiveTextKind::Text, text: words.to_owned() };
        let outcome = Outcome::Completed { output: words.into(), cut_short: None };
        Batch::one(task, Fence::Attempt(Attempt(1)), vec![said, Entry::Finished(Box::new(outcome))])
    };
    *mood.sly.lock().unwrap() = Some((root, vec![ends(child, "last words"), ends(root, "the end")]));
    let events = all(longhaul.follow(root)).await;
    assert_eq!(text(&events, child), "last words");
    let ended = |event: &Event| matches!(event.kind, EventKind::Finished { .. }).then_some(event.task);
    assert_eq!(
        events.iter().filter_map(ended).collect::<Vec<_>>(),
        [child, root],
        "the root's end is the end"
    );
}
