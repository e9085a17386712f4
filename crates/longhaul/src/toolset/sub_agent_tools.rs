//! The library's tools for sub-agents: each sub-agent is a tool with its own name.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{self, NoArgs, ToolCallResult, fn_tool};
use super::task_ops::{self, Launch};
use super::task_text::{self, EXAMPLE_TASK, TaskIdField, TaskRow};
use super::text_paging::TextRange;
use super::{OpenFuture, Toolset, ToolsetContext, ToolsetError};
use crate::dispatch::{AgentInfo, WaitResult};
use crate::entry::Order;
use crate::id::AgentName;
use crate::tool::{CallContext, DynTool, ToolEffects, ToolOutput};

const NAME: &str = "sub_agents";

/// Sub-agents as tools, and with them `get_task_result`, `stop_task` and `list_tasks`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubAgentTools;

impl Toolset for SubAgentTools {
    fn name(&self) -> &str {
        NAME
    }

    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async {
            if context.sub_agents.is_empty() {
                return Ok(Vec::new());
            }
            let mut tools = Vec::from(task_tools());
            for info in &context.sub_agents {
                can_be_a_tool(info, &tools)?;
            }
            tools.splice(0..0, context.sub_agents.iter().map(agent_tool));
            Ok(tools)
        })
    }

    fn instruction(&self, context: &ToolsetContext) -> Option<String> {
        let first = context.sub_agents.first()?;
        Some(task_text::delegation_guide(
            &context.sub_agents,
            "the tool of the agent's name and background: true",
            "Use get_task_result with wait: true, or call the agent with background: false,",
            &format!(r#"{} {{"task": "{EXAMPLE_TASK}", "background": true}}"#, first.name),
        ))
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct SubAgentArgs {
    /// What to do or to find out, in full sentences with all that is needed, like a message to a colleague: the agent sees nothing else.
    task: String,
    /// true: return a task_id at once; the result is sent to you as a message. false: wait for the result.
    #[serde(default, deserialize_with = "fn_tool::flag")]
    background: bool,
    /// The most replies the agent may take. 0 is its default.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u32>")]
    max_turns: Option<f64>,
    // Not in the schema: small models set whatever is offered. The answer to a task that was done before names it.
    #[serde(default, deserialize_with = "fn_tool::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    again: bool,
}

/// Checks whether an agent's name can be a tool name: providers accept it, and no other tool has it.
fn can_be_a_tool(info: &AgentInfo, others: &[Arc<dyn DynTool>]) -> Result<(), ToolsetError> {
    let wrong = |why: String| Err(ToolsetError { toolset: NAME.to_owned(), why });
    let name = info.name.as_str();
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(letter) {
        return wrong(format!(
            "agent '{name}' cannot be a tool: its name must be 1 to 64 letters, digits, '_' or '-'"
        ));
    }
    if others.iter().any(|tool| tool.spec().name == name) {
        return wrong(format!("agent '{name}' cannot be a tool: there is another tool of that name"));
    }
    Ok(())
}

fn agent_tool(info: &AgentInfo) -> Arc<dyn DynTool> {
    let what = match info.description.trim() {
        "" => format!("Gives a task to the agent {}.", info.name),
        what => what.to_owned(),
    };
    let agent = info.name.clone();
    fn_tool(
        info.name.as_str(),
        ToolEffects::LAUNCHES,
        format!(
            "{what}\nWith background: true it works while you go on, and its result is sent to you as a message."
        ),
        move |args: SubAgentArgs, cx| Box::pin(ask(agent.clone(), args, cx)),
    )
}

async fn ask(agent: AgentName, args: SubAgentArgs, cx: &CallContext) -> ToolCallResult {
    let order =
        Order { max_turns: fn_tool::turn_limit(args.max_turns)?, ..Order::new(agent.clone(), args.task) };
    let (id, besides) = match task_ops::launch_task(cx, order, args.again).await? {
        Launch::Before(snapshot) => return task_ops::answer_before(*snapshot, TaskIdField::Task, cx),
        Launch::New(id, besides) => (id, besides),
        Launch::Running(id, status) if args.background => {
            let id = TaskIdField::Task(id);
            return task_ops::json_output(&task_ops::TaskReceipt::already_running(id, agent, status));
        }
        Launch::Running(id, _) => (id, None),
    };
    if args.background {
        return task_ops::json_output(&task_ops::TaskReceipt::launched(
            TaskIdField::Task(id),
            agent,
            besides,
        ));
    }
    let waited = task_ops::wait_for_launched(cx, id).await?;
    if let Some(task) = waited.tasks.first().filter(|task| !task.state.status.is_final()) {
        return task_ops::json_output(&task_ops::TaskReceipt::moved_to_background(
            TaskIdField::Task(task.state.id),
            &task.state,
        ));
    }
    task_ops::task_report(&waited, None, TaskIdField::Task, None, cx)
}

fn task_tools() -> [Arc<dyn DynTool>; 3] {
    [
        fn_tool(
            "get_task_result",
            ToolEffects::POLLS_TASKS,
            "Tells how a background task stands, with its result if it has ended and its live output if not. \
             With wait: true it waits for the end. Long output is shown in parts: use offset and limit. Not needed to get a result: that is sent to you as a message.",
            |args: GetTaskResultArgs, cx| Box::pin(get(args, cx)),
        ),
        fn_tool(
            "stop_task",
            ToolEffects::STOPS_TASKS,
            "Stops a background task and every task that it started. What it had by then is kept.",
            |args: StopTaskArgs, cx| {
                Box::pin(
                    async move { task_ops::stop_with_receipt(&args.task_id, TaskIdField::Task, cx).await },
                )
            },
        ),
        fn_tool(
            "list_tasks",
            ToolEffects::POLLS_TASKS,
            "Lists your tasks, oldest first: id, agent, status, how long, tokens, what it does now, task.",
            |_: NoArgs, cx| {
                Box::pin(async move {
                    let list = task_ops::list_tasks(cx, TaskIdField::Task).await?;
                    let all_ended = list.all_ended;
                    let text = task_ops::json_output(&ListTasksReply { tasks: list.rows, note: list.note })?;
                    Ok(ToolOutput { all_ended, ..text })
                })
            },
        ),
    ]
}

#[derive(Serialize)]
struct ListTasksReply {
    tasks: Vec<TaskRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct StopTaskArgs {
    /// The id of the task, as the agent's tool has returned it.
    task_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct GetTaskResultArgs {
    /// The id of the task, as the agent's tool has returned it.
    task_id: String,
    /// Whether to wait until the task has ended.
    #[serde(default, deserialize_with = "fn_tool::flag")]
    wait: bool,
    /// The most milliseconds to wait. 0 is until the end.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    timeout: Option<f64>,
    /// Show the output from this character on.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
}

async fn get(args: GetTaskResultArgs, cx: &CallContext) -> ToolCallResult {
    let part = TextRange::from_args(args.offset, args.limit, None);
    if !args.wait {
        let snapshot = cx.dispatcher.view(&cx.caller, &args.task_id).await?;
        let seen = WaitResult { tasks: vec![snapshot], timed_out: false };
        return task_ops::task_report_with_next_step(&seen, part, TaskIdField::Task, None, cx).await;
    }
    let note = args.timeout.filter(|ms| *ms < 0.0);
    let note =
        note.map(|ms| format!("`timeout` cannot be {ms}: it was taken as 0, which waits until the end"));
    let timeout = args.timeout.filter(|ms| *ms > 0.0).map(|ms| fn_tool::duration_from_secs(ms / 1000.0));
    let waited = task_ops::wait_for_task(&args.task_id, timeout, cx).await?;
    task_ops::task_report_with_next_step(&waited, part, TaskIdField::Task, note, cx).await
}
