//! The dialect of team files: `run_background_agent` and its kin.

use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errand;
use super::excerpt::{Part, share};
use super::verb::{self, Answer, Nothing, bound, count, filled, seconds, verb};
use super::wording::{self, EXAMPLE, GO_ON, Named, PUSHED};
use super::{Patron, Toolset, ToolsetError};
use crate::dispatch::{Card, Join, Note};
use crate::entry::{Budget, Order};
use crate::snapshot::Snapshot;
use crate::task::Head;
use crate::tool::{CallContext, DynTool, Manner, ToolError};

const NAME: &str = "background_agents";
/// The tool that shows the output of a task.
const VIEW: &str = "view_background_agent";
/// How many tasks one call waits for.
const MOST_TASKS: usize = 100;

/// The toolset `background_agents`: sub-agents that are run, looked at, written to, waited for and stopped.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackgroundAgents;

impl Toolset for BackgroundAgents {
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
            "run_background_agent",
            "Use wait_background_agents (with all the ids at once)",
            &format!(r#"run_background_agent {{"agent": "{}", "task": "{EXAMPLE}"}}"#, first.name),
        ))
    }
}

fn tools(cards: &[Card]) -> Vec<Arc<dyn DynTool>> {
    let mine: Arc<[Card]> = cards.into();
    vec![
        verb(
            "run_background_agent",
            Manner::INWARD,
            format!(
                "Starts a sub-agent on a task in the background and returns the task's id at once. \
                 When the task ends, its result is sent to you as a message.\nAgents:\n{}",
                wording::agents(cards)
            ),
            move |args: Run, cx| {
                let mine = mine.clone();
                Box::pin(async move { run(args, &mine, cx).await })
            },
        )
        .offering("agent", cards)
        .tool(),
        verb(
            "list_background_agents",
            Manner::LOOKS,
            "Lists your tasks, oldest first: id, agent, status, how long, tokens, what it does now, task.",
            |_: Nothing, cx| {
                Box::pin(async move { Ok(errand::list(cx, Named::Task).await?.to_string().into()) })
            },
        )
        .tool(),
        verb(
            VIEW,
            Manner::LOOKS,
            "Shows one task: the live output of a running one, the result of one that has ended. \
             Long output is shown in parts: use offset and limit, or tail. \
             Not needed to get a result: that is sent to you as a message.",
            |args: View, cx| Box::pin(view(args, cx)),
        )
        .tool(),
        verb(
            "stop_background_agent",
            Manner::INWARD,
            "Stops a task and every task that it started. What it had by then is kept.",
            |args: OneTask, cx| Box::pin(async move { Ok(errand::stop(cx, &args.task_id).await?.2.into()) }),
        )
        .tool(),
        verb(
            "wait_background_agents",
            Manner::LOOKS,
            "Waits until your tasks have ended and returns their results as JSON, in the order of task_ids. \
             Only for when you cannot go on without them: if you do not wait, they are sent to you as messages. \
             all_done does not mean success: check each status. A timeout stops nothing.",
            |args: Waits, cx| Box::pin(wait(args, cx)),
        )
        .tool(),
        verb(
            "send_background_agent",
            Manner::INWARD,
            "Sends a message to a task. A running one reads it before its next step; \
             one that has ended is continued by a new task, whose id is returned.",
            |args: Send, cx| Box::pin(send(args, cx)),
        )
        .tool(),
    ]
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Run {
    /// The name of the sub-agent.
    agent: String,
    /// What it should do, with all that it needs to know: it does not see this conversation.
    task: String,
    /// What the result should look like.
    expected_output: Option<String>,
    /// Another model than the agent's own.
    model: Option<String>,
    /// The most replies the agent may take. 0 is its default.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u32>")]
    max_turns: Option<f64>,
    /// The most seconds the task may take. 0 is no limit.
    #[serde(default, deserialize_with = "verb::number")]
    timeout: Option<f64>,
    /// What the task may use at most.
    budget: Option<Allowance>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Allowance {
    /// Tokens, read and written.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    max_tokens: Option<f64>,
    /// Dollars.
    #[serde(default, deserialize_with = "verb::number")]
    max_cost: Option<f64>,
    /// Seconds.
    #[serde(default, deserialize_with = "verb::number")]
    max_time: Option<f64>,
}

impl Allowance {
    fn budget(self) -> Result<Budget, ToolError> {
        Ok(Budget {
            tokens: count("max_tokens", self.max_tokens)?,
            cost: count("max_cost", self.max_cost.map(|dollars| dollars * 1e6))?,
            time: bound("max_time", self.max_time)?.map(seconds),
        })
    }
}

async fn run(args: Run, mine: &[Card], cx: &CallContext) -> Answer {
    let agent = errand::agent(mine, &args.agent);
    let order = Order {
        expected_output: filled(args.expected_output),
        model: filled(args.model),
        max_turns: verb::turns(args.max_turns)?,
        timeout: bound("timeout", args.timeout)?.map(seconds),
        budget: args.budget.map(Allowance::budget).transpose()?.unwrap_or_default(),
        ..Order::new(agent.clone(), args.task)
    };
    let id = errand::launch(cx, order).await?;
    Ok(format!("{id}\n{agent} has task {id} and works on it in the background. {PUSHED} {GO_ON}").into())
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OneTask {
    /// The id of the task, such as t-7f3k2.
    task_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct View {
    /// The id of the task, such as t-7f3k2.
    task_id: String,
    /// Show the output from this character on.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    offset: Option<f64>,
    /// Show at most this many characters.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// Show only the last characters, this many.
    #[serde(default, deserialize_with = "verb::number")]
    #[schemars(with = "Option<u64>")]
    tail: Option<f64>,
}

async fn view(args: View, cx: &CallContext) -> Answer {
    let part = Part::asked(args.offset, args.limit, Part::tail(args.tail));
    errand::view(&args.task_id, part, VIEW, cx).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Send {
    /// The id of the task, such as t-7f3k2.
    task_id: String,
    /// What the agent should know.
    message: String,
}

async fn send(args: Send, cx: &CallContext) -> Answer {
    let note = Note { text: args.message, summary: None };
    Ok(errand::send(cx, &args.task_id, note).await?.1.into())
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Waits {
    /// The ids of the tasks, all in one call.
    #[serde(deserialize_with = "verb::names")]
    task_ids: Vec<String>,
    /// The most seconds to wait: 300 if left out, at most 3600.
    #[serde(default, deserialize_with = "verb::number")]
    timeout: Option<f64>,
    /// Wait until all tasks have ended (the default), or any one.
    #[serde(default, deserialize_with = "verb::choice")]
    mode: Option<Mode>,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    All,
    Any,
}

/// What a wait answers. The fields, their names and their order are what users of this dialect know.
#[derive(Serialize)]
struct Settled {
    all_done: bool,
    timed_out: bool,
    error: Option<String>,
    tasks: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    task_id: String,
    status: &'static str,
    done: bool,
    output: String,
    error: Option<String>,
    truncated: bool,
}

impl Entry {
    fn of(snapshot: &Snapshot, room: usize) -> Entry {
        let Head { id, status, .. } = snapshot.head;
        let (output, truncated) =
            wording::output(snapshot, None, room, |from| wording::read_on(VIEW, id, from));
        Entry {
            task_id: id.to_string(),
            status: status.as_str(),
            done: status.is_final(),
            output,
            error: wording::error(&snapshot.head),
            truncated,
        }
    }

    fn not_found(typed: &str, why: String) -> Entry {
        let task_id = typed.chars().take(40).collect();
        Entry {
            task_id,
            status: "not_found",
            done: false,
            output: String::new(),
            error: Some(why),
            truncated: false,
        }
    }
}

async fn wait(args: Waits, cx: &CallContext) -> Answer {
    if args.task_ids.is_empty() {
        let why = "`task_ids` is empty: name the tasks to wait for, by the ids that \
                   run_background_agent gave you";
        return Err(ToolError::Retry(why.to_owned()));
    }
    if args.task_ids.len() > MOST_TASKS {
        let why =
            format!("one call waits for at most {MOST_TASKS} tasks: name fewer, and call again for the rest");
        return Err(ToolError::Retry(why));
    }
    let (time, clamped) = verb::patience("timeout", args.timeout);
    let join = match args.mode {
        Some(Mode::Any) => Join::Any,
        _ => Join::All,
    };
    let looked_up = errand::look_up(cx, &args.task_ids).await?;
    let mut heads: Vec<Head> = Vec::new();
    for head in looked_up.iter().flatten() {
        if heads.iter().all(|had| had.id != head.id) {
            heads.push(head.clone());
        }
    }
    if heads.is_empty() {
        let first = looked_up.into_iter().find_map(Result::err);
        return Err(first.map_or_else(|| ToolError::Retry("no such task".to_owned()), ToolError::from));
    }
    let waited = errand::wait_for(cx, &heads, join, Some(seconds(time))).await?;

    let mut notes: Vec<String> = clamped.into_iter().collect();
    let (mut told, mut collected) = (Vec::new(), Vec::new());
    let mut tasks = Vec::new();
    for (typed, found) in args.task_ids.iter().zip(&looked_up) {
        let known = found.as_ref().map(|head| head.id);
        match known {
            Err(why) => tasks.push(Entry::not_found(typed, why.to_string())),
            Ok(id) if told.contains(&id) => {}
            Ok(id) => {
                told.push(id);
                let snapshot = waited.tasks.iter().find(|snapshot| snapshot.head.id == id);
                let entry = snapshot.map(|snapshot| Entry::of(snapshot, share(heads.len())));
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
    let settled = Settled {
        all_done: tasks.iter().all(|task| task.done),
        timed_out: waited.timed_out,
        error: (!notes.is_empty()).then(|| notes.join(" ")),
        tasks,
    };
    errand::json_with(&settled, collected, lost > 0)
}
