use super::*;
use crate::entry::{Outcome, StopCause, StopRequest};

async fn bench() -> DispatcherFixture {
    DispatcherFixture::new(Arc::new(Delegation), &test_context()).await
}

#[tokio::test]
async fn transfer_task_gives_the_answer_and_collects_it() {
    let mut bench = bench().await;
    bench.desk.finish_when_waited_for("researcher", completed("42"));
    let arguments = json!({"agent": "researcher", "task": "x", "expected_output": "a number"});
    let output = bench.call("transfer_task", arguments.clone()).await.unwrap();
    assert_eq!((output.text.as_str(), output.is_error), ("42", false));
    let [id] = output.collected[..] else { panic!("{:?}", output.collected) };
    assert_eq!(bench.desk.snapshot(id).order.expected_output.as_deref(), Some("a number"));
    assert_eq!(bench.gave_seat_back(), Some(vec![id]));
    assert_eq!(bench.desk.waits()[0].timeout, None);
    assert_eq!(
        bench.repeat_call("transfer_task", arguments).await.unwrap(),
        output,
        "and again after a crash"
    );
}

#[tokio::test]
async fn a_failure_is_an_error_with_its_word_and_what_there_was_and_is_collected_too() {
    for (outcome, said) in [
        (
            failed("half"),
            "failed: timed out: 10 minutes\nIts output before that, which is not a finished answer:\nhalf",
        ),
        (failed(""), "failed: timed out: 10 minutes\nThere is no output."),
    ] {
        let mut bench = bench().await;
        bench.desk.finish_when_waited_for("writer", outcome);
        let output = bench.call("transfer_task", json!({"agent": "writer", "task": "x"})).await.unwrap();
        let [id] = output.collected[..] else { panic!("{:?}", output.collected) };
        assert_eq!(output.text, format!("Task {id} of writer {said}"));
        assert!(output.is_error);
    }
}

#[tokio::test]
async fn a_long_answer_is_left_whole_for_the_runner_and_one_that_came_early_says_so() {
    let mut bench = bench().await;
    let long = format!("begin{}end", "→".repeat(20_000));
    let cut_short = Some("8 turns".into());
    bench
        .desk
        .finish_when_waited_for("researcher", Outcome::Completed { output: long.as_str().into(), cut_short });
    let output = bench.call("transfer_task", json!({"agent": "researcher", "task": "x"})).await.unwrap();
    assert!(output.text.starts_with(&format!("{long}\n\n[it was cut short (8 turns)")));
}

#[tokio::test]
async fn handoff_names_who_goes_on() {
    let mut bench = bench().await;
    let output = bench.call("handoff", json!({"agent": "Support"})).await.unwrap();
    assert_eq!(output.handoff, Some("support".into()));
    assert_eq!(output.text, "The conversation is handed over to support.");
}

#[tokio::test]
async fn each_tool_is_there_only_for_who_can_use_it() {
    for (drop_agents, drop_handoffs, there) in
        [(true, false, vec!["handoff"]), (false, true, vec!["transfer_task"])]
    {
        let mut patron = test_context();
        if drop_agents {
            patron.sub_agents.clear();
        }
        if drop_handoffs {
            patron.handoffs.clear();
        }
        let tools = Delegation.open(&patron).await.unwrap();
        assert_eq!(tools.iter().map(|t| t.spec().name).collect::<Vec<_>>(), there);
        let told = Delegation.instruction(&patron).unwrap();
        assert_eq!((told.contains("transfer_task"), told.contains("handoff")), (drop_handoffs, drop_agents));
    }
}

#[tokio::test]
async fn a_task_that_somebody_stopped_is_an_error_that_says_who() {
    let mut bench = bench().await;
    let stop = StopRequest { cause: StopCause::Person, note: Some("too slow".into()) };
    bench.desk.finish_when_waited_for("writer", Outcome::Cancelled { stop, partial: "half".into() });
    let output = bench.call("transfer_task", json!({"agent": "writer", "task": "x"})).await.unwrap();
    assert!(output.text.contains("of writer cancelled: stopped by a person: too slow\n"), "{}", output.text);
    assert!(output.text.ends_with(":\nhalf") && output.is_error && output.collected.len() == 1);
}

#[tokio::test]
async fn at_a_limit_the_model_is_told_to_adapt_and_not_to_try_again() {
    let mut bench = bench().await;
    bench.context.caller.depth = 3;
    match bench.call("transfer_task", json!({"agent": "writer", "task": "x"})).await {
        Err(ToolError::Failed(text)) => assert!(text.contains("do this work yourself"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.gave_seat_back(), None);
}
