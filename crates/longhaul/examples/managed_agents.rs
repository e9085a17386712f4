//! The dialect `agents`: spawn, write to all with `to: "*"`, wait, look at the end of an output.
//!
//! The two scouts walk on until somebody tells them what to look for. The lead tells both with one message.
//!
//!     cargo run -p longhaul --example managed_agents

use std::error::Error;
use std::sync::Arc;

use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::store::TaskFilter;
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::{Agent, EventKind, Longhaul, Order, Status, SubAgentDialect, Team};

const SCRIPT: &str = r#"
agents:
  lead:
    turns:
      - calls:
          - tool: spawn_agent
            arguments: { subagent_type: scout, description: "the north", task: "Walk north.", context: "It is cold.",
                         tools: [walk], working_dir: north }
          - tool: spawn_agent
            arguments: { subagent_type: scout, description: "the south", task: "Walk south." }
      - delay: 80ms
        calls: [{ tool: send_message, arguments: { to: "*", message: "Look for WATER.", summary: "water" } }]
      - calls:
          - { tool: wait_agent, arguments: { agent_id: "{{ (results[0] | from_json).agent_id }}", wait_seconds: 10 } }
          - { tool: wait_agent, arguments: { agent_id: "{{ (results[1] | from_json).agent_id }}" } }
      - calls:
          - { tool: list_agents }
          - { tool: task_output, arguments: { task_id: "{{ (results[0] | from_json).agent_id }}", tail_lines: 1 } }
      - text: "{{ results_of('task_output') | last }}"
  scout:
    turns:
      - until: find_all('Look for (\w+)')
        delay: 20ms
        calls: [{ tool: walk, arguments: { step: "{{ turn }}" } }]
      - text: |-
          I walked {{ results | length }} steps.
          In {{ task | find_all('north|south') | first }} there is {{ find_all('Look for (\w+)') | first | lower }}.
"#;

/// A tool is a name, a description, typed arguments and an `async fn`.
struct Walk;

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct WalkArgs {
    /// Which step it is.
    step: u32,
}

impl Tool for Walk {
    type Args = WalkArgs;

    fn name(&self) -> &str {
        "walk"
    }

    fn description(&self) -> String {
        "Walks one step.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    async fn call(&self, args: WalkArgs, context: &CallContext) -> Result<ToolOutput, ToolError> {
        context.progress(format!("step {}", args.step));
        Ok(format!("step {} in {:?}", args.step, context.working_dir.as_deref().unwrap_or("here".as_ref()))
            .into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse("example", SCRIPT)?)));
    let scout =
        Agent::builder("scout").description("Walks and looks.").model(model.clone()).tool(Walk).build()?;
    let lead =
        Agent::builder("lead").model(model).sub_agent(scout).dialect(SubAgentDialect::Managed).build()?;
    let longhaul = Longhaul::builder(Team::new(lead)?).start().await?;

    let root = longhaul.submit(Order::new("lead", "Find water.").working_dir("/land")).await?;
    let root = longhaul.wait([root]).await?.tasks.remove(0);
    for event in &root.events {
        if let EventKind::Result { tool, output, .. } = &event.kind {
            println!("{tool} → {output}\n");
        }
    }
    assert_eq!(root.state.status, Status::Completed, "{:?}", root.state.error);
    assert!(root.output.contains("In north there is water."), "{}", root.output);
    assert!(!root.output.contains("I walked"), "only the last line was asked for");

    // One message reached both, in the middle of their work.
    let scouts = longhaul.list(TaskFilter::children(root.state.id)).await?;
    let mut headlines: Vec<&str> = scouts.iter().map(|scout| scout.headline.as_str()).collect();
    headlines.sort_unstable(); // they were launched at once
    assert_eq!(headlines, ["the north", "the south"]);
    for scout in scouts {
        let scout = longhaul.snapshot(scout.id).await?;
        let read = scout.events.iter().filter(|event| matches!(event.kind, EventKind::Read { .. })).count();
        assert_eq!((scout.state.status, read), (Status::Completed, 1));
        assert!(scout.output.ends_with("there is water."), "{}", scout.output);
    }
    longhaul.shutdown().await;
    Ok(())
}
