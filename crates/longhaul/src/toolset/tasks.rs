//! Tasks of the project in a file: with priorities and dependencies, for whoever works on it, today or next week.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::derived::ids_of;
use super::verb::{self, Answer, Nothing, filled, verb};
use super::{Patron, Toolset, ToolsetError};
use crate::tool::{Aliases, CallContext, DynTool, Manner, ToolError};
use board::{Board, Change, Priority, Status, Task};
use file::{TaskFile, description_in};

mod board;
mod file;

/// The toolset `tasks`: `create_task`, `get_task`, `update_task`, `delete_task`, `list_tasks`, `next_task`,
/// `add_dependency` and `remove_dependency`, on a JSON file. Several agents and processes may use one file at once.
#[derive(Debug, Clone)]
pub struct Tasks {
    path: Arc<Path>,
}

impl Tasks {
    /// Tasks in this file: below the task's working directory, unless the path is absolute.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Tasks { path: path.into().into() }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks::new("tasks.json")
    }
}

impl Toolset for Tasks {
    fn name(&self) -> &str {
        "tasks"
    }

    fn open<'a>(&'a self, _patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        let tools = self.tools();
        Box::pin(async { Ok(tools) })
    }

    fn instruction(&self, _patron: &Patron) -> Option<String> {
        let text = "The tasks of the project are kept in a file and outlive this conversation. Each has a priority \
                    (critical, high, medium, low), a status (pending, in_progress, done, blocked) and may depend on \
                    others: while one of those is not done, it is blocked. `next_task` says what to work on.";
        Some(text.to_owned())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct CreateArgs {
    /// The task in a few words.
    title: String,
    /// What is to be done. Not needed where `path` is given.
    description: Option<String>,
    /// A text file, below the working directory, that is the description.
    path: Option<String>,
    /// critical, high, medium or low; medium if left out.
    priority: Option<String>,
    /// The ids of tasks that must be done first.
    #[serde(default, deserialize_with = "verb::names")]
    dependencies: Vec<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct IdArgs {
    /// The id of the task.
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct UpdateArgs {
    /// The id of the task.
    id: String,
    /// A new title.
    title: Option<String>,
    /// A new description.
    description: Option<String>,
    /// A text file, below the working directory, that is the new description.
    path: Option<String>,
    /// A new priority: critical, high, medium or low.
    priority: Option<String>,
    /// A new status: pending, in_progress, done or blocked.
    status: Option<String>,
    /// The ids of all tasks that must be done first; they replace those that it depends on now.
    #[serde(default, deserialize_with = "some_names")]
    dependencies: Option<Vec<String>>,
}

fn some_names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    match Option::<Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(value) => verb::names(value).map(Some).map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ListArgs {
    /// Only tasks of this status: pending, in_progress, done or blocked.
    status: Option<String>,
    /// Only tasks of this priority: critical, high, medium or low.
    priority: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkArgs {
    /// The task that waits.
    task_id: String,
    /// The task that must be done first.
    depends_on_id: String,
}

/// What models also call them.
const LINK_ALIASES: Aliases = &[("task_id", "taskId"), ("depends_on_id", "dependsOnId")];

impl Tasks {
    fn tools(&self) -> Vec<Arc<dyn DynTool>> {
        let read = Manner::READ_ONLY;
        let write = Manner::INWARD;
        let path = || self.path.clone();
        vec![
            {
                let path = path();
                let text =
                    "Creates a task, with a title and a description, or a file that is the description.";
                verb("create_task", write, text, move |args: CreateArgs, context| {
                    at_file(&path, context, move |file, context| create(file, args, &context))
                })
                .tool()
            },
            {
                let path = path();
                let text = "Shows one task whole. `effectiveStatus` is blocked while something it depends on is not done.";
                verb("get_task", read, text, move |args: IdArgs, context| {
                    at_file(&path, context, move |file, _| {
                        let board = file.read()?;
                        let task = board.get(args.id.trim()).map_err(ToolError::Retry)?;
                        Ok(board.shown(task))
                    })
                })
                .tool()
            },
            {
                let path = path();
                let text = "Changes a task: title, description, priority, status or dependencies. What is left out stays.";
                verb("update_task", write, text, move |args: UpdateArgs, context| {
                    at_file(&path, context, move |file, context| update(file, args, &context))
                })
                .tool()
            },
            {
                let path = path();
                let text = "Deletes a task. Tasks that depended on it no longer do.";
                // Not to be repeated: another task could have the id by then.
                verb("delete_task", Manner::default(), text, move |args: IdArgs, context| {
                    at_file(&path, context, move |file, _| {
                        let id = args.id.trim();
                        file.change(|board| board.delete(id).map_err(ToolError::Retry))?;
                        Ok(json!({"deleted": id}))
                    })
                })
                .tool()
            },
            {
                let path = path();
                let text = "Lists tasks, the most urgent first and blocked ones last.";
                verb("list_tasks", read, text, move |args: ListArgs, context| {
                    at_file(&path, context, move |file, _| list(&file.read()?, args))
                })
                .tool()
            },
            {
                let path = path();
                let text =
                    "Shows the most urgent task that is neither done nor blocked: what to work on next.";
                verb("next_task", read, text, move |_: Nothing, context| {
                    at_file(&path, context, move |file, _| {
                        let board = file.read()?;
                        let nothing = || json!("There is nothing to work on: all tasks are done or blocked.");
                        Ok(board.next().map_or_else(nothing, |task| board.shown(task)))
                    })
                })
                .tool()
            },
            {
                let path = path();
                let text = "Makes one task wait for another: it is blocked until that is done.";
                verb("add_dependency", write, text, move |args: LinkArgs, context| {
                    at_file(&path, context, move |file, _| {
                        file.change(|board| {
                            let linked = board.link(args.task_id.trim(), args.depends_on_id.trim(), &now());
                            linked.cloned().map_err(ToolError::Retry).map(|task| board.shown(&task))
                        })
                    })
                })
                .aliases(LINK_ALIASES)
                .tool()
            },
            {
                let path = path();
                let text = "Makes a task no longer wait for another.";
                verb("remove_dependency", write, text, move |args: LinkArgs, context| {
                    at_file(&path, context, move |file, _| {
                        file.change(|board| {
                            let unlinked =
                                board.unlink(args.task_id.trim(), args.depends_on_id.trim(), &now());
                            unlinked.cloned().map_err(ToolError::Retry).map(|task| board.shown(&task))
                        })
                    })
                })
                .aliases(LINK_ALIASES)
                .tool()
            },
        ]
    }
}

/// Does something with the file, where blocking harms nobody.
fn at_file<'a>(
    path: &Arc<Path>,
    context: &'a CallContext,
    act: impl FnOnce(&TaskFile, CallContext) -> Result<Value, ToolError> + Send + 'static,
) -> BoxFuture<'a, Answer> {
    let (path, context) = (path.clone(), context.clone());
    Box::pin(super::blocking(move || {
        let file = TaskFile::at(&path, context.working_dir.as_deref())?;
        let told = match act(&file, context)? {
            Value::String(text) => text,
            value => format!("{value:#}"),
        };
        Ok(told.into())
    }))
}

fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn create(file: &TaskFile, args: CreateArgs, context: &CallContext) -> Result<Value, ToolError> {
    if args.title.trim().is_empty() {
        return Err(ToolError::Retry("the title is empty: say in `title` what is to be done".to_owned()));
    }
    let description = match filled(args.path) {
        Some(path) => description_in(&path, context.working_dir.as_deref())?,
        None => args.description.unwrap_or_default(),
    };
    let priority = filled(args.priority).map_or(Ok(Priority::Medium), |word| Priority::of(&word));
    let task = Task {
        id: String::new(),
        title: args.title.trim().to_owned(),
        description,
        priority: priority.map_err(ToolError::Retry)?,
        status: Status::Pending,
        dependencies: args.dependencies,
        created_at: now(),
        updated_at: now(),
    };
    file.change(|board| {
        let created = board.create(ids_of(context), task).cloned().map_err(ToolError::Retry)?;
        Ok(board.shown(&created))
    })
}

fn update(file: &TaskFile, args: UpdateArgs, context: &CallContext) -> Result<Value, ToolError> {
    let description = match filled(args.path) {
        Some(path) => Some(description_in(&path, context.working_dir.as_deref())?),
        None => filled(args.description),
    };
    let change = Change {
        title: filled(args.title),
        description,
        priority: filled(args.priority)
            .map(|word| Priority::of(&word))
            .transpose()
            .map_err(ToolError::Retry)?,
        status: filled(args.status).map(|word| Status::of(&word)).transpose().map_err(ToolError::Retry)?,
        dependencies: args.dependencies,
    };
    file.change(|board| {
        let changed = board.change(args.id.trim(), change, &now()).cloned().map_err(ToolError::Retry)?;
        Ok(board.shown(&changed))
    })
}

fn list(board: &Board, args: ListArgs) -> Result<Value, ToolError> {
    let status = filled(args.status).map(|word| Status::of(&word)).transpose().map_err(ToolError::Retry)?;
    let priority =
        filled(args.priority).map(|word| Priority::of(&word)).transpose().map_err(ToolError::Retry)?;
    let wanted = |task: &Task, effective: Status| {
        status.is_none_or(|status| status == effective)
            && priority.is_none_or(|priority| priority == task.priority)
    };
    let sorted = board.sorted();
    let listed = sorted.iter().filter(|(task, effective)| wanted(task, *effective));
    Ok(listed.map(|(task, _)| board.shown(task)).collect())
}

#[cfg(test)]
mod tests;
