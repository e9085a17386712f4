//! What fails is shown as failed, in its own word, and takes nothing else with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::agent::TeamError;
use longhaul::entry::{FailureKind, Outcome, WaitReason};
use longhaul::message::StopReason;
use longhaul::model::{Model, ModelError, ModelErrorKind, ReplyChunk};
use longhaul::store::{Clock, MemoryStore};
use longhaul::testing::{FnModel, reply};
use longhaul::toolset::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use longhaul::{EventKind, Longhaul, Order, Snapshot, Status, SubAgentDialect};
use serde_json::json;

use crate::engine::stage::*;

fn kind(snapshot: &Snapshot) -> FailureKind {
    match &snapshot.outcome {
        Some(Outcome::Failed { failure, .. }) => failure.kind,
        other => panic!("{other:?}"),
    }
}

fn failure(kind: ModelErrorKind, retry_after: Option<Duration>) -> ModelError {
    ModelError { model: "m".to_owned(), kind, retry_after }
}

/// Demand 3.
#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_never_a_success() {
    let longhaul = start(agent("solo", &model(|_| reply()))).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), done.state.turns), (FailureKind::NoAnswer, 2));
}

/// Demand 3, and "a failure looks like no output yet, so the model starts the task again".
#[tokio::test(start_paused = true)]
async fn a_childs_failure_is_told_to_its_parent_as_a_failure() {
    let model = failing(|asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => Ok(launch(reply(), "x")),
            ("lead", _) => Ok(reply().text(asked.last())),
            _ => Err(failure(ModelErrorKind::Rejected("bad key".into()), None)),
        }
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert!(done.output.contains("status=\"failed\""), "{}", done.output);
    assert!(done.output.contains("bad key") && done.output.contains("It left no output"), "{}", done.output);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_its_own_word() {
    let longhaul = start(agent("solo", &model(|_| reply().text("no").stop(StopReason::Refused)))).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), done.output.as_str()), (FailureKind::Refused, "no"));
}

/// "A panic in one worker ends the process." What was said is kept, what was launched is not left behind.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_model_is_contained_and_leaves_nothing_running() {
    let (_gate, model) = gated(move |gate, asked| async move {
        match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => launch(reply().text("so far"), "x"),
            ("lead", _) => {
                gate.came(1).await;
                panic!("the model is broken")
            }
            _ => {
                gate.pass().await;
                reply().text("x")
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!((kind(&done), done.output.as_str()), (FailureKind::Panic, "so far"));
    assert!(done.state.error.unwrap().contains("the model is broken"));
    let child = children(&longhaul, done.state.id).await[0].id;
    assert_eq!(end(&longhaul, child).await.state.status, Status::Cancelled);
    assert_eq!(longhaul.count_running().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_tool_is_an_error_that_the_model_sees() {
    let early = tool("early", |_, _| -> std::future::Ready<_> { panic!("before it began") });
    let late = tool("late", |_, _| async { panic!("in the middle") });
    let model = model(|asked| match asked.turn {
        0 => reply().call("early", json!({})).call("late", json!({})),
        _ => reply().text(asked.said[2..].join("|")),
    });
    let longhaul = start(agent("solo", &model).toolset(early).toolset(late)).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!(done.output, "t:the tool failed: before it began|t:the tool failed: in the middle");
}

#[tokio::test(start_paused = true)]
async fn a_fatal_tool_ends_the_run_with_its_word() {
    let fatal = tool("fatal", |_, _| async { Err(longhaul::tool::ToolError::Fatal("no disk".into())) });
    let model = model(|_| reply().text("trying").call("fatal", json!({})));
    let longhaul = start(agent("solo", &model).toolset(fatal)).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), done.output.as_str()), (FailureKind::Tool, "trying"));
}

/// Demand 4: the watchdog knows a silent model from a busy tool.
#[tokio::test(start_paused = true)]
async fn a_silent_model_is_given_up_and_a_busy_tool_is_not() {
    let long = tool("long", |_, _| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok("done after an hour".into())
    });
    let model = slow(|asked| async move {
        match (asked.order.as_str(), asked.turn) {
            ("busy", 0) => reply().call("long", json!({})),
            ("busy", _) => reply().text(asked.last()),
            _ => std::future::pending().await,
        }
    });
    let watchful = policy(|h| {
        h.inactivity_timeout = Duration::from_secs(10);
        h.retry.max_tries = 2;
    });
    let longhaul = start(agent("solo", &model).toolset(long).policy(watchful)).await;
    let id = longhaul.submit(Order::new("solo", "busy")).await.unwrap();
    let silent = ask(&longhaul, Order::new("solo", "silent")).await;
    assert_eq!(kind(&silent), FailureKind::Silent);
    let done = tokio::time::timeout(Duration::from_secs(7200), longhaul.wait([id])).await.unwrap().unwrap();
    assert_eq!(done.tasks[0].output, "t:done after an hour");
}

/// Demand 9, one provider's part of it: a task survives 429, waits as told and shows that it waits.
#[tokio::test(start_paused = true)]
async fn rate_limits_are_waited_out_and_the_wait_is_shown() {
    let model = failing(|asked| async move {
        match asked.retry {
            0 => Err(failure(ModelErrorKind::RateLimited("slow down".into()), Some(Duration::from_secs(40)))),
            _ => Ok(reply().text("there")),
        }
    });
    let longhaul = start(agent("solo", &model)).await;
    let began = tokio::time::Instant::now();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    until(&longhaul, id, |state| {
        state.waiting.as_ref().is_some_and(|w| matches!(w.on, WaitReason::Provider(_)) && w.until.is_some())
    })
    .await;
    assert_done(&end(&longhaul, id).await);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(40) && took < Duration::from_secs(42), "{took:?}");
}

/// When its time is over a task has asked again: it does not wait any more, though it has nothing to tell yet.
#[tokio::test(start_paused = true)]
async fn who_asks_its_provider_again_is_not_shown_as_waiting_for_it() {
    let gate = Gate::new();
    let at = gate.clone();
    let model = failing(move |asked| {
        let gate = at.clone();
        async move {
            if asked.retry == 0 {
                return Err(failure(
                    ModelErrorKind::RateLimited(String::new()),
                    Some(Duration::from_secs(40)),
                ));
            }
            gate.pass().await;
            Ok(reply().text("there"))
        }
    });
    let (began, zero) = (tokio::time::Instant::now(), jiff::Timestamp::now());
    let store = MemoryStore::with_clock(Clock::from_fn(move || zero + began.elapsed()));
    let longhaul = Longhaul::builder(team(agent("solo", &model))).store(store).start().await.unwrap();
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    gate.came(1).await;
    let seen = longhaul.snapshot(id).await.unwrap().state;
    assert_eq!((seen.status, seen.waiting), (Status::Running, None));
    gate.open(1);
    assert_done(&end(&longhaul, id).await);
}

/// Issue 3: a provider that is down for 20 s is waited for. One that stays down is a failure in the end.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_down_is_waited_for_but_not_for_ever() {
    for (down, status) in [(20, Status::Completed), (100_000, Status::Failed)] {
        let back = tokio::time::Instant::now() + Duration::from_secs(down);
        let model = failing(move |_| async move {
            match tokio::time::Instant::now() < back {
                true => Err(failure(ModelErrorKind::Unreachable("connection refused".into()), None)),
                false => Ok(reply().text("there")),
            }
        });
        let longhaul = start(agent("solo", &model)).await;
        let began = tokio::time::Instant::now();
        let done = ask(&longhaul, Order::new("solo", "go")).await;
        let took = began.elapsed().as_secs();
        assert_eq!(done.state.status, status, "{:?}", done.state.error);
        let expected = if status == Status::Completed { 20..=50 } else { 500..=600 };
        assert!(expected.contains(&took), "{took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_too_often_is_a_failure_that_keeps_the_last_words() {
    let model: Arc<dyn Model> =
        Arc::new(FnModel::streaming(|_| vec![Ok(ReplyChunk::Text("half a sen".into()))]));
    let longhaul = start(agent("solo", &model).policy(policy(|h| h.retry.max_tries = 3))).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), done.output.as_str()), (FailureKind::Model, "half a sen"));
    assert!(done.state.error.unwrap().contains("3 times"));
}

#[tokio::test(start_paused = true)]
async fn a_cut_stream_is_asked_again_and_its_text_is_not_told_twice() {
    let model: Arc<dyn Model> = Arc::new(FnModel::streaming(|request| match request.retry {
        0 => vec![Ok(ReplyChunk::Text("The answer".into()))],
        _ => {
            let done = ReplyChunk::Done(Box::new(reply().text("The answer is 42.").build()));
            vec![Ok(ReplyChunk::Text("The answer".into())), Ok(ReplyChunk::Text(" is 42.".into())), Ok(done)]
        }
    }));
    let longhaul = start(agent("solo", &model)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let events = all(longhaul.follow(id)).await;
    assert_eq!(text(&events, id), "The answer is 42.");
    assert!(events.iter().any(|e| matches!(&e.kind, EventKind::Waiting { on: WaitReason::Provider(_), .. })));
    assert_eq!(longhaul.output(id).await.unwrap(), "The answer is 42.");
}

/// The same, where half of the reply was already told before the stream was cut.
#[tokio::test(start_paused = true)]
async fn words_that_a_cut_stream_made_void_are_told_to_be() {
    struct Cut;
    impl Model for Cut {
        fn name(&self) -> &str {
            "cut"
        }

        fn stream<'a>(
            &'a self,
            request: longhaul::model::ModelRequest<'a>,
        ) -> longhaul::model::ReplyStream<'a> {
            let again = request.retry > 0;
            let first = futures::stream::iter([Ok(ReplyChunk::Text("I think".into()))]);
            let rest = futures::stream::once(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match again {
                    true => Ok(ReplyChunk::Done(Box::new(reply().text("I think so.").build()))),
                    false => Err(failure(ModelErrorKind::Truncated(String::new()), None)),
                }
            });
            first.chain(rest).boxed()
        }
    }
    let model: Arc<dyn Model> = Arc::new(Cut);
    let longhaul = start(agent("solo", &model)).await;
    let id = longhaul.submit(Order::new("solo", "go")).await.unwrap();
    let events = all(longhaul.follow(id)).await;
    let told: Vec<_> = events.iter().filter(|event| matches!(event.kind, EventKind::Text { .. })).collect();
    assert_eq!(told.len(), 3, "half, half again, and the rest: {told:?}");
    assert_eq!(text(&events, id), "I think so.");
}

#[tokio::test(start_paused = true)]
async fn a_failed_parent_leaves_no_children_running() {
    let gate = Gate::new();
    let at = gate.clone();
    let model = failing(move |asked| {
        let gate = at.clone();
        async move {
            match (asked.agent.as_str(), asked.turn) {
                ("lead", 0) => Ok(launch(reply(), "x")),
                ("lead", _) => {
                    gate.came(1).await;
                    Err(failure(ModelErrorKind::Rejected(String::new()), None))
                }
                _ => {
                    gate.pass().await;
                    Ok(reply().text("x"))
                }
            }
        }
    });
    let longhaul = start(pair(&model)).await;
    let done = ask(&longhaul, Order::new("lead", "go")).await;
    assert_eq!(kind(&done), FailureKind::Model);
    let child = children(&longhaul, done.state.id).await[0].id;
    assert_eq!(end(&longhaul, child).await.state.status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn the_same_call_again_and_again_is_a_failure_with_its_own_word() {
    let tries = AtomicUsize::new(0);
    let stuck = tool("stuck", move |_, _| {
        let tried = tries.fetch_add(1, Ordering::SeqCst);
        async move { Ok(format!("no, for the {tried}th time").into()) }
    });
    let log = Log::default();
    let notes = log.clone();
    let model = model(move |asked| {
        notes.note(&asked);
        reply().call("stuck", json!({"door": 1}))
    });
    let longhaul = start(agent("solo", &model).toolset(stuck)).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), done.state.turns), (FailureKind::Repeating, 8));
    assert!(log.all()[5].last().contains("5 times in a row"), "it was told before");
}

/// A toolset that does not start the first few times it is tried.
struct Rusty {
    tries: Arc<AtomicUsize>,
    hangs: bool,
}

impl Toolset for Rusty {
    fn name(&self) -> &str {
        "rusty"
    }

    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async move {
            if self.tries.fetch_add(1, Ordering::SeqCst) > 0 {
                return tool("saw", |_, _| async { Ok("sawn".into()) }).open(context).await;
            }
            match self.hangs {
                true => std::future::pending().await,
                false => Err(ToolsetError { toolset: "rusty".into(), why: "no oil".into() }),
            }
        })
    }
}

/// Promise 7, and failure is never shown as success: the model knows what it cannot do.
#[tokio::test(start_paused = true)]
async fn a_toolset_that_does_not_start_is_told_to_the_model_and_tried_again_for_the_next_task() {
    for (hangs, why) in [(false, "no oil"), (true, "it did not start within 30s")] {
        let tries = Arc::new(AtomicUsize::new(0));
        let model: Arc<dyn Model> = Arc::new(FnModel::new(|request| {
            let tools: Vec<_> = request.tools.iter().map(|spec| spec.name.as_str()).collect();
            reply().text(format!("{tools:?} {}", request.system))
        }));
        let rusty = Rusty { tries: tries.clone(), hangs };
        let fine = tool("file", |_, _| async { Ok("filed".into()) });
        let longhaul =
            start(agent("solo", &model).instruction("Be good.").toolset(rusty).toolset(fine)).await;
        let first = ask(&longhaul, Order::new("solo", "go")).await;
        assert_eq!(
            first.output,
            format!("[\"file\"] Be good.\n\nSome of your tools are not available: toolset 'rusty': {why}.")
        );
        for _ in 0..2 {
            let next = ask(&longhaul, Order::new("solo", "go")).await;
            assert_eq!(next.output, "[\"saw\", \"file\"] Be good.");
        }
        assert_eq!(tries.load(Ordering::SeqCst), 2, "what is open is not opened again");
    }
}

#[test]
fn an_agent_whose_name_is_no_tools_name_cannot_be_a_tool() {
    let model = model(|_| reply());
    for name in ["straße", "a.b", &"x".repeat(65)] {
        let lead =
            |dialect| agent("lead", &model).sub_agent(agent(name, &model).build().unwrap()).dialect(dialect);
        match lead(SubAgentDialect::SubAgents).build() {
            Err(TeamError::NotAToolName { agent, other }) => {
                assert_eq!((agent.as_str(), other.as_str()), ("lead", name));
            }
            other => panic!("{name}: {:?}", other.map(|agent| agent.name)),
        }
        assert!(
            lead(SubAgentDialect::Background).build().is_ok(),
            "in another dialect its name is only a word"
        );
    }
}

/// A model that does not stop talking.
#[derive(Default)]
struct Endless(AtomicUsize);

impl Model for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    fn stream<'a>(&'a self, _: longhaul::model::ModelRequest<'a>) -> longhaul::model::ReplyStream<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let words = (0..64).map(|_| Ok(ReplyChunk::Text("word ".repeat(20_000))));
        let end = Err(failure(ModelErrorKind::TooLarge("more than 64 MiB came".to_owned()), None));
        futures::stream::iter(words.chain([end])).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_end_is_asked_for_once_and_little_of_it_is_stored() {
    let model = Arc::new(Endless::default());
    let longhaul = start(agent("solo", &(model.clone() as Arc<dyn Model>))).await;
    let done = ask(&longhaul, Order::new("solo", "go")).await;
    assert_eq!((kind(&done), model.0.load(Ordering::SeqCst)), (FailureKind::Model, 1));
    let Some(Outcome::Failed { failure, .. }) = &done.outcome else { panic!("{done:?}") };
    assert!(failure.to_string().contains("the reply is too large: more than 64 MiB came"), "{failure}");
    let journal = longhaul.store().read(done.state.id, longhaul::id::Seq(0), usize::MAX).await.unwrap();
    let said: usize = journal
        .iter()
        .map(|record| match &record.entry {
            longhaul::entry::Entry::Said { text, .. } => text.len(),
            _ => 0,
        })
        .sum();
    assert!((1 << 20..(1 << 20) + 200).contains(&said), "{said} bytes");
}
