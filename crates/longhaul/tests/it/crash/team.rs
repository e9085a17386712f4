//! The teams, their script, and the tools that write to the ledger of side effects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use longhaul::model::Model;
use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::toolset::Shell;
use longhaul::{Agent, SubAgentDialect, Team};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crash::process::{lines, write_line};

/// Tasks of the crash team: the lead, its eight, two helpers for each of three of them, and one that is continued.
pub(crate) const TASKS: usize = 1 + 8 + 3 * 2 + 1;

/// One script for all. What an answer quotes is the same however often its tools were interrupted.
const SCRIPT: &str = r#"
defaults: { delay: 0ms }
agents:
  lead:
    turns:
      - text: Eight parts, eight scouts.
        calls:
          - { tool: run_background_agent, arguments: { agent: a1, task: "explore kale" } }
          - { tool: run_background_agent, arguments: { agent: a2, task: "explore leek" } }
          - { tool: run_background_agent, arguments: { agent: a3, task: "explore mint" } }
          - { tool: run_background_agent, arguments: { agent: a4, task: "explore neep" } }
          - { tool: run_background_agent, arguments: { agent: a5, task: "explore okra" } }
          - { tool: run_background_agent, arguments: { agent: a6, task: "explore peas" } }
          - { tool: run_background_agent, arguments: { agent: a7, task: "explore rice" } }
          - { tool: run_background_agent, arguments: { agent: a8, task: "explore sage" } }
          - { tool: once, arguments: { text: sent } }
      - until: find_all('FOUND\[(.+?)\]') | length >= 8
        text: Waiting for more.
      - calls:
          - { tool: once, arguments: { text: all } }
          - { tool: twice, arguments: { text: all } }
          - tool: send_background_agent
            arguments: { task_id: "{{ find_all('a8 has task (t-\\w+)') | first }}", message: "dry sage" }
      - until: find_all('FOUND\[(.+?)\]') | length >= 9
        text: Waiting for one more.
      - text: "ALL: {{ find_all('FOUND\\[(.+?)\\]') | join(' | ') }}"
  a1:
    turns:
      - calls: &two
          - { tool: run_background_agent, arguments: { agent: helper, task: "weigh {{ agent }} left" } }
          - { tool: run_background_agent, arguments: { agent: helper, task: "weigh {{ agent }} right" } }
      - calls:
          - tool: wait_background_agents
            arguments: { task_ids: "{{ results_of('run_background_agent') | join(' ') | find_all('t-\\w+') }}" }
      - text: &found "FOUND[{{ agent }} {{ task }}: {{ find_all('PART<(.+?)>') | join(' and ') }}]"
  a2:
    turns:
      - calls:
          - { tool: transfer_task, arguments: { agent: helper, task: "weigh {{ agent }} left" } }
          - { tool: transfer_task, arguments: { agent: helper, task: "weigh {{ agent }} right" } }
          - { tool: once, arguments: { text: beside } }
      - text: *found
  a3:
    turns:
      - calls: *two
      - until: find_all('PART<(.+?)>') | length >= 2
        text: Waiting for two.
      - text: *found
  helper:
    turns:
      - calls: [{ tool: twice, arguments: { text: part } }, { tool: once, arguments: { text: part } }]
      - text: "PART<{{ task }}>"
  "*":
    turns:
      - calls: [{ tool: twice, arguments: { text: first } }, { tool: once, arguments: { text: first } }]
      - text: One more look.
        calls: [{ tool: once, arguments: { text: again } }]
      - text: "FOUND[{{ agent }} {{ task }}]"
"#;

/// The answer of a run that nobody killed.
pub(crate) const ANSWER: &str = "ALL: \
    a1 explore kale: weigh a1 left and weigh a1 right | \
    a2 explore leek: weigh a2 left and weigh a2 right | \
    a3 explore mint: weigh a3 left and weigh a3 right | \
    a4 explore neep | a5 explore okra | a6 explore peas | a7 explore rice | a8 dry sage | a8 explore sage";

/// The crash team. `delay` is how long its model takes before each reply.
pub(crate) fn crash(dir: &Path, delay: &str) -> Team {
    let model = scripted(&SCRIPT.replace("delay: 0ms", &format!("delay: {delay}")));
    let agent = |name: &str| tooled(name, &model, dir).dialect(SubAgentDialect::Background);
    let helper = agent("helper").build().unwrap();
    let mut lead = agent("lead");
    for number in 1..=8 {
        let scout = agent(&format!("a{number}"));
        let scout = if number <= 3 { scout.sub_agent(helper.clone()) } else { scout };
        lead = lead.sub_agent(scout.build().unwrap());
    }
    Team::new(lead.build().unwrap()).unwrap()
}

/// A team of one chain of agents, as a script says: `lead` may call `mid`, that `low`, and that `leaf`.
pub(crate) fn chain(dir: &Path, script: &str) -> Team {
    let model = scripted(script);
    let agent = |name: &str| {
        let shell = Shell::builder().env("PATH", "/usr/local/bin:/usr/bin:/bin").build();
        tooled(name, &model, dir).dialect(SubAgentDialect::Background).toolset(shell)
    };
    let leaf = agent("leaf").build().unwrap();
    let low = agent("low").sub_agent(leaf).build().unwrap();
    let mid = agent("mid").sub_agent(low).build().unwrap();
    Team::new(agent("lead").sub_agent(mid).build().unwrap()).unwrap()
}

/// A team that only answers: what a process has when it is somebody else.
pub(crate) fn stranger(name: &str) -> Team {
    let model = scripted("agents: { '*': { turns: [ { text: 'done: {{ task }}' } ] } }");
    Team::new(Agent::builder(name).model(model).build().unwrap()).unwrap()
}

pub(crate) fn scripted(yaml: &str) -> Arc<dyn Model> {
    Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse("crash.yaml", yaml).unwrap())))
}

fn tooled(name: &str, model: &Arc<dyn Model>, dir: &Path) -> longhaul::agent::AgentBuilder {
    let ledger = |once| Ledger { dir: dir.to_owned(), once };
    Agent::builder(name)
        .model(model.clone())
        .tool(ledger(true))
        .tool(ledger(false))
        .tool(Hold(dir.to_owned()))
}

/// The ledger of side effects: a line an execution, with the process and when it began.
pub(crate) fn ledger(dir: &Path) -> Vec<String> {
    lines(&dir.join("ledger"))
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Text {
    text: String,
}

/// Writes into the ledger. As `once` it may not be repeated, as `twice` it may.
struct Ledger {
    dir: PathBuf,
    once: bool,
}

impl Tool for Ledger {
    type Args = Text;

    fn name(&self) -> &str {
        if self.once { "once" } else { "twice" }
    }

    fn description(&self) -> String {
        "Writes into the ledger.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        if self.once { ToolEffects::default() } else { ToolEffects::REPEATABLE }
    }

    async fn call(&self, args: Text, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let path = self.dir.join("ledger");
        let (task, call, process) = (context.caller.task, context.call, std::process::id());
        let line =
            format!("{task} {call} {} {process} {}", Tool::name(self), Timestamp::now().as_millisecond());
        tokio::task::spawn_blocking(move || write_line(&path, &line)).await.unwrap();
        Ok(format!("noted: {}", args.text).into())
    }
}

/// Says that it holds, and returns when it is let go. May not be repeated.
struct Hold(PathBuf);

impl Tool for Hold {
    type Args = Text;

    fn name(&self) -> &str {
        "hold"
    }

    fn description(&self) -> String {
        "Waits until it is let go.".to_owned()
    }

    async fn call(&self, args: Text, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (holding, let_go) = (self.0.join("holding"), self.0.join("let-go"));
        write_line(
            &self.0.join("ledger"),
            &format!(
                "{} {} hold {} {}",
                context.caller.task,
                context.call,
                std::process::id(),
                Timestamp::now().as_millisecond()
            ),
        );
        write_line(&holding, &args.text);
        while !let_go.exists() {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                () = context.cancel.cancelled() => return Err(ToolError::Failed("stopped".to_owned())),
            }
        }
        Ok("let go".into())
    }
}
