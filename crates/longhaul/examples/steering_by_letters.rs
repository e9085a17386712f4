//! Steering: a person writes to a task while it works.
//!
//! 1. A letter to a running task is read before its next model call.
//! 2. A letter to be read "when idle" waits until the task has nothing more to say of its own.
//! 3. A letter to a task that has ended continues it: a new task with the same conversation and a new id.
//!
//!     cargo run -p longhaul --example steering_by_letters

use std::error::Error;
use std::sync::Arc;

use futures::StreamExt as _;
use longhaul::id::Seq;
use longhaul::message::Message;
use longhaul::testing::{FnModel, reply};
use longhaul::tool::{CallContext, Tool, ToolError, ToolOutput};
use longhaul::{Agent, EventKind, Longhaul, Order, Status, Team};
use serde_json::json;
use tokio::sync::Semaphore;

/// Looks things up for as long as it is not let go: the person writes meanwhile.
struct LookUp(Arc<Semaphore>);

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct LookUpArgs {
    /// What to look up.
    what: String,
}

impl Tool for LookUp {
    type Args = LookUpArgs;

    fn name(&self) -> &str {
        "look_up"
    }

    fn description(&self) -> String {
        "Looks something up.".to_owned()
    }

    async fn call(&self, args: LookUpArgs, _: &CallContext) -> Result<ToolOutput, ToolError> {
        let _let_go = self.0.acquire().await.map_err(|closed| ToolError::Failed(closed.to_string()))?;
        Ok(format!("all about {}", args.what).into())
    }
}

/// A model that says how many words it was told last. It looks up two things first, unless it is asked to go on.
fn model() -> FnModel {
    FnModel::new(|request| {
        let told: Vec<&str> = request
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::User(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let continues = told.iter().any(|text| text.starts_with("Go on"));
        match request.turn {
            0 if !continues => reply().call("look_up", json!({ "what": "history" })),
            1 if !continues => reply().call("look_up", json!({ "what": "the last two years" })),
            _ => reply().text(told.join(" | ")),
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let gate = Arc::new(Semaphore::new(0));
    let writer = Agent::builder("writer").model(Arc::new(model())).tool(LookUp(gate.clone())).build()?;
    let longhaul = Longhaul::builder(Team::new(writer)?).start().await?;

    let id = longhaul.submit(Order::new("writer", "Write about Rust.")).await?;
    let mut events = longhaul.events(id, Seq(0));
    while let Some(event) = events.next().await {
        if matches!(event?.kind, EventKind::Call { .. }) {
            break; // It is in the middle of its first call now, and stays there until it is let go.
        }
    }
    longhaul.send_when_idle(id, "Then shorten it.").await?;
    let sent = longhaul.send(id, "Only the last two years.").await?;
    assert_eq!((sent.to, sent.continued), (id, false));
    assert_eq!(longhaul.snapshot(id).await?.state.unread, 2);
    gate.add_permits(1);

    let done = longhaul.wait([id]).await?.tasks.remove(0);
    let mut story = Vec::new();
    for event in &done.events {
        match &event.kind {
            EventKind::Call { .. } => story.push("call"),
            EventKind::Read { letters } => story.extend(letters.iter().map(|_| "read")),
            EventKind::Text { .. } => story.push("text"),
            _ => {}
        }
    }
    println!("{story:?}\n{}", done.output);
    // The first letter is read between two model calls, the other one only after the task has given its answer.
    assert_eq!(story, ["call", "read", "call", "text", "read", "text"]);
    assert_eq!(done.output, "Write about Rust. | Only the last two years. | Then shorten it.");

    // Final is final: who writes to a task that has ended gets a new one, linked both ways.
    let sent = longhaul.send(id, "Go on with the future.").await?;
    assert!(sent.continued && sent.to != id);
    let next = longhaul.wait([sent.to]).await?.tasks.remove(0);
    println!("{} continues {id}: {}", sent.to, next.output);
    assert_eq!(next.output, format!("{} | Go on with the future.", done.output), "the same conversation");
    let old = longhaul.snapshot(id).await?.state;
    assert_eq!(
        (old.status, old.continued_by, next.state.continues),
        (Status::Completed, Some(sent.to), Some(id))
    );

    // A further letter to the old id goes to the end of the chain.
    let again = longhaul.continue_task(id, "And stop there.").await?;
    let chain = longhaul.wait([again]).await?.tasks.remove(0).state;
    assert_eq!((chain.continues, chain.status), (Some(sent.to), Status::Completed));
    longhaul.shutdown().await;
    Ok(())
}
