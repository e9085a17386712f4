use super::*;
use crate::entry::{Outcome, StopCause, StopRequest};

async fn fixture() -> DispatcherFixture {
    DispatcherFixture::new(Arc::new(Delegation), &test_context()).await
}

#[tokio::test]
async fn transfer_task_gives_the_answer_and_collects_it() {
    let mut fixture = fixture().await;
    fixture.dispatcher.finish_when_waited_for("researcher", completed("42"));
    let arguments = json!({"agent": "researcher", "task": "x", "expected_output": "a number"});
    let output = fixture.call("transfer_task", arguments.clone()).await.unwrap();
    assert_eq!(
        (output.text.clone(), output.is_error),
        (format!("42\n\n{}", task_text::task_is_done(0)), false)
    );
    let [id] = output.collected[..] else { panic!("{:?}", output.collected) };
    assert_eq!(fixture.dispatcher.snapshot(id).order.expected_output.as_deref(), Some("a number"));
    assert_eq!(fixture.gave_seat_back(), Some(vec![id]));
    assert_eq!(fixture.dispatcher.waits()[0].timeout, None);
    assert_eq!(
        fixture.repeat_call("transfer_task", arguments).await.unwrap(),
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
        let mut fixture = fixture().await;
        fixture.dispatcher.finish_when_waited_for("writer", outcome);
        let output = fixture.call("transfer_task", json!({"agent": "writer", "task": "x"})).await.unwrap();
        let [id] = output.collected[..] else { panic!("{:?}", output.collected) };
        assert_eq!(output.text, format!("Task {id} of writer {said}"));
        assert!(output.is_error);
    }
}

#[tokio::test]
async fn a_long_answer_is_left_whole_for_the_runner_and_one_that_came_early_says_so() {
    let mut fixture = fixture().await;
    let long = format!("begin{}end", "→".repeat(20_000));
    let cut_short = Some("8 turns".into());
    fixture
        .dispatcher
        .finish_when_waited_for("researcher", Outcome::Completed { output: long.as_str().into(), cut_short });
    let output = fixture.call("transfer_task", json!({"agent": "researcher", "task": "x"})).await.unwrap();
    assert!(output.text.starts_with(&format!("{long}\n\n[it was cut short (8 turns)")));
}

#[tokio::test]
async fn handoff_names_who_goes_on() {
    let mut fixture = fixture().await;
    let output = fixture.call("handoff", json!({"agent": "Support"})).await.unwrap();
    assert_eq!(output.handoff, Some("support".into()));
    assert_eq!(output.text, "The conversation is handed over to support.");
}

#[tokio::test]
async fn each_tool_is_there_only_for_who_can_use_it() {
    for (drop_agents, drop_handoffs, there) in
        [(true, false, vec!["handoff"]), (false, true, vec!["transfer_task"])]
    {
        let mut toolset_context = test_context();
        if drop_agents {
            toolset_context.sub_agents.clear();
        }
        if drop_handoffs {
            toolset_context.handoffs.clear();
        }
        let tools = Delegation.open(&toolset_context).await.unwrap();
        assert_eq!(tools.iter().map(|t| t.spec().name).collect::<Vec<_>>(), there);
        let instruction = Delegation.instruction(&toolset_context).unwrap();
        assert_eq!(
            (instruction.contains("transfer_task"), instruction.contains("handoff")),
            (drop_handoffs, drop_agents)
        );
    }
}

#[tokio::test]
async fn a_task_that_somebody_stopped_is_an_error_that_says_who() {
    let mut fixture = fixture().await;
    let stop = StopRequest { cause: StopCause::Person, note: Some("too slow".into()) };
    fixture.dispatcher.finish_when_waited_for("writer", Outcome::Cancelled { stop, partial: "half".into() });
    let output = fixture.call("transfer_task", json!({"agent": "writer", "task": "x"})).await.unwrap();
    assert!(output.text.contains("of writer cancelled: stopped by a person: too slow\n"), "{}", output.text);
    assert!(output.text.ends_with(":\nhalf") && output.is_error && output.collected.len() == 1);
}

#[tokio::test]
async fn at_a_limit_the_model_is_told_to_adapt_and_not_to_try_again() {
    let mut fixture = fixture().await;
    fixture.context.caller.depth = 3;
    match fixture.call("transfer_task", json!({"agent": "writer", "task": "x"})).await {
        Err(ToolError::Failed(text)) => assert!(text.contains("do this work yourself"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.gave_seat_back(), None);
}
