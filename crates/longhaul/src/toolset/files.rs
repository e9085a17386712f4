//! Tools for files below a task's working directory: [`ReadOnlyFiles`] reads them, [`Filesystem`] also
//! changes them.
//!
//! [`path_resolver`] decides where a path leads, [`file_roots`] opens it, and [`lines`] reads it. Each tool
//! is a [`FileOp`]: plain blocking code that [`FileOpTool`] runs on a blocking thread.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::Serialize;
use serde::de::{self, DeserializeOwned, Deserializer};
use serde_json::Value;

use super::{OpenFuture, Toolset, ToolsetContext};
use crate::entry::FileChange;
use crate::tool::{ArgumentAliases, CallContext, DynTool, Tool, ToolEffects, ToolError, ToolOutput};
use file_roots::{FileAccess, FileRoots};
use post_edit::PostEditCommands;

pub use filesystem::{Filesystem, FilesystemBuilder};
pub use post_edit::PostEdit;

mod count;
mod diff;
mod edit;
mod filesystem;
mod file_roots;
mod lines;
mod list;
mod post_edit;
mod read;
mod search;
mod tree;
mod walk;
mod path_resolver;
mod write;

/// The toolset `files`: `list_directory`, `read_file`, `search_files_content` and `count_lines`, all
/// read-only and limited to the task's working directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOnlyFiles;

impl ReadOnlyFiles {
    /// Creates the toolset.
    pub fn new() -> Self {
        ReadOnlyFiles
    }
}

impl Toolset for ReadOnlyFiles {
    fn name(&self) -> &str {
        "files"
    }

    fn open<'a>(&'a self, _context: &'a ToolsetContext) -> OpenFuture<'a> {
        let parts = FileToolParts::default();
        Box::pin(async move {
            Ok(vec![
                parts.tool(list::ListDirectory),
                parts.tool(read::ReadFile),
                parts.tool(search::SearchFilesContent),
                parts.tool(count::CountLines),
            ])
        })
    }
}

/// A blocking operation on files.
trait FileOp: Clone + Send + Sync + 'static {
    type Args: DeserializeOwned + Serialize + JsonSchema + Send + 'static;
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const ALIASES: ArgumentAliases = &[];

    fn effects(&self) -> ToolEffects {
        ToolEffects::READ_ONLY
    }

    fn run(&self, args: Self::Args, roots: &FileRoots) -> Result<FileOpOutput, ToolError>;

    /// What the operation would do to a file. Changes nothing.
    fn preview(&self, _args: Self::Args, _roots: &FileRoots) -> Option<FileChange> {
        None
    }
}

/// The result of a [`FileOp`].
struct FileOpOutput {
    text: String,
    changed: Option<ChangedFile>,
}

/// A file that was changed.
struct ChangedFile {
    /// The path as the model sees it.
    shown: String,
    full_path: PathBuf,
}

impl From<String> for FileOpOutput {
    fn from(text: String) -> Self {
        FileOpOutput { text, changed: None }
    }
}

/// What the tools of one toolset share.
#[derive(Debug, Clone, Default)]
struct FileToolParts {
    access: Arc<FileAccess>,
    post_edits: Arc<PostEditCommands>,
}

impl FileToolParts {
    fn tool<D: FileOp>(&self, op: D) -> Arc<dyn DynTool> {
        Arc::new(FileOpTool { op, parts: self.clone() })
    }
}

/// Makes a tool from a [`FileOp`].
struct FileOpTool<D> {
    op: D,
    parts: FileToolParts,
}

impl<D: FileOp> Tool for FileOpTool<D> {
    type Args = D::Args;

    fn name(&self) -> &str {
        D::NAME
    }

    fn description(&self) -> String {
        D::DESCRIPTION.to_owned()
    }

    fn effects(&self) -> ToolEffects {
        self.op.effects()
    }

    fn aliases(&self) -> ArgumentAliases {
        D::ALIASES
    }

    fn setting(&self) -> Option<String> {
        let mut words = "below the working directory".to_owned();
        for path in &self.parts.access.allow {
            words += &format!(" and below {}", path.display());
        }
        let post = self.parts.post_edits.describe();
        if !post.is_empty() && !self.op.effects().read_only {
            words += &format!(", with {post} after it");
        }
        Some(words)
    }

    async fn preview(&self, args: D::Args, context: &CallContext) -> Option<FileChange> {
        let op = self.op.clone();
        self.on_files(context, move |roots| Ok(op.preview(args, roots))).await.ok().flatten()
    }

    async fn call(&self, args: D::Args, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let op = self.op.clone();
        let done = self.on_files(context, move |roots| op.run(args, roots)).await?;
        match done.changed {
            Some(file) => self.parts.post_edits.run(&file, done.text, context).await,
            None => Ok(done.text.into()),
        }
    }
}

impl<D: FileOp> FileOpTool<D> {
    /// Does something with the open roots, on a thread that may block.
    async fn on_files<T: Send + 'static>(
        &self,
        context: &CallContext,
        act: impl FnOnce(&FileRoots) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let access = self.parts.access.clone();
        let mut context = context.clone();
        // Stop the operation when the call is dropped.
        context.cancel = context.cancel.child_token();
        let _stop = context.cancel.clone().drop_guard();
        super::run_blocking(move || act(&FileRoots::open_roots(context, access)?)).await
    }
}

/// Parses a list of paths or patterns; also a single one, or a list encoded as a string.
fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let listed = match Value::deserialize(deserializer)? {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Array(list)) => list,
            _ => vec![Value::String(text)],
        },
        other => return Err(de::Error::custom(format!("{other} is not a list of texts"))),
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(de::Error::custom(format!("{other} is not a text"))),
    };
    listed.into_iter().map(text).collect()
}

#[cfg(test)]
mod confinement_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
