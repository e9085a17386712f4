//! Toolsets around toolsets: new behaviour wraps, it does not edit.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Patron, Toolset, ToolsetError};
use crate::id::TaskId;
use crate::model::ToolSpec;
use crate::tool::{CallContext, DynTool, Manner, ToolError, ToolOutput};

/// Only these tools of a toolset.
pub fn narrowed(inner: Arc<dyn Toolset>, names: impl IntoIterator<Item = String>) -> Arc<dyn Toolset> {
    Arc::new(Narrowed { inner, names: names.into_iter().collect() })
}

struct Narrowed {
    inner: Arc<dyn Toolset>,
    names: Vec<String>,
}

impl Toolset for Narrowed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async {
            let mut tools = self.inner.open(patron).await?;
            tools.retain(|tool| self.names.contains(&tool.spec().name));
            Ok(tools)
        })
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        self.inner.instruction(patron)
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.inner.task_ended(task)
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// Stands in an instruction for what the toolset itself says.
const ORIGINAL: &str = "{ORIGINAL_INSTRUCTIONS}";

/// A toolset about which the agent is told something else; `{ORIGINAL_INSTRUCTIONS}` stands for what it was told.
pub fn instructed(inner: Arc<dyn Toolset>, instruction: impl Into<String>) -> Arc<dyn Toolset> {
    Arc::new(Instructed { inner, instruction: instruction.into() })
}

struct Instructed {
    inner: Arc<dyn Toolset>,
    instruction: String,
}

impl Toolset for Instructed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        self.inner.open(patron)
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        let original = self.inner.instruction(patron).unwrap_or_default();
        Some(self.instruction.replace(ORIGINAL, &original))
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.inner.task_ended(task)
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// A toolset each of whose tools is made another.
pub(super) fn each(
    inner: Arc<dyn Toolset>,
    make: impl Fn(Arc<dyn DynTool>) -> Arc<dyn DynTool> + Send + Sync + 'static,
) -> Arc<dyn Toolset> {
    Arc::new(Each { inner, make })
}

struct Each<F> {
    inner: Arc<dyn Toolset>,
    make: F,
}

impl<F> Toolset for Each<F>
where
    F: Fn(Arc<dyn DynTool>) -> Arc<dyn DynTool> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async { Ok(self.inner.open(patron).await?.into_iter().map(&self.make).collect()) })
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        self.inner.instruction(patron)
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.inner.task_ended(task)
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// A toolset whose tools have a prefix: `prefix_name`.
pub fn prefixed(inner: Arc<dyn Toolset>, prefix: impl Into<String>) -> Arc<dyn Toolset> {
    Arc::new(Prefixed { inner, prefix: prefix.into() })
}

struct Prefixed {
    inner: Arc<dyn Toolset>,
    prefix: String,
}

impl Toolset for Prefixed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open<'a>(&'a self, patron: &'a Patron) -> BoxFuture<'a, Result<Vec<Arc<dyn DynTool>>, ToolsetError>> {
        Box::pin(async {
            let tools = self.inner.open(patron).await?;
            let renamed =
                |inner| -> Arc<dyn DynTool> { Arc::new(Renamed { inner, prefix: self.prefix.clone() }) };
            Ok(tools.into_iter().map(renamed).collect())
        })
    }

    fn instruction(&self, patron: &Patron) -> Option<String> {
        self.inner.instruction(patron)
    }

    fn task_ended(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.inner.task_ended(task)
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

struct Renamed {
    inner: Arc<dyn DynTool>,
    prefix: String,
}

impl DynTool for Renamed {
    fn spec(&self) -> ToolSpec {
        let mut spec = self.inner.spec();
        spec.name = format!("{}_{}", self.prefix, spec.name);
        spec
    }

    fn manner(&self) -> Manner {
        self.inner.manner()
    }

    fn call<'a>(
        &'a self,
        arguments: &'a str,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.inner.call(arguments, context)
    }
}
