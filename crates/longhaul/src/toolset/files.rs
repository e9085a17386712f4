//! Looks at the files below a task's working directory, and changes none.
//!
//! Where a tool may look is [`ground`]'s business, how it reads [`lines`]'; a tool here only says what it found. Each
//! tool is a [`Look`]: plain blocking code, which [`ReadOnly`] runs where it blocks nobody.

use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{Patron, Toolset, ToolsetError};
use crate::tool::{CallContext, DynTool, Manner, Tool, ToolError, ToolOutput};
use ground::Ground;

mod count;
mod ground;
mod lines;
mod list;
mod read;
mod search;

/// The toolset `files`: `list_directory`, `read_file`, `search_files_content` and `count_lines`, all for what is below
/// the task's working directory, and all read-only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Files {
    /// The toolset.
    pub fn new() -> Self {
        Files
    }
}

impl Toolset for Files {
    fn name(&self) -> &str {
        "files"
    }

    fn open<'a>(&'a self, _patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async {
            let tools: Vec<Arc<dyn DynTool>> = vec![
                Arc::new(ReadOnly(list::ListDirectory)),
                Arc::new(ReadOnly(read::ReadFile)),
                Arc::new(ReadOnly(search::SearchFilesContent)),
                Arc::new(ReadOnly(count::CountLines)),
            ];
            Ok(tools)
        })
    }
}

/// A look at files: it blocks, and changes nothing.
trait Look: Copy + Send + Sync + 'static {
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    const NAME: &'static str;
    const DESCRIPTION: &'static str;

    fn look(self, args: Self::Args, ground: &Ground) -> Result<String, ToolError>;
}

/// Makes a tool of a [`Look`].
struct ReadOnly<L>(L);

impl<L: Look> Tool for ReadOnly<L> {
    type Args = L::Args;

    fn name(&self) -> &str {
        L::NAME
    }

    fn description(&self) -> String {
        L::DESCRIPTION.to_owned()
    }

    fn manner(&self) -> Manner {
        Manner::READ_ONLY
    }

    async fn call(&self, args: L::Args, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let look = self.0;
        let mut context = context.clone();
        // A call that is dropped stops looking, too.
        context.cancel = context.cancel.child_token();
        let _stop = context.cancel.clone().drop_guard();
        let looked = tokio::task::spawn_blocking(move || look.look(args, &Ground::of(context)?)).await;
        match looked {
            Ok(result) => result.map(ToolOutput::from),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ToolError::Failed("the program is ending".to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests;
