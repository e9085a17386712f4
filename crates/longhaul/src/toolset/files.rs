//! Files below a task's working directory: looked at by [`Files`], and also changed by [`Filesystem`].
//!
//! Where a path may lead is [`way`]'s business, how it is opened [`ground`]'s, how it is read [`lines`]'; a tool here only
//! says what it found or does what it was told. Each is a [`Deed`]: plain blocking code, which [`Tooled`] runs where
//! it blocks nobody.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::Serialize;
use serde::de::{self, DeserializeOwned, Deserializer};
use serde_json::Value;

use super::{Patron, Toolset, ToolsetError};
use crate::tool::{Aliases, CallContext, DynTool, Manner, Tool, ToolError, ToolOutput};
use ground::{Ground, Reach};
use post::PostEdits;

pub use filesystem::{Filesystem, FilesystemBuilder};
pub use post::PostEdit;
pub(super) use way::guarded;

mod count;
mod edit;
mod filesystem;
mod ground;
mod lines;
mod list;
mod post;
mod read;
mod search;
mod tree;
mod walk;
mod way;
mod write;

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
        let kit = Kit::default();
        Box::pin(async move {
            Ok(vec![
                kit.tool(list::ListDirectory),
                kit.tool(read::ReadFile),
                kit.tool(search::SearchFilesContent),
                kit.tool(count::CountLines),
            ])
        })
    }
}

/// Something done with files: it blocks.
trait Deed: Clone + Send + Sync + 'static {
    type Args: DeserializeOwned + Serialize + JsonSchema + Send + 'static;
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const ALIASES: Aliases = &[];

    fn manner(&self) -> Manner {
        Manner::READ_ONLY
    }

    fn act(&self, args: Self::Args, ground: &Ground) -> Result<Done, ToolError>;
}

/// What came of it.
struct Done {
    text: String,
    changed: Option<Changed>,
}

/// A file that was changed.
struct Changed {
    /// As the model knows it.
    shown: String,
    whole: PathBuf,
}

impl From<String> for Done {
    fn from(text: String) -> Self {
        Done { text, changed: None }
    }
}

/// What the tools of one toolset share.
#[derive(Debug, Clone, Default)]
struct Kit {
    reach: Arc<Reach>,
    post: Arc<PostEdits>,
}

impl Kit {
    fn tool<D: Deed>(&self, deed: D) -> Arc<dyn DynTool> {
        Arc::new(Tooled { deed, kit: self.clone() })
    }
}

/// Makes a tool of a [`Deed`].
struct Tooled<D> {
    deed: D,
    kit: Kit,
}

impl<D: Deed> Tool for Tooled<D> {
    type Args = D::Args;

    fn name(&self) -> &str {
        D::NAME
    }

    fn description(&self) -> String {
        D::DESCRIPTION.to_owned()
    }

    fn manner(&self) -> Manner {
        self.deed.manner()
    }

    fn aliases(&self) -> Aliases {
        D::ALIASES
    }

    fn setting(&self) -> Option<String> {
        let mut words = "below the working directory".to_owned();
        for path in &self.kit.reach.allow {
            words += &format!(" and below {}", path.display());
        }
        let post = self.kit.post.words();
        if !post.is_empty() && !self.deed.manner().read_only {
            words += &format!(", with {post} after it");
        }
        Some(words)
    }

    async fn call(&self, args: D::Args, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let done = self.act(args, context).await?;
        match done.changed {
            Some(file) => self.kit.post.run(&file, done.text, context).await,
            None => Ok(done.text.into()),
        }
    }
}

impl<D: Deed> Tooled<D> {
    async fn act(&self, args: D::Args, context: &CallContext) -> Result<Done, ToolError> {
        let (deed, reach) = (self.deed.clone(), self.kit.reach.clone());
        let mut context = context.clone();
        // A call that is dropped stops looking, too.
        context.cancel = context.cancel.child_token();
        let _stop = context.cancel.clone().drop_guard();
        let acted = tokio::task::spawn_blocking(move || deed.act(args, &Ground::of(context, reach)?)).await;
        match acted {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ToolError::Failed("the program is ending".to_owned())),
            },
        }
    }
}

/// A list of paths or patterns; also one alone, or a list that was written as a text.
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
#[cfg(unix)]
mod confinement_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
