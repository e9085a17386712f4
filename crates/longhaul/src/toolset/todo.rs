//! Lists of what is to be done: one a conversation, or one for a whole tree.
//!
//! A list is on a slip of the store, so it is there again after a restart. An entry remembers the call that made it:
//! the same call, made again, makes no second one.

use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::text::clipped;
use super::verb::{self, Answer, Nothing, verb};
use super::{Patron, Toolset, ToolsetError};
use crate::tool::{CallContext, DynTool, Manner, ToolError, ToolOutput, Whose};

/// How many entries a list has, and how long one is, at most.
const MOST: usize = 500;
const LONGEST: usize = 2_000;

/// The toolset `todo`: `create_todo`, `create_todos`, `update_todos` and `list_todos`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Todo {
    shared: bool,
}

impl Todo {
    /// A list for each conversation.
    pub fn new() -> Self {
        Todo::default()
    }

    /// One list for all agents of a tree, if `shared`.
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }
}

impl Toolset for Todo {
    fn name(&self) -> &str {
        "todo"
    }

    fn open<'a>(&'a self, _patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        let whose = if self.shared { Whose::Tree } else { Whose::Conversation };
        // It changes nothing but a list of its own, which nobody need be asked about.
        let manner = Manner::READ_ONLY;
        let tools = vec![
            verb("create_todo", manner, "Puts one entry on the todo list.", move |args: One, context| {
                Box::pin(create(whose, vec![args.description], true, context))
            })
            .tool(),
            verb(
                "create_todos",
                manner,
                "Puts several entries on the todo list at once.",
                move |args: Many, context| Box::pin(create(whose, args.descriptions, false, context)),
            )
            .tool(),
            verb(
                "update_todos",
                manner,
                "Sets the status of one or more entries of the todo list.",
                move |args: Updates, context| Box::pin(update(whose, args.updates, context)),
            )
            .tool(),
            verb(
                "list_todos",
                manner,
                "Shows the todo list with the status of each entry.",
                move |_: Nothing, context| Box::pin(list(whose, context)),
            )
            .tool(),
        ];
        Box::pin(async { Ok(tools) })
    }

    fn instruction(&self, _patron: &Patron) -> Option<String> {
        let shared = match self.shared {
            true => " All agents of your team see and change the same list.",
            false => "",
        };
        Some(format!(
            "Keep track of work with several steps on the todo list: write the steps down before you begin \
             (`create_todos`), set a step to \"in-progress\" when you begin it and to \"completed\" as soon as it is \
             done, several of them in one `update_todos`. Do not end with entries that are not completed.{shared}"
        ))
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct One {
    /// What is to be done.
    description: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Many {
    /// What is to be done, one text an entry.
    #[serde(deserialize_with = "verb::list")]
    descriptions: Vec<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Updates {
    /// The changes.
    #[serde(deserialize_with = "verb::list")]
    updates: Vec<Update>,
}

#[derive(Clone, Deserialize, Serialize, JsonSchema)]
struct Update {
    /// The id of the entry.
    id: String,
    /// Its new status: pending, in-progress or completed.
    status: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

impl Status {
    fn of(text: &str) -> Result<Status, ToolError> {
        match text.trim().to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
            "pending" | "todo" | "open" => Ok(Status::Pending),
            "in-progress" | "started" => Ok(Status::InProgress),
            "completed" | "complete" | "done" => Ok(Status::Completed),
            _ => Err(ToolError::Retry(format!(
                "'{}' is no status: use pending, in-progress or completed. Nothing was changed.",
                clipped(text, 40)
            ))),
        }
    }
}

/// A list as it is kept.
#[derive(Default, Serialize, Deserialize)]
struct List {
    entries: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    id: String,
    description: String,
    status: Status,
    /// The call that made it.
    by: String,
}

impl List {
    fn read(bytes: &[u8]) -> Result<List, ToolError> {
        match bytes {
            [] => Ok(List::default()),
            bytes => serde_json::from_slice(bytes)
                .map_err(|error| ToolError::Failed(format!("the todo list cannot be read: {error}"))),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, ToolError> {
        serde_json::to_vec(self)
            .map_err(|error| ToolError::Failed(format!("the todo list cannot be written: {error}")))
    }

    /// Puts entries on the list, unless this call has done so already; answers with them.
    fn add(&mut self, by: &str, descriptions: &[String]) -> Result<Vec<Entry>, ToolError> {
        let there: Vec<Entry> = self.entries.iter().filter(|entry| entry.by == by).cloned().collect();
        if !there.is_empty() {
            return Ok(there);
        }
        if self.entries.len() + descriptions.len() > MOST {
            return Err(ToolError::Failed(format!(
                "the todo list would have more than {MOST} entries: put fewer and larger steps on it"
            )));
        }
        let before = self.entries.len();
        let entry = |(n, description): (usize, &String)| Entry {
            id: format!("todo_{}", before + n + 1),
            description: clipped(description.trim(), LONGEST),
            status: Status::Pending,
            by: by.to_owned(),
        };
        self.entries.extend(descriptions.iter().enumerate().map(entry));
        Ok(self.entries[before..].to_vec())
    }

    /// Sets what is there; answers which ids are not.
    fn set(&mut self, updates: &[(String, Status)]) -> Vec<String> {
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

    /// What is still to be done, in words.
    fn reminder(&self) -> Option<String> {
        let of = |status| self.entries.iter().filter(move |entry| entry.status == status).map(|e| &*e.id);
        let begun: Vec<&str> = of(Status::InProgress).collect();
        let open: Vec<&str> = of(Status::Pending).collect();
        let part =
            |what: &str, ids: Vec<&str>| (!ids.is_empty()).then(|| format!("{what}: {}", ids.join(", ")));
        let parts: Vec<String> =
            [part("in-progress", begun), part("pending", open)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Not completed yet: {}.", parts.join("; ")))
    }
}

fn shown(entry: &Entry) -> Value {
    json!({"id": entry.id, "description": entry.description, "status": entry.status})
}

/// The slip's name.
const SLIP: &str = "todo";

async fn create(whose: Whose, descriptions: Vec<String>, one: bool, context: &CallContext) -> Answer {
    let descriptions: Vec<String> = descriptions.into_iter().filter(|text| !text.trim().is_empty()).collect();
    if descriptions.is_empty() {
        return Err(ToolError::Retry(
            "there is nothing to put on the list: describe what is to be done".into(),
        ));
    }
    let by = format!("{}:{}", context.caller.task, context.call);
    let answer = context.scratch.change(whose, SLIP, |bytes| {
        let mut list = List::read(bytes)?;
        let created = list.add(&by, &descriptions)?;
        let created = match (one, created.first()) {
            (true, Some(entry)) => shown(entry),
            _ => created.iter().map(shown).collect(),
        };
        Ok((list.bytes()?, said(json!({"created": created}), "all_todos", &list)))
    });
    Ok(answer.await?.into())
}

async fn update(whose: Whose, updates: Vec<Update>, context: &CallContext) -> Answer {
    if updates.is_empty() {
        return Err(ToolError::Retry("there is nothing to update: give `updates` ids and statuses".into()));
    }
    let wanted: Vec<(String, Status)> = updates
        .into_iter()
        .map(|update| Ok((update.id.trim().to_owned(), Status::of(&update.status)?)))
        .collect::<Result<_, ToolError>>()?;
    let answer = context.scratch.change(whose, SLIP, |bytes| {
        let mut list = List::read(bytes)?;
        let missing = list.set(&wanted);
        let updated: Value = wanted
            .iter()
            .filter(|(id, _)| !missing.contains(id))
            .map(|(id, status)| json!({"id": id, "status": status}))
            .collect();
        let none = missing.len() == wanted.len();
        let mut told = json!({"updated": updated});
        if !missing.is_empty() {
            told["not_found"] = json!(missing);
        }
        let text = said(told, "all_todos", &list);
        Ok((list.bytes()?, ToolOutput { is_error: none, ..text.into() }))
    });
    answer.await
}

async fn list(whose: Whose, context: &CallContext) -> Answer {
    let list = List::read(&context.scratch.read(whose, SLIP).await?)?;
    Ok(said(json!({}), "todos", &list).into())
}

/// What the model is told: what was done, the whole list, and what is left to do.
fn said(mut told: Value, key: &str, list: &List) -> String {
    told[key] = list.shown();
    if let Some(reminder) = list.reminder() {
        told["reminder"] = reminder.into();
    }
    told.to_string()
}

#[cfg(test)]
mod tests;
