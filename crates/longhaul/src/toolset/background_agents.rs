//! The tools of team files for background tasks: `run_background_agent` and the others.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{
    self, FnTool, NoArgs, ToolCallResult, duration_from_secs, fn_tool, non_blank, positive_limit, whole_limit,
};
use super::task_ops::{self, Launch};
use super::task_text::{self, END_YOUR_TURN, EXAMPLE_TASK, RESULT_IS_SENT, TaskIdField};
use super::text_paging::{TextRange, bytes_per_output};
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::dispatch::{AgentInfo, LetterContent, WaitMode};
use crate::entry::{Budget, Order};
use crate::snapshot::Snapshot;
use crate::task::TaskState;
use crate::tool::{CallContext, DynTool, ToolEffects, ToolError, ToolOutput};

const NAME: &str = "background_agents";
/// The tool that shows the output of a task.
pub(super) const VIEW: &str = "view_background_agent";
/// How many tasks one call may wait for.
pub(super) const MOST_TASKS: usize = 100;

/// The toolset `background_agents`: tools to run, view, message, wait for and stop sub-agents.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackgroundAgents;

impl Toolset for BackgroundAgents {
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
            "run_background_agent",
            "Use wait_background_agents (with all the ids at once)",
            &format!(r#"run_background_agent {{"agent": "{}", "task": "{EXAMPLE_TASK}"}}"#, first.name),
        ))
    }
}

fn tools(agents: &[AgentInfo]) -> Vec<Arc<dyn DynTool>> {
    let mine: Arc<[AgentInfo]> = agents.into();
    vec![
        FnTool::new(
            "run_background_agent",
            ToolEffects::LAUNCHES,
            format!(
                "Starts a sub-agent on a task in the background and returns the task's id at once. \
                 When the task ends, its result is sent to you as a message.\nAgents:\n{}",
                task_text::agent_list(agents)
            ),
            move |args: RunBackgroundAgentArgs, cx| {
                let mine = mine.clone();
                Box::pin(async move { run(args, &mine, cx).await })
            },
        )
        .with_agent_choices("agent", agents)
        .into_tool(),
        fn_tool(
            "list_background_agents",
            ToolEffects::POLLS_TASKS,
            "Lists your tasks, oldest first: id, agent, status, how long, tokens, what it does now, task.",
            |_: NoArgs, cx| {
                Box::pin(async move {
                    let table = task_ops::list_tasks(cx, TaskIdField::Task).await?;
                    Ok(ToolOutput { all_ended: table.all_ended, ..table.to_string().into() })
                })
            },
        ),
        fn_tool(
            VIEW,
            ToolEffects::POLLS_TASKS,
            "Shows one task: the live output of a running one, the result of one that has ended. \
             Long output is shown in parts: use offset and limit, or tail. \
             Not needed to get a result: that is sent to you as a message.",
            |args: ViewBackgroundAgentArgs, cx| Box::pin(view(args, cx)),
        ),
        fn_tool(
            "stop_background_agent",
            ToolEffects::STOPS_TASKS,
            "Stops a task and every task that it started. What it had by then is kept.",
            |args: StopBackgroundAgentArgs, cx| {
                Box::pin(async move { Ok(task_ops::stop_task(cx, &args.task_id).await?.2.into()) })
            },
        ),
        fn_tool(
            "wait_background_agents",
            ToolEffects::POLLS_TASKS,
            "Waits until your tasks have ended and returns their results as JSON, in the order of task_ids. \
             Only for when you cannot go on without them: if you do not wait, they are sent to you as messages. \
             all_done does not mean success: check each status. A timeout stops nothing.",
            |args: WaitBackgroundAgentsArgs, cx| Box::pin(wait(args, cx)),
        ),
        fn_tool(
            "send_background_agent",
            ToolEffects::LAUNCHES,
            "Sends a message to a task. A running one reads it before its next step; \
             one that has ended is continued by a new task, whose id is returned.",
            |args: SendBackgroundAgentArgs, cx| Box::pin(send(args, cx)),
        ),
    ]
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct RunBackgroundAgentArgs {
    /// The name of the sub-agent.
    agent: String,
    /// What to do or to find out, in full sentences with all that is needed, like a message to a colleague: the agent sees nothing else.
    task: String,
    /// What the result should look like.
    expected_output: Option<String>,
    /// Another model than the agent's own.
    model: Option<String>,
    /// The most replies the agent may take. 0 is its default.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u32>")]
    max_turns: Option<f64>,
    /// The most seconds the task may take. 0 is no limit.
    #[serde(default, deserialize_with = "fn_tool::number")]
    timeout: Option<f64>,
    /// What the task may use at most.
    budget: Option<BudgetArgs>,
    // Not in the schema: small models set whatever is offered. The answer to a task that was done before names it.
    #[serde(default, deserialize_with = "fn_tool::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    again: bool,
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct BudgetArgs {
    /// Tokens, read and written.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    max_tokens: Option<f64>,
    /// Dollars.
    #[serde(default, deserialize_with = "fn_tool::number")]
    max_cost: Option<f64>,
    /// Seconds.
    #[serde(default, deserialize_with = "fn_tool::number")]
    max_time: Option<f64>,
}

/// With fewer tokens than this no agent can read its task and answer.
const FEWEST_TOKENS: u64 = 500;

impl BudgetArgs {
    fn budget(self) -> Result<Budget, ToolError> {
        let tokens = whole_limit("max_tokens", self.max_tokens)?;
        if let Some(few) = tokens.filter(|tokens| *tokens < FEWEST_TOKENS) {
            return Err(ToolError::Retry(format!(
                "`max_tokens` is {few}, too few for a single reply: leave `budget` out, or allow at least {FEWEST_TOKENS}"
            )));
        }
        Ok(Budget {
            tokens,
            cost: whole_limit("max_cost", self.max_cost.map(|dollars| dollars * 1e6))?,
            time: positive_limit("max_time", self.max_time)?.map(duration_from_secs),
        })
    }
}

impl RunBackgroundAgentArgs {
    /// The order, to one of these agents.
    pub(super) fn order(self, agents: &[AgentInfo]) -> Result<Order, ToolError> {
        Ok(Order {
            expected_output: non_blank(self.expected_output),
            model: non_blank(self.model),
            max_turns: fn_tool::turn_limit(self.max_turns)?,
            timeout: positive_limit("timeout", self.timeout)?.map(duration_from_secs),
            budget: self.budget.map(BudgetArgs::budget).transpose()?.unwrap_or_default(),
            ..Order::new(task_ops::match_agent(agents, &self.agent), self.task)
        })
    }
}

async fn run(args: RunBackgroundAgentArgs, mine: &[AgentInfo], cx: &CallContext) -> ToolCallResult {
    let (again, agent) = (args.again, task_ops::match_agent(mine, &args.agent));
    let order = args.order(mine)?;
    match task_ops::launch_task(cx, order, again).await? {
        Launch::Before(snapshot) => Ok(task_ops::done_before(&snapshot, Some(VIEW))),
        Launch::Running(id, _) => Ok(task_text::already_running(id).into()),
        Launch::New(id, besides) => {
            let besides = besides.map(|besides| format!(" {besides}")).unwrap_or_default();
            let text = format!(
                "{id}\n{agent} has task {id} and works on it in the background. {RESULT_IS_SENT} {END_YOUR_TURN}{besides}"
            );
            Ok(text.into())
        }
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct StopBackgroundAgentArgs {
    /// The id of the task, as run_background_agent has returned it.
    pub(super) task_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct ViewBackgroundAgentArgs {
    /// The id of the task, as run_background_agent has returned it.
    pub(super) task_id: String,
    /// Show the output from this character on.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    pub(super) offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    pub(super) limit: Option<f64>,
    /// Show only the last characters, this many.
    #[serde(default, deserialize_with = "fn_tool::number")]
    #[schemars(with = "Option<u64>")]
    pub(super) tail: Option<f64>,
}

impl ViewBackgroundAgentArgs {
    /// The requested part of the output.
    pub(super) fn part(&self) -> Option<TextRange> {
        TextRange::from_args(self.offset, self.limit, TextRange::tail(self.tail))
    }
}

async fn view(args: ViewBackgroundAgentArgs, cx: &CallContext) -> ToolCallResult {
    task_ops::view_task(&args.task_id, args.part(), VIEW, cx).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub(super) struct SendBackgroundAgentArgs {
    /// The id of the task, as run_background_agent has returned it.
    pub(super) task_id: String,
    /// What the agent should know.
    pub(super) message: String,
}

async fn send(args: SendBackgroundAgentArgs, cx: &CallContext) -> ToolCallResult {
    let note = LetterContent { text: args.message, summary: None };
    Ok(task_ops::send_message(cx, &args.task_id, note).await?.1.into())
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct WaitBackgroundAgentsArgs {
    /// The ids of the tasks, all in one call.
    #[serde(deserialize_with = "fn_tool::names")]
    task_ids: Vec<String>,
    /// The most seconds to wait: 300 if left out, at most 3600.
    #[serde(default, deserialize_with = "fn_tool::number")]
    timeout: Option<f64>,
    /// Wait until all tasks have ended (the default), or any one.
    #[serde(default, deserialize_with = "fn_tool::choice")]
    mode: Option<WaitModeArg>,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum WaitModeArg {
    All,
    Any,
}

/// The reply to a wait. The names and the order of its fields are part of the tool's interface.
#[derive(Serialize)]
pub(super) struct WaitReply {
    pub(super) all_done: bool,
    pub(super) timed_out: bool,
    pub(super) error: Option<String>,
    pub(super) tasks: Vec<WaitedTask>,
    /// What to do next, if all of the caller's tasks have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

#[derive(Default, Serialize)]
pub(super) struct WaitedTask {
    pub(super) task_id: String,
    pub(super) status: &'static str,
    pub(super) done: bool,
    pub(super) output: String,
    pub(super) error: Option<String>,
    pub(super) truncated: bool,
    pub(super) tools_used: u32,
}

impl WaitedTask {
    pub(super) fn from_snapshot(snapshot: &Snapshot, room: usize) -> WaitedTask {
        let TaskState { id, status, .. } = snapshot.state;
        let (output, truncated) =
            task_text::output_text(snapshot, None, room, |from| task_text::read_on(VIEW, id, from));
        WaitedTask {
            task_id: id.to_string(),
            status: status.as_str(),
            done: status.is_final(),
            output,
            error: task_text::failure_reason(&snapshot.state),
            truncated,
            tools_used: snapshot.state.calls,
        }
    }

    pub(super) fn not_found(typed: &str, why: String) -> WaitedTask {
        let task_id = typed.chars().take(40).collect();
        WaitedTask { task_id, status: "not_found", error: Some(why), ..WaitedTask::default() }
    }
}

/// The caller's own tasks, in order, at most as many of the newest as one call waits for.
async fn own_task_ids(cx: &CallContext) -> Result<Vec<String>, ToolError> {
    let below = cx.dispatcher.list(&cx.caller).await?;
    let own = below.iter().filter(|state| state.parent == Some(cx.caller.task));
    let own: Vec<String> = own.map(|state| state.id.to_string()).collect();
    Ok(own[own.len().saturating_sub(MOST_TASKS)..].to_vec())
}

async fn wait(mut args: WaitBackgroundAgentsArgs, cx: &CallContext) -> ToolCallResult {
    if args.task_ids.is_empty() {
        // A model that names none means all of its tasks.
        args.task_ids = own_task_ids(cx).await?;
    }
    if args.task_ids.is_empty() {
        let why =
            "`task_ids` is empty, and you have no tasks to wait for: start one with run_background_agent";
        return Err(ToolError::Retry(why.to_owned()));
    }
    if args.task_ids.len() > MOST_TASKS {
        let why =
            format!("one call waits for at most {MOST_TASKS} tasks: name fewer, and call again for the rest");
        return Err(ToolError::Retry(why));
    }
    let (time, clamped) = fn_tool::wait_timeout("timeout", args.timeout);
    let join = match args.mode {
        Some(WaitModeArg::Any) => WaitMode::Any,
        _ => WaitMode::All,
    };
    let looked_up = cx.dispatcher.find(&cx.caller, &args.task_ids).await?;
    let mut states: Vec<TaskState> = Vec::new();
    for state in looked_up.iter().flatten() {
        if states.iter().all(|had| had.id != state.id) {
            states.push(state.clone());
        }
    }
    if states.is_empty() {
        let first = looked_up.into_iter().find_map(Result::err);
        return Err(first.map_or_else(|| ToolError::Retry("no such task".to_owned()), ToolError::from));
    }
    let waited = task_ops::wait_for_tasks(cx, &states, join, Some(duration_from_secs(time))).await?;

    let mut notes: Vec<String> = clamped.into_iter().collect();
    let (mut reported, mut collected) = (Vec::new(), Vec::new());
    let mut tasks = Vec::new();
    for (typed, found) in args.task_ids.iter().zip(&looked_up) {
        let known = found.as_ref().map(|state| state.id);
        match known {
            Err(why) => tasks.push(WaitedTask::not_found(typed, why.to_string())),
            Ok(id) if reported.contains(&id) => {}
            Ok(id) => {
                reported.push(id);
                let snapshot = waited.tasks.iter().find(|snapshot| snapshot.state.id == id);
                let entry = snapshot
                    .map(|snapshot| WaitedTask::from_snapshot(snapshot, bytes_per_output(states.len())));
                collected.extend(entry.as_ref().filter(|entry| entry.done && !entry.truncated).map(|_| id));
                tasks.extend(entry);
            }
        }
    }
    let lost = looked_up.iter().filter(|found| found.is_err()).count();
    if lost > 0 {
        notes.push(format!(
            "{lost} of the ids you named are not tasks of yours: see the entries that say not_found."
        ));
    }
    if waited.timed_out {
        notes.push(format!(
            "The time ({time} seconds) is up, and nothing was stopped. \
             What is not done runs on; its result will be sent to you as a message: no need to wait again."
        ));
    }
    let all_done = tasks.iter().all(|task| task.done);
    let note = if all_done { task_ops::all_ended(cx).await? } else { None };
    let all_ended = note.is_some();
    let settled = WaitReply {
        all_done,
        timed_out: waited.timed_out,
        error: (!notes.is_empty()).then(|| notes.join(" ")),
        tasks,
        note,
    };
    Ok(ToolOutput { all_ended, ..task_ops::json_output_with(&settled, collected, lost > 0)? })
}
