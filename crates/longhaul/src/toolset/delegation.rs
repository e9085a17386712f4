//! Delegation that blocks, and handing a conversation over: what any agent with `sub_agents` or `handoffs` has.

use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errand;
use super::verb::{Answer, filled, verb};
use super::wording;
use super::{Patron, Toolset, ToolsetError};
use crate::dispatch::{Card, DeskError};
use crate::entry::Order;
use crate::task::Status;
use crate::tool::{CallContext, DynTool, Manner, ToolError, ToolOutput};

/// `transfer_task` for an agent that has sub-agents, and `handoff` for one that has somebody to hand over to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delegation;

impl Toolset for Delegation {
    fn name(&self) -> &str {
        "delegation"
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async {
            let mut tools = Vec::new();
            if !patron.sub_agents.is_empty() {
                tools.push(transfer_task(&patron.sub_agents));
            }
            if !patron.handoffs.is_empty() {
                tools.push(handoff(&patron.handoffs));
            }
            Ok(tools)
        })
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        let mut text = String::new();
        if !patron.sub_agents.is_empty() {
            text += "With transfer_task you give a task to one of these agents and get its result back. \
                     The agent sees only what you write in `task`: say all it needs to know.\n";
            text += &wording::agents(&patron.sub_agents);
        }
        if !patron.handoffs.is_empty() {
            text += "With handoff you give this whole conversation to one of these agents, who goes on in your place:\n";
            text += &wording::agents(&patron.handoffs);
        }
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Transfer {
    /// The name of the sub-agent.
    agent: String,
    /// What it should do, with all that it needs to know: it does not see this conversation.
    task: String,
    /// What the result should look like.
    expected_output: Option<String>,
}

fn transfer_task(cards: &[Card]) -> Arc<dyn DynTool> {
    let mine: Arc<[Card]> = cards.into();
    verb(
        "transfer_task",
        Manner::INWARD,
        format!(
            "Gives a task to a sub-agent, waits until it is done and returns the result.\nAgents:\n{}",
            wording::agents(cards)
        ),
        move |args: Transfer, cx| {
            let agent = errand::agent(&mine, &args.agent);
            Box::pin(transfer(
                Order { expected_output: filled(args.expected_output), ..Order::new(agent, args.task) },
                cx,
            ))
        },
    )
    .offering("agent", cards)
    .tool()
}

async fn transfer(order: Order, cx: &CallContext) -> Answer {
    let waited = errand::launch_and_wait(cx, order).await?;
    let Some(snapshot) = waited.tasks.first() else {
        return Err(ToolError::Failed("the task was started, but cannot be found any more".to_owned()));
    };
    let head = &snapshot.head;
    if !head.status.is_final() {
        return Ok(errand::goes_on(head).into());
    }
    // Whole: what is too long of it the runner cuts as it does any tool's output, and says how to read the rest.
    let (output, _) = wording::output(snapshot, None, usize::MAX, |_| String::new());
    let is_error = head.status != Status::Completed;
    let text = if is_error {
        let (id, agent, status) = (head.id, &head.agent, head.status);
        let why = wording::error(head).unwrap_or_default();
        match output.trim() {
            "" => format!("Task {id} of {agent} {status}: {why}\nThere is no output."),
            _ => format!(
                "Task {id} of {agent} {status}: {why}\nIts output before that, which is not a finished answer:\n{output}"
            ),
        }
    } else {
        output
    };
    Ok(ToolOutput { text, is_error, collected: vec![head.id], ..ToolOutput::default() })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Handoff {
    /// The name of the agent that goes on.
    agent: String,
}

fn handoff(cards: &[Card]) -> Arc<dyn DynTool> {
    let mine: Arc<[Card]> = cards.into();
    verb(
        "handoff",
        Manner::INWARD,
        format!(
            "Hands this whole conversation over to another agent, who goes on in your place.\nAgents:\n{}",
            wording::agents(cards)
        ),
        move |args: Handoff, _| {
            let answer = hand_over(&mine, &args.agent);
            Box::pin(async { answer })
        },
    )
    .offering("agent", cards)
    .tool()
}

fn hand_over(cards: &[Card], typed: &str) -> Answer {
    let agent = errand::agent(cards, typed);
    if !cards.iter().any(|card| card.name == agent) {
        let may = cards.iter().map(|card| card.name.clone()).collect();
        return Err(DeskError::UnknownAgent { asked: agent.to_string(), may }.into());
    }
    let text = format!("The conversation is handed over to {agent}.");
    Ok(ToolOutput { text, handoff: Some(agent), ..ToolOutput::default() })
}
