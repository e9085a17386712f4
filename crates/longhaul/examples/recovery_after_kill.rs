//! Recovery: a process is killed in the middle of the work, and another one carries on from the SQLite file.
//!
//! The example starts itself as a child process. There a lead gives one wall after the other to a mason; when the
//! first wall stands and the second is half built, the child is killed with SIGKILL. This process then opens the same
//! file and needs nothing else to carry on: no id, no command line, no prompt.
//!
//!     cargo run -p longhaul --example recovery_after_kill

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use longhaul::store::{SqliteStore, TaskFilter};
use longhaul::testing::{FnModel, reply};
use longhaul::tool::{CallContext, Tool, ToolEffects, ToolError, ToolOutput};
use longhaul::{Agent, Longhaul, Order, Status, SubAgentDialect, Team};
use serde_json::json;

/// Lays a stone: writes a line into a ledger, with the process that did it.
struct LayStone {
    ledger: PathBuf,
    /// Whether the last stone is never laid: so it is in the process that will be killed.
    hangs: bool,
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Stone {
    wall: String,
    number: u32,
}

impl Tool for LayStone {
    type Args = Stone;

    fn name(&self) -> &str {
        "lay_stone"
    }

    fn description(&self) -> String {
        "Lays one stone.".to_owned()
    }

    /// A call that was begun and has no result is made again. Without this the model would be told instead that the
    /// call was interrupted, and that nobody knows whether it had an effect.
    fn effects(&self) -> ToolEffects {
        ToolEffects::REPEATABLE
    }

    async fn call(&self, Stone { wall, number }: Stone, _: &CallContext) -> Result<ToolOutput, ToolError> {
        if self.hangs && wall == "south" && number == 2 {
            println!("now");
            return std::future::pending().await;
        }
        let failed = |error: std::io::Error| ToolError::Failed(error.to_string());
        let mut ledger =
            std::fs::File::options().create(true).append(true).open(&self.ledger).map_err(failed)?;
        writeln!(ledger, "{wall} {number} by {}", std::process::id()).map_err(failed)?;
        Ok("laid".into())
    }
}

/// Starts the same team on the same file in either process.
async fn start(dir: &Path, is_child: bool) -> Result<Longhaul, Box<dyn Error>> {
    let model = Arc::new(FnModel::new(move |request| {
        let wall = if format!("{:?}", request.messages[0]).contains("north") { "north" } else { "south" };
        let (agent, turn) = (request.agent.as_str(), request.turn);
        // A reply that is in the journal is never asked for again, so here only the last ones are.
        assert!(is_child || turn == 2, "{agent} was asked for reply {turn} again");
        match (agent, turn) {
            ("lead", 0) => reply().call("transfer_task", json!({ "agent": "mason", "task": "north" })),
            ("lead", 1) => reply().call("transfer_task", json!({ "agent": "mason", "task": "south" })),
            ("lead", _) => reply().text("Two walls."),
            (_, 0 | 1) => reply().call("lay_stone", json!({ "wall": wall, "number": turn + 1 })),
            _ => reply().text(format!("The {wall} wall stands.")),
        }
    }));
    let tool = LayStone { ledger: dir.join("ledger"), hangs: is_child };
    let mason = Agent::builder("mason").model(model.clone()).tool(tool).build()?;
    let lead =
        Agent::builder("lead").model(model).sub_agent(mason).dialect(SubAgentDialect::Background).build()?;
    Ok(Longhaul::builder(Team::new(lead)?).store(SqliteStore::open(dir.join("tasks.db"))?).start().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args_os().nth(1) {
        let longhaul = start(Path::new(&dir), true).await?;
        let root = longhaul.submit(Order::new("lead", "Build two walls.")).await?;
        return longhaul.wait([root]).await.map(drop).map_err(Into::into);
    }
    let dir = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?).arg(dir.path()).stdout(Stdio::piped()).spawn()?;
    let said =
        BufReader::new(child.stdout.take().ok_or("no pipe")?).lines().next().ok_or("it ended early")??;
    assert_eq!(said, "now");
    child.kill()?;
    assert_eq!(child.wait()?.signal(), Some(9), "it was killed, with no time to tidy up");

    let longhaul = start(dir.path(), false).await?;
    let tasks = longhaul.list(TaskFilter::default()).await?;
    let done = longhaul.wait(tasks.iter().map(|task| task.id)).await?;
    let facts: Vec<_> =
        done.tasks.iter().map(|t| (&t.state.agent, t.state.attempt.0, t.state.turns)).collect();
    println!("agent, attempts, replies: {facts:?}");
    assert!(done.tasks.iter().all(|task| task.state.status == Status::Completed));
    assert_eq!(done.tasks[0].output, "Two walls.");
    // The lead and the second mason were taken up again. The first mason had ended, and there is no third one, although
    // the call that launched the second was made again.
    assert_eq!(facts, [(&"lead".into(), 2, 3), (&"mason".into(), 1, 3), (&"mason".into(), 2, 3)]);

    // Every stone was laid once: three by the process that was killed, the last one here.
    let ledger = std::fs::read_to_string(dir.path().join("ledger"))?;
    println!("{ledger}");
    let (them, us) = (child.id(), std::process::id());
    assert_eq!(ledger, format!("north 1 by {them}\nnorth 2 by {them}\nsouth 1 by {them}\nsouth 2 by {us}\n"));
    longhaul.shutdown().await;
    Ok(())
}
