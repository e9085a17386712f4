//! Toolsets that wrap other toolsets to change their tools or instruction.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{OpenFuture, Toolset, ToolsetContext};
use crate::id::TaskId;
use crate::model::ToolSpec;
use crate::permission::RuleNames;
use crate::tool::{CallContext, CallFuture, DynTool, ToolEffects};

/// Keeps only these tools of a toolset.
pub fn only_tools(inner: Arc<dyn Toolset>, names: impl IntoIterator<Item = String>) -> Arc<dyn Toolset> {
    let names: Vec<String> = names.into_iter().collect();
    let change = move |tool: Arc<dyn DynTool>| names.contains(&tool.spec().name).then_some(tool);
    Arc::new(WrappedToolset { inner, change, instruction: None })
}

/// The placeholder for the toolset's own text in an instruction.
const ORIGINAL: &str = "{ORIGINAL_INSTRUCTIONS}";

/// Replaces a toolset's instruction; `{ORIGINAL_INSTRUCTIONS}` stands for the original one.
pub fn with_instruction(inner: Arc<dyn Toolset>, instruction: impl Into<String>) -> Arc<dyn Toolset> {
    Arc::new(WrappedToolset { inner, change: Some, instruction: Some(instruction.into()) })
}

/// Replaces each tool of a toolset with another.
pub(super) fn map_tools(
    inner: Arc<dyn Toolset>,
    make: impl Fn(Arc<dyn DynTool>) -> Arc<dyn DynTool> + Send + Sync + 'static,
) -> Arc<dyn Toolset> {
    Arc::new(WrappedToolset { inner, change: move |tool| Some(make(tool)), instruction: None })
}

/// Adds a prefix to the names of a toolset's tools: `prefix_name`.
pub fn with_prefix(inner: Arc<dyn Toolset>, prefix: impl Into<String>) -> Arc<dyn Toolset> {
    let prefix = prefix.into();
    map_tools(inner, move |inner| {
        let name = format!("{prefix}_{}", inner.spec().name);
        Arc::new(RenamedTool { inner, name, prefix: Some(prefix.clone()) })
    })
}

/// A toolset with changed tools or a changed instruction.
struct WrappedToolset<F> {
    inner: Arc<dyn Toolset>,
    /// Changes each tool, or drops it.
    change: F,
    instruction: Option<String>,
}

impl<F> Toolset for WrappedToolset<F>
where
    F: Fn(Arc<dyn DynTool>) -> Option<Arc<dyn DynTool>> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open<'a>(&'a self, context: &'a ToolsetContext) -> OpenFuture<'a> {
        Box::pin(async { Ok(self.inner.open(context).await?.into_iter().filter_map(&self.change).collect()) })
    }

    fn instruction(&self, context: &ToolsetContext) -> Option<String> {
        let original = self.inner.instruction(context);
        match &self.instruction {
            Some(instruction) => Some(instruction.replace(ORIGINAL, &original.unwrap_or_default())),
            None => original,
        }
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.inner.task_ended(task)
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn offered_tools(&self) -> Vec<Arc<dyn DynTool>> {
        self.inner.offered_tools()
    }

    fn prefix(&self) -> Option<&str> {
        self.inner.prefix()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// Gives a tool another name.
pub(crate) fn rename_tool(inner: Arc<dyn DynTool>, name: String) -> Arc<dyn DynTool> {
    Arc::new(RenamedTool { inner, name, prefix: None })
}

struct RenamedTool {
    inner: Arc<dyn DynTool>,
    name: String,
    /// The prefix of the name, if it has one. Rules for other tools of the toolset have it too.
    prefix: Option<String>,
}

impl DynTool for RenamedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), ..self.inner.spec() }
    }

    fn effects(&self) -> ToolEffects {
        self.inner.effects()
    }

    fn wrapped(&self) -> Option<&dyn DynTool> {
        Some(&*self.inner)
    }

    fn rule_names(&self) -> RuleNames {
        let mut names = self.inner.rule_names();
        if let Some(prefix) = &self.prefix {
            let prefixed: Vec<_> = names.covered_by.iter().map(|tool| format!("{prefix}_{tool}")).collect();
            names.covered_by.extend(prefixed);
        }
        names
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        self.inner.call(arguments, context)
    }
}
