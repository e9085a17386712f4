//! Makes the model describe each call, so that people can see what a call is for before they approve it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Toolset;
use super::wrappers::map_tools;
use crate::model::ToolSpec;
use crate::tool::{CallContext, CallFuture, DynTool, PreviewFuture, ToolEffects, ToolError};

/// The name of the added argument.
const DESCRIPTION: &str = "description";

/// Wraps a toolset: its tools take one more argument, a description of the call. A tool that already has an
/// argument of that name stays unchanged.
pub fn with_call_description(inner: Arc<dyn Toolset>) -> Arc<dyn Toolset> {
    map_tools(inner, |tool| {
        let spec = tool.spec();
        let has = spec.parameters.get("properties").is_some_and(|all| all.get(DESCRIPTION).is_some());
        if has || !spec.parameters.is_object() { tool } else { Arc::new(DescribedTool(tool)) }
    })
}

struct DescribedTool(Arc<dyn DynTool>);

impl DynTool for DescribedTool {
    fn spec(&self) -> ToolSpec {
        let mut spec = self.0.spec();
        let about =
            json!({"type": "string", "description": "What this call is for, in a few words, for people."});
        if let Some(parameters) = spec.parameters.as_object_mut() {
            let properties = parameters.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.insert(DESCRIPTION.to_owned(), about);
            }
        }
        spec
    }

    fn effects(&self) -> ToolEffects {
        self.0.effects()
    }

    fn wrapped(&self) -> Option<&dyn DynTool> {
        Some(&*self.0)
    }

    fn canonical_arguments(&self, arguments: &str) -> Result<String, ToolError> {
        let (description, rest) = split(arguments);
        let seen = self.0.canonical_arguments(rest.as_deref().unwrap_or(arguments))?;
        match (description, serde_json::from_str::<Map<String, Value>>(&seen)) {
            (Some(description), Ok(mut seen)) => {
                seen.insert(DESCRIPTION.to_owned(), description);
                Ok(Value::Object(seen).to_string())
            }
            _ => Ok(seen),
        }
    }

    fn preview<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> PreviewFuture<'a> {
        Box::pin(async move {
            let (_, rest) = split(arguments);
            self.0.preview(rest.as_deref().unwrap_or(arguments), context).await
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a CallContext) -> CallFuture<'a> {
        Box::pin(async move {
            let (_, rest) = split(arguments);
            self.0.call(rest.as_deref().unwrap_or(arguments), context).await
        })
    }
}

/// Splits the description off the arguments. Arguments that are not an object, or have no description, are
/// returned unchanged.
fn split(arguments: &str) -> (Option<Value>, Option<String>) {
    let Ok(mut given) = serde_json::from_str::<Map<String, Value>>(arguments) else { return (None, None) };
    match given.remove(DESCRIPTION) {
        Some(description) => (Some(description), Some(Value::Object(given).to_string())),
        None => (None, None),
    }
}
