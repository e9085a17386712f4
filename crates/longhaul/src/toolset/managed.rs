//! The dialect of managed agents: `spawn_agent` and its kin.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errand;
use super::excerpt::Part;
use super::verb::{self, Answer, Nothing, filled, seconds, verb};
use super::wording::{self, EXAMPLE, Named, Row};
use super::{Patron, Toolset, ToolsetError};
use crate::dispatch::{Card, Note};
use crate::entry::Order;
use crate::id::{AgentName, TaskId};
use crate::tool::{CallContext, DynTool, Manner, ToolError};

const NAME: &str = "agents";

/// The toolset `agents`: agents that are spawned, waited for, written to and cancelled.
#[derive(Debug, Clone, Copy, Default)]
pub struct ManagedAgents;

impl Toolset for ManagedAgents {
    fn name(&self) -> &str {
        NAME
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async { errand::needs_sub_agents(NAME, patron).map(|()| tools(&patron.sub_agents)) })
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        let first = patron.sub_agents.first()?;
        Some(wording::guide(
            &patron.sub_agents,
            "spawn_agent",
            "Use wait_agent",
            &format!(
                r#"spawn_agent {{"subagent_type": "{}", "description": "Go web frameworks", "task": "{EXAMPLE}"}}"#,
                first.name
            ),
        ))
    }
}

fn tools(cards: &[Card]) -> Vec<Arc<dyn DynTool>> {
    let mine: Arc<[Card]> = cards.into();
    vec![
        verb(
            "spawn_agent",
            Manner::INWARD,
            format!(
                "Starts an agent on a task in the background and returns its agent_id at once. \
                 When it ends, its result is sent to you as a message.\nTypes of agents:\n{}",
                wording::agents(cards)
            ),
            move |args: Spawn, cx| {
                let mine = mine.clone();
                Box::pin(async move { spawn(args, &mine, cx).await })
            },
        )
        .offering("subagent_type", cards)
        .tool(),
        verb(
            "wait_agent",
            Manner::LOOKS,
            "Waits until an agent has ended and returns its result. Only for when you cannot go on without it: \
             if you do not wait, it is sent to you as a message. A timeout stops nothing.",
            |args: WaitAgent, cx| Box::pin(wait(args, cx)),
        )
        .tool(),
        verb(
            "list_agents",
            Manner::LOOKS,
            "Lists the agents you have spawned, oldest first: id, type, status, how long, tokens, what it does now, task.",
            |_: Nothing, cx| {
                Box::pin(async move {
                    let list = errand::list(cx, Named::Agent).await?;
                    errand::json(&Agents { agents: list.rows, note: list.note })
                })
            },
        )
        .tool(),
        verb(
            "cancel_agent",
            Manner::INWARD,
            "Cancels an agent and every agent that it spawned. What it had by then is kept.",
            |args: OneAgent, cx| {
                Box::pin(async move { errand::stop_with_receipt(&args.agent_id, Named::Agent, cx).await })
            },
        )
        .tool(),
        verb(
            "send_message",
            Manner::INWARD,
            "Sends a message to an agent, or to all that have not ended with to: \"*\". A running agent reads it before \
             its next step; one that has ended is continued under a new agent_id, which is returned.",
            |args: Send, cx| Box::pin(send(args, cx)),
        )
        .tool(),
        verb(
            "task_output",
            Manner::LOOKS,
            "Shows the output of an agent: live while it runs, the result when it has ended. \
             Long output is shown in parts: use offset and limit, or tail_lines. \
             Not needed to get a result: that is sent to you as a message.",
            |args: Output, cx| Box::pin(output(args, cx)),
        )
        .tool(),
    ]
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Spawn {
    /// What the agent should do, with all that it needs to know: it does not see this conversation.
    task: String,
    /// The task in a few words, for lists.
    description: String,
    /// Only these of the agent's tools. All of them if left out.
    #[serde(default, deserialize_with = "verb::names")]
    #[schemars(with = "Option<Vec<String>>")]
    tools: Vec<String>,
    /// What the agent should know besides the task.
    context: Option<String>,
    /// Another model than the agent's own.
    model: Option<String>,
    /// Which type of agent.
    subagent_type: Option<String>,
    /// The directory in which its tools work.
    working_dir: Option<String>,
}

async fn spawn(args: Spawn, cards: &[Card], cx: &CallContext) -> Answer {
    let agent = kind(cards, args.subagent_type)?;
    let here =
        |dir: String| cx.working_dir.as_ref().map_or_else(|| PathBuf::from(&dir), |here| here.join(&dir));
    let order = Order {
        title: filled(Some(args.description)),
        context: filled(args.context),
        model: filled(args.model),
        tools: (!args.tools.is_empty()).then_some(args.tools),
        working_dir: filled(args.working_dir).map(here),
        ..Order::new(agent.clone(), args.task)
    };
    let id = errand::launch(cx, order).await?;
    errand::json(&errand::Receipt::launched(Named::Agent(id), agent))
}

/// The agent that is meant. Where there is only one, it need not be named.
fn kind(cards: &[Card], typed: Option<String>) -> Result<AgentName, ToolError> {
    match (filled(typed), cards) {
        (Some(typed), _) => Ok(errand::agent(cards, &typed)),
        (None, [only]) => Ok(only.name.clone()),
        (None, _) => Err(ToolError::Retry(format!(
            "say in `subagent_type` which agent should do it:\n{}",
            wording::agents(cards)
        ))),
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct WaitAgent {
    /// The id of the agent, such as t-7f3k2.
    agent_id: String,
    /// The most seconds to wait: 300 if left out, at most 3600.
    #[serde(default, deserialize_with = "verb::number")]
    wait_seconds: Option<f64>,
}

async fn wait(args: WaitAgent, cx: &CallContext) -> Answer {
    let (time, note) = verb::patience("wait_seconds", args.wait_seconds);
    let waited = errand::wait_one(&args.agent_id, Some(seconds(time)), cx).await?;
    errand::answer_and_lead(&waited, None, Named::Agent, note, cx).await
}

#[derive(Serialize)]
struct Agents {
    agents: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OneAgent {
    /// The id of the agent, such as t-7f3k2.
    agent_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Send {
    /// The id of the agent, or * for all that have not ended.
    to: String,
    /// What the agent should know.
    message: String,
    /// The message in a few words.
    summary: Option<String>,
}

#[derive(Serialize)]
struct Posted {
    sent_to: Vec<TaskId>,
    note: String,
}

async fn send(args: Send, cx: &CallContext) -> Answer {
    let letter = Note { text: args.message, summary: filled(args.summary) };
    if args.to.trim() != "*" {
        let (sent, note) = errand::send(cx, &args.to, letter).await?;
        return errand::json(&Posted { sent_to: vec![sent.to], note });
    }
    let sent_to = cx.desk.broadcast(&cx.caller, cx.call, letter).await?;
    let note = match sent_to.len() {
        0 => {
            "No agent of yours is at work, so nobody was written to. Name one that has ended to continue it."
                .to_owned()
        }
        n => format!("Your message is with {n} agents, which read it before their next step."),
    };
    errand::json(&Posted { sent_to, note })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Output {
    /// The id of the agent or task, such as t-7f3k2.
    task_id: String,
    /// Show the output from this character on.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// Show only the last lines, this many.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    tail_lines: Option<f64>,
}

async fn output(args: Output, cx: &CallContext) -> Answer {
    let part = Part::asked(args.offset, args.limit, Part::tail_lines(args.tail_lines));
    errand::view(&args.task_id, part, "task_output", cx).await
}
