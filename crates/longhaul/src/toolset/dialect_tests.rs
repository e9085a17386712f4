//! Tests of the toolsets for sub-agents, each with its own tools and texts. Truncation is tested where it is
//! implemented.

use serde_json::{Value, json};

use super::fake_dispatcher::{DispatcherFixture, completed, failed, test_context};
use super::*;
use crate::tool::{ToolEffects, ToolError, ToolOutput};

mod background;
mod delegation;
mod managed;
mod subagents;

fn value(output: &ToolOutput) -> Value {
    serde_json::from_str(&output.text).unwrap()
}

/// Sorts JSON keys, because features of other crates in the build can change their order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut pairs: Vec<_> = object.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            pairs.sort_by(|one, two| one.0.cmp(&two.0));
            Value::Object(pairs.into_iter().collect())
        }
        other => other,
    }
}

fn toolsets() -> [Arc<dyn Toolset>; 4] {
    [Arc::new(BackgroundAgents), Arc::new(Delegation), Arc::new(SubAgentTools), Arc::new(ManagedAgents)]
}

/// A fixture with only this tool of a toolset.
async fn with_tool(toolset: Arc<dyn Toolset>, tool: &str) -> DispatcherFixture {
    DispatcherFixture::new(wrappers::only_tools(toolset, [tool.to_owned()]), &test_context()).await
}

#[tokio::test]
async fn what_models_are_told_of_the_tools() {
    let toolset_context = test_context();
    for toolset in toolsets() {
        let mut rendered = String::new();
        for tool in toolset.open(&toolset_context).await.unwrap() {
            let (spec, effects) = (tool.spec(), tool.effects());
            assert!(effects.repeatable, "{}: a crash must not make its effect unknown", spec.name);
            let parameters = serde_json::to_string_pretty(&sorted(spec.parameters)).unwrap();
            let looks = if effects == ToolEffects::POLLS_TASKS { " (looks)" } else { "" };
            rendered += &format!("# {}{looks}\n{}\n{parameters}\n\n", spec.name, spec.description.trim_end());
        }
        rendered += &toolset.instruction(&toolset_context).unwrap();
        insta::assert_snapshot!(toolset.name(), rendered);
    }
}

#[tokio::test]
async fn an_agent_that_has_nobody_to_call_gets_no_tools_and_no_advice() {
    let single = ToolsetContext::new("alone");
    for toolset in toolsets() {
        assert_eq!(toolset.instruction(&single), None, "{}", toolset.name());
        match toolset.open(&single).await {
            Ok(tools) => assert!(tools.is_empty(), "{}", toolset.name()),
            Err(error) => assert!(error.why.contains("'alone' has no sub_agents"), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_launch_that_is_made_again_is_the_same_task() {
    let launches: [(Arc<dyn Toolset>, &str, Value); 3] = [
        (Arc::new(BackgroundAgents), "run_background_agent", json!({"agent": "researcher", "task": "Go"})),
        (Arc::new(SubAgentTools), "researcher", json!({"task": "Go", "background": true})),
        (
            Arc::new(ManagedAgents),
            "spawn_agent",
            json!({"task": "Go", "description": "d", "subagent_type": "writer"}),
        ),
    ];
    for (toolset, tool, arguments) in launches {
        let mut fixture = with_tool(toolset, tool).await;
        let first = fixture.call(tool, arguments.clone()).await.unwrap();
        assert_eq!(fixture.repeat_call(tool, arguments.clone()).await.unwrap(), first);
        assert_ne!(fixture.call(tool, arguments).await.unwrap(), first);
        assert_eq!(fixture.gave_seat_back(), None, "{tool}: launching waits for nothing");
    }
}

#[tokio::test]
async fn what_models_get_wrong_is_answered_with_what_to_do() {
    const RUN: &str = "run_background_agent";
    const WAIT: &str = "wait_background_agents";
    let background = [
        (RUN, json!({"agent": "nobody", "task": "x"}), "You can call: researcher, writer."),
        (RUN, json!({"agent": "writer", "task": " "}), "say in `task`"),
        (RUN, json!({"agent": "writer"}), "missing field `task`"),
        (RUN, json!({"agent": "writer", "task": "x", "timeout": -5}), "`timeout` is -5"),
        (RUN, json!({"agent": "writer", "task": "x", "budget": {"max_cost": -1}}), "`max_cost` is -1"),
        (RUN, json!({"agent": "writer", "task": "x", "budget": {"max_tokens": 1}}), "leave `budget` out"),
        ("view_background_agent", json!({"task_id": "t-zzzzz"}), "you have no task 't-zzzzz'"),
        ("stop_background_agent", json!({"task_id": ""}), "you have no task ''"),
        (WAIT, json!({"task_ids": []}), "`task_ids` is empty"),
        (WAIT, json!({"task_ids": ["t-zzzzz"]}), "you have no task 't-zzzzz'"),
        (WAIT, json!({"task_ids": vec!["t-1"; 101]}), "at most 100 tasks"),
        (WAIT, json!({"task_ids": ["t-1"], "mode": "some"}), "expected `all` or `any`"),
        ("send_background_agent", json!({"task_id": "t-1", "message": ""}), "say in `message`"),
    ];
    let delegation = [
        ("transfer_task", json!({"agent": "support", "task": "x"}), "You can call: researcher, writer."),
        ("handoff", json!({"agent": "researcher"}), "You can call: support."),
    ];
    let sub_agents = [
        ("researcher", json!({"task": ""}), "say in `task`"),
        ("researcher", json!({"task": "x", "max_turns": -1}), "`max_turns` is -1"),
        ("get_task_result", json!({"task_id": "t-zzzzz", "wait": true}), "you have no task"),
    ];
    let plan = json!({"task": "x", "description": "d", "subagent_type": "Plan"});
    let which = "`subagent_type` which agent should do it:\n- researcher: Finds";
    let managed = [
        ("spawn_agent", json!({"task": "x", "description": "d"}), which),
        ("spawn_agent", plan, "You can call: researcher, writer."),
        ("wait_agent", json!({"agent_id": "researcher"}), "you have no task 'researcher'"),
        ("send_message", json!({"to": "t-1", "message": " "}), "say in `message`"),
    ];
    let wrong: [&[(&str, Value, &str)]; 4] = [&background, &delegation, &sub_agents, &managed];
    for (toolset, cases) in toolsets().into_iter().zip(wrong) {
        for (tool, arguments, said) in cases {
            let mut fixture = with_tool(toolset.clone(), tool).await;
            match fixture.call(tool, arguments.clone()).await {
                Err(ToolError::Retry(text)) => assert!(text.contains(said), "{tool} {arguments}: {text}"),
                other => panic!("{tool} {arguments}: {other:?}"),
            }
            assert_eq!(fixture.gave_seat_back(), None);
        }
    }
}

#[tokio::test]
async fn a_wait_without_end_ends_when_the_caller_is_stopped() {
    for (toolset, tool, arguments) in [
        (
            Arc::new(Delegation) as Arc<dyn Toolset>,
            "transfer_task",
            json!({"agent": "researcher", "task": "Go"}),
        ),
        (Arc::new(SubAgentTools), "researcher", json!({"task": "Go"})),
    ] {
        let mut fixture = with_tool(toolset, tool).await;
        fixture.context.cancel.cancel();
        assert!(fixture.call_error(tool, arguments).await.contains("you are being stopped"));
        assert!(fixture.gave_seat_back().is_some());
    }
}
