#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

use std::time::Instant;

use serde_json::json;

use super::*;

fn fine(output: &str) -> HookResult {
    HookResult::Succeeded(output.to_owned())
}

fn at(moment: HookEvent, heard: Vec<HookResult>) -> HookVerdict {
    let hook = Hook::command("judge");
    HookVerdict::from_results(moment, heard.into_iter().map(|heard| (&hook, heard)))
}

fn before(heard: Vec<HookResult>) -> HookVerdict {
    at(HookEvent::PreToolUse, heard)
}

#[test]
fn a_matcher_means_whole_names() {
    let matcher = ToolMatcher::parse("shell|edit_.*").unwrap();
    assert!(matcher.matches("shell") && matcher.matches("edit_file"));
    assert!(!matcher.matches("shell2") && !matcher.matches("my_shell") && !matcher.matches("Shell"));
    for all in ["", "*", " * "] {
        assert!(ToolMatcher::parse(all).unwrap().matches("anything"));
    }
    assert!(ToolMatcher::parse("(").unwrap_err().to_string().contains("'('"));
}

#[test]
fn each_command_runs_once_though_it_is_meant_twice() {
    let (a, b) = (Hook::command("a"), Hook::command("b"));
    let hooks = Hooks {
        pre_tool_use: vec![
            (ToolMatcher::all(), vec![a.clone()]),
            (ToolMatcher::parse("shell").unwrap(), vec![a.clone(), b.clone()]),
        ],
        ..Hooks::default()
    };
    assert_eq!(hooks.before_tool("shell"), [&a, &b]);
    assert_eq!(hooks.before_tool("think"), [&a]);
    assert!(hooks.after_tool("shell").is_empty());
}

#[test]
fn the_strictest_word_counts() {
    let says = |word: &str| {
        fine(&json!({"hook_specific_output": {"permission_decision": word, "permission_decision_reason": word}}).to_string())
    };
    assert_eq!(before(vec![says("allow")]).decision, Some(HookDecision::Allow));
    assert_eq!(before(vec![says("ask"), says("allow")]).decision, Some(HookDecision::Ask));
    assert_eq!(before(vec![says("allow"), says("ask")]).decision, Some(HookDecision::Ask));
    let denied = before(vec![says("allow"), says("deny"), HookResult::Blocked("and I\n".to_owned())]);
    assert_eq!(denied.blocked.as_deref(), Some("deny\nand I"));
    assert_eq!(before(vec![fine(""), fine("  \n"), fine("{}")]), HookVerdict::default());
    assert_eq!(
        before(vec![fine("{\"continue\": false, \"stop_reason\": \"no\"}")]).blocked.as_deref(),
        Some("no")
    );
    assert_eq!(before(vec![fine("{\"decision\": \"block\"}")]).blocked.as_deref(), Some(""));
}

/// Output of a hook that may have meant to deny, and other ways to fail.
fn failures() -> Vec<HookResult> {
    let written = [
        "DENY",
        "deny\n",
        "{\"hook_specific_output\": {\"permission_decision\": \"deny\"",
        "{\"decision\": \"block\", \"continue\": \"no\"}",
        "{\"hookSpecificOutput\": {\"permissionDecision\": \"deny\", \"updatedInput\": \"ls\"}}",
        "{\"hookSpecificOutput\": {\"permissionDecision\": \"DENY\"}}",
        "{\"hookSpecificOutput\": {\"permissionDecision\": false}}",
        "{\"hookSpecificOutput\": \"deny\"}",
        "{\"decision\": \"refuse\"}",
        "{\"decision\": \"approve\", \"decision\": \"block\"}",
        "checking…\n{\"decision\": \"block\"}",
        "{\"decision\": \"block\"}\ndone",
        "[{\"decision\": \"block\"}]",
        "null",
        "{ not json",
    ];
    let mut all: Vec<HookResult> = written.map(fine).into();
    all.push(HookResult::Garbled("{}".to_owned(), "it wrote more than 256 KB".to_owned()));
    all.push(HookResult::Failed("it exited with 127".to_owned()));
    all
}

#[test]
fn a_call_whose_hook_cannot_be_understood_is_denied() {
    for heard in failures() {
        let verdict = before(vec![fine("{\"decision\": \"approve\"}"), heard.clone()]);
        let why = verdict.blocked.unwrap_or_else(|| panic!("{heard:?} was let through"));
        assert!(why.contains("the hook that has to judge this call failed"), "{why}");
        let [failure] = &verdict.failures[..] else { panic!("{heard:?} is not told of") };
        assert!(failure.denied && failure.event == "pre_tool_use" && failure.command == "judge");

        let lenient = Hook::command("judge").on_error(OnHookError::Allow);
        let verdict = HookVerdict::from_results(HookEvent::PreToolUse, [(&lenient, heard.clone())]);
        assert_eq!(
            (verdict.blocked, verdict.decision, verdict.updated_input),
            (None, None, None),
            "{heard:?}"
        );
        assert!(!verdict.failures[0].denied, "{heard:?}");
    }
}

#[test]
fn a_failure_at_another_moment_denies_nothing_and_is_told() {
    for moment in [HookEvent::PostToolUse, HookEvent::TaskStart, HookEvent::TaskEnd, HookEvent::OnUserInput] {
        let verdict = at(moment, vec![HookResult::Failed("it exited with 1".to_owned())]);
        assert_eq!(verdict.blocked, None);
        assert_eq!(
            verdict.failures[0].to_string(),
            format!("{} hook `judge` failed: it exited with 1", moment.as_str())
        );
        assert_eq!(at(moment, vec![fine("{ half")]).failures.len(), 1);
        assert_eq!(at(moment, vec![fine("words")]).failures, []);
    }
    assert_eq!(
        at(HookEvent::PostToolUse, vec![fine("{ half")]).context,
        ["{ half"],
        "the model still sees it"
    );
}

#[test]
fn both_spellings_are_understood_and_rewritten_input_is_put_together() {
    let one = fine(
        r#"{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"a":1,"b":1}},"systemMessage":"hi"}"#,
    );
    let two = fine(r#"{"hook_specific_output":{"updated_input":{"b":2}}}"#);
    let verdict = before(vec![one, two]);
    assert_eq!(verdict.updated_input.map(Value::Object), Some(json!({"a": 1, "b": 2})));
    assert_eq!((verdict.decision, verdict.user_messages), (Some(HookDecision::Allow), vec!["hi".to_owned()]));
    let after = at(
        HookEvent::PostToolUse,
        vec![fine("plain words\n"), fine(r#"{"hookSpecificOutput":{"additionalContext":"more"}}"#)],
    );
    assert_eq!(after.context, ["plain words", "more"]);
    assert_eq!(at(HookEvent::TaskEnd, vec![fine("words")]).context, Vec::<String>::new());
}

fn input() -> HookInput {
    HookInput {
        session_id: "t-root0".to_owned(),
        task_id: "t-task0".to_owned(),
        agent: "worker".to_owned(),
        cwd: "/".to_owned(),
        hook_event_name: HookEvent::PreToolUse,
        tool_name: Some("shell".to_owned()),
        tool_use_id: Some("1.0".to_owned()),
        tool_input: Some(json!({"cmd": "ls"})),
        ..HookInput::default()
    }
}

async fn run(command: &str, timeout: Duration) -> HookResult {
    let dir = tempfile::tempdir().unwrap();
    let hooks =
        Hooks { env: Arc::new(IndexMap::from([("GREETING".into(), "hello".into())])), ..Hooks::default() };
    let hook = Hook::command(command).timeout(timeout);
    let mut heard = HookRunner::default().run(&[&hook], &hooks, Some(dir.path()), &input()).await;
    heard.remove(0)
}

#[tokio::test]
async fn a_hook_is_told_what_happens_and_heard() {
    let long = Duration::from_secs(20);
    let HookResult::Succeeded(input) = run("cat", long).await else { panic!("it failed") };
    let input: Value = serde_json::from_str(&input).unwrap();
    assert_eq!(input["hook_event_name"], "pre_tool_use");
    assert_eq!((&input["tool_name"], &input["tool_input"]["cmd"]), (&json!("shell"), &json!("ls")));
    assert!(input.get("source").is_none());
    assert_eq!(
        run("echo out; echo no way >&2; exit 2", long).await,
        HookResult::Blocked("no way\n".to_owned())
    );
    assert_eq!(run("exit 1", long).await, HookResult::Failed("it exited with 1".to_owned()));
    assert_eq!(run("kill -9 $$", long).await, HookResult::Failed("it was killed".to_owned()));
    assert_eq!(run("echo $GREETING; pwd >/dev/null; touch here", long).await, fine("hello\n"));
    let HookResult::Succeeded(env) = run("env | cut -d= -f1 | sort | tr '\\n' ' '", long).await else {
        panic!()
    };
    assert!(!env.contains("CARGO") && !env.contains("HOME"), "nothing is inherited: {env}");
}

#[tokio::test]
async fn a_hook_that_hangs_or_floods_or_leaves_something_running_harms_nobody() {
    let begun = Instant::now();
    let HookResult::Failed(why) = run("trap '' TERM; sleep 300", Duration::from_millis(300)).await else {
        panic!()
    };
    assert!(why.contains("longer than 300ms"), "{why}");
    let long = Duration::from_secs(30);
    let HookResult::Garbled(flood, why) = run("yes | head -c 3000000", long).await else { panic!() };
    assert_eq!((flood.len(), why.as_str()), (256 * 1024, "it wrote more than 256 KB"));
    let HookResult::Succeeded(whole) = run("yes | head -c 262144", long).await else { panic!() };
    assert_eq!(whole.len(), 256 * 1024);
    let odd = run(r"printf '{\377}'", long).await;
    assert_eq!(
        odd,
        HookResult::Garbled("{\u{fffd}}".to_owned(), "it wrote something that is not UTF-8".to_owned())
    );
    assert_eq!(run("echo done; sleep 300 &", Duration::from_secs(30)).await, fine("done\n"));
    assert!(begun.elapsed() < Duration::from_secs(60));
}
