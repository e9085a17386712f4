//! Blocking delegation and handoff: the tools of every agent that has `sub_agents` or `handoffs`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{self, FnTool, ToolCallResult, non_blank};
use super::task_ops::{self, Launch};
use super::task_text;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::dispatch::{AgentInfo, DispatchError};
use crate::entry::Order;
use crate::task::Status;
use crate::tool::{CallContext, DynTool, ToolEffects, ToolError, ToolOutput};

/// `transfer_task` for an agent with sub-agents, and `handoff` for an agent with handoffs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delegation;

impl Toolset for Delegation {
    fn name(&self) -> &str {
        "delegation"
    }

    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            let mut tools = Vec::new();
            if !context.sub_agents.is_empty() {
                tools.push(transfer_task(&context.sub_agents));
            }
            if !context.handoffs.is_empty() {
                tools.push(handoff(&context.handoffs));
            }
            Ok(tools)
        })
    }

    fn instruction(&self, context: &ToolsetContext) -> Option<String> {
        let mut text = String::new();
        if !context.sub_agents.is_empty() {
            text += "With transfer_task you give a task to one of these agents and get its result back. \
                     It sees nothing but `task`: say in full sentences what to do or to find out, with all that it needs to know.\n";
            text += &task_text::agent_list(&context.sub_agents);
        }
        if !context.handoffs.is_empty() {
            text += "With handoff you give this whole conversation to one of these agents, who goes on in your place:\n";
            text += &task_text::agent_list(&context.handoffs);
        }
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct TransferTaskArgs {
    /// The name of the sub-agent.
    agent: String,
    /// What to do or to find out, in full sentences with all that is needed, like a message to a colleague: the agent sees nothing else.
    task: String,
    /// What the result should look like.
    expected_output: Option<String>,
    // Not in the schema: small models set whatever is offered. The answer to a task that was done before names it.
    #[serde(default, deserialize_with = "fn_tool::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    again: bool,
}

fn transfer_task(agents: &[AgentInfo]) -> Arc<dyn DynTool> {
    let mine: Arc<[AgentInfo]> = agents.into();
    FnTool::new(
        "transfer_task",
        ToolEffects::LAUNCHES,
        format!(
            "Gives a task to a sub-agent, waits until it is done and returns the result.\nAgents:\n{}",
            task_text::agent_list(agents)
        ),
        move |args: TransferTaskArgs, cx| {
            let agent = task_ops::match_agent(&mine, &args.agent);
            Box::pin(transfer(
                Order { expected_output: non_blank(args.expected_output), ..Order::new(agent, args.task) },
                args.again,
                cx,
            ))
        },
    )
    .with_agent_choices("agent", agents)
    .into_tool()
}

async fn transfer(order: Order, again: bool, cx: &CallContext) -> ToolCallResult {
    let (id, besides) = match task_ops::launch_task(cx, order, again).await? {
        Launch::Before(snapshot) => return Ok(task_ops::done_before(&snapshot, None)),
        Launch::New(id, besides) => (id, besides),
        Launch::Running(id, _) => (id, None),
    };
    let waited = task_ops::wait_for_launched(cx, id).await?;
    let Some(snapshot) = waited.tasks.first() else {
        return Err(ToolError::Failed("the task was started, but cannot be found any more".to_owned()));
    };
    let state = &snapshot.state;
    if !state.status.is_final() {
        return Ok(task_ops::moved_to_background_note(state).into());
    }
    // The whole text: the runner truncates it like any tool output, and says how to read the rest.
    let (output, _) = task_text::output_text(snapshot, None, usize::MAX, |_| String::new());
    let is_error = state.status != Status::Completed;
    let text = if is_error {
        let (id, agent, status) = (state.id, &state.agent, state.status);
        let why = task_text::failure_reason(state).unwrap_or_default();
        match output.trim() {
            "" => format!("Task {id} of {agent} {status}: {why}\nThere is no output."),
            _ => format!(
                "Task {id} of {agent} {status}: {why}\nIts output before that, which is not a finished answer:\n{output}"
            ),
        }
    } else {
        output
    };
    let note = match besides {
        Some(besides) => format!("\n\n[{besides}]"),
        None if is_error => String::new(),
        None => format!("\n\n{}", task_text::task_is_done(state.calls)),
    };
    Ok(ToolOutput { text: text + &note, is_error, collected: vec![state.id], ..ToolOutput::default() })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct HandoffArgs {
    /// The name of the agent that goes on.
    agent: String,
}

fn handoff(agents: &[AgentInfo]) -> Arc<dyn DynTool> {
    let mine: Arc<[AgentInfo]> = agents.into();
    FnTool::new(
        "handoff",
        ToolEffects::INTERNAL,
        format!(
            "Hands this whole conversation over to another agent, who goes on in your place.\nAgents:\n{}",
            task_text::agent_list(agents)
        ),
        move |args: HandoffArgs, _| {
            let answer = hand_over(&mine, &args.agent);
            Box::pin(async { answer })
        },
    )
    .with_agent_choices("agent", agents)
    .into_tool()
}

fn hand_over(agents: &[AgentInfo], typed: &str) -> ToolCallResult {
    let agent = task_ops::match_agent(agents, typed);
    if !agents.iter().any(|info| info.name == agent) {
        let may = agents.iter().map(|info| info.name.clone()).collect();
        return Err(DispatchError::UnknownAgent { asked: agent.to_string(), may }.into());
    }
    let text = format!("The conversation is handed over to {agent}.");
    Ok(ToolOutput { text, handoff: Some(agent), ..ToolOutput::default() })
}
