//! Tools as providers are offered them: the same for all families but for the dialect of their schemas.

use std::sync::Arc;

use serde_json::Value;

use super::WireCache;
use super::schema::{self, SchemaDialect};
use super::tool_names::wire_name;
use crate::model::ToolSpec;

/// A tool in the form of a provider.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireTool {
    /// Its name, as the provider takes it.
    pub(crate) name: String,
    /// What it does, and whatever of its schema had to be said in words.
    pub(crate) description: String,
    /// The schema of its arguments: always that of an object.
    pub(crate) parameters: Value,
}

/// A tool as the provider takes it, or why it cannot be said there.
pub(crate) fn to_wire_tool(spec: &ToolSpec, dialect: &SchemaDialect) -> Result<WireTool, String> {
    let schema::AdaptedSchema { schema: parameters, notes } =
        schema::adapt_arguments(&spec.parameters, dialect)?;
    let mut description = spec.description.clone();
    for note in notes {
        if !description.is_empty() {
            description.push('\n');
        }
        description.push_str(&note);
    }
    Ok(WireTool { name: wire_name(&spec.name).into_owned(), description, parameters })
}

/// The tools of a conversation, written once for as long as they stay the same.
#[derive(Debug, Default)]
pub(crate) struct ToolBytes {
    specs: Vec<Arc<ToolSpec>>,
    bytes: Vec<u8>,
}

impl ToolBytes {
    /// What was written last.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the tools, with commas between them. One that the provider cannot be told of is left out, and people are warned of it.
    pub(crate) fn write(
        &mut self,
        tools: &[Arc<ToolSpec>],
        dialect: &SchemaDialect,
        memo: &WireCache,
        form: impl Fn(&mut Vec<u8>, WireTool),
    ) -> &[u8] {
        let same =
            self.specs.len() == tools.len() && self.specs.iter().zip(tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if same {
            return &self.bytes;
        }
        self.specs = tools.to_vec();
        self.bytes.clear();
        for tool in tools {
            match to_wire_tool(tool, dialect) {
                Ok(offered) => {
                    if !self.bytes.is_empty() {
                        self.bytes.push(b',');
                    }
                    form(&mut self.bytes, offered);
                }
                Err(why) => memo.warn(format!(
                    "the tool '{}' is not offered to the model: its schema cannot be expressed for {}: {why}",
                    tool.name, dialect.name
                )),
            }
        }
        &self.bytes
    }
}
