//! Many small tasks: three turns, one tool call a turn, a model that answers at once.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use longhaul::dispatch::TaskLimits;
use longhaul::model::Model;
use longhaul::model::scripted::{ModelScript, ScriptedModel};
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::{Agent, Longhaul, Order, Team};

use crate::gauge::{self, Measurement};

const SCRIPT: &str = "
agents:
  worker:
    turns:
      - { text: Looking., calls: [{ tool: look, arguments: { at: one } }], usage: { input: 100, output: 20 } }
      - { text: Again., calls: [{ tool: look, arguments: { at: two } }], usage: { input: 140, output: 20 } }
      - { text: Once more., calls: [{ tool: look, arguments: { at: three } }], usage: { input: 180, output: 20 } }
      - { text: The answer is forty-two., usage: { input: 220, output: 20 } }
";

pub(crate) struct LookTool;

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct LookArgs {
    at: String,
}

impl Tool for LookTool {
    type Args = LookArgs;

    fn name(&self) -> &str {
        "look"
    }

    fn description(&self) -> String {
        "Looks.".to_owned()
    }

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    async fn call(&self, args: LookArgs, _: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(format!("There is something at {}.", args.at).into())
    }
}

pub(crate) async fn measure(store: &str, tasks: usize) -> Result<Measurement, Box<dyn Error>> {
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(Arc::new(ModelScript::parse("bench", SCRIPT)?)));
    let worker = Agent::builder("worker").model(model).tool(LookTool).build()?;
    let (store, dir) = gauge::open_store(store)?;
    let limits = TaskLimits::default().running(256).queue(None);
    let longhaul = Longhaul::builder(Team::new(worker)?).shared_store(store).limits(limits).start().await?;
    let (start, cpu) = (Instant::now(), gauge::cpu_us()?);
    let submits = (0..tasks).map(|n| longhaul.submit(Order::new("worker", format!("Task {n}"))));
    let ids = futures::future::try_join_all(submits).await?;
    let done = longhaul.wait(ids.iter().copied()).await?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_us = gauge::cpu_us()? - cpu;
    for task in &done.tasks {
        if task.output != "The answer is forty-two." || task.state.calls != 3 {
            return Err(format!("task {} ended wrongly: {:?}", task.state.id, task.outcome).into());
        }
    }
    longhaul.shutdown().await;
    let peak_kib = gauge::proc_status_kib("VmHWM")?;
    let disk_bytes = gauge::disk_bytes(dir.path());
    Ok(Measurement { tasks: tasks as u64, seconds, cpu_us, peak_kib, disk_bytes, ..Measurement::default() })
}
