//! Project tasks in a JSON file, with priorities and dependencies. They outlive the conversation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fn_tool::{self, FnTool, NoArgs, ToolArgs, non_blank};
use super::stable_ids::candidate_ids;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::tool::{ArgumentAliases, CallContext, DynTool, ToolEffects, ToolError};
use task_file::{ProjectTaskFile, read_description};
use task_list::{ProjectTask, ProjectTaskChange, ProjectTaskPriority, ProjectTaskStatus};

mod task_list;
mod task_file;

/// The toolset `tasks`: `create_task`, `get_task`, `update_task`, `delete_task`, `list_tasks`, `next_task`,
/// `add_dependency` and `remove_dependency`, stored in a JSON file. Several agents and processes may use one
/// file at once.
#[derive(Debug, Clone)]
pub struct ProjectTasks {
    path: Arc<Path>,
}

impl ProjectTasks {
    /// Stores tasks in this file. A relative path is relative to the task's working directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ProjectTasks { path: path.into().into() }
    }
}

impl Default for ProjectTasks {
    fn default() -> Self {
        ProjectTasks::new("tasks.json")
    }
}

impl Toolset for ProjectTasks {
    fn name(&self) -> &str {
        "tasks"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let tools = self.tools();
        Box::pin(async { Ok(tools) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let text = "The tasks of the project are kept in a file and outlive this conversation. Each has a priority \
                    (critical, high, medium, low), a status (pending, in_progress, done, blocked) and may depend on \
                    others: while one of those is not done, it is blocked. `next_task` says what to work on.";
        Some(text.to_owned())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct CreateTaskArgs {
    /// The task in a few words.
    title: String,
    /// What is to be done. Not needed where `path` is given.
    description: Option<String>,
    /// A text file, below the working directory, that is the description.
    path: Option<String>,
    /// critical, high, medium or low; medium if left out.
    priority: Option<String>,
    /// The ids of tasks that must be done first.
    #[serde(default, deserialize_with = "fn_tool::names")]
    dependencies: Vec<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ProjectTaskIdArgs {
    /// The id of the task.
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct UpdateTaskArgs {
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
        Some(value) => fn_tool::names(value).map(Some).map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct ListTasksArgs {
    /// Only tasks of this status: pending, in_progress, done or blocked.
    status: Option<String>,
    /// Only tasks of this priority: critical, high, medium or low.
    priority: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DependencyArgs {
    /// The task that waits.
    task_id: String,
    /// The task that must be done first.
    depends_on_id: String,
}

/// Aliases of the arguments that models also use.
const LINK_ALIASES: ArgumentAliases = &[("task_id", "taskId"), ("depends_on_id", "dependsOnId")];

impl ProjectTasks {
    fn tools(&self) -> Vec<Arc<dyn DynTool>> {
        let (read, write) = (ToolEffects::READ_ONLY, ToolEffects::INTERNAL);
        let get = |file: &ProjectTaskFile, args: ProjectTaskIdArgs, _: &CallContext| {
            let list = file.read()?;
            let task = list.get(args.id.trim())?;
            Ok(list.to_json(task))
        };
        let delete = |file: &ProjectTaskFile, args: ProjectTaskIdArgs, _: &CallContext| {
            let id = args.id.trim();
            file.change(|list| list.delete(id))?;
            Ok(json!({"deleted": id}))
        };
        let next = |file: &ProjectTaskFile, _: NoArgs, _: &CallContext| {
            let list = file.read()?;
            let nothing = || json!("There is nothing to work on: all tasks are done or blocked.");
            Ok(list.next().map_or_else(nothing, |task| list.to_json(task)))
        };
        let link = |file: &ProjectTaskFile, args: DependencyArgs, _: &CallContext| {
            file.change(|list| {
                let linked = list.add_dependency(args.task_id.trim(), args.depends_on_id.trim(), &now());
                linked.cloned().map(|task| list.to_json(&task))
            })
        };
        let unlink = |file: &ProjectTaskFile, args: DependencyArgs, _: &CallContext| {
            file.change(|list| {
                let unlinked = list.remove_dependency(args.task_id.trim(), args.depends_on_id.trim(), &now());
                unlinked.cloned().map(|task| list.to_json(&task))
            })
        };
        vec![
            self.tool(
                "create_task",
                write,
                "Creates a task, with a title and a description, or a file that is the description.",
                create,
            ),
            self.tool(
                "get_task",
                read,
                "Shows one task whole. `effectiveStatus` is blocked while something it depends on is not done.",
                get,
            ),
            self.tool(
                "update_task",
                write,
                "Changes a task: title, description, priority, status or dependencies. What is left out stays.",
                update,
            ),
            // Not safe to repeat: another task could have the id by then.
            self.tool(
                "delete_task",
                ToolEffects::default(),
                "Deletes a task. Tasks that depended on it no longer do.",
                delete,
            ),
            self.tool("list_tasks", read, "Lists tasks, the most urgent first and blocked ones last.", list),
            self.tool(
                "next_task",
                read,
                "Shows the most urgent task that is neither done nor blocked: what to work on next.",
                next,
            ),
            self.tool(
                "add_dependency",
                write,
                "Makes one task wait for another: it is blocked until that is done.",
                link,
            ),
            self.tool("remove_dependency", write, "Makes a task no longer wait for another.", unlink),
        ]
    }

    /// A tool that works on the file on a blocking thread.
    fn tool<A: ToolArgs>(
        &self,
        name: &str,
        effects: ToolEffects,
        text: &str,
        act: fn(&ProjectTaskFile, A, &CallContext) -> Result<Value, ToolError>,
    ) -> Arc<dyn DynTool> {
        let path = self.path.clone();
        let tool = FnTool::new(name, effects, text, move |args: A, context| {
            let (path, context) = (path.clone(), context.clone());
            Box::pin(super::run_blocking(move || {
                let file = ProjectTaskFile::open(&path, context.working_dir.as_deref())?;
                let text = match act(&file, args, &context)? {
                    Value::String(text) => text,
                    value => format!("{value:#}"),
                };
                Ok(text.into())
            }))
        });
        tool.aliases(if name.ends_with("_dependency") { LINK_ALIASES } else { &[] }).into_tool()
    }
}

fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn create(file: &ProjectTaskFile, args: CreateTaskArgs, context: &CallContext) -> Result<Value, ToolError> {
    if args.title.trim().is_empty() {
        return Err(ToolError::Retry("the title is empty: say in `title` what is to be done".to_owned()));
    }
    let description = match non_blank(args.path) {
        Some(path) => read_description(&path, context.working_dir.as_deref())?,
        None => args.description.unwrap_or_default(),
    };
    let priority = non_blank(args.priority)
        .map_or(Ok(ProjectTaskPriority::Medium), |word| ProjectTaskPriority::parse(&word));
    let task = ProjectTask {
        id: String::new(),
        title: args.title.trim().to_owned(),
        description,
        priority: priority?,
        status: ProjectTaskStatus::Pending,
        dependencies: args.dependencies,
        created_at: now(),
        updated_at: now(),
    };
    file.change(|list| {
        let created = list.create(candidate_ids(context), task).cloned()?;
        Ok(list.to_json(&created))
    })
}

fn update(file: &ProjectTaskFile, args: UpdateTaskArgs, context: &CallContext) -> Result<Value, ToolError> {
    let description = match non_blank(args.path) {
        Some(path) => Some(read_description(&path, context.working_dir.as_deref())?),
        None => non_blank(args.description),
    };
    let change = ProjectTaskChange {
        title: non_blank(args.title),
        description,
        priority: non_blank(args.priority).map(|word| ProjectTaskPriority::parse(&word)).transpose()?,
        status: non_blank(args.status).map(|word| ProjectTaskStatus::parse(&word)).transpose()?,
        dependencies: args.dependencies,
    };
    file.change(|list| {
        let changed = list.change(args.id.trim(), change, &now()).cloned()?;
        Ok(list.to_json(&changed))
    })
}

fn list(file: &ProjectTaskFile, args: ListTasksArgs, _: &CallContext) -> Result<Value, ToolError> {
    let list = file.read()?;
    let status = non_blank(args.status).map(|word| ProjectTaskStatus::parse(&word)).transpose()?;
    let priority = non_blank(args.priority).map(|word| ProjectTaskPriority::parse(&word)).transpose()?;
    let wanted = |task: &ProjectTask, effective: ProjectTaskStatus| {
        status.is_none_or(|status| status == effective)
            && priority.is_none_or(|priority| priority == task.priority)
    };
    let sorted = list.sorted();
    let listed = sorted.iter().filter(|(task, effective)| wanted(task, *effective));
    Ok(listed.map(|(task, _)| list.to_json(task)).collect())
}

#[cfg(test)]
mod tests;
