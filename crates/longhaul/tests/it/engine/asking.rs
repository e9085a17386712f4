//! Asking a person: what may be done, what waits for an answer, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul::agent::{AgentBuilder, Unattended};
use longhaul::dispatch::TaskLimits;
use longhaul::entry::{Entry, EntryKind, ExpectedAnswer, Question, QuestionAnswer, WaitReason};
use longhaul::id::QuestionId;
use longhaul::model::Model;
use longhaul::permission::Permissions;
use longhaul::store::{MemoryStore, Store};
use longhaul::testing::{ReplyBuilder, reply};
use longhaul::tool::{CallContext, CallFuture, ToolEffects};
use longhaul::toolset::Tools;
use longhaul::{EventKind, Longhaul, LonghaulError, Order, Status, TaskId, Team};
use serde_json::json;

use crate::engine::moody::{Mood, Moody};
use crate::engine::stage::*;

fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
    Permissions::parse(allow, ask, deny).unwrap()
}

/// A tool that changes something, and counts.
fn writer(ran: &Arc<AtomicUsize>) -> Tools {
    let ran = ran.clone();
    tool("write", move |arguments, _| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move { Ok(format!("wrote {arguments}").into()) }
    })
}

fn write(what: &str) -> ReplyBuilder {
    reply().call("write", json!({ "what": what }))
}

/// A model that calls `write` in its first turn, and then says what came of it.
fn writes_once() -> Arc<dyn Model> {
    model(|asked| match asked.turn {
        0 => write("x"),
        _ => reply().text(asked.last()),
    })
}

fn one(model: &Arc<dyn Model>, ran: &Arc<AtomicUsize>) -> AgentBuilder {
    agent("worker", model).toolset(writer(ran)).permissions(Permissions::default())
}

/// Waits until a task asks something, and says what.
async fn asks(longhaul: &Longhaul, id: TaskId) -> QuestionId {
    until(longhaul, id, |state| !state.asked.is_empty()).await;
    longhaul.snapshot(id).await.unwrap().state.asked[0].question
}

async fn asked(longhaul: &Longhaul, id: TaskId) -> Vec<QuestionId> {
    let asked = |entry: Entry| match entry {
        Entry::Asked { question, .. } => Some(question),
        _ => None,
    };
    journal(longhaul, id).await.into_iter().filter_map(|record| asked(record.entry)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_changes_something_waits_for_a_person_without_a_seat_and_a_yes_lets_it_go_on() {
    let ran = Arc::new(AtomicUsize::new(0));
    let model = model(|asked| match (asked.order.as_str(), asked.turn) {
        ("go", 0) => write("x"),
        _ => reply().text(asked.last()),
    });
    let limits = TaskLimits::default().running(1);
    let longhaul = Longhaul::builder(team(one(&model, &ran))).limits(limits).start().await.unwrap();
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    let question = asks(&longhaul, id).await;
    until(&longhaul, id, |state| state.waiting.is_some()).await;
    let told = longhaul.snapshot(id).await.unwrap();
    assert_eq!(told.state.status, Status::Running);
    let waiting = told.state.waiting.unwrap();
    assert!(
        matches!(&waiting.on, WaitReason::Person(text) if text == "May write be called with {\"what\":\"x\"}?")
    );
    assert_eq!((waiting.until, told.state.asked[0].until), (None, None), "there is no end to it");
    assert_eq!(told.state.calls, 0, "a call that waits is not begun");
    assert_eq!(told.questions[0].0, question);

    // The only seat is free meanwhile.
    assert_done(&ask(&longhaul, Order::new("worker", "else")).await);
    assert_eq!(ran.load(Ordering::SeqCst), 0);

    let taken = longhaul.answer(id, None, "yes").await.unwrap();
    assert_eq!((taken.question, taken.granted, taken.also_answered), (question, None, vec![]));
    let done = end(&longhaul, id).await;
    assert_done(&done);
    assert_eq!(done.output, "t:wrote {\"what\":\"x\"}");
    assert_eq!((ran.load(Ordering::SeqCst), done.state.calls), (1, 1));
    let told: Vec<_> = done.events.iter().map(|event| &event.kind).collect();
    let at = |is: fn(&EventKind) -> bool| told.iter().position(|what| is(what)).unwrap();
    let call = at(|what| matches!(what, EventKind::Call { .. }));
    assert!(at(|what| matches!(what, EventKind::Answered { .. })) < call, "it begins when it is allowed to");
}

#[tokio::test(start_paused = true)]
async fn a_no_is_told_with_its_reason_and_the_task_goes_on() {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul = start(one(&writes_once(), &ran)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    asks(&longhaul, id).await;
    longhaul.answer(id, None, "no, use a branch").await.unwrap();
    let done = end(&longhaul, id).await;
    assert_done(&done);
    assert!(
        done.output.contains("'write'") && done.output.contains("said no: use a branch"),
        "{}",
        done.output
    );
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_takes_one_answer_and_says_what_was_wrong_with_the_others() {
    let ran = Arc::new(AtomicUsize::new(0));
    let both = model(|asked| match asked.turn {
        0 => write("a").call("write", json!({ "what": "b" })),
        _ => reply().text(asked.said[2..].join("|")),
    });
    let longhaul = start(one(&both, &ran)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    until(&longhaul, id, |state| state.asked.len() == 2).await;
    let error = |taken: Result<_, LonghaulError>| {
        taken.map(drop::<longhaul::supervisor::AnswerReceipt>).unwrap_err().to_string()
    };
    let several = error(longhaul.answer(id, None, "yes").await);
    assert!(several.contains("several open questions") && several.contains("1.0.0, 1.1.0"), "{several}");
    let (first, second): (QuestionId, QuestionId) = ("1.0.0".parse().unwrap(), "1.1.0".parse().unwrap());
    let words = error(longhaul.answer(id, Some(first), "perhaps").await);
    assert!(words.contains("'perhaps'") && words.contains("`always`"), "{words}");
    let strange = error(longhaul.answer(id, Some("7.0.0".parse().unwrap()), "yes").await);
    assert!(strange.contains("has no question 7.0.0"), "{strange}");
    let other = error(longhaul.answer(id, Some(first), "always shell").await);
    assert!(other.contains("does not allow the call of 'write'"), "{other}");

    longhaul.answer(id, Some(second), "yes").await.unwrap();
    let again = error(longhaul.answer(id, Some(second), "no").await);
    assert!(again.contains("1.1.0") && again.contains("already closed: yes"), "{again}");
    longhaul.answer(id, None, "no").await.unwrap();
    let done = end(&longhaul, id).await;
    let (refused, wrote) = done.output.split_once('|').unwrap();
    assert!(
        refused.contains("said no") && wrote.contains("wrote"),
        "in the order of the calls: {}",
        done.output
    );
    assert!(error(longhaul.answer(id, None, "yes").await).contains("has no open question: it is completed"));
    assert!(error(longhaul.answer(id, Some(first), "yes").await).contains("already closed: no"));
}

/// Like a letter: a file that is locked for a moment does not lose what a person has typed.
#[tokio::test(start_paused = true)]
async fn an_answer_is_written_again_if_the_store_is_busy() {
    let (mood, ran) = (Arc::new(Mood::default()), Arc::new(AtomicUsize::new(0)));
    let store = Moody { inner: MemoryStore::new(), mood: mood.clone(), hints: true };
    let longhaul =
        Longhaul::builder(team(one(&writes_once(), &ran))).store(store).attended(true).start().await.unwrap();
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    let question = asks(&longhaul, id).await;
    mood.busy.store(2, Ordering::SeqCst);
    assert_eq!(longhaul.answer(id, None, "always tool").await.unwrap().question, question);
    assert_eq!(mood.busy.load(Ordering::SeqCst), 0);
    assert_done(&end(&longhaul, id).await);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_is_not_done_though_everything_is_approved_and_the_rest_runs_unasked() {
    let ran = Arc::new(AtomicUsize::new(0));
    let model = model(|asked| match asked.turn {
        0 => write("good").call("write", json!({ "what": "bad thing" })),
        _ => reply().text(asked.said[2..].join("|")),
    });
    let agent =
        agent("worker", &model).toolset(writer(&ran)).permissions(rules(&[], &[], &["write:what=bad*"]));
    let longhaul = start(agent).await;
    let done = ask(&longhaul, Order::new("worker", "go").approve_all()).await;
    assert!(done.output.starts_with("t:wrote {\"what\":\"good\"}|"), "{}", done.output);
    assert!(
        done.output.contains("'write' is denied here by the pattern 'write:what=bad*'"),
        "{}",
        done.output
    );
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert!(asked(&longhaul, done.state.id).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_in_time_the_model_is_told_and_goes_on() {
    let ran = Arc::new(AtomicUsize::new(0));
    let policy = policy(|policy| policy.ask_timeout = Some(Duration::from_secs(90)));
    let longhaul = start(one(&writes_once(), &ran).policy(policy)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    let question = asks(&longhaul, id).await;
    let began = tokio::time::Instant::now();
    let done = end(&longhaul, id).await;
    assert!(began.elapsed() >= Duration::from_secs(89), "{:?}", began.elapsed());
    assert_done(&done);
    assert!(done.output.contains("nobody answered within 90s"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let late = longhaul.answer(id, Some(question), "yes").await.unwrap_err().to_string();
    assert!(late.contains("nobody answered within 90s"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn with_nobody_there_and_the_policy_to_deny_nothing_is_asked() {
    let ran = Arc::new(AtomicUsize::new(0));
    let build =
        || team(one(&writes_once(), &ran).policy(policy(|policy| policy.unattended = Unattended::Deny)));
    let alone = Longhaul::builder(build()).start().await.unwrap();
    let done = ask(&alone, Order::new("worker", "go")).await;
    assert_done(&done);
    assert!(done.output.contains("nobody is there who could be asked"), "{}", done.output);
    assert!(asked(&alone, done.state.id).await.is_empty());

    let attended = Longhaul::builder(build()).attended(true).start().await.unwrap();
    let id = attended.submit(Order::new("worker", "go")).await.unwrap();
    asks(&attended, id).await;
    let patient = Longhaul::builder(build()).unattended(Unattended::Wait).start().await.unwrap();
    let id = patient.submit(Order::new("worker", "go")).await.unwrap();
    asks(&patient, id).await;
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// A lead that launches two workers, which write; it says what they said.
fn lead_of_two(ran: &Arc<AtomicUsize>) -> Team {
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(launch(reply(), "one"), "two"),
        ("worker", 0) => write(&asked.order),
        ("worker", 1) => write("again"),
        _ => reply().text("done"),
    });
    let worker = agent("worker", &model).toolset(writer(ran)).build().unwrap();
    team(agent("lead", &model).sub_agent(worker).dialect(longhaul::SubAgentDialect::Background))
        .with_permissions(Permissions::default())
}

#[tokio::test(start_paused = true)]
async fn always_holds_for_the_whole_tree_and_for_no_other() {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul = Longhaul::builder(lead_of_two(&ran)).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    until(&longhaul, root, |state| state.calls == 2).await;
    let tasks = children(&longhaul, root).await;
    let (one, two) = (tasks[0].id, tasks[1].id);
    asks(&longhaul, one).await;
    asks(&longhaul, two).await;
    let taken = longhaul.answer(one, None, "always tool").await.unwrap();
    assert_eq!(taken.granted.unwrap().to_string(), "write");
    assert_eq!(
        taken.also_answered,
        vec![(two, "1.0.0".parse().unwrap())],
        "what else is asked of that kind is answered"
    );
    assert_done(&end(&longhaul, root).await);
    assert_eq!(ran.load(Ordering::SeqCst), 4);
    assert_eq!(asked(&longhaul, one).await.len(), 1, "the second time nobody is asked");
    let kinds: Vec<EntryKind> =
        journal(&longhaul, root).await.iter().map(|record| record.entry.kind()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == EntryKind::Granted).count(), 1);

    let other = longhaul.submit(Order::new("worker", "elsewhere")).await.unwrap();
    asks(&longhaul, other).await;
    longhaul.answer(other, None, "always write:what=else*").await.unwrap();
    until(&longhaul, other, |state| state.turns == 2 && !state.asked.is_empty()).await;
    assert_eq!(asked(&longhaul, other).await.len(), 2, "what the pattern does not mean is asked about");
}

#[tokio::test(start_paused = true)]
async fn a_child_never_has_more_than_its_parent() {
    let ran = Arc::new(AtomicUsize::new(0));
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => launch(reply(), "work"),
        ("worker", 0) => {
            write("bad").call("write", json!({ "what": "good" })).call("write", json!({ "what": "fine" }))
        }
        ("worker", _) => reply().text(asked.said[2..].join("|")),
        _ => reply().text("done"),
    });
    let worker =
        agent("worker", &model).toolset(writer(&ran)).permissions(rules(&["write"], &[], &[])).build();
    let lead = agent("lead", &model)
        .sub_agent(worker.unwrap())
        .dialect(longhaul::SubAgentDialect::Background)
        .permissions(rules(&["write:what=fine"], &[], &["write:what=bad"]));
    let longhaul = start(lead).await;
    let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    until(&longhaul, root, |state| state.calls == 1).await;
    let child = children(&longhaul, root).await[0].id;
    let question = asks(&longhaul, child).await;
    assert_eq!(question.to_string(), "1.1.0", "its parent would have to ask for this one");
    until(&longhaul, child, |state| state.waiting.is_some()).await;
    assert_eq!(ran.load(Ordering::SeqCst), 1, "its parent may do this one");
    longhaul.answer(child, None, "yes").await.unwrap();
    let done = end(&longhaul, child).await;
    assert!(done.output.contains("is denied here by the pattern 'write:what=bad'"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    // The same worker, asked by a person, has its own rights.
    let free = ask(&longhaul, Order::new("worker", "work")).await;
    assert_eq!(free.output.matches("wrote").count(), 3, "{}", free.output);
}

#[tokio::test(start_paused = true)]
async fn approval_of_everything_comes_from_above_and_no_tool_can_give_it() {
    let ran = Arc::new(AtomicUsize::new(0));
    let sly = tool("sly", |_, context: CallContext| async move {
        let order = Order::new("worker", "work").approve_all();
        let id = context.dispatcher.submit(&context.caller, context.call, order).await?;
        Ok(id.to_string().into())
    });
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("sly", json!({})),
        ("worker", 0) => write("x"),
        _ => reply().text("done"),
    });
    let worker = agent("worker", &model).toolset(writer(&ran)).build().unwrap();
    let lead =
        agent("lead", &model).sub_agent(worker).toolset(sly).dialect(longhaul::SubAgentDialect::Background);
    let team = team(lead).with_permissions(rules(&["sly"], &[], &[]));
    let longhaul = Longhaul::builder(team).start().await.unwrap();
    let root = longhaul.submit(Order::new("lead", "go")).await.unwrap();
    until(&longhaul, root, |state| state.turns > 1).await;
    let child = children(&longhaul, root).await[0].id;
    asks(&longhaul, child).await;
    assert_eq!(ran.load(Ordering::SeqCst), 0);

    assert_done(&ask(&longhaul, Order::new("lead", "go").approve_all()).await);
    assert_eq!(ran.load(Ordering::SeqCst), 1, "approved by the person who started the tree");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_same_question_is_asked_again_and_an_answer_in_between_counts() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ran = Arc::new(AtomicUsize::new(0));
    let begin = || Longhaul::builder(team(one(&writes_once(), &ran))).shared_store(store.clone()).start();
    let first = begin().await.unwrap();
    let ids = [
        first.submit(Order::new("worker", "a")).await.unwrap(),
        first.submit(Order::new("worker", "b")).await.unwrap(),
    ];
    for id in ids {
        asks(&first, id).await;
    }
    let began = tokio::time::Instant::now();
    first.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(1), "a question keeps nobody from leaving");

    let client = Longhaul::client(store.clone()).await.unwrap();
    let told = client.snapshot(ids[0]).await.unwrap();
    assert_eq!((told.state.status, told.questions.len()), (Status::Pending, 1), "it is still asked");
    client.answer(ids[0], None, "yes").await.unwrap();
    assert!(client.answer(ids[0], None, "no").await.is_err());

    let second = begin().await.unwrap();
    assert_done(&end(&second, ids[0]).await);
    assert_eq!(asked(&second, ids[0]).await.len(), 1, "what was answered is not asked again");
    until(&second, ids[1], |state| state.status == Status::Running && state.waiting.is_some()).await;
    let names = asked(&second, ids[1]).await;
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1], "under the same name");
    second.answer(ids[1], Some(names[0]), "yes").await.unwrap();
    let done = end(&second, ids[1]).await;
    assert_eq!(done.output, "t:wrote {\"what\":\"x\"}", "it was not begun before, so it was not interrupted");
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_an_answer() {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul = start(one(&writes_once(), &ran)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    asks(&longhaul, id).await;
    let began = tokio::time::Instant::now();
    longhaul.stop(id).await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!(done.state.status, Status::Cancelled);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(done.state.asked.is_empty() && done.questions.is_empty());
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_is_not_being_silent() {
    let ran = Arc::new(AtomicUsize::new(0));
    let policy = policy(|policy| policy.inactivity_timeout = Duration::from_secs(5));
    let longhaul = start(one(&writes_once(), &ran).policy(policy)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    asks(&longhaul, id).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    longhaul.answer(id, None, "yes").await.unwrap();
    assert_done(&end(&longhaul, id).await);
}

/// A tool that asks for two things, one after the other, and can be called again after a crash.
struct Curious;

impl longhaul::tool::DynTool for Curious {
    fn spec(&self) -> longhaul::model::ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        longhaul::model::ToolSpec { name: "curious".to_owned(), description: String::new(), parameters }
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    fn call<'a>(&'a self, _: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let words =
            |text: &str, schema| Question { text: text.to_owned(), wants: ExpectedAnswer::Words { schema } };
        Box::pin(async move {
            let name = context.ask(words("Your name?", None)).await;
            let number = context.ask(words("A number?", Some(schema))).await;
            Ok(format!("{name:?} {number:?}").into())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_asks_in_words_several_times_and_answers_survive_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let model = model(|asked| match asked.turn {
        0 => reply().call("curious", json!({})),
        _ => reply().text(asked.last()),
    });
    let begin = || {
        let agent = agent("worker", &model).toolset(Tools::new().with_dyn(Arc::new(Curious)));
        Longhaul::builder(team(agent)).shared_store(store.clone()).start()
    };
    let first = begin().await.unwrap();
    let id = first.submit(Order::new("worker", "go")).await.unwrap();
    assert_eq!(asks(&first, id).await.to_string(), "1.0.1");
    first.answer(id, None, "Ada").await.unwrap();
    until(&first, id, |state| state.asked.iter().any(|asked| asked.question.nth == 2)).await;
    let wrong = first.answer(id, None, "seven").await.unwrap_err().to_string();
    assert!(wrong.contains("JSON") && wrong.contains("integer"), "{wrong}");
    let wrong = first.answer(id, None, "{\"n\": \"x\"}").await.unwrap_err().to_string();
    assert!(wrong.contains("does not fit the schema"), "{wrong}");
    first.shutdown().await;

    let second = begin().await.unwrap();
    until(&second, id, |state| state.status == Status::Running && state.waiting.is_some()).await;
    let names: Vec<String> = asked(&second, id).await.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["1.0.1", "1.0.2", "1.0.2"], "what was answered is not asked again");
    second.answer(id, None, "{\"n\": 7}").await.unwrap();
    let done = end(&second, id).await;
    assert_eq!(done.output, "t:Given(\"Ada\") Given(\"{\\\"n\\\": 7}\")");

    let id = second.submit(Order::new("worker", "again")).await.unwrap();
    asks(&second, id).await;
    second.decline(id, None).await.unwrap();
    until(&second, id, |state| state.asked.iter().any(|asked| asked.question.nth == 2)).await;
    second.decline(id, None).await.unwrap();
    assert_eq!(end(&second, id).await.output, "t:Declined Declined");
    let answers = journal(&second, id).await;
    let declined = |entry: &Entry| matches!(entry, Entry::Answered { answer: QuestionAnswer::Declined, .. });
    assert_eq!(answers.iter().filter(|record| declined(&record.entry)).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_handoff_the_permissions_of_who_has_the_conversation_count() {
    for (expert, ran_times) in [(rules(&[], &[], &["write"]), 0), (rules(&["write"], &[], &[]), 1)] {
        let ran = Arc::new(AtomicUsize::new(0));
        let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
            ("desk", _) => reply().call("handoff", json!({"agent": "expert"})),
            (_, _) if !asked.last().contains("wrot") && !asked.last().contains("denied") => write("x"),
            _ => reply().text(asked.last()),
        });
        let expert = agent("expert", &model).toolset(writer(&ran)).permissions(expert).build().unwrap();
        let dispatcher =
            agent("desk", &model).handoff(expert).permissions(rules(&["handoff"], &[], &["write:what=x"]));
        let longhaul = start(dispatcher).await;
        let done = ask(&longhaul, Order::new("desk", "go")).await;
        assert_eq!(ran.load(Ordering::SeqCst), ran_times, "{}", done.output);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_asked_about_each_time_unless_that_very_call_was_allowed() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let shell = tool("shell", move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok("ran".into()) }
    });
    let model = model(|asked| match asked.turn {
        0 => reply().call("shell", json!({ "cmd": "$X one" })),
        1 => reply().call("shell", json!({ "cmd": "$X one", "n": 2 })),
        2 => reply().call("shell", json!({ "cmd": "$X one" })),
        _ => reply().text("done"),
    });
    let worker =
        agent("worker", &model).toolset(shell).permissions(rules(&["shell"], &[], &["shell:cmd=rm *"]));
    let longhaul = start(worker).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    asks(&longhaul, id).await;
    longhaul.answer(id, None, "always exact").await.unwrap();
    until(&longhaul, id, |state| state.turns == 2 && !state.asked.is_empty()).await;
    longhaul.answer(id, None, "yes").await.unwrap();
    end(&longhaul, id).await;
    assert_eq!(asked(&longhaul, id).await.len(), 2, "the third is the very call that was allowed");
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}
