//! The tools for managed agents: `spawn_agent` and the others.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{self, FnTool, NoArgs, ToolCallResult, duration_from_secs, fn_tool, non_blank};
use super::task_ops::{self, Launch};
use super::task_text::{self, EXAMPLE_TASK, TaskIdField, TaskRow};
use super::text_paging::TextRange;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::dispatch::{AgentInfo, LetterContent};
use crate::entry::Order;
use crate::id::{AgentName, TaskId};
use crate::tool::{CallContext, DynTool, ToolEffects, ToolError, ToolOutput};

const NAME: &str = "agents";

/// The toolset `agents`: tools to spawn, wait for, message and cancel agents.
#[derive(Debug, Clone, Copy, Default)]
pub struct ManagedAgents;

impl Toolset for ManagedAgents {
    fn name(&self) -> &str {
        NAME
    }

    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async { task_ops::require_sub_agents(NAME, context).map(|()| tools(&context.sub_agents)) })
    }

    fn instruction(&self, context: &ToolsetContext) -> Option<String> {
        let first = context.sub_agents.first()?;
        Some(task_text::delegation_guide(
            &context.sub_agents,
            "spawn_agent",
            "Use wait_agent",
            &format!(
                r#"spawn_agent {{"subagent_type": "{}", "description": "...", "task": "{EXAMPLE_TASK}"}}"#,
                first.name
            ),
        ))
    }
}

fn tools(agents: &[AgentInfo]) -> Vec<Arc<dyn DynTool>> {
    let mine: Arc<[AgentInfo]> = agents.into();
    vec![
        FnTool::new(
            "spawn_agent",
            ToolEffects::LAUNCHES,
            format!(
                "Starts an agent on a task in the background and returns its agent_id at once. \
                 When it ends, its result is sent to you as a message.\nTypes of agents:\n{}",
                task_text::agent_list(agents)
            ),
            move |args: SpawnAgentArgs, cx| {
                let mine = mine.clone();
                Box::pin(async move { spawn(args, &mine, cx).await })
            },
        )
        .with_agent_choices("subagent_type", agents)
        .into_tool(),
        fn_tool(
            "wait_agent",
            ToolEffects::POLLS_TASKS,
            "Waits until an agent has ended and returns its result. Only for when you cannot go on without it: \
             if you do not wait, it is sent to you as a message. A timeout stops nothing.",
            |args: WaitAgentArgs, cx| Box::pin(wait(args, cx)),
        ),
        fn_tool(
            "list_agents",
            ToolEffects::POLLS_TASKS,
            "Lists the agents you have spawned, oldest first: id, type, status, how long, tokens, what it does now, task.",
            |_: NoArgs, cx| {
                Box::pin(async move {
                    let list = task_ops::list_tasks(cx, TaskIdField::Agent).await?;
                    let all_ended = list.all_ended;
                    let text =
                        task_ops::json_output(&ListAgentsReply { agents: list.rows, note: list.note })?;
                    Ok(ToolOutput { all_ended, ..text })
                })
            },
        ),
        fn_tool(
            "cancel_agent",
            ToolEffects::STOPS_TASKS,
            "Cancels an agent and every agent that it spawned. What it had by then is kept.",
            |args: CancelAgentArgs, cx| {
                Box::pin(
                    async move { task_ops::stop_with_receipt(&args.agent_id, TaskIdField::Agent, cx).await },
                )
            },
        ),
        fn_tool(
            "send_message",
            ToolEffects::LAUNCHES,
            "Sends a message to an agent, or to all that have not ended with to: \"*\". A running agent reads it before \
             its next step; one that has ended is continued under a new agent_id, which is returned.",
            |args: SendMessageArgs, cx| Box::pin(send(args, cx)),
        ),
        fn_tool(
            "task_output",
            ToolEffects::POLLS_TASKS,
            "Shows the output of an agent: live while it runs, the result when it has ended. \
             Long output is shown in parts: use offset and limit, or tail_lines. \
             Not needed to get a result: that is sent to you as a message.",
            |args: TaskOutputArgs, cx| Box::pin(output(args, cx)),
        ),
    ]
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct SpawnAgentArgs {
    /// What to do or to find out, in full sentences with all that is needed, like a message to a colleague: the agent sees nothing else.
    task: String,
    /// The task in a few words, for lists.
    description: String,
    /// Only these of the agent's tools. All of them if left out.
    #[serde(default, deserialize_with = "fn_tool::names")]
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
    // Not in the schema: small models set whatever is offered. The answer to a task that was done before names it.
    #[serde(default, deserialize_with = "fn_tool::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    again: bool,
}

async fn spawn(args: SpawnAgentArgs, agents: &[AgentInfo], cx: &CallContext) -> ToolCallResult {
    let agent = choose_agent(agents, args.subagent_type)?;
    let here =
        |dir: String| cx.working_dir.as_ref().map_or_else(|| PathBuf::from(&dir), |here| here.join(&dir));
    let order = Order {
        title: non_blank(Some(args.description)),
        context: non_blank(args.context),
        model: non_blank(args.model),
        tools: (!args.tools.is_empty()).then_some(args.tools),
        working_dir: non_blank(args.working_dir).map(here),
        ..Order::new(agent.clone(), args.task)
    };
    match task_ops::launch_task(cx, order, args.again).await? {
        Launch::Before(snapshot) => task_ops::answer_before(*snapshot, TaskIdField::Agent, cx),
        Launch::Running(id, status) => {
            let id = TaskIdField::Agent(id);
            task_ops::json_output(&task_ops::TaskReceipt::already_running(id, agent, status))
        }
        Launch::New(id, besides) => {
            task_ops::json_output(&task_ops::TaskReceipt::launched(TaskIdField::Agent(id), agent, besides))
        }
    }
}

/// Chooses the agent to spawn. The name may be left out if there is only one.
fn choose_agent(agents: &[AgentInfo], typed: Option<String>) -> Result<AgentName, ToolError> {
    match (non_blank(typed), agents) {
        (Some(typed), _) => Ok(task_ops::match_agent(agents, &typed)),
        (None, [only]) => Ok(only.name.clone()),
        (None, _) => Err(ToolError::Retry(format!(
            "say in `subagent_type` which agent should do it:\n{}",
            task_text::agent_list(agents)
        ))),
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct WaitAgentArgs {
    /// The id of the agent, as spawn_agent has returned it.
    agent_id: String,
    /// The most seconds to wait: 300 if left out, at most 3600.
    #[serde(default, deserialize_with = "fn_tool::number")]
    wait_seconds: Option<f64>,
}

async fn wait(args: WaitAgentArgs, cx: &CallContext) -> ToolCallResult {
    let (time, note) = fn_tool::wait_timeout("wait_seconds", args.wait_seconds);
    let waited = task_ops::wait_for_task(&args.agent_id, Some(duration_from_secs(time)), cx).await?;
    task_ops::task_report_with_next_step(&waited, None, TaskIdField::Agent, note, cx).await
}

#[derive(Serialize)]
struct ListAgentsReply {
    agents: Vec<TaskRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct CancelAgentArgs {
    /// The id of the agent, as spawn_agent has returned it.
    agent_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct SendMessageArgs {
    /// The id of the agent, or * for all that have not ended.
    to: String,
    /// What the agent should know.
    message: String,
    /// The message in a few words.
    summary: Option<String>,
}

#[derive(Serialize)]
struct SendMessageReply {
    sent_to: Vec<TaskId>,
    note: String,
}

async fn send(args: SendMessageArgs, cx: &CallContext) -> ToolCallResult {
    let letter = LetterContent { text: args.message, summary: non_blank(args.summary) };
    if args.to.trim() != "*" {
        let (sent, note) = task_ops::send_message(cx, &args.to, letter).await?;
        return task_ops::json_output(&SendMessageReply { sent_to: vec![sent.to], note });
    }
    let sent_to = cx.dispatcher.broadcast(&cx.caller, cx.call, letter).await?;
    let note = match sent_to.len() {
        0 => {
            "No agent of yours is at work, so nobody was written to. Name one that has ended to continue it."
                .to_owned()
        }
        n => format!("Your message is with {n} agents, which read it before their next step."),
    };
    task_ops::json_output(&SendMessageReply { sent_to, note })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct TaskOutputArgs {
    /// The id of the agent, as spawn_agent has returned it.
    task_id: String,
    /// Show the output from this character on.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// Show only the last lines, this many.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    tail_lines: Option<f64>,
}

async fn output(args: TaskOutputArgs, cx: &CallContext) -> ToolCallResult {
    let part = TextRange::from_args(args.offset, args.limit, TextRange::tail_lines(args.tail_lines));
    task_ops::view_task(&args.task_id, part, "task_output", cx).await
}
