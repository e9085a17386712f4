//! Hooks: what they may do to a call, when they run, and that they run once.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul::agent::AgentBuilder;
use longhaul::entry::{Entry, HookFailure, NudgeReason, Record};
use longhaul::hook::{Hook, Hooks, OnHookError, ToolMatcher};
use longhaul::model::Model;
use longhaul::permission::Permissions;
use longhaul::store::SqliteStore;
use longhaul::testing::reply;
use longhaul::toolset::{Shell, Tools};
use longhaul::{Longhaul, Order, Status, TaskId};
use serde_json::{Value, json};

use crate::engine::stage::*;

/// A tool that changes something, counts, and returns its arguments.
fn writer(ran: &Arc<AtomicUsize>) -> Tools {
    let ran = ran.clone();
    tool("write", move |arguments, _| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move { Ok(format!("wrote {arguments}").into()) }
    })
}

/// A model that calls `write` once, and says then what came of it.
fn writes() -> Arc<dyn Model> {
    model(|asked| match asked.turn {
        0 => reply().call("write", json!({"what": "x"})),
        _ => reply().text(asked.last()),
    })
}

fn hook(command: impl Into<String>) -> Vec<Hook> {
    vec![Hook::command(command).timeout(Duration::from_secs(60))]
}

fn before(command: impl Into<String>) -> Hooks {
    Hooks::default().pre_tool_use(vec![(ToolMatcher::all(), hook(command))])
}

fn says(decision: &str) -> Hooks {
    before(format!(r#"echo '{{"hook_specific_output":{{"permission_decision":"{decision}"}}}}'"#))
}

fn one(hooks: Hooks, ran: &Arc<AtomicUsize>) -> AgentBuilder {
    agent("worker", &writes()).toolset(writer(ran)).hooks(hooks)
}

/// Runs the task of `one` and answers what the model said last.
async fn output(agent: AgentBuilder) -> String {
    let longhaul = start(agent).await;
    let done = ask(&longhaul, Order::new("worker", "go")).await;
    assert_done(&done);
    longhaul.shutdown().await;
    done.output
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A hook that keeps what it is told.
fn keeps(path: &Path) -> Vec<Hook> {
    hook(format!("{{ cat; echo; }} >> '{}'", path.display()))
}

/// Waits for what another process does.
async fn until_there(path: &Path, lines: usize) {
    let begun = Instant::now();
    while fs::read_to_string(path).unwrap_or_default().lines().count() < lines {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} does not come", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_hook_blocks_a_call_and_the_model_is_told_why() {
    let ran = Arc::new(AtomicUsize::new(0));
    let told = output(one(before("echo not on a Friday >&2; exit 2"), &ran)).await;
    assert_eq!(told, "t:This call of 'write' was not made: a hook blocked it: not on a Friday");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let other =
        Hooks::default().pre_tool_use(vec![(ToolMatcher::parse("shell|edit_.*").unwrap(), hook("exit 2"))]);
    assert_eq!(output(one(other, &ran)).await, "t:wrote {\"what\":\"x\"}", "it is for other tools");
}

#[tokio::test]
async fn a_hook_that_takes_too_long_denies_a_call_and_holds_up_nothing_else() {
    let ran = Arc::new(AtomicUsize::new(0));
    let slow = Hook::command("sleep 300").timeout(Duration::from_millis(200));
    let hooks = Hooks::default()
        .post_tool_use(vec![(ToolMatcher::all(), vec![slow.clone()])])
        .task_start(vec![slow.clone()])
        .task_end(vec![slow.clone()]);
    let begun = Instant::now();
    assert_eq!(output(one(hooks, &ran)).await, "t:wrote {\"what\":\"x\"}");
    let judge = Hooks::default().pre_tool_use(vec![(ToolMatcher::all(), vec![slow])]);
    assert!(output(one(judge, &ran)).await.contains("it took longer than 200ms"));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn rewritten_arguments_are_what_the_tool_gets_what_permissions_see_and_what_is_written_down() {
    let ran = Arc::new(AtomicUsize::new(0));
    let rewrites = || before(r#"echo '{"hook_specific_output":{"updated_input":{"what":"y"}}}'"#);
    let longhaul = start(one(rewrites(), &ran)).await;
    let done = ask(&longhaul, Order::new("worker", "go")).await;
    assert_eq!(done.output, "t:wrote {\"what\":\"y\"}");
    let called = journal(&longhaul, done.state.id).await.into_iter().find_map(|record| match record.entry {
        Entry::Called { arguments, .. } => Some(arguments),
        _ => None,
    });
    assert_eq!(called.unwrap().as_deref(), Some("{\"what\":\"y\"}"));
    longhaul.shutdown().await;

    let rules = |deny: &str| Permissions::parse(["*"], [""; 0], [deny]).unwrap();
    for denied in ["write:what=y", "write:what=x"] {
        let told = output(one(rewrites(), &ran).permissions(rules(denied))).await;
        assert!(told.contains(&format!("denied here by the pattern '{denied}'")), "{told}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// A hook may write an argument by another of its names, and a command in another form: rules see what the tool will.
#[tokio::test]
async fn what_a_hook_rewrites_is_judged_as_the_tool_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let calls = |arguments: Value| -> Arc<dyn Model> {
        model(move |asked| match asked.turn {
            0 => reply().call("shell", arguments.clone()),
            _ => reply().text(asked.last()),
        })
    };
    let updated = |name: &str| {
        let command = format!("{name} {}", ran.display());
        let said = json!({"hook_specific_output": {"updated_input": {"command": command}}}).to_string();
        before(format!("cat <<'END'\n{said}\nEND"))
    };
    for hooks in [updated("touch"), updated("to\\uch"), updated("to''uch")] {
        let rules = Permissions::parse(["*"], [""; 0], ["shell:cmd=touch *"]).unwrap();
        let agent = agent("worker", &calls(json!({"cmd": "true"}))).toolset(Shell::new()).hooks(hooks);
        let longhaul = start(agent.permissions(rules)).await;
        let order = Order::new("worker", "go").working_dir(dir.path().to_owned());
        let done = ask(&longhaul, order).await;
        assert!(done.output.contains("denied here by the pattern 'shell:cmd=touch *'"), "{}", done.output);
        longhaul.shutdown().await;
    }
    assert!(!ran.exists());

    // Hooks hear of a call by the tool's own names, too.
    let heard = dir.path().join("heard");
    let hooks = Hooks::default().pre_tool_use(vec![(ToolMatcher::all(), keeps(&heard))]);
    let agent = agent("worker", &calls(json!({"command": "true"}))).toolset(Shell::new()).hooks(hooks);
    let longhaul = start(agent).await;
    let order = Order::new("worker", "go").working_dir(dir.path().to_owned());
    ask(&longhaul, order).await;
    assert_eq!(lines(&heard)[0]["tool_input"], json!({"cmd": "true"}));
    longhaul.shutdown().await;
}

#[tokio::test]
async fn a_hook_has_a_person_asked_where_nobody_would_be() {
    let ran = Arc::new(AtomicUsize::new(0));
    let longhaul = start(one(says("ask"), &ran)).await;
    let id = longhaul.submit(Order::new("worker", "go")).await.unwrap();
    until(&longhaul, id, |state| !state.asked.is_empty()).await;
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    longhaul.answer(id, None, "no, never").await.unwrap();
    let done = end(&longhaul, id).await;
    assert!(done.output.contains("said no: never"), "{}", done.output);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    // Who approved of everything is not asked.
    let approved = Order::new("worker", "go").approve_all();
    assert_eq!(ask(&longhaul, approved).await.output, "t:wrote {\"what\":\"x\"}");
    longhaul.shutdown().await;
}

#[tokio::test]
async fn a_hook_allows_what_the_agent_would_ask_for_and_nothing_that_it_must_not_or_its_parent_may_not() {
    let ran = Arc::new(AtomicUsize::new(0));
    let asks = Permissions::parse([""; 0], ["write"], [""; 0]).unwrap();
    assert_eq!(output(one(says("allow"), &ran).permissions(asks.clone())).await, "t:wrote {\"what\":\"x\"}");
    let denies = Permissions::parse([""; 0], [""; 0], ["write"]).unwrap();
    let told = output(one(says("allow"), &ran).permissions(denies)).await;
    assert!(told.contains("denied here"), "{told}");
    assert_eq!(ran.load(Ordering::SeqCst), 1);

    // The parent has to ask, so the child has, whatever its own permissions are.
    for own in [None, Some(asks.clone())] {
        let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
            ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "go"})),
            ("lead", _) => reply().text("done"),
            (_, 0) => reply().call("write", json!({"what": "x"})),
            _ => reply().text(asked.last()),
        });
        let mut worker = agent("worker", &model).toolset(writer(&ran)).hooks(says("allow"));
        if let Some(own) = own {
            worker = worker.permissions(own);
        }
        let parents = Permissions::parse(["transfer_task"], [""; 0], [""; 0]).unwrap();
        let lead = agent("lead", &model).sub_agent(worker.build().unwrap()).permissions(parents);
        let longhaul = start(lead.dialect(longhaul::SubAgentDialect::Transfer)).await;
        let id = longhaul.submit(Order::new("lead", "go")).await.unwrap();
        let child = loop {
            if let Some(child) = children(&longhaul, id).await.first() {
                break child.id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        until(&longhaul, child, |state| !state.asked.is_empty()).await;
        longhaul.stop(id).await.unwrap();
        longhaul.shutdown().await;
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_hooks_say_to_a_result_is_told_below_it_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let ran = Arc::new(AtomicUsize::new(0));
    let mut after = keeps(&log);
    after.extend(hook("echo formatted"));
    after.extend(hook("echo two lines are too long >&2; exit 2"));
    let hooks = Hooks::default().post_tool_use(vec![(ToolMatcher::all(), after)]);
    let longhaul = start(one(hooks, &ran)).await;
    let order = Order::new("worker", "go").working_dir(dir.path());
    let done = ask(&longhaul, order).await;
    let told = "wrote {\"what\":\"x\"}\n\n<hook event=\"post_tool_use\">\ntwo lines are too long\nformatted\n</hook>";
    assert_eq!(done.output, format!("t:{told}"));
    let returned =
        journal(&longhaul, done.state.id).await.into_iter().find_map(|record| match record.entry {
            Entry::Returned(returned) => Some(returned),
            _ => None,
        });
    assert_eq!(&*returned.unwrap().output, told);
    let heard = lines(&log);
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0]["hook_event_name"], "post_tool_use");
    assert_eq!(heard[0]["tool_response"], "wrote {\"what\":\"x\"}");
    assert_eq!(heard[0]["tool_input"], json!({"what": "x"}));
    assert_eq!((&heard[0]["tool_error"], &heard[0]["tool_use_id"]), (&json!(false), &json!("1.0")));
    assert_eq!(heard[0]["task_id"], done.state.id.to_string());
    longhaul.shutdown().await;
}

fn logged(dir: &Path) -> Hooks {
    let at = |name: &str| keeps(&dir.join(name));
    let mut session_start = at("session_start");
    session_start.extend(hook("echo the branch is main"));
    Hooks::default()
        .pre_tool_use(vec![(ToolMatcher::all(), at("pre"))])
        .post_tool_use(vec![(ToolMatcher::all(), at("post"))])
        .session_start(session_start)
        .session_end(at("session_end"))
        .task_start(at("task_start"))
        .task_end(at("task_end"))
        .on_user_input(at("on_user_input"))
}

/// A hook that is heard, and a task that is carried on by another process: nothing is heard twice.
#[tokio::test]
async fn beginnings_ends_and_calls_are_heard_of_once_though_the_task_is_carried_on_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.db");
    let (gate, ran) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let build = || {
        let model = gate.model(move |gate, asked| async move {
            match asked.turn {
                0 => reply().call("write", json!({"what": "x"})),
                _ => {
                    gate.pass().await;
                    reply().text(asked.said.join("|"))
                }
            }
        });
        team(agent("worker", &model).toolset(writer(&ran)).hooks(logged(dir.path())))
    };
    let first = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    let id = first.submit(Order::new("worker", "go")).await.unwrap();
    gate.came(1).await;
    drop(first);
    let second = Longhaul::builder(build()).store(SqliteStore::open(&path).unwrap()).start().await.unwrap();
    gate.came(1).await;
    gate.open(2);
    let done = end(&second, id).await;
    assert_done(&done);
    second.shutdown().await;
    let begun = "u:<hook event=\"session_start\">\nthe branch is main\n</hook>";
    assert!(done.output.starts_with(&format!("u:go|{begun}|a:|t:wrote")), "{}", done.output);
    for name in ["pre", "post", "session_start", "session_end", "task_start", "task_end"] {
        assert_eq!(lines(&dir.path().join(name)).len(), 1, "{name}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let start = &lines(&dir.path().join("session_start"))[0];
    assert_eq!((&start["source"], &start["agent"]), (&json!("startup"), &json!("worker")));
    let ended = &lines(&dir.path().join("task_end"))[0];
    assert_eq!((&ended["reason"], &ended["output"]), (&json!("completed"), &json!(done.output)));
    assert_eq!(ended["session_id"], id.to_string());
}

/// A child is no session.
#[tokio::test]
async fn sessions_are_what_a_person_started_and_a_hook_hears_when_one_waits_or_asks() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(|asked| match (asked.agent.as_str(), asked.turn) {
        ("lead", 0) => reply().call("transfer_task", json!({"agent": "worker", "task": "go"})),
        _ => reply().text("fine"),
    });
    let hooks = || logged(dir.path());
    let worker = agent("worker", &model).hooks(hooks()).build().unwrap();
    let lead =
        agent("lead", &model).hooks(hooks()).sub_agent(worker).dialect(longhaul::SubAgentDialect::Transfer);
    let longhaul =
        start(lead.permissions(Permissions::parse([""; 0], ["transfer_task"], [""; 0]).unwrap())).await;
    let id = longhaul.submit(Order::new("lead", "go").interactive()).await.unwrap();
    let asked = dir.path().join("on_user_input");
    until_there(&asked, 1).await;
    longhaul.answer(id, None, "yes").await.unwrap();
    until_there(&asked, 2).await;
    longhaul.stop(id).await.unwrap();
    assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled);
    longhaul.shutdown().await;
    let questions: Vec<Value> = lines(&asked).iter().map(|line| line["question"].clone()).collect();
    assert!(questions[0].as_str().unwrap().starts_with("May transfer_task be called"), "{questions:?}");
    assert_eq!(questions[1..], [Value::Null], "a session that waits asks nothing");
    let who = |name: &str| -> Vec<Value> {
        lines(&dir.path().join(name)).iter().map(|line| line["agent"].clone()).collect()
    };
    assert_eq!((who("session_start"), who("session_end")), (vec![json!("lead")], vec![json!("lead")]));
    assert_eq!(who("task_start"), [json!("lead"), json!("worker")]);
    assert_eq!(who("task_end"), [json!("worker"), json!("lead")]);
    assert_eq!(lines(&dir.path().join("task_end"))[1]["reason"], "cancelled");
}

fn is_running(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn hooks_of_a_task_that_is_stopped_are_ended() {
    for moment in ["task_start", "pre", "post"] {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let hangs = vec![Hook::command(format!("echo $$ > '{}'; exec sleep 300", pid.display()))];
        let mut hooks = Hooks::default();
        match moment {
            "task_start" => hooks.task_start = hangs,
            "pre" => hooks.pre_tool_use = vec![(ToolMatcher::all(), hangs)],
            _ => hooks.post_tool_use = vec![(ToolMatcher::all(), hangs)],
        }
        let longhaul = start(one(hooks, &Arc::default())).await;
        let id: TaskId = longhaul.submit(Order::new("worker", "go")).await.unwrap();
        until_there(&pid, 1).await;
        let begun = Instant::now();
        longhaul.stop(id).await.unwrap();
        assert_eq!(end(&longhaul, id).await.state.status, Status::Cancelled, "{moment}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{moment}: {:?}", begun.elapsed());
        longhaul.shutdown().await;
        // It was killed; the kernel takes a moment to see to it.
        while is_running(&fs::read_to_string(&pid).unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{moment}: it is left behind");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Nothing to say is no message, and no hook is no entry.
#[tokio::test]
async fn a_task_without_words_of_hooks_has_the_conversation_that_it_would_have_had() {
    let quiet = Hooks::default().task_start(hook("true"));
    for (hooks, marks) in [(quiet, 1), (Hooks::default(), 0)] {
        let model = model(|asked| reply().text(asked.said.join("|")));
        let longhaul = start(agent("worker", &model).hooks(hooks)).await;
        let done = ask(&longhaul, Order::new("worker", "go")).await;
        assert_eq!(done.output, "u:go");
        let begun = |entry: &Entry| matches!(entry, Entry::Nudged { why: NudgeReason::Begun, .. });
        let journal = journal(&longhaul, done.state.id).await;
        assert_eq!(journal.iter().filter(|record| begun(&record.entry)).count(), marks);
        longhaul.shutdown().await;
    }
}

/// Scripts that meant to deny, or never got that far.
const BROKEN: [&str; 8] = [
    "exit 1",
    "/nowhere/judge",
    "kill -9 $$",
    "echo DENY",
    r#"printf '{"decision": "block"'"#,
    r#"echo '{"hook_specific_output": {"permission_decision": "deny", "updated_input": 5}}'"#,
    r#"echo checking; echo '{"decision": "block"}'"#,
    r#"printf '{"decision": "block", "reason": "'; head -c 400000 /dev/zero | tr '\0' x; echo '"}'"#,
];

async fn failures(longhaul: &Longhaul, task: TaskId) -> Vec<HookFailure> {
    let failed = |record: Record| match record.entry {
        Entry::HookFailed(failure) => Some(*failure),
        _ => None,
    };
    journal(longhaul, task).await.into_iter().filter_map(failed).collect()
}

#[tokio::test]
async fn a_hook_that_fails_denies_the_call_and_is_an_event() {
    for script in BROKEN {
        let ran = Arc::new(AtomicUsize::new(0));
        let longhaul = start(one(before(script), &ran)).await;
        let done = ask(&longhaul, Order::new("worker", "go")).await;
        assert_done(&done);
        assert_eq!(ran.load(Ordering::SeqCst), 0, "the call was made after: {script}");
        assert!(done.output.contains("the hook that has to judge this call failed"), "{}", done.output);
        let failures: Vec<_> = failures(&longhaul, done.state.id).await;
        assert_eq!(failures.len(), 1, "{script}");
        assert!(failures[0].denied && failures[0].event == "pre_tool_use", "{:?}", failures[0]);
        longhaul.shutdown().await;
    }
}

#[tokio::test]
async fn a_call_is_made_though_its_hook_fails_where_the_author_says_so() {
    for script in BROKEN {
        let ran = Arc::new(AtomicUsize::new(0));
        let lenient = Hook::command(script).on_error(OnHookError::Allow);
        let hooks = Hooks::default().pre_tool_use(vec![(ToolMatcher::all(), vec![lenient])]);
        assert!(output(one(hooks, &ran)).await.contains("wrote"), "{script}");
        assert_eq!(ran.load(Ordering::SeqCst), 1, "{script}");
    }
}

#[tokio::test]
async fn failures_at_the_beginning_after_a_call_and_at_the_end_are_events_too() {
    let ran = Arc::new(AtomicUsize::new(0));
    let hooks = Hooks::default()
        .post_tool_use(vec![(ToolMatcher::all(), hook("exit 3"))])
        .session_start(hook("exit 4"))
        .task_end(hook("exit 5"));
    let longhaul = start(one(hooks, &ran)).await;
    let done = ask(&longhaul, Order::new("worker", "go")).await;
    assert_done(&done);
    longhaul.shutdown().await;
    let told: Vec<String> =
        failures(&longhaul, done.state.id).await.iter().map(ToString::to_string).collect();
    let expected = [
        "session_start hook `exit 4` failed: it exited with 4",
        "post_tool_use hook `exit 3` failed: it exited with 3",
        "task_end hook `exit 5` failed: it exited with 5",
    ];
    assert_eq!(told, expected);
}
