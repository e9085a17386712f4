//! The `background_agents` tools for clients outside of the team, such as MCP clients: names, arguments and
//! texts. Nothing here touches the store.
//!
//! An agent's results are sent to it. A client has to fetch them, so the texts differ where that matters.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::background_agents::{
    MOST_TASKS, RunBackgroundAgentArgs, SendBackgroundAgentArgs, StopBackgroundAgentArgs, VIEW,
    ViewBackgroundAgentArgs, WaitModeArg, WaitedTask,
};
use super::fn_tool::{self, NoArgs, duration_from_secs, non_blank};
use super::task_ops::{LOOK_THEN, send_receipt, stop_receipt};
use super::task_text::{self, FETCH_RESULT, TaskIdField, TaskTable, TextReader};
use super::text_paging::{TextRange, bytes_per_output};
use crate::dispatch::{AgentInfo, SendReceipt, WaitMode};
use crate::entry::{ExpectedAnswer, Order, Question};
use crate::id::{QuestionId, TaskId};
use crate::model::ToolSpec;
use crate::snapshot::Snapshot;
use crate::task::TaskState;
use crate::tool::{ToolError, arguments_schema, parse_arguments};
use crate::transcript::describe_question;

/// How long a call waits by default. Below the shortest time limit of a client (60 s).
pub const DEFAULT_WAIT: Duration = Duration::from_secs(45);
/// How long a call waits at most. Below the hard time limit of Codex (300 s).
pub const LONGEST_WAIT: Duration = Duration::from_secs(240);
/// The longest name of an `ask_` tool: clients put the name of their server before it.
const LONGEST_NAME: usize = 40;

/// A tool that clients can call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ClientTool {
    /// Its name, description and arguments.
    pub spec: ToolSpec,
    /// Whether it changes nothing.
    pub read_only: bool,
}

/// A parsed call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientCall {
    /// Start a task and return its id.
    Run(Order),
    /// Start a task and wait for its answer, at most this long.
    Ask(Order, Duration),
    /// List the tasks.
    List,
    /// Show a task.
    View(String, ViewRange),
    /// Stop a task.
    Stop(String),
    /// Wait for tasks.
    Wait {
        /// Their ids, as they were typed.
        tasks: Vec<String>,
        /// For all of them, or any.
        mode: WaitMode,
        /// At most this long.
        timeout: Duration,
    },
    /// Send a message to a task.
    Send {
        /// Its id.
        task: String,
        /// The message.
        message: String,
    },
    /// Answer a question of a task.
    Answer {
        /// Its id.
        task: String,
        /// The question, if it was named.
        question: Option<String>,
        /// The answer.
        answer: String,
    },
}

/// The part of a task's output that a client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewRange(Option<TextRange>);

/// Why a call cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientCallError {
    /// There is no such tool.
    #[error("there is no tool '{0}'")]
    UnknownTool(String),
    /// The arguments are wrong.
    #[error("{0}")]
    Arguments(String),
}

impl From<ToolError> for ClientCallError {
    fn from(error: ToolError) -> Self {
        ClientCallError::Arguments(error.to_string())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct AskArgs {
    /// What to do or to find out, as full sentences in plain words, like a message to a colleague who sees nothing else. Not a command.
    task: String,
    /// What the answer should look like.
    expected_output: Option<String>,
    /// The most seconds to wait for the answer: 45 if left out, at most 240. The task goes on after that.
    #[serde(default, deserialize_with = "fn_tool::number")]
    wait: Option<f64>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ClientWaitArgs {
    /// The ids of the tasks, all in one call.
    #[serde(deserialize_with = "fn_tool::names")]
    task_ids: Vec<String>,
    /// The most seconds to wait: 45 if left out, at most 240.
    #[serde(default, deserialize_with = "fn_tool::number")]
    timeout: Option<f64>,
    /// Wait until all tasks have ended (the default), or any one.
    #[serde(default, deserialize_with = "fn_tool::choice")]
    mode: Option<WaitModeArg>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct AnswerToolArgs {
    /// The id of the task that asks.
    task_id: String,
    /// The id of the question, such as 2.0.0. May be left out if the task has only one open question.
    question: Option<String>,
    /// The user's answer. An approval is `yes`, `no`, `no REASON` or `always`; other questions take text, or JSON if they
    /// say so.
    answer: String,
}

/// The tools for a team with these agents: those of `background_agents`, one `ask_` tool for each agent, and
/// `answer`.
pub fn client_tools(agents: &[AgentInfo]) -> Vec<ClientTool> {
    let tool = |name: &str, read_only: bool, description: String, parameters: serde_json::Value| ClientTool {
        spec: ToolSpec { name: name.to_owned(), description, parameters },
        read_only,
    };
    let mut run = arguments_schema::<RunBackgroundAgentArgs>();
    if let Some(properties) = run["properties"].as_object_mut() {
        // An agent that repeats itself is told so; a client decides for itself.
        properties.remove("again");
        if let Some(agent) = properties.get_mut("agent").and_then(serde_json::Value::as_object_mut) {
            let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
            agent.insert("enum".to_owned(), names.into());
        }
    }
    let mut tools = vec![
        tool(
            "run_background_agent",
            false,
            format!(
                "Starts an agent on a task in the background. The task goes on even if this client is closed. \
                 If your client turns the call into a background task, end your turn: the result comes by itself. \
                 Otherwise this returns the task's id at once: start all tasks first, then call wait_background_agents \
                 once with all ids. Do not poll.\nAgents:\n{}",
                task_text::agent_list(agents)
            ),
            run,
        ),
        tool(
            "list_background_agents",
            true,
            "Lists the tasks of this team that clients have started, oldest first: id, agent, status, how long, tokens, \
             what it does now, task. Use it to find the tasks of an earlier session again."
                .to_owned(),
            arguments_schema::<NoArgs>(),
        ),
        tool(
            VIEW,
            true,
            "Shows one task: the output so far of a running one, the result of one that has ended, and its open questions. \
             Long output is shown in parts: use offset and limit, or tail."
                .to_owned(),
            arguments_schema::<ViewBackgroundAgentArgs>(),
        ),
        tool(
            "stop_background_agent",
            false,
            "Stops a task and every task that it started. What it had by then is kept.".to_owned(),
            arguments_schema::<StopBackgroundAgentArgs>(),
        ),
        tool(
            "wait_background_agents",
            true,
            "Waits until tasks have ended and returns their results as JSON, in the order of task_ids. Waits at most 240 \
             seconds; a timeout stops nothing: call again, or come back later. all_done does not mean success: check each \
             status. needs_you lists questions for the user: ask the user, then call answer."
                .to_owned(),
            arguments_schema::<ClientWaitArgs>(),
        ),
        tool(
            "send_background_agent",
            false,
            "Sends a message to a task. A running one reads it before its next step; \
             one that has ended is continued by a new task, whose id is returned."
                .to_owned(),
            arguments_schema::<SendBackgroundAgentArgs>(),
        ),
        tool(
            "answer",
            false,
            "Answers an approval request or a question of a task. These are decisions of the user: \
             show the user the question and pass on what they say. Never decide yourself."
                .to_owned(),
            arguments_schema::<AnswerToolArgs>(),
        ),
    ];
    for (name, agent) in ask_tools(agents) {
        let what = match agent.description.trim() {
            "" => String::new(),
            what => format!(" {what}"),
        };
        tools.push(tool(
            &name,
            false,
            format!(
                "Gives the agent {} a task and returns its answer.{what} If the answer takes longer than `wait`, this returns the \
                 task's id, and the task goes on.",
                agent.name
            ),
            arguments_schema::<AskArgs>(),
        ));
    }
    tools
}

/// The `ask_` tools, with the agent of each. Every name is made of letters, digits, `_` and `-`, and is there
/// once.
fn ask_tools(agents: &[AgentInfo]) -> Vec<(String, &AgentInfo)> {
    let mut tools: Vec<(String, &AgentInfo)> = Vec::new();
    for agent in agents {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let base: String = agent.name.as_str().chars().map(plain).take(LONGEST_NAME).collect();
        let mut name = format!("ask_{base}");
        let mut nth = 2;
        while tools.iter().any(|(taken, _)| *taken == name) {
            name = format!("ask_{base}_{nth}");
            nth += 1;
        }
        tools.push((name, agent));
    }
    tools
}

/// Parses a call of one of the [`client_tools`]. Fails if there is no such tool, or if its arguments are wrong.
pub fn parse_client_call(
    name: &str,
    arguments: &str,
    agents: &[AgentInfo],
) -> Result<ClientCall, ClientCallError> {
    Ok(match name {
        "run_background_agent" => {
            let args: RunBackgroundAgentArgs = parse_arguments(arguments)?;
            ClientCall::Run(args.order(agents)?)
        }
        "list_background_agents" => ClientCall::List,
        VIEW => {
            let args: ViewBackgroundAgentArgs = parse_arguments(arguments)?;
            ClientCall::View(args.task_id.clone(), ViewRange(args.part()))
        }
        "stop_background_agent" => {
            ClientCall::Stop(parse_arguments::<StopBackgroundAgentArgs>(arguments)?.task_id)
        }
        "wait_background_agents" => {
            let args: ClientWaitArgs = parse_arguments(arguments)?;
            if args.task_ids.is_empty() || args.task_ids.len() > MOST_TASKS {
                let why = format!("`task_ids` has to name 1 to {MOST_TASKS} tasks");
                return Err(ClientCallError::Arguments(why));
            }
            let mode =
                if matches!(args.mode, Some(WaitModeArg::Any)) { WaitMode::Any } else { WaitMode::All };
            ClientCall::Wait { tasks: args.task_ids, mode, timeout: wait_time(args.timeout) }
        }
        "send_background_agent" => {
            let args: SendBackgroundAgentArgs = parse_arguments(arguments)?;
            ClientCall::Send { task: args.task_id, message: args.message }
        }
        "answer" => {
            let args: AnswerToolArgs = parse_arguments(arguments)?;
            let question = non_blank(args.question);
            ClientCall::Answer { task: args.task_id, question, answer: args.answer }
        }
        _ => {
            let tools = ask_tools(agents);
            let Some((_, agent)) = tools.iter().find(|(tool, _)| tool == name) else {
                return Err(ClientCallError::UnknownTool(name.chars().take(100).collect()));
            };
            let args: AskArgs = parse_arguments(arguments)?;
            let expected_output = non_blank(args.expected_output);
            let order = Order { expected_output, ..Order::new(agent.name.clone(), args.task) };
            ClientCall::Ask(order, wait_time(args.wait))
        }
    })
}

/// How long to wait: what was asked for, within bounds. 0 and negative numbers mean the default, because
/// models fill them in.
fn wait_time(asked: Option<f64>) -> Duration {
    asked.filter(|n| *n > 0.0).map_or(DEFAULT_WAIT, duration_from_secs).min(LONGEST_WAIT)
}

/// A question of a task that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientQuestion {
    /// The task that asks.
    pub task: TaskId,
    /// The question's id.
    pub question: QuestionId,
    /// The question.
    pub asks: Question,
}

impl ClientQuestion {
    /// The question and how to answer it, as text.
    pub fn text(&self) -> String {
        let ClientQuestion { task, question, asks } = self;
        format!("{task} asks (question {question}): {}\n{}", describe_question(asks), self.how())
    }

    fn how(&self) -> String {
        let ClientQuestion { task, question, asks } = self;
        let words = match &asks.wants {
            ExpectedAnswer::Leave { .. } => "yes, no, no REASON or always".to_owned(),
            ExpectedAnswer::Words { schema: None } => "the user's answer".to_owned(),
            ExpectedAnswer::Words { schema: Some(schema) } => {
                format!("the user's answer as JSON that matches {schema}")
            }
        };
        format!(
            r#"Ask the user, then call answer {{"task_id": "{task}", "question": "{question}", "answer": …}} with {words}."#
        )
    }
}

#[derive(Serialize)]
struct QuestionRow {
    task_id: TaskId,
    question: QuestionId,
    text: String,
    how_to_answer: String,
}

#[derive(Serialize)]
struct ClientWaitReply {
    all_done: bool,
    timed_out: bool,
    note: Option<String>,
    tasks: Vec<WaitedTask>,
    needs_you: Vec<QuestionRow>,
}

/// The answer to a wait.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WaitSummary {
    /// The tasks, in the order in which they were named; or why one of them was not found.
    pub tasks: Vec<Result<Box<Snapshot>, (String, String)>>,
    /// Questions of these tasks and of those below them.
    pub questions: Vec<ClientQuestion>,
    /// Whether the time was up before the wait was over.
    pub timed_out: bool,
}

impl WaitSummary {
    /// The answer as JSON text.
    pub fn text(&self) -> String {
        let room = bytes_per_output(self.tasks.len());
        let tasks: Vec<WaitedTask> = self
            .tasks
            .iter()
            .map(|task| match task {
                Ok(snapshot) => WaitedTask::from_snapshot(snapshot, room),
                Err((typed, why)) => WaitedTask::not_found(typed, why.clone()),
            })
            .collect();
        let row = |question: &ClientQuestion| QuestionRow {
            task_id: question.task,
            question: question.question,
            text: describe_question(&question.asks),
            how_to_answer: question.how(),
        };
        let all_done = tasks.iter().all(|task| task.done);
        let note = match (self.questions.is_empty(), all_done) {
            (false, _) => Some("Some tasks wait for the user: see needs_you.".to_owned()),
            (true, false) if self.timed_out => Some(
                "The time is up, and nothing was stopped. Call wait_background_agents again, or end your turn and come \
                 back later: the ids stay valid."
                    .to_owned(),
            ),
            _ => None,
        };
        let reply = ClientWaitReply {
            all_done,
            timed_out: self.timed_out,
            note,
            tasks,
            needs_you: self.questions.iter().map(row).collect(),
        };
        serde_json::to_string(&reply).unwrap_or_default()
    }
}

/// The list of tasks.
pub fn list_text(states: &[TaskState], now: Timestamp) -> String {
    TaskTable::new(states, None, TaskIdField::Task, now).to_string()
}

/// One task, with a part of its output and its open questions.
pub fn view_text(
    snapshot: &Snapshot,
    part: ViewRange,
    questions: &[ClientQuestion],
    now: Timestamp,
) -> String {
    let id = snapshot.state.id;
    let how = |from| task_text::read_on(VIEW, id, from);
    let (mut text, _) = task_text::task_details(snapshot, part.0, now, TextReader::Client, how);
    for question in questions {
        text.push_str("\n\n");
        text.push_str(&question.text());
    }
    text
}

/// The answer to a start.
pub fn started_text(state: &TaskState, created: bool) -> String {
    let TaskState { id, agent, .. } = state;
    match created {
        true => format!("{id}\n{agent} has task {id} and works on it in the background. {FETCH_RESULT}"),
        false => format!(
            "{id}\nThis call was made before: it is task {id} of {agent}, which is {}. {FETCH_RESULT}",
            state.status
        ),
    }
}

/// The answer to an `ask_` call whose task has not ended in time.
pub fn still_running_text(state: &TaskState, questions: &[ClientQuestion], now: Timestamp) -> String {
    let TaskState { id, agent, .. } = state;
    let mut text = format!(
        "{id}\nTask {id} of {agent} has not ended yet ({}). It goes on in the background. {FETCH_RESULT}",
        task_text::format_duration(state.elapsed(now))
    );
    for question in questions {
        text.push_str("\n\n");
        text.push_str(&question.text());
    }
    text
}

/// The answer to a stop; `before` is the task as it was before.
pub fn stop_text(before: &TaskState) -> String {
    stop_receipt(before, LOOK_THEN).1
}

/// The answer to a message.
pub fn send_text(typed: &str, sent: &SendReceipt) -> String {
    send_receipt(typed, sent, FETCH_RESULT)
}

/// What a task does now, in one line.
pub fn progress_text(state: &TaskState, below: usize, now: Timestamp) -> String {
    use crate::transcript::{Activity, pluralize};
    let calls = state.calling.iter().map(|(_, tool)| &**tool).collect::<Vec<_>>().join(", ");
    let (doing, _) = Activity::from_state(state, &calls, now).words(state.status);
    let mut text = format!("{} {doing} · {}", state.agent, task_text::format_duration(state.elapsed(now)));
    if below > 0 {
        text.push_str(&format!(" · {} below it not ended", pluralize(below, "task")));
    }
    text
}

/// Why a task ended without an answer.
pub fn failure_text(state: &TaskState) -> Option<String> {
    task_text::failure_reason(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents() -> Vec<AgentInfo> {
        ["lead", "web searcher", "web_searcher"]
            .map(|name| AgentInfo { name: name.into(), description: String::new() })
            .to_vec()
    }

    #[test]
    fn every_agent_has_a_tool_of_its_own_with_a_name_that_clients_accept() {
        let names: Vec<String> =
            client_tools(&agents()).into_iter().map(|tool| tool.spec.name).skip(7).collect();
        assert_eq!(names, ["ask_lead", "ask_web_searcher", "ask_web_searcher_2"]);
        let call = parse_client_call("ask_web_searcher_2", r#"{"task": "Look."}"#, &agents());
        let Ok(ClientCall::Ask(order, wait)) = call else { panic!("{call:?}") };
        assert_eq!((order.agent, wait), (Some("web_searcher".into()), DEFAULT_WAIT));
    }

    #[test]
    fn waits_are_bounded_whatever_is_asked_for() {
        for (asked, wait) in [
            (None, DEFAULT_WAIT),
            (Some(0.0), DEFAULT_WAIT),
            (Some(-3.0), DEFAULT_WAIT),
            (Some(7.0), Duration::from_secs(7)),
            (Some(1e9), LONGEST_WAIT),
            (Some(f64::NAN), DEFAULT_WAIT),
        ] {
            assert_eq!(wait_time(asked), wait, "{asked:?}");
        }
    }

    #[test]
    fn wrong_calls_name_what_is_wrong() {
        let error = |name: &str, arguments: &str| {
            parse_client_call(name, arguments, &agents()).unwrap_err().to_string()
        };
        assert_eq!(error("nonsense", "{}"), "there is no tool 'nonsense'");
        assert!(error("ask_lead", "{}").contains("task"));
        assert!(error("wait_background_agents", r#"{"task_ids": []}"#).contains("task_ids"));
    }
}
