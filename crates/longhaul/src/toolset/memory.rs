//! Memories that agents keep across conversations, in an SQLite file with full-text search.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fn_tool::{NoArgs, ToolArgs, fn_tool, non_blank};
use super::stable_ids::candidate_ids;
use super::text::{group_digits, pluralize};
use super::{OpenFuture, Toolset, ToolsetContext};
use crate::store::private_files;
use crate::tool::{CallContext, DynTool, ToolEffects, ToolError};
use database::{MemoryDatabase, MemoryMatches};

mod database;

/// The longest memory, in bytes.
const LONGEST: usize = 64 << 10;

/// The toolset `memory`: `add_memory`, `get_memories`, `update_memory`, `delete_memory` and
/// `search_memories`, stored in an SQLite file. Several agents and processes may use one file at once.
#[derive(Debug, Clone)]
pub struct AgentMemory {
    path: Arc<Path>,
}

impl AgentMemory {
    /// Stores memories in this file. A relative path is relative to the task's working directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        AgentMemory { path: path.into().into() }
    }
}

impl Toolset for AgentMemory {
    fn name(&self) -> &str {
        "memory"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let tools = self.tools();
        Box::pin(async { Ok(tools) })
    }

    fn instruction(&self, _context: &ToolsetContext) -> Option<String> {
        let text = "You have a memory that outlives this conversation. Look into it (`search_memories`, with a few \
                    words or a category) before you begin; `get_memories` shows all of it. Remember what will matter \
                    again: what the user prefers or has corrected, decisions, how the project does things, each as one \
                    memory of a category (preference, fact, project, decision). Change what is no longer true with \
                    `update_memory` instead of adding to it. Do this without speaking of it.";
        Some(text.to_owned())
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct AddMemoryArgs {
    /// What to remember.
    memory: String,
    /// What kind of thing it is, in one word: preference, fact, project, decision or another.
    category: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct UpdateMemoryArgs {
    /// The id of the memory.
    id: String,
    /// What it is to say from now on.
    memory: String,
    /// A new category.
    category: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct DeleteMemoryArgs {
    /// The id of the memory.
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct SearchMemoriesArgs {
    /// Words that must all be in the memory, or begin a word of it; the best matches come first. With OR between
    /// them one is enough; words in double quotes must follow each other.
    query: Option<String>,
    /// Only memories of this category.
    category: Option<String>,
}

impl AgentMemory {
    fn tools(&self) -> Vec<Arc<dyn DynTool>> {
        let (read, write) = (ToolEffects::READ_ONLY, ToolEffects::INTERNAL);
        vec![
            self.tool("add_memory", write, "Remembers something new.", add),
            self.tool(
                "get_memories",
                read,
                "Shows all memories, the newest first.",
                |database, _: NoArgs, _| Ok(database.all().map(shown)?),
            ),
            self.tool(
                "search_memories",
                read,
                "Searches the memories for words, a category, or both.",
                |database, args: SearchMemoriesArgs, _| {
                    let (query, category) = (non_blank(args.query), non_blank(args.category));
                    let query = query.as_deref().unwrap_or_default();
                    Ok(database.search(query, category.as_deref().map(str::trim)).map(shown)?)
                },
            ),
            self.tool(
                "update_memory",
                write,
                "Changes what a memory says, and its category if one is given.",
                |database, args: UpdateMemoryArgs, _| {
                    let (id, text) = (args.id.trim(), fit(&args.memory)?);
                    let category = non_blank(args.category);
                    let known = database.update(id, text, category.as_deref().map(str::trim))?;
                    if known { Ok(format!("Memory {id} is changed.")) } else { Err(unknown(id)) }
                },
            ),
            self.tool(
                "delete_memory",
                ToolEffects::default(),
                "Forgets a memory.",
                |database, args: DeleteMemoryArgs, _| {
                    let id = args.id.trim();
                    if database.delete(id)? {
                        Ok(format!("Memory {id} is forgotten."))
                    } else {
                        Err(unknown(id))
                    }
                },
            ),
        ]
    }

    /// A tool that works on the database on a blocking thread. Each call opens the file anew, so nothing is left
    /// open, and the file may be deleted, moved or replaced between calls.
    fn tool<A: ToolArgs>(
        &self,
        name: &str,
        effects: ToolEffects,
        text: &str,
        act: fn(&mut MemoryDatabase, A, &CallContext) -> Result<String, MemoryError>,
    ) -> Arc<dyn DynTool> {
        let path = self.path.clone();
        fn_tool(name, effects, text, move |args: A, context| {
            let (path, context) = (path.clone(), context.clone());
            Box::pin(super::run_blocking(move || {
                let place = database_path(&path, context.working_dir.as_deref())?;
                // Memories are private: only the owner can read a new file. An existing file keeps its permissions.
                let _ = private_files::create_private_file(&place);
                let result = MemoryDatabase::open(&place)
                    .map_err(MemoryError::Database)
                    .and_then(|mut database| act(&mut database, args, &context));
                result.map(Into::into).map_err(|error| match error {
                    MemoryError::Tool(error) => error,
                    MemoryError::Database(error) => ToolError::Failed(format!(
                        "the memories in '{}' cannot be used: {error}",
                        path.display()
                    )),
                })
            }))
        })
    }
}

/// An operation on the database failed.
#[derive(Debug, thiserror::Error)]
enum MemoryError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// Resolves the path of the file and creates its directory if needed. Below the working directory, a symbolic
/// link that leads out of it is refused.
fn database_path(path: &Path, working_dir: Option<&Path>) -> Result<PathBuf, ToolError> {
    let shown = path.display();
    let failed = |why: &dyn std::fmt::Display| {
        ToolError::Failed(format!("the memories in '{shown}' cannot be used: {why}"))
    };
    let whole = match (path.is_absolute(), working_dir) {
        (true, _) => path.to_owned(),
        (false, Some(dir)) => dir.join(path),
        (false, None) => return Err(failed(&"this task has no working directory")),
    };
    let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(failed(&"it is not the name of a file"));
    };
    if let Some(dir) = working_dir.filter(|_| !path.is_absolute()) {
        let out = || failed(&"it is not below the working directory");
        if path.components().any(|part| part == std::path::Component::ParentDir) {
            return Err(out());
        }
        std::fs::create_dir_all(above).map_err(|error| failed(&error))?;
        let (root, real) = (dir.canonicalize(), above.canonicalize());
        let (root, real) = (root.map_err(|error| failed(&error))?, real.map_err(|error| failed(&error))?);
        let whole = real.join(name);
        let leads_out = whole.canonicalize().is_ok_and(|target| !target.starts_with(&root));
        return if real.starts_with(&root) && !leads_out { Ok(whole) } else { Err(out()) };
    }
    private_files::create_private_dir(above).map_err(|error| failed(&error))?;
    Ok(whole)
}

fn add(
    database: &mut MemoryDatabase,
    args: AddMemoryArgs,
    context: &CallContext,
) -> Result<String, MemoryError> {
    let text = fit(&args.memory)?;
    let category = non_blank(args.category).unwrap_or_default();
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    match database.add(candidate_ids(context), text, category.trim(), &now)? {
        Some(id) => Ok(format!("Remembered, with the id {id}.")),
        None => Err(ToolError::Failed("no free id was found: make the call again".to_owned()).into()),
    }
}

fn fit(text: &str) -> Result<&str, ToolError> {
    match text.trim() {
        "" => Err(ToolError::Retry("the memory is empty: say in `memory` what to remember".to_owned())),
        text if text.len() > LONGEST => Err(ToolError::Retry(format!(
            "the memory has {} and may have {LONGEST}: make several of it, or keep it in a file",
            pluralize(text.len() as u64, "byte")
        ))),
        text => Ok(text),
    }
}

fn unknown(id: &str) -> MemoryError {
    ToolError::Retry(format!("there is no memory '{}': get_memories shows what there is", id.trim())).into()
}

fn shown(found: MemoryMatches) -> String {
    if found.memories.is_empty() {
        return "[]".to_owned();
    }
    let mut text = serde_json::to_string(&found.memories).unwrap_or_default();
    if found.left_out > 0 {
        text +=
            &format!("\n[… {} more: search for something narrower …]", group_digits(found.left_out as u64));
    }
    text
}

#[cfg(test)]
mod tests;
