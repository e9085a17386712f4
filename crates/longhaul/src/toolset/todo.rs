//! To-do lists: one per conversation, or one for a whole tree of tasks.
//!
//! A list is a stored value, so it survives a restart. An item records the call that created it, so a
//! repeated call does not create it twice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fn_tool::{self, NoArgs, ToolCallResult, fn_tool};
use super::text::truncate;
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::tool::{CallContext, StorageScope, ToolEffects, ToolError, ToolOutput};

/// The limits: how many items a list has, and how long an item is.
const MOST: usize = 500;
const LONGEST: usize = 2_000;

/// The toolset `todo`: `create_todo`, `create_todos`, `update_todos` and `list_todos`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Todo {
    shared: bool,
}

impl Todo {
    /// Creates a toolset with one list per conversation.
    pub fn new() -> Self {
        Todo::default()
    }

    /// With `shared`, all agents of a tree share one list.
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }
}

impl Toolset for Todo {
    fn name(&self) -> &str {
        "todo"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let scope = if self.shared { StorageScope::Tree } else { StorageScope::Conversation };
        // It changes only its own list, so no approval is needed.
        let effects = ToolEffects::READ_ONLY;
        let tools = vec![
            fn_tool(
                "create_todo",
                effects,
                "Puts one entry on the todo list.",
                move |args: CreateTodoArgs, context| {
                    Box::pin(create(scope, vec![args.description], true, context))
                },
            ),
            fn_tool(
                "create_todos",
                effects,
                "Puts several entries on the todo list at once.",
                move |args: CreateTodosArgs, context| {
                    Box::pin(create(scope, args.descriptions, false, context))
                },
            ),
            fn_tool(
                "update_todos",
                effects,
                "Sets the status of one or more entries of the todo list.",
                move |args: UpdateTodosArgs, context| Box::pin(update(scope, args.updates, context)),
            ),
            fn_tool(
                "list_todos",
                effects,
                "Shows the todo list with the status of each entry.",
                move |_: NoArgs, context| Box::pin(list(scope, context)),
            ),
        ];
        Box::pin(async { Ok(tools) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let shared = if self.shared { " All agents of your team see and change the same list." } else { "" };
        Some(format!(
            "Keep track of work with several steps on the todo list: write the steps down before you begin \
             (`create_todos`), set a step to \"in-progress\" when you begin it and to \"completed\" as soon as it is \
             done, several of them in one `update_todos`. Do not end with entries that are not completed.{shared}"
        ))
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct CreateTodoArgs {
    /// What is to be done.
    description: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct CreateTodosArgs {
    /// What is to be done, one text an entry.
    #[serde(deserialize_with = "fn_tool::list")]
    descriptions: Vec<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct UpdateTodosArgs {
    /// The changes.
    #[serde(deserialize_with = "fn_tool::list")]
    updates: Vec<TodoUpdate>,
}

#[derive(Clone, Deserialize, Serialize, JsonSchema)]
struct TodoUpdate {
    /// The id of the entry.
    id: String,
    /// Its new status: pending, in-progress or completed.
    status: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

impl TodoStatus {
    fn parse(text: &str) -> Result<TodoStatus, ToolError> {
        match text.trim().to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
            "pending" | "todo" | "open" => Ok(TodoStatus::Pending),
            "in-progress" | "started" => Ok(TodoStatus::InProgress),
            "completed" | "complete" | "done" => Ok(TodoStatus::Completed),
            _ => Err(ToolError::Retry(format!(
                "'{}' is no status: use pending, in-progress or completed. Nothing was changed.",
                truncate(text, 40)
            ))),
        }
    }
}

/// A list as it is stored.
#[derive(Default, Serialize, Deserialize)]
struct TodoList {
    entries: Vec<TodoItem>,
}

#[derive(Clone, Serialize, Deserialize)]
struct TodoItem {
    id: String,
    description: String,
    status: TodoStatus,
    /// The call that created the item.
    by: String,
}

impl TodoList {
    fn read(bytes: &[u8]) -> Result<TodoList, ToolError> {
        match bytes {
            [] => Ok(TodoList::default()),
            bytes => serde_json::from_slice(bytes)
                .map_err(|error| ToolError::Failed(format!("the todo list cannot be read: {error}"))),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, ToolError> {
        serde_json::to_vec(self)
            .map_err(|error| ToolError::Failed(format!("the todo list cannot be written: {error}")))
    }

    /// Adds items, unless this call has already done so; returns them.
    fn add(&mut self, by: &str, descriptions: &[String]) -> Result<Vec<TodoItem>, ToolError> {
        let there: Vec<TodoItem> = self.entries.iter().filter(|entry| entry.by == by).cloned().collect();
        if !there.is_empty() {
            return Ok(there);
        }
        if self.entries.len() + descriptions.len() > MOST {
            return Err(ToolError::Failed(format!(
                "the todo list would have more than {MOST} entries: put fewer and larger steps on it"
            )));
        }
        let before = self.entries.len();
        let entry = |(n, description): (usize, &String)| TodoItem {
            id: format!("todo_{}", before + n + 1),
            description: truncate(description.trim(), LONGEST),
            status: TodoStatus::Pending,
            by: by.to_owned(),
        };
        self.entries.extend(descriptions.iter().enumerate().map(entry));
        Ok(self.entries[before..].to_vec())
    }

    /// Updates the items that exist; returns the ids that do not.
    fn set(&mut self, updates: &[(String, TodoStatus)]) -> Vec<String> {
        let mut missing = Vec::new();
        for (id, status) in updates {
            match self.entries.iter_mut().find(|entry| entry.id == *id) {
                Some(entry) => entry.status = *status,
                None => missing.push(id.clone()),
            }
        }
        missing
    }

    fn shown(&self) -> Value {
        self.entries.iter().map(shown).collect()
    }

    /// Describes what is left to do.
    fn reminder(&self) -> Option<String> {
        let of = |status| self.entries.iter().filter(move |entry| entry.status == status).map(|e| &*e.id);
        let begun: Vec<&str> = of(TodoStatus::InProgress).collect();
        let open: Vec<&str> = of(TodoStatus::Pending).collect();
        let part =
            |what: &str, ids: Vec<&str>| (!ids.is_empty()).then(|| format!("{what}: {}", ids.join(", ")));
        let parts: Vec<String> =
            [part("in-progress", begun), part("pending", open)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Not completed yet: {}.", parts.join("; ")))
    }
}

fn shown(entry: &TodoItem) -> Value {
    json!({"id": entry.id, "description": entry.description, "status": entry.status})
}

/// The name of the stored value.
const STORED_VALUE_NAME: &str = "todo";

async fn create(
    scope: StorageScope,
    descriptions: Vec<String>,
    one: bool,
    context: &CallContext,
) -> ToolCallResult {
    let descriptions: Vec<String> = descriptions.into_iter().filter(|text| !text.trim().is_empty()).collect();
    if descriptions.is_empty() {
        return Err(ToolError::Retry(
            "there is nothing to put on the list: describe what is to be done".into(),
        ));
    }
    let by = format!("{}:{}", context.caller.task, context.call);
    let answer = context.storage.update(scope, STORED_VALUE_NAME, |bytes| {
        let mut list = TodoList::read(bytes)?;
        let created = list.add(&by, &descriptions)?;
        let created = match (one, created.first()) {
            (true, Some(entry)) => shown(entry),
            _ => created.iter().map(shown).collect(),
        };
        Ok((list.bytes()?, reply_text(json!({"created": created}), "all_todos", &list)))
    });
    Ok(answer.await?.into())
}

async fn update(scope: StorageScope, updates: Vec<TodoUpdate>, context: &CallContext) -> ToolCallResult {
    if updates.is_empty() {
        return Err(ToolError::Retry("there is nothing to update: give `updates` ids and statuses".into()));
    }
    let wanted: Vec<(String, TodoStatus)> = updates
        .into_iter()
        .map(|update| Ok((update.id.trim().to_owned(), TodoStatus::parse(&update.status)?)))
        .collect::<Result<_, ToolError>>()?;
    let answer = context.storage.update(scope, STORED_VALUE_NAME, |bytes| {
        let mut list = TodoList::read(bytes)?;
        let missing = list.set(&wanted);
        let updated: Value = wanted
            .iter()
            .filter(|(id, _)| !missing.contains(id))
            .map(|(id, status)| json!({"id": id, "status": status}))
            .collect();
        let none = missing.len() == wanted.len();
        let mut reply = json!({"updated": updated});
        if !missing.is_empty() {
            reply["not_found"] = json!(missing);
        }
        let text = reply_text(reply, "all_todos", &list);
        Ok((list.bytes()?, ToolOutput { is_error: none, ..text.into() }))
    });
    answer.await
}

async fn list(scope: StorageScope, context: &CallContext) -> ToolCallResult {
    let list = TodoList::read(&context.storage.read(scope, STORED_VALUE_NAME).await?)?;
    Ok(reply_text(json!({}), "todos", &list).into())
}

/// Formats the answer for the model: what was done, the whole list, and what is left to do.
fn reply_text(mut reply: Value, key: &str, list: &TodoList) -> String {
    reply[key] = list.shown();
    if let Some(reminder) = list.reminder() {
        reply["reminder"] = reminder.into();
    }
    reply.to_string()
}

#[cfg(test)]
mod tests;
