//! Toolsets around toolsets: new behaviour wraps, it does not edit.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Patron, Toolset, ToolsetError};
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
